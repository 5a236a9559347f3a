//! Threads that put, invalidate and look up against one another while everything is written and reclaimed.

use super::{Bench, finish};
use crate::{FlashItem, Put};
use larder_item::KeyHasher;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const KEYS: usize = 512;
const ROUNDS: u64 = 100_000;

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
    let bench = Bench::new(24, 64, |options| {
        options.segment_bytes = Some(16 * 4096);
        options.keep_percent = 50;
        options.memory_bytes = 8 << 20;
    });
    let flash = &bench.flash;
    flash.start().unwrap();
    let keys: Vec<Key> = (0..KEYS)
        .map(|_| Key { lock: Mutex::new(()), oldest: AtomicU64::new(1), newest: AtomicU64::new(0) })
        .collect();
    let hits = AtomicU64::new(0);
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
            let size = if random >> 60 == 0 { 3000 } else { 200 };
            let mut value = version.to_le_bytes().to_vec();
            value.resize(size, 1);
            let item = FlashItem {
                key: name.as_bytes(),
                value: &value,
                value_bytes: value.len() as u64,
                flags: 0,
                expires_unix_s: 0,
                cas: version,
                state: 0,
            };
            if random >> 32 & 7 == 0 || flash.put(hash, &item) == Put::Shed {
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
            let version = u64::from_le_bytes(*found.value.first_chunk().unwrap());
            assert!((oldest..=newest).contains(&version), "{version} is not in {oldest}..={newest}");
            hits.fetch_add(1, Ordering::SeqCst);
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
    flash.close().unwrap();
}
