//! Compares the index with a `HashMap`, the slow twin that defines the answer.
#![cfg(not(loom))]

use crate::common::{Records, tag_match};
use larder_index::{BUCKET_ENTRIES_MAX, Index, IndexOptions, WARMTH_MAX};
use larder_item::Location;
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug)]
enum Step {
    Set(u64),
    Remove(u64),
    Get(u64),
    Mark(u64),
    Grow(usize),
    Shrink(usize),
    Walk,
}

fn step(keys: u64) -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..keys).prop_map(Step::Set),
        4 => (0..keys).prop_map(Step::Remove),
        4 => (0..keys).prop_map(Step::Get),
        2 => (0..keys).prop_map(Step::Mark),
        2 => (0usize..20).prop_map(Step::Grow),
        2 => (0usize..20).prop_map(Step::Shrink),
        1 => Just(Step::Walk),
    ]
}

/// Fewer than `count` steps with keys below `keys`. Under Miri fewer than 30.
fn steps(keys: u64, count: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(keys), 1..if cfg!(miri) { 30 } else { count })
}

/// The index and its model.
struct Twins {
    index: Index,
    records: Records,
    model: HashMap<u64, (Location, u8)>,
}

impl Twins {
    /// An index whose splits read records.
    fn new(buckets_log2: u32, buckets_log2_max: u32, fill_target: u32, forced: u64) -> Twins {
        Twins::with_location_bits(Location::BITS, buckets_log2, buckets_log2_max, fill_target, forced)
    }

    fn with_location_bits(
        location_bits: u32,
        buckets_log2: u32,
        buckets_log2_max: u32,
        fill_target: u32,
        forced: u64,
    ) -> Twins {
        let (huge, marks) = (false, true);
        let options =
            IndexOptions { buckets_log2, buckets_log2_max, fill_target, huge, marks, location_bits };
        Twins { index: Index::new(options).unwrap(), records: Records::new(forced), model: HashMap::new() }
    }

    /// Inserts or replaces the key. If the bucket is full, removes the victim, as a cache would. Returns the number
    /// of victims.
    fn set(&mut self, key: u64) -> usize {
        let (hash, at) = (self.records.hash(key), self.records.make(key));
        let mut victims = 0;
        let seen = tag_match(&self.index, hash);
        let mut guard = self.index.lock(hash);
        match guard.find(&key.to_le_bytes(), &self.records) {
            Some(found) => {
                assert_eq!(found.entry.location, self.model[&key].0);
                assert!(guard.replace(&found, at, found.entry.warmth));
                assert!(guard.find_at(found.entry.location).is_none());
                let lookup = self.index.batch_lookup();
                if let Some(seen) = seen.filter(|seen| lookup.location(*seen) == found.entry.location) {
                    assert!(!lookup.confirm(hash, seen, |_| true), "the entry points elsewhere now");
                }
                self.model.get_mut(&key).unwrap().0 = at;
            }
            None => {
                assert!(!self.model.contains_key(&key));
                while let Err(full) = guard.insert(at, 1) {
                    assert!(guard.entries().count() >= 15, "a bucket is full with two lines at least");
                    let victim = self.records.key_at(full.victim.entry.location);
                    assert!(self.model.remove(&victim).is_some());
                    assert!(guard.remove(&full.victim));
                    assert!(!guard.remove(&full.victim), "a second removal does nothing");
                    victims += 1;
                }
                self.model.insert(key, (at, 1));
            }
        }
        assert_eq!(guard.find_at(at).unwrap().entry.location, at);
        assert!(guard.entries().count() <= BUCKET_ENTRIES_MAX);
        victims
    }

    fn remove(&mut self, key: u64) {
        let mut guard = self.index.lock(self.records.hash(key));
        let found = guard.find(&key.to_le_bytes(), &self.records);
        assert_eq!(found.map(|f| f.entry.location), self.model.remove(&key).map(|(at, _)| at));
        if let Some(found) = found {
            assert!(guard.remove(&found));
            assert!(guard.find(&key.to_le_bytes(), &self.records).is_none());
        }
    }

    fn check(&self, key: u64) {
        let got = self.index.get(self.records.hash(key), &key.to_le_bytes(), &self.records);
        assert_eq!(got.map(|e| (e.location, e.warmth)), self.model.get(&key).copied(), "key {key}");
    }

    fn mark(&mut self, key: u64) {
        let hash = self.records.hash(key);
        let got = self.index.get_marking(hash, &key.to_le_bytes(), &self.records);
        assert_eq!(got.map(|e| (e.location, e.warmth)), self.model.get(&key).copied());
        let Some((at, warmth)) = self.model.get_mut(&key) else { return };
        *warmth = (*warmth + 1).min(WARMTH_MAX);
        let seen = tag_match(&self.index, hash).expect("the key's own entry has its tag");
        // Another key of the bucket may have the same tag.
        if self.index.batch_lookup().location(seen) == *at {
            assert!(self.index.batch_lookup().confirm(hash, seen, |_| true));
            *warmth = (*warmth + 1).min(WARMTH_MAX);
        }
    }

