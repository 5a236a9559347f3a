//! Lookups of a batch: in stages, between which cache lines have time to arrive.

use super::{Index, mark, mask_among, place_under};
use crate::bucket::{Bucket, sub_for, tag_hints};
use crate::entry::{WARMTH_MAX, identity, tag_word, unpack, warmth_of};
use crate::shim::{AtomicU64, prefetch_read};
use crate::sub_bucket::{SubBucket, SubPlace};
use larder_item::{KeyHash, Location};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

impl Index {
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
    subs: &'i [SubBucket],
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
