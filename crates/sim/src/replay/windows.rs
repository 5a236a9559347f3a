//! Hit ratio and service time by windows of gets. Servers of different speed can be compared window by window.

use super::options::Options;

/// The service time of a hit in microseconds where the clock does not count: PAMA, section IV.
const HIT_US: u64 = 100;

/// The counts of one window of read-through gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// Gets.
    pub gets: u64,
    /// Gets that hit.
    pub hits: u64,
    /// Sum of the unscaled penalties of all misses in microseconds. A miss that joined a fetch counts in full.
    pub penalties_us: u64,
    /// Sum of the times in nanoseconds for which misses really waited for the back end. A miss that joined a fetch
    /// waited for the rest of it.
    pub waited_ns: u64,
}

impl Window {
    /// Hit ratio; `None` without gets.
    pub fn hit_ratio(&self) -> Option<f64> {
        self.mean(self.hits as f64)
    }

    /// Mean service time in milliseconds, where a hit takes 0.1 ms and a miss its penalty; `None` without gets.
    pub fn service_ms(&self) -> Option<f64> {
        self.mean((self.hits * HIT_US + self.penalties_us) as f64 / 1e3)
    }

    /// Mean service time in milliseconds, where a hit takes 0.1 ms and a miss as long as it really waited for the back
    /// end; `None` without gets.
    pub fn waited_ms(&self) -> Option<f64> {
        self.mean((self.hits * HIT_US) as f64 / 1e3 + self.waited_ns as f64 / 1e6)
    }

    fn mean(&self, sum: f64) -> Option<f64> {
        (self.gets > 0).then(|| sum / self.gets as f64)
    }

    fn add(&mut self, other: &Window) {
        self.gets += other.gets;
        self.hits += other.hits;
        self.penalties_us += other.penalties_us;
        self.waited_ns += other.waited_ns;
    }
}

/// The sum of some windows.
pub(super) fn sum(windows: &[Window]) -> Window {
    windows.iter().fold(Window::default(), |mut sum, window| {
        sum.add(window);
        sum
    })
}

/// The windows of one worker, and in the end of all workers. A window of a run is the sum of the equal shares of all
/// workers, so with several threads its bounds are not exact.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    /// Gets of this worker per window; 0 = no windows are wanted.
    gets_per_window: u64,
    windows: Vec<Window>,
}

impl Windows {
    /// No windows yet.
    pub(super) fn new(options: &Options) -> Windows {
        let share = options.window_gets.div_ceil(options.threads.max(1) as u64);
        Windows { gets_per_window: share, windows: Vec::new() }
    }

    /// Counts a get that hit.
    pub(super) fn hit(&mut self) {
        self.add_get(Window { gets: 1, hits: 1, ..Window::default() });
    }

    /// Counts a get that missed.
    pub(super) fn miss(&mut self, penalty_us: u32, waited_ns: u64) {
        self.add_get(Window { gets: 1, hits: 0, penalties_us: u64::from(penalty_us), waited_ns });
    }

    fn add_get(&mut self, one: Window) {
        if self.gets_per_window == 0 {
            return;
        }
        match self.windows.last_mut().filter(|last| last.gets < self.gets_per_window) {
            Some(last) => last.add(&one),
            None => self.windows.push(one),
        }
    }

    /// Adds the windows of another worker.
    pub(super) fn merge(&mut self, other: &Windows) {
        if self.windows.len() < other.windows.len() {
            self.windows.resize(other.windows.len(), Window::default());
        }
        self.windows.iter_mut().zip(&other.windows).for_each(|(mine, theirs)| mine.add(theirs));
    }

    /// All windows, in order.
    pub(super) fn all(&self) -> &[Window] {
        &self.windows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::server::Server;

    fn windows(window_gets: u64, threads: usize) -> Windows {
        let server = Server::parse("localhost").expect("an address");
        Windows::new(&Options { window_gets, threads, ..Options::new(server) })
    }

    #[test]
    fn a_window_ends_with_its_last_get() {
        let mut two = windows(2, 1);
        two.hit();
        two.miss(30_000, 31_000_000);
        two.miss(7, 0);
        assert_eq!(two.all().iter().map(|window| window.gets).collect::<Vec<_>>(), [2, 1]);
        let first = two.all()[0];
        assert_eq!(
            (first.hit_ratio(), first.service_ms(), first.waited_ms()),
            (Some(0.5), Some(15.05), Some(15.55))
        );
        assert_eq!(sum(two.all()).gets, 3);
        assert_eq!(Window::default().service_ms(), None);
    }

    #[test]
    fn workers_share_a_window() {
        let (mut one, mut other) = (windows(4, 2), windows(4, 2));
        one.hit();
        (0..3).for_each(|_| other.miss(1, 0));
        one.merge(&other);
        assert_eq!(
            one.all().iter().map(|window| (window.gets, window.hits)).collect::<Vec<_>>(),
            [(3, 1), (1, 0)]
        );
    }

    #[test]
    fn without_a_width_nothing_is_kept() {
        let mut none = windows(0, 1);
        none.hit();
        assert!(none.all().is_empty());
    }
}