    fn walk(&self) {
        let mut seen: Vec<_> = Vec::new();
        let mut cursor = Some(0);
        while let Some(bucket) = cursor {
            cursor = self.index.walk(bucket, &mut |entry| seen.push((entry.location, entry.warmth))).next;
        }
        let mut expected: Vec<_> = self.model.values().copied().collect();
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected);
    }

    fn check_all(&self, keys: u64) {
        (0..keys).for_each(|key| self.check(key));
        self.walk();
        assert_eq!(self.index.len(), self.model.len() as u64);
    }

    /// Merges buckets and gives their memory back. No other thread uses the index.
    fn shrink(&self, max: usize) {
        self.index.shrink(max);
        while self.index.pack_sub_buckets(2) {}
        if let Some(spare) = self.index.spare() {
            self.index.give_back(spare);
        }
    }

    fn grow_fully(&self) -> usize {
        let mut splits = 0;
        while self.index.needs_growth() {
            splits += self.index.grow(&self.records, 3);
        }
        splits
    }
}

fn run(twins: &mut Twins, keys: u64, steps: &[Step]) {
    for step in steps {
        match *step {
            Step::Set(key) => drop(twins.set(key)),
            Step::Remove(key) => twins.remove(key),
            Step::Get(key) => twins.check(key),
            Step::Mark(key) => twins.mark(key),
            Step::Grow(max) => drop(twins.index.grow(&twins.records, max)),
            Step::Shrink(max) => twins.shrink(max),
            Step::Walk => twins.walk(),
        }
    }
    twins.check_all(keys);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 200 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Few buckets, so that they overflow, split their sub-buckets and become full.
    #[test]
    fn crowded(steps in steps(if cfg!(miri) { 40 } else { 300 }, 3000)) {
        run(&mut Twins::new(0, 3, 100, 0), if cfg!(miri) { 40 } else { 300 }, &steps);
    }

    /// From one bucket through many doublings.
    #[test]
    fn growing(
        fill in 1u32..9,
        location_bits in 20..=Location::BITS,
        steps in steps(if cfg!(miri) { 60 } else { 2000 }, 3000),
    ) {
        let (keys, buckets_log2_max) = if cfg!(miri) { (60, 4) } else { (2000, 12) };
        let twins = &mut Twins::with_location_bits(location_bits, 0, buckets_log2_max, fill, 0);
        run(twins, keys, &steps);
    }

    /// All tags point in one direction, so that sub-buckets cannot share the load.
    #[test]
    fn one_direction(steps in steps(if cfg!(miri) { 40 } else { 200 }, 2000)) {
        run(&mut Twins::new(2, 4, 10, 3 << 48), if cfg!(miri) { 40 } else { 200 }, &steps);
    }
}

#[test]
fn fills_grows_and_empties() {
    // Every split reads records; every third one does; one in twenty does.
    [Location::BITS, Location::BITS - 3, 20].into_iter().for_each(fills_grows_and_empties_with);
}

fn fills_grows_and_empties_with(location_bits: u32) {
    let keys = if cfg!(miri) { 36 } else { 40_000 };
    let buckets_log2_max = if cfg!(miri) { 4 } else { 14 };
    let mut twins = Twins::with_location_bits(location_bits, 0, buckets_log2_max, 6, 0);
    let (mut splits, mut victims) = (0, 0);
    for key in 0..keys {
        victims += twins.set(key);
        splits += twins.grow_fully();
    }
    assert_eq!(twins.index.buckets(), 1 + splits as u64);
    assert!(twins.index.buckets() + 64 >= keys / 6 && twins.index.buckets() <= keys / 6 + 1);
    twins.check_all(keys);
    (0..keys).for_each(|key| {
        twins.remove(key);
        twins.shrink(3);
        if key % (keys / 10) == 0 {
            twins.check_all(keys);
        }
    });
    twins.check_all(keys);
    assert!(twins.index.is_empty());
    assert_eq!(twins.index.buckets(), 1);
    let bytes_max = if cfg!(miri) { u64::MAX } else { 80 << 10 };
    assert!(twins.index.bytes() < bytes_max, "{} bytes are left", twins.index.bytes());
    for key in 0..keys {
        victims += twins.set(key);
        twins.grow_fully();
    }
    twins.check_all(keys);
    assert_eq!(victims, 0, "a growing index has room, save for about one insert in a million");
}

