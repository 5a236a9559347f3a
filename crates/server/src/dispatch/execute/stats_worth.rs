//! `stats worth`, which memcached does not have: what decides which items stay, group by group.

use super::Executor;
use crate::dispatch::outcome::StatRows;
use crate::worth::{groups, value_unit};
use larder_cache::WorthMode;

impl Executor {
    /// The mode, what the mode `auto` comes to now and why, the objective, and nine rows for each group that has items.
    /// The rows of a group begin with the upper ends of its sizes and of its penalties, for example `256:100ms:items`.
    pub(super) fn stats_worth(&self, rows: &mut StatRows) {
        let cache = self.worker.cache();
        let (worth, (now, evidence)) = (cache.worth(), cache.worth_now());
        let groups = groups(cache);
        rows.put("mode", worth.mode.name());
        if worth.mode == WorthMode::Auto {
            rows.put("mode_now", now.mode.name());
            rows.put("mode_now_why", evidence.sentence());
        }
        rows.put("objective", worth.objective.name());
        rows.put("value_unit", value_unit(now));
        rows.put("groups", groups.len());
        for group in groups {
            let mut put = |name: &str, value: &dyn std::fmt::Display| {
                rows.put(format!("{}:{}:{name}", group.size, group.penalty), value);
            };
            put("items", &group.items);
            put("bytes", &group.bytes);
            put("columns", &format_args!("{:.2}", group.columns));
            put("outgoing_value", &format_args!("{:.0}", group.outgoing));
            put("incoming_value", &format_args!("{:.0}", group.incoming));
            put("columns_received", &format_args!("{:.2}", group.columns_received));
            put("columns_given", &format_args!("{:.2}", group.columns_given));
            if let (Some(last_move), Some(why)) = (group.last_move, group.why) {
                put("last_move", &last_move);
                put("last_move_why", &why);
            }
        }
    }
}
