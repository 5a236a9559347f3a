//! `stats compression`, which memcached does not have: which values are stored compressed, and what that brings.

use super::Executor;
use crate::compression::ratio;
use crate::dispatch::outcome::StatRows;
use crate::settings::table;
use larder_cache::DictionaryStats;
use std::fmt::Display;

impl Executor {
    /// Adds what is to be compressed, as the setting is written.
    pub(super) fn compress_setting(&self, rows: &mut StatRows) {
        let wanted = table::by_name("compress").map(|row| row.text(&self.state.in_effect()));
        rows.put("compress", wanted.unwrap_or_default());
    }

    /// First what there is now, then what was counted, then some rows for each dictionary, which begin with its number,
    /// for example `1:ratio`. Items and their bytes are estimates from a sample.
    pub(super) fn stats_compression(&self, rows: &mut StatRows) {
        let cache = self.worker.cache();
        let stats = cache.compression_stats();
        let totals = self.totals_since_reset();
        self.compress_setting(rows);
        for (name, value) in [
            ("plain_items", stats.plain_items),
            ("plain_bytes", stats.plain_bytes),
            ("compressed_items", stats.compressed_items),
            ("expanded_bytes", stats.expanded_bytes),
            ("compressed_bytes", stats.compressed_bytes),
        ] {
            rows.put(name, value);
        }
        rows.put("ratio", format!("{:.2}", ratio(&stats)));
        for (name, value) in [
            ("compressed", totals.compressed),
            ("compress_refused", totals.compress_refused),
            ("compress_skipped", totals.compress_skipped),
            ("expanded", totals.expanded),
            ("expansions", totals.expansions),
            ("compress_ns", totals.compress_ns),
            ("compress_mean_ns", totals.compress_ns / (totals.compressed + totals.compress_refused).max(1)),
            ("dictionaries", stats.dictionaries.len() as u64),
            ("dictionaries_bytes", stats.dictionaries_bytes),
            ("training", stats.is_training.into()),
        ] {
            rows.put(name, value);
        }
        let now_s = cache.clock().now_s();
        for of in &stats.dictionaries {
            let mut put = |what: &str, value: &dyn Display| rows.put(format!("{}:{what}", of.number), value);
            put("kind", &kind(of));
            put("bytes", &of.bytes);
            put("age_s", &now_s.saturating_sub(of.made_s));
            put("values", &of.values);
            put("ratio", &format_args!("{:.2}", of.ratio));
            put("items", &of.items);
        }
    }
}

/// Whose values a dictionary is for.
fn kind(of: &DictionaryStats) -> &'static str {
    match of {
        DictionaryStats { is_outgoing: true, .. } => "outgoing",
        DictionaryStats { is_shared: true, .. } => "shared",
        _ => "own",
    }
}
