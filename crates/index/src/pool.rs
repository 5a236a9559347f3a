//! The pool of sub-buckets: runs of one, two or four for buckets that are full.
//!
//! The header of a bucket contains the position of its run, so a reader needs no table to find it. Free runs wait in
//! lists, one per size. There are several sets of lists, so that writers of different buckets seldom contend. A list
//! without a run of the wanted size breaks a longer run, and after that takes lines that were never used. Broken runs
//! are not joined again but when the pool is packed. A bucket that shrinks therefore moves to a free run of the shorter
//! length and returns its own run whole; it breaks its own run only if no shorter one is free. The pool then has at
//! most as many runs of each length as buckets needed at the same time, however often buckets grow and shrink.
//!
//! When far fewer lines are in use than were taken, the pool is *packed*: it gives out runs before a line, the end,
//! only, while every bucket moves its run there. Free lines side by side are joined for that. Then no line behind the
//! end is in use, and the memory is given back. If a bucket needs a run meanwhile that the lines before the end do not
//! have, packing is given up.

use crate::region::{Region, SMALL_PAGE_BYTES};
use crate::shim::{AtomicU64, Mutex, MutexGuard};
use crate::sub_bucket::{RUN_SIZE_MAX, SUB_ENTRIES, SubBucket, SubBucketPosition};
use std::io;
use std::sync::atomic::Ordering;

/// Sets of lists of free runs.
const SHARDS: usize = if cfg!(any(loom, miri)) { 1 } else { 16 };
/// Neighbouring buckets share a set of lists: this many, as a power of two. Growth goes through neighbours one
/// after the other.
const NEIGHBOURS_LOG2: u32 = 4;
/// Lines that a set of lists takes from the pool at once.
const GRAB_LINES: u64 = if cfg!(loom) { 4 } else { 16 };
/// The pool is packed to the lines in use and an eighth more, and 256 lines at least, so that all sets of lists have
/// some. It is worth it if as much again is saved.
const SPARE_SHARE: u64 = 8;
const SPARE_LINES_MIN: u64 = if cfg!(loom) { 0 } else { 256 };
/// Before the pool is packed, 65,536 free lines are joined to runs at most: a few milliseconds, in which writers that
/// need a run wait.
const JOINED_LINES_MAX: u64 = 1 << 16;
/// Where packing was given up, twice as many are left each time, this often.
const GIVEN_UP_MAX: u32 = 6;
/// Lines of address space that are reserved for each bucket.
const LINES_PER_BUCKET: u64 = 2;

/// Free runs, all of whose entries are empty.
#[derive(Default)]
struct Free {
    /// The first line of each free run, by size minus one. The run returned last is reused first.
    runs: [Vec<u32>; RUN_SIZE_MAX],
    /// The next line that was never used, out of the `fresh_lines` that this set took from the pool.
    fresh: u32,
    fresh_lines: u32,
    /// While the pool is packed: free runs behind the end.
    beyond: [Vec<u32>; RUN_SIZE_MAX],
}

impl Free {
    /// Takes a run of `size` from the lists.
    fn take(&mut self, size: usize) -> Option<u32> {
        let from = (size..=RUN_SIZE_MAX).find(|size| !self.runs[size - 1].is_empty())?;
        let run = self.runs[from - 1].pop()?;
        // The halves that are left over, from the second half of the whole run down to the neighbour of the run
        // taken.
        (size..from).for_each(|half| self.runs[half - 1].push(run + lines_of(half)));
        Some(run)
    }

    /// Leaves no free run behind `end` in the lists.
    fn set_aside(&mut self, end: u32) {
        if self.fresh >= end {
            (0..self.fresh_lines).for_each(|k| self.beyond[0].push(self.fresh + k));
            self.fresh_lines = 0;
        }
        for (runs, beyond) in self.runs.iter_mut().zip(&mut self.beyond) {
            beyond.extend(runs.extract_if(.., |run| *run >= end));
        }
    }

