//! Segments of an earlier run are taken into the log.

use super::Log;
use crate::extent_table::Extent;
use crate::segment::SegmentSummary;
use crate::tier::directory::{LogSegment, Segment};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Log {
    /// Takes in a segment of the log; `false` if not all of its records have room in the index.
    pub(crate) fn restore_log_segment(&self, mut facts: SegmentSummary) -> bool {
        let id = {
            let mut append = self.append();
            let Some(id) = append.ids.pop() else { return false };
            append.raise_cas(facts.cas_max);
            id
        };
        let hashes = std::mem::take(&mut facts.hashes);
        let which_tombstones = facts.which_tombstones.clone();
        let bits = self.record_bits(facts.items, true);
        let segment = Arc::new(Segment::new(id, facts, bits));
        self.space.restore_segment(&segment);
        let index = self.index();
        index.directory.set(id, LogSegment::Flash(segment.clone()));
        for (number, hash) in hashes.iter().enumerate() {
            // Newer segments are in the table, and this one as far as it is taken in. A few hashes seem to be there and
            // are not: this is an estimate.
            if index.table_may_list(hash) {
                segment.supersede(hash);
                if !(which_tombstones.has(number) && segment.supersede_tombstone()) {
                    segment.supersede_one();
                }
            }
            if index.table.insert(hash, id).is_err() {
                self.counters().table_full.fetch_add(1, Relaxed);
                return false;
            }
        }
        true
    }

    /// Takes in a segment of extents; `false` if not all of them have room. `dead` are hashes of its extents that
    /// segments of the earlier run supersede; segments from `next_sequence` on are of this run, and supersede extents
    /// as well.
    pub(crate) fn restore_extents(
        &self,
        mut facts: SegmentSummary,
        dead: Vec<u64>,
        next_sequence: u64,
    ) -> bool {
        let cas_max = facts.cas_max;
        let extents = std::mem::take(&mut facts.extents);
        let bits = self.record_bits(facts.items, false);
        let segment = Arc::new(Segment::new(0, facts, bits));
        self.space.restore_segment(&segment);
        let (sequence, index) = (segment.sequence(), self.index());
        dead.iter().for_each(|_| segment.supersede_one());
        let mut append = self.append();
        append.raise_cas(cas_max);
        let waiting = !self.drain(&mut append);
        index.directory.change_extents(|extents| extents.segments.push(segment.clone()));
        dead.into_iter().for_each(|hash| append.dead.add(index.extents.class(hash), sequence));
        let mut all = true;
        // The newest first.
        for extent in extents.into_iter().rev() {
            let class = index.extents.class(extent.hash);
            let newer = |hash| {
                let segments = self.lookup.log_segments(hash);
                segments.iter().any(|segment| segment.sequence() >= next_sequence)
            };
            let replaced = waiting || index.has_extent(extent.hash, 0) || newer(extent.hash);
            let address = index.extent_address(segment.zone(), extent.page);
            let place = Extent { address, pages: extent.pages };
            if replaced {
                segment.supersede_one();
                append.dead.add(class, sequence);
            } else if index.extents.insert(extent.hash, place).is_err() {
                self.counters().table_full.fetch_add(1, Relaxed);
                append.dead.add(class, sequence);
                all = false;
            }
        }
        all
    }

    /// A segment of a generation was found, with this highest CAS number.
    pub(crate) fn restore_cas(&self, cas_max: u64) {
        self.append().raise_cas(cas_max);
    }
}
