//! What other sizes of the cache would miss, from the traffic of real workers.

use larder_cache::*;
use std::sync::Arc;

/// Reads and read-through stores of random keys of Zipf's law, exponent 1.
struct Load {
    sums: Vec<f64>,
    state: u64,
}

impl Load {
    fn new(keys: u32) -> Load {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += 1.0 / f64::from(rank);
            sum
        });
        Load { sums: sums.collect(), state: 1 }
    }

    fn random(&mut self) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state >> 11
    }

    fn key(&mut self) -> usize {
        let random = self.random() as f64 / (1u64 << 53) as f64 * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|below| *below < random)
    }
}

fn cache(limit_mib: u64) -> Arc<Cache> {
    let options =
        CacheOptions { limit_bytes: limit_mib << 20, workers: 1, seed: Some(3), ..CacheOptions::default() };
    Cache::new(options).expect("a small cache can be made")
}

/// Serves `reads` reads as a server does, and returns how many missed. The sizes of values depend on the key.
fn serve(cache: &Arc<Cache>, worker: &mut Worker, load: &mut Load, reads: u32) -> u32 {
    let mut misses = 0;
    let value = vec![7; 2000];
    for n in 0..reads {
        let number = load.key();
        let key = format!("key:{number}");
        let hash = cache.hash(key.as_bytes());
        if worker.get(hash, key.as_bytes()).is_some() {
            worker.counters().get_hits.add(1);
        } else {
            misses += 1;
            worker.counters().get_misses.add(1);
            worker.note_miss(hash);
            worker.store(&Store::set(key.as_bytes(), hash, &value[..100 + number * 7919 % 900]));
        }
        if n % 64 == 0 {
            worker.quiesce();
        }
        if n % 2048 == 0 {
            worker.tick();
            cache.tick();
            cache.tend();
        }
    }
    misses
}

#[test]
fn a_small_cache_foretells_what_a_larger_one_misses() {
    let keys = 300_000;
    let small = cache(32);
    let mut worker = small.worker();
    let mut load = Load::new(keys);
    serve(&small, &mut worker, &mut load, 600_000);
    let missed = f64::from(serve(&small, &mut worker, &mut load, 200_000)) / 200_000.0;
    let sizing = small.sizing();
    assert!(!sizing.is_young, "{} reads of {} keys", sizing.reads, sizing.keys);
    assert!(sizing.rate <= 1.0 / 16.0 && sizing.dropped_pages == 0, "{sizing:?}");
    assert!(sizing.bytes < 256 << 10, "{} B", sizing.bytes);

    let large = cache(128);
    let mut worker = large.worker();
    let mut load = Load::new(keys);
    serve(&large, &mut worker, &mut load, 600_000);
    let large_missed = f64::from(serve(&large, &mut worker, &mut load, 200_000)) / 200_000.0;
    let foretold = sizing.curve.at(large.sizing().capacity_bytes).miss_ratio;
    // The curve includes the first reads of keys, which the second part of the load has fewer of.
    assert!((foretold - large_missed).abs() < 0.06, "foretold {foretold}, missed {large_missed}");
    assert!(large_missed < missed - 0.05, "the load asks for more memory: {missed} {large_missed}");
    let now = sizing.curve.at(sizing.capacity_bytes).miss_ratio;
    assert!((now - missed).abs() < 0.1, "LRU would miss {now}, the cache missed {missed}");
}

#[test]
fn a_cache_that_nobody_reads_says_so() {
    let cache = cache(16);
    cache.tend();
    let sizing = cache.sizing();
    assert!(sizing.is_young && sizing.reads == 0);
    assert_eq!(sizing.curve.at(1 << 20).miss_ratio, 1.0);
    assert!(sizing.capacity_bytes > 1 << 20 && sizing.capacity_bytes < 16 << 20);
}

#[test]
fn flushed_and_deleted_keys_leave_the_sample() {
    let cache = cache(16);
    let mut worker = cache.worker();
    let mut load = Load::new(4000);
    serve(&cache, &mut worker, &mut load, 40_000);
    let keys = cache.sizing().keys;
    assert!(keys > 50, "{keys}");
    for number in 0..4000 {
        let key = format!("key:{number}");
        worker.delete(&Delete::of(key.as_bytes(), cache.hash(key.as_bytes())));
    }
    worker.tick();
    cache.tend();
    assert_eq!(cache.sizing().keys, 0);
    serve(&cache, &mut worker, &mut load, 10_000);
    cache.flush(None);
    assert_eq!(cache.sizing().keys, 0);
}
