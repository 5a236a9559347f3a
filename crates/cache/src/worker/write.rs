//! Placing records and publishing them: what every write is made of.
//!
//! A write places its record first, without any lock, and then publishes it under the bucket's writer bit. If the
//! bucket does not hold what the write expected, the record is taken back and the write starts over. No lock is held
//! while room is being made.

use super::Worker;
use super::chain::{Piece, RecordFields};
use super::open_columns::Place;
use crate::commands::StoreOutcome;
use crate::demoter::{Leaving, Levels, SentParts};
use crate::item_store::{ItemStore, Life, first_chunk};
use crate::penalties::Price;
use crate::sizing::UseRecord;
use larder_index::BucketGuard;
use larder_item::{Expiry, HEADER_BYTES, KeyHash, Location, State};
use larder_memory::{Guard, Item, NewChunked, NewItem, OpenColumn};
use larder_temperature::Digest;
use std::time::{Duration, Instant};

/// What a write expects to find under the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expected {
    /// Anything, or nothing.
    Anything,
    /// Nothing that may be served.
    Absent,
    /// The very record that was looked at, unchanged: see [`Worker::expect_unchanged`].
    Unchanged(Seen),
}

/// A record that was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    /// Where the record was.
    pub(super) at: Location,
    /// The birth number that its column had. If the column has another one by now, another record is at `at`.
    birth: u64,
    /// What may change in place, and is carried over to the new record: when the item expires, and whether its token
    /// was given away.
    pub(super) expiry: Expiry,
    token_sent: bool,
}

impl Seen {
    /// Whether the record at `at`, which an entry leads to, is this one, unchanged.
    #[inline(always)]
    fn is_at(&self, store: &ItemStore, guard: &Guard<'_>, at: Location) -> bool {
        // The item may have been flushed since: what is derived from it must not outlive it.
        let is_there =
            at == self.at && store.birth_of(at) == self.birth && !store.is_flushed(at, &guard.item(at));
        // A touch that was answered meanwhile must not be undone.
        is_there && {
            let item = guard.item(at);
            item.expiry() == self.expiry && item.state().has(State::TOKEN_SENT) == self.token_sent
        }
    }
}

/// What came of publishing a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Published {
    /// The key leads to it.
    Done,
    /// The present item was not as expected. The record was taken back.
    Changed,
    /// The key's bucket is full and nothing may be evicted. The record was taken back.
    Full,
}

/// How long a writer helps the pass, and waits for other workers to pass their quiescent points, before it gives up for
/// lack of room. A worker passes one within microseconds, unless the machine has taken its CPU away.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(1);
/// For so long a worker that has no column waits for a device that is behind. Its other requests wait as well.
const HELD_BACK_MAX: Duration = Duration::from_millis(20);
/// So often a waiting writer only yields. After that it sleeps between its looks.
const ROOM_YIELDS: u32 = 64;
const ROOM_SLEEP: Duration = Duration::from_micros(50);
/// A value may be 24 bytes longer than the one in whose place it is stored where there is no room: an arithmetic
/// command may need as many.
const REPLACED_GROWS_MAX: usize = 24;
/// Inserts between two looks at the index's need to grow, and the most buckets that are split at one look.
const GROW_EVERY: u32 = 32;
const SPLITS_AT_ONCE: usize = 16;
/// When the index has grown by 1,024 buckets, less is left for columns. The keeper shares the limit out as well.
const BUCKETS_PER_SHARE_OUT: u64 = 1024;

impl Worker {
    /// Places a record in the open column for its lifetime. Takes a new column, or helps the pass, as needed. `None`:
    /// there is no room and none can be made.
    pub(super) fn place(&mut self, item: &NewItem<'_>) -> Option<Location> {
        if self.cache.store.namespaces.are_on() {
            let capped = NewItem { expiry: self.name(item.key, item.expiry, item.state), ..*item };
            return self.place_as_it_is(&capped);
        }
        self.place_as_it_is(item)
    }

    /// An item of a namespace, perhaps, is stored: counts it, and returns the expiry that it gets.
    #[cold]
    fn name(&self, key: &[u8], expiry: Expiry, state: State) -> Expiry {
        // A clean item comes from flash, and expires when the copy there does: else that copy would be served after it.
        if state.has(State::CLEAN) {
            return expiry;
        }
        self.tally.count_set(key);
        let store = &self.cache.store;
        store.namespaces.cap(key, expiry, store.clock.now_s())
    }

