//! Hot items are moved to columns of their own while there is room, and only if there are hot items.

use larder_cache::{Cache, CacheOptions, PagesWanted, Placement, Store, StoreOutcome, Value, Worker};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

const KEYS: u64 = 60_000;

fn cache(placement: Placement) -> Arc<Cache> {
    let options = CacheOptions {
        limit_bytes: 128 << 20,
        workers: 1,
        pages: PagesWanted::Small,
        seed: Some(7),
        placement,
        ..CacheOptions::default()
    };
    Cache::new(options).expect("a small cache can be made")
}

/// A linear congruential generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

fn set(worker: &mut Worker, key: &[u8], value: &[u8]) {
    let hash = worker.cache().hash(key);
    let outcome = worker.store(&Store::set(key, hash, value));
    assert!(matches!(outcome, StoreOutcome::Stored { .. }), "{outcome:?}");
}

fn get<'w>(worker: &'w Worker, key: &[u8]) -> Option<&'w [u8]> {
    match worker.get(worker.cache().hash(key), key)?.value() {
        Value::Whole(value) => Some(value),
        Value::Compressed(_) | Value::Chunked { .. } => None,
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn value(number: u64) -> [u8; 300] {
    let mut value = [b'v'; 300];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// Stores all items, and waits until the keeper sees that nothing is being stored: it halves the rate that it knows at
/// each look, and items are moved below 2 MB/s.
fn fill(worker: &mut Worker) {
    for number in 0..KEYS {
        set(worker, &key(number), &value(number));
        worker.quiesce();
    }
    worker.offline();
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(25));
        worker.cache().tend();
    }
    worker.online();
}

/// Reads `reads` items and lets the keeper work in between.
fn read(cache: &Cache, worker: &mut Worker, reads: u64, mut pick: impl FnMut() -> u64) {
    for n in 0..reads {
        let number = pick();
        assert_eq!(get(worker, &key(number)), Some(&value(number)[..]), "{number}");
        worker.quiesce();
        if n % 2048 == 0 {
            worker.offline();
            cache.tend();
            worker.online();
        }
    }
}

/// How many different columns hold these items.
fn columns_of(worker: &Worker, numbers: impl Iterator<Item = u64>) -> usize {
    let cache = worker.cache();
    let column = |number| {
        let hit = worker.peek(cache.hash(&key(number)), &key(number)).expect("nothing is evicted");
        hit.at.offset() / u64::from(cache.column_bytes())
    };
    numbers.map(column).collect::<HashSet<_>>().len()
}

#[test]
fn hot_items_come_to_stand_together_and_go_down_when_they_cool() {
    const HOT: u64 = 1_000;
    const SPREAD: u64 = KEYS / HOT;
    let cache = cache(Placement::Column);
    let (mut worker, mut draw) = (cache.worker(), Draw(3));
    fill(&mut worker);
    // Every sixtieth item is hot, so that the hot ones are everywhere.
    let hot = |draw: &mut Draw, shift: u64| match draw.below(10) {
        0 => draw.below(KEYS),
        _ => draw.below(HOT) * SPREAD + shift,
    };
    let columns = |worker: &Worker, shift: u64| columns_of(worker, (0..HOT).map(|n| n * SPREAD + shift));
    let before = columns(&worker, 0);
    read(&cache, &mut worker, 8 * KEYS, || hot(&mut draw, 0));
    let (after, totals) = (columns(&worker, 0), cache.totals());
    assert!(totals.moved_up >= HOT * 9 / 10, "{totals:?}");
    assert!(totals.moved_up <= 2 * KEYS / 24 + HOT, "hot items have a bounded share: {}", totals.moved_up);
    // A thousand records of 320 bytes fill three columns of 128 KiB. Others were read as often by luck.
    assert!(before > 100 && after < before / 4, "{before} columns, then {after}");
    assert_eq!(totals.evictions, 0);

    // Other items are hot now. Those that were come back to the others, and make room. How many reads are between two
    // coolings depends on when the keeper looks.
    read(&cache, &mut worker, 40 * KEYS, || hot(&mut draw, 17));
    for _ in 0..4 {
        if cache.totals().moved_down < HOT / 2 {
            read(&cache, &mut worker, 10 * KEYS, || hot(&mut draw, 17));
        }
    }
    let totals = cache.totals();
    assert!(totals.moved_down >= HOT / 2, "{totals:?}");
    let later = columns(&worker, 17);
    assert!(later < before / 4, "{later} columns");
    assert_eq!(cache.live_in_columns(), cache.memory_use().items_bytes);
}

#[test]
fn nothing_is_moved_where_nothing_is_hot_or_nobody_wants_it() {
    for (placement, is_uniform) in [(Placement::Column, true), (Placement::Off, false)] {
        let cache = cache(placement);
        let (mut worker, mut draw) = (cache.worker(), Draw(5));
        fill(&mut worker);
        let columns = columns_of(&worker, 0..1000);
        read(&cache, &mut worker, 6 * KEYS, || {
            if is_uniform || draw.below(10) == 0 { draw.below(KEYS) } else { draw.below(500) * 100 }
        });
        let totals = cache.totals();
        assert!(totals.moved_up <= KEYS / 100, "{placement:?}: {}", totals.moved_up);
        assert!(columns_of(&worker, 0..1000) <= columns + 10);
    }
}

#[test]
fn items_that_change_while_they_are_hot_are_not_lost() {
    for placement in Placement::ALL {
        let cache = cache(placement);
        let (mut worker, mut draw) = (cache.worker(), Draw(11));
        fill(&mut worker);
        let mut versions = vec![0u64; KEYS as usize];
        for n in 0..10 * KEYS {
            let number = if draw.below(10) == 0 { draw.below(KEYS) } else { draw.below(600) * 100 };
            let version = &mut versions[number as usize];
            if draw.below(2) == 0 {
                *version = n + 1;
                set(&mut worker, &key(number), &value(n + 1));
            } else {
                let known = if *version == 0 { number } else { *version };
                assert_eq!(get(&worker, &key(number)), Some(&value(known)[..]), "{placement:?}");
            }
            worker.quiesce();
            if n % 1024 == 0 {
                worker.offline();
                cache.tend();
                worker.online();
            }
        }
        assert_eq!(cache.totals().evictions, 0);
        assert_eq!(cache.live_in_columns(), cache.memory_use().items_bytes, "{placement:?}");
    }
}
