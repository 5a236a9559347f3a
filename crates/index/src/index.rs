//! The table and its readers.
//!
//! ```text
//! hash  63         48 47                                    log2(m)          0
//!      +-------------+--------------------------------------+-----------------+
//!      |     tag     |                                      |  bucket         |
//!      +-------------+--------------------------------------+-----------------+
//! ```
//!
//! There are `n` buckets, and `n` is any number. Let `m` be the power of two at or above `n`. The bucket of a hash is
//! given by its low bits: modulo `m`, or modulo `m / 2` if the former bucket does not exist yet. Growth from `n` to
//! `n + 1` buckets moves entries from one bucket to the new one and touches no other bucket (see `grow`), and the way
//! back moves them back (see `shrink`).

use crate::bucket::{Bucket, MAIN_ENTRIES, WRITER, sub_for, subs, tag_matches};
use crate::count::Count;
use crate::entry::{Entry, Format, WARMTH_MAX, WARMTH_ONE, tag_word, warmth_of};
use crate::holds_key::HoldsKey;
use crate::pool::{Pool, touched};
use crate::region::{HUGE_PAGE_BYTES, Region};
use crate::shim::{AtomicBool, AtomicU64, pause};
use crate::sub_bucket::SubBucket;
use larder_item::{KeyHash, Location};
use std::io;
use std::sync::atomic::Ordering;

pub(crate) mod batch;
mod grow;
pub(crate) mod guard;
pub(crate) mod shrink;
pub(crate) mod walk;

/// Most buckets an index can have, as a power of two: 1 TiB of cache lines, a hundred billion entries at six per
/// bucket.
pub const BUCKETS_LOG2_MAX: u32 = 34;

const BUCKET_BYTES: u64 = 64;
/// A huge page may take so small a part of the index more than what is used of it.
const COLLAPSED_SPARE_SHARE: u64 = 16;

/// The initial size of an index and its limits.
#[derive(Clone, Copy, Debug)]
pub struct IndexOptions {
    /// Number of buckets at the start, as a power of two.
    pub buckets_log2: u32,
    /// Number of buckets for which address space is reserved, as a power of two, at most 34. Reserved address space
    /// is not resident: the index takes memory only for the buckets it has. [`Index::set_growth_limit`] sets the
    /// limit of a memory budget.
    pub buckets_log2_max: u32,
    /// The average number of entries per bucket above which the index grows. A higher target saves memory; a lower
    /// one saves reads of sub-buckets.
    pub fill_target: u32,
    /// Whether [`Index::collapse_some`] puts huge pages in place of small ones.
    pub huge: bool,
    /// Whether hits raise the warmth of entries. If not, a marking lookup is a plain lookup.
    pub marks: bool,
    /// Bits that the locations of the records need, at most [`Location::BITS`]. What is left of an entry's word holds
    /// bits of its hash, so that most splits need not read records.
    pub location_bits: u32,
}

impl Default for IndexOptions {
    /// 1024 buckets, up to 2^30 (about six billion items), 6 entries per bucket, on huge pages, with marks, for any
    /// location.
    fn default() -> Self {
        IndexOptions {
            buckets_log2: 10,
            buckets_log2_max: 30,
            fill_target: 6,
            huge: true,
            marks: true,
            location_bits: Location::BITS,
        }
    }
}

/// The index: from key hash to location, for any number of threads.
#[repr(C)]
pub struct Index {
    main: Region<Bucket>,
    /// Buckets in use. Only `grow` and `shrink` write the number, and only while they hold the writer bits of both
    /// buckets of a split or a merge.
    buckets: AtomicU64,
    pool: Pool,
    format: Format,
    fill_target: u64,
    marks: bool,
    growth: Growth,
    count: Count,
    /// `None`: no huge pages are wanted.
    collapsed: Option<Collapsed>,
}

/// How much of the index is on huge pages: blocks of 2 MiB from the start.
#[derive(Default)]
struct Collapsed {
    buckets: AtomicU64,
    subs: AtomicU64,
}

/// Fields that only growth reads, and the writers that request growth. They have cache lines of their own, away
/// from the fields that every reader reads.
#[repr(align(128))]
struct Growth {
    /// A thread found the index too full. This is a hint: it may be late, and it may be set while growth is at its
    /// limit.
    wanted: AtomicBool,
    /// A thread is splitting or merging buckets, or gives memory back.
    busy: AtomicBool,
    /// Growth stops at this number of buckets.
    limit: AtomicU64,
    /// The index does not shrink below this number of buckets.
    least: u64,
    /// The number of buckets whose memory was touched, and not given back.
    touched: AtomicU64,
    /// How often buckets were split, in batches.
    splits: AtomicU64,
    /// While sub-buckets are packed together: those of the buckets before this one are.
    packed: AtomicU64,
}

