//! Making a store: the arena, the index, and what a kept memory or flash has of earlier processes.

use super::floors::Floors;
use super::leaving::Leaving;
use super::supply::{COLUMNS_PER_WORKER_MIN, Supply, free_columns_wanted};
use super::{INDEX_BYTES_PER_BUCKET, ItemStore};
use crate::budget::{Budget, LIMIT_BYTES_MIN, Limits, SetAside};
use crate::cache_options::{CacheError, CacheOptions};
use crate::clock::Clock;
use crate::compression::Compression;
use crate::counters::CounterBlocks;
use crate::namespaces::Namespaces;
use crate::padded::CachePadded;
use crate::worth::WorthSetting;
use larder_index::{BUCKETS_LOG2_MAX, Index, IndexOptions};
use larder_item::{KeyHasher, Location};
use larder_memory::{KeepOptions, Left, Memory, MemoryOptions, PagesWanted, RESERVE_BYTES_MAX};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries per bucket at which the index grows: 13 to 14 bytes of index per item, and about one lookup in seven goes on
/// to a sub-bucket. With 7 entries it would be 13 bytes, and one lookup in five.
const INDEX_FILL_TARGET: u32 = 6;
/// Buckets of a new index, as a power of two: 64 KiB, which grow with the items.
const FIRST_BUCKETS_LOG2: u32 = 10;
/// `cache_memlimit` may raise the limit to four times the first one: address space for that is reserved.
const RESERVE_TIMES: u64 = 4;
/// More CAS numbers than this are not given out between two notes of a kept memory, which come once a second.
const GIVEN_OUT_MAX: u64 = 1 << 34;

/// What flash behind memory asks of the store.
pub(crate) struct FlashNeeds {
    /// Keys are hashed with the seed that the flash tier was made with.
    pub(crate) seed: u64,
    /// The highest CAS number on flash.
    pub(crate) cas_floor: u64,
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
        let free_columns_wanted = free_columns_wanted(columns, options.workers, flash.is_some());
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
            counters: CounterBlocks::new(options.workers),
            namespaces: Namespaces::new(),
            leaving: Leaving::new(options.evict, has_flash),
            floors: Floors::new(memory.last_birth()),
            compression: Compression::new(options.compress.clone(), options.prefix_delimiter, &memory),
            supply: Supply::new(free_columns_wanted),
            cas: CachePadded(AtomicU64::new(cas_floor)),
            over_bytes: CachePadded(AtomicU64::new(0)),
            memory,
            index,
        };
        store.limits.set_dictionaries_bytes(store.compression.dictionaries.bytes());
        store.share_out();
        Ok(store)
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
        // A full memory has no room for the record anew.
        always_expiry_word: !options.evict,
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
