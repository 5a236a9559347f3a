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

use crate::bucket::{Bucket, MAIN_ENTRIES, Sub, WRITER, sub_for, subs, tag_hints, tag_matches};
use crate::count::Count;
use crate::entry::{Entry, WARMTH_MAX, WARMTH_ONE, identity, pack, tag_word, unpack, warmth_of};
use crate::holds_key::HoldsKey;
use crate::pool::{Pool, SubPlace, touched};
use crate::region::Region;
use crate::shim::{AtomicBool, AtomicU64, pause, prefetch_read};
use larder_item::{KeyHash, Location};
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

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
    pub(crate) main: Region<Bucket>,
    /// Buckets in use. Only `grow` writes it, and only while it holds the writer bits of both buckets of the split.
    pub(crate) buckets: AtomicU64,
    pub(crate) pool: Pool,
    pub(crate) fill_target: u64,
    huge: bool,
    marks: bool,
    pub(crate) growth: Growth,
    pub(crate) count: Count,
}

/// What only growth and the writers that ask for it look at; on its own lines, away from what every reader reads.
#[repr(align(128))]
pub(crate) struct Growth {
    /// Somebody found the index too full. A hint: it may be late, and it may be set when growth is at its limit.
    pub(crate) wanted: AtomicBool,
    /// Somebody is splitting buckets.
    pub(crate) busy: AtomicBool,
    /// Growth stops at this many buckets.
    pub(crate) limit: AtomicU64,
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

