//! A counter that many threads change without sharing a cache line.

use crate::shim::AtomicU64;
use std::sync::atomic::Ordering;

/// Number of shards. With more threads than shards, threads share a shard.
const SHARDS: usize = if cfg!(loom) { 1 } else { 32 };

/// The part of the count that one thread changes. It is aligned to two cache lines, because processors fetch
/// neighbouring lines in pairs.
#[repr(align(128))]
struct Shard(AtomicU64);

/// A sum over shards. A single shard may wrap below zero, because one thread inserts what another removes.
pub(crate) struct Count {
    shards: [Shard; SHARDS],
}

impl Count {
    pub(crate) fn new() -> Count {
        Count { shards: std::array::from_fn(|_| Shard(AtomicU64::new(0))) }
    }

    /// Adds one. Returns the new value of the thread's own shard, for sampling.
    #[inline]
    pub(crate) fn add_one(&self) -> u64 {
        self.shards[own_shard()].0.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Subtracts one.
    #[inline]
    pub(crate) fn take_one(&self) {
        self.shards[own_shard()].0.fetch_sub(1, Ordering::Relaxed);
    }

    /// The sum. It is exact while no thread writes.
    pub(crate) fn sum(&self) -> u64 {
        let sum = self.shards.iter().fold(0u64, |sum, s| sum.wrapping_add(s.0.load(Ordering::Relaxed)));
        // Shards read at different moments can add up to slightly less than zero.
        if sum as i64 >= 0 { sum } else { 0 }
    }
}

/// The shard of the calling thread. Threads take shards in turn.
#[cfg(not(loom))]
#[inline]
fn own_shard() -> usize {
    use std::cell::Cell;
    use std::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: Cell<usize> = const { Cell::new(usize::MAX) });
    OWN.with(|own| {
        if own.get() == usize::MAX {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        own.get()
    })
}

#[cfg(loom)]
fn own_shard() -> usize {
    0
}
