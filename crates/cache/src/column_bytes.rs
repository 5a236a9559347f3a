//! What the columns hold: live, expired, flushed and dead bytes.

use crate::item_store::ItemStore;
use larder_memory::{ColumnId, ColumnState};

/// The most columns that are looked at. If there are more, the result is an estimate from a part of them.
const LOOKS_MAX: u32 = 16_384;

/// Bytes of records in columns, by what has become of them. Together they are what was placed in the columns since each
/// was last empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ColumnBytes {
    /// Records of items that can be served.
    pub live: u64,
    /// Records of items that have expired and were not removed yet. The number may be a little too low: see
    /// [`larder_memory::Lifetimes`].
    pub expired: u64,
    /// Records of items that were flushed and were not removed yet.
    pub flushed: u64,
    /// Records that no entry leads to, because the item was replaced, deleted or moved. They take memory until their
    /// column is emptied.
    pub dead: u64,
}

impl ColumnBytes {
    /// Adds up what the columns say of themselves.
    pub(crate) fn of(store: &ItemStore) -> ColumnBytes {
        let columns = store.memory.columns_mapped();
        let step = columns.div_ceil(LOOKS_MAX).max(1);
        let (floor, now_s) = (store.floors.flush(), store.clock.now_s());
        let mut sum = ColumnBytes::default();
        for column in (0..columns).step_by(step as usize).map(|id| store.memory.column(ColumnId(id))) {
            if !matches!(column.state(), ColumnState::Open | ColumnState::Sealed) {
                continue;
            }
            let (used, found) = (u64::from(column.used_bytes()), u64::from(column.live_bytes()));
            let expired = u64::from(column.expired_bytes(now_s)).min(found);
            sum.dead += used.saturating_sub(found);
            if column.birth() < floor {
                sum.flushed += found;
            } else {
                sum.expired += expired;
                sum.live += found - expired;
            }
        }
        for bytes in [&mut sum.live, &mut sum.expired, &mut sum.flushed, &mut sum.dead] {
            *bytes *= u64::from(step);
        }
        sum
    }
}
