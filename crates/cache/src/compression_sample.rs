//! Estimates what compression has come to, from a sample of the index.

use crate::cache::Cache;
use crate::compression::CompressionStats;
use crate::index_sampler::sample_items;
use crate::random::Random;
use larder_memory::{DICTIONARIES_MAX, Value};

/// Buckets of the index that an estimate looks at, or all there are.
const BUCKETS_SAMPLED: u64 = 512;
/// Where the random numbers start.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

impl Cache {
    /// What compression has come to, from a sample of the items in memory.
    pub fn compression_stats(&self) -> CompressionStats {
        let store = &self.store;
        let mut stats = CompressionStats {
            dictionaries_bytes: store.compression.dictionaries.bytes(),
            ..self.keeper.compression()
        };
        let mut items = [0u64; DICTIONARIES_MAX as usize];
        let (mut reader, mut random) = (store.memory.register(), Random::new(SEED));
        let scale = {
            let guard = reader.pin();
            sample_items(store, &guard, &mut random, BUCKETS_SAMPLED, |_, item| match item.value() {
                Value::Compressed(stored) => {
                    stats.compressed_items += 1;
                    stats.expanded_bytes += u64::from(stored.plain_bytes);
                    stats.compressed_bytes += stored.stored.len() as u64;
                    items[usize::from(stored.dictionary)] += 1;
                }
                _ => {
                    stats.plain_items += 1;
                    stats.plain_bytes += u64::from(item.value_bytes());
                }
            })
        };
        reader.offline();
        let scaled = |count: &mut u64| *count = (*count as f64 * scale).round() as u64;
        for count in [
            &mut stats.plain_items,
            &mut stats.plain_bytes,
            &mut stats.compressed_items,
            &mut stats.expanded_bytes,
            &mut stats.compressed_bytes,
        ] {
            scaled(count);
        }
        for dictionary in &mut stats.dictionaries {
            dictionary.items = items[usize::from(dictionary.number)];
            scaled(&mut dictionary.items);
        }
        stats
    }
}
