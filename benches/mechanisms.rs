//! What each mechanism of the layout brings, on the clock: GET in process over many items, with one mechanism after the
//! other switched off; stages over batch sizes; and keys and values read by two threads.
//!
//! `cargo bench --bench mechanisms [-- --mib 1024 --value 300 --requests 2000000 --rounds 3 --law zipf]`
//!
//! Every variant has a cache of its own, one after the other; figures are processor time of the thread. Two threads
//! have a processor each, `--core` (1) and `--other-core` (0). Compare figures of one run.

mod support;

use larder_cache::{Cache, CacheError, CacheOptions, GetBatch, Hit, PagesWanted, Placement, Value, Worker};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use support::{KEY_BYTES, KeyPool, SEED, cpu_ns};

const OUT_BYTES: usize = 4096;
/// Requests between two rounds of the keeper, which the calling thread runs.
const REQUESTS_PER_ROUND: usize = 1 << 16;

/// One combination of mechanisms.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    batch: usize,
    pages: PagesWanted,
    placement: Placement,
    inline_value_bytes: u32,
}

const ON: Variant = Variant {
    name: "all on",
    batch: 16,
    pages: PagesWanted::Auto,
    placement: Placement::Column,
    inline_value_bytes: 1024,
};

const VARIANTS: [Variant; 9] = [
    ON,
    Variant { name: "explicit huge pages", pages: PagesWanted::Huge, ..ON },
    Variant { name: "transparent pages", pages: PagesWanted::Transparent, ..ON },
    Variant { name: "one at a time", batch: 1, ..ON },
    Variant { name: "small pages", pages: PagesWanted::Small, ..ON },
    Variant { name: "coloured pages", pages: PagesWanted::Coloured, ..ON },
    Variant { name: "placement off", placement: Placement::Off, ..ON },
    Variant { name: "values apart", inline_value_bytes: 0, ..ON },
    Variant {
        name: "all off",
        batch: 1,
        pages: PagesWanted::Small,
        placement: Placement::Off,
        inline_value_bytes: 0,
    },
];

fn main() {
    let args =
        support::Args::read(&["mib", "value", "requests", "rounds", "law", "core", "other-core", "only"]);
    let core = args.number("core", 1);
    let other_core = args.number("other-core", support::beside(core));
    support::pin(core);
    let (mib, value_bytes) = (args.number("mib", 512u64), args.number("value", 300usize));
    let (requests, rounds) = (args.number("requests", 2_000_000usize), args.number("rounds", 3usize));
    let items = (mib << 20) / (value_bytes + KEY_BYTES + 24) as u64;
    let law = args.text("law").unwrap_or("zipf").to_string();
    let pool = KeyPool::new(std::iter::repeat_with(support::draw(&law, items)).take(requests));
    println!("{items} items of {value_bytes}-byte values, {mib} MiB, {law}");
    println!("{:<20}{:>12}{:>12}{:>10}{:>12}", "", "ns a GET", "of all on", "moved", "");
    let mut all_on = None;
    for variant in VARIANTS.iter().filter(|of| args.text("only").is_none_or(|only| only == of.name)) {
        let (cache, mut worker, mut copier) = match filled(variant, items, value_bytes) {
            Ok(filled) => filled,
            Err(reason) => {
                println!("{:<20} skipped: {reason}", variant.name);
                continue;
            }
        };
        // The first pass over the requests is the warm-up, in which hot items are moved.
        gets(&cache, &mut worker, &pool, variant.batch);
        cache.tend();
        let samples: Vec<f64> =
            (0..rounds).map(|_| gets(&cache, &mut worker, &pool, variant.batch) / requests as f64).collect();
        let ns = support::median(&samples);
        let times = ns / *all_on.get_or_insert(ns);
        println!("{:<20}{ns:>12.1}{times:>12.2}{:>10}", variant.name, cache.totals().moved_up);
        if variant.name == ON.name {
            batches(&mut worker, &pool);
            two_queues(&worker, &pool, other_core);
            side_by_side(&worker, &mut copier, &pool, other_core);
        }
    }
}

/// A cache with all items, the worker that stored them and one that is offline, or why the machine cannot have it.
fn filled(
    variant: &Variant,
    items: u64,
    value_bytes: usize,
) -> Result<(Arc<Cache>, Worker, Worker), CacheError> {
    let options = CacheOptions {
        limit_bytes: 2 * items * (value_bytes + KEY_BYTES + 40) as u64 + (64 << 20),
        workers: 2,
        pages: variant.pages,
        inline_value_bytes: Some(variant.inline_value_bytes),
        placement: variant.placement,
        seed: Some(SEED),
        ..CacheOptions::default()
    };
    let cache = Cache::new(options)?;
    let [mut worker, mut other] = [cache.worker(), cache.worker()];
    other.offline();
    support::fill(&mut worker, 0..items, value_bytes);
    worker.offline();
    // Huge pages come in rounds without writes.
    (0..3).for_each(|_| cache.tend());
    worker.online();
    Ok((cache, worker, other))
}

/// Gets all keys of the pool and copies their values. Returns the time for it, the keeper's rounds included.
fn gets(cache: &Cache, worker: &mut Worker, pool: &KeyPool, batch: usize) -> f64 {
    let mut spent = 0.0;
    for first in (0..pool.len()).step_by(REQUESTS_PER_ROUND) {
        let began = cpu_ns();
        let end = pool.len().min(first + REQUESTS_PER_ROUND);
        (first..end).step_by(batch).for_each(|at| get_batch(worker, pool, at, batch.min(end - at)));
        worker.offline();
        cache.tend();
        worker.online();
        spent += cpu_ns() - began;
    }
    spent
}

