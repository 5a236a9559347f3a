//! Looking on flash, and bringing items back into memory.
//!
//! If memory has an entry of a key, the key is never looked for on flash, even if its item has expired or was flushed:
//! what flash has of it is older. An item that was found on flash is published in memory only if, under the writer bit
//! of its bucket, memory still has no entry of the key, the stamp taken before the lookup still holds, and no prefix of
//! the key was deleted since.

use super::Worker;
use super::chain::{Piece, RecordFields, Upload};
use crate::demoter::Demoter;
use crate::flash_level::expiry_of;
use crate::item_store::ItemStore;
use crate::watches::Change;
use larder_flash::{Begun, Commit, CommitListener, Fetcher, Found, Stamp};
use larder_item::{KeyHash, Location, State};
use larder_temperature::{Digest, Reference};
use std::os::fd::RawFd;
use std::time::Duration;

/// The result of a lookup on flash.
#[derive(Debug)]
pub enum Fetch {
    /// The key is not there.
    Absent,
    /// The item was still in a write buffer.
    Here(Found),
    /// A read was started. Its result comes through [`Worker::poll_fetches`], with the token.
    Started,
    /// Too many fetches are under way: poll first, and ask again.
    Busy,
}

/// A value of several parts on its way from flash to memory.
pub struct Promotion {
    upload: Upload,
    part: u32,
}

impl Promotion {
    /// The number of the part that is to be fetched next; `None` when all are here.
    pub fn next_part(&self) -> Option<u32> {
        (self.upload.missing_bytes() > 0).then_some(self.part)
    }
}

/// Whether an item that came from flash has expired by now. Then it is a miss.
fn is_expired(store: &ItemStore, found: &Found) -> bool {
    store.clock.has_passed(expiry_of(&store.clock, found))
}

impl Worker {
    /// Whether it is worth looking on flash for a key that was not found in memory. A no is never wrong; a yes may
    /// be, more often where `--flash-memory` is small. False if memory has an entry of the key, live or not, or if
    /// there is no flash.
    #[inline]
    pub fn flash_may_hold(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.flash.fetcher.is_some() && self.looks_beyond(hash, key)
    }

    #[inline(never)]
    fn looks_beyond(&self, hash: KeyHash, key: &[u8]) -> bool {
        if self.has_entry(hash, key) {
            return false;
        }
        let may_hold = self.cache.demoter.as_ref().is_some_and(|demoter| demoter.flash().may_hold(hash));
        if !may_hold {
            self.counters().flash_misses.add(1);
        }
        may_hold
    }

    /// Loads what lookups of these keys on flash look at. Touching several keys before they are fetched makes their
    /// cache misses overlap.
    #[inline]
    pub fn touch_flash(&self, hashes: impl Iterator<Item = KeyHash> + Clone) {
        if let Some(demoter) = &self.cache.demoter {
            demoter.flash().touch(hashes);
        }
    }

    /// Whether memory has an item of the key, live or not.
    pub fn has_entry(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.cache.store.has_entry(&self.reader.pin(), hash, key)
    }

    /// Looks for a key on flash. Ask [`Worker::flash_may_hold`] first: if memory has an entry of the key, what flash
    /// has of it is out of date. Reads that were started go to the device with [`Worker::kick_fetches`].
    pub fn fetch(&mut self, token: u64, hash: KeyHash, key: &[u8]) -> Fetch {
        let Some(fetcher) = &mut self.flash.fetcher else { return Fetch::Absent };
        let begun = fetcher.begin(token, hash, key);
        let (store, counters) = (&self.cache.store, self.cache.store.counters.worker(self.number));
        match begun {
            Begun::Started => Fetch::Started,
            Begun::Busy => Fetch::Busy,
            Begun::Here(found) if !is_expired(store, &found) => {
                let found = self.expand_side.found(store, counters, found);
                if found.is_some() { &counters.flash_hits } else { &counters.flash_misses }.add(1);
                found.map_or(Fetch::Absent, Fetch::Here)
            }
            Begun::Here(_) | Begun::Absent => {
                counters.flash_misses.add(1);
                Fetch::Absent
            }
        }
    }

    /// The same as [`Worker::fetch`], for a key that no client has asked for yet, and that memory has no entry of: what
    /// needs no read is not counted.
    pub fn fetch_ahead(&mut self, token: u64, hash: KeyHash, key: &[u8]) -> Fetch {
        let Some(fetcher) = &mut self.flash.fetcher else { return Fetch::Absent };
        match fetcher.begin_ahead(token, hash, key) {
            Begun::Started => Fetch::Started,
            Begun::Busy => Fetch::Busy,
            Begun::Here(found) => {
                let counters = self.cache.store.counters.worker(self.number);
                let found = self.expand_side.found(&self.cache.store, counters, found);
                found.map_or(Fetch::Absent, Fetch::Here)
            }
            Begun::Absent => Fetch::Absent,
        }
    }

