//! Two workers compared with one: threads bound to two processors, GET in batches of 16 and SET over resident keys.
//!
//! `cargo bench --bench workers [-- --mib 512 --value 32 --ms 400 --rounds 5]`

mod support;

use larder_cache::Worker;
use std::hint::black_box;
use std::time::{Duration, Instant};
use support::{Batch, KeyPool, Rng, SEED};

const POOL_KEYS: usize = 1 << 20;
const BATCH: usize = 16;

fn main() {
    let args = support::Args::read(&["mib", "value", "ms", "rounds"]);
    let (bytes, value_bytes) = (args.number("mib", 512u64) << 20, args.number("value", 32usize));
    let time = Duration::from_millis(args.number("ms", 400));
    // Replaced items keep their memory until a pass, so the keeper runs; a large limit keeps it mostly idle.
    let cache = support::cache(bytes * 4 + (256 << 20), 2, None);
    let keeper = cache.keep().expect("a thread can be started");
    let mut workers = [cache.worker(), cache.worker()];
    workers[1].offline();
    let mut items = 0;
    while cache.memory_use().columns_bytes + cache.memory_use().index_bytes < bytes {
        support::fill(&mut workers[0], items..items + (1 << 16), value_bytes);
        items += 1 << 16;
    }
    workers[0].offline();
    let pools = [1, 2].map(|seed| {
        let mut random = Rng::new(SEED + seed);
        KeyPool::new((0..POOL_KEYS).map(|_| random.below(items)))
    });
    println!("{items} items, {value_bytes}-byte values");
    support::print_machine(&cache);
    for (name, kind) in [("get, batch of 16", Kind::Get), ("set over", Kind::Set)] {
        let mut samples = [const { Vec::new() }; 3];
        for _ in 0..args.number("rounds", 5) {
            samples[0].push(throughput(&mut workers[..1], &pools, 0, kind, value_bytes, time));
            samples[1].push(throughput(&mut workers[1..], &pools, 1, kind, value_bytes, time));
            samples[2].push(throughput(&mut workers, &pools, 0, kind, value_bytes, time));
        }
        let [first, second, both] = samples.map(|samples| support::median(&samples));
        let times = both / ((first + second) / 2.0);
        println!(
            "{name:<18} one: {first:.2} and {second:.2} M/s   two: {both:.2} M/s   {times:.2} times one"
        );
    }
    cache.stop_keeper();
    keeper.join().expect("the keeper ends in peace");
}

#[derive(Clone, Copy)]
enum Kind {
    Get,
    Set,
}

/// Millions of operations per second of all `workers` together, the first of which is bound to `core`.
fn throughput(
    workers: &mut [Worker],
    pools: &[KeyPool; 2],
    core: usize,
    kind: Kind,
    value_bytes: usize,
    time: Duration,
) -> f64 {
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .enumerate()
            .map(|(at, worker)| {
                scope.spawn(move || run(worker, &pools[core + at], core + at, kind, value_bytes, time))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no worker panics")).sum()
    })
}

fn run(
    worker: &mut Worker,
    pool: &KeyPool,
    core: usize,
    kind: Kind,
    value_bytes: usize,
    time: Duration,
) -> f64 {
    support::pin(core);
    worker.online();
    let value = vec![b'w'; value_bytes];
    let mut room = Batch::new();
    let (mut sum, mut done) = (0, 0u64);
    let started = Instant::now();
    'all: loop {
        for first in (0..pool.len()).step_by(BATCH) {
            match kind {
                Kind::Get => sum += room.get(worker, pool, first, BATCH),
                Kind::Set => (first..first + BATCH).for_each(|at| {
                    let hash = worker.cache().hash(pool.key(at));
                    support::set(worker, hash, pool.key(at), &value);
                }),
            }
            worker.quiesce();
            done += BATCH as u64;
            if done.is_multiple_of(1 << 12) && started.elapsed() > time {
                break 'all;
            }
        }
    }
    let taken = started.elapsed();
    worker.offline();
    black_box(sum);
    done as f64 / taken.as_secs_f64() / 1e6
}
