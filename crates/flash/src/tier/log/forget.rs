//! Segments that go are taken out of the index.

use super::{Log, TABLE_KEPT_PERCENT};
use crate::device::ZoneId;
use crate::segment::Kind;
use crate::tier::directory::Segment;
use crate::tier::status::TimeSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The log table is swept for one entry in 64.
const SWEPT_PART: u64 = 64;

/// The log table is swept when there is a number to be freed for 4 free ones.
const IDS_PART: usize = 4;
/// Numbers of the log table that are kept free, for segments that are opened while others are freed.
pub(super) const IDS_KEPT: usize = 6;

/// Numbers of the log table that mean no segment any more, while entries with them are in the table.
#[derive(Default)]
pub(super) struct Retired {
    ids: Vec<u16>,
    entries: u64,
}

impl Log {
    /// Takes segments of a zone out of the index. It is written down already that a restart does not find them.
    pub(crate) fn forget_segments(&self, zone: ZoneId, segments: &[Arc<Segment>]) {
        let ids: Vec<u16> = segments.iter().map(|segment| segment.id).filter(|id| *id != 0).collect();
        let has_extents = segments.iter().any(|segment| segment.kind == Kind::Extents);
        let goes = |segment: &Arc<Segment>| segments.iter().any(|known| Arc::ptr_eq(known, segment));
        let index = self.index();
        {
            let mut append = self.append();
            ids.iter().for_each(|id| index.directory.forget(*id));
            if has_extents {
                index.directory.change_extents(|extents| extents.segments.retain(|known| !goes(known)));
                let oldest = index.directory.extents().oldest();
                segments.iter().for_each(|segment| append.dead.release(segment.sequence(), oldest));
            }
            self.space.forget_segments(zone, goes);
        }
        if has_extents && let (Some(first), Some(last)) = (segments.first(), segments.last()) {
            let begin = |segment: &Segment| index.extent_address(zone, segment.run.first_data_page);
            let mut slice = TimeSlice::begin(self.status());
            let addresses = begin(first)..begin(last) + last.pages as u64;
            index.extents.sweep_zone(addresses, &mut || slice.yield_if_due(|| self.is_urgent()));
        }
        self.free_ids(&ids, segments.iter().map(|segment| segment.run.items as u64).sum());
        for segment in segments {
            let (bits, superseded) = segment.bits_bytes();
            self.counters().hit_bits_bytes.fetch_sub(bits, Relaxed);
            self.superseded_bytes.fetch_sub(superseded, Relaxed);
        }
    }

    /// Gives up `entries` entries of the log table, which have these numbers. A sweep reads all of the table, so it
    /// takes place when there is enough to take out, or numbers or entries are few.
    /// Then the numbers can be given to new segments.
    pub(super) fn free_ids(&self, ids: &[u16], entries: u64) {
        if ids.is_empty() {
            return;
        }
        let mut retired = self.sweeping.lock().expect("no panic under this lock");
        retired.ids.extend_from_slice(ids);
        retired.entries += entries;
        let dead = retired.ids.iter().collect();
        let index = self.index();
        let are_enough = retired.entries * SWEPT_PART >= index.table.capacity()
            || {
                let free = self.append().ids.len();
                free < 4 * IDS_KEPT || retired.ids.len() * IDS_PART >= free
            }
            || index.is_table_down_to(2 * TABLE_KEPT_PERCENT);
        if are_enough { self.sweep(&mut retired) } else { index.table.give_up(&dead) }
    }

    /// Sweeps what was given up out of the log table, if there is anything. Says whether there was.
    pub(crate) fn sweep_retired(&self) -> bool {
        let mut retired = self.sweeping.lock().expect("no panic under this lock");
        let any = !retired.ids.is_empty();
        if any {
            self.sweep(&mut retired);
        }
        any
    }

    fn sweep(&self, retired: &mut Retired) {
        let dead = retired.ids.iter().collect();
        let mut slice = TimeSlice::begin(self.status());
        self.index().table.sweep(&dead, &mut || slice.yield_if_due(|| self.is_urgent()));
        self.append().ids.append(&mut retired.ids);
        retired.entries = 0;
    }
}
