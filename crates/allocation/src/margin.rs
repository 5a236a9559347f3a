//! The margin: the worth per byte below which items go.
//!
//! The temperature says how many bytes of a column go; the margin says which. It follows from that: if the items below
//! the margin are fewer bytes than the temperature asks for, over many columns, the margin rises, and the other way
//! round. So a column of dear items gives less than one of cheap items, while both together give what is asked for.

/// Between the margin divided by this and the margin times this, the column decides by itself: the items of the least
/// worth go until the column has given what is asked for. With it, items of equal worth go in the order in which the
/// temperature would have them go.
const BAND: f32 = 1.5;
/// How far the margin moves for one column's worth of bytes too many or too few.
const GAIN: f32 = 0.2;
/// The share that the sum of all earlier differences has.
const GAIN_OF_SUM: f32 = 0.02;
/// Bounds of one step, and of that sum, in columns.
const STEP_MIN: f32 = 0.8;
const STEP_MAX: f32 = 1.25;
const SUM_MAX: f32 = 64.0;

/// The margin, in saved cost per byte.
#[derive(Default)]
pub(crate) struct Margin {
    /// 0 = not known yet.
    margin: f32,
    /// Bytes that the temperature asked for less those that went, in columns.
    owed: f32,
    /// Items within the band: worth, position, bytes. Kept for its memory.
    near: Vec<(f32, u32, u32)>,
}

impl Margin {
    /// Forgets everything: worth is measured in another unit from now on.
    pub(crate) fn reset(&mut self) {
        (self.margin, self.owed) = (0.0, 0.0);
    }

    /// How far a worth is from the margin, in whole doublings.
    pub(crate) fn distance(&self, worth: f32) -> u8 {
        if self.margin <= 0.0 {
            return 0;
        }
        (worth / self.margin).log2().abs().min(255.0) as u8
    }

    /// Sets `goes` for the items that go. `items` are the worth and the bytes of each. The temperature asks for
    /// `asked_bytes`; at most `keep_bytes_max` may stay.
    pub(crate) fn choose(
        &mut self,
        items: &[(f32, u32)],
        asked_bytes: u64,
        keep_bytes_max: u64,
        column_bytes: u64,
        goes: &mut [bool],
    ) {
        // Without a margin, the column decides alone.
        let (low, high) =
            if self.margin > 0.0 { (self.margin / BAND, self.margin * BAND) } else { (0.0, f32::MAX) };
        let mut gone_bytes = 0;
        let mut all_bytes = 0;
        self.near.clear();
        for (nth, (&(worth, bytes), goes)) in items.iter().zip(goes.iter_mut()).enumerate() {
            all_bytes += u64::from(bytes);
            *goes = worth < low;
            if *goes {
                gone_bytes += u64::from(bytes);
            } else if worth < high {
                self.near.push((worth, nth as u32, bytes));
            }
        }
        let must_bytes = all_bytes.saturating_sub(keep_bytes_max);
        if must_bytes > gone_bytes + self.near.iter().map(|near| u64::from(near.2)).sum::<u64>() {
            let far = items.iter().enumerate().filter(|(_, item)| item.0 >= high);
            self.near.extend(far.map(|(nth, item)| (item.0, nth as u32, item.1)));
        }
        self.near.sort_unstable_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let mut last = 0.0;
        for &(worth, nth, bytes) in &self.near {
            // Items that are only here because too much would stay do not count as asked for.
            let wanted_bytes = if worth < high { asked_bytes.max(must_bytes) } else { must_bytes };
            if gone_bytes >= wanted_bytes {
                break;
            }
            goes[nth as usize] = true;
            gone_bytes += u64::from(bytes);
            last = worth;
        }
        self.adjust(asked_bytes, gone_bytes, column_bytes, last);
    }

    fn adjust(&mut self, asked_bytes: u64, gone_bytes: u64, column_bytes: u64, last: f32) {
        if self.margin <= 0.0 {
            self.margin = last;
            return;
        }
        let owed = (asked_bytes as f32 - gone_bytes as f32) / column_bytes as f32;
        self.owed = (self.owed + owed).clamp(-SUM_MAX, SUM_MAX);
        self.margin *= (1.0 + GAIN * (owed + GAIN_OF_SUM * self.owed)).clamp(STEP_MIN, STEP_MAX);
        self.margin = self.margin.clamp(f32::MIN_POSITIVE, f32::MAX / (2.0 * BAND));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COLUMN_BYTES: u64 = 10_000;

    /// The choice by its definition: all items sorted, the first ones go while a rule says so.
    fn naive(margin: f32, items: &[(f32, u32)], asked_bytes: u64, keep_bytes_max: u64) -> Vec<bool> {
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by(|&one, &other| items[one].0.total_cmp(&items[other].0));
        let all_bytes: u64 = items.iter().map(|item| u64::from(item.1)).sum();
        let (mut goes, mut gone_bytes) = (vec![false; items.len()], 0);
        for nth in order {
            let worth = items[nth].0;
            let is_cheap = margin > 0.0 && worth < margin / BAND;
            let is_near = margin <= 0.0 || worth < margin * BAND;
            let too_much_stays = all_bytes - gone_bytes > keep_bytes_max;
            goes[nth] = is_cheap || (is_near && gone_bytes < asked_bytes) || too_much_stays;
            if !goes[nth] {
                break;
            }
            gone_bytes += u64::from(items[nth].1);
        }
        goes
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_choice_is_the_naive_one(
            // Few different worths, so that many are equal.
            items in prop::collection::vec((1u32..12, 1u32..400), 0..60),
            margin in prop::option::of(0.5f32..15.0),
            asked_bytes in 0u64..12_000,
            keep_bytes_max in 0u64..12_000,
        ) {
            let items: Vec<_> = items.into_iter().map(|(worth, bytes)| (worth as f32, bytes)).collect();
            let mut goes = vec![true; items.len()];
            let mut chooser = Margin { margin: margin.unwrap_or(0.0), ..Margin::default() };
            chooser.choose(&items, asked_bytes, keep_bytes_max, COLUMN_BYTES, &mut goes);
            prop_assert_eq!(goes, naive(margin.unwrap_or(0.0), &items, asked_bytes, keep_bytes_max));
        }
    }

    #[test]
    fn cheap_columns_give_what_dear_columns_do_not() {
        let mut margin = Margin::default();
        let (cheap, dear): (Vec<_>, Vec<_>) =
            (0..100).map(|n| ((n as f32, 100), (1000.0 + n as f32, 100))).unzip();
        let mut given = [0, 0];
        for turn in 0..2000 {
            for (kind, items) in [&cheap, &dear].into_iter().enumerate() {
                let mut goes = [false; 100];
                margin.choose(items, 3000, COLUMN_BYTES, COLUMN_BYTES, &mut goes);
                if turn >= 1000 {
                    given[kind] += goes.iter().filter(|goes| **goes).count();
                }
            }
        }
        // Asked for: 30 items of each column.
        let each = given.map(|items| items as f32 / 1000.0);
        assert!((each[0] - 60.0).abs() < 3.0 && each[1] < 2.0, "{each:?}");
    }

    #[test]
    fn columns_of_equal_items_give_what_is_asked_for() {
        let mut margin = Margin::default();
        for _ in 0..1000 {
            let mut goes = [false; 100];
            margin.choose(&[(5.0, 100); 100], 3000, COLUMN_BYTES, COLUMN_BYTES, &mut goes);
            assert!(goes[..30].iter().all(|goes| *goes) && !goes[30..].iter().any(|goes| *goes));
        }
    }
}
