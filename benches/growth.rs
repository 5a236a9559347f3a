//! The cost of inserting while the index grows: a table of insert latencies by window of items. A doubling of the
//! index that stopped all threads would show as a step in the maximum of its window.
//!
//! `cargo bench --bench growth [-- --from 1000000 --to 8000000 --window 500000 --value 32]`

mod support;

use std::time::Instant;
use support::OPS_PER_QUIESCE;

fn main() {
    let args = support::Args::read(&["from", "to", "window", "value", "core"]);
    let (from, to) = (args.number("from", 1_000_000u64), args.number("to", 8_000_000u64));
    let (window, value_bytes) = (args.number("window", 500_000u64), args.number("value", 32usize));
    support::pin(args.number("core", 1));
    let cache = support::cache(to * (value_bytes as u64 + 100) * 5 / 4 + (256 << 20), 1, Some(10));
    let mut worker = cache.worker();
    support::fill(&mut worker, 0..from, value_bytes);
    support::print_machine(&cache);
    println!(
        "{:>12} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "items", "hashpower", "mean ns", "p50", "p99", "p99.9", "max us"
    );
    let value = vec![b'v'; value_bytes];
    let mut number = from;
    while number < to {
        let mut latencies = support::latencies();
        let mut before = Instant::now();
        for _ in 0..window {
            let key = support::key_of(number);
            support::set(&mut worker, cache.hash(&key), &key, &value);
            number += 1;
            if number.is_multiple_of(OPS_PER_QUIESCE) {
                worker.quiesce();
            }
            let now = Instant::now();
            latencies.saturating_record((now - before).as_nanos() as u64);
            before = now;
        }
        println!(
            "{:>12} {:>10} {:>9.0} {:>9} {:>9} {:>9} {:>9.1}",
            cache.items(),
            cache.hashpower(),
            latencies.mean(),
            latencies.value_at_quantile(0.5),
            latencies.value_at_quantile(0.99),
            latencies.value_at_quantile(0.999),
            latencies.max() as f64 / 1000.0
        );
    }
}
