//! Real threads: writers that grow the index, one that makes it smaller and larger, and readers and walkers that know
//! which keys must be present.
#![cfg(not(loom))]

use crate::common::tag_match;
use larder_index::{HoldsKey, Index, IndexOptions};
use larder_item::{KeyHash, KeyHasher, Location};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Records are never reused: record r of key k contains k. They are written Relaxed, so that only the index makes
/// them visible.
struct Records {
    hasher: KeyHasher,
    keys: Vec<AtomicU64>,
    next: AtomicU64,
}

impl Records {
    fn make(&self, key: u64) -> Location {
        let record = self.next.fetch_add(1, Ordering::Relaxed);
        self.keys[record as usize].store(key, Ordering::Relaxed);
        Location::from_offset(4 * record)
    }

    fn key_at(&self, at: Location) -> u64 {
        self.keys[(at.offset() / 4) as usize].load(Ordering::Relaxed)
    }

    fn hash(&self, key: u64) -> KeyHash {
        self.hasher.hash(&key.to_le_bytes())
    }
}

impl HoldsKey for Records {
    fn holds(&self, at: Location, key: &[u8]) -> bool {
        self.key_at(at).to_le_bytes() == key
    }

    fn hash_of(&self, at: Location) -> KeyHash {
        self.hash(self.key_at(at))
    }

    fn prefetch(&self, _at: Location) {}
}

const LASTING: u64 = if cfg!(miri) { 40 } else { 20_000 };
const PASSING: u64 = if cfg!(miri) { 40 } else { 60_000 };
/// Number of steps of a writer.
const STEPS: u64 = if cfg!(miri) { 60 } else { 500_000 };

struct Stage {
    index: Index,
    records: Records,
    over: AtomicBool,
}

impl Stage {
    /// Inserts or replaces `key`.
    fn set(&self, key: u64) {
        let at = self.records.make(key);
        let mut guard = self.index.lock(self.records.hash(key));
        match guard.find(&key.to_le_bytes(), &self.records) {
            Some(found) => assert!(guard.replace(&found, at, found.entry.warmth)),
            None => guard.insert(at, 0).expect("so few keys have room"),
        }
    }

    fn remove(&self, key: u64) -> bool {
        let mut guard = self.index.lock(self.records.hash(key));
        guard.find(&key.to_le_bytes(), &self.records).is_some_and(|found| guard.remove(&found))
    }

    /// Sets and removes the passing keys of one parity, replaces lasting keys, and grows the index when asked.
    fn write(&self, parity: u64) {
        let mut random = 88_172_645_463_325_252u64 + parity;
        let mut present = vec![false; PASSING as usize];
        for _ in 0..STEPS {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let passing = ((random % PASSING) & !1) | parity;
            let (key, here) = (LASTING + passing, &mut present[passing as usize]);
            match random >> 32 & 7 {
                0..4 => {
                    self.set(key);
                    *here = true;
                }
                4..7 => assert_eq!(self.remove(key), std::mem::take(here), "key {key}"),
                _ => self.set((random >> 40) % LASTING),
            }
            let found = self.index.get(self.records.hash(key), &key.to_le_bytes(), &self.records);
            assert_eq!(found.is_some(), *here, "only this thread writes key {key}");
            if self.index.needs_growth() {
                self.index.grow(&self.records, 2);
            }
        }
    }

    /// Looks up lasting keys, which must be present, and passing keys, which must be themselves if they are found.
    fn read(&self, start: u64) -> u64 {
        let mut lookups = 0;
        for n in start.. {
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            let key = n * 7919 % (LASTING + PASSING);
            let hash = self.records.hash(key);
            let lookup = self.index.batch_lookup();
            if let Some(seen) = tag_match(&self.index, hash)
                && self.records.key_at(lookup.location(seen)) == key
            {
                lookup.confirm(hash, seen, |_| true);
            }
            match self.index.get_marking(hash, &key.to_le_bytes(), &self.records) {
                Some(entry) => assert_eq!(self.records.key_at(entry.location), key),
                None => assert!(key >= LASTING, "key {key} is never removed"),
            }
            lookups += 1;
        }
        lookups
    }
}

impl Stage {
    /// Makes the index smaller and larger again and again. Its memory is not given back: no one says when readers have
    /// come to their end.
    fn resize(&self) {
        let few = if cfg!(miri) { 3 } else { 6_000 };
        loop {
            self.index.set_growth_limit(few);
            while self.index.shrink(64) > 0 {}
            while self.index.pack_sub_buckets(1024) {}
            self.index.set_growth_limit(u64::MAX);
            while self.index.needs_growth() && self.index.grow(&self.records, 64) > 0 {}
            if self.over.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Walks over all entries: each lasting key is there once.
    fn walk(&self) {
        loop {
            let (mut seen, mut next) = (vec![0u8; LASTING as usize], Some(0));
            while let Some(cursor) = next {
                let mut locations = Vec::new();
                let walked = self.index.walk(cursor, &mut |entry| locations.push(entry.location));
                for key in
                    locations.into_iter().map(|at| self.records.key_at(at)).filter(|key| *key < LASTING)
                {
                    if !(walked.has_repeats && self.index.is_before(self.records.hash(key), cursor)) {
                        seen[key as usize] += 1;
                    }
                }
                next = walked.next;
            }
            assert!(seen.iter().all(|times| *times == 1), "each key that is never removed is walked once");
            if self.over.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

#[test]
fn readers_never_miss_what_is_there_while_writers_write_and_the_index_grows_and_shrinks() {
    // A step makes one record at most.
    let records = LASTING + 2 * STEPS;
    let stage = Stage {
        index: Index::new(IndexOptions {
            buckets_log2: 0,
            buckets_log2_max: if cfg!(miri) { 4 } else { 16 },
            fill_target: 5,
            huge: false,
            marks: true,
            // Some splits read records, and some do not.
            location_bits: Location::BITS - 4,
        })
        .unwrap(),
        records: Records {
            hasher: KeyHasher::with_seed(3),
            keys: (0..records).map(|_| AtomicU64::new(u64::MAX)).collect(),
            next: AtomicU64::new(0),
        },
        over: AtomicBool::new(false),
    };
    for key in 0..LASTING {
        stage.set(key);
        stage.index.grow(&stage.records, if key % 3 == 0 { 1 } else { 0 });
    }
    let lookups: u64 = std::thread::scope(|threads| {
        let writers = [threads.spawn(|| stage.write(0)), threads.spawn(|| stage.write(1))];
        let readers = [threads.spawn(|| stage.read(0)), threads.spawn(|| stage.read(5))];
        let others = [threads.spawn(|| stage.resize()), threads.spawn(|| stage.walk())];
        let written = writers.map(|writer| writer.join());
        stage.over.store(true, Ordering::Relaxed);
        written.into_iter().for_each(|written| written.unwrap());
        others.into_iter().for_each(|other| other.join().unwrap());
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    assert!(lookups > 0);
    let mut walked = 0;
    let mut cursor = Some(0);
    while let Some(bucket) = cursor {
        cursor = stage.index.walk(bucket, &mut |_| walked += 1).next;
    }
    assert_eq!(stage.index.len(), walked);
}
