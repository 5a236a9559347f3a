//! `stats namespaces`, which memcached does not have: what the tenants have, and what was counted of them.

use super::Executor;
use crate::dispatch::outcome::StatRows;

impl Executor {
    /// Some rows for each namespace, in order of name. They begin with the name, for example `session:hits`. Items and
    /// bytes are estimates from a sample.
    pub(super) fn stats_namespaces(&self, rows: &mut StatRows) {
        let namespaces = self.worker.cache().namespaces();
        rows.put("namespaces", namespaces.len());
        for of in namespaces {
            let name = &of.namespace.name;
            let mut put =
                |what: &str, value: &dyn std::fmt::Display| rows.put(format!("{name}:{what}"), value);
            put("gets", &of.gets);
            put("hits", &of.hits);
            put("hit_percent", &format_args!("{:.2}", of.hits as f64 * 100.0 / of.gets.max(1) as f64));
            put("sets", &of.sets);
            put("evictions", &of.evictions);
            put("items", &of.items);
            put("bytes", &of.bytes);
            put("least_bytes", &of.share_bytes.0);
            put("most_bytes", &of.share_bytes.1);
            put("ttl_max", &of.namespace.ttl_max_s);
        }
    }
}
