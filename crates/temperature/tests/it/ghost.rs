//! Compares the ghost with queues of fingerprints.

use crate::common::cases;
use larder_item::KeyHash;
use larder_temperature::Ghost;
use proptest::prelude::*;
use std::collections::{HashSet, VecDeque};

/// Fingerprints in a bucket.
const DEPTH: u64 = 8;

/// Buckets as queues of fingerprints and eras, with the newest in front.
struct Naive {
    buckets: Vec<VecDeque<(u64, u64)>>,
    /// All eras since the ghost was made, and the pushes of the latest one.
    era: u64,
    of_era: u64,
}

impl Naive {
    fn new(entries: u64) -> Naive {
        Naive { buckets: vec![VecDeque::new(); entries.div_ceil(DEPTH).max(1) as usize], era: 0, of_era: 0 }
    }

    /// The queue of a key and its fingerprint, with integers that do not overflow.
    fn queue_and_print(&mut self, key: KeyHash) -> (&mut VecDeque<(u64, u64)>, u64) {
        let modulus = 1u128 << 64;
        let x = u128::from(key.0) * 0x9E37_79B9_7F4A_7C15 % modulus;
        let x = (x ^ (x / (1 << 32))) * 0xD6E8_FEB8_6659_FD93 % modulus;
        let x = x ^ (x / (1 << 32));
        let (high, low) = (x / (1 << 32), x % (1 << 32));
        let bucket = high * self.buckets.len() as u128 / (1 << 32);
        (&mut self.buckets[bucket as usize], 1 + (low * 4095 / (1 << 32)) as u64)
    }

    /// Pushes in an era.
    fn era_pushes(&self) -> u64 {
        (self.buckets.len() as u64 * DEPTH / 8).max(1)
    }

    fn push(&mut self, key: KeyHash) {
        let era = self.era;
        let (queue, print) = self.queue_and_print(key);
        queue.push_front((print, era));
        queue.truncate(DEPTH as usize);
        self.of_era += 1;
        if self.of_era >= self.era_pushes() {
            (self.era, self.of_era) = (era + 1, 0);
        }
    }

    fn contains(&mut self, key: KeyHash) -> bool {
        let (queue, print) = self.queue_and_print(key);
        queue.iter().any(|one| one.0 == print)
    }

    fn take(&mut self, key: KeyHash) -> Option<u64> {
        let (era, era_pushes) = (self.era, self.era_pushes());
        let (queue, print) = self.queue_and_print(key);
        let at = queue.iter().position(|one| one.0 == print)?;
        queue.remove(at).map(|one| (era - one.1) % 16 * era_pushes)
    }

    fn resize(&mut self, entries: u64) {
        let era_left = self.era_pushes() - self.of_era;
        while (self.buckets.len() as u64) < entries.div_ceil(DEPTH) {
            self.buckets = self.buckets.iter().flat_map(|queue| [queue.clone(), queue.clone()]).collect();
        }
        while self.buckets.len() as u64 / 2 >= (entries + entries / 2).div_ceil(DEPTH).max(1) {
            let pair = |pair: &[VecDeque<(u64, u64)>]| {
                let of = |nth| pair.iter().filter_map(move |bucket| bucket.get(nth));
                let by_turns = (0..DEPTH as usize).flat_map(of);
                let mut seen = HashSet::new();
                by_turns.copied().filter(|one: &(u64, u64)| seen.insert(one.0)).take(DEPTH as usize).collect()
            };
            if self.buckets.len().is_multiple_of(2) {
                self.buckets = self.buckets.chunks(2).map(pair).collect();
                continue;
            }
            let mut half = vec![VecDeque::new(); self.buckets.len() / 2];
            for (nth, queue) in self.buckets.iter().enumerate() {
                let middle = (nth as f64 + 0.5) / self.buckets.len() as f64;
                let to = &mut half[(middle * (self.buckets.len() / 2) as f64) as usize];
                *to = pair(&[to.clone(), queue.clone()]);
            }
            self.buckets = half;
        }
        // As many pushes as before end the era, or fewer.
        self.of_era = self.era_pushes() - era_left.min(self.era_pushes());
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u64),
    Take(u64),
    Resize(u64),
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_ghost_is_queues_of_eight(
        entries in 0u64..60,
        steps in prop::collection::vec(prop_oneof![
            8 => (0u64..80).prop_map(Step::Push),
            4 => (0u64..80).prop_map(Step::Take),
            1 => (0u64..120).prop_map(Step::Resize),
        ], 1..if cfg!(miri) { 20 } else { 80 }),
    ) {
        let mut ghost = Ghost::for_entries(entries);
        let mut naive = Naive::new(entries);
        for step in steps {
            match step {
                Step::Push(key) => {
                    ghost.prefetch(KeyHash(key));
                    ghost.push(KeyHash(key));
                    naive.push(KeyHash(key));
                    prop_assert!(ghost.contains(KeyHash(key)));
                }
                Step::Take(key) => prop_assert_eq!(ghost.take(KeyHash(key)), naive.take(KeyHash(key))),
                Step::Resize(entries) => {
                    ghost.resize(entries);
                    naive.resize(entries);
                }
            }
            prop_assert_eq!(ghost.entries(), DEPTH * naive.buckets.len() as u64);
            prop_assert_eq!(ghost.bytes(), 2 * DEPTH * naive.buckets.len() as u64);
            for key in (0..80).step_by(if cfg!(miri) { 10 } else { 1 }) {
                prop_assert_eq!(ghost.contains(KeyHash(key)), naive.contains(KeyHash(key)), "key {}", key);
            }
        }
    }
}

