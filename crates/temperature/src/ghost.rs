//! Who left lately: a fingerprint of each key that was evicted.
//!
//! ```text
//!  63            48 47            32 31            16 15             0
//! +----------------+----------------+----------------+----------------+
//! |     oldest     |                |                |     newest     |     one bucket; 0 = nobody
//! +----------------+----------------+----------------+----------------+
//! ```

use crate::mix::scramble;
use crate::prefetch::prefetch;
use larder_item::KeyHash;

/// Fingerprints of a bucket.
const DEPTH: u64 = 4;
/// Bits of a fingerprint.
const PRINT_BITS: u32 = 16;
const PRINT_MASK: u64 = (1 << PRINT_BITS) - 1;
/// Buckets of the largest ghost: a bucket is chosen with 32 bits of the hash.
const BUCKETS_MAX: u64 = 1 << 32;

/// A set of keys that forgets the oldest, 2 bytes for each. A key that was never pushed is taken for one that was in one
/// of 16 000 cases when all buckets are full (four fingerprints, 65535 different ones).
///
/// Buckets are queues of four, so a key is forgotten after four more in its bucket, not after a number of keys in all:
/// half of the keys are still known when 0.92 times the size of the ghost was pushed after them.
#[derive(Clone, Debug)]
pub struct Ghost {
    buckets: Vec<u64>,
}

/// Buckets for this many entries.
fn buckets_for(entries: u64) -> u64 {
    entries.div_ceil(DEPTH).clamp(1, BUCKETS_MAX)
}

impl Ghost {
    /// An empty ghost with room for `entries` keys, rounded up to a multiple of 4.
    pub fn for_entries(entries: u64) -> Ghost {
        Ghost { buckets: vec![0; buckets_for(entries) as usize] }
    }

    /// The bucket of a key, and its fingerprint, from 1 to 65535.
    #[inline(always)]
    fn bucket_and_print(&self, key: KeyHash) -> (usize, u64) {
        let mixed = scramble(key.0);
        // The halves of one word: a key's bucket says nothing of its fingerprint.
        let bucket = ((mixed >> 32) * self.buckets.len() as u64) >> 32;
        let print = ((mixed & 0xffff_ffff) * PRINT_MASK) >> 32;
        (bucket as usize, print + 1)
    }

    /// How many bits to shift the bucket so that the newest match is lowest.
    #[inline(always)]
    fn find(bucket: u64, print: u64) -> Option<u32> {
        (0..DEPTH as u32).map(|nth| nth * PRINT_BITS).find(|shift| bucket >> shift & PRINT_MASK == print)
    }

    /// Remembers a key; the oldest one of its bucket is forgotten. Twice pushed is twice there.
    #[inline]
    pub fn push(&mut self, key: KeyHash) {
        let (bucket, print) = self.bucket_and_print(key);
        self.buckets[bucket] = self.buckets[bucket] << PRINT_BITS | print;
    }

    /// Whether the key was pushed lately.
    #[inline]
    pub fn contains(&self, key: KeyHash) -> bool {
        let (bucket, print) = self.bucket_and_print(key);
        Ghost::find(self.buckets[bucket], print).is_some()
    }

    /// As [`Ghost::contains`], and forgets the match, the newest one if there are several.
    ///
    /// The older ones close up, so the gap is at the old end and the next push drops it: a place is never lost.
    #[inline]
    pub fn take(&mut self, key: KeyHash) -> bool {
        let (bucket, print) = self.bucket_and_print(key);
        let word = &mut self.buckets[bucket];
        let Some(shift) = Ghost::find(*word, print) else { return false };
        let (younger, older) = (*word & ((1 << shift) - 1), *word >> shift >> PRINT_BITS);
        *word = older << shift | younger;
        true
    }

    /// A hint that the key is pushed, asked for or taken soon.
    #[inline]
    pub fn prefetch(&self, key: KeyHash) {
        prefetch(&self.buckets, self.bucket_and_print(key).0);
    }

    /// Doubles until there is room for `entries` keys; halves as long as half would hold them and half as many again, so
    /// that a size that sways does not make it forget.
    ///
    /// A doubling forgets nobody: both new buckets have what the old one had. A halving keeps the four newest of two
    /// buckets, taking them by turns: their ages are not known.
    pub fn resize(&mut self, entries: u64) {
        let wanted = buckets_for(entries);
        while (self.buckets.len() as u64) < wanted && self.buckets.len() as u64 * 2 <= BUCKETS_MAX {
            self.buckets = self.buckets.iter().flat_map(|&bucket| [bucket, bucket]).collect();
        }
        let enough = buckets_for(entries.saturating_add(entries / 2));
        while self.buckets.len().is_multiple_of(2) && self.buckets.len() as u64 / 2 >= enough {
            self.buckets =
                self.buckets.as_chunks().0.iter().map(|&[one, other]| Ghost::half(one, other)).collect();
        }
    }

    /// The newest of both by turns, each once: half of a doubled ghost is what was doubled.
    fn half(one: u64, other: u64) -> u64 {
        let mut half = 0;
        let mut used = 0;
        for shift in (0..DEPTH as u32).map(|nth| nth * PRINT_BITS) {
            for print in [one, other].map(|bucket| bucket >> shift & PRINT_MASK) {
                if print != 0 && used < u64::BITS && Ghost::find(half, print).is_none() {
                    half |= print << used;
                    used += PRINT_BITS;
                }
            }
        }
        half
    }

    /// Bytes of memory for each key there is room for.
    pub const ENTRY_BYTES: u64 = 2;

    /// Keys there is room for.
    pub fn entries(&self) -> u64 {
        self.buckets.len() as u64 * DEPTH
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        size_of_val(self.buckets.as_slice()) as u64
    }
}
