//! Larder's policy over a model of columns in which every item has size 1.

use larder_allocation::{ColumnBounds, CostSkill, Subclass, WorthOptions};
use larder_cache::{
    Candidate, ColumnId, ColumnStatus, Judged, KeepLimit, KeyHash, NewColumns, Queue, Resident, Residents,
    Temperature, Verdict,
};
use larder_temperature::{Digest, Reference};

use super::Variant;
use crate::mix::{SplitMix, mix64};
use crate::policy::interface::{Access, Policy, WARMTH_BITS};

/// Target number of columns, unless the columns would then hold more than [`COLUMN_ITEMS_MAX`] items.
const COLUMNS_WANTED: u32 = 1000;
/// Maximum items per column: as many as a column of 256 KiB holds items of 512 bytes.
const COLUMN_ITEMS_MAX: u32 = 512;
/// Access records per batch: half a percent of the capacity, and at most as many as one page of the server holds. The
/// caches of a server are so large that a page is less than half a percent.
const BATCH_SHARE: u32 = 200;
const BATCH_MAX: u32 = 1024;
/// Marks an item without a column, and a dead item in a column.
const ABSENT: u32 = u32::MAX;

/// One column of the model.
struct Column {
    /// Key numbers of the items; [`ABSENT`] = dead.
    items: Vec<u32>,
    /// Number of items that fit into the column.
    room: u32,
    live: u32,
    birth: u64,
    is_sealed: bool,
    /// Reads of its items do not count yet.
    is_correlated: bool,
    part: Queue,
}

/// The index entry of an item.
#[derive(Clone, Copy)]
struct Entry {
    /// The column of the item, or [`ABSENT`].
    column: u32,
    /// Position of the item in its column. The two highest bits are the warmth.
    at: u32,
}

const WARM: u32 = 1 << 30;
const GONE: Entry = Entry { column: ABSENT, at: 0 };

/// A cache of columns under one of Larder's policies.
pub(super) struct Columns {
    warmth_bits: f64,
    temperature: Box<dyn Temperature>,
    capacity: u32,
    columns: Vec<Column>,
    free: Vec<u32>,
    filled: Filled,
    index: Vec<Entry>,
    costs: Costs,
    births: u64,
    live: u64,
    batch: Batch,
    rng: SplitMix,
    keep_limit: KeepLimit,
    pass: Pass,
}

/// The columns that are filled.
#[derive(Default)]
struct Filled {
    /// The column that is filled with new items.
    open: Option<u32>,
    /// The column that is filled with survivors of reclaimed columns.
    survivors: Option<u32>,
    /// The columns of new items in their correlated period.
    new: NewColumns,
}

/// What misses cost, and whether that counts.
#[derive(Default)]
struct Costs {
    /// Penalty subclass of each key's item, as of its last store.
    subclasses: Vec<Subclass>,
    worth: WorthOptions,
    /// What the penalties of misses say of the next ones, as in the server.
    skill: CostSkill,
}

/// Access records that have not yet reached the policy.
struct Batch {
    references: Vec<Reference>,
    /// The number of them that goes to the policy together.
    full: usize,
}

/// The items of a column that is reclaimed. Each pass uses the memory of the one before.
#[derive(Default)]
struct Pass {
    leaving: Vec<u32>,
    judged: Vec<Judged>,
    verdicts: Vec<Verdict>,
}

/// The hash of a key number.
fn hash(id: u32) -> KeyHash {
    KeyHash(mix64(u64::from(id)))
}

/// The penalty subclass of the item that an access stores.
fn subclass_of(access: &Access) -> Subclass {
    if access.penalty_us == 0 { Subclass::UNKNOWN } else { Subclass::of_us(access.penalty_us) }
}

/// Default number of access records per batch.
pub(super) fn batch_for(capacity: u32) -> usize {
    (capacity / BATCH_SHARE).clamp(1, BATCH_MAX) as usize
}

