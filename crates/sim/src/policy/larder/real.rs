//! The product's cache on the time of a trace.

use std::sync::Arc;

use larder_cache::{
    Cache, CacheOptions, Delete, DeleteOutcome, Expiry, KEY_BYTES_MAX, Mode, PagesWanted, Store,
    StoreOutcome, TemperatureKind, Worker,
};

use crate::policy::interface::WARMTH_BITS;

/// An item as the trace has it.
#[derive(Clone, Copy, Debug)]
pub struct RealItem {
    /// Dense number of its key.
    pub id: u32,
    /// Octets of the key. The key is made of the number: 4 octets at least, 250 at most, and always as long
    /// as at the first appearance. What the key cannot be goes to the value's account.
    pub key_bytes: u16,
    /// Octets of key and value.
    pub item_bytes: u32,
    /// Seconds to live; 0 = for ever.
    pub ttl_s: u32,
}

/// The product's cache, run by one thread on the time of a trace.
pub struct RealCache {
    cache: Arc<Cache>,
    worker: Worker,
    time_s: u32,
    /// Length of each number's key; 0 = not met yet.
    key_lengths: Vec<u8>,
    key: [u8; KEY_BYTES_MAX],
    zeros: Vec<u8>,
    /// Octets written since the keeper's work was last done.
    written: u64,
}

/// Largest column, and how many the limit should hold at least; columns are halved until it does, down to the
/// smallest. The product takes the largest from the machine's cache; here it is the usual one, so that
/// results do not depend on the machine.
const COLUMN_BYTES: u32 = 256 << 10;
const COLUMN_BYTES_MIN: u32 = 32 << 10;
const COLUMNS_WANTED_MIN: u64 = 1000;
/// The product's least limit, in bytes.
pub const LIMIT_BYTES_MIN: u64 = 8 << 20;
/// The largest item as a share of the limit.
const ITEM_SHARE: u64 = 8;
const KEY_LENGTH_MIN: usize = 4;

