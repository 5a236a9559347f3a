//! Samples the index for what each namespace has in memory.

use crate::index_sampler::sample_items;
use crate::item_store::{ItemStore, Life, first_chunk};
use crate::random::Random;
use larder_memory::Guard;

/// Buckets of the index that an estimate looks at, or all there are: about 3,000 items, so that a share of a half is
/// known within one or two hundredths.
const BUCKETS_SAMPLED: u64 = 512;

/// Estimates anew what each namespace has in memory.
pub(super) fn estimate_namespaces(store: &ItemStore, guard: &Guard<'_>, random: &mut Random) {
    let table = store.namespaces.table();
    let buckets = store.index.buckets();
    let (mut all_items, mut all_bytes) = (0u64, 0u64);
    let mut found = vec![(0u64, 0u64); table.rows.len()];
    sample_items(store, guard, random, BUCKETS_SAMPLED, |at, item| {
        // About what a large value takes: its chunks are many, and are not looked at.
        let of_chunks = if first_chunk(item).is_some() { u64::from(item.value_bytes()) } else { 0 };
        let bytes = u64::from(item.bytes()) + of_chunks;
        (all_items, all_bytes) = (all_items + 1, all_bytes + bytes);
        if store.life(at, item) == Life::Live
            && let Some(nth) = table.find(item.key())
        {
            found[nth].0 += 1;
            found[nth].1 += bytes;
        }
    });
    let scaled = |part: u64, of: u64, whole: u64| {
        (u128::from(part) * u128::from(whole) / u128::from(of.max(1))) as u64
    };
    for (row, (items, bytes)) in table.rows.iter().zip(found) {
        let sampled_items = scaled(items, all_items, store.index.len());
        let sampled_bytes = scaled(bytes, all_bytes, store.counters.live_bytes());
        row.take_sample(sampled_items, sampled_bytes, items, buckets <= BUCKETS_SAMPLED);
    }
}
