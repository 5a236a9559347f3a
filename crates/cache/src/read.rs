//! Looking up: one key at a time, or a batch in stages.

use crate::engine::{Life, Owner, Worker};
use larder_index::{BucketPlace, Peek, Seen, SubPlace};
use larder_item::{Expiry, KeyHash, Location, State};
use larder_memory::{Item, Value};
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

impl Worker {
    /// Stage 1 of a batch: asks for the key's bucket.
    #[inline]
    pub fn prefetch_bucket(&self, hash: KeyHash) -> BucketPlace {
        self.cache.index.prefetch(hash)
    }

    /// Stage 2: where the key probably is, after asking for its record. Wrong once in about ten thousand times: stage 4
    /// compares the key. [`Peek::Below`] goes through stage 3 first.
    #[inline(always)]
    pub fn locate(&self, hash: KeyHash, place: BucketPlace) -> Peek {
        self.ask_for(self.cache.index.peek_first(hash, place))
    }

    /// Stage 3, for the one key in seven that is not in its bucket's own line: as stage 2.
    #[inline(always)]
    pub fn locate_below(&self, hash: KeyHash, below: SubPlace) -> Peek {
        self.ask_for(self.cache.index.peek_below(hash, below))
    }

    #[inline(always)]
    fn ask_for(&self, found: Peek) -> Peek {
        if let Peek::Found(seen) = found {
            self.reader.pin().prefetch(seen.at);
        }
        found
    }

    /// Stage 4: the item that was seen, if it holds `key` and may be served; its entry is marked as used. `None` says
    /// nothing: ask [`Worker::get`].
    #[inline(always)]
    pub fn confirm(&self, hash: KeyHash, seen: Seen, key: &[u8]) -> Option<Hit<'_>> {
        let item = self.reader.pin().item(seen.at);
        if !item.key_matches(key) || self.life(seen.at, &item) != Life::Live {
            return None;
        }
        // The entry is looked at once more: another request of the batch may have shown its client a newer item.
        if !self.cache.index.confirm_seen(hash, seen) {
            return None;
        }
        self.note(Reference::read(Digest::of(hash)));
        Some(Hit { at: seen.at, item })
    }

    /// Between stages 2 and 3: asks for the lines of the value at `at` beyond those that stage 2 asked for.
    #[inline(always)]
    pub fn prefetch_value(&self, at: Location) {
        self.reader.pin().prefetch_value(at);
    }

    /// Bytes the item takes in memory, its chunks included.
    pub fn bytes_of(&self, hit: &Hit<'_>) -> u64 {
        self.cache.bytes_of(&self.reader.pin(), hit.at)
    }

    /// The item of `key`, if it may be served. Leaves a mark of warmth.
    #[inline]
    pub fn get(&self, hash: KeyHash, key: &[u8]) -> Option<Hit<'_>> {
        let guard = self.reader.pin();
        let owner = Owner { guard: &guard, hasher: &self.cache.hasher };
        let entry = self.cache.index.get_marking(hash, key, &owner)?;
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
        let owner = Owner { guard: &guard, hasher: &self.cache.hasher };
        let at = self.cache.index.get(hash, key, &owner)?.location;
        let item = guard.item(at);
        (self.life(at, &item) == Life::Live).then_some(Hit { at, item })
    }

    /// Notes on the item that it was read: the fetched bit once, the last access at most once a minute.
    #[inline]
    pub fn note_fetch(&self, hit: &Hit<'_>) {
        hit.item.mark_fetched();
        hit.item.touch_last_access(self.cache.clock.now_s());
    }

    /// Claims the right to recache a stale or soon expiring item. Returns whether the caller won it. Under the writer
    /// bit, so that a move by the pass cannot lose the claim.
    pub fn claim_token(&self, hash: KeyHash, key: &[u8]) -> bool {
        let guard = self.reader.pin();
        let owner = Owner { guard: &guard, hasher: &self.cache.hasher };
        let bucket = self.cache.index.lock(hash);
        let Some(found) = bucket.find(key, &owner) else { return false };
        let item = guard.item(found.entry.location);
        let is_won = !item.set_state_bits(State::TOKEN_SENT).has(State::TOKEN_SENT);
        if is_won {
            item.clear_state_bits(State::CLEAN);
        }
        is_won
    }
}
