//! Expected costs: what the next miss of an item costs, by the penalty that the last one had.
//!
//! A cache remembers the last penalty of an item. Where a key costs about the same each time, the last penalty is the
//! best guess at the next one. Where the same back end is fast for one request and slow for the next, it is not: then
//! items that happened to be fetched slowly would stay in place of items that are read more often. What holds is learnt
//! from sampled keys that were dropped and came back: each has a penalty from before and one from now.

use crate::Subclass;

/// A subclass and the mean of all of them weigh as much as ten keys that came back.
const PRIOR_KEYS: f32 = 10.0;
/// As long as so few keys came back, the last penalty is taken for the next one.
const PRIOR_TRUST: f32 = 2.0;
/// At the end of a window, every key that came back keeps this weight.
const DECAY: f32 = 0.8;
/// Costs that differ by less than this factor are told apart by chance only.
const EQUAL: f32 = 2.5;

/// Expected costs in microseconds by subclass.
pub(crate) struct ExpectedCosts {
    /// How many keys came back, by the subclass of the penalty before and by that of the present one.
    returned: [[f32; Subclass::COUNT]; Subclass::COUNT],
    /// The answers.
    costs: [f32; Subclass::COUNT],
}

fn typical(number: usize) -> f32 {
    Subclass::from_number(number as u8).map_or(0.0, |subclass| subclass.typical_us() as f32)
}

impl ExpectedCosts {
    /// No key has come back yet: every penalty is taken for the next one.
    pub(crate) fn new() -> ExpectedCosts {
        ExpectedCosts { returned: Default::default(), costs: std::array::from_fn(typical) }
    }

    /// What the next miss of an item with this penalty costs.
    #[inline]
    pub(crate) fn of(&self, subclass: Subclass) -> f32 {
        self.costs[subclass.number()]
    }

    /// A key came back: its penalty was `before`, and is `now`. Says whether all costs are equal since then.
    pub(crate) fn observe(&mut self, before: Subclass, now: Subclass) -> bool {
        let differed = !self.are_equal();
        self.returned[before.number()][now.number()] += 1.0;
        self.expect();
        differed && self.are_equal()
    }

    fn are_equal(&self) -> bool {
        self.costs.iter().all(|cost| *cost == self.costs[0])
    }

    /// A window of accesses has ended.
    pub(crate) fn end_window(&mut self) {
        self.returned.iter_mut().flatten().for_each(|count| *count *= DECAY);
        self.expect();
    }

    fn expect(&mut self) {
        let all: f32 = self.returned.iter().flatten().sum();
        if all < 1.0 {
            self.costs = std::array::from_fn(typical);
            return;
        }
        let cost_of = |row: &[f32; Subclass::COUNT]| -> f32 {
            row.iter().enumerate().map(|(now, count)| count * typical(now)).sum()
        };
        let mean = self.returned.iter().map(cost_of).sum::<f32>() / all;
        let trust = self.trust(all);
        for (before, row) in self.returned.iter().enumerate() {
            let guess = trust * typical(before) + (1.0 - trust) * mean;
            let count: f32 = row.iter().sum();
            self.costs[before] = (cost_of(row) + PRIOR_KEYS * guess) / (count + PRIOR_KEYS);
        }
        let least = self.costs.iter().copied().fold(f32::MAX, f32::min);
        let most = self.costs.iter().copied().fold(0.0, f32::max);
        if most < EQUAL * least {
            self.costs = [mean; Subclass::COUNT];
        }
    }

    /// How much the penalty of before says about the present one, from 0 to 1: the slope of the regression line of
    /// their subclasses, less what chance may have added to it.
    fn trust(&self, all: f32) -> f32 {
        let pairs = || {
            let rows = self.returned.iter().enumerate();
            rows.flat_map(|(before, row)| {
                row.iter().enumerate().map(move |(now, count)| (before as f32, now as f32, *count))
            })
        };
        let sum = |of: fn(f32, f32) -> f32| -> f32 { pairs().map(|(x, y, count)| count * of(x, y)).sum() };
        let (x, y) = (sum(|x, _| x) / all, sum(|_, y| y) / all);
        let covariance = sum(|x, y| x * y) - all * x * y;
        let variance = sum(|x, _| x * x) - all * x * x;
        let slope = (covariance + PRIOR_TRUST) / (variance + PRIOR_TRUST);
        let chance = 1.0 / (all + PRIOR_TRUST).sqrt();
        ((slope - chance) / (1.0 - chance)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subclass(number: u8) -> Subclass {
        Subclass::from_number(number).expect("a number below the count")
    }

    /// Costs after `keys` keys came back. `pair` gives the numbers of the two subclasses.
    fn learnt(keys: u32, pair: impl Fn(u32) -> (u8, u8)) -> [f32; Subclass::COUNT] {
        let mut costs = ExpectedCosts::new();
        for nth in 0..keys {
            let (before, now) = pair(nth);
            costs.observe(subclass(before), subclass(now));
        }
        costs.costs
    }

    #[test]
    fn a_key_that_costs_the_same_each_time_is_judged_by_that() {
        let costs = learnt(300, |nth| (nth as u8 % 4, nth as u8 % 4));
        for (number, cost) in costs.into_iter().enumerate().take(4) {
            assert!((cost / typical(number) - 1.0).abs() < 0.1, "{number}: {cost}");
        }
    }

    #[test]
    fn penalties_that_change_at_each_miss_say_nothing_of_an_item() {
        // One in ten is a slow answer, before and now, without a connection.
        let costs = learnt(300, |nth| (u8::from(nth % 10 == 3) * 2, u8::from(nth / 10 % 10 == 7) * 2));
        assert!(costs.iter().all(|cost| *cost == costs[0]), "{costs:?}");
        assert!(
            costs[0] > 3_000.0 && costs[0] < 6_000.0,
            "the mean of 500 us and a tenth of 40 ms: {costs:?}"
        );
    }

    #[test]
    fn a_slow_answer_of_a_fast_back_end_is_told_from_a_slow_back_end() {
        // Half of the keys cost 500 us and seldom 350 ms, and half cost 40 ms.
        let costs = learnt(2000, |nth| match nth % 100 {
            0 => (3, 0),
            1 => (0, 3),
            nth if nth % 2 == 0 => (0, 0),
            _ => (2, 2),
        });
        assert!(costs[3] < typical(3) / 2.0 && costs[2] > 4.0 * costs[0], "{costs:?}");
    }

    #[test]
    fn before_any_key_came_back_and_after_all_is_forgotten_the_penalty_itself_counts() {
        let mut costs = ExpectedCosts::new();
        assert_eq!(costs.of(subclass(3)), typical(3));
        for nth in 0..100 {
            costs.observe(subclass(nth % 2), subclass(nth / 2 % 2));
        }
        assert!(costs.of(subclass(3)) < typical(3) / 10.0);
        (0..100).for_each(|_| costs.end_window());
        assert_eq!(costs.of(subclass(3)), typical(3));
    }
}
