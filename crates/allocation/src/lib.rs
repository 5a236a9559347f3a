//! The arithmetic of miss penalties: what an item is worth, and which group gives room to which.
//!
//! The source is PAMA (Ou et al., "A Penalty Aware Memory Allocation Scheme for Key-value Cache", ICPP 2015,
//! section III). This crate knows no clock, no thread and no memory: the cache and the simulator both run it.

#![forbid(unsafe_code)]

mod costs;
mod group;
mod hits;
mod ledger;
mod margin;
mod prices;
mod skill;
mod subclass;
mod watch;
mod worth;
mod worth_options;

pub use group::{Group, GroupStats, MoveReason, SizeClass};
pub use hits::{MetIn, Warmth};
pub use skill::CostSkill;
pub use subclass::Subclass;
pub use worth::{Appraised, ColumnBounds, Worth};
pub use worth_options::{CostEvidence, Objective, WorthMode, WorthOptions};
