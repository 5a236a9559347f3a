//! Probation and main columns, one sweep over each, and a ghost.
//!
//! ```text
//!  stores --> | probation: the newest columns | --not read--> ghost
//!                     | read, or in the ghost
//!                     v
//!             | main: swept in log order      | --cold------> ghost
//!                     |           ^
//!                     +-- warm ---+ a little colder
//! ```
//!
//! This is S3-FIFO (Yang et al., FIFO queues are all you need for cache eviction, SOSP 2023) on columns, with three
//! changes that the traces asked for: one read is enough to leave probation; what the sweep of the main columns evicts is
//! remembered too; and the share of the probation is not a constant: shadows try several (see [`Shadows`]). The ghost is
//! asked when an item's probation ends, not when it is stored: a request leaves no more than its trace.

use super::{
    Candidate, HitmapMaker, Judged, Part, Queue, Residents, Temperature, TemperatureFacts, Verdict,
    keep_within,
};
use larder_memory::ColumnId;
use larder_temperature::{Digest, Ghost, Hitmap, Reference, Shadows};

/// Shares of the columns that the probation may have. The first is S3-FIFO's.
const SHARES: [f64; 3] = [0.1, 0.4, 0.8];
/// The hitmap ages by so many bytes at once, at least; all of it if it is smaller.
const AGE_BYTES_MIN: u64 = 4 << 10;
/// What is kept about items is refitted when there are so many times more of them, or fewer: it grows by doublings.
const REFIT_MORE: u64 = 2;
const REFIT_FEWER: u64 = 3;

/// Probation, main, ghost.
pub struct Sweep {
    /// `None`: the index entries say what is warm.
    make: Option<HitmapMaker>,
    /// Made when the number of items is known; nothing is warm before.
    hitmap: Option<Box<dyn Hitmap>>,
    probation: Queue,
    main: Queue,
    ghost: Ghost,
    shadows: Shadows,
    /// Items that ghost and hitmap were made for; 0 = not yet.
    fitted_items: u64,
    /// Bytes of the hitmap that should have aged by now and have not.
    age_bytes: u64,
    facts: TemperatureFacts,
    /// Kept for their memory.
    levels: Vec<u8>,
    digests: Vec<Digest>,
    reads: Vec<Reference>,
}

impl Sweep {
    /// With the warmth of the index entries.
    pub fn by_entry() -> Sweep {
        Sweep::new(None)
    }

    /// With the zones of a hitmap.
    pub fn by_hitmap(make: HitmapMaker) -> Sweep {
        Sweep::new(Some(make))
    }

    fn new(make: Option<HitmapMaker>) -> Sweep {
        Sweep {
            make,
            hitmap: None,
            probation: Queue::default(),
            main: Queue::default(),
            ghost: Ghost::for_entries(1),
            shadows: Shadows::new(&SHARES),
            fitted_items: 0,
            age_bytes: 0,
            facts: TemperatureFacts::default(),
            levels: Vec::new(),
            digests: Vec::new(),
            reads: Vec::new(),
        }
    }

    /// How warm each item is, into `levels`.
    fn look_up(&mut self, items: &[Judged]) {
        self.levels.clear();
        match &mut self.hitmap {
            None if self.make.is_some() => self.levels.resize(items.len(), 0),
            None => self.levels.extend(items.iter().map(|item| item.warmth)),
            Some(hitmap) => {
                self.digests.clear();
                self.digests.extend(items.iter().map(|item| Digest::of(item.hash)));
                hitmap.zones(&self.digests, &mut self.levels);
            }
        }
    }

    /// Whether ghost and hitmap were made for too few items, or far too many.
    fn must_refit(&self, items: u64) -> bool {
        items >= self.fitted_items * REFIT_MORE || items < self.fitted_items / REFIT_FEWER
    }

    /// One sweep of the main columns is one aging of the hitmap, line by line: as the counter in an entry, a key's zone
    /// goes down by one while the sweep goes round once.
    fn age(&mut self, examined: usize) {
        let columns = self.columns().max(1) as u64;
        let Some(hitmap) = &mut self.hitmap else { return };
        let bytes = hitmap.bytes_for(0);
        let main_items = (self.fitted_items * self.main.len() as u64 / columns).max(examined as u64);
        self.age_bytes += bytes * examined as u64 / main_items.max(1);
        if self.age_bytes >= AGE_BYTES_MIN.min(bytes) {
            self.facts.agings += u64::from(!hitmap.age_some(0));
            hitmap.age();
            hitmap.age_some(self.age_bytes as usize);
            self.age_bytes = 0;
        }
    }
}

