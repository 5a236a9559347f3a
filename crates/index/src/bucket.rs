//! One bucket: one cache line.
//!
//! ```text
//! word 0 (header)  63                  33  32  31    24 23    16 15     8 7      0
//!                 +----------------------+---+--------+--------+--------+--------+
//!                 |       version        | W | sub 11 | sub 10 | sub 01 | sub 00 |
//!                 +----------------------+---+--------+--------+--------+--------+
//! words 1..=7     | entry                                                        |   see `entry`
//!                 +--------------------------------------------------------------+
//! ```
//!
//! `W` is the writer bit; whoever set it is the only one to write the entries, save that readers may raise the
//! warmth of an entry they hit. The version goes up by one with every unlock that changed something.
//!
//! The four sub-bucket numbers are a directory indexed by the low two bits of the tag. 0 = none. The first entry
//! too many takes one sub-bucket and all four numbers point at it; when that is full it is split in two, and so on
//! to four. A sub-bucket is eight entries and no header: the bucket's header guards them all. Entries are in
//! sub-buckets only while the bucket itself is full, so that most hits read one line.

use crate::entry::direction;
use crate::region::Blank;
use crate::shim::AtomicU64;
use std::sync::atomic::Ordering;

/// Entries in the bucket's own line.
pub(crate) const MAIN_ENTRIES: usize = if cfg!(loom) { 2 } else { 7 };
/// Entries in a sub-bucket.
pub(crate) const SUB_ENTRIES: usize = if cfg!(loom) { 2 } else { 8 };
/// Sub-buckets one bucket may have.
pub(crate) const SUBS_MAX: usize = 4;

/// Most entries that keys of one bucket can take: its own line and four sub-buckets.
pub const BUCKET_ENTRIES_MAX: usize = MAIN_ENTRIES + SUBS_MAX * SUB_ENTRIES;

/// The bit of the header that a writer holds.
pub(crate) const WRITER: u64 = 1 << 32;
/// One version.
pub(crate) const VERSION_ONE: u64 = 1 << 33;

/// A cache line of the index.
#[repr(C, align(64))]
pub(crate) struct Bucket {
    /// Acquire loads here pair with the Release store in `BucketGuard::drop`.
    pub(crate) header: AtomicU64,
    /// Acquire loads here pair with the Release in [`publish`].
    pub(crate) entries: [AtomicU64; MAIN_ENTRIES],
}

/// Eight more entries for a bucket that is full.
#[repr(C, align(64))]
pub(crate) struct Sub {
    pub(crate) entries: [AtomicU64; SUB_ENTRIES],
}

// SAFETY: an AtomicU64 of zero bytes is the number 0 (outside loom, where `blank` is used instead), and needs no drop.
// The blank bucket is unlocked, at version 0, and empty.
unsafe impl Blank for Bucket {
    #[cfg(loom)]
    fn blank() -> Bucket {
        Bucket { header: AtomicU64::new(0), entries: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

// SAFETY: as for Bucket; the word 0 is "no entry".
unsafe impl Blank for Sub {
    #[cfg(loom)]
    fn blank() -> Sub {
        Sub { entries: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64 && size_of::<Sub>() == 64);

/// The number of the sub-bucket in direction `d` (0..4); 0 = none.
#[inline]
pub(crate) fn number(header: u64, d: usize) -> usize {
    (header >> (8 * d) & 0xff) as usize
}

/// `header` with `number` in direction `d`.
#[inline]
pub(crate) fn with_number(header: u64, d: usize, number: usize) -> u64 {
    header & !(0xff << (8 * d)) | (number as u64) << (8 * d)
}

/// Whether the bucket has any sub-bucket.
#[inline]
pub(crate) fn has_subs(header: u64) -> bool {
    header as u32 != 0
}

/// The different sub-bucket numbers of `header`, in order of direction.
pub(crate) fn numbers(header: u64) -> impl Iterator<Item = usize> {
    (0..SUBS_MAX).filter_map(move |d| {
        let n = number(header, d);
        (n != 0 && (0..d).all(|before| number(header, before) != n)).then_some(n)
    })
}

/// The sub-bucket number for an entry word or tag word.
#[inline]
pub(crate) fn number_for(header: u64, word: u64) -> usize {
    number(header, direction(word))
}

/// A bit for every slot whose tag is that of `tag_word`. Empty slots look like tag 0.
#[inline(always)]
pub(crate) fn tag_matches<const N: usize>(slots: &[AtomicU64; N], tag_word: u64) -> u32 {
    let mut matches = 0;
    for slot in slots.iter().rev() {
        let differs = slot.load(Ordering::Acquire) ^ tag_word;
        matches = matches << 1 | (differs < 1 << crate::entry::TAG_SHIFT) as u32;
    }
    matches
}

/// Writes an entry, or 0. For lock holders.
///
/// Release, pairs with the Acquire loads of entries: whoever sees the entry sees the record's bytes, and the writer bit
/// that was set before.
#[inline]
pub(crate) fn publish(slot: &AtomicU64, word: u64) {
    #[cfg(not(loom))]
    slot.store(word, Ordering::Release);
    // Loom orders a store and another thread's read-modify-write (a mark) only by happens-before, where the language
    // orders them by atomicity; a swap tells it.
    #[cfg(loom)]
    slot.swap(word, Ordering::Release);
}

/// The first empty slot. For lock holders.
#[inline]
pub(crate) fn empty_slot<const N: usize>(slots: &[AtomicU64; N]) -> Option<&AtomicU64> {
    slots.iter().find(|slot| slot.load(Ordering::Relaxed) == 0)
}

impl Sub {
    /// How many entries there are. For lock holders.
    pub(crate) fn count(&self) -> usize {
        self.entries.iter().filter(|slot| slot.load(Ordering::Relaxed) != 0).count()
    }
}
