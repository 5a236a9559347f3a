//! The status of the tier as a whole: its counters, its clock, and how its threads wait, stop and yield the core.
//!
//! The lowest component: it knows no other one. Its one lock, `work`, is a leaf: nothing else is locked under it.

use super::stats::Counters;
use crate::device::{DeviceError, ZoneId};
use crate::segment::ScanError;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// How long a thread sleeps if nothing wakes it.
pub(crate) const NAP: Duration = Duration::from_millis(100);
/// How long background work runs before it yields the core, which a worker may need.
const SLICE: Duration = Duration::from_micros(100);
/// How long background work then sleeps.
const PAUSE: Duration = Duration::from_micros(300);
/// 16 errors are logged one by one; beyond that only each power of two.
const LOGGED_MAX: u64 = 16;

/// The clock of the tier: unix seconds.
pub(crate) type Clock = Arc<dyn Fn() -> u32 + Send + Sync>;

/// Counters, clock, and what the threads of the tier share.
pub(crate) struct Status {
    /// The counters that [`crate::FlashStats`] shows.
    pub(crate) counters: Counters,
    now_unix_s: Clock,
    opened: Instant,
    /// Whether segments of an earlier run are still being taken in.
    recovering: AtomicBool,
    /// Whether threads run. Without them there is no worker that background work could disturb.
    threaded: AtomicBool,
    stopping: AtomicBool,
    /// Grows whenever there is something to do.
    work: Mutex<u64>,
    woken: Condvar,
    /// When [`Status::ask`] last woke the threads, milliseconds since the tier was opened.
    asked_ms: AtomicU64,
    /// When the device last took pages of a segment, milliseconds since the tier was opened.
    progressed_ms: AtomicU64,
    /// Somebody waits until evicted items find room in the buffers.
    room_wanted: AtomicBool,
}

impl Status {
    /// The status of a tier that is being opened.
    pub(crate) fn new(now_unix_s: Clock) -> Status {
        Status {
            counters: Counters::default(),
            now_unix_s,
            opened: Instant::now(),
            recovering: AtomicBool::new(false),
            threaded: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            work: Mutex::default(),
            woken: Condvar::new(),
            asked_ms: AtomicU64::new(0),
            progressed_ms: AtomicU64::new(0),
            room_wanted: AtomicBool::new(false),
        }
    }

    /// The time, unix seconds.
    pub(crate) fn now(&self) -> u32 {
        (self.now_unix_s)()
    }

    /// Seconds since the tier was opened.
    pub(crate) fn open_for_s(&self) -> f64 {
        self.opened.elapsed().as_secs_f64()
    }

    fn open_for_ms(&self) -> u64 {
        self.opened.elapsed().as_millis() as u64
    }

    /// The device has taken pages of a segment.
    pub(crate) fn note_progress(&self) {
        self.progressed_ms.store(self.open_for_ms(), Relaxed);
    }

    /// For how long the device has taken nothing of a segment, milliseconds.
    pub(crate) fn stalled_for_ms(&self) -> u64 {
        self.open_for_ms().saturating_sub(self.progressed_ms.load(Relaxed))
    }

    /// Somebody waits from now on until evicted items find room in the buffers.
    pub(crate) fn want_room(&self) {
        self.room_wanted.store(true, SeqCst);
    }

    /// Whether somebody waits for room, as far as nobody has asked this since.
    pub(crate) fn take_room_wanted(&self) -> bool {
        self.room_wanted.load(SeqCst) && self.room_wanted.swap(false, SeqCst)
    }

    /// Whether a recovery is under way: the device holds segments that are not known yet.
    pub(crate) fn is_recovering(&self) -> bool {
        self.recovering.load(SeqCst)
    }

    /// Notes that a recovery begins or has ended.
    pub(crate) fn set_recovering(&self, recovering: bool) {
        self.recovering.store(recovering, SeqCst);
    }

    /// Notes that threads run, or that none runs any more.
    pub(crate) fn set_threaded(&self, threaded: bool) {
        self.threaded.store(threaded, SeqCst);
    }

    /// Whether threads run.
    pub(crate) fn is_threaded(&self) -> bool {
        self.threaded.load(SeqCst)
    }

    /// Tells the threads to end, or that new work may begin.
    pub(crate) fn set_stopping(&self, stopping: bool) {
        self.stopping.store(stopping, SeqCst);
        if stopping {
            self.wake();
        }
    }

    /// Whether the threads are to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Wakes the threads, because there is something to do.
    pub(crate) fn wake(&self) {
        // A thread that is about to sleep has compared the number under the lock, so it does not miss this.
        *self.work.lock().expect("no panic under this lock") += 1;
        self.woken.notify_all();
    }

    /// Wakes the threads, because something waits for them, once in a millisecond at most: a thousand callers that wait
    /// for the same would keep all of them awake.
    pub(crate) fn ask(&self) {
        let now_ms = self.open_for_ms() + 1;
        if self.asked_ms.swap(now_ms, Relaxed) != now_ms {
            self.wake();
        }
    }

    /// Runs `work` again and again until the threads are to end. Where there was nothing to do it sleeps until it is
    /// woken, for 100 ms at most.
    pub(crate) fn work_until_stopped(&self, mut work: impl FnMut() -> bool) {
        let mut seen = 0;
        while !self.is_stopping() {
            if !work() {
                let waiting = self.work.lock().expect("no panic under this lock");
                let waited = self.woken.wait_timeout_while(waiting, NAP, |now| *now == seen);
                seen = *waited.expect("no panic under this lock").0;
            }
        }
    }

    /// Counts an error of the device and logs it, unless there were many.
    pub(crate) fn device_error(&self, what: &str, zone: ZoneId, error: &DeviceError) {
        let count = self.counters.device_errors.fetch_add(1, Relaxed);
        if count < LOGGED_MAX || count.is_power_of_two() {
            tracing::warn!("flash: {what} of zone {}: {error} (error {})", zone.0, count + 1);
        }
    }

    /// Counts and logs an error of reading a segment from end to end.
    pub(crate) fn scan_error(&self, zone: ZoneId, error: &ScanError) {
        match error {
            ScanError::Device(error) => self.device_error("scan", zone, error),
            ScanError::Page(_) | ScanError::Records => {
                let count = self.counters.damaged_pages.fetch_add(1, Relaxed);
                if count < LOGGED_MAX || count.is_power_of_two() {
                    tracing::warn!("flash: scan of zone {}: {error} (damage {})", zone.0, count + 1);
                }
            }
        }
    }
}

/// How long background work may keep the core. To be begun with the work and asked often.
pub(crate) struct TimeSlice<'a> {
    status: &'a Status,
    begun: Instant,
}

impl<'a> TimeSlice<'a> {
    /// A slice that begins now.
    pub(crate) fn begin(status: &'a Status) -> TimeSlice<'a> {
        TimeSlice { status, begun: Instant::now() }
    }

    /// After 100 us of work, sleeps for 300 us, unless the result of the work is urgently needed. Only yielding would
    /// not do: a scheduler prefers the thread that slept longer.
    pub(crate) fn yield_if_due(&mut self, is_urgent: impl Fn() -> bool) {
        if self.begun.elapsed() < SLICE {
            return;
        }
        if self.status.threaded.load(SeqCst) && !is_urgent() {
            std::thread::sleep(PAUSE);
        }
        self.begun = Instant::now();
    }
}
