//! Zipf's law over any number of ranks, exactly, without a table of all ranks.

use super::alias::Alias;
use super::rng::Rng;

/// Ranks up to here are outcomes of their own.
const SINGLE_RANKS: u64 = 1024;
/// The width of a run of ranks is its first rank divided by this.
const RUN_PART: u64 = 32;

/// Neighbouring ranks under one step of the envelope.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The first rank, counted from 1.
    first: u64,
    /// The number of ranks.
    width: u64,
    /// Random bits below this accept a rank without computing its probability, because they would accept even the
    /// last rank.
    taken_below: u64,
}

/// Rank r from 1 to n with a probability proportional to 1 / r^theta.
///
/// The method is rejection from a staircase. The first ranks are outcomes of their own. The others lie in runs, and
/// every rank of a run gets the probability of the run's first rank. An alias table selects a step, a uniform number
/// selects the rank in it, and the rank is accepted with the ratio of its true probability to the height of the step.
/// The last rank of a run bounds that ratio from below, so only about one sample in forty computes a power. The law
/// is exact except for rounding to 64 bits, and the set-up grows with the logarithm of n. (Hormann and Derflinger's
/// rejection-inversion, ACM TOMACS 1996, uses an integral as the envelope, at the cost of a logarithm and an
/// exponential per sample.)
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    theta: f64,
    steps: Alias,
    runs: Vec<Run>,
}

impl Zipf {
    /// A sampler over `n` ranks, at least one.
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

    /// A rank, counted from 0.
    #[inline]
    pub(super) fn sample(&self, rng: &mut Rng) -> u64 {
        loop {
            let run = self.runs[self.steps.pick(rng.next())];
            let product = rng.next() as u128 * run.width as u128;
            let rank = run.first + (product >> 64) as u64;
            let random = product as u64;
            if random <= run.taken_below || self.taken(rank, run.first, random) {
                return rank - 1;
            }
        }
    }

    /// Whether the random bits fall below the rank's part of the step's height.
    #[cold]
    fn taken(&self, rank: u64, first: u64, random: u64) -> bool {
        random < super::rng::threshold(relative(rank, first, self.theta))
    }
}

/// The probability of a rank relative to that of another.
fn relative(rank: u64, to: u64, theta: f64) -> f64 {
    libm::pow(rank as f64 / to as f64, -theta)
}
