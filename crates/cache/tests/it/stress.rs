//! Many threads, few keys, little memory: no read may ever return a value that was not stored, or that is out of date.
//!
//! Every value contains its key, its version, and a checksum at its end. One lock per key orders the key's writers, and
//! an atomic beside the lock holds the last acknowledged version. A reader loads that number, reads, and checks that
//! the value belongs to the key, is whole, and is no older than the number.
//!
//! `LARDER_STRESS_SECONDS` sets how long it runs; `LARDER_STRESS_SEED` repeats a choice of operations.

use crate::frame::{FRAME_BYTES, Numbers, value_of, version_of};
use larder_cache::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WRITERS: usize = 3;
const READERS: usize = 2;
const KEYS: usize = 400;
const SECONDS: u64 = 4;
/// Until then a test sees enough on any machine.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Keys that are stored once each, so that others are evicted and the index grows.
const FILLER_SHARE_PERCENT: u64 = 30;

/// What the test knows of one key.
struct Known {
    /// The version whose store or absence was acknowledged last. Writers count it up under `turn`.
    acknowledged: AtomicU64,
    turn: Mutex<Last>,
}

/// The state in which the last writer left a key.
#[derive(Default)]
struct Last {
    /// The last version given out, deletes included.
    version: u64,
    /// CAS number of the item, if the writer knows that the item is there.
    cas: Option<u64>,
}

fn name_of(key: usize) -> Vec<u8> {
    format!("key-{key:05}").into_bytes()
}

fn bytes_of(numbers: &mut Numbers) -> usize {
    match numbers.below(100) {
        0..60 => FRAME_BYTES + 8 * numbers.below(8) as usize,
        60..90 => 256 + 8 * numbers.below(120) as usize,
        90..98 => 4000 + 8 * numbers.below(2000) as usize,
        _ => 40_000 + 8 * numbers.below(10_000) as usize,
    }
}

fn plain_store<'a>(hash: KeyHash, key: &'a [u8], value: &'a [u8]) -> Store<'a> {
    Store::set(key, hash, value)
}

struct Stage {
    cache: Arc<Cache>,
    known: Vec<Known>,
    until: Instant,
    failed: AtomicBool,
    reads: AtomicU64,
    hits: AtomicU64,
    writes: AtomicU64,
    /// Stores that found no room. It happens: a thread may lose its processor while others wait for its quiescent
    /// point.
    refused: AtomicU64,
}

impl Stage {
    fn goes_on(&self) -> bool {
        let now = Instant::now();
        let is_long_enough = now >= self.until && (self.has_enough() || now >= self.until + WAIT_MAX);
        !is_long_enough && !self.failed.load(Ordering::Relaxed)
    }

    /// Whether there was something to look at. A machine that gives the threads little time needs longer for it.
    fn has_enough(&self) -> bool {
        let totals = self.cache.totals();
        let seen = [&self.hits, &self.writes].map(|count| count.load(Ordering::Relaxed));
        seen.iter().all(|count| *count > 1000) && totals.evictions > 100 && totals.moved > 100
    }

    /// Reads one key and checks the value.
    fn read(&self, worker: &Worker, numbers: &mut Numbers, key: usize, value: &mut Vec<u8>) {
        let known = &self.known[key];
        let name = name_of(key);
        let hash = self.cache.hash(&name);
        // Acquire pairs with the writer's Release: a version that was acknowledged by then has to be seen.
        let floor = known.acknowledged.load(Ordering::Acquire);
        let mut hit = None;
        if numbers.below(2) == 0 {
            let lookup = worker.lookup();
            let seen = match lookup.locate(hash, lookup.prefetch_bucket(hash)) {
                LookupStage::InSubBucket(below) => lookup.locate_below(hash, below),
                found => found.tag_match(),
            };
            hit = seen.and_then(|seen| lookup.confirm(hash, seen, &name));
        }
        let Some(hit) = hit.or_else(|| worker.get(hash, &name)) else { return self.count(false) };
        worker.note_fetch(&hit);
        value.clear();
        worker.copy_value(&hit, value);
        let version = version_of(key, value);
        assert!(
            version > floor || version == floor && version % 2 == 1,
            "key {key}: {version} after {floor}"
        );
        self.count(true);
    }

