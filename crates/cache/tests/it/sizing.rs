//! What other sizes of the cache would miss, from the traffic of real workers.

use larder_cache::*;
use larder_curve::Stack;
use larder_item::HEADER_BYTES;
use std::sync::Arc;

/// Reads and read-through stores of random keys of Zipf's law.
struct Load {
    sums: Vec<f64>,
    state: u64,
}

impl Load {
    /// The exponent is 1.
    fn new(keys: u32) -> Load {
        Load::of(keys, 1.0)
    }

    fn of(keys: u32, exponent: f64) -> Load {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += f64::from(rank).powf(-exponent);
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
    cache_with_seed(limit_mib, 3)
}

fn cache_with_seed(limit_mib: u64, seed: u64) -> Arc<Cache> {
    let options = CacheOptions {
        limit_bytes: limit_mib << 20,
        workers: 1,
        seed: Some(seed),
        ..CacheOptions::default()
    };
    Cache::new(options).expect("a small cache can be made")
}

/// Serves `reads` reads as a server does, and returns how many missed. The sizes of values depend on the key.
fn serve(cache: &Arc<Cache>, worker: &mut Worker, load: &mut Load, reads: u32) -> u32 {
    serve_with(cache, worker, load, reads, |worker, _, _| worker.counters().get_hits.add(1))
}

/// As [`serve`]. `count_hit` is called for each hit, with its key and the number of the read.
fn serve_with(
    cache: &Arc<Cache>,
    worker: &mut Worker,
    load: &mut Load,
    reads: u32,
    count_hit: impl Fn(&mut Worker, &[u8], u32),
) -> u32 {
    let mut misses = 0;
    let value = vec![7; 2000];
    for n in 0..reads {
        let number = load.key();
        let key = format!("key:{number}");
        let hash = cache.hash(key.as_bytes());
        if worker.get(hash, key.as_bytes()).is_some() {
            count_hit(worker, key.as_bytes(), n);
        } else {
            misses += 1;
            worker.counters().get_misses.add(1);
            worker.note_miss(hash, key.as_bytes());
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

/// Half of the reads also touch, as `gat` does, and are counted as touches.
#[test]
fn reads_that_touch_count_once() {
    let cache = cache(32);
    let (mut worker, mut load, reads) = (cache.worker(), Load::new(300_000), 400_000);
    let misses = serve_with(&cache, &mut worker, &mut load, reads, |worker, key, n| {
        if n % 2 == 0 {
            worker.counters().get_hits.add(1);
        } else {
            worker.set_expiry(cache.hash(key), key, Expiry::NEVER);
        }
    });
    let missed = f64::from(misses) / f64::from(reads);
    let sizing = cache.sizing();
    let now = sizing.curve.at(sizing.capacity_bytes).miss_ratio;
    assert!((now - missed).abs() < 0.06, "LRU would miss {now}, the cache missed {missed}");
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

/// A tenant, and the definition of its curve: a list of all its items, the distance of every read.
struct Tenant {
    name: &'static str,
    load: Load,
    list: Stack,
    distances: Vec<Option<u64>>,
}

impl Tenant {
    fn new(name: &'static str, keys: u32, exponent: f64) -> Tenant {
        Tenant { name, load: Load::of(keys, exponent), list: Stack::new(), distances: Vec::new() }
    }

    /// One read, as a server serves it; a miss stores the item.
    fn read(&mut self, cache: &Arc<Cache>, worker: &mut Worker) {
        let number = self.load.key();
        let key = format!("{}:{number}", self.name);
        let (key, value) = (key.as_bytes(), &[7; 4000][..100 + number * 7919 % 3800]);
        let depth = self.list.touch(number as u64, (HEADER_BYTES + key.len() + value.len()) as u64);
        self.distances.push(depth.map(|depth| depth.above + depth.weight));
        let hash = cache.hash(key);
        let is_hit = worker.get(hash, key).is_some();
        worker.count_read_of_namespace(key, is_hit);
        if is_hit {
            worker.counters().get_hits.add(1);
        } else {
            worker.counters().get_misses.add(1);
            worker.note_miss(hash, key);
            worker.store(&Store::set(key, hash, value));
        }
    }

    /// The mean difference between the curve and its definition at 500 sizes up to `most`.
    fn error_of(&self, sizing: &Sizing, most: u64) -> f64 {
        let mut sorted: Vec<u64> = self.distances.iter().flatten().copied().collect();
        sorted.sort_unstable();
        let exact = |bytes: u64| {
            1.0 - sorted.partition_point(|distance| *distance <= bytes) as f64 / self.distances.len() as f64
        };
        let apart = |nth: u64| (sizing.curve.at(most / 500 * nth).miss_ratio - exact(most / 500 * nth)).abs();
        (1..=500).map(apart).sum::<f64>() / 500.0
    }
}

fn named(names: &[&str]) -> Vec<Namespace> {
    let of = |name: &&str| Namespace {
        name: (*name).to_owned(),
        least_percent: 0,
        most_percent: 100,
        ttl_max_s: 0,
    };
    names.iter().map(of).collect()
}

/// Serves reads of both, three of the second for each one of the first.
fn serve_both(cache: &Arc<Cache>, worker: &mut Worker, tenants: &mut [Tenant; 2], reads: u32) {
    for n in 0..reads {
        tenants[usize::from(n % 4 != 0)].read(cache, worker);
        if n % 64 == 0 {
            worker.quiesce();
        }
        if n % 2048 == 0 {
            worker.tick();
            cache.tick();
            cache.tend();
        }
    }
    worker.tick();
    cache.tend();
}

#[test]
fn each_namespace_has_the_curve_of_its_own_items() {
    let mut errors = Vec::new();
    for seed in 1..=3 {
        let cache = cache_with_seed(256, seed);
        let mut worker = cache.worker();
        cache.set_namespaces(&named(&["small", "large"]), b':').expect("a list that can be");
        let mut tenants = [Tenant::new("small", 60_000, 0.9), Tenant::new("large", 400_000, 0.7)];
        serve_both(&cache, &mut worker, &mut tenants, 400_000);
        assert!(cache.totals().evictions > 1000, "memory is short");
        let mut bytes = cache.sizing().bytes;
        for (tenant, footprint_mib) in tenants.iter().zip([108, 700]) {
            let sizing = cache.sizing_of_namespace(tenant.name.as_bytes()).expect("it has a curve");
            assert!(!sizing.is_young && sizing.dropped_pages == 0, "{}: {sizing:?}", tenant.name);
            assert!(sizing.keys > 600 && sizing.keys < 700, "{}: {} keys", tenant.name, sizing.keys);
            errors.push(tenant.error_of(&sizing, (footprint_mib << 20).min(sizing.span_bytes)));
            bytes += sizing.bytes;
        }
        assert!(bytes * 500 < 256 << 20, "{bytes} B are more than 0.2 % of the limit");
        let at = |name: &str| {
            let sizing = cache.sizing_of_namespace(name.as_bytes()).expect("a curve");
            sizing.curve.at(100 << 20).miss_ratio
        };
        assert!(at("large") > at("small") + 0.3, "{} {}", at("large"), at("small"));
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    assert!(mean < 0.02, "mean error {mean}: {errors:?}");
    assert!(errors.iter().all(|error| (1e-6..0.03).contains(error)), "{errors:?}");
}

#[test]
fn namespaces_that_come_and_go_have_curves_of_their_own_time() {
    let cache = cache(256);
    let mut worker = cache.worker();
    let set = |names: &[&str]| cache.set_namespaces(&named(names), b':').expect("a list that can be");
    let sizing = |name: &str| cache.sizing_of_namespace(name.as_bytes());
    assert_eq!(sizing("small").unwrap_err(), NoCurve::NoSuchNamespace);
    set(&["small"]);
    let columns = cache.memory_use().bookkeeping_bytes;
    let mut tenants = [Tenant::new("small", 20_000, 0.9), Tenant::new("large", 100_000, 0.7)];
    serve_both(&cache, &mut worker, &mut tenants, 100_000);
    let alone = sizing("small").expect("it has a curve");
    assert!(alone.reads > 500 && alone.keys > 200, "{} {}", alone.reads, alone.keys);
    assert_eq!(sizing("large").unwrap_err(), NoCurve::NoSuchNamespace);

    // What stays keeps what was counted; what is new starts with nothing.
    set(&["large", "small"]);
    assert_eq!(sizing("small").expect("it stays").reads, alone.reads);
    assert_eq!(sizing("large").expect("it is new").reads, 0);
    assert!(cache.memory_use().bookkeeping_bytes <= columns + 4096, "both share what one had");
    serve_both(&cache, &mut worker, &mut tenants, 50_000);
    assert!(sizing("small").expect("it stays").reads > alone.reads);
    assert!(sizing("large").expect("it is new").reads > 500);

    // Uses of what is gone are on their way while another one gets a curve.
    tenants[0].read(&cache, &mut worker);
    set(&["other"]);
    worker.tick();
    cache.tend();
    assert_eq!(sizing("small").unwrap_err(), NoCurve::NoSuchNamespace);
    assert_eq!((sizing("other").expect("it is new").keys, sizing("other").expect("it is new").reads), (0, 0));

    // Too many for so little memory: none has a curve, and the whole cache's goes on.
    let many: Vec<String> = (0..NAMESPACES_MAX).map(|nth| format!("n{nth}")).collect();
    set(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let Err(NoCurve::NoRoom { limit_bytes_needed }) = sizing("n7") else { panic!("no room") };
    assert!(limit_bytes_needed > 1 << 30 && limit_bytes_needed < 16 << 30, "{limit_bytes_needed}");
    assert!(cache.sizing().reads > 1000);
    set(&[]);
    assert_eq!(sizing("n7").unwrap_err(), NoCurve::NoSuchNamespace);
}
