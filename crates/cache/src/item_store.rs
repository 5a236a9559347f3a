//! The items in memory: columns, index and clock, and the rules about items that every read and every write needs.
//!
//! [`ItemStore`] is the bottom of this crate. Workers, the keeper and the demoter all work on it; it knows none of
//! them. It takes no lock on the way of a lookup.

use crate::budget::{Budget, LIMIT_BYTES_MIN, Limits, SetAside};
use crate::clock::Clock;
use crate::counters::{Counters, Totals};
use crate::departures::{Departures, Destination};
use crate::namespaces::Namespaces;
use crate::options::{CacheError, CacheOptions};
use crate::padded::CachePadded;
use crate::placement::Placement;
use crate::worth::WorthSetting;
use arc_swap::ArcSwap;
use larder_allocation::Subclass;
use larder_index::{BUCKETS_LOG2_MAX, HoldsKey, Index, IndexOptions};
use larder_item::{
    CAS_DELTA_BITS, Expiry, KeyHash, KeyHasher, Location, PrefixFloors, PrefixesFull, State, ValueLayout,
};
use larder_memory::{
    ColumnId, ColumnState, FreshPages, Guard, Item, KeepOptions, Left, Memory, MemoryOptions, NodeId,
    OpenColumn, PagesWanted, RESERVE_BYTES_MAX, Value,
};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Entries per bucket at which the index grows: 13 to 14 bytes of index per item, and about one lookup in seven goes on
/// to a sub-bucket. With 7 entries it would be 13 bytes, and one lookup in five.
const INDEX_FILL_TARGET: u32 = 6;
/// Buckets of a new index, as a power of two: 64 KiB, which grow with the items.
const FIRST_BUCKETS_LOG2: u32 = 10;
/// What a bucket costs together with its share of sub-buckets at the fill target.
const INDEX_BYTES_PER_BUCKET: u64 = 86;
/// `cache_memlimit` may raise the limit to so many times the first one: address space for that is reserved.
const RESERVE_TIMES: u64 = 4;
/// The most free columns that are held ready.
const FREE_COLUMNS_MAX: usize = 64;
/// Free columns that only the pass may take, so that warm items find room when writers have taken all other columns.
pub(crate) const RESERVED_COLUMNS: usize = 2;
/// While there are least shares, the pass has so many columns more: about as many as it fills at a time, for a column
/// may hold cold items of every lifetime that have to stay. In a small cache they are one part in so many of all
/// columns.
const RESERVED_FOR_SHARES: usize = 14;
const RESERVED_FOR_SHARES_PART: usize = 64;
/// Items are moved out of sparse columns, and nothing is evicted, while more than one part in so many of the used bytes
/// is dead. With a quarter, a set of items that fills 0.8 of the columns and is overwritten at random lost a tenth of
/// its items; with an eighth it lost nothing, for 28 % more CPU time.
const MUCH_DEAD_SHARE: u64 = 8;
/// Columns there must be for each worker, which fills two of its own.
const COLUMNS_PER_WORKER_MIN: usize = 3;
/// The fewest columns that `cache_memlimit` may leave. With half as many, writers waited for a column for too long
/// while the limit went down under load.
const COLUMNS_MIN: usize = 32;
/// The most columns that are looked at for the oldest one.
const AGE_LOOKS_MAX: u32 = 16_384;

/// More CAS numbers than this are not given out between two notes of a kept memory, which come once a second.
const GIVEN_OUT_MAX: u64 = 1 << 34;

/// What flash behind memory asks of the store.
pub(crate) struct FlashNeeds {
    /// Keys are hashed with the seed that the flash tier was made with.
    pub(crate) seed: u64,
    /// The highest CAS number on flash.
    pub(crate) cas_floor: u64,
}

