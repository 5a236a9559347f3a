//! How unevenly the requests are spread over the keys.

/// A fit of Zipf's law: the key of rank r gets a share proportional to r^-theta.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zipf {
    /// The exponent.
    pub theta: f64,
    /// The coefficient of determination of the straight line in logarithmic coordinates, at most 1.
    pub r_squared: f64,
}

/// Ranks per power of ten at which the law is fitted and drawn.
const RANKS_PER_DECADE: f64 = 12.0;

/// A variance of ln(requests) below this is rounding: all keys are requested equally often.
const EVEN: f64 = 1e-20;

/// Minimum number of keys for a fit.
const KEYS_MIN: usize = 10;

impl Zipf {
    /// Fits a line through (ln rank, ln requests) by least squares, at ranks evenly spaced by their logarithm. Only
    /// keys with at least two requests count, because the tail of single requests is flat under any law. `counts`
    /// must be falling.
    pub(super) fn fit(counts: &[u32]) -> Option<Zipf> {
        let repeated = counts.partition_point(|&count| count >= 2);
        if repeated < KEYS_MIN {
            return None;
        }
        let points: Vec<(f64, f64)> = log_ranks(repeated)
            .map(|rank| (libm::log(rank as f64), libm::log(f64::from(counts[rank - 1]))))
            .collect();
        let n = points.len() as f64;
        let (mean_x, mean_y) = (mean(points.iter().map(|p| p.0), n), mean(points.iter().map(|p| p.1), n));
        let xx: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.0 - mean_x)).sum();
        let yy: f64 = points.iter().map(|p| (p.1 - mean_y) * (p.1 - mean_y)).sum();
        let xy: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
        if xx == 0.0 {
            return None;
        }
        if yy <= EVEN * n {
            return Some(Zipf { theta: 0.0, r_squared: 1.0 });
        }
        Some(Zipf { theta: -xy / xx, r_squared: xy * xy / (xx * yy) })
    }
}

fn mean(values: impl Iterator<Item = f64>, n: f64) -> f64 {
    values.sum::<f64>() / n
}

/// Ranks from 1 to `last`, evenly spaced by logarithm, without repetitions.
pub(super) fn log_ranks(last: usize) -> impl Iterator<Item = usize> {
    let mut before = 0;
    let steps = (libm::log10(last.max(1) as f64) * RANKS_PER_DECADE) as usize + 1;
    (0..=steps).filter_map(move |step| {
        let rank = (libm::round(libm::exp10(step as f64 / RANKS_PER_DECADE)) as usize).min(last);
        let new = rank > before;
        before = before.max(rank);
        new.then_some(rank)
    })
}

/// The share of all requests that go to the most popular keys, of which `share_of_keys` is the share (at least one
/// key). `counts` must be falling.
pub(super) fn top_share(counts: &[u32], share_of_keys: f64) -> f64 {
    let top = libm::ceil(counts.len() as f64 * share_of_keys) as usize;
    let sum = |counts: &[u32]| counts.iter().map(|&count| u64::from(count)).sum::<u64>();
    sum(&counts[..top.min(counts.len())]) as f64 / sum(counts).max(1) as f64
}
