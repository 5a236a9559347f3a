//! Shrinking: linear hashing backwards, one bucket at a time, and memory that is given back.
//!
//! ```text
//! before   0 ........ i ........ half ........ n            half = the power of two below or at n, i = n - half
//! after    0 ........ i ........ half ...... n-1            the entries of bucket n are in i
//! ```
//!
//! A merge has the steps of a split (see `grow`), and the same promise: no reader misses a key that is present all the
//! time.
//!
//! 1. The writer bits of `i` and `n` are taken.
//! 2. The entries of `n` are written to `i` too. For a moment they are in both buckets.
//! 3. `buckets` becomes `n` (Release). From now on readers of their hashes go to `i` and find them there.
//! 4. The entries are removed from `n`. A reader that read the old `buckets` and now misses in `n` finds the header of
//!    `n` locked or changed, or that its hash belongs to `i`, and starts again.
//! 5. Both buckets are unlocked.
//!
//! The bits for growth that the entries of `i` need are among those that the positions of the two buckets say. So no
//! record is read.
//!
//! Memory of buckets goes back later, when no thread can be about to write to them: [`Index::spare`]. Sub-buckets are
//! packed together first ([`Index::pack_sub_buckets`]).

use super::grow::half_of;
use super::{BUCKET_BYTES, Index};
use crate::region::HUGE_PAGE_BYTES;
use larder_item::KeyHash;
use std::sync::atomic::Ordering;

/// The index shrinks while it has a quarter more buckets than the fill target asks for.
const SPARE_SHARE: u64 = 4;
/// Merges between two looks at how many are wanted.
const BATCH: u64 = if cfg!(loom) { 1 } else { 32 };
/// Memory of buckets is given back if it is a 32nd of what they need, and 32 KiB at least.
const GIVEN_BACK_SHARE: u64 = 32;
const GIVEN_BACK_MIN_BYTES: u64 = 32 << 10;

/// Memory of buckets that are not in use any more. A thread that read the number of buckets before may be about to
/// look at them.
#[derive(Clone, Copy, Debug)]
pub struct SpareBuckets {
    buckets: u64,
    /// No bucket was split since, if the index still says so.
    splits: u64,
}

impl Index {
    /// Merges at most `max` buckets, as long as there are too many for the entries or for the limit. Returns the number
    /// of merges. While another thread grows or shrinks the index, the answer is 0.
    pub fn shrink(&self, max: usize) -> usize {
        if self.merges_wanted() == 0 {
            return 0;
        }
        let Some(_busy) = self.be_busy() else { return 0 };
        let mut done = 0;
        loop {
            let wanted = self.merges_wanted().min(max as u64 - done).min(BATCH);
            for last in (self.buckets() - wanted..self.buckets()).rev() {
                crate::shim::prefetch_read(self.bucket(last));
                crate::shim::prefetch_read(self.bucket(last - half_of(last)));
            }
            for _ in 0..wanted {
                // A bucket may hold no more, or the pool has no sub-buckets.
                if !self.merge_last() {
                    return done as usize;
                }
                done += 1;
            }
            if wanted == 0 {
                return done as usize;
            }
        }
    }

    /// How many buckets there are too many.
    fn merges_wanted(&self) -> u64 {
        let needed = self.len() / self.fill_target;
        let most = (needed + needed / SPARE_SHARE).min(self.growth.limit.load(Ordering::Relaxed));
        self.buckets().saturating_sub(most.max(self.growth.least))
    }

    /// Makes one bucket of the last one and the one that it was split from. Returns `false`, and changes nothing, if
    /// that has no room for the entries of both. Only the thread that is `busy` may call it.
    fn merge_last(&self) -> bool {
        let last = self.buckets() - 1;
        let (position, level) = (last - half_of(last), last.ilog2());
        let mut to = self.lock_position(position, KeyHash(position));
        let mut from = self.lock_position(last, KeyHash(last));
        let is_renewed = self.format.is_renewed_at(level + 1);
        // The low bits of a hash are those of the position, and the bits for growth are among them.
        let of_level = |position: u64| {
            move |word| match is_renewed {
                true => self.format.renewed(word, KeyHash(position), level),
                false => word,
            }
        };
        if !from.copy_all(&mut to, of_level(last), of_level(position)) {
            return false;
        }
        // Release pairs with the Acquire in `position`: a thread that counts one bucket less sees the entries of both
        // in the other one, and its lock.
        self.buckets.store(last, Ordering::Release);
        from.clear(|_| true);
        true
    }

    /// The memory of buckets that can be given back when every thread that uses the index now has come to its end.
    pub fn spare(&self) -> Option<SpareBuckets> {
        let _busy = self.be_busy()?;
        let (buckets, touched) = (self.buckets(), self.growth.touched.load(Ordering::Relaxed));
        let needed_bytes = BUCKET_BYTES * buckets;
        let spare_bytes = (BUCKET_BYTES * touched).saturating_sub(needed_bytes);
        (spare_bytes >= (needed_bytes / GIVEN_BACK_SHARE).max(GIVEN_BACK_MIN_BYTES))
            .then(|| SpareBuckets { buckets, splits: self.growth.splits.load(Ordering::Relaxed) })
    }

    /// Gives the memory of `spare` back to the operating system, unless buckets were split since. Every thread that
    /// used the index when `spare` was asked for has come to its end since.
    pub fn give_back(&self, spare: SpareBuckets) {
        let Some(_busy) = self.be_busy() else { return };
        if self.growth.splits.load(Ordering::Relaxed) != spare.splits {
            return;
        }
        let touched = self.growth.touched.swap(spare.buckets, Ordering::Relaxed);
        let bytes = BUCKET_BYTES * spare.buckets;
        if let Some(collapsed) = &self.collapsed {
            collapsed.buckets.fetch_min(bytes / HUGE_PAGE_BYTES, Ordering::Relaxed);
        }
        self.main.release(bytes, BUCKET_BYTES * touched);
    }

    /// If far fewer sub-buckets are in use than there is memory for: moves some of them together, and gives memory
    /// back. Looks at `max` buckets at most. Returns whether there is more to do.
    pub fn pack_sub_buckets(&self, max: u64) -> bool {
        let Some(_busy) = self.be_busy() else { return false };
        let packed = &self.growth.packed;
        let Some(end) = self.pool.begin_packing(|| packed.store(0, Ordering::Relaxed)) else { return false };
        let first = packed.load(Ordering::Relaxed);
        let stop = self.buckets().min(first + max);
        for position in first..stop {
            if !self.lock_position(position, KeyHash(position)).move_run_below(end) {
                return false;
            }
        }
        packed.store(stop, Ordering::Relaxed);
        if stop < self.buckets() {
            return true;
        }
        self.pool.end_packing(|bytes| {
            if let Some(collapsed) = &self.collapsed {
                collapsed.subs.fetch_min(bytes / HUGE_PAGE_BYTES, Ordering::Relaxed);
            }
        });
        false
    }
}
