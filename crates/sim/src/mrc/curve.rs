//! A miss-ratio curve, as it is drawn, saved and used for planning.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::report::Report;

/// The longest file that is read as a curve, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The unit of a cache size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Items.
    Objects,
    /// Bytes of key, value and the requested overhead per item.
    Bytes,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Objects => "objects",
            Unit::Bytes => "bytes",
        })
    }
}

/// One point of a curve.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Cache size in the unit of the curve.
    pub size: u64,
    /// Reads that miss in a cache of this size as a share of all counted reads, cold misses included.
    pub miss_ratio: f64,
}

/// The miss ratio by cache size. Between two points the curve is a straight line; after the last point it is
/// constant.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Curve {
    /// The unit of sizes.
    pub unit: Unit,
    /// How the curve was computed: exactly, or from which sample.
    pub method: String,
    /// The description of the trace or workload.
    pub source: String,
    /// Counted reads, the denominator of the miss ratio.
    pub requests: u64,
    /// First reads of a key, or first reads after its removal. They miss in a cache of any size. Estimated if
    /// sampled.
    pub cold_misses: u64,
    /// Mean size of an item (key, value, overhead) in bytes over the distinct keys; 0 if the source knows no sizes.
    pub item_bytes_mean: f64,
    /// Mean penalty of a miss in microseconds over the counted reads of known penalty; 0 if there are none.
    #[serde(default)]
    pub penalty_us_mean: f64,
    /// The points, by rising size and falling miss ratio.
    pub points: Vec<Point>,
}

/// The reason why a curve cannot be used, in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CurveError(pub String);

impl fmt::Display for CurveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CurveError {}

/// The distance between two curves in miss ratio.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Deviation {
    /// Mean absolute difference at 1000 sizes, evenly spaced up to the larger footprint.
    pub mean: f64,
    /// Mean absolute difference at 1000 sizes from 1/10,000 of the footprint up to the whole, evenly spaced by their
    /// logarithms. Small caches count as much as large ones.
    pub mean_log: f64,
    /// The largest of all these differences.
    pub largest: f64,
}

impl Curve {
    /// The share of reads that hit in a cache of `size`, interpolated between two points.
    pub fn hit_ratio(&self, size: f64) -> f64 {
        1.0 - self.miss_ratio(size)
    }

    /// The share of reads that miss in a cache of `size`, interpolated between two points.
    pub fn miss_ratio(&self, size: f64) -> f64 {
        let behind = self.points.partition_point(|point| point.size as f64 <= size);
        let Some(left) = behind.checked_sub(1).map(|at| self.points[at]) else { return 1.0 };
        let Some(right) = self.points.get(behind) else { return left.miss_ratio };
        let part = (size - left.size as f64) / (right.size - left.size) as f64;
        left.miss_ratio + part * (right.miss_ratio - left.miss_ratio)
    }

    /// The smallest size from which the curve is constant.
    pub fn footprint(&self) -> u64 {
        self.points.last().map_or(0, |point| point.size)
    }

    /// The share of reads that miss in a cache without limit.
    pub fn miss_ratio_least(&self) -> f64 {
        self.points.last().map_or(1.0, |point| point.miss_ratio)
    }

    /// Multiplies all sizes by `factor`, which is at least 1. This turns the curve of a sample into that of the
    /// population. Sizes are limited to 2^63.
    pub fn scale(&mut self, factor: f64) {
        for point in &mut self.points {
            point.size = ((point.size as f64 * factor.max(1.0)).round() as u64).min(1 << 63);
        }
        self.points.dedup_by_key(|point| point.size);
        self.source =
            if factor > 1.0 { format!("{}, times {factor}", self.source) } else { self.source.clone() };
    }

