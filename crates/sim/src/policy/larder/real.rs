//! The server's cache on the time of a trace.

use std::ops::RangeInclusive;
use std::sync::Arc;

use larder_cache::{
    Cache, CacheOptions, Compress, Delete, DeleteOutcome, Expiry, KEY_BYTES_MAX, Mode, PagesWanted, Store,
    StoreOutcome, Subclass, Worker,
};

use super::Variant;
use super::second_level::{FlashCounts, SecondLevel};
use crate::policy::interface::WARMTH_BITS;

/// An item, as the trace describes it.
#[derive(Clone, Copy, Debug)]
pub struct RealItem {
    /// Number of the key.
    pub id: u32,
    /// Length of the key in bytes. [`RealCache`] makes the key from the number: at least 4 bytes, at most 250, and
    /// always as long as at the key's first appearance. The rest of the length is added to the value.
    pub key_bytes: u16,
    /// Length of key and value together, in bytes.
    pub item_bytes: u32,
    /// Time to live in seconds; 0 = the item never expires.
    pub ttl_s: u32,
    /// Cost of a miss in microseconds, which the client states when it stores the item. 0 = unknown.
    pub penalty_us: u32,
}

/// What a [`RealCache`] may have in addition.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealOptions {
    /// Bytes of flash behind the memory, in a file in the folder for temporary files; `None` = no flash.
    pub flash_bytes: Option<u64>,
    /// The keeper stores a value that it compresses in its length divided by this, one of [`COMPRESS_RATIOS`]. `None`
    /// and 1 = it compresses nothing.
    pub compress_ratio: Option<f64>,
}

/// The server's cache, driven by one thread on the time of a trace.
pub struct RealCache {
    cache: Arc<Cache>,
    worker: Worker,
    second_level: Option<SecondLevel>,
    time_s: u32,
    /// Length of the key of each key number; 0 = not met yet.
    key_lengths: Vec<u8>,
    key: [u8; KEY_BYTES_MAX],
    zeros: Vec<u8>,
    /// Bytes written since the last pass of the keeper.
    written: u64,
}

/// The largest column size, the smallest, and the number of columns that the limit should hold at least; the column
/// size is halved until it does. The server takes the largest size from the machine's cache; here the size is fixed,
/// so that results do not depend on the machine.
const COLUMN_BYTES: u32 = 256 << 10;
const COLUMN_BYTES_MIN: u32 = 32 << 10;
const COLUMNS_WANTED_MIN: u64 = 1000;
/// The smallest memory limit that the server accepts, in bytes.
pub const LIMIT_BYTES_MIN: u64 = 8 << 20;
/// How many times shorter compressed values may be.
pub const COMPRESS_RATIOS: RangeInclusive<f64> = 1.0..=20.0;
/// The largest item is the limit divided by this.
const ITEM_SHARE: u64 = 8;
const KEY_LENGTH_MIN: usize = 4;

impl RealCache {
    /// A cache with a memory limit of `limit_bytes`, the server's `-m`. It allocates that much memory.
    ///
    /// # Errors
    /// A limit below 8 MiB, the server's minimum, or a refusal of the memory by the system.
    pub fn new(limit_bytes: u64, variant: impl Into<Variant>, seed: u64) -> Result<RealCache, String> {
        RealCache::with_options(limit_bytes, variant, seed, RealOptions::default())
    }

    /// As [`RealCache::new`], with flash behind the memory, or with values that shrink.
    ///
    /// # Errors
    /// Those of [`RealCache::new`]; less than 16 MiB of flash, or no room for it.
    pub fn with_options(
        limit_bytes: u64,
        variant: impl Into<Variant>,
        seed: u64,
        RealOptions { flash_bytes, compress_ratio }: RealOptions,
    ) -> Result<RealCache, String> {
        let variant = variant.into();
        let mut column_bytes = COLUMN_BYTES;
        while column_bytes > COLUMN_BYTES_MIN && limit_bytes / u64::from(column_bytes) < COLUMNS_WANTED_MIN {
            column_bytes /= 2;
        }
        let second_level = flash_bytes.map(|bytes| SecondLevel::new(bytes, limit_bytes, seed)).transpose()?;
        let options = CacheOptions {
            limit_bytes,
            item_bytes_max: limit_bytes / ITEM_SHARE,
            workers: 1,
            pages: PagesWanted::Small,
            column_bytes: Some(column_bytes),
            seed: Some(seed),
            temperature: variant.temperature,
            worth: variant.worth,
            compress: match compress_ratio.map(|ratio| (1000.0 / ratio).round() as u16) {
                Some(thousandths) if thousandths < 1000 => Compress::Modelled(thousandths),
                _ => Compress::Off,
            },
            ..CacheOptions::default()
        };
        let level = second_level.as_ref().map(SecondLevel::level);
        let cache = Cache::with_flash(options, level).map_err(|error| error.0)?;
        cache.clock().hold();
        second_level.iter().for_each(|second| second.set_time(&cache));
        cache.distrust_stated_penalties();
        Ok(RealCache {
            worker: cache.worker(),
            cache,
            second_level,
            time_s: 0,
            key_lengths: Vec::new(),
            key: [b'k'; KEY_BYTES_MAX],
            zeros: Vec::new(),
            written: 0,
        })
    }

