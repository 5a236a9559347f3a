//! What the rest of the cache sees of the keeper.

use super::core::Keeper;
use super::packing::PackedFor;
use super::time_slice::{Pace, ROUND_PERIOD, TimeSlice};
use crate::compression::CompressionStats;
use crate::demoter::Levels;
use crate::flash_note::FlashNote;
use crate::item_store::ItemStore;
use crate::references::{PagePool, ReferenceQueue};
use crate::selector::{Need, SealedQueue};
use crate::temperature::{Temperature, TemperatureStats};
use larder_memory::ColumnId;
use larder_temperature::Reference;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// For so long the keeper leaves its lock to a writer that waits for it.
const GIVE_WAY: Duration = Duration::from_micros(50);

/// The keeper's lock, its bell, and its letter boxes.
pub(crate) struct KeeperHandle {
    keeper: Mutex<Keeper>,
    /// Pages of references on their way to the keeper.
    references: ReferenceQueue,
    /// Columns that workers sealed.
    sealed: Arc<SealedQueue>,
    /// The policy's statistics as they were after a round, for whoever finds the keeper at work. A leaf.
    published: Mutex<Published>,
    bell: (Mutex<bool>, Condvar),
    /// Set while a wake-up is on its way, so that a hundred writers do not each take the lock of the bell.
    is_woken: AtomicBool,
    is_stopping: AtomicBool,
    cpu_ns: AtomicU64,
}

/// A copy of the policy's statistics.
#[derive(Default)]
struct Published {
    stats: TemperatureStats,
    compression: CompressionStats,
    /// When it was made; `None` = never.
    at: Option<Instant>,
}

impl KeeperHandle {
    /// A keeper that runs `policy`. With `logs_all` the policy wants to hear of every reference, else of a sample.
    /// `note` = where dictionaries lie beside items on flash.
    pub(crate) fn new(
        store: &ItemStore,
        policy: Box<dyn Temperature>,
        logs_all: bool,
        note: Option<Arc<FlashNote>>,
    ) -> KeeperHandle {
        let sealed = Arc::<SealedQueue>::default();
        KeeperHandle {
            keeper: Mutex::new(Keeper::new(store, policy, sealed.clone(), note)),
            references: ReferenceQueue::new(logs_all),
            sealed,
            published: Mutex::default(),
            bell: (Mutex::new(false), Condvar::new()),
            is_woken: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            cpu_ns: AtomicU64::new(0),
        }
    }