impl Columns {
    /// A cache of `capacity` items. With a policy that judges single items every column holds one item.
    pub(super) fn new(capacity: u32, variant: Variant, seed: u64) -> Columns {
        let kind = variant.temperature;
        let room = match kind.judges_single_items() {
            true => 1,
            false => (capacity / COLUMNS_WANTED).clamp(1, COLUMN_ITEMS_MAX),
        };
        let mut columns = Columns::of(kind.build(), capacity, room, batch_for(capacity), seed);
        columns.costs.worth = variant.worth;
        columns.warmth_bits = if kind.marks_entries() { WARMTH_BITS } else { 0.0 };
        columns
    }

    /// A cache of `capacity` items in columns of `room` items; the policy gets access records in batches of `batch`.
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
                // The remainder of the division is spread over the columns, so that their rooms add up to the
                // capacity.
                room: capacity / count + u32::from(number < capacity % count),
                live: 0,
                birth: 0,
                is_sealed: false,
                is_correlated: false,
                part: Queue::Probation,
            })
            .collect();
        temperature.fit(u64::from(capacity));
        Columns {
            warmth_bits: 0.0,
            temperature,
            capacity,
            free: (0..count).rev().collect(),
            columns,
            filled: Filled::default(),
            index: Vec::new(),
            costs: Costs::default(),
            births: 0,
            live: 0,
            batch: Batch { references: Vec::new(), full: batch },
            rng: SplitMix::new(seed),
            // Eight passes of the server's keeper, scaled to as many items in smaller columns.
            keep_limit: KeepLimit::of_passes(8 * COLUMN_ITEMS_MAX / room),
            pass: Pass::default(),
        }
    }

    /// Notes an access record, and passes a full batch to the policy.
    fn note(&mut self, reference: Reference) {
        if reference.digest().bits() >= self.temperature.wanted_below() {
            return;
        }
        self.batch.references.push(reference);
        if self.batch.references.len() >= self.batch.full {
            let mut residents = ColumnSampler { columns: &self.columns, rng: &mut self.rng };
            self.temperature.refer(&self.batch.references, &mut residents);
            self.batch.references.clear();
        }
    }

    /// Appends an item to `column`, which must have room.
    fn put(&mut self, id: u32, column: u32) {
        let taking = &mut self.columns[column as usize];
        self.index[id as usize] = Entry { column, at: taking.items.len() as u32 };
        taking.items.push(id);
        taking.live += 1;
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

    fn take(&mut self, column: u32, part: Queue) -> u32 {
        self.births += 1;
        let taken = &mut self.columns[column as usize];
        (taken.birth, taken.part, taken.is_correlated) = (self.births, part, false);
        column
    }

    /// The column that takes the next new item.
    fn open_column(&mut self) -> u32 {
        if let Some(open) = self.filled.open {
            if self.has_room(open) {
                return open;
            }
            self.seal(open);
            self.filled.open = None;
        }
        while self.free.is_empty() {
            self.reclaim();
        }
        let free = self.free.pop().expect("the pass ends with a free column");
        let open = self.take(free, Queue::Probation);
        self.filled.open = Some(open);
        self.begin_correlated(open);
        open
    }

    /// Begins the correlated period of a new column, and ends that of the columns that are not among the newest any
    /// more.
    fn begin_correlated(&mut self, open: u32) {
        let (new, columns) = (&mut self.filled.new, &mut self.columns);
        let birth = columns[open as usize].birth;
        let mut ended = |column: ColumnId, birth| {
            let column = &mut columns[column.0 as usize];
            column.is_correlated &= column.birth != birth;
        };
        new.want(self.temperature.correlated_columns(), &mut ended);
        let begins = new.opened(ColumnId(open), birth, ended);
        columns[open as usize].is_correlated = begins;
    }

    /// Reclaims one column, like one pass of the server's keeper.
    fn reclaim(&mut self) {
        let columns = &self.columns;
        let victim = self.temperature.victim(&mut |column, birth| {
            let found = &columns[column.0 as usize];
            if found.birth != birth || !found.is_sealed {
                return Candidate::Gone;
            }
            Candidate::Ready(ColumnStatus {
                column,
                live_bytes: u64::from(found.live),
                column_bytes: u64::from(found.room),
            })
        });
        let Some(ColumnId(victim)) = victim else {
            // Only the column of survivors holds items: seal it, so that it can be the victim.
            if let Some(survivors) = self.filled.survivors.take() {
                self.seal(survivors);
            }
            return;
        };
        self.empty(victim);
        let pass = std::mem::take(&mut self.pass);
        for (&id, verdict) in pass.leaving.iter().zip(&pass.verdicts) {
            match *verdict {
                Verdict::Keep { warmth } => {
                    let column = self.survivors_column();
                    self.put(id, column);
                    self.index[id as usize].at += WARM * u32::from(warmth);
                }
                Verdict::Evict => self.live -= 1,
            }
        }
        self.pass = pass;
    }

    /// Removes all items from a column and asks the policy which of them to keep.
    fn empty(&mut self, victim: u32) {
        let (column, pass) = (&mut self.columns[victim as usize], &mut self.pass);
        column.is_sealed = false;
        column.live = 0;
        let room = u64::from(column.room);
        let keep_max = self.keep_limit.keep_bytes_max(room);
        pass.leaving.clear();
        pass.leaving.extend(column.items.drain(..).filter(|id| *id != ABSENT));
        pass.judged.clear();
        for &id in &pass.leaving {
            let warmth = (self.index[id as usize].at / WARM) as u8;
            self.index[id as usize] = GONE;
            let subclass = self.costs.subclasses[id as usize];
            pass.judged.push(Judged { hash: hash(id), warmth, bytes: 1, subclass });
        }
        pass.verdicts.clear();
        let bounds = ColumnBounds { column_bytes: room, keep_bytes_max: keep_max };
        self.temperature.set_worth(self.costs.worth.by(self.costs.skill.evidence()));
        self.temperature.judge(column.part, &pass.judged, bounds, &mut pass.verdicts);
        let kept = pass.verdicts.iter().filter(|verdict| **verdict != Verdict::Evict).count();
        self.keep_limit.note_kept(kept as u64, room);
        self.free.push(victim);
    }

    /// The column that takes the next survivor. A free column exists: the one just emptied.
    fn survivors_column(&mut self) -> u32 {
        if let Some(survivors) = self.filled.survivors {
            if self.has_room(survivors) {
                return survivors;
            }
            self.seal(survivors);
        }
        let free = self.free.pop().expect("what survives a column fits into one");
        let taken = self.take(free, Queue::Main);
        self.filled.survivors = Some(taken);
        taken
    }
}

