//! A tier with a journal that is overwritten for long, and stopped or killed again and again: it stays as it was.

use super::Bench;
use crate::Put;
use crate::options::Recover;
use crate::space::Watermarks;
use std::collections::{HashMap, VecDeque};

const KEYS: u32 = 5_000;
/// Items that memory holds.
const IN_MEMORY: usize = 900;
const STORES: u32 = 7_000;
const ROUNDS: u32 = 8;
const VALUE_BYTES: usize = 960;
/// Stores between two rounds of the tier's work.
const STORES_PER_ROUND: u32 = 50;

/// Items in memory, all of them changed since flash had them, in front of a tier.
struct Levels {
    bench: Bench,
    /// The keys in the order in which they leave.
    order: VecDeque<u32>,
    in_memory: HashMap<u32, u32>,
    /// The version of each key that was stored last.
    newest: HashMap<u32, u32>,
    random: u64,
    stores: u32,
}

impl Levels {
    fn key(&mut self) -> u32 {
        self.random = crate::record::mix(self.random.wrapping_add(0x9e37_79b9_7f4a_7c15));
        (self.random % KEYS as u64) as u32
    }

    fn store(&mut self, key: u32) {
        let version = self.newest.entry(key).and_modify(|version| *version += 1).or_insert(1);
        if self.in_memory.insert(key, *version).is_none() {
            self.bench.invalidate(&key.to_le_bytes());
            self.order.push_back(key);
        }
        if self.order.len() > IN_MEMORY {
            self.evict();
        }
        self.stores += 1;
        if self.stores.is_multiple_of(STORES_PER_ROUND) {
            self.bench.flash.tend();
        }
    }

    fn evict(&mut self) {
        let Some(key) = self.order.pop_front() else { return };
        let version = self.in_memory.remove(&key).expect("it is in memory");
        let mut value = [b'v'; VALUE_BYTES];
        value[..4].copy_from_slice(&version.to_le_bytes());
        let put = self.bench.put(&key.to_le_bytes(), &value, 0);
        assert_eq!(put, Put::Stored, "there is room for everything: {:?}", self.bench.flash.stats());
    }

    fn round(&mut self) {
        for _ in 0..STORES {
            let key = self.key();
            self.store(key);
        }
    }

    /// Writes what is in memory, and closes the tier in order.
    fn stop(&mut self) {
        while !self.order.is_empty() {
            self.evict();
            if self.order.len().is_multiple_of(STORES_PER_ROUND as usize) {
                self.bench.flash.tend();
            }
        }
        self.bench.restart();
    }

    /// Everything in memory is lost. What was acknowledged is in the journal.
    fn crash(&mut self) {
        self.bench.flash.tend();
        self.order.clear();
        self.in_memory.clear();
        self.bench.crash();
    }

    /// How many items are found, all in their newest version.
    fn found(&mut self) -> u32 {
        let mut found = 0;
        for (key, newest) in self.newest.clone() {
            if let Some(value) = self.bench.value(&key.to_le_bytes()) {
                assert_eq!(value[..4], newest.to_le_bytes(), "an old version of key {key} is back");
                found += 1;
            }
        }
        found
    }
}

#[test]
fn rounds_of_stores_and_restarts_leave_a_journaled_tier_as_it_was() {
    let bench = Bench::new(64, 64, |options| {
        options.recover = Recover::Journal;
        options.generations = true;
        options.log_percent = 100;
        options.fill_percent = 85;
        options.space = Watermarks::by_rates();
    });
    let (order, in_memory, newest) = (VecDeque::new(), HashMap::new(), HashMap::new());
    let mut levels = Levels { bench, order, in_memory, newest, random: 1, stores: 0 };
    (0..KEYS).for_each(|key| levels.store(key));
    for round in 0..ROUNDS {
        levels.round();
        let stats = levels.bench.flash.stats();
        let is_crash = round % 2 == 1;
        if is_crash {
            levels.crash()
        } else {
            levels.stop()
        }
        let found = levels.found();
        let after = levels.bench.flash.stats();
        // What is lost with memory stays lost until it is stored again.
        assert!(
            found > KEYS * if is_crash { 75 } else { 93 } / 100,
            "round {round}: {found} found, {after:?}"
        );
        // The estimate of what is live.
        let live = found as f64 * (VALUE_BYTES + 12) as f64 / after.live_bytes as f64;
        assert!((0.85..1.15).contains(&live), "round {round}: {live} of the estimate lives, {after:?}");
        // A record and a tombstone for each version that is there, and no more than 2.5 versions of a key.
        assert!(stats.items < 5 * KEYS as u64, "round {round}: {stats:?}");
        assert!(stats.zones.free > stats.zones_high, "round {round}: {stats:?}");
        assert!(stats.reclaim_reads < 250 * (stats.reclaims + 1), "round {round}: {stats:?}");
        assert_eq!((stats.merges, stats.quick_drops, stats.drops_of_all, stats.range_drops), (0, 0, 0, 0));
        levels.bench.within_its_memory();
    }
}
