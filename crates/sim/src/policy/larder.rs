//! Larder's own policy, by the product's own code.
//!
//! * Where items are counted, [`build`] gives a model at the granularity of items: the cache's [`ByAge`]
//!   decides over columns of items, with the warmth that the index keeps. Columns hold a thousandth of the
//!   capacity each, 1 to 512 items; where that is one item it is CLOCK. Dead items hold their place until
//!   their column goes, as in the product. An overwrite counts as a read and stays in place. There is no
//!   reserve of free columns: the capacity is all used.
//! * Where octets are counted, [`RealCache`] is the cache itself, with one worker: real items, real memory,
//!   the trace's time. The size is `-m`: index, column bookkeeping and the share set aside for connection
//!   buffers (a sixteenth, at least 4 MiB) are inside it, and so is every header.

use std::sync::Arc;

use larder_cache::{
    ByAge, Cache, CacheOptions, Candidate, ColumnId, ColumnStanding, Delete, DeleteOutcome, Expiry,
    KEY_BYTES_MAX, Mode, PagesWanted, Store, StoreOutcome, Temperature, Verdict, Worker,
};

use super::{Access, Policy};

/// The name of both in a report.
pub const NAME: &str = "larder";

/// The model for `capacity` items.
///
/// # Errors
/// A capacity beyond 2^31 items.
pub fn build(capacity: u64) -> Result<Box<dyn Policy>, String> {
    match u32::try_from(capacity) {
        Ok(capacity) if capacity < 1 << 31 => Ok(Box::new(Columns::new(capacity.max(1)))),
        _ => Err(format!("larder: {capacity} items are too many: 2147483647 at most")),
    }
}

/// Columns the capacity is divided into, unless they would hold more than [`COLUMN_ITEMS_MAX`].
const COLUMNS_WANTED: u32 = 1000;
/// Most items of a column: those of 512 octets in one of 256 KiB.
const COLUMN_ITEMS_MAX: u32 = 512;
/// No place.
const ABSENT: u32 = u32::MAX;

/// A column of items.
struct Column {
    /// Its items' numbers; [`ABSENT`] = dead.
    items: Vec<u32>,
    /// How many it may hold.
    room: u32,
    live: u32,
    birth: u64,
    is_sealed: bool,
}

/// What the index knows of an item.
#[derive(Clone, Copy)]
struct Entry {
    /// Its column, or [`ABSENT`].
    column: u32,
    /// Its position there, and its warmth in the two highest bits.
    at: u32,
}

const WARM: u32 = 1 << 30;
const GONE: Entry = Entry { column: ABSENT, at: 0 };

/// `ByAge` over columns of items.
struct Columns {
    temperature: ByAge,
    columns: Vec<Column>,
    free: Vec<u32>,
    /// Columns that are being filled: with new items, and with survivors.
    open: Option<u32>,
    survivors: Option<u32>,
    index: Vec<Entry>,
    births: u64,
    live: u64,
    /// Survivors on their way, kept for its memory.
    kept: Vec<u32>,
}

impl Columns {
    fn new(capacity: u32) -> Columns {
        let room = (capacity / COLUMNS_WANTED).clamp(1, COLUMN_ITEMS_MAX);
        let count = capacity / room;
        let columns: Vec<Column> = (0..count)
            .map(|number| Column {
                items: Vec::new(),
                // What is left over is spread, so that the rooms add up to the capacity.
                room: capacity / count + u32::from(number < capacity % count),
                live: 0,
                birth: 0,
                is_sealed: false,
            })
            .collect();
        Columns {
            temperature: ByAge::default(),
            free: (0..count).rev().collect(),
            columns,
            open: None,
            survivors: None,
            index: Vec::new(),
            births: 0,
            live: 0,
            kept: Vec::new(),
        }
    }

    /// Puts an item into `column`, which has room.
    fn put(&mut self, id: u32, column: u32) {
        let place = &mut self.columns[column as usize];
        self.index[id as usize] = Entry { column, at: place.items.len() as u32 };
        place.items.push(id);
        place.live += 1;
    }

    fn has_room(&self, column: u32) -> bool {
        let column = &self.columns[column as usize];
        (column.items.len() as u32) < column.room
    }

    fn seal(&mut self, column: u32) {
        let sealed = &mut self.columns[column as usize];
        sealed.is_sealed = true;
        self.temperature.sealed(ColumnId(column), sealed.birth);
    }

    fn take(&mut self, column: u32) -> u32 {
        self.births += 1;
        self.columns[column as usize].birth = self.births;
        column
    }

    /// The column that takes the next new item.
    fn open_column(&mut self) -> u32 {
        if let Some(open) = self.open {
            if self.has_room(open) {
                return open;
            }
            self.seal(open);
            self.open = None;
        }
        while self.free.is_empty() {
            self.reclaim();
        }
        let free = self.free.pop().expect("the pass ends with a free column");
        let open = self.take(free);
        self.open = Some(open);
        open
    }

