//! The accounts of the groups: values, holdings and moves (PAMA, section III).

use crate::hits::MetIn;
use crate::watch::Watched;
use crate::{Group, GroupStats, MoveReason};

/// PAMA's m: how many reference segments count beside the candidate (section III; Fig. 10 shows that more than two
/// bring little).
const REFERENCE_SEGMENTS: usize = 2;
/// The weight that saved cost, bytes and holdings keep when a window ends.
const DECAY: f64 = 0.75;

/// Saved cost and bytes of the items in one segment.
#[derive(Clone, Copy, Default)]
struct Segment {
    saved: f64,
    bytes: f64,
}

/// One side of the margin: segment i holds the items whose worth is 2^i to 2^(i+1) times as far from it.
type Segments = [Segment; REFERENCE_SEGMENTS + 1];

/// What the passes found of a group in one queue.
#[derive(Clone, Copy, Default)]
struct Holding {
    items: f64,
    bytes: f64,
}

#[derive(Clone, Copy, Default)]
struct Account {
    /// Items that stayed next to the margin: what would be lost.
    candidates: Segments,
    /// Items that went next to the margin: what would be gained.
    ghosts: Segments,
    /// In the probation, and in the main queue.
    holdings: [Holding; 2],
    /// Bytes that the temperature asked for and that stayed, less bytes that went although it did not ask for them. A
    /// whole column's worth becomes a move.
    pending_bytes: i64,
    moved_in_bytes: u64,
    moved_out_bytes: u64,
    last_move: Option<MoveReason>,
}

/// The accounts of all groups.
pub(crate) struct Ledger {
    accounts: Box<[Account; Group::COUNT]>,
}

/// Bytes by group.
pub(crate) type BytesOfGroups = [u64; Group::COUNT];

impl Ledger {
    /// All accounts are empty.
    pub(crate) fn new() -> Ledger {
        Ledger { accounts: Box::new([Account::default(); Group::COUNT]) }
    }

    /// The watch of an item has ended: a hit of it saved `cost`, or would have.
    pub(crate) fn observe(&mut self, watched: &Watched, cost: f32) {
        let account = &mut self.accounts[usize::from(watched.group)];
        let segments = if watched.kept { &mut account.candidates } else { &mut account.ghosts };
        if let Some(segment) = segments.get_mut(usize::from(watched.distance)) {
            segment.saved += f64::from(watched.hits) * f64::from(cost);
            segment.bytes += f64::from(watched.bytes);
        }
    }

    /// The pass has met an item.
    #[inline]
    pub(crate) fn hold(&mut self, met_in: MetIn, group: Group, bytes: u32) {
        let holding = &mut self.accounts[group.number()].holdings[met_in as usize];
        holding.items += 1.0;
        holding.bytes += f64::from(bytes);
    }

    /// A column was judged: the temperature asked each group for `asked`, and each gave `gone`.
    pub(crate) fn settle(&mut self, asked: &BytesOfGroups, gone: &BytesOfGroups, column_bytes: u64) {
        for (account, (asked, gone)) in self.accounts.iter_mut().zip(asked.iter().zip(gone)) {
            account.pending_bytes += *asked as i64 - *gone as i64;
        }
        if asked == gone {
            self.stay(asked, column_bytes);
        } else {
            while self.move_column(column_bytes as i64) {}
        }
    }

    /// Books a column's worth of bytes that moved from one group to another, if there is one.
    fn move_column(&mut self, column_bytes: i64) -> bool {
        let pending = |group: usize| self.accounts[group].pending_bytes;
        let groups = || 0..Group::COUNT;
        let (Some(from), Some(to)) =
            (groups().min_by_key(|at| pending(*at)), groups().max_by_key(|at| pending(*at)))
        else {
            return false;
        };
        if pending(from) > -column_bytes || pending(to) < column_bytes {
            return false;
        }
        let reason = Group::from_number(from)
            .zip(Group::from_number(to))
            .map(|(from, to)| MoveReason::HigherIncoming { from, to });
        let giver = &mut self.accounts[from];
        giver.pending_bytes += column_bytes;
        giver.moved_out_bytes += column_bytes as u64;
        giver.last_move = reason;
        let receiver = &mut self.accounts[to];
        receiver.pending_bytes -= column_bytes;
        receiver.moved_in_bytes += column_bytes as u64;
        receiver.last_move = reason;
        true
    }

