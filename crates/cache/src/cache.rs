//! The cache that all threads share: the facade over its parts.

use crate::cache_options::{CacheError, CacheOptions, MemoryUse};
use crate::clock::Clock;
use crate::column_bytes::ColumnBytes;
use crate::compression::Compress;
use crate::counters::Totals;
use crate::demoter::{Demoter, Levels};
use crate::flash_level::FlashLevel;
use crate::hot_keys::HotKeys;
use crate::item_store::{Departure, Hearer};
use crate::item_store::{FlashNeeds, ItemStore};
use crate::keeper::{KeeperHandle, Round};
use crate::large_keys::LargeKeys;
use crate::namespaces::{Namespace, NamespaceStats, check_namespaces};
use crate::penalties::Penalties;
use crate::recovery::{Recovered, recover};
use crate::references::pages_bytes_max;
use crate::save::{Saved, settle_flash};
use crate::sizing::{NoCurve, Sizing, SizingCurves};
use crate::temperature::{TemperatureKind, TemperatureStats};
use crate::transfers::Transfers;
use crate::watches::{Change, Watches};
use larder_allocation::{CostEvidence, WorthMode, WorthOptions};
use larder_flash::Flash;
use larder_item::{KeyHash, PrefixesFull, covers};
use larder_memory::PageKind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// More threads than this do not read memory faster.
const RECOVERY_THREADS_MAX: usize = 16;

/// The cache that all threads share. Requests run through a [`Worker`](crate::Worker), one for each thread.
pub struct Cache {
    pub(crate) store: ItemStore,
    pub(crate) keeper: KeeperHandle,
    /// The way to flash, if there is a tier behind memory.
    pub(crate) demoter: Option<Demoter>,
    pub(crate) transfers: Transfers,
    /// What misses cost.
    pub(crate) penalties: Penalties,
    hot_keys: HotKeys,
    large_keys: LargeKeys,
    /// What other sizes of the cache would miss.
    pub(crate) sizing: SizingCurves,
    /// The largest item, in bytes (`-I`).
    item_bytes_max: u64,
    temperature: TemperatureKind,
    /// When a delayed flush is due, on the clock; 0 = none.
    flush_due_s: AtomicU32,
    /// Held while a flush that is due is carried out.
    flush_when_due: Mutex<()>,
    registered_workers: AtomicU32,
    recovered: Option<Recovered>,
    /// Keys that are watched, and what else a writer has to do.
    pub(crate) watches: Watches,
}

/// Whether judgement by `worth` needs to know what misses cost.
fn measures(worth: WorthOptions) -> bool {
    matches!(worth.mode, WorthMode::Auto | WorthMode::Penalty)
}

impl Cache {
    /// A cache in memory alone: see [`Cache::with_flash`].
    ///
    /// # Errors
    /// When the limit is too small, or when the pages asked for are not to be had.
    pub fn new(options: CacheOptions) -> Result<Arc<Cache>, CacheError> {
        Cache::with_flash(options, None)
    }

