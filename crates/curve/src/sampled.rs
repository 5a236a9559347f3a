//! The curve of a running cache: SHARDS of fixed size over the uses of its keys (Waldspurger, Park, Garthwaite and
//! Ahmad, FAST 2015).
//!
//! ```text
//!  use of a key --> digest below the bound? --> stack of the sample --> distances, each / rate, and what they cost
//!                                                   |
//!            more keys than allowed: lower the bound, drop the keys above it
//!            an item lower than the span: drop it
//! ```
//!
//! A trace ends, and a server does not. Two things keep the sample useful for ever. Items that lie lower in the stack
//! than the largest size of interest, the *span*, are dropped: a use of such an item is a miss at every size up to
//! there, as is the first use of a key. So keys that are never used again do not lower the rate. And counts are halved
//! whenever enough uses were counted, so that the curve is that of recent traffic.

use crate::histogram::Histogram;
use crate::stack::Stack;
use std::collections::BinaryHeap;

/// Distances are known to within 1 part in 2^6.
const DISTANCE_BITS: u32 = 7;
/// Counts are halved when this number of uses was counted for each key that the sample may have.
const READS_PER_KEY: u64 = 32;
/// Bytes of memory for each key of a full sample, as measured, the histograms not included.
const KEY_BYTES: u64 = 124;
/// Bytes of the two histograms, where distances are below 2^45.
const HISTOGRAM_BYTES: u64 =
    2 * 8 * ((1 << DISTANCE_BITS) + (45 - DISTANCE_BITS as u64) * (1 << (DISTANCE_BITS - 1)));

/// What a use says of the item.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Use {
    /// Bytes that the item takes.
    pub bytes: u64,
    /// What a miss of it costs, in microseconds.
    pub cost_us: f32,
    /// When it expires, in seconds of the caller's clock; `u32::MAX` = never.
    pub expires_s: u32,
}

/// One size of a cache.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Bytes of items.
    pub bytes: u64,
    /// The share of the reads that would miss, 0..=1.
    pub miss_ratio: f64,
    /// What these misses would cost, in microseconds for each read.
    pub cost_us: f64,
}

/// A sample of the keys of a running cache, and what their uses say of every size of the cache.
pub struct Sampled {
    stack: Stack,
    /// The digests of the sample, the largest on top. Some may have left the stack.
    by_digest: BinaryHeap<u32>,
    /// What a miss costs and when the item expires, by the item's number in the stack.
    costs_us: Vec<f32>,
    expire_s: Vec<u32>,
    now_s: u32,
    keys_max: usize,
    span_bytes: u64,
    chosen: Chosen,
    /// Distances of reads, each counted with the weight 1 / rate.
    distances: Histogram,
    /// The same, weighted by the cost of a miss as well.
    costs: Histogram,
    counted: f64,
    /// The cost of the reads of keys that were not in the stack.
    cold_cost_us: f64,
    /// All reads of the cache, sampled or not.
    reads: f64,
    reads_sampled: u64,
    reads_to_halving: u64,
}

/// Which keys are in the sample.
struct Chosen {
    /// Digests are below 2^`digest_bits`.
    digest_bits: u32,
    /// Keys with a digest below this number are in the sample.
    below: u32,
    below_max: u32,
}

impl Sampled {
    /// A sample of at most `keys_max` keys, and at most the share 2^-`rate_shift` of them, chosen by digests of
    /// `digest_bits` bits (at most 31).
    ///
    /// # Panics
    /// If no key is allowed, or no digest.
    pub fn new(keys_max: usize, digest_bits: u32, rate_shift: u32) -> Sampled {
        assert!(keys_max > 0 && (1..=31).contains(&digest_bits) && rate_shift < digest_bits);
        let below = 1 << (digest_bits - rate_shift);
        Sampled {
            stack: Stack::new(),
            by_digest: BinaryHeap::new(),
            costs_us: Vec::new(),
            expire_s: Vec::new(),
            now_s: 0,
            keys_max,
            span_bytes: u64::MAX,
            chosen: Chosen { digest_bits, below, below_max: below },
            distances: Histogram::new(DISTANCE_BITS),
            costs: Histogram::new(DISTANCE_BITS),
            counted: 0.0,
            cold_cost_us: 0.0,
            reads: 0.0,
            reads_sampled: 0,
            reads_to_halving: READS_PER_KEY * keys_max as u64,
        }
    }

