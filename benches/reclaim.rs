//! The keeper's pass: its cost for each item that it evicts or moves, and its effect on writers.
//!
//! New keys are written to a full cache while a share of the resident keys is read, which makes these keys warm. The
//! pass moves the warm items and evicts the others.
//!
//! `cargo bench --bench reclaim [-- --mib 256 --value 300 --writes 1000000]`

mod support;

use std::time::Instant;
use support::{OPS_PER_QUIESCE, Rng, SEED};

/// Reads per write, in tenths.
const READ_TENTHS: [u64; 3] = [0, 5, 20];

fn main() {
    let args = support::Args::read(&["mib", "value", "writes", "core"]);
    let (mib, value_bytes) = (args.number("mib", 256u64), args.number("value", 300usize));
    let writes = args.number("writes", 1_000_000u64);
    support::pin(args.number("core", 1));
    println!(
        "{:>12} {:>12} {:>10} {:>10} {:>10} {:>14} {:>12} {:>9}",
        "reads/write", "ns per write", "evicted", "moved", "columns", "pass ns/item", "us/column", "starved"
    );
    for tenths in READ_TENTHS {
        run(mib << 20, value_bytes, writes, tenths);
    }
}

fn run(limit_bytes: u64, value_bytes: usize, writes: u64, read_tenths: u64) {
    let cache = support::cache(limit_bytes, 1, None);
    let keeper = cache.keep().expect("a thread can be started");
    let mut worker = cache.worker();
    let resident = limit_bytes / (value_bytes as u64 + 60);
    support::fill(&mut worker, 0..resident * 5 / 4, value_bytes);
    let before = cache.totals();
    let value = vec![b'v'; value_bytes];
    let mut random = Rng::new(SEED);
    let first = resident * 5 / 4;
    let mut reads_due = 0;
    let started = Instant::now();
    for number in first..first + writes {
        reads_due += read_tenths;
        while reads_due >= 10 {
            reads_due -= 10;
            let key = support::key_of(number - 1 - random.below(resident * 9 / 10));
            std::hint::black_box(worker.get(cache.hash(&key), &key).is_some());
        }
        let key = support::key_of(number);
        support::set(&mut worker, cache.hash(&key), &key, &value);
        if number.is_multiple_of(OPS_PER_QUIESCE) {
            worker.quiesce();
        }
    }
    let write_ns = support::ns_each(started.elapsed(), writes);
    let done = cache.totals().since(&before);
    let met = (done.evictions + done.moved + done.reclaimed).max(1);
    println!(
        "{:>12.1} {write_ns:>12.0} {:>10} {:>10} {:>10} {:>14.1} {:>12.1} {:>9}",
        read_tenths as f64 / 10.0,
        done.evictions,
        done.moved,
        done.columns_reclaimed,
        done.pass_ns as f64 / met as f64,
        done.pass_ns as f64 / 1000.0 / done.columns_reclaimed.max(1) as f64,
        done.starved
    );
    cache.stop_keeper();
    keeper.join().expect("the keeper ends in peace");
}
