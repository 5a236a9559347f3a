//! A segment: one run of pages in one zone, `[head][data pages][foot pages]`, written once and never changed.
//!
//! The head says what follows, so that a scan of the device finds it; the foot, written last, says what was in it, so that
//! nobody has to read the data again: a segment without a foot that checks out does not exist.

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

/// Where a record begins that is not found by hash order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ExtentEntry {
    /// Its whole hash.
    pub(crate) hash: u64,
    /// The page in the zone where it begins.
    pub(crate) page: u32,
    /// Pages it touches.
    pub(crate) pages: u32,
}

/// All that is known of a segment once it is written, and all that a restart finds in its foot.
#[derive(Debug)]
pub(crate) struct SegmentFacts {
    /// What the head says.
    pub(crate) head: Head,
    /// The zone it is in.
    pub(crate) zone: ZoneId,
    /// The page of its head in the zone.
    pub(crate) first_page: u32,
    /// Pages of records.
    pub(crate) data_pages: u32,
    /// All pages: head, data, foot.
    pub(crate) pages: u32,
    /// Records, tombstones included.
    pub(crate) items: u32,
    /// Tombstones among them.
    pub(crate) tombstones: u32,
    /// Bytes of all records.
    pub(crate) record_bytes: u64,
    /// The highest CAS number in it; 0 if there is none.
    pub(crate) cas_max: u64,
    /// Finds the page of a hash. Empty for extents.
    pub(crate) fences: Fences,
    /// Says what is not in it, if it was built with one.
    pub(crate) filter: Option<Filter>,
    /// When its bytes expire.
    pub(crate) histogram: ExpiryHistogram,
    /// The hashes of a log segment's records, as the log table needs them; empty for other kinds.
    pub(crate) hashes: HashList,
    /// Hashes of the records that say [`crate::record::Record::supersedes_extent`], and the sequence below which the extents segments
    /// are that this is about.
    pub(crate) superseded_extents: Vec<(u64, u64)>,
    /// Where the records of an extents segment begin.
    pub(crate) extents: Vec<ExtentEntry>,
}

/// Reads little-endian fields off the front of bytes; `None` where they end too soon.
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

    /// A piece with its length, 4 bytes, in front.
    fn piece(&mut self) -> Option<&'a [u8]> {
        let length = self.word()? as usize;
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests;
