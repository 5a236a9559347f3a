//! `stats mrc`, which memcached does not have: what other sizes of memory would miss.

use super::Executor;
use crate::dispatch::outcome::StatRows;
use crate::latency::Class;
use crate::sizing::{knows_penalties, points, rows as size_rows};
use larder_cache::{NoCurve, Sizing};

impl Executor {
    /// What the curve rests on, three rows for each of a few sizes of memory, and a row for each point of the curve:
    /// `curve:BYTES` with the miss ratio and what the misses cost.
    pub(super) fn stats_mrc(&self, rows: &mut StatRows) {
        let cache = self.worker.cache();
        let sizing = cache.sizing();
        let totals = cache.totals();
        put_sample(rows, &sizing);
        rows.put("limit_maxbytes", sizing.limit_bytes);
        rows.put("item_bytes_capacity", sizing.capacity_bytes);
        rows.put("span_bytes", sizing.span_bytes);
        rows.put("flash_bytes", sizing.flash_bytes);
        put_item_bytes_mean(rows, cache.memory_use().items_bytes, cache.items());
        self.put_curve(rows, &sizing, totals.get_misses, totals.get_hits + totals.get_misses);
    }

    /// The same of a namespace: sizes are those of its own items. If it has no curve, rows say why. Returns whether
    /// there is such a namespace.
    pub(super) fn stats_mrc_of(&self, name: &[u8], rows: &mut StatRows) -> bool {
        let cache = self.worker.cache();
        let sizing = match cache.sizing_of_namespace(name) {
            Ok(sizing) => sizing,
            Err(NoCurve::NoSuchNamespace) => return false,
            Err(NoCurve::NoRoom { limit_bytes_needed }) => {
                rows.put("state", "none");
                rows.put("why", "the memory limit leaves no room for curves of so many namespaces");
                rows.put("limit_maxbytes_needed", limit_bytes_needed);
                return true;
            }
        };
        let namespaces = cache.namespaces();
        let Some(of) = namespaces.iter().find(|of| of.namespace.name.as_bytes() == name) else {
            return false;
        };
        put_sample(rows, &sizing);
        rows.put("item_bytes", sizing.capacity_bytes);
        rows.put("span_bytes", sizing.span_bytes);
        put_item_bytes_mean(rows, of.bytes, of.items);
        self.put_curve(rows, &sizing, of.gets.saturating_sub(of.hits), of.gets);
        true
    }

    fn put_curve(&self, rows: &mut StatRows, sizing: &Sizing, missed: u64, reads: u64) {
        let answers = self.state.latency_of(Class::Get);
        let answer_us = answers.sum_ns() as f64 / 1e3 / answers.count().max(1) as f64;
        rows.put("penalties", if knows_penalties(self.worker.cache()) { "measured" } else { "unknown" });
        rows.put("answer_us", format_args!("{answer_us:.3}"));
        rows.put("miss_ratio_since_start", format_args!("{:.6}", missed as f64 / reads.max(1) as f64));
        for row in size_rows(sizing, answer_us) {
            rows.put(format!("{}:memory_bytes", row.name), row.memory_bytes);
            rows.put(format!("{}:miss_ratio", row.name), format_args!("{:.6}", row.miss_ratio));
            rows.put(format!("{}:service_us", row.name), format_args!("{:.1}", row.service_us));
        }
        for (bytes, miss_ratio, cost_us) in points(sizing) {
            rows.put(format!("curve:{bytes}"), format_args!("{miss_ratio:.6} {cost_us:.1}"));
        }
    }
}

/// What the curve rests on.
fn put_sample(rows: &mut StatRows, sizing: &Sizing) {
    rows.put("state", if sizing.is_young { "young" } else { "ready" });
    rows.put("sampled_reads", sizing.reads);
    rows.put("sampled_keys", sizing.keys);
    rows.put("sampling_rate", format_args!("{:.6}", sizing.rate));
    rows.put("sample_bytes", sizing.bytes);
    rows.put("sample_pages_dropped", sizing.dropped_pages);
}

fn put_item_bytes_mean(rows: &mut StatRows, bytes: u64, items: u64) {
    rows.put("item_bytes_mean", format_args!("{:.1}", bytes as f64 / items.max(1) as f64));
}