    /// The one place where the keeper's lock is taken. A thread that takes it again and again calls
    /// [`KeeperHandle::give_way`] in between.
    pub(super) fn lock(&self) -> MutexGuard<'_, Keeper> {
        self.keeper.lock().expect("no panic under this lock")
    }

    /// Pages of references on their way to the keeper.
    #[inline(always)]
    pub(crate) fn references(&self) -> &ReferenceQueue {
        &self.references
    }

    /// How many sealed columns the policy was not told of.
    pub(super) fn sealed_waiting(&self) -> usize {
        self.sealed.len()
    }

    /// Tells the keeper that there is work. Cheap if the keeper was told already.
    pub(crate) fn wake(&self) {
        // Relaxed: a wake-up that is missed here is made up for within one period.
        if !self.is_woken.swap(true, Ordering::Relaxed) {
            *self.bell.0.lock().expect("no panic under this lock") = true;
            self.bell.1.notify_one();
        }
    }

    /// Waits for a wake-up, for one period at most. Returns false when the keeper is to end.
    pub(crate) fn wait(&self) -> bool {
        if self.is_stopping.load(Ordering::Acquire) {
            return false;
        }
        let rung = self.bell.0.lock().expect("no panic under this lock");
        let (mut rung, _) = self
            .bell
            .1
            .wait_timeout_while(rung, ROUND_PERIOD, |rung| !*rung)
            .expect("no panic under this lock");
        *rung = false;
        self.is_woken.store(false, Ordering::Relaxed);
        true
    }

    /// Ends the keeper's thread.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether the keeper's thread is to end.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// A worker filled a column.
    pub(crate) fn sealed(&self, column: ColumnId) {
        self.sealed.push(column);
    }

    /// Leaves a trace of a request for the policy, if the policy wants to hear of this key.
    #[inline(always)]
    pub(crate) fn note(&self, reference: Reference, pool: &PagePool<Reference>) {
        if self.references.policy_wants(reference.digest()) && pool.push(reference, &self.references.pages) {
            self.wake();
        }
    }

    /// Queues the references that a worker has noted so far.
    pub(crate) fn flush_references(&self, pool: &PagePool<Reference>) {
        pool.flush(&self.references.pages);
    }

    /// Whether a pass may give a starved writer room, or a column is on its way back.
    pub(crate) fn can_help(&self, levels: Levels<'_>) -> bool {
        levels.evicts()
            || levels.store.memory.returning_columns() > 0
            || self.for_writer(levels.store, |keeper| keeper.can_pack(levels.store, PackedFor::Writer))
    }

    /// Reclaims a column for a writer that found none, or where nothing may be evicted empties one. Returns whether it
    /// did.
    pub(crate) fn help(&self, levels: Levels<'_>) -> bool {
        let slice = &mut TimeSlice::begin(Pace::ForWriter);
        self.for_writer(levels.store, |keeper| match levels.evicts() {
            true => keeper.reclaim(levels, Need::FreeColumn, slice),
            false => keeper.can_pack(levels.store, PackedFor::Writer) && keeper.pack(levels, slice),
        })
    }

    /// Runs `work` for a writer that waits.
    fn for_writer(&self, store: &ItemStore, work: impl FnOnce(&mut Keeper) -> bool) -> bool {
        store.while_writer_waits(|| work(&mut self.lock()))
    }

    /// The lock is free. If a writer waits for it, it is left to the writer: whoever takes a lock again at once has it
    /// before a thread that has to wake up first, however often.
    pub(super) fn give_way(&self, store: &ItemStore) {
        if store.has_waiting_writers() {
            std::thread::sleep(GIVE_WAY);
        }
    }

    /// The policy's statistics: the present ones, or while the keeper is at work those that were published last, for it
    /// may sleep in the middle of a pass. Waits for nothing, and no counter goes back from one call to the next.
    pub(crate) fn stats(&self) -> TemperatureStats {
        match self.keeper.try_lock() {
            Ok(keeper) => self.publish(&keeper),
            Err(_) => self.published().stats.clone(),
        }
    }

    /// After a round: publishes the policy's statistics, if it is some time since they were.
    pub(super) fn publish_stats(&self) {
        if self.published().at.is_none_or(|at| at.elapsed() >= ROUND_PERIOD) {
            self.publish(&self.lock());
        }
    }

    fn publish(&self, keeper: &Keeper) -> TemperatureStats {
        let stats = keeper.stats();
        let compression = keeper.compression();
        *self.published() = Published { stats: stats.clone(), compression, at: Some(Instant::now()) };
        stats
    }

    fn published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().expect("no panic under this lock")
    }

    /// Before flash is closed: no dictionary is written there any more. The keeper's thread has ended.
    pub(crate) fn end_training(&self) {
        self.lock().end_training();
    }

    /// What is known of dictionaries: as [`KeeperHandle::stats`].
    pub(crate) fn compression(&self) -> CompressionStats {
        match self.keeper.try_lock() {
            Ok(keeper) => keeper.compression(),
            Err(_) => self.published().compression.clone(),
        }
    }

    /// Pages of references that were dropped because the keeper was late.
    pub(crate) fn dropped_pages(&self) -> u64 {
        self.references.pages.dropped_pages()
    }

    /// CPU time of the keeper's thread up to its last round, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }

    /// Called by the keeper's thread after a round: notes its CPU time.
    pub(crate) fn note_cpu_time(&self) {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let spent_ns = spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64;
        self.cpu_ns.store(spent_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use crate::cache::Cache;
    use crate::cache_options::CacheOptions;
    use larder_temperature::{Digest, Reference};

    #[test]
    fn statistics_do_not_wait_for_the_keeper_and_counters_do_not_go_back() {
        let options = CacheOptions { limit_bytes: 16 << 20, workers: 1, ..CacheOptions::default() };
        let cache = Cache::new(options).expect("a small cache can be made");
        cache.tend();
        cache.keeper.lock().refer(&cache.store, &[Reference::store(Digest::of(cache.hash(b"a")))]);
        let before = cache.temperature_stats();
        assert!(before.bytes > 0 && before.references == 1);
        let at_work = cache.keeper.lock();
        let seen = std::thread::scope(|scope| scope.spawn(|| cache.temperature_stats()).join());
        drop(at_work);
        let seen = seen.expect("it returns");
        assert_eq!((seen.bytes, seen.references), (before.bytes, before.references));
    }
}
