//! The index of the log: where versions of a key may be, in segments of the log and of extents.
//!
//! Four structures answer together. The **log table** maps a hash to numbers of log segments, the **directory** maps a
//! number to its segment, the **extent table** maps a hash to pages of long records, and the **waiting tombstones**
//! hide keys whose tombstone is in no segment yet. Lookups read all of them without a lock (but for the waiting
//! tombstones, if there are any).
//!
//! The index has no lock of its own for changes: [`super::log::Log`] changes it under the append lock.

use super::buffer::Buffer;
use super::directory::{Directory, LogSegment, PageRun, Segment};
use super::shape::Shape;
use super::waiting::WaitingTombstones;
use crate::device::{PAGE_BYTES, ZoneId};
use crate::extent_table::{Extent, ExtentTable};
use crate::log_table::{Candidates, LogTable};
use crate::segment::listed;
use crate::space::GARBAGE_MIN_PERCENT;
use std::sync::Arc;

/// Pages beyond those of its value that a record takes at most: where it begins and ends inside a page.
const EXTENT_PAGES_MORE: u32 = 2;
/// Length of a record beyond its value at most, bytes: header, optional fields and key.
const RECORD_BYTES_MORE: usize = 1024;

/// Filling of the log table, percent, from which zones are reclaimed for their entries.
const TABLE_CROWDED_PERCENT: u32 = 50;
/// For each further percent, a zone is reclaimed for 3 percent of garbage less.
const GARBAGE_PER_PERCENT: u32 = 3;

/// The index of the log.
pub(crate) struct Index {
    /// Which segments of the log may hold a hash.
    pub(super) table: LogTable,
    /// Where long records are on the device.
    pub(super) extents: ExtentTable,
    /// What the numbers of the log table mean, and the segments of extents.
    pub(super) directory: Directory,
    /// Tombstones that are in no segment yet.
    pub(super) waiting: WaitingTombstones,
    zone_pages: u64,
    /// Pages to read for an extent whose length the table could not keep.
    extent_pages_max: u32,
}

/// The figures of the index.
pub(crate) struct IndexStats {
    /// Entries of the log table: records, superseded versions and tombstones included.
    pub(crate) log_entries: u64,
    /// Entries of the extent table.
    pub(crate) extents: u64,
    /// Tombstones that wait for room in a buffer.
    pub(crate) tombstones_waiting: u64,
    /// Memory of the log table, bytes.
    pub(crate) log_table_bytes: u64,
    /// Memory of the extent table, bytes.
    pub(crate) extent_table_bytes: u64,
    /// Memory of the directory, bytes.
    pub(crate) directory_bytes: u64,
}

impl Index {
    /// An empty index of this size.
    pub(crate) fn new(shape: &Shape) -> Index {
        let table = LogTable::new(shape.budget.log_table, shape.log_ids);
        let longest = (shape.part_bytes_max + RECORD_BYTES_MORE).div_ceil(PAGE_BYTES) as u32;
        Index {
            directory: Directory::new(table.id_max()),
            table,
            extents: ExtentTable::new(shape.budget.extent_table),
            waiting: WaitingTombstones::new(shape.budget.waiting_tombstones),
            zone_pages: shape.zone_pages as u64,
            extent_pages_max: longest + EXTENT_PAGES_MORE,
        }
    }

    /// The figures of this moment.
    pub(crate) fn stats(&self) -> IndexStats {
        IndexStats {
            log_entries: self.table.len(),
            extents: self.extents.len(),
            tombstones_waiting: self.waiting.len() as u64,
            log_table_bytes: self.table.bytes() as u64,
            extent_table_bytes: self.extents.bytes() as u64,
            directory_bytes: self.directory.bytes(),
        }
    }