impl Index {
    /// An empty index.
    ///
    /// # Errors
    /// The options contradict each other, or the address space cannot be reserved. The index reserves about 200
    /// bytes of address space per bucket of `buckets_log2_max`.
    pub fn new(options: IndexOptions) -> io::Result<Index> {
        let IndexOptions { buckets_log2, buckets_log2_max, fill_target, huge, marks, location_bits } =
            options;
        if buckets_log2 > buckets_log2_max
            || buckets_log2_max > BUCKETS_LOG2_MAX
            || fill_target == 0
            || location_bits > Location::BITS
        {
            let text = format!(
                "an index needs buckets_log2 <= buckets_log2_max <= {BUCKETS_LOG2_MAX}, fill_target >= 1 and \
                 location_bits <= {}",
                Location::BITS
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let buckets_max = 1u64 << buckets_log2_max;
        Ok(Index {
            main: Region::reserve(buckets_max as usize)?,
            buckets: AtomicU64::new(1 << buckets_log2),
            pool: Pool::new(buckets_max)?,
            format: Format::new(location_bits),
            fill_target: fill_target as u64,
            marks,
            growth: Growth {
                wanted: AtomicBool::new(false),
                busy: AtomicBool::new(false),
                limit: AtomicU64::new(buckets_max),
                least: 1 << buckets_log2,
                touched: AtomicU64::new(1 << buckets_log2),
                splits: AtomicU64::new(0),
                packed: AtomicU64::new(0),
            },
            count: Count::new(),
            collapsed: huge.then(Collapsed::default),
        })
    }

    /// Gives an empty index `buckets` buckets, if it has fewer, as far as there is address space. Their memory is taken
    /// at once, on huge pages where these are wanted.
    pub fn begin_with(&mut self, buckets: u64) {
        if !self.is_empty() {
            return;
        }
        let buckets = buckets.min(self.main.len() as u64).max(self.buckets());
        self.buckets.store(buckets, Ordering::Relaxed);
        self.growth.touched.store(buckets, Ordering::Relaxed);
        let blocks = buckets * BUCKET_BYTES / HUGE_PAGE_BYTES;
        if let Some(collapsed) = &self.collapsed {
            (0..blocks).for_each(|block| self.main.take(block as usize));
            collapsed.buckets.store(blocks, Ordering::Relaxed);
        }
    }

    /// The entry of `key`, whose hash is `hash`.
    #[inline]
    pub fn get(&self, hash: KeyHash, key: &[u8], owner: &impl HoldsKey) -> Option<Entry> {
        self.look_up::<false>(hash, key, owner)
    }

    /// Whether lookups mark entries.
    pub fn marks(&self) -> bool {
        self.marks
    }

    /// Looks up the entry of `key` and marks it: its warmth rises by one, up to [`WARMTH_MAX`], if the owner says that
    /// reads count. The returned entry has the warmth before the mark. A mark that races with a writer or another mark
    /// may be lost.
    #[inline]
    pub fn get_marking(&self, hash: KeyHash, key: &[u8], owner: &impl HoldsKey) -> Option<Entry> {
        if self.marks {
            self.look_up::<true>(hash, key, owner)
        } else {
            self.look_up::<false>(hash, key, owner)
        }
    }

    /// Whether the entry of `hash` still points at `at`. If so, marks it like [`Index::get_marking`]. The answer is
    /// also `false` for an entry that is being moved at this moment; [`Index::get_marking`] then decides.
    #[inline]
    fn confirm_marking(&self, hash: KeyHash, at: Location, counts: impl FnOnce(Location) -> bool) -> bool {
        match self.slot_at(hash, at) {
            Some((slot, word)) => {
                if self.marks {
                    mark(self.format, slot, word, counts);
                }
                true
            }
            None => false,
        }
    }

    /// The warmth of the entry of `hash` that points at `at`. The answer is also `None` for an entry that is being
    /// moved at this moment.
    #[inline]
    pub fn warmth_at(&self, hash: KeyHash, at: Location) -> Option<u8> {
        self.slot_at(hash, at).map(|(_, word)| warmth_of(word))
    }

    /// The slot of the entry of `hash` that points at `at`, and its word.
    #[inline(always)]
    fn slot_at(&self, hash: KeyHash, at: Location) -> Option<(&AtomicU64, u64)> {
        let position = self.position(hash);
        let bucket = self.bucket(position);
        slot_among(self.format, &bucket.entries, hash, at).or_else(|| {
            let sub = self.sub(bucket.header.load(Ordering::Acquire), hash)?;
            slot_among(self.format, &sub.entries, hash, at)
        })
    }

    #[inline(always)]
    fn look_up<const MARK: bool>(&self, hash: KeyHash, key: &[u8], owner: &impl HoldsKey) -> Option<Entry> {
        let mut turns = 0;
        loop {
            let position = self.position(hash);
            let bucket = self.bucket(position);
            // Acquire pairs with the Release in `BucketGuard::drop`: the scan below sees what that writer did.
            let header = bucket.header.load(Ordering::Acquire);
            let format = self.format;
            if let Some(entry) = find_among::<MARK, MAIN_ENTRIES>(format, &bucket.entries, hash, key, owner) {
                return Some(entry);
            }
            if let Some(sub) = self.sub(header, hash)
                && let Some(entry) = find_among::<MARK, _>(format, &sub.entries, hash, key, owner)
            {
                return Some(entry);
            }
            // The entries were loaded with Acquire and stored with Release after the writer bit was set. Had the
            // scan seen a store of a writer later than `header`, this load would see that writer's bit or version.
            // And had `header` been the one after a split or a merge, `position` would see the number of buckets then.
            // In this order: if the bucket was merged before and is split anew meanwhile, `position` may say so by the
            // same number, and the header says it after that.
            if header & WRITER == 0
                && self.position(hash) == position
                && bucket.header.load(Ordering::Relaxed) == header
            {
                return None;
            }
            pause(&mut turns);
        }
    }

    /// The position of the bucket of `hash` at this moment.
    #[inline(always)]
    fn position(&self, hash: KeyHash) -> u64 {
        // Acquire pairs with the Release in `split`: a thread that sees the new bucket counted also sees its
        // contents.
        let buckets = self.buckets.load(Ordering::Acquire);
        position_among(hash.0, buckets)
    }

    /// The bucket at `position`, which must come from [`Index::position`] or be the bucket that growth is making.
    #[inline(always)]
    fn bucket(&self, position: u64) -> &Bucket {
        debug_assert!((position as usize) < self.main.len());
        // SAFETY: `position_among` stays below `buckets`, which `grow` never raises above `main.len()`. Growth, merges
        // and walks check their own positions against it.
        unsafe { self.main.get_unchecked(position as usize) }
    }

    /// The sub-bucket for `hash` under `header`.
    #[inline(always)]
    fn sub(&self, header: u64, hash: KeyHash) -> Option<&SubBucket> {
        sub_for(header, tag_word(hash)).map(|position| self.pool.sub(position))
    }

    /// Number of entries. It is exact while no thread writes, and off by the writes in progress otherwise. The call
    /// reads about thirty cache lines.
    pub fn len(&self) -> u64 {
        self.count.sum()
    }

    /// Whether the index has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Buckets in use.
    pub fn buckets(&self) -> u64 {
        self.buckets.load(Ordering::Relaxed)
    }

    /// Bytes of memory that the index has touched and not given back, in whole pages: buckets and sub-buckets.
    pub fn bytes(&self) -> u64 {
        let collapsed = |of: fn(&Collapsed) -> &AtomicU64| {
            self.collapsed.as_ref().map_or(0, |blocks| of(blocks).load(Ordering::Relaxed) * HUGE_PAGE_BYTES)
        };
        let touched_buckets = self.growth.touched.load(Ordering::Relaxed);
        let buckets = touched(BUCKET_BYTES * touched_buckets).max(collapsed(|blocks| &blocks.buckets));
        let subs = touched(self.pool.bytes_taken()).max(collapsed(|blocks| &blocks.subs));
        buckets + subs + self.pool.listed_bytes() + size_of::<Index>() as u64
    }

    /// Puts a huge page in place of small ones, where a block of 2 MiB is complete, or so nearly that the rest is a
    /// small part of the index. Growth takes small pages one after the other, so that a small index takes little
    /// memory. The kernel copies the block, which takes some hundred microseconds; threads that read or write it wait
    /// only for the exchange. Returns whether a block was found. One thread at a time calls this.
    pub fn collapse_some(&self) -> bool {
        let Some(collapsed) = &self.collapsed else { return false };
        let (buckets, subs) = (BUCKET_BYTES * self.buckets(), self.pool.bytes_taken());
        let spare_max = (buckets + subs) / COLLAPSED_SPARE_SHARE;
        let next = |done: &AtomicU64, bytes: u64, bytes_max: usize| {
            let block = done.load(Ordering::Relaxed);
            let end = (block + 1) * HUGE_PAGE_BYTES;
            let is_due = end <= bytes + spare_max && end - HUGE_PAGE_BYTES < bytes && end <= bytes_max as u64;
            is_due.then(|| done.store(block + 1, Ordering::Relaxed))?;
            Some(block as usize)
        };
        if let Some(block) = next(&collapsed.buckets, buckets, self.main.bytes_max()) {
            self.main.collapse(block);
        } else if let Some(block) = next(&collapsed.subs, subs, self.pool.subs().bytes_max()) {
            self.pool.subs().collapse(block);
        } else {
            return false;
        }
        true
    }

    /// Where the buckets and the sub-buckets lie, and their bytes, for tests that ask the kernel about them.
    #[doc(hidden)]
    pub fn regions(&self) -> [(*const u8, usize); 2] {
        let subs = self.pool.subs();
        [(self.main.as_ptr().cast(), self.main.bytes_max()), (subs.as_ptr().cast(), subs.bytes_max())]
    }

    /// Calls `f` with each entry of one bucket and lowers its warmth to what `f` returns. Returns the number of the
    /// next bucket, or `None` after the last one. No lock is taken: an entry that moves at this moment may be left out,
    /// and of two changes of warmth at the same moment one is lost.
    pub fn cool(&self, bucket: u64, f: &mut dyn FnMut(Entry) -> u8) -> Option<u64> {
        // Acquire, as in `position`.
        if bucket >= self.buckets.load(Ordering::Acquire) {
            return None;
        }
        let header = self.bucket(bucket).header.load(Ordering::Acquire);
        let subs = subs(header).flat_map(|position| &self.pool.sub(position).entries);
        for slot in self.bucket(bucket).entries.iter().chain(subs) {
            // Acquire pairs with the Release in `publish`: `f` may read the record.
            let word = slot.load(Ordering::Acquire);
            if word != 0 {
                let (warmth, wanted) = (warmth_of(word), f(self.format.unpack(word)));
                if wanted < warmth {
                    let cooler = word - u64::from(warmth - wanted) * WARMTH_ONE;
                    // Relaxed, as in `mark`.
                    let _ = slot.compare_exchange(word, cooler, Ordering::Relaxed, Ordering::Relaxed);
                }
            }
        }
        Some(bucket + 1)
    }

    /// Prefetches the line of a bucket that exists.
    pub fn prefetch_bucket(&self, bucket: u64) {
        if bucket < self.buckets() {
            crate::shim::prefetch_read(self.bucket(bucket));
        }
    }
}

/// How many bits of the hash say that an entry is in the bucket at `position`, one of `buckets`.
fn level_of(position: u64, buckets: u64) -> u32 {
    let bits = buckets.next_power_of_two().trailing_zeros();
    let half = 1 << bits >> 1;
    bits - u32::from(position < half && position + half >= buckets)
}

/// The position of the bucket of a hash among `buckets` buckets, which is at least 1.
#[inline(always)]
fn position_among(hash: u64, buckets: u64) -> u64 {
    position_under(hash, buckets, mask_among(buckets))
}

/// The bits of a hash that choose the bucket among `buckets` buckets.
#[inline(always)]
fn mask_among(buckets: u64) -> u64 {
    buckets.next_power_of_two() - 1
}

#[inline(always)]
fn position_under(hash: u64, buckets: u64, mask: u64) -> u64 {
    let position = hash & mask;
    if position >= buckets { position & (mask >> 1) } else { position }
}

/// The entry of `key` among `slots`, marked if `MARK`.
#[inline(always)]
fn find_among<const MARK: bool, const N: usize>(
    format: Format,
    slots: &[AtomicU64; N],
    hash: KeyHash,
    key: &[u8],
    owner: &impl HoldsKey,
) -> Option<Entry> {
    let mut matches = tag_matches(slots, tag_word(hash));
    while matches != 0 {
        let slot = &slots[matches.trailing_zeros() as usize];
        let word = slot.load(Ordering::Acquire);
        if word != 0 && owner.holds(format.unpack(word).location, key) {
            if MARK {
                mark(format, slot, word, |at| owner.reads_count(at));
            }
            return Some(format.unpack(word));
        }
        matches &= matches - 1;
    }
    None
}

/// The slot among `slots` whose entry is of `hash` and points at `at`, and its word.
#[inline(always)]
fn slot_among<const N: usize>(
    format: Format,
    slots: &[AtomicU64; N],
    hash: KeyHash,
    at: Location,
) -> Option<(&AtomicU64, u64)> {
    // Relaxed: the caller has already read the record, and nothing else is read because of this load.
    let mut words = slots.iter().map(|slot| (slot, slot.load(Ordering::Relaxed)));
    words.find(|(_, word)| format.is_at(*word, hash, at))
}

/// Raises the warmth of `word` in `slot`, if it can rise and `counts` says that a read of the record counts. A
/// compare-and-swap is needed because a writer may replace the entry at this moment. Relaxed suffices: a
/// read-modify-write passes on the Release of the store it builds on, and warmth orders nothing.
#[inline(always)]
fn mark(format: Format, slot: &AtomicU64, word: u64, counts: impl FnOnce(Location) -> bool) {
    if warmth_of(word) < WARMTH_MAX && counts(format.unpack(word).location) {
        let _ = slot.compare_exchange(word, word + WARMTH_ONE, Ordering::Relaxed, Ordering::Relaxed);
    }
}