    /// As [`Worker::place`], whatever namespace the item is in.
    #[inline]
    pub(super) fn place_as_it_is(&mut self, item: &NewItem<'_>) -> Option<Location> {
        let place = if item.expiry == Expiry::NEVER { Place::GENERAL } else { self.place_expiring(item) };
        self.place_with(place, Some(item.key), |open| open.place(item))
    }

    /// Where an item goes that expires. Takes note of it, so that its class may get a place of its own.
    fn place_expiring(&mut self, item: &NewItem<'_>) -> Place {
        let store = &self.cache.store;
        let now_s = store.clock.now_s();
        let place = self.open.place_for(item.expiry, now_s);
        if self.open.is_shared(place) {
            let bytes = item.key.len() + item.value[0].len() + item.value[1].len() + HEADER_BYTES;
            self.open.brought(item.expiry, now_s, bytes as u32, store.column_bytes() as u32);
        }
        place
    }

    /// Places the owner record of a chain of chunks. The chunks expire with it from now on.
    pub(super) fn place_chunked(&mut self, item: &NewChunked<'_>) -> Option<Location> {
        let is_named = self.cache.store.namespaces.are_on();
        let expiry = if is_named { self.name(item.key, item.expiry, item.state) } else { item.expiry };
        let item = &NewChunked { expiry, ..*item };
        let place = self.open.place_for(item.expiry, self.cache.store.clock.now_s());
        let at = self.place_with(place, Some(item.key), |open| open.place_chunked(item))?;
        let guard = self.reader.pin();
        self.cache.store.set_expiry(&guard, at, item.expiry);
        self.cache.store.commit_chunks(&guard, at);
        Some(at)
    }

    /// What a write expects that depends on the record at `at`. The record was looked up since the last quiescent
    /// point.
    pub(super) fn expect_unchanged(&self, at: Location) -> Expected {
        let guard = self.reader.pin();
        let item = guard.item(at);
        Expected::Unchanged(Seen {
            at,
            birth: self.cache.store.birth_of(at),
            expiry: item.expiry(),
            token_sent: item.state().has(State::TOKEN_SENT),
        })
    }

    /// Runs `put` on an open column that has room for it. `key` is that of the item that `put` places, if it places
    /// one.
    #[inline]
    pub(super) fn place_with<T>(
        &mut self,
        place: Place,
        key: Option<&[u8]>,
        mut put: impl FnMut(&mut OpenColumn) -> Option<T>,
    ) -> Option<T> {
        loop {
            // A flush makes everything in older columns invalid: what is stored after it needs a younger column.
            let store = &self.cache.store;
            let floor = store.floors.highest();
            let is_young =
                |birth: u64| birth >= floor || key.is_some_and(|key| !store.floors.is_below(birth, key));
            if let Some(open) = self.open.at(place)
                && is_young(open.birth())
                && let Some(done) = put(open)
            {
                return Some(done);
            }
            self.seal_open(place);
            let open = self.take_column(place)?;
            self.open.put(place, open);
        }
    }

