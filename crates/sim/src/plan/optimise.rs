//! Finds the cheapest and the fastest split, exactly.
//!
//! Let `x` be the bytes of items in memory, `f` those on flash and `y = x + f`. The cost is linear in `x` and `f`.
//! The latency is linear in `m(x)` and `m(y)`, and the miss ratio `m` is a straight line between neighbouring points
//! of the curve. Within a rectangle between neighbouring points the problem is therefore a linear programme in two
//! variables. Its optimum lies where two of these lines cross: `x` at a point of the curve, `y` at a point of the
//! curve, a limit of the amounts, or the required latency or cost. So the search follows each line `x` = point, `y` =
//! point and limit, and examines its ends and crossings. The only assumption about the curve is that it falls.

use super::{GB, Goal, Model, Split, Steps};
use crate::mrc::{Curve, Unit};

/// Relative error allowed when a split is compared with a bound.
const SLACK: f64 = 1e-9;
/// Maximum number of splits that are tried where amounts come in steps.
const STEPPED_SPLITS_MAX: f64 = 2e6;

/// A model over a curve.
pub struct Planner {
    model: Model,
    curve: Curve,
    /// All splits that can be bought, where amounts come in steps.
    stepped: Vec<Split>,
}

/// A straight line in the plane of (items in memory, items on flash), with one parameter.
struct Line {
    /// (x, f) at parameter 0.
    from: (f64, f64),
    /// Change of (x, f) per unit of the parameter.
    by: (f64, f64),
    /// The range of the parameter.
    range: (f64, f64),
}

impl Line {
    fn at(&self, t: f64) -> (f64, f64) {
        (self.from.0 + t * self.by.0, self.from.1 + t * self.by.1)
    }
}

