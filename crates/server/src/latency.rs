//! How long requests took: one histogram for each worker and class of command.
//!
//! A power of two is divided into 16 buckets, so a quantile is right to about 6 %, from 64 ns to 64 s:
//!
//! ```text
//!   ns   0    4    8  ..  60 |  64   68   72  ..  124 | 128  136  ..  248 | ..  | 2^35 .. 2^36 | more
//!        16 buckets of 4 ns  |  16 buckets of 4 ns    | 16 of 8 ns        | ..  | 16           | 1
//! ```
//!
//! Each histogram has one writer, its worker, so a count is a load and a store without a lock prefix; readers sum over
//! workers and may see a request in one number and not yet in another.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// log2 of the buckets in a power of two.
const PART_BITS: u32 = 4;
const PARTS: usize = 1 << PART_BITS;
/// Below two to this power of nanoseconds, buckets have the width of the power above it.
const LEAST_BITS: u32 = 6;
/// All durations from two to this power of nanoseconds on share one bucket.
const MOST_BITS: u32 = 36;
/// Buckets of one histogram.
pub const BUCKETS: usize = (MOST_BITS - LEAST_BITS + 1) as usize * PARTS + 1;

/// The bucket of a duration.
fn bucket_of(ns: u64) -> usize {
    if ns < 1 << LEAST_BITS {
        return (ns >> (LEAST_BITS - PART_BITS)) as usize;
    }
    if ns >= 1 << MOST_BITS {
        return BUCKETS - 1;
    }
    let power = ns.ilog2();
    let part = (ns >> (power - PART_BITS)) as usize & (PARTS - 1);
    (power - LEAST_BITS + 1) as usize * PARTS + part
}

/// The least duration of a bucket, in ns. The bucket ends where the next one begins.
fn begin_of(bucket: usize) -> u64 {
    let (row, part) = (bucket / PARTS, (bucket % PARTS) as u64);
    match row {
        0 => part << (LEAST_BITS - PART_BITS),
        _ => (PARTS as u64 + part) << (row as u32 - 1 + LEAST_BITS - PART_BITS),
    }
}

/// A class of commands whose times are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// get and gets. A request counts once, however many keys it has.
    Get,
    /// set, add, replace, append, prepend, cas.
    Set,
    /// delete and the meta delete.
    Delete,
    /// incr, decr and the meta arithmetic.
    Arith,
    /// touch, gat and gats. A request counts once, however many keys it has.
    Touch,
    /// Meta get.
    MetaGet,
    /// Meta set.
    MetaSet,
    /// Everything else.
    Other,
}

impl Class {
    /// Every class, in the order of their numbers.
    pub const ALL: [Class; 8] = [
        Class::Get,
        Class::Set,
        Class::Delete,
        Class::Arith,
        Class::Touch,
        Class::MetaGet,
        Class::MetaSet,
        Class::Other,
    ];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Class::Get => "get",
            Class::Set => "set",
            Class::Delete => "delete",
            Class::Arith => "arith",
            Class::Touch => "touch",
            Class::MetaGet => "meta_get",
            Class::MetaSet => "meta_set",
            Class::Other => "other",
        }
    }
}

struct Counts {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// The histograms of one worker: about 32 KiB. Only that worker may record.
#[repr(align(128))]
pub struct WorkerLatency {
    classes: [Counts; Class::ALL.len()],
    fetches: Counts,
}

impl WorkerLatency {
    /// Histograms that have counted nothing.
    pub fn new() -> Box<WorkerLatency> {
        let counts = || Counts { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_ns: AtomicU64::new(0) };
        Box::new(WorkerLatency { classes: std::array::from_fn(|_| counts()), fetches: counts() })
    }

    /// Counts `count` requests of `ns` nanoseconds each. A second writer would lose counts, and do no other harm.
    #[inline]
    pub fn record(&self, class: Class, ns: u64, count: u64) {
        self.classes[class as usize].record(ns, count);
    }

    /// Counts one read from flash that took `ns` nanoseconds from the moment it was asked for. Only one thread may call
    /// this, as with [`WorkerLatency::record`].
    pub fn record_fetch(&self, ns: u64) {
        self.fetches.record(ns, 1);
    }

    /// Adds what this worker has counted for `class` to `histogram`.
    pub fn add_to(&self, class: Class, histogram: &mut Histogram) {
        self.classes[class as usize].add_to(histogram);
    }
}

impl Counts {
    #[inline]
    fn record(&self, ns: u64, count: u64) {
        // Relaxed: there is one writer, and readers need no order between the numbers.
        let add = |counter: &AtomicU64, more: u64| {
            counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
        };
        add(&self.buckets[bucket_of(ns)], count);
        add(&self.sum_ns, ns.wrapping_mul(count));
    }

    fn add_to(&self, histogram: &mut Histogram) {
        for (sum, bucket) in histogram.counts.iter_mut().zip(&self.buckets) {
            *sum += bucket.load(Relaxed);
        }
        histogram.sum_ns = histogram.sum_ns.wrapping_add(self.sum_ns.load(Relaxed));
    }
}

/// The times of all reads from flash that `workers` have asked for since they started.
pub fn total_fetches<'a>(workers: impl IntoIterator<Item = &'a WorkerLatency>) -> Histogram {
    let mut histogram = Histogram::default();
    workers.into_iter().for_each(|worker| worker.fetches.add_to(&mut histogram));
    histogram
}

