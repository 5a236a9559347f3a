//! The parameters of a run of simulations.

use super::size::{Size, Unit};
use crate::PENALTY_UNKNOWN_US;
use larder_cache::Objective;

/// The treatment of the trace's commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpsRule {
    /// Every request is a get.
    Ignore,
    /// Gets are counted, writes store, deletes remove.
    Obey,
}

/// The requests at the start that are not counted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Warmup {
    /// A share of the trace, from 0 to 1.
    Share(f64),
    /// This many requests.
    Requests(u64),
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Names of policies, see [`policy_names`](super::policy_names); `all` stands for all of them.
    pub policies: Vec<String>,
    /// Cache sizes.
    pub sizes: Vec<Size>,
    /// The unit of the cache sizes; `None` = derived from how they are written.
    pub unit: Option<Unit>,
    /// The treatment of commands; `None` = obeyed where the source knows them.
    pub ops: Option<OpsRule>,
    /// Whether items expire when the trace says so. Expiry is checked when the key is accessed.
    pub ttls: bool,
    /// The requests at the start that are not counted.
    pub warmup: Warmup,
    /// Bytes charged per item in addition to key and value, in byte mode.
    pub overhead_bytes: u32,
    /// Cost of a look-up in microseconds.
    pub hit_us: u32,
    /// Additional cost of a hit on flash in microseconds.
    pub flash_us: u32,
    /// Cost of a miss in microseconds where the trace does not know it.
    pub penalty_us: u32,
    /// Bytes of flash behind each memory of Larder's; `None` = no flash.
    pub flash_bytes: Option<u64>,
    /// How many times shorter the values are that Larder compresses, from 1 to 20; `None` = it compresses nothing.
    pub compress_ratio: Option<f64>,
    /// What the first table compares, best first, and what `larder` saves. `None` = the first table compares misses, in
    /// the requested order, and `larder` has the server's default.
    pub objective: Option<Objective>,
    /// Threads that simulate; 0 = one per core.
    pub threads: usize,
    /// Starts the random numbers of policies that sample.
    pub seed: u64,
}

impl Default for Rules {
    /// All policies at 0.1 % to 30 % of the trace's keys. A hit costs 200 us, about a round trip within a data
    /// centre, and one on flash 100 us more, a read of a drive.
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
            flash_us: 100,
            penalty_us: PENALTY_UNKNOWN_US,
            flash_bytes: None,
            compress_ratio: None,
            objective: None,
            threads: 0,
            seed: 1,
        }
    }
}