impl Temperature for Sweep {
    fn sealed(&mut self, column: ColumnId, birth: u64, part: Part) {
        match part {
            Part::Probation => self.probation.push(column, birth),
            Part::Main => self.main.push(column, birth),
        }
    }

    fn victim(&mut self, standing: &mut dyn FnMut(ColumnId, u64) -> Candidate) -> Option<ColumnId> {
        let probation = self.probation.next(standing);
        let main = self.main.next(standing);
        let columns = (self.probation.len() + self.main.len()) as f64;
        let is_over = self.probation.len() as f64 > self.shadows.best() * columns;
        // One that is mostly dead is cheap wherever it is; else the part that has more than its share.
        let from_probation = match (probation, main) {
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return None,
            (Some(one), Some(other)) if one.is_hollow != other.is_hollow => one.is_hollow,
            (Some(_), Some(_)) => is_over,
        };
        if from_probation { self.probation.take(probation?) } else { self.main.take(main?) }
    }

    fn put_back(&mut self, column: ColumnId, birth: u64, part: Part) {
        match part {
            Part::Probation => self.probation.put_back(column, birth),
            Part::Main => self.main.put_back(column, birth),
        }
    }

    fn judge(&mut self, part: Part, items: &[Judged], keep_bytes_max: u64, verdicts: &mut Vec<Verdict>) {
        self.look_up(items);
        if part == Part::Main {
            self.age(items.len());
        }
        items.iter().for_each(|item| self.ghost.prefetch(item.hash));
        if part == Part::Probation {
            for (level, item) in self.levels.iter_mut().zip(items) {
                if *level == 0 && self.ghost.take(item.hash) {
                    *level = 1;
                    self.facts.ghost_hits += 1;
                }
            }
        }
        keep_within(&mut self.levels, items, keep_bytes_max);
        for (&level, item) in self.levels.iter().zip(items) {
            if level == 0 {
                self.ghost.push(item.hash);
                verdicts.push(Verdict::Evict);
            } else {
                let warmth = if part == Part::Main && self.make.is_none() { level - 1 } else { 0 };
                verdicts.push(Verdict::Keep { warmth });
            }
        }
        let evicted = self.levels.iter().filter(|level| **level == 0).count() as u64;
        match part {
            Part::Probation => {
                self.facts.evicted_probation += evicted;
                self.facts.promoted += items.len() as u64 - evicted;
            }
            Part::Main => self.facts.evicted_main += evicted,
        }
    }

    fn refer(&mut self, references: &[Reference], _: &mut dyn Residents) {
        self.facts.references += references.len() as u64;
        references.iter().for_each(|reference| self.shadows.reference(*reference));
        let Some(hitmap) = &mut self.hitmap else { return };
        // A new item is not marked: whoever is not read meanwhile leaves when its probation ends.
        self.reads.clear();
        self.reads.extend(references.iter().filter(|reference| !reference.is_store()));
        hitmap.mark(&self.reads);
    }

    fn wanted_below(&self) -> u32 {
        // Before it is known how many items there will be, there is nothing to take note in.
        if self.hitmap.is_some() { 1 << Digest::BITS } else { self.shadows.below() }
    }

    fn fit(&mut self, items: u64) {
        self.shadows.fit(items);
        if !self.must_refit(items) {
            return;
        }
        match (&mut self.hitmap, &self.make) {
            (Some(hitmap), _) => hitmap.grow(items),
            (none, Some(maker)) => *none = Some((maker.make)(items)),
            (None, None) => {}
        }
        match self.fitted_items {
            0 => self.ghost = Ghost::for_entries(items),
            _ => self.ghost.resize(items),
        }
        self.fitted_items = items.max(1);
    }

    fn bytes_for(&self, items: u64) -> u64 {
        let items = if self.must_refit(items) { items } else { 0 };
        let ghost_bytes = self.ghost.bytes().max(items * Ghost::ENTRY_BYTES);
        let hitmap_bytes = self.make.as_ref().map_or(0, |make| make.bytes(self.hitmap.as_deref(), items));
        hitmap_bytes + ghost_bytes + self.shadows.bytes()
    }

    fn columns(&self) -> usize {
        self.probation.len() + self.main.len()
    }

    fn forget_gone(&mut self, standing: &mut dyn FnMut(ColumnId, u64) -> Candidate) {
        self.probation.forget_gone(standing);
        self.main.forget_gone(standing);
    }

    fn facts(&self) -> TemperatureFacts {
        TemperatureFacts {
            place: self.hitmap.as_ref().map(|hitmap| hitmap.place()).unwrap_or_default(),
            probation_share: self.shadows.best(),
            probation_columns: self.probation.len() as u64,
            main_columns: self.main.len() as u64,
            bytes: self.bytes_for(0),
            ..self.facts.clone()
        }
    }
}
