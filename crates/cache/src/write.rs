//! Placing records and publishing them: what every write is made of.
//!
//! A write places its record first, without any lock, and then publishes it under the bucket's writer bit. If what it
//! found there is not what it expected, the record is taken back and the write starts over. No lock is ever held
//! while room is being made.

use crate::counters::Counters;
use crate::demote::{Leaving, Parts};
use crate::engine::{Cache, Life, Open, Owner, RESERVED_COLUMNS, Worker};
use crate::keeper::{Pace, Turns, hollow::DEAD_LOOKS};
use larder_index::{BucketGuard, WARMTH_MAX};
use larder_item::{Expiry, KeyHash, Location, State};
use larder_memory::{Guard, Item, NewChunked, NewItem, OpenColumn};
use larder_temperature::{Digest, Reference};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What a write expects to find under the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expected {
    /// Whatever there is.
    Anything,
    /// Nothing that may be served.
    Absent,
    /// The very record that was looked at: see [`Worker::seen`].
    Seen {
        /// Where it was.
        at: Location,
        /// Birth number of its column then. If the column is another one by now, the place holds another record.
        birth: u64,
        /// What may change in place, and is carried over to what is derived from it: when it expires, and whether its
        /// token was given away.
        expiry: Expiry,
        token_sent: bool,
    },
}

/// What came of publishing a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Published {
    /// The key leads to it.
    Done,
    /// The present state was not as expected; the record was taken back.
    Changed,
    /// The key's bucket is full and nothing may be evicted; the record was taken back.
    Full,
}

/// How long a writer helps the pass, and waits for others to pass their quiescent points, before it gives up for lack of
/// room. Another worker passes one in microseconds, unless the machine has taken its CPU away.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(1);
/// Waits of one yield each before a writer sleeps between its looks.
const ROOM_YIELDS: u32 = 64;
/// Inserts between two looks at the index's need to grow, and the most buckets split at one look.
const GROW_EVERY: u32 = 32;
const SPLITS_AT_ONCE: usize = 16;

impl Worker {
    /// Places a record in this worker's open column, taking a new column or helping the pass as needed.
    /// `None`: there is no room and none can be made.
    pub(crate) fn place(&mut self, item: &NewItem<'_>) -> Option<Location> {
        self.place_with(Open::Records, |open| open.place(item))
    }

    /// Places the owner record of a chain of chunks.
    pub(crate) fn place_chunked(&mut self, item: &NewChunked<'_>) -> Option<Location> {
        self.place_with(Open::Records, |open| open.place_chunked(item))
    }

    /// Expect the record at `at`, which was looked at since the last quiescent point.
    pub(crate) fn seen(&self, at: Location) -> Expected {
        let guard = self.reader.pin();
        let item = guard.item(at);
        Expected::Seen {
            at,
            birth: self.cache.birth_of(at),
            expiry: item.expiry(),
            token_sent: item.state().has(State::TOKEN_SENT),
        }
    }

    /// Runs `put` on an open column that has room for it.
    #[inline]
    pub(crate) fn place_with<T>(
        &mut self,
        of: Open,
        mut put: impl FnMut(&mut OpenColumn) -> Option<T>,
    ) -> Option<T> {
        loop {
            // A flush makes everything in older columns invalid: what is stored after it needs a younger one.
            let floor = self.cache.flush_floor.0.load(Ordering::Acquire);
            if let Some(open) = &mut self.open[of as usize]
                && open.birth() >= floor
                && let Some(done) = put(open)
            {
                return Some(done);
            }
            self.seal_open(of);
            match self.take_column() {
                Some(open) => self.open[of as usize] = Some(open),
                None => return None,
            }
        }
    }

    /// Hands an open column to the keeper.
    pub(crate) fn seal_open(&mut self, of: Open) {
        if let Some(open) = self.open[of as usize].take() {
            let sealed = open.seal_at(self.cache.clock.now_s());
            self.cache.sealed(sealed);
        }
    }

    fn take_column(&mut self) -> Option<OpenColumn> {
        let mut started = None;
        let mut waits = 0;
        loop {
            if let Some(open) = self.cache.take_column() {
                self.cache.wake_keeper_if_short();
                return Some(open);
            }
            if !self.cache.evict && !self.cache.has_hollow_columns() && !self.cache.reclaim_dead(DEAD_LOOKS) {
                return None;
            }
            let started = *started.get_or_insert_with(|| {
                self.counters().starved.add(1);
                Instant::now()
            });
            // Let go of everything, so that retired columns can come back; then help, then let others run.
            self.quiesce();
            self.cache.wake_keeper();
            // Columns enough may be on their way back already: then only other workers' quiescent points are missing,
            // and to reclaim more would empty the cache while one of them is slow.
            let helped = self.cache.memory.returning_columns() < self.cache.free_columns_target()
                && (self.cache.reclaim_one(&mut Turns::begin(Pace::Hurried))
                    || (!self.cache.evict && self.cache.reclaim_dead(DEAD_LOOKS)));
            self.cache.memory.recycle();
            if helped {
                continue;
            }
            // Nothing can be reclaimed. If nothing is on its way back either, everything is pinned or open.
            let memory = &self.cache.memory;
            let is_hopeless =
                memory.returning_columns() == 0 && memory.available_columns() <= RESERVED_COLUMNS;
            if is_hopeless || started.elapsed() > ROOM_WAIT_MAX {
                return None;
            }
            waits += 1;
            self.offline();
            if waits > ROOM_YIELDS {
                std::thread::sleep(Duration::from_micros(50));
            } else {
                std::thread::yield_now();
            }
            self.online();
        }
    }