    fn count(&self, hit: bool) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.hits.fetch_add(u64::from(hit), Ordering::Relaxed);
    }

    /// Reads one key slowly, in pieces, if its value is large. The value stays whole, whatever becomes of the item.
    fn read_slowly(&self, worker: &mut Worker, numbers: &mut Numbers, key: usize, value: &mut Vec<u8>) {
        let name = name_of(key);
        let hash = self.cache.hash(&name);
        let floor = self.known[key].acknowledged.load(Ordering::Acquire);
        let Some(hit) = worker.get(hash, &name) else { return };
        if !matches!(hit.value(), Value::Chunked { .. }) {
            return;
        }
        let Some(mut read) = worker.begin_large_read(&hit) else { return };
        value.clear();
        while worker.continue_large_read(&mut read, 1 + numbers.below(20_000) as usize, value) {
            worker.quiesce();
            std::thread::yield_now();
        }
        worker.end_large_read(read);
        assert!(version_of(key, value) >= floor, "key {key}");
    }

    /// One write to one key. Odd versions are stored, even ones stand for the absence after a delete.
    fn write(&self, worker: &mut Worker, numbers: &mut Numbers, key: usize, value: &mut Vec<u8>) {
        let known = &self.known[key];
        let name = name_of(key);
        let hash = self.cache.hash(&name);
        // A thread that waits here online would hold back the columns that the other writer may be waiting for.
        let Ok(mut last) = known.turn.try_lock() else { return };
        match numbers.below(100) {
            0..15 => {
                let delete = Delete::of(&name, hash);
                worker.delete(&delete);
                last.version = (last.version + 2) & !1;
                last.cas = None;
                known.acknowledged.store(last.version, Ordering::Release);
                assert!(worker.get(hash, &name).is_none(), "key {key} is there after its delete");
                return;
            }
            15..25 => {
                let expiry = if numbers.below(2) == 0 { Expiry::NEVER } else { Expiry::at_s(u32::MAX) };
                worker.touch(hash, &name, expiry);
                return;
            }
            25..35 => return self.append(worker, key, hash, &name, &mut last),
            _ => {}
        }
        let version = (last.version + 1) | 1;
        value_of(key, version, bytes_of(numbers), value);
        let mut store = plain_store(hash, &name, value);
        match numbers.below(10) {
            0 | 1 => store.compare = last.cas,
            2 => store.mode = Mode::Add,
            3 => store.mode = Mode::Replace,
            4 => store.explicit_cas = Some(numbers.next()),
            5 => store.expiry = Expiry::at_s(u32::MAX),
            _ => {}
        }
        let outcome = if value.len() > self.cache.whole_value_bytes_max() && numbers.below(4) > 0 {
            self.upload(worker, numbers, &store)
        } else {
            worker.store(&store)
        };
        self.writes.fetch_add(1, Ordering::Relaxed);
        match outcome {
            StoreOutcome::Stored { cas, .. } => {
                (last.version, last.cas) = (version, Some(cas));
                known.acknowledged.store(version, Ordering::Release);
            }
            StoreOutcome::Exists => panic!("key {key}: nobody else can have changed it"),
            StoreOutcome::NotStored | StoreOutcome::NotFound => {}
            StoreOutcome::NoRoom => drop(self.refused.fetch_add(1, Ordering::Relaxed)),
            StoreOutcome::TooLarge => panic!("{outcome:?} of {} bytes", value.len()),
        }
    }

    fn upload(&self, worker: &mut Worker, numbers: &mut Numbers, store: &Store<'_>) -> StoreOutcome {
        let Some(mut upload) = worker.begin_upload(store.hash, store.value.len() as u32) else {
            return StoreOutcome::NoRoom;
        };
        for piece in store.value.chunks(1 + numbers.below(30_000) as usize) {
            if !worker.fill_upload(&mut upload, piece) {
                worker.abandon_upload(upload);
                return StoreOutcome::NoRoom;
            }
            worker.quiesce();
        }
        worker.complete_upload(upload, store)
    }

    /// Stores the first half of a value under another key and appends the second half. The result is whole only if
    /// nothing came between the append's look and its store.
    fn append(&self, worker: &mut Worker, key: usize, hash: KeyHash, name: &[u8], last: &mut Last) {
        let version = (last.version + 1) | 1;
        let mut value = Vec::new();
        value_of(key, version, 600, &mut value);
        let (head, tail) = value.split_at(FRAME_BYTES + 80);
        // Under another key, so that no reader meets half a value.
        let half = [name, b"-half"].concat();
        let half_hash = self.cache.hash(&half);
        worker.store(&plain_store(half_hash, &half, head));
        worker.quiesce();
        let joined = Store { mode: Mode::Append, ..plain_store(half_hash, &half, tail) };
        if !matches!(worker.store(&joined), StoreOutcome::Stored { .. }) {
            return;
        }
        let Some(hit) = worker.get(half_hash, &half) else { return };
        let mut found = Vec::new();
        worker.copy_value(&hit, &mut found);
        assert_eq!(version_of(key, &found), version, "key {key}: an append lost or doubled something");
        if let StoreOutcome::Stored { cas, .. } = worker.store(&plain_store(hash, name, &found)) {
            (last.version, last.cas) = (version, Some(cas));
            self.known[key].acknowledged.store(version, Ordering::Release);
        }
    }

    fn writer(&self, mut worker: Worker, mut numbers: Numbers) {
        let mut value = Vec::new();
        let mut fillers = 0u64;
        while self.goes_on() {
            for _ in 0..16 {
                let key = numbers.below(KEYS as u64) as usize;
                if numbers.below(100) < FILLER_SHARE_PERCENT {
                    fillers += 1;
                    let name = format!("filler-{:x}-{fillers}", numbers.0).into_bytes();
                    let bytes = 16 + numbers.below(200) as usize;
                    worker.store(&plain_store(self.cache.hash(&name), &name, &[b'f'; 256][..bytes]));
                } else if numbers.below(4) == 0 {
                    self.read(&worker, &mut numbers, key, &mut value);
                } else {
                    self.write(&mut worker, &mut numbers, key, &mut value);
                }
            }
            worker.quiesce();
            if numbers.below(50) == 0 {
                worker.offline();
                std::thread::yield_now();
                worker.online();
            }
        }
    }

    fn reader(&self, mut worker: Worker, mut numbers: Numbers) {
        let mut value = Vec::new();
        while self.goes_on() {
            for _ in 0..32 {
                let key = numbers.below(KEYS as u64) as usize;
                self.read(&worker, &mut numbers, key, &mut value);
            }
            worker.quiesce();
            let key = numbers.below(KEYS as u64) as usize;
            self.read_slowly(&mut worker, &mut numbers, key, &mut value);
        }
    }
}

