//! The sealed columns in which much has expired or was flushed, the emptiest first.
//!
//! The keeper sweeps over the histograms of all columns whenever the clock has moved on, a bounded number of columns
//! at a time, and ranks what it found when the sweep ends. It reads two cache lines of each column and none of its
//! records.

use crate::item_store::ItemStore;
use crate::ranking::{Candidate, ColumnStatus};
use larder_memory::ColumnId;

/// Columns that one look goes over, at most. A round of the keeper looks once, so a sweep of four million columns,
/// half a terabyte, takes under two minutes.
const COLUMNS_PER_LOOK: u32 = 4096;
/// A column is ranked when an eighth of its bytes has expired or was flushed.
const RANKED_SHARE: u64 = 8;

/// The columns found by the last sweep, and the sweep that is under way.
#[derive(Default)]
pub(crate) struct ExpiredColumns {
    /// What the clock read when the last sweep began, in seconds.
    swept_s: u32,
    /// The column that the sweep looks at next. `None`: it has ended.
    next: Option<u32>,
    found: Vec<Ranked>,
    found_over_bytes: u64,
    /// What the last sweep found, the emptiest column last.
    ranked: Vec<Ranked>,
}

/// A column, by what taking it cost when it was looked at.
#[derive(Clone, Copy)]
struct Ranked {
    cost: u32,
    column: ColumnId,
}

impl ExpiredColumns {
    /// Goes on with the sweep, or begins one if the clock has moved on. `status` says whether a column may go.
    pub(crate) fn look(&mut self, store: &ItemStore, status: impl Fn(&ItemStore, ColumnId) -> Candidate) {
        let now_s = store.clock.now_s();
        if self.next.is_none() && now_s == self.swept_s {
            return;
        }
        let first = self.next.unwrap_or(0);
        if first == 0 {
            self.swept_s = now_s;
            self.found.clear();
            self.found_over_bytes = 0;
        }
        let columns = store.memory.columns_mapped();
        let end = columns.min(first + COLUMNS_PER_LOOK);
        for column in (first..end).map(ColumnId) {
            if let Candidate::Ready(found) = status(store, column) {
                let over_bytes = over_bytes(store, &found);
                self.found_over_bytes += over_bytes;
                if over_bytes * RANKED_SHARE >= found.column_bytes {
                    self.found.push(Ranked { cost: found.cost() as u32, column });
                }
            }
        }
        self.next = (end < columns).then_some(end);
        if self.next.is_none() {
            std::mem::swap(&mut self.ranked, &mut self.found);
            self.ranked.sort_unstable_by_key(|ranked| std::cmp::Reverse(ranked.cost));
            store.set_over_bytes(self.found_over_bytes);
        }
    }

    /// Takes the emptiest column out of the ranking if `is_wanted` says so. Columns that may not go are forgotten until
    /// the next sweep.
    pub(crate) fn take(
        &mut self,
        store: &ItemStore,
        mut status: impl FnMut(&ItemStore, ColumnId) -> Candidate,
        is_wanted: impl Fn(&ColumnStatus) -> bool,
    ) -> Option<ColumnId> {
        while let Some(&Ranked { cost, column }) = self.ranked.last() {
            if let Candidate::Ready(found) = status(store, column) {
                if is_wanted(&found) {
                    self.ranked.pop();
                    store.set_over_bytes(store.over_bytes().saturating_sub(over_bytes(store, &found)));
                    return Some(column);
                }
                // What is ranked behind it was not emptier then. If it has filled up since, the next one may be.
                if found.cost() <= u64::from(cost) {
                    return None;
                }
            }
            self.ranked.pop();
        }
        None
    }
}

/// Bytes of a column that have expired or were flushed.
fn over_bytes(store: &ItemStore, found: &ColumnStatus) -> u64 {
    u64::from(store.memory.column(found.column).live_bytes()).saturating_sub(found.live_bytes)
}
