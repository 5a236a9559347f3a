//! Where an item's penalty comes from, and where it stays.

use larder_cache::*;
use larder_flash::Recover;
use larder_laboratory::MemoryDevice;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A cache, one worker of it, and a time that the test moves.
struct Bench {
    cache: Arc<Cache>,
    worker: Worker,
    now: Instant,
}

const MS: Duration = Duration::from_millis(1);

impl Bench {
    fn new(set: impl FnOnce(&mut CacheOptions)) -> Bench {
        let mut options =
            CacheOptions { limit_bytes: 16 << 20, workers: 2, seed: Some(1), ..CacheOptions::default() };
        set(&mut options);
        Bench::over(Cache::new(options).expect("a small cache can be made"))
    }

    fn over(cache: Arc<Cache>) -> Bench {
        let now = Instant::now();
        let mut bench = Bench { worker: cache.worker(), cache, now };
        bench.wait(MS);
        bench
    }

    /// So much time passes until the next batch.
    fn wait(&mut self, pause: Duration) {
        self.now += pause;
        self.worker.quiesce();
        self.worker.begin_batch(self.now);
    }

    fn store<'a>(&self, key: &'a str, value: &'a [u8]) -> Store<'a> {
        Store::set(key.as_bytes(), self.cache.hash(key.as_bytes()), value)
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        let outcome = self.worker.store(&self.store(key, value));
        assert!(matches!(outcome, StoreOutcome::Stored { .. }), "{outcome:?}");
    }

    /// As a server does for a GET. Returns whether it was a hit.
    fn get(&self, key: &str) -> bool {
        let hash = self.cache.hash(key.as_bytes());
        let is_hit = self.worker.get(hash, key.as_bytes()).is_some();
        if !is_hit {
            self.worker.note_miss(hash, key.as_bytes());
        }
        is_hit
    }

    /// A miss, so much time, and the store.
    fn read_through(&mut self, key: &str, cost: Duration, value: &[u8]) {
        assert!(!self.get(key));
        self.wait(cost);
        self.set(key, value);
    }

    /// The number of the subclass that the item has.
    fn subclass(&self, key: &str) -> Option<usize> {
        let hit = self.worker.peek(self.cache.hash(key.as_bytes()), key.as_bytes()).expect("it is there");
        hit.penalty().map(Subclass::number)
    }
}

#[test]
fn the_gap_between_miss_and_store_is_the_penalty() {
    let mut bench = Bench::new(|_| {});
    let costs_us = [0, 1_000, 1_001, 10_000, 100_001, 1_000_000, 5_000_000];
    for (number, us) in costs_us.into_iter().enumerate() {
        let key = format!("key{number}");
        bench.read_through(&key, Duration::from_micros(us), b"value");
        let expected = Subclass::of_us(us as u32).number();
        assert_eq!(bench.subclass(&key), Some(expected), "{us} us");
    }
    let totals = bench.cache.totals();
    assert_eq!((totals.penalties_measured, totals.penalties_discarded), (7, 0));
    assert_eq!(totals.penalties_measured_us, costs_us.iter().sum::<u64>());
    assert_eq!((totals.penalties_to_1_ms, totals.penalties_to_10_ms, totals.penalties_to_5_s), (2, 2, 1));
}

#[test]
fn a_gap_of_more_than_five_seconds_says_nothing() {
    let mut bench = Bench::new(|_| {});
    bench.read_through("key", 5000 * MS + Duration::from_micros(1), b"value");
    assert_eq!(bench.subclass("key"), None);
    let totals = bench.cache.totals();
    assert_eq!((totals.penalties_measured, totals.penalties_discarded), (0, 1));
}

#[test]
fn a_worker_that_is_told_no_time_measures_nothing() {
    let bench = Bench::new(|_| {});
    let mut other = bench.cache.worker();
    let hash = bench.cache.hash(b"key");
    other.note_miss(hash, b"key");
    other.store(&bench.store("key", b"value"));
    assert_eq!(bench.subclass("key"), None);
}

#[test]
fn an_overwrite_keeps_what_was_measured() {
    let mut bench = Bench::new(|_| {});
    bench.read_through("key", 500 * MS, b"value");
    bench.wait(20 * MS);
    bench.set("key", b"another value");
    assert_eq!(bench.subclass("key"), Some(3));
    // A store after another miss measures anew.
    bench.worker.delete(&Delete::of(b"key", bench.cache.hash(b"key")));
    bench.read_through("key", 5 * MS, b"value");
    assert_eq!(bench.subclass("key"), Some(1));
}