    /// Publishes the record at `new` under its key if the present state is as `expected`. Otherwise the record is taken
    /// back.
    pub(crate) fn publish(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        expected: Expected,
        new: Location,
    ) -> Published {
        let cache = &self.cache;
        let counters = &cache.blocks[self.number];
        let guard = self.reader.pin();
        let owner = Owner { guard: &guard, hasher: &cache.hasher };
        let mut bucket = cache.index.lock(hash);
        let found = bucket.find(key, &owner);
        let as_expected = match (expected, &found) {
            (Expected::Anything, _) | (Expected::Absent, None) => true,
            (Expected::Absent, Some(found)) => {
                self.life(found.entry.location, &guard.item(found.entry.location)) != Life::Live
            }
            // Flushed after it was seen: what is derived from it must not outlive it.
            (Expected::Seen { at, birth, expiry, token_sent }, Some(found)) => {
                let is_there =
                    found.entry.location == at && cache.birth_of(at) == birth && !cache.is_flushed(at);
                // A touch that was answered meanwhile must not be undone.
                is_there && {
                    let item = guard.item(at);
                    item.expiry() == expiry && item.state().has(State::TOKEN_SENT) == token_sent
                }
            }
            (Expected::Seen { .. }, None) => false,
        };
        if !as_expected {
            drop(bucket);
            self.take_back(new);
            return Published::Changed;
        }
        if let Some(level) = &cache.level
            && level.journal
        {
            // After a crash nothing older may come back once this write was answered.
            self.note_commit(level.flash.invalidate(hash, key));
        }
        match found {
            Some(found) => {
                // Whoever overwrites an item has use for it.
                bucket.replace(&found, new, (found.entry.warmth + 1).min(WARMTH_MAX));
                drop(bucket);
                cache.died(&guard, found.entry.location, counters);
            }
            None => {
                let is_inserted = cache.insert_making_room(&guard, &mut bucket, new, counters);
                drop(bucket);
                if !is_inserted {
                    self.take_back(new);
                    return Published::Full;
                }
            }
        }
        self.note(Reference::store(Digest::of(hash)));
        counters.bytes_stored.add(cache.bytes_of(&guard, new));
        counters.total_items.add(1);
        self.grow_index();
        Published::Done
    }

    /// Takes back the record placed last, which nobody has found yet.
    pub(crate) fn take_back(&mut self, placed: Location) {
        let open = self.open[Open::Records as usize].as_mut();
        let open = open.expect("the record was placed in the open column just now");
        open.undo(placed);
    }

    /// Splits a few buckets now and then, so that growth is paid in small change.
    #[inline]
    pub(crate) fn grow_index(&mut self) {
        self.inserts = self.inserts.wrapping_add(1);
        if self.inserts.is_multiple_of(GROW_EVERY) && self.cache.index.needs_growth() {
            let guard = self.reader.pin();
            let owner = Owner { guard: &guard, hasher: &self.cache.hasher };
            let before = self.cache.index.bytes();
            self.cache.index.grow(&owner, SPLITS_AT_ONCE);
            if self.cache.index.bytes() != before {
                self.cache.share_out();
            }
        }
    }

    /// Removes the record at `at` if it is still what the key leads to.
    pub(crate) fn remove_at(&self, hash: KeyHash, at: Location) -> bool {
        let guard = self.reader.pin();
        let mut bucket = self.cache.index.lock(hash);
        let Some(found) = bucket.find_at(at) else { return false };
        // Before the entry goes: from then on flash is asked for the key.
        self.note_commit(self.cache.invalidate(hash, guard.item(at).key()));
        bucket.remove(&found);
        drop(bucket);
        self.cache.died(&guard, at, self.counters());
        true
    }

    /// Sees to it that a key without a live item in memory is not on flash either. False if there is a live item by now.
    pub(crate) fn make_absent(&self, hash: KeyHash, key: &[u8]) -> bool {
        if self.cache.level.is_none() {
            return true;
        }
        let guard = self.reader.pin();
        let owner = Owner { guard: &guard, hasher: &self.cache.hasher };
        let bucket = self.cache.index.lock(hash);
        let at = bucket.find(key, &owner).map(|found| found.entry.location);
        let is_absent = at.is_none_or(|at| self.life(at, &guard.item(at)) != Life::Live);
        if is_absent {
            self.note_commit(self.cache.invalidate(hash, key));
        }
        is_absent
    }

    /// An item was changed where it stands, under the writer bit of its bucket: flash has another version of it now.
    pub(crate) fn changed_in_place(&self, hash: KeyHash, key: &[u8], item: &Item<'_>) {
        if let Some(level) = &self.cache.level {
            item.clear_state_bits(State::CLEAN);
            if level.journal {
                self.note_commit(level.flash.invalidate(hash, key));
            }
        }
    }
}

impl Cache {
    /// Inserts an entry. If its bucket has grown as far as it may, another one of the bucket makes room. Returns false if
    /// nothing may be evicted.
    pub(crate) fn insert_making_room(
        &self,
        guard: &Guard<'_>,
        bucket: &mut BucketGuard<'_>,
        new: Location,
        counters: &Counters,
    ) -> bool {
        while let Err(full) = bucket.insert(new, 0) {
            if !self.evict {
                return false;
            }
            let (victim, at) = (full.victim, full.victim.entry.location);
            if self.level.is_some() {
                // A value of several parts is not written from here, where a client waits and the bucket is locked.
                let hash = self.hasher.hash(guard.item(at).key());
                let leaving = Leaving { hash, at, warmth: victim.entry.warmth, parts: Parts::None };
                self.leave(guard, &leaving, counters);
            }
            self.count_eviction(&guard.item(at), victim.entry.warmth, counters);
            bucket.remove(&victim);
            self.died(guard, at, counters);
        }
        true
    }
}
