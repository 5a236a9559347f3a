//! Lookups among three million items: one at a time, and in batches whose stages let cache misses overlap.

mod common;

use common::{ChainedLines, ChainedList, Random, Records, filled_index};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use larder_index::{HoldsKey, Index, LookupStage};
use larder_item::KeyHash;
use std::hint::black_box;
use std::time::Duration;

/// Six items for every bucket of a power of two, so that the compared tables are equally full everywhere.
const ITEMS: u64 = 3 << 20;

/// The stages of a GET over `keys`, at most 128. Returns how many were found.
fn get_batch(index: &Index, records: &Records, keys: &[u64], hashes: &mut [KeyHash]) -> usize {
    let lookup = index.batch_lookup();
    let (mut stages, mut matches) = ([LookupStage::Absent; 128], [None; 128]);
    for ((key, hash), stage) in keys.iter().zip(&mut *hashes).zip(&mut stages) {
        *hash = records.hash(*key);
        *stage = LookupStage::Prefetched(lookup.prefetch(*hash));
    }
    for (hash, stage) in hashes.iter().zip(&mut stages) {
        if let LookupStage::Prefetched(bucket) = *stage {
            *stage = lookup.match_in_bucket(*hash, bucket);
        }
    }
    for ((hash, stage), seen) in hashes.iter().zip(&stages).zip(&mut matches) {
        *seen = match *stage {
            LookupStage::InSubBucket(below) => lookup.match_in_sub_bucket(*hash, below),
            stage => stage.tag_match(),
        };
        if let Some(seen) = seen {
            records.prefetch(lookup.location(*seen));
        }
    }
    let mut found = 0;
    for ((key, hash), seen) in keys.iter().zip(&*hashes).zip(&matches) {
        let key = key.to_le_bytes();
        let confirmed = seen.is_some_and(|seen| {
            records.holds(lookup.location(seen), &key) && lookup.confirm(*hash, seen, |_| true)
        });
        found += (confirmed || index.get_marking(*hash, &key, records).is_some()) as usize;
    }
    found
}

fn lookups(c: &mut Criterion) {
    let mut records = Records::new(ITEMS);
    let list = ChainedList::filled(&mut records, ITEMS);
    let index = filled_index(&records, ITEMS, 6);
    let lines = ChainedLines::filled(&records, ITEMS, 6);
    println!(
        "bytes per item: index {:.2}, chained lines {:.2}, chained list 8",
        index.bytes() as f64 / ITEMS as f64,
        lines.bytes() as f64 / ITEMS as f64
    );
    let mut group = c.benchmark_group("lookup");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(700));
    let mut random = Random(1);
    // Misses are keys behind those that are stored.
    for (name, first) in [("hit", 0), ("miss", ITEMS)] {
        group.bench_function(BenchmarkId::new("index", name), |b| {
            b.iter(|| {
                let key = first + random.below(ITEMS);
                black_box(index.get_marking(records.hash(key), &key.to_le_bytes(), &records))
            })
        });
        group.bench_function(BenchmarkId::new("index, not marking", name), |b| {
            b.iter(|| {
                let key = first + random.below(ITEMS);
                black_box(index.get(records.hash(key), &key.to_le_bytes(), &records))
            })
        });
        group.bench_function(BenchmarkId::new("chained lines", name), |b| {
            b.iter(|| {
                let key = first + random.below(ITEMS);
                black_box(lines.get(records.hash(key), key, &records))
            })
        });
        group.bench_function(BenchmarkId::new("chained list", name), |b| {
            b.iter(|| {
                let key = first + random.below(ITEMS);
                black_box(list.get(records.hash(key), key, &records))
            })
        });
    }
    for batch in [1usize, 8, 16, 32, 128] {
        group.throughput(Throughput::Elements(batch as u64));
        let (mut keys, mut hashes) = (vec![0; batch], vec![KeyHash(0); batch]);
        group.bench_function(BenchmarkId::new("index, in batches of", batch), |b| {
            b.iter(|| {
                keys.iter_mut().for_each(|key| *key = random.below(ITEMS));
                black_box(get_batch(&index, &records, &keys, &mut hashes))
            })
        });
    }
    group.finish();
}

criterion_group!(benches, lookups);
criterion_main!(benches);
