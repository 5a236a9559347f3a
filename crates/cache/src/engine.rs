//! The shared engine and a worker's hand in it.

use crate::budget::Budget;
use crate::clock::Clock;
use crate::counters::{Counters, Totals};
use crate::keeper::Keeper;
use crate::level::{FlashLevel, Level};
use crate::references::{ReferencePool, ReferenceQueue, pages_bytes_max};
use crate::temperature::{CudaOptions, TemperatureKind};
use larder_flash::{Commit, Fetcher, Flash};
use larder_index::{BUCKETS_LOG2_MAX, HoldsKey, Index, IndexOptions};
use larder_item::{CAS_DELTA_BITS, KeyHash, KeyHasher, Location};
use larder_memory::{
    ColumnId, ColumnState, Guard, Item, Memory, MemoryOptions, OpenColumn, PageKind, PagesWanted,
    RESERVE_BYTES_MAX, Reader,
};
use larder_temperature::Reference;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// What a cache is made of.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// `-m` in bytes: the hard bound over columns, index, connection buffers and bookkeeping.
    pub limit_bytes: u64,
    /// `-I` in bytes: the largest item, counted as memcached counts it.
    pub item_bytes_max: u64,
    /// Whether a full cache makes room by evicting (`-M` says no).
    pub evict: bool,
    /// How many workers will register.
    pub workers: usize,
    /// Which pages the arena asks for.
    pub pages: PagesWanted,
    /// Column size in bytes; `None` = from the machine's cache.
    pub column_bytes: Option<u32>,
    /// Values up to this many bytes stand behind their key; `None` = the default of the memory room.
    pub inline_value_bytes: Option<u32>,
    /// Log2 of the first number of index buckets; `None` = from the limit.
    pub hashpower: Option<u32>,
    /// Seed of the key hash; `None` = random.
    pub seed: Option<u64>,
    /// How the cache knows what is warm.
    pub temperature: TemperatureKind,
    /// A device for the hitmap's work.
    pub cuda: Option<CudaOptions>,
}

impl Default for CacheOptions {
    fn default() -> Self {
        CacheOptions {
            limit_bytes: 64 << 20,
            item_bytes_max: 1 << 20,
            evict: true,
            workers: 4,
            pages: PagesWanted::Auto,
            column_bytes: None,
            inline_value_bytes: None,
            hashpower: None,
            seed: None,
            temperature: TemperatureKind::default(),
            cuda: None,
        }
    }
}

/// Why a cache could not be made: one line that says what to do.
#[derive(Debug)]
pub struct CacheError(pub String);

impl std::fmt::Display for CacheError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CacheError {}

/// An atomic on a cache line of its own.
#[repr(align(128))]
pub(crate) struct Alone<T>(pub(crate) T);

/// The engine all threads share.
pub struct Cache {
    pub(crate) memory: Memory,
    pub(crate) index: Index,
    pub(crate) hasher: KeyHasher,
    pub(crate) clock: Clock,
    pub(crate) budget: Mutex<Budget>,
    pub(crate) limit_bytes: AtomicU64,
    /// Memory behind the arena's reservation: `cache_memlimit` cannot go beyond it.
    pub(crate) limit_bytes_max: u64,
    pub(crate) item_bytes_max: u64,
    pub(crate) evict: bool,
    /// The last CAS number given out.
    pub(crate) cas: Alone<AtomicU64>,
    /// Columns born before this number hold flushed items; 0 = nothing was flushed.
    pub(crate) flush_floor: Alone<AtomicU64>,
    /// When a delayed flush is due, on the clock; 0 = none.
    pub(crate) flush_due_s: AtomicU32,
    /// Held while a flush that is due is carried out.
    flush_when_due: Mutex<()>,
    pub(crate) last_birth: AtomicU64,
    /// Bytes of large values on their way in and out, whose columns are pinned.
    pub(crate) pinned_by_uploads: AtomicU64,
    pub(crate) pinned_by_reads: AtomicU64,
    pub(crate) blocks: Box<[Counters]>,
    registered: AtomicU32,
    pub(crate) keeper: Mutex<Keeper>,
    pub(crate) temperature: TemperatureKind,
    /// Bytes of ghost, hitmap and shadows.
    pub(crate) temperature_bytes: AtomicU64,
    /// The way of references to the keeper.
    pub(crate) references: ReferenceQueue,
    pub(crate) keeper_cpu_ns: AtomicU64,
    /// Columns sealed since the keeper last looked. Apart from the keeper's lock, so that no worker waits for a pass.
    pub(crate) sealed: Mutex<Vec<ColumnId>>,
    pub(crate) wake: (Mutex<bool>, Condvar),
    /// Set while a wake-up is on its way, so that a hundred writers do not each take the lock to wake the keeper.
    pub(crate) woken: AtomicBool,
    pub(crate) stopping: AtomicBool,
    /// Seconds since the last use of the item evicted last.
    pub(crate) evicted_idle_s: Alone<AtomicU32>,
    /// How many free columns, one slab's worth, are mapped and filled with zeros ahead of need.
    pub(crate) ahead_columns: usize,
    /// How many free columns the keeper holds ready under the limit of the start.
    pub(crate) free_columns_wanted: usize,
    /// Flash, where evicted items go.
    pub(crate) level: Option<Level>,
}

