//! The server's clock: whole seconds that cost nothing to read, milliseconds for the few that need them, movable by
//! `debugtime`.
//!
//! Where memory is kept in a file, the clock of the next process goes on where that of the last one would be now. The
//! time since the machine was started connects the two, so nothing that is done to the machine's clock in between
//! changes how long an item lives.

use larder_item::Expiry;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the server's clock reads when it starts. The reading 1 stays free to mean "already expired".
const CLOCK_START_S: u32 = 2;

/// Seconds since shortly before the server started. A second begins when a second of the machine's clock begins, so a
/// time of this clock is a time of that one less a whole number of seconds. The first second is therefore shorter.
///
/// Reading the whole seconds is one relaxed load. The server calls [`Clock::tick`] at least once a second. All
/// orderings are relaxed: the clock orders nothing, and a reader that is one tick late answers as if it had been asked
/// a little earlier.
pub struct Clock {
    now_s: AtomicU32,
    /// Seconds that `debugtime` added.
    shift_s: AtomicI64,
    /// The reading at which `debugtime p` holds the clock; negative = the clock runs.
    held_s: AtomicI64,
    /// What the clock read when the process started.
    first_s: i64,
    /// When the clock read `first_s`.
    started: Instant,
    started_unix_s: i64,
}

/// The seconds of an earlier clock and of the new one need not begin at the same moment. The new clock may be late by
/// 50 milliseconds; otherwise it is early, by less than a second.
const LATE_MS_MAX: i64 = 50;

/// Milliseconds since the machine was started.
fn since_boot_ms() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

impl Clock {
    /// A running clock.
    pub fn new() -> Self {
        Clock::from(|_| i64::from(CLOCK_START_S))
    }

    /// A running clock that goes on from an earlier one, which was `offset_ms` ahead of the time since the machine was
    /// started ([`Clock::offset_ms`]).
    pub(crate) fn going_on(offset_ms: i64) -> Self {
        let now_ms = since_boot_ms() + offset_ms;
        Clock::from(|part_ms| {
            // So much is over of the present second.
            let first_s = (now_ms - part_ms - LATE_MS_MAX + 999).div_euclid(1000);
            first_s.clamp(i64::from(CLOCK_START_S), i64::from(u32::MAX / 2))
        })
    }

    /// How far the clock is ahead of the time since the machine was started, in milliseconds.
    pub(crate) fn offset_ms(&self) -> i64 {
        self.now_ms() - since_boot_ms()
    }