    /// The bytes of memory that a sample of `keys` keys takes.
    pub fn bytes_for(keys: usize) -> u64 {
        HISTOGRAM_BYTES + keys as u64 * KEY_BYTES
    }

    /// The number of keys that fit into `bytes` bytes of memory.
    pub fn keys_for(bytes: u64) -> usize {
        (bytes.saturating_sub(HISTOGRAM_BYTES) / KEY_BYTES) as usize
    }

    /// About how many bytes of memory the sample takes now.
    pub fn bytes(&self) -> u64 {
        let words = self.by_digest.capacity() + self.costs_us.capacity() + self.expire_s.capacity();
        self.stack.bytes() + self.distances.bytes() + self.costs.bytes() + (words * size_of::<u32>()) as u64
    }

    /// Sizes above `bytes` of items are of no interest from now on.
    pub fn set_span(&mut self, bytes: u64) {
        self.span_bytes = bytes.max(1);
    }

    /// The largest size of interest, in bytes of items.
    pub fn span(&self) -> u64 {
        self.span_bytes
    }

    /// The time is `now_s` seconds on the caller's clock.
    pub fn set_now(&mut self, now_s: u32) {
        self.now_s = now_s;
    }

    /// Keys with a digest below this number are in the sample.
    pub fn below(&self) -> u32 {
        self.chosen.below
    }

    /// The number of keys in the sample.
    pub fn keys(&self) -> usize {
        self.stack.items()
    }

    /// The share of the keys that is in the sample.
    pub fn rate(&self) -> f64 {
        1.0 / self.scale()
    }

    /// Reads that were counted, those that count half or less by now included.
    pub fn reads_sampled(&self) -> u64 {
        self.reads_sampled
    }

    fn scale(&self) -> f64 {
        2_f64.powi(self.chosen.digest_bits as i32) / f64::from(self.chosen.below.max(1))
    }

    /// Counts `reads` reads of any keys: the denominator of all ratios.
    pub fn count_reads(&mut self, reads: f64) {
        self.reads += reads;
    }

    /// A key was read. `found` is known if the cache had the item.
    pub fn read(&mut self, digest: u32, found: Option<Use>) {
        if digest >= self.chosen.below {
            return;
        }
        let scale = self.scale();
        let key = u64::from(digest);
        self.counted += scale;
        self.reads_sampled += 1;
        match self.living(digest) {
            Some(number) => {
                let bytes = found.map_or_else(|| self.stack.weight(key).unwrap_or(1), |found| found.bytes);
                if let Some(found) = found {
                    self.describe(number, found);
                }
                let cost_us = f64::from(self.costs_us[number]);
                if let Some(depth) = self.stack.touch(key, bytes) {
                    let distance = (depth.above as f64 * scale) as u64 + depth.weight;
                    self.distances.add(distance, scale);
                    self.costs.add(distance, scale * cost_us);
                }
            }
            None => {
                let cost_us = found.map_or_else(|| self.mean_cost_us(), |found| f64::from(found.cost_us));
                self.cold_cost_us += scale * cost_us;
                if let Some(found) = found {
                    self.insert(digest, found);
                }
            }
        }
        self.reads_to_halving -= 1;
        if self.reads_to_halving == 0 {
            self.halve();
        }
    }

    /// A key was stored.
    pub fn store(&mut self, digest: u32, stored: Use) {
        if digest >= self.chosen.below {
            return;
        }
        match self.stack.number(digest.into()) {
            Some(number) => {
                self.describe(number, stored);
                self.stack.touch(digest.into(), stored.bytes.max(1));
                self.drop_lowest();
            }
            None => self.insert(digest, stored),
        }
    }

    /// A key was deleted.
    pub fn remove(&mut self, digest: u32) {
        self.stack.remove(digest.into());
    }

    /// All keys were deleted. What was counted stays.
    pub fn clear(&mut self) {
        self.stack = Stack::new();
        self.by_digest.clear();
        self.costs_us.clear();
        self.expire_s.clear();
        self.chosen.below = self.chosen.below_max;
    }

