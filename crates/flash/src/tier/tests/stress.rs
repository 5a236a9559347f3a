//! Threads that put, invalidate and look up against one another while everything is written and reclaimed.

use super::{Bench, finish};
use crate::{Fetcher, Flash, FlashItem, Found, Put};
use larder_item::{KeyHash, KeyHasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const KEYS: usize = 512;
const ROUNDS: u64 = 100_000;
/// Bytes of the last part of a long value.
const SHORT_BYTES: usize = 300;

/// Newest version of a key under its lock, as a bucket's writer bit would have it, and one beside it for readers.
struct Key {
    lock: Mutex<()>,
    /// Versions below were replaced or invalidated.
    oldest: AtomicU64,
    /// Versions up to this one were begun to be put.
    newest: AtomicU64,
}

#[test]
fn readers_never_see_what_was_replaced_before_they_began() {
    play(false);
}

#[test]
fn nor_where_the_log_is_merged_into_generations() {
    play(true);
}

/// Puts the parts of a long value after the first, and says whether they are there: one full part, and a short one that
/// is no extent.
fn put_parts(flash: &Flash, hash: KeyHash, key: &[u8], version: u64) -> bool {
    let mut part = version.to_le_bytes().to_vec();
    part.resize(flash.part_bytes_max(), 1);
    flash.put_part(hash, key, version, 1, &part) == Put::Stored
        && flash.put_part(hash, key, version, 2, &part[..SHORT_BYTES]) == Put::Stored
}

fn version_of(found: &Found) -> u64 {
    u64::from_le_bytes(*found.value.first_chunk().unwrap())
}

struct Stress<'a> {
    flash: &'a Flash,
    hasher: KeyHasher,
    keys: Vec<Key>,
    hits: AtomicU64,
    /// Parts of long values that were found.
    parts: AtomicU64,
}

impl Stress<'_> {
    fn new(flash: &Flash) -> Stress<'_> {
        let key = |_| Key { lock: Mutex::new(()), oldest: AtomicU64::new(1), newest: AtomicU64::new(0) };
        let hasher = KeyHasher::with_seed(flash.seed());
        let (hits, parts) = (AtomicU64::new(0), AtomicU64::new(0));
        Stress { flash, hasher, keys: (0..KEYS).map(key).collect(), hits, parts }
    }

    /// Calls `act` with random bits, the name of a random key, its hash and the key, many times.
    fn rounds(&self, seed: u64, mut act: impl FnMut(u64, &[u8], KeyHash, &Key)) {
        let mut random = seed;
        for _ in 0..ROUNDS {
            random = crate::record::mix(random + 1);
            let number = random as usize % KEYS;
            let name = format!("key {number}").into_bytes();
            act(random, &name, self.hasher.hash(&name), &self.keys[number]);
        }
    }

    fn write(&self, seed: u64) {
        self.rounds(seed, |random, name, hash, key| {
            let _writer = key.lock.lock().unwrap();
            let version = key.newest.load(Ordering::SeqCst) + 1;
            key.newest.store(version, Ordering::SeqCst);
            let is_stored = self.put(random, name, hash, version) && random >> 32 & 7 != 0;
            if !is_stored {
                self.flash.invalidate(hash, name);
            }
            key.oldest.store(version + u64::from(!is_stored), Ordering::SeqCst);
        });
    }

    /// Puts a version of a length that the random bits choose. Says whether it was stored.
    fn put(&self, random: u64, name: &[u8], hash: KeyHash, version: u64) -> bool {
        let size = match random >> 56 {
            0..16 => 3000,
            16 => self.flash.part_bytes_max(),
            _ => 200,
        };
        let is_long = size == self.flash.part_bytes_max();
        let mut value = version.to_le_bytes().to_vec();
        value.resize(size, 1);
        let item = FlashItem {
            key: name,
            value: &value,
            value_bytes: if is_long { 2 * size + SHORT_BYTES } else { size } as u64,
            flags: 0,
            expires_unix_s: 0,
            cas: version,
            state: larder_item::FlashState::PLAIN,
        };
        let has_parts = !is_long || put_parts(self.flash, hash, name, version);
        // Also where parts are missing: such a version must not be found.
        self.flash.put(hash, &item) == Put::Stored && has_parts
    }

    fn read(&self, seed: u64) {
        let mut fetcher = self.flash.fetcher().unwrap();
        self.rounds(seed, |_, name, hash, key| {
            let oldest = key.oldest.load(Ordering::SeqCst);
            let begun = fetcher.begin(1, hash, name);
            let Some(found) = finish(&mut fetcher, begun) else { return };
            let newest = key.newest.load(Ordering::SeqCst);
            let version = version_of(&found);
            assert!((oldest..=newest).contains(&version), "{version} is not in {oldest}..={newest}");
            self.hits.fetch_add(1, Ordering::SeqCst);
            if found.value_bytes > found.value.len() as u64 {
                self.read_parts(&mut fetcher, name, hash, &found);
            }
        });
    }

    fn read_parts(&self, fetcher: &mut Fetcher, name: &[u8], hash: KeyHash, first: &Found) {
        for part in 1..=2 {
            let begun = fetcher.begin_part(1, hash, name, first.cas, part);
            let Some(found) = finish(fetcher, begun) else { break };
            assert_eq!(version_of(&found), version_of(first), "part {part}");
            self.parts.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn play(generations: bool) {
    let bench = Bench::new(24, 64, |options| {
        options.generations = generations;
        options.segment_bytes = Some(16 * 4096);
        options.fill_percent = 50;
        options.memory_bytes = 8 << 20;
    });
    let flash = &bench.flash;
    flash.start().unwrap();
    let stress = Stress::new(flash);
    std::thread::scope(|scope| {
        scope.spawn(|| stress.write(1));
        scope.spawn(|| stress.write(2));
        scope.spawn(|| stress.read(3));
        scope.spawn(|| stress.read(4));
    });
    bench.within_its_memory();
    let stats = flash.stats();
    assert!(stats.is_on && stress.hits.load(Ordering::SeqCst) > 1000, "{stats:?}");
    assert!(stress.parts.load(Ordering::SeqCst) > 10, "{stats:?}");
    assert_eq!(stats.damaged_pages, 0, "{stats:?}");
    assert_eq!(stats.merges > 0, generations, "{stats:?}");
    flash.close().unwrap();
}