/// All items in memory, and what is needed to find them.
pub(crate) struct ItemStore {
    pub(crate) memory: Memory,
    pub(crate) index: Index,
    pub(crate) hasher: KeyHasher,
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    /// What the worth of an item is made of.
    pub(crate) worth: WorthSetting,
    /// Where items stand that are moved.
    pub(crate) placement: Placement,
    /// Number of the subclass that items of unknown penalty are judged by.
    unknown_penalty: AtomicU8,
    /// What becomes of live items when room is needed.
    leaving: LeavesMemory,
    /// One block for each worker, and the last one for the keeper.
    counters: Box<[Counters]>,
    /// Tenants with shares of the memory.
    pub(crate) namespaces: Namespaces,
    /// Who is told of live items that leave memory.
    pub(crate) departures: Departures,
    /// The last CAS number given out.
    cas: CachePadded<AtomicU64>,
    /// Columns born before this number may hold flushed items: the highest of `flush_floor` and the floors of
    /// `prefixes`; 0 = nothing was flushed.
    highest_floor: CachePadded<AtomicU64>,
    /// Columns born before this number hold nothing but flushed items; 0 = there was no `flush_all`.
    flush_floor: AtomicU64,
    /// Of columns born before a prefix's floor, the items with that prefix were flushed.
    prefixes: ArcSwap<PrefixFloors>,
    /// Held while a floor is raised or forgotten. A leaf.
    floors_change: Mutex<()>,
    /// Entries of flushed items that the index still has; right to an item while nothing is stored.
    flushed_entries: CachePadded<AtomicU64>,
    /// The highest birth number of a column that was taken.
    last_birth: AtomicU64,
    /// Seconds since the last use of the item that was evicted last.
    evicted_idle_s: CachePadded<AtomicU32>,
    /// Bytes in sealed columns that have expired or were flushed, as the keeper last knew.
    over_bytes: CachePadded<AtomicU64>,
    /// How many columns of fresh memory are taken from the machine ahead of need.
    columns_ahead: CachePadded<AtomicUsize>,
    /// How many free columns are held ready under the first limit.
    free_columns_wanted: usize,
    /// All memory was taken from the machine at the start, and stays.
    is_prefaulted: AtomicBool,
}

/// What becomes of live items when room is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeavesMemory {
    /// They are evicted, whether flash takes them or not.
    Anyhow,
    /// They leave if flash takes them (`-M` with flash).
    ForFlash,
    /// They stay (`-M`).
    Never,
}

impl LeavesMemory {
    fn of(evicts: bool, has_flash: bool) -> LeavesMemory {
        match (evicts, has_flash) {
            (true, _) => LeavesMemory::Anyhow,
            (false, true) => LeavesMemory::ForFlash,
            (false, false) => LeavesMemory::Never,
        }
    }
}

/// Whether an item that is found may be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Live,
    Expired,
    Flushed,
}

impl ItemStore {
    /// Reserves the arena and the index. `kept_bytes` of the limit are set aside for bookkeeping of others.
    pub(crate) fn new(
        options: &CacheOptions,
        flash: Option<FlashNeeds>,
        kept_bytes: u64,
    ) -> Result<ItemStore, CacheError> {
        if options.limit_bytes < LIMIT_BYTES_MIN {
            return Err(CacheError(format!(
                "a memory limit of {} MiB is too small: use -m 8 or more",
                options.limit_bytes >> 20
            )));
        }
        let limit_bytes_max =
            options.limit_bytes.saturating_mul(RESERVE_TIMES).min(RESERVE_BYTES_MAX.max(options.limit_bytes));
        let memory = memory_for(options, limit_bytes_max)?;
        let limit_bytes_max = match memory.head() {
            None => limit_bytes_max,
            // The file has room for so much, whichever limit it was made for.
            Some(_) => limit_bytes_max.min(memory.reserve_bytes()),
        };
        let geometry = memory.geometry();
        let column_bytes = u64::from(geometry.column_bytes);
        let set_aside = SetAside {
            workers: options.workers,
            sessions_bytes: options.sessions_bytes,
            buffers_bytes: options.buffers_bytes,
            column_bytes,
            kept_bytes,
        };
        let budget = Budget::new(options.limit_bytes, &set_aside);
        let mut index = index_for(options, &budget, limit_bytes_max, memory.reserve_bytes())?;
        if let Some(head) = memory.head() {
            // The items of an earlier process come at once.
            let buckets = head.items.load(Ordering::Relaxed) / u64::from(INDEX_FILL_TARGET);
            index.begin_with(buckets.min(budget.index_bytes_max() / INDEX_BYTES_PER_BUCKET));
        }
        let columns = (budget.columns_bytes(index.bytes(), 0) / column_bytes) as usize;
        if options.workers * COLUMNS_PER_WORKER_MIN > columns {
            return Err(CacheError(format!(
                "{} worker threads (-t) are too many for {} MiB (-m): at most {}",
                options.workers,
                options.limit_bytes >> 20,
                columns / COLUMNS_PER_WORKER_MIN
            )));
        }
        // With flash behind memory, a burst of writes should find columns while earlier items are being written to
        // flash.
        let ready_share = if flash.is_some() { 16 } else { 128 };
        let free_columns_wanted =
            (columns / ready_share).min(FREE_COLUMNS_MAX).max(options.workers + 3 + RESERVED_COLUMNS);
        let clock = match memory.head().map(|head| head.clock_offset_ms.load(Ordering::Relaxed)) {
            None | Some(0) => Clock::new(),
            Some(offset_ms) => Clock::going_on(offset_ms as i64),
        };
        let cas_floor = match &flash {
            Some(flash) => first_cas(flash.cas_floor, &clock),
            None => kept_cas(&memory),
        };
        let has_flash = flash.is_some();
        let seed = flash.map(|flash| flash.seed).or(memory.kept_seed()).or(options.seed);
        let store = ItemStore {
            hasher: seed.map_or_else(KeyHasher::random, KeyHasher::with_seed),
            clock,
            // Without eviction it could not be taken back.
            limits: Limits::new(budget, set_aside, limit_bytes_max, options.lends_buffers && options.evict),
            worth: WorthSetting::new(options.worth),
            placement: options.placement,
            unknown_penalty: AtomicU8::new(Subclass::UNKNOWN.number() as u8),
            leaving: LeavesMemory::of(options.evict, has_flash),
            counters: (0..=options.workers).map(|_| Counters::default()).collect(),
            namespaces: Namespaces::new(),
            departures: Departures::default(),
            cas: CachePadded(AtomicU64::new(cas_floor)),
            highest_floor: CachePadded(AtomicU64::new(0)),
            flush_floor: AtomicU64::new(0),
            prefixes: ArcSwap::default(),
            floors_change: Mutex::default(),
            flushed_entries: CachePadded(AtomicU64::new(0)),
            last_birth: AtomicU64::new(memory.last_birth()),
            evicted_idle_s: CachePadded(AtomicU32::new(0)),
            over_bytes: CachePadded(AtomicU64::new(0)),
            columns_ahead: CachePadded(AtomicUsize::new(0)),
            free_columns_wanted,
            is_prefaulted: AtomicBool::new(false),
            memory,
            index,
        };
        store.share_out();
        Ok(store)
    }

