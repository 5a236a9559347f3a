//! Looking up: one key at a time, or a batch in stages.

use super::Worker;
use crate::item_store::Life;
use larder_index::{BucketPlace, Peek, Seen, Sight, SubPlace};
use larder_item::{Expiry, KeyHash, Location, State};
use larder_memory::{Guard, Item, Value};
use larder_temperature::{Digest, Reference};

/// A live item, borrowed from memory until the worker's next quiescent point.
pub struct Hit<'g> {
    /// Where it is.
    pub at: Location,
    /// Its bytes.
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
}

/// What the stages of a batch need, at hand. Its stages are for one turn of the worker: nothing that they return means
/// anything after the next quiescent point.
#[derive(Clone, Copy)]
pub struct Lookup<'w> {
    worker: &'w Worker,
    sight: Sight<'w>,
    guard: Guard<'w>,
}

impl<'w> Lookup<'w> {
    /// Stage 1 of a batch: asks for the key's bucket.
    #[inline(always)]
    pub fn prefetch_bucket(&self, hash: KeyHash) -> BucketPlace {
        self.sight.prefetch(hash)
    }

    /// Stage 2: where the key probably is, after asking for its record. Wrong once in about ten thousand times: stage 4
    /// compares the key. [`Peek::Below`] goes through stage 3 first.
    #[inline(always)]
    pub fn locate(&self, hash: KeyHash, place: BucketPlace) -> Peek {
        let found = self.sight.peek_first(hash, place);
        if let Peek::Found(seen) = found {
            self.guard.prefetch(seen.at());
        }
        found
    }

    /// Stage 3, for the one key in seven that is not in its bucket's own line: as stage 2.
    #[inline(always)]
    pub fn locate_below(&self, hash: KeyHash, below: SubPlace) -> Option<Seen> {
        let seen = self.sight.peek_below(hash, below)?;
        self.guard.prefetch(seen.at());
        Some(seen)
    }

    /// Between stages 3 and 4: asks for the lines of the value beyond those that came with the record.
    #[inline(always)]
    pub fn prefetch_value(&self, seen: Seen) {
        self.guard.prefetch_value(seen.at());
    }

    /// Stage 4: the item that was seen, if it holds `key` and may be served; its entry is marked as used. `None` says
    /// nothing: ask [`Worker::get`].
    #[inline(always)]
    pub fn confirm(&self, hash: KeyHash, seen: Seen, key: &[u8]) -> Option<Hit<'w>> {
        let hit = self.read(seen, key)?;
        // The entry is looked at once more: another request of the batch may have shown its client a newer item.
        self.sight.confirm(hash, seen).then(|| self.noted(hash, hit))
    }

    /// Stage 4 where nobody was shown anything since stage 2: as [`Lookup::confirm`], of the key as it was then.
    #[inline(always)]
    pub(super) fn take(&self, hash: KeyHash, seen: Seen, key: &[u8]) -> Option<Hit<'w>> {
        let hit = self.read(seen, key)?;
        self.sight.mark(seen);
        Some(self.noted(hash, hit))
    }

    #[inline(always)]
    fn read(&self, seen: Seen, key: &[u8]) -> Option<Hit<'w>> {
        let at = seen.at();
        let item = self.guard.item(at);
        (item.key_matches(key) && self.worker.life(at, &item) == Life::Live).then_some(Hit { at, item })
    }

    #[inline(always)]
    fn noted(&self, hash: KeyHash, hit: Hit<'w>) -> Hit<'w> {
        self.worker.note(Reference::read(Digest::of(hash)));
        hit
    }
}

impl Worker {
    /// For lookups in stages.
    #[inline(always)]
    pub fn lookup(&self) -> Lookup<'_> {
        Lookup { worker: self, sight: self.cache.store.index.sight(), guard: self.reader.pin() }
    }

    /// Bytes the item takes in memory, its chunks included.
    pub fn bytes_of(&self, hit: &Hit<'_>) -> u64 {
        self.cache.store.bytes_of(&self.reader.pin(), hit.at)
    }

    /// The item of `key`, if it may be served. Leaves a mark of warmth.
    #[inline]
    pub fn get(&self, hash: KeyHash, key: &[u8]) -> Option<Hit<'_>> {
        let guard = self.reader.pin();
        let keys = self.cache.store.key_reader(&guard);
        let entry = self.cache.store.index.get_marking(hash, key, &keys)?;
        let item = guard.item(entry.location);
        match self.life(entry.location, &item) {
            Life::Live => {
                self.note(Reference::read(Digest::of(hash)));
                return Some(Hit { at: entry.location, item });
            }
            Life::Expired => self.counters().get_expired.add(1),
            Life::Flushed => self.counters().get_flushed.add(1),
        }
        None
    }

    /// Like [`Worker::get`], without a trace: no warmth, no counters.
    pub fn peek(&self, hash: KeyHash, key: &[u8]) -> Option<Hit<'_>> {
        let guard = self.reader.pin();
        let keys = self.cache.store.key_reader(&guard);
        let at = self.cache.store.index.get(hash, key, &keys)?.location;
        let item = guard.item(at);
        (self.life(at, &item) == Life::Live).then_some(Hit { at, item })
    }

    /// Notes on the item that it was read: the fetched bit once, the last access at most once a minute.
    #[inline]
    pub fn note_fetch(&self, hit: &Hit<'_>) {
        hit.item.mark_fetched();
        hit.item.touch_last_access(self.cache.store.clock.now_s());
    }

    /// Claims the right to recache a stale or soon expiring item. Returns whether the caller won it. Under the writer
    /// bit, so that a move by the pass cannot lose the claim.
    pub fn claim_token(&self, hash: KeyHash, key: &[u8]) -> bool {
        let guard = self.reader.pin();
        let keys = self.cache.store.key_reader(&guard);
        let bucket = self.cache.store.index.lock(hash);
        let Some(found) = bucket.find(key, &keys) else { return false };
        let item = guard.item(found.entry.location);
        let is_won = !item.set_state_bits(State::TOKEN_SENT).has(State::TOKEN_SENT);
        if is_won {
            item.clear_state_bits(State::CLEAN);
        }
        is_won
    }
}
