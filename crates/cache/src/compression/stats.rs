//! What compression has come to.

use crate::cache::Cache;
use crate::index_sampler::sample_items;
use crate::random::Random;
use larder_memory::{DICTIONARIES_MAX, Value};

/// Buckets of the index that an estimate looks at, or all there are.
const BUCKETS_SAMPLED: u64 = 512;
/// Where the random numbers start.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// What compression has come to. What was counted is in [`Totals`](crate::Totals).
#[derive(Clone, Debug, Default)]
pub struct CompressionStats {
    /// About how many items are stored plain, and the bytes of their values. Large values in chunks count here.
    pub plain_items: u64,
    /// See `plain_items`.
    pub plain_bytes: u64,
    /// About how many items are stored compressed, the bytes of their values, and what those take.
    pub compressed_items: u64,
    /// See `compressed_items`.
    pub expanded_bytes: u64,
    /// See `compressed_items`.
    pub compressed_bytes: u64,
    /// Bytes of dictionaries, inside `-m`.
    pub dictionaries_bytes: u64,
    /// A dictionary is being trained.
    pub is_training: bool,
    /// The dictionaries that records need or may need.
    pub dictionaries: Vec<DictionaryStats>,
}

/// One dictionary.
#[derive(Clone, Debug, Default)]
pub struct DictionaryStats {
    /// Its number, from 1 on.
    pub number: u8,
    /// No new record needs it: it goes with the last one that does.
    pub is_outgoing: bool,
    /// It is that of all kinds of values which have none of their own.
    pub is_shared: bool,
    /// Its length.
    pub bytes: u64,
    /// When it was trained, on the cache's clock, in seconds; or the start, if an earlier process trained it.
    pub made_s: u32,
    /// Values that were compressed with it since the start.
    pub values: u64,
    /// Bytes of values for each byte that is stored of them, lately. 0 = nothing was compressed with it yet.
    pub ratio: f64,
    /// About how many items of memory need it.
    pub items: u64,
}

impl Cache {
    /// What compression has come to, from a sample of the items in memory.
    pub fn compression_stats(&self) -> CompressionStats {
        let store = &self.store;
        let mut stats =
            CompressionStats { dictionaries_bytes: store.dictionaries.bytes(), ..self.keeper.compression() };
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
