//! The bits of [`larder_memory::Column::group`]: what kind of items a column holds.

use larder_item::Location;
use larder_memory::{ColumnId, Memory};
use std::sync::atomic::Ordering;

/// The column holds moved items; without the bit, new ones.
pub(crate) const MAIN_GROUP: u16 = 1;
/// Reads of the column's items do not count yet, because they may belong to the burst of requests that brought the
/// items ([`NewColumns`](crate::NewColumns)).
pub(crate) const CORRELATED: u16 = 1 << 13;
/// The column holds hot items.
pub(crate) const HOT: u16 = 1 << 14;
/// The column holds something that is not moved, such as a part of a large value.
pub(crate) const HOLDS_UNMOVABLE: u16 = 1 << 15;

/// Whether reads of the item at `at` do not count yet.
#[inline]
pub(crate) fn is_correlated(memory: &Memory, at: Location) -> bool {
    memory.column(memory.column_of(at)).group.load(Ordering::Relaxed) & CORRELATED != 0
}

/// Says that reads of what a new column will hold do not count yet.
pub(crate) fn begin_correlated(memory: &Memory, column: ColumnId) {
    memory.column(column).group.fetch_or(CORRELATED, Ordering::Relaxed);
}

/// Says that reads count from now on of what the column holds that was born as `birth`.
pub(crate) fn end_correlated(memory: &Memory, column: ColumnId, birth: u64) {
    // A column that is taken anew at this moment may lose its bit: reads of its items count from the start.
    let column = memory.column(column);
    if column.birth() == birth {
        column.group.fetch_and(!CORRELATED, Ordering::Relaxed);
    }
}
