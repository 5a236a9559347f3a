//! The example of Mlcached's section 4, and the search for the law of popularity behind its figures.
//!
//! The paper states "Zipfian, alpha 3" over four billion keys and gives four results (Figure 5). The literal law
//! cannot give these results. Therefore several laws are tried. Each is optimised in steps of which the paper's
//! amounts are multiples: a hundredth of the data, 10.24 GB, with at least one step of memory.

use super::{GB, Goal, Latencies, Limits, Model, Overheads, Planner, Prices, Split, Steps, Zipf};
use crate::mrc::{Curve, Point, Unit};

/// The paper's data in bytes: 2^32 values of 256 bytes, 1024 GB.
const DATA_BYTES: f64 = 1024.0 * GB;
/// The number of keys. The paper's "4 billion" is read as 2^32, which makes its "1 TB".
const KEYS: f64 = 4_294_967_296.0;
/// Size of a value in bytes.
const VALUE_BYTES: f64 = 256.0;
/// The required mean latency in microseconds.
const SLA_US: f64 = 500.0;
/// The budget in dollars.
const BUDGET: f64 = 1500.0;

/// The four results: the cost at the SLA and the latency at the budget, each without and with flash.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// Mean latency at the budget without flash, in microseconds.
    pub memory_us: Option<f64>,
    /// Mean latency at the budget with flash, in microseconds.
    pub two_levels_us: Option<f64>,
    /// Cost at the SLA without flash, in dollars.
    pub memory_cost: Option<f64>,
    /// Cost at the SLA with flash, in dollars.
    pub two_levels_cost: Option<f64>,
}

/// The paper's results.
pub const PAPER: Outcome = Outcome {
    memory_us: Some(460.0),
    two_levels_us: Some(114.0),
    memory_cost: Some(1331.0),
    two_levels_cost: Some(206.0),
};

impl Outcome {
    /// The four results in the order of the paper's Figure 5: latencies, then costs; without flash, then with flash.
    pub fn four(&self) -> [Option<f64>; 4] {
        [self.memory_us, self.two_levels_us, self.memory_cost, self.two_levels_cost]
    }

    /// The largest relative deviation from the paper's four results; infinite if one of them cannot be reached.
    pub fn deviation(&self) -> f64 {
        let apart = |(ours, paper): (Option<f64>, Option<f64>)| match (ours, paper) {
            (Some(ours), Some(paper)) => (ours / paper - 1.0).abs(),
            _ => f64::INFINITY,
        };
        self.four().into_iter().zip(PAPER.four()).map(apart).fold(0.0, f64::max)
    }
}

/// A law that the paper may have used, and its results.
#[derive(Clone, PartialEq, Debug)]
pub struct Hypothesis {
    /// The law in words.
    pub name: String,
    /// The results in the paper's steps.
    pub outcome: Outcome,
}

/// The model of the paper's Table 1: DRAM costs 10 and flash 0.68 dollars per GB; memcached takes 100 us, the flash
/// device 200 us, the back end 10 ms. There is no network latency and no overhead. Amounts are bought in steps of
/// 1/100 of the data, with at least one step of memory.
pub fn paper_model() -> Model {
    let step = DATA_BYTES / 100.0;
    Model {
        prices: Prices { dram_per_gb: 10.0, flash_per_gb: 0.68 },
        latencies: Latencies { network_us: 0.0, dram_us: 100.0, flash_us: 200.0, backend_us: 10_000.0 },
        overheads: Overheads::default(),
        compress_ratio: 1.0,
        item_bytes: VALUE_BYTES,
        limits: Limits { dram_bytes_min: step, ..Limits::default() },
        steps: Some(Steps { dram_bytes: step, flash_bytes: step }),
    }
}

/// The splits of the paper's example under the best-fitting law: Zipf's law with the exponent alpha - 1 = 2 over a
/// hundred equal parts of the data. The order is that of [`Outcome::four`].
///
/// # Errors
/// None in practice: the inputs of the planner are constants here.
pub fn reproduce() -> Result<(Planner, [Option<Split>; 4]), String> {
    let curve = zipf(2.0, Some(100))?;
    let planner = Planner::new(paper_model(), &curve)?;
    let splits = four_splits(&planner);
    Ok((planner, splits))
}

fn four_splits(planner: &Planner) -> [Option<Split>; 4] {
    let (budget, sla) = (Goal::Budget(BUDGET), Goal::Sla(SLA_US));
    [
        planner.best_of_memory_alone(budget),
        planner.best(budget),
        planner.best_of_memory_alone(sla),
        planner.best(sla),
    ]
}

fn outcome(curve: &Curve) -> Result<Outcome, String> {
    let splits = four_splits(&Planner::new(paper_model(), curve)?);
    let latency = |split: Option<Split>| split.map(|split| split.latency_us);
    let cost = |split: Option<Split>| split.map(|split| split.cost);
    Ok(Outcome {
        memory_us: latency(splits[0]),
        two_levels_us: latency(splits[1]),
        memory_cost: cost(splits[2]),
        two_levels_cost: cost(splits[3]),
    })
}

