//! A segment: one run of pages in one zone, written once and never changed.
//!
//! ```text
//!  page   0      1 .. d            d+1 .. end
//!        | head | records, sorted | foot     |
//! ```
//!
//! The head identifies the segment, so that a scan of the device finds it. The foot is written last. It holds what a
//! restart needs of the segment, so that the records need not be read again. A segment without a valid foot does not
//! exist: its write did not come to an end.

mod fields;
mod foot;
mod hash_list;
mod head;
mod scan;
mod summary;
mod tombstones;
mod writer;

pub(crate) use foot::{foot_pages_max, last_page, read_foot};
pub(crate) use hash_list::{HashList, HashListBuilder, listed};
pub(crate) use head::{Head, Kind, read_head};
pub(crate) use scan::{Run, Scan, ScanError, ScanReads, Scanned};
pub(crate) use summary::{ExtentEntry, Gap, SegmentSummary};
pub(crate) use tombstones::Tombstones;
pub(crate) use writer::Writer;

#[cfg(all(test, not(loom)))]
mod tests;