    /// Takes all free lines out of the lists, but for those that were set aside.
    fn drain_lines(&mut self) -> Vec<u32> {
        let mut lines: Vec<u32> = (self.fresh..self.fresh + self.fresh_lines).collect();
        self.fresh_lines = 0;
        for (runs, size) in self.runs.iter_mut().zip(1..) {
            lines.extend(runs.drain(..).flat_map(|first| first..first + lines_of(size)));
        }
        lines
    }

    /// What was set aside is free again.
    fn take_in(&mut self) {
        for (runs, beyond) in self.runs.iter_mut().zip(&mut self.beyond) {
            runs.append(beyond);
        }
    }

    /// What was set aside does not exist any more.
    fn forget_beyond(&mut self) {
        self.beyond = <[Vec<u32>; RUN_SIZE_MAX]>::default();
        self.runs.iter_mut().for_each(Vec::shrink_to_fit);
    }

    /// Number of lines that are free, but for those that were set aside.
    fn lines(&self) -> u64 {
        let of_size = |size: usize| self.runs[size - 1].len() as u64 * u64::from(lines_of(size));
        u64::from(self.fresh_lines) + (1..=RUN_SIZE_MAX).map(of_size).sum::<u64>()
    }

    /// Takes a run of `size` from lines that were never used.
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

/// Number of lines of a run of `size`.
fn lines_of(size: usize) -> u32 {
    1 << (size - 1)
}

/// Aligned to two cache lines, because processors fetch neighbouring lines in pairs.
#[repr(align(128))]
struct Shard(Mutex<Free>);

/// All sub-buckets of the index.
pub(crate) struct Pool {
    subs: Region<SubBucket>,
    shards: [Shard; SHARDS],
    /// Lines before this one are in `shards` or in use.
    taken: AtomicU64,
    /// Runs are given out before this line only. It is the end of the address space unless the pool is packed.
    end: AtomicU64,
    /// Held by who changes `end`; before the lock of a shard. How often packing was given up lately.
    packing: Mutex<u32>,
}

impl Pool {
    /// A pool for at most `buckets` buckets.
    ///
    /// # Errors
    /// The address space cannot be reserved.
    pub(crate) fn new(buckets: u64) -> io::Result<Pool> {
        let spare = SHARDS as u64 * GRAB_LINES;
        let lines = (buckets.max(2) * LINES_PER_BUCKET + spare).min(u64::from(u32::MAX));
        Ok(Pool {
            subs: Region::reserve(lines as usize)?,
            shards: std::array::from_fn(|_| Shard(Mutex::new(Free::default()))),
            taken: AtomicU64::new(0),
            end: AtomicU64::new(lines),
            packing: Mutex::new(0),
        })
    }

    /// All sub-buckets for which address space is reserved.
    #[inline(always)]
    pub(crate) fn subs(&self) -> &Region<SubBucket> {
        &self.subs
    }

    /// The sub-bucket at `position`.
    #[inline(always)]
    pub(crate) fn sub(&self, position: SubBucketPosition) -> &SubBucket {
        &self.subs[position.0 as usize]
    }

    /// Takes an empty run of `size` for the bucket at `bucket`. `None` if the pool is exhausted.
    pub(crate) fn take(&self, bucket: u64, size: usize) -> Option<SubBucketPosition> {
        let taken = self.take_once(bucket, size).or_else(|| self.take_anywhere(size));
        taken.or_else(|| {
            self.give_up_packing();
            self.take_once(bucket, size)
        })
    }

    /// While the pool is packed: takes a run of `size` from any set of lists.
    #[cold]
    fn take_anywhere(&self, size: usize) -> Option<SubBucketPosition> {
        let is_packed = self.end.load(Ordering::Relaxed) < self.subs.len() as u64;
        let mut shards = self.shards.iter().filter(|_| is_packed);
        shards.find_map(|shard| lock(&shard.0).take(size)).map(SubBucketPosition)
    }

