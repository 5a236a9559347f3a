//! Samples the index for what each namespace has in memory.

use crate::item_store::{ItemStore, Life};
use crate::random::Random;
use larder_item::Location;
use larder_memory::{Guard, Value};

/// Buckets of the index that an estimate looks at, or all there are: about 3,000 items, so that a share of a half is
/// known within one or two hundredths.
const BUCKETS_SAMPLED: u64 = 512;

/// Estimates anew what each namespace has in memory.
pub(super) fn estimate_namespaces(store: &ItemStore, guard: &Guard<'_>, random: &mut Random) {
    let table = store.namespaces.table();
    let buckets = store.index.buckets();
    let (mut all_items, mut all_bytes) = (0u64, 0u64);
    let mut found = vec![(0u64, 0u64); table.rows.len()];
    let mut locations: Vec<Location> = Vec::new();
    for nth in 0..buckets.min(BUCKETS_SAMPLED) {
        let bucket = if buckets <= BUCKETS_SAMPLED { nth } else { random.below(buckets) };
        store.index.entries_at(bucket, &mut |entry| {
            guard.prefetch(entry.location);
            locations.push(entry.location);
        });
    }
    for at in locations {
        let item = guard.item(at);
        // About what a large value takes: its chunks are many, and are not looked at.
        let bytes = match item.value() {
            Value::Whole(_) => u64::from(item.bytes()),
            Value::Chunked { total, .. } => u64::from(item.bytes()) + u64::from(total),
        };
        (all_items, all_bytes) = (all_items + 1, all_bytes + bytes);
        if store.life(at, &item) == Life::Live
            && let Some(nth) = table.find(item.key())
        {
            found[nth].0 += 1;
            found[nth].1 += bytes;
        }
    }
    let scaled = |part: u64, of: u64, whole: u64| {
        (u128::from(part) * u128::from(whole) / u128::from(of.max(1))) as u64
    };
    for (row, (items, bytes)) in table.rows.iter().zip(found) {
        let sampled_items = scaled(items, all_items, store.index.len());
        let sampled_bytes = scaled(bytes, all_bytes, store.counters.live_bytes());
        row.take_sample(sampled_items, sampled_bytes, items, buckets <= BUCKETS_SAMPLED);
    }
}
