//! Which keys are asked for most: a sketch of a sample of the requests.
//!
//! Workers note one key in `n`, for an `n` of their choice, with `n` as its weight. The sketch is Space-Saving
//! (Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in data streams", 2005) in
//! [`SETS`] sets of [`WAYS`] counters, of which the hash of a key chooses one, so that little is looked through for a
//! key. A key that has no counter takes the one of least weight in its set, and inherits that weight as the error by
//! which it may be counted too high. So a key is never counted too low, every key with more than one part in [`WAYS`]
//! of the weight of its set has a counter, and memory is bounded. Everything is halved once in [`HALVE_EVERY_S`]
//! seconds, so that what was hot an hour ago is not.

use larder_item::{FOLDED_KEY_BYTES, KeyHash};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Sets of counters, and the counters of each.
const SETS: usize = 32;
const WAYS: usize = 16;
/// After 60 seconds all that was counted counts half.
const HALVE_EVERY_S: u64 = 60;

/// A key that is asked for often.
#[derive(Clone, PartialEq, Debug)]
pub struct HotKey {
    /// The key.
    pub key: Vec<u8>,
    /// About how many requests named it.
    pub requests: u64,
    /// By how many requests that may be too high because the sketch is small.
    pub too_high_max: u64,
    /// By about how many requests it may be too high or too low because only a sample was counted: two standard
    /// deviations.
    pub sample_error: u64,
}

/// What the sketch knows.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HotKeysReport {
    /// The hottest keys, the hottest first.
    pub keys: Vec<HotKey>,
    /// All requests, older ones counted less: see `seconds`.
    pub requests: u64,
    /// The time over which they came. Older seconds count less, just as the requests in them do, so `requests` divided
    /// by `seconds` is a rate.
    pub seconds: f64,
    /// Requests that were looked at, since the start.
    pub sampled: u64,
}

/// The hot keys of a cache.
pub struct HotKeys {
    state: Mutex<State>,
    sampled: AtomicU64,
}

struct State {
    sketch: Sketch,
    /// Everything that was counted has been halved until then.
    halved: Instant,
    /// Seconds before `halved`, older ones counted less.
    seconds_before: f64,
}

impl Default for HotKeys {
    fn default() -> HotKeys {
        let state = State { sketch: Sketch::new(SETS), halved: Instant::now(), seconds_before: 0.0 };
        HotKeys { state: Mutex::new(state), sampled: AtomicU64::new(0) }
    }
}

impl HotKeys {
    /// Bytes that the hot keys of a cache take.
    pub(crate) const BYTES: u64 = (SETS * WAYS * (size_of::<Counter>() + 16)) as u64;

    /// A key was asked for, and stands for `weight` requests. Nobody waits: while another thread counts, the key is not
    /// counted.
    pub fn note(&self, hash: KeyHash, key: &[u8], weight: u64) {
        if let Ok(mut state) = self.state.try_lock() {
            state.sketch.add(hash, key, weight);
            self.sampled.fetch_add(1, Relaxed);
        }
    }

    /// About once a second: lets what is old count less.
    pub fn tick(&self) {
        if let Ok(mut state) = self.state.try_lock() {
            state.halve_until(Instant::now());
        }
    }

    /// Forgets everything.
    pub fn reset(&self) {
        let mut state = self.lock();
        state.sketch.clear();
        (state.halved, state.seconds_before) = (Instant::now(), 0.0);
    }

