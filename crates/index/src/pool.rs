//! Where full buckets overflow to: sub-buckets, in chunks, from one dense pool.
//!
//! ```text
//! neighbourhood table: a 64-bit word per chunk, 16 of them for 128 buckets (two lines)
//!  63               32 31          16 15                            0
//! +-------------------+--------------+-------------------------------+
//! |   chunk number    |   0          | in use: one bit per sub-bucket |
//! +-------------------+--------------+-------------------------------+
//! chunk: 16 sub-buckets of 64 bytes; sub-bucket number = place in the table << 4 | place in the chunk
//! ```
//!
//! A bucket names its sub-buckets by one byte, which is enough because 128 neighbouring buckets share 255 of them.
//! A table word of 0 is no chunk. Number 0 means "none" in a bucket, so the first sub-bucket of the first chunk is
//! always marked in use and never given out. The lowest free number is given first, and a chunk whose last
//! sub-bucket comes back returns to the pool, so the pool stays as dense as the overflow is.

use crate::bucket::{SUB_ENTRIES, Sub};
use crate::region::{Blank, HUGE_PAGE_BYTES, Region, SMALL_PAGE_BYTES};
use crate::shim::{AtomicU64, Mutex};
use std::io;
use std::sync::atomic::Ordering;

/// Buckets that share one table, as a power of two.
pub(crate) const NEIGHBOURHOOD_LOG2: u32 = if cfg!(loom) { 1 } else { 7 };
/// Sub-buckets of one chunk.
const CHUNK_SUBS: usize = if cfg!(loom) { 2 } else { 16 };
/// Chunks of one neighbourhood.
const CHUNKS: usize = if cfg!(loom) { 4 } else { 16 };

const CHUNK_SHIFT: u32 = 32;
const FULL: u64 = (1 << CHUNK_SUBS) - 1;

/// The chunks of one neighbourhood.
#[repr(C, align(128))]
struct Table {
    /// Acquire loads pair with the AcqRel exchanges below: whoever finds a sub-bucket gone or given to another
    /// bucket also sees the writer bit of the bucket that gave it up.
    chunks: [AtomicU64; CHUNKS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Table>() == 128 && CHUNKS * CHUNK_SUBS == 256);

// SAFETY: an AtomicU64 of zero bytes is the number 0 (outside loom, where `blank` is used instead), and needs no drop.
unsafe impl Blank for Table {
    #[cfg(loom)]
    fn blank() -> Table {
        Table { chunks: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

/// The place of a sub-bucket in the pool. The sub-bucket may go to another bucket at any time; its place remains one.
#[derive(Clone, Copy, Debug)]
pub struct SubPlace(pub(crate) u32);

/// Chunks nobody has.
struct Free {
    /// Chunks that came back, all their entries empty; the last one in goes out first.
    returned: Vec<u32>,
    /// Chunks from this number on were never given out. Chunk 0 never is.
    fresh: u32,
}

/// All sub-buckets of the index.
pub(crate) struct Pool {
    subs: Region<Sub>,
    tables: Region<Table>,
    free: Mutex<Free>,
    /// Where `Free::fresh` ends.
    chunks_end: u32,
}

impl Pool {
    /// A pool for at most `buckets` buckets.
    ///
    /// # Errors
    /// If the address space for it cannot be had.
    pub(crate) fn new(buckets: u64, huge: bool) -> io::Result<Pool> {
        let neighbourhoods = (buckets >> NEIGHBOURHOOD_LOG2).max(1) as usize;
        let chunks_end = u32::try_from(neighbourhoods * CHUNKS + 1)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "more buckets than chunk numbers"))?;
        Ok(Pool {
            subs: Region::reserve(chunks_end as usize * CHUNK_SUBS, huge)?,
            tables: Region::reserve(neighbourhoods, huge)?,
            free: Mutex::new(Free { returned: Vec::new(), fresh: 1 }),
            chunks_end,
        })
    }

    #[inline]
    fn table(&self, bucket: u64) -> &Table {
        &self.tables[(bucket >> NEIGHBOURHOOD_LOG2) as usize]
    }

    /// Sub-bucket `number` of the neighbourhood of `bucket`; `None` if it was given back since the header was read.
    #[inline]
    pub(crate) fn sub(&self, bucket: u64, number: usize) -> Option<&Sub> {
        let word = self.table(bucket).chunks[number / CHUNK_SUBS].load(Ordering::Acquire);
        let chunk = (word >> CHUNK_SHIFT) as usize;
        (chunk != 0).then(|| &self.subs[chunk * CHUNK_SUBS + number % CHUNK_SUBS])
    }

    /// Where in the pool sub-bucket `number` of the neighbourhood of `bucket` is; as [`Pool::sub`].
    #[inline(always)]
    pub(crate) fn place_of(&self, bucket: u64, number: usize) -> Option<SubPlace> {
        let word = self.table(bucket).chunks[number / CHUNK_SUBS].load(Ordering::Acquire);
        let chunk = (word >> CHUNK_SHIFT) as u32;
        (chunk != 0).then(|| SubPlace(chunk * CHUNK_SUBS as u32 + (number % CHUNK_SUBS) as u32))
    }

    /// The sub-bucket there.
    #[inline(always)]
    pub(crate) fn sub_at(&self, place: SubPlace) -> &Sub {
        &self.subs[place.0 as usize]
    }

    /// Takes an empty sub-bucket for `bucket`: the lowest free number. `None` when the neighbourhood has 255 or
    /// the pool is exhausted.
    pub(crate) fn take(&self, bucket: u64) -> Option<usize> {
        let table = self.table(bucket);
        loop {
            if let Some(number) = self.take_below(bucket, CHUNKS * CHUNK_SUBS) {
                return Some(number);
            }
            let place = table.chunks.iter().position(|chunk| chunk.load(Ordering::Relaxed) == 0)?;
            let chunk = self.take_chunk()?;
            let reserved = if place == 0 { 1 } else { 0 };
            let taken = reserved + 1;
            let word = (chunk as u64) << CHUNK_SHIFT | ((1u64 << taken) - 1);
            let put = table.chunks[place].compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed);
            if put.is_ok() {
                return Some(place * CHUNK_SUBS + reserved);
            }
            self.return_chunk(chunk);
        }
    }

