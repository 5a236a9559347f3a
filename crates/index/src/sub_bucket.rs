//! A sub-bucket: one more cache line of entries for a full bucket.
//!
//! A full bucket has a *run* of sub-buckets: one, two or four that lie side by side in the pool. A run of size `n` has
//! `2^(n-1)` sub-buckets, for `n` from 1 to [`RUN_SIZE_MAX`]. A sub-bucket has no header of its own: the header of its
//! bucket guards it.

use crate::region::Blank;
use crate::shim::AtomicU64;
use std::sync::atomic::Ordering;

/// Entries in a sub-bucket.
pub(crate) const SUB_ENTRIES: usize = if cfg!(loom) { 2 } else { 8 };
/// The size of the longest run.
pub(crate) const RUN_SIZE_MAX: usize = 3;

/// The position of a sub-bucket in the pool. The pool may give the sub-bucket to another bucket at any time; the
/// position stays valid.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SubBucketPosition(pub(crate) u32);

/// A cache line of entries that belongs to at most one bucket.
#[repr(C, align(64))]
pub(crate) struct SubBucket {
    pub(crate) entries: [AtomicU64; SUB_ENTRIES],
}

// SAFETY: an AtomicU64 of zero bytes is the number 0 (outside loom, where `blank` is used instead), and needs no drop.
// The word 0 is "no entry".
unsafe impl Blank for SubBucket {
    #[cfg(loom)]
    fn blank() -> SubBucket {
        SubBucket { entries: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SubBucket>() == 64);

impl SubBucket {
    /// The number of entries. For lock holders.
    pub(crate) fn count(&self) -> usize {
        self.entries.iter().filter(|slot| slot.load(Ordering::Relaxed) != 0).count()
    }
}
