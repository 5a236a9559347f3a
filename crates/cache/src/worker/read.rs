//! Lookups: one key at a time, or many keys in stages.

use super::Worker;
use crate::flash_level::expiry_of;
use crate::item_store::Life;
use crate::penalties::remembered;
use crate::sizing::UseRecord;
use crate::watches::Change;
use larder_allocation::Subclass;
use larder_flash::Found;
use larder_index::{BatchLookup, BucketPosition, LookupStage, SubBucketPosition, TagMatch};
use larder_item::{Expiry, KeyHash, Location, State};
use larder_memory::{Guard, Item, Value};
use larder_temperature::Digest;

/// A live item, borrowed from memory until the worker's next quiescent point.
pub struct Hit<'g> {
    /// Location of its record.
    pub at: Location,
    /// The record.
    pub item: Item<'g>,
}

impl<'g> Hit<'g> {
    /// Its CAS number.
    pub fn cas(&self) -> u64 {
        self.item.cas()
    }

    /// Its value.
    #[inline]
    pub fn value(&self) -> Value<'g> {
        self.item.value()
    }

    /// Length of its value in bytes.
    #[inline]
    pub fn value_bytes(&self) -> u32 {
        self.item.value_bytes()
    }

    /// When it expires.
    pub fn expiry(&self) -> Expiry {
        self.item.expiry()
    }

    /// The subclass of its miss penalty. `None`: the penalty is unknown.
    pub fn penalty(&self) -> Option<Subclass> {
        remembered(self.item.state())
    }
}

/// Why a key has no item that may be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absence {
    /// There is none.
    NotFound,
    /// It has expired.
    Expired,
    /// It was flushed.
    Flushed,
}

/// The stages of a lookup of many keys. What a stage returns is valid until the worker's next quiescent point.
#[derive(Clone, Copy)]
pub struct Lookup<'w> {
    worker: &'w Worker,
    index_lookup: BatchLookup<'w>,
    guard: Guard<'w>,
}

impl<'w> Lookup<'w> {
    /// Stage 1: prefetches the key's bucket.
    #[inline(always)]
    pub fn prefetch_bucket(&self, hash: KeyHash) -> BucketPosition {
        self.index_lookup.prefetch(hash)
    }

    /// Stage 2: compares tags, and prefetches the record that the key probably has. The guess is wrong once in about
    /// ten thousand times; stage 4 compares the key. [`LookupStage::InSubBucket`] goes through stage 3 first.
    #[inline(always)]
    pub fn locate(&self, hash: KeyHash, place: BucketPosition) -> LookupStage {
        let found = self.index_lookup.match_in_bucket(hash, place);
        if let LookupStage::Matched(seen) = found {
            self.guard.prefetch(self.index_lookup.location(seen));
        }
        found
    }

    /// Stage 3: as stage 2, for the one key in seven whose entry is in a sub-bucket.
    #[inline(always)]
    pub fn locate_below(&self, hash: KeyHash, below: SubBucketPosition) -> Option<TagMatch> {
        let seen = self.index_lookup.match_in_sub_bucket(hash, below)?;
        self.guard.prefetch(self.index_lookup.location(seen));
        Some(seen)
    }

    /// Between stages 3 and 4: prefetches the lines of the value that did not come with the record.
    #[inline(always)]
    pub fn prefetch_value(&self, seen: TagMatch) {
        self.guard.prefetch_value(self.index_lookup.location(seen));
    }

    /// Between stages 3 and 4 of a write: prefetches what the end of the present item changes beside its record.
    #[inline(always)]
    pub fn prefetch_end(&self, seen: TagMatch) {
        self.guard.prefetch_death(self.index_lookup.location(seen));
    }

    /// Stage 4: as [`Worker::confirm`].
    #[inline(always)]
    pub fn confirm(&self, hash: KeyHash, seen: TagMatch, key: &[u8]) -> Option<Hit<'w>> {
        self.worker.confirm(hash, seen, key)
    }

    /// Stage 4, if nothing was answered since stage 2: as [`Lookup::confirm`], but with the item as it was at stage 2.
    #[inline(always)]
    pub(super) fn take(&self, hash: KeyHash, seen: TagMatch, key: &[u8]) -> Option<Hit<'w>> {
        let hit = self.worker.read(&self.guard, self.index_lookup.location(seen), key)?;
        self.index_lookup.mark(seen, |at| self.worker.cache.store.uses_count(at));
        Some(self.worker.noted(hash, hit))
    }
}