    /// Looks for part `part` (from 1) of a value whose first part is in `found`. Works as [`Worker::fetch`] does, but
    /// only the value of the result means anything.
    pub fn fetch_part(&mut self, token: u64, hash: KeyHash, key: &[u8], found: &Found, part: u32) -> Fetch {
        let Some(fetcher) = &mut self.flash.fetcher else { return Fetch::Absent };
        match fetcher.begin_part(token, hash, key, found.cas, part) {
            Begun::Started => {
                self.flash.part_fetches.push(token);
                Fetch::Started
            }
            Begun::Busy => Fetch::Busy,
            Begun::Here(part) => Fetch::Here(part),
            Begun::Absent => Fetch::Absent,
        }
    }

    /// Hands the reads that were started to the device: one call for a whole batch.
    pub fn kick_fetches(&mut self) {
        if let Some(fetcher) = &mut self.flash.fetcher {
            fetcher.kick();
        }
    }

    /// Whether fetches have ended, and none is under way any more, as far as is known without a system call.
    pub fn has_fetched_all(&mut self) -> bool {
        self.flash.fetcher.as_mut().is_some_and(Fetcher::is_complete)
    }

    /// Calls `done` for each fetch that has ended, with its token; `None` = a miss after all. Never waits.
    pub fn poll_fetches(&mut self, done: &mut dyn FnMut(u64, Option<Found>)) {
        let Some(fetcher) = &mut self.flash.fetcher else {
            return self.flash.commits.iter().for_each(CommitListener::clear);
        };
        let (store, parts, side) = (&self.cache.store, &mut self.flash.part_fetches, &self.expand_side);
        let counters = store.counters.worker(self.number);
        fetcher.poll(&mut |token, found| {
            if let Some(at) = parts.iter().position(|part| *part == token) {
                parts.swap_remove(at);
                return done(token, found);
            }
            let found = found.filter(|found| !is_expired(store, found));
            let found = found.and_then(|found| side.found(store, counters, found));
            if found.is_some() { &counters.flash_hits } else { &counters.flash_misses }.add(1);
            done(token, found);
        });
    }

    /// A descriptor that is readable when [`Worker::poll_fetches`] has results, or [`Worker::flash_committed`] went up.
    /// `None` if there is no flash.
    pub fn fetch_fd(&self) -> Option<RawFd> {
        let commits = self.flash.commits.as_ref().map(CommitListener::fd);
        self.flash.fetcher.as_ref().map(|fetcher| fetcher.fd()).or(commits)
    }

    /// The stamp of a hash on flash. `None`: there is no flash.
    pub fn flash_stamp(&self, hash: KeyHash) -> Option<Stamp> {
        self.cache.demoter.as_ref().map(|demoter| demoter.flash().stamp(hash))
    }

    /// Whether this worker has removed the item of a hash, and flash has nothing of it since. `false` = that is not
    /// known.
    pub fn knows_gone(&self, hash: KeyHash) -> bool {
        self.flash_stamp(hash).is_some_and(|stamp| self.flash.gone.knows(hash, stamp))
    }

    /// Whether a store has to wait before it is executed: memory has no room for it yet, or so little that the rest is
    /// needed soon while what would have to be evicted would be lost, because the device is behind. Without a wait the
    /// store is executed all the same.
    #[inline]
    pub fn waits_for_flash(&self) -> bool {
        let store = &self.cache.store;
        self.cache.demoter.is_some()
            && store.memory.available_columns() <= store.free_columns_low()
            && self.flash.columns_taken >= self.flash.takes_until
            && self.has_to_wait()
    }

    #[inline(never)]
    fn has_to_wait(&self) -> bool {
        let store = &self.cache.store;
        store.memory.recycle();
        let available = store.memory.available_columns();
        let levels = self.cache.levels();
        available <= store.free_columns_low()
            && levels.evicts()
            && (available <= store.reserved_columns() || levels.holds_back())
    }

    /// A store waits: [`Worker::fetch_fd`] becomes readable when [`Worker::waits_for_flash`] may say no, and from time
    /// to time before that.
    pub fn want_room(&self) {
        if let Some(demoter) = &self.cache.demoter {
            demoter.flash().want_room();
            self.cache.keeper.wake();
        }
    }

