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
//! This is S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023) on columns, with three
//! changes that the measurements on traces asked for. One read is enough to leave the probation. The ghost also
//! remembers what the sweep of the main columns evicts. And the probation's share of the columns is not a constant:
//! shadows try several shares (see [`Shadows`]). The ghost is asked when an item's probation ends, not when the item is
//! stored, so that a request stays cheap.
//!
//! The ranking above says how many bytes of a column go. Which items go depends on what they are worth, too: see
//! [`Appraisal`].
//!
//! A column with few live bytes does not wait for its turn: it is the victim before the oldest column of its queue.

use super::appraisal::Appraisal;
use super::column_queue::ColumnQueue;
use super::hitmap_maker::HitmapMaker;
use super::policy::{Judged, Queue, Residents, Temperature, TemperatureStats, Verdict};
use crate::ranking::Candidate;
use larder_allocation::{ColumnBounds, WorthOptions};
use larder_memory::ColumnId;
use larder_temperature::{Digest, Ghost, Hitmap, Reference, Shadows};

/// Shares of the columns that the probation may have. The first one is S3-FIFO's.
const SHARES: [f64; 3] = [0.1, 0.4, 0.8];
/// The hitmap is aged in steps of so many bytes at least, or as a whole if it is smaller.
const AGE_BYTES_MIN: u64 = 4 << 10;
/// Ghost and hitmap are refitted when there are so many times more items, or fewer. They grow by doublings.
const REFIT_MORE: u64 = 2;
const REFIT_FEWER: u64 = 3;

/// The default policy: probation, main queue and ghost.
pub struct Sweep {
    /// Makes the hitmap. `None`: the index entries say which items are warm.
    make: Option<HitmapMaker>,
    /// Made when the number of items is known. Before that, no item is warm.
    hitmap: Option<Box<dyn Hitmap>>,
    probation: ColumnQueue,
    main: ColumnQueue,
    ghost: Ghost,
    shadows: Shadows,
    appraisal: Appraisal,
    /// How many items ghost and hitmap were made for; 0 = they were not made yet.
    fitted_items: u64,
    /// Bytes of the hitmap that should have been aged by now and were not.
    age_bytes: u64,
    stats: TemperatureStats,
    /// Room for one batch. The three vectors are kept for their memory.
    levels: Vec<u8>,
    digests: Vec<Digest>,
    reads: Vec<Reference>,
}

impl Sweep {
    /// A policy that takes the warmth from the index entries.
    pub fn by_entry() -> Sweep {
        Sweep::new(None)
    }

    /// A policy that takes the warmth from a hitmap.
    pub fn by_hitmap(make: HitmapMaker) -> Sweep {
        Sweep::new(Some(make))
    }

    fn new(make: Option<HitmapMaker>) -> Sweep {
        Sweep {
            make,
            hitmap: None,
            probation: ColumnQueue::default(),
            main: ColumnQueue::default(),
            ghost: Ghost::for_entries(1),
            shadows: Shadows::new(&SHARES),
            appraisal: Appraisal::default(),
            fitted_items: 0,
            age_bytes: 0,
            stats: TemperatureStats::default(),
            levels: Vec::new(),
            digests: Vec::new(),
            reads: Vec::new(),
        }
    }

    /// Writes the warmth of each item to `levels`.
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

    /// Whether ghost and hitmap were made for too few items, or for far too many.
    fn must_refit(&self, items: u64) -> bool {
        items >= self.fitted_items * REFIT_MORE || items < self.fitted_items / REFIT_FEWER
    }

    /// Ages the hitmap by as much of it as was judged of the main columns: while the sweep goes round once, each key's
    /// zone goes down by one, as the counter in an entry would.
    fn age(&mut self, examined: usize) {
        let columns = self.columns().max(1) as u64;
        let Some(hitmap) = &mut self.hitmap else { return };
        let bytes = hitmap.bytes_for(0);
        let main_items = (self.fitted_items * self.main.len() as u64 / columns).max(examined as u64);
        self.age_bytes += bytes * examined as u64 / main_items.max(1);
        if self.age_bytes >= AGE_BYTES_MIN.min(bytes) {
            self.stats.agings += u64::from(!hitmap.age_some(0));
            hitmap.age();
            hitmap.age_some(self.age_bytes as usize);
            self.age_bytes = 0;
        }
    }
}

impl Temperature for Sweep {
    fn sealed(&mut self, column: ColumnId, birth: u64, queue: Queue) {
        match queue {
            Queue::Probation => self.probation.push(column, birth),
            Queue::Main => self.main.push(column, birth),
        }
    }

