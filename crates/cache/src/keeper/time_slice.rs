//! How long the keeper works before it lets other threads run.

use std::time::{Duration, Instant};

/// How often the keeper begins a round without being woken. A round that takes longer is ended, and the next one goes
/// on.
pub(super) const ROUND_PERIOD: Duration = Duration::from_millis(100);
/// How long the keeper works in one go, unless a writer waits for it. A worker on the same core may have requests to
/// answer.
const SLICE_MAX: Duration = Duration::from_micros(100);
/// How long the keeper sleeps between two slices, at least.
const PAUSE: Duration = Duration::from_micros(300);
/// After work that nobody waits for, and that cannot be divided, the keeper sleeps for so many times as long.
const LONG_PAUSE_TIMES: u32 = 3;
const LONG_PAUSE_MAX: Duration = Duration::from_millis(20);

/// How urgent the work is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    /// A thread waits for the result. There are no pauses and no end of the round.
    Hurried,
    /// Other threads go first.
    Calm,
}

/// Divides the work of a round into slices, with pauses between them.
pub(super) struct TimeSlice {
    pace: Pace,
    round_began: Instant,
    slice_began: Instant,
    /// Time worked in earlier slices of this round.
    worked_before: Duration,
}

impl TimeSlice {
    /// The first slice of a round.
    pub(super) fn begin(pace: Pace) -> TimeSlice {
        let now = Instant::now();
        TimeSlice { pace, round_began: now, slice_began: now, worked_before: Duration::ZERO }
    }

    /// Whether nobody waits for the round.
    pub(super) fn is_calm(&self) -> bool {
        self.pace == Pace::Calm
    }

    /// Whether the round has gone on for so long that the keeper's other work must have its turn.
    pub(super) fn is_round_over(&self) -> bool {
        self.pace == Pace::Calm && self.round_began.elapsed() > ROUND_PERIOD
    }

    /// Time worked since the round began, pauses left out.
    pub(super) fn worked(&self) -> Duration {
        self.worked_before + self.slice_began.elapsed()
    }

    /// Sleeps for a moment if the slice is over and `may_pause` agrees.
    pub(super) fn yield_if_due(&mut self, may_pause: impl FnOnce() -> bool) {
        if self.pace == Pace::Calm && self.slice_began.elapsed() > SLICE_MAX && may_pause() {
            self.pause(PAUSE);
        }
    }

    /// Sleeps after a piece of work that may have taken longer than a slice, for as long as it deserves.
    pub(super) fn yield_long(&mut self) {
        let worked = self.slice_began.elapsed();
        if self.pace == Pace::Calm && worked > SLICE_MAX {
            self.pause((LONG_PAUSE_TIMES * worked).clamp(PAUSE, LONG_PAUSE_MAX));
        }
    }

    fn pause(&mut self, pause: Duration) {
        self.worked_before = self.worked();
        // A mere yield would not do: the scheduler owes more time to a thread that slept for long than to one that
        // was at work all along.
        std::thread::sleep(pause);
        self.slice_began = Instant::now();
    }
}