    /// The pass over one column: what is read stays once more, up to seven eighths of the column, as in the
    /// keeper's.
    fn reclaim(&mut self) {
        let columns = &self.columns;
        let victim = self.temperature.victim(&mut |column, birth| {
            let found = &columns[column.0 as usize];
            if found.birth != birth || !found.is_sealed {
                return Candidate::Gone;
            }
            Candidate::Ready(ColumnStanding {
                column,
                live_bytes: u64::from(found.live),
                column_bytes: u64::from(found.room),
            })
        });
        let Some(ColumnId(victim)) = victim else {
            // Nothing is sealed but the survivors' column: it is next.
            if let Some(survivors) = self.survivors.take() {
                self.seal(survivors);
            }
            return;
        };
        self.empty(victim);
        let kept = std::mem::take(&mut self.kept);
        for &id in &kept {
            let column = self.survivors_column();
            self.put(id, column);
        }
        self.kept = kept;
    }

    /// Takes everything out of a column; those that may stay are in `kept`.
    fn empty(&mut self, victim: u32) {
        let column = &mut self.columns[victim as usize];
        column.is_sealed = false;
        column.live = 0;
        let keep_max = (column.room * 7 / 8).max(1) as usize;
        self.kept.clear();
        for id in column.items.drain(..).filter(|id| *id != ABSENT) {
            let warmth = (self.index[id as usize].at / WARM) as u8;
            self.index[id as usize] = GONE;
            if self.kept.len() < keep_max && matches!(self.temperature.verdict(warmth), Verdict::Keep { .. })
            {
                self.kept.push(id);
            } else {
                self.live -= 1;
            }
        }
        self.free.push(victim);
    }

    /// The column that takes the next survivor. One is free: that which was just emptied.
    fn survivors_column(&mut self) -> u32 {
        if let Some(survivors) = self.survivors {
            if self.has_room(survivors) {
                return survivors;
            }
            self.seal(survivors);
        }
        let free = self.free.pop().expect("what survives a column fits into one");
        let taken = self.take(free);
        self.survivors = Some(taken);
        taken
    }
}

impl Policy for Columns {
    fn access(&mut self, access: &Access) -> bool {
        let id = access.id as usize;
        if id >= self.index.len() {
            self.index.resize(id + 1, GONE);
        }
        let entry = &mut self.index[id];
        if entry.column != ABSENT {
            // The warmth counts to 3 and stays there.
            entry.at = if entry.at / WARM < 3 { entry.at + WARM } else { entry.at };
            return true;
        }
        let column = self.open_column();
        self.put(access.id, column);
        self.live += 1;
        false
    }

    fn contains(&self, id: u32) -> bool {
        self.index.get(id as usize).is_some_and(|entry| entry.column != ABSENT)
    }

    fn remove(&mut self, id: u32) {
        if !self.contains(id) {
            return;
        }
        let entry = std::mem::replace(&mut self.index[id as usize], GONE);
        let column = &mut self.columns[entry.column as usize];
        column.items[(entry.at % WARM) as usize] = ABSENT;
        column.live -= 1;
        self.live -= 1;
    }

    fn used(&self) -> u64 {
        self.live
    }

    fn items(&self) -> u64 {
        self.live
    }

    /// Two bits of warmth, and a column's 64 octets shared by its items.
    fn metadata_bits(&self) -> f64 {
        let room = self.columns.iter().map(|column| f64::from(column.room)).sum::<f64>();
        WARMTH_BITS + COLUMN_META_BITS * self.columns.len() as f64 / room
    }
}

/// Warmth of an index entry.
const WARMTH_BITS: f64 = 2.0;
/// Bookkeeping of a column, in bits.
const COLUMN_META_BITS: f64 = 64.0 * 8.0;

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
    pub fn new(limit_bytes: u64, seed: u64) -> Result<RealCache, String> {
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

    /// Looks an item up; a miss stores it, and so does a hit of another size. Returns whether it was there.
    pub fn get_or_fill(&mut self, item: &RealItem) -> bool {
        let (length, value_bytes) = self.shape(item);
        let key = &self.key[..length];
        let found = self.worker.get(self.cache.hash(key), key).map(|hit| {
            self.worker.note_fetch(&hit);
            hit.value_bytes()
        });
        if found != Some(value_bytes) {
            self.store(length, value_bytes, item.ttl_s, Mode::Set);
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

    /// Two bits of warmth, and the bookkeeping of columns shared by the items.
    pub fn metadata_bits(&self) -> f64 {
        WARMTH_BITS + self.cache.memory_use().bookkeeping_bytes as f64 * 8.0 / self.items().max(1) as f64
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
            self.cache.tend();
        }
        outcome
    }
}
