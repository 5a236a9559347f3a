//! Devices of the laboratory crate, compiled into the unit tests of this crate.
//!
//! `larder-laboratory` depends on this crate, so its devices implement the traits of another copy of this crate than
//! the copy under test. The unit tests compile the same files against the traits under test.
#![allow(dead_code, unreachable_pub, reason = "the unit tests use a part of what the laboratory offers")]

use crate::device;

#[path = "../../ssd/src/at_once.rs"]
mod at_once;
#[path = "../../laboratory/src/cut.rs"]
mod cut;
#[path = "../../laboratory/src/memory.rs"]
mod memory;
#[path = "../../laboratory/src/pages.rs"]
mod pages;

use at_once::{AtOnce, reads_at_once};
pub(crate) use cut::{CutDevice, Dice, Flavour};
pub(crate) use memory::MemoryDevice;
pub(crate) use pages::{pages, readable};
