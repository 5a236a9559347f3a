//! A limit means the same after any history: as many items fit as in a new cache.

use larder_cache::*;
use std::sync::Arc;
use std::time::Duration;

const LIMIT_BYTES: u64 = 64 << 20;
const VALUE: [u8; 1000] = [b'v'; 1000];

fn cache(evict: bool) -> (Arc<Cache>, Worker) {
    let options = CacheOptions {
        limit_bytes: LIMIT_BYTES,
        evict,
        workers: 1,
        seed: Some(1),
        ..CacheOptions::default()
    };
    let cache = Cache::new(options).expect("a small cache can be made");
    let worker = cache.worker();
    (cache, worker)
}

fn set(worker: &mut Worker, key: &str, value: &[u8]) -> bool {
    let store = Store::set(key.as_bytes(), worker.cache().hash(key.as_bytes()), value);
    let outcome = worker.store(&store);
    worker.quiesce();
    matches!(outcome, StoreOutcome::Stored { .. })
}

fn tend(cache: &Cache, worker: &mut Worker, rounds: u32) {
    for _ in 0..rounds {
        worker.quiesce();
        worker.offline();
        cache.tend();
        worker.online();
    }
}

/// Stores items of 1,000 bytes until there is no more room, or three times as many as there is room for. Returns how
/// many there are then.
fn fill(cache: &Cache, worker: &mut Worker) -> u64 {
    for number in 0..3 * LIMIT_BYTES / 1000 {
        if !set(worker, &format!("full {number:08}"), &VALUE) {
            break;
        }
        if number % 256 == 0 {
            tend(cache, worker, 1);
        }
    }
    cache.items()
}

/// How many items there are after a history of a cache, for a hundred in a new one.
fn percent_of_new(evict: bool, history: impl Fn(&Arc<Cache>, &mut Worker)) -> f64 {
    let [fresh, after] = [false, true].map(|has_history| {
        let (cache, mut worker) = cache(evict);
        if has_history {
            history(&cache, &mut worker);
            tend(&cache, &mut worker, 20);
        }
        let items = fill(&cache, &mut worker);
        let (mut listed, mut tour) = (Vec::new(), worker.begin_tour());
        while worker.list(&mut tour, 1000, Duration::ZERO, &mut listed) != Toured::End {}
        let listed = listed.len() as u64;
        assert_eq!(listed, items, "each item is listed once");
        items as f64
    });
    after / fresh * 100.0
}

fn flood_of_tiny_items(cache: &Arc<Cache>, worker: &mut Worker) {
    for number in 0..2_400_000 {
        set(worker, &format!("t{number}"), b"1");
        if number % 4096 == 0 {
            tend(cache, worker, 1);
        }
    }
    let (index, all) = (cache.memory_use().index_bytes, LIMIT_BYTES);
    assert!(index * 4 > all, "{index} bytes of index");
}

#[test]
fn a_flood_of_tiny_items_takes_no_room_for_good() {
    let percent = percent_of_new(true, flood_of_tiny_items);
    assert!(percent >= 97.0, "{percent} %");
}

#[test]
fn a_flood_of_tiny_items_that_are_flushed_takes_no_room() {
    let percent = percent_of_new(true, |cache, worker| {
        flood_of_tiny_items(cache, worker);
        cache.flush(None);
    });
    assert!(percent >= 97.0, "{percent} %");
}

#[test]
fn items_that_are_deleted_by_prefix_leave_all_their_room() {
    let percent = percent_of_new(true, |cache, worker| {
        flood_of_tiny_items(cache, worker);
        cache.flush_prefix(b"t").expect("there is room for a prefix");
        worker.tick();
    });
    assert!(percent >= 97.0, "{percent} %");
}

#[test]
fn a_limit_that_was_higher_for_a_while_has_as_much_room_as_before() {
    let percent = percent_of_new(true, |cache, worker| {
        assert!(cache.set_limit(4 * LIMIT_BYTES));
        for number in 0..1_000_000 {
            set(worker, &format!("more {number}"), &[b'm'; 100]);
            if number % 4096 == 0 {
                tend(cache, worker, 1);
            }
        }
        assert!(cache.set_limit(LIMIT_BYTES));
        tend(cache, worker, 200);
    });
    assert!(percent >= 97.0, "{percent} %");
}

#[test]
fn without_eviction_deleted_items_of_any_size_leave_all_their_room() {
    for value_bytes in [1, 100, 2000] {
        let percent = percent_of_new(false, |cache, worker| {
            let (value, mut stored) = (vec![b'v'; value_bytes], 0);
            while set(worker, &format!("t{stored}"), &value) {
                stored += 1;
                if stored % 4096 == 0 {
                    tend(cache, worker, 1);
                }
            }
            for number in 0..stored {
                let key = format!("t{number}").into_bytes();
                assert_eq!(worker.delete(&Delete::of(&key, cache.hash(&key))), DeleteOutcome::Deleted);
            }
        });
        assert!(percent >= 97.0, "{value_bytes} bytes: {percent} %");
    }
}
