//! One round of the keeper's work.

use super::core::FlushSweep;
use super::fresh_memory::touch_ahead;
use super::handle::KeeperHandle;
use super::packing::PackedFor;
use super::time_slice::{Pace, ROUND_PERIOD, TimeSlice};
use crate::demoter::Levels;
use crate::item_store::ItemStore;
use crate::selector::{Need, Search, queue_of};
use crate::temperature::Queue;
use larder_memory::{ColumnId, ColumnState, SlabId};
use std::time::{Duration, Instant};

/// The keeper gives references at most a quarter of its period. Pages it does not get to are dropped in the queue.
const REFERENCES_SHARE: u32 = 4;
/// Fitting the index, giving slabs back, reclaiming what was flushed, and sweeping prefixes have a 40th of a period
/// each, also while writers take columns as fast as the keeper makes room: together a tenth. Making room has the rest.
const TASK_SHARE: u32 = 40;
const TASKS_BEHIND_ROOM: u32 = 4;
/// Buckets of the index that are merged, and buckets whose sub-buckets are moved together, between two looks at the
/// time.
const MERGES_AT_ONCE: usize = 256;
const PACKED_AT_ONCE: u64 = 1024;
/// Expired columns that one round empties although nobody needs them: one in 1,024 of all columns, but 32 at least.
const EXPIRED_SHARE_OF_ROUND: u32 = 1024;
const EXPIRED_MIN_OF_ROUND: u32 = 32;
/// Hot items are moved while a part of the columns can be taken: a quarter in a cache that may still be being filled, a
/// sixteenth in one that has taken no fresh memory for some seconds.
const ROOM_SHARE: u64 = 4;
const ROOM_SHARE_AT_REST: u64 = 16;
/// Slabs that may be held up by one of their columns before a round of giving back ends.
const STUCK_SLABS_MAX: usize = 8;
/// Where nothing may be evicted and slabs could not be given back, the next 20 rounds do not try again.
const ROUNDS_OF_REST: u32 = 20;
/// The limit is shared out anew only if the policy needs at least this number of bytes more, or less, than what is set
/// aside for it.
const TEMPERATURE_STEP_BYTES: u64 = 64 << 10;

/// One round: read references, bring retired columns back, hold enough free ones ready, fit the index, give slabs back
/// that the limit no longer allows, reclaim what was flushed, and sweep deleted prefixes. Each task has a share of the
/// period that no other takes from it. What it does not use, those behind it have.
pub(crate) struct Round<'a> {
    keeper: &'a KeeperHandle,
    levels: Levels<'a>,
    store: &'a ItemStore,
    slice: TimeSlice,
    /// A task ended because its share did.
    is_cut: bool,
}

impl<'a> Round<'a> {
    fn with_slice(keeper: &'a KeeperHandle, levels: Levels<'a>, slice: TimeSlice) -> Round<'a> {
        Round { keeper, levels, store: levels.store, slice, is_cut: false }
    }
}

