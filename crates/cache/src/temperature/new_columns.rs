//! The columns of new items that are in their correlated reference period.

use larder_memory::ColumnId;
use std::collections::VecDeque;

/// The columns of new items that were opened last, as many as the policy wants
/// ([`Temperature::correlated_columns`](super::Temperature::correlated_columns)). Reads of their items do not count
/// yet. The server and the simulator's model have one of these each.
#[derive(Default, Debug)]
pub struct NewColumns {
    wanted: usize,
    /// Number and birth; the oldest in front.
    columns: VecDeque<(ColumnId, u64)>,
}

impl NewColumns {
    /// A column of new items was opened. Returns whether its correlated period begins.
    pub fn opened(&mut self, column: ColumnId, birth: u64) -> bool {
        let begins = self.wanted > 0;
        if begins {
            self.columns.push_back((column, birth));
        }
        begins
    }

    /// The policy wants `wanted` columns in their period now. Calls `ended` with the number and the birth of each
    /// column whose period ends, the oldest first.
    pub fn want(&mut self, wanted: usize, mut ended: impl FnMut(ColumnId, u64)) {
        self.wanted = wanted;
        let over = self.columns.len().saturating_sub(wanted);
        self.columns.drain(..over).for_each(|(column, birth)| ended(column, birth));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_opened_last_are_in_their_period() {
        let mut new = NewColumns::default();
        let now = |new: &mut NewColumns, wanted| {
            let mut ended = Vec::new();
            new.want(wanted, |column, birth| ended.push((column.0, birth)));
            ended
        };
        assert!(!new.opened(ColumnId(9), 1), "none is wanted");
        assert_eq!(now(&mut new, 2), []);
        for birth in 2..6 {
            assert!(new.opened(ColumnId(birth as u32), birth));
        }
        assert_eq!(now(&mut new, 2), [(2, 2), (3, 3)]);
        assert_eq!(now(&mut new, 1), [(4, 4)]);
        assert_eq!(now(&mut new, 3), []);
        assert!(new.opened(ColumnId(2), 6));
        assert_eq!(now(&mut new, 0), [(5, 5), (2, 6)]);
        assert!(!new.opened(ColumnId(2), 7));
        assert_eq!(now(&mut new, 0), []);
    }
}