    /// A store has waited long enough: until the worker has taken one more column, [`Worker::waits_for_flash`] says no.
    pub fn wait_no_longer(&mut self) {
        self.flash.takes_until = self.flash.columns_taken + 1;
    }

    /// How long a store waits at most: see [`Worker::waits_for_flash`].
    pub fn store_wait_max(&self) -> Duration {
        self.cache.demoter.as_ref().map_or(Duration::ZERO, Demoter::wait_max)
    }

    /// How many fetches may be under way at once; 0 if there is no flash.
    pub fn fetch_depth(&self) -> u32 {
        self.flash.fetcher.as_ref().map_or(0, |fetcher| fetcher.depth())
    }

    /// Makes [`Worker::fetch_fd`] readable although there is no result.
    pub fn wake_for_fetches(&self) {
        if let Some(fetcher) = &self.flash.fetcher {
            fetcher.wake();
        }
    }

    /// Invalidations up to this one are durable: see [`Worker::take_commit`]. If the device has failed for good, all
    /// count as durable, so that no client waits for ever.
    pub fn flash_committed(&self) -> Commit {
        let flash = self.cache.demoter.as_ref().map(Demoter::flash);
        flash.filter(|flash| !flash.commits_nothing()).map_or(Commit(u64::MAX), |flash| flash.committed())
    }

    /// Replies wait for what [`Worker::take_commit`] named.
    pub fn want_commit(&self) {
        self.cache.demoter.iter().for_each(|demoter| demoter.flash().want_commit());
    }

    /// The last invalidation that this worker's writes made since the last call. If there is one, the replies to those
    /// writes wait until [`Worker::flash_committed`] has reached it.
    #[inline]
    pub fn take_commit(&self) -> Option<Commit> {
        self.flash.commit.take()
    }

    /// Notes an invalidation that must be durable before the present request is answered.
    #[inline]
    pub(super) fn note_commit(&self, commit: Option<Commit>) {
        if commit.is_some() {
            self.flash.commit.set(self.flash.commit.get().max(commit));
        }
    }

    /// Whether an item that was found on flash is still the newest version of the key, and has not expired since.
    pub fn is_current(&self, hash: KeyHash, key: &[u8], found: &Found) -> bool {
        let Some(demoter) = &self.cache.demoter else { return false };
        demoter.flash().stamp(hash) == found.stamp
            && !demoter.flash().hides(key, found.age)
            && !is_expired(&self.cache.store, found)
            && !self.has_entry(hash, key)
    }

    /// Brings an item from flash into memory, with its CAS number, flags, expiry and state, if it is still the newest
    /// version of the key. Returns whether it did; then [`Worker::get`] finds the item. If not, memory has something
    /// newer, or there is no room. The value must be complete: values of several parts take the way of
    /// [`Worker::begin_promotion`].
    pub fn promote(&mut self, hash: KeyHash, key: &[u8], found: &Found) -> bool {
        let is_promoted = self.promote_whole(hash, key, found);
        self.count_promotion(is_promoted)
    }

    fn promote_whole(&mut self, hash: KeyHash, key: &[u8], found: &Found) -> bool {
        if found.value.len() as u64 != found.value_bytes || !self.may_promote(hash, key, found) {
            return false;
        }
        let of = self.record_for(found);
        if found.value.len() <= self.cache.store.memory.chunk_bytes_max() as usize {
            let new = self.place(&of.item(key, [&found.value, &[]]));
            return new.is_some_and(|new| self.publish_found(hash, key, found, new));
        }
        let parts = [Piece::Bytes(&found.value), Piece::NOTHING];
        let Some((new, upload)) = self.place_long(hash, parts, key, &of) else { return false };
        let is_published = self.publish_found(hash, key, found, new);
        if !is_published {
            self.abandon_upload(upload);
        }
        is_published
    }

    /// Whether it is worth making room for an item that was found on flash.
    fn may_promote(&self, hash: KeyHash, key: &[u8], found: &Found) -> bool {
        self.fits(key.len(), found.value_bytes) && self.is_current(hash, key, found)
    }

    /// What the record of an item from flash holds beside key and value.
    fn record_for(&self, found: &Found) -> RecordFields {
        let clock = &self.cache.store.clock;
        let is_lazy = self.cache.demoter.as_ref().is_some_and(Demoter::is_lazy);
        let clean = if is_lazy { State::CLEAN } else { 0 };
        let fetched = if found.warm { State::FETCHED } else { 0 };
        let bits = found.state.state().bits() | clean | fetched;
        RecordFields {
            flags: found.flags,
            expiry: expiry_of(clock, found),
            cas: found.cas,
            state: State::at(clock.now_s(), bits),
            kind: found.state.extension().kind,
        }
    }