    /// The same curve with fewer points, nowhere further from it than `tolerance` in miss ratio.
    pub fn thinned(&self, tolerance: f64) -> Curve {
        let mut points: Vec<Point> = Vec::new();
        for (at, point) in self.points.iter().enumerate() {
            let Some(kept) = points.last().copied() else {
                points.push(*point);
                continue;
            };
            let end = at + 1 == self.points.len();
            if end || kept.miss_ratio - point.miss_ratio > tolerance {
                let before = self.points[at - 1];
                if before.size > kept.size {
                    points.push(before);
                }
                points.push(*point);
            }
        }
        Curve { points, ..self.clone() }
    }

    /// The distance of `other` from this curve.
    pub fn deviation(&self, other: &Curve) -> Deviation {
        const SIZES: u32 = 1000;
        let footprint = self.footprint().max(other.footprint()) as f64;
        let differences = |size_of: &dyn Fn(f64) -> f64| -> Vec<f64> {
            (1..=SIZES)
                .map(|at| size_of(f64::from(at) / f64::from(SIZES)))
                .map(|size| (self.miss_ratio(size) - other.miss_ratio(size)).abs())
                .collect()
        };
        let even = differences(&|part| footprint * part);
        let log = differences(&|part| footprint * libm::pow(10.0, 4.0 * (part - 1.0)));
        let mean = |all: &[f64]| all.iter().sum::<f64>() / f64::from(SIZES);
        Deviation {
            mean: mean(&even),
            mean_log: mean(&log),
            largest: even.iter().chain(&log).copied().fold(0.0, f64::max),
        }
    }

    /// The curve as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a curve from JSON: a curve saved alone, or the first one of an object's `curves`.
    ///
    /// # Errors
    /// Text that is not JSON or holds no curve, or points that are not ordered by rising size and falling miss ratio.
    pub fn from_json(text: &str) -> Result<Curve, CurveError> {
        let wrong = |error: serde_json::Error| CurveError(format!("no miss-ratio curve: {error}"));
        let value: serde_json::Value = serde_json::from_str(text).map_err(wrong)?;
        let value = value.get("curves").and_then(|all| all.get(0)).cloned().unwrap_or(value);
        let curve: Curve = serde_json::from_value(value).map_err(wrong)?;
        curve.check()?;
        Ok(curve)
    }

    /// Reads a curve from a file written by `larder mrc --json`.
    ///
    /// # Errors
    /// A file that cannot be read, and those of [`Curve::from_json`]. The text names the file.
    pub fn read(path: &Path) -> Result<Curve, CurveError> {
        let cannot = |error: &dyn fmt::Display| CurveError(format!("{}: {error}", path.display()));
        let mut text = String::new();
        let file = File::open(path).map_err(|error| cannot(&error))?;
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| cannot(&error))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(cannot(&"it is longer than 256 MiB: no curve is"));
        }
        Curve::from_json(&text).map_err(|error| cannot(&error))
    }

    fn check(&self) -> Result<(), CurveError> {
        if self.points.is_empty() {
            return Err(CurveError("no miss-ratio curve: it has no points".to_owned()));
        }
        if let Some(at) = self.points.iter().position(|point| !(0.0..=1.0).contains(&point.miss_ratio)) {
            return Err(CurveError(format!(
                "miss-ratio curve: the miss ratio of point {at} is not from 0 to 1"
            )));
        }
        let falls = |pair: &[Point]| pair[0].size < pair[1].size && pair[0].miss_ratio >= pair[1].miss_ratio;
        match self.points.windows(2).position(|pair| !falls(pair)) {
            None => Ok(()),
            Some(at) => Err(CurveError(format!(
                "miss-ratio curve: points {at} and {} are not by rising size and falling miss ratio",
                at + 1
            ))),
        }
    }
}

/// A report and its complete curves as one JSON object with the members `report` and `curves`, readable by
/// [`Curve::from_json`].
pub fn to_json(report: &Report, curves: &[Curve]) -> String {
    serde_json::to_string(&serde_json::json!({ "report": report, "curves": curves })).unwrap_or_default()
}