    fn victim(&mut self, status_of: &mut dyn FnMut(ColumnId, u64) -> Candidate) -> Option<ColumnId> {
        let probation = self.probation.next(status_of);
        let main = self.main.next(status_of);
        let columns = (self.probation.len() + self.main.len()) as f64;
        let is_over = self.probation.len() as f64 > self.shadows.best() * columns;
        // A sparse column is cheap in either queue. Otherwise the queue that has more than its share gives.
        let from_probation = match (probation, main) {
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return None,
            (Some(one), Some(other)) if one.is_sparse != other.is_sparse => one.is_sparse,
            (Some(_), Some(_)) => is_over,
        };
        if from_probation { self.probation.take(probation?) } else { self.main.take(main?) }
    }

    fn put_back(&mut self, column: ColumnId, birth: u64, queue: Queue) {
        match queue {
            Queue::Probation => self.probation.put_back(column, birth),
            Queue::Main => self.main.put_back(column, birth),
        }
    }

    fn judge(&mut self, queue: Queue, items: &[Judged], bounds: ColumnBounds, verdicts: &mut Vec<Verdict>) {
        self.look_up(items);
        if queue == Queue::Main {
            self.age(items.len());
        }
        items.iter().for_each(|item| self.ghost.prefetch(item.hash));
        let Sweep { levels, ghost, appraisal, .. } = self;
        appraisal.begin(queue);
        for (level, item) in levels.iter_mut().zip(items) {
            let has_returned = queue == Queue::Probation && *level == 0 && ghost.take(item.hash);
            if has_returned {
                *level = 1;
                self.stats.ghost_hits += 1;
            }
            appraisal.add(item, *level, has_returned);
        }
        let main_items = self.fitted_items * self.main.len() as u64 / self.columns().max(1) as u64;
        let goes = self.appraisal.decide(&mut self.levels, items, bounds, main_items);
        for ((&level, item), &goes) in self.levels.iter().zip(items).zip(goes) {
            if goes {
                self.ghost.push(item.hash);
                verdicts.push(Verdict::Evict);
            } else {
                let cools = queue == Queue::Main && self.make.is_none();
                verdicts.push(Verdict::Keep { warmth: if cools { level.saturating_sub(1) } else { 0 } });
            }
        }
        let evicted = goes.iter().filter(|goes| **goes).count() as u64;
        match queue {
            Queue::Probation => {
                self.stats.evicted_probation += evicted;
                self.stats.promoted += items.len() as u64 - evicted;
            }
            Queue::Main => self.stats.evicted_main += evicted,
        }
    }

    fn set_worth(&mut self, worth: WorthOptions) {
        self.appraisal.set_options(worth);
    }

    fn refer(&mut self, references: &[Reference], _: &mut dyn Residents) {
        self.stats.references += references.len() as u64;
        references.iter().for_each(|reference| self.shadows.reference(*reference));
        self.appraisal.refer(references);
        let Some(hitmap) = &mut self.hitmap else { return };
        // A store is no mark: an item that is not read leaves when its probation ends.
        self.reads.clear();
        self.reads.extend(references.iter().filter(|reference| !reference.is_store()));
        hitmap.mark(&self.reads);
    }

    fn wanted_below(&self) -> u32 {
        // Before the number of items is known, there is no hitmap to mark.
        if self.hitmap.is_some() { 1 << Digest::BITS } else { self.shadows.below() }
    }

    fn fit(&mut self, items: u64) {
        self.shadows.fit(items);
        self.appraisal.fit(items, self.shadows.below());
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
        hitmap_bytes + ghost_bytes + self.shadows.bytes() + self.appraisal.bytes()
    }

    fn columns(&self) -> usize {
        self.probation.len() + self.main.len()
    }

    fn forget_gone(&mut self, status_of: &mut dyn FnMut(ColumnId, u64) -> Candidate) {
        self.probation.forget_gone(status_of);
        self.main.forget_gone(status_of);
    }

    fn stats(&self) -> TemperatureStats {
        TemperatureStats {
            place: self.hitmap.as_ref().map(|hitmap| hitmap.processor()).unwrap_or_default(),
            probation_share: self.shadows.best(),
            probation_columns: self.probation.len() as u64,
            main_columns: self.main.len() as u64,
            bytes: self.bytes_for(0),
            groups: self.appraisal.stats(self.probation.len() as u64, self.main.len() as u64),
            ..self.stats.clone()
        }
    }
}
