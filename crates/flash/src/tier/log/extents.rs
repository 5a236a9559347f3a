//! Which extents a record of the log supersedes.

use super::{Append, Log};
use crate::tier::buffer::{Buffer, Query};
use std::sync::Arc;

impl Log {
    /// Whether a query finds an extent, in the extent table or in a buffer.
    pub(super) fn has_extent(&self, query: &Query<'_>) -> bool {
        let in_buffer = |buffer: &Arc<Buffer>| {
            buffer.read().as_ref().is_some_and(|content| content.find(query, buffer.cas_base).is_some())
        };
        let has = || {
            !self.index().extents.candidates(query.hash).is_empty()
                || self.index().directory.extents().buffers.iter().any(in_buffer)
        };
        self.index().unmoved(has, |has| !has)
    }

    /// Whether a record that becomes the newest of this hash must carry the mark that extents are superseded.
    pub(super) fn marks_extent(&self, append: &Append, hash: u64) -> bool {
        append.dead.contains(self.index().extents.class(hash)) || self.status().is_recovering()
    }

    /// Makes all extents of a query dead, but for one in the buffer of the sequence `spare`.
    pub(super) fn kill_extents(&self, append: &mut Append, query: &Query<'_>, spare: Option<u64>) {
        let index = self.index();
        index.directory.count_change();
        for buffer in &index.directory.extents().buffers {
            if Some(buffer.sequence) == spare {
                continue;
            }
            // A sealed buffer may be on its way to the device, together with this extent.
            let killed = buffer.read().as_ref().is_some_and(|content| content.kill(query, buffer.cas_base));
            if killed && buffer.is_sealed() {
                append.dead.add(index.extents.class(query.hash), buffer.sequence);
            }
        }
        for extent in index.extents.candidates(query.hash).iter() {
            if let Some(segment) = index.extent_segment(extent) {
                segment.supersede_one();
                append.dead.add(index.extents.class(query.hash), segment.sequence());
            }
        }
        index.extents.remove_matching(query.hash);
    }
}
