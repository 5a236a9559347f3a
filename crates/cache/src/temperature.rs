//! Who deserves room: the seam that the temperature room will fill.
//!
//! [`ByAge`] is the stand-in until then: it takes columns in the order they were filled, and lets an item
//! that was read since the last pass stay once more. Its whole memory is one queue of columns and the two
//! bits of warmth that every index entry has anyway.

use larder_memory::ColumnId;
use std::collections::VecDeque;

/// What the pass does with a live item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Move it to the keeper's open column; its warmth starts at the given number.
    Keep {
        /// Warmth of the moved item's entry, 0..=3.
        warmth: u8,
    },
    /// Drop it (or, with a flash tier, demote it).
    Evict,
}

/// What is known of a column when a victim is chosen.
#[derive(Clone, Copy, Debug)]
pub struct ColumnStanding {
    /// The column.
    pub column: ColumnId,
    /// Bytes of items still findable.
    pub live_bytes: u64,
    /// Bytes a column holds.
    pub column_bytes: u64,
}

/// Chooses columns, and the items in them, that may go.
pub trait Temperature: Send {
    /// A column was filled and sealed. `birth` tells this use of the column from later ones.
    fn sealed(&mut self, column: ColumnId, birth: u64);
    /// The next column to reclaim. `standing` answers for a candidate; `None` from it means the
    /// column cannot go now (pinned, or already gone), and it is asked again later if `still_there` says so.
    fn victim(&mut self, standing: &mut dyn FnMut(ColumnId, u64) -> Candidate) -> Option<ColumnId>;
    /// The verdict on one live item of a victim, from the warmth in its entry (0..=3).
    fn verdict(&mut self, warmth: u8) -> Verdict;
    /// How many columns are known.
    fn columns(&self) -> usize;
}

/// The answer to "may this column go?".
#[derive(Clone, Copy, Debug)]
pub enum Candidate {
    /// It may.
    Ready(ColumnStanding),
    /// Not now: something is pinned in it.
    Later,
    /// It is no longer sealed; forget it.
    Gone,
}

/// First in, first out, with a second chance for what was read: CLOCK over columns.
#[derive(Default)]
pub struct ByAge {
    queue: VecDeque<(ColumnId, u64)>,
}

/// How many of the oldest columns are looked at for one that is mostly dead already.
const LOOK_AHEAD_COLUMNS: usize = 16;
/// How many columns that cannot go now are sent to the end of the queue before the search is given up.
const LATER_MAX: usize = 64;

impl Temperature for ByAge {
    fn sealed(&mut self, column: ColumnId, birth: u64) {
        self.queue.push_back((column, birth));
    }

    fn victim(&mut self, standing: &mut dyn FnMut(ColumnId, u64) -> Candidate) -> Option<ColumnId> {
        let mut hollow: Option<(usize, u64)> = None;
        let mut at = 0;
        let mut later = 0;
        while at < self.queue.len().min(LOOK_AHEAD_COLUMNS) && later < LATER_MAX {
            let (column, birth) = self.queue[at];
            match standing(column, birth) {
                Candidate::Gone => {
                    self.queue.remove(at);
                }
                // Sent to the end, so that slow uploads at the head cannot starve the pass.
                Candidate::Later => {
                    later += 1;
                    let column = self.queue.remove(at);
                    self.queue.extend(column);
                }
                Candidate::Ready(found) => {
                    if found.live_bytes * 2 < found.column_bytes
                        && hollow.is_none_or(|h| found.live_bytes < h.1)
                    {
                        hollow = Some((at, found.live_bytes));
                    }
                    at += 1;
                }
            }
        }
        // Everything before `at` may go; the oldest does, unless a younger one is mostly dead.
        if at == 0 { None } else { self.queue.remove(hollow.map_or(0, |h| h.0)).map(|found| found.0) }
    }

    fn verdict(&mut self, warmth: u8) -> Verdict {
        if warmth > 0 { Verdict::Keep { warmth: 0 } } else { Verdict::Evict }
    }

    fn columns(&self) -> usize {
        self.queue.len()
    }
}
