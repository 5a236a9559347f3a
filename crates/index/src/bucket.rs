//! A bucket: one cache line.
//!
//! ```text
//! word 0 (header)  63              35  34  33 32  31                              0
//!                 +------------------+---+------+--------------------------------+
//!                 |     version      | W | size |  first sub-bucket of the run   |
//!                 +------------------+---+------+--------------------------------+
//! words 1..=7     | entry                                                        |   see `entry`
//!                 +--------------------------------------------------------------+
//! ```
//!
//! `W` is the writer bit. Only the thread that set it writes the entries, except that a reader may raise the warmth
//! of an entry it hit. Every unlock that changed something raises the version by one.
//!
//! A bucket with more than seven entries has a run of sub-buckets: none, one, two or four lines that lie side by
//! side in the pool (`size` 0 to 3). Of the two lowest bits of the tag, the upper ones choose the sub-bucket of an
//! entry: no bit for a run of one, one bit for a run of two, both for a run of four. A sub-bucket has eight entries
//! and no header, because the header of the bucket guards it. The header also contains the position of the run in
//! the pool, so a reader that has the line of the bucket can prefetch the line of the sub-bucket at once.
//! Sub-buckets have entries only while the bucket itself is full, so most hits read one line.

use crate::entry::direction;
use crate::region::Blank;
use crate::shim::AtomicU64;
use crate::sub_bucket::{RUN_SIZE_MAX, SUB_ENTRIES, SubBucketPosition};
use std::sync::atomic::Ordering;

/// Entries in the bucket's own cache line.
pub(crate) const MAIN_ENTRIES: usize = if cfg!(loom) { 2 } else { 7 };
/// Most sub-buckets that a bucket can have.
const SUBS_MAX: usize = 1 << (RUN_SIZE_MAX - 1);

/// Most entries that one bucket can hold: in its own line and in four sub-buckets.
pub const BUCKET_ENTRIES_MAX: usize = MAIN_ENTRIES + SUBS_MAX * SUB_ENTRIES;

const SIZE_SHIFT: u32 = 32;
/// The bit of the header that the writer holds.
pub(crate) const WRITER: u64 = 1 << 34;
/// The lowest bit of the version.
pub(crate) const VERSION_ONE: u64 = 1 << 35;

/// One cache line of the index: a header and seven entries.
#[repr(C, align(64))]
pub(crate) struct Bucket {
    /// Acquire loads of the header pair with the Release store in `BucketGuard::drop`.
    pub(crate) header: AtomicU64,
    /// Acquire loads of an entry pair with the Release store in [`publish`].
    pub(crate) entries: [AtomicU64; MAIN_ENTRIES],
}

// SAFETY: an AtomicU64 of zero bytes is the number 0 (outside loom, where `blank` is used instead), and needs no
// drop. A blank bucket is unlocked, at version 0, and empty.
unsafe impl Blank for Bucket {
    #[cfg(loom)]
    fn blank() -> Bucket {
        Bucket { header: AtomicU64::new(0), entries: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64);

/// The size of the bucket's run. 0 means no run; `n` means `2^(n-1)` sub-buckets.
#[inline(always)]
pub(crate) fn run_size(header: u64) -> usize {
    (header >> SIZE_SHIFT & RUN_SIZE_MAX as u64) as usize
}

/// The first sub-bucket of the bucket's run. It has no meaning if there is no run.
#[inline(always)]
pub(crate) fn run_first(header: u64) -> SubBucketPosition {
    SubBucketPosition(header as u32)
}

/// `header` with the run of size `size` that begins at `first`.
#[inline]
pub(crate) fn with_run(header: u64, first: SubBucketPosition, size: usize) -> u64 {
    header & !(WRITER - 1) | (size as u64) << SIZE_SHIFT | u64::from(first.0)
}

/// The sub-buckets that `header` names, in order.
#[inline]
pub(crate) fn subs(header: u64) -> impl Iterator<Item = SubBucketPosition> {
    let (first, count) = (run_first(header).0, 1 << run_size(header) >> 1);
    // Wrapping: a run never ends beyond the last position, but its end may be one past it.
    (0..count).map(move |k: u32| SubBucketPosition(first.wrapping_add(k)))
}

/// The sub-bucket in which an entry with the tag of `word` would be. `word` is an entry word or a tag word.
#[inline(always)]
pub(crate) fn sub_for(header: u64, word: u64) -> Option<SubBucketPosition> {
    let size = run_size(header);
    (size != 0).then(|| {
        SubBucketPosition(run_first(header).0.wrapping_add((direction(word) >> (RUN_SIZE_MAX - size)) as u32))
    })
}

/// A bit for every slot whose tag equals the tag of `tag_word`. An empty slot looks like an entry with tag 0.
#[inline(always)]
pub(crate) fn tag_matches<const N: usize>(slots: &[AtomicU64; N], tag_word: u64) -> u32 {
    let mut matches = 0;
    for slot in slots.iter().rev() {
        let differs = slot.load(Ordering::Acquire) ^ tag_word;
        matches = matches << 1 | (differs < 1 << crate::entry::TAG_SHIFT) as u32;
    }
    matches
}

/// Like [`tag_matches`], for a lookup that may be wrong: four loads instead of eight, in an order that nothing may
/// rely on.
#[inline(always)]
pub(crate) fn tag_hints<const N: usize>(slots: &[AtomicU64; N], tag: u16) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    return simd::tag_hints(slots, tag);
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom)))))]
    tag_matches(slots, u64::from(tag) << crate::entry::TAG_SHIFT)
}