/// Bytes held, by purpose.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryUse {
    /// `-m`.
    pub limit_bytes: u64,
    /// Slabs mapped for columns.
    pub columns_bytes: u64,
    /// Of those, columns that hold nothing now.
    pub free_columns_bytes: u64,
    /// Live items in columns, keys, values and headers.
    pub items_bytes: u64,
    /// Buckets and sub-buckets of the index.
    pub index_bytes: u64,
    /// The cap on connection buffers, which is set aside.
    pub buffers_cap_bytes: u64,
    /// Bookkeeping of columns, pages of references, and what admission to flash remembers.
    pub bookkeeping_bytes: u64,
    /// Ghost, hitmap and shadows, or what is set aside for them.
    pub temperature_bytes: u64,
}

/// Memory's bookkeeping for one column, bytes (see `larder_memory::Column`).
const COLUMN_META_BYTES: u64 = 64;
/// Entries per bucket at which the index grows: 13 to 14 bytes of index per item, with about one lookup in seven going on
/// to a sub-bucket. At 7 it would be 13 bytes, and one in five.
const INDEX_FILL_TARGET: u32 = 6;
/// Below this `-m` the index is made of small pages: rounding its three parts up to 2 MiB would cost more memory
/// than the misses of the TLB cost time.
const HUGE_INDEX_LIMIT_BYTES: u64 = 512 << 20;
/// What a bucket costs with its share of sub-buckets at the fill target.
const INDEX_BYTES_PER_BUCKET: u64 = 86;
/// How far `cache_memlimit` may raise the limit: address space for so many times the limit is reserved.
const RESERVE_TIMES: u64 = 4;
/// Most free columns that are held ready.
const FREE_COLUMNS_MAX: usize = 64;
/// Free columns that only the pass may take, so that what is warm finds a place when writers have taken all others.
pub(crate) const RESERVED_COLUMNS: usize = 2;
/// Columns there must be for each worker, which fills two of its own.
const COLUMNS_PER_WORKER_MIN: usize = 3;
/// What connection buffers get at least for each worker, in bytes, if that is not more than a quarter of the limit.
pub const WORKER_BUFFERS_BYTES: u64 = 256 << 10;
/// Smallest `-m` that leaves room for columns.
const LIMIT_BYTES_MIN: u64 = 8 << 20;

impl Cache {
    /// A cache in memory alone: see [`Cache::with_flash`].
    ///
    /// # Errors
    /// When the limit is too small, or when the pages asked for are not to be had.
    pub fn new(options: CacheOptions) -> Result<Arc<Cache>, CacheError> {
        Cache::with_flash(options, None)
    }