    /// Allows `keys` keys from now on, at least one. A sample of more gives those of the largest digests up, and the
    /// memory that it needed. Space that deleted items left free is forgotten.
    pub fn limit_keys(&mut self, keys: usize) {
        let is_less = keys < self.keys_max;
        self.keys_max = keys.max(1);
        self.reads_to_halving = self.reads_to_halving.min(READS_PER_KEY * self.keys_max as u64);
        if is_less {
            let stack = std::mem::take(&mut self.stack);
            let (costs_us, expire_s) =
                (std::mem::take(&mut self.costs_us), std::mem::take(&mut self.expire_s));
            self.by_digest = BinaryHeap::new();
            for (key, bytes) in stack.rising() {
                let (digest, number) = (key as u32, stack.number(key).unwrap_or(0));
                if digest < self.chosen.below {
                    let (cost_us, expires_s) = (costs_us[number], expire_s[number]);
                    self.insert(digest, Use { bytes, cost_us, expires_s });
                }
            }
        }
    }

    /// Takes a smaller share of the keys, 7/8 of the present one, unless the sample is small already.
    pub fn thin_out(&mut self) {
        if self.keys() > self.keys_max / 4 {
            self.lower_to(self.chosen.below - self.chosen.below / 8);
        }
    }

    fn describe(&mut self, number: usize, item: Use) {
        self.costs_us[number] = item.cost_us;
        self.expire_s[number] = item.expires_s;
    }

    /// The number of a key in the stack. An item that has expired leaves it: no cache of any size has it.
    fn living(&mut self, digest: u32) -> Option<usize> {
        let number = self.stack.number(digest.into())?;
        if self.expire_s[number] > self.now_s {
            return Some(number);
        }
        self.stack.remove(digest.into());
        None
    }

    fn insert(&mut self, digest: u32, item: Use) {
        self.stack.touch(digest.into(), item.bytes.max(1));
        let number = self.stack.number(digest.into()).unwrap_or(0);
        if number >= self.costs_us.len() {
            self.costs_us.resize(number + 1, 0.0);
            self.expire_s.resize(number + 1, u32::MAX);
        }
        self.describe(number, item);
        self.by_digest.push(digest);
        self.drop_lowest();
        while self.stack.items() > self.keys_max {
            let Some(&largest) = self.by_digest.peek() else { break };
            self.lower_to(largest);
        }
        if self.by_digest.len() > 2 * self.keys_max {
            // The heap still has digests that left the stack, and those that came back are there twice.
            let mut present = std::mem::take(&mut self.by_digest).into_vec();
            present.retain(|digest| self.stack.number((*digest).into()).is_some());
            present.sort_unstable();
            present.dedup();
            self.by_digest = BinaryHeap::from(present);
        }
    }

    /// Drops the items that lie wholly below the span.
    fn drop_lowest(&mut self) {
        let span = (self.span_bytes as f64 / self.scale()).max(1.0) as u64;
        while self.stack.total() > span && self.stack.items() > 1 && self.stack.forget_lowest() {}
    }

    /// From now on only digests below `below` are in the sample. Earlier counts keep the weight they had.
    fn lower_to(&mut self, below: u32) {
        self.chosen.below = below.max(1);
        while let Some(&largest) = self.by_digest.peek()
            && largest >= self.chosen.below
        {
            self.by_digest.pop();
            self.stack.forget(largest.into());
        }
    }

    fn halve(&mut self) {
        self.reads_to_halving = READS_PER_KEY * self.keys_max as u64;
        self.distances.halve();
        self.costs.halve();
        for sum in [&mut self.counted, &mut self.cold_cost_us, &mut self.reads] {
            *sum /= 2.0;
        }
    }

    /// The mean cost of a miss of the reads so far.
    fn mean_cost_us(&self) -> f64 {
        let sum = self.cold_cost_us + self.costs.buckets().map(|(.., cost)| cost).sum::<f64>();
        if self.counted > 0.0 { sum / self.counted } else { 0.0 }
    }

