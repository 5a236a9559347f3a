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
    /// A column of new items was opened. Calls `ended` as [`NewColumns::want`] does. Returns whether the correlated
    /// period of the new one begins.
    pub fn opened(&mut self, column: ColumnId, birth: u64, ended: impl FnMut(ColumnId, u64)) -> bool {
        let begins = self.wanted > 0;
        if begins {
            self.columns.push_back((column, birth));
        }
        self.want(self.wanted, ended);
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
        let open = |new: &mut NewColumns, column, birth| {
            let mut ended = Vec::new();
            let begins = new.opened(ColumnId(column), birth, |column, birth| ended.push((column.0, birth)));
            (begins, ended)
        };
        assert_eq!(open(&mut new, 9, 1), (false, vec![]), "none is wanted");
        assert_eq!(now(&mut new, 2), []);
        assert_eq!(open(&mut new, 2, 2), (true, vec![]));
        assert_eq!(open(&mut new, 3, 3), (true, vec![]));
        assert_eq!(open(&mut new, 4, 4), (true, vec![(2, 2)]));
        assert_eq!(now(&mut new, 1), [(3, 3)]);
        assert_eq!(now(&mut new, 3), []);
        assert_eq!(open(&mut new, 2, 5), (true, vec![]));
        assert_eq!(now(&mut new, 0), [(4, 4), (2, 5)]);
        assert_eq!(open(&mut new, 2, 6), (false, vec![]));
    }
}
