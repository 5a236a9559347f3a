//! The one kind of shared memory that the tables of this folder have, as a seam for models of threads.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

/// A 64-bit word that threads share. A word orders nothing but itself, so relaxed accesses would do. Loom knows the
/// order of a store and a replacement by two threads only through Release and Acquire, which cost nothing on x86.
pub(super) trait Word {
    /// A word that holds 0.
    fn zero() -> Self;
    /// What it holds.
    fn get(&self) -> u64;
    /// Makes it hold `new`.
    fn set(&self, new: u64);
    /// Makes it hold `new` if it holds `old`. Returns whether it did.
    fn replace(&self, old: u64, new: u64) -> bool;
}

impl Word for AtomicU64 {
    fn zero() -> Self {
        AtomicU64::new(0)
    }

    #[inline(always)]
    fn get(&self) -> u64 {
        self.load(Relaxed)
    }

    #[inline(always)]
    fn set(&self, new: u64) {
        self.store(new, Release);
    }

    #[inline(always)]
    fn replace(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, AcqRel, Relaxed).is_ok()
    }
}
