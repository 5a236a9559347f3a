//! Classes of lifetimes: items of one class stand together, so that they expire together.

use larder_item::Expiry;
use larder_memory::Lifetimes;

/// Open columns are at most one in 20 of all columns, beside the two that every worker needs.
const OPEN_SHARE: u64 = 20;

/// Lifetimes that differ by a third at most, or by a second: two classes for each doubling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LifetimeClass(u8);

impl LifetimeClass {
    /// How many classes there are.
    pub(crate) const COUNT: usize = 64;

    /// The class of an item that expires at `expiry`, which is not `NEVER`.
    #[inline]
    pub(crate) fn of(expiry: Expiry, now_s: u32) -> LifetimeClass {
        let last_s = expiry.seconds().saturating_sub(now_s).saturating_sub(1);
        if last_s < 2 {
            return LifetimeClass(last_s as u8);
        }
        let doublings = last_s.ilog2() - 1;
        LifetimeClass(((doublings << 1) + (last_s >> doublings)) as u8)
    }

    /// The number of the class, below [`LifetimeClass::COUNT`]. Longer lifetimes have higher numbers.
    #[inline]
    pub(crate) fn number(self) -> usize {
        usize::from(self.0)
    }

    /// The longest lifetime of the class, in seconds.
    pub(crate) fn seconds_max(self) -> u32 {
        match self.0 {
            0 | 1 => u32::from(self.0) + 1,
            class => {
                let steps = u64::from(class & 1) + 3;
                u32::try_from(steps << (class / 2 - 1)).unwrap_or(u32::MAX)
            }
        }
    }

    /// What a column of the class should distinguish.
    pub(crate) fn lifetimes(self) -> Lifetimes {
        Lifetimes::up_to(self.seconds_max())
    }
}

/// How many open columns each of `workers` workers may have beside the two that it needs, if there are `columns`
/// columns.
pub(crate) fn open_columns_max(columns: u64, workers: usize) -> usize {
    ((columns / OPEN_SHARE) as usize / workers.max(1)).saturating_sub(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_ends_where_the_next_one_begins() {
        let mut before = None;
        for lifetime_s in 1..100_000 {
            let class = LifetimeClass::of(Expiry::at_s(7 + lifetime_s), 7);
            if before != Some(class) {
                assert_eq!(class.number(), before.map_or(0, |class| class.number() + 1));
                assert_eq!(before.map_or(0, LifetimeClass::seconds_max), lifetime_s - 1);
            }
            before = Some(class);
        }
        assert_eq!(LifetimeClass::of(Expiry::AT_ONCE, 7).number(), 0, "expired already");
        let last = LifetimeClass::of(Expiry::at_s(u32::MAX), 0);
        assert_eq!((last.number(), last.seconds_max()), (LifetimeClass::COUNT - 1, u32::MAX));
    }

    #[test]
    fn open_columns_are_at_most_one_in_twenty_of_all() {
        // -m 64 -t 4 and -m 8 -t 4, with columns of 64 and 32 KiB.
        assert_eq!((open_columns_max(880, 4), open_columns_max(110, 4)), (9, 0));
        for columns in [0, 30, 110, 880, 10_000, 1_000_000] {
            for workers in [1, 4, 16, 64] {
                let open = (2 + open_columns_max(columns, workers)) * workers;
                assert!(open as u64 <= columns / OPEN_SHARE || open == 2 * workers);
            }
        }
    }
}
