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

mod foot;
mod hash_list;
mod head;
mod scan;
mod writer;

pub(crate) use foot::{foot_pages_max, last_page, read_foot};
pub(crate) use hash_list::{HashList, HashListBuilder, listed};
pub(crate) use head::{Head, Kind, read_head};
pub(crate) use scan::{Run, Scan, ScanError, Scanned};
pub(crate) use writer::Writer;

use crate::device::ZoneId;
use crate::expiry_histogram::ExpiryHistogram;
use crate::fence::Fences;
use crate::filter::Filter;

/// The position of a record in an extents segment. These records are not sorted by hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ExtentEntry {
    /// The whole hash of the record.
    pub(crate) hash: u64,
    /// The page of the zone in which the record begins.
    pub(crate) page: u32,
    /// Number of pages that the record touches.
    pub(crate) pages: u32,
}

/// The description of a written segment: its head, its position, and its foot.
#[derive(Debug)]
pub(crate) struct SegmentFacts {
    /// The head.
    pub(crate) head: Head,
    /// The zone that holds the segment.
    pub(crate) zone: ZoneId,
    /// The page of the zone that holds the head.
    pub(crate) first_page: u32,
    /// Number of pages with records.
    pub(crate) data_pages: u32,
    /// Number of all pages: head, data pages, foot.
    pub(crate) pages: u32,
    /// Number of records, tombstones included.
    pub(crate) items: u32,
    /// Number of tombstones.
    pub(crate) tombstones: u32,
    /// Bytes of all records.
    pub(crate) record_bytes: u64,
    /// The highest CAS number of a record; 0 if no record has one.
    pub(crate) cas_max: u64,
    /// Finds the page of a hash. Empty in an extents segment.
    pub(crate) fences: Fences,
    /// Says which hashes are not in the segment, if the segment was written with a filter.
    pub(crate) filter: Option<Filter>,
    /// How many bytes expire when.
    pub(crate) histogram: ExpiryHistogram,
    /// The hashes of the records of a log segment, for the log table. Empty in segments of other kinds.
    pub(crate) hashes: HashList,
    /// For every record that says [`crate::record::Record::supersedes_extent`]: its hash, and a sequence. The record
    /// supersedes the extents of that hash in segments below the sequence.
    pub(crate) superseded_extents: Vec<(u64, u64)>,
    /// The records of an extents segment. Empty in segments of other kinds.
    pub(crate) extents: Vec<ExtentEntry>,
}

/// Reads little-endian fields off the front of a slice; `None` where the slice is too short.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A piece that begins with its length, 4 bytes.
    fn piece(&mut self) -> Option<&'a [u8]> {
        let length = self.word()? as usize;
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests;
