//! Zipf's law over any number of ranks, exactly, without a table of all of them.

use super::alias::Alias;
use super::rng::Rng;

/// Ranks up to here have an outcome of their own.
const SINGLE_RANKS: u64 = 1024;
/// A run of ranks is this part of its first rank wide.
const RUN_PART: u64 = 32;

/// Neighbouring ranks under one step of the envelope.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The first rank, from 1.
    first: u64,
    /// How many.
    width: u64,
    /// Below this a rank is taken without looking at its probability: the last rank would be.
    taken_below: u64,
}

/// Rank r of 1 to n with a probability proportional to 1 / r^theta.
///
/// Rejection from a staircase: the first ranks are outcomes of their own, the others lie in runs whose every rank is
/// given the probability of the run's first. An alias table picks a step, a uniform draw the rank in it, and the rank is
/// taken with the ratio of its true probability to the step's height. The last rank of a run bounds that ratio from
/// below, so that only about one draw in forty needs a power. The law is exact but for the rounding of 64 bits; set-up
/// grows with the logarithm of n. (Hormann and Derflinger's rejection-inversion, ACM TOMACS 1996, does the same with an
/// integral for an envelope, at the price of a logarithm and an exponential per draw.)
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    theta: f64,
    steps: Alias,
    runs: Vec<Run>,
}

impl Zipf {
    /// Over `n` ranks, at least one.
    pub(super) fn new(n: u64, theta: f64) -> Zipf {
        let mut runs = Vec::new();
        let mut first = 1;
        while first <= n {
            let width = if first <= SINGLE_RANKS { 1 } else { (first / RUN_PART).min(n - first + 1) };
            let taken_below = match width {
                1 => u64::MAX,
                _ => {
                    let lowest = relative(first + width - 1, first, theta);
                    super::rng::threshold(lowest * (1.0 - 1e-9))
                }
            };
            runs.push(Run { first, width, taken_below });
            first += width;
        }
        let weights: Vec<f64> =
            runs.iter().map(|run| relative(run.first, 1, theta) * run.width as f64).collect();
        Zipf { theta, steps: Alias::new(&weights), runs }
    }

    /// A rank, from 0.
    #[inline]
    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let run = self.runs[self.steps.pick(rng.draw())];
            let product = rng.draw() as u128 * run.width as u128;
            let rank = run.first + (product >> 64) as u64;
            let lot = product as u64;
            if lot <= run.taken_below || self.taken(rank, run.first, lot) {
                return rank - 1;
            }
        }
    }

    /// Whether the lot falls below the rank's part of the step's height.
    #[cold]
    fn taken(&self, rank: u64, first: u64, lot: u64) -> bool {
        lot < super::rng::threshold(relative(rank, first, self.theta))
    }
}

/// The probability of a rank, that of another being 1.
fn relative(rank: u64, to: u64, theta: f64) -> f64 {
    libm::pow(rank as f64 / to as f64, -theta)
}
