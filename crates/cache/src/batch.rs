//! A batch of lookups whose waits for memory overlap.
//!
//! A stage is done for all keys before the next one begins, so that what a stage asks memory for has come when the next
//! one reads it. Two things decide how well the waits overlap: how many accesses follow each other closely, because a
//! processor that waits for the translation of an address goes on only as far as its window of instructions reaches; and
//! that nobody stands in line behind the few keys that need a third access, those in sub-buckets. So keys are hashed
//! before the first bucket is asked for, and those from sub-buckets are confirmed last.

use crate::engine::Worker;
use crate::read::Hit;
use larder_index::{BucketPlace, Peek};
use larder_item::KeyHash;

/// Keys that are hashed, and whose buckets are then asked for, together. Of 128 at once some were asked for in vain.
const HASHED_TOGETHER: usize = 16;
/// So many keys ahead of the one that is confirmed, the lines of the value are asked for.
const VALUE_AHEAD: usize = 4;

/// Room for one batch of keys, to be used again and again.
pub struct GetBatch {
    hashes: [KeyHash; GetBatch::KEYS_MAX],
    buckets: [BucketPlace; GetBatch::KEYS_MAX],
    places: [Peek; GetBatch::KEYS_MAX],
    order: [u8; GetBatch::KEYS_MAX],
}

impl Default for GetBatch {
    fn default() -> Self {
        GetBatch {
            hashes: [KeyHash(0); GetBatch::KEYS_MAX],
            buckets: [BucketPlace::default(); GetBatch::KEYS_MAX],
            places: [Peek::Absent; GetBatch::KEYS_MAX],
            order: [0; GetBatch::KEYS_MAX],
        }
    }
}

impl GetBatch {
    /// The largest batch, in keys.
    pub const KEYS_MAX: usize = 128;

    /// Looks up the keys `key(0)` to `key(count - 1)`, each as [`Worker::get`] would, and tells `each` the number of the
    /// key and the item, once for every key, in an order of its own.
    ///
    /// # Panics
    /// If `count` is above [`GetBatch::KEYS_MAX`].
    #[inline(always)]
    pub fn get<'w, 'k>(
        &mut self,
        worker: &'w Worker,
        count: usize,
        key: impl Fn(usize) -> &'k [u8],
        mut each: impl FnMut(usize, Option<Hit<'w>>),
    ) {
        let (hashes, buckets) = (&mut self.hashes[..count], &mut self.buckets[..count]);
        let mut at = 0;
        for (hashes, buckets) in hashes.chunks_mut(HASHED_TOGETHER).zip(buckets.chunks_mut(HASHED_TOGETHER)) {
            for hash in hashes.iter_mut() {
                *hash = worker.cache().hash(key(at));
                at += 1;
            }
            for (hash, bucket) in hashes.iter().zip(buckets) {
                *bucket = worker.prefetch_bucket(*hash);
            }
        }
        let (places, order) = (&mut self.places[..count], &mut self.order[..count]);
        let (mut early, mut late) = (0, count);
        for (at, (hash, bucket)) in hashes.iter().zip(buckets.iter()).enumerate() {
            places[at] = worker.locate(*hash, *bucket);
            if let Peek::Below(_) = places[at] {
                late -= 1;
                order[late] = at as u8;
            } else {
                order[early] = at as u8;
                early += 1;
            }
        }
        // As they were asked for.
        order[late..].reverse();
        for at in &order[late..] {
            let at = usize::from(*at);
            if let Peek::Below(below) = places[at] {
                places[at] = worker.locate_below(hashes[at], below);
            }
        }
        for (turn, at) in order.iter().enumerate() {
            let ahead = order.get(turn + VALUE_AHEAD).and_then(|ahead| places[usize::from(*ahead)].seen());
            if let Some(seen) = ahead {
                worker.prefetch_value(seen.at);
            }
            let at = usize::from(*at);
            let (hash, key) = (hashes[at], key(at));
            if let Some(seen) = places[at].seen()
                && let Some(hit) = worker.confirm(hash, seen, key)
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
