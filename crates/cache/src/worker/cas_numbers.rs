//! The CAS numbers that one worker gives to what it stores.
//!
//! All workers take them from one counter. Its cache line goes to another core whenever another worker takes a number,
//! so a worker takes some at once. It uses them for one batch of requests only, and all requests of a batch have come
//! before the first of them is executed: so if one write was answered before another one was asked for, the number of
//! the second is the higher one. Writes that overlap may have their numbers in either order.

use larder_item::CAS_DELTA_BITS;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many numbers a worker takes at once where there are others. What it does not use is never used.
const TAKEN_AT_ONCE: u64 = 16;

/// What is left of the numbers that a worker took.
pub(super) struct CasNumbers {
    next: Cell<u64>,
    end: Cell<u64>,
    at_once: u64,
}

impl CasNumbers {
    /// The numbers of one of `workers` workers. A single one takes no more than it needs.
    pub(super) fn new(workers: usize) -> CasNumbers {
        let at_once = if workers > 1 { TAKEN_AT_ONCE } else { 1 };
        CasNumbers { next: Cell::new(0), end: Cell::new(0), at_once }
    }

    /// The next number. `last` is the counter of all workers: the last number that any of them took.
    #[inline]
    pub(super) fn next(&self, last: &AtomicU64) -> u64 {
        if self.next.get() == self.end.get() {
            let first = last.fetch_add(self.at_once, Ordering::Relaxed) + 1;
            self.next.set(first);
            self.end.set(first + self.at_once);
        }
        let next = self.next.get();
        self.next.set(next + 1);
        next
    }

    /// The batch of requests is over: what is left would be too low for the next one.
    #[inline]
    pub(super) fn end_batch(&self) {
        self.end.set(self.next.get());
    }

    /// A number that the next ones will be a little above, or the last one given, if there was one lately.
    pub(super) fn base(&self, last: &AtomicU64) -> u64 {
        let (given, last) = (self.next.get().wrapping_sub(1), last.load(Ordering::Relaxed));
        if last.wrapping_sub(given) >> (CAS_DELTA_BITS - 1) == 0 { given } else { last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_up_across_workers_from_batch_to_batch_and_none_comes_twice() {
        let last = AtomicU64::new(100);
        let workers = [CasNumbers::new(2), CasNumbers::new(2)];
        let (mut seen, mut highest) = (std::collections::HashSet::new(), 100);
        for batch in 0..50 {
            let before = highest;
            for worker in &workers {
                for _ in 0..batch % 21 {
                    let number = worker.next(&last);
                    assert!(number > before && seen.insert(number), "{number}");
                    assert!(worker.base(&last) <= number);
                    highest = highest.max(number);
                }
            }
            workers.iter().for_each(CasNumbers::end_batch);
        }
    }

    #[test]
    fn the_base_of_a_column_follows_the_worker_unless_it_gave_no_number_for_long() {
        let (last, worker) = (AtomicU64::new(1 << 40), CasNumbers::new(2));
        assert_eq!(worker.base(&last), 1 << 40, "it gave none yet");
        let given = worker.next(&last);
        assert_eq!(worker.base(&last), given);
        last.fetch_add(1 << (CAS_DELTA_BITS - 1), Ordering::Relaxed);
        assert_eq!(worker.base(&last), last.load(Ordering::Relaxed));
    }
}
