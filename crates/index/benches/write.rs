//! Inserting with growth from nothing, growth alone, replacing, removing, and the longest time of an insert.

mod common;

use common::{Random, Records, filled_index, insert};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use larder_index::{Index, IndexOptions};
use std::time::{Duration, Instant};

const ITEMS: u64 = 1 << 20;

/// The time of each insert with its share of growth, sorted, in ns.
fn insert_times(records: &Records) -> Vec<u64> {
    let index = Index::new(IndexOptions { buckets_log2_max: 22, ..IndexOptions::default() }).unwrap();
    let mut times: Vec<u64> = (0..ITEMS)
        .map(|key| {
            let began = Instant::now();
            insert(&index, records, key);
            if index.needs_growth() {
                index.grow(records, 2);
            }
            began.elapsed().as_nanos() as u64
        })
        .collect();
    times.sort_unstable();
    times
}

/// An index that has half the buckets it needs.
fn crowded_index(records: &Records) -> Index {
    let index = Index::new(IndexOptions { buckets_log2_max: 22, ..IndexOptions::default() }).unwrap();
    index.set_growth_limit(ITEMS / 12);
    for key in 0..ITEMS {
        insert(&index, records, key);
        while index.needs_growth() {
            index.grow(records, 8);
        }
    }
    index.set_growth_limit(u64::MAX);
    index
}

fn writes(c: &mut Criterion) {
    let records = Records::new(ITEMS);
    let times = insert_times(&records);
    let at = |share: f64| times[((ITEMS - 1) as f64 * share) as usize];
    println!(
        "insert ns: p50 {} p99 {} p99.9 {} p99.99 {} max {}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.9999),
        at(1.0)
    );
    let mut group = c.benchmark_group("write");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1500));
    group.throughput(Throughput::Elements(ITEMS));
    group.bench_function("fill with a million, growing", |b| b.iter(|| filled_index(&records, ITEMS, 6)));
    group.throughput(Throughput::Elements(ITEMS / 6 - ITEMS / 12));
    group.bench_function("split buckets of twelve", |b| {
        b.iter_custom(|times| {
            (0..times).fold(Duration::ZERO, |time, _| {
                let index = crowded_index(&records);
                let began = Instant::now();
                while index.needs_growth() {
                    index.grow(&records, 8);
                }
                time + began.elapsed()
            })
        })
    });
    group.throughput(Throughput::Elements(1));
    let index = filled_index(&records, ITEMS, 6);
    let mut random = Random(3);
    group.bench_function("replace", |b| {
        b.iter(|| {
            let key = random.below(ITEMS);
            let mut guard = index.lock(records.hash(key));
            guard.find_at(Records::at(key)).is_some_and(|found| guard.replace(&found, Records::at(key), 0))
        })
    });
    group.bench_function("remove and insert", |b| {
        b.iter(|| {
            let key = random.below(ITEMS);
            let mut guard = index.lock(records.hash(key));
            let removed = guard.find_at(Records::at(key)).is_some_and(|found| guard.remove(&found));
            removed && guard.insert(Records::at(key), 0).is_ok()
        })
    });
    group.finish();
}

criterion_group!(benches, writes);
criterion_main!(benches);