#[test]
fn changes_of_an_item_keep_its_penalty() {
    let mut bench = Bench::new(|_| {});
    let hash = bench.cache.hash(b"key");
    bench.read_through("key", 500 * MS, b"12");
    let append = Store { mode: Mode::Append, ..bench.store("key", b"3") };
    bench.worker.store(&append);
    assert_eq!(bench.subclass("key"), Some(3), "append");
    bench.worker.arith(&Arith::of(b"key", hash, true, 4));
    assert_eq!(bench.subclass("key"), Some(3), "incr");
    let expiry = Expiry::at_s(bench.cache.clock().now_s() + 100);
    assert_eq!(bench.worker.touch(hash, b"key", expiry), Touched::Done);
    assert_eq!(bench.subclass("key"), Some(3), "touch");
    bench.worker.delete(&Delete { invalidate: true, ..Delete::of(b"key", hash) });
    assert_eq!(bench.subclass("key"), Some(3), "marked as stale");
    let hit = bench.worker.get(hash, b"key").expect("it is there");
    assert_eq!(hit.value_bytes(), 3);
    bench.worker.note_fetch(&hit);
    assert_eq!(bench.subclass("key"), Some(3), "read");
}

#[test]
fn the_client_knows_better_than_the_clock() {
    let mut bench = Bench::new(|_| {});
    assert!(!bench.get("key"));
    bench.wait(20 * MS);
    let stated = |subclass_us| Some(Subclass::of_us(subclass_us));
    let store = Store { penalty: stated(3_000_000), ..bench.store("key", b"value") };
    bench.worker.store(&store);
    assert_eq!(bench.subclass("key"), Some(4));
    // The miss is over: a later store does not take it.
    bench.wait(500 * MS);
    bench.set("key", b"value");
    assert_eq!(bench.subclass("key"), Some(4));
    let totals = bench.cache.totals();
    assert_eq!((totals.penalties_measured, totals.penalties_stated, totals.penalties_to_5_s), (0, 1, 1));
}

#[test]
fn a_first_store_is_estimated_from_its_prefix() {
    let mut bench = Bench::new(|_| {});
    for number in 0..10 {
        bench.read_through(&format!("dear:{number}"), 2000 * MS, b"value");
        bench.read_through(&format!("cheap:{number}"), Duration::from_micros(300), b"value");
    }
    for (key, subclass) in [("dear:new", Some(4)), ("cheap:new", Some(0)), ("other:new", None), ("new", None)]
    {
        bench.set(key, b"value");
        assert_eq!(bench.subclass(key), subclass, "{key}");
    }
}

#[test]
fn the_first_of_two_misses_stands() {
    let mut bench = Bench::new(|_| {});
    assert!(!bench.get("key"));
    bench.wait(300 * MS);
    assert!(!bench.get("key"));
    bench.wait(50 * MS);
    bench.set("key", b"first");
    assert_eq!(bench.subclass("key"), Some(3));
    bench.wait(MS);
    bench.set("key", b"second");
    assert_eq!(bench.subclass("key"), Some(3), "the second store keeps what the first one measured");
    assert_eq!(bench.cache.totals().penalties_measured, 1);
}

#[test]
fn a_placeholder_does_not_end_the_miss() {
    let mut bench = Bench::new(|_| {});
    assert!(!bench.get("key"));
    bench.wait(2 * MS);
    let placeholder = Store { mode: Mode::Add, ..bench.store("key", b"") };
    bench.worker.store_placeholder(&placeholder);
    assert_eq!(bench.subclass("key"), None);
    bench.wait(200 * MS);
    bench.set("key", b"value");
    assert_eq!(bench.subclass("key"), Some(3));
}

#[test]
fn a_refused_store_does_not_end_the_miss() {
    let mut bench = Bench::new(|_| {});
    assert!(!bench.get("key"));
    bench.wait(20 * MS);
    let replace = Store { mode: Mode::Replace, ..bench.store("key", b"value") };
    assert_eq!(bench.worker.store(&replace), StoreOutcome::NotStored);
    bench.wait(200 * MS);
    bench.set("key", b"value");
    assert_eq!(bench.subclass("key"), Some(3));
}

#[test]
fn a_large_value_is_measured_to_its_first_byte() {
    let mut bench = Bench::new(|_| {});
    assert!(!bench.get("large"));
    bench.wait(50 * MS);
    let value = vec![7; 300_000];
    let hash = bench.cache.hash(b"large");
    let mut upload = bench.worker.begin_upload(hash, value.len() as u32).expect("there is room");
    assert!(bench.worker.fill_upload(&mut upload, &value[..100_000]));
    // A slow client.
    bench.wait(4000 * MS);
    assert!(bench.worker.fill_upload(&mut upload, &value[100_000..]));
    let store = bench.store("large", b"");
    assert!(matches!(bench.worker.complete_upload(upload, &store), StoreOutcome::Stored { .. }));
    assert_eq!(bench.subclass("large"), Some(2));
    // Appended to, and overwritten in one piece.
    let append = Store { mode: Mode::Append, ..bench.store("large", b"more") };
    bench.worker.store(&append);
    assert_eq!(bench.subclass("large"), Some(2));
    bench.set("large", b"small");
    assert_eq!(bench.subclass("large"), Some(2));
}

#[test]
fn what_is_switched_off_measures_nothing_and_forgets_nothing() {
    let mut bench = Bench::new(|options| options.worth.mode = WorthMode::Hits);
    bench.read_through("key", 500 * MS, b"value");
    assert_eq!(bench.subclass("key"), None);
    let store = Store { penalty: Some(Subclass::of_us(50)), ..bench.store("stated", b"value") };
    bench.worker.store(&store);
    assert_eq!(bench.subclass("stated"), Some(0), "what a client states is remembered all the same");
    assert_eq!(bench.cache.totals().penalties_measured, 0);
    bench.cache.measure_penalties(true);
    bench.read_through("another", 500 * MS, b"value");
    bench.cache.measure_penalties(false);
    assert_eq!(bench.subclass("another"), Some(3));
}

