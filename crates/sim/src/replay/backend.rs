//! The simulated back end from which misses are fetched. A fetch only takes time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Mutex;

use super::options::ReadThrough;

/// A back end with a number of servers and one queue in front of them, shared by all threads. The duration of each
/// fetch is known, so its end is known when it starts.
pub(super) struct Backend {
    penalty_scale: f64,
    /// The time at which each server becomes free; empty = an unlimited number of servers.
    free_at_ns: Mutex<BinaryHeap<Reverse<u64>>>,
}

impl Backend {
    /// A back end with these options.
    pub(super) fn new(asked: ReadThrough) -> Backend {
        let free = std::iter::repeat_n(Reverse(0), asked.backend_concurrency);
        Backend { penalty_scale: asked.penalty_scale, free_at_ns: Mutex::new(free.collect()) }
    }

    /// The factor for penalties.
    pub(super) fn penalty_scale(&self) -> f64 {
        self.penalty_scale
    }

    /// Starts a fetch. Returns the time at which it is done.
    pub(super) fn fetch(&self, now_ns: u64, penalty_us: u32) -> u64 {
        let takes_ns = (f64::from(penalty_us) * 1000.0 * self.penalty_scale) as u64;
        if takes_ns == 0 {
            return now_ns;
        }
        let mut free = self.free_at_ns.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(mut first) = free.peek_mut() else { return now_ns + takes_ns };
        let done_ns = first.0.max(now_ns) + takes_ns;
        first.0 = done_ns;
        done_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(penalty_scale: f64, backend_concurrency: usize) -> Backend {
        Backend::new(ReadThrough { penalty_scale, backend_concurrency })
    }

    #[test]
    fn fetches_wait_for_a_free_server() {
        let two = backend(1.0, 2);
        assert_eq!([two.fetch(0, 10), two.fetch(0, 4), two.fetch(1, 1)], [10_000, 4_000, 5_000]);
        assert_eq!(two.fetch(20_000, 1), 21_000);
    }

    #[test]
    fn without_a_bound_no_fetch_waits() {
        let any = backend(0.5, 0);
        assert_eq!([any.fetch(0, 10), any.fetch(0, 10)], [5_000, 5_000]);
    }

    #[test]
    fn scaled_to_nothing_a_fetch_takes_no_time() {
        assert_eq!(backend(0.0, 1).fetch(7, 1_000_000), 7);
    }
}
