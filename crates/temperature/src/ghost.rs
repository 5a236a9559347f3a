//! The ghost: a fingerprint of each key that was evicted recently, and about when.
//!
//! ```text
//!  15 12 11       0 15             0     15             0
//! +----+----------+----------------+-...-+----------------+
//! | era|  print   |                |     |     oldest     |     one bucket of eight; 0 = empty
//! +----+----------+----------------+-...-+----------------+
//! ```

use crate::mix::scramble;
use crate::prefetch::prefetch;
use larder_item::KeyHash;

/// Fingerprints in a bucket.
const DEPTH: usize = 8;
/// Bits of a fingerprint. Above it an entry has the era of the push.
const PRINT_BITS: u32 = 12;
const PRINT_MASK: u16 = (1 << PRINT_BITS) - 1;
/// Eras are numbered with four bits. Two rounds of pushes have as many: few keys are known for longer.
const ERAS: u64 = 1 << (u16::BITS - PRINT_BITS);
/// Eras during which as many keys are pushed as the ghost has space for.
const ERAS_PER_SIZE: u64 = 8;
/// Buckets of the largest ghost: 32 bits of the hash choose the bucket.
const BUCKETS_MAX: u64 = 1 << 32;

/// The newest entry in front; 0 = empty.
type Bucket = [u16; DEPTH];

/// A set of keys that forgets the oldest, with 2 bytes per key. If all buckets are full, a key that was never
/// pushed is found in one of 500 cases: a bucket has eight fingerprints out of 4095 different ones.
///
/// Each bucket is a queue of eight fingerprints, so a key is forgotten after eight more keys in its bucket, and not
/// after a fixed number of keys in all. Half of the keys are still known when 0.96 times the size of the ghost has
/// been pushed after them.
#[derive(Clone, Debug)]
pub struct Ghost {
    buckets: Vec<Bucket>,
    /// Keys pushed so far.
    pushed: u64,
    /// The era of the next push, and how many more pushes belong to it.
    era: u64,
    era_left: u64,
}

/// Number of buckets for `entries` entries.
fn buckets_for(entries: u64) -> u64 {
    entries.div_ceil(DEPTH as u64).clamp(1, BUCKETS_MAX)
}

impl Ghost {
    /// An empty ghost with space for `entries` keys, rounded up to a multiple of 8.
    pub fn for_entries(entries: u64) -> Ghost {
        let mut ghost = Ghost {
            buckets: vec![[0; DEPTH]; buckets_for(entries) as usize],
            pushed: 0,
            era: 0,
            era_left: 0,
        };
        ghost.era_left = ghost.era_pushes();
        ghost
    }

    /// Pushes that belong to one era.
    fn era_pushes(&self) -> u64 {
        (self.entries() / ERAS_PER_SIZE).max(1)
    }

    /// The bucket of a key, and its fingerprint from 1 to 4095.
    #[inline(always)]
    fn bucket_and_print(&self, key: KeyHash) -> (usize, u16) {
        let mixed = scramble(key.0);
        // The two halves of one word are independent: the bucket of a key says nothing about its fingerprint.
        let bucket = ((mixed >> 32) * self.buckets.len() as u64) >> 32;
        let print = ((mixed & 0xffff_ffff) * u64::from(PRINT_MASK)) >> 32;
        (bucket as usize, print as u16 + 1)
    }

    /// Where the newest match is in the bucket.
    #[inline(always)]
    fn find(bucket: &Bucket, print: u16) -> Option<usize> {
        bucket.iter().position(|entry| entry & PRINT_MASK == print)
    }

    /// Adds a key. The oldest fingerprint of its bucket is forgotten. A key that is pushed twice is stored twice.
    #[inline]
    pub fn push(&mut self, key: KeyHash) {
        let (bucket, print) = self.bucket_and_print(key);
        let bucket = &mut self.buckets[bucket];
        bucket.copy_within(..DEPTH - 1, 1);
        bucket[0] = (self.era as u16) << PRINT_BITS | print;
        self.pushed += 1;
        self.era_left -= 1;
        if self.era_left == 0 {
            self.era = (self.era + 1) % ERAS;
            self.era_left = self.era_pushes();
        }
    }

