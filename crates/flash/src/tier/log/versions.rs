//! Versions of one hash in the log: which one was replaced, and which ones the log table names.

use super::{Append, Log};
use crate::log_table::Candidates;
use crate::segment::listed;
use crate::tier::directory::LogSegment;

/// Where the log table names so many versions of a hash, the oldest one may give its slot to another entry. Two buckets
/// have room for six or eight entries, and those of a hash cannot move elsewhere.
const VERSIONS_MANY: usize = 2;

impl Log {
    /// Notes that a record of this hash was appended to the segment `newer`: the newest older segment has one live
    /// record less.
    pub(super) fn note_superseded(&self, hash: u64, newer: u64) {
        let newest = self.lookup.log_segments(hash).into_iter().find(|segment| segment.sequence() < newer);
        if let Some(LogSegment::Flash(segment)) = newest.as_deref() {
            segment.supersede_one();
        }
    }

    /// The table has no room for a hash, because it names many versions of another one or of the same: the oldest of
    /// them on the device gives its slot. (Where the table cannot tell two hashes apart, the newest version of a key
    /// may go so. That is a miss.) Says whether one did.
    pub(super) fn unname_oldest(&self, append: &mut Append, hash: u64) -> bool {
        let table = &self.index().table;
        let mut named = Candidates::new();
        let class = table.crowd(listed(hash), &mut named);
        if named.len() < VERSIONS_MANY {
            return false;
        }
        let on_device = |id: &u16| match self.index().directory.get(*id).as_deref() {
            Some(LogSegment::Flash(segment)) => Some((segment.sequence(), *id)),
            _ => None,
        };
        let Some((sequence, id)) = named.iter().filter_map(on_device).min() else { return false };
        append.unnamed.add(class, sequence);
        table.remove_of_class(class, id)
    }

    /// Whether the device may have a version of a hash in the log that the log table does not name.
    pub(crate) fn may_have_unnamed(&self, hash: u64) -> bool {
        self.append().unnamed.contains(self.index().table.class(listed(hash)))
    }
}
