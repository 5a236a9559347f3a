//! About what a namespace has, from samples of the index.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where a sample differs from the estimate by no more than chance explains, the estimate goes an eighth of the way:
/// its own error is then a quarter of a sample's.
const CHANCE_DIVISOR: u64 = 8;
/// Chance explains four times the root of the number of items found: more happens once in some 16,000 samples.
const CHANCE_ROOTS: u64 = 4;

/// About what a namespace has. Each eviction writes here, so it has a cache line that no read needs.
#[derive(Default)]
pub(super) struct Estimate {
    pub(super) items: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// What was evicted since the last sample.
    items_evicted: AtomicU64,
    bytes_evicted: AtomicU64,
}

impl Estimate {
    /// An estimate of what is known, with nothing evicted since.
    pub(super) fn of(items: u64, bytes: u64) -> Estimate {
        Estimate { items: AtomicU64::new(items), bytes: AtomicU64::new(bytes), ..Estimate::default() }
    }

    /// Takes off what is evicted.
    pub(super) fn evict(&self, items: u64, bytes: u64) {
        for (estimate, less) in [(&self.items, items), (&self.bytes, bytes)] {
            let _ = estimate.try_update(Relaxed, Relaxed, |now| Some(now.saturating_sub(less)));
        }
        self.items_evicted.fetch_add(items, Relaxed);
        self.bytes_evicted.fetch_add(bytes, Relaxed);
    }

    /// Takes in a sample that found `found` items of the namespace. It is exact if it looked at all items.
    pub(super) fn sample(&self, items: u64, bytes: u64, found: u64, is_exact: bool) {
        let words = [(&self.items, &self.items_evicted, items), (&self.bytes, &self.bytes_evicted, bytes)];
        for (estimate, evicted, sampled) in words {
            let evicted = evicted.swap(0, Relaxed);
            let before = estimate.load(Relaxed);
            let now = if is_exact { sampled } else { refined(before, sampled, found, evicted) };
            estimate.store(now, Relaxed);
        }
    }
}

/// What an estimate becomes when a sample, which found `found` items of the namespace, says `sampled`. As much as was
/// `evicted` since the last one may have been stored in its place: so far the estimate goes up with the sample.
fn refined(estimate: u64, sampled: u64, found: u64, evicted: u64) -> u64 {
    let apart = estimate.abs_diff(sampled);
    let by_chance = CHANCE_ROOTS * sampled / found.isqrt().max(1);
    let step = if apart > by_chance { apart } else { apart.div_ceil(CHANCE_DIVISOR) };
    match sampled > estimate {
        true => estimate + step.max(evicted.min(apart)),
        false => estimate - step,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn what_chance_explains_moves_an_estimate_a_little() {
        assert_eq!(refined(0, 1000, 100, 0), 1000, "the first one");
        assert_eq!(refined(1000, 1200, 900, 0), 1200);
        assert_eq!(refined(1000, 920, 900, 0), 990);
        assert_eq!(refined(1000, 920, 900, 80), 990, "less is there, whatever was evicted");
        assert_eq!(refined(1000, 1080, 900, 0), 1010);
        assert_eq!(refined(1000, 1080, 900, 50), 1050, "as much was stored as was evicted");
        assert_eq!(refined(1000, 1080, 900, 500), 1080);
        assert_eq!(refined(1000, 1000, 900, 10), 1000);
        assert_eq!(refined(999, 1000, 900, 0), 1000, "it arrives");
        assert_eq!(refined(1000, 0, 0, 0), 0, "it is gone");
        // A namespace of 6,000 bytes, of which samples find 250 items give or take the root of that.
        let mut random = Random::new(7);
        let mut sample = || (0..3000).filter(|_| random.below(12) == 0).count() as u64;
        let (mut estimate, mut squares, mut squares_of_samples) = (6000, 0, 0);
        for _ in 0..2000 {
            let found = sample();
            estimate = refined(estimate, found * 24, found, 0);
            squares += estimate.abs_diff(6000).pow(2);
            squares_of_samples += (found * 24).abs_diff(6000).pow(2);
        }
        assert!(
            squares * 9 < squares_of_samples,
            "a third of a sample's error: {squares}, {squares_of_samples}"
        );
        // A tenth of it is evicted between two samples, and as much is stored.
        let (mut estimate, mut sum) = (6000, 0);
        for _ in 0..2000 {
            let found = sample();
            estimate = refined(estimate - 600, found * 24, found, 600);
            sum += estimate;
        }
        assert!((5500..6100).contains(&(sum / 2000)), "{} instead of 6000", sum / 2000);
    }
}
