//! The table and its readers.
//!
//! ```text
//! hash  63         48 47                                    log2(m)          0
//!      +-------------+--------------------------------------+-----------------+
//!      |     tag     |                                      |  bucket         |
//!      +-------------+--------------------------------------+-----------------+
//! ```
//!
//! There are `n` buckets, any number. With `m` the power of two at or above `n`, the bucket is the low bits of the
//! hash below `m`, or below `m / 2` if that bucket does not exist yet. Going from `n` to `n + 1` moves entries from one
//! bucket to one new bucket and touches no other (see `grow`).

use crate::bucket::{Bucket, MAIN_ENTRIES, WRITER, sub_for, subs, tag_matches};
use crate::count::Count;
use crate::entry::{Entry, WARMTH_MAX, WARMTH_ONE, identity, pack, tag_word, unpack, warmth_of};
use crate::holds_key::HoldsKey;
use crate::pool::{Pool, touched};
use crate::region::Region;
use crate::shim::{AtomicBool, AtomicU64, pause};
use crate::snapshot::Snapshot;
use crate::sub_bucket::SubBucket;
use larder_item::{KeyHash, Location};
use std::io;
use std::sync::atomic::Ordering;

pub(crate) mod batch;
mod grow;
pub(crate) mod guard;

/// Most buckets there can be, as a power of two: 1 TiB of lines, a hundred billion entries at six a bucket.
pub const BUCKETS_LOG2_MAX: u32 = 34;

/// How an index begins and how far it may go.
#[derive(Clone, Copy, Debug)]
pub struct IndexOptions {
    /// Buckets at the start, as a power of two.
    pub buckets_log2: u32,
    /// Buckets that address space is reserved for, as a power of two, at most 34. Reserved is not resident: the index
    /// pays for the buckets it has. See [`Index::set_growth_limit`] for the limit of a memory budget.
    pub buckets_log2_max: u32,
    /// Entries per bucket, on average, above which the index wants to grow. More saves memory, fewer save reads of
    /// sub-buckets.
    pub fill_target: u32,
    /// Whether to ask for 2-MiB pages. Memory then becomes resident in steps of 2 MiB.
    pub huge: bool,
    /// Whether hits raise the warmth of entries. Where they do not, a marking lookup is a plain one.
    pub marks: bool,
}

impl Default for IndexOptions {
    /// 1024 buckets, up to 2^30 (about six billion items), 6 entries in each, on huge pages, with marks.
    fn default() -> Self {
        IndexOptions { buckets_log2: 10, buckets_log2_max: 30, fill_target: 6, huge: true, marks: true }
    }
}

/// The index: key hash to location, for any number of threads.
#[repr(C)]
pub struct Index {
    main: Region<Bucket>,
    /// Buckets in use. Only `grow` writes it, and only while it holds the writer bits of both buckets of the split.
    buckets: AtomicU64,
    pool: Pool,
    fill_target: u64,
    huge: bool,
    marks: bool,
    growth: Growth,
    count: Count,
}

/// What only growth and the writers that ask for it look at; on its own lines, away from what every reader reads.
#[repr(align(128))]
struct Growth {
    /// Somebody found the index too full. A hint: it may be late, and it may be set when growth is at its limit.
    wanted: AtomicBool,
    /// Somebody is splitting buckets.
    busy: AtomicBool,
    /// Growth stops at this many buckets.
    limit: AtomicU64,
}

