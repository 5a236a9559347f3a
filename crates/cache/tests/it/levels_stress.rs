//! Many threads, memory and flash: no read may ever return a value that was not stored, or that is out of date.
//!
//! As [`stress`](../stress.rs), but with a flash tier. Readers look on flash for keys that memory misses, several keys
//! at once, and promote half of the items that come, late. Now and then everything is flushed, and more often the keys
//! that begin with some letters.
//!
//! `LARDER_STRESS_SECONDS` sets how long it runs; `LARDER_STRESS_SEED` repeats a choice of operations.

use crate::frame::{FRAME_BYTES, Numbers, value_of, version_of};
use larder_cache::*;
use larder_flash::Recover;
use larder_laboratory::MemoryDevice;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WRITERS: usize = 3;
const READERS: usize = 2;
const KEYS: usize = 2000;
const SECONDS: u64 = 4;
/// Until then a test sees enough on any machine.
const WAIT_MAX: Duration = Duration::from_secs(60);
const FLUSH_EVERY: Duration = Duration::from_millis(100);
/// Keys that a reader asks for together.
const TOGETHER: u64 = 24;

struct Known {
    /// The version whose store (odd) or absence (even) was acknowledged last.
    acknowledged: AtomicU64,
    /// Versions up to this one were flushed.
    flushed: AtomicU64,
    /// The version given out last.
    turn: Mutex<u64>,
}

struct Stage {
    cache: Arc<Cache>,
    known: Vec<Known>,
    until: Instant,
    failed: AtomicBool,
    hits: AtomicU64,
    flash_hits: AtomicU64,
    late: AtomicU64,
}

fn name_of(key: usize) -> Vec<u8> {
    format!("key-{key:05}").into_bytes()
}

fn bytes_of(numbers: &mut Numbers) -> usize {
    match numbers.below(1000) {
        0..600 => FRAME_BYTES + 8 * numbers.below(8) as usize,
        600..960 => 256 + 8 * numbers.below(120) as usize,
        960..990 => 4000 + 8 * numbers.below(4000) as usize,
        _ => 40_000 + 8 * numbers.below(30_000) as usize,
    }
}

fn plain_store<'a>(hash: KeyHash, key: &'a [u8], value: &'a [u8]) -> Store<'a> {
    Store::set(key, hash, value)
}

/// The bounds of what may be read: nothing older than the acknowledged version, and nothing that was flushed.
#[derive(Clone, Copy)]
struct Floor {
    acknowledged: u64,
    flushed: u64,
}

impl Floor {
    fn admits(self, version: u64) -> bool {
        version % 2 == 1 && version >= self.acknowledged && version > self.flushed
    }
}

impl Stage {
    fn goes_on(&self) -> bool {
        let now = Instant::now();
        let is_long_enough = now >= self.until && (self.has_enough() || now >= self.until + WAIT_MAX);
        !is_long_enough && !self.failed.load(Ordering::Relaxed)
    }

    /// Whether there was something to look at in both levels. A machine that gives the threads little time needs
    /// longer for it.
    fn has_enough(&self) -> bool {
        let totals = self.cache.totals();
        let is_read =
            self.hits.load(Ordering::Relaxed) > 1000 && self.flash_hits.load(Ordering::Relaxed) > 100;
        is_read && totals.demoted > 1000 && totals.promoted > 50
    }

    fn floor(&self, key: usize) -> Floor {
        // Acquire pairs with the writer's Release: a version that was acknowledged by then has to be seen.
        Floor {
            acknowledged: self.known[key].acknowledged.load(Ordering::Acquire),
            flushed: self.known[key].flushed.load(Ordering::Acquire),
        }
    }

    fn check(&self, key: usize, floor: Floor, value: &[u8], from: &str) {
        let version = version_of(key, value);
        assert!(
            floor.admits(version),
            "{from}: key {key}: {version} after {}, flushed {}",
            floor.acknowledged,
            floor.flushed
        );
    }

