//! What tests and experiments need and the product does not: devices for tests, a simulated SSD, and the experiment
//! runs.
//!
//! * [`MemoryDevice`]: zones in memory, for tests that need any device.
//! * [`FaultyDevice`]: a wrapper that fails, tears or delays chosen operations.
//! * [`SlowDevice`]: a wrapper that takes so many bytes a second.
//! * [`CutDevice`]: zones in memory that lose or tear unsynced writes when the power is cut.
//! * [`ssd`]: NAND with its rules, wear and timing, in virtual time.
//! * [`contract`]: the checks that every implementation of [`larder_flash::device::Device`] passes.
//!
//! The experiments are the examples of this crate; `docs/evidence/flash.md` shows their results.
//!
//! Every crate may name this one as a development dependency; no product crate depends on it. The unit tests of
//! `larder-flash` cannot use this crate, because it is linked with another copy of `larder-flash` than the one under
//! test. They compile the files `at_once.rs`, `cut.rs`, `memory.rs` and `pages.rs` themselves
//! (`crates/flash/src/test_devices.rs`). Therefore these four files take the device types from `super::device`.

#![forbid(unsafe_code)]

mod at_once;
pub mod contract;
mod cut;
mod faulty;
mod memory;
mod pages;
mod slow;
pub mod ssd;

pub use at_once::{AtOnce, reads_at_once};
pub use cut::{CutDevice, Dice, Flavour};
pub use faulty::{AppendFault, FaultyDevice, ReadFault};
pub use memory::MemoryDevice;
pub use pages::{pages, readable};
pub use slow::SlowDevice;

use larder_flash::device;