    /// The curve of the reads so far.
    pub fn curve(&self) -> SampledCurve {
        // Few keys have most of the reads, and the sample has them or not. What it has too few or too many of are
        // reads of the smallest distance (SHARDS_adj, section 3.3 of the paper).
        let reads = if self.reads > 0.0 { self.reads } else { self.counted };
        let mut hits = reads - self.counted;
        let mut cost_us = self.cold_cost_us + self.costs.buckets().map(|(.., cost)| cost).sum::<f64>();
        let per_read = 1.0 / reads.max(1.0);
        let mut miss_ratio = 1.0_f64;
        let mut points = vec![Point { bytes: 0, miss_ratio, cost_us: cost_us * per_read }];
        let mut costs = self.costs.buckets().peekable();
        for (least, largest, count) in self.distances.buckets() {
            if largest > self.span_bytes {
                break;
            }
            let last = points[points.len() - 1];
            if least > last.bytes + 1 {
                points.push(Point { bytes: least - 1, ..last });
            }
            hits += count;
            while let Some((.., cost)) = costs.next_if(|(_, of, _)| *of <= largest) {
                cost_us -= cost;
            }
            miss_ratio = miss_ratio.min(1.0 - hits * per_read).max(0.0);
            points.push(Point { bytes: largest, miss_ratio, cost_us: (cost_us * per_read).max(0.0) });
        }
        points.dedup_by_key(|point| point.bytes);
        SampledCurve { points }
    }
}

/// What each size of a cache would miss. Between two points it is a straight line; after the last one it is constant.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SampledCurve {
    /// The points, by rising size and falling miss ratio.
    pub points: Vec<Point>,
}

impl SampledCurve {
    /// What a cache of `bytes` of items would miss.
    pub fn at(&self, bytes: u64) -> Point {
        let behind = self.points.partition_point(|point| point.bytes <= bytes);
        let none = Point { bytes, miss_ratio: 1.0, cost_us: 0.0 };
        let left = behind.checked_sub(1).map_or(none, |at| self.points[at]);
        let Some(right) = self.points.get(behind) else { return Point { bytes, ..left } };
        let part = (bytes - left.bytes) as f64 / (right.bytes - left.bytes) as f64;
        let between = |left: f64, right: f64| left + part * (right - left);
        Point {
            bytes,
            miss_ratio: between(left.miss_ratio, right.miss_ratio),
            cost_us: between(left.cost_us, right.cost_us),
        }
    }

    /// The same curve with fewer points: those at which the miss ratio has fallen by `step`, and the last.
    pub fn thinned(&self, step: f64) -> SampledCurve {
        let mut points: Vec<Point> = Vec::new();
        for (nth, point) in self.points.iter().enumerate() {
            let is_end = nth + 1 == self.points.len();
            // The last point before a fall is kept as well, so that a step stays a step.
            let falls = |last: &Point| last.miss_ratio - point.miss_ratio >= step;
            if is_end || points.last().is_none_or(falls) {
                if let Some(before) = nth.checked_sub(1).map(|at| self.points[at])
                    && points.last().is_some_and(|last| last.bytes < before.bytes)
                {
                    points.push(before);
                }
                points.push(*point);
            }
        }
        SampledCurve { points }
    }

