//! The components of the tier. Each owns its fields, its lock, and the functions that change them.
//!
//! ```text
//!  Restart   Threads                         (recover.rs, threads.rs)
//!     |
//!  LogWriter        segments to the device   (writer.rs)
//!     |
//!  Reclaim          when and what            (reclaim.rs; merging.rs and survivors.rs below it)
//!     |
//!  Release          zones are given up       (release.rs)
//!     |
//!  Log              puts, invalidations      (log.rs)
//!     |  \
//!  Lookup  Space    reading; zones           (lookup.rs, space.rs)
//!   |  |  \  |
//!   |  |   Meta     floor, journal, stamps   (meta.rs)
//!   |  |     |
//!   |  |   Status   counters, clock, waiting (status.rs)
//!   |  Generations  what was merged          (../generation.rs)
//!   Index           what the log holds       (index.rs)
//! ```
//!
//! **Order of locks**: `cursors` (writer) or `running` (restart), `reclaiming` (reclaim), `releasing` (release),
//! `sweeping` (log), `append` (log), `zones` (space), a buffer's own lock, the locks of the meta log. All others are
//! leaves.

mod ahead;
pub(crate) mod buffer;
pub(crate) mod directory;
pub(crate) mod index;
pub(crate) mod lister;
pub(crate) mod log;
pub(crate) mod lookup;
pub(crate) mod merging;
pub(crate) mod meta;
pub(crate) mod picture;
pub(crate) mod reclaim;
pub(crate) mod recover;
pub(crate) mod release;
pub(crate) mod shape;
pub(crate) mod space;
pub(crate) mod stamps;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod survivors;
pub(crate) mod threads;
pub(crate) mod waiting;
pub(crate) mod walk;
pub(crate) mod writer;

#[cfg(all(test, not(loom)))]
mod tests;