/// Numbers spread like hashes.
fn hash(n: u64) -> KeyHash {
    KeyHash((n + 1).wrapping_mul(0x2545_F491_4F6C_DD1D).rotate_left(23))
}

#[test]
fn the_newest_are_known_and_strangers_are_not() {
    let entries: u64 = if cfg!(miri) { 100 } else { 40_000 };
    let mut ghost = Ghost::for_entries(entries);
    (0..2 * entries).for_each(|n| ghost.push(hash(n)));
    let known = |range: std::ops::Range<u64>| range.filter(|n| ghost.contains(hash(*n))).count() as f64;
    // Of a Poisson(8 * age) number of later keys, fewer than eight come with probability 0.9999 at age 0.1, and 0.57
    // at age 0.9.
    let tenth = entries / 10;
    assert!(known(2 * entries - tenth..2 * entries) > 0.97 * tenth as f64);
    let old = 2 * entries - entries * 95 / 100;
    let share = known(old..old + tenth) / tenth as f64;
    assert!((0.4..0.65).contains(&share) || cfg!(miri), "{share}");
    let strangers = known(10 * entries..30 * entries) / (20 * entries) as f64;
    assert!(strangers < 1.5 * 8.0 / 4095.0 || cfg!(miri), "{strangers}");
}

#[test]
fn a_grown_ghost_forgets_nobody() {
    let unit: u64 = if cfg!(miri) { 8 } else { 200 };
    let mut ghost = Ghost::for_entries(10 * unit);
    let known_by =
        |ghost: &Ghost| -> Vec<u64> { (0..10 * unit).filter(|n| ghost.contains(hash(*n))).collect() };
    (0..10 * unit).for_each(|n| ghost.push(hash(n)));
    let known = known_by(&ghost);
    ghost.resize(70 * unit);
    assert_eq!(ghost.entries(), 80 * unit);
    assert_eq!(known_by(&ghost), known);
    ghost.resize(60 * unit);
    assert_eq!(ghost.entries(), 80 * unit, "a size that sways");
    ghost.resize(7 * unit);
    assert_eq!(ghost.entries(), 20 * unit);
    ghost.resize(6 * unit);
    assert_eq!(ghost.entries(), 10 * unit);
    assert_eq!(known_by(&ghost), known, "half of a doubled ghost is what was doubled");
    ghost.resize(3 * unit);
    assert_eq!(ghost.entries(), 5 * unit);
    let kept = known_by(&ghost).len() as u64;
    // The ghost is nearly full: a few pairs of buckets had fewer than eight fingerprints. Few keys pass for others.
    assert!((4 * unit..=5 * unit + unit / 20).contains(&kept), "{kept} of {}", 5 * unit);
}

#[test]
fn a_ghost_that_was_far_too_large_becomes_small_whatever_its_size() {
    let unit: u64 = if cfg!(miri) { 8 } else { 200 };
    for entries in [250 * unit, 250 * unit + 8, 333 * unit, 511 * unit] {
        let mut ghost = Ghost::for_entries(entries);
        ghost.resize(10 * unit);
        assert!(ghost.entries() <= 31 * unit, "{} for {} entries, not {entries}", ghost.entries(), 10 * unit);
        (0..10 * unit).for_each(|n| ghost.push(hash(n)));
        assert!(ghost.contains(hash(10 * unit - 1)));
    }
}
