//! `stats latency`, which memcached does not have: how long requests take within the server.

use super::Executor;
use crate::dispatch::outcome::StatRows;
use crate::latency::{Class, Histogram};

impl Executor {
    /// Count, mean and quantiles of each class of requests and of reads from flash since the start. Then the filled
    /// buckets of all requests together: `bucket:END` counts those that took less than END nanoseconds, and no less
    /// than the bucket before. A reader can subtract two replies and has the quantiles of the time between them.
    pub(super) fn stats_latency(&self, rows: &mut StatRows) {
        let mut all = Histogram::default();
        let classes = Class::ALL.map(|class| (class.name(), self.state.latency_of(class)));
        classes.iter().for_each(|(_, times)| all.add(times));
        let shown = classes.iter().map(|(name, times)| (*name, times));
        let fetches = self.state.latency_of_fetches();
        for (name, times) in shown.chain([("flash_fetch", &fetches), ("all", &all)]) {
            let count = times.count();
            rows.put(format!("{name}:count"), count);
            if count == 0 {
                continue;
            }
            rows.put(
                format!("{name}:mean_us"),
                format_args!("{:.3}", times.sum_ns() as f64 / 1e3 / count as f64),
            );
            for (words, q) in [("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)] {
                let ns = times.quantile(q).unwrap_or(0);
                rows.put(format!("{name}:{words}"), format_args!("{:.3}", ns as f64 / 1e3));
            }
        }
        for (end_ns, count) in all.filled() {
            rows.put(format!("bucket:{end_ns}"), count);
        }
    }
}