#[inline(always)]
fn get_batch(worker: &mut Worker, pool: &KeyPool, first: usize, batch: usize) {
    let (mut keys, mut out) = ([&[][..]; GetBatch::KEYS_MAX], [0; OUT_BYTES]);
    keys.iter_mut().zip(pool.keys_from(first)).take(batch).for_each(|(room, key)| *room = key);
    let copy = |_, hit: Option<Hit<'_>>| {
        if let Some(hit) = hit
            && let Value::Whole(value) = hit.value()
        {
            out[..value.len()].copy_from_slice(value);
            black_box(&out);
        }
    };
    GetBatch::default().get(worker, &keys[..batch], copy);
    worker.quiesce();
}

/// Stages over batch sizes.
fn batches(worker: &mut Worker, pool: &KeyPool) {
    print!("  staged, batch of  ");
    let sizes = [1, 2, 4, 8, 16, 32, 64, GetBatch::KEYS_MAX];
    sizes.iter().for_each(|size| print!("{size:>9}"));
    print!("\n  ns a GET          ");
    for size in sizes {
        let end = pool.len() / size * size;
        let began = cpu_ns();
        (0..end).step_by(size).for_each(|at| get_batch(worker, pool, at, size));
        print!("{:>9.1}", (cpu_ns() - began) / end as f64);
    }
    println!();
}

/// What two threads spent on a GET: the processor time of both, and the time that went by.
struct Shared {
    both_ns: f64,
    wall_ns: f64,
}

fn print_shared(title: &str, sizes: &[usize], mut measure: impl FnMut(usize) -> Shared) {
    let measured: Vec<Shared> = sizes.iter().map(|size| measure(*size)).collect();
    print!("  {title:<18}");
    sizes.iter().for_each(|size| print!("{size:>9}"));
    print!("\n  {:<18}", "ns a GET, of both");
    measured.iter().for_each(|shared| print!("{:>9.1}", shared.both_ns));
    print!("\n  {:<18}", "and on the wall");
    measured.iter().for_each(|shared| print!("{:>9.1}", shared.wall_ns));
    println!();
}

/// Cavast's two queues: this thread finds the keys, another one copies the values. Both threads' time counts.
fn two_queues(worker: &Worker, pool: &KeyPool, other_core: usize) {
    print_shared("two threads, of", &[1, 16, 64, 256], |size| {
        let end = pool.len() / 4 / size * size;
        let (sender, receiver) = sync_channel::<Vec<&[u8]>>(64);
        let started = Instant::now();
        let ns = std::thread::scope(|scope| {
            let copier = scope.spawn(move || {
                support::pin(other_core);
                let (began, mut out) = (cpu_ns(), [0; OUT_BYTES]);
                for value in receiver.into_iter().flatten() {
                    out[..value.len()].copy_from_slice(value);
                    black_box(&out);
                }
                cpu_ns() - began
            });
            let began = cpu_ns();
            for first in (0..end).step_by(size) {
                let found = pool.keys_from(first).take(size).filter_map(|key| {
                    match worker.get(worker.cache().hash(key), key)?.value() {
                        Value::Whole(value) => Some(value),
                        Value::Chunked { .. } | Value::Compressed(_) => None,
                    }
                });
                sender.send(found.collect()).expect("the other thread takes all");
            }
            let own = cpu_ns() - began;
            drop(sender);
            own + copier.join().expect("the copier does not panic")
        });
        Shared { both_ns: ns / end as f64, wall_ns: support::ns_each(started.elapsed(), end as u64) }
    });
}

/// Cavast's parallel access: one thread compares the keys while another one copies the values, lot by lot. Both
/// threads' time counts, without that in which one waits for the other.
fn side_by_side(worker: &Worker, copier: &mut Worker, pool: &KeyPool, other_core: usize) {
    copier.online();
    print_shared("side by side, of", &[16, 64, 256], |size| {
        let end = pool.len() / 4 / size * size;
        let done = [const { AtomicUsize::new(0) }; 2];
        // Does all lots, each one when the other thread has done the one before. Returns the time spent in them, by a
        // clock that takes no call of the kernel.
        let all = |me: usize, each: &mut dyn FnMut(&[u8])| {
            let mut spent = Duration::ZERO;
            for first in (0..end).step_by(size) {
                let mut looks = 0u32;
                while done[1 - me].load(Ordering::Acquire) < first {
                    looks += 1;
                    // The other thread may have no processor.
                    if looks.is_multiple_of(4096) { std::thread::yield_now() } else { std::hint::spin_loop() }
                }
                let began = Instant::now();
                pool.keys_from(first).take(size).for_each(&mut *each);
                done[me].store(first + size, Ordering::Release);
                spent += began.elapsed();
            }
            spent
        };
        let started = Instant::now();
        let spent = std::thread::scope(|scope| {
            let (all, copier) = (&all, &mut *copier);
            let copying = scope.spawn(move || {
                support::pin(other_core);
                let mut out = [0; OUT_BYTES];
                all(1, &mut |key| {
                    if let Some(hit) = copier.get(copier.cache().hash(key), key)
                        && let Value::Whole(value) = hit.value()
                    {
                        out[..value.len()].copy_from_slice(value);
                        black_box(&out);
                    }
                })
            });
            let own = all(0, &mut |key| {
                black_box(worker.get(worker.cache().hash(key), key).is_some());
            });
            own + copying.join().expect("the copier does not panic")
        });
        let each = |time| support::ns_each(time, end as u64);
        Shared { both_ns: each(spent), wall_ns: each(started.elapsed()) }
    });
    copier.offline();
}
