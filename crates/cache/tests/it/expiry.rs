//! Expired items make room before anything live goes.

use larder_cache::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A cache whose clock stands still, and its workers.
struct Bench {
    cache: Arc<Cache>,
    workers: Vec<Worker>,
    stored: u64,
}

impl Bench {
    fn new(limit_mib: u64, evict: bool) -> Bench {
        Bench::with(CacheOptions { limit_bytes: limit_mib * MIB, evict, ..CacheOptions::default() })
    }

    fn with(options: CacheOptions) -> Bench {
        let workers = options.workers;
        let cache = Cache::new(CacheOptions { seed: Some(1), ..options }).expect("a small cache can be made");
        cache.clock().hold();
        let mut workers: Vec<Worker> = (0..workers).map(|_| cache.worker()).collect();
        workers.iter_mut().for_each(Worker::offline);
        Bench { cache, workers, stored: 0 }
    }

    /// Stores an item through one worker after another. The others are offline.
    fn set(&mut self, key: &str, value: &[u8], ttl_s: u32) -> bool {
        let expiry =
            if ttl_s == 0 { Expiry::NEVER } else { Expiry::at_s(self.cache.clock().now_s() + ttl_s) };
        let number = self.stored as usize % self.workers.len();
        let key = key.as_bytes();
        let set = Store { expiry, ..Store::set(key, self.cache.hash(key), value) };
        self.workers[number].online();
        let outcome = self.workers[number].store(&set);
        self.workers[number].offline();
        self.stored += 1;
        if self.stored.is_multiple_of(256) {
            self.cache.tend();
        }
        matches!(outcome, StoreOutcome::Stored { .. })
    }

    /// Time passes, and the keeper has its rounds.
    fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.cache.clock().shift(1);
            self.workers.iter_mut().for_each(Worker::tick);
            (0..10).for_each(|_| self.cache.tend());
        }
    }

    /// Bytes of all items that can be served.
    fn live_bytes(&mut self) -> u64 {
        let (mut items, mut tour) = (Vec::new(), self.workers[0].begin_tour());
        self.workers[0].online();
        while self.workers[0].list(&mut tour, 1000, Duration::ZERO, &mut items) != Toured::End {}
        self.workers[0].offline();
        items.iter().map(|item| item.bytes).sum()
    }

    fn has(&mut self, key: &str) -> bool {
        let key = key.as_bytes();
        self.workers[0].online();
        let has = self.workers[0].get(self.cache.hash(key), key).is_some();
        self.workers[0].offline();
        has
    }
}

/// Stores what never expires, then what expires soon, and then, when that has expired, as much again: what is live
/// always fits.
fn live_items_kept(limit_mib: u64) -> f64 {
    let mut bench = Bench::new(limit_mib, true);
    let value = [7; 400];
    // Of small limits the buffers of connections take a larger part.
    let items = |of_64_mib: u64| of_64_mib * (limit_mib - 6) / 58;
    (0..items(50_000)).for_each(|n| assert!(bench.set(&format!("never {n}"), &value, 0)));
    (0..items(70_000)).for_each(|n| assert!(bench.set(&format!("soon {n}"), &value, 2)));
    bench.pass(3);
    (0..items(70_000)).for_each(|n| assert!(bench.set(&format!("new {n}"), &value, 0)));
    let never = (0..items(50_000)).filter(|n| bench.has(&format!("never {n}"))).count();
    let new = (0..items(70_000)).filter(|n| bench.has(&format!("new {n}"))).count();
    (never + new) as f64 / items(120_000) as f64
}

#[test]
fn nothing_live_goes_while_something_expired_lies_there() {
    for limit_mib in [16, 64] {
        let kept = live_items_kept(limit_mib);
        assert!(kept >= 0.998, "{limit_mib} MiB: {kept}");
    }
}

/// Bytes of the items that an oracle keeps which knows when they expire: everything live, but no more than `capacity`,
/// and the oldest go first.
struct Oracle {
    capacity: u64,
    /// Bytes and expiry of each item, the oldest first.
    items: VecDeque<(u64, u32)>,
}