    fn take_once(&self, bucket: u64, size: usize) -> Option<SubBucketPosition> {
        let mut free = self.free_near(bucket);
        if let Some(run) = free.take(size).or_else(|| free.take_fresh(size)) {
            return Some(SubBucketPosition(run));
        }
        // The remaining fresh lines are too few for this run: they become runs of one.
        while let Some(line) = free.take_fresh(1) {
            free.runs[0].push(line);
        }
        // Who packs the pool has set it before it took the lock that this thread holds. Acquire: see `end_packing`.
        let end = self.end.load(Ordering::Acquire);
        let grab = |taken: u64| (taken + GRAB_LINES <= end).then_some(taken + GRAB_LINES);
        // Relaxed: the lines are zeros since they were mapped, and were never written.
        let grabbed = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grab).ok()?;
        (free.fresh, free.fresh_lines) = (grabbed as u32, GRAB_LINES as u32);
        free.take_fresh(size).map(SubBucketPosition)
    }

    /// A free run of exactly `size` from the lists of the bucket at `bucket`, if there is one.
    pub(crate) fn take_exact(&self, bucket: u64, size: usize) -> Option<SubBucketPosition> {
        self.free_near(bucket).runs[size - 1].pop().map(SubBucketPosition)
    }

    /// Returns a run of `size`, all of whose entries are empty, from the bucket at `bucket`.
    pub(crate) fn give_back(&self, bucket: u64, first: SubBucketPosition, size: usize) {
        // The mutex orders this call after the writer bit of the bucket, and the entries of the next owner after
        // this call. A reader that finds those entries through the old header therefore also sees that the old
        // bucket is locked or changed.
        let mut free = self.free_near(bucket);
        let is_beyond = u64::from(first.0) >= self.end.load(Ordering::Relaxed);
        let lists = if is_beyond { &mut free.beyond } else { &mut free.runs };
        lists[size - 1].push(first.0);
    }

    /// Begins to pack the pool if far more lines were taken than are in use, and calls `begun` then. Returns the end,
    /// also of packing that has begun before. `None`: there is nothing to be packed.
    pub(crate) fn begin_packing(&self, begun: impl FnOnce()) -> Option<u32> {
        let mut given_up = lock(&self.packing);
        let (taken, end) = (self.taken.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        if end < self.subs.len() as u64 {
            return Some(end as u32);
        }
        let free: u64 = self.shards.iter().map(|shard| lock(&shard.0).lines()).sum();
        let used = taken.saturating_sub(free);
        // Where the runs before the end did not do, there are twice as many the next time.
        let spare = (used / SPARE_SHARE + SPARE_LINES_MIN) << (*given_up).min(GIVEN_UP_MAX);
        let end = (used + spare).next_multiple_of(GRAB_LINES);
        if taken <= end + end / SPARE_SHARE + SPARE_LINES_MIN {
            *given_up = given_up.saturating_sub(1);
            return None;
        }
        begun();
        self.end.store(end, Ordering::Relaxed);
        self.shards.iter().for_each(|shard| lock(&shard.0).set_aside(end as u32));
        if end - used.min(end) <= JOINED_LINES_MAX {
            self.join_free_runs();
        }
        Some(end as u32)
    }

    /// Joins free lines that lie side by side, but none of different grabs, and shares them out among the sets of
    /// lists.
    fn join_free_runs(&self) {
        // All of them, so that nobody meets empty lists.
        let mut shards: Vec<_> = self.shards.iter().map(|shard| lock(&shard.0)).collect();
        let mut lines: Vec<u32> = shards.iter_mut().flat_map(|free| free.drain_lines()).collect();
        lines.sort_unstable();
        let mut left = &lines[..];
        for nth in 0.. {
            let Some(&first) = left.first() else { break };
            let is_run = |size: &usize| {
                let last = first + lines_of(*size) - 1;
                left.get(lines_of(*size) as usize - 1) == Some(&last)
                    && u64::from(first) / GRAB_LINES == u64::from(last) / GRAB_LINES
            };
            let size = (1..=RUN_SIZE_MAX).rev().find(is_run).unwrap_or(1);
            shards[nth % SHARDS].runs[size - 1].push(first);
            left = &left[lines_of(size) as usize..];
        }
    }

    /// No bucket has a run behind the end any more: gives the memory there back. `packed` is told how many bytes are
    /// left.
    pub(crate) fn end_packing(&self, packed: impl FnOnce(u64)) {
        let mut given_up = lock(&self.packing);
        let (taken, end) = (self.taken.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        if end == self.subs.len() as u64 {
            return;
        }
        let bytes = |lines: u64| lines * (SUB_ENTRIES * 8) as u64;
        packed(bytes(end));
        // Nobody takes these lines before `end` is where it was.
        self.subs.release(bytes(end), bytes(taken));
        self.shards.iter().for_each(|shard| lock(&shard.0).forget_beyond());
        self.taken.store(end, Ordering::Relaxed);
        // Release: who sees that the lines end here again sees from where on they are taken.
        self.end.store(self.subs.len() as u64, Ordering::Release);
        *given_up = 0;
    }

    /// If the pool is being packed: ends that without an effect.
    #[cold]
    fn give_up_packing(&self) {
        let mut given_up = lock(&self.packing);
        let all = self.subs.len() as u64;
        if self.end.swap(all, Ordering::Relaxed) != all {
            self.shards.iter().for_each(|shard| lock(&shard.0).take_in());
            *given_up += 1;
        }
    }

    fn free_near(&self, bucket: u64) -> MutexGuard<'_, Free> {
        lock(self.shard(bucket))
    }

    fn shard(&self, bucket: u64) -> &Mutex<Free> {
        &self.shards[(bucket >> NEIGHBOURS_LOG2) as usize % SHARDS].0
    }

    /// Bytes of the sub-buckets that were ever used.
    pub(crate) fn bytes_taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed) * (SUB_ENTRIES * 8) as u64
    }

    /// Bytes of the lists.
    pub(crate) fn listed_bytes(&self) -> u64 {
        let lengths = (0..SHARDS as u64).map(|shard| {
            let free = self.free_near(shard << NEIGHBOURS_LOG2);
            free.runs.iter().chain(&free.beyond).map(Vec::capacity).sum::<usize>()
        });
        (lengths.sum::<usize>() * size_of::<u32>()) as u64
    }
}