    /// Whether live items leave memory to make room. With flash, [`crate::demoter::Levels::evicts`] knows better.
    #[inline]
    pub(crate) fn evicts(&self) -> bool {
        self.leaving != LeavesMemory::Never
    }

    /// Whether an item that leaves memory may be lost. If not, it leaves only for flash.
    #[inline]
    pub(crate) fn may_lose(&self) -> bool {
        self.leaving == LeavesMemory::Anyhow
    }

    /// The counters of the worker with this number.
    #[inline]
    pub(crate) fn worker_counters(&self, number: usize) -> &Counters {
        &self.counters[number]
    }

    /// How many workers there are blocks of counters for.
    pub(crate) fn workers_max(&self) -> usize {
        self.counters.len() - 1
    }

    /// The keeper's counters. Only a thread that holds the keeper's lock adds to them, except to `note_ns`: the
    /// thread that runs the round adds to that one.
    pub(crate) fn keeper_counters(&self) -> &Counters {
        &self.counters[self.counters.len() - 1]
    }

    /// The subclass that items of unknown penalty are judged by.
    pub(crate) fn unknown_penalty(&self) -> Subclass {
        Subclass::from_number(self.unknown_penalty.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Takes the median of the penalties that were measured or stated so far for items whose penalty is unknown.
    /// PAMA takes 100 ms, the mean of its workloads (section IV). Behind a back end that answers within a millisecond,
    /// items that were stored without a miss would then outrank all others.
    pub(crate) fn learn_unknown_penalty(&self) {
        let mut counts = [0; Subclass::COUNT];
        for block in &self.counters {
            for (sum, counter) in counts.iter_mut().zip(block.penalties()) {
                *sum += counter.get();
            }
        }
        let all: u64 = counts.iter().sum();
        let mut below = 0;
        let median = counts.iter().position(|count| {
            below += count;
            all > 0 && 2 * below >= all
        });
        let number = median.unwrap_or(Subclass::UNKNOWN.number());
        self.unknown_penalty.store(number as u8, Ordering::Relaxed);
    }

    /// The sum of all counters.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for block in &self.counters {
            totals.add(block);
        }
        totals
    }

    /// Bytes of all items that have an entry, those that have expired or were flushed included.
    pub(crate) fn live_bytes(&self) -> u64 {
        let (mut stored, mut died) = (0u64, 0u64);
        for block in &self.counters {
            stored = stored.wrapping_add(block.bytes_stored.get());
            died = died.wrapping_add(block.bytes_died.get());
        }
        stored.saturating_sub(died)
    }

    /// Bytes in sealed columns that have expired or were flushed, as the keeper last knew: about a second ago.
    pub(crate) fn over_bytes(&self) -> u64 {
        self.over_bytes.0.load(Ordering::Relaxed)
    }