    /// The `most` hottest keys.
    pub fn report(&self, most: usize) -> HotKeysReport {
        let mut state = self.lock();
        let now = Instant::now();
        state.halve_until(now);
        HotKeysReport {
            keys: state.sketch.hottest(most),
            requests: state.sketch.total,
            seconds: state.seconds_before + now.duration_since(state.halved).as_secs_f64(),
            sampled: self.sampled.load(Relaxed),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }
}

impl State {
    fn halve_until(&mut self, now: Instant) {
        let period = Duration::from_secs(HALVE_EVERY_S);
        while now.duration_since(self.halved) >= period {
            self.halved += period;
            self.seconds_before = (self.seconds_before + period.as_secs_f64()) / 2.0;
            self.sketch.halve();
        }
    }
}

/// What is known of a key beside its weight.
#[derive(Clone, Copy)]
struct Counter {
    /// The part of its weight that may be of other keys.
    error: u64,
    /// Variance of its weight, for only a sample was counted.
    variance: u64,
    key_bytes: u8,
    key: [u8; FOLDED_KEY_BYTES],
}

/// Weights of keys in bounded memory. Weights and hashes stand in rows of their own, so that those of a set are looked
/// through quickly. A counter of weight 0 has no key.
struct Sketch {
    weights: Box<[[u64; WAYS]]>,
    hashes: Box<[[u64; WAYS]]>,
    counters: Box<[Counter]>,
    total: u64,
}

impl Sketch {
    fn new(sets: usize) -> Sketch {
        let none = Counter { error: 0, variance: 0, key_bytes: 0, key: [0; FOLDED_KEY_BYTES] };
        Sketch {
            weights: vec![[0; WAYS]; sets].into(),
            hashes: vec![[0; WAYS]; sets].into(),
            counters: vec![none; sets * WAYS].into(),
            total: 0,
        }
    }

    fn clear(&mut self) {
        self.weights.fill([0; WAYS]);
        self.total = 0;
    }

    /// The set of a key. The bits of the hash are not those that choose a bucket of the index.
    fn set_of(&self, hash: KeyHash) -> usize {
        (hash.0 >> 40) as usize % self.weights.len()
    }

    fn add(&mut self, hash: KeyHash, key: &[u8], weight: u64) {
        let Some(key_bytes) = u8::try_from(key.len()).ok().filter(|_| key.len() <= FOLDED_KEY_BYTES) else {
            return;
        };
        self.total += weight;
        let set = self.set_of(hash);
        let (weights, hashes) = (&mut self.weights[set], &mut self.hashes[set]);
        let known = (0..WAYS).find(|way| hashes[*way] == hash.0 && weights[*way] > 0);
        let way = known.unwrap_or_else(|| {
            let way = (0..WAYS).min_by_key(|way| weights[*way]).unwrap_or(0);
            hashes[way] = hash.0;
            let counter = &mut self.counters[set * WAYS + way];
            (counter.error, counter.variance, counter.key_bytes) = (weights[way], 0, key_bytes);
            counter.key[..key.len()].copy_from_slice(key);
            way
        });
        weights[way] += weight;
        self.counters[set * WAYS + way].variance += weight * (weight - 1);
    }

    /// Everything counts half.
    fn halve(&mut self) {
        self.total /= 2;
        self.weights.as_flattened_mut().iter_mut().for_each(|weight| *weight /= 2);
        for counter in &mut self.counters {
            counter.error = counter.error.div_ceil(2);
            counter.variance = counter.variance.div_ceil(4);
        }
    }

    fn hottest(&self, most: usize) -> Vec<HotKey> {
        let weighed =
            self.counters.iter().zip(self.weights.as_flattened()).filter(|(_, weight)| **weight > 0);
        let row = |(counter, weight): (&Counter, &u64)| HotKey {
            key: counter.key[..counter.key_bytes.into()].to_vec(),
            requests: *weight,
            too_high_max: counter.error.min(*weight),
            sample_error: 2 * counter.variance.isqrt(),
        };
        let mut rows: Vec<HotKey> = weighed.map(row).collect();
        // Of two keys, the one that is hotter for sure comes first.
        rows.sort_by_key(|hot| std::cmp::Reverse((hot.requests, hot.requests - hot.too_high_max)));
        rows.truncate(most);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::HashMap;

    fn key(n: u64) -> (KeyHash, Vec<u8>) {
        (KeyHash(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1), format!("key {n}").into_bytes())
    }

    /// The twin that defines the answer: exact counts.
    #[derive(Default)]
    struct Exact(HashMap<u64, u64>);

    impl Exact {
        fn count(&self, key: &[u8]) -> u64 {
            let n = std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix("key ")?.parse().ok());
            n.and_then(|n: u64| self.0.get(&n).copied()).unwrap_or(0)
        }

        fn hottest(&self, most: usize) -> Vec<Vec<u8>> {
            let mut all: Vec<_> = self.0.iter().map(|(n, count)| (*count, *n)).collect();
            all.sort();
            all.into_iter().rev().take(most).map(|(_, n)| key(n).1).collect()
        }
    }

