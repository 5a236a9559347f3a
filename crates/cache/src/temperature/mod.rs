//! The policies: which column goes next, and which of its items stay.
//!
//! The selector asks a [`Temperature`] (`policy.rs`) for the next column and for a verdict on each live item of a
//! victim, and tells it of sealed columns and of references to keys. Everything else about a column is the keeper's.
//! The simulator runs the same policies.
//!
//! * [`Sweep`] is the default. New items are on probation. Items that were read meanwhile go on to the main columns,
//!   which are swept in the order in which they were filled. The warmth of an item comes from its index entry, or from
//!   a [`WarmthRecord`] of the policy's own.
//! * [`hitmap`] has that record, and a policy of its own that was published with it. Nothing else knows of it: a policy
//!   is made by name ([`TemperatureKind`]), and which device does its work is an opaque value ([`Device`]).
//! * [`Fifo`] keeps nothing (`off`).

mod appraisal;
mod column_queue;
mod fifo;
pub mod hitmap;
mod keep_limit;
mod kind;
mod new_columns;
mod policy;
mod sweep;
#[cfg(test)]
mod tests;
mod warmth_record;

pub use fifo::Fifo;
pub use hitmap::Device;
pub use keep_limit::KeepLimit;
pub use kind::TemperatureKind;
pub use new_columns::NewColumns;
pub use policy::{Judged, Queue, Resident, Residents, Temperature, TemperatureStats, Verdict};
pub use sweep::Sweep;
pub use warmth_record::WarmthRecord;
