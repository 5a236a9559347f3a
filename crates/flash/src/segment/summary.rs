//! The description of a written segment.

use super::{HashList, Head, Tombstones};
use crate::device::ZoneId;
use crate::expiry_histogram::ExpiryHistogram;
use crate::fence::Fences;
use crate::filter::Filter;
use std::ops::RangeInclusive;

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

/// Hashes of which an address run may lack entries, or of which a newer version may have been lost: what older
/// generations have of them does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gap {
    /// The lowest hash.
    pub(crate) first_hash: u64,
    /// The highest hash.
    pub(crate) last_hash: u64,
    /// The older generations are those below this number.
    pub(crate) below: u64,
}

impl Gap {
    /// A gap of these hashes in all generations below `below`.
    pub(crate) fn new(hashes: &RangeInclusive<u64>, below: u64) -> Gap {
        Gap { first_hash: *hashes.start(), last_hash: *hashes.end(), below }
    }

    /// Gaps that contain all of these, at most `max`.
    pub(crate) fn join(mut gaps: Vec<Gap>, max: usize) -> Vec<Gap> {
        gaps.sort_unstable_by_key(|gap| gap.first_hash);
        let joined = gaps.chunks(gaps.len().div_ceil(max).max(1)).map(|gaps| Gap {
            first_hash: gaps[0].first_hash,
            last_hash: gaps.iter().map(|gap| gap.last_hash).max().unwrap_or(0),
            below: gaps.iter().map(|gap| gap.below).max().unwrap_or(0),
        });
        joined.collect()
    }
}

/// The description of a written segment: its head, its position, and its foot.
#[derive(Debug)]
pub(crate) struct SegmentSummary {
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
    /// Which records of a log segment are tombstones. Empty in segments of other kinds.
    pub(crate) which_tombstones: Tombstones,
    /// The gaps of an address run, in the segment that marks its end. Empty in all other segments.
    pub(crate) gaps: Vec<Gap>,
}
