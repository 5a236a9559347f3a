//! Where full buckets overflow to: runs of one, two or four sub-buckets, from one dense pool.
//!
//! A bucket's header names its run by place, so a reader needs no table to find it. Free runs wait in lists, by size,
//! several of each so that writers of different buckets seldom meet; a list that has none of a size breaks a longer run,
//! then takes lines that nobody had before. Broken runs are not joined again. So a bucket that shrinks goes to a free run of
//! the shorter length and gives its own back whole, and breaks it only where there is none: each length then has as many
//! runs as buckets ever wanted at once, however often they grow and shrink.

use crate::region::{HUGE_PAGE_BYTES, Region, SMALL_PAGE_BYTES};
use crate::shim::{AtomicU64, Mutex};
use crate::sub_bucket::{RUN_SIZE_MAX, SUB_ENTRIES, SubBucket, SubPlace};
use std::io;
use std::sync::atomic::Ordering;

/// Lists of free runs.
const SHARDS: usize = if cfg!(any(loom, miri)) { 1 } else { 16 };
/// Neighbouring buckets that share a list, as a power of two: growth goes through them one after the other.
const NEIGHBOURS_LOG2: u32 = 4;
/// Lines that a list takes together when it has none left.
const GRAB_LINES: u64 = if cfg!(loom) { 4 } else { 16 };
/// Lines there is address space for, for each bucket.
const LINES_PER_BUCKET: u64 = 2;

/// Runs nobody has, all of their entries empty.
#[derive(Default)]
struct Free {
    /// The first line of each, by size less one; the last one in goes out first.
    runs: [Vec<u32>; RUN_SIZE_MAX],
    /// Lines from here on were never given out.
    fresh: u32,
    fresh_lines: u32,
}

impl Free {
    /// A run of `size` out of what there is.
    fn take(&mut self, size: usize) -> Option<u32> {
        let from = (size..=RUN_SIZE_MAX).find(|size| !self.runs[size - 1].is_empty())?;
        let run = self.runs[from - 1].pop()?;
        // The halves that are left over, from the second half of all down to the neighbour of the run.
        (size..from).for_each(|half| self.runs[half - 1].push(run + lines_of(half)));
        Some(run)
    }

    /// A run of `size` out of lines that nobody had.
    fn take_fresh(&mut self, size: usize) -> Option<u32> {
        let lines = lines_of(size);
        (lines <= self.fresh_lines).then(|| {
            let run = self.fresh;
            self.fresh += lines;
            self.fresh_lines -= lines;
            run
        })
    }
}

/// Lines of a run of `size`.
fn lines_of(size: usize) -> u32 {
    1 << (size - 1)
}

/// On lines (and their neighbours, which processors fetch along) of its own.
#[repr(align(128))]
struct Shard(Mutex<Free>);

/// All sub-buckets of the index.
pub(crate) struct Pool {
    subs: Region<SubBucket>,
    shards: [Shard; SHARDS],
    /// Lines below are in `shards` or in use.
    taken: AtomicU64,
}

impl Pool {
    /// A pool for at most `buckets` buckets.
    ///
    /// # Errors
    /// If the address space for it cannot be had.
    pub(crate) fn new(buckets: u64, huge: bool) -> io::Result<Pool> {
        let spare = SHARDS as u64 * GRAB_LINES;
        let lines = (buckets.max(2) * LINES_PER_BUCKET + spare).min(u64::from(u32::MAX));
        Ok(Pool {
            subs: Region::reserve(lines as usize, huge)?,
            shards: std::array::from_fn(|_| Shard(Mutex::new(Free::default()))),
            taken: AtomicU64::new(0),
        })
    }

    /// All sub-buckets there is address space for.
    #[inline(always)]
    pub(crate) fn subs(&self) -> &[SubBucket] {
        &self.subs
    }

    /// The sub-bucket there.
    #[inline(always)]
    pub(crate) fn sub(&self, place: SubPlace) -> &SubBucket {
        &self.subs[place.0 as usize]
    }