    /// Reserves the arena and the index. With a flash tier, keys are hashed with the tier's seed, and CAS numbers go on above
    /// those it has. The tier is opened before, and its threads are started and ended by the caller.
    ///
    /// # Errors
    /// When the limit is too small, or when the pages asked for are not to be had.
    pub fn with_flash(options: CacheOptions, flash: Option<FlashLevel>) -> Result<Arc<Cache>, CacheError> {
        if options.limit_bytes < LIMIT_BYTES_MIN {
            return Err(CacheError(format!(
                "a memory limit of {} MiB is too small: use -m 8 or more",
                options.limit_bytes >> 20
            )));
        }
        let limit_bytes_max =
            options.limit_bytes.saturating_mul(RESERVE_TIMES).min(RESERVE_BYTES_MAX.max(options.limit_bytes));
        let memory = Memory::new(MemoryOptions {
            limit_bytes: options.limit_bytes,
            column_bytes: options.column_bytes,
            pages: options.pages,
            reserve_bytes: Some(limit_bytes_max),
            inline_value_bytes_max: options
                .inline_value_bytes
                .unwrap_or(MemoryOptions::default().inline_value_bytes_max),
        })
        .map_err(|error| CacheError(error.to_string()))?;
        let geometry = memory.geometry();
        let level = flash.map(Level::new);
        let kept_bytes = pages_bytes_max(options.workers, options.temperature.logs_all())
            + level.as_ref().map_or(0, Level::admission_bytes);
        let budget = Budget::new(options.limit_bytes, geometry.column_bytes as u64, COLUMN_META_BYTES)
            .with_buffers(options.workers as u64 * WORKER_BUFFERS_BYTES)
            .with_pages(kept_bytes);
        // memcached's hash power counts entries; a bucket of ours holds about eight.
        let most_log2 = (budget.index_bytes_max() / INDEX_BYTES_PER_BUCKET).max(1 << 10).ilog2();
        let buckets_log2 = options
            .hashpower
            .map_or_else(|| first_buckets_log2(options.limit_bytes), |power| power.saturating_sub(3));
        let buckets_log2 = buckets_log2.min(most_log2);
        let index = Index::new(IndexOptions {
            buckets_log2,
            buckets_log2_max: buckets_log2.max(largest_buckets_log2(limit_bytes_max)),
            fill_target: INDEX_FILL_TARGET,
            marks: options.temperature.marks_entries(),
            huge: options.limit_bytes >= HUGE_INDEX_LIMIT_BYTES && options.pages != PagesWanted::Small,
        })
        .map_err(|error| {
            CacheError(format!("cannot reserve the index: {error}; lower -m or -o hashpower"))
        })?;
        let columns = budget.columns_bytes(index.bytes()) / geometry.column_bytes as u64;
        // With flash behind it a burst of writes should find columns while the items before it are being written.
        let ready_share = if level.is_some() { 16 } else { 128 };
        let free_columns_wanted = (columns as usize / ready_share)
            .min(FREE_COLUMNS_MAX)
            .max(options.workers + 3 + RESERVED_COLUMNS);
        // Each worker fills columns of its own.
        if options.workers * COLUMNS_PER_WORKER_MIN > columns as usize {
            return Err(CacheError(format!(
                "{} worker threads (-t) are too many for {} MiB (-m): at most {}",
                options.workers,
                options.limit_bytes >> 20,
                columns as usize / COLUMNS_PER_WORKER_MIN
            )));
        }
        let seed = level.as_ref().map(|level| level.flash.seed()).or(options.seed);
        let clock = Clock::new();
        let cas_floor = level.as_ref().map_or(0, |level| first_cas(level.flash.cas_floor(), &clock));
        let cache = Cache {
            hasher: seed.map_or_else(KeyHasher::random, KeyHasher::with_seed),
            clock,
            limit_bytes: AtomicU64::new(options.limit_bytes),
            limit_bytes_max,
            item_bytes_max: options.item_bytes_max,
            evict: options.evict,
            cas: Alone(AtomicU64::new(cas_floor)),
            flush_floor: Alone(AtomicU64::new(0)),
            flush_due_s: AtomicU32::new(0),
            flush_when_due: Mutex::default(),
            last_birth: AtomicU64::new(0),
            pinned_by_uploads: AtomicU64::new(0),
            pinned_by_reads: AtomicU64::new(0),
            blocks: (0..=options.workers).map(|_| Counters::default()).collect(),
            registered: AtomicU32::new(0),
            keeper: Mutex::new(Keeper::new(memory.register(), options.temperature.build_on(options.cuda))),
            temperature: options.temperature,
            temperature_bytes: AtomicU64::new(0),
            references: ReferenceQueue::new(options.temperature.logs_all()),
            keeper_cpu_ns: AtomicU64::new(0),
            sealed: Mutex::default(),
            wake: (Mutex::new(false), Condvar::new()),
            woken: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            evicted_idle_s: Alone(AtomicU32::new(0)),
            free_columns_wanted,
            ahead_columns: geometry.columns_per_slab as usize,
            budget: Mutex::new(budget),
            level,
            memory,
            index,
        };
        cache.share_out();
        Ok(Arc::new(cache))
    }

