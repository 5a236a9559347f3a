//! Columns in the order in which they were sealed.

use crate::ranking::{Candidate, CheapestSparse, Sparse};
use larder_memory::ColumnId;
use std::collections::VecDeque;

/// How many of the oldest columns are looked at for a sparse one.
pub(super) const LOOK_AHEAD_COLUMNS: usize = 16;
/// How many columns that cannot go now are sent to the end of the queue before a search gives up.
const LATER_MAX: usize = 64;

/// A queue of sealed columns.
#[derive(Default)]
pub(super) struct ColumnQueue(VecDeque<(ColumnId, u64)>);

/// The next column of a queue.
#[derive(Clone, Copy)]
pub(super) struct Next {
    position: usize,
    /// Birth number of the column.
    pub(super) birth: u64,
    /// Whether the column goes before its turn because it is sparse.
    pub(super) is_sparse: bool,
}

impl ColumnQueue {
    /// Adds a column at the end.
    pub(super) fn push(&mut self, column: ColumnId, birth: u64) {
        self.0.push_back((column, birth));
    }

    /// Adds a column at the front.
    pub(super) fn put_back(&mut self, column: ColumnId, birth: u64) {
        self.0.push_front((column, birth));
    }

    /// The first columns, and their birth numbers.
    pub(super) fn first(&self, count: usize) -> impl Iterator<Item = (ColumnId, u64)> + '_ {
        self.0.iter().take(count).copied()
    }

    /// How many columns are queued.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The oldest column that may go, or the cheapest sparse one among the first few. Columns that are gone are
    /// forgotten.
    pub(super) fn next(&mut self, status_of: &mut dyn FnMut(ColumnId, u64) -> Candidate) -> Option<Next> {
        let mut sparse = CheapestSparse::new(Sparse::BEFORE_ITS_TURN);
        let mut position = 0;
        let mut later = 0;
        while position < self.0.len().min(LOOK_AHEAD_COLUMNS) && later < LATER_MAX {
            let (column, birth) = self.0[position];
            match status_of(column, birth) {
                Candidate::Gone => {
                    self.0.remove(position);
                }
                // Sent to the end, so that columns pinned by slow uploads at the head cannot starve the pass.
                Candidate::Later => {
                    later += 1;
                    let column = self.0.remove(position);
                    self.0.extend(column);
                }
                Candidate::Ready(found) => {
                    sparse.offer(position, &found);
                    position += 1;
                }
            }
        }
        // Every column before `position` may go.
        let sparse = sparse.found();
        let next = |nth: usize| Next { position: nth, birth: self.0[nth].1, is_sparse: sparse.is_some() };
        (position > 0).then(|| next(sparse.unwrap_or(0)))
    }

    /// Forgets the columns of which `status_of` says that they are gone.
    pub(super) fn forget_gone(&mut self, status_of: &mut dyn FnMut(ColumnId, u64) -> Candidate) {
        self.0.retain(|(column, birth)| !matches!(status_of(*column, *birth), Candidate::Gone));
    }

    /// Takes the column that [`ColumnQueue::next`] found.
    pub(super) fn take(&mut self, next: Next) -> Option<ColumnId> {
        self.0.remove(next.position).map(|(column, _)| column)
    }
}
