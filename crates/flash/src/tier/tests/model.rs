//! Random histories against a map: the answer is the newest version or nothing, never another one.

use super::{Bench, NOW};
use crate::space::{Rates, SpacePolicy, Watermarks, Work};
use crate::tier::lookup::{GENERATION_READS_MAX, LOG_READS_MAX};
use crate::{FlashOptions, Place, Put, Recover};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(Clone, Debug)]
enum Step {
    Put {
        key: u16,
        size: u16,
        ttl: Option<u8>,
    },
    Invalidate(u16),
    Get(u16),
    /// Puts of keys that nobody asks for, to move everything along.
    Fill(u8),
    /// Invalidations of a number of those keys, perhaps more than wait for a buffer.
    Hide(u16),
    Wait(u8),
    Tend,
    Flush,
    /// The keys are deleted that begin with the name of this one, without some of its last letters.
    DropPrefix {
        key: u16,
        less: usize,
    },
    /// The tier is closed, and opened again.
    Restart,
}

fn steps(keys: u16) -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![8 => 8u16..300, 2 => 300u16..2000, 1 => 2000u16..7000];
    let step = prop_oneof![
        12 => (0..keys, size, proptest::option::weighted(0.2, 1..60u8))
            .prop_map(|(key, size, ttl)| Step::Put { key, size, ttl }),
        4 => (0..keys).prop_map(Step::Invalidate),
        10 => (0..keys).prop_map(Step::Get),
        3 => any::<u8>().prop_map(Step::Fill),
        1 => (1..1500u16).prop_map(Step::Hide),
        1 => prop_oneof![3 => Just(Step::Tend), 1 => Just(Step::Restart)],
        1 => (1..30u8).prop_map(Step::Wait),
        3 => Just(Step::Tend),
        1 => prop_oneof![20 => Just(Step::Tend), 1 => Just(Step::Flush)],
        1 => (0..keys, 0..2usize).prop_map(|(key, less)| Step::DropPrefix { key, less }),
    ];
    proptest::collection::vec(step, 1..400)
}

/// What a key's newest version is: its value and when it expires.
type Model = HashMap<u16, (Vec<u8>, u32)>;

struct Run {
    bench: Bench,
    model: Model,
    version: u64,
    filled: u64,
    walk: Option<WalkUnderWay>,
}

/// A walk that goes on while everything changes.
struct WalkUnderWay {
    place: Place,
    /// Keys that were there when it began, and were neither deleted nor put since.
    there: HashSet<Vec<u8>>,
    listed: HashSet<Vec<u8>>,
}

fn value(version: u64, size: u16) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.resize(size.max(8) as usize, version as u8);
    value
}

