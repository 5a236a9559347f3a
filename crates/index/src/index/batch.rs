//! Lookups of a batch: in stages, so that cache lines can arrive between one stage and the next.

use super::{Index, mark, mask_among, position_under};
use crate::bucket::{Bucket, sub_for, tag_hints};
use crate::entry::{WARMTH_MAX, identity, tag_word, warmth_of};
use crate::shim::{AtomicU64, prefetch_read};
use crate::sub_bucket::{SubBucket, SubBucketPosition};
use larder_item::{KeyHash, Location};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

impl Index {
    /// Prefetches the cache line that a writer of `hash` will need first.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.batch_lookup().prefetch(hash);
    }

    /// The location that a matched entry pointed at.
    #[inline(always)]
    pub fn location(&self, seen: TagMatch) -> Location {
        self.format.unpack(seen.word.get()).location
    }

    /// Whether the entry that matched `hash` still points at the same location. If so, marks it, where `counts` says
    /// that a read of the record there counts. The answer is also `false` for an entry that is being moved at this
    /// moment; [`Index::get_marking`] then decides.
    #[inline(always)]
    pub fn confirm(&self, hash: KeyHash, seen: TagMatch, counts: impl FnOnce(Location) -> bool) -> bool {
        let slot = slot_of(&self.main, self.pool.subs(), seen);
        // Relaxed, as in `slot_among`. A moving entry is written to its new slot before it is removed from this
        // one, and is replaced only after that. A thread that has seen a newer record of the key therefore no
        // longer sees the older one in this slot.
        let word = slot.load(Ordering::Relaxed);
        if identity(word) != identity(seen.word.get()) {
            return self.confirm_elsewhere(hash, seen, counts);
        }
        if self.marks {
            mark(self.format, slot, word, counts);
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn confirm_elsewhere(
        &self,
        hash: KeyHash,
        seen: TagMatch,
        counts: impl FnOnce(Location) -> bool,
    ) -> bool {
        self.confirm_marking(hash, self.location(seen), counts)
    }

    /// The index for a batch of lookups.
    #[inline(always)]
    pub fn batch_lookup(&self) -> BatchLookup<'_> {
        // Acquire, as in `position`.
        let buckets = self.buckets.load(Ordering::Acquire);
        BatchLookup {
            index: self,
            main: &self.main,
            subs: self.pool.subs(),
            buckets,
            mask: mask_among(buckets),
            location_mask: self.format.location_mask(),
        }
    }
}

/// The index as a batch of lookups sees it.
///
/// A lookup has up to three stages, none of which waits: [`BatchLookup::prefetch`], [`BatchLookup::match_in_bucket`],
/// and for about one key in seven [`BatchLookup::match_in_sub_bucket`]. Between two stages the requested cache lines
/// have time to arrive.
///
/// The stages compare no key and check no version. A match may be the entry of another key, or already removed, and no
/// match does not mean that the key is absent. The number of buckets is read once, when the value is made; keys in
/// buckets added later may not be found.
#[derive(Clone, Copy)]
pub struct BatchLookup<'i> {
    index: &'i Index,
    main: &'i [Bucket],
    subs: &'i [SubBucket],
    buckets: u64,
    mask: u64,
    location_mask: u64,
}

