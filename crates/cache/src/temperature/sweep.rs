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
//! This is S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023) on columns, with changes
//! that the measurements on traces asked for. One read is enough to leave the probation. The ghost also remembers what
//! the sweep of the main columns evicts. The ghost is asked when an item's probation ends, not when the item is stored,
//! so that a request stays cheap. And none of the rules is fixed: shadows try several [`Arm`]s, and the sweep follows
//! the one that misses least (see [`Shadows`]).
//!
//! The ranking above says how many bytes of a column go. Which items go depends on what they are worth, too: see
//! [`Appraisal`].
//!
//! A column with few live bytes does not wait for its turn: it is the victim before the oldest column of its queue.

use super::appraisal::Appraisal;
use super::column_queue::ColumnQueue;
use super::policy::{Judged, Queue, Residents, Temperature, TemperatureStats, Verdict};
use super::warmth_record::{COLUMNS_AHEAD, UNKNOWN_LEVEL, WarmthRecord, look_ahead};
use crate::ranking::Candidate;
use larder_allocation::{ColumnBounds, WorthOptions};
use larder_memory::ColumnId;
use larder_temperature::{Arm, Digest, Ghost, Reference, Round, Shadows};

/// The main columns may have a tenth more of all columns than the main queue of the best shadow has of its items.
const MAIN_SURPLUS: f64 = 0.1;
/// A warmth record is aged in steps of 4 KiB at least, or as a whole if it is smaller.
const AGE_BYTES_MIN: u64 = 4 << 10;
/// Ghost and warmth record are refitted when there are twice as many items, or a third. They grow by doublings.
const REFIT_MORE: u64 = 2;
const REFIT_FEWER: u64 = 3;

/// The default policy: probation, main queue and ghost.
pub struct Sweep {
    /// Says which items are warm. `None`: the index entries do.
    record: Option<Box<dyn WarmthRecord>>,
    probation: ColumnQueue,
    main: ColumnQueue,
    ghost: Ghost,
    round: Round,
    shadows: Shadows,
    appraisal: Appraisal,
    /// How many items ghost and record were made for; 0 = they were not made yet.
    fitted_items: u64,
    /// Bytes of the record that should have been aged by now and were not.
    age_bytes: u64,
    stats: TemperatureStats,
    batch: Batch,
}

/// Room for one batch, kept for its memory.
#[derive(Default)]
struct Batch {
    /// The warmth of each item.
    levels: Vec<u8>,
    /// The warmth that each item keeps.
    kept: Vec<u8>,
    digests: Vec<Digest>,
    reads: Vec<Reference>,
}

impl Sweep {
    /// A policy that takes the warmth from the index entries.
    pub fn by_entry() -> Sweep {
        Sweep::of(&Arm::ALL)
    }

    /// Like [`Sweep::by_entry`], with other arms.
    pub(super) fn of(arms: &[Arm]) -> Sweep {
        Sweep::new(None, arms)
    }

    /// A policy that takes the warmth from a record of its own.
    pub(super) fn by_record(record: Box<dyn WarmthRecord>, arms: &[Arm]) -> Sweep {
        Sweep::new(Some(record), arms)
    }

    fn new(record: Option<Box<dyn WarmthRecord>>, arms: &[Arm]) -> Sweep {
        Sweep {
            record,
            probation: ColumnQueue::default(),
            main: ColumnQueue::default(),
            ghost: Ghost::for_entries(1),
            round: Round::default(),
            shadows: Shadows::new(arms),
            appraisal: Appraisal::default(),
            fitted_items: 0,
            age_bytes: 0,
            stats: TemperatureStats::default(),
            batch: Batch::default(),
        }
    }

    /// Writes the warmth of each item to `levels`.
    fn look_up(&mut self, items: &[Judged]) {
        let Batch { levels, digests, .. } = &mut self.batch;
        levels.clear();
        match &mut self.record {
            None => levels.extend(items.iter().map(|item| item.warmth)),
            Some(record) => {
                digests.clear();
                digests.extend(items.iter().map(|item| Digest::of(item.hash)));
                record.levels(digests, levels);
                // What is not known in time is as warm as its entry.
                for (level, item) in levels.iter_mut().zip(items) {
                    if *level == UNKNOWN_LEVEL {
                        *level = item.warmth;
                    }
                }
            }
        }
    }

    /// Whether ghost and record were made for too few items, or for far too many.
    fn must_refit(&self, items: u64) -> bool {
        items >= self.fitted_items * REFIT_MORE || items < self.fitted_items / REFIT_FEWER
    }

    /// Whether probation has more columns than it should.
    ///
    /// What the main columns hold may come from another arm, and have no place under the present one. The shadow of the
    /// present arm has always followed it. So the main columns may have only a little more than they have there. With
    /// a record there is no such limit, because shadows do not model the errors of its levels, which promote items.
    fn is_over(&self) -> bool {
        let probation = if self.record.is_none() { self.shadows.probation() } else { 0.0 };
        let share = self.shadows.best().share.max(probation - MAIN_SURPLUS);
        self.probation.len() as f64 > share * self.columns() as f64
    }

    /// Sets the level of items whose probation ends to 0 where they go, and to 1 at least where they stay. Sets the
    /// warmth that they keep.
    fn admit(&mut self, items: &[Judged]) {
        let arm = *self.shadows.best();
        let is_full = arm.is_full(self.main.len(), self.columns());
        let terms = arm.terms(is_full, &self.ghost, &self.round);
        for (level, item) in self.batch.levels.iter_mut().zip(items) {
            let stays = arm.promote(item.hash, *level, &mut self.ghost, terms);
            let came_back = stays.is_some() && *level < arm.reads && !terms.lets_in(item.hash);
            self.stats.ghost_hits += u64::from(came_back);
            *level = if stays.is_some() { (*level).max(1) } else { 0 };
            self.batch.kept.push(if self.record.is_none() { stays.unwrap_or(0) } else { 0 });
        }
    }

