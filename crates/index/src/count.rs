//! A count that many threads change without meeting.

use crate::shim::AtomicU64;
use std::sync::atomic::Ordering;

/// Lines the count is spread over; threads beyond that many share.
const SHARDS: usize = if cfg!(loom) { 1 } else { 32 };

/// One thread's part, on a line (and its neighbour, which processors fetch along) of its own.
#[repr(align(128))]
struct Shard(AtomicU64);

/// A sum of per-thread parts. A part alone may be "negative" (wrapped): one thread inserts what another removes.
pub(crate) struct Count {
    shards: [Shard; SHARDS],
}

impl Count {
    pub(crate) fn new() -> Count {
        Count { shards: std::array::from_fn(|_| Shard(AtomicU64::new(0))) }
    }

    /// Adds one; returns the thread's own part after it, for sampling.
    #[inline]
    pub(crate) fn add_one(&self) -> u64 {
        self.shards[own_shard()].0.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Takes one off.
    #[inline]
    pub(crate) fn take_one(&self) {
        self.shards[own_shard()].0.fetch_sub(1, Ordering::Relaxed);
    }

    /// The sum; exact when nobody writes.
    pub(crate) fn sum(&self) -> u64 {
        let sum = self.shards.iter().fold(0u64, |sum, s| sum.wrapping_add(s.0.load(Ordering::Relaxed)));
        // Parts read at different times can add up to a little less than nothing.
        if sum as i64 >= 0 { sum } else { 0 }
    }
}

/// The shard of the calling thread: threads take them in turn.
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