    /// A clock that reads `first_s` of the milliseconds that are over of the machine's present second.
    fn from(first_s: impl FnOnce(i64) -> i64) -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Instant::now();
        let first_s = first_s(unix.subsec_millis().into());
        Clock {
            now_s: AtomicU32::new(first_s as u32),
            first_s,
            shift_s: AtomicI64::new(0),
            held_s: AtomicI64::new(-1),
            started: now.checked_sub(Duration::from_nanos(unix.subsec_nanos().into())).unwrap_or(now),
            started_unix_s: unix.as_secs() as i64 - first_s,
        }
    }

    /// The current second, as of the last tick.
    #[inline]
    pub fn now_s(&self) -> u32 {
        self.now_s.load(Relaxed)
    }

    /// The time in milliseconds, now and not as of the last tick.
    pub fn now_ms(&self) -> i64 {
        let held_s = self.held_s.load(Relaxed);
        let base_ms = match held_s {
            ..0 => self.first_s * 1000 + self.started.elapsed().as_millis() as i64,
            held_s => held_s * 1000,
        };
        (base_ms + self.shift_s.load(Relaxed) * 1000).max(i64::from(CLOCK_START_S) * 1000)
    }

    /// Whether an item of this expiry has expired. Whole seconds are compared with the last tick, as memcached does,
    /// and milliseconds with the time now.
    pub fn has_passed(&self, expiry: Expiry) -> bool {
        match (expiry.early_ms(), expiry.milliseconds()) {
            (_, None) => false,
            (0, Some(_)) => expiry.is_past(self.now_s()),
            (_, Some(at_ms)) => at_ms <= self.now_ms(),
        }
    }

    /// The unix time in milliseconds that belongs to a time of this clock.
    pub fn unix_ms(&self, at_ms: i64) -> i64 {
        at_ms + self.started_unix_s * 1000
    }

    /// The unix time, seconds, at which this clock read 0.
    pub fn started_unix_s(&self) -> i64 {
        self.started_unix_s
    }

    /// The unix time, seconds, at which the process started.
    pub fn process_started_unix_s(&self) -> i64 {
        self.started_unix_s + self.first_s
    }

    /// Seconds since the process started.
    pub fn uptime_s(&self) -> u32 {
        (i64::from(self.now_s()) - self.first_s).max(0) as u32
    }

    /// The unix time in seconds that belongs to the reading `at_s`.
    pub fn unix_s(&self, at_s: u32) -> i64 {
        self.started_unix_s + at_s as i64
    }

    /// Sets the clock to the machine's time. Returns the new reading.
    pub fn tick(&self) -> u32 {
        let held_s = self.held_s.load(Relaxed);
        let base_s =
            if held_s >= 0 { held_s } else { self.first_s + self.started.elapsed().as_secs() as i64 };
        let now_s = (base_s + self.shift_s.load(Relaxed)).clamp(CLOCK_START_S as i64, u32::MAX as i64) as u32;
        self.now_s.store(now_s, Relaxed);
        now_s
    }

    /// `debugtime <seconds>`: moves the clock.
    pub fn shift(&self, seconds: i64) {
        self.shift_s.fetch_add(seconds, Relaxed);
        self.tick();
    }

    /// `debugtime p`: stops the clock.
    pub fn hold(&self) {
        self.held_s.store(self.first_s + self.started.elapsed().as_secs() as i64, Relaxed);
        self.tick();
    }

    /// `debugtime r`: lets the clock run again, at the machine's time.
    pub fn run(&self) {
        self.held_s.store(-1, Relaxed);
        self.shift_s.store(0, Relaxed);
        self.tick();
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debugtime_moves_holds_and_restores() {
        let clock = Clock::new();
        clock.hold();
        let start_s = clock.now_s();
        clock.shift(100);
        assert_eq!(clock.now_s(), start_s + 100);
        clock.shift(-1_000_000);
        assert_eq!(clock.now_s(), CLOCK_START_S, "the clock never reads 0 or 1");
        clock.run();
        assert!(clock.now_s() <= start_s + 5);
    }

    #[test]
    fn a_later_clock_goes_on_where_the_earlier_one_would_be() {
        let first = Clock::new();
        first.shift(1_000);
        let second = Clock::going_on(first.offset_ms());
        let early_ms = second.now_ms() - first.now_ms();
        assert!((-LATE_MS_MAX - 2..1_000).contains(&early_ms), "{early_ms}");
        assert!(i64::from(second.now_s()) - i64::from(first.tick()) <= 1);
        assert_eq!(second.uptime_s(), 0);
        let unix_ms = second.unix_ms(second.now_ms());
        let machine =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        assert!((machine - unix_ms).abs() <= 2, "times of clients are told by the machine's clock");
        // An earlier clock that went back further than there is time, by `debugtime`, begins anew.
        assert_eq!(Clock::going_on(i64::MIN / 4).now_s(), CLOCK_START_S);
    }

    #[test]
    fn milliseconds_and_seconds_are_the_same_clock() {
        let clock = Clock::new();
        let unix_ms =
            || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        let (before, now, after) = (unix_ms(), clock.unix_ms(clock.now_ms()), unix_ms());
        assert!(before - 2 <= now && now <= after + 2, "{before} {now} {after}");
        let late = Clock { now_s: AtomicU32::new(0), ..Clock::new() };
        let second = late.tick();
        assert!((late.now_ms() / 1000 - i64::from(second)).abs() <= 1);
        clock.hold();
        let held_ms = clock.now_ms();
        clock.shift(7);
        assert_eq!(clock.now_ms(), held_ms + 7000);
        assert!(clock.has_passed(Expiry::at_ms(held_ms + 6_999)), "to the millisecond");
        assert!(!clock.has_passed(Expiry::at_ms(held_ms + 7_001)));
        assert!(!clock.has_passed(Expiry::NEVER));
    }
}