fn zipf(alpha: f64, parts: Option<u32>) -> Result<Curve, String> {
    Zipf { keys: KEYS, alpha, item_bytes: VALUE_BYTES, parts }.curve()
}

/// The curve for a miss ratio that depends on the cached share of the data, at multiples of 1/1000.
fn of_share(miss_ratio: impl Fn(f64) -> f64) -> Curve {
    let mut points = vec![Point { size: 0, miss_ratio: 1.0 }];
    for thousandth in 1..=1000 {
        let share = f64::from(thousandth) / 1000.0;
        let least = points[points.len() - 1].miss_ratio;
        let miss_ratio = miss_ratio(share).clamp(0.0, least);
        points.push(Point { size: (share * DATA_BYTES).round() as u64, miss_ratio });
    }
    Curve {
        unit: Unit::Bytes,
        method: "law".to_owned(),
        source: String::new(),
        requests: 0,
        cold_misses: 0,
        item_bytes_mean: VALUE_BYTES,
        penalty_us_mean: 0.0,
        points,
    }
}

/// All laws that are tried; those with a free parameter at its best value.
///
/// # Errors
/// None in practice: all inputs are constants here.
pub fn hypotheses() -> Result<Vec<Hypothesis>, String> {
    let mut all = Vec::new();
    let mut add = |name: &str, curve: Curve| -> Result<(), String> {
        all.push(Hypothesis { name: name.to_owned(), outcome: outcome(&curve)? });
        Ok(())
    };
    add("k^-3 over the keys: the text taken literally", zipf(3.0, None)?)?;
    add("k^-2 over the keys: alpha - 1", zipf(2.0, None)?)?;
    add("k^-1 over the keys: Zipf's own", zipf(1.0, None)?)?;
    add("k^-0.5 over the keys: Adamic and Huberman's rank exponent 1 / (alpha - 1)", zipf(0.5, None)?)?;
    let (s, curve) = best_of((50..=300).map(|hundredth| f64::from(hundredth) / 100.0), |s| zipf(s, None))?;
    add(&format!("k^-s over the keys, the best s from 0.5 to 3: {s:.2}"), curve)?;
    add("1 - H = (1 - share)^3", of_share(|share| libm::pow(1.0 - share, 3.0)))?;
    let (a, curve) = best_of((1..=60).map(f64::from), |a| Ok(of_share(|share| libm::pow(1.0 - share, a))))?;
    add(&format!("1 - H = (1 - share)^a, the best whole a to 60: {a}"), curve)?;
    let (a, curve) = best_of((1..=60).map(|tenth| f64::from(tenth) / 10.0), |a| {
        Ok(of_share(|share| libm::pow(share / 0.143_36, -a) * 0.036))
    })?;
    add(&format!("1 - H = c share^-a through 460 us, the best a from 0.1 to 6: {a:.1}"), curve)?;
    let (a, curve) = best_of((1..=60).map(|tenth| f64::from(tenth) / 10.0), |a| {
        Ok(of_share(|share| libm::pow(1.0 + 100.0 * share, -a)))
    })?;
    add(&format!("1 - H = (1 + 100 share)^-a, the best a from 0.1 to 6: {a:.1}"), curve)?;
    let (a, curve) = best_of((1..=500).map(f64::from), |a| Ok(of_share(|share| libm::exp(-a * share))))?;
    add(&format!("1 - H = exp(-a share), the best whole a to 500: {a}"), curve)?;
    add("k^-1 over 100 parts of the data", zipf(1.0, Some(100))?)?;
    add("k^-3 over 100 parts of the data", zipf(3.0, Some(100))?)?;
    for parts in [10, 50, 200, 1000] {
        let (s, curve) = best_of((5..=35).map(|tenth| f64::from(tenth) / 10.0), |s| zipf(s, Some(parts)))?;
        add(&format!("k^-s over {parts} parts, the best s from 0.5 to 3.5: {s:.1}"), curve)?;
    }
    let (s, curve) =
        best_of((50..=350).map(|hundredth| f64::from(hundredth) / 100.0), |s| zipf(s, Some(100)))?;
    add(&format!("k^-s over 100 parts, the best s from 0.5 to 3.5: {s:.2}"), curve)?;
    add("k^-2 over 100 parts: alpha - 1", zipf(2.0, Some(100))?)?;
    Ok(all)
}

/// The parameter whose results are closest to the paper's; the first among equals.
fn best_of(
    parameters: impl Iterator<Item = f64>,
    curve_of: impl Fn(f64) -> Result<Curve, String>,
) -> Result<(f64, Curve), String> {
    let mut best: Option<(f64, f64, Curve)> = None;
    for parameter in parameters {
        let curve = curve_of(parameter)?;
        let deviation = outcome(&curve)?.deviation();
        if best.as_ref().is_none_or(|(least, ..)| deviation < *least) {
            best = Some((deviation, parameter, curve));
        }
    }
    best.map(|(_, parameter, curve)| (parameter, curve)).ok_or_else(|| "no parameter".to_owned())
}