    /// The keeper knows anew how many bytes have expired or were flushed.
    pub(crate) fn set_over_bytes(&self, bytes: u64) {
        self.over_bytes.0.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of all items that can be served, as far as the keeper knows.
    pub(crate) fn servable_bytes(&self) -> u64 {
        self.live_bytes().saturating_sub(self.over_bytes())
    }

    /// Whether so much of the used memory is dead that nothing live need be evicted.
    pub(crate) fn is_much_dead(&self) -> bool {
        let used = self.used_bytes();
        self.servable_bytes() < used - used / MUCH_DEAD_SHARE
    }

    /// Bytes of columns that hold records, live or dead.
    pub(crate) fn used_bytes(&self) -> u64 {
        let idle = (self.memory.free_columns() + self.memory.retired_columns()) as u64;
        self.memory.mapped_bytes().saturating_sub(idle * self.column_bytes())
    }

    /// How many columns there may be under the present limit.
    pub(crate) fn columns_max(&self) -> u64 {
        self.memory.limit_bytes() / self.column_bytes()
    }

    /// Bytes of one column.
    #[inline]
    pub(crate) fn column_bytes(&self) -> u64 {
        u64::from(self.memory.geometry().column_bytes)
    }

    /// Compares keys for the index, by reading the records.
    #[inline]
    pub(crate) fn key_reader<'a, 'g>(&'a self, guard: &'a Guard<'g>) -> KeyReader<'a, 'g> {
        KeyReader { guard, hasher: &self.hasher }
    }

    /// Whether the index has an entry of the key, for a live item or not.
    pub(crate) fn has_entry(&self, guard: &Guard<'_>, hash: KeyHash, key: &[u8]) -> bool {
        self.index.get(hash, key, &self.key_reader(guard)).is_some()
    }

    /// Whether the item at `at` may be served, and the reason if not.
    #[inline(always)]
    pub(crate) fn life(&self, at: Location, item: &Item<'_>) -> Life {
        if item.may_have_expired(self.clock.now_s()) && self.clock.has_passed(item.expiry()) {
            Life::Expired
        } else if self.is_flushed(at, item) {
            Life::Flushed
        } else {
            Life::Live
        }
    }

    /// Whether the item at `at` was flushed, with all others or by its prefix.
    #[inline(always)]
    pub(crate) fn is_flushed(&self, at: Location, item: &Item<'_>) -> bool {
        let floor = self.highest_floor.0.load(Ordering::SeqCst);
        floor != 0 && self.birth_of(at) < floor && self.is_below_floor(self.birth_of(at), item.key())
    }

    /// Whether an item with this key, in a column of this birth, was flushed.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_below_floor(&self, birth: u64, key: &[u8]) -> bool {
        birth < self.flush_floor.load(Ordering::SeqCst) || birth < self.prefixes.load().floor_of(key)
    }

    /// How many items the index holds that were not flushed. Expired items count.
    pub(crate) fn items(&self) -> u64 {
        self.index.len().saturating_sub(self.flushed_entries.0.load(Ordering::Relaxed))
    }

    /// The birth number of the column that holds `at`.
    #[inline]
    pub(crate) fn birth_of(&self, at: Location) -> u64 {
        self.memory.column(self.memory.column_of(at)).birth()
    }

    /// Columns born before this number may hold flushed items; 0 = nothing was flushed.
    #[inline]
    pub(crate) fn highest_floor(&self) -> u64 {
        self.highest_floor.0.load(Ordering::Acquire)
    }

    /// Columns born before this number hold nothing but flushed items; 0 = there was no `flush_all`.
    #[inline]
    pub(crate) fn flush_floor(&self) -> u64 {
        self.flush_floor.load(Ordering::Acquire)
    }

    /// The floors of deleted prefixes.
    pub(crate) fn prefixes(&self) -> Arc<PrefixFloors> {
        self.prefixes.load_full()
    }