impl Oracle {
    fn live_bytes(&mut self, now_s: u32) -> u64 {
        self.items.retain(|(_, expires_s)| *expires_s > now_s);
        let mut bytes = self.items.iter().map(|(bytes, _)| bytes).sum();
        while bytes > self.capacity {
            bytes -= self.items.pop_front().expect("something is too much").0;
        }
        bytes
    }
}

/// What came of a mix of lifetimes.
#[derive(Debug)]
struct Mix {
    /// Live bytes beside those of the oracle, on average.
    share: f64,
    moved_per_set: f64,
}

/// Stores for `seconds` at a steady rate; `ttl_s` says what an item's time to live is.
fn mix(bench: &mut Bench, capacity: u64, per_s: u32, seconds: u32, ttl_s: impl Fn(u64) -> u32) -> Mix {
    let mut oracle = Oracle { capacity, items: VecDeque::new() };
    let mut random = 1u64;
    let mut shares = Vec::new();
    for second in 0..seconds {
        for _ in 0..per_s {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let ttl_s = ttl_s(random >> 33);
            let length = 500 + (random >> 40) as usize % 500;
            let key = format!("key {:8}", bench.stored);
            assert!(bench.set(&key, &vec![1; length], ttl_s));
            let expires_s = if ttl_s == 0 { u32::MAX } else { bench.cache.clock().now_s() + ttl_s };
            let record = 12 + key.len() + length + if ttl_s == 0 { 0 } else { 4 };
            oracle.items.push_back((record.next_multiple_of(4) as u64, expires_s));
        }
        oracle.live_bytes(bench.cache.clock().now_s());
        bench.pass(1);
        if second > seconds / 2 && second % 5 == 0 {
            let wanted = oracle.live_bytes(bench.cache.clock().now_s()) as f64;
            shares.push(bench.live_bytes() as f64 / wanted);
        }
    }
    let totals = bench.cache.totals();
    Mix {
        share: shares.iter().sum::<f64>() / shares.len() as f64,
        moved_per_set: totals.moved as f64 / totals.total_items as f64,
    }
}

/// Bytes of live items that a full cache holds if none expires.
fn capacity(options: &CacheOptions) -> u64 {
    let mut bench = Bench::with(options.clone());
    mix(&mut bench, u64::MAX, 1600, 120, |_| 0);
    bench.live_bytes()
}

#[test]
fn a_mix_of_lifetimes_keeps_what_an_oracle_would() {
    let options = CacheOptions::default();
    let capacity = capacity(&options);
    // Half of the bytes expire within a minute, after 30 seconds on average, and would fill the memory.
    let per_s = (capacity / 30 / 790) as u32;
    let few = |random: u64| if random & 1 == 0 { 0 } else { [10, 30, 60][(random >> 1) as usize % 3] };
    let mut bench = Bench::with(options.clone());
    let few = mix(&mut bench, capacity, per_s, 120, few);
    assert!(few.share >= 0.98 && few.moved_per_set < 0.05, "{few:?}");
    // What the policy decides by is true, and so is what is shown of the groups: expired columns do not count.
    let (facts, columns_bytes) = (bench.cache.temperature_stats(), bench.cache.memory_use().columns_bytes);
    let known = facts.probation_columns + facts.main_columns;
    let columns = columns_bytes / u64::from(bench.cache.column_bytes());
    assert!(known <= columns + columns / 8, "{known} of {columns}");
    let grouped: u64 = facts.groups.iter().map(|group| group.bytes).sum();
    assert!(grouped <= columns_bytes + columns_bytes / 8, "{grouped} of {columns_bytes}");
    // No two items need have the same lifetime.
    let spread = |random: u64| if random & 1 == 0 { 0 } else { 1 + (random >> 1) as u32 % 60 };
    let spread = mix(&mut Bench::with(options), capacity, per_s, 120, spread);
    assert!(spread.share >= 0.96 && spread.moved_per_set < 0.3, "{spread:?}");
}

