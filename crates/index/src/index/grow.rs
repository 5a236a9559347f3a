//! Growth: linear hashing, one bucket at a time.
//!
//! ```text
//! before   0 ........ i ........ half ........ n            half = the power of two below or at n, i = n - half
//! after    0 ........ i ........ half ........ n, n+1       bucket i has split into i and n
//! ```
//!
//! A split has five steps. Their order ensures that no reader misses a key that is present all the time:
//!
//! 1. The writer bits of `i` and `n` are taken. No other thread can reach `n` yet.
//! 2. The movers are written to `n`. For a moment they are in both buckets.
//! 3. `buckets` becomes `n + 1` (Release). From now on readers of the movers' hashes go to `n` and find them there.
//! 4. The movers are removed from `i`. A reader that read the old `buckets` and now misses in `i` finds the header
//!    of `i` locked or changed, and starts again with the new `buckets`.
//! 5. Both buckets are unlocked. Until then no writer can remove a mover from `n`. The copy in `i` therefore never
//!    outlives the entry, and a writer that removed an entry knows that no reader finds it any more.
//!
//! The hashes of the bucket's keys are computed before the lock is taken, for several buckets at a time, so that
//! the reads of their records overlap. If the bucket has changed when its lock is taken, its hashes are computed
//! again under the lock.

use super::Index;
use crate::bucket::BUCKET_ENTRIES_MAX;
use crate::entry::{identity, tag_word, unpack};
use crate::holds_key::HoldsKey;
use crate::snapshot::Snapshot;
use larder_item::KeyHash;
use std::sync::atomic::Ordering;

/// Number of splits whose records are fetched together.
const BATCH: usize = if cfg!(loom) { 1 } else { 4 };

/// The entries of one bucket that move to the new bucket: their words without the warmth.
struct Movers {
    len: usize,
    identities: [u64; BUCKET_ENTRIES_MAX],
}

impl Movers {
    /// The entries of `seen` whose hash has the bit `half`.
    fn choose(seen: &Snapshot, half: u64, owner: &impl HoldsKey) -> Movers {
        let mut movers = Movers { len: 0, identities: [0; BUCKET_ENTRIES_MAX] };
        for word in seen.words() {
            let hash = owner.hash_of(unpack(*word).location);
            debug_assert!(tag_word(hash) ^ word < 1 << 48, "the owner's hash is the one inserted under");
            if hash.0 & half != 0 {
                movers.identities[movers.len] = identity(*word);
                movers.len += 1;
            }
        }
        movers
    }

    fn contains(&self, word: u64) -> bool {
        self.identities[..self.len].contains(&identity(word))
    }
}

/// Clears `busy` when growth ends, however it ends.
struct Busy<'i>(&'i Index);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `grow`: the next thread to grow sees the buckets of this one.
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
        if self.growth.busy.load(Ordering::Relaxed) || self.growth.busy.swap(true, Ordering::Acquire) {
            return 0;
        }
        let _busy = Busy(self);
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
            let snapshot = snapshot.insert(self.snapshot(new - half_of(new)));
            snapshot.words().iter().for_each(|word| owner.prefetch(unpack(*word).location));
        }
        let mut done = 0;
        for (snapshot, new) in seen.iter().flatten().zip(first..) {
            if !self.split(new, snapshot, owner) {
                break;
            }
            done += 1;
        }
        done
    }

    /// Makes bucket `new`, which equals `buckets`, out of the bucket it splits from, of which `seen` is a recent
    /// snapshot. Returns `false` and changes nothing if the pool has no sub-buckets for it.
    fn split(&self, new: u64, seen: &Snapshot, owner: &impl HoldsKey) -> bool {
        let half = half_of(new);
        let position = new - half;
        let mut movers = Movers::choose(seen, half, owner);
        let unlocked = seen.header & crate::bucket::WRITER == 0;
        let same =
            unlocked.then(|| self.try_lock_position(position, KeyHash(position), seen.header)).flatten();
        let mut from = same.unwrap_or_else(|| {
            let guard = self.lock_position(position, KeyHash(position));
            movers = Movers::choose(&self.snapshot(position), half, owner);
            guard
        });
        let mut to = self.lock_unborn(new);
        // The snapshots are older than the lock, and warmth may have risen since: copy the words as they are now.
        let moving = from.words_warmest_first(|word| movers.contains(word));
        if !moving.words().iter().all(|word| to.put(*word)) {
            to.clear(|_| true);
            return false;
        }
        // Release pairs with the Acquire in `position`: a thread that counts the new bucket sees its entries and
        // its lock.
        self.buckets.store(new + 1, Ordering::Release);
        from.clear(|word| movers.contains(word));
        true
    }
}

/// The greatest power of two not above `new`: bucket `new` splits from `new - half`.
fn half_of(new: u64) -> u64 {
    1 << new.ilog2()
}
