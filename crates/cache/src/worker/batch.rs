//! Lookups of many keys whose waits for memory overlap.
//!
//! Each stage is done for all keys before the next one begins, so that a cache line that one stage has prefetched has
//! arrived when the next stage reads it. Two things decide how well the waits overlap.
//!
//! * How many memory accesses follow each other closely: a processor that waits for the translation of an address goes
//!   on only as far as its window of instructions reaches. So a few keys are hashed together before their buckets are
//!   prefetched.
//! * That no key waits behind the few keys that need a third access, those in sub-buckets. So these are confirmed last.

use super::Worker;
use super::read::{Hit, Lookup};
use larder_index::{BucketPosition, LookupStage, SubBucketPosition, TagMatch};
use larder_item::KeyHash;

/// Keys that are hashed together, and whose buckets are then prefetched together. With 128 keys some prefetches were
/// lost.
const HASHED_TOGETHER: usize = 4;
/// The lines of a value are prefetched four keys before the key is confirmed.
const VALUE_AHEAD: usize = 4;

/// Room for one batch of keys. It is used again for the next one.
pub struct GetBatch {
    hashes: [KeyHash; GetBatch::KEYS_MAX],
    buckets: [BucketPosition; GetBatch::KEYS_MAX],
    /// Numbers of keys and what the index showed of them, in the order in which they are confirmed.
    seen: [(u32, Option<TagMatch>); GetBatch::KEYS_MAX],
    /// Numbers of keys that may be in sub-buckets.
    below: [(u32, SubBucketPosition); GetBatch::KEYS_MAX],
}

impl Default for GetBatch {
    fn default() -> Self {
        GetBatch {
            hashes: [KeyHash(0); GetBatch::KEYS_MAX],
            buckets: [BucketPosition::default(); GetBatch::KEYS_MAX],
            seen: [(0, None); GetBatch::KEYS_MAX],
            below: [(0, SubBucketPosition::default()); GetBatch::KEYS_MAX],
        }
    }
}

impl GetBatch {
    /// The largest batch, in keys.
    pub const KEYS_MAX: usize = 128;

    /// Looks up `keys`, each as [`Worker::get`] does. Calls `each` once for every key, in any order, with the key's
    /// number and its item. Every answer was true at some moment during the call.
    ///
    /// # Panics
    /// If there are more than [`GetBatch::KEYS_MAX`] keys.
    #[inline(always)]
    pub fn get<'w>(
        &mut self,
        worker: &'w Worker,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<Hit<'w>>),
    ) {
        let lookup = worker.lookup();
        self.prefetch_buckets(&lookup, worker, keys);
        self.locate(&lookup, keys.len());
        self.confirm(&lookup, worker, keys, &mut each);
    }

    /// Stage 1. Each stage is a function of its own, so that each has all registers.
    #[inline(never)]
    fn prefetch_buckets(&mut self, lookup: &Lookup<'_>, worker: &Worker, keys: &[&[u8]]) {
        let (hashes, buckets) = (&mut self.hashes[..keys.len()], &mut self.buckets[..keys.len()]);
        let together = hashes.chunks_mut(HASHED_TOGETHER).zip(buckets.chunks_mut(HASHED_TOGETHER));
        for ((hashes, buckets), keys) in together.zip(keys.chunks(HASHED_TOGETHER)) {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = worker.cache().hash(key);
            }
            for (hash, bucket) in hashes.iter().zip(buckets) {
                *bucket = lookup.prefetch_bucket(*hash);
            }
        }
    }

    /// Stages 2 and 3: fills `seen`.
    #[inline(never)]
    fn locate(&mut self, lookup: &Lookup<'_>, count: usize) {
        let (mut seen, mut below) = (0, 0);
        let (hashes, buckets) = (&self.hashes[..count], &self.buckets[..count]);
        for (at, (hash, bucket)) in hashes.iter().zip(buckets).enumerate() {
            match lookup.locate(*hash, *bucket) {
                LookupStage::InSubBucket(position) => {
                    self.below[below] = (at as u32, position);
                    below += 1;
                }
                found => {
                    self.seen[seen] = (at as u32, found.tag_match());
                    seen += 1;
                }
            }
        }
        for (at, position) in &self.below[..below] {
            self.seen[seen] = (*at, lookup.locate_below(hashes[*at as usize], *position));
            seen += 1;
        }
    }

    /// Stage 4: compares the keys.
    #[inline(never)]
    fn confirm<'w>(
        &self,
        lookup: &Lookup<'w>,
        worker: &'w Worker,
        keys: &[&[u8]],
        each: &mut impl FnMut(usize, Option<Hit<'w>>),
    ) {
        let (lookup, seen) = (*lookup, &self.seen[..keys.len()]);
        for (turn, (at, found)) in seen.iter().enumerate() {
            if let Some((_, Some(ahead))) = seen.get(turn + VALUE_AHEAD) {
                lookup.prefetch_value(*ahead);
            }
            let at = *at as usize;
            let (hash, key) = (self.hashes[at], keys[at]);
            if let Some(found) = found
                && let Some(hit) = lookup.take(hash, *found, key)
            {
                each(at, Some(hit));
            } else {
                each(at, get_one(worker, hash, key));
            }
        }
    }
}

/// Asks the index exactly, where the stages found nothing: for a miss, most of the time.
#[cold]
#[inline(never)]
fn get_one<'w>(worker: &'w Worker, hash: KeyHash, key: &[u8]) -> Option<Hit<'w>> {
    worker.get(hash, key)
}
