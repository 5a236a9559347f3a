//! The flash tier: items that were evicted from memory, on flash.
//!
//! * A **device** consists of **zones**. A zone is written from its beginning to its end, and erased whole
//!   ([`device`]).
//! * A **segment** is filled in memory, sorted by hash, and written to a zone in one piece.
//! * The **log** has the newest segments. A table in memory says which of them may hold a hash.
//! * A **generation** is what a merge made of older segments of the log. Its segments are found by filters and by their
//!   order, so they need about a byte of memory for each item.
//! * An **extent** is a record longer than 2 KiB. A table in memory has the position of each.
//! * A **tombstone** is a record that says that older versions of its key do not count any more.
//! * The **floor** is a sequence below which segments do not exist any more. A flush raises it.
//!
//! [`Flash`] is the tier as the cache sees it, and [`Fetcher`] the reader of one thread. A lookup finds the newest
//! version of a key or nothing: a miss is always allowed, a stale value never.
//!
//! This crate knows keys, values and hashes. It does not know columns, the wire, or which items deserve to be on flash.

#![deny(unsafe_code)]
#![cfg_attr(loom, allow(dead_code, reason = "under loom only the model of the log table is tested"))]

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
#[cfg(all(test, not(loom)))]
mod test_devices;
mod tier;

pub use error::FlashError;
pub use fetcher::{Begun, CommitListener, Fetcher};
pub use flash::Flash;
pub use item::{Commit, FlashItem, Found, Listed, Put, Room, Stamp};
pub use larder_item::FlashState;
pub use options::{FILL_PERCENT, FlashOptions, Recover, memory_bytes_for};
pub use tier::lister::Listing;
pub use tier::picture::{ZoneUse, ZoneView};
pub use tier::stats::{FlashStats, MemoryUse, ZoneCounts};
pub use tier::walk::Place;

/// The index structures, for their benchmark only.
#[doc(hidden)]
pub mod structures {
    pub use crate::expiry_histogram::ExpiryHistogram;
    pub use crate::extent_table::{Extent, ExtentTable, Extents};
    pub use crate::fence::{FenceBuilder, Fences, Pages};
    pub use crate::filter::Filter;
    pub use crate::generation::synthetic::generations;
    pub use crate::hit_bits::HitBits;
    pub use crate::log_table::{Candidates, IdSet, LogTable, TableFull};
}