    /// Where nothing may be evicted and there is no room: places an item for which the item of the key `gone` goes, and
    /// which is not larger, in columns that are kept for that. What dies makes up for them. `None`: it is larger.
    #[cold]
    pub(super) fn place_instead(
        &mut self,
        gone: (KeyHash, &[u8]),
        key: &[u8],
        value: [Piece<'_>; 2],
        of: &RecordFields,
    ) -> Option<Location> {
        let store = &self.cache.store;
        let [Piece::Bytes(first), Piece::Bytes(second)] = value else { return None };
        let (bytes, one_piece_max) = (first.len() + second.len(), store.memory.chunk_bytes_max() as usize);
        if store.leaving.happens() || bytes > one_piece_max {
            return None;
        }
        let gone_bytes = self.peek(gone.0, gone.1)?.value_bytes() as usize + gone.1.len();
        if key.len() + bytes > gone_bytes + REPLACED_GROWS_MAX {
            return None;
        }
        let expiry = store.namespaces.cap(key, of.expiry, store.clock.now_s());
        let item = RecordFields { expiry, ..*of }.item(key, [first, second]);
        self.place_with(Place::REPLACING, Some(key), |open| open.place(&item))
    }

    /// As [`Worker::place_instead`], for a large value that stays as it is: the new record takes over the chunks of the
    /// item that `expected` names.
    #[cold]
    pub(super) fn put_before_chunks(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        value: [Piece<'_>; 2],
        of: &RecordFields,
        expected: Expected,
    ) -> StoreOutcome {
        let ([Piece::Chain { total, first }, Piece::Bytes([])], Expected::Unchanged(seen)) =
            (value, expected)
        else {
            return StoreOutcome::NoRoom;
        };
        let store = &self.cache.store;
        if store.leaving.happens() {
            return StoreOutcome::NoRoom;
        }
        let expiry = store.namespaces.cap(key, of.expiry, store.clock.now_s());
        let record = RecordFields { expiry, ..*of }.chunked(key, total, first);
        let placed = self.place_with(Place::REPLACING, Some(key), |open| open.place_chunked(&record));
        let Some(new) = placed else { return StoreOutcome::NoRoom };
        let (store, guard) = (&self.cache.store, self.reader.pin());
        let mut bucket = store.index.lock(hash);
        let found = bucket.find_at(seen.at).filter(|_| {
            seen.is_at(store, &guard, seen.at) && first_chunk(&guard.item(seen.at)) == Some(first)
        });
        let Some(found) = found else {
            drop(bucket);
            self.take_back(new);
            return StoreOutcome::Exists;
        };
        // The chunks expire with the new record.
        store.set_expiry(&guard, new, expiry);
        if self.cache.watches.extras.are_any() {
            self.do_extras(&guard, hash, key, new, Some(seen.at));
        }
        self.inherit_penalty(&guard, key, new, Some(seen.at));
        bucket.replace(&found, new, store.warmer(&found.entry));
        drop(bucket);
        store.record_died(&guard, seen.at, self.counters());
        self.note_store(hash, new);
        self.counters().bytes_stored.add(guard.item(new).bytes().into());
        StoreOutcome::Stored { cas: of.cas, value_bytes: total }
    }

    /// The next CAS number.
    #[inline]
    pub(super) fn next_cas(&self) -> u64 {
        self.cas_numbers.next(self.cache.store.last_cas())
    }

    /// Takes a free column for `place`. If there is none, helps the pass and waits for columns that are on their way
    /// back.
    fn take_column(&mut self, place: Place) -> Option<OpenColumn> {
        let left_free = match place {
            Place::REPLACING => self.cache.store.reserved_columns(),
            _ => self.cache.store.columns_not_for_new(),
        };
        let mut started = None;
        let mut waits = 0;
        loop {
            let cas = self.cas_numbers.base(self.cache.store.last_cas());
            if let Some(open) = self.cache.store.take_column(self.node, cas, left_free, self.counters()) {
                if self.cache.store.is_short_of_columns() {
                    self.cache.keeper.wake();
                }
                self.flash.columns_taken += 1;
                return Some(open);
            }
            if !self.cache.keeper.can_help(self.cache.levels()) {
                return None;
            }
            let started = *started.get_or_insert_with(|| {
                self.counters().starved.add(1);
                Instant::now()
            });
            // A store whose wait for flash is over waits no more. What finds no column here without a wait before, such
            // as a part of a large value, waits a moment for the keeper.
            let is_urgent =
                self.flash.columns_taken < self.flash.takes_until || started.elapsed() > HELD_BACK_MAX;
            let is_late = started.elapsed() > ROOM_WAIT_MAX && !self.cache.levels().waits_for_room();
            // Where items leave memory only for flash, a pass whose items flash refuses moves them, and gives no room
            // however often it is repeated.
            if is_late && !self.cache.store.leaving.may_lose() {
                return None;
            }
            // Let go of everything, so that retired columns can come back; then help, then let others run.
            self.quiesce();
            self.cache.keeper.wake();
            let levels = Levels { is_urgent, ..self.cache.levels() };
            let (store, memory) = (&self.cache.store, &self.cache.store.memory);
            // Columns enough may be on their way back already. Then only the quiescent points of other workers are
            // missing, and to reclaim more would empty the cache while one of them is slow.
            let helped =
                memory.returning_columns() < store.free_columns_target() && self.cache.keeper.help(levels);
            memory.recycle();
            if helped {
                continue;
            }
            // Nothing can be reclaimed. If nothing is on its way back either, all columns are pinned or open; unless a
            // slab is being emptied for a lower limit: one that cannot be emptied gives its columns back.
            let is_hopeless = memory.returning_columns() == 0
                && memory.available_columns() <= left_free
                && memory.releasing_slabs() == 0
                && (is_urgent || self.cache.demoter.is_none())
                && !self.cache.levels().waits_for_flash();
            if is_hopeless || is_late {
                return None;
            }
            waits += 1;
            self.offline();
            if waits > ROOM_YIELDS {
                std::thread::sleep(ROOM_SLEEP);
            } else {
                std::thread::yield_now();
            }
            self.online();
        }
    }

    /// Publishes the record at `new` under its key if the present item is as `expected`. Otherwise the record is taken
    /// back. A record whose penalty is not known from `price` takes that of the item that it replaces, or an estimate.
    pub(super) fn publish(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        expected: Expected,
        new: Location,
        price: Option<&Price>,
    ) -> Published {
        let store = &self.cache.store;
        let counters = self.counters();
        self.wait_to_replace();
        let guard = self.reader.pin();
        let keys = store.key_reader(&guard);
        let mut bucket = store.index.lock(hash);
        let found = bucket.find(key, &keys);
        let as_expected = match (expected, &found) {
            (Expected::Anything, _) | (Expected::Absent, None) => true,
            (Expected::Absent, Some(found)) => {
                self.life(found.entry.location, &guard.item(found.entry.location)) != Life::Live
            }
            (Expected::Unchanged(seen), Some(found)) => seen.is_at(store, &guard, found.entry.location),
            (Expected::Unchanged(_), None) => false,
        };
        if !as_expected {
            drop(bucket);
            self.take_back(new);
            return Published::Changed;
        }
        if self.cache.watches.extras.are_any() {
            self.do_extras(&guard, hash, key, new, found.as_ref().map(|found| found.entry.location));
        }
        if price.is_none_or(|price| price.subclass().is_none()) {
            self.inherit_penalty(&guard, key, new, found.as_ref().map(|found| found.entry.location));
        }
        match found {
            Some(found) => {
                // An overwrite counts as a use of the item.
                bucket.replace(&found, new, store.warmer(&found.entry));
                drop(bucket);
                store.died(&guard, found.entry.location, counters);
            }
            None => {
                let is_inserted = self.insert_making_room(&guard, &mut bucket, new);
                drop(bucket);
                if !is_inserted {
                    self.take_back(new);
                    return Published::Full;
                }
            }
        }
        self.note_store(hash, new);
        if let Some(price) = price {
            let cost = self.cache.penalties.settle(price, key, counters);
            cost.into_iter().for_each(|(penalty, stated)| store.worth.learn(hash, penalty, stated));
        }
        counters.bytes_stored.add(store.bytes_of(&guard, new));
        counters.total_items.add(1);
        self.grow_index();
        Published::Done
    }

    /// Under the writer bit of the key's bucket: the record at `new` takes the place of that at `old`, for a later
    /// process too, and for those who watch the key.
    #[cold]
    fn do_extras(&self, guard: &Guard<'_>, hash: KeyHash, key: &[u8], new: Location, old: Option<Location>) {
        if !self.changes_nothing {
            self.note_change(hash, key, guard.item(new).expiry());
        }
        if !self.cache.watches.extras.is_lasting() {
            return;
        }
        if let Some(demoter) = &self.cache.demoter
            && demoter.has_journal()
        {
            // After a crash nothing older may come back once this write was answered.
            self.note_commit(match old {
                Some(old) => demoter.invalidate_of(hash, &guard.item(old)),
                None => demoter.invalidate(hash, key),
            });
        }
        guard.commit(new);
        if let Some(old) = old {
            guard.revoke(old);
        }
    }

    /// Inserts an entry. If its bucket has grown as far as it may, the least warm entry of the bucket makes room: one
    /// of a namespace that has more than its share comes first, and one of a namespace that has less comes last.
    /// Returns false if nothing may be evicted.
    pub(super) fn insert_making_room(
        &self,
        guard: &Guard<'_>,
        bucket: &mut BucketGuard<'_>,
        new: Location,
    ) -> bool {
        let store = &self.cache.store;
        while let Err(full) = bucket.insert(new, 0) {
            let counters = self.counters();
            let levels = self.cache.levels();
            if !levels.evicts() {
                return false;
            }
            let victim = if store.namespaces.are_on() {
                let standings = store.namespaces.standings(store.memory.limit_bytes());
                bucket.victim_by(|entry| (standings.of(guard.item(entry.location).key()), entry.warmth))
            } else {
                full.victim
            };
            let at = victim.entry.location;
            // A value of several parts is not written here, where a client waits and the bucket is locked.
            let hash = store.hasher.hash(guard.item(at).key());
            let leaving =
                Leaving { hash, at, warmth: victim.entry.warmth, parts: SentParts::None, compressed: None };
            if store.leaving.may_lose() || self.life(at, &guard.item(at)) != Life::Live {
                levels.leave(guard, &leaving, counters);
            } else if !levels.leave_for_flash(guard, &leaving, counters) {
                return false;
            }
            let life = self.life(at, &guard.item(at));
            guard.revoke(at);
            bucket.remove(&victim);
            store.count_removal(guard, at, life, victim.entry.warmth, counters);
        }
        true
    }

    /// Takes back the record that was placed last and was never published.
    pub(super) fn take_back(&mut self, placed: Location) {
        let open = self.open.with_id(self.cache.store.memory.column_of(placed));
        open.expect("the record was placed in an open column just now").undo(placed);
    }

    /// Splits a few buckets now and then, so that the cost of growth is spread over many writes.
    #[inline]
    pub(super) fn grow_index(&mut self) {
        self.inserts = self.inserts.wrapping_add(1);
        let store = &self.cache.store;
        if self.inserts.is_multiple_of(GROW_EVERY) && store.index.needs_growth() {
            let guard = self.reader.pin();
            let part = || store.index.buckets() / BUCKETS_PER_SHARE_OUT;
            let part_before = part();
            store.index.grow(&store.key_reader(&guard), SPLITS_AT_ONCE);
            if part() != part_before {
                store.share_out();
            }
        }
    }

    /// Removes the record at `at` if the key still leads to it.
    pub(super) fn remove_at(&self, hash: KeyHash, at: Location) -> bool {
        let store = &self.cache.store;
        self.cache.levels().wait_for_invalidations(self.counters());
        let guard = self.reader.pin();
        let mut bucket = store.index.lock(hash);
        let Some(found) = bucket.find_at(at) else { return false };
        // Before the entry goes: without an entry, flash is asked for the key.
        if let Some(demoter) = &self.cache.demoter {
            self.note_commit(demoter.invalidate_of(hash, &guard.item(at)));
            self.flash.gone.note(hash, demoter.flash().stamp(hash));
        }
        self.note_change(hash, guard.item(at).key(), Expiry::NEVER);
        guard.revoke(at);
        bucket.remove(&found);
        drop(bucket);
        store.died(&guard, at, self.counters());
        if self.cache.keeper.references().curve_wants(Digest::of(hash)) {
            self.note_sampled_use(guard.item(at).key(), UseRecord::gone(Digest::of(hash)));
        }
        true
    }

    /// Makes sure that a key without a live item in memory is not on flash either. Returns false if there is a live
    /// item by now.
    pub(super) fn make_absent(&self, hash: KeyHash, key: &[u8]) -> bool {
        if self.cache.demoter.is_none() {
            return true;
        }
        let store = &self.cache.store;
        self.cache.levels().wait_for_invalidations(self.counters());
        let guard = self.reader.pin();
        let bucket = store.index.lock(hash);
        let at = bucket.find(key, &store.key_reader(&guard)).map(|found| found.entry.location);
        let is_absent = at.is_none_or(|at| self.life(at, &guard.item(at)) != Life::Live);
        if is_absent {
            if at.is_none()
                && self.cache.demoter.as_ref().is_some_and(|demoter| demoter.flash().may_hold(hash))
            {
                self.note_change(hash, key, Expiry::NEVER);
            }
            self.invalidate(hash, key);
            self.note_use(Digest::of(hash), key, UseRecord::gone);
        }
        is_absent
    }

    /// Before a bucket is locked to replace an item: with a journal that is an invalidation. Without one the new item
    /// hides what flash has of the key.
    #[inline]
    pub(super) fn wait_to_replace(&self) {
        if let Some(demoter) = &self.cache.demoter
            && demoter.has_journal()
        {
            demoter.wait_for_invalidations(self.counters());
        }
    }

    /// Under the writer bit of the key's bucket: flash has nothing of the key any more.
    fn invalidate(&self, hash: KeyHash, key: &[u8]) {
        if let Some(demoter) = &self.cache.demoter {
            self.note_commit(demoter.invalidate(hash, key));
            self.flash.gone.note(hash, demoter.flash().stamp(hash));
        }
    }

    /// Under the writer bit of the item's bucket: the item was changed in place, so flash has another version of it.
    pub(super) fn changed_in_place(&self, hash: KeyHash, item: &Item<'_>) {
        if let Some(demoter) = &self.cache.demoter {
            if demoter.has_journal() {
                self.note_commit(demoter.invalidate_of(hash, item));
            }
            item.clear_state_bits(State::CLEAN);
        }
    }
}