impl Round<'_> {
    /// A round of the keeper's thread. It leaves time to other threads, and ends after one period with what is done by
    /// then.
    pub(crate) fn run_calmly(keeper: &KeeperHandle, levels: Levels<'_>) {
        read_references(keeper, levels.store, Some(ROUND_PERIOD / REFERENCES_SHARE));
        Round::with_slice(keeper, levels, TimeSlice::begin(Pace::Calm)).run();
    }

    /// A round for a caller that waits for it. It ends when everything is done.
    pub(crate) fn run_to_the_end(keeper: &KeeperHandle, levels: Levels<'_>) {
        read_references(keeper, levels.store, None);
        Round::with_slice(keeper, levels, TimeSlice::begin(Pace::Hurried)).run();
    }

    fn run(mut self) {
        let may_lend_more = self.keeper.lock().may_lend_more();
        if self.store.limits.lend(may_lend_more) {
            self.store.share_out();
        }
        self.fit_policy();
        if self.store.namespaces.are_on() {
            self.keeper.lock().look_at_namespaces(self.store);
        }
        self.store.memory.recycle();
        self.slice.begin_making_room(TASKS_BEHIND_ROOM * ROUND_PERIOD / TASK_SHARE);
        self.reclaim_expired();
        let has_enough = self.reclaim_sparse();
        self.fill_free_columns();
        let plan = self.keeper.lock().fresh.look(self.store);
        if !has_enough {
            touch_ahead(self.store);
        }
        if self.store.index.needs_growth() {
            self.keeper.lock().split_buckets(self.store);
        }
        self.begin_task(3);
        self.shrink_index();
        // The index may have taken sub-buckets since a bucket was last split.
        self.store.share_out();
        self.begin_task(2);
        self.give_slabs_back();
        self.begin_task(1);
        self.reclaim_flushed();
        self.begin_task(0);
        self.sweep_prefixes();
        self.slice.begin_task(Duration::ZERO, Duration::ZERO);
        if plan.is_over {
            self.give_idle_back();
        }
        self.take_huge_pages(plan.is_quiet);
        if plan.is_quiet {
            self.repartition(if plan.is_over { ROOM_SHARE_AT_REST } else { ROOM_SHARE });
        } else {
            self.keeper.lock().give_up_hot(self.store);
        }
        self.keeper.publish_stats();
        if self.is_cut {
            self.keeper.wake();
        }
    }

    /// Begins a task that has a share of its own, with `behind` others behind it.
    fn begin_task(&mut self, behind: u32) {
        self.slice.begin_task(ROUND_PERIOD / TASK_SHARE, behind * ROUND_PERIOD / TASK_SHARE);
    }

    /// Whether the task goes on with work that may take long. The next round takes it up again. Only called between two
    /// pieces of work, where the keeper's lock is free: a writer that waits for it comes first.
    fn goes_on(&mut self) -> bool {
        self.keeper.give_way(self.store);
        let is_over = self.slice.is_task_over(self.levels.evicts() && !self.may_pause());
        self.is_cut |= is_over && self.slice.has_share();
        !is_over && !self.keeper.is_stopping()
    }

    /// Whether no writer will have to wait soon. While one will, the keeper makes no pauses.
    fn may_pause(&self) -> bool {
        self.store.memory.available_columns() > self.store.free_columns_low()
    }

    /// Sizes what the policy keeps about items. Once half of the columns are taken, it is known about how many items
    /// there will be. Until then room is set aside for those that are there.
    fn fit_policy(&self) {
        let store = self.store;
        let columns = store.memory.limit_bytes() / store.column_bytes();
        let taken = columns.saturating_sub(store.memory.available_columns() as u64);
        let mut items = store.index.len();
        let mut keeper = self.keeper.lock();
        if items > 0 && taken * 2 >= columns {
            items = (items as u128 * u128::from(columns) / u128::from(taken)) as u64;
            self.keeper.references().policy_wants_below(keeper.fit(items));
            store.worth.fit(items);
        }
        let bytes = keeper.bytes_for(items);
        drop(keeper);
        if bytes.abs_diff(store.limits.temperature_bytes()) >= TEMPERATURE_STEP_BYTES {
            store.limits.set_temperature_bytes(bytes);
            store.share_out();
        }
    }

    /// Empties columns that are nearly free of live items because they have expired, a few in each round, also while
    /// there is room.
    fn reclaim_expired(&mut self) {
        self.keeper.lock().look_for_expired(self.store);
        let mut left =
            (self.store.memory.columns_mapped() / EXPIRED_SHARE_OF_ROUND).max(EXPIRED_MIN_OF_ROUND);
        let mut search = Search::new(Need::Nothing);
        while left > 0 && !search.is_over() && self.goes_on() {
            if self.keeper.lock().reclaim_next(self.levels, &mut search, &mut self.slice).is_none() {
                break;
            }
            left -= 1;
        }
        self.store.memory.recycle();
    }

    /// Empties sparse columns before fresh memory is taken or anything is evicted: a small set of items that is
    /// overwritten all the time stays small. Live items are moved, and none is judged. Returns whether enough columns
    /// are on their way back.
    fn reclaim_sparse(&mut self) -> bool {
        let store = self.store;
        let mut search = Search::new(Need::BeforeFreshMemory);
        while !search.is_over() && self.goes_on() && store.is_much_dead() {
            let ready = store.memory.free_columns() + store.memory.returning_columns();
            let unmapped = store.memory.available_columns().saturating_sub(store.memory.free_columns());
            let slab = store.memory.geometry().columns_per_slab as usize;
            if ready >= slab && ready + unmapped >= store.free_columns_target() {
                return true;
            }
            if self.keeper.lock().reclaim_next(self.levels, &mut search, &mut self.slice).is_none() {
                break;
            }
            store.memory.recycle();
        }
        false
    }

    /// Where nothing may be evicted: packs columns together until enough are free or on their way back, while much can
    /// be gained.
    fn pack_ahead(&mut self) {
        let Round { store, .. } = *self;
        let memory = &store.memory;
        while self.goes_on()
            && memory.available_columns() + memory.returning_columns() < store.free_columns_target()
        {
            let mut keeper = self.keeper.lock();
            if !keeper.can_pack(store, PackedFor::Later) || !keeper.pack(self.levels, &mut self.slice) {
                return;
            }
            drop(keeper);
            memory.recycle();
        }
    }

    /// Reclaims columns until enough are free or on their way back.
    fn fill_free_columns(&mut self) {
        if !self.levels.evicts() {
            return self.pack_ahead();
        }
        let memory = &self.store.memory;
        while self.levels.evicts()
            && self.goes_on()
            && memory.available_columns() + memory.returning_columns() < self.store.free_columns_target()
        {
            if !self.levels.wait_for_flash() {
                self.keeper.wake();
                break;
            }
            let has_reclaimed = self.keeper.lock().reclaim(self.levels, Need::FreeColumn, &mut self.slice);
            if !has_reclaimed && !self.levels.holds_back() {
                break;
            }
            memory.recycle();
            self.levels.tell_waiting();
        }
        // What others made free, or what came back since, is for those who wait as well.
        self.levels.tell_waiting();
    }

    /// Makes the index smaller if it has far fewer entries than it has room for, and gives its memory back.
    fn shrink_index(&mut self) {
        let index = &self.store.index;
        while self.goes_on() && index.shrink(MERGES_AT_ONCE) > 0 {
            self.slice.yield_if_due(|| true);
        }
        while self.goes_on() && index.pack_sub_buckets(PACKED_AT_ONCE) {
            self.slice.yield_if_due(|| true);
        }
        self.keeper.lock().give_index_back(self.store);
    }

    /// Empties slabs that the limit no longer allows, and returns them to the machine.
    fn give_slabs_back(&mut self) {
        let memory = &self.store.memory;
        let mut leaving = std::mem::take(&mut self.keeper.lock().leaving_slabs);
        let has_released = self.let_go(&mut leaving);
        if memory.over_limit_slabs() > leaving.len() && !self.rests() {
            self.empty_slabs(&mut leaving, has_released);
        }
        self.keeper.lock().leaving_slabs = leaving;
    }

    /// Empties slabs and adds them to `leaving`, until as many leave as the limit asks for.
    fn empty_slabs(&mut self, leaving: &mut Vec<SlabId>, mut has_released: bool) {
        let memory = &self.store.memory;
        let mut stuck: Vec<SlabId> = Vec::new();
        // Of the slabs that stay, no column is withheld from writers: no more slabs are released than have to go.
        while memory.over_limit_slabs() > stuck.len() + leaving.len()
            && stuck.len() <= STUCK_SLABS_MAX
            && self.goes_on()
        {
            // Writers come first: while they have too few columns, a round gives one slab back. A slab that is stuck
            // or leaves withholds the free columns that it has.
            if has_released || !stuck.is_empty() || !leaving.is_empty() {
                self.fill_free_columns();
                if self.levels.evicts() && memory.available_columns() < self.store.free_columns_target() {
                    self.keeper.wake();
                    break;
                }
            }
            // The slab's free columns are withheld from now on, and the pass's own may be among them.
            let reserved = self.store.reserved_columns();
            self.hold_ready(reserved + memory.geometry().columns_per_slab as usize);
            let Some(slab) = memory.begin_release_slab() else { break };
            let columns: Vec<_> = memory.slab_columns(slab).map(|(id, _)| id).collect();
            let mut is_empty = true;
            for column in columns {
                // What is warm, or has a share, is moved. That takes columns, and the slab's own do not come back.
                self.hold_ready(reserved);
                self.keeper.give_way(self.store);
                // The policy still knows a column that has to stay, since it did not choose it.
                is_empty &= self.drain(column);
            }
            if is_empty {
                leaving.push(slab);
                has_released |= self.let_go(leaving);
            } else {
                stuck.push(slab);
            }
        }
        // Where nothing may be evicted, trying again at once would find the same items in the way.
        let found_none = !has_released && leaving.is_empty() && !stuck.is_empty() && !self.goes_on();
        if !self.levels.evicts() && (found_none || stuck.len() > STUCK_SLABS_MAX) {
            self.keeper.lock().slab_rests = ROUNDS_OF_REST;
        }
        // A column that a worker fills, or that is pinned, holds up its slab. The slab's columns are handed out again
        // for now, and another slab goes instead in this round or the next.
        for slab in stuck {
            if memory.over_limit_slabs() == 0 {
                memory.cancel_release(slab);
            } else if !memory.finish_release(slab) {
                memory.put_off_release(slab);
            }
        }
    }

    /// Returns those emptied slabs to the machine that nobody reads any more, unless the limit allows them again.
    /// Whether there was one.
    fn let_go(&self, leaving: &mut Vec<SlabId>) -> bool {
        let memory = &self.store.memory;
        while leaving.len() > memory.over_limit_slabs()
            && let Some(slab) = leaving.pop()
        {
            memory.cancel_release(slab);
        }
        let before = leaving.len();
        leaving.retain(|&slab| !memory.finish_release(slab));
        let has_released = leaving.len() < before;
        leaving.retain(|&slab| {
            let are =
                |wanted: &[ColumnState]| memory.slab_columns(slab).any(|(_, state)| wanted.contains(&state));
            // A worker may have taken a column at the moment when the slab was withheld. And what the kernel does not
            // take back is better used.
            let stays = are(&[ColumnState::Open, ColumnState::Sealed]) || !are(&[ColumnState::Retired]);
            if stays {
                memory.put_off_release(slab);
            }
            !stays
        });
        has_released
    }

    /// Empties a column of a slab that is given back. A device that is behind is waited for a moment, but a lower limit
    /// is met in any case.
    fn drain(&mut self, column: ColumnId) -> bool {
        self.levels.wait_for_flash();
        let levels = Levels { is_urgent: true, ..self.levels };
        let (may_evict, mut keeper) = (levels.evicts(), self.keeper.lock());
        // The sweep has not come to it: where there is room, items of the main columns stay as warm as they are.
        let is_moved = may_evict
            && queue_of(self.store, column) == Queue::Main
            && keeper.drain(levels, column, false, &mut self.slice);
        is_moved || keeper.drain(levels, column, may_evict, &mut self.slice)
    }

    /// Tries `columns` times at most to have `columns` columns free, before a slab is given back.
    fn hold_ready(&mut self, columns: usize) {
        let Round { store, .. } = *self;
        for _ in 0..columns {
            if !self.levels.evicts() || store.memory.available_columns() >= columns {
                return;
            }
            if store.memory.available_columns() + store.memory.returning_columns() < columns {
                if !self.levels.wait_for_flash() {
                    return;
                }
                self.keeper.give_way(self.store);
                self.keeper.lock().reclaim(self.levels, Need::FreeColumn, &mut self.slice);
            } else {
                self.slice.pause();
            }
            store.memory.recycle();
        }
    }

    /// Puts huge pages in place of small ones: in the index at once, where they cost little for each item, and in
    /// columns if there is time.
    fn take_huge_pages(&mut self, is_quiet: bool) {
        let Round { store, .. } = *self;
        while self.goes_on() && (store.index.collapse_some() || is_quiet && store.memory.collapse_some()) {
            self.slice.yield_long();
        }
    }

    /// Moves hot items to columns of their own. Not in a cache that is being filled, or is full soon: its entries would
    /// cool just before warmth decides what stays.
    fn repartition(&mut self, room_share: u64) {
        let store = self.store;
        let has_room = || {
            store.memory.available_columns() as u64
                > store.columns_max() / room_share + store.columns_ahead() as u64
        };
        if !store.placement.moves_hot_items() {
            return;
        }
        if !has_room() {
            return self.keeper.lock().give_up_hot(store);
        }
        if !self.keeper.lock().look_for_hot(store, self.slice.is_calm()) {
            return;
        }
        while self.goes_on() && has_room() && self.keeper.lock().move_hot(self.levels) {
            self.slice.yield_at_leisure();
        }
    }

    /// Gives memory of columns back that is ready and that nobody asks for, unless all was asked for at the start. As
    /// many columns stay ready as are held ready in a full cache: those that were reclaimed are written again.
    fn give_idle_back(&mut self) {
        let store = self.store;
        let has_more = || store.memory.ready_columns() > store.free_columns_target();
        while !store.is_prefaulted() && has_more() && self.goes_on() && store.memory.give_idle_back() {
            self.slice.yield_if_due(|| true);
        }
    }

    /// Whether no slab is given back in this round.
    fn rests(&self) -> bool {
        let mut keeper = self.keeper.lock();
        let rests = keeper.slab_rests > 0;
        keeper.slab_rests = keeper.slab_rests.saturating_sub(1);
        rests
    }

    /// After a flush: reclaims the columns born before it, and forgets the flush when none is left.
    fn reclaim_flushed(&mut self) {
        let floor = self.store.floors.flush();
        if floor == 0 {
            return;
        }
        let memory = &self.store.memory;
        let begun = self.keeper.lock().flush_sweep;
        let mut sweep =
            if begun.floor == floor { begun } else { FlushSweep { floor, ..FlushSweep::default() } };
        for column in (sweep.next..memory.columns_mapped()).map(ColumnId) {
            if !self.goes_on() {
                self.keeper.lock().flush_sweep = FlushSweep { next: column.0, ..sweep };
                return;
            }
            if memory.column(column).birth() < floor {
                // A live record in such a column is a part of a value that was stored after the flush: it is not
                // evicted.
                let is_empty = self.keeper.lock().drain(self.levels, column, false, &mut self.slice);
                sweep.left_some |= !is_empty;
            }
        }
        self.keeper.lock().flush_sweep = FlushSweep::default();
        // While flushes make all the room, nothing is chosen, and the policy hears here of what was sealed.
        if self.keeper.sealed_waiting() > memory.columns_mapped() as usize {
            self.keeper.lock().learn_sealed(self.store);
        }
        memory.recycle();
        // A reader that found an entry before it was removed may still be about to ask whether its item was flushed. It
        // has passed a quiescent point once no column waits for one.
        if !sweep.left_some && memory.retired_columns() == 0 {
            self.store.floors.forget_flush(floor);
        }
    }

    /// After a delete by prefix: removes the entries of what was deleted, and forgets the prefix when none is left.
    fn sweep_prefixes(&mut self) {
        if self.store.floors.highest() == 0 {
            return;
        }
        while self.goes_on() && self.keeper.lock().sweep_prefixes(self.levels) {
            let may_pause = self.may_pause();
            self.slice.yield_if_due(|| may_pause);
        }
    }
}

