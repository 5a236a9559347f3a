//! The planner: finds the cheapest or fastest split of memory and flash, with Mlcached's model of cost and latency
//! over a miss-ratio curve.
//!
//! Choi, Ahn and Kee, "Mlcached: Multi-level DRAM-NAND Key-value Cache" (HotStorage 2016), equations 1 and 2:
//!
//! ```text
//!   Cost(Cm, Cs) = Pm Cm + Ps Cs
//!   Lat(Cm, Cs)  = Ln + Lm + Ls (1 - H(Cm)) + (1 - H(Cm + Cs)) (2 Ln + Lb) + Ln
//! ```
//!
//! C are capacities, P prices and L latencies of memory (m), flash (s), the network (n) and the back end (b). H(C) is
//! the hit ratio of a cache of size C. The levels are exclusive: an item in memory is not on flash. Without a flash
//! level, `Ls` does not apply. Larder's planner adds the overhead of items to the paper's model: in memory, on flash,
//! and in memory for each item on flash (an index). It knows a memory that compresses: nine tenths hold items
//! that are shorter, their overhead left as it is, and one tenth holds new items, which are plain. That is the
//! most that a server saves: its hot items are plain too.
//!
//! The model covers mean latencies only. It leaves out queues, writes, and the throughput and wear of flash.

mod frontier;
mod law;
mod mlcached;
mod optimise;
#[cfg(test)]
mod tests;

pub use frontier::{Frontier, frontier};
pub use law::Zipf;
pub use mlcached::{Hypothesis, Outcome, PAPER, hypotheses, paper_model, reproduce};
pub use optimise::Planner;

use crate::policy::larder::COMPRESS_RATIOS;
use serde::Serialize;

/// Bytes of a GB in all prices and sizes of the planner: 2^30, as memory is sold.
pub const GB: f64 = (1_u64 << 30) as f64;

/// The share of memory that holds new items, which are not compressed.
const NEW_SHARE: f64 = 0.1;

/// Prices per GB of 2^30 bytes, in any currency.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Prices {
    /// Memory.
    pub dram_per_gb: f64,
    /// Flash.
    pub flash_per_gb: f64,
}

/// Mean latencies in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Latencies {
    /// Latency of the network, one way.
    pub network_us: f64,
    /// Latency of an answer from memory.
    pub dram_us: f64,
    /// Additional latency of an answer from flash.
    pub flash_us: f64,
    /// Latency of an answer from the back end.
    pub backend_us: f64,
}

/// Bytes per item in addition to key and value.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Default)]
pub struct Overheads {
    /// In memory, for an item in memory.
    pub dram_item_bytes: f64,
    /// On flash, for an item on flash.
    pub flash_item_bytes: f64,
    /// In memory, for an item on flash.
    pub flash_index_bytes: f64,
}

/// Limits of the amounts to buy, in bytes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Limits {
    /// Minimum amount of memory.
    pub dram_bytes_min: f64,
    /// Maximum amount of memory.
    pub dram_bytes_max: f64,
    /// Maximum amount of flash.
    pub flash_bytes_max: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { dram_bytes_min: 0.0, dram_bytes_max: f64::INFINITY, flash_bytes_max: f64::INFINITY }
    }
}

/// Units in which memory and flash are bought, in bytes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Steps {
    /// Memory is bought in multiples of this.
    pub dram_bytes: f64,
    /// Flash is bought in multiples of this.
    pub flash_bytes: f64,
}

/// All inputs of the planner except the curve.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Model {
    /// The prices.
    pub prices: Prices,
    /// The latencies.
    pub latencies: Latencies,
    /// The overheads of items.
    pub overheads: Overheads,
    /// How many times shorter an item is where memory compresses it, from 1 to 20; 1 = nothing is compressed.
    pub compress_ratio: f64,
    /// Mean size of an item in bytes, which converts overheads per item into overheads per byte.
    pub item_bytes: f64,
    /// The limits of the amounts to buy.
    pub limits: Limits,
    /// The units of the amounts to buy; `None` = any amount.
    pub steps: Option<Steps>,
}

