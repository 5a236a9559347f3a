//! `watch`: clients that read, line by line, what the server does.
//!
//! * `event.rs`: what they are told of, and how it travels from the workers, which never wait for anybody;
//! * `line.rs`: the lines;
//! * `line_thread.rs`: the thread that makes lines of events, and gives them to the watchers, for as long as there are
//!   any.
//!
//! A watcher's connection stays with its worker. The thread appends lines to the watcher's buffer and rings the
//! worker's bell; the worker takes as many lines as the connection's output has room for. What finds no room on the way
//! is dropped and counted: on a worker's lane (`log_worker_dropped`), or in front of a watcher's buffer, which is told
//! `skipped=N` (`log_watcher_skipped`). All buffers are in the account of connection buffers.

mod event;
mod line;
mod line_thread;

pub(super) use event::{Client, StoreCommand, StoreStatus, What, unix_us};

use super::news::News;
use crate::io::{Bells, Buffers, Charge, ConnectionId};
use event::{Lane, Leaver, Page};
use larder_cache::{Departure, Destination};
use larder_protocol::WatchKinds;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// The most watchers, as in memcached.
const WATCHERS_MAX: usize = 20;
/// Bytes of a watcher's buffer and of a lane's page, as in memcached. They are smaller where connections may hold
/// little: one part in this number of that, so that all watchers together hold less than a third.
const WATCHER_BYTES_MAX: u64 = 256 << 10;
const PAGE_BYTES_MAX: u64 = 64 << 10;
const BYTES_MIN: u64 = 16 << 10;
const SHARE_OF_BUFFERS: u64 = 64;
/// A line is skipped if it does not leave this number of bytes of the buffer free: the line that tells of skipped ones
/// fits then.
const RESERVE_BYTES: usize = 128;

/// Everything about watching that the workers share.
pub(crate) struct Watch {
    /// The streams that somebody watches, as [`WatchKinds::bits`].
    wanted: AtomicU16,
    /// The number of the last event.
    gid: AtomicU64,
    /// One for each worker, and the last one for all other threads.
    lanes: Box<[Lane]>,
    watchers: Mutex<Watchers>,
    /// Watchers for which there are lines.
    news: Arc<News>,
    skipped: AtomicU64,
    sent: AtomicU64,
    at_reset: Mutex<WatchCounts>,
    buffers: Option<Arc<Buffers>>,
}

/// The watchers, and what is there for as long as there are any.
#[derive(Default)]
struct Watchers {
    all: Vec<Arc<Watcher>>,
    /// The thread runs, and the lanes have pages.
    has_thread: bool,
    /// The pages of the lanes in the account of connection buffers.
    charge: Charge,
}

/// What was counted of watching, with the names of memcached's statistics.
#[derive(Clone, Copy, Default)]
pub(crate) struct WatchCounts {
    pub(crate) worker_dropped: u64,
    pub(crate) worker_written: u64,
    pub(crate) watcher_skipped: u64,
    pub(crate) watcher_sent: u64,
}

/// Why a client cannot watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoWatch {
    /// There are as many watchers as there may be.
    TooMany,
    /// There is no memory for its lines.
    NoMemory,
}

/// A client that watches.
pub(super) struct Watcher {
    kinds: WatchKinds,
    /// It is told of events from this number on.
    first_gid: u64,
    worker: usize,
    id: ConnectionId,
    /// Its worker was told that there are lines, and has not looked since.
    is_told: AtomicBool,
    lines: Mutex<Lines>,
    bytes_max: usize,
    _charge: Charge,
}

#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// Lines that found no room since the last one that did.
    skipped: u64,
}

impl Lines {
    /// Appends a line if it fits, behind one that tells how many did not. Returns whether it did.
    fn append(&mut self, line: &[u8], bytes_max: usize) -> bool {
        if self.bytes.len() + line.len() + RESERVE_BYTES > bytes_max {
            self.skipped += 1;
            return false;
        }
        if self.skipped > 0 {
            self.bytes.extend_from_slice(format!("skipped={}\n", self.skipped).as_bytes());
            self.skipped = 0;
        }
        self.bytes.extend_from_slice(line);
        true
    }
}

