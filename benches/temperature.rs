//! The cost of temperature for a GET: the same keys in caches of each kind, in alternating rounds, relative to `off`.
//!
//! The caches are filled to more than half, so that the keeper samples and logs as in a full cache. Every entry has
//! the maximum warmth before the measurement, which is the state of a cache in use. Nothing is evicted.
//!
//! `cargo bench --bench temperature -- [--mib 256] [--value 32] [--rounds 21] [--batch 16] [--only KIND]`
//!
//! The memory pages of a cache influence the time more than temperature does. With `--only`, instructions can be
//! counted instead, under `valgrind --tool=callgrind --toggle-collect='temperature::get'`.

mod support;

use larder_cache::{Cache, CacheOptions, TemperatureKind, Worker};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use support::{Batch, KEY_BYTES, KeyPool, Rng, SEED};

/// Keys read per measurement.
const KEYS: usize = 1 << 18;
const POOL_KEYS: usize = 1 << 20;

struct Subject {
    kind: TemperatureKind,
    cache: Arc<Cache>,
    worker: Worker,
    samples: Vec<f64>,
}

fn main() {
    let args = support::Args::read(&["mib", "value", "rounds", "batch", "core", "only"]);
    let limit_bytes = args.number::<u64>("mib", 256) << 20;
    let (value_bytes, batch) = (args.number("value", 32), args.number("batch", 16));
    support::pin(args.number("core", 1));
    let mut subjects: Vec<Subject> = TemperatureKind::ALL
        .into_iter()
        .filter(|kind| args.text("only").is_none_or(|only| only == kind.name()))
        .map(|kind| filled(kind, limit_bytes, value_bytes))
        .collect();
    let items = subjects[0].cache.items();
    println!("{items} items, {KEY_BYTES}-byte keys, {value_bytes}-byte values, batch of {batch}");
    support::print_machine(&subjects[0].cache);
    let keepers: Vec<_> =
        subjects.iter().map(|subject| subject.cache.keep().expect("a thread can be started")).collect();
    let mut random = Rng::new(SEED);
    let pool = KeyPool::new((0..POOL_KEYS).map(|_| random.below(items)));
    for subject in &mut subjects {
        (0..3).for_each(|_| get(&mut subject.worker, &pool, 0, POOL_KEYS, batch));
    }
    // Gives the keeper time to learn the number of items.
    std::thread::sleep(Duration::from_millis(300));
    for round in 0..args.number("rounds", 21) {
        let first = round * KEYS % POOL_KEYS;
        for subject in &mut subjects {
            let ns = support::time_each(KEYS as u64, || get(&mut subject.worker, &pool, first, KEYS, batch));
            subject.samples.push(ns);
        }
    }
    let off = subjects.last().expect("there is no such kind");
    let ratio = |subject: &Subject| {
        let ratios: Vec<f64> = subject.samples.iter().zip(&off.samples).map(|(on, off)| on / off).collect();
        support::median(&ratios)
    };
    for subject in &subjects {
        let (name, ns) = (subject.kind.name(), support::median(&subject.samples));
        let references = subject.cache.temperature_stats().references;
        let dropped = subject.cache.dropped_pages();
        println!(
            "{name:<18}{ns:7.1} ns per key  {:6.3} times the last  \
             ({references} references noted, {dropped} pages dropped)",
            ratio(subject)
        );
    }
    for (subject, keeper) in subjects.iter().zip(keepers) {
        subject.cache.stop_keeper();
        keeper.join().expect("the keeper does not panic");
    }
}

/// A cache that is three fifths full.
fn filled(kind: TemperatureKind, limit_bytes: u64, value_bytes: usize) -> Subject {
    let options = CacheOptions {
        limit_bytes,
        workers: 1,
        temperature: kind,
        seed: Some(SEED),
        ..CacheOptions::default()
    };
    let cache = Cache::new(options).expect("the machine has memory for this");
    let mut worker = cache.worker();
    let items = limit_bytes * 3 / 5 / (KEY_BYTES + value_bytes + 32) as u64;
    support::fill(&mut worker, 0..items, value_bytes);
    cache.tend();
    Subject { kind, cache, worker, samples: Vec::new() }
}

#[inline(never)]
fn get(worker: &mut Worker, pool: &KeyPool, first: usize, count: usize, batch: usize) {
    let mut room = Batch::new();
    let mut sum = 0;
    for at in (first..first + count).step_by(batch) {
        sum += room.get(worker, pool, at, batch);
        worker.quiesce();
    }
    black_box(sum);
}
