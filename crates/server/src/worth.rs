//! The groups of items as they are shown: in `stats worth`, on the admin page, and in the metrics.

use crate::admin::GroupRow;
use larder_cache::{Cache, GroupStats, Objective, WorthOptions};

/// The groups that have items, in the order of their sizes and penalties. Waits for a pass that is going on.
pub(crate) fn groups(cache: &Cache) -> Vec<GroupRow> {
    rows(&cache.temperature_stats().groups, cache.column_bytes())
}

/// The groups of `stats` that have items.
pub(crate) fn rows(stats: &[GroupStats], column_bytes: u32) -> Vec<GroupRow> {
    let mut with_items: Vec<&GroupStats> = stats.iter().filter(|stats| stats.items > 0).collect();
    with_items.sort_by_key(|stats| stats.group.number());
    with_items.into_iter().map(|stats| row(stats, column_bytes)).collect()
}

fn row(stats: &GroupStats, column_bytes: u32) -> GroupRow {
    let columns = |bytes: u64| bytes as f64 / f64::from(column_bytes);
    GroupRow {
        size: stats.group.size.name(),
        penalty: stats.group.subclass.name(),
        items: stats.items,
        bytes: stats.bytes,
        columns: columns(stats.bytes),
        outgoing: stats.outgoing,
        incoming: stats.incoming,
        columns_received: columns(stats.moved_in_bytes),
        columns_given: columns(stats.moved_out_bytes),
        last_move: stats.last_move.map(|reason| reason.name(stats.group)),
        why: stats.last_move.map(|reason| reason.to_string()),
    }
}

/// What the values of groups count.
pub(crate) fn value_unit(worth: WorthOptions) -> &'static str {
    match worth.cost_unit() {
        Objective::Requests => "misses",
        Objective::Bytes => "bytes",
        Objective::Time => "us",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_cache::{Group, MoveReason, Subclass};

    #[test]
    fn groups_with_items_are_shown_from_the_smallest_items_on() {
        let (small, large) = (Group::of(60, Subclass::of_us(1)), Group::of(5000, Subclass::of_us(500_000)));
        let stats = [
            GroupStats {
                items: 3,
                bytes: 15_000,
                moved_in_bytes: 5_000,
                outgoing: 7.5,
                last_move: Some(MoveReason::HigherIncoming { from: small, to: large }),
                ..GroupStats::empty(large)
            },
            GroupStats { moved_out_bytes: 5_000, ..GroupStats::empty(Group::of(300, Subclass::UNKNOWN)) },
            GroupStats { items: 1, bytes: 60, ..GroupStats::empty(small) },
        ];
        let rows = rows(&stats, 10_000);
        assert_eq!(
            rows.iter().map(|row| (row.size, row.penalty)).collect::<Vec<_>>(),
            [("64", "1ms"), ("16k", "1s")]
        );
        assert_eq!((rows[1].columns, rows[1].columns_received, rows[1].columns_given), (1.5, 0.5, 0.0));
        assert_eq!((rows[1].last_move, rows[0].last_move), (Some("received"), None));
        assert!(rows[1].why.as_ref().unwrap().contains("higher incoming value"));
    }
}