    /// A number from 0 to `keys` - 1; the number n comes about 1 / (n + 1) times as often as 0.
    fn zipf(random: &mut Random, keys: u64) -> u64 {
        let u = f64::from(random.next_u32()) / f64::from(u32::MAX);
        (((keys + 1) as f64).powf(u) as u64).clamp(1, keys) - 1
    }

    /// Checks the promises of the sketch against the twin.
    fn check(sketch: &Sketch, exact: &Exact, total: u64) {
        assert_eq!(sketch.total, total);
        let all = sketch.hottest(usize::MAX);
        for hot in &all {
            let count = exact.count(&hot.key);
            assert!(hot.requests >= count, "{hot:?} was counted {count} times");
            assert!(hot.requests - hot.too_high_max <= count, "{hot:?} was counted {count} times");
        }
        let has = |key: &Vec<u8>| all.iter().any(|hot| hot.key == *key);
        let mut of_sets = vec![0; sketch.weights.len()];
        exact.0.iter().for_each(|(n, count)| of_sets[sketch.set_of(key(*n).0)] += count);
        for (n, count) in &exact.0 {
            let (hash, key) = key(*n);
            assert!(has(&key) || *count <= of_sets[sketch.set_of(hash)] / WAYS as u64);
        }
    }

    #[test]
    fn the_sketch_keeps_its_promises_whatever_comes() {
        for seed in 1..60 {
            let mut random = Random::new(seed * 77);
            let mut sketch = Sketch::new(1 + random.below(4) as usize);
            let (mut exact, mut total) = (Exact::default(), 0);
            let keys = 1 + random.below(400);
            let skewed = random.below(2) == 0;
            for _ in 0..3000 {
                let n = if skewed { zipf(&mut random, keys) } else { random.below(keys) };
                let (hash, key) = key(n);
                let weight = 1 + random.below(5);
                sketch.add(hash, &key, weight);
                *exact.0.entry(n).or_default() += weight;
                total += weight;
            }
            check(&sketch, &exact, total);
        }
    }

    #[test]
    fn the_true_top_ten_of_a_skewed_load_are_found() {
        let (mut sketch, mut exact, mut random) = (Sketch::new(SETS), Exact::default(), Random::new(5));
        for _ in 0..400_000 {
            let n = zipf(&mut random, 100_000);
            let (hash, key) = key(n);
            sketch.add(hash, &key, 1);
            *exact.0.entry(n).or_default() += 1;
        }
        check(&sketch, &exact, 400_000);
        let found: Vec<_> = sketch.hottest(10).into_iter().map(|hot| hot.key).collect();
        assert_eq!(found, exact.hottest(10));
        assert!(sketch.hottest(10).iter().all(|hot| hot.sample_error == 0));
    }

    #[test]
    fn a_sample_states_its_error() {
        let (hot_keys, mut exact, mut random) = (HotKeys::default(), Exact::default(), Random::new(9));
        let mut left = 0;
        for _ in 0..200_000 {
            let n = zipf(&mut random, 1000);
            let (hash, key) = key(n);
            if left == 0 {
                hot_keys.note(hash, &key, 50);
                left = 1 + random.below(99);
            }
            left -= 1;
            *exact.0.entry(n).or_default() += 1;
        }
        let report = hot_keys.report(20);
        assert_eq!(report.keys.len(), 20);
        let within = |hot: &&HotKey| {
            let count = exact.count(&hot.key);
            let low = hot.requests.saturating_sub(hot.too_high_max + hot.sample_error);
            (low..=hot.requests + hot.sample_error).contains(&count)
        };
        // Two standard deviations are exceeded once in twenty times.
        assert!(report.keys.iter().filter(within).count() >= 17, "{report:?}");
        assert!(report.requests.abs_diff(200_000) < 10_000 && report.sampled > 3000);
    }

    #[test]
    fn what_is_old_counts_less() {
        let hot_keys = HotKeys::default();
        let (hash, key) = key(1);
        hot_keys.note(hash, &key, 1000);
        {
            let mut state = hot_keys.lock();
            let then = state.halved + Duration::from_secs(2 * HALVE_EVERY_S);
            state.halve_until(then);
            assert_eq!((state.sketch.hottest(1)[0].requests, state.sketch.total), (250, 250));
            assert_eq!(state.seconds_before, 45.0);
        }
        hot_keys.reset();
        assert_eq!(hot_keys.report(5).keys, []);
    }
}