impl BatchLookup<'_> {
    /// Prefetches the line of the bucket of `hash`. Returns the position of the bucket, for
    /// [`BatchLookup::match_in_bucket`].
    #[inline(always)]
    pub fn prefetch(&self, hash: KeyHash) -> BucketPosition {
        let position = position_under(hash.0, self.buckets, self.mask);
        prefetch_read(self.main.as_ptr().wrapping_add(position as usize));
        BucketPosition(position)
    }

    /// Looks for an entry with the tag of `hash` in the bucket's own line. If there is none, prefetches the
    /// sub-bucket that may have one and returns its position. The argument `position` is what
    /// [`BatchLookup::prefetch`] returned for the same hash.
    #[inline(always)]
    pub fn match_in_bucket(&self, hash: KeyHash, BucketPosition(position): BucketPosition) -> LookupStage {
        let bucket = &self.main[position as usize];
        if let Some((k, word)) = tagged(&bucket.entries, hash) {
            return LookupStage::Matched(TagMatch { word, slot: position << SLOT_POSITION_SHIFT | k });
        }
        let below = sub_for(bucket.header.load(Ordering::Acquire), tag_word(hash));
        let Some(below) = below else { return LookupStage::Absent };
        prefetch_read(self.subs.as_ptr().wrapping_add(below.0 as usize));
        LookupStage::InSubBucket(below)
    }

    /// Looks for an entry with the tag of `hash` in a sub-bucket whose line was prefetched. If the sub-bucket has
    /// gone to another bucket meanwhile, the result is another key's entry or none.
    #[inline(always)]
    pub fn match_in_sub_bucket(&self, hash: KeyHash, below: SubBucketPosition) -> Option<TagMatch> {
        let (k, word) = tagged(&self.subs[below.0 as usize].entries, hash)?;
        Some(TagMatch { word, slot: (below.0 as u64) << SLOT_POSITION_SHIFT | SLOT_IN_SUB | k })
    }

    /// The location that a matched entry pointed at.
    #[inline(always)]
    pub fn location(&self, seen: TagMatch) -> Location {
        Location::from_bits(!seen.word.get() & self.location_mask)
    }

    /// Marks a matched entry like [`Index::get_marking`], if the entry is unchanged, and `counts` says that a read of
    /// the record there counts.
    #[inline(always)]
    pub fn mark(&self, seen: TagMatch, counts: impl FnOnce(Location) -> bool) {
        if self.index.marks && warmth_of(seen.word.get()) < WARMTH_MAX {
            mark(self.index.format, self.slot(seen), seen.word.get(), counts);
        }
    }

    /// As [`Index::confirm`].
    #[inline(always)]
    pub fn confirm(&self, hash: KeyHash, seen: TagMatch, counts: impl FnOnce(Location) -> bool) -> bool {
        self.index.confirm(hash, seen, counts)
    }

    #[inline(always)]
    fn slot(&self, seen: TagMatch) -> &AtomicU64 {
        slot_of(self.main, self.subs, seen)
    }
}

/// The position of a hash's bucket at the moment of the prefetch. A split may have moved the hash since.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct BucketPosition(u64);

/// The slot of a matched entry.
#[inline(always)]
fn slot_of<'s>(main: &'s [Bucket], subs: &'s [SubBucket], seen: TagMatch) -> &'s AtomicU64 {
    let (position, k) =
        ((seen.slot >> SLOT_POSITION_SHIFT) as usize, (seen.slot & (SLOT_IN_SUB - 1)) as usize);
    if seen.slot & SLOT_IN_SUB == 0 { &main[position].entries[k] } else { &subs[position].entries[k] }
}

/// How far a lookup of a batch has come.
#[derive(Clone, Copy, Debug)]
pub enum LookupStage {
    /// The line of the bucket was prefetched.
    Prefetched(BucketPosition),
    /// An entry has the tag.
    Matched(TagMatch),
    /// No entry in the bucket's own line has the tag, but this sub-bucket may have one.
    InSubBucket(SubBucketPosition),
    /// No entry has the tag.
    Absent,
}

impl LookupStage {
    /// The matched entry, if there is one.
    #[inline(always)]
    pub fn tag_match(self) -> Option<TagMatch> {
        if let LookupStage::Matched(seen) = self { Some(seen) } else { None }
    }
}

/// An entry with the right tag, as a lookup saw it. The key was not compared.
#[derive(Clone, Copy, Debug)]
pub struct TagMatch {
    word: NonZeroU64,
    /// The position of the bucket or sub-bucket, which of the two it is, and the slot in it.
    slot: u64,
}

const SLOT_IN_SUB: u64 = 8;
const SLOT_POSITION_SHIFT: u32 = 4;

/// The first entry with the tag of `hash`: its slot among `slots`, and its word.
#[inline(always)]
fn tagged<const N: usize>(slots: &[AtomicU64; N], hash: KeyHash) -> Option<(u64, NonZeroU64)> {
    let mut matches = tag_hints(slots, hash.tag());
    while matches != 0 {
        let k = matches.trailing_zeros();
        // Acquire pairs with the Release in `publish`: the bytes of the record are visible.
        if let Some(word) = NonZeroU64::new(slots.get(k as usize)?.load(Ordering::Acquire)) {
            return Some((u64::from(k), word));
        }
        matches &= matches - 1;
    }
    None
}
