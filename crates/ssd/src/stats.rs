use larder_flash::device::EraseSpread;

/// A histogram of durations with sixteen buckets per doubling: a quantile is at most 7 % too high.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: vec![0; 61 * 16], count: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Adds a duration of `ns` nanoseconds.
    pub fn add(&mut self, ns: u64) {
        self.buckets[Histogram::bucket(ns)] += 1;
        self.count += 1;
        self.sum += ns as u128;
        self.max = self.max.max(ns);
    }

    fn bucket(ns: u64) -> usize {
        let Some(doubling) = ns.checked_ilog2().filter(|doubling| *doubling >= 4) else { return ns as usize };
        (doubling as usize - 3) * 16 + ((ns >> (doubling - 4)) & 15) as usize
    }

    /// The largest value of a bucket.
    fn upper(bucket: usize) -> u64 {
        if bucket < 16 {
            return bucket as u64;
        }
        let shift = bucket / 16 - 1;
        let upper = ((16 + bucket as u128 % 16 + 1) << shift) - 1;
        upper as u64
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest duration, nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.max
    }

    /// The mean, nanoseconds; 0 if the histogram is empty.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The quantile `q` (0 to 1), nanoseconds; 0 if the histogram is empty.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Histogram::upper(bucket).min(self.max);
            }
        }
        0
    }
}

/// How evenly blocks are worn. All figures are numbers of erases of one block, bad blocks left out.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Wear {
    /// The highest number.
    pub max: u32,
    /// The lowest number.
    pub min: u32,
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub stddev: f64,
    /// The Gini coefficient: 0 if all blocks are worn equally, near 1 if one block takes all erases.
    pub gini: f64,
    /// Number of bad blocks, from the factory or since.
    pub bad_blocks: u32,
}

impl Wear {
    /// The wear of blocks that were erased this often.
    pub fn of(mut erases: Vec<u32>, bad_blocks: u32) -> Wear {
        erases.sort_unstable();
        let (Some(&min), Some(&max)) = (erases.first(), erases.last()) else {
            return Wear { bad_blocks, ..Wear::default() };
        };
        let n = erases.len() as f64;
        let sum: f64 = erases.iter().map(|&e| e as f64).sum();
        let mean = sum / n;
        let variance = erases.iter().map(|&e| (e as f64 - mean).powi(2)).sum::<f64>() / n;
        let weighted: f64 = erases.iter().enumerate().map(|(i, &e)| (i + 1) as f64 * e as f64).sum();
        let gini = if sum == 0.0 { 0.0 } else { 2.0 * weighted / (n * sum) - (n + 1.0) / n };
        Wear { max, min, mean, stddev: variance.sqrt(), gini, bad_blocks }
    }

    /// The lowest and the highest number, as a device tells them.
    pub fn spread(&self) -> EraseSpread {
        EraseSpread { least: self.min, most: self.max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close() {
        let mut histogram = Histogram::default();
        (1..=100_000u64).for_each(|ns| histogram.add(ns));
        for q in [0.001, 0.1, 0.5, 0.99, 1.0] {
            let (is, found) = (q * 100_000.0, histogram.quantile_ns(q) as f64);
            assert!(found >= is && found <= is * 1.07, "{q}: {found}");
        }
        assert_eq!(
            (histogram.count(), histogram.max_ns(), histogram.mean_ns()),
            (100_000, 100_000, 50_000.5)
        );
        histogram.add(u64::MAX);
        assert_eq!(histogram.quantile_ns(1.0), u64::MAX);
        assert_eq!(Histogram::default().quantile_ns(0.5), 0);
    }

    #[test]
    fn wear_of_equals_and_of_one() {
        let wear = Wear::of(vec![7; 10], 1);
        assert_eq!((wear.max, wear.min, wear.mean, wear.stddev, wear.bad_blocks), (7, 7, 7.0, 0.0, 1));
        assert!(wear.gini.abs() < 1e-9);
        let wear = Wear::of([vec![0; 99], vec![100]].concat(), 0);
        assert!((wear.gini - 0.99).abs() < 1e-9 && (wear.mean - 1.0).abs() < 1e-9, "{wear:?}");
        assert_eq!(Wear::of(vec![], 3), Wear { bad_blocks: 3, ..Wear::default() });
    }
}
