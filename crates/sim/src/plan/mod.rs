//! What to buy: Mlcached's model of cost and latency over a miss-ratio curve.
//!
//! Choi, Ahn and Kee, "Mlcached: Multi-level DRAM-NAND Key-value Cache" (HotStorage 2016), equations 1 and 2:
//!
//! ```text
//!   Cost(Cm, Cs) = Pm Cm + Ps Cs
//!   Lat(Cm, Cs)  = Ln + Lm + Ls (1 - H(Cm)) + (1 - H(Cm + Cs)) (2 Ln + Lb) + Ln
//! ```
//!
//! with the capacities C, prices P and latencies L of memory (m), flash (s), network (n) and back end (b),
//! and the hit ratio H(C) of a cache of size C. The levels are exclusive: what is in memory is not on flash.
//! Without a flash level `Ls` is not paid. To the paper's model we add what an item takes beside its bytes:
//! in memory, on flash, and in memory for each item on flash (an index).
//!
//! The model speaks of means: not of queues, of the flash's throughput and wear, or of writes.

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

use serde::Serialize;

/// Bytes of a GB, in all prices and sizes of the planner: a power of 1024, as memory is sold.
pub const GB: f64 = (1_u64 << 30) as f64;

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
    /// One way over the network.
    pub network_us: f64,
    /// An answer from memory.
    pub dram_us: f64,
    /// An answer from flash, on top of the look into memory.
    pub flash_us: f64,
    /// An answer of the back end.
    pub backend_us: f64,
}

/// Bytes an item takes besides key and value.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Default)]
pub struct Overheads {
    /// In memory, for an item in memory.
    pub dram_item_bytes: f64,
    /// On flash, for an item on flash.
    pub flash_item_bytes: f64,
    /// In memory, for an item on flash.
    pub flash_index_bytes: f64,
}

/// What may be bought, in bytes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Limits {
    /// The least memory.
    pub dram_bytes_min: f64,
    /// The most memory.
    pub dram_bytes_max: f64,
    /// The most flash.
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
    /// Memory comes in multiples of this.
    pub dram_bytes: f64,
    /// Flash comes in multiples of this.
    pub flash_bytes: f64,
}

/// Everything but the curve.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Model {
    /// What a GB costs.
    pub prices: Prices,
    /// How long it takes.
    pub latencies: Latencies,
    /// What an item takes besides its bytes.
    pub overheads: Overheads,
    /// Mean bytes of an item, by which overheads per item become overheads per byte.
    pub item_bytes: f64,
    /// What may be bought.
    pub limits: Limits,
    /// In which units it is bought; `None` = any amount.
    pub steps: Option<Steps>,
}

/// An amount of memory and flash, and what comes of it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Split {
    /// Bytes of memory to buy, overheads and index included.
    pub dram_bytes: f64,
    /// Bytes of flash to buy, overheads included.
    pub flash_bytes: f64,
    /// Share of reads that memory answers.
    pub hit_ratio_dram: f64,
    /// Share of reads that memory or flash answers.
    pub hit_ratio: f64,
    /// What both cost.
    pub cost: f64,
    /// Mean latency of a read in microseconds.
    pub latency_us: f64,
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// The least cost at a mean latency of at most so many microseconds.
    Sla(f64),
    /// The least mean latency at a cost of at most so much.
    Budget(f64),
}

impl Model {
    /// Bytes of memory per byte of items in it.
    fn dram_factor(&self) -> f64 {
        1.0 + self.overheads.dram_item_bytes / self.item_bytes
    }

    /// Bytes of flash per byte of items on it.
    fn flash_factor(&self) -> f64 {
        1.0 + self.overheads.flash_item_bytes / self.item_bytes
    }

    /// Bytes of memory per byte of items on flash.
    fn index_factor(&self) -> f64 {
        self.overheads.flash_index_bytes / self.item_bytes
    }

    /// What a read pays that misses everywhere, in microseconds, beyond the look into the cache.
    fn backend_us(&self) -> f64 {
        2.0 * self.latencies.network_us + self.latencies.backend_us
    }

    /// What every read pays, in microseconds.
    fn base_us(&self) -> f64 {
        2.0 * self.latencies.network_us + self.latencies.dram_us
    }

    /// Whether all numbers are in their range.
    ///
    /// # Errors
    /// Which is not, and why.
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
