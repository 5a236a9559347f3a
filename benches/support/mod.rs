//! Code shared by the in-process benchmarks: arguments, keys, filling a cache, pinning, printing.
#![allow(dead_code, unreachable_pub, reason = "each benchmark uses its part of one module")]

mod zipf;

use hdrhistogram::Histogram;
use larder_cache::{
    Cache, CacheOptions, Delete, DeleteOutcome, GetBatch, Hit, KeyHash, PagesWanted, Store, StoreOutcome,
    Value, Worker,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zipf::Zipf;

/// Length of every key in bytes.
pub const KEY_BYTES: usize = 30;
/// Seed of all random numbers, so that two runs do the same.
pub const SEED: u64 = 0x5eed;
/// The exponent of Zipf's law, that of YCSB and of Cavast's paper.
const ZIPF_EXPONENT: f64 = 0.99;
/// Operations between two quiescent points, as many as a server executes for one batch of events.
pub const OPS_PER_QUIESCE: u64 = 64;

/// `--name value` pairs of the command line.
pub struct Args(Vec<(String, String)>);

impl Args {
    /// Reads the command line. Drops `--bench`, which `cargo bench` adds.
    ///
    /// # Panics
    /// If the arguments are not pairs, or if a name is not among `known`.
    pub fn read(known: &[&str]) -> Args {
        let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
        let pairs = words.chunks(2).map(|pair| {
            let name = pair[0].strip_prefix("--").filter(|name| known.contains(name));
            let name = name.unwrap_or_else(|| panic!("{}: the arguments are {known:?}", pair[0]));
            let value = pair.get(1).unwrap_or_else(|| panic!("--{name} needs a value"));
            (name.to_string(), value.clone())
        });
        Args(pairs.collect())
    }

    /// The value of `name`, if given.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The number given as `name`, or `default`.
    ///
    /// # Panics
    /// If the value is not a number.
    pub fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        self.text(name)
            .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("--{name} {text}: not a number")))
    }
}

/// A small generator of 64-bit random numbers (xorshift).
pub struct Rng(u64);

impl Rng {
    /// A generator; equal seeds give equal sequences.
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    #[inline]
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Makes all later numbers depend on `number`; 0 changes nothing.
    #[inline]
    pub fn mix(&mut self, number: u64) {
        self.0 ^= number;
    }

    /// The next number below `end`.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        ((self.number() as u128 * end as u128) >> 64) as u64
    }
}

/// The key of item `number`.
#[inline]
pub fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"user:0000000000000000:profile-";
    for (at, digit) in key[5..21].iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * at) & 15) as usize];
    }
    key
}

/// Draws numbers of `items` items by the law `zipf`, of exponent 0.99, or `uniform`.
///
/// # Panics
/// If the law has another name.
pub fn draw(law: &str, items: u64) -> Box<dyn FnMut() -> u64> {
    let mut random = Rng::new(SEED);
    match law {
        "uniform" => Box::new(move || random.below(items)),
        "zipf" => {
            let law = Zipf::new(items, ZIPF_EXPONENT);
            Box::new(move || law.item(law.rank(|| random.below(1 << 53) as f64 / (1u64 << 53) as f64)))
        }
        other => panic!("--law {other}: zipf or uniform"),
    }
}

/// Processor time of this thread in nanoseconds.
pub fn cpu_ns() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    spent.tv_sec as f64 * 1e9 + spent.tv_nsec as f64
}

/// Keys prepared in advance, one after another, so that making them is not measured.
pub struct KeyPool {
    bytes: Vec<u8>,
    /// Hidden from the compiler, which must not specialise the comparison for this length.
    key_bytes: usize,
}

impl KeyPool {
    /// The keys of `numbers`.
    pub fn new(numbers: impl Iterator<Item = u64>) -> KeyPool {
        KeyPool { bytes: numbers.flat_map(key_of).collect(), key_bytes: std::hint::black_box(KEY_BYTES) }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.key_bytes
    }

    /// The keys from `first` on.
    #[inline(always)]
    pub fn keys_from(&self, first: usize) -> impl Iterator<Item = &[u8]> {
        self.bytes[first * self.key_bytes..].chunks_exact(self.key_bytes)
    }

    /// Key `at` of the pool.
    #[inline(always)]
    pub fn key(&self, at: usize) -> &[u8] {
        &self.bytes[at * self.key_bytes..(at + 1) * self.key_bytes]
    }
}