    /// This curve up to `bytes`, and `wider` beyond, nowhere rising.
    pub fn followed_by(mut self, bytes: u64, wider: &SampledCurve) -> SampledCurve {
        self.points.retain(|point| point.bytes <= bytes);
        let mut last = self.at(bytes);
        for point in wider.points.iter().filter(|point| point.bytes > bytes) {
            last = Point {
                bytes: point.bytes,
                miss_ratio: last.miss_ratio.min(point.miss_ratio),
                cost_us: last.cost_us.min(point.cost_us),
            };
            self.points.push(last);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::hash_of;
    use proptest::prelude::*;

    const BITS: u32 = 31;

    fn digest(key: u64) -> u32 {
        (hash_of(key) >> (64 - BITS)) as u32
    }

    fn item(key: u64) -> Use {
        Use {
            bytes: hash_of(key) % 900 + 50,
            cost_us: if key.is_multiple_of(2) { 1000.0 } else { 3000.0 },
            expires_s: u32::MAX,
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Hit(u64),
        Miss(u64),
        Store(u64),
        Remove(u64),
    }

    /// The definition: a list of all items, and every distance.
    #[derive(Default)]
    struct Naive {
        list: Vec<(u64, Use)>,
        /// Distance and cost of each read. No distance: the key was not there.
        reads: Vec<(Option<u64>, f64)>,
    }

    impl Naive {
        fn take(&mut self, key: u64) -> Option<(u64, Use)> {
            let at = self.list.iter().position(|item| item.0 == key)?;
            let above: u64 = self.list[..at].iter().map(|item| item.1.bytes).sum();
            let (_, found) = self.list.remove(at);
            Some((above + found.bytes, found))
        }

        fn step(&mut self, step: Step, span: u64) {
            match step {
                Step::Hit(key) => {
                    let distance = self.take(key).map(|found| found.0);
                    self.reads.push((distance, item(key).cost_us.into()));
                    self.list.insert(0, (key, item(key)));
                }
                Step::Miss(key) => {
                    let there = self.take(key);
                    let cost_us = there.map_or(0.0, |found| found.1.cost_us.into());
                    self.reads.push((there.map(|found| found.0), cost_us));
                    self.list.splice(0..0, there.map(|found| (key, found.1)));
                }
                Step::Store(key) => {
                    self.take(key);
                    self.list.insert(0, (key, item(key)));
                }
                // Without the space that stays free: the test of the definition removes nothing.
                Step::Remove(key) => drop(self.take(key)),
            }
            // What lies below the span is forgotten.
            while self.list.iter().map(|item| item.1.bytes).sum::<u64>() > span && self.list.len() > 1 {
                self.list.pop();
            }
        }

        fn misses(&self, bytes: u64) -> f64 {
            self.reads.iter().filter(|read| read.0.is_none_or(|distance| distance > bytes)).count() as f64
        }
    }

    fn feed(sample: &mut Sampled, step: Step) {
        match step {
            Step::Hit(key) => sample.read(digest(key), Some(item(key))),
            Step::Miss(key) => sample.read(digest(key), None),
            Step::Store(key) => sample.store(digest(key), item(key)),
            Step::Remove(key) => sample.remove(digest(key)),
        }
        if matches!(step, Step::Hit(_) | Step::Miss(_)) {
            sample.count_reads(1.0);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_sample_of_all_keys_is_the_definition(
            steps in prop::collection::vec((0u64..40, 0u8..3), 1..300), span in prop_oneof![Just(u64::MAX), Just(4000)]
        ) {
            let (mut sample, mut naive) = (Sampled::new(1000, BITS, 0), Naive::default());
            sample.set_span(span);
            for (key, kind) in steps {
                let step = match kind {
                    0 => Step::Hit(key),
                    1 => Step::Miss(key),
                    _ => Step::Store(key),
                };
                feed(&mut sample, step);
                naive.step(step, span);
            }
            let reads = naive.reads.len().max(1) as f64;
            let curve = sample.curve();
            for point in curve.points.iter().filter(|point| (1..=span).contains(&point.bytes)) {
                // Distances are rounded up by at most 1 part in 64: a promise of a hit is never early.
                let least = naive.misses(point.bytes) / reads;
                let most = naive.misses(point.bytes - point.bytes / 64) / reads;
                prop_assert!(point.miss_ratio >= least - 1e-9 && point.miss_ratio <= most + 1e-9,
                    "{point:?}: {least} {most}");
            }
            // A miss of an unknown key costs the mean so far; the others cost what the definition says.
            prop_assert!(curve.points.windows(2).all(|two| two[0].cost_us >= two[1].cost_us - 1e-6));
        }

        #[test]
        fn the_sample_is_never_larger_than_allowed(
            steps in prop::collection::vec((0u64..3000, 0u8..4), 1..2000), keys_max in 1usize..80
        ) {
            let mut sample = Sampled::new(keys_max, BITS, 0);
            let mut below = sample.below();
            for (key, kind) in steps {
                let step = match kind {
                    0 => Step::Hit(key),
                    1 => Step::Miss(key),
                    2 => Step::Store(key),
                    _ => Step::Remove(key),
                };
                feed(&mut sample, step);
                prop_assert!(sample.keys() <= keys_max && sample.by_digest.len() <= 2 * keys_max + 1);
                prop_assert!(sample.below() <= below && sample.below() > 0);
                below = sample.below();
            }
        }
    }

    /// Random keys by Zipf's law with exponent `alpha`.
    struct Zipf {
        sums: Vec<f64>,
        state: u64,
    }

    impl Zipf {
        fn new(keys: u32, alpha: f64) -> Zipf {
            let mut sum = 0.0;
            let sums = (1..=keys).map(|rank| {
                sum += f64::from(rank).powf(-alpha);
                sum
            });
            Zipf { sums: sums.collect(), state: 7 }
        }

        fn next(&mut self) -> u64 {
            self.state = hash_of(self.state);
            let random = (self.state >> 11) as f64 / (1u64 << 53) as f64 * self.sums[self.sums.len() - 1];
            self.sums.partition_point(|below| *below < random) as u64
        }
    }

    fn mean_error(sample: &Sampled, exact: &Sampled, most: u64) -> f64 {
        let (sampled, exact) = (sample.curve(), exact.curve());
        let apart = |nth: u64| {
            let bytes = most / 1000 * nth;
            (sampled.at(bytes).miss_ratio - exact.at(bytes).miss_ratio).abs()
        };
        (1..=1000).map(apart).sum::<f64>() / 1000.0
    }

    #[test]
    fn the_curve_of_a_sample_is_within_two_hundredths_of_the_exact_one() {
        for (alpha, shift) in [(0.7, 0), (0.9, 4), (1.1, 4)] {
            let mut zipf = Zipf::new(200_000, alpha);
            let (mut sample, mut exact) = (Sampled::new(8192, BITS, shift), Sampled::new(1 << 20, BITS, 0));
            for _ in 0..600_000 {
                let key = zipf.next();
                feed(&mut sample, Step::Hit(key));
                feed(&mut exact, Step::Hit(key));
            }
            assert!(sample.rate() < 0.07, "{}", sample.rate());
            let error = mean_error(&sample, &exact, 90 << 20);
            assert!(error < 0.02 && error > 0.0, "alpha {alpha}: {error}");
            assert!(sample.bytes() < Sampled::bytes_for(8192), "{} B", sample.bytes());
        }
    }

    #[test]
    fn the_curves_of_small_samples_are_on_average_within_two_hundredths() {
        let mut errors = Vec::new();
        for (alpha, seed) in [(0.7, 0), (0.9, 0), (1.1, 0), (0.7, 1), (0.9, 1), (1.1, 1)] {
            let mut zipf = Zipf::new(50_000, alpha);
            zipf.state = seed;
            let (mut sample, mut exact) = (Sampled::new(512, BITS, 5), Sampled::new(1 << 20, BITS, 0));
            for _ in 0..150_000 {
                let key = zipf.next() + (seed << 32);
                feed(&mut sample, Step::Hit(key));
                feed(&mut exact, Step::Hit(key));
            }
            errors.push(mean_error(&sample, &exact, 22 << 20));
        }
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        assert!(mean < 0.02 && mean > 0.0, "{mean}: {errors:?}");
    }

    #[test]
    fn fewer_keys_take_less_memory_and_stay_in_order() {
        let (mut sample, mut fresh) = (Sampled::new(4096, BITS, 0), Sampled::new(300, BITS, 0));
        for key in 0..4000 {
            feed(&mut sample, Step::Store(key));
            feed(&mut fresh, Step::Store(key));
        }
        sample.limit_keys(300);
        assert_eq!((sample.keys(), sample.below()), (fresh.keys(), fresh.below()));
        assert!(sample.stack.rising().eq(fresh.stack.rising()));
        assert!(sample.bytes() < Sampled::bytes_for(300), "{} B", sample.bytes());
        sample.limit_keys(4096);
        for key in (0..4000).filter(|key| digest(*key) < sample.below()).collect::<Vec<_>>() {
            feed(&mut sample, Step::Hit(key));
        }
        assert_eq!(sample.curve().at(1 << 30).miss_ratio, 0.0);
    }

    #[test]
    fn keys_that_never_come_back_do_not_thin_the_sample_out() {
        let mut zipf = Zipf::new(5_000, 0.9);
        let (mut sample, mut exact) = (Sampled::new(2048, BITS, 0), Sampled::new(1 << 22, BITS, 0));
        let span = 4 << 20;
        sample.set_span(span);
        for once in 0..1_000_000u64 {
            let key = if once.is_multiple_of(2) { zipf.next() } else { once + (1 << 32) };
            for sample in [&mut sample, &mut exact] {
                sample.read(digest(key), None);
                sample.count_reads(1.0);
                sample.store(digest(key), item(key));
            }
        }
        assert!(
            sample.rate() > 0.15,
            "a million keys were seen, but about 8000 are within the span: {}",
            sample.rate()
        );
        let error = mean_error(&sample, &exact, span);
        assert!(error < 0.02, "{error}");
    }

    #[test]
    fn the_curve_follows_the_traffic() {
        let mut sample = Sampled::new(512, BITS, 0);
        let mut load = |keys: u64, reads: u64| {
            for n in 0..reads {
                feed(&mut sample, Step::Hit(hash_of(n) % keys));
            }
            sample.curve().at(keys / 2 * 500).miss_ratio
        };
        load(400, 40_000);
        assert!(load(40, 400_000) < 0.6);
        let small = sample.curve().at(60_000).miss_ratio;
        assert!(small < 0.01, "forty items of 500 B take 20 kB: {small}");
    }

    #[test]
    fn what_was_deleted_is_a_miss_at_every_size() {
        let mut sample = Sampled::new(100, BITS, 0);
        for step in [Step::Store(1), Step::Hit(1), Step::Remove(1), Step::Miss(1)] {
            feed(&mut sample, step);
        }
        assert_eq!(sample.curve().at(1 << 30).miss_ratio, 0.5);
        feed(&mut sample, Step::Store(2));
        sample.clear();
        assert_eq!((sample.keys(), sample.curve().at(1 << 30).miss_ratio), (0, 0.5));
    }

    #[test]
    fn what_has_expired_is_a_miss_at_every_size() {
        let mut sample = Sampled::new(100, BITS, 0);
        sample.store(digest(1), Use { expires_s: 10, ..item(1) });
        sample.set_now(9);
        feed(&mut sample, Step::Miss(1));
        assert_eq!(sample.curve().at(1 << 30).miss_ratio, 0.0);
        sample.set_now(10);
        feed(&mut sample, Step::Miss(1));
        assert_eq!((sample.keys(), sample.curve().at(1 << 30).miss_ratio), (0, 0.5));
    }

    #[test]
    fn costs_are_those_of_the_reads_that_miss() {
        let mut sample = Sampled::new(100, BITS, 0);
        for key in 0..10 {
            feed(&mut sample, Step::Store(key));
        }
        for _ in 0..50 {
            (0..10).for_each(|key| feed(&mut sample, Step::Hit(key)));
        }
        let curve = sample.curve();
        assert!((curve.at(0).cost_us - 2000.0).abs() < 1e-6, "{:?}", curve.at(0));
        assert_eq!(curve.at(1 << 20).cost_us, 0.0);
    }

    #[test]
    fn a_thinned_curve_stays_near_and_a_wider_one_follows() {
        let mut zipf = Zipf::new(2000, 0.9);
        let mut sample = Sampled::new(4000, BITS, 0);
        (0..60_000).for_each(|_| feed(&mut sample, Step::Hit(zipf.next())));
        let (curve, thin) = (sample.curve(), sample.curve().thinned(0.01));
        assert!(thin.points.len() < 202, "{}", thin.points.len());
        for bytes in (0..1_100_000).step_by(1000) {
            let apart = (curve.at(bytes).miss_ratio - thin.at(bytes).miss_ratio).abs();
            assert!(apart < 0.011, "{bytes}: {apart}");
        }
        let wide = curve.clone().followed_by(300_000, &curve);
        assert!((wide.at(500_000).miss_ratio - curve.at(500_000).miss_ratio).abs() < 1e-9);
    }
}