impl Planner {
    /// Plans with `model` over a curve of bytes, or over a curve of objects of the model's mean size.
    ///
    /// # Errors
    /// Numbers of the model out of range, or steps so small that there are more than two million splits.
    pub fn new(model: Model, curve: &Curve) -> Result<Planner, String> {
        model.check()?;
        let mut curve = curve.clone();
        if curve.unit == Unit::Objects {
            for point in &mut curve.points {
                point.size = (point.size as f64 * model.item_bytes).round() as u64;
            }
            curve.points.dedup_by_key(|point| point.size);
            curve.unit = Unit::Bytes;
        }
        let mut planner = Planner { model, curve, stepped: Vec::new() };
        if let Some(steps) = model.steps {
            planner.stepped = planner.all_stepped(steps)?;
        }
        Ok(planner)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The curve, in bytes.
    pub fn curve(&self) -> &Curve {
        &self.curve
    }

    /// The performance of these amounts of memory and flash; `None` if the index of the flash needs more memory than
    /// that. Amounts beyond what holds all items have no effect.
    pub fn split(&self, dram_bytes: f64, flash_bytes: f64) -> Option<Split> {
        let f = flash_bytes / self.model.flash_factor();
        let x = (dram_bytes - f * self.model.index_factor()) / self.model.dram_factor();
        (x >= 0.0).then(|| self.split_of_items(x, f))
    }

    fn split_of_items(&self, x: f64, f: f64) -> Split {
        let model = &self.model;
        let dram_bytes = x * model.dram_factor() + f * model.index_factor();
        let flash_bytes = f * model.flash_factor();
        let hit_ratio_dram = self.curve.hit_ratio(x);
        let hit_ratio = self.curve.hit_ratio(x + f);
        let flash_us = if f > 0.0 { model.latencies.flash_us * (1.0 - hit_ratio_dram) } else { 0.0 };
        Split {
            dram_bytes,
            flash_bytes,
            hit_ratio_dram,
            hit_ratio,
            cost: (dram_bytes * model.prices.dram_per_gb + flash_bytes * model.prices.flash_per_gb) / GB,
            latency_us: model.base_us() + flash_us + (1.0 - hit_ratio) * model.backend_us(),
        }
    }

    /// The best split for a goal; `None` if the goal cannot be reached.
    pub fn best(&self, goal: Goal) -> Option<Split> {
        let mut best = Best { goal, split: None };
        if self.model.steps.is_some() {
            self.stepped.iter().for_each(|split| best.consider(*split));
            return best.split;
        }
        self.memory_alone(&mut best);
        for point in &self.curve.points {
            self.along_x(point.size as f64, &mut best);
            self.along_y(point.size as f64, &mut best);
        }
        for line in self.limit_lines() {
            self.along(&line, &mut best);
        }
        best.split
    }

    /// The best split without flash; `None` if the goal cannot be reached without flash.
    pub fn best_of_memory_alone(&self, goal: Goal) -> Option<Split> {
        let mut best = Best { goal, split: None };
        if self.model.steps.is_some() {
            self.stepped
                .iter()
                .filter(|split| split.flash_bytes == 0.0)
                .for_each(|split| best.consider(*split));
        } else {
            self.memory_alone(&mut best);
        }
        best.split
    }

    /// The smallest size whose miss ratio is at most this.
    fn size_for(&self, miss_ratio: f64) -> Option<f64> {
        let points = &self.curve.points;
        let at = points.partition_point(|point| point.miss_ratio > miss_ratio);
        let right = points.get(at)?;
        let Some(left) = at.checked_sub(1).map(|before| points[before]) else { return Some(0.0) };
        let part = (left.miss_ratio - miss_ratio) / (left.miss_ratio - right.miss_ratio);
        Some(left.size as f64 + part * (right.size - left.size) as f64)
    }

    /// Cost of a byte of items in memory, and on flash.
    fn cost_factors(&self) -> (f64, f64) {
        let model = &self.model;
        let dram = model.prices.dram_per_gb / GB;
        let flash = model.prices.flash_per_gb / GB;
        (dram * model.dram_factor(), dram * model.index_factor() + flash * model.flash_factor())
    }

    fn memory_alone(&self, best: &mut Best) {
        let model = &self.model;
        let most = model.limits.dram_bytes_max / model.dram_factor();
        let least = model.limits.dram_bytes_min / model.dram_factor();
        let x = match best.goal {
            Goal::Sla(sla_us) => match self.size_for((sla_us - model.base_us()) / model.backend_us()) {
                Some(x) => x,
                None => return,
            },
            Goal::Budget(budget) => {
                (budget / self.cost_factors().0).min(self.curve.footprint() as f64).min(most)
            }
        };
        self.consider(x.max(least), 0.0, best);
    }

    fn consider(&self, x: f64, f: f64, best: &mut Best) {
        if !(x >= 0.0 && f >= 0.0) {
            return;
        }
        let split = self.split_of_items(x, f);
        if self.may_be_bought(&split) {
            best.consider(split);
        }
    }

    fn may_be_bought(&self, split: &Split) -> bool {
        let limits = &self.model.limits;
        split.dram_bytes >= limits.dram_bytes_min * (1.0 - SLACK)
            && split.dram_bytes <= limits.dram_bytes_max * (1.0 + SLACK)
            && split.flash_bytes <= limits.flash_bytes_max * (1.0 + SLACK)
    }

    /// The range of bytes of items on flash that the limits allow with `x` bytes in memory.
    fn flash_range(&self, x: f64) -> (f64, f64) {
        let (model, limits) = (&self.model, &self.model.limits);
        let most = limits.flash_bytes_max / model.flash_factor();
        let dram = x * model.dram_factor();
        if model.index_factor() == 0.0 {
            return (0.0, most);
        }
        let of_index = |dram_bytes: f64| (dram_bytes - dram) / model.index_factor();
        (of_index(limits.dram_bytes_min).max(0.0), of_index(limits.dram_bytes_max).min(most))
    }

    fn along_x(&self, x: f64, best: &mut Best) {
        let model = &self.model;
        let (least, most) = self.flash_range(x);
        let f = match best.goal {
            Goal::Sla(sla_us) => {
                let rest = sla_us - model.base_us() - model.latencies.flash_us * self.curve.miss_ratio(x);
                self.size_for(rest / model.backend_us()).map(|y| (y - x).max(least))
            }
            Goal::Budget(budget) => {
                let (of_memory, of_flash) = self.cost_factors();
                let useful = self.curve.footprint() as f64 - x;
                let affordable = (budget - of_memory * x) / of_flash;
                Some(affordable.min(useful).max(least).min(most))
            }
        };
        if let Some(f) = f {
            self.consider(x, f, best);
        }
    }

    fn along_y(&self, y: f64, best: &mut Best) {
        let (model, limits) = (&self.model, &self.model.limits);
        let apart = model.dram_factor() - model.index_factor();
        let of_memory = |dram_bytes: f64| (dram_bytes - y * model.index_factor()) / apart;
        let least =
            of_memory(limits.dram_bytes_min).max(y - limits.flash_bytes_max / model.flash_factor()).max(0.0);
        let most = of_memory(limits.dram_bytes_max).min(y);
        let crossing = match best.goal {
            Goal::Sla(sla_us) => {
                let rest = sla_us - model.base_us() - model.backend_us() * self.curve.miss_ratio(y);
                self.size_for(rest / model.latencies.flash_us)
            }
            Goal::Budget(budget) => {
                let (of_memory, of_flash) = self.cost_factors();
                Some((budget - of_flash * y) / (of_memory - of_flash))
            }
        };
        for x in [Some(least), Some(most), crossing.map(|x| x.max(least).min(most))].into_iter().flatten() {
            self.consider(x, y - x, best);
        }
    }

    /// The limits as lines, where there are any.
    fn limit_lines(&self) -> Vec<Line> {
        let (model, limits) = (&self.model, &self.model.limits);
        let footprint = self.curve.footprint() as f64;
        let most_f = (limits.flash_bytes_max / model.flash_factor()).min(footprint);
        let mut lines = Vec::new();
        if limits.flash_bytes_max.is_finite() {
            lines.push(Line { from: (0.0, most_f), by: (1.0, 0.0), range: (0.0, footprint) });
        }
        for dram_bytes in [limits.dram_bytes_min, limits.dram_bytes_max] {
            if dram_bytes > 0.0 && dram_bytes.is_finite() {
                let from = (dram_bytes / model.dram_factor(), 0.0);
                let slope = -model.index_factor() / model.dram_factor();
                let most = if slope < 0.0 { most_f.min(dram_bytes / model.index_factor()) } else { most_f };
                lines.push(Line { from, by: (slope, 1.0), range: (0.0, most) });
            }
        }
        lines
    }

    fn along(&self, line: &Line, best: &mut Best) {
        let (start, end) = line.range;
        let mut corners = vec![start, end];
        let down = line.by.0 + line.by.1;
        for point in &self.curve.points {
            let size = point.size as f64;
            if line.by.0 != 0.0 {
                corners.push((size - line.from.0) / line.by.0);
            }
            corners.push((size - line.from.0 - line.from.1) / down);
        }
        corners.retain(|t| (start..=end).contains(t));
        corners.sort_by(f64::total_cmp);
        let excess: Vec<f64> = corners.iter().map(|t| self.excess(line.at(*t), best.goal)).collect();
        let mut tried = corners.clone();
        for (ts, values) in corners.windows(2).zip(excess.windows(2)) {
            if (values[0] > 0.0) != (values[1] > 0.0) {
                tried.push(ts[0] + (ts[1] - ts[0]) * values[0] / (values[0] - values[1]));
            }
        }
        for t in tried {
            let (x, f) = line.at(t);
            self.consider(x.max(0.0), f, best);
        }
    }

    /// How far a split exceeds the bound of the goal. The latency of looking on flash is included even where there is
    /// no flash, so that this is a straight line between two corners.
    fn excess(&self, (x, f): (f64, f64), goal: Goal) -> f64 {
        let model = &self.model;
        match goal {
            Goal::Sla(sla_us) => {
                let flash_us = model.latencies.flash_us * self.curve.miss_ratio(x);
                model.base_us() + flash_us + self.curve.miss_ratio(x + f) * model.backend_us() - sla_us
            }
            Goal::Budget(budget) => {
                let (of_memory, of_flash) = self.cost_factors();
                of_memory * x + of_flash * f - budget
            }
        }
    }

    fn all_stepped(&self, steps: Steps) -> Result<Vec<Split>, String> {
        let model = &self.model;
        let footprint = self.curve.footprint() as f64;
        let useful = (footprint * model.dram_factor()).max(model.limits.dram_bytes_min);
        let dram_most = useful.min(model.limits.dram_bytes_max);
        let flash_most = (footprint * model.flash_factor()).min(model.limits.flash_bytes_max);
        let drams = (dram_most / steps.dram_bytes - SLACK).ceil().max(0.0);
        let flashes = (flash_most / steps.flash_bytes - SLACK).ceil().max(0.0);
        if (drams + 1.0) * (flashes + 1.0) > STEPPED_SPLITS_MAX {
            return Err("the steps are too small: there are more than two million splits".to_owned());
        }
        let mut splits = Vec::new();
        for dram in 0..=drams as u64 {
            for flash in 0..=flashes as u64 {
                let split = self.split(dram as f64 * steps.dram_bytes, flash as f64 * steps.flash_bytes);
                splits.extend(split.filter(|split| self.may_be_bought(split)));
            }
        }
        Ok(splits)
    }
}

/// The best split so far.
struct Best {
    goal: Goal,
    split: Option<Split>,
}

impl Best {
    fn consider(&mut self, split: Split) {
        let (bounded, bound) = match self.goal {
            Goal::Sla(sla_us) => (split.latency_us, sla_us),
            Goal::Budget(budget) => (split.cost, budget),
        };
        if bounded > bound * (1.0 + SLACK) {
            return;
        }
        let order = |split: &Split| match self.goal {
            Goal::Sla(_) => (split.cost, split.latency_us),
            Goal::Budget(_) => (split.latency_us, split.cost),
        };
        if self.split.as_ref().is_none_or(|best| order(&split) < order(best)) {
            self.split = Some(split);
        }
    }
}