#[test]
fn expired_columns_are_freed_a_few_at_a_time_while_there_is_room() {
    let mut bench = Bench::new(64, true);
    (0..10_000).for_each(|n| assert!(bench.set(&format!("never {n}"), &[7; 400], 0)));
    (0..60_000).for_each(|n| assert!(bench.set(&format!("soon {n}"), &[7; 400], 5)));
    let totals = bench.cache.totals();
    assert_eq!((totals.columns_reclaimed, totals.evictions), (0, 0));
    bench.cache.clock().shift(6);
    bench.cache.tend();
    let first = bench.cache.totals().columns_reclaimed;
    assert!((1..=32).contains(&first), "{first} columns in one round");
    let held = bench.cache.column_bytes_held();
    assert!(held.expired > 10 << 20, "{held:?}");
    (0..40).for_each(|_| bench.cache.tend());
    let (held, totals) = (bench.cache.column_bytes_held(), bench.cache.totals());
    // What is left are the open columns.
    assert!(held.expired < 1 << 20, "{held:?}");
    assert!(totals.reclaimed > 55_000 && totals.expired_unfetched == totals.reclaimed, "{totals:?}");
    assert_eq!((totals.evictions, totals.moved), (0, 0), "nothing live was touched");
    assert!((0..10_000).all(|n| bench.has(&format!("never {n}"))));
}

#[test]
fn a_touch_that_shortens_gives_room_and_one_that_extends_keeps_it() {
    let mut bench = Bench::new(64, true);
    let (cache, value) = (bench.cache.clone(), [7; 400]);
    (0..100_000).for_each(|n| assert!(bench.set(&format!("item {n}"), &value, 100 + n as u32 % 2)));
    let soon = Expiry::at_s(cache.clock().now_s() + 2);
    let late = Expiry::at_s(cache.clock().now_s() + 100_000);
    for n in 0..100_000 {
        let key = format!("item {n}");
        let expiry = if n < 50_000 { soon } else { late };
        let worker = &mut bench.workers[0];
        worker.online();
        assert_eq!(worker.touch(cache.hash(key.as_bytes()), key.as_bytes(), expiry), Touched::Done);
        worker.offline();
    }
    bench.pass(3);
    let held = cache.column_bytes_held();
    assert!(held.expired + held.dead < 2 << 20, "{held:?}");
    bench.pass(150);
    (0..50_000).for_each(|n| assert!(bench.set(&format!("new {n}"), &value, 0)));
    assert_eq!(cache.totals().evictions, 0);
    assert!((50_000..100_000).all(|n| bench.has(&format!("item {n}"))));
    assert!((0..50_000).all(|n| bench.has(&format!("new {n}"))));
}

#[test]
fn a_cache_that_may_not_evict_refuses_nothing_while_expired_items_lie_there() {
    let mut bench = Bench::new(64, false);
    let (mut stored, value) = (0, [7; 400]);
    while bench.set(&format!("item {stored}"), &value, if stored % 2 == 0 { 5 } else { 0 }) {
        stored += 1;
    }
    // Nobody tends the cache: the writers make room.
    bench.cache.clock().shift(6);
    let again = stored * 48 / 100;
    for n in 0..again {
        assert!(bench.set(&format!("new {n}"), &value, 0), "{n} of {stored}");
    }
    assert!((1..stored).step_by(2).all(|n| bench.has(&format!("item {n}"))));
    assert_eq!(bench.cache.totals().evictions, 0);
}