impl Watcher {
    fn lock_lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().expect("no panic under this lock")
    }

    fn wants(&self, kind: WatchKinds, gid: u64) -> bool {
        self.kinds.contains(kind) && gid >= self.first_gid
    }

    /// Moves lines to `out`, at most `room` bytes of them. It does not wait: while the thread writes there are none,
    /// and the thread tells the worker again.
    pub(super) fn take(&self, room: usize, out: &mut Vec<u8>) {
        self.is_told.store(false, Relaxed);
        let Ok(mut lines) = self.lines.try_lock() else { return };
        let bytes = room.min(lines.bytes.len());
        out.extend_from_slice(&lines.bytes[..bytes]);
        lines.bytes.drain(..bytes);
    }

    /// Bytes in the account of connection buffers, while there are lines that the client has not taken.
    pub(super) fn held_bytes(&self) -> u64 {
        let is_behind = self.lines.try_lock().is_ok_and(|lines| lines.bytes.len() > self.bytes_max / 2);
        if is_behind { self.bytes_max as u64 } else { 0 }
    }
}

impl Watch {
    pub(super) fn new(workers: usize, bells: Option<Bells>, buffers: Option<Arc<Buffers>>) -> Watch {
        Watch {
            wanted: AtomicU16::new(0),
            gid: AtomicU64::new(0),
            lanes: (0..=workers).map(|_| Lane::default()).collect(),
            watchers: Mutex::default(),
            news: Arc::new(News::new(workers, bells)),
            skipped: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            at_reset: Mutex::default(),
            buffers,
        }
    }

    // ---- for those to whom something happens ----

    /// The streams that somebody watches.
    #[inline]
    pub(super) fn wanted(&self) -> WatchKinds {
        WatchKinds::of_bits(self.wanted.load(Relaxed))
    }

    /// Whether an event of this worker may find room. If not it is counted as dropped.
    #[inline]
    pub(super) fn has_room(&self, worker: usize) -> bool {
        self.lanes[worker].has_room()
    }

    /// Whether the page of a worker is full.
    #[inline]
    pub(super) fn is_full(&self, worker: usize) -> bool {
        self.lanes[worker].is_full()
    }

    /// A worker had `events` events for which its page had no room.
    pub(super) fn drop_some(&self, worker: usize, events: u64) {
        self.lanes[worker].drop_some(events);
    }

    /// Tells of an event of a worker at a time from [`unix_us`]. The caller has seen that somebody watches its stream.
    pub(super) fn tell(&self, worker: usize, at_us: u64, what: What, key: &[u8]) {
        self.lanes[worker].put(|| self.next_gid(), at_us, what, key);
    }

    /// Tells of an item that leaves memory, on any thread.
    pub(crate) fn tell_departure(&self, gone: &Departure<'_>) {
        if !self.wanted().contains(WatchKinds::EVICTIONS) {
            return;
        }
        let what = match gone.to {
            Destination::Nowhere => What::Evict(Leaver::from(gone)),
            Destination::Flash => What::WriteToFlash(Leaver::from(gone)),
            Destination::OnFlashAlready => return,
        };
        let lane = self.lanes.last().expect("there is a lane for all other threads");
        lane.put_shared(|| self.next_gid(), unix_us(), what, gone.key);
    }

    fn next_gid(&self) -> u64 {
        self.gid.fetch_add(1, Relaxed) + 1
    }

    // ---- for watchers ----

    /// Makes a watcher of a connection. `on_change` is told which streams are watched from now on.
    pub(super) fn add(
        self: &Arc<Watch>,
        kinds: WatchKinds,
        worker: usize,
        id: ConnectionId,
        on_change: impl FnOnce(WatchKinds),
    ) -> Result<Arc<Watcher>, NoWatch> {
        let mut watchers = self.lock_watchers();
        if watchers.all.len() >= WATCHERS_MAX {
            return Err(NoWatch::TooMany);
        }
        let bytes_max = self.bytes_of(WATCHER_BYTES_MAX);
        let charge = self.charge(bytes_max).ok_or(NoWatch::NoMemory)?;
        if !watchers.has_thread {
            self.start_thread(&mut watchers)?;
        }
        let watcher = Arc::new(Watcher {
            kinds,
            first_gid: self.next_gid(),
            worker,
            id,
            is_told: AtomicBool::new(false),
            lines: Mutex::default(),
            bytes_max: bytes_max as usize,
            _charge: charge,
        });
        watchers.all.push(watcher.clone());
        self.want(&watchers, on_change);
        Ok(watcher)
    }