    fn count_promotion(&self, is_promoted: bool) -> bool {
        let counters = self.counters();
        if is_promoted { &counters.promoted } else { &counters.promotion_lost }.add(1);
        is_promoted
    }

    /// Begins to bring in a value of which `found` holds the first part. The caller fetches the other parts,
    /// [`Promotion::next_part`], with [`Worker::fetch_part`], adds them in their order with [`Worker::fill_promotion`],
    /// and publishes the item with [`Worker::complete_promotion`]. `None`: the item is out of date already, or there is
    /// no room.
    pub fn begin_promotion(&mut self, hash: KeyHash, key: &[u8], found: &Found) -> Option<Promotion> {
        let total = u32::try_from(found.value_bytes).ok()?;
        if !self.may_promote(hash, key, found) || found.value.len() > total as usize {
            return None;
        }
        let upload = self.begin_upload(hash, total)?;
        let mut promotion = Promotion { upload, part: 0 };
        if self.fill_promotion(&mut promotion, found) {
            Some(promotion)
        } else {
            self.abandon_promotion(promotion);
            None
        }
    }

    /// Adds the next part. Returns false if the part is too long or there is no room for it: then the caller abandons
    /// the promotion.
    pub fn fill_promotion(&mut self, promotion: &mut Promotion, part: &Found) -> bool {
        // A part without bytes would be fetched again and again.
        if part.value.is_empty() || part.value.len() > promotion.upload.missing_bytes() {
            return false;
        }
        promotion.part += 1;
        self.fill_upload(&mut promotion.upload, &part.value)
    }

    /// Publishes a value of which all parts are here, on the same conditions as [`Worker::promote`]. `found` is its
    /// first part.
    pub fn complete_promotion(
        &mut self,
        promotion: Promotion,
        hash: KeyHash,
        key: &[u8],
        found: &Found,
    ) -> bool {
        let is_promoted = self.promote_parts(promotion, hash, key, found);
        self.count_promotion(is_promoted)
    }

    fn promote_parts(&mut self, promotion: Promotion, hash: KeyHash, key: &[u8], found: &Found) -> bool {
        let Promotion { mut upload, .. } = promotion;
        if upload.missing_bytes() > 0 || !self.may_promote(hash, key, found) {
            self.abandon_upload(upload);
            return false;
        }
        upload.close_chunk();
        let record = self.record_for(found).chunked(key, upload.total_bytes(), upload.first());
        let new = self.place_chunked(&record);
        let is_published = new.is_some_and(|new| self.publish_found(hash, key, found, new));
        if !is_published {
            self.abandon_upload(upload);
        }
        is_published
    }

    /// Gives up a promotion.
    pub fn abandon_promotion(&self, promotion: Promotion) {
        self.abandon_upload(promotion.upload);
        self.counters().promotion_lost.add(1);
    }

    /// Publishes the record at `new`, a copy of the item that was found on flash, if that is still the newest version.
    /// Otherwise the record is taken back.
    fn publish_found(&mut self, hash: KeyHash, key: &[u8], found: &Found, new: Location) -> bool {
        let store = &self.cache.store;
        let guard = self.reader.pin();
        let keys = store.key_reader(&guard);
        let Some(demoter) = &self.cache.demoter else { return false };
        let flash = demoter.flash();
        let mut bucket = store.index.lock(hash);
        // The key is put and invalidated only under this writer bit, so the stamp holds until the entry is there. For
        // the prefixes see `docs/internals/concurrency.md`, "Delete by prefix".
        let is_current = bucket.find(key, &keys).is_none()
            && flash.stamp(hash) == found.stamp
            && !flash.hides(key, found.age);
        if !is_current || !self.insert_making_room(&guard, &mut bucket, new) {
            drop(bucket);
            self.take_back(new);
            return false;
        }
        self.cache.watches.tell(Change::Seen { hash, key, expiry: guard.item(new).expiry() });
        if !demoter.is_lazy() {
            self.note_commit(demoter.invalidate(hash, key));
        }
        drop(bucket);
        // The read that brings the item to memory is noted when it shows the item.
        self.cache.keeper.note(Reference::store(Digest::of(hash)), &self.traces.references);
        self.counters().bytes_stored.add(store.bytes_of(&guard, new));
        self.grow_index();
        true
    }
}
