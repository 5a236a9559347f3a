//! A simulated SSD: NAND that holds its users to its rules, in virtual time, deterministic and in memory.
//!
//! * [`Nand`]: dies and channels, erase before program, word lines in order, bad blocks, wear, power that can be cut.
//! * [`OpenChannel`]: zones as stripes of blocks, nothing between; [`SimSsd`] makes a [`larder_flash::device::Device`] of it, and is
//!   what crash tests use.
//! * [`Ftl`]: the page-mapped baseline, addressed by logical blocks; [`FtlSsd`] makes a device of it whose zones are ranges.
//!
//! It is part of the crate, not of its tests, because the comparison of reclaim policies (`examples/didacache.rs`) and the
//! crash tests of other crates run on it.

mod ftl;
mod ftl_device;
mod nand;
mod profile;
mod rng;
mod sim;
mod stats;
mod zoned;

pub use ftl::{Ftl, FtlCounters, FtlError, FtlOptions, LBA_BYTES};
pub use ftl_device::FtlSsd;
pub use nand::{BlockId, Fault, Nand, NandCounters, NandError, Span};
pub use profile::Profile;
pub use rng::Rng;
pub use sim::SimSsd;
pub use stats::{Histogram, Wear};
pub use zoned::{OpenChannel, ZoneLayout};

#[cfg(test)]
mod tests;