/// An amount of memory and flash, with its cost and performance.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Split {
    /// Bytes of memory to buy, including overheads and the index of flash.
    pub dram_bytes: f64,
    /// Bytes of flash to buy, including overheads.
    pub flash_bytes: f64,
    /// Share of the reads answered from memory.
    pub hit_ratio_dram: f64,
    /// Share of the reads answered from memory or flash.
    pub hit_ratio: f64,
    /// Cost of memory and flash together.
    pub cost: f64,
    /// Mean latency of a read in microseconds.
    pub latency_us: f64,
}

/// The goal of a plan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// The lowest cost with a mean latency of at most this many microseconds.
    Sla(f64),
    /// The lowest mean latency with a cost of at most this.
    Budget(f64),
}

impl Model {
    /// Bytes of memory per byte of items in memory, as they are when they are read.
    fn dram_factor(&self) -> f64 {
        let overhead = self.overheads.dram_item_bytes / self.item_bytes;
        let (plain, compressed) = (1.0 + overhead, 1.0 / self.compress_ratio + overhead);
        plain / (NEW_SHARE + (1.0 - NEW_SHARE) * plain / compressed)
    }

    /// Bytes of flash per byte of items on flash.
    fn flash_factor(&self) -> f64 {
        1.0 + self.overheads.flash_item_bytes / self.item_bytes
    }

    /// Bytes of memory per byte of items on flash.
    fn index_factor(&self) -> f64 {
        self.overheads.flash_index_bytes / self.item_bytes
    }

    /// Additional latency in microseconds of a read that misses everywhere.
    fn backend_us(&self) -> f64 {
        2.0 * self.latencies.network_us + self.latencies.backend_us
    }

    /// Latency in microseconds of every read.
    fn base_us(&self) -> f64 {
        2.0 * self.latencies.network_us + self.latencies.dram_us
    }

    /// Checks that all numbers are in their range.
    ///
    /// # Errors
    /// The number that is out of range, and the reason.
    pub fn check(&self) -> Result<(), String> {
        let numbers = [
            ("the price of memory", self.prices.dram_per_gb),
            ("the price of flash", self.prices.flash_per_gb),
            ("the network's latency", self.latencies.network_us),
            ("memory's latency", self.latencies.dram_us),
            ("flash's latency", self.latencies.flash_us),
            ("the back end's latency", self.latencies.backend_us),
            ("the overhead in memory", self.overheads.dram_item_bytes),
            ("the overhead on flash", self.overheads.flash_item_bytes),
            ("the index in memory", self.overheads.flash_index_bytes),
        ];
        for (name, number) in numbers {
            if !(0.0..1e15).contains(&number) {
                return Err(format!("{name} must be a number from 0 on, not {number}"));
            }
        }
        if self.prices.dram_per_gb <= 0.0 || self.prices.flash_per_gb <= 0.0 {
            return Err("prices must be above 0".to_owned());
        }
        if !(self.item_bytes > 0.0 && self.item_bytes.is_finite()) {
            return Err("the mean size of an item is not known; it must be above 0".to_owned());
        }
        if !COMPRESS_RATIOS.contains(&self.compress_ratio) {
            return Err(format!("a ratio of compression is from 1 to 20, not {}", self.compress_ratio));
        }
        if self.index_factor() >= self.dram_factor() {
            return Err("an item on flash must take less memory than an item in memory".to_owned());
        }
        if self.limits.dram_bytes_min > self.limits.dram_bytes_max {
            return Err("the least memory is above the most memory".to_owned());
        }
        match self.steps {
            Some(steps) if !(steps.dram_bytes > 0.0 && steps.flash_bytes > 0.0) => {
                Err("steps must be above 0".to_owned())
            }
            _ => Ok(()),
        }
    }
}