impl Policy for Columns {
    fn access(&mut self, access: &Access) -> bool {
        let id = access.id as usize;
        if id >= self.index.len() {
            self.index.resize(id + 1, GONE);
            self.costs.subclasses.resize(id + 1, Subclass::UNKNOWN);
        }
        let entry = &mut self.index[id];
        if entry.column != ABSENT {
            // The warmth saturates at 3.
            let rises = entry.at / WARM < 3 && !self.columns[entry.column as usize].is_correlated;
            entry.at += if rises { WARM } else { 0 };
            self.note(Reference::read(Digest::of(hash(access.id))));
            return true;
        }
        let column = self.open_column();
        self.put(access.id, column);
        let (key, subclass) = (hash(access.id).0, subclass_of(access));
        if CostSkill::samples(key, CostSkill::shift_for(self.capacity.into())) {
            self.costs.skill.note(key, subclass, false);
        }
        self.costs.subclasses[id] = subclass;
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

    /// Two bits of warmth where the policy uses them, and the ghost table, the warmth record and its shadows.
    fn metadata_bits(&self) -> f64 {
        let capacity = u64::from(self.capacity);
        self.warmth_bits + self.temperature.bytes_for(capacity) as f64 * 8.0 / capacity as f64
    }
}

/// Samples random positions of the columns. A position without a live item yields nothing.
struct ColumnSampler<'a> {
    columns: &'a [Column],
    rng: &'a mut SplitMix,
}

impl Residents for ColumnSampler<'_> {
    fn sample(&mut self, count: usize, found: &mut Vec<Resident>) {
        for _ in 0..count {
            let random = self.rng.next();
            let number = ((random >> 32) * self.columns.len() as u64) >> 32;
            let column = &self.columns[number as usize];
            let position = ((random & 0xffff_ffff) * u64::from(column.room)) >> 32;
            if let Some(&id) = column.items.get(position as usize)
                && id != ABSENT
            {
                found.push(Resident { hash: hash(id), column: ColumnId(number as u32), birth: column.birth });
            }
        }
    }
}