    /// Whether tombstones wait for room in a buffer.
    pub(crate) fn has_waiting_tombstones(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// See [`WaitingTombstones::is_crowded`].
    pub(crate) fn is_crowded(&self) -> bool {
        self.waiting.is_crowded()
    }

    /// See [`WaitingTombstones::is_stalled`].
    pub(crate) fn is_stalled(&self) -> bool {
        self.waiting.is_stalled()
    }

    /// Segments of the log that may hold a hash, newest first. Those below the floor are left out.
    pub(crate) fn log_segments(&self, hash: u64, floor: u64) -> Vec<Arc<LogSegment>> {
        let mut candidates = Candidates::new();
        self.table.candidates(listed(hash), &mut candidates);
        let mut segments: Vec<Arc<LogSegment>> =
            candidates.iter().filter_map(|id| self.directory.get(*id)).collect();
        segments.retain(|segment| segment.sequence() >= floor);
        segments.sort_by_key(|segment| std::cmp::Reverse(segment.sequence()));
        segments
    }

    /// Loads what lookups of these hashes look at first: the tables for all of them, and then the fences of the
    /// segments that the tables name. The result means nothing.
    #[inline]
    pub(crate) fn touch(&self, hashes: impl Iterator<Item = u64> + Clone) -> u64 {
        let tables = |seen, hash| seen ^ self.table.touch(listed(hash)) ^ self.extents.touch(hash);
        let seen = hashes.clone().fold(0, tables);
        hashes.fold(seen, |seen, hash| seen ^ self.touch_fences(hash))
    }

    fn touch_fences(&self, hash: u64) -> u64 {
        let mut candidates = Candidates::new();
        self.table.candidates(listed(hash), &mut candidates);
        candidates.iter().map(|id| self.directory.touch_fences(*id, hash)).fold(0, |seen, fence| seen ^ fence)
    }

    /// Whether the log table has an entry for a hash.
    pub(crate) fn table_may_hold(&self, hash: u64) -> bool {
        self.table_may_list(listed(hash))
    }

    /// As [`Index::table_may_hold`], for a hash as the foot of a segment lists it.
    pub(crate) fn table_may_list(&self, hash: u64) -> bool {
        let mut candidates = Candidates::new();
        self.table.candidates(hash, &mut candidates);
        !candidates.is_empty()
    }

    /// Whether the log table has this share of its entries, percent.
    pub(crate) fn is_table_filled(&self, percent: u64) -> bool {
        self.table.len() * 100 >= self.table.capacity() * percent
    }

    /// Share of a zone, percent, that has to be garbage if the zone is reclaimed for its entries in the log table: the
    /// less, the fewer entries are left. 100 where enough are.
    pub(crate) fn garbage_percent_for_entries(&self) -> u32 {
        let filled = (self.table.len() * 100 / self.table.capacity().max(1)) as u32;
        let crowded = filled.saturating_sub(TABLE_CROWDED_PERCENT);
        100u32.saturating_sub(crowded * GARBAGE_PER_PERCENT).max(GARBAGE_MIN_PERCENT)
    }

    /// Whether the log table has only the last `percent` of its entries left.
    pub(crate) fn is_table_down_to(&self, percent: u64) -> bool {
        let capacity = self.table.capacity();
        let left = capacity * percent / 100;
        // The smallest tables have a stash that is larger than they are.
        left > 0 && self.table.len() + left >= capacity
    }

    /// Whether there is an extent under a hash, in a buffer or on the device,
    /// that is not below the floor.
    pub(crate) fn has_extent(&self, hash: u64, floor: u64) -> bool {
        let on_device =
            |extent: &Extent| self.extent_segment(extent).is_none_or(|segment| segment.sequence() >= floor);
        self.extents.candidates(hash).iter().any(on_device) || self.extents_buffers_hold(hash)
    }

    /// Whether a buffer of extents has a live record under a hash.
    pub(crate) fn extents_buffers_hold(&self, hash: u64) -> bool {
        let holds =
            |buffer: &Arc<Buffer>| buffer.read().as_ref().is_some_and(|content| content.may_hold(hash));
        self.directory.extents().buffers.iter().any(holds)
    }

    /// The address of a page in the extent table: its number over all zones.
    pub(crate) fn extent_address(&self, zone: ZoneId, page: u32) -> u64 {
        zone.0 as u64 * self.zone_pages + page as u64
    }

    /// The segment that an extent of the table is in.
    pub(crate) fn extent_segment(&self, extent: &Extent) -> Option<Arc<Segment>> {
        let zone = ZoneId(u32::try_from(extent.address / self.zone_pages).ok()?);
        self.directory.extents().at(zone, (extent.address % self.zone_pages) as u32).cloned()
    }

    /// Whether the extent table has an entry of a hash that leads into a segment.
    pub(crate) fn leads_to(&self, hash: u64, segment: &Segment) -> bool {
        let first = self.extent_address(segment.zone(), segment.run.first_data_page);
        let pages = first..first + segment.run.data_pages as u64;
        self.extents.candidates(hash).iter().any(|extent| pages.contains(&extent.address))
    }

    /// Pages in which extents of a hash are on the device.
    pub(crate) fn extent_runs(&self, hash: u64, floor: u64) -> Vec<(Arc<Segment>, PageRun)> {
        let mut runs = Vec::new();
        for extent in self.extents.candidates(hash).iter() {
            let Some(segment) = self.extent_segment(extent) else { continue };
            if segment.sequence() < floor {
                continue;
            }
            let first = (extent.address % self.zone_pages) as u32;
            let left = segment.run.first_data_page + segment.run.data_pages - first;
            let count = if extent.pages == 0 { self.extent_pages_max } else { extent.pages }.min(left);
            let run = PageRun { zone: segment.zone(), first, count };
            runs.push((segment, run));
        }
        runs
    }

    /// Whether a lookup still finds a segment where it found it.
    pub(crate) fn has_segment(&self, segment: &Segment) -> bool {
        match segment.id {
            0 => {
                let extents = self.directory.extents();
                let known = extents.at(segment.zone(), segment.run.first_data_page);
                known.is_some_and(|known| std::ptr::eq(&**known, segment))
            }
            id => self.directory.get(id).is_some_and(
                |known| matches!(&*known, LogSegment::Flash(known) if std::ptr::eq(&**known, segment)),
            ),
        }
    }

    /// Looks, and looks again if the result is `doubtful` and something moved meanwhile. An extent that moves from its
    /// buffer to the device, or from there to another buffer, is in neither for a look that reads each before the
    /// extent gets there.
    pub(crate) fn unmoved<T>(&self, look: impl Fn() -> T, doubtful: impl Fn(&T) -> bool) -> T {
        loop {
            let changes = self.directory.changes();
            let seen = look();
            if !doubtful(&seen) || self.directory.changes() == changes {
                return seen;
            }
        }
    }
}