/// A walk shows each key once that is there throughout, although buckets are split and merged between its steps.
#[test]
fn a_walk_shows_each_key_once_while_the_index_grows_and_shrinks() {
    let (keys, most) = if cfg!(miri) { (40, 8) } else { (3_000, 1 << 10) };
    let mut twins = Twins::with_location_bits(30, 0, if cfg!(miri) { 4 } else { 10 }, 2, 0);
    (0..keys).for_each(|key| _ = twins.set(key));
    for seed in 1..if cfg!(miri) { 3 } else { 100 } {
        let (mut seen, mut next, mut lot) = (Vec::new(), Some(0), seed);
        while let Some(cursor) = next {
            lot = u64::wrapping_mul(lot, 0x5851_f42d_4c95_7f2d).wrapping_add(1);
            // The limit lies between a fifth and all of the buckets that there may be.
            twins.index.set_growth_limit(most / 5 + (lot >> 33) % most);
            match lot >> 60 {
                0..6 => _ = twins.index.grow(&twins.records, (lot >> 40) as usize % 100),
                6..12 => _ = twins.index.shrink((lot >> 40) as usize % 100),
                _ => {}
            }
            let mut entries = Vec::new();
            let walked = twins.index.walk(cursor, &mut |entry| entries.push(entry.location));
            entries.retain(|at| {
                let hash = twins.records.hash(twins.records.key_at(*at));
                !(walked.has_repeats && twins.index.is_before(hash, cursor))
            });
            seen.extend(entries.into_iter().map(|at| twins.records.key_at(at)));
            next = walked.next;
        }
        seen.sort_unstable();
        assert!(
            seen == twins
                .model
                .keys()
                .copied()
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_bucket_takes_thirty_nine_entries_and_names_a_victim() {
    let mut twins = Twins::new(0, 0, 6, 0);
    let keys = if cfg!(miri) { 45 } else { 500 };
    let victims: usize = (0..keys).map(|key| twins.set(key)).sum();
    assert!(
        (BUCKET_ENTRIES_MAX - 4..=BUCKET_ENTRIES_MAX).contains(&twins.model.len()),
        "{}",
        twins.model.len()
    );
    assert_eq!(victims + twins.model.len(), keys as usize);
    twins.check_all(keys);
}

#[test]
fn growth_stops_at_its_limit() {
    let mut twins = Twins::new(0, if cfg!(miri) { 4 } else { 10 }, 6, 0);
    let (keys, limit) = if cfg!(miri) { (40, 2) } else { (150, 5) };
    twins.index.set_growth_limit(limit);
    for key in 0..keys {
        twins.set(key);
        twins.grow_fully();
    }
    assert_eq!(twins.index.buckets(), limit);
    twins.index.set_growth_limit(1 << 40);
    assert!(twins.index.needs_growth());
    twins.grow_fully();
    assert!(twins.index.buckets() + 1 >= keys / 6);
    twins.check_all(keys);
}

#[test]
fn the_coldest_goes_first() {
    let mut twins = Twins::new(0, 0, 6, 3 << 48);
    (0..15).for_each(|key| assert_eq!(twins.set(key), 0));
    (0..15).filter(|key| *key != 11).for_each(|key| twins.mark(key));
    assert_eq!(twins.set(15), 1);
    assert!(!twins.model.contains_key(&11));
    twins.check_all(16);
}

#[test]
fn entries_cool_by_what_the_caller_says() {
    let keys = if cfg!(miri) { 40 } else { 3_000 };
    let mut twins = Twins::with_location_bits(30, 0, if cfg!(miri) { 3 } else { 8 }, 6, 0);
    for key in 0..keys {
        twins.set(key);
        twins.grow_fully();
        (0..key % 4).for_each(|_| twins.mark(key));
    }
    let mut seen = Vec::new();
    let mut cursor = Some(0);
    while let Some(bucket) = cursor {
        cursor = twins.index.cool(bucket, &mut |entry| {
            seen.push((entry.location, entry.warmth));
            entry.warmth.saturating_sub(2)
        });
    }
    let mut expected: Vec<_> = twins.model.values().copied().collect();
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
    twins.model.values_mut().for_each(|(_, warmth)| *warmth = warmth.saturating_sub(2));
    twins.check_all(keys);
}

#[test]
fn contradicting_options_are_refused() {
    let good = IndexOptions::default();
    for bad in [
        IndexOptions { buckets_log2: 31, ..good },
        IndexOptions { buckets_log2_max: 60, ..good },
        IndexOptions { fill_target: 0, ..good },
        IndexOptions { location_bits: 47, ..good },
    ] {
        assert_eq!(Index::new(bad).err().unwrap().kind(), std::io::ErrorKind::InvalidInput);
    }
}
