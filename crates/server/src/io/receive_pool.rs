//! The memory that an io_uring receives into: one pool of buffers, of which the kernel takes one at the moment bytes
//! arrive.

use super::buffers::RING_BUFFERS_MIN;
use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// One receive buffer.
const BUFFER_BYTES: usize = 16 * 1024;
/// Bytes from one buffer to the next: a cache line more than a buffer, so that the first lines of buffers lie in
/// different cache sets.
const STRIDE_BYTES: usize = BUFFER_BYTES + 64;
/// Buffers that the kernel has at first. It goes round all it has, so it gets more only when these were too few.
const FIRST_BUFFERS: u16 = 16;
/// The name of the pool within its ring.
pub(super) const GROUP: u16 = 0;
/// The kernel requires the pool's ring to begin at a page.
const PAGE_BYTES: usize = 4096;

/// The receive buffers of a worker, and the ring in which the kernel finds those that are free.
#[derive(Debug)]
pub(super) struct Pool {
    entries: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    count: u16,
    /// How many buffers were ever offered.
    begun: u16,
    tail: u16,
}

/// A buffer with received bytes. Until the buffer is given back, only the owner of this value uses it.
#[derive(Debug)]
pub(super) struct Filled {
    buffer: u16,
    length: u32,
}

impl Filled {
    /// The bytes of a completion, as the kernel names the buffer and the length.
    ///
    /// # Safety
    /// Both are of one completion of a receive into the pool, for which no other value was made.
    pub(super) unsafe fn new(buffer: u16, length: u32) -> Filled {
        Filled { buffer, length }
    }
}

impl Pool {
    /// A pool of `count` buffers, a power of two up to 32768. The system gives memory for a buffer at its first use.
    pub(super) fn new(count: u16) -> io::Result<Pool> {
        debug_assert!(count.is_power_of_two() && count <= 1 << 15);
        let layout = Pool::entries_layout(count);
        // SAFETY: the layout is not empty.
        let entries = unsafe { alloc_zeroed(layout) };
        let entries = NonNull::new(entries.cast()).unwrap_or_else(|| handle_alloc_error(layout));
        let memory = vec![0; Pool::memory_bytes(count)].into_boxed_slice();
        let memory = NonNull::from(Box::leak(memory)).cast();
        Ok(Pool { entries, memory, count, begun: 0, tail: 0 })
    }

    fn entries_layout(count: u16) -> Layout {
        let bytes = usize::from(count) * mem::size_of::<BufRingEntry>();
        Layout::from_size_align(bytes, PAGE_BYTES).expect("at most half a megabyte")
    }

    /// How many buffers there are.
    pub(super) fn count(&self) -> u16 {
        self.count
    }

    /// Bytes of memory that the buffers take.
    pub(super) fn bytes_held(&self) -> u64 {
        Pool::memory_bytes(self.count) as u64
    }

    fn memory_bytes(count: u16) -> usize {
        usize::from(count) * STRIDE_BYTES
    }

    pub(super) fn register(&mut self, submitter: &Submitter<'_>) -> io::Result<()> {
        // SAFETY: `entries` is page-aligned, zeroed, of `count` entries, and lives as long as the pool, which outlives
        // the ring's operations (see the head of `ring.rs`).
        unsafe {
            submitter.register_buf_ring_with_flags(self.entries.as_ptr() as u64, self.count, GROUP, 0)?
        };
        // The kernel begins to read at the first entry. A pool that is registered again offers what it offered before.
        self.tail = 0;
        let buffers = mem::take(&mut self.begun).max(FIRST_BUFFERS);
        self.begin(buffers);
        Ok(())
    }

    /// Offers as many buffers again as were ever offered, if there are.
    pub(super) fn double(&mut self) {
        self.begin(self.begun);
    }

    /// Offers up to `more` buffers that were never offered.
    fn begin(&mut self, more: u16) {
        let end = self.count.min(self.begun + more);
        (self.begun..end).for_each(|buffer| self.offer(buffer));
        self.begun = end;
    }

    /// The owner of received bytes needs them no more.
    #[inline]
    pub(super) fn give_back(&mut self, filled: Filled) {
        self.offer(filled.buffer);
    }

    /// Gives a buffer to the kernel. The caller owns it: it was never offered, or was taken back as `Filled`.
    #[inline]
    fn offer(&mut self, buffer: u16) {
        let at = usize::from(self.tail & (self.count - 1));
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: `at < count`, and the kernel does not read this entry before the tail below has passed it. At most
        // `count` buffers are offered at one time, so the kernel has consumed what the entry said before.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(at);
            entry.set_addr(self.memory.as_ptr().add(usize::from(buffer) * STRIDE_BYTES) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(buffer);
        }
        // SAFETY: the tail lies in the first entry, is aligned, and is written by this thread only. Release pairs with
        // the kernel's acquire: who sees the tail sees the entry.
        unsafe {
            let tail = BufRingEntry::tail(self.entries.as_ptr()).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }

    #[inline]
    pub(super) fn bytes<'a>(&'a self, filled: &'a Filled) -> &'a [u8] {
        debug_assert!(filled.buffer < self.count && filled.length as usize <= BUFFER_BYTES);
        // SAFETY: a `Filled` is made from a completion only, whose buffer and length lie in the pool and whose bytes
        // the kernel wrote before it posted it. The kernel writes there again only once `offer` has consumed it.
        unsafe {
            let from = self.memory.as_ptr().add(usize::from(filled.buffer) * STRIDE_BYTES);
            std::slice::from_raw_parts(from, filled.length as usize)
        }
    }

    #[inline]
    pub(super) fn bytes_mut<'a>(&'a mut self, filled: &'a mut Filled) -> &'a mut [u8] {
        debug_assert!(filled.buffer < self.count && filled.length as usize <= BUFFER_BYTES);
        // SAFETY: as in `bytes`. Nobody else has the bytes meanwhile: no two `Filled` are of one buffer, and this one
        // is borrowed for writing.
        unsafe {
            let from = self.memory.as_ptr().add(usize::from(filled.buffer) * STRIDE_BYTES);
            std::slice::from_raw_parts_mut(from, filled.length as usize)
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: both were allocated by `new` with these sizes, and no operation that could write to them is left.
        unsafe {
            dealloc(self.entries.as_ptr().cast(), Pool::entries_layout(self.count));
            let memory =
                std::ptr::slice_from_raw_parts_mut(self.memory.as_ptr(), Pool::memory_bytes(self.count));
            drop(Box::from_raw(memory));
        }
    }
}

/// The number of buffers, rounded to what the kernel allows.
pub(super) fn pool_size(buffers: usize) -> u16 {
    buffers.clamp(RING_BUFFERS_MIN, 1 << 15).next_power_of_two() as u16
}
