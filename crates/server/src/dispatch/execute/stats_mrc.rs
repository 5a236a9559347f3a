//! `stats mrc`, which memcached does not have: what other sizes of memory would miss.

use super::Executor;
use crate::dispatch::outcome::StatRows;
use crate::latency::Class;
use crate::sizing::{knows_penalties, points, rows as size_rows};

impl Executor {
    /// What the curve rests on, three rows for each of a few sizes of memory, and a row for each point of the curve:
    /// `curve:BYTES` with the miss ratio and what the misses cost.
    pub(super) fn stats_mrc(&self, rows: &mut StatRows) {
        let cache = self.worker.cache();
        let sizing = cache.sizing();
        let totals = cache.totals();
        let answers = self.state.latency_of(Class::Get);
        let answer_us = answers.sum_ns() as f64 / 1e3 / answers.count().max(1) as f64;
        let reads = totals.get_hits + totals.get_misses;
        rows.put("state", if sizing.is_young { "young" } else { "ready" });
        rows.put("sampled_reads", sizing.reads);
        rows.put("sampled_keys", sizing.keys);
        rows.put("sampling_rate", format_args!("{:.6}", sizing.rate));
        rows.put("sample_bytes", sizing.bytes);
        rows.put("sample_pages_dropped", sizing.dropped_pages);
        rows.put("limit_maxbytes", sizing.limit_bytes);
        rows.put("item_bytes_capacity", sizing.capacity_bytes);
        rows.put("span_bytes", sizing.span_bytes);
        rows.put("flash_bytes", sizing.flash_bytes);
        let items = cache.items().max(1);
        rows.put(
            "item_bytes_mean",
            format_args!("{:.1}", cache.memory_use().items_bytes as f64 / items as f64),
        );
        rows.put("penalties", if knows_penalties(cache) { "measured" } else { "unknown" });
        rows.put("answer_us", format_args!("{answer_us:.3}"));
        let missed = totals.get_misses as f64 / reads.max(1) as f64;
        rows.put("miss_ratio_since_start", format_args!("{missed:.6}"));
        for row in size_rows(&sizing, answer_us) {
            rows.put(format!("{}:memory_bytes", row.name), row.memory_bytes);
            rows.put(format!("{}:miss_ratio", row.name), format_args!("{:.6}", row.miss_ratio));
            rows.put(format!("{}:service_us", row.name), format_args!("{:.1}", row.service_us));
        }
        for (bytes, miss_ratio, cost_us) in points(&sizing) {
            rows.put(format!("curve:{bytes}"), format_args!("{miss_ratio:.6} {cost_us:.1}"));
        }
    }
}