    /// A new worker's hand. Each thread that serves requests takes one.
    ///
    /// # Panics
    /// When more workers register than [`CacheOptions::workers`] announced.
    pub fn worker(self: &Arc<Cache>) -> Worker {
        let number = self.registered.fetch_add(1, Ordering::Relaxed) as usize;
        assert!(number + 1 < self.blocks.len(), "more workers than were announced");
        Worker {
            reader: self.memory.register(),
            open: [None, None],
            number,
            quiesced: 0,
            inserts: 0,
            old_value: Vec::new(),
            references: ReferencePool::default(),
            fetcher: self.fetcher(),
            parts_under_way: Vec::new(),
            commit: Cell::new(None),
            cache: self.clone(),
        }
    }

    /// A worker's hand for reading from flash. Without one it does not look there, but what it writes stays right.
    fn fetcher(&self) -> Option<Fetcher> {
        let fetcher = self.level.as_ref()?.flash.fetcher();
        fetcher.inspect_err(|error| tracing::error!("a worker cannot read from flash: {error}")).ok()
    }

    /// The flash tier.
    pub fn flash_tier(&self) -> Option<&Arc<Flash>> {
        self.level.as_ref().map(|level| &level.flash)
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Hashes a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    /// The largest item in bytes (`-I`).
    pub fn item_bytes_max(&self) -> u64 {
        self.item_bytes_max
    }

    /// The longest value, in bytes, that is stored in one piece; longer ones arrive through an [`crate::Upload`].
    pub fn whole_value_bytes_max(&self) -> usize {
        self.memory.chunk_bytes_max() as usize
    }

    /// The most that connection buffers may hold, in bytes.
    pub fn buffers_cap_bytes(&self) -> u64 {
        self.budget.lock().expect("no panic under this lock").buffers_bytes
    }

    /// How many items the index holds; expired ones count until the pass meets them.
    pub fn items(&self) -> u64 {
        self.index.len()
    }

    /// Log2 of the number of index buckets, rounded up.
    pub fn hashpower(&self) -> u32 {
        self.index.buckets().next_power_of_two().trailing_zeros()
    }

    /// Whether the index is short of buckets and growing.
    pub fn is_growing(&self) -> bool {
        self.index.needs_growth()
    }

    /// How the cache knows what is warm.
    pub fn temperature_kind(&self) -> TemperatureKind {
        self.temperature
    }

    /// In one sentence, which pages the arena got.
    pub fn pages_sentence(&self) -> String {
        self.memory.pages_description()
    }

    /// Whether items lie, or some of them, in huge pages that are set aside for whoever asks for them.
    pub fn has_reserved_pages(&self) -> bool {
        self.memory.pages() == PageKind::ExplicitHuge
    }

    /// Bytes of one column.
    pub fn column_bytes(&self) -> u32 {
        self.memory.geometry().column_bytes
    }

    /// The sum of all workers' counters and the keeper's.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for block in &self.blocks {
            totals.add(block);
        }
        totals
    }

    /// Bytes held, by purpose.
    pub fn memory_use(&self) -> MemoryUse {
        let budget = *self.budget.lock().expect("no panic under this lock");
        let totals = self.totals();
        MemoryUse {
            limit_bytes: budget.limit_bytes,
            columns_bytes: self.memory.mapped_bytes(),
            free_columns_bytes: self.memory.free_columns() as u64 * self.column_bytes() as u64,
            items_bytes: totals.bytes_stored.saturating_sub(totals.bytes_died),
            index_bytes: self.index.bytes(),
            buffers_cap_bytes: budget.buffers_bytes,
            bookkeeping_bytes: budget.bookkeeping_bytes,
            temperature_bytes: self.temperature_bytes.load(Ordering::Relaxed),
        }
    }

    /// Seconds since the last use of the item evicted last; 0 before the first.
    pub fn evicted_idle_s(&self) -> u32 {
        self.evicted_idle_s.0.load(Ordering::Relaxed)
    }

    /// About how many seconds ago the oldest column that holds items was begun. What is in it is older only if it was moved.
    pub fn age_s(&self) -> u32 {
        let columns = self.memory.columns_mapped();
        let sampled = (0..columns).step_by(columns.div_ceil(AGE_LOOKS_MAX).max(1) as usize);
        let begun_s = sampled
            .map(|id| self.memory.column(ColumnId(id)))
            .filter(|found| matches!(found.state(), ColumnState::Open | ColumnState::Sealed))
            .filter(|found| found.live_bytes() > 0)
            .map(|found| found.opened_s());
        begun_s.min().map_or(0, |begun_s| self.clock.now_s().saturating_sub(begun_s))
    }

    /// Bytes that live in columns that were not retired, as the columns count them: for tests that hold this and
    /// `items_bytes` together, which the items count.
    #[doc(hidden)]
    pub fn live_in_columns(&self) -> u64 {
        let columns = (0..self.memory.columns_mapped()).map(|id| self.memory.column(ColumnId(id)));
        let in_use = columns.filter(|found| matches!(found.state(), ColumnState::Open | ColumnState::Sealed));
        in_use.map(|found| u64::from(found.live_bytes())).sum()
    }

    /// `cache_memlimit`: a new limit in bytes. Columns beyond it are given back by the keeper.
    /// Returns whether the limit was taken: it can go down to 8 MiB and up to what was reserved at start.
    pub fn set_limit(&self, bytes: u64) -> bool {
        if bytes < LIMIT_BYTES_MIN || bytes > self.limit_bytes_max {
            return false;
        }
        let kept_bytes = pages_bytes_max(self.blocks.len() - 1, self.temperature.logs_all())
            + self.level.as_ref().map_or(0, Level::admission_bytes);
        let shared = Budget::new(bytes, self.column_bytes() as u64, COLUMN_META_BYTES)
            .with_buffers((self.blocks.len() - 1) as u64 * WORKER_BUFFERS_BYTES)
            .with_pages(kept_bytes);
        *self.budget.lock().expect("no panic under this lock") = shared;
        self.limit_bytes.store(bytes, Ordering::Relaxed);
        self.share_out();
        self.wake_keeper();
        true
    }

    /// Gives the columns what the index leaves them.
    pub(crate) fn share_out(&self) {
        let budget = *self.budget.lock().expect("no panic under this lock");
        self.index.set_growth_limit(budget.index_bytes_max() / INDEX_BYTES_PER_BUCKET);
        let temperature_bytes = self.temperature_bytes.load(Ordering::Relaxed);
        self.memory.set_limit(budget.columns_bytes(self.index.bytes() + temperature_bytes));
    }

    /// `flush_all`: everything stored up to now is gone, at once or when the clock reads `due_s`.
    pub fn flush(&self, due_s: Option<u32>) {
        match due_s {
            Some(at_s) if at_s > self.clock.now_s() => self.flush_due_s.store(at_s, Ordering::Relaxed),
            _ => {
                // As with memcached, a flush now replaces one that was to come.
                self.flush_due_s.store(0, Ordering::Relaxed);
                self.flush_now();
            }
        }
    }

    fn flush_now(&self) {
        match &self.level {
            None => self.raise_flush_floor(),
            Some(level) => {
                let _alone = level.flushing.lock().expect("no panic under this lock");
                // In this order: see docs/concurrency.md.
                level.flash.begin_flush();
                self.raise_flush_floor();
                level.flash.end_flush();
            }
        }
        self.wake_keeper();
    }

    /// Columns taken from now on are born later than every column that holds an item now. A column taken while the floor is
    /// being raised is caught by another look.
    fn raise_flush_floor(&self) {
        loop {
            let floor = self.last_birth.load(Ordering::SeqCst) + 1;
            self.flush_floor.0.fetch_max(floor, Ordering::SeqCst);
            if self.last_birth.load(Ordering::SeqCst) < floor {
                break;
            }
        }
    }

    /// Once a second: moves the clock and carries out a delayed flush that is due.
    pub fn tick(&self) -> u32 {
        let now_s = self.clock.tick();
        let due_s = self.flush_due_s.load(Ordering::Relaxed);
        if due_s != 0 && due_s <= now_s {
            // One of the threads that see it due carries it out, the others wait for that: what is stored after a tick is not
            // flushed by what was due before.
            let _one = self.flush_when_due.lock().expect("no panic under this lock");
            if self.flush_due_s.load(Ordering::Relaxed) == due_s {
                self.flush_now();
                // Unless another was set meanwhile.
                let _ = self.flush_due_s.compare_exchange(due_s, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
        now_s
    }

    /// The next CAS number.
    #[inline]
    pub(crate) fn next_cas(&self) -> u64 {
        self.cas.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether the items of the column that holds `at` were flushed.
    #[inline]
    pub(crate) fn is_flushed(&self, at: Location) -> bool {
        let floor = self.flush_floor.0.load(Ordering::SeqCst);
        floor != 0 && self.memory.column(self.memory.column_of(at)).birth() < floor
    }

    /// Birth number of the column that holds `at`.
    #[inline]
    pub(crate) fn birth_of(&self, at: Location) -> u64 {
        self.memory.column(self.memory.column_of(at)).birth()
    }

    /// Takes a free column for a writer, leaving the reserve to the pass.
    pub(crate) fn take_column(&self) -> Option<OpenColumn> {
        if self.memory.available_columns() <= RESERVED_COLUMNS {
            self.memory.recycle();
            if self.memory.available_columns() <= RESERVED_COLUMNS {
                return None;
            }
        }
        self.take_any_column()
    }

    /// Takes a free column, counting its birth.
    pub(crate) fn take_any_column(&self) -> Option<OpenColumn> {
        // Half of what a CAS delta can express lies below the base, for items that are moved here from older columns.
        let cas_base = self.cas.0.load(Ordering::Relaxed).wrapping_sub(1 << (CAS_DELTA_BITS - 1));
        let taken = self.memory.take_column(cas_base, self.clock.now_s())?;
        self.last_birth.fetch_max(taken.birth(), Ordering::SeqCst);
        Some(taken)
    }

    /// The item at `at` can no longer be found: its bytes are dead.
    pub(crate) fn died(&self, guard: &Guard<'_>, at: Location, counters: &Counters) {
        let mut bytes = 0;
        self.each_piece(guard, at, |at, piece_bytes| {
            guard.item(at).mark_dead();
            self.memory.column(self.memory.column_of(at)).died(piece_bytes);
            bytes += piece_bytes as u64;
        });
        counters.bytes_died.add(bytes);
    }

    /// Bytes the item at `at` takes, its chunks included.
    #[inline]
    pub(crate) fn bytes_of(&self, guard: &Guard<'_>, at: Location) -> u64 {
        let mut bytes = 0;
        self.each_piece(guard, at, |_, piece_bytes| bytes += piece_bytes as u64);
        bytes
    }

    /// Calls `f` with place and bytes of the item's record and of each of its chunks.
    #[inline]
    fn each_piece(&self, guard: &Guard<'_>, at: Location, mut f: impl FnMut(Location, u32)) {
        let item = guard.item(at);
        f(at, item.bytes());
        let mut next = crate::large::first_chunk(&item);
        while let Some(at) = next {
            let chunk = guard.chunk(at);
            f(at, chunk.held_bytes());
            next = chunk.next;
        }
    }
}

/// The number that CAS numbers go on from, when the highest on flash is `floor`. Only a client can have chosen one in the
/// upper half; what the server gave out itself is then unknown, but not more than 2^30 for each second there ever was.
fn first_cas(floor: u64, clock: &Clock) -> u64 {
    if floor < 1 << 63 { floor } else { (clock.unix_s(clock.now_s()).max(0) as u64) << 30 }
}

/// Columns looked at for the oldest.
const AGE_LOOKS_MAX: u32 = 16_384;

/// About one bucket for every 8 KiB of the limit: one 128th of the memory, enough for items of 1 KiB before the first
/// split.
fn first_buckets_log2(limit_bytes: u64) -> u32 {
    (limit_bytes / 8192).max(1 << 10).ilog2()
}

/// Address space for the smallest items: one bucket for every 128 bytes of the limit.
fn largest_buckets_log2(limit_bytes: u64) -> u32 {
    (limit_bytes / 128).max(1 << 12).next_power_of_two().ilog2().min(BUCKETS_LOG2_MAX)
}

/// Answers the index's two questions from the bytes.
pub(crate) struct Owner<'a, 'g> {
    pub(crate) guard: &'a Guard<'g>,
    pub(crate) hasher: &'a KeyHasher,
}

impl HoldsKey for Owner<'_, '_> {
    #[inline]
    fn holds(&self, at: Location, key: &[u8]) -> bool {
        self.guard.item(at).key_matches(key)
    }

    #[inline]
    fn hash_of(&self, at: Location) -> KeyHash {
        self.hasher.hash(self.guard.item(at).key())
    }

    #[inline]
    fn prefetch(&self, at: Location) {
        self.guard.prefetch(at);
    }
}

/// One thread's hand in the cache.
pub struct Worker {
    pub(crate) cache: Arc<Cache>,
    pub(crate) reader: Reader,
    /// The columns it fills: see [`Open`].
    pub(crate) open: [Option<OpenColumn>; 2],
    pub(crate) number: usize,
    /// How often this worker let go of everything it had looked up.
    pub(crate) quiesced: u64,
    pub(crate) inserts: u32,
    /// Where the value of an item that is written anew waits meanwhile; kept for its memory.
    pub(crate) old_value: Vec<u8>,
    pub(crate) references: ReferencePool,
    /// Its hand for reading from flash.
    pub(crate) fetcher: Option<Fetcher>,
    /// Tokens of the parts of long values that were asked for.
    pub(crate) parts_under_way: Vec<u64>,
    /// What has to be durable before the present requests are answered.
    pub(crate) commit: Cell<Option<Commit>>,
}

/// What a worker fills a column with. Chunks have columns of their own, so that large values that come slowly lie side by side
/// and pin no more columns than they need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Open {
    /// Items, and the owners of chunks.
    Records,
    /// Chunks.
    Chunks,
}

impl Worker {
    /// The cache this worker serves.
    #[inline]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// This worker's counters.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.cache.blocks[self.number]
    }

    /// Between batches: nothing looked up before is held any longer, so columns retired since can be reused.
    #[inline]
    pub fn quiesce(&mut self) {
        self.quiesced += 1;
        self.reader.quiesce();
    }

    /// About to block: this worker holds back nothing until [`Worker::online`].
    pub fn offline(&mut self) {
        self.quiesced += 1;
        self.reader.offline();
    }

    /// Once a second: lets go of a column that was flushed, so that the flush can be forgotten, and of the references
    /// noted so far.
    pub fn tick(&mut self) {
        self.references.flush(&self.cache.references);
        let floor = self.cache.flush_floor.0.load(Ordering::Acquire);
        for of in [Open::Records, Open::Chunks] {
            if self.open[of as usize].as_ref().is_some_and(|open| open.birth() < floor) {
                self.seal_open(of);
            }
        }
    }

    /// Leaves a trace of a request for the keeper, if it wants to know of this key.
    #[inline(always)]
    pub(crate) fn note(&self, reference: Reference) {
        if self.cache.references.wants(reference) && self.references.push(reference, &self.cache.references) {
            self.cache.wake_keeper();
        }
    }

    /// Awake again.
    pub fn online(&mut self) {
        self.reader.online();
    }

    /// Changes whenever locations found earlier may no longer be used.
    #[inline]
    pub fn quiesced(&self) -> u64 {
        self.quiesced
    }

    /// Whether `item` may be served, and the reason if not.
    #[inline]
    pub(crate) fn life(&self, at: Location, item: &Item<'_>) -> Life {
        self.cache.life(at, item)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.seal_open(Open::Records);
        self.seal_open(Open::Chunks);
    }
}

/// Whether a findable item may be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Live,
    Expired,
    Flushed,
}
