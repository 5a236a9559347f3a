//! What watchers are told of, and the lanes on which it travels: one for each worker, and one for all other threads.
//!
//! A lane is a bounded page behind a lock that its worker never waits for: an event that finds the page full, or the
//! thread's hand on it, is dropped and counted. The thread exchanges the page for an empty one and reads it at leisure.

use crate::io::{CloseReason, Transport};
use larder_cache::{Absence, Departure};
use larder_protocol::WatchKinds;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// Half of a page is for the events, the other half for their keys.
const EVENTS_SHARE: usize = 2;

/// Something that watchers are told of. Its key stands beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::dispatch) enum What {
    /// An item was asked for. `Ok` = the length of its value.
    Get { found: Result<u32, Absence>, fd: i32 },
    /// An item was to be stored. `value_bytes` and `class` are 0 if there was no room for it.
    Store { status: StoreStatus, command: StoreCommand, ttl_s: u32, class: u32, value_bytes: u32, fd: i32 },
    /// A client has deleted an item.
    Delete { is_meta: bool, value_bytes: u32 },
    /// An item was evicted.
    Evict(Leaver),
    /// An item was written to flash.
    WriteToFlash(Leaver),
    /// A connection was opened.
    Open(Client),
    /// A connection has ended.
    Close(Client, CloseReason),
}

/// An item that leaves memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::dispatch) struct Leaver {
    pub(in crate::dispatch) was_fetched: bool,
    pub(in crate::dispatch) ttl_s: Option<u32>,
    pub(in crate::dispatch) idle_s: u32,
    pub(in crate::dispatch) value_bytes: u32,
}

impl From<&Departure<'_>> for Leaver {
    fn from(gone: &Departure<'_>) -> Leaver {
        let Departure { was_fetched, ttl_s, idle_s, value_bytes, .. } = *gone;
        Leaver { was_fetched, ttl_s, idle_s, value_bytes }
    }
}

/// A connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::dispatch) struct Client {
    /// `None` = a unix socket, or an address that is not known any more.
    pub(in crate::dispatch) address: Option<SocketAddr>,
    pub(in crate::dispatch) transport: Transport,
    pub(in crate::dispatch) fd: i32,
}

/// What came of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::dispatch) enum StoreStatus {
    NotStored,
    Stored,
    Exists,
    NotFound,
    TooLarge,
    NoMemory,
}

/// How an item was to be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::dispatch) enum StoreCommand {
    Add,
    Set,
    Replace,
    Append,
    Prepend,
    Cas,
}

impl What {
    /// The stream that the event belongs to.
    pub(in crate::dispatch) fn kind(&self) -> WatchKinds {
        match self {
            What::Get { .. } => WatchKinds::FETCHERS,
            What::Store { .. } => WatchKinds::MUTATIONS,
            What::Delete { .. } => WatchKinds::DELETIONS,
            What::Evict(_) | What::WriteToFlash(_) => WatchKinds::EVICTIONS,
            What::Open(_) | What::Close(..) => WatchKinds::CONNEVENTS,
        }
    }
}

/// The time, in microseconds since 1970.
pub(in crate::dispatch) fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// An event on its lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::dispatch) struct Event {
    /// Its number: later events have higher ones.
    pub(in crate::dispatch) gid: u64,
    /// When it happened, in microseconds since 1970.
    pub(in crate::dispatch) at_us: u64,
    pub(in crate::dispatch) what: What,
    key_bytes: u8,
}

impl Event {
    /// `key` is cut off where no key ends.
    pub(in crate::dispatch) fn new(gid: u64, at_us: u64, what: What, key: &[u8]) -> Event {
        Event { gid, at_us, what, key_bytes: key.len().min(u8::MAX.into()) as u8 }
    }
}

/// Events in their order, and their keys.
#[derive(Default)]
pub(in crate::dispatch) struct Page {
    events: Vec<Event>,
    keys: Vec<u8>,
}

impl Page {
    /// An empty page of about `bytes` bytes.
    pub(in crate::dispatch) fn new(bytes: usize) -> Page {
        let half = bytes / EVENTS_SHARE;
        Page { events: Vec::with_capacity(half / size_of::<Event>()), keys: Vec::with_capacity(half) }
    }

    /// Whether there is room for one more event with the longest key. A page never grows.
    fn has_room(&self) -> bool {
        self.events.len() < self.events.capacity()
            && self.keys.len() + usize::from(u8::MAX) <= self.keys.capacity()
    }

    fn push(&mut self, event: Event, key: &[u8]) {
        self.events.push(event);
        self.keys.extend_from_slice(&key[..event.key_bytes.into()]);
    }