/// Compares the tags of two slots at a time, with instructions that every x86-64 has.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
mod simd {
    use super::{AtomicU64, MAIN_ENTRIES, SUB_ENTRIES};
    use std::arch::asm;
    use std::arch::x86_64::{
        __m128i, _mm_castsi128_ps, _mm_cmpeq_epi16, _mm_movemask_ps, _mm_set1_epi16, _mm_shuffle_ps,
    };

    /// Takes the upper half of each of four slots: dwords 1 and 3 of both operands.
    const UPPER_HALVES: i32 = 0b11_01_11_01;

    #[inline(always)]
    pub(super) fn tag_hints<const N: usize>(slots: &[AtomicU64; N], tag: u16) -> u32 {
        const { assert!(N == MAIN_ENTRIES || N == SUB_ENTRIES) };
        let (first, second, third, fourth): (__m128i, __m128i, __m128i, __m128i);
        let from = slots.as_ptr();
        // SAFETY: the loads stay inside `slots` (N is 8, or 7 with a last load of one slot) and need no alignment
        // beyond the slots' own. Other threads write the slots only by atomic stores of whole slots, and these
        // instructions read each aligned half of 8 bytes at once on every x86-64. They are therefore atomic loads of
        // N slots, in no order.
        unsafe {
            if N == SUB_ENTRIES {
                asm!("movdqu {0}, [{4}]", "movdqu {1}, [{4} + 16]", "movdqu {2}, [{4} + 32]", "movdqu {3}, [{4} + 48]",
                    out(xmm_reg) first, out(xmm_reg) second, out(xmm_reg) third, out(xmm_reg) fourth,
                    in(reg) from, options(nostack, preserves_flags, readonly));
            } else {
                asm!("movdqu {0}, [{4}]", "movdqu {1}, [{4} + 16]", "movdqu {2}, [{4} + 32]", "movq {3}, [{4} + 48]",
                    out(xmm_reg) first, out(xmm_reg) second, out(xmm_reg) third, out(xmm_reg) fourth,
                    in(reg) from, options(nostack, preserves_flags, readonly));
            }
        }
        // SAFETY: every x86-64 has SSE2.
        let matches = unsafe {
            let wanted = _mm_set1_epi16(tag as i16);
            let four = |a: __m128i, b: __m128i| {
                let (a, b) = (_mm_cmpeq_epi16(a, wanted), _mm_cmpeq_epi16(b, wanted));
                let upper = _mm_shuffle_ps::<UPPER_HALVES>(_mm_castsi128_ps(a), _mm_castsi128_ps(b));
                _mm_movemask_ps(upper) as u32
            };
            four(first, second) | four(third, fourth) << 4
        };
        matches & ((1 << N) - 1)
    }
}

/// Writes an entry, or 0. For the holder of the writer bit.
///
/// Release pairs with the Acquire loads of entries: a reader that sees the entry also sees the bytes of the record,
/// and the writer bit that was set before.
#[inline]
pub(crate) fn publish(slot: &AtomicU64, word: u64) {
    #[cfg(not(loom))]
    slot.store(word, Ordering::Release);
    // Loom orders a store and another thread's read-modify-write (a mark) only by happens-before, where the
    // language orders them by atomicity. A swap tells loom about that order.
    #[cfg(loom)]
    slot.swap(word, Ordering::Release);
}

/// The first empty slot. For the holder of the writer bit.
#[inline]
pub(crate) fn empty_slot<const N: usize>(slots: &[AtomicU64; N]) -> Option<&AtomicU64> {
    slots.iter().find(|slot| slot.load(Ordering::Relaxed) == 0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::entry::TAG_SHIFT;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 256 },
            failure_persistence: None,
            ..Default::default()
        })]
        #[test]
        fn hints_are_the_matches(words: [u64; 8], tag: u16, same: u8) {
            // Some slots get the tag. The others have it only by chance, and also in their lower bits.
            let mut words = words;
            for (k, word) in words.iter_mut().enumerate() {
                if same >> k & 1 != 0 {
                    *word = *word << 16 >> 16 | u64::from(tag) << TAG_SHIFT;
                } else {
                    *word = *word >> 16 << 16 | u64::from(tag);
                }
            }
            let slots = words.map(AtomicU64::new);
            let seven: &[AtomicU64; MAIN_ENTRIES] = slots.first_chunk().expect("seven of eight");
            let tag_word = u64::from(tag) << TAG_SHIFT;
            prop_assert_eq!(tag_hints(&slots, tag), tag_matches(&slots, tag_word));
            prop_assert_eq!(tag_hints(seven, tag), tag_matches(seven, tag_word));
        }
    }
}
