//! What the segments of each stack are worth in a window of accesses (PAMA, section III, equations 1 and 2).

use super::Place;

/// What becomes of the values when their window ends. The paper leaves it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rollover {
    /// The window slides: a value is that of the window so far, and of the one before in proportion to what
    /// is left.
    Sliding,
    /// Values begin at zero with every window.
    Reset,
    /// Values are those of the last full window.
    Last,
    /// Values are halved.
    Decay,
}

impl Rollover {
    /// By name: `sliding`, `reset`, `last`, `decay`.
    ///
    /// # Errors
    /// Another name, with those that exist.
    pub fn parse(name: &str) -> Result<Rollover, String> {
        match name {
            "sliding" => Ok(Rollover::Sliding),
            "reset" => Ok(Rollover::Reset),
            "last" => Ok(Rollover::Last),
            "decay" => Ok(Rollover::Decay),
            _ => Err(format!("'{name}' is no roll-over: there are sliding, reset, last, decay")),
        }
    }
}

/// Values of all groups: a cell for each segment from G_m over G_0 and S_0 to S_m, now and in the window
/// before.
pub(super) struct Values {
    segments: usize,
    window: u64,
    rollover: Rollover,
    elapsed: u64,
    now: Vec<f64>,
    before: Vec<f64>,
    sums: Vec<Sums>,
}

/// Weighted sums of one group's cells.
#[derive(Clone, Copy, Default)]
struct Sums {
    out_now: f64,
    out_before: f64,
    in_now: f64,
    in_before: f64,
}

impl Values {
    /// All zero. `segments` = m + 1; `window` in accesses of the whole cache.
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

    /// An access begins. Says whether a window ended with the one before.
    pub(super) fn tick(&mut self) -> bool {
        self.elapsed += 1;
        let ended = self.elapsed >= self.window;
        if ended {
            self.elapsed = 0;
            self.roll();
        }
        ended
    }

    /// A request for an item in a segment is worth `worth`.
    pub(super) fn add(&mut self, group: usize, place: Place, worth: f64) {
        let at = group * 2 * self.segments;
        match place {
            Place::Elsewhere => {}
            Place::Segment(i) => {
                self.now[at + self.segments + i] += worth;
                self.sums[group].out_now += worth * weight(i);
            }
            Place::Ghost(i) => {
                self.now[at + self.segments - 1 - i] += worth;
                self.sums[group].in_now += worth * weight(i);
            }
        }
    }

    /// What `group` would lose with its candidate slab (equation 2).
    #[inline]
    pub(super) fn outgoing(&self, group: usize) -> f64 {
        let (now, before) = self.shares();
        now * self.sums[group].out_now + before * self.sums[group].out_before
    }

    /// What `group` would gain by another slab.
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

    /// How much the values of this window and of the one before count.
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
