//! Growth: linear hashing, one bucket at a time. The way back is in `shrink`.
//!
//! ```text
//! before   0 ........ i ........ half ........ n            half = the power of two below or at n, i = n - half
//! after    0 ........ i ........ half ........ n, n+1       bucket i has split into i and n
//! ```
//!
//! A split has five steps. Their order ensures that no reader misses a key that is present all the time:
//!
//! 1. The writer bits of `i` and `n` are taken. No other thread has a use for `n` yet; one that read a higher number of
//!    buckets, before the index shrank, may take its writer bit for a moment, and finds that it has no use for it.
//! 2. The movers are written to `n`. For a moment they are in both buckets.
//! 3. `buckets` becomes `n + 1` (Release). From now on readers of the movers' hashes go to `n` and find them there.
//! 4. The movers are removed from `i`. A reader that read the old `buckets` and now misses in `i` finds the header
//!    of `i` locked or changed, and starts again with the new `buckets`.
//! 5. Both buckets are unlocked. Until then no writer can remove a mover from `n`. The copy in `i` therefore never
//!    outlives the entry, and a writer that removed an entry knows that no reader finds it any more.
//!
//! The entries have bits of their hashes for some splits to come (see `entry`), so that most splits read only the two
//! buckets. Where those bits are used up, the hashes of the bucket's keys are computed again. This is done before the
//! lock is taken, for several buckets at a time, so that the reads of their records overlap. If the bucket has changed
//! when its lock is taken, its hashes are computed again under the lock.

use super::Index;
use super::guard::BucketGuard;
use crate::bucket::{BUCKET_ENTRIES_MAX, WRITER};
use crate::entry::{identity, tag_word};
use crate::holds_key::HoldsKey;
use crate::snapshot::Snapshot;
use larder_item::KeyHash;
use std::sync::atomic::Ordering;

/// Number of splits whose cache lines are fetched together.
const BATCH: usize = if cfg!(loom) { 1 } else { 4 };

/// The hashes of the entries of one bucket.
struct Hashes {
    len: usize,
    identities: [u64; BUCKET_ENTRIES_MAX],
    hashes: [KeyHash; BUCKET_ENTRIES_MAX],
}

impl Hashes {
    /// Asks the owner for the hashes of the entries of `seen`.
    fn ask(index: &Index, seen: &Snapshot, owner: &impl HoldsKey) -> Hashes {
        let mut known =
            Hashes { len: 0, identities: [0; BUCKET_ENTRIES_MAX], hashes: [KeyHash(0); BUCKET_ENTRIES_MAX] };
        for word in seen.words() {
            let hash = owner.hash_of(index.format.unpack(*word).location);
            debug_assert!(tag_word(hash) ^ word < 1 << 48, "the owner's hash is the one inserted under");
            (known.identities[known.len], known.hashes[known.len]) = (identity(*word), hash);
            known.len += 1;
        }
        known
    }

    /// The hash of an entry of the bucket.
    fn of(&self, word: u64) -> KeyHash {
        let at = self.identities[..self.len].iter().position(|known| *known == identity(word));
        self.hashes[at.expect("every entry of the bucket was asked for")]
    }
}

/// Clears `busy` when growth ends, however it ends. While a thread has it, no other splits or merges buckets.
pub(super) struct Busy<'i>(&'i Index);

impl Index {
    /// Makes this thread the one that changes the number of buckets, unless another thread is.
    pub(super) fn be_busy(&self) -> Option<Busy<'_>> {
        let is_free =
            !self.growth.busy.load(Ordering::Relaxed) && !self.growth.busy.swap(true, Ordering::Acquire);
        is_free.then(|| Busy(self))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `be_busy`: the next thread that is busy sees the buckets of this one.
        self.0.growth.busy.store(false, Ordering::Release);
    }
}

impl Index {
    /// Whether [`Index::grow`] has something to do. The call costs one load. The answer may be some inserts late.
    #[inline]
    pub fn needs_growth(&self) -> bool {
        self.growth.wanted.load(Ordering::Relaxed)
    }

    /// Lets growth stop at `buckets` buckets, as the memory budget demands. Buckets beyond the limit that already
    /// exist stay.
    pub fn set_growth_limit(&self, buckets: u64) {
        self.growth.limit.store(buckets.min(self.main.len() as u64), Ordering::Relaxed);
        self.look_whether_to_grow();
    }