impl RealCache {
    /// A cache of `limit_bytes`, the product's `-m`. It takes that much memory.
    ///
    /// # Errors
    /// Below 8 MiB, the product's least; or when the system refuses the memory.
    pub fn new(limit_bytes: u64, kind: TemperatureKind, seed: u64) -> Result<RealCache, String> {
        let mut column_bytes = COLUMN_BYTES;
        while column_bytes > COLUMN_BYTES_MIN && limit_bytes / u64::from(column_bytes) < COLUMNS_WANTED_MIN {
            column_bytes /= 2;
        }
        let cache = Cache::new(CacheOptions {
            limit_bytes,
            item_bytes_max: limit_bytes / ITEM_SHARE,
            workers: 1,
            pages: PagesWanted::Small,
            column_bytes: Some(column_bytes),
            seed: Some(seed),
            temperature: kind,
            ..CacheOptions::default()
        })
        .map_err(|error| error.0)?;
        cache.clock().hold();
        Ok(RealCache {
            worker: cache.worker(),
            cache,
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
        }
    }

    /// Looks an item up; a miss stores it, and so does a hit of another size, whose expiry stays. Returns whether it
    /// was there.
    pub fn get_or_fill(&mut self, item: &RealItem) -> bool {
        let (length, value_bytes) = self.shape(item);
        let key = &self.key[..length];
        let found = self.worker.get(self.cache.hash(key), key).map(|hit| {
            self.worker.note_fetch(&hit);
            (hit.value_bytes(), hit.expiry().remaining_s(self.cache.clock().now_s()).unwrap_or(0))
        });
        match found {
            Some((found_bytes, _)) if found_bytes == value_bytes => {}
            Some((_, left_s)) => {
                self.store(length, value_bytes, left_s, Mode::Set);
            }
            None => {
                self.store(length, value_bytes, item.ttl_s, Mode::Set);
            }
        }
        found.is_some()
    }

    /// Stores an item. Returns whether it was there.
    pub fn set(&mut self, item: &RealItem) -> bool {
        let present = self.contains(item);
        let (length, value_bytes) = self.shape(item);
        self.store(length, value_bytes, item.ttl_s, Mode::Set);
        present
    }

    /// Stores an item if it is not there. Returns whether it was there.
    pub fn add(&mut self, item: &RealItem) -> bool {
        let (length, value_bytes) = self.shape(item);
        self.store(length, value_bytes, item.ttl_s, Mode::Add) == StoreOutcome::NotStored
    }

    /// Stores an item if it is there. Returns whether it was there.
    pub fn replace(&mut self, item: &RealItem) -> bool {
        let (length, value_bytes) = self.shape(item);
        self.store(length, value_bytes, item.ttl_s, Mode::Replace) != StoreOutcome::NotStored
    }

    /// Gives an item that is there its new size; its expiry stays. Returns whether it was there.
    pub fn alter(&mut self, item: &RealItem) -> bool {
        let (length, value_bytes) = self.shape(item);
        let key = &self.key[..length];
        let Some(hit) = self.worker.peek(self.cache.hash(key), key) else { return false };
        let left_s = hit.expiry().remaining_s(self.cache.clock().now_s()).unwrap_or(0);
        self.store(length, value_bytes, left_s, Mode::Set);
        true
    }

    /// Removes an item. Returns whether it was there.
    pub fn delete(&mut self, item: &RealItem) -> bool {
        let (length, _) = self.shape(item);
        self.delete_key(length)
    }

    fn delete_key(&mut self, length: usize) -> bool {
        let key = &self.key[..length];
        let hash = self.cache.hash(key);
        let delete = Delete {
            key,
            hash,
            compare: None,
            explicit_cas: None,
            invalidate: false,
            drop_value: false,
            expiry: None,
            flags: 0,
        };
        let outcome = self.worker.delete(&delete);
        self.worker.quiesce();
        outcome == DeleteOutcome::Deleted
    }

    /// Whether an item is there; changes nothing.
    pub fn contains(&mut self, item: &RealItem) -> bool {
        let (length, _) = self.shape(item);
        let key = &self.key[..length];
        self.worker.peek(self.cache.hash(key), key).is_some()
    }

    /// Items held; expired ones count until the pass meets them.
    pub fn items(&self) -> u64 {
        self.cache.items()
    }

    /// Octets of items, headers included.
    pub fn used_bytes(&self) -> u64 {
        self.cache.memory_use().items_bytes
    }

    /// Items evicted so far.
    pub fn evictions(&self) -> u64 {
        self.cache.totals().evictions
    }

    /// Items that were dropped because their time was over.
    pub fn expired(&self) -> u64 {
        self.cache.totals().reclaimed
    }

    /// Two bits of warmth, and ghost, hitmap and shadows.
    pub fn metadata_bits(&self) -> f64 {
        WARMTH_BITS + self.cache.memory_use().temperature_bytes as f64 * 8.0 / self.items().max(1) as f64
    }

    /// Writes the item's key; returns its length and that of the value.
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

    /// Stores zeros under the key that [`RealCache::shape`] wrote. What is too large is refused and, as in
    /// the product, the old item goes.
    fn store(&mut self, length: usize, value_bytes: u32, ttl_s: u32, mode: Mode) -> StoreOutcome {
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
            ttl_s => Expiry(self.cache.clock().now_s().saturating_add(ttl_s)),
        };
        let outcome = self.worker.store(&Store {
            key,
            hash: self.cache.hash(key),
            mode,
            flags: 0,
            expiry,
            value: &self.zeros[..value_bytes as usize],
            compare: None,
            explicit_cas: None,
            invalidate: false,
            vivify: None,
            binary_key: false,
        });
        self.worker.quiesce();
        self.written += (length as u64) + u64::from(value_bytes);
        if self.written >= u64::from(self.cache.column_bytes()) {
            self.written = 0;
            // What the worker has noted reaches the keeper at the latest now.
            self.worker.tick();
            self.cache.tend();
        }
        outcome
    }
}
