//! Which pages a slab gets at its first touch, where the machine has transparent huge pages.
//!
//! A huge page is what a slab should have in the end: a lookup among millions of items then finds most translations of
//! addresses in the TLB. But a huge page takes 2 MiB at once, and it can be dear: a virtual machine whose host takes
//! free memory back in blocks of 2 MiB pays for each block when it is used again, while small pages come from what is
//! left of other blocks. So small pages come first while there are few slabs, and while much is written and small pages
//! have turned out to be cheaper. [`Memory::collapse_some`](crate::Memory::collapse_some) puts huge pages in their
//! place in a quiet moment.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The first slabs get small pages, so that a small cache takes little memory: 64 MiB. Beyond that, the rest of a huge
/// page is at most a 32nd of what is used.
const SMALL_SLABS: u32 = 32;
/// A huge page may cost 150 percent of what the small pages of a slab cost.
const DEARER_MAX_PERCENT: u64 = 150;
/// One slab in 64 gets a huge page although they were dear, to see whether they still are.
const TRIED_EVERY: u32 = 64;

/// What the first touch of a slab costs on either kind of pages.
#[derive(Default)]
pub(crate) struct FirstTouch {
    /// Processor time, in nanoseconds for a slab; 0 = not known.
    small_ns: AtomicU64,
    huge_ns: AtomicU64,
    /// Much is being written, and the first touch may hold it up.
    is_hurried: AtomicBool,
    asked: AtomicU32,
}

impl FirstTouch {
    /// Whether the next slab should get a huge page, where `slabs` slabs are mapped.
    pub(crate) fn wants_huge(&self, slabs: u32) -> bool {
        if slabs < SMALL_SLABS {
            return false;
        }
        let (small_ns, huge_ns) = (self.small_ns.load(Relaxed), self.huge_ns.load(Relaxed));
        let is_dear = small_ns > 0 && huge_ns * 100 > DEARER_MAX_PERCENT * small_ns;
        !is_dear
            || !self.is_hurried.load(Relaxed)
            || self.asked.fetch_add(1, Relaxed).is_multiple_of(TRIED_EVERY)
    }

    /// Says whether much is being written.
    pub(crate) fn set_hurried(&self, is_hurried: bool) {
        if self.is_hurried.load(Relaxed) != is_hurried {
            self.is_hurried.store(is_hurried, Relaxed);
        }
    }

    /// Takes note of what a slab's first touch cost.
    pub(crate) fn note(&self, is_huge: bool, slab_ns: u64) {
        let known = if is_huge { &self.huge_ns } else { &self.small_ns };
        // A moving mean. Threads that note at the same time may lose one of their notes.
        let mean = match known.load(Relaxed) {
            0 => slab_ns,
            old => (3 * old + slab_ns) / 4,
        };
        known.store(mean.max(1), Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_small_memory_has_small_pages_and_a_large_one_huge_pages_unless_they_are_dear() {
        let touch = FirstTouch::default();
        touch.set_hurried(true);
        assert!(!touch.wants_huge(SMALL_SLABS - 1));
        assert!(touch.wants_huge(SMALL_SLABS), "nothing is known yet");
        touch.note(false, 1000);
        touch.note(true, 1400);
        assert!(touch.wants_huge(SMALL_SLABS));
        (0..8).for_each(|_| touch.note(true, 3000));
        let huge = (0..2 * TRIED_EVERY).filter(|_| touch.wants_huge(SMALL_SLABS)).count();
        assert_eq!(huge, 2, "tried now and then");
        touch.set_hurried(false);
        assert!(touch.wants_huge(SMALL_SLABS), "nobody waits");
    }
}
