//! The keys of the requests.

use larder_laboratory::ssd::Rng;

/// The distribution of the keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Law {
    /// Normal, around the middle key. The standard deviation is a share of the number of keys.
    Normal(f64),
    /// Zipf: the frequency of the `i`th most popular key is proportional to `1 / i^theta`.
    Zipf(f64),
}

/// Generates the keys of requests.
pub(crate) struct Keys {
    rng: Rng,
    keys: u32,
    law: Law,
    /// The cumulated frequencies, for Zipf.
    shares: Vec<f64>,
}

impl Keys {
    pub(crate) fn new(law: Law, keys: u32, seed: u64) -> Keys {
        let mut shares = Vec::new();
        if let Law::Zipf(theta) = law {
            let mut sum = 0.0;
            shares = (1..=keys)
                .map(|rank| {
                    sum += (rank as f64).powf(-theta);
                    sum
                })
                .collect();
        }
        Keys { rng: Rng::new(seed), keys, law, shares }
    }

    pub(crate) fn next_key(&mut self) -> u32 {
        match self.law {
            Law::Normal(deviation) => loop {
                let (u, v) = (self.rng.unit().max(1e-300), self.rng.unit());
                let z = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
                let key = (0.5 + z * deviation) * self.keys as f64;
                if (0.0..self.keys as f64).contains(&key) {
                    return key as u32;
                }
            },
            Law::Zipf(_) => {
                let at = self.rng.unit() * self.shares.last().copied().unwrap_or(0.0);
                (self.shares.partition_point(|share| *share <= at) as u32).min(self.keys - 1)
            }
        }
    }

    pub(crate) fn chance(&mut self, part: f64) -> bool {
        self.rng.unit() < part
    }
}