    /// Fetches the line that a writer of `hash` will need first.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.sight().prefetch(hash);
    }

    /// The index for a batch of looks.
    #[inline(always)]
    pub fn sight(&self) -> Sight<'_> {
        // Acquire, as in `place`.
        let buckets = self.buckets.load(Ordering::Acquire);
        Sight { index: self, main: &self.main, subs: self.pool.subs(), buckets, mask: mask_among(buckets) }
    }

    /// The location of the first entry with the tag of `hash`: very likely the key's. No key is compared and no
    /// version checked, so it may be another key's, or gone by now, and `None` does not mean absent. Meant for
    /// prefetching the record; a record found to be the right one is settled by [`Index::confirm_marking`].
    #[inline]
    pub fn peek(&self, hash: KeyHash) -> Option<Location> {
        let place = self.place(hash);
        let bucket = self.bucket(place);
        if let Some(word) = first_tagged(&bucket.entries, hash) {
            return Some(unpack(word).location);
        }
        let sub = self.sub(bucket.header.load(Ordering::Acquire), hash)?;
        first_tagged(&sub.entries, hash).map(|word| unpack(word).location)
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
    pub fn confirm_marking(&self, hash: KeyHash, at: Location) -> bool {
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
    pub(crate) fn place(&self, hash: KeyHash) -> u64 {
        // Acquire, pairs with the Release in `split`: whoever sees the new bucket counted sees what is in it.
        let buckets = self.buckets.load(Ordering::Acquire);
        place_among(hash.0, buckets)
    }

    /// The bucket at `place`, which must be one that [`Index::place`] has returned or the one growth is making.
    #[inline(always)]
    pub(crate) fn bucket(&self, place: u64) -> &Bucket {
        debug_assert!((place as usize) < self.main.len());
        // SAFETY: `place_among` stays below `buckets`, which `grow` never raises above `main.len()`; growth and `walk`
        // check their own places against it.
        unsafe { self.main.get_unchecked(place as usize) }
    }

    /// The sub-bucket for `hash` under `header`.
    #[inline(always)]
    fn sub(&self, header: u64, hash: KeyHash) -> Option<&Sub> {
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

    /// Bytes to reckon with for an index of `buckets` buckets filled to the target: what [`Index::bytes`] will say, or
    /// a little more. For choosing a growth limit.
    pub fn bytes_for_buckets(&self, buckets: u64) -> u64 {
        let pool =
            (buckets as f64 * POOL_BYTES_PER_BUCKET_AT_6 * (self.fill_target as f64 / 6.0).powi(2)) as u64;
        touched(64 * buckets, self.huge) + touched(pool, self.huge) + size_of::<Index>() as u64
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
    pub(crate) fn snapshot(&self, place: u64) -> Snapshot {
        let bucket = self.bucket(place);
        let mut seen = Snapshot::empty(bucket.header.load(Ordering::Acquire));
        bucket.entries.iter().for_each(|slot| seen.push(slot.load(Ordering::Acquire)));
        for place in subs(seen.header) {
            self.pool.sub(place).entries.iter().for_each(|slot| seen.push(slot.load(Ordering::Acquire)));
        }
        seen
    }
}

/// Bytes of sub-buckets per bucket at the worst point of a doubling, at six entries per bucket.
const POOL_BYTES_PER_BUCKET_AT_6: f64 = 22.0;

/// The bucket of a hash among `buckets` (at least 1) of them.
#[inline(always)]
pub(crate) fn place_among(hash: u64, buckets: u64) -> u64 {
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

/// The entries of a bucket at one moment.
pub(crate) struct Snapshot {
    pub(crate) header: u64,
    len: usize,
    words: [u64; crate::bucket::BUCKET_ENTRIES_MAX],
}

impl Snapshot {
    pub(crate) fn empty(header: u64) -> Snapshot {
        Snapshot { header, len: 0, words: [0; crate::bucket::BUCKET_ENTRIES_MAX] }
    }

    #[inline]
    pub(crate) fn push(&mut self, word: u64) {
        if word != 0 {
            self.words[self.len] = word;
            self.len += 1;
        }
    }

    pub(crate) fn sort_warmest_first(&mut self) {
        self.words[..self.len].sort_unstable_by_key(|word| std::cmp::Reverse(warmth_of(*word)));
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words[..self.len]
    }
}

/// The index as a batch of lookups sees it: looks that never wait, in halves between which lines have time to come.
///
/// No key is compared and no version checked, so what is seen may be another key's entry, or gone by now, and nothing seen
/// does not mean absent. What there is to know of the index as a whole was read when the sight was made: it may miss the
/// buckets that came since, whose keys it does not find then.
#[derive(Clone, Copy)]
pub struct Sight<'i> {
    index: &'i Index,
    main: &'i [Bucket],
    subs: &'i [Sub],
    buckets: u64,
    mask: u64,
}

impl Sight<'_> {
    /// Fetches the line of the bucket of `hash`, and says which it is, for [`Sight::peek_first`].
    #[inline(always)]
    pub fn prefetch(&self, hash: KeyHash) -> BucketPlace {
        let place = place_under(hash.0, self.buckets, self.mask);
        prefetch_read(self.main.as_ptr().wrapping_add(place as usize));
        BucketPlace(place)
    }

    /// The first half: an entry with the tag of `hash` in the bucket's own line, or else the place of the sub-bucket that
    /// may have it, whose line is asked for. `place` is what [`Sight::prefetch`] said of the same hash.
    #[inline(always)]
    pub fn peek_first(&self, hash: KeyHash, BucketPlace(place): BucketPlace) -> Peek {
        let bucket = &self.main[place as usize];
        if let Some((k, word)) = tagged(&bucket.entries, hash) {
            return Peek::Found(Seen { word, slot: place << SLOT_PLACE_SHIFT | k });
        }
        let below = sub_for(bucket.header.load(Ordering::Acquire), tag_word(hash));
        let Some(below) = below else { return Peek::Absent };
        prefetch_read(self.subs.as_ptr().wrapping_add(below.0 as usize));
        Peek::Below(below)
    }

    /// The second half, when the line asked for has had time to come. A sub-bucket that went to another bucket meanwhile
    /// gives another key's entry, or none.
    #[inline(always)]
    pub fn peek_below(&self, hash: KeyHash, below: SubPlace) -> Option<Seen> {
        let (k, word) = tagged(&self.subs[below.0 as usize].entries, hash)?;
        Some(Seen { word, slot: (below.0 as u64) << SLOT_PLACE_SHIFT | SLOT_IN_SUB | k })
    }

    /// Marks an entry that was seen, as [`Index::get_marking`] does, if it still is what it was.
    #[inline(always)]
    pub fn mark(&self, seen: Seen) {
        if self.index.marks && warmth_of(seen.word.get()) < WARMTH_MAX {
            mark(self.slot(seen), seen.word.get());
        }
    }

    /// Whether the entry that was seen for `hash` still leads where it led; if so marks it. `false` is also said of an
    /// entry that is being moved at this moment: then [`Index::get_marking`] knows.
    #[inline(always)]
    pub fn confirm(&self, hash: KeyHash, seen: Seen) -> bool {
        let slot = self.slot(seen);
        // Relaxed, as in `slot_among`. An entry is written to its next slot before it is taken out of this one, and
        // replaced only after that, so whoever has seen a newer record of the key sees this slot without the older.
        let word = slot.load(Ordering::Relaxed);
        if identity(word) != identity(seen.word.get()) {
            return self.confirm_elsewhere(hash, seen.at());
        }
        if self.index.marks {
            mark(slot, word);
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn confirm_elsewhere(&self, hash: KeyHash, at: Location) -> bool {
        self.index.confirm_marking(hash, at)
    }

    #[inline(always)]
    fn slot(&self, seen: Seen) -> &AtomicU64 {
        let (place, k) = ((seen.slot >> SLOT_PLACE_SHIFT) as usize, (seen.slot & (SLOT_IN_SUB - 1)) as usize);
        if seen.slot & SLOT_IN_SUB == 0 { &self.main[place].entries[k] } else { &self.subs[place].entries[k] }
    }
}

/// Which bucket was a hash's when it was asked for. A split may have moved the hash since.
#[derive(Clone, Copy, Default, Debug)]
pub struct BucketPlace(u64);

/// How far a look has come.
#[derive(Clone, Copy, Debug)]
pub enum Peek {
    /// Nothing yet: the bucket's line was asked for.
    Near(BucketPlace),
    /// An entry with the tag.
    Found(Seen),
    /// None in the bucket's own line, but there may be one in this sub-bucket.
    Below(SubPlace),
    /// None.
    Absent,
}

impl Peek {
    /// The entry, if there is one.
    #[inline(always)]
    pub fn seen(self) -> Option<Seen> {
        if let Peek::Found(seen) = self { Some(seen) } else { None }
    }
}

/// An entry with the right tag, as a look saw it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    word: NonZeroU64,
    /// Place of the bucket or sub-bucket, which of the two, and place in it.
    slot: u64,
}

impl Seen {
    /// Where it led.
    #[inline(always)]
    pub fn at(self) -> Location {
        unpack(self.word.get()).location
    }
}

const SLOT_IN_SUB: u64 = 8;
const SLOT_PLACE_SHIFT: u32 = 4;

/// The first entry with the tag of `hash`: its place among `slots`, and its word.
#[inline(always)]
fn tagged<const N: usize>(slots: &[AtomicU64; N], hash: KeyHash) -> Option<(u64, NonZeroU64)> {
    let mut matches = tag_hints(slots, hash.tag());
    while matches != 0 {
        let k = matches.trailing_zeros();
        // Acquire, pairs with the Release in `publish`: the record's bytes are seen.
        if let Some(word) = NonZeroU64::new(slots.get(k as usize)?.load(Ordering::Acquire)) {
            return Some((u64::from(k), word));
        }
        matches &= matches - 1;
    }
    None
}

/// The first word with the tag of `hash`.
#[inline(always)]
fn first_tagged<const N: usize>(slots: &[AtomicU64; N], hash: KeyHash) -> Option<u64> {
    let tag = tag_word(hash);
    let mut matches = tag_matches(slots, tag);
    while matches != 0 {
        let word = slots[matches.trailing_zeros() as usize].load(Ordering::Acquire);
        if word != 0 {
            return Some(word);
        }
        matches &= matches - 1;
    }
    None
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
