//! Checks that the index grows without a pause: one thread loads many items while a reader records its latencies.
//!
//! One thread sets new keys as fast as possible. Another thread gets batches of 16 existing keys and records the
//! latency of each batch. Each window of time gives one row: items, size of the index, the reader's latencies. A
//! doubling that stopped readers would be a step in the p99.9 of the window in which `hashpower` changes. At the end
//! the reader looks again for every key that it did not find. A key that is present then was hidden by the growth,
//! which must not happen.
//!
//! `cargo bench --bench load_pause [-- --items 20000000 --value 64 --window-ms 500 --csv pause.csv]`

mod support;

use larder_cache::{Cache, Worker};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{Batch, KeyPool, Rng, SEED};

const BATCH: usize = 16;
/// Items stored before the reader starts.
const HEAD_START: u64 = 100_000;
/// Items set between two announcements of their number.
const ANNOUNCED_EVERY: u64 = 1024;
const COLUMNS: &str = "at_s,items,hashpower,index_mib,sets,batches,p50_ns,p99_ns,p999_ns,max_us";

fn main() {
    let args = support::Args::read(&["items", "value", "window-ms", "csv"]);
    let (items, value_bytes) = (args.number("items", 20_000_000u64), args.number("value", 64usize));
    let window = Duration::from_millis(args.number("window-ms", 500));
    let cache = support::cache(items * (value_bytes as u64 + 80) * 5 / 4 + (512 << 20), 2, Some(14));
    support::print_machine(&cache);
    let (set, finished) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mut writer, mut reader) = (cache.worker(), cache.worker());
    let table = std::thread::scope(|scope| {
        scope.spawn(|| {
            support::pin(0);
            for first in (0..items).step_by(ANNOUNCED_EVERY as usize) {
                support::fill(&mut writer, first..first + ANNOUNCED_EVERY, value_bytes);
                // Release pairs with the Acquire in `watch`: the announced items can be found.
                set.store(first + ANNOUNCED_EVERY, Ordering::Release);
            }
            finished.store(true, Ordering::Relaxed);
        });
        let watching = scope.spawn(|| watch(&mut reader, &cache, &set, &finished, window));
        watching.join().expect("the reader does not panic")
    });
    if let Some(path) = args.text("csv") {
        std::fs::write(path, table).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

/// Reads until the load is finished. Prints the table and returns it as CSV.
fn watch(
    worker: &mut Worker,
    cache: &Cache,
    set: &AtomicU64,
    finished: &AtomicBool,
    window: Duration,
) -> String {
    support::pin(1);
    while set.load(Ordering::Acquire) < HEAD_START {
        std::thread::yield_now();
    }
    let mut csv = format!("{COLUMNS}\n");
    println!("{}", COLUMNS.split(',').map(|name| format!("{name:>10}")).collect::<String>());
    let mut random = Rng::new(SEED);
    let mut missed = Vec::new();
    let mut sets_before = set.load(Ordering::Acquire);
    let started = Instant::now();
    while !finished.load(Ordering::Relaxed) {
        let mut latencies = support::latencies();
        let opened = Instant::now();
        while opened.elapsed() < window {
            let there = set.load(Ordering::Acquire);
            let keys = KeyPool::new((0..BATCH).map(|_| random.below(there)));
            let mut room = Batch::new();
            let before = Instant::now();
            let sum = room.get(worker, &keys, 0, BATCH);
            worker.quiesce();
            latencies.saturating_record(before.elapsed().as_nanos() as u64);
            // Every value consists of the letter v, so the sum of the first bytes reveals a missing value.
            if sum != BATCH as u64 * u64::from(b'v') {
                missed.push(keys);
            }
        }
        let sets = set.load(Ordering::Acquire);
        let quantile = |q| latencies.value_at_quantile(q).to_string();
        let row = [
            format!("{:.1}", started.elapsed().as_secs_f64()),
            cache.items().to_string(),
            cache.hashpower().to_string(),
            (cache.memory_use().index_bytes >> 20).to_string(),
            (sets - sets_before).to_string(),
            latencies.len().to_string(),
            quantile(0.5),
            quantile(0.99),
            quantile(0.999),
            format!("{:.1}", latencies.max() as f64 / 1000.0),
        ];
        sets_before = sets;
        println!("{}", row.iter().map(|cell| format!("{cell:>10}")).collect::<String>());
        writeln!(csv, "{}", row.join(",")).expect("a string takes what is written");
    }
    let complete =
        |keys: &&KeyPool| (0..BATCH).all(|at| worker.get(cache.hash(keys.key(at)), keys.key(at)).is_some());
    let hidden = missed.iter().filter(complete).count();
    let evictions = cache.totals().evictions;
    println!("{} batches missed one of {evictions} keys evicted from full buckets", missed.len() - hidden);
    assert_eq!(hidden, 0, "batches missed a key that was there all the time");
    csv
}
