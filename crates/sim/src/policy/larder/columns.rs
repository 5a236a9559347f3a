//! The cache's policy over columns of items.

use larder_cache::{ByAge, Candidate, ColumnId, ColumnStanding, Temperature, Verdict};

use super::WARMTH_BITS;
use crate::policy::{Access, Policy};

/// Columns the capacity is divided into, unless they would hold more than [`COLUMN_ITEMS_MAX`].
const COLUMNS_WANTED: u32 = 1000;
/// Most items of a column: those of 512 octets in one of 256 KiB.
const COLUMN_ITEMS_MAX: u32 = 512;
/// No place.
const ABSENT: u32 = u32::MAX;

/// A column of items.
struct Column {
    /// Its items' numbers; [`ABSENT`] = dead.
    items: Vec<u32>,
    /// How many it may hold.
    room: u32,
    live: u32,
    birth: u64,
    is_sealed: bool,
}

/// What the index knows of an item.
#[derive(Clone, Copy)]
struct Entry {
    /// Its column, or [`ABSENT`].
    column: u32,
    /// Its position there, and its warmth in the two highest bits.
    at: u32,
}

const WARM: u32 = 1 << 30;
const GONE: Entry = Entry { column: ABSENT, at: 0 };

/// `ByAge` over columns of items.
pub(super) struct Columns {
    temperature: ByAge,
    columns: Vec<Column>,
    free: Vec<u32>,
    /// Columns that are being filled: with new items, and with survivors.
    open: Option<u32>,
    survivors: Option<u32>,
    index: Vec<Entry>,
    births: u64,
    live: u64,
    /// Survivors on their way, kept for its memory.
    kept: Vec<u32>,
}

impl Columns {
    /// For `capacity` items.
    pub(super) fn new(capacity: u32) -> Columns {
        let room = (capacity / COLUMNS_WANTED).clamp(1, COLUMN_ITEMS_MAX);
        let count = capacity / room;
        let columns: Vec<Column> = (0..count)
            .map(|number| Column {
                items: Vec::new(),
                // What is left over is spread, so that the rooms add up to the capacity.
                room: capacity / count + u32::from(number < capacity % count),
                live: 0,
                birth: 0,
                is_sealed: false,
            })
            .collect();
        Columns {
            temperature: ByAge::default(),
            free: (0..count).rev().collect(),
            columns,
            open: None,
            survivors: None,
            index: Vec::new(),
            births: 0,
            live: 0,
            kept: Vec::new(),
        }
    }

    /// Puts an item into `column`, which has room.
    fn put(&mut self, id: u32, column: u32) {
        let place = &mut self.columns[column as usize];
        self.index[id as usize] = Entry { column, at: place.items.len() as u32 };
        place.items.push(id);
        place.live += 1;
    }

    fn has_room(&self, column: u32) -> bool {
        let column = &self.columns[column as usize];
        (column.items.len() as u32) < column.room
    }

    fn seal(&mut self, column: u32) {
        let sealed = &mut self.columns[column as usize];
        sealed.is_sealed = true;
        self.temperature.sealed(ColumnId(column), sealed.birth);
    }

    fn take(&mut self, column: u32) -> u32 {
        self.births += 1;
        self.columns[column as usize].birth = self.births;
        column
    }

    /// The column that takes the next new item.
    fn open_column(&mut self) -> u32 {
        if let Some(open) = self.open {
            if self.has_room(open) {
                return open;
            }
            self.seal(open);
            self.open = None;
        }
        while self.free.is_empty() {
            self.reclaim();
        }
        let free = self.free.pop().expect("the pass ends with a free column");
        let open = self.take(free);
        self.open = Some(open);
        open
    }

    /// The pass over one column: what is read stays once more, up to seven eighths of the column, as in the
    /// keeper's.
    fn reclaim(&mut self) {
        let columns = &self.columns;
        let victim = self.temperature.victim(&mut |column, birth| {
            let found = &columns[column.0 as usize];
            if found.birth != birth || !found.is_sealed {
                return Candidate::Gone;
            }
            Candidate::Ready(ColumnStanding {
                column,
                live_bytes: u64::from(found.live),
                column_bytes: u64::from(found.room),
            })
        });
        let Some(ColumnId(victim)) = victim else {
            // Nothing is sealed but the survivors' column: it is next.
            if let Some(survivors) = self.survivors.take() {
                self.seal(survivors);
            }
            return;
        };
        self.empty(victim);
        let kept = std::mem::take(&mut self.kept);
        for &id in &kept {
            let column = self.survivors_column();
            self.put(id, column);
        }
        self.kept = kept;
    }

    /// Takes everything out of a column; those that may stay are in `kept`.
    fn empty(&mut self, victim: u32) {
        let column = &mut self.columns[victim as usize];
        column.is_sealed = false;
        column.live = 0;
        let keep_max = (column.room * 7 / 8).max(1) as usize;
        self.kept.clear();
        for id in column.items.drain(..).filter(|id| *id != ABSENT) {
            let warmth = (self.index[id as usize].at / WARM) as u8;
            self.index[id as usize] = GONE;
            if self.kept.len() < keep_max && matches!(self.temperature.verdict(warmth), Verdict::Keep { .. })
            {
                self.kept.push(id);
            } else {
                self.live -= 1;
            }
        }
        self.free.push(victim);
    }

    /// The column that takes the next survivor. One is free: that which was just emptied.
    fn survivors_column(&mut self) -> u32 {
        if let Some(survivors) = self.survivors {
            if self.has_room(survivors) {
                return survivors;
            }
            self.seal(survivors);
        }
        let free = self.free.pop().expect("what survives a column fits into one");
        let taken = self.take(free);
        self.survivors = Some(taken);
        taken
    }
}

impl Policy for Columns {
    fn access(&mut self, access: &Access) -> bool {
        let id = access.id as usize;
        if id >= self.index.len() {
            self.index.resize(id + 1, GONE);
        }
        let entry = &mut self.index[id];
        if entry.column != ABSENT {
            // The warmth counts to 3 and stays there.
            entry.at = if entry.at / WARM < 3 { entry.at + WARM } else { entry.at };
            return true;
        }
        let column = self.open_column();
        self.put(access.id, column);
        self.live += 1;
        false
    }

    fn contains(&self, id: u32) -> bool {
        self.index.get(id as usize).is_some_and(|entry| entry.column != ABSENT)
    }

    fn remove(&mut self, id: u32) {
        if !self.contains(id) {
            return;
        }
        let entry = std::mem::replace(&mut self.index[id as usize], GONE);
        let column = &mut self.columns[entry.column as usize];
        column.items[(entry.at % WARM) as usize] = ABSENT;
        column.live -= 1;
        self.live -= 1;
    }

    fn used(&self) -> u64 {
        self.live
    }

    fn items(&self) -> u64 {
        self.live
    }

    /// Two bits of warmth, and a column's 64 octets shared by its items.
    fn metadata_bits(&self) -> f64 {
        let room = self.columns.iter().map(|column| f64::from(column.room)).sum::<f64>();
        WARMTH_BITS + COLUMN_META_BITS * self.columns.len() as f64 / room
    }
}

/// Bookkeeping of a column, in bits.
const COLUMN_META_BITS: f64 = 64.0 * 8.0;