#[test]
fn large_values_that_have_expired_make_room_too() {
    let mut bench = Bench::new(64, true);
    let large = vec![7; 300_000];
    (0..25_000).for_each(|n| assert!(bench.set(&format!("never {n}"), &[7; 400], 0)));
    let upload_set = |bench: &mut Bench, key: String, ttl_s: u32| {
        let cache = bench.cache.clone();
        let (hash, expiry) = (cache.hash(key.as_bytes()), Expiry::at_s(cache.clock().now_s() + ttl_s));
        let worker = &mut bench.workers[0];
        worker.online();
        let mut upload = worker.begin_upload(hash, large.len() as u32).expect("there is room");
        assert!(worker.fill_upload(&mut upload, &large));
        let set = Store { expiry, ..Store::set(key.as_bytes(), hash, b"") };
        assert!(matches!(worker.complete_upload(upload, &set), StoreOutcome::Stored { .. }));
        worker.offline();
    };
    (0..120).for_each(|n| upload_set(&mut bench, format!("large {n}"), 1000));
    let soon = Expiry::at_s(bench.cache.clock().now_s() + 4);
    for n in 0..100 {
        let (cache, key) = (bench.cache.clone(), format!("large {n}"));
        bench.workers[0].online();
        assert_eq!(bench.workers[0].touch(cache.hash(key.as_bytes()), key.as_bytes(), soon), Touched::Done);
        bench.workers[0].offline();
    }
    bench.cache.clock().shift(20);
    (0..65_000).for_each(|n| assert!(bench.set(&format!("new {n}"), &[7; 400], 0)));
    assert_eq!(bench.cache.totals().evictions, 0);
    assert!((100..120).all(|n| bench.has(&format!("large {n}"))));
    assert!((0..25_000).all(|n| bench.has(&format!("never {n}"))));
}

#[test]
fn after_a_flush_nothing_live_goes() {
    let mut bench = Bench::new(64, true);
    (0..120_000).for_each(|n| assert!(bench.set(&format!("old {n}"), &[7; 400], 0)));
    bench.cache.flush(None);
    let held = bench.cache.column_bytes_held();
    assert!(held.live == 0 && held.flushed > 45 << 20, "{held:?}");
    (0..120_000).for_each(|n| assert!(bench.set(&format!("new {n}"), &[7; 400], 0)));
    assert_eq!(bench.cache.totals().evictions, 0);
    assert!((0..120_000).all(|n| bench.has(&format!("new {n}"))));
}

/// The columns' own sums against a walk over all items, while items are stored, replaced, touched, joined and deleted,
/// and time passes. What is called expired has expired; and what expires is forgotten by nobody.
#[test]
fn what_columns_say_of_expiry_is_what_a_walk_finds() {
    let options = CacheOptions { limit_bytes: 16 * MIB, workers: 2, ..CacheOptions::default() };
    let mut bench = Bench::with(options);
    let cache = bench.cache.clone();
    let mut random = 7u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) % below
    };
    for turn in 0..20_000 {
        let key = format!("key {}", draw(3000));
        let ttl_s = [0, 1, 3, 10, 60, 500, 5000, 100_000][draw(8) as usize];
        let now_s = cache.clock().now_s();
        let expiry = if ttl_s == 0 { Expiry::NEVER } else { Expiry::at_s(now_s + ttl_s) };
        let length = if draw(100) == 0 { 40_000 } else { [3, 50, 300, 1500, 7000][draw(5) as usize] };
        let value = vec![turn as u8; length];
        let hash = cache.hash(key.as_bytes());
        let worker = &mut bench.workers[(turn % 2) as usize];
        worker.online();
        match draw(10) {
            0 => {
                worker.delete(&Delete::of(key.as_bytes(), hash));
            }
            1 | 2 => {
                worker.touch(hash, key.as_bytes(), expiry);
            }
            3 => {
                let append = Store { mode: Mode::Append, ..Store::set(key.as_bytes(), hash, &value[..3]) };
                worker.store(&append);
            }
            _ => {
                worker.store(&Store { expiry, ..Store::set(key.as_bytes(), hash, &value) });
            }
        }
        worker.offline();
        if draw(50) == 0 {
            cache.clock().shift(draw(4) as i64);
            cache.tend();
        }
        if turn % 500 == 0 {
            let (held, live) = (cache.column_bytes_held(), bench.live_bytes());
            assert!(held.live >= live, "{held:?}, and {live} bytes are live");
            assert_eq!(held.live + held.expired + held.flushed, cache.memory_use().items_bytes);
        }
    }
    cache.clock().shift(300_000);
    assert_eq!(cache.column_bytes_held().live, bench.live_bytes());
}
