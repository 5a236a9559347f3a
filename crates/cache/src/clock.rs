//! The server's clock: whole seconds, cheap to read, movable by `debugtime`.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What the server's clock reads when it starts. The reading 1 stays free to mean "already expired".
const CLOCK_START_S: u32 = 2;

/// Whole seconds since shortly before the server started.
///
/// Reading the time is one relaxed load. The server calls [`Clock::tick`] at least once a second. All orderings are relaxed: the
/// clock orders nothing, and a reader that is one tick late answers as if it had been asked a little earlier.
pub struct Clock {
    now_s: AtomicU32,
    /// Seconds that `debugtime` added.
    shift_s: AtomicI64,
    /// The reading at which `debugtime p` holds the clock; negative = the clock runs.
    held_s: AtomicI64,
    started: Instant,
    started_unix_s: i64,
}

impl Clock {
    /// A running clock.
    pub fn new() -> Self {
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
        Clock {
            now_s: AtomicU32::new(CLOCK_START_S),
            shift_s: AtomicI64::new(0),
            held_s: AtomicI64::new(-1),
            started: Instant::now(),
            started_unix_s: unix_s - CLOCK_START_S as i64,
        }
    }

    /// The current second, as of the last tick.
    #[inline]
    pub fn now_s(&self) -> u32 {
        self.now_s.load(Relaxed)
    }

    /// The unix time, seconds, at which this clock read 0.
    pub fn started_unix_s(&self) -> i64 {
        self.started_unix_s
    }

    /// Seconds since the server started.
    pub fn uptime_s(&self) -> u32 {
        self.now_s() - CLOCK_START_S
    }

    /// The unix time in seconds that belongs to the reading `at_s`.
    pub fn unix_s(&self, at_s: u32) -> i64 {
        self.started_unix_s + at_s as i64
    }

    /// Sets the clock to the machine's time. Returns the new reading.
    pub fn tick(&self) -> u32 {
        let held_s = self.held_s.load(Relaxed);
        let base_s =
            if held_s >= 0 { held_s } else { CLOCK_START_S as i64 + self.started.elapsed().as_secs() as i64 };
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
        self.held_s.store(CLOCK_START_S as i64 + self.started.elapsed().as_secs() as i64, Relaxed);
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
}
