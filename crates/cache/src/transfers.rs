//! How many bytes of large values are on their way in and out.
//!
//! The columns of a large value are pinned while it is received or sent, and a pinned column cannot be reclaimed. So slow
//! clients must not be able to pin everything: the bytes of all uploads together are bounded, and so are those of all reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// The most bytes in transit, as shares of the memory for columns: one half on the way in, one quarter on the way out.
const UPLOADS_SHARE: u64 = 2;
const READS_SHARE: u64 = 4;

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// A client sends the value.
    Upload,
    /// A client receives the value.
    Read,
}

/// Bytes in transit.
#[derive(Default)]
pub(crate) struct Transfers {
    uploads: AtomicU64,
    reads: AtomicU64,
}

impl Transfers {
    fn bytes(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Upload => &self.uploads,
            Direction::Read => &self.reads,
        }
    }

    /// Counts `more` bytes of a transfer that counts `own` bytes already, beside columns of `columns_bytes`. Returns false if
    /// that would be too many. A single transfer is always let through: `-I` has bounded it already.
    pub(crate) fn try_add(&self, direction: Direction, more: u64, own: u64, columns_bytes: u64) -> bool {
        let share = if direction == Direction::Upload { UPLOADS_SHARE } else { READS_SHARE };
        let before = self.bytes(direction).fetch_add(more, Ordering::Relaxed);
        if before > own && before + more > columns_bytes / share {
            self.remove(direction, more);
            return false;
        }
        true
    }

    /// Counts `bytes` no longer.
    pub(crate) fn remove(&self, direction: Direction, bytes: u64) {
        self.bytes(direction).fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether a transfer that counts `own` bytes is the only one of its direction.
    pub(crate) fn is_sole(&self, direction: Direction, own: u64) -> bool {
        self.bytes(direction).load(Ordering::Relaxed) == own
    }
}
