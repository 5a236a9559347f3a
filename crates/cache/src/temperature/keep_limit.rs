//! How much of a column may stay.

use super::policy::Judged;

/// How much of a column may stay: all of it, at first. Keys that are wanted were often stored one after another, and
/// none of them should go just because they share a column. But a cache of nothing but warm items must give some room
/// in the end, or a writer would wait until the sweep has cooled all of them.
#[derive(Clone, Copy, Debug)]
pub struct KeepLimit {
    /// Passes in a row that gave less than an eighth of a column.
    fruitless: u32,
    /// How many such passes in a row there may be.
    fruitless_max: u32,
}

/// Eight passes in a row may give next to nothing. Together they take about half a millisecond.
const FRUITLESS_MAX: u32 = 8;
/// After that, the next pass has to give an eighth of its column.
const GIVEN_SHARE: u64 = 8;

impl Default for KeepLimit {
    /// The limit of the keeper. Its columns hold hundreds of items.
    fn default() -> KeepLimit {
        KeepLimit::of_passes(FRUITLESS_MAX)
    }
}

impl KeepLimit {
    /// A limit that lets `fruitless_max` passes in a row give next to nothing.
    pub fn of_passes(fruitless_max: u32) -> KeepLimit {
        KeepLimit { fruitless: 0, fruitless_max }
    }

    /// The most that may stay of a column of `column_bytes` bytes.
    pub fn keep_bytes_max(&self, column_bytes: u64) -> u64 {
        if self.fruitless < self.fruitless_max {
            column_bytes
        } else {
            column_bytes - column_bytes.div_ceil(GIVEN_SHARE)
        }
    }

    /// Takes note that `kept_bytes` of a column stayed.
    pub fn note_kept(&mut self, kept_bytes: u64, column_bytes: u64) {
        let is_fruitless = kept_bytes > column_bytes - column_bytes.div_ceil(GIVEN_SHARE);
        self.fruitless = if is_fruitless { self.fruitless + 1 } else { 0 };
    }
}

/// Sets the level of items to 0, which evicts them, until the items with a higher level have at most `keep_bytes_max`
/// bytes. The least warm items go first, and of equally warm ones the first.
pub(super) fn keep_within(levels: &mut [u8], items: &[Judged], keep_bytes_max: u64) {
    let kept = |(level, item): (&u8, &Judged)| if *level > 0 { u64::from(item.bytes) } else { 0 };
    let mut kept_bytes: u64 = levels.iter().zip(items).map(kept).sum();
    let mut least = 1;
    while kept_bytes > keep_bytes_max {
        for (level, item) in levels.iter_mut().zip(items) {
            if *level == least && kept_bytes > keep_bytes_max {
                *level = 0;
                kept_bytes -= u64::from(item.bytes);
            }
        }
        least += 1;
    }
}
