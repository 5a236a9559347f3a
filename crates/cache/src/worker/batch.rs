//! A batch of lookups whose waits for memory overlap.
//!
//! A stage is done for all keys before the next one begins, so that what a stage asks memory for has come when the next
//! one reads it. Two things decide how well the waits overlap: how many accesses follow each other closely, because a
//! processor that waits for the translation of an address goes on only as far as its window of instructions reaches; and
//! that nobody stands in line behind the few keys that need a third access, those in sub-buckets. So keys are hashed
//! before the first bucket is asked for, and those from sub-buckets are confirmed last.

use super::Worker;
use super::read::{Hit, Lookup};
use larder_index::{BucketPlace, Peek, Seen, SubPlace};
use larder_item::KeyHash;

/// Keys that are hashed, and whose buckets are then asked for, together. Of 128 at once some were asked for in vain.
const HASHED_TOGETHER: usize = 4;
/// So many keys ahead of the one that is confirmed, the lines of the value are asked for.
const VALUE_AHEAD: usize = 4;

/// Room for one batch of keys, to be used again and again.
pub struct GetBatch {
    hashes: [KeyHash; GetBatch::KEYS_MAX],
    buckets: [BucketPlace; GetBatch::KEYS_MAX],
    /// Numbers of keys, and what was seen of them, in the order in which they are confirmed.
    seen: [(u32, Option<Seen>); GetBatch::KEYS_MAX],
    /// Numbers of keys that are to be looked for in sub-buckets.
    below: [(u32, SubPlace); GetBatch::KEYS_MAX],
}

impl Default for GetBatch {
    fn default() -> Self {
        GetBatch {
            hashes: [KeyHash(0); GetBatch::KEYS_MAX],
            buckets: [BucketPlace::default(); GetBatch::KEYS_MAX],
            seen: [(0, None); GetBatch::KEYS_MAX],
            below: [(0, SubPlace::default()); GetBatch::KEYS_MAX],
        }
    }
}

impl GetBatch {
    /// The largest batch, in keys.
    pub const KEYS_MAX: usize = 128;

    /// Looks up `keys`, each as [`Worker::get`] would, and tells `each` the number of the key and the item, once for every
    /// key, in an order of its own. Every answer was true at some moment during the call.
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
        self.ask(&lookup, worker, keys);
        self.locate(&lookup, keys.len());
        self.confirm(&lookup, worker, keys, &mut each);
    }

    /// Stage 1. The stages are functions of their own so that each has all registers.
    #[inline(never)]
    fn ask(&mut self, lookup: &Lookup<'_>, worker: &Worker, keys: &[&[u8]]) {
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

    /// Stages 2 and 3: every key gets its place in `seen`.
    #[inline(never)]
    fn locate(&mut self, lookup: &Lookup<'_>, count: usize) {
        let (mut seen, mut below) = (0, 0);
        let (hashes, buckets) = (&self.hashes[..count], &self.buckets[..count]);
        for (at, (hash, bucket)) in hashes.iter().zip(buckets).enumerate() {
            match lookup.locate(*hash, *bucket) {
                Peek::Below(place) => {
                    self.below[below] = (at as u32, place);
                    below += 1;
                }
                found => {
                    self.seen[seen] = (at as u32, found.seen());
                    seen += 1;
                }
            }
        }
        for (at, place) in &self.below[..below] {
            self.seen[seen] = (*at, lookup.locate_below(hashes[*at as usize], *place));
            seen += 1;
        }
    }

    /// Stage 4.
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
                each(at, get_alone(worker, hash, key));
            }
        }
    }
}

/// The word of the index and memory themselves, where what the stages saw says nothing: for a miss, most of the time.
#[cold]
#[inline(never)]
fn get_alone<'w>(worker: &'w Worker, hash: KeyHash, key: &[u8]) -> Option<Hit<'w>> {
    worker.get(hash, key)
}