    fn read(&self, worker: &Worker, key: usize, value: &mut Vec<u8>) -> bool {
        let name = name_of(key);
        let floor = self.floor(key);
        let Some(hit) = worker.get(self.cache.hash(&name), &name) else { return false };
        worker.note_fetch(&hit);
        value.clear();
        worker.copy_value(&hit, value);
        self.check(key, floor, value, "memory");
        self.hits.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Reads some keys as a server does: first all of them in memory, then the others on flash.
    fn read_together(&self, worker: &mut Worker, numbers: &mut Numbers, value: &mut Vec<u8>) {
        let mut waiting: HashMap<u64, (usize, Floor)> = HashMap::new();
        let mut came: Vec<(usize, Floor, Found)> = Vec::new();
        for token in 10..10 + TOGETHER {
            let key = numbers.below(KEYS as u64) as usize;
            let floor = self.floor(key);
            let (name, hash) = (name_of(key), self.cache.hash(&name_of(key)));
            if self.read(worker, key, value) || !worker.flash_may_hold(hash, &name) {
                continue;
            }
            match worker.fetch(token, hash, &name) {
                Fetch::Here(found) => came.push((key, floor, found)),
                Fetch::Started => drop(waiting.insert(token, (key, floor))),
                Fetch::Absent | Fetch::Busy => {}
            }
        }
        worker.kick_fetches();
        worker.quiesce();
        let until = Instant::now() + WAIT_MAX;
        while !waiting.is_empty() {
            worker.poll_fetches(&mut |token, found| {
                let (key, floor) = waiting.remove(&token).expect("it was asked for");
                came.extend(found.map(|found| (key, floor, found)));
            });
            assert!(Instant::now() < until, "a fetch never came to its end");
            std::thread::yield_now();
        }
        for (key, floor, found) in came {
            self.take_in(worker, numbers, key, floor, &found);
        }
    }

    fn take_in(&self, worker: &mut Worker, numbers: &mut Numbers, key: usize, floor: Floor, found: &Found) {
        let (name, hash) = (name_of(key), self.cache.hash(&name_of(key)));
        let is_wanted = numbers.below(2) == 0;
        let Some((value, is_promoted)) = crate::tier::take_in(worker, hash, &name, found, is_wanted) else {
            return;
        };
        self.flash_hits.fetch_add(1, Ordering::Relaxed);
        self.check(key, floor, &value, "flash");
        if is_wanted && !is_promoted {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn write(&self, worker: &mut Worker, numbers: &mut Numbers, key: usize, value: &mut Vec<u8>) {
        let known = &self.known[key];
        let (name, hash) = (name_of(key), self.cache.hash(&name_of(key)));
        // A thread that waits here online would hold back the columns that the other writer may be waiting for.
        let Ok(mut last) = known.turn.try_lock() else { return };
        match numbers.below(100) {
            0..20 => {
                worker.delete(&Delete::of(&name, hash));
                *last = (*last + 2) & !1;
                known.acknowledged.store(*last, Ordering::Release);
                self.is_absent(worker, key, hash, &name);
            }
            20..35 => {
                worker.touch(hash, &name, Expiry::at_s(u32::MAX));
            }
            _ => {
                let version = (*last + 1) | 1;
                value_of(key, version, bytes_of(numbers), value);
                if let StoreOutcome::Stored { .. } = worker.store(&plain_store(hash, &name, value)) {
                    *last = version;
                    known.acknowledged.store(version, Ordering::Release);
                }
            }
        }
    }

    /// After a delete, while no writer of the key runs: the key is on neither level.
    fn is_absent(&self, worker: &mut Worker, key: usize, hash: KeyHash, name: &[u8]) {
        assert!(worker.get(hash, name).is_none(), "key {key} is in memory after its delete");
        if worker.flash_may_hold(hash, name) {
            let found = crate::tier::fetch(worker, hash, name);
            assert!(found.is_none(), "key {key} is on flash after its delete");
        }
    }

    fn writer(&self, mut worker: Worker, mut numbers: Numbers) {
        let mut value = Vec::new();
        let mut fillers = 0u64;
        while self.goes_on() {
            for _ in 0..16 {
                let key = numbers.below(KEYS as u64) as usize;
                if numbers.below(3) == 0 {
                    fillers += 1;
                    let name = format!("filler-{:x}-{fillers}", numbers.0).into_bytes();
                    let bytes = 16 + numbers.below(1000) as usize;
                    worker.store(&plain_store(self.cache.hash(&name), &name, &[b'f'; 1024][..bytes]));
                } else {
                    self.write(&mut worker, &mut numbers, key, &mut value);
                }
            }
            worker.quiesce();
            // Columns from before a flush are let go of, so that it comes to its end.
            if numbers.below(64) == 0 {
                worker.tick();
            }
        }
    }

    fn reader(&self, mut worker: Worker, mut numbers: Numbers) {
        let mut value = Vec::new();
        while self.goes_on() {
            self.read_together(&mut worker, &mut numbers, &mut value);
            worker.quiesce();
            if numbers.below(64) == 0 {
                worker.tick();
            }
        }
    }

    /// Flushes the keys that begin with `prefix`, which may be empty.
    fn flush(&self, prefix: &[u8]) {
        let before: Vec<u64> =
            self.known.iter().map(|known| known.acknowledged.load(Ordering::Acquire)).collect();
        if self.cache.flush_prefix(prefix).is_err() {
            return;
        }
        for (key, (known, version)) in self.known.iter().zip(before).enumerate() {
            if name_of(key).starts_with(prefix) {
                known.flushed.fetch_max(version, Ordering::Release);
            }
        }
    }
}

/// Ends all threads when one of them panics.
struct StopOnPanic<'a>(&'a Stage);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::Relaxed);
        }
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