/// A seeded cache of `limit_bytes` for `workers`, on the kind of pages that a server would get.
pub fn cache(limit_bytes: u64, workers: usize, hashpower: Option<u32>) -> Arc<Cache> {
    let options = CacheOptions {
        limit_bytes,
        workers,
        hashpower,
        pages: PagesWanted::Auto,
        seed: Some(SEED),
        ..CacheOptions::default()
    };
    Cache::new(options).unwrap_or_else(|error| panic!("{error}"))
}

/// A SET without conditions.
#[inline]
pub fn set(worker: &mut Worker, hash: KeyHash, key: &[u8], value: &[u8]) {
    let outcome = worker.store(&Store::set(key, hash, value));
    assert!(matches!(outcome, StoreOutcome::Stored { .. }), "{outcome:?}");
}

/// A DELETE without conditions. Returns whether the item existed.
#[inline]
pub fn delete(worker: &mut Worker, hash: KeyHash, key: &[u8]) -> bool {
    let outcome = worker.delete(&Delete::of(key, hash));
    outcome == DeleteOutcome::Deleted
}

/// Sets items `numbers` with values of `value_bytes` bytes.
pub fn fill(worker: &mut Worker, numbers: std::ops::Range<u64>, value_bytes: usize) {
    let value = vec![b'v'; value_bytes];
    let cache = worker.cache().clone();
    for number in numbers {
        let key = key_of(number);
        set(worker, cache.hash(&key), &key, &value);
        if number.is_multiple_of(OPS_PER_QUIESCE) {
            worker.quiesce();
        }
    }
}

/// The largest batch.
pub const BATCH_MAX: usize = GetBatch::KEYS_MAX;

/// A staged GET of the keys of a pool.
pub struct Batch<'p> {
    keys: [&'p [u8]; BATCH_MAX],
    room: GetBatch,
}

impl<'p> Batch<'p> {
    /// Room for a batch.
    pub fn new() -> Batch<'p> {
        Batch { keys: [&[]; BATCH_MAX], room: GetBatch::default() }
    }

    /// Gets `count` keys of the pool from `first` on, reads the first byte of each value, and returns the sum of
    /// these bytes.
    #[inline(always)]
    pub fn get(&mut self, worker: &Worker, pool: &'p KeyPool, first: usize, count: usize) -> u64 {
        let keys = &mut self.keys[..count];
        keys.iter_mut().zip(pool.keys_from(first)).for_each(|(room, key)| *room = key);
        let mut sum = 0;
        // About one key in a million was displaced from a full bucket while the cache was filled.
        let each = |_, hit: Option<Hit<'_>>| sum += hit.map_or(0, |hit| first_byte(&hit));
        self.room.get(worker, keys, each);
        sum
    }
}

#[inline(always)]
fn first_byte(hit: &Hit<'_>) -> u64 {
    if let Value::Whole(value) = hit.value() { u64::from(value[0]) } else { 0 }
}

/// Binds the calling thread to processor `core`, if the machine has it and allows it. Threads that it starts later are
/// bound to the same one until they bind themselves.
pub fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    if rustix::thread::sched_setaffinity(None, &set).is_err() {
        eprintln!("could not bind a thread to processor {core}");
    }
}

/// The processor for a thread that works beside one on `core`.
pub fn beside(core: usize) -> usize {
    usize::from(core == 0)
}

/// Runs `f`, which starts threads, so that they are bound to processor `core`. The calling thread is bound to `own`
/// again afterwards.
pub fn start_on<T>(core: usize, own: usize, f: impl FnOnce() -> T) -> T {
    pin(core);
    let started = f();
    pin(own);
    started
}

/// An empty histogram of nanoseconds, up to a minute.
pub fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("three digits are a precision")
}

/// Prints one line about the present state of the machine, above every table.
pub fn print_machine(cache: &Cache) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "{}; columns of {} KiB; load average {}",
        cache.pages_sentence(),
        cache.column_bytes() >> 10,
        load.trim()
    );
}

/// Nanoseconds per operation, if `operations` took `time`.
pub fn ns_each(time: Duration, operations: u64) -> f64 {
    time.as_nanos() as f64 / operations as f64
}

/// Runs `f`. Returns its time in nanoseconds per operation.
pub fn time_each(operations: u64, f: impl FnOnce()) -> f64 {
    let started = Instant::now();
    f();
    ns_each(started.elapsed(), operations)
}

/// The median of `samples`.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
