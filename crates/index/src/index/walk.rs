//! Walks over all entries, in an order that growth and shrinking do not change.
//!
//! A bucket holds the hashes with the same low bits. With the bits of a hash in reverse order, those of a bucket are
//! an interval, and the buckets in the order of their intervals are all hashes in order:
//!
//! ```text
//! 6 buckets     0   | 4   | 2   | 6   | 1     | 3     | 5 ...       in the order of the low bits, reversed
//! after a split, an interval is two; after a merge, two are one
//! ```
//!
//! A cursor is a place in that order. A walk goes on with the bucket that holds the hash at the cursor, and what was
//! walked before is before the cursor, whatever has become of the buckets.

use super::{BUCKETS_LOG2_MAX, Index, level_of, position_among};
use crate::bucket::{WRITER, subs};
use crate::entry::Entry;
use crate::shim::pause;
use crate::snapshot::Snapshot;
use larder_item::KeyHash;
use std::sync::atomic::Ordering;

/// A cursor is below `1 << CURSOR_BITS`.
pub const CURSOR_BITS: u32 = BUCKETS_LOG2_MAX;

/// How far a walk has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walked {
    /// The cursor to go on from; `None` after the last bucket.
    pub next: Option<u64>,
    /// Two buckets were merged since the walk came to the cursor: entries were shown that were shown before. They are
    /// those for which [`Index::is_before`].
    pub has_repeats: bool,
}

/// The low bits of a hash in reverse order.
fn reversed(hash: u64) -> u64 {
    hash.reverse_bits() >> (u64::BITS - CURSOR_BITS)
}

impl Index {
    /// Calls `f` with the entries of the bucket at `cursor`, and says where the walk goes on. A walk starts at 0. It
    /// shows an entry that exists for the whole walk once, but for repeats. No lock is held while `f` runs.
    pub fn walk(&self, cursor: u64, f: &mut dyn FnMut(Entry)) -> Walked {
        if cursor >> CURSOR_BITS != 0 {
            return Walked { next: None, has_repeats: false };
        }
        let mut turns = 0;
        let (seen, first, length) = loop {
            // Acquire, as in `position`.
            let buckets = self.buckets.load(Ordering::Acquire);
            let position = position_among(reversed(cursor), buckets);
            let level = level_of(position, buckets);
            let seen = self.snapshot(position);
            // As a miss, a snapshot is right only if the bucket is still what it was; in this order, as in `look_up`.
            let now = self.buckets.load(Ordering::Acquire);
            let header = self.bucket(position).header.load(Ordering::Relaxed);
            let is_unchanged = seen.header & WRITER == 0 && header == seen.header;
            if is_unchanged
                && position_among(reversed(cursor), now) == position
                && level_of(position, now) == level
            {
                break (seen, reversed(position), 1 << (CURSOR_BITS - level));
            }
            pause(&mut turns);
        };
        seen.words().iter().for_each(|word| f(self.format.unpack(*word)));
        let next = first + length;
        Walked { next: (next >> CURSOR_BITS == 0).then_some(next), has_repeats: first < cursor }
    }

    /// Whether an entry of `hash` is walked before the cursor.
    pub fn is_before(&self, hash: KeyHash, cursor: u64) -> bool {
        reversed(hash.0) < cursor
    }

    /// Prefetches the line of a bucket that a walk at `cursor` comes to after about `ahead` others.
    pub fn prefetch_walk(&self, cursor: u64, ahead: u64) {
        let buckets = self.buckets();
        let step = 1u64 << (CURSOR_BITS - buckets.next_power_of_two().trailing_zeros());
        let cursor = (cursor + ahead * step) & ((1 << CURSOR_BITS) - 1);
        crate::shim::prefetch_read(self.bucket(position_among(reversed(cursor), buckets)));
    }

    /// Calls `f` with the entries of the bucket at a position, for samples: entries that move at this moment may be
    /// left out, or be shown twice.
    pub fn entries_at(&self, position: u64, f: &mut dyn FnMut(Entry)) {
        if position < self.buckets.load(Ordering::Acquire) {
            self.snapshot(position).words().iter().for_each(|word| f(self.format.unpack(*word)));
        }
    }

    /// Copies the entries of the bucket at `position`, and the header as it was before. The copy is consistent only
    /// if the header was unlocked and is still the same afterwards, or if the caller holds the writer bit.
    pub(super) fn snapshot(&self, position: u64) -> Snapshot {
        let bucket = self.bucket(position);
        let mut seen = Snapshot::empty(bucket.header.load(Ordering::Acquire));
        bucket.entries.iter().for_each(|slot| seen.push(slot.load(Ordering::Acquire)));
        for position in subs(seen.header) {
            self.pool.sub(position).entries.iter().for_each(|slot| seen.push(slot.load(Ordering::Acquire)));
        }
        seen
    }
}