impl Run {
    fn key(key: u16) -> Vec<u8> {
        format!("key {key}").into_bytes()
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Put { key, size, ttl } => {
                self.version += 1;
                let value = value(self.version, size);
                // It was in memory before it is put. An open segment may be older than the extent that it replaces.
                self.walk.iter_mut().for_each(|walk| _ = walk.there.remove(&Self::key(key)));
                let now = self.bench.clock.load(Ordering::SeqCst);
                let expires = ttl.map_or(0, |ttl| now + ttl as u32);
                match self.bench.put(&Self::key(key), &value, expires) {
                    Put::Stored => {
                        self.model.insert(key, (value, expires));
                    }
                    Put::Shed => {
                        self.bench.invalidate(&Self::key(key));
                        self.model.remove(&key);
                    }
                }
            }
            Step::Invalidate(key) => {
                self.bench.invalidate(&Self::key(key));
                self.model.remove(&key);
            }
            Step::Get(key) => self.get(key),
            Step::Fill(count) => {
                for _ in 0..count {
                    self.filled += 1;
                    // Of one key the table takes some eight versions, each in another segment, and then no more.
                    let key = format!("filling {}", self.filled % 4999);
                    if self.bench.put(key.as_bytes(), &[9; 150], 0) == Put::Shed {
                        self.bench.flash.tend();
                    }
                }
            }
            Step::Hide(count) => {
                for number in self.filled.saturating_sub(count.into())..self.filled {
                    self.bench.invalidate(format!("filling {}", number % 4999).as_bytes());
                }
            }
            Step::Restart => self.bench.restart(),
            Step::Wait(seconds) => {
                self.bench.clock.fetch_add(seconds as u32, Ordering::SeqCst);
            }
            Step::Tend => self.bench.flash.tend(),
            Step::Flush => {
                self.bench.flash.begin_flush();
                self.bench.flash.end_flush();
                self.model.clear();
            }
            Step::DropPrefix { key, less } => {
                let mut prefix = Self::key(key);
                prefix.truncate(prefix.len() - less);
                if self.bench.delete_prefix(&prefix) {
                    self.model.retain(|key, _| !Self::key(*key).starts_with(&prefix));
                }
            }
        }
    }

    /// A walk over everything lists what is found, and nothing that is not the newest version.
    fn list(&mut self, keys: u16) {
        let (mut listed, mut from) = (Vec::new(), Some(self.bench.flash.first_place()));
        while let Some(place) = from {
            from = self.bench.flash.list(place, 7, &mut listed);
        }
        let now = self.bench.clock.load(Ordering::SeqCst);
        let mut names = HashSet::new();
        for item in listed.iter().filter(|item| item.key.starts_with(b"key ")) {
            let name = std::str::from_utf8(&item.key[4..]).expect("a number");
            let newest = self.model.get(&name.parse().expect("a number"));
            let newest = newest.filter(|(_, expires)| *expires == 0 || *expires > now);
            let (value, expires) = newest.unwrap_or_else(|| panic!("key {name} should be gone"));
            let seen = (item.value_bytes, item.expires_unix_s, item.flags, item.cas);
            assert_eq!(seen, (value.len() as u64, *expires, 7, 1000 + value.len() as u64), "key {name}");
            assert_eq!(item.hash, self.bench.hash(&item.key));
            assert!(names.insert(item.key.clone()), "key {name} is listed twice");
        }
        for key in (0..keys).map(Self::key) {
            assert!(self.bench.get(&key).is_none() || names.contains(&key), "{key:?} is not listed");
        }
    }

    /// Goes on with a walk, or begins one. At its end it has listed what was there all the time.
    fn go_on_walking(&mut self) {
        let now = self.bench.clock.load(Ordering::SeqCst);
        let is_alive = |(_, (_, expires)): &(&u16, &(Vec<u8>, u32))| *expires == 0 || *expires > now;
        let alive: HashSet<Vec<u8>> =
            self.model.iter().filter(is_alive).map(|(key, _)| Self::key(*key)).collect();
        let Some(WalkUnderWay { place, mut there, mut listed }) = self.walk.take() else {
            let there = alive.into_iter().filter(|key| self.bench.get(key).is_some()).collect();
            self.walk =
                Some(WalkUnderWay { place: self.bench.flash.first_place(), there, listed: HashSet::new() });
            return;
        };
        there.retain(|key| alive.contains(key));
        let mut items = Vec::new();
        // As a client keeps it.
        let place = self.bench.flash.place_of(place.to_bits());
        match self.bench.flash.list(place, 2, &mut items) {
            Some(place) => {
                listed.extend(items.into_iter().map(|item| item.key));
                self.walk = Some(WalkUnderWay { place, there, listed });
            }
            None => {
                listed.extend(items.into_iter().map(|item| item.key));
                for key in there.difference(&listed) {
                    assert!(
                        self.bench.get(key).is_none(),
                        "{key:?} was there all the time, and is not listed"
                    );
                }
            }
        }
    }

    fn get(&mut self, key: u16) {
        let now = self.bench.clock.load(Ordering::SeqCst);
        let newest = self.model.get(&key).filter(|(_, expires)| *expires == 0 || *expires > now);
        if let Some(found) = self.bench.get(&Self::key(key)) {
            let newest = newest.unwrap_or_else(|| panic!("key {key} should be gone"));
            assert_eq!(found.value, newest.0, "not the newest version of key {key}");
            assert_eq!((found.expires_unix_s, found.flags), (newest.1, 7));
        }
    }
}