    /// Moves the clock to `time_s` seconds since the trace began.
    #[inline]
    pub fn set_time(&mut self, time_s: u32) {
        if time_s != self.time_s {
            self.cache.clock().shift(i64::from(time_s) - i64::from(self.time_s));
            self.time_s = time_s;
            self.second_level.iter().for_each(|second| second.set_time(&self.cache));
        }
    }

    /// Looks an item up and returns whether it was stored.
    pub fn get(&mut self, item: &RealItem) -> bool {
        let (length, _) = self.shape(item);
        let is_hit = self.find(length).is_some();
        self.worker.quiesce();
        is_hit
    }

    /// Looks the item up whose key [`RealCache::shape`] wrote, in memory and then on flash: the length of its value,
    /// and, if memory had it, the rest of its lifetime.
    fn find(&mut self, length: usize) -> Option<(u64, Option<u32>)> {
        let key = &self.key[..length];
        let hash = self.cache.hash(key);
        let found = self.worker.get(hash, key).map(|hit| {
            self.worker.note_fetch(&hit);
            let left_s = hit.expiry().remaining_s(self.cache.clock().now_s()).unwrap_or(0);
            (hit.value_bytes().into(), Some(left_s))
        });
        found.or_else(|| Some((self.second_level.as_mut()?.get(&mut self.worker, hash, key)?, None)))
    }

    /// Brings the item to memory whose key [`RealCache::shape`] wrote, if flash has it.
    fn bring(&mut self, length: usize) {
        if let Some(second) = &self.second_level {
            let key = &self.key[..length];
            second.bring(&mut self.worker, self.cache.hash(key), key);
        }
    }

    /// Looks an item up and returns whether it was stored. A miss stores the item. A hit with another size stores the
    /// item again with the same expiry.
    pub fn get_or_fill(&mut self, item: &RealItem) -> bool {
        let (length, value_bytes) = self.shape(item);
        let found = self.find(length);
        match found {
            Some((found_bytes, _)) if found_bytes == u64::from(value_bytes) => {}
            Some((_, left_s)) => {
                self.store(item, length, value_bytes, left_s.unwrap_or(item.ttl_s), Mode::Set);
            }
            None => {
                self.store(item, length, value_bytes, item.ttl_s, Mode::Set);
            }
        }
        found.is_some()
    }

    /// Stores an item. Returns whether it was stored before.
    pub fn set(&mut self, item: &RealItem) -> bool {
        let present = self.contains(item);
        let (length, value_bytes) = self.shape(item);
        self.store(item, length, value_bytes, item.ttl_s, Mode::Set);
        present
    }

    /// Stores an item if it is absent. Returns whether it was stored before.
    pub fn add(&mut self, item: &RealItem) -> bool {
        let (length, value_bytes) = self.shape(item);
        self.bring(length);
        self.store(item, length, value_bytes, item.ttl_s, Mode::Add) == StoreOutcome::NotStored
    }

    /// Stores an item if it is present. Returns whether it was stored before.
    pub fn replace(&mut self, item: &RealItem) -> bool {
        let (length, value_bytes) = self.shape(item);
        self.bring(length);
        self.store(item, length, value_bytes, item.ttl_s, Mode::Replace) != StoreOutcome::NotStored
    }

    /// Gives a stored item its new size and keeps its expiry. Returns whether it was stored.
    pub fn alter(&mut self, item: &RealItem) -> bool {
        let (length, value_bytes) = self.shape(item);
        self.bring(length);
        let key = &self.key[..length];
        let Some(hit) = self.worker.peek(self.cache.hash(key), key) else { return false };
        let left_s = hit.expiry().remaining_s(self.cache.clock().now_s()).unwrap_or(0);
        self.store(item, length, value_bytes, left_s, Mode::Set);
        true
    }

    /// Removes an item. Returns whether it was stored.
    pub fn delete(&mut self, item: &RealItem) -> bool {
        let (length, _) = self.shape(item);
        self.delete_key(length)
    }