    /// Sets the warmth that items of a main column keep. Those of level 0 go.
    fn cool(&mut self, items: &[Judged]) {
        self.age(items.len());
        self.round.advance(self.main.len(), &self.ghost);
        let arm = self.shadows.best();
        let Batch { levels, kept, .. } = &mut self.batch;
        match self.record {
            None => {
                let cooled =
                    |(level, item): (&u8, &Judged)| arm.cool(item.hash, *level, &self.round).unwrap_or(0);
                kept.extend(levels.iter().zip(items).map(cooled));
            }
            Some(_) => kept.resize(items.len(), 0),
        }
    }

    /// Ages the record by as much of it as was judged of the main columns: while the sweep goes round once, each key's
    /// zone goes down by one, as the counter in an entry would.
    fn age(&mut self, examined: usize) {
        let columns = self.columns().max(1) as u64;
        let Some(record) = self.record.as_mut().filter(|record| record.is_made()) else { return };
        let bytes = record.bytes_for(0);
        let main_items = (self.fitted_items * self.main.len() as u64 / columns).max(examined as u64);
        self.age_bytes += bytes * examined as u64 / main_items.max(1);
        if self.age_bytes >= AGE_BYTES_MIN.min(bytes) {
            self.stats.agings += u64::from(record.age(self.age_bytes));
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
        let is_over = self.is_over();
        // A sparse column is cheap in either queue. Otherwise the queue that has more than its share gives.
        let from_probation = match (probation, main) {
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return None,
            (Some(one), Some(other)) if one.is_sparse != other.is_sparse => one.is_sparse,
            (Some(one), Some(other)) if self.shadows.best().in_order => one.birth < other.birth,
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
        items.iter().for_each(|item| self.ghost.prefetch(item.hash));
        self.appraisal.begin(queue, items, &self.batch.levels);
        self.batch.kept.clear();
        match queue {
            Queue::Probation => self.admit(items),
            Queue::Main => self.cool(items),
        }
        let main_items = self.fitted_items * self.main.len() as u64 / self.columns().max(1) as u64;
        let goes = self.appraisal.decide(&mut self.batch.levels, items, bounds, main_items);
        for ((&goes, &warmth), item) in goes.iter().zip(&self.batch.kept).zip(items) {
            if goes {
                self.ghost.push(item.hash);
                verdicts.push(Verdict::Evict);
            } else {
                verdicts.push(Verdict::Keep { warmth });
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

    fn spare(&mut self, queue: Queue, item: &Judged) {
        // The newest one, which `judge` has pushed.
        self.ghost.take(item.hash);
        match queue {
            Queue::Probation => self.stats.evicted_probation -= 1,
            Queue::Main => self.stats.evicted_main -= 1,
        }
    }

    fn set_worth(&mut self, worth: WorthOptions) {
        self.appraisal.set_options(worth);
    }

    fn refer(&mut self, references: &[Reference], residents: &mut dyn Residents) {
        self.stats.references += references.len() as u64;
        references.iter().for_each(|reference| self.shadows.reference(*reference));
        self.appraisal.refer(references);
        let Some(record) = &mut self.record else { return };
        let next = self.probation.first(COLUMNS_AHEAD).chain(self.main.first(COLUMNS_AHEAD));
        look_ahead(record.as_mut(), next, residents);
        // A store makes nothing warm: an item that is not read leaves when its probation ends.
        self.batch.reads.clear();
        self.batch.reads.extend(references.iter().filter(|reference| !reference.is_store()));
        record.note(&self.batch.reads);
    }

    fn wanted_below(&self) -> u32 {
        if self.record.as_ref().is_some_and(|record| record.is_made()) {
            1 << Digest::BITS
        } else {
            self.shadows.below()
        }
    }

    fn fit(&mut self, items: u64) {
        self.shadows.fit(items);
        self.appraisal.fit(items, self.shadows.below());
        if !self.must_refit(items) {
            return;
        }
        if let Some(record) = &mut self.record {
            record.fit(items);
        }
        match self.fitted_items {
            // Evictions are counted anew, so the round begins anew.
            0 => (self.ghost, self.round) = (Ghost::for_entries(items), Round::default()),
            _ => self.ghost.resize(items),
        }
        self.fitted_items = items.max(1);
    }

    fn bytes_for(&self, items: u64) -> u64 {
        let items = if self.must_refit(items) { items } else { 0 };
        let ghost_bytes = self.ghost.bytes().max(items * Ghost::ENTRY_BYTES);
        let record_bytes = self.record.as_ref().map_or(0, |record| record.bytes_for(items));
        record_bytes + ghost_bytes + self.shadows.bytes() + self.appraisal.bytes()
    }

    fn correlated_columns(&self) -> usize {
        if self.record.is_none() { self.shadows.best().correlated_of(self.columns()) } else { 0 }
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
            place: self.record.as_ref().and_then(|record| record.place()),
            late: self.record.as_ref().map_or(0, |record| record.late()),
            probation_share: self.shadows.best().share,
            probation_columns: self.probation.len() as u64,
            main_columns: self.main.len() as u64,
            bytes: self.bytes_for(0),
            groups: self.appraisal.stats(self.probation.len() as u64, self.main.len() as u64),
            ..self.stats.clone()
        }
    }
}
