//! The layout of an axis: the range of its values, its marks, and the position of a value.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use super::data::Scale;
use super::number::{short, size};

/// Maximum number of marks of an axis.
const MARKS_MAX: usize = 12;

/// A laid-out axis. It maps values to positions from 0 to 1; the drawing library sees only positions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Division {
    scale: Scale,
    /// Lowest and highest value; on an axis that is not linear their powers of ten.
    from: f64,
    to: f64,
    /// Positions and labels of the marks.
    marks: Vec<(f64, String)>,
}

/// How far an axis extends beyond its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Not at all.
    Tight,
    /// To the next marks.
    Round,
    /// To the next marks, and to zero.
    Zero,
    /// By half the smallest step between values on both sides, which leaves room for bars.
    Bars,
}

/// Whether a value can be drawn on an axis.
pub(super) fn is_drawable(scale: Scale, value: f64) -> bool {
    value.is_finite() && (scale == Scale::Linear || value > 0.0)
}

impl Division {
    /// Spans all drawable `values`, with about `marks` marks.
    pub(super) fn new(
        scale: Scale,
        values: impl Iterator<Item = f64>,
        reach: Reach,
        marks: usize,
    ) -> Division {
        let mut drawable: Vec<f64> =
            values.filter(|&v| is_drawable(scale, v)).map(|v| inner(scale, v)).collect();
        drawable.sort_by(f64::total_cmp);
        drawable.dedup();
        let (mut low, mut high) = match drawable[..] {
            [first, .., last] => (first, last),
            [only] => (only, only),
            [] => (0.0, 1.0),
        };
        if reach == Reach::Bars {
            let steps = drawable.windows(2).map(|pair| pair[1] - pair[0]);
            let half = steps.fold(f64::INFINITY, f64::min) / 2.0;
            let half = if half.is_finite() { half } else { 0.5 };
            (low, high) = (low - half, high + half);
        }
        let marks = marks.clamp(2, MARKS_MAX);
        match scale {
            Scale::Linear => linear(low, high, reach, marks),
            Scale::Log => logarithmic(low, high, marks),
            Scale::Bytes => binary(low, high, marks),
        }
    }

    /// The position of a value, from 0 to 1. Values beyond an end are at that end.
    pub(super) fn position(&self, value: f64) -> f64 {
        let value = if is_drawable(self.scale, value) { inner(self.scale, value) } else { self.from };
        // Halved, because the span of the widest numbers would be infinite.
        ((value / 2.0 - self.from / 2.0) / (self.to / 2.0 - self.from / 2.0)).clamp(0.0, 1.0)
    }

    /// The label of the mark at a position.
    pub(super) fn label(&self, position: f64) -> String {
        let mark = self.marks.iter().find(|mark| (mark.0 - position).abs() < 1e-9);
        mark.map(|mark| mark.1.clone()).unwrap_or_default()
    }

    /// The number of characters of the longest label.
    pub(super) fn label_chars_max(&self) -> usize {
        self.marks.iter().map(|mark| mark.1.chars().count()).max().unwrap_or(0)
    }

    /// The division, and the values at both ends.
    pub(super) fn ends(&self) -> (Scale, f64, f64) {
        (self.scale, outer(self.scale, self.from), outer(self.scale, self.to))
    }

    fn laid_out(scale: Scale, from: f64, to: f64, marks: Vec<f64>) -> Division {
        let mut axis = Division { scale, from, to, marks: Vec::new() };
        let label = if scale == Scale::Bytes { size } else { short };
        axis.marks = marks.iter().map(|&value| (axis.position(value), label(value))).collect();
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
    if scale == Scale::Linear { value } else { libm::log10(value) }
}

fn outer(scale: Scale, value: f64) -> f64 {
    if scale == Scale::Linear { value } else { libm::pow(10.0, value) }
}

/// The smallest of 1, 2 or 5 times a power of ten that is not below `least`.
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
    // Below this span, neighbouring values differ only by rounding.
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

/// Marks are powers of two: each one, or one in 2, 5, 10 or a multiple of 10.
fn binary(low: f64, high: f64, marks: usize) -> Division {
    let (low, high) = if high - low < 1e-6 { (low - 0.5, high + 0.5) } else { (low, high) };
    let power = libm::log10(2.0);
    let least = (high - low) / power / marks as f64;
    let step = [1.0, 2.0, 5.0].into_iter().find(|step| *step >= least);
    let step = step.unwrap_or(10.0 * libm::ceil(least / 10.0)) * power;
    let first = libm::ceil(low / step - 1e-9);
    let count = (libm::floor(high / step + 1e-9) - first + 1.0).clamp(0.0, 4.0 * MARKS_MAX as f64) as usize;
    let all = (0..count).map(|n| libm::exp2(libm::round((first + n as f64) * step / power)));
    let mut marks: Vec<f64> = all.filter(|value| value.is_normal()).collect();
    if marks.len() < 2 {
        marks = vec![libm::pow(10.0, low), libm::pow(10.0, high)];
        marks.retain(|value| value.is_normal());
    }
    Division::laid_out(Scale::Bytes, low, high, marks)
}
