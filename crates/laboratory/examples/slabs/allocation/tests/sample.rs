//! A small workload for tests: Zipf over keys, sizes after Facebook's ETC pool, penalties per key.

use larder_sim::{Fields, Op, Request, Source, SourceError};

/// Requests with a Zipf law over `keys` keys (Gray et al., SIGMOD 1994), all of them GETs.
pub(super) struct Sample {
    keys: u64,
    left: u64,
    all: u64,
    state: u64,
    zeta: f64,
    eta: f64,
    theta: f64,
}

impl Sample {
    /// `requests` GETs over `keys` keys.
    pub(super) fn new(keys: u64, requests: u64, theta: f64, seed: u64) -> Sample {
        let zeta = (1..=keys).map(|rank| 1.0 / libm::pow(rank as f64, theta)).sum();
        let zeta_2 = 1.0 + libm::pow(0.5, theta);
        let eta = (1.0 - libm::pow(2.0 / keys as f64, 1.0 - theta)) / (1.0 - zeta_2 / zeta);
        Sample { keys, left: requests, all: requests, state: seed, zeta, eta, theta }
    }

    fn rank(&mut self) -> u64 {
        let u = uniform(next(&mut self.state));
        if u * self.zeta < 1.0 {
            return 0;
        }
        if u * self.zeta < 1.0 + libm::pow(0.5, self.theta) {
            return 1;
        }
        let rank = self.keys as f64 * libm::pow(self.eta * u - self.eta + 1.0, 1.0 / (1.0 - self.theta));
        (rank as u64).min(self.keys - 1)
    }
}

/// The GET of a key, with the key's size and penalty.
pub(super) fn get(key: u64) -> Request {
    let mut state = key.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5851_f42d_4c95_7f2d;
    Request {
        key: next(&mut state),
        key_bytes: 31,
        value_bytes: etc_value(uniform(next(&mut state))),
        penalty_us: penalty(&mut state),
        op: Op::Get,
        ..Request::default()
    }
}

/// Generalized Pareto, sigma 214.476, k 0.348238 (Atikoglu et al., SIGMETRICS 2012, section 5).
fn etc_value(u: f64) -> u32 {
    let (sigma, k) = (214.476, 0.348_238);
    (sigma / k * (libm::pow(1.0 - u, -k) - 1.0)).min(1e6) as u32 + 1
}

/// A mixture of log-normal laws with a mean near 100 ms, from 0.2 ms to 5 s.
fn penalty(state: &mut u64) -> u32 {
    let part = uniform(next(state));
    let (median_ms, sigma) = match part {
        part if part < 0.45 => (2.0, 0.6),
        part if part < 0.75 => (20.0, 0.8),
        part if part < 0.95 => (120.0, 0.8),
        _ => (1200.0, 0.6),
    };
    let (a, b) = (uniform(next(state)), uniform(next(state)));
    let normal = libm::sqrt(-2.0 * libm::log(1.0 - a)) * libm::cos(2.0 * std::f64::consts::PI * b);
    let ms: f64 = median_ms * libm::exp(sigma * normal);
    (ms.clamp(0.2, 5000.0) * 1000.0) as u32
}

/// SplitMix64.
pub(super) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn uniform(word: u64) -> f64 {
    (word >> 11) as f64 / (1_u64 << 53) as f64
}

impl Source for Sample {
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
        let count = self.left.min(most as u64);
        for _ in 0..count {
            let rank = self.rank();
            into.push(get(rank));
        }
        self.left -= count;
        Ok(count as usize)
    }

    fn fields(&self) -> Fields {
        Fields { sizes: true, penalties: true, ..Fields::default() }
    }

    fn describe(&self) -> String {
        format!("a sample of {} GETs over {} keys", self.all, self.keys)
    }

    fn done_ratio(&self) -> Option<f64> {
        Some(1.0 - self.left as f64 / self.all as f64)
    }
}