/// What all `workers` have counted for `class` since they started.
pub fn total<'a>(workers: impl IntoIterator<Item = &'a WorkerLatency>, class: Class) -> Histogram {
    let mut histogram = Histogram::default();
    for worker in workers {
        worker.add_to(class, &mut histogram);
    }
    histogram
}

/// Plain numbers of one histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64]>,
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS].into_boxed_slice(), sum_ns: 0 }
    }
}

impl Histogram {
    /// Counts `count` requests of `ns` nanoseconds each.
    pub fn record(&mut self, ns: u64, count: u64) {
        self.counts[bucket_of(ns)] += count;
        self.sum_ns = self.sum_ns.wrapping_add(ns.wrapping_mul(count));
    }

    /// Adds all times of another histogram.
    pub fn add(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// Requests counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The time of all requests together, in ns.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The duration, in ns, that the share `q` (0.0 to 1.0) of requests did not exceed, rounded up to the end of its
    /// bucket. `None` when nothing was counted. Durations of more than 64 s are reported as 64 s.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let count = self.count();
        let wanted = ((count as f64 * q.clamp(0.0, 1.0)).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        self.filled().find_map(|(end_ns, count)| {
            seen += count;
            (seen >= wanted).then_some(end_ns)
        })
    }

    /// The buckets that counted something: the end of each, in ns, and how many durations below that end it counted.
    /// The last bucket has no end; its beginning, 2^36, is given instead.
    pub fn filled(&self) -> impl Iterator<Item = (u64, u64)> {
        let end_of = |bucket: usize| begin_of((bucket + 1).min(BUCKETS - 1));
        self.counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(move |(bucket, count)| (end_of(bucket), *count))
    }

    /// For each power from `least` to `most`: the requests that took at least `2^(power-1)` ns and less than `2^power`
    /// ns. The first entry also counts all quicker requests. The counts are exact, as buckets end at powers of two.
    pub fn by_power(&self, least: u32, most: u32) -> Vec<u64> {
        let mut sums = vec![0; (most - least + 1) as usize];
        for (bucket, count) in self.counts.iter().enumerate() {
            let power = begin_of(bucket).checked_ilog2().map_or(0, |power| power + 1);
            if power <= most {
                sums[power.saturating_sub(least) as usize] += count;
            }
        }
        sums
    }

    /// What was counted after `earlier`, an older reading of the same histogram.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let counts = self.counts.iter().zip(&earlier.counts).map(|(now, then)| now.saturating_sub(*then));
        Histogram { counts: counts.collect(), sum_ns: self.sum_ns.wrapping_sub(earlier.sum_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_meet_without_gap() {
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(begin_of(bucket)), bucket);
            if bucket > 0 {
                assert_eq!(bucket_of(begin_of(bucket) - 1), bucket - 1);
            }
        }
        assert_eq!(begin_of(BUCKETS - 1), 1 << MOST_BITS);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn nothing_counted_has_no_quantile() {
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn workers_are_summed_and_windows_subtracted() {
        let (one, two) = (WorkerLatency::new(), WorkerLatency::new());
        one.record(Class::Get, 1000, 3);
        two.record(Class::Get, 1_000_000, 1);
        two.record(Class::Set, 5, 1);
        let before = total([&*one, &*two], Class::Get);
        assert_eq!((before.count(), before.sum_ns()), (4, 1_003_000));
        assert!((1000..1070).contains(&before.quantile(0.5).unwrap()));
        assert!((1_000_000..1_070_000).contains(&before.quantile(1.0).unwrap()));
        two.record(Class::Get, 70_000, 10);
        let window = total([&*one, &*two], Class::Get).since(&before);
        assert_eq!((window.count(), window.sum_ns()), (10, 700_000));
        assert_eq!(window.filled().count(), 1);
    }

    #[test]
    fn powers_hold_everything_below_the_last() {
        let mut histogram = Histogram::default();
        for ns in [0, 255, 256, 1023, 1024, 1 << 34, u64::MAX] {
            histogram.record(ns, 1);
        }
        assert_eq!(histogram.by_power(8, 10), [2, 1, 1]);
        assert_eq!(histogram.by_power(8, 35).iter().sum::<u64>(), 6);
    }

    proptest! {
        #[test]
        fn a_quantile_is_right_to_a_sixteenth(
            mut times in prop::collection::vec(64u64..1 << 36, 1..200),
            q in 0.0..=1.0f64,
        ) {
            let mut histogram = Histogram::default();
            for ns in &times {
                histogram.record(*ns, 1);
            }
            times.sort_unstable();
            let rank = ((times.len() as f64 * q).ceil() as usize).clamp(1, times.len());
            let (exact, found) = (times[rank - 1] as f64, histogram.quantile(q).unwrap() as f64);
            prop_assert!(found >= exact && found <= exact * (1.0 + 1.0 / 16.0) + 1.0, "{exact} {found}");
        }
    }
}
