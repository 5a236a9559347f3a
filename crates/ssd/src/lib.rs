//! A simulated SSD in memory. In virtual time, the same seed and the same calls give the same outcome on every machine.
//! In real time, callers wait as long as a drive with these parts would make them wait.
//!
//! * [`Nand`] is the dies: erase before program, word lines in order, bad blocks, wear, and power that can be cut. A
//!   call that breaks a rule of NAND is an error.
//! * [`OpenChannel`] makes zones of blocks, without a translation layer. [`SimSsd`] is that drive as a
//!   [`larder_flash::device::Device`]; crash tests use it.
//! * [`Ftl`] is an ordinary drive: a page-mapped translation layer, addressed by logical blocks. [`FtlSsd`] is that
//!   drive as a [`larder_flash::device::Device`], whose zones are ranges of logical blocks.
//! * [`simulated`] makes a drive of one of these kinds by its name, in real time, for `--flash sim:PROFILE:SIZE`.

#![forbid(unsafe_code)]

mod at_once;
mod by_name;
mod clock;
mod ftl;
mod ftl_device;
mod nand;
mod profile;
mod rng;
mod sim;
mod stats;
mod timed_reads;
mod zoned;

pub use at_once::{AtOnce, reads_at_once};
pub use by_name::{PROFILES, simulated};
pub use ftl::{Ftl, FtlCounters, FtlError, FtlOptions, LBA_BYTES};
pub use ftl_device::FtlSsd;
pub use nand::{BlockId, Fault, Nand, NandCounters, NandError, Span};
pub use profile::{CellTimes, Profile};
pub use rng::Rng;
pub use sim::SimSsd;
pub use stats::{Histogram, Wear};
pub use zoned::{OpenChannel, ZoneLayout};

// `at_once.rs` is compiled by the unit tests of `larder-flash` as well, beside their own traits.
use larder_flash::device;

#[cfg(test)]
mod tests;