    /// Reserves the arena and the index. Where memory is kept, the items of an earlier process are in it when this
    /// returns. With a flash tier, keys are hashed with the tier's seed, and CAS numbers go on
    /// above those on flash. The caller opens the tier before, and starts and ends the tier's threads.
    ///
    /// # Errors
    /// When the limit is too small, or when the pages asked for are not to be had, or the file.
    pub fn with_flash(options: CacheOptions, flash: Option<FlashLevel>) -> Result<Arc<Cache>, CacheError> {
        if options.keep.is_some() && flash.is_some() {
            return Err(CacheError("memory is not kept where there is flash".to_owned()));
        }
        let demoter = flash.map(Demoter::new);
        let needs = demoter.as_ref().map(|demoter| FlashNeeds {
            seed: demoter.flash().seed(),
            cas_floor: demoter.flash().cas_floor(),
        });
        let temperature = options.temperature;
        let kept_bytes = pages_bytes_max(options.workers, temperature.logs_all())
            + demoter.as_ref().map_or(0, Demoter::admission_bytes)
            + Penalties::bytes_for(options.limit_bytes)
            + HotKeys::BYTES
            + LargeKeys::BYTES
            + SizingCurves::bytes_for(options.limit_bytes, options.workers, demoter.is_some());
        let store = ItemStore::new(&options, needs, kept_bytes)?;
        let policy = temperature.build_on(options.device);
        let note = demoter.as_ref().map(|demoter| demoter.note().clone());
        if let Some(note) = &note {
            store.compression.dictionaries.take_in(note.dictionaries());
            store.limits.set_dictionaries_bytes(store.compression.dictionaries.bytes());
        }
        let keeper = KeeperHandle::new(&store, policy, temperature.logs_all(), note);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(RECOVERY_THREADS_MAX);
        let recovered = recover(&store, threads, |column| keeper.sealed(column));
        store.note_for_later();
        let flush_due_s = store.memory.head().map_or(0, |head| head.flush_due_s.load(Ordering::Relaxed));
        let is_lasting = demoter.is_some() || recovered.is_some();
        let cache = Arc::new(Cache {
            keeper,
            sizing: SizingCurves::new(
                options.limit_bytes,
                options.workers,
                demoter.as_ref().map(|demoter| demoter.flash().device_bytes()),
            ),
            store,
            demoter,
            transfers: Transfers::default(),
            hot_keys: HotKeys::default(),
            large_keys: LargeKeys::default(),
            penalties: Penalties::new(options.limit_bytes, measures(options.worth), options.prefix_delimiter),
            item_bytes_max: options.item_bytes_max,
            temperature,
            flush_due_s: AtomicU32::new(flush_due_s as u32),
            flush_when_due: Mutex::default(),
            registered_workers: AtomicU32::new(0),
            watches: Watches::new(is_lasting),
            recovered,
        });
        if cache.recovered.is_some() {
            // A flush may have come due since.
            cache.tick();
        }
        Ok(cache)
    }

