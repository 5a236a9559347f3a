//! What a run of simulations is asked to do.

use super::size::{Size, Unit};
use crate::PENALTY_UNKNOWN_US;

/// What is made of the trace's operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpsRule {
    /// Every request is a get.
    Ignore,
    /// Gets count, writes write, deletes remove.
    Obey,
}

/// How many requests at the beginning do not count.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Warmup {
    /// A share of the trace, 0 to 1.
    Share(f64),
    /// So many requests.
    Requests(u64),
}

/// What is simulated, and how.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Names of policies, see [`policy_names`](super::policy_names); `all` = each of them.
    pub policies: Vec<String>,
    /// Cache sizes.
    pub sizes: Vec<Size>,
    /// What sizes count; `None` = by their form.
    pub unit: Option<Unit>,
    /// What is made of operations; `None` = obeyed where the source knows them.
    pub ops: Option<OpsRule>,
    /// Whether items expire when the trace says so: looked at when the key is asked for.
    pub ttls: bool,
    /// What is not counted.
    pub warmup: Warmup,
    /// Octets charged per item beside key and value, in byte mode.
    pub overhead_bytes: u32,
    /// What a look-up costs, in microseconds.
    pub hit_us: u32,
    /// The penalty of a miss where the trace tells none, in microseconds.
    pub penalty_us: u32,
    /// Threads that simulate; 0 = one per core.
    pub threads: usize,
    /// For policies that draw lots.
    pub seed: u64,
}

impl Default for Rules {
    /// All policies at 0.1 % to 30 % of the trace's keys; a hit costs 200 us, about a round trip in one data
    /// centre.
    fn default() -> Self {
        Rules {
            policies: vec!["all".to_owned()],
            sizes: [0.001, 0.003, 0.01, 0.03, 0.1, 0.3].map(Size::Share).to_vec(),
            unit: None,
            ops: None,
            ttls: false,
            warmup: Warmup::Requests(0),
            overhead_bytes: 0,
            hit_us: 200,
            penalty_us: PENALTY_UNKNOWN_US,
            threads: 0,
            seed: 1,
        }
    }
}
