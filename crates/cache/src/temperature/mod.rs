//! The policies: which column goes next, and which of its items stay.
//!
//! The selector asks a [`Temperature`] (`policy.rs`) for the next column and for a verdict on each live item of a
//! victim, and tells it of sealed columns and of references to keys. Everything else about a column is the keeper's.
//! The simulator runs the same policies.
//!
//! * [`Sweep`] is the default. New items are on probation. Items that were read meanwhile go on to the main columns,
//!   which are swept in the order in which they were filled. The warmth of an item comes from its index entry (`entry`)
//!   or from a hitmap (`hitmap`).
//! * [`Published`] is Catalyst's policy as its paper describes it, applied to columns (`hitmap-published`).
//! * [`Fifo`] keeps nothing (`off`).

mod appraisal;
mod column_queue;
mod fifo;
mod hitmap_maker;
mod kind;
mod patience;
mod policy;
mod published;
mod sweep;
#[cfg(test)]
mod tests;

pub use fifo::Fifo;
pub use hitmap_maker::{CudaOptions, HitmapMaker};
pub use kind::TemperatureKind;
pub use patience::Patience;
pub use policy::{Judged, Queue, Resident, Residents, Temperature, TemperatureStats, Verdict};
pub use published::{Published, PublishedPolicyOptions};
pub use sweep::Sweep;
