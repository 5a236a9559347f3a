use std::time::{Duration, Instant};

/// The time of a simulated SSD, in nanoseconds since it was built.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    /// It stands still but for the calls that wait, so that a run takes no longer than its arithmetic.
    Virtual(u64),
    /// It goes as that of the caller, who waits until an operation has ended.
    Real(Instant),
}

impl Clock {
    /// A virtual clock at 0.
    pub(super) fn virtual_time() -> Clock {
        Clock::Virtual(0)
    }

    /// A clock that begins now.
    pub(super) fn real_time() -> Clock {
        Clock::Real(Instant::now())
    }

    /// Whether callers wait.
    pub(super) fn is_real(&self) -> bool {
        matches!(self, Clock::Real(_))
    }

    /// The time.
    pub(super) fn now_ns(&self) -> u64 {
        match self {
            Clock::Virtual(now) => *now,
            Clock::Real(begun) => begun.elapsed().as_nanos() as u64,
        }
    }

    /// Advances a virtual clock, if it is earlier.
    pub(super) fn reached(&mut self, ns: u64) {
        if let Clock::Virtual(now) = self {
            *now = ns.max(*now);
        }
    }

    /// How long it takes until `ns`, in real time.
    pub(super) fn left(&self, ns: u64) -> Duration {
        match self {
            Clock::Virtual(_) => Duration::ZERO,
            Clock::Real(_) => Duration::from_nanos(ns.saturating_sub(self.now_ns())),
        }
    }

    /// Sleeps until `ns`, in real time.
    pub(super) fn wait_until(&self, ns: u64) {
        let left = self.left(ns);
        if !left.is_zero() {
            std::thread::sleep(left);
        }
    }
}
