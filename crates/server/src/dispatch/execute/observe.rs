//! What is told of requests to those who watch, and counted for `stats detail`.
//!
//! Whether anybody does is looked up once in a turn. While nobody does, a read costs one comparison of a number that
//! the worker owns, and other operations cost nothing: one comparison decides for watchers and for flash whether an
//! operation is executed in the ordinary way.

use super::Executor;
use crate::dispatch::operation::{
    Change, CopyItem, DeleteItem, Get, ItemKey, Look, Operation, Read, StoreItem, THE_CLASS,
};
use crate::dispatch::outcome::{EditOutcome, Outcome, Refusal, Tail};
use crate::dispatch::prefixes::PrefixEvent;
use crate::dispatch::progress::{Busy, Progress};
use crate::dispatch::watch::{Client, NoWatch, StoreCommand, StoreStatus, Watcher, What, unix_us};
use crate::io::{CloseReason, ConnectionId, Handle, Peer, Transport};
use larder_cache::{Arith, ArithOutcome, Copied, DeleteOutcome, Expiry, Hearer, KeyHash, Mode, StoreOutcome};
use larder_protocol::WatchKinds;
use std::sync::Arc;

/// Beside the streams that are watched: prefixes are counted.
const DETAIL: u16 = 1 << 15;
/// And: reads are counted for namespaces.
const NAMESPACES: u16 = 1 << 14;
/// The streams that come of requests.
const OF_REQUESTS: WatchKinds =
    WatchKinds::FETCHERS.union(WatchKinds::MUTATIONS).union(WatchKinds::DELETIONS);

/// What came of an operation, as far as watchers hear of it.
enum Done {
    Stored(StoreOutcome),
    Deleted,
    /// A counter was created.
    Created,
    Copied,
    /// An item was not changed as the client wanted.
    Unchanged,
    Other,
}

impl Done {
    fn of(outcome: &Outcome<'_>) -> Done {
        match outcome {
            Outcome::Stored(outcome) => Done::Stored(*outcome),
            Outcome::Deleted(DeleteOutcome::Deleted) => Done::Deleted,
            Outcome::Counted(ArithOutcome::Done { created: true, .. }) => Done::Created,
            Outcome::Copied(Copied::Done) => Done::Copied,
            Outcome::Edited(
                EditOutcome::NotDone
                | EditOutcome::WrongKind
                | EditOutcome::NotInteger
                | EditOutcome::Overflow
                | EditOutcome::NotDecimal
                | EditOutcome::Infinite
                | EditOutcome::TooLarge
                | EditOutcome::NoMemory,
            ) => Done::Unchanged,
            _ => Done::Other,
        }
    }
}

impl Executor {
    /// Looks who wants to hear of what is executed from now on.
    #[inline]
    pub(super) fn look_for_observers(&self) {
        let detail = if self.state.prefixes().is_on() { DETAIL } else { 0 };
        let named = if self.cache().has_namespaces() { NAMESPACES } else { 0 };
        let watch = self.state.watch();
        let mut watched = watch.wanted().bits() & OF_REQUESTS.bits();
        // While the page is full, requests cost what they cost when nobody watches.
        let is_unseen = watched != 0 && watch.is_full(self.number);
        self.is_unseen.set(is_unseen);
        if is_unseen {
            watched = 0;
        }
        self.observers.set(watched | detail | named);
        self.has_detour.set(self.fetches.is_some() || watched != 0);
    }

    /// A turn is over that has executed `requests` requests.
    #[inline]
    pub(in crate::dispatch) fn count_unseen(&self, requests: usize) {
        if self.is_unseen.get() {
            self.state.watch().drop_some(self.number, requests as u64);
        }
    }

    /// Whether operations are watched.
    pub(super) fn is_watched(&self) -> bool {
        self.observers.get() & OF_REQUESTS.bits() != 0
    }

    fn watches(&self, kind: WatchKinds) -> bool {
        self.observers.get() & kind.bits() != 0
    }