    /// No room moved: the group that needed most of it replaced its own items. Says why.
    fn stay(&mut self, asked: &BytesOfGroups, column_bytes: u64) {
        let Some(needy) =
            (0..Group::COUNT).max_by_key(|group| asked[*group]).filter(|group| asked[*group] > 0)
        else {
            return;
        };
        let others = (0..Group::COUNT).filter(|group| *group != needy && self.holds(*group));
        let least = others.map(|group| self.outgoing(group, column_bytes)).min_by(f64::total_cmp);
        let own = self.outgoing(needy, column_bytes);
        let reason = match least {
            Some(least) if least < own && self.incoming(needy, column_bytes) < least => {
                MoveReason::LowIncoming
            }
            _ => MoveReason::OwnLeast,
        };
        self.accounts[needy].last_move = Some(reason);
    }

    fn holds(&self, group: usize) -> bool {
        self.accounts[group].holdings.iter().any(|holding| holding.items >= 1.0)
    }

    /// What would be lost if the group gave a column (equation 2).
    fn outgoing(&self, group: usize, column_bytes: u64) -> f64 {
        value(&self.accounts[group].candidates, column_bytes)
    }

    /// What would be saved if the group received a column.
    fn incoming(&self, group: usize, column_bytes: u64) -> f64 {
        value(&self.accounts[group].ghosts, column_bytes)
    }

    /// A window of accesses has ended.
    pub(crate) fn end_window(&mut self) {
        for account in self.accounts.iter_mut() {
            for segment in account.candidates.iter_mut().chain(&mut account.ghosts) {
                segment.saved *= DECAY;
                segment.bytes *= DECAY;
            }
            for holding in &mut account.holdings {
                holding.items *= DECAY;
                holding.bytes *= DECAY;
            }
        }
    }

    /// Worth is measured in another unit from now on. Holdings and moves stay.
    pub(crate) fn forget_values(&mut self) {
        for account in self.accounts.iter_mut() {
            (account.candidates, account.ghosts) = Default::default();
            (account.pending_bytes, account.last_move) = (0, None);
        }
    }

    /// What is shown of the groups that have items, or had. The two queues have `columns` columns of `column_bytes`.
    pub(crate) fn stats(&self, columns: [u64; 2], column_bytes: u64) -> Vec<GroupStats> {
        let met_bytes: [f64; 2] = std::array::from_fn(|queue| {
            self.accounts.iter().map(|account| account.holdings[queue].bytes).sum()
        });
        let scale: [f64; 2] =
            std::array::from_fn(|queue| (columns[queue] * column_bytes) as f64 / met_bytes[queue].max(1.0));
        let both = |account: &Account, of: fn(&Holding) -> f64| -> u64 {
            account.holdings.iter().zip(scale).map(|(holding, scale)| of(holding) * scale).sum::<f64>() as u64
        };
        let groups = (0..Group::COUNT).filter_map(|number| Some((number, Group::from_number(number)?)));
        groups
            .filter(|(number, _)| self.holds(*number) || self.accounts[*number].last_move.is_some())
            .map(|(number, group)| {
                let account = &self.accounts[number];
                GroupStats {
                    group,
                    items: both(account, |holding| holding.items),
                    bytes: both(account, |holding| holding.bytes),
                    outgoing: self.outgoing(number, column_bytes),
                    incoming: self.incoming(number, column_bytes),
                    moved_in_bytes: account.moved_in_bytes,
                    moved_out_bytes: account.moved_out_bytes,
                    last_move: account.last_move,
                }
            })
            .collect()
    }

    /// Bytes of the accounts.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.accounts) as u64
    }
}