    fn change_floors(&self) -> MutexGuard<'_, ()> {
        self.floors_change.lock().expect("no panic under this lock")
    }

    /// Flushes everything that is stored now: raises the flush floor above the birth of every column that holds an
    /// item.
    pub(crate) fn raise_flush_floor(&self) {
        let _changing = self.change_floors();
        self.flushed_entries.0.store(self.index.len(), Ordering::Relaxed);
        self.raise_above_births(|floor| {
            if let Some(head) = self.memory.head() {
                // First: what a client does not see any more must not come back with a later process.
                head.flush_floor.fetch_max(floor, Ordering::SeqCst);
            }
            self.flush_floor.fetch_max(floor, Ordering::SeqCst);
        });
        // All of them are below the new floor.
        self.prefixes.store(Arc::default());
        self.note_prefixes_for_later(0);
    }

    /// Flushes the items that are stored now and whose keys begin with `prefix`.
    ///
    /// # Errors
    /// As many prefixes are being deleted as the table has room for.
    pub(crate) fn raise_prefix_floor(&self, prefix: &[u8]) -> Result<(), PrefixesFull> {
        let _changing = self.change_floors();
        let mut changed = PrefixFloors::clone(&self.prefixes.load());
        changed.raise(prefix, self.last_birth.load(Ordering::SeqCst) + 1)?;
        self.raise_above_births(|floor| {
            if let Some(head) = self.memory.head() {
                head.prefix_floor.fetch_max(floor, Ordering::SeqCst);
            }
            // There is room for the row from the first time on.
            let _ = changed.raise(prefix, floor);
            self.prefixes.store(Arc::new(changed.clone()));
        });
        Ok(())
    }

    /// Calls `raise` with a floor above the birth of every column that holds an item now.
    fn raise_above_births(&self, mut raise: impl FnMut(u64)) {
        loop {
            let floor = self.last_birth.load(Ordering::SeqCst) + 1;
            raise(floor);
            // After the floors that it stands for.
            self.highest_floor.0.fetch_max(floor, Ordering::SeqCst);
            // A column that was taken while the floor was being raised is caught by another round.
            if self.last_birth.load(Ordering::SeqCst) < floor {
                break;
            }
        }
    }

    /// Forgets the flush at `floor`, unless a later one raised the floor meanwhile.
    pub(crate) fn forget_flush(&self, floor: u64) {
        let _changing = self.change_floors();
        if self.flush_floor.load(Ordering::SeqCst) == floor {
            self.flush_floor.store(0, Ordering::SeqCst);
            self.flushed_entries.0.store(0, Ordering::Relaxed);
            self.lower_highest_floor();
        }
    }

    /// Forgets the rows of the table of prefixes that `swept` has as well: their items are removed. A row that was
    /// added since stays. It may have the same floor, where no column was taken in between.
    pub(crate) fn forget_prefixes(&self, swept: &PrefixFloors) {
        let _changing = self.change_floors();
        let mut changed = PrefixFloors::clone(&self.prefixes.load());
        if changed.forget_rows_of(swept) {
            self.note_prefixes_for_later(changed.highest());
            self.prefixes.store(Arc::new(changed));
            self.lower_highest_floor();
        }
    }

    /// In a kept memory: the highest floor of a prefix whose items are not all removed. A later process finds nothing
    /// below it.
    fn note_prefixes_for_later(&self, highest: u64) {
        if let Some(head) = self.memory.head() {
            head.prefix_floor.store(highest, Ordering::SeqCst);
        }
    }

    /// After a floor was forgotten. The caller keeps others from changing floors.
    fn lower_highest_floor(&self) {
        let highest = self.prefixes.load().highest().max(self.flush_floor.load(Ordering::SeqCst));
        self.highest_floor.0.store(highest, Ordering::SeqCst);
    }

    /// The number before the next CAS number.
    pub(crate) fn last_cas(&self) -> &AtomicU64 {
        &self.cas.0
    }

    /// Once a second, and when the process ends: tells a later process of a kept memory how the clock reads, and about
    /// how many items there are, and which CAS numbers were given out.
    pub(crate) fn note_for_later(&self) {
        if let Some(head) = self.memory.head() {
            head.clock_offset_ms.store(self.clock.offset_ms() as u64, Ordering::Relaxed);
            head.items.store(self.index.len(), Ordering::Relaxed);
            head.cas.store(self.cas.0.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Free columns that only the pass may take.
    pub(crate) fn reserved_columns(&self) -> usize {
        RESERVED_COLUMNS + self.reserved_for_shares()
    }

    fn reserved_for_shares(&self) -> usize {
        match self.namespaces.have_least() {
            true => RESERVED_FOR_SHARES.min(self.columns_max() as usize / RESERVED_FOR_SHARES_PART),
            false => 0,
        }
    }

    /// Takes a free column, of this node if there is one, for a writer whose new items have CAS numbers soon after
    /// `cas`. The last [`ItemStore::reserved_columns`] are left to the pass.
    pub(crate) fn take_column(&self, node: NodeId, cas: u64, counters: &Counters) -> Option<OpenColumn> {
        let reserved = self.reserved_columns();
        if self.memory.available_columns() <= reserved {
            self.memory.recycle();
            if self.memory.available_columns() <= reserved {
                return None;
            }
        }
        self.take_column_with(node, cas, counters)
    }

    /// Takes a free column for the pass, of the reserved ones too, for items that were stored at about the time of one
    /// with the number `cas`. The column is of this node if there is one.
    pub(crate) fn take_column_near(&self, node: NodeId, cas: u64) -> Option<OpenColumn> {
        let cas_base = cas.wrapping_sub(1 << (CAS_DELTA_BITS - 1));
        self.take_column_with(node, cas_base, self.keeper_counters())
    }

    /// Takes a free column and counts its birth.
    fn take_column_with(&self, node: NodeId, cas_base: u64, counters: &Counters) -> Option<OpenColumn> {
        let taken = self.memory.take_column_on(node, cas_base, self.clock.now_s())?;
        self.last_birth.fetch_max(taken.birth(), Ordering::SeqCst);
        if self.memory.nodes().count() > 1 {
            let is_local = self.memory.node_of(taken.id()) == node;
            if is_local { &counters.numa_local_columns } else { &counters.numa_remote_columns }.add(1);
        }
        Some(taken)
    }

    /// How many free columns are held ready: what was wanted at the start, but at most an eighth of all columns, also
    /// under a lower limit; and what the pass has for shares.
    pub(crate) fn free_columns_target(&self) -> usize {
        self.ready_for_writers() + self.reserved_for_shares()
    }

    /// With so few free columns left, writers will soon have to wait.
    pub(crate) fn free_columns_low(&self) -> usize {
        self.ready_for_writers() / 4 + self.reserved_columns()
    }

    /// How many of the free columns that are held ready are not for shares.
    fn ready_for_writers(&self) -> usize {
        self.free_columns_wanted.min(self.columns_max() as usize / 8).max(RESERVED_COLUMNS + 1)
    }

    /// How many columns of fresh memory are taken from the machine ahead of need.
    pub(crate) fn columns_ahead(&self) -> usize {
        self.columns_ahead.0.load(Ordering::Relaxed)
    }

    /// Sets how many columns of fresh memory are taken from the machine ahead of need.
    pub(crate) fn set_columns_ahead(&self, columns: usize) {
        self.columns_ahead.0.store(columns, Ordering::Relaxed);
    }

    /// Whether the keeper should reclaim columns, or take fresh memory, before a writer has to wait for it.
    pub(crate) fn is_short_of_columns(&self) -> bool {
        let (ready, available) = (self.memory.ready_columns(), self.memory.available_columns());
        let is_short = self.evicts() && available < self.ready_for_writers() / 2 + self.reserved_for_shares();
        // Before fresh memory is taken the keeper empties sparse columns, measures how fast memory is taken, and sizes
        // what the policy keeps.
        let ahead = self.columns_ahead().max(self.memory.geometry().columns_per_slab as usize);
        is_short || (ready < ahead / 2 && available > ready)
    }

    /// Whether all memory was taken from the machine at the start.
    pub(crate) fn is_prefaulted(&self) -> bool {
        self.is_prefaulted.load(Ordering::Relaxed)
    }

    /// Takes all memory for columns from the machine now, `threads` slabs at a time, so that no write waits later for
    /// the kernel to fill pages with zeros. Gives up between two slabs when `go_on` says no.
    pub(crate) fn prefault(&self, threads: usize, go_on: impl Fn() -> bool + Sync) {
        self.is_prefaulted.store(true, Ordering::Relaxed);
        let at_once = self.memory.geometry().columns_per_slab as usize;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut ready = 0;
                    // Asks for more columns each time, until the number does not go up any more.
                    while go_on() {
                        let now = self.memory.touch_ahead(ready + at_once, FreshPages::Huge);
                        if now <= ready {
                            break;
                        }
                        ready = now;
                    }
                });
            }
        });
    }

    /// Gives the columns what the index, the temperature and the curves of namespaces leave of the limit, and what the
    /// connection buffers lend.
    pub(crate) fn share_out(&self) {
        let budget = self.limits.budget();
        self.index.set_growth_limit(budget.index_bytes_max() / INDEX_BYTES_PER_BUCKET);
        let others = self.index.bytes() + self.limits.others_bytes();
        self.memory.set_limit(budget.columns_bytes(others, self.limits.lent_bytes()));
    }

    /// Whether a limit that is shared out like this leaves columns enough, in whole slabs, for all workers and the
    /// keeper to go on with.
    pub(crate) fn leaves_columns(&self, budget: &Budget) -> bool {
        let others = self.index.bytes() + self.limits.others_bytes();
        let per_slab = self.memory.geometry().columns_per_slab as usize;
        let slabs = (budget.columns_bytes(others, 0) / self.column_bytes()) as usize / per_slab;
        // The keeper has counters, too.
        slabs * per_slab >= (self.counters.len() * COLUMNS_PER_WORKER_MIN + RESERVED_COLUMNS).max(COLUMNS_MIN)
    }

    /// Counts the bytes of the item at `at` as dead, and returns them. The caller has removed or replaced the item's
    /// entry.
    pub(crate) fn died(&self, guard: &Guard<'_>, at: Location, counters: &Counters) -> u64 {
        let floor = self.flush_floor();
        if floor != 0 && self.birth_of(at) < floor {
            let one_less = |entries: u64| Some(entries.saturating_sub(1));
            let _ = self.flushed_entries.0.try_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        }
        let mut bytes = 0;
        self.each_record(guard, at, |record| bytes += u64::from(record.die()));
        counters.bytes_died.add(bytes);
        bytes
    }

    /// Changes the expiry of an item in place, and that of its chunks. Returns false if its record has no word for it.
    /// The caller holds the writer bit of the item's bucket, or the item was not published yet.
    pub(crate) fn set_expiry(&self, guard: &Guard<'_>, at: Location, expiry: Expiry) -> bool {
        let mut is_set = true;
        self.each_record(guard, at, |record| is_set &= record.set_expiry(expiry));
        is_set
    }

    /// In a kept memory: the chunks of the item at `at` are complete, and count with it.
    pub(crate) fn commit_chunks(&self, guard: &Guard<'_>, at: Location) {
        if self.memory.head().is_some() {
            let mut next = first_chunk(&guard.item(at));
            while let Some(at) = next {
                guard.item(at).commit();
                next = guard.chunk(at).next;
            }
        }
    }

    /// Bytes that the item at `at` takes, its chunks included.
    #[inline]
    pub(crate) fn bytes_of(&self, guard: &Guard<'_>, at: Location) -> u64 {
        let mut bytes = 0;
        self.each_record(guard, at, |record| bytes += u64::from(record.bytes()));
        bytes
    }

    /// Calls `f` with the item's own record and with that of each of its chunks.
    #[inline]
    fn each_record(&self, guard: &Guard<'_>, at: Location, mut f: impl FnMut(&Item<'_>)) {
        let item = guard.item(at);
        f(&item);
        let mut next = first_chunk(&item);
        while let Some(at) = next {
            f(&guard.item(at));
            next = guard.chunk(at).next;
        }
    }

    /// Counts an item whose entry the pass or a full bucket has removed as dead, and as evicted if it was live, else as
    /// reclaimed.
    pub(crate) fn count_removal(
        &self,
        guard: &Guard<'_>,
        at: Location,
        life: Life,
        warmth: u8,
        counters: &Counters,
    ) {
        let bytes = self.died(guard, at, counters);
        let item = guard.item(at);
        if life == Life::Live {
            return self.count_eviction(&item, bytes, warmth, counters);
        }
        counters.reclaimed.add(1);
        if life == Life::Expired && !item.state().has(State::FETCHED) {
            counters.expired_unfetched.add(1);
        }
    }

    /// Tells of a live item that leaves memory, if anybody wants to hear of it.
    #[inline]
    pub(crate) fn tell_departure(&self, item: &Item<'_>, to: Destination) {
        if self.departures.are_wanted() {
            self.departures.tell(item, to, self.clock.now_s());
        }
    }

    /// Counts an item of so many bytes that is evicted, by the state it was last in.
    fn count_eviction(&self, item: &Item<'_>, bytes: u64, warmth: u8, counters: &Counters) {
        if self.namespaces.are_on() {
            self.namespaces.count_eviction(item.key(), bytes, self.workers_max());
        }
        let idle_s = item.state().idle_s(self.clock.now_s());
        self.evicted_idle_s.0.store(idle_s, Ordering::Relaxed);
        counters.evictions.add(1);
        counters.evicted_idle_s.add(idle_s.into());
        // An overwrite makes an entry warmer as well, but nobody has read the new item.
        if !item.state().has(State::FETCHED) {
            counters.evicted_unfetched.add(1);
        } else if warmth > 0 {
            counters.evicted_active.add(1);
        }
        if item.expiry() != Expiry::NEVER {
            counters.evicted_nonzero.add(1);
        }
    }

    /// Seconds since the last use of the item that was evicted last; 0 before the first eviction.
    pub(crate) fn evicted_idle_s(&self) -> u32 {
        self.evicted_idle_s.0.load(Ordering::Relaxed)
    }

    /// About how many seconds ago the oldest column that holds items was begun.
    pub(crate) fn age_s(&self) -> u32 {
        let columns = self.memory.columns_mapped();
        let sampled = (0..columns).step_by(columns.div_ceil(AGE_LOOKS_MAX).max(1) as usize);
        let begun_s = sampled
            .map(|id| self.memory.column(ColumnId(id)))
            .filter(|column| matches!(column.state(), ColumnState::Open | ColumnState::Sealed))
            .filter(|column| column.live_bytes() > 0)
            .map(|column| column.opened_s());
        begun_s.min().map_or(0, |begun_s| self.clock.now_s().saturating_sub(begun_s))
    }

    /// Live bytes as the columns count them. `live_bytes` is what the items count.
    pub(crate) fn live_in_columns(&self) -> u64 {
        let columns = (0..self.memory.columns_mapped()).map(|id| self.memory.column(ColumnId(id)));
        let in_use =
            columns.filter(|column| matches!(column.state(), ColumnState::Open | ColumnState::Sealed));
        in_use.map(|column| u64::from(column.live_bytes())).sum()
    }
}