    /// How many keys were pushed so far.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Whether the key was pushed recently.
    #[inline]
    pub fn contains(&self, key: KeyHash) -> bool {
        let (bucket, print) = self.bucket_and_print(key);
        Ghost::find(&self.buckets[bucket], print).is_some()
    }

    /// Like [`Ghost::contains`], and removes the match, or the newest one if there are several. Returns about how many
    /// keys were pushed after it: a multiple of an eighth of the ghost's size, and at most that much too many or too
    /// few. Ages of two sizes and more are taken for younger ones.
    ///
    /// The older fingerprints move up, so the gap is at the old end and the next push fills it: no space is lost.
    #[inline]
    pub fn take(&mut self, key: KeyHash) -> Option<u64> {
        let (bucket, print) = self.bucket_and_print(key);
        let bucket = &mut self.buckets[bucket];
        let nth = Ghost::find(bucket, print)?;
        let era = u64::from(bucket[nth] >> PRINT_BITS);
        bucket.copy_within(nth + 1.., nth);
        bucket[DEPTH - 1] = 0;
        Some((self.era + ERAS - era) % ERAS * self.era_pushes())
    }

    /// Prefetches the bucket of a key that will be used soon.
    #[inline]
    pub fn prefetch(&self, key: KeyHash) {
        prefetch(&self.buckets, self.bucket_and_print(key).0);
    }

    /// Doubles until there is space for `entries` keys. Halves as long as the half has space for 1.5 times
    /// `entries`, so that a number that varies a little does not make the ghost forget.
    ///
    /// A doubling forgets no key: both new buckets have the fingerprints of the old one. A halving keeps eight of
    /// the newest fingerprints of two buckets, taking them from both in turn, because their ages are not known. A
    /// halving of an odd number of buckets forgets about a quarter of the keys beside that.
    pub fn resize(&mut self, entries: u64) {
        let wanted = buckets_for(entries);
        while (self.buckets.len() as u64) < wanted && self.buckets.len() as u64 * 2 <= BUCKETS_MAX {
            self.buckets = self.buckets.iter().flat_map(|&bucket| [bucket, bucket]).collect();
        }
        let enough = buckets_for(entries.saturating_add(entries / 2));
        while self.buckets.len() as u64 / 2 >= enough {
            self.buckets = match self.buckets.as_chunks() {
                (pairs, []) => pairs.iter().map(|[one, other]| Ghost::half(one, other)).collect(),
                _ => Ghost::about_half(&self.buckets),
            };
        }
        self.era_left = self.era_left.min(self.era_pushes());
    }

    /// Half of an odd number of buckets. A bucket whose keys belong to two of the new ones goes to the one that most of
    /// them belong to: the others are forgotten.
    fn about_half(buckets: &[Bucket]) -> Vec<Bucket> {
        let mut half = vec![[0; DEPTH]; buckets.len() / 2];
        for (nth, bucket) in buckets.iter().enumerate() {
            let middle = (2 * nth + 1) * half.len() / (2 * buckets.len());
            half[middle] = Ghost::half(&half[middle], bucket);
        }
        half
    }

    /// The newest fingerprints of two buckets, taken in turn, each once. Halving a doubled ghost restores it.
    fn half(one: &Bucket, other: &Bucket) -> Bucket {
        let mut half = [0; DEPTH];
        let mut used = 0;
        for entry in one.iter().zip(other).flat_map(|(&one, &other)| [one, other]) {
            if entry != 0 && used < DEPTH && Ghost::find(&half, entry & PRINT_MASK).is_none() {
                half[used] = entry;
                used += 1;
            }
        }
        half
    }

    /// Bytes of memory per key.
    pub const ENTRY_BYTES: u64 = 2;

    /// Number of keys that the ghost has space for.
    pub fn entries(&self) -> u64 {
        self.buckets.len() as u64 * DEPTH as u64
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        size_of_val(self.buckets.as_slice()) as u64
    }
}