    /// Takes an empty run of `size` for the bucket at `place`. `None` when the pool is exhausted.
    pub(crate) fn take(&self, place: u64, size: usize) -> Option<SubPlace> {
        let mut free = self.free_near(place);
        if let Some(run) = free.take(size).or_else(|| free.take_fresh(size)) {
            return Some(SubPlace(run));
        }
        // What is left of the fresh lines is too short for this run.
        while let Some(line) = free.take_fresh(1) {
            free.runs[0].push(line);
        }
        let end = self.subs.len() as u64;
        let grab = |taken: u64| (taken + GRAB_LINES <= end).then_some(taken + GRAB_LINES);
        // Relaxed: the lines are zeros since they were mapped; nothing was written to them before.
        let grabbed = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grab).ok()?;
        (free.fresh, free.fresh_lines) = (grabbed as u32, GRAB_LINES as u32);
        free.take_fresh(size).map(SubPlace)
    }

    /// A free run of exactly `size` near `place`, if there is one.
    pub(crate) fn take_exact(&self, place: u64, size: usize) -> Option<SubPlace> {
        self.free_near(place).runs[size - 1].pop().map(SubPlace)
    }

    /// Returns a run of `size`, all of whose entries are empty, that the bucket at `place` had.
    pub(crate) fn give_back(&self, place: u64, first: SubPlace, size: usize) {
        // The mutex orders this after the writer bit of the bucket, and the next owner's entries after this: whoever finds
        // those through the old header also sees that the old bucket is locked, or changed.
        self.free_near(place).runs[size - 1].push(first.0);
    }

    #[cfg(not(loom))]
    fn free_near(&self, place: u64) -> std::sync::MutexGuard<'_, Free> {
        // Nothing panics under this lock, and every state of the lists is a whole one.
        self.shard(place).lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    #[cfg(loom)]
    fn free_near(&self, place: u64) -> loom::sync::MutexGuard<'_, Free> {
        self.shard(place).lock().unwrap()
    }

    fn shard(&self, place: u64) -> &Mutex<Free> {
        &self.shards[(place >> NEIGHBOURS_LOG2) as usize % SHARDS].0
    }

    /// Bytes of sub-buckets that were ever touched, and of the lists.
    pub(crate) fn bytes(&self, huge: bool) -> u64 {
        let listed: usize = (0..SHARDS as u64)
            .map(|shard| {
                self.free_near(shard << NEIGHBOURS_LOG2).runs.iter().map(Vec::capacity).sum::<usize>()
            })
            .sum();
        let lines = self.taken.load(Ordering::Relaxed) * (SUB_ENTRIES * 8) as u64;
        touched(lines, huge) + (listed * size_of::<u32>()) as u64
    }
}

/// `bytes` from the start of a region, in whole pages.
pub(crate) fn touched(bytes: u64, huge: bool) -> u64 {
    bytes.next_multiple_of(if huge { HUGE_PAGE_BYTES } else { SMALL_PAGE_BYTES })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_line_is_given_out_twice() {
        let pool = Pool::new(512, false).unwrap();
        let (mut taken, mut lines) = (Vec::new(), HashSet::new());
        let (mut refused, mut lot) = (0, 1u64);
        for step in 0..if cfg!(miri) { 300 } else { 100_000 } {
            lot = lot.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            // More is taken than given back in one half of the steps, less in the other.
            let takes = lot >> 60 < if step % 4096 < 2048 { 11 } else { 5 };
            let (place, size) = ((lot >> 32) % 512, (lot >> 20) as usize % RUN_SIZE_MAX + 1);
            if takes {
                let Some(SubPlace(first)) = pool.take(place, size) else {
                    refused += 1;
                    continue;
                };
                (first..first + lines_of(size)).for_each(|line| assert!(lines.insert(line), "line {line}"));
                assert!(((first + lines_of(size)) as usize) <= pool.subs.len());
                taken.push((place, first, size));
            } else if !taken.is_empty() {
                let (place, first, size) = taken.swap_remove((lot >> 8) as usize % taken.len());
                (first..first + lines_of(size)).for_each(|line| assert!(lines.remove(&line)));
                // Half of a run comes back alone now and then, as from a bucket that needs no more.
                if size > 1 && lot & 1 == 0 {
                    let half = lines_of(size - 1);
                    pool.give_back(place, SubPlace(first), size - 1);
                    pool.give_back(place, SubPlace(first + half), size - 1);
                } else {
                    pool.give_back(place, SubPlace(first), size);
                }
            }
        }
        assert!(cfg!(miri) || refused > 0, "the pool was never exhausted");
        assert!(pool.taken.load(Ordering::Relaxed) as usize <= pool.subs.len());
    }
}
