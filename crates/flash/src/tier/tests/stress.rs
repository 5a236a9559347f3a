//! Threads that put, invalidate and look up against one another while everything is written and reclaimed.

use super::{Bench, finish};
use crate::{Flash, FlashItem, Found, Put};
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

fn play(generations: bool) {
    let bench = Bench::new(24, 64, |options| {
        options.generations = generations;
        options.segment_bytes = Some(16 * 4096);
        options.keep_percent = 50;
        options.memory_bytes = 8 << 20;
    });
    let flash = &bench.flash;
    flash.start().unwrap();
    let keys: Vec<Key> = (0..KEYS)
        .map(|_| Key { lock: Mutex::new(()), oldest: AtomicU64::new(1), newest: AtomicU64::new(0) })
        .collect();
    let (hits, parts) = (AtomicU64::new(0), AtomicU64::new(0));
    let write = |seed: u64| {
        let hasher = KeyHasher::with_seed(flash.seed());
        let mut random = seed;
        for _ in 0..ROUNDS {
            random = crate::record::mix(random + 1);
            let number = random as usize % KEYS;
            let (name, key) = (format!("key {number}"), &keys[number]);
            let hash = hasher.hash(name.as_bytes());
            let _writer = key.lock.lock().unwrap();
            let version = key.newest.load(Ordering::SeqCst) + 1;
            key.newest.store(version, Ordering::SeqCst);
            let size = match random >> 56 {
                0..16 => 3000,
                16 => flash.part_bytes_max(),
                _ => 200,
            };
            let mut value = version.to_le_bytes().to_vec();
            value.resize(size, 1);
            let is_long = size == flash.part_bytes_max();
            let mut shed = is_long && !put_parts(flash, hash, name.as_bytes(), version);
            let item = FlashItem {
                key: name.as_bytes(),
                value: &value,
                value_bytes: if is_long { 2 * size + SHORT_BYTES } else { size } as u64,
                flags: 0,
                expires_unix_s: 0,
                cas: version,
                state: 0,
            };
            shed |= random >> 32 & 7 == 0 || flash.put(hash, &item) == Put::Shed;
            if shed {
                flash.invalidate(hash, name.as_bytes());
                key.oldest.store(version + 1, Ordering::SeqCst);
            } else {
                key.oldest.store(version, Ordering::SeqCst);
            }
        }
    };
    let read = |seed: u64| {
        let hasher = KeyHasher::with_seed(flash.seed());
        let mut fetcher = flash.fetcher().unwrap();
        let mut random = seed;
        for _ in 0..ROUNDS {
            random = crate::record::mix(random + 1);
            let number = random as usize % KEYS;
            let (name, key) = (format!("key {number}"), &keys[number]);
            let oldest = key.oldest.load(Ordering::SeqCst);
            let hash = hasher.hash(name.as_bytes());
            let begun = fetcher.begin(1, hash, name.as_bytes());
            let Some(found) = finish(&mut fetcher, begun) else { continue };
            let newest = key.newest.load(Ordering::SeqCst);
            let version = version_of(&found);
            assert!((oldest..=newest).contains(&version), "{version} is not in {oldest}..={newest}");
            hits.fetch_add(1, Ordering::SeqCst);
            if found.value_bytes > found.value.len() as u64 {
                for part in 1..=2 {
                    let begun = fetcher.begin_part(1, hash, name.as_bytes(), found.cas, part);
                    let Some(found) = finish(&mut fetcher, begun) else { break };
                    assert_eq!(version_of(&found), version, "part {part}");
                    parts.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(1));
        scope.spawn(|| write(2));
        scope.spawn(|| read(3));
        scope.spawn(|| read(4));
    });
    bench.within_its_memory();
    let stats = flash.stats();
    assert!(stats.is_on && hits.load(Ordering::SeqCst) > 1000, "{stats:?}");
    assert!(parts.load(Ordering::SeqCst) > 10, "{stats:?}");
    assert_eq!(stats.damaged_pages, 0, "{stats:?}");
    assert_eq!(stats.merges > 0, generations, "{stats:?}");
    flash.close().unwrap();
}