    /// Splits at most `max` buckets, as long as there are more entries than the fill target times the buckets and
    /// the limit allows it. Returns the number of splits. While one thread grows the index, the others return 0 at
    /// once.
    ///
    /// `owner` must keep every record of the index readable during the call, as for a lookup.
    pub fn grow(&self, owner: &impl HoldsKey, max: usize) -> usize {
        let Some(_busy) = self.be_busy() else { return 0 };
        self.growth.splits.fetch_add(1, Ordering::Relaxed);
        let mut done = 0;
        while done < max {
            let wanted = self.splits_wanted().min((max - done) as u64) as usize;
            if wanted == 0 {
                self.growth.wanted.store(false, Ordering::Relaxed);
                break;
            }
            let split = self.split_some(wanted.min(BATCH), owner);
            done += split;
            if split == 0 {
                // The pool is exhausted. The next sample asks again.
                self.growth.wanted.store(false, Ordering::Relaxed);
                break;
            }
        }
        done
    }

    /// Requests growth if the index is too full and may grow.
    pub(super) fn look_whether_to_grow(&self) {
        if !self.needs_growth() && self.splits_wanted() > 0 {
            self.growth.wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Number of buckets missing for the fill target, within the limit.
    fn splits_wanted(&self) -> u64 {
        let buckets = self.buckets();
        let wanted = self.len() / self.fill_target;
        wanted.min(self.growth.limit.load(Ordering::Relaxed)).saturating_sub(buckets)
    }

    /// Splits the next `count` buckets. Returns how many it could split. Only the thread that is `busy` may call
    /// it.
    fn split_some(&self, count: usize, owner: &impl HoldsKey) -> usize {
        let first = self.buckets();
        for new in first..first + count as u64 {
            crate::shim::prefetch_read(self.bucket(new - half_of(new)));
        }
        let mut seen = [const { None }; BATCH];
        for (snapshot, new) in seen.iter_mut().zip(first..).take(count) {
            if self.format.is_renewed_at(new.ilog2() + 1) {
                let snapshot = snapshot.insert(self.snapshot(new - half_of(new)));
                let locations = snapshot.words().iter().map(|word| self.format.unpack(*word).location);
                locations.for_each(|at| owner.prefetch(at));
            }
        }
        let mut done = 0;
        for (snapshot, new) in seen.iter().zip(first..).take(count) {
            let is_split = match snapshot {
                Some(seen) => self.split_by_records(new, seen, owner),
                None => self.split_by_entries(new),
            };
            if !is_split {
                break;
            }
            done += 1;
        }
        done
    }

    /// Makes bucket `new`, which equals `buckets`, out of the bucket it splits from, by what the entries say. Returns
    /// `false` and changes nothing if the pool has no sub-buckets for it.
    fn split_by_entries(&self, new: u64) -> bool {
        let (position, level) = (new - half_of(new), new.ilog2());
        let from = self.lock_position(position, KeyHash(position));
        self.split(new, from, |word| self.format.moves(word, level), |word| word).is_some()
    }

    /// As [`Index::split_by_entries`], by what the records say. `seen` is a recent snapshot of the bucket that splits.
    fn split_by_records(&self, new: u64, seen: &Snapshot, owner: &impl HoldsKey) -> bool {
        let (position, half, level) = (new - half_of(new), half_of(new), new.ilog2());
        let mut hashes = Hashes::ask(self, seen, owner);
        let unlocked = seen.header & WRITER == 0;
        let same =
            unlocked.then(|| self.try_lock_position(position, KeyHash(position), seen.header)).flatten();
        let from = same.unwrap_or_else(|| {
            let guard = self.lock_position(position, KeyHash(position));
            hashes = Hashes::ask(self, &self.snapshot(position), owner);
            guard
        });
        let renewed = |word| self.format.renewed(word, hashes.of(word), level + 1);
        let Some(mut from) = self.split(new, from, |word| hashes.of(word).0 & half != 0, renewed) else {
            return false;
        };
        from.renew(renewed);
        true
    }

    /// Makes bucket `new`, which equals `buckets`, of those entries of `from` that `moves` names, after `renewed` has
    /// changed their words. `None`, and nothing is changed: the pool has no sub-buckets for it.
    #[inline(always)]
    fn split<'i>(
        &'i self,
        new: u64,
        mut from: BucketGuard<'i>,
        moves: impl Fn(u64) -> bool,
        renewed: impl Fn(u64) -> u64,
    ) -> Option<BucketGuard<'i>> {
        let mut to = self.lock_position(new, KeyHash(new));
        // A snapshot would be older than the lock, and warmth may have risen since: the words are copied as they are
        // now.
        if !from.copy_movers(&mut to, &moves, renewed) {
            return None;
        }
        // Release pairs with the Acquire in `position`: a thread that counts the new bucket sees its entries and
        // its lock.
        self.buckets.store(new + 1, Ordering::Release);
        self.growth.touched.fetch_max(new + 1, Ordering::Relaxed);
        from.clear(moves);
        Some(from)
    }
}

/// The greatest power of two not above `new`: bucket `new` splits from `new - half`.
pub(super) fn half_of(new: u64) -> u64 {
    1 << new.ilog2()
}