    fn delete_key(&mut self, length: usize) -> bool {
        let key = &self.key[..length];
        let hash = self.cache.hash(key);
        let delete = Delete::of(key, hash);
        let outcome = self.worker.delete(&delete);
        self.worker.quiesce();
        outcome == DeleteOutcome::Deleted
    }

    /// Whether memory has an item. Changes nothing.
    pub fn contains(&mut self, item: &RealItem) -> bool {
        let (length, _) = self.shape(item);
        let key = &self.key[..length];
        self.worker.peek(self.cache.hash(key), key).is_some()
    }

    /// The number of stored items. An expired item counts until the keeper's pass meets it.
    pub fn items(&self) -> u64 {
        self.cache.items()
    }

    /// Bytes of the stored items, headers included.
    pub fn used_bytes(&self) -> u64 {
        self.cache.memory_use().items_bytes
    }

    /// The number of evictions so far.
    pub fn evictions(&self) -> u64 {
        self.cache.totals().evictions
    }

    /// The number of items dropped because they had expired.
    pub fn expired(&self) -> u64 {
        self.cache.totals().reclaimed
    }

    /// What flash has done so far; `None` = there is none.
    pub fn flash_counts(&self) -> Option<FlashCounts> {
        self.second_level.as_ref().map(SecondLevel::counts)
    }

    /// About which share of the items in memory is compressed; 0 if there are none.
    pub fn compressed_share(&self) -> f64 {
        let stats = self.cache.compression_stats();
        stats.compressed_items as f64 / (stats.compressed_items + stats.plain_items).max(1) as f64
    }

    /// Two bits of warmth, and the ghost table, the hitmap and its shadows.
    pub fn metadata_bits(&self) -> f64 {
        WARMTH_BITS + self.cache.memory_use().temperature_bytes as f64 * 8.0 / self.items().max(1) as f64
    }

    /// Writes the item's key into `self.key`. Returns the lengths of the key and of the value.
    fn shape(&mut self, item: &RealItem) -> (usize, u32) {
        let at = item.id as usize;
        if at >= self.key_lengths.len() {
            self.key_lengths.resize(at + 1, 0);
        }
        if self.key_lengths[at] == 0 {
            self.key_lengths[at] = usize::from(item.key_bytes).clamp(KEY_LENGTH_MIN, KEY_BYTES_MAX) as u8;
        }
        let length = usize::from(self.key_lengths[at]);
        self.key[..KEY_LENGTH_MIN].copy_from_slice(&item.id.to_le_bytes());
        (length, item.item_bytes.saturating_sub(length as u32))
    }

    /// Stores zeros under the key of `item`, which [`RealCache::shape`] wrote. As in the server, an item that is too
    /// large is refused, and the old item is removed.
    fn store(
        &mut self,
        item: &RealItem,
        length: usize,
        value_bytes: u32,
        ttl_s: u32,
        mode: Mode,
    ) -> StoreOutcome {
        let key = &self.key[..length];
        if !self.worker.fits(length, value_bytes.into()) {
            let present = self.worker.peek(self.cache.hash(key), key).is_some();
            if present == (mode == Mode::Add) {
                return StoreOutcome::NotStored;
            }
            self.delete_key(length);
            return StoreOutcome::TooLarge;
        }
        if self.zeros.len() < value_bytes as usize {
            self.zeros.resize(value_bytes as usize, 0);
        }
        let expiry = match ttl_s {
            0 => Expiry::NEVER,
            ttl_s => Expiry::at_s(self.cache.clock().now_s().saturating_add(ttl_s)),
        };
        if let Some(second) = &self.second_level {
            second.make_room(&self.cache, &mut self.worker);
        }
        let outcome = self.worker.store(&Store {
            mode,
            expiry,
            // Unknown penalties are the same for all items. Left to itself, the cache would estimate them on the clock
            // of this machine.
            penalty: Some(match item.penalty_us {
                0 => Subclass::UNKNOWN,
                penalty_us => Subclass::of_us(penalty_us),
            }),
            ..Store::set(key, self.cache.hash(key), &self.zeros[..value_bytes as usize])
        });
        self.worker.quiesce();
        self.written += (length as u64) + u64::from(value_bytes);
        if self.written >= u64::from(self.cache.column_bytes()) {
            self.written = 0;
            // Passes the worker's access records to the keeper before the pass.
            self.worker.tick();
            // In the server the keeper has a thread of its own, and workers let go of columns while it works.
            self.worker.offline();
            self.cache.tend();
            self.worker.online();
            self.second_level.iter().for_each(SecondLevel::tend);
        }
        outcome
    }
}