fn play(exclusive: Exclusive, recover: Recover, generations: bool) {
    let (seed, seconds) = (seed(), number_from("LARDER_STRESS_SECONDS").unwrap_or(SECONDS));
    println!(
        "LARDER_STRESS_SEED={seed} for {seconds} s, {exclusive:?}, {recover:?}, generations {generations}"
    );
    let device = MemoryDevice::new(120, 64);
    let flash = crate::tier::open_with(&device, recover, None, generations);
    let level = FlashLevel { exclusive, recover, ..FlashLevel::from(flash.clone()) };
    let options =
        CacheOptions { limit_bytes: 9 << 20, workers: WRITERS + READERS, ..CacheOptions::default() };
    let cache = Cache::with_flash(options, Some(level)).expect("a small cache can be made");
    let keeper = cache.keep().expect("a thread can be started");
    let known =
        || Known { acknowledged: AtomicU64::new(0), flushed: AtomicU64::new(0), turn: Mutex::default() };
    let stage = Stage {
        known: (0..KEYS).map(|_| known()).collect(),
        until: Instant::now() + Duration::from_secs(seconds),
        failed: AtomicBool::new(false),
        hits: AtomicU64::new(0),
        flash_hits: AtomicU64::new(0),
        late: AtomicU64::new(0),
        cache: cache.clone(),
    };
    std::thread::scope(|scope| {
        for number in 0..WRITERS + READERS {
            let stage = &stage;
            scope.spawn(move || {
                let _stop = StopOnPanic(stage);
                let worker = stage.cache.worker();
                let numbers = Numbers(seed.wrapping_mul(31).wrapping_add(number as u64));
                if number < WRITERS { stage.writer(worker, numbers) } else { stage.reader(worker, numbers) }
            });
        }
        while stage.goes_on() {
            for prefix in ["", "key-00", "key-010", "key-01", "key-001", "key-000"] {
                std::thread::sleep(FLUSH_EVERY);
                stage.flush(prefix.as_bytes());
            }
        }
    });
    cache.stop_keeper();
    keeper.join().expect("the keeper does not panic");
    let totals = cache.totals();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{} hits, {} on flash, {} too late to promote; {} demoted, {} shed, {} promoted, {} elided",
        count(&stage.hits),
        count(&stage.flash_hits),
        count(&stage.late),
        totals.demoted,
        totals.demotions_shed,
        totals.promoted,
        totals.elided,
    );
    assert!(stage.has_enough(), "both ways are used");
    assert_eq!(flash.stats().damaged_pages, 0, "a device of memory does not fail");
    flash.close().expect("a device of memory does not fail");
}

fn seed() -> u64 {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    number_from("LARDER_STRESS_SEED").unwrap_or_else(|| clock.map_or(1, |since| since.as_nanos() as u64))
}

#[test]
fn no_reader_sees_what_is_out_of_date_in_either_level() {
    play(Exclusive::Lazy, Recover::Clean, true);
}

#[test]
fn nor_where_the_levels_exclude_each_other() {
    play(Exclusive::Strict, Recover::Clean, true);
}

#[test]
fn nor_where_stores_are_invalidations() {
    play(Exclusive::Lazy, Recover::Journal, true);
}

#[test]
fn nor_where_the_log_is_all_there_is() {
    play(Exclusive::Lazy, Recover::Clean, false);
}