impl Index {
    /// An empty index.
    ///
    /// # Errors
    /// If the options contradict each other, or the address space cannot be reserved. Address space is about
    /// 200 bytes per bucket of `buckets_log2_max`.
    pub fn new(options: IndexOptions) -> io::Result<Index> {
        let IndexOptions { buckets_log2, buckets_log2_max, fill_target, huge, marks } = options;
        if buckets_log2 > buckets_log2_max || buckets_log2_max > BUCKETS_LOG2_MAX || fill_target == 0 {
            let text = format!(
                "an index needs buckets_log2 <= buckets_log2_max <= {BUCKETS_LOG2_MAX} and fill_target >= 1"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let buckets_max = 1u64 << buckets_log2_max;
        Ok(Index {
            main: Region::reserve(buckets_max as usize, huge)?,
            buckets: AtomicU64::new(1 << buckets_log2),
            pool: Pool::new(buckets_max, huge)?,
            fill_target: fill_target as u64,
            huge,
            marks,
            growth: Growth {
                wanted: AtomicBool::new(false),
                busy: AtomicBool::new(false),
                limit: AtomicU64::new(buckets_max),
            },
            count: Count::new(),
        })
    }

    /// The entry of `key`, whose hash is `hash`.
    #[inline]
    pub fn get(&self, hash: KeyHash, key: &[u8], owner: &impl HoldsKey) -> Option<Entry> {
        self.look_up::<false>(hash, key, owner)
    }

    /// The entry of `key`, and a mark on it: its warmth goes up by one, up to [`WARMTH_MAX`]. The warmth returned is
    /// the one before. A mark that races with a writer or another mark may be lost.
    #[inline]
    pub fn get_marking(&self, hash: KeyHash, key: &[u8], owner: &impl HoldsKey) -> Option<Entry> {
        if self.marks {
            self.look_up::<true>(hash, key, owner)
        } else {
            self.look_up::<false>(hash, key, owner)
        }
    }

    /// Whether the entry of `hash` still points at `at`; if so marks it, as [`Index::get_marking`] does. `false` is
    /// also said of an entry that is being moved at this moment: then [`Index::get_marking`] knows.
    #[inline]
    fn confirm_marking(&self, hash: KeyHash, at: Location) -> bool {
        match self.slot_at(hash, at) {
            Some((slot, word)) => {
                if self.marks {
                    mark(slot, word);
                }
                true
            }
            None => false,
        }
    }

    /// The warmth of the entry of `hash` that points at `at`. `None` is also said of an entry that is being moved at
    /// this moment.
    #[inline]
    pub fn warmth_at(&self, hash: KeyHash, at: Location) -> Option<u8> {
        self.slot_at(hash, at).map(|(_, word)| warmth_of(word))
    }

    /// The slot of an entry that points at `at`, and its word.
    #[inline(always)]
    fn slot_at(&self, hash: KeyHash, at: Location) -> Option<(&AtomicU64, u64)> {
        let place = self.place(hash);
        let bucket = self.bucket(place);
        slot_among(&bucket.entries, hash, at).or_else(|| {
            let sub = self.sub(bucket.header.load(Ordering::Acquire), hash)?;
            slot_among(&sub.entries, hash, at)
        })
    }

    #[inline(always)]
    fn look_up<const MARK: bool>(&self, hash: KeyHash, key: &[u8], owner: &impl HoldsKey) -> Option<Entry> {
        let mut turns = 0;
        loop {
            let place = self.place(hash);
            let bucket = self.bucket(place);
            // Acquire, pairs with the Release in `BucketGuard::drop`: what that writer did is seen below.
            let header = bucket.header.load(Ordering::Acquire);
            if let Some(entry) = find_among::<MARK, MAIN_ENTRIES>(&bucket.entries, hash, key, owner) {
                return Some(entry);
            }
            if let Some(sub) = self.sub(header, hash)
                && let Some(entry) = find_among::<MARK, _>(&sub.entries, hash, key, owner)
            {
                return Some(entry);
            }
            // The entries were loaded with Acquire and stored with Release after the writer bit was set: had the scan
            // seen any store of a writer later than `header`, this load would see that writer's bit or version.
            // And had `header` been the one after a split, the split's `buckets` would be seen by `place`.
            if header & WRITER == 0
                && bucket.header.load(Ordering::Relaxed) == header
                && self.place(hash) == place
            {
                return None;
            }
            pause(&mut turns);
        }
    }

    /// The bucket of `hash` at this moment.
    #[inline(always)]
    fn place(&self, hash: KeyHash) -> u64 {
        // Acquire, pairs with the Release in `split`: whoever sees the new bucket counted sees what is in it.
        let buckets = self.buckets.load(Ordering::Acquire);
        place_among(hash.0, buckets)
    }

    /// The bucket at `place`, which must be one that [`Index::place`] has returned or the one growth is making.
    #[inline(always)]
    fn bucket(&self, place: u64) -> &Bucket {
        debug_assert!((place as usize) < self.main.len());
        // SAFETY: `place_among` stays below `buckets`, which `grow` never raises above `main.len()`; growth and `walk`
        // check their own places against it.
        unsafe { self.main.get_unchecked(place as usize) }
    }

    /// The sub-bucket for `hash` under `header`.
    #[inline(always)]
    fn sub(&self, header: u64, hash: KeyHash) -> Option<&SubBucket> {
        sub_for(header, tag_word(hash)).map(|place| self.pool.sub(place))
    }

    /// Entries in the index: exact when nobody writes, else within what is being written. Reads some thirty lines.
    pub fn len(&self) -> u64 {
        self.count.sum()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Buckets in use.
    pub fn buckets(&self) -> u64 {
        self.buckets.load(Ordering::Relaxed)
    }

    /// Bytes of memory the index has touched, in whole pages: buckets and sub-buckets. Nothing is ever given back
    /// to the operating system: a removed entry's place is used again by another.
    pub fn bytes(&self) -> u64 {
        let buckets = self.buckets();
        touched(64 * buckets, self.huge) + self.pool.bytes(self.huge) + size_of::<Index>() as u64
    }

    /// Shows `f` the entries of one bucket and returns the next bucket's number, `None` after the last one. Start
    /// at 0. An entry that is there for the whole walk is shown at least once; twice if its bucket split meanwhile.
    /// No lock is held while `f` runs.
    pub fn walk(&self, from_bucket: u64, f: &mut dyn FnMut(Entry)) -> Option<u64> {
        if from_bucket >= self.buckets.load(Ordering::Acquire) {
            return None;
        }
        let mut turns = 0;
        let seen = loop {
            let seen = self.snapshot(from_bucket);
            let header = self.bucket(from_bucket).header.load(Ordering::Relaxed);
            if seen.header & WRITER == 0 && header == seen.header {
                break seen;
            }
            pause(&mut turns);
        };
        seen.words().iter().for_each(|word| f(unpack(*word)));
        Some(from_bucket + 1)
    }

    /// The entries of the bucket at `place` and the header before them. A whole picture only if the header was
    /// unlocked and is still the same afterwards, or the caller holds the writer bit.
    fn snapshot(&self, place: u64) -> Snapshot {
        let bucket = self.bucket(place);
        let mut seen = Snapshot::empty(bucket.header.load(Ordering::Acquire));
        bucket.entries.iter().for_each(|slot| seen.push(slot.load(Ordering::Acquire)));
        for place in subs(seen.header) {
            self.pool.sub(place).entries.iter().for_each(|slot| seen.push(slot.load(Ordering::Acquire)));
        }
        seen
    }
}

/// The bucket of a hash among `buckets` (at least 1) of them.
#[inline(always)]
fn place_among(hash: u64, buckets: u64) -> u64 {
    place_under(hash, buckets, mask_among(buckets))
}

/// The bits of a hash that say the bucket, among `buckets` of them.
#[inline(always)]
fn mask_among(buckets: u64) -> u64 {
    buckets.next_power_of_two() - 1
}

#[inline(always)]
fn place_under(hash: u64, buckets: u64, mask: u64) -> u64 {
    let place = hash & mask;
    if place >= buckets { place & (mask >> 1) } else { place }
}

/// The entry of `key` among `slots`, marked if `MARK`.
#[inline(always)]
fn find_among<const MARK: bool, const N: usize>(
    slots: &[AtomicU64; N],
    hash: KeyHash,
    key: &[u8],
    owner: &impl HoldsKey,
) -> Option<Entry> {
    let mut matches = tag_matches(slots, tag_word(hash));
    while matches != 0 {
        let slot = &slots[matches.trailing_zeros() as usize];
        let word = slot.load(Ordering::Acquire);
        if word != 0 && owner.holds(unpack(word).location, key) {
            if MARK {
                mark(slot, word);
            }
            return Some(unpack(word));
        }
        matches &= matches - 1;
    }
    None
}

/// The slot of an entry of `hash` at `at` among `slots`, and its word.
#[inline(always)]
fn slot_among<const N: usize>(
    slots: &[AtomicU64; N],
    hash: KeyHash,
    at: Location,
) -> Option<(&AtomicU64, u64)> {
    let wanted = pack(hash.tag(), at, 0);
    // Relaxed: the caller has read the record already; nothing is read on the strength of this load.
    slots.iter().map(|slot| (slot, slot.load(Ordering::Relaxed))).find(|(_, word)| identity(*word) == wanted)
}

/// Raises the warmth of `word` in `slot`. A compare-and-swap, because a writer may replace the entry at this moment;
/// Relaxed, because a read-modify-write passes on the Release of the store it builds on, and warmth itself orders
/// nothing.
#[inline(always)]
fn mark(slot: &AtomicU64, word: u64) {
    if warmth_of(word) < WARMTH_MAX {
        let _ = slot.compare_exchange(word, word + WARMTH_ONE, Ordering::Relaxed, Ordering::Relaxed);
    }
}