    /// The connection of a watcher is gone.
    pub(super) fn remove(&self, watcher: &Arc<Watcher>, on_change: impl FnOnce(WatchKinds)) {
        let mut watchers = self.lock_watchers();
        watchers.all.retain(|other| !Arc::ptr_eq(other, watcher));
        self.want(&watchers, on_change);
    }

    fn want(&self, watchers: &Watchers, on_change: impl FnOnce(WatchKinds)) {
        let none = WatchKinds::default();
        let wanted = watchers.all.iter().fold(none, |wanted, watcher| wanted.union(watcher.kinds));
        self.wanted.store(wanted.bits(), Relaxed);
        on_change(wanted);
    }

    /// Bytes of a watcher's buffer and of a lane's page, for watchers that come now.
    pub(super) fn buffer_bytes(&self) -> (u64, u64) {
        (self.bytes_of(WATCHER_BYTES_MAX), self.bytes_of(PAGE_BYTES_MAX))
    }

    /// How large a buffer may be that is not larger than `most`.
    fn bytes_of(&self, most: u64) -> u64 {
        let limit = self.buffers.as_ref().map_or(u64::MAX, |buffers| buffers.limit_bytes());
        most.min((limit / SHARE_OF_BUFFERS).max(BYTES_MIN))
    }

    /// Takes bytes from the account of connection buffers.
    fn charge(&self, bytes: u64) -> Option<Charge> {
        let mut charge = Charge::default();
        let fits = self.buffers.as_ref().is_none_or(|buffers| charge.try_grow(buffers, bytes));
        fits.then_some(charge)
    }

    fn start_thread(self: &Arc<Watch>, watchers: &mut Watchers) -> Result<(), NoWatch> {
        let page_bytes = self.bytes_of(PAGE_BYTES_MAX);
        // The thread has one page itself.
        let charge = self.charge(page_bytes * (self.lanes.len() as u64 + 1)).ok_or(NoWatch::NoMemory)?;
        let page = || Page::new(page_bytes as usize);
        let (watch, spare) = (self.clone(), page());
        let thread =
            std::thread::Builder::new().name("watch".into()).spawn(move || line_thread::run(&watch, spare));
        if let Err(error) = thread {
            tracing::warn!("nobody can watch: {error}");
            return Err(NoWatch::NoMemory);
        }
        self.lanes.iter().for_each(|lane| lane.exchange(&mut page()));
        (watchers.has_thread, watchers.charge) = (true, charge);
        Ok(())
    }

    /// Nobody watches any more: the memory of the lanes is given back.
    fn end_thread(&self, watchers: &mut Watchers) {
        self.lanes.iter().for_each(|lane| lane.exchange(&mut Page::default()));
        *watchers = Watchers::default();
    }

