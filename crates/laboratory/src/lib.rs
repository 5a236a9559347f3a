//! What tests and experiments need and the product does not: devices for tests, and the experiment runs.
//!
//! * [`MemoryDevice`]: zones in memory, for tests that need any device.
//! * [`FaultyDevice`]: a wrapper that fails, tears or delays chosen operations.
//! * [`SlowDevice`]: a wrapper that takes a given number of bytes a second.
//! * [`CutDevice`]: zones in memory that lose or tear unsynced writes when the power is cut.
//! * [`ssd`]: the simulated SSD of the crate `larder-ssd`.
//! * [`contract`]: the checks that every implementation of [`larder_flash::device::Device`] passes.
//!
//! The experiments are the examples of this crate; `docs/evidence` shows their results:
//!
//! * of flash: `tier_schemes`, `tier_costs`, `hot_cold`, `device_speed`;
//! * of what stays in memory: `catalyst` (parts of its policy), `slabs` (schemes of slab allocation, PAMA),
//!   `miss_ratios` (policies on single items), `live_curve` (the curve that a server keeps of itself);
//! * of the index: `index_structures` (lists, trees and runs of buckets).
//!
//! Every crate may name this one as a development dependency; no product crate depends on it. The unit tests of
//! `larder-flash` cannot use this crate, because it is linked with another copy of `larder-flash` than the one under
//! test. They compile the files `cut.rs`, `memory.rs` and `pages.rs`, and `at_once.rs` of `larder-ssd`, themselves
//! (`crates/flash/src/test_devices.rs`). Therefore these four files take the device types from `super::device`.

#![forbid(unsafe_code)]

pub mod contract;
mod cut;
mod faulty;
mod memory;
mod pages;
mod slow;

pub use cut::{CutDevice, Dice, Flavour};
pub use faulty::{AppendFault, FaultyDevice, ReadFault};
pub use larder_ssd as ssd;
pub use larder_ssd::{AtOnce, reads_at_once};
pub use memory::MemoryDevice;
pub use pages::{pages, readable};
pub use slow::SlowDevice;

use larder_flash::device;
