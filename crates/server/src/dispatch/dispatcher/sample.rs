//! The sample of requests that hot keys are counted from.
//!
//! A sample in time: one key in `interval`, at random distances, of all keys that pass through the windows. A sample of
//! keys, such as policies have, would miss a hot key that is not in it. In a second each worker samples about
//! [`SAMPLES_PER_S`] keys, whatever comes, and one key in [`INTERVAL_MIN`] at most.

/// Keys that a worker samples in a second, about.
const SAMPLES_PER_S: u64 = 1000;
/// The fewest and the most keys of which one is sampled.
const INTERVAL_MIN: u64 = 64;
const INTERVAL_MAX: u64 = 1 << 16;
/// One sampled key in this number is looked up, for the size of its item.
const SIZES_SHARE: u64 = 8;

/// Which keys are sampled.
pub(super) struct Sampler {
    /// Keys that still pass by before the next one that is sampled. Below 0: that one is in the present window.
    left: i64,
    /// One key in this number is sampled.
    interval: u64,
    /// Keys that were sampled in the present second, and how many they stand for.
    sampled: u64,
    stood_for: u64,
    random: u64,
}

impl Sampler {
    pub(super) fn new(worker: usize) -> Sampler {
        Sampler {
            left: INTERVAL_MIN as i64,
            interval: INTERVAL_MIN,
            sampled: 0,
            stood_for: 0,
            random: 0x9E37_79B9_7F4A_7C15 ^ (worker as u64 + 1),
        }
    }

    /// `keys` keys pass by. Returns whether one of them is sampled.
    #[inline(always)]
    pub(super) fn passes(&mut self, keys: usize) -> bool {
        self.left -= keys as i64;
        self.left < 0
    }

    /// Names the sampled ones of `keys` keys: which they are, how many each stands for, and whether its item is looked
    /// up.
    #[cold]
    pub(super) fn each(&mut self, keys: usize, mut sampled: impl FnMut(usize, u64, bool)) {
        let mut at = (self.left + keys as i64) as usize;
        while at < keys {
            let (stands_for, distance) = self.take();
            sampled(at, stands_for, self.sampled.is_multiple_of(SIZES_SHARE));
            at += distance;
        }
        self.left = (at - keys) as i64;
    }

    /// A key was sampled. Returns how many keys it stands for, and the distance to the next one.
    fn take(&mut self) -> (u64, usize) {
        let interval = self.interval;
        self.sampled += 1;
        self.stood_for += interval;
        // Far more comes than in the last second: fewer are sampled from now on, before the second is over.
        if self.sampled.is_multiple_of(SAMPLES_PER_S) {
            self.interval = (interval * 2).min(INTERVAL_MAX);
        }
        // Any distance from 1 to 2 * interval - 1 is as likely as another, so the mean is the interval (xorshift64).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (interval, 1 + (self.random % (2 * interval - 1)) as usize)
    }

    /// A second is over.
    pub(super) fn tick(&mut self) {
        self.interval = (self.stood_for / SAMPLES_PER_S).clamp(INTERVAL_MIN, INTERVAL_MAX);
        (self.sampled, self.stood_for) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds with `keys` keys each, in windows of 16. Returns how many were sampled in each second, and how many
    /// they stood for.
    fn seconds(sampler: &mut Sampler, keys: u64, seconds: usize) -> Vec<(u64, u64)> {
        let second = |_| {
            for _ in 0..keys / 16 {
                if sampler.passes(16) {
                    sampler.each(16, |at, _, _| assert!(at < 16));
                }
            }
            let sampled = (sampler.sampled, sampler.stood_for);
            sampler.tick();
            sampled
        };
        (0..seconds).map(second).collect()
    }

    #[test]
    fn a_sample_stands_for_all_and_costs_little_whatever_comes() {
        let mut sampler = Sampler::new(0);
        let mut calm = (0, 0);
        for (sampled, stood_for) in seconds(&mut sampler, 10_000, 50) {
            calm = (calm.0 + sampled, calm.1 + stood_for);
        }
        assert!((7000..8600).contains(&calm.0), "{calm:?}");
        assert!(calm.1.abs_diff(500_000) < 30_000, "{calm:?}");
        // A flood begins: the first second has more samples, but not in step with it.
        let flood = seconds(&mut sampler, 8_000_000, 10);
        assert!(flood[0].0 < 12_000, "{flood:?}");
        assert!(flood[1..].iter().all(|(sampled, _)| (800..1300).contains(sampled)), "{flood:?}");
        let stood_for: u64 = flood.iter().map(|(_, stood_for)| stood_for).sum();
        assert!(stood_for.abs_diff(80_000_000) < 8_000_000, "{stood_for}");
    }
}
