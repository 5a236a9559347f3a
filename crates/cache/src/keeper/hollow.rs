//! Columns of which little lives: they are emptied by moving that, before fresh memory is taken or anything is evicted.

use super::{Emptied, Keeper, Pace, Turns, UNMOVED, draw};
use crate::engine::Cache;
use crate::temperature::Candidate;
use larder_memory::ColumnId;
use std::sync::atomic::Ordering;

/// Only where a larger share of all columns is dead is there anything to do; and nothing live is evicted then. At a quarter a
/// set that fills 0.8 of the columns and is overwritten at random lost a tenth, at an eighth nothing, for 28 % more CPU
/// time.
const DEAD_SHARE: u64 = 8;
/// A column with less than this share of live bytes is a husk. If every item is as likely to be overwritten as any other,
/// columns in use come to 2.4 times the live bytes.
const HUSK_SHARE: u64 = 8;
/// With less than so much that lives, in quarters, a column may be emptied before anything is evicted. It must not be as much as
/// a full column can have: a record takes up to little more than an eighth of one, and so much may be left over at its end.
const HOLLOW_QUARTERS_MAX: u64 = 3;
/// Columns among which the one with the least live bytes is looked for before anything is evicted.
const HOLLOW_LOOKS: u32 = 32;
/// Of those that were chosen, how many may turn out to hold what is not moved before something is evicted after all.
const HOLLOW_REFUSED_MAX: usize = 16;
/// Columns that a writer looks at for one in which nothing lives, before it gives up.
pub(crate) const DEAD_LOOKS: u32 = 256;
/// Columns that one round looks at for husks.
const HUSK_LOOKS: u32 = 4096;
/// Husks that could not be emptied before a round gives up.
const HUSKS_REFUSED_MAX: usize = 16;

impl Cache {
    /// Whether a column is worth reclaiming although nothing may be evicted.
    pub(crate) fn has_hollow_columns(&self) -> bool {
        self.memory.retired_columns() > 0 || self.live_bytes() * 10 < self.memory.mapped_bytes() * 9
    }

    /// Bytes of records that an entry leads to.
    fn live_bytes(&self) -> u64 {
        let totals = self.totals();
        totals.bytes_stored.saturating_sub(totals.bytes_died)
    }

    /// Empties husks before fresh memory is taken or anything is evicted: a small set of items that is overwritten all the
    /// time stays small. Nothing in a husk is judged; what lives is moved. Returns whether enough columns are on their way
    /// back.
    pub(super) fn reclaim_husks(&self, turns: &mut Turns) -> bool {
        let mut looks = HUSK_LOOKS.min(self.memory.columns_mapped());
        let mut refused = 0;
        while self.goes_on(turns) && self.is_much_dead() {
            let ready = self.memory.free_columns() + self.memory.returning_columns();
            let unmapped = self.memory.available_columns().saturating_sub(self.memory.free_columns());
            if ready >= self.ahead_columns && ready + unmapped >= self.free_columns_target() {
                return true;
            }
            let mut keeper = self.keeper.lock().expect("no panic under this lock");
            let live_below = u64::from(self.column_bytes()) / HUSK_SHARE;
            let Some(husk) = self.next_husk(&mut keeper.husk_hand, &mut looks, live_below) else {
                return false;
            };
            self.hand_over_sealed(&mut *keeper.temperature);
            match self.empty(&mut keeper, husk, false, turns) {
                Emptied::Yes => {}
                Emptied::Refused if refused < HUSKS_REFUSED_MAX => refused += 1,
                Emptied::Refused | Emptied::NoRoom => return false,
            }
            drop(keeper);
            self.memory.recycle();
        }
        false
    }

    /// Where nothing may be evicted, and too little is dead for anything to be moved: empties one of the next `looks` columns
    /// if nothing lives in it. Returns whether there was one.
    pub(crate) fn reclaim_dead(&self, looks: u32) -> bool {
        let mut looks = looks.min(self.memory.columns_mapped());
        let mut keeper = self.keeper.lock().expect("no panic under this lock");
        while let Some(dead) = self.next_husk(&mut keeper.husk_hand, &mut looks, 1) {
            if self.empty(&mut keeper, dead, false, &mut Turns::begin(Pace::Hurried)) == Emptied::Yes {
                return true;
            }
        }
        false
    }

    fn is_much_dead(&self) -> bool {
        let used = self.used_bytes();
        self.live_bytes() < used - used / DEAD_SHARE
    }

    /// Bytes of columns that hold something.
    fn used_bytes(&self) -> u64 {
        let idle = (self.memory.free_columns() + self.memory.retired_columns()) as u64;
        self.memory.mapped_bytes().saturating_sub(idle * u64::from(self.column_bytes()))
    }

    /// The next column with fewer live bytes.
    fn next_husk(&self, hand: &mut u32, looks: &mut u32, live_below: u64) -> Option<ColumnId> {
        let columns = self.memory.columns_mapped();
        while *looks > 0 {
            *looks -= 1;
            *hand = if *hand + 1 < columns { *hand + 1 } else { 0 };
            let column = ColumnId(*hand);
            if let Candidate::Ready(found) = self.standing(column)
                && found.live_bytes < live_below
            {
                return Some(column);
            }
        }
        None
    }

    /// Where so much is dead that nothing live need go: moves what lives in a column that has little of it. Returns whether
    /// that gave a column, or none if something has to be evicted.
    pub(super) fn reclaim_hollow(&self, keeper: &mut Keeper, turns: &mut Turns) -> Option<bool> {
        for _ in 0..HOLLOW_REFUSED_MAX {
            if !self.is_much_dead() {
                break;
            }
            let hollow = self.next_hollow(&mut keeper.lots)?;
            match self.empty(keeper, hollow, false, turns) {
                Emptied::Yes => return Some(true),
                Emptied::NoRoom => return Some(false),
                Emptied::Refused if self.memory.available_columns() == 0 => return None,
                // Somebody began to send a large value from it: that passes.
                Emptied::Refused if self.memory.column(hollow).is_pinned() => {}
                Emptied::Refused => {
                    self.memory.column(hollow).group.fetch_or(UNMOVED, Ordering::Relaxed);
                }
            }
        }
        None
    }

    /// The one of a few columns that has the least that lives, if that is little.
    fn next_hollow(&self, lots: &mut u64) -> Option<ColumnId> {
        let columns = u64::from(self.memory.columns_mapped());
        // Drawn, since neighbours are of an age.
        let drawn =
            (0..HOLLOW_LOOKS).filter_map(|_| match self.standing(ColumnId(draw(lots, columns) as u32)) {
                Candidate::Ready(found)
                    if found.live_bytes == 0 || self.group(found.column) & UNMOVED == 0 =>
                {
                    Some(found)
                }
                _ => None,
            });
        drawn
            .min_by_key(|found| found.live_bytes)
            .filter(|found| found.live_bytes * 4 < found.column_bytes * HOLLOW_QUARTERS_MAX)
            .map(|found| found.column)
    }
}