    /// Takes an empty sub-bucket below `number` from a chunk the neighbourhood already has.
    pub(crate) fn take_below(&self, bucket: u64, number: usize) -> Option<usize> {
        for (place, slot) in self.table(bucket).chunks.iter().enumerate().take(number.div_ceil(CHUNK_SUBS)) {
            let mut word = slot.load(Ordering::Relaxed);
            loop {
                let bit = (word & FULL).trailing_ones() as usize;
                let lowest = place * CHUNK_SUBS + bit;
                if word == 0 || bit == CHUNK_SUBS || lowest >= number {
                    break;
                }
                // Acquire: pairs with the AcqRel in `give_back`; the sub-bucket is seen empty, and what is written
                // to it from here on comes after its last owner's writer bit.
                match slot.compare_exchange(word, word | 1 << bit, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => return Some(lowest),
                    Err(now) => word = now,
                }
            }
        }
        None
    }

    /// Returns a sub-bucket, all of whose entries are empty, and its chunk if it was the last one in use.
    pub(crate) fn give_back(&self, bucket: u64, number: usize) {
        let place = number / CHUNK_SUBS;
        let slot = &self.table(bucket).chunks[place];
        let reserved = (place == 0) as u64;
        let mut word = slot.load(Ordering::Relaxed);
        loop {
            let left = word & !(1 << (number % CHUNK_SUBS));
            debug_assert!(left != word, "sub-bucket {number} was given back twice");
            let chunk_is_empty = left & FULL == reserved;
            let next = if chunk_is_empty { 0 } else { left };
            match slot.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if chunk_is_empty => return self.return_chunk((word >> CHUNK_SHIFT) as u32),
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    fn take_chunk(&self) -> Option<u32> {
        let mut free = self.lock_free();
        free.returned.pop().or_else(|| {
            let chunk = free.fresh;
            (chunk < self.chunks_end).then(|| free.fresh += 1).map(|()| chunk)
        })
    }

    fn return_chunk(&self, chunk: u32) {
        self.lock_free().returned.push(chunk);
    }

    #[cfg(not(loom))]
    fn lock_free(&self) -> std::sync::MutexGuard<'_, Free> {
        // Nothing panics under this lock, and every state of the list is a whole one.
        self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    #[cfg(loom)]
    fn lock_free(&self) -> loom::sync::MutexGuard<'_, Free> {
        self.free.lock().unwrap()
    }

    /// Bytes of sub-buckets and tables that were ever touched, for an index of `buckets` buckets.
    pub(crate) fn bytes(&self, buckets: u64, huge: bool) -> u64 {
        let free = self.lock_free();
        let chunks = free.fresh as u64 * (CHUNK_SUBS * SUB_ENTRIES * 8) as u64;
        touched(chunks, huge) + table_bytes(buckets, huge) + 4 * free.returned.capacity() as u64
    }
}

/// Bytes of the tables of `buckets` buckets.
pub(crate) fn table_bytes(buckets: u64, huge: bool) -> u64 {
    touched(buckets.div_ceil(1 << NEIGHBOURHOOD_LOG2) * size_of::<Table>() as u64, huge)
}

/// `bytes` from the start of a region, in whole pages.
pub(crate) fn touched(bytes: u64, huge: bool) -> u64 {
    bytes.next_multiple_of(if huge { HUGE_PAGE_BYTES } else { SMALL_PAGE_BYTES })
}