/// Hands the pages of references that wait to the policy, for `time_max`.
fn read_references(keeper: &KeeperHandle, store: &ItemStore, time_max: Option<Duration>) {
    let started = Instant::now();
    while time_max.is_none_or(|most| started.elapsed() < most)
        && let Some(page) = keeper.references().pages.take()
    {
        keeper.give_way(store);
        keeper.lock().refer(store, &page);
        keeper.references().pages.give_back(page);
    }
    store.counters.keeper().note_ns.add(started.elapsed().as_nanos() as u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::cache_options::CacheOptions;
    use crate::commands::{Store, StoreOutcome};
    use crate::compression::Compress;
    use crate::worker::Worker;

    /// Stores items until no more columns are free than those that only the pass may take.
    fn take_all_columns(worker: &mut Worker, number: &mut u64) {
        let cache = worker.cache().clone();
        loop {
            let key = format!("{}:{number}", if number.is_multiple_of(2) { "a" } else { "b" }).into_bytes();
            let outcome = worker.store(&Store::set(&key, cache.hash(&key), &[1; 500]));
            assert!(matches!(outcome, StoreOutcome::Stored { .. }), "{outcome:?}");
            worker.quiesce();
            *number += 1;
            if cache.store.memory.available_columns() <= cache.store.reserved_columns() {
                return;
            }
        }
    }

    #[test]
    fn while_making_room_takes_the_whole_period_the_other_tasks_have_their_share() {
        let options = CacheOptions { limit_bytes: 32 << 20, workers: 1, ..CacheOptions::default() };
        let cache = Cache::new(options).expect("a small cache can be made");
        let (mut worker, mut number) = (cache.worker(), 0);
        take_all_columns(&mut worker, &mut number);
        cache.flush_prefix(b"a:").expect("there is room for a prefix");
        assert!(cache.set_limit(24 << 20));
        assert!(cache.store.memory.over_limit_slabs() > 1);
        let is_done = || cache.store.floors.highest() == 0 && cache.store.memory.over_limit_slabs() == 0;
        let mut rounds = 0;
        while !is_done() {
            rounds += 1;
            assert!(rounds < 1000, "{} slabs are left", cache.store.memory.over_limit_slabs());
            take_all_columns(&mut worker, &mut number);
            worker.tick();
            let began = Instant::now() - ROUND_PERIOD;
            let slice = TimeSlice::begun_at(Pace::Calm, began);
            Round::with_slice(&cache.keeper, cache.levels(), slice).run();
        }
        assert_eq!(cache.totals().store_no_memory, 0);
    }

    #[test]
    fn a_lower_limit_leaves_the_items_of_main_columns_that_the_sweep_has_not_come_to() {
        let options = CacheOptions {
            limit_bytes: 32 << 20,
            workers: 1,
            compress: Compress::Off,
            ..CacheOptions::default()
        };
        let cache = Cache::new(options).expect("a small cache can be made");
        let mut worker = cache.worker();
        let store = |worker: &mut Worker, key: &str| {
            worker.store(&Store::set(key.as_bytes(), cache.hash(key.as_bytes()), &[1; 500]));
        };
        let hot: Vec<String> = (0..500).map(|number| format!("hot {number}")).collect();
        for key in &hot {
            store(&mut worker, key);
            worker.get(cache.hash(key.as_bytes()), key.as_bytes()).expect("it was stored just now");
        }
        for number in 0..150_000 {
            store(&mut worker, &format!("cold {number}"));
            if number % 64 == 0 {
                worker.quiesce();
                cache.tend();
            }
        }
        let is_in_main = |worker: &Worker, key: &&String| {
            let found = worker.peek(cache.hash(key.as_bytes()), key.as_bytes());
            found.is_some_and(|hit| {
                queue_of(&cache.store, cache.store.memory.column_of(hit.at)) == Queue::Main
            })
        };
        let before = hot.iter().filter(|key| is_in_main(&worker, key)).count();
        assert!(before > 450, "{before}");
        // Nobody reads, so a column that is given back is free at once.
        worker.offline();
        assert!(cache.set_limit(18 << 20));
        let is_met = (0..1000).any(|_| {
            cache.tend();
            cache.store.memory.over_limit_slabs() == 0
        });
        assert!(is_met, "{} slabs are left", cache.store.memory.over_limit_slabs());
        worker.online();
        assert_eq!(hot.iter().filter(|key| is_in_main(&worker, key)).count(), before);
    }
}