    /// Memory, and the way to flash.
    #[inline]
    pub(crate) fn levels(&self) -> Levels<'_> {
        Levels { store: &self.store, demoter: self.demoter.as_ref(), is_urgent: false }
    }

    /// The number of the next worker.
    pub(crate) fn register_worker(&self) -> usize {
        let number = self.registered_workers.fetch_add(1, Ordering::Relaxed) as usize;
        assert!(number < self.store.counters.workers_max(), "more workers than were announced");
        number
    }

    /// Begins or stops to measure what misses cost, and to estimate it for new items. While it is off, a store without
    /// a stated penalty leaves an item of unknown penalty. What items remember stays.
    pub fn measure_penalties(&self, on: bool) {
        self.penalties.turn(on);
    }

    /// Which keys are asked for most, of those that were noted there.
    #[inline]
    pub fn hot_keys(&self) -> &HotKeys {
        &self.hot_keys
    }

    /// The largest items, of those that were noted there.
    #[inline]
    pub fn large_keys(&self) -> &LargeKeys {
        &self.large_keys
    }

    /// Sets who is told of live items that leave memory to make room, once. The listener is called under a lock that
    /// readers of the item's bucket wait for, so it must not block, and must not call the cache.
    pub fn on_departure(&self, listener: impl Fn(&Departure<'_>) + Send + Sync + 'static) {
        self.store.leaving.listen(Box::new(listener));
    }

    /// Whether [`Cache::on_departure`]'s listener is called from now on, for the sake of `hearer`. At first it is not.
    pub fn tell_departures(&self, hearer: Hearer, on: bool) {
        self.store.leaving.tell_from_now_on(hearer, on);
    }

    /// Sets who is told of changes, once. As with [`Cache::on_departure`], the listener must not block, and must not
    /// call the cache.
    pub fn on_change(&self, listener: impl Fn(Change<'_>) + Send + Sync + 'static) {
        self.watches.listen(Box::new(listener));
    }

    /// Whether [`Cache::on_change`]'s listener is called from now on. At first it is not. A worker that is in the
    /// middle of a change may not tell of it: the caller lets no other worker execute anything meanwhile.
    pub fn tell_changes(&self, on: bool) {
        self.watches.extras.tell(on);
    }

    /// Starts the keeper's thread. It ends when [`Cache::stop_keeper`] is called.
    ///
    /// # Errors
    /// When the system refuses another thread.
    pub fn keep(self: &Arc<Cache>) -> std::io::Result<JoinHandle<()>> {
        let cache = self.clone();
        std::thread::Builder::new().name("keeper".into()).spawn(move || {
            while cache.keeper.wait() {
                cache.tick();
                Round::run_calmly(&cache.keeper, cache.levels());
                cache.sizing.tend(&cache.store, &cache.keeper);
                cache.keeper.note_cpu_time();
            }
        })
    }

    /// Ends the keeper's thread.
    pub fn stop_keeper(&self) {
        self.keeper.stop();
    }

    /// One round of the keeper's work, for a caller that runs the cache without the keeper's thread.
    pub fn tend(&self) {
        Round::run_to_the_end(&self.keeper, self.levels());
        self.sizing.tend(&self.store, &self.keeper);
    }

    /// What other sizes of the cache would miss, from a sample of its own traffic.
    pub fn sizing(&self) -> Sizing {
        self.sizing.sizing(&self.store)
    }

    /// What more and less memory would mean for one namespace, from a sample of its own traffic.
    ///
    /// # Errors
    /// No namespace has this name, or the memory limit leaves no room for the curves of all namespaces.
    pub fn sizing_of_namespace(&self, name: &[u8]) -> Result<Sizing, NoCurve> {
        self.sizing.sizing_of_namespace(&self.store, name)
    }

    /// Statistics of the policy: the present ones, or while the keeper is at work those of its last round.
    pub fn temperature_stats(&self) -> TemperatureStats {
        self.keeper.stats()
    }

    /// Pages of references that were dropped because the keeper was late.
    pub fn dropped_pages(&self) -> u64 {
        self.keeper.dropped_pages()
    }

    /// CPU time of the keeper's thread up to its last round, in nanoseconds.
    pub fn keeper_cpu_ns(&self) -> u64 {
        self.keeper.cpu_ns()
    }

    /// Takes all memory for columns from the machine now, `threads` slabs at a time, so that no write waits later for
    /// the kernel to fill pages with zeros. Gives up between two slabs when `go_on` says no.
    pub fn prefault(&self, threads: usize, go_on: impl Fn() -> bool + Sync) {
        self.store.prefault(threads, go_on);
    }

    /// The flash tier.
    pub fn flash_tier(&self) -> Option<&Arc<Flash>> {
        self.demoter.as_ref().map(Demoter::flash)
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.store.clock
    }

    /// Hashes a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.store.hasher.hash(key)
    }

    /// The largest item in bytes (`-I`).
    #[inline]
    pub fn item_bytes_max(&self) -> u64 {
        self.item_bytes_max
    }

    /// The longest value, in bytes, that is stored in one piece. Longer ones arrive through an [`crate::Upload`].
    pub fn whole_value_bytes_max(&self) -> usize {
        self.store.memory.chunk_bytes_max() as usize
    }

    /// The most that connection buffers may hold, in bytes.
    pub fn buffers_cap_bytes(&self) -> u64 {
        self.store.limits.budget().buffers_bytes
    }

    /// `used_bytes` says from now on how many bytes the connection buffers hold. With
    /// [`CacheOptions::lends_buffers`], columns have up to half of the buffers' share while that is not needed.
    pub fn measure_buffers_by(&self, used_bytes: impl Fn() -> u64 + Send + Sync + 'static) {
        self.store.limits.measure_buffers_by(Box::new(used_bytes));
    }

    /// The most that the sessions of encrypted connections may hold, in bytes.
    pub fn sessions_cap_bytes(&self) -> u64 {
        self.store.limits.budget().sessions_bytes
    }

    /// The same with a limit of `limit_bytes` bytes. `None`: [`Cache::set_limit`] would refuse it.
    pub fn buffers_cap_bytes_at(&self, limit_bytes: u64) -> Option<u64> {
        self.store.limits.budget_for(limit_bytes).map(|budget| budget.buffers_bytes)
    }

    /// How many items the index holds. Expired items count until the pass meets them.
    pub fn items(&self) -> u64 {
        self.store.index.len()
    }

    /// How many items the index holds that were not flushed. Expired items count until the pass meets them. While items
    /// are stored or deleted during a flush, the number may be off by as many.
    pub fn items_not_flushed(&self) -> u64 {
        self.store.items()
    }

    /// The highest CAS number that an item got so far, unless a client chose one itself.
    pub fn last_cas(&self) -> u64 {
        self.store.last_cas().load(std::sync::atomic::Ordering::Relaxed)
    }

    /// How many buckets the index has.
    pub fn buckets(&self) -> u64 {
        self.store.index.buckets()
    }

    /// Log2 of the number of index buckets, rounded up.
    pub fn hashpower(&self) -> u32 {
        self.store.index.buckets().next_power_of_two().trailing_zeros()
    }

    /// Whether the index is short of buckets and growing.
    pub fn is_growing(&self) -> bool {
        self.store.index.needs_growth()
    }

    /// How the cache knows which items are warm.
    pub fn temperature_kind(&self) -> TemperatureKind {
        self.temperature
    }

    /// In one word, which pages the arena got.
    pub fn pages(&self) -> &'static str {
        match self.store.memory.pages() {
            PageKind::ExplicitHuge => "huge",
            PageKind::Transparent => "transparent",
            PageKind::Small => "small",
            PageKind::Coloured { .. } => "coloured",
        }
    }

    /// In one sentence, which pages the arena got.
    pub fn pages_sentence(&self) -> String {
        self.store.memory.pages_description()
    }

    /// How many NUMA nodes the columns are divided among.
    pub fn nodes(&self) -> u32 {
        self.store.memory.nodes().count()
    }

    /// How often a slab was mapped that the kernel did not bind to its node; 0 where there is one node.
    pub fn unbound_slabs(&self) -> u32 {
        self.store.memory.unbound_slabs()
    }

    /// Whether some of the items are in huge pages that the administrator has reserved.
    pub fn has_reserved_pages(&self) -> bool {
        self.store.memory.pages() == PageKind::ExplicitHuge
    }

    /// Bytes of one column.
    pub fn column_bytes(&self) -> u32 {
        self.store.memory.geometry().column_bytes
    }

    /// The sum of all workers' counters and the keeper's.
    pub fn totals(&self) -> Totals {
        self.store.counters.totals()
    }

    /// Bytes held, by purpose.
    pub fn memory_use(&self) -> MemoryUse {
        let budget = self.store.limits.budget();
        let memory = &self.store.memory;
        MemoryUse {
            limit_bytes: budget.limit_bytes,
            columns_bytes: memory.mapped_bytes(),
            free_columns_bytes: memory.free_columns() as u64 * self.store.column_bytes(),
            items_bytes: self.store.counters.live_bytes(),
            index_bytes: self.store.index.bytes(),
            buffers_cap_bytes: budget.buffers_bytes,
            sessions_cap_bytes: budget.sessions_bytes,
            bookkeeping_bytes: budget.bookkeeping_bytes
                + self.store.limits.curves_bytes()
                + self.store.limits.dictionaries_bytes(),
            temperature_bytes: self.store.limits.temperature_bytes(),
        }
    }

    /// Bytes of records in columns, by what has become of them: live, expired, flushed, dead.
    pub fn column_bytes_held(&self) -> ColumnBytes {
        ColumnBytes::of(&self.store)
    }

    /// Seconds since the last use of the item that was evicted last; 0 before the first eviction.
    pub fn evicted_idle_s(&self) -> u32 {
        self.store.leaving.last_idle_s()
    }

    /// About how many seconds ago the oldest column that holds items was begun. An item in it is older only if it was
    /// moved there.
    pub fn age_s(&self) -> u32 {
        self.store.age_s()
    }

    /// Live bytes as the columns count them, for tests that compare them with `items_bytes`, which the items count.
    #[doc(hidden)]
    pub fn live_in_columns(&self) -> u64 {
        self.store.live_in_columns()
    }

    /// `cache_memlimit`: a new limit in bytes. The keeper gives back columns beyond it. Returns whether the limit was
    /// taken. It can go up to what was reserved at the start, and down to 8 MiB, or to what leaves columns beside the
    /// index, which shrinks with the number of items, and the bookkeeping.
    pub fn set_limit(&self, bytes: u64) -> bool {
        let limits = &self.store.limits;
        let budget = limits.budget_for(bytes).filter(|budget| self.store.leaves_columns(budget));
        let Some(budget) = budget else { return false };
        limits.set(budget);
        self.store.share_out();
        self.keeper.wake();
        true
    }

    /// What the worth of an item is to be made of.
    pub fn worth(&self) -> WorthOptions {
        self.store.worth.wanted()
    }

    /// What it is made of now, where the mode is `auto`, and why. The mode is never `auto` here.
    pub fn worth_now(&self) -> (WorthOptions, CostEvidence) {
        (self.store.worth.get(), self.store.worth.evidence())
    }

    /// From now on, what a store states of the penalty has to show skill in the mode `auto`, as what is measured. For a
    /// simulation, which states what a server would measure.
    pub fn distrust_stated_penalties(&self) {
        self.store.worth.distrust_clients();
    }

    /// Judges items by `worth` from the next pass on. What the keeper has counted stays. Penalties are measured in the
    /// modes `auto` and `penalty` only.
    pub fn set_worth(&self, worth: WorthOptions) {
        self.store.worth.set(worth);
        self.measure_penalties(measures(worth));
    }

    /// Which values the keeper compresses.
    pub fn compress(&self) -> Compress {
        (**self.store.compression.setting.get()).clone()
    }

    /// Compresses other values from the next pass on. Those that are compressed stay so until they are hot, or
    /// replaced.
    pub fn set_compress(&self, wanted: Compress) {
        self.store.compression.setting.set(wanted);
    }

    /// Whether values of different prefixes may train one dictionary. Where prefixes are those of tenants, the length
    /// of what one of them stores would tell what others do. At first they may.
    pub fn share_dictionaries(&self, may_share: bool) {
        self.store.compression.setting.set_may_share(may_share);
    }

    /// Names the namespaces, whose keys have the name before the first `delimiter`. What was counted of those that
    /// stay, stays.
    ///
    /// # Errors
    /// One line that says what is wrong with the list; nothing has changed then.
    pub fn set_namespaces(&self, list: &[Namespace], delimiter: u8) -> Result<(), String> {
        check_namespaces(list)?;
        self.store.namespaces.set(list, delimiter, self.store.counters.workers_max() + 1);
        self.sizing.follow(&self.store);
        Ok(())
    }

    /// Whether a namespace is named, so that reads are to be told to [`crate::Worker::count_read_of_namespace`].
    pub fn has_namespaces(&self) -> bool {
        self.store.namespaces.are_on()
    }

    /// What is known of each namespace, in order of name.
    pub fn namespaces(&self) -> Vec<NamespaceStats> {
        self.store.namespaces.stats(self.store.memory.limit_bytes())
    }

    /// Another budget of bytes that are written to flash in a day; `None` = no bound. Without flash nothing changes.
    pub fn set_flash_write_budget(&self, per_day: Option<u64>) {
        if let Some(demoter) = &self.demoter {
            demoter.set_write_budget(per_day);
        }
    }

    /// How long a store waits at most while memory is full and flash is behind, milliseconds. Without flash nothing
    /// changes.
    pub fn set_store_wait_max_ms(&self, wait_max_ms: u32) {
        if let Some(demoter) = &self.demoter {
            demoter.set_wait_max_ms(wait_max_ms);
        }
    }

    /// `flush_all`: everything stored up to now is gone, at once or when the clock reads `due_s`.
    pub fn flush(&self, due_s: Option<u32>) {
        match due_s {
            Some(at_s) if at_s > self.store.clock.now_s() => {
                self.note_flush_due(at_s);
                self.flush_due_s.store(at_s, Ordering::Relaxed);
            }
            _ => {
                // As with memcached, a flush now replaces one that was to come.
                self.flush_due_s.store(0, Ordering::Relaxed);
                self.note_flush_due(0);
                self.flush_now();
            }
        }
    }

    /// Tells a later process of a kept memory when a flush is due; 0 = none is.
    fn note_flush_due(&self, due_s: u32) {
        if let Some(head) = self.store.memory.head() {
            head.flush_due_s.store(due_s.into(), Ordering::Relaxed);
        }
    }

    fn flush_now(&self) {
        // Before as well: a transaction that begins meanwhile must not find its keys unchanged and the items gone.
        self.watches.note_flush(|_| true);
        self.levels().flush();
        self.watches.note_flush(|_| true);
        self.watches.tell(Change::All);
        self.sizing.clear();
        self.keeper.wake();
    }

    /// `flush_prefix`: the items that are stored now and whose keys `prefix` [covers](larder_item::covers) are gone, on
    /// flash too, also after a restart.
    ///
    /// # Errors
    /// As many prefixes are being deleted as there is room for: nothing is gone. Memory forgets a prefix within
    /// seconds, when the keeper has removed its items; flash when nothing is left that is as old as the delete.
    pub fn flush_prefix(&self, prefix: &[u8]) -> Result<(), PrefixesFull> {
        self.watches.note_flush(|key| covers(prefix, key));
        self.levels().flush_prefix(prefix)?;
        self.watches.note_flush(|key| covers(prefix, key));
        self.watches.tell(Change::Prefix(prefix));
        self.keeper.wake();
        Ok(())
    }

    /// Clients call all items by other keys from now on: watched keys count as changed, and the listener hears of it.
    pub fn note_exchange(&self) {
        self.watches.note_exchange();
    }

    /// How many deleted prefixes still have items: in memory, and on flash.
    pub fn deleted_prefixes(&self) -> (usize, usize) {
        let on_flash = self.demoter.as_ref().map_or(0, |demoter| demoter.flash().deleted_prefixes());
        (self.store.floors.prefixes().len(), on_flash)
    }

    /// Once a second: moves the clock, and carries out a delayed flush that is due.
    pub fn tick(&self) -> u32 {
        let now_s = self.store.clock.tick();
        self.penalties.tick(now_s);
        if let Some(demoter) = &self.demoter {
            demoter.tell_shed(now_s, || self.totals());
        }
        let due_s = self.flush_due_s.load(Ordering::Relaxed);
        if due_s != 0 && due_s <= now_s {
            // One of the threads that see the flush due carries it out, and the others wait for it. So a store after a
            // tick is not removed by a flush that was due before.
            let _one_at_a_time = self.flush_when_due.lock().expect("no panic under this lock");
            if self.flush_due_s.load(Ordering::Relaxed) == due_s {
                self.flush_now();
                // Unless another flush was set meanwhile.
                let _ = self.flush_due_s.compare_exchange(due_s, 0, Ordering::Relaxed, Ordering::Relaxed);
                self.note_flush_due(self.flush_due_s.load(Ordering::Relaxed));
            }
        }
        self.store.note_for_later();
        now_s
    }

    /// What a start found in the file of a kept memory. `None`: the memory is not kept.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// At a graceful stop, after the workers and the keeper have stopped: tells a later process of a kept memory that
    /// this one has ended in order.
    pub fn end_kept(&self) {
        self.store.note_for_later();
        if let Some(head) = self.store.memory.head() {
            head.is_stopped.store(1, Ordering::Release);
        }
    }

    /// At a graceful stop, after the workers have stopped and before the tier is closed: puts what is live in memory on
    /// flash, the coldest first, so that the warmest is the newest there. Items that flash does not take, and items
    /// that have expired, are invalidated. Admission is not asked. Waits for a device that is behind, but for ten
    /// seconds at most while it takes nothing.
    ///
    /// A tier that is closed without this, or [`Cache::leave_to_flash`], comes back with the versions that memory had
    /// replaced. A delayed flush is carried out now, for after the restart nobody would remember it.
    pub fn save_to_flash(&self) -> Saved {
        self.settle_flash(true)
    }

    /// As [`Cache::save_to_flash`], but nothing is written: flash keeps what it has, except what memory has replaced.
    pub fn leave_to_flash(&self) -> Saved {
        self.settle_flash(false)
    }

    fn settle_flash(&self, write: bool) -> Saved {
        let Some(demoter) = &self.demoter else { return Saved::default() };
        self.keeper.end_training();
        if self.flush_due_s.load(Ordering::Relaxed) != 0 {
            self.flush(None);
        }
        settle_flash(&self.store, demoter, write)
    }
}
