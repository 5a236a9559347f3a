//! Writes, one at a time and staged in batches as a server does them.
//!
//! `cargo bench --bench writes [-- --items 2000000 --value 300 --rounds 5]`

mod support;

use larder_cache::Worker;
use std::hint::black_box;
use support::{KeyPool, OPS_PER_QUIESCE, Rng, SEED};

/// Operations per measurement.
const OPS: u64 = 1 << 18;
/// Commands of a pipeline that a server executes together.
const BATCH: usize = 16;

fn main() {
    let args = support::Args::read(&["items", "value", "rounds", "core"]);
    let (items, value_bytes) = (args.number("items", 2_000_000u64), args.number("value", 300usize));
    support::pin(args.number("core", 1));
    // Memory for everything that the rounds replace, so that no pass of the keeper runs (see the reclaim benchmark).
    let rounds: u64 = args.number("rounds", 5);
    let record_bytes = value_bytes as u64 + 100;
    let cache = support::cache((items + rounds * 4 * OPS) * record_bytes * 5 / 4 + (256 << 20), 1, None);
    let mut worker = cache.worker();
    let set_new_ns = support::time_each(items, || support::fill(&mut worker, 0..items, value_bytes));
    let mut random = Rng::new(SEED);
    let pool = KeyPool::new((0..OPS * rounds).map(|_| random.below(items)));
    let value = vec![b'w'; value_bytes];

    println!("{items} items, {value_bytes}-byte values");
    support::print_machine(&cache);
    println!("{:<44}{set_new_ns:>9.1} ns each", "set, new keys, growing (key made and hashed)");
    let mut samples = vec![Vec::new(); KINDS.len()];
    for round in 0..rounds as usize {
        for (kind, samples) in KINDS.iter().zip(&mut samples) {
            let first = round * OPS as usize;
            samples.push(support::time_each(OPS, || (kind.1)(&mut worker, &pool, first, &value)));
        }
    }
    for (kind, samples) in KINDS.iter().zip(&samples) {
        println!("{:<44}{:>9.1} ns each", kind.0, support::median(samples));
    }
}

type Kind = (&'static str, fn(&mut Worker, &KeyPool, usize, &[u8]));

/// The kinds of writes, in the order of a round. Deleted items are set again before the round ends.
const KINDS: [Kind; 6] = [
    ("get, one at a time", get_single),
    ("set over, one at a time", set_single),
    ("set over, staged by 16", set_staged),
    ("nine gets and a set, one at a time", mixed),
    ("delete, one at a time", delete_single),
    ("set of what was deleted, staged by 16", set_staged),
];

fn get_single(worker: &mut Worker, pool: &KeyPool, first: usize, _value: &[u8]) {
    let mut hits = 0;
    for at in first..first + OPS as usize {
        let hash = worker.cache().hash(pool.key(at));
        hits += u64::from(worker.get(hash, pool.key(at)).is_some());
    }
    black_box(hits);
    worker.quiesce();
}

fn set_single(worker: &mut Worker, pool: &KeyPool, first: usize, value: &[u8]) {
    for at in first..first + OPS as usize {
        let hash = worker.cache().hash(pool.key(at));
        support::set(worker, hash, pool.key(at), value);
        if (at as u64).is_multiple_of(OPS_PER_QUIESCE) {
            worker.quiesce();
        }
    }
}

fn set_staged(worker: &mut Worker, pool: &KeyPool, first: usize, value: &[u8]) {
    for batch in (first..first + OPS as usize).step_by(BATCH) {
        let lookup = worker.lookup();
        let asked: [_; BATCH] = std::array::from_fn(|at| {
            let hash = worker.cache().hash(pool.key(batch + at));
            (hash, lookup.prefetch_bucket(hash))
        });
        for (hash, place) in asked {
            black_box(lookup.locate(hash, place));
        }
        for (at, (hash, _)) in asked.into_iter().enumerate() {
            support::set(worker, hash, pool.key(batch + at), value);
        }
        worker.quiesce();
    }
}

fn mixed(worker: &mut Worker, pool: &KeyPool, first: usize, value: &[u8]) {
    let mut hits = 0;
    for at in first..first + OPS as usize {
        let hash = worker.cache().hash(pool.key(at));
        if at.is_multiple_of(10) {
            support::set(worker, hash, pool.key(at), value);
            worker.quiesce();
        } else {
            hits += u64::from(worker.get(hash, pool.key(at)).is_some());
        }
    }
    black_box(hits);
}

fn delete_single(worker: &mut Worker, pool: &KeyPool, first: usize, _value: &[u8]) {
    for at in first..first + OPS as usize {
        let hash = worker.cache().hash(pool.key(at));
        black_box(support::delete(worker, hash, pool.key(at)));
        if (at as u64).is_multiple_of(OPS_PER_QUIESCE) {
            worker.quiesce();
        }
    }
}
