//! What the keeper remembers between columns, and what it does to one column.

use super::fresh_memory::FreshMemory;
use super::namespace_sample::estimate_namespaces;
use super::packing::{PackedFor, Packing};
use super::pass::Pass;
use super::prefix_sweep::PrefixSweep;
use super::repartition::Repartition;
use super::time_slice::TimeSlice;
use crate::budget::LENDING_PERIOD;
use crate::compression::CompressionStats;
use crate::demoter::Levels;
use crate::flash_note::FlashNote;
use crate::item_store::ItemStore;
use crate::random::Random;
use crate::ranking::Candidate;
use crate::selector::{Emptied, Need, SealedQueue, Search, Selector, note_unmovable, status};
use crate::temperature::{Temperature, TemperatureStats};
use larder_index::SpareBuckets;
use larder_memory::{ColumnId, ColumnState, SlabId};
use larder_temperature::Reference;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Buckets of the index that are split in one go, at most.
const SPLITS_AT_ONCE: usize = 4096;
/// The most columns whose items find no room before the search for one that can be packed ends.
const PUT_OFF_MAX: usize = 8;
/// What namespaces have is estimated no more often than this.
const NAMESPACES_PERIOD: Duration = Duration::from_millis(50);
/// Where the random numbers start.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Everything the keeper owns. [`super::KeeperHandle`] holds it behind a lock.
pub(super) struct Keeper {
    selector: Selector,
    pass: Pass,
    sealed: Arc<SealedQueue>,
    /// How far the columns from before a flush are reclaimed.
    pub(super) flush_sweep: FlushSweep,
    /// Rounds in which no slab is given back, because none could be.
    pub(super) slab_rests: u32,
    /// Slabs that were emptied for a lower limit, and that somebody may still be reading.
    pub(super) leaving_slabs: Vec<SlabId>,
    /// When columns were last lent more of the share of connection buffers.
    lent_more: Option<Instant>,
    pub(super) fresh: FreshMemory,
    repartition: Repartition,
    prefix_sweep: PrefixSweep,
    packing: Packing,
    /// Memory of the index that goes back when all readers have passed this stamp.
    spare_buckets: Option<(SpareBuckets, u64)>,
    /// When namespaces were last looked at.
    namespaces_looked: Option<Instant>,
    random: Random,
}

/// How far the columns from before a flush are reclaimed.
#[derive(Clone, Copy, Default)]
pub(super) struct FlushSweep {
    /// The flush floor; 0 = no flush.
    pub(super) floor: u64,
    /// The column that is next.
    pub(super) next: u32,
    /// Whether a column before `next` could not be emptied.
    pub(super) left_some: bool,
}

impl Keeper {
    /// A keeper that knows no columns yet.
    pub(super) fn new(
        store: &ItemStore,
        policy: Box<dyn Temperature>,
        sealed: Arc<SealedQueue>,
        note: Option<Arc<FlashNote>>,
    ) -> Keeper {
        Keeper {
            selector: Selector::new(policy),
            pass: Pass::new(store, store.memory.register(), note),
            sealed,
            flush_sweep: FlushSweep::default(),
            slab_rests: 0,
            leaving_slabs: Vec::new(),
            lent_more: None,
            fresh: FreshMemory::default(),
            repartition: Repartition::default(),
            prefix_sweep: PrefixSweep::default(),
            packing: Packing::default(),
            spare_buckets: None,
            namespaces_looked: None,
            random: Random::new(SEED),
        }
    }

    /// Whether it is time to lend columns a step more of the share of connection buffers.
    pub(super) fn may_lend_more(&mut self) -> bool {
        let is_due = self.lent_more.is_none_or(|at| at.elapsed() >= LENDING_PERIOD);
        if is_due {
            self.lent_more = Some(Instant::now());
        }
        is_due
    }

    /// Reclaims one column. Returns whether it did.
    pub(super) fn reclaim(&mut self, levels: Levels<'_>, need: Need, slice: &mut TimeSlice) -> bool {
        self.look_at_namespaces(levels.store);
        self.selector.learn_sealed(levels.store, &self.sealed);
        self.selector.look_for_expired(levels.store);
        let mut search = Search::new(need);
        while !search.is_over() {
            if self.reclaim_next(levels, &mut search, slice) == Some(Emptied::Yes) {
                return true;
            }
        }
        false
    }

    /// Empties the next victim of a search. `None`: there is none, and the search is over.
    pub(super) fn reclaim_next(
        &mut self,
        levels: Levels<'_>,
        search: &mut Search,
        slice: &mut TimeSlice,
    ) -> Option<Emptied> {
        let victim = self.selector.next(levels.store, search)?;
        // The pass may seal another column: the policy hears of columns in the order in which they were sealed.
        self.selector.learn_sealed(levels.store, &self.sealed);
        let emptied = self.pass.empty(levels, &mut self.selector, victim, slice);
        self.selector.settle(levels.store, search, victim, emptied);
        Some(emptied)
    }

    /// Whether to move live items together gains enough.
    pub(super) fn can_pack(&mut self, store: &ItemStore, wanted: PackedFor) -> bool {
        self.packing.pays(store, wanted, self.pass.packed_free_bytes())
    }