/// Runs the steps on a device of `zones` zones of `zone_pages` pages, with keys below `keys`. With `works_at_once` the
/// tier works after every step, as if its threads were fast.
fn run(
    (zones, zone_pages): (u32, u64),
    keys: u16,
    steps: &[Step],
    works_at_once: bool,
    change: impl FnOnce(&mut FlashOptions),
) {
    let bench = Bench::new(zones, zone_pages, change);
    let mut run = Run { bench, model: Model::new(), version: 0, filled: 0, walk: None };
    for step in steps {
        run.step(step);
        run.go_on_walking();
        if works_at_once {
            run.bench.flash.components().writer.write_sealed();
        }
    }
    run.bench.settle();
    (0..keys).for_each(|key| run.get(key));
    run.list(keys);
    let stats = run.bench.flash.stats();
    assert!(stats.is_on);
    let lookups = stats.hits + stats.misses;
    let reads_max = (LOG_READS_MAX + GENERATION_READS_MAX) as u64;
    assert!(stats.reads_for_hits + stats.reads_for_misses <= reads_max * lookups, "{stats:?}");
    run.bench.within_its_memory();
}

/// Drops the oldest zone unread while fewer than five zones are erased.
struct DropsOldest;

impl SpacePolicy for DropsOldest {
    fn low(&self) -> u32 {
        5
    }

    fn high(&self) -> u32 {
        5
    }

    fn next(&mut self, free: u32, _: Rates) -> Work {
        if free < 5 { Work::Drop(1) } else { Work::Idle }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn never_an_old_version_while_zones_are_reclaimed(
        steps in steps(60),
        marks in 0..4u8,
        fill_percent in 0..=100u8,
        cutoff_s in 0..20u32,
        works_at_once: bool,
        zone_pages in 8..40u64,
        generations: bool,
        recover in prop_oneof![Just(Recover::Clean), Just(Recover::Journal)],
    ) {
        run((12, zone_pages), 60, &steps, works_at_once, |options| {
            options.space = match marks {
                0 => Watermarks::by_rates(),
                1 => Watermarks::fixed(40),
                2 => Watermarks::fixed(100),
                _ => Arc::new(|_| Box::new(DropsOldest)),
            };
            options.fill_percent = fill_percent;
            (options.cutoff_s, options.generations, options.recover) = (cutoff_s, generations, recover);
            options.segment_bytes = Some(8 * 4096);
        });
    }

    #[test]
    fn nothing_is_lost_without_need(steps in steps(40)) {
        let bench = Bench::new(200, 32, |_| {});
        let mut run = Run { bench, model: Model::new(), version: 0, filled: 0, walk: None };
        for step in steps.iter().filter(|step| !matches!(step, Step::Restart)) {
            run.step(step);
            run.bench.flash.tend();
            run.go_on_walking();
        }
        let now = run.bench.clock.load(Ordering::SeqCst);
        prop_assert!(now >= NOW);
        run.list(40);
        let model = run.model.clone();
        prop_assert_eq!(run.bench.flash.stats().shed, 0);
        if run.bench.flash.stats().table_full > 0 {
            // A key was hidden more often than the log table has room for: a zone or a range of hashes goes.
            return Ok(());
        }
        let mut lost = 0;
        for (key, (value, expires)) in &model {
            if *expires == 0 || *expires > now {
                // Two false candidates may stand before the right one: once in a thousand.
                let found = run.bench.value(&Run::key(*key));
                lost += found.is_none() as u32;
                prop_assert!(found.is_none_or(|found| found == *value));
            }
        }
        let stats = run.bench.flash.stats();
        prop_assert_eq!(lost as u64, stats.misses_for_reads.min(lost as u64));
        prop_assert_eq!(stats.misses_for_damage, 0);
        prop_assert_eq!(stats.quick_drops, 0);
    }
}