/// Ends all threads when one of them panics, and says so.
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

fn play(seed: u64, seconds: u64, limit_mib: u64) {
    println!("LARDER_STRESS_SEED={seed} for {seconds} s in {limit_mib} MiB");
    let cache = Cache::new(CacheOptions {
        limit_bytes: limit_mib << 20,
        workers: WRITERS + READERS,
        hashpower: Some(10),
        ..CacheOptions::default()
    })
    .expect("a small cache can be made");
    let first_hashpower = cache.hashpower();
    let keeper = cache.keep().expect("a thread can be started");
    let known = || Known { acknowledged: AtomicU64::new(0), turn: Mutex::default() };
    let stage = Stage {
        known: (0..KEYS).map(|_| known()).collect(),
        until: Instant::now() + Duration::from_secs(seconds),
        failed: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        hits: AtomicU64::new(0),
        writes: AtomicU64::new(0),
        refused: AtomicU64::new(0),
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
        // Memory stays within the limit all the time.
        while stage.goes_on() {
            let used = cache.memory_use();
            let held =
                used.columns_bytes + used.index_bytes + used.bookkeeping_bytes + used.buffers_cap_bytes;
            assert!(held <= used.limit_bytes + (2 << 20), "{used:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    cache.stop_keeper();
    keeper.join().expect("the keeper does not panic");
    let totals = cache.totals();
    let (reads, hits) = (stage.reads.load(Ordering::Relaxed), stage.hits.load(Ordering::Relaxed));
    let writes = stage.writes.load(Ordering::Relaxed);
    println!(
        "{reads} reads, {hits} hits, {writes} stores, {} evictions, {} moved, {} columns reclaimed, 2^{} buckets",
        totals.evictions,
        totals.moved,
        totals.columns_reclaimed,
        cache.hashpower()
    );
    let refused = stage.refused.load(Ordering::Relaxed);
    assert!(refused * 200 <= writes, "{refused} of {writes} stores found no room");
    assert!(stage.has_enough() && hits < reads, "the test has something to look at");
    assert!(cache.hashpower() > first_hashpower, "the index grows meanwhile");
}

#[test]
fn no_reader_sees_what_is_another_keys_torn_or_out_of_date() {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed =
        number_from("LARDER_STRESS_SEED").unwrap_or_else(|| clock.map_or(1, |since| since.as_nanos() as u64));
    play(seed, number_from("LARDER_STRESS_SECONDS").unwrap_or(SECONDS), 16);
}
