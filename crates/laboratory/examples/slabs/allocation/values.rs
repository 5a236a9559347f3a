//! The values of the segments of each stack in a window of accesses (PAMA, section III, equations 1 and 2).

use super::StackPosition;

/// The treatment of the values at the end of a window, which the paper leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rollover {
    /// Sliding window: a value is that of the current window so far, plus the one of the previous window in
    /// proportion to the remaining time.
    Sliding,
    /// Values start at zero with every window.
    Reset,
    /// Values are those of the last complete window.
    Last,
    /// Values are halved.
    Decay,
}

impl Rollover {
    /// Parses a name: `sliding`, `reset`, `last` or `decay`.
    ///
    /// # Errors
    /// Another name; the error lists the known names.
    pub(crate) fn parse(name: &str) -> Result<Rollover, String> {
        match name {
            "sliding" => Ok(Rollover::Sliding),
            "reset" => Ok(Rollover::Reset),
            "last" => Ok(Rollover::Last),
            "decay" => Ok(Rollover::Decay),
            _ => Err(format!("'{name}' is no roll-over: there are sliding, reset, last, decay")),
        }
    }
}

/// The values of all groups. Each group has a cell per segment, from G_m over G_0 and S_0 to S_m, for the current
/// window and for the previous one.
pub(super) struct Values {
    segments: usize,
    window: u64,
    rollover: Rollover,
    elapsed: u64,
    now: Vec<f64>,
    before: Vec<f64>,
    sums: Vec<Sums>,
}

/// Weighted sums of the cells of one group.
#[derive(Clone, Copy, Default)]
struct Sums {
    out_now: f64,
    out_before: f64,
    in_now: f64,
    in_before: f64,
}

impl Values {
    /// All values are zero. `segments` is m + 1; `window` is in accesses of the whole cache.
    pub(super) fn new(groups: usize, segments: usize, window: u64, rollover: Rollover) -> Values {
        Values {
            segments,
            window,
            rollover,
            elapsed: 0,
            now: vec![0.0; groups * 2 * segments],
            before: vec![0.0; groups * 2 * segments],
            sums: vec![Sums::default(); groups],
        }
    }

    /// An access starts. Returns whether a window ended with the access before.
    pub(super) fn tick(&mut self) -> bool {
        self.elapsed += 1;
        let ended = self.elapsed >= self.window;
        if ended {
            self.elapsed = 0;
            self.roll();
        }
        ended
    }

    /// Adds the value `worth` of a request for an item at `position`.
    pub(super) fn add(&mut self, group: usize, position: StackPosition, worth: f64) {
        let at = group * 2 * self.segments;
        match position {
            StackPosition::Elsewhere => {}
            StackPosition::Segment(i) => {
                self.now[at + self.segments + i] += worth;
                self.sums[group].out_now += worth * weight(i);
            }
            StackPosition::Ghost(i) => {
                self.now[at + self.segments - 1 - i] += worth;
                self.sums[group].in_now += worth * weight(i);
            }
        }
    }

    /// The value that `group` would lose with its candidate slab (equation 2).
    #[inline]
    pub(super) fn outgoing(&self, group: usize) -> f64 {
        let (now, before) = self.shares();
        now * self.sums[group].out_now + before * self.sums[group].out_before
    }

    /// The value that `group` would gain by another slab.
    #[inline]
    pub(super) fn incoming(&self, group: usize) -> f64 {
        let (now, before) = self.shares();
        now * self.sums[group].in_now + before * self.sums[group].in_before
    }

    /// `group` lost a slab: its segments are now one slab higher in the stack.
    pub(super) fn lost_slab(&mut self, group: usize) {
        for cells in self.cells(group) {
            cells.rotate_left(1);
            cells[cells.len() - 1] = 0.0;
        }
        self.sum(group);
    }

    /// `group` gained a slab: its segments are now one slab lower in the stack.
    pub(super) fn gained_slab(&mut self, group: usize) {
        for cells in self.cells(group) {
            cells.rotate_right(1);
            cells[0] = 0.0;
        }
        self.sum(group);
    }

    /// The weights of the current and of the previous window.
    #[inline]
    fn shares(&self) -> (f64, f64) {
        match self.rollover {
            Rollover::Sliding => (1.0, 1.0 - self.elapsed as f64 / self.window as f64),
            Rollover::Reset | Rollover::Decay => (1.0, 0.0),
            Rollover::Last => (0.0, 1.0),
        }
    }

    fn roll(&mut self) {
        match self.rollover {
            Rollover::Sliding | Rollover::Last => {
                std::mem::swap(&mut self.now, &mut self.before);
                self.now.fill(0.0);
            }
            Rollover::Reset => self.now.fill(0.0),
            Rollover::Decay => self.now.iter_mut().for_each(|cell| *cell /= 2.0),
        }
        for group in 0..self.sums.len() {
            self.sum(group);
        }
    }

    fn cells(&mut self, group: usize) -> [&mut [f64]; 2] {
        let cells = group * 2 * self.segments..(group + 1) * 2 * self.segments;
        [&mut self.now[cells.clone()], &mut self.before[cells]]
    }

    fn sum(&mut self, group: usize) {
        let n = self.segments;
        let [now, before] = self.cells(group);
        let out = |cells: &[f64]| (0..n).map(|i| cells[n + i] * weight(i)).sum();
        let incoming = |cells: &[f64]| (0..n).map(|i| cells[n - 1 - i] * weight(i)).sum();
        let (now, before): (&[f64], &[f64]) = (now, before);
        self.sums[group] = Sums {
            out_now: out(now),
            out_before: out(before),
            in_now: incoming(now),
            in_before: incoming(before),
        };
    }
}

/// 2^-(i+1), exactly.
#[inline]
fn weight(i: usize) -> f64 {
    1.0 / (2_u64 << i) as f64
}
