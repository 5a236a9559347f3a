//! The cache's policy over columns of items.

use larder_cache::{
    Candidate, ColumnId, ColumnStanding, Judged, KeyHash, Part, Patience, Resident, Residents, Temperature,
    TemperatureKind, Verdict,
};
use larder_temperature::{Digest, Reference};

use crate::mix::mix64;
use crate::policy::interface::{Access, Policy, WARMTH_BITS};

/// Columns the capacity is divided into, unless they would hold more than [`COLUMN_ITEMS_MAX`].
const COLUMNS_WANTED: u32 = 1000;
/// Most items of a column: those of 512 octets in one of 256 KiB.
const COLUMN_ITEMS_MAX: u32 = 512;
/// References that reach the policy together: a half per cent of the capacity, and what a page holds at most. A
/// server's caches are so much larger that a page is less than that.
const BATCH_SHARE: u32 = 200;
const BATCH_MAX: u32 = 1024;
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
    part: Part,
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

/// A policy over columns of items.
pub(super) struct Columns {
    warmth_bits: f64,
    temperature: Box<dyn Temperature>,
    capacity: u32,
    columns: Vec<Column>,
    free: Vec<u32>,
    /// Columns that are being filled: with new items, and with survivors.
    open: Option<u32>,
    survivors: Option<u32>,
    index: Vec<Entry>,
    births: u64,
    live: u64,
    /// References on their way to the policy.
    references: Vec<Reference>,
    batch: usize,
    lots: u64,
    patience: Patience,
    /// A column on its way out, kept for their memory.
    leaving: Vec<u32>,
    judged: Vec<Judged>,
    verdicts: Vec<Verdict>,
}

/// The hash of a key's number.
fn hash(id: u32) -> KeyHash {
    KeyHash(mix64(u64::from(id)))
}

/// References that reach the policy together, where nobody says otherwise.
pub(super) fn batch_for(capacity: u32) -> usize {
    (capacity / BATCH_SHARE).clamp(1, BATCH_MAX) as usize
}

impl Columns {
    /// For `capacity` items. The published hitmap judges single items, as its paper does.
    pub(super) fn new(capacity: u32, kind: TemperatureKind, seed: u64) -> Columns {
        let room = match kind {
            TemperatureKind::HitmapPublished => 1,
            _ => (capacity / COLUMNS_WANTED).clamp(1, COLUMN_ITEMS_MAX),
        };
        let mut columns = Columns::of(kind.build(), capacity, room, batch_for(capacity), seed);
        columns.warmth_bits = if kind == TemperatureKind::Entry { WARMTH_BITS } else { 0.0 };
        columns
    }

    /// For `capacity` items in columns of `room`; `batch` references reach the policy together.
    pub(super) fn of(
        mut temperature: Box<dyn Temperature>,
        capacity: u32,
        room: u32,
        batch: usize,
        seed: u64,
    ) -> Columns {
        let count = capacity / room;
        let columns: Vec<Column> = (0..count)
            .map(|number| Column {
                items: Vec::new(),
                // What is left over is spread, so that the rooms add up to the capacity.
                room: capacity / count + u32::from(number < capacity % count),
                live: 0,
                birth: 0,
                is_sealed: false,
                part: Part::Probation,
            })
            .collect();
        temperature.fit(u64::from(capacity));
        Columns {
            warmth_bits: 0.0,
            temperature,
            capacity,
            free: (0..count).rev().collect(),
            columns,
            open: None,
            survivors: None,
            index: Vec::new(),
            births: 0,
            live: 0,
            references: Vec::new(),
            batch,
            lots: seed,
            // As many items as the keeper's eight passes would meet in columns of the largest size.
            patience: Patience::of_passes(8 * COLUMN_ITEMS_MAX / room),
            leaving: Vec::new(),
            judged: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    /// Leaves a trace, and hands a full batch to the policy.
    fn note(&mut self, reference: Reference) {
        if reference.digest().bits() >= self.temperature.wanted_below() {
            return;
        }
        self.references.push(reference);
        if self.references.len() >= self.batch {
            let mut draw = Draw { columns: &self.columns, lots: &mut self.lots };
            self.temperature.refer(&self.references, &mut draw);
            self.references.clear();
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
        self.temperature.sealed(ColumnId(column), sealed.birth, sealed.part);
    }

    fn take(&mut self, column: u32, part: Part) -> u32 {
        self.births += 1;
        let taken = &mut self.columns[column as usize];
        (taken.birth, taken.part) = (self.births, part);
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
        let open = self.take(free, Part::Probation);
        self.open = Some(open);
        open
    }

    /// The pass over one column, as the keeper's.
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
        let (leaving, verdicts) = (std::mem::take(&mut self.leaving), std::mem::take(&mut self.verdicts));
        for (&id, verdict) in leaving.iter().zip(&verdicts) {
            match *verdict {
                Verdict::Keep { warmth } => {
                    let column = self.survivors_column();
                    self.put(id, column);
                    self.index[id as usize].at += WARM * u32::from(warmth);
                }
                Verdict::Evict => self.live -= 1,
            }
        }
        (self.leaving, self.verdicts) = (leaving, verdicts);
    }

    /// Takes everything out of a column and asks who may stay.
    fn empty(&mut self, victim: u32) {
        let column = &mut self.columns[victim as usize];
        column.is_sealed = false;
        column.live = 0;
        let room = u64::from(column.room);
        let keep_max = self.patience.keep_bytes_max(room);
        self.leaving.clear();
        self.leaving.extend(column.items.drain(..).filter(|id| *id != ABSENT));
        self.judged.clear();
        for &id in &self.leaving {
            let warmth = (self.index[id as usize].at / WARM) as u8;
            self.index[id as usize] = GONE;
            self.judged.push(Judged { hash: hash(id), warmth, bytes: 1 });
        }
        self.verdicts.clear();
        self.temperature.judge(column.part, &self.judged, keep_max, &mut self.verdicts);
        let kept = self.verdicts.iter().filter(|verdict| **verdict != Verdict::Evict).count();
        self.patience.spend(kept as u64, room);
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
        let taken = self.take(free, Part::Main);
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
            self.note(Reference::read(Digest::of(hash(access.id))));
            return true;
        }
        let column = self.open_column();
        self.put(access.id, column);
        self.live += 1;
        self.note(Reference::store(Digest::of(hash(access.id))));
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

    /// Two bits of warmth where they count, and ghost, hitmap and shadows.
    fn metadata_bits(&self) -> f64 {
        let capacity = u64::from(self.capacity);
        self.warmth_bits + self.temperature.bytes_for(capacity) as f64 * 8.0 / capacity as f64
    }
}

/// Draws places at random; those that are empty are drawn in vain.
struct Draw<'a> {
    columns: &'a [Column],
    lots: &'a mut u64,
}

impl Residents for Draw<'_> {
    fn sample(&mut self, count: usize, found: &mut Vec<Resident>) {
        for _ in 0..count {
            *self.lots = self.lots.wrapping_add(crate::mix::GOLDEN);
            let lot = mix64(*self.lots);
            let number = ((lot >> 32) * self.columns.len() as u64) >> 32;
            let column = &self.columns[number as usize];
            let place = ((lot & 0xffff_ffff) * u64::from(column.room)) >> 32;
            if let Some(&id) = column.items.get(place as usize)
                && id != ABSENT
            {
                found.push(Resident { hash: hash(id), column: ColumnId(number as u32), birth: column.birth });
            }
        }
    }
}
