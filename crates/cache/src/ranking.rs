//! The measure by which columns are ranked: which of them goes first.
//!
//! The selector and the policies show this file a [`ColumnStatus`], a snapshot of a column. [`ColumnStatus::cost`] says
//! what taking the column costs, and the column with the lowest cost goes first. The cost is the number of live bytes
//! today: the bytes that the pass has to move or to evict before it can reuse the column. A change of the
//! measure (for example to "expected hits times miss penalty, per byte freed") changes this file, and every route
//! follows.
//!
//! A *sparse* column has few live bytes. How few depends on what the column is wanted for, so [`Sparse`] has one named
//! threshold for each purpose.

use larder_memory::ColumnId;

/// A snapshot of a sealed column.
#[derive(Clone, Copy, Debug)]
pub struct ColumnStatus {
    /// The column.
    pub column: ColumnId,
    /// Bytes of items in it that can be served: neither dead nor, as far as its histogram knows, expired, nor flushed.
    pub live_bytes: u64,
    /// Bytes that a column holds when it is full.
    pub column_bytes: u64,
}

impl ColumnStatus {
    /// What taking the column costs. The column with the lowest cost goes first.
    pub(crate) fn cost(&self) -> u64 {
        self.live_bytes
    }

    /// Whether the column has fewer live bytes than `threshold` asks for.
    pub(crate) fn is_sparse(&self, threshold: Sparse) -> bool {
        self.live_bytes == 0 || self.live_bytes * 8 < self.column_bytes * threshold.0
    }
}

/// A threshold of sparseness, in eighths of a column's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sparse(u64);

impl Sparse {
    /// The column has no live item. Taking it is worth a look even where a write is about to be refused.
    pub(crate) const EMPTY: Sparse = Sparse(0);
    /// Less than an eighth is live, and the rest has expired or was flushed: the column is emptied although nobody
    /// needs it yet, a few at a time.
    pub(crate) const WITHOUT_NEED: Sparse = Sparse(1);
    /// Less than an eighth is live: the column is emptied before fresh memory is taken from the machine. If every item
    /// is as likely to be overwritten as any other, the columns in use come to 2.4 times the live bytes.
    pub(crate) const BEFORE_FRESH_MEMORY: Sparse = Sparse(1);
    /// Less than a half is live: the column goes before its turn in the policy's order. Where nothing may be evicted,
    /// only such a column is worth the pass.
    pub(crate) const BEFORE_ITS_TURN: Sparse = Sparse(4);
    /// Less than three quarters are live: the column's items are moved before anything is evicted. The threshold must
    /// stay below what a full column can have: a record takes up to a little more than an eighth of a column, and as
    /// much may be left over at the column's end.
    pub(crate) const BEFORE_EVICTION: Sparse = Sparse(6);
}

/// The answer to "may this column go?".
#[derive(Clone, Copy, Debug)]
pub enum Candidate {
    /// The column may go.
    Ready(ColumnStatus),
    /// The column may not go now, for example because a large value in it is being sent.
    Later,
    /// The column is not sealed any more, or it was emptied and is in use again. Forget it.
    Gone,
}

/// Finds the sparse column of the lowest cost among those it is offered. The first one wins a tie.
pub(crate) struct CheapestSparse<T> {
    threshold: Sparse,
    best: Option<(T, u64)>,
}

impl<T> CheapestSparse<T> {
    /// Takes only columns that are sparse by `threshold`.
    pub(crate) fn new(threshold: Sparse) -> CheapestSparse<T> {
        CheapestSparse { threshold, best: None }
    }

    /// Offers a column, known to the caller as `name`.
    pub(crate) fn offer(&mut self, name: T, status: &ColumnStatus) {
        let cost = status.cost();
        if status.is_sparse(self.threshold) && self.best.as_ref().is_none_or(|(_, least)| cost < *least) {
            self.best = Some((name, cost));
        }
    }

    /// The name of the column that was found.
    pub(crate) fn found(self) -> Option<T> {
        self.best.map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(live_bytes: u64) -> ColumnStatus {
        ColumnStatus { column: ColumnId(0), live_bytes, column_bytes: 80 }
    }

    #[test]
    fn each_threshold_is_what_its_name_says() {
        for (threshold, most) in [
            (Sparse::EMPTY, 0),
            (Sparse::BEFORE_FRESH_MEMORY, 9),
            (Sparse::BEFORE_ITS_TURN, 39),
            (Sparse::BEFORE_EVICTION, 59),
        ] {
            assert!(status(most).is_sparse(threshold), "{threshold:?}");
            assert!(!status(most + 1).is_sparse(threshold), "{threshold:?}");
        }
    }

    #[test]
    fn the_cheapest_sparse_column_is_found_and_the_first_wins_a_tie() {
        let mut cheapest = CheapestSparse::new(Sparse::BEFORE_ITS_TURN);
        for (name, live_bytes) in [("full", 80), ("first", 10), ("second", 10), ("half", 39)] {
            cheapest.offer(name, &status(live_bytes));
        }
        assert_eq!(cheapest.found(), Some("first"));
        let mut none = CheapestSparse::new(Sparse::BEFORE_ITS_TURN);
        none.offer("half", &status(40));
        assert_eq!(none.found(), None);
    }
}
