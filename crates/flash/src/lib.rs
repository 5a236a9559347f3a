//! The second place of an item: flash, managed by the cache.
//!
//! * A **device** is a number of **zones**, each written from beginning to end and erased whole ([`device`]).
//! * A **segment** is filled in memory (the sources' mslab), sorted by hash, and written in one piece (dslab).
//! * [`Flash`] is the tier: what was put last is found first; positions cost no memory per item, because a segment's order is
//!   its index.
//!
//! This crate knows keys, values and hashes. It knows nothing of columns, of the wire, or of who deserves a place.

#![deny(unsafe_code)]

mod address;
mod cuckoo;
mod dead_extents;
pub mod device;
mod error;
mod expiry_histogram;
mod extent_table;
mod fence;
mod fetcher;
mod filter;
mod flash;
mod generation;
mod hit_bits;
mod item;
mod log_table;
mod merge;
mod meta;
mod options;
mod page;
mod record;
mod recovery;
mod segment;
mod shim;
pub mod space;
#[cfg(test)]
mod test_devices;
mod tier;

pub use error::FlashError;
pub use fetcher::{Begun, Fetcher};
pub use flash::Flash;
pub use item::{Commit, FlashItem, Found, Put, Stamp};
pub use options::{FlashOptions, OpsPolicy, ReclaimPolicy, Recover};
pub use tier::picture::{ZoneUse, ZoneView};
pub use tier::stats::{FlashStats, MemoryUse, ZoneCounts};

/// The index structures, for their benchmark.
#[doc(hidden)]
pub mod structures {
    pub use crate::expiry_histogram::ExpiryHistogram;
    pub use crate::extent_table::{Extent, ExtentTable, Extents};
    pub use crate::fence::{FenceBuilder, Fences, Pages};
    pub use crate::filter::Filter;
    pub use crate::generation::generations;
    pub use crate::hit_bits::HitBits;
    pub use crate::log_table::{Candidates, IdSet, LogTable, TableFull};
}