/// Makes the arena, or takes over that of an earlier process.
fn memory_for(options: &CacheOptions, reserve_bytes: u64) -> Result<Memory, CacheError> {
    let default = MemoryOptions::default();
    let of_memory = MemoryOptions {
        limit_bytes: options.limit_bytes,
        column_bytes: options.column_bytes,
        pages: options.pages,
        reserve_bytes: Some(reserve_bytes),
        inline_value_bytes_max: options.inline_value_bytes.unwrap_or(default.inline_value_bytes_max),
        nodes: options.nodes.clone(),
    };
    let memory = match &options.keep {
        None => Memory::new(of_memory),
        Some(path) => {
            // The standard library keys its hashes at random, so the hash of nothing is a random number.
            let seed = options.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
            Memory::on_file(of_memory, &KeepOptions { path: path.clone(), seed })
        }
    };
    memory.map_err(|error| CacheError(error.to_string()))
}

/// Makes the index. It can grow for a limit of `limit_bytes_max`.
fn index_for(
    options: &CacheOptions,
    budget: &Budget,
    limit_bytes_max: u64,
    reserve_bytes: u64,
) -> Result<Index, CacheError> {
    // memcached's hash power counts entries; a bucket of ours holds about eight.
    let buckets_log2 = options.hashpower.map_or(FIRST_BUCKETS_LOG2, |power| power.saturating_sub(3));
    let most_log2 = (budget.index_bytes_max() / INDEX_BYTES_PER_BUCKET).max(1 << 10).ilog2();
    let buckets_log2 = buckets_log2.min(most_log2);
    Index::new(IndexOptions {
        buckets_log2,
        buckets_log2_max: buckets_log2.max(largest_buckets_log2(limit_bytes_max)),
        fill_target: INDEX_FILL_TARGET,
        marks: options.temperature.marks_entries(),
        huge: options.pages != PagesWanted::Small,
        location_bits: Location::bits_for(reserve_bytes),
    })
    .map_err(|error| CacheError(format!("cannot reserve the index: {error}; lower -m or -o hashpower")))
}

