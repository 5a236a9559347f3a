//! Popularity given by a law instead of a trace.

use crate::mrc::{Curve, Point, Unit};

/// Zipf's law: the key of rank k is read with a probability proportional to k^-alpha, independently of earlier reads.
/// The cache is ideal: it holds the most popular keys. (LRU needs more memory for the same hit ratio.)
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Zipf {
    /// The number of keys.
    pub keys: f64,
    /// The exponent of the rank.
    pub alpha: f64,
    /// Size of an item in bytes.
    pub item_bytes: f64,
    /// If given, the law ranks this many equal parts of the keys instead of single keys; the keys of a part are
    /// equally popular.
    pub parts: Option<u32>,
}

impl Zipf {
    /// The miss-ratio curve in bytes, exact at each point. There is a point at each of the first 1024 ranks; further
    /// points are 1 % apart.
    ///
    /// # Errors
    /// Parameters that are not above 0, or more than 2^63 bytes.
    pub fn curve(&self) -> Result<Curve, String> {
        let ranks = self.parts.map_or(self.keys, f64::from);
        if !(self.keys >= 1.0 && ranks >= 1.0 && ranks <= self.keys && self.item_bytes > 0.0) {
            return Err("a Zipf law needs keys and a size above 0, and no more parts than keys".to_owned());
        }
        if !(self.alpha > 0.0 && self.alpha <= 20.0) {
            return Err(format!("alpha must be above 0 and at most 20, not {}", self.alpha));
        }
        if self.keys * self.item_bytes > 9e18 {
            return Err("a Zipf law of more than 2^63 octets".to_owned());
        }
        let bytes = self.keys * self.item_bytes / ranks;
        let sums = PowerSums::new(self.alpha);
        let all = sums.tail(1.0, ranks);
        let mut points = vec![Point { size: 0, miss_ratio: 1.0 }];
        let mut rank = 0.0;
        while rank < ranks {
            rank = if rank < 1024.0 { rank + 1.0 } else { (rank * 1.01).floor() };
            rank = rank.min(ranks);
            let left = if rank < ranks { sums.tail(rank + 1.0, ranks) / all } else { 0.0 };
            points.push(Point { size: (rank * bytes).round() as u64, miss_ratio: left.clamp(0.0, 1.0) });
        }
        points.dedup_by_key(|point| point.size);
        Ok(Curve {
            unit: Unit::Bytes,
            method: "Zipf's law, the most popular keys are cached".to_owned(),
            source: self.to_string(),
            requests: 0,
            cold_misses: 0,
            item_bytes_mean: self.item_bytes,
            penalty_us_mean: 0.0,
            points,
        })
    }
}

impl std::fmt::Display for Zipf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "zipf:keys={},alpha={},value={}", self.keys, self.alpha, self.item_bytes)?;
        self.parts.map_or(Ok(()), |parts| write!(f, ",parts={parts}"))
    }
}

/// Sums of k^-s.
pub(super) struct PowerSums {
    s: f64,
}

impl PowerSums {
    /// Terms before this one are added one by one.
    const ONE_BY_ONE: f64 = 64.0;

    pub(super) fn new(s: f64) -> PowerSums {
        PowerSums { s }
    }

    /// The sum over k from `first` to `last`, both whole numbers. Small terms are added one by one; the rest uses the
    /// Euler-Maclaurin formula with two correction terms (relative error below 1e-9).
    pub(super) fn tail(&self, first: f64, last: f64) -> f64 {
        let mut sum = 0.0;
        let mut k = first;
        while k <= last && k < Self::ONE_BY_ONE {
            sum += libm::pow(k, -self.s);
            k += 1.0;
        }
        if k > last {
            return sum;
        }
        let term = |k: f64| libm::pow(k, -self.s);
        let integral = if self.s == 1.0 {
            libm::log(last / k)
        } else {
            // k^(1-s) ((last/k)^(1-s) - 1) / (1-s), without cancellation for s near 1.
            let power = 1.0 - self.s;
            libm::pow(k, power) * libm::expm1(power * libm::log(last / k)) / power
        };
        let derivative = |k: f64| -self.s * libm::pow(k, -self.s - 1.0);
        sum + integral + (term(k) + term(last)) / 2.0 + (derivative(last) - derivative(k)) / 12.0
    }
}
