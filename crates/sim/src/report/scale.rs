//! An axis: which values it spans, where its marks are, and where on it a value lies.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use super::data::Scale;
use super::number::short;

/// Marks that an axis may carry, whatever room it has.
const MARKS_MAX: usize = 12;

/// An axis that is laid out. Values become positions from 0 to 1; the drawing library sees positions alone.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Division {
    scale: Scale,
    /// Lowest and highest value, as they are on a linear axis, as powers of ten on a logarithmic one.
    from: f64,
    to: f64,
    /// Positions of the marks, with their labels.
    marks: Vec<(f64, String)>,
}

/// How far an axis reaches beyond its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// To the values themselves.
    Tight,
    /// To the next marks.
    Round,
    /// To the next marks, and to zero.
    Zero,
    /// Half the smallest step between values further on both sides: room for bars.
    Bars,
}

/// What a value must be to have a place on an axis.
pub(super) fn has_place(scale: Scale, value: f64) -> bool {
    value.is_finite() && (scale == Scale::Linear || value > 0.0)
}

impl Division {
    /// Spans all `values` that have a place. `marks`: about how many it carries.
    pub(super) fn new(
        scale: Scale,
        values: impl Iterator<Item = f64>,
        reach: Reach,
        marks: usize,
    ) -> Division {
        let mut placed: Vec<f64> = values.filter(|&v| has_place(scale, v)).map(|v| inner(scale, v)).collect();
        placed.sort_by(f64::total_cmp);
        placed.dedup();
        let (mut low, mut high) = match placed[..] {
            [first, .., last] => (first, last),
            [only] => (only, only),
            [] => (0.0, 1.0),
        };
        if reach == Reach::Bars {
            let steps = placed.windows(2).map(|pair| pair[1] - pair[0]);
            let half = steps.fold(f64::INFINITY, f64::min) / 2.0;
            let half = if half.is_finite() { half } else { 0.5 };
            (low, high) = (low - half, high + half);
        }
        let marks = marks.clamp(2, MARKS_MAX);
        match scale {
            Scale::Linear => linear(low, high, reach, marks),
            Scale::Log => logarithmic(low, high, marks),
        }
    }

    /// Where a value lies, from 0 to 1; values beyond the ends lie at the ends.
    pub(super) fn position(&self, value: f64) -> f64 {
        let value = if has_place(self.scale, value) { inner(self.scale, value) } else { self.from };
        // Halves: the span of the widest numbers would be infinite.
        ((value / 2.0 - self.from / 2.0) / (self.to / 2.0 - self.from / 2.0)).clamp(0.0, 1.0)
    }

    /// The label of the mark at a position.
    pub(super) fn label(&self, position: f64) -> String {
        let mark = self.marks.iter().find(|mark| (mark.0 - position).abs() < 1e-9);
        mark.map(|mark| mark.1.clone()).unwrap_or_default()
    }

    /// How many characters the longest label has.
    pub(super) fn label_chars_max(&self) -> usize {
        self.marks.iter().map(|mark| mark.1.chars().count()).max().unwrap_or(0)
    }

    /// How it is divided, and the values at its ends.
    pub(super) fn ends(&self) -> (Scale, f64, f64) {
        (self.scale, outer(self.scale, self.from), outer(self.scale, self.to))
    }

    fn laid_out(scale: Scale, from: f64, to: f64, marks: Vec<f64>) -> Division {
        let mut axis = Division { scale, from, to, marks: Vec::new() };
        axis.marks = marks.iter().map(|&value| (axis.position(value), short(value))).collect();
        axis
    }
}

impl Ranged for Division {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, position: &f64, limit: (i32, i32)) -> i32 {
        let span = f64::from(limit.1) - f64::from(limit.0);
        (f64::from(limit.0) + position * span).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.iter().map(|mark| mark.0).collect()
    }

    fn range(&self) -> Range<f64> {
        0.0..1.0
    }
}

fn inner(scale: Scale, value: f64) -> f64 {
    if scale == Scale::Log { libm::log10(value) } else { value }
}

fn outer(scale: Scale, value: f64) -> f64 {
    if scale == Scale::Log { libm::pow(10.0, value) } else { value }
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = libm::pow(10.0, libm::floor(libm::log10(least)));
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

fn linear(low: f64, high: f64, reach: Reach, marks: usize) -> Division {
    let near_zero = low > 0.0 && low <= 0.6 * high && reach != Reach::Bars;
    let low = if (reach == Reach::Zero && low > 0.0) || near_zero { 0.0 } else { low };
    let high = if reach == Reach::Zero && high < 0.0 { 0.0 } else { high };
    let (low, high) = (low.clamp(-1e307, 1e307), high.clamp(-1e307, 1e307));
    // Below this span neighbours differ by rounding alone.
    let least = (low.abs().max(high.abs()) * 1e-9).max(1e-290);
    let (low, high) = match (low, high) {
        (0.0, high) if high < least => (0.0, 1.0),
        (low, high) if high - low < least => (low - low.abs() / 10.0, high + high.abs() / 10.0),
        both => both,
    };
    let step = round_step((high - low) / marks as f64);
    let (mut first, mut last) = (libm::floor(low / step + 1e-9), libm::ceil(high / step - 1e-9));
    let ends = (first * step, last * step);
    let ends = if matches!(reach, Reach::Tight | Reach::Bars) { (low, high) } else { ends };
    if ends == (low, high) {
        (first, last) = (libm::ceil(low / step - 1e-9), libm::floor(high / step + 1e-9));
    }
    let count = (last - first).clamp(0.0, 4.0 * MARKS_MAX as f64) as usize;
    let marks = (0..=count).map(|n| (first + n as f64) * step).collect();
    Division::laid_out(Scale::Linear, ends.0, ends.1, marks)
}

fn logarithmic(low: f64, high: f64, marks: usize) -> Division {
    let (low, high) = if high - low < 1e-6 { (low - 0.5, high + 0.5) } else { (low, high) };
    let every = libm::ceil((high - low) / marks as f64).max(1.0);
    let factors: &[f64] = if every > 1.0 || high - low > marks as f64 / 2.0 {
        &[1.0]
    } else if high - low > marks as f64 / 3.0 {
        &[1.0, 3.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let decades = libm::floor(low) as i32..=libm::ceil(high) as i32;
    let wanted = |decade: &i32| decade.rem_euclid(every as i32) == 0;
    let all =
        decades.filter(wanted).flat_map(|d| factors.iter().map(move |f| f * libm::pow(10.0, f64::from(d))));
    let inside = |value: &f64| value.is_normal() && (low - 1e-9..=high + 1e-9).contains(&libm::log10(*value));
    let marks: Vec<f64> = all.filter(inside).take(4 * MARKS_MAX).collect();
    Division::laid_out(Scale::Log, low, high, marks)
}