    fn lock_watchers(&self) -> MutexGuard<'_, Watchers> {
        self.watchers.lock().expect("no panic under this lock")
    }

    /// Connections for which other threads have something.
    #[inline]
    pub(super) fn news(&self) -> &Arc<News> {
        &self.news
    }

    // ---- for statistics ----

    /// How many watchers there are.
    pub(crate) fn watchers(&self) -> usize {
        self.lock_watchers().all.len()
    }

    /// What was counted since the last [`Watch::reset_counts`].
    pub(crate) fn counts(&self) -> WatchCounts {
        let (now, before) = (self.counted(), *self.at_reset.lock().expect("no panic under this lock"));
        WatchCounts {
            worker_dropped: now.worker_dropped.saturating_sub(before.worker_dropped),
            worker_written: now.worker_written.saturating_sub(before.worker_written),
            watcher_skipped: now.watcher_skipped.saturating_sub(before.watcher_skipped),
            watcher_sent: now.watcher_sent.saturating_sub(before.watcher_sent),
        }
    }

    /// `stats reset`.
    pub(super) fn reset_counts(&self) {
        *self.at_reset.lock().expect("no panic under this lock") = self.counted();
    }

    fn counted(&self) -> WatchCounts {
        let (mut worker_written, mut worker_dropped) = (0, 0);
        for (written, dropped) in self.lanes.iter().map(Lane::counts) {
            (worker_written, worker_dropped) = (worker_written + written, worker_dropped + dropped);
        }
        WatchCounts {
            worker_dropped,
            worker_written,
            watcher_skipped: self.skipped.load(Relaxed),
            watcher_sent: self.sent.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_watcher_cannot_take_is_counted_and_told() {
        let mut lines = Lines::default();
        let line = [b'x'; 50];
        let fitting = (0..20).filter(|_| lines.append(&line, 400)).count();
        assert_eq!((fitting, lines.skipped), (5, 15));
        lines.bytes.drain(..100);
        assert!(lines.append(&line, 400));
        assert!(lines.bytes.ends_with(&[&b"skipped=15\n"[..], &line].concat()));
        assert_eq!(lines.skipped, 0);
    }

    #[test]
    fn memory_is_in_the_account_and_comes_back() {
        let buffers = Arc::new(Buffers::new(64 << 20));
        let watch = Arc::new(Watch::new(2, None, Some(buffers.clone())));
        let id = ConnectionId::of(3, 4);
        let (mut wanted, mut watchers) = (WatchKinds::default(), Vec::new());
        for _ in 0..WATCHERS_MAX {
            let added = watch.add(WatchKinds::EVICTIONS, 1, id, |now| wanted = now);
            watchers.push(added.expect("there is room"));
        }
        assert!(watch.add(WatchKinds::FETCHERS, 1, id, |_| ()).is_err_and(|why| why == NoWatch::TooMany));
        assert!(wanted == WatchKinds::EVICTIONS && watch.wanted() == wanted);
        assert_eq!(buffers.used_bytes(), (20 * WATCHER_BYTES_MAX) + 4 * PAGE_BYTES_MAX);
        for watcher in watchers.drain(..) {
            watch.remove(&watcher, |now| wanted = now);
        }
        assert!(wanted == WatchKinds::default() && watch.watchers() == 0);
        let started = std::time::Instant::now();
        while buffers.used_bytes() > 0 {
            assert!(started.elapsed().as_secs() < 20, "{} bytes are left", buffers.used_bytes());
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // Where there is no room, nobody watches and nothing is held.
        buffers.take((64 << 20) - 1000);
        let refused = watch.add(WatchKinds::FETCHERS, 1, id, |_| ());
        assert!(refused.is_err_and(|why| why == NoWatch::NoMemory));
        assert_eq!(buffers.used_bytes(), (64 << 20) - 1000);
    }

    #[test]
    fn a_watcher_hears_of_its_streams_from_then_on() {
        let watch = Arc::new(Watch::new(1, None, None));
        let id = ConnectionId::of(0, 1);
        let get = |fd| What::Get { found: Ok(1), fd };
        let first = watch.add(WatchKinds::FETCHERS, 0, id, |_| ()).expect("there is room");
        watch.tell(0, 0, get(1), b"before");
        let both = WatchKinds::FETCHERS.union(WatchKinds::DELETIONS);
        let second = watch.add(both, 0, id, |_| ()).expect("there is room");
        watch.tell(0, 0, get(2), b"after");
        watch.tell(0, 0, What::Delete { is_meta: false, value_bytes: 1 }, b"gone");
        let read = |watcher: &Watcher, until: &str| {
            let mut out = Vec::new();
            let started = std::time::Instant::now();
            loop {
                watcher.take(usize::MAX, &mut out);
                let text = String::from_utf8_lossy(&out).into_owned();
                if text.contains(until) {
                    return text;
                }
                assert!(started.elapsed().as_secs() < 20, "{text}");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        let text = read(&second, "key=gone");
        assert!(!text.contains("key=before") && text.contains("key=after"), "{text}");
        let text = read(&first, "key=after");
        assert!(text.contains("key=before") && !text.contains("key=gone"), "{text}");
        let mut news = Vec::new();
        watch.news.take(0, &mut news);
        assert!(news.iter().all(|named| *named == id) && !news.is_empty());
        assert_eq!((watch.counts().worker_written, watch.counts().watcher_sent), (3, 4));
        watch.reset_counts();
        assert_eq!(watch.counts().worker_written, 0);
        watch.remove(&first, |_| ());
        watch.remove(&second, |_| ());
    }
}