    /// The events with their keys.
    pub(in crate::dispatch) fn iter(&self) -> impl Iterator<Item = (&Event, &[u8])> {
        let mut at = 0;
        self.events.iter().map(move |event| {
            let key = &self.keys[at..at + usize::from(event.key_bytes)];
            at += key.len();
            (event, key)
        })
    }

    pub(in crate::dispatch) fn clear(&mut self) {
        self.events.clear();
        self.keys.clear();
    }
}

/// The way of one worker's events to the thread.
#[derive(Default)]
#[repr(align(128))]
pub(in crate::dispatch) struct Lane {
    /// The page had no room for the last event, and the thread has not taken it since.
    is_full: AtomicBool,
    written: AtomicU64,
    dropped: AtomicU64,
    page: Mutex<Page>,
}

/// Adds to a number that one thread writes.
fn add_one(count: &AtomicU64) {
    count.store(count.load(Relaxed) + 1, Relaxed);
}

impl Lane {
    /// Whether an event may find room. If not, it is counted as dropped. For the lane's own worker.
    #[inline]
    pub(in crate::dispatch) fn has_room(&self) -> bool {
        let is_full = self.is_full.load(Relaxed);
        if is_full {
            add_one(&self.dropped);
        }
        !is_full
    }

    /// Whether the page is full.
    #[inline]
    pub(in crate::dispatch) fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// `events` events found the page full. For the lane's own worker.
    pub(in crate::dispatch) fn drop_some(&self, events: u64) {
        self.dropped.store(self.dropped.load(Relaxed) + events, Relaxed);
    }

    /// Puts an event on the lane, if there is room. `gid` numbers it. For the lane's own worker.
    pub(in crate::dispatch) fn put(&self, gid: impl FnOnce() -> u64, at_us: u64, what: What, key: &[u8]) {
        if self.try_put(gid, at_us, what, key) {
            add_one(&self.written);
        } else {
            add_one(&self.dropped);
        }
    }

    /// As [`Lane::put`], on a lane of several threads.
    pub(in crate::dispatch) fn put_shared(
        &self,
        gid: impl FnOnce() -> u64,
        at_us: u64,
        what: What,
        key: &[u8],
    ) {
        let is_put = !self.is_full.load(Relaxed) && self.try_put(gid, at_us, what, key);
        if is_put { &self.written } else { &self.dropped }.fetch_add(1, Relaxed);
    }

    fn try_put(&self, gid: impl FnOnce() -> u64, at_us: u64, what: What, key: &[u8]) -> bool {
        let Ok(mut page) = self.page.try_lock() else { return false };
        if !page.has_room() {
            // Under the lock, so that the thread does not take the page in between.
            self.is_full.store(true, Relaxed);
            return false;
        }
        page.push(Event::new(gid(), at_us, what, key), key);
        true
    }

    /// The thread exchanges the page for an empty one.
    pub(in crate::dispatch) fn exchange(&self, page: &mut Page) {
        let mut held = self.page.lock().expect("no panic under this lock");
        std::mem::swap(&mut *held, page);
        self.is_full.store(false, Relaxed);
    }

    /// Events that were put on the lane, and events that were dropped.
    pub(in crate::dispatch) fn counts(&self) -> (u64, u64) {
        (self.written.load(Relaxed), self.dropped.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(fd: i32) -> What {
        What::Get { found: Ok(7), fd }
    }

    #[test]
    fn a_lane_keeps_the_order_and_drops_what_does_not_fit() {
        let (lane, mut page) = (Lane::default(), Page::new(4096));
        lane.exchange(&mut page);
        let mut fd = 0;
        while lane.has_room() {
            lane.put(|| fd as u64 + 1, 0, get(fd), format!("key {fd}").as_bytes());
            fd += 1;
        }
        let (written, dropped) = lane.counts();
        // One found the page full, and the next look counted another.
        assert_eq!((written, dropped), (fd as u64 - 1, 2));
        assert!(written > 10);
        page.clear();
        lane.exchange(&mut page);
        let read: Vec<_> = page.iter().map(|(event, key)| (event.gid, event.what, key.to_vec())).collect();
        let expected = (0..fd - 1).map(|n| (n as u64 + 1, get(n), format!("key {n}").into_bytes()));
        assert_eq!(read, expected.collect::<Vec<_>>());
    }

    #[test]
    fn nothing_waits_for_the_thread() {
        let lane = Lane::default();
        // Without a page there is no room.
        lane.put(|| 1, 0, get(0), b"a");
        lane.exchange(&mut Page::new(4096));
        let held = lane.page.lock().expect("nobody panicked");
        lane.put(|| 2, 0, get(0), b"b");
        lane.put_shared(|| 3, 0, get(0), b"c");
        drop(held);
        assert_eq!(lane.counts(), (0, 3));
        lane.put_shared(|| 4, 0, get(0), &[0x61; 300]);
        assert_eq!(lane.counts(), (1, 3));
    }
}