    /// Empties the column of which most can be gained, and moves its live items to where others of all kinds are moved.
    /// Returns whether it did.
    pub(super) fn pack(&mut self, levels: Levels<'_>, slice: &mut TimeSlice) -> bool {
        let store = levels.store;
        self.selector.learn_sealed(store, &self.sealed);
        let mut put_off = Vec::new();
        let mut is_packed = false;
        while !is_packed
            && put_off.len() < PUT_OFF_MAX
            && let Some(column) = self.packing.next(store)
        {
            let victim = Selector::to_be_packed(column);
            let emptied = self.pass.empty(levels, &mut self.selector, victim, slice);
            self.pass.each_thinned(|column| self.packing.note(store, column));
            match emptied {
                Emptied::Yes => is_packed = true,
                Emptied::Refused if store.memory.available_columns() > 0 => note_unmovable(store, column),
                // Another column may hold shorter values.
                Emptied::NoRoom if store.memory.returning_columns() == 0 => put_off.push(column),
                _ => {
                    put_off.push(column);
                    break;
                }
            }
        }
        put_off.into_iter().rev().for_each(|column| self.packing.give_back(store, column));
        is_packed
    }

    /// Empties a column that the caller chose. Returns false if it holds something that has to stay for now.
    pub(super) fn drain(
        &mut self,
        levels: Levels<'_>,
        column: ColumnId,
        may_evict: bool,
        slice: &mut TimeSlice,
    ) -> bool {
        self.pass.stop_filling(levels.store, &mut self.selector, column);
        match status(levels.store, column) {
            Candidate::Ready(_) => {
                let victim = Selector::chosen_by_caller(column, may_evict);
                self.pass.empty(levels, &mut self.selector, victim, slice) == Emptied::Yes
            }
            Candidate::Later => false,
            // A worker may have sealed it since the look.
            Candidate::Gone => {
                !matches!(levels.store.memory.column(column).state(), ColumnState::Open | ColumnState::Sealed)
            }
        }
    }

    /// Looks at some more columns for what has expired, if it is time to.
    pub(super) fn look_for_expired(&mut self, store: &ItemStore) {
        self.pass.seal_old(store, &mut self.selector);
        self.selector.look_for_expired(store);
    }

    /// Whether hot items may have to be moved.
    pub(super) fn look_for_hot(&mut self, store: &ItemStore, is_calm: bool) -> bool {
        self.repartition.look(store, is_calm)
    }

    /// Hot items are not moved now: columns that were taken for them and hold none are free again.
    pub(super) fn give_up_hot(&mut self, store: &ItemStore) {
        self.pass.give_up_hot(store, &mut self.selector);
    }

    /// Moves hot items of some more buckets. Returns whether there are more.
    pub(super) fn move_hot(&mut self, levels: Levels<'_>) -> bool {
        let Keeper { selector, pass, repartition, .. } = self;
        repartition.go_on(levels, selector, pass)
    }

    /// Estimates what each namespace has, if it is time to.
    pub(super) fn look_at_namespaces(&mut self, store: &ItemStore) {
        if !store.namespaces.are_on() {
            return;
        }
        if self.namespaces_looked.is_none_or(|looked| looked.elapsed() >= NAMESPACES_PERIOD) {
            self.namespaces_looked = Some(Instant::now());
            let Keeper { pass, random, .. } = self;
            pass.with_guard(|guard| estimate_namespaces(store, &guard, random));
        }
    }

    /// Removes some more entries of items that were deleted by prefix. Returns whether there is more to do now.
    pub(super) fn sweep_prefixes(&mut self, levels: Levels<'_>) -> bool {
        let Keeper { selector, pass, prefix_sweep, .. } = self;
        prefix_sweep.go_on(levels, selector, pass)
    }

    /// Tells the policy of the columns that were sealed since it was last told.
    pub(super) fn learn_sealed(&mut self, store: &ItemStore) {
        self.selector.learn_sealed(store, &self.sealed);
    }

    /// Hands a page of references to the policy.
    pub(super) fn refer(&mut self, store: &ItemStore, page: &[Reference]) {
        let Keeper { selector, pass, .. } = self;
        pass.with_guard(|guard| selector.refer(page, store, guard));
    }

    /// Sizes what the policy keeps about items for `items` of them. Returns the digest below which it wants references.
    pub(super) fn fit(&mut self, items: u64) -> u32 {
        self.selector.fit(items)
    }

    /// Bytes of what the policy keeps about items, when it is fitted to `items`.
    pub(super) fn bytes_for(&self, items: u64) -> u64 {
        self.selector.bytes_for(items)
    }

    /// Splits buckets of the index that writers left to be split when they stopped writing.
    pub(super) fn split_buckets(&mut self, store: &ItemStore) {
        self.pass.with_guard(|guard| store.index.grow(&store.key_reader(&guard), SPLITS_AT_ONCE));
    }

    /// Gives memory of the index back, once nobody can be about to look at it.
    pub(super) fn give_index_back(&mut self, store: &ItemStore) {
        match self.spare_buckets.take() {
            None => {
                let spare = store.index.spare();
                self.spare_buckets = spare.map(|spare| (spare, store.memory.stamp()));
            }
            Some((spare, stamp)) if store.memory.has_passed(stamp) => store.index.give_back(spare),
            waits => self.spare_buckets = waits,
        }
    }

    /// Before flash is closed.
    pub(super) fn end_training(&mut self) {
        self.pass.forms.kinds.end_training();
    }

    /// What is known of dictionaries.
    pub(super) fn compression(&self) -> CompressionStats {
        self.pass.forms.kinds.describe()
    }

    /// The policy's statistics.
    pub(super) fn stats(&self) -> TemperatureStats {
        self.selector.stats()
    }
}