/// Saved cost per column, weighted by segment: 1/2, 1/4, 1/8.
fn value(segments: &Segments, column_bytes: u64) -> f64 {
    let weighted = segments.iter().enumerate().filter(|(_, segment)| segment.bytes > 0.0);
    weighted
        .map(|(i, segment)| segment.saved / segment.bytes * column_bytes as f64 / (2u64 << i) as f64)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Subclass;
    use crate::hits::{Class, Warmth};

    const COLUMN_BYTES: u64 = 1000;

    fn group(penalty_us: u32) -> Group {
        Group::of(100, Subclass::of_us(penalty_us))
    }

    fn watched(penalty_us: u32, kept: bool, distance: u8) -> Watched {
        let warmth = Warmth { met_in: MetIn::Main, level: 0, stays: false };
        let group = group(penalty_us);
        let class = Class::of(warmth, group);
        Watched { class, group: group.number() as u8, distance, kept, returned: false, hits: 2, bytes: 100 }
    }

    fn bytes(of: &[(u32, u64)]) -> BytesOfGroups {
        let mut bytes = [0; Group::COUNT];
        of.iter().for_each(|(penalty_us, count)| bytes[group(*penalty_us).number()] = *count);
        bytes
    }

    #[test]
    fn values_are_weighted_by_the_distance_from_the_margin() {
        let mut ledger = Ledger::new();
        let number = group(500).number();
        ledger.observe(&watched(500, true, 0), 10.0);
        // 20 in 100 bytes are 200 a column.
        assert_eq!(ledger.outgoing(number, COLUMN_BYTES), 100.0);
        ledger.observe(&watched(500, true, 2), 10.0);
        ledger.observe(&watched(500, true, 3), 10.0);
        assert_eq!(ledger.outgoing(number, COLUMN_BYTES), 125.0);
        assert_eq!(ledger.incoming(number, COLUMN_BYTES), 0.0);
        ledger.observe(&watched(500, false, 1), 10.0);
        assert_eq!(ledger.incoming(number, COLUMN_BYTES), 50.0);
        ledger.end_window();
        assert_eq!(ledger.outgoing(number, COLUMN_BYTES), 125.0, "a mean does not fade, only its weight");
    }

    #[test]
    fn a_column_moves_when_a_columns_worth_of_bytes_has() {
        let mut ledger = Ledger::new();
        let (asked, gone) = (bytes(&[(500, 100), (2_000_000, 300)]), bytes(&[(500, 400)]));
        for _ in 0..3 {
            ledger.settle(&asked, &gone, COLUMN_BYTES);
        }
        assert!(ledger.stats([1, 1], COLUMN_BYTES).is_empty());
        ledger.settle(&asked, &gone, COLUMN_BYTES);
        let stats = ledger.stats([1, 1], COLUMN_BYTES);
        let reason = Some(MoveReason::HigherIncoming { from: group(500), to: group(2_000_000) });
        let moved: Vec<_> =
            stats.iter().map(|one| (one.group, one.moved_in_bytes, one.moved_out_bytes)).collect();
        assert_eq!(moved, [(group(500), 0, 1000), (group(2_000_000), 1000, 0)]);
        assert!(stats.iter().all(|one| one.last_move == reason));
    }

    #[test]
    fn a_column_that_stays_says_why() {
        let mut ledger = Ledger::new();
        let asked = bytes(&[(500, 100)]);
        let reason = |ledger: &Ledger| ledger.stats([1, 1], COLUMN_BYTES)[0].last_move;
        ledger.settle(&asked, &asked, COLUMN_BYTES);
        assert_eq!(reason(&ledger), Some(MoveReason::OwnLeast), "there is no other group");
        ledger.hold(MetIn::Main, group(50_000), 100);
        ledger.observe(&watched(50_000, true, 0), 10.0);
        ledger.observe(&watched(500, true, 0), 50.0);
        ledger.settle(&asked, &asked, COLUMN_BYTES);
        assert_eq!(reason(&ledger), Some(MoveReason::LowIncoming), "100 a column against nothing");
        ledger.observe(&watched(500, false, 0), 50.0);
        ledger.settle(&asked, &asked, COLUMN_BYTES);
        assert_eq!(reason(&ledger), Some(MoveReason::OwnLeast));
    }

    #[test]
    fn holdings_are_scaled_to_the_columns_there_are() {
        let mut ledger = Ledger::new();
        ledger.hold(MetIn::Probation, group(500), 100);
        ledger.hold(MetIn::Main, group(500), 100);
        ledger.hold(MetIn::Main, group(50_000), 300);
        let stats = ledger.stats([2, 4], COLUMN_BYTES);
        let held: Vec<_> = stats.iter().map(|one| (one.items, one.bytes)).collect();
        assert_eq!(held, [(30, 3000), (10, 3000)]);
    }
}
