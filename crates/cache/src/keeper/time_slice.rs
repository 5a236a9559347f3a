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
/// After work that nobody waits for, and that cannot be divided, the keeper sleeps three times as long, 20 ms at most.
const LONG_PAUSE_TIMES: u32 = 3;
const LONG_PAUSE_MAX: Duration = Duration::from_millis(20);

/// After a slice of work that pays off slowly, the keeper sleeps 19 times as long: such work takes a twentieth of a
/// processor.
const LEISURE_TIMES: u32 = 19;

/// How urgent the work is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    /// A thread waits for the result. There are no pauses and no end of the round.
    Hurried,
    /// The same, and the thread is a writer that finds no room: nothing is done that can be left out.
    ForWriter,
    /// Other threads go first.
    Calm,
}

/// Divides the work of a round into slices, with pauses between them, and gives each task of the round its share.
pub(super) struct TimeSlice {
    pace: Pace,
    round_began: Instant,
    /// When the present task has to end, counted from the begin of the round.
    task_end: Duration,
    /// When it has had its share, counted the same way. What makes room has no end of its share.
    share_end: Duration,
    has_share: bool,
    slice_began: Instant,
    /// Time worked in earlier slices of this round.
    worked_before: Duration,
}

impl TimeSlice {
    /// The first slice of a round.
    pub(super) fn begin(pace: Pace) -> TimeSlice {
        TimeSlice::begun_at(pace, Instant::now())
    }

    /// The present slice of a round that began at `round_began`.
    pub(super) fn begun_at(pace: Pace, round_began: Instant) -> TimeSlice {
        TimeSlice {
            pace,
            round_began,
            task_end: ROUND_PERIOD,
            share_end: Duration::MAX,
            has_share: true,
            slice_began: Instant::now(),
            worked_before: Duration::ZERO,
        }
    }

    /// Begins with making room, which has all of the round but for `later`.
    pub(super) fn begin_making_room(&mut self, later: Duration) {
        self.begin_task(Duration::ZERO, later);
        (self.share_end, self.has_share) = (Duration::MAX, true);
    }

    /// Begins the next task of the round. It has what is left of the round but for `later`, which belongs to the tasks
    /// behind it, and `least`, its share, in any case.
    pub(super) fn begin_task(&mut self, least: Duration, later: Duration) {
        self.share_end = self.round_began.elapsed() + least;
        self.has_share = !least.is_zero();
        self.task_end = self.share_end.max(ROUND_PERIOD.saturating_sub(later));
    }

    /// Whether the task has gone on for so long that the next one must have its turn. With `is_room_short`, what is
    /// more than its share is for making room, in the next round.
    pub(super) fn is_task_over(&self, is_room_short: bool) -> bool {
        let end = if is_room_short { self.share_end.min(self.task_end) } else { self.task_end };
        self.pace == Pace::Calm && self.round_began.elapsed() > end
    }

    /// Whether the task has a share of the round's time. A task without a share runs in the time that the others leave.
    pub(super) fn has_share(&self) -> bool {
        self.has_share
    }

    /// Whether a writer waits that finds no room.
    pub(super) fn is_for_writer(&self) -> bool {
        self.pace == Pace::ForWriter
    }

    /// Whether nobody waits for the round.
    pub(super) fn is_calm(&self) -> bool {
        self.pace == Pace::Calm
    }

    /// Time worked since the round began, pauses left out.
    pub(super) fn worked(&self) -> Duration {
        self.worked_before + self.slice_began.elapsed()
    }

    /// Sleeps for a moment if the slice is over and `may_pause` agrees.
    pub(super) fn yield_if_due(&mut self, may_pause: impl FnOnce() -> bool) {
        if self.pace == Pace::Calm && self.slice_began.elapsed() > SLICE_MAX && may_pause() {
            self.sleep(PAUSE);
        }
    }

    /// Sleeps after a piece of work that may have taken longer than a slice, for as long as it deserves.
    pub(super) fn yield_long(&mut self) {
        let worked = self.slice_began.elapsed();
        if self.pace == Pace::Calm && worked > SLICE_MAX {
            self.sleep((LONG_PAUSE_TIMES * worked).clamp(PAUSE, LONG_PAUSE_MAX));
        }
    }

    /// Sleeps if the slice is over, after work that pays off slowly.
    pub(super) fn yield_at_leisure(&mut self) {
        let worked = self.slice_began.elapsed();
        if self.pace == Pace::Calm && worked > SLICE_MAX {
            self.sleep((LEISURE_TIMES * worked).min(LONG_PAUSE_MAX));
        }
    }

    /// Sleeps for a moment, so that other threads can do what the keeper waits for.
    pub(super) fn pause(&mut self) {
        if self.pace == Pace::Calm {
            self.sleep(PAUSE);
        }
    }

    fn sleep(&mut self, pause: Duration) {
        self.worked_before = self.worked();
        // A mere yield would not do: the scheduler owes more time to a thread that slept for long than to one that
        // was at work all along.
        std::thread::sleep(pause);
        self.slice_began = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: Duration = Duration::from_secs(3600);

    #[test]
    fn a_task_has_its_own_share_also_when_the_round_is_over() {
        let long_ago = Instant::now() - 10 * ROUND_PERIOD;
        let mut slice = TimeSlice::begun_at(Pace::Calm, long_ago);
        assert!(slice.is_task_over(false));
        slice.begin_task(Duration::ZERO, Duration::ZERO);
        assert!(slice.is_task_over(false));
        slice.begin_task(SHARE, Duration::ZERO);
        assert!(!slice.is_task_over(false));
    }

    #[test]
    fn a_task_leaves_what_belongs_to_later_ones() {
        let mut slice = TimeSlice::begun_at(Pace::Calm, Instant::now() - ROUND_PERIOD / 2);
        slice.begin_task(Duration::ZERO, ROUND_PERIOD * 3 / 4);
        assert!(slice.is_task_over(false));
        slice.begin_task(SHARE, ROUND_PERIOD * 3 / 4);
        assert!(!slice.is_task_over(false));
    }

    #[test]
    fn while_room_is_short_a_task_has_no_more_than_its_share() {
        let mut slice = TimeSlice::begin(Pace::Calm);
        slice.begin_making_room(Duration::ZERO);
        assert!(!slice.is_task_over(true));
        slice.begin_task(SHARE, Duration::ZERO);
        assert!(!slice.is_task_over(true));
        slice.begin_task(Duration::ZERO, Duration::ZERO);
        slice.task_end = SHARE;
        assert!(slice.is_task_over(true) && !slice.is_task_over(false));
    }

    #[test]
    fn a_round_that_somebody_waits_for_has_no_end() {
        let mut slice = TimeSlice::begun_at(Pace::Hurried, Instant::now() - 10 * ROUND_PERIOD);
        slice.begin_task(Duration::ZERO, ROUND_PERIOD);
        assert!(!slice.is_task_over(false));
    }
}