#[test]
fn by_default_costs_count_where_they_foretell_the_next_one_or_are_stated() {
    let now = |bench: &Bench| {
        let (worth, evidence) = bench.cache.worth_now();
        (worth.mode, evidence)
    };
    // Keys that are deleted and read again: the cost of a miss is that of the key, or comes by chance.
    let measured = |cost_ms: fn(u32, u32) -> u32| {
        let mut bench = Bench::new(|_| ());
        for number in 0..6_000 {
            let key = format!("key:{}", number % 100);
            bench.read_through(&key, cost_ms(number % 100, number) * MS, b"value");
            bench.worker.delete(&Delete::of(key.as_bytes(), bench.cache.hash(key.as_bytes())));
        }
        now(&bench)
    };
    assert_eq!(measured(|key, _| 1 + 200 * (key % 4 / 3)), (WorthMode::Penalty, CostEvidence::Skill));
    let by_chance = measured(|_, number| 1 + 200 * (number.wrapping_mul(2_654_435_761) >> 30 == 0) as u32);
    assert_eq!(by_chance, (WorthMode::Hits, CostEvidence::None));
    for kind in ["entry", "off"] {
        let mut bench =
            Bench::new(|options| options.temperature = TemperatureKind::named(kind).expect("it exists"));
        assert_eq!(now(&bench), (WorthMode::Hits, CostEvidence::None));
        bench.worker.store(&Store { penalty: Some(Subclass::of_us(50)), ..bench.store("key", b"value") });
        assert_eq!(now(&bench), (WorthMode::Penalty, CostEvidence::Stated));
    }
}

#[test]
fn the_pass_carries_the_penalty() {
    let mut bench = Bench::new(|options| options.limit_bytes = 8 << 20);
    let value = [b'v'; 1000];
    for number in 0..100 {
        bench.read_through(&format!("dear:{number}"), 2000 * MS, &value);
    }
    // Four times the memory goes through while the hundred are read again and again.
    for number in 0..32_000 {
        bench.set(&format!("filler{number}"), &value);
        let key = format!("dear:{}", number % 100);
        bench.worker.get(bench.cache.hash(key.as_bytes()), key.as_bytes());
        if number % 64 == 0 {
            bench.wait(MS);
            bench.cache.tend();
        }
    }
    assert!(bench.cache.totals().moved > 100);
    let hash = |key: &str| bench.cache.hash(key.as_bytes());
    let there = (0..100).map(|number| format!("dear:{number}"));
    let there: Vec<String> =
        there.filter(|key| bench.worker.peek(hash(key), key.as_bytes()).is_some()).collect();
    assert!(there.len() > 50, "{}", there.len());
    for key in there {
        assert_eq!(bench.subclass(&key), Some(4), "{key}");
    }
}

#[test]
fn flash_keeps_the_penalty_over_a_restart() {
    let device = MemoryDevice::new(256, 64);
    let open = || {
        let level = FlashLevel::from(crate::tier::open(&device, Recover::Clean, None));
        let options = CacheOptions { limit_bytes: 8 << 20, workers: 1, ..CacheOptions::default() };
        let flash = level.flash.clone();
        (Bench::over(Cache::with_flash(options, Some(level)).expect("a small cache can be made")), flash)
    };
    let (mut bench, flash) = open();
    let costs_us = [300u64, 5_000, 50_000, 500_000, 4_000_000];
    for (number, us) in costs_us.into_iter().enumerate() {
        // Long values too, whose parts lie apart on flash.
        bench.read_through(&format!("key{number}"), Duration::from_micros(us), b"value");
        bench.read_through(&format!("long{number}"), Duration::from_micros(us), &vec![7; 200_000]);
    }
    // No prefix, no delimiter: the estimate must not be what answers.
    let saved = bench.cache.save_to_flash();
    assert_eq!(saved.lost, 0, "{saved:?}");
    flash.close().expect("a device of memory does not fail");
    drop(bench);

    let (mut bench, flash) = open();
    let until = Instant::now() + Duration::from_secs(60);
    while flash.stats().is_recovering {
        flash.tend();
        std::thread::sleep(MS);
        assert!(Instant::now() < until, "it never came to the end of its recovery");
    }
    for number in 0..costs_us.len() {
        for key in [format!("key{number}"), format!("long{number}")] {
            let hash = bench.cache.hash(key.as_bytes());
            let found = crate::tier::fetch(&mut bench.worker, hash, key.as_bytes()).expect("flash has it");
            let taken = crate::tier::take_in(&mut bench.worker, hash, key.as_bytes(), &found, true);
            assert!(taken.is_some_and(|(_, is_promoted)| is_promoted), "{key}");
            assert_eq!(bench.subclass(&key), Some(number), "{key}");
        }
    }
}
