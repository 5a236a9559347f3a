//! The splits that each amount of money buys.

use super::{Goal, Planner, Split};

/// The Pareto front: no other split is cheaper and at least as fast as one of these, or faster and at most as
/// expensive.
#[derive(Clone, PartialEq, Debug)]
pub struct Frontier {
    /// Splits with flash, by rising cost.
    pub two_levels: Vec<Split>,
    /// Splits without flash, by rising cost.
    pub memory_alone: Vec<Split>,
}

/// The front at `budgets` amounts of money, evenly spaced by their logarithms up to the cost of memory for all items,
/// starting at 1/1000 of it. A split that is no faster than a cheaper one is left out.
pub fn frontier(planner: &Planner, budgets: u32) -> Frontier {
    let all = planner.curve().footprint() as f64 * planner.model().dram_factor();
    let dearest = planner.split(all, 0.0).map_or(0.0, |split| split.cost);
    let budgets: Vec<f64> = (0..=budgets)
        .map(|at| dearest * libm::pow(10.0, 3.0 * (f64::from(at) / f64::from(budgets) - 1.0)))
        .collect();
    let front = |best: &dyn Fn(Goal) -> Option<Split>| {
        let mut splits: Vec<Split> = Vec::new();
        for split in budgets.iter().filter_map(|budget| best(Goal::Budget(*budget))) {
            if splits.last().is_none_or(|last| split.latency_us < last.latency_us - 1e-9) {
                splits.push(split);
            }
        }
        splits
    };
    Frontier {
        two_levels: front(&|goal| planner.best(goal)),
        memory_alone: front(&|goal| planner.best_of_memory_alone(goal)),
    }
}