/// Nothing panics under these locks, and the lists are consistent at every step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// `bytes` from the start of a region, in whole pages.
pub(crate) fn touched(bytes: u64) -> u64 {
    bytes.next_multiple_of(SMALL_PAGE_BYTES)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_line_is_given_out_twice() {
        let pool = Pool::new(512).unwrap();
        let (mut taken, mut lines) = (Vec::new(), HashSet::new());
        let (mut refused, mut random) = (0, 1u64);
        for step in 0..if cfg!(miri) { 100 } else { 100_000 } {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            // Half of the steps take more runs than they return, the other half take fewer.
            let takes = random >> 60 < if step % 4096 < 2048 { 11 } else { 5 };
            let (bucket, size) = ((random >> 32) % 512, (random >> 20) as usize % RUN_SIZE_MAX + 1);
            if takes {
                let Some(SubBucketPosition(first)) = pool.take(bucket, size) else {
                    refused += 1;
                    continue;
                };
                (first..first + lines_of(size)).for_each(|line| assert!(lines.insert(line), "line {line}"));
                assert!(((first + lines_of(size)) as usize) <= pool.subs.len());
                taken.push((bucket, first, size));
            } else if !taken.is_empty() {
                let (bucket, first, size) = taken.swap_remove((random >> 8) as usize % taken.len());
                (first..first + lines_of(size)).for_each(|line| assert!(lines.remove(&line)));
                // Now and then a run comes back in two halves, as from a bucket that shrinks.
                if size > 1 && random & 1 == 0 {
                    let half = lines_of(size - 1);
                    pool.give_back(bucket, SubBucketPosition(first), size - 1);
                    pool.give_back(bucket, SubBucketPosition(first + half), size - 1);
                } else {
                    pool.give_back(bucket, SubBucketPosition(first), size);
                }
            }
        }
        assert!(cfg!(miri) || refused > 0, "the pool was never exhausted");
        assert!(pool.taken.load(Ordering::Relaxed) as usize <= pool.subs.len());
    }
}
