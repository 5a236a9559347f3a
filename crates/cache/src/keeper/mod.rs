//! The keeper: the background thread that reclaims columns.
//!
//! * `Keeper` (`core.rs`) owns the pass, the selector with its policy, and everything they remember. It has no lock of
//!   its own.
//! * [`KeeperHandle`] (`handle.rs`) holds the keeper behind the one lock there is, and is what workers see: they wake
//!   the keeper, tell it of sealed columns, leave references for it, and help it when they find no free column.
//! * [`Round`] (`round.rs`) is one round of the keeper's work. It takes the lock for one column at a time, so that a
//!   writer that waits for room can help in between.
//! * `namespace_sample.rs` estimates what each tenant has.
//! * `fresh_memory.rs` says how much memory is taken from the machine ahead of the writers.
//! * `repartition.rs` moves hot items to columns of their own while there is room.
//! * `kinds.rs` knows which values shrink; `trainer.rs` trains dictionaries.
//! * `pass.rs` empties one column; `survivors.rs` has the columns that it moves items to; `time_slice.rs` says when
//!   other threads have their turn.

mod core;
mod fresh_memory;
mod handle;
mod kinds;
mod namespace_sample;
mod packing;
mod pass;
mod prefix_sweep;
mod repartition;
mod round;
mod survivors;
mod time_slice;
mod trainer;

pub(crate) use handle::KeeperHandle;
pub(crate) use round::Round;