    fn tell(&self, what: What, key: &[u8]) {
        // The time is that of the turn: it is looked at once in a turn, if at all.
        let at_us = self.turn.first_told_us.get().unwrap_or_else(unix_us);
        self.turn.first_told_us.set(Some(at_us));
        self.state.watch().tell(self.number, at_us, what, key);
    }

    // ---- reads of values ----

    /// A value was found for a plain read.
    #[inline(always)]
    pub(super) fn observe_hit(&self, fd: i32, get: &Get<'_>, value_bytes: impl FnOnce() -> u32) {
        if self.observers.get() != 0 {
            self.tell_read(fd, get, Some(value_bytes()));
        }
    }

    /// None was found.
    #[inline(always)]
    pub(super) fn observe_miss(&self, fd: i32, get: &Get<'_>) {
        if self.observers.get() != 0 {
            self.tell_read(fd, get, None);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_read(&self, fd: i32, get: &Get<'_>, value_bytes: Option<u32>) {
        let event = if value_bytes.is_some() { PrefixEvent::Hit } else { PrefixEvent::Miss };
        self.count_for_namespace(get.key, value_bytes.is_some());
        if self.observers.get() == NAMESPACES {
            return;
        }
        self.state.prefixes().note(get.key, event);
        self.tell_get(fd, get.key, get.hash, value_bytes);
    }

    /// Counts a read for the namespace of its key.
    #[inline]
    pub(super) fn count_for_namespace(&self, key: &[u8], is_hit: bool) {
        if self.observers.get() & NAMESPACES != 0 {
            self.worker.count_read_of_namespace(key, is_hit);
        }
    }

    fn tell_get(&self, fd: i32, key: &[u8], hash: KeyHash, value_bytes: Option<u32>) {
        if self.watches(WatchKinds::FETCHERS) && self.state.watch().has_room(self.number) {
            let found = value_bytes.ok_or_else(|| self.worker.absence(hash, key));
            self.tell(What::Get { found, fd }, key);
        }
    }

    // ---- other operations ----

    /// Carries out an operation, and tells of it. As in memcached, whoever changes an item asks for it first.
    #[cold]
    #[inline(never)]
    pub(super) fn carry_out_watched(
        &mut self,
        progress: &mut Progress,
        operation: &Operation<'_>,
        is_on_flash: bool,
        compose: impl FnOnce(Outcome<'_>) -> Tail,
    ) -> bool {
        let (fd, before) = (progress.fd, self.tell_asked(progress.fd, operation));
        let mut done = Done::Other;
        let is_answered = self.carry_out(progress, operation, is_on_flash, |outcome| {
            done = Done::of(&outcome);
            compose(outcome)
        });
        self.tell_done(fd, operation, before, done);
        is_answered
    }

    /// Tells which item an operation asks for. Returns the length of its value, if it is there.
    fn tell_asked(&self, fd: i32, operation: &Operation<'_>) -> Option<u32> {
        let (key, hash) = subject(operation)?;
        let found = self.worker.peek(hash, key).map(|hit| hit.value_bytes());
        self.tell_get(fd, key, hash, found);
        found
    }

    fn tell_done(&self, fd: i32, operation: &Operation<'_>, before: Option<u32>, done: Done) {
        match (operation, done) {
            (Operation::Store(item), Done::Stored(outcome)) => self.tell_store(fd, item, outcome),
            // A command of the meta protocol counts no prefix.
            // An item that is marked as stale stays. memcached tells nothing.
            (Operation::Delete(DeleteItem { delete, .. }), _) if delete.invalidate => {}
            (Operation::Delete(DeleteItem { counts_prefix, delete, .. }), Done::Deleted) => {
                self.tell_delete(delete.key, !counts_prefix, before);
            }
            (Operation::Arith(Arith { key, hash, .. }), Done::Created) => {
                self.tell_change(fd, key, *hash, StoreCommand::Add);
            }
            (Operation::Copy(CopyItem { to, .. }), Done::Copied) => {
                self.tell_change(fd, to.key, to.hash, StoreCommand::Set);
            }
            (Operation::Edit(..), Done::Unchanged) => {}
            (Operation::Edit(key, change), _) => self.tell_edit(fd, key, change, before),
            _ => {}
        }
    }

    fn tell_edit(&self, fd: i32, item: &ItemKey<'_>, change: &Change<'_>, before: Option<u32>) {
        let ItemKey { key, hash, .. } = *item;
        let command = match change {
            Change::Append(_) => StoreCommand::Append,
            _ => StoreCommand::Set,
        };
        match (change, before, self.worker.peek(hash, key).is_some()) {
            (Change::Expire { .. } | Change::Persist | Change::ShowAndExpire(_), _, true) => {}
            (_, _, true) => self.tell_change(fd, key, hash, command),
            (_, Some(_), false) => self.tell_delete(key, false, before),
            (_, None, false) => {}
        }
    }

    /// The value of an edit came in pieces, and the edit was made.
    pub(super) fn observe_edit(&self, fd: i32, item: &ItemKey<'_>, change: &Change<'_>, is_done: bool) {
        self.note_size(item.hash, item.key);
        if self.is_watched() && is_done {
            self.tell_edit(fd, item, change, None);
        }
    }

    fn tell_delete(&self, key: &[u8], is_meta: bool, before: Option<u32>) {
        if self.watches(WatchKinds::DELETIONS) && self.state.watch().has_room(self.number) {
            self.tell(What::Delete { is_meta, value_bytes: before.unwrap_or(0) }, key);
        }
    }

    /// Tells of an item that was changed where it is.
    fn tell_change(&self, fd: i32, key: &[u8], hash: KeyHash, command: StoreCommand) {
        let item = self.worker.peek(hash, key).map(|hit| (hit.value_bytes(), hit.expiry()));
        if let Some((value_bytes, expiry)) = item
            && self.watches(WatchKinds::MUTATIONS)
            && self.state.watch().has_room(self.number)
        {
            let (status, ttl_s) = (StoreStatus::Stored, self.ttl_s(expiry));
            self.tell(What::Store { status, command, ttl_s, class: THE_CLASS, value_bytes, fd }, key);
        }
    }

    /// Tells of a store. `item` is what the client wanted.
    #[cold]
    pub(super) fn tell_store(&self, fd: i32, item: &StoreItem<'_>, outcome: StoreOutcome) {
        if !self.watches(WatchKinds::MUTATIONS) || !self.state.watch().has_room(self.number) {
            return;
        }
        let store = &item.store;
        let (status, class, value_bytes) = match outcome {
            StoreOutcome::Stored { value_bytes, .. } => (StoreStatus::Stored, THE_CLASS, value_bytes),
            StoreOutcome::NotStored => (StoreStatus::NotStored, THE_CLASS, item.value_bytes),
            StoreOutcome::Exists => (StoreStatus::Exists, THE_CLASS, item.value_bytes),
            StoreOutcome::NotFound => (StoreStatus::NotFound, THE_CLASS, item.value_bytes),
            StoreOutcome::TooLarge => (StoreStatus::TooLarge, 0, 0),
            StoreOutcome::NoRoom => (StoreStatus::NoMemory, 0, 0),
        };
        let command = match store.mode {
            Mode::Set if store.compare.is_some() => StoreCommand::Cas,
            Mode::Set => StoreCommand::Set,
            Mode::Add => StoreCommand::Add,
            Mode::Replace => StoreCommand::Replace,
            Mode::Append => StoreCommand::Append,
            Mode::Prepend => StoreCommand::Prepend,
        };
        // An item that was added to has kept its expiry.
        let joins = matches!(store.mode, Mode::Append | Mode::Prepend);
        let kept = self.worker.peek(store.hash, store.key).filter(|_| joins).map(|hit| hit.expiry());
        let ttl_s = if class == THE_CLASS { self.ttl_s(kept.unwrap_or(store.expiry)) } else { 0 };
        self.tell(What::Store { status, command, ttl_s, class, value_bytes, fd }, store.key);
    }

    /// A value that came in pieces was stored, or was refused.
    pub(super) fn observe_upload(&self, fd: i32, item: &StoreItem<'_>, outcome: StoreOutcome) {
        if self.is_watched() {
            self.tell_store(fd, item, outcome);
        }
    }

    /// Seconds until an item expires; 0 = never.
    fn ttl_s(&self, expiry: Expiry) -> u32 {
        expiry.remaining_s(self.clock().now_s()).unwrap_or(0)
    }

    // ---- connections ----

    /// A connection was opened.
    pub(in crate::dispatch) fn observe_open(&self, peer: &Peer<'_>) {
        let is_watched = self.state.watch().wanted().contains(WatchKinds::CONNEVENTS);
        if is_watched && peer.transport != Transport::Udp && self.state.watch().has_room(self.number) {
            let client = Client { address: peer.address(), transport: peer.transport, fd: peer.fd };
            self.state.watch().tell(self.number, unix_us(), What::Open(client), &[]);
        }
    }

    /// A connection has ended.
    pub(in crate::dispatch) fn observe_close(&self, handle: &Handle, reason: CloseReason) {
        let is_watched = self.state.watch().wanted().contains(WatchKinds::CONNEVENTS);
        if is_watched && self.state.watch().has_room(self.number) {
            let client = Client { address: handle.address(), transport: handle.transport(), fd: handle.fd() };
            self.state.watch().tell(self.number, unix_us(), What::Close(client, reason), &[]);
        }
    }

    // ---- watchers ----

    /// The client is told of what happens from now on.
    pub(super) fn begin_watching(&self, progress: &mut Progress, kinds: WatchKinds) -> Outcome<'static> {
        if progress.is_datagram {
            return Outcome::Refused(Refusal::NoRoomToWatch);
        }
        let (watch, cache) = (self.state.watch(), self.worker.cache());
        let added = watch.add(kinds, self.number, progress.id, |wanted| {
            cache.tell_departures(Hearer::Watchers, wanted.contains(WatchKinds::EVICTIONS));
        });
        match added {
            Ok(watcher) => progress.busy = Some(Busy::Watching(watcher)),
            Err(NoWatch::TooMany) => return Outcome::Refused(Refusal::TooManyWatchers),
            Err(NoWatch::NoMemory) => return Outcome::Refused(Refusal::NoRoomToWatch),
        }
        self.look_for_observers();
        Outcome::Done
    }

    /// The client is gone.
    pub(super) fn stop_watching(&self, watcher: &Arc<Watcher>) {
        let cache = self.worker.cache();
        self.state.watch().remove(watcher, |wanted| {
            cache.tell_departures(Hearer::Watchers, wanted.contains(WatchKinds::EVICTIONS));
        });
    }

    /// Names the connections of this worker for which other threads have something.
    pub(in crate::dispatch) fn wake_told(&self, wake: &mut Vec<ConnectionId>) {
        self.state.watch().news().take(self.number, wake);
    }
}

/// The item that an operation asks for.
fn subject<'a>(operation: &Operation<'a>) -> Option<(&'a [u8], KeyHash)> {
    match *operation {
        Operation::Read(Read { key, hash, .. })
        | Operation::Touch { key, hash, .. }
        | Operation::Arith(Arith { key, hash, .. })
        | Operation::Look(Look { key: ItemKey { key, hash, .. }, .. })
        | Operation::Edit(ItemKey { key, hash, .. }, _)
        | Operation::Copy(CopyItem { from: ItemKey { key, hash, .. }, .. }) => Some((key, hash)),
        Operation::Store(StoreItem { ref store, .. }) => Some((store.key, store.hash)),
        Operation::Delete(DeleteItem { ref delete, .. }) => Some((delete.key, delete.hash)),
        _ => None,
    }
}
