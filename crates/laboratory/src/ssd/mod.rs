//! A simulated SSD in memory, in virtual time. The same seed and the same calls give the same outcome on every machine.
//!
//! * [`Nand`] is the dies: erase before program, word lines in order, bad blocks, wear, and power that can be cut. A
//!   call that breaks a rule of NAND is an error.
//! * [`OpenChannel`] makes zones of blocks, without a translation layer. [`SimSsd`] is that drive as a
//!   [`larder_flash::device::Device`]; crash tests use it.
//! * [`Ftl`] is an ordinary drive: a page-mapped translation layer, addressed by logical blocks. [`FtlSsd`] is that
//!   drive as a [`larder_flash::device::Device`], whose zones are ranges of logical blocks.

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