/// Address space for the smallest items: one bucket for every 128 bytes of the limit.
fn largest_buckets_log2(limit_bytes: u64) -> u32 {
    (limit_bytes / 128).max(1 << 12).next_power_of_two().ilog2().min(BUCKETS_LOG2_MAX)
}

/// The number that CAS numbers go on from, when the highest one on flash is `floor`. Only a client can have chosen a
/// number in the upper half. What the server itself gave out is then unknown, but it was not more than 2^30 numbers for
/// each second of unix time.
fn first_cas(floor: u64, clock: &Clock) -> u64 {
    if floor < 1 << 63 { floor } else { (clock.unix_s(clock.now_s()).max(0) as u64) << 30 }
}

/// The number that CAS numbers go on from in a kept memory. A server that was killed had noted it some time before.
fn kept_cas(memory: &Memory) -> u64 {
    let noted = memory.head().map_or(0, |head| head.cas.load(Ordering::Relaxed));
    if memory.left() == Some(&Left::Killed) { noted.saturating_add(GIVEN_OUT_MAX) } else { noted }
}

/// The first chunk of an item whose value is a chain of chunks.
#[inline]
pub(crate) fn first_chunk(item: &Item<'_>) -> Option<Location> {
    // The layout is one look at the header, and the value is not.
    match item.value_layout() {
        ValueLayout::Chunked => match item.value() {
            Value::Chunked { first, .. } => Some(first),
            Value::Whole(_) => None,
        },
        _ => None,
    }
}

/// Answers the questions of the index about keys by reading the records.
pub(crate) struct KeyReader<'a, 'g> {
    guard: &'a Guard<'g>,
    hasher: &'a KeyHasher,
}

impl HoldsKey for KeyReader<'_, '_> {
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
