//! Slab allocation: which size class holds how much memory, after "A Penalty Aware Memory Allocation Scheme
//! for Key-value Cache" (Ou et al., ICPP 2015; below "PAMA").
//!
//! ```text
//!   Request -> Simulator -> Scheme   who gives a slab to whom (static, psa, age, pama ...)
//!                       \-> Store    items in slots, LRU stacks, slabs per group
//!                             \-> Stack    one LRU stack: segments of a slab each, ghosts, Bloom filters
//! ```
//!
//! Words: a *slab* is the unit of memory that moves; a *slot* holds one item; a *class* has slots of one
//! size; a *subclass* is the part of a class whose misses cost alike; a *group* is what has an LRU stack and
//! slabs of its own, a class or, for PAMA, a subclass of a class; a *segment* is as much of a stack as fits
//! into one slab; a *ghost* is the key and penalty of an item that was replaced lately.

mod burst;
mod classes;
mod filters;
mod nodes;
mod pama;
mod run;
mod scheme;
mod schemes;
mod show;
mod simulator;
mod stack;
mod store;
mod values;

#[cfg(test)]
mod tests;

pub use burst::Burst;
pub use classes::{SUBCLASS_PENALTY_US_MAX, SlabClasses, subclass_of};
pub use pama::{Pama, PamaSettings, Worth};
pub use run::{Ran, Simulation, run};
pub use scheme::{Scheme, Seen};
pub use schemes::{NAMES, SchemeSettings, build};
pub use show::{Shown, report};
pub use simulator::{Outcome, Settings, Simulator, Totals, Window};
pub use stack::{Audit, Place};
pub use store::Store;
pub use values::Rollover;
