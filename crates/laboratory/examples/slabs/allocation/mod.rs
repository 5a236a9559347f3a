//! Slab allocation: how much memory each size class holds, after "A Penalty Aware Memory Allocation Scheme for
//! Key-value Cache" (Ou et al., ICPP 2015; below "PAMA").
//!
//! ```text
//!   Request -> Simulator -> Scheme   decides which group gives a slab to which (static, psa, age, pama ...)
//!                       \-> Store    items in slots, LRU stacks, slabs per group
//!                             \-> Stack    one LRU stack: segments of a slab each, ghosts, Bloom filters
//! ```
//!
//! Beside the schemes, the same requests run on the server's own cache (`larder`), which has no slabs.
//!
//! Words:
//! * A *slab* is the unit of memory that moves between groups.
//! * A *slot* holds one item.
//! * A *class* has slots of one size.
//! * A *subclass* is the part of a class whose misses have a similar cost.
//! * A *group* has an LRU stack and slabs of its own. It is a class or, for PAMA, a subclass of a class.
//! * A *segment* is as much of a stack as fits into one slab.
//! * A *ghost* is the key and penalty of a recently evicted item.

mod burst;
mod classes;
mod filters;
mod nodes;
mod pama;
mod real;
mod run;
mod scheme;
mod schemes;
mod show;
mod simulator;
mod stack;
mod store;
mod tally;
mod values;

#[cfg(test)]
mod tests;

pub(crate) use burst::Burst;
pub(crate) use classes::{SUBCLASS_PENALTY_US_MAX, SlabClasses, subclass_of};
pub(crate) use run::{Simulation, check, run};
pub(crate) use scheme::{Scheme, SlabAccess};
pub(crate) use schemes::{NAMES, SchemeSettings, build};
pub(crate) use show::{ReportOptions, report};
pub(crate) use simulator::{Outcome, Settings, Simulator};
pub(crate) use stack::{Audit, StackPosition};
pub(crate) use store::Store;
pub(crate) use tally::Totals;
pub(crate) use values::Rollover;