impl Worker {
    /// Begins a lookup in stages.
    #[inline(always)]
    pub fn lookup(&self) -> Lookup<'_> {
        Lookup { worker: self, index_lookup: self.cache.store.index.batch_lookup(), guard: self.reader.pin() }
    }

    /// Stage 4 of a lookup: the item of the record that was found, if it holds `key` and may be served. Its entry is
    /// marked as used. After `None` the caller asks [`Worker::get`], for the key may be present all the same.
    #[inline(always)]
    pub fn confirm(&self, hash: KeyHash, seen: TagMatch, key: &[u8]) -> Option<Hit<'_>> {
        let store = &self.cache.store;
        let hit = self.read(&self.reader.pin(), store.index.location(seen), key)?;
        // The entry is looked at once more: another request of the batch may have answered with a newer item.
        store.index.confirm(hash, seen, |at| store.uses_count(at)).then(|| self.noted(hash, hit))
    }

    #[inline(always)]
    fn read<'g>(&self, guard: &Guard<'g>, at: Location, key: &[u8]) -> Option<Hit<'g>> {
        let item = guard.item(at);
        (item.key_matches(key) && self.life(at, &item) == Life::Live).then_some(Hit { at, item })
    }

    #[inline(always)]
    fn noted<'g>(&self, hash: KeyHash, hit: Hit<'g>) -> Hit<'g> {
        self.note_read(hash, hit.at);
        hit
    }

    /// Bytes that the item takes in memory, its chunks included.
    pub fn bytes_of(&self, hit: &Hit<'_>) -> u64 {
        self.cache.store.bytes_of(&self.reader.pin(), hit.at)
    }

    /// The item of `key`, if it may be served. Raises the warmth of its entry.
    #[inline]
    pub fn get(&self, hash: KeyHash, key: &[u8]) -> Option<Hit<'_>> {
        let guard = self.reader.pin();
        let keys = self.cache.store.key_reader(&guard);
        let entry = self.cache.store.index.get_marking(hash, key, &keys)?;
        let item = guard.item(entry.location);
        match self.life(entry.location, &item) {
            Life::Live => {
                self.note_read(hash, entry.location);
                return Some(Hit { at: entry.location, item });
            }
            Life::Expired => self.counters().get_expired.add(1),
            Life::Flushed => self.counters().get_flushed.add(1),
        }
        None
    }

    /// A read was answered with what flash has of the key, and the item was not brought to memory.
    pub fn note_flash_hit(&self, hash: KeyHash, key: &[u8], found: &Found) {
        let expiry = self.note_seen(hash, key, found);
        self.note_use(Digest::of(hash), key, |digest| UseRecord::flash_hit(digest, key, found, expiry));
    }

    /// A client hears of an item that flash has. Returns when it expires.
    pub fn note_seen(&self, hash: KeyHash, key: &[u8], found: &Found) -> Expiry {
        let expiry = expiry_of(&self.cache.store.clock, found);
        self.cache.watches.tell(Change::Seen { hash, key, expiry });
        expiry
    }

    /// As [`Worker::get`], but leaves no trace: warmth and counters stay as they are.
    pub fn peek(&self, hash: KeyHash, key: &[u8]) -> Option<Hit<'_>> {
        let guard = self.reader.pin();
        let keys = self.cache.store.key_reader(&guard);
        let at = self.cache.store.index.get(hash, key, &keys)?.location;
        let item = guard.item(at);
        (self.life(at, &item) == Life::Live).then_some(Hit { at, item })
    }

    /// Why a key has no item that may be served. As [`Worker::peek`], it leaves no trace.
    pub fn absence(&self, hash: KeyHash, key: &[u8]) -> Absence {
        let guard = self.reader.pin();
        let keys = self.cache.store.key_reader(&guard);
        let Some(entry) = self.cache.store.index.get(hash, key, &keys) else { return Absence::NotFound };
        match self.life(entry.location, &guard.item(entry.location)) {
            Life::Live => Absence::NotFound,
            Life::Expired => Absence::Expired,
            Life::Flushed => Absence::Flushed,
        }
    }

    /// Counts a read of a key for its namespace, if it has one: see [`crate::Cache::has_namespaces`].
    pub fn count_read_of_namespace(&self, key: &[u8], is_hit: bool) {
        self.tally.count_read(key, is_hit);
    }

    /// Writes to the item that it was read: the fetched bit once, the time of the last access at most once a minute.
    #[inline]
    pub fn note_fetch(&self, hit: &Hit<'_>) {
        hit.item.mark_fetched();
        hit.item.touch_last_access(self.cache.store.clock.now_s());
    }

    /// Claims the right to recache a stale or soon expiring item. Returns whether the caller won it. The claim is made
    /// under the writer bit, so that a move by the pass cannot lose it.
    pub fn claim_token(&self, hash: KeyHash, key: &[u8]) -> bool {
        let guard = self.reader.pin();
        let keys = self.cache.store.key_reader(&guard);
        let bucket = self.cache.store.index.lock(hash);
        let Some(found) = bucket.find(key, &keys) else { return false };
        let item = guard.item(found.entry.location);
        let is_won = !item.set_state_bits(State::TOKEN_SENT).has(State::TOKEN_SENT);
        if is_won {
            self.changed_in_place(hash, &item);
        }
        is_won
    }
}

#[cfg(test)]
mod tests {
    use crate::{Cache, CacheOptions, GetBatch, Store, StoreOutcome};
    use larder_index::LookupStage;

    #[test]
    fn no_way_to_read_an_item_of_a_new_column_warms_it() {
        for (new_columns, expected) in [(0, 3), (2, 0)] {
            let options = CacheOptions { limit_bytes: 16 << 20, workers: 1, ..CacheOptions::default() };
            let cache = Cache::new(options).expect("a small cache can be made");
            cache.store.want_new_columns(new_columns);
            let (mut worker, key) = (cache.worker(), b"key".as_slice());
            let hash = cache.hash(key);
            let stored = worker.store(&Store::set(key, hash, b"value"));
            assert!(matches!(stored, StoreOutcome::Stored { .. }));
            assert!(worker.get(hash, key).is_some());
            GetBatch::default().get(&worker, &[key], |_, hit| assert!(hit.is_some()));
            let lookup = worker.lookup();
            let LookupStage::Matched(seen) = lookup.locate(hash, lookup.prefetch_bucket(hash)) else {
                panic!("the only key is in its bucket");
            };
            let hit = lookup.confirm(hash, seen, key).expect("it is there");
            assert_eq!(
                cache.store.index.warmth_at(hash, hit.at),
                Some(expected),
                "{new_columns} new columns"
            );
        }
    }
}
