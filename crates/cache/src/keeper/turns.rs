//! How long the keeper is at work before others have their turn.

use super::KEEPER_PERIOD;
use std::time::{Duration, Instant};

/// How long a pass goes on, unless somebody waits for it, before it lets others have the core: a worker that shares it may have
/// requests waiting.
const TURN_MAX: Duration = Duration::from_micros(100);
/// What it leaves them, at least.
const PAUSE: Duration = Duration::from_micros(300);

/// How a pass goes about its column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// Somebody waits for it.
    Hurried,
    /// Others go first.
    Calm,
}

/// Work that is done in turns where it is not urgent.
pub(crate) struct Turns {
    pace: Pace,
    round_began: Instant,
    began: Instant,
    /// Time of the turns before this one.
    before: Duration,
}

impl Turns {
    pub(crate) fn begin(pace: Pace) -> Turns {
        let now = Instant::now();
        Turns { pace, round_began: now, began: now, before: Duration::ZERO }
    }

    /// Whether everything else the keeper does has waited long enough.
    pub(super) fn is_round_over(&self) -> bool {
        self.pace == Pace::Calm && self.round_began.elapsed() > KEEPER_PERIOD
    }

    /// Time at work, pauses left out.
    pub(super) fn worked(&self) -> Duration {
        self.before + self.began.elapsed()
    }

    pub(super) fn is_over(&self) -> bool {
        self.pace == Pace::Calm && self.began.elapsed() > TURN_MAX
    }

    /// Lets others run. A mere yield does not do: who has slept for long is owed more time than who has been at work all along.
    pub(super) fn pause(&mut self) {
        self.before = self.worked();
        std::thread::sleep(PAUSE);
        self.began = Instant::now();
    }
}
