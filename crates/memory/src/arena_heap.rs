//! The arena where there is no kernel to ask (Miri, loom): one zeroed allocation, the same methods.

use crate::column::SlabId;
use crate::options::{MemoryError, PageKind, PagesWanted, SLAB_BYTES};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;

const TAIL_BYTES: usize = 64 << 10;

/// The allocation that plays the reservation.
pub(crate) struct Arena {
    base: *mut u8,
    slabs: u32,
}

// SAFETY: the arena owns its allocation, and `base` is only handed out as a pointer whose users prove their own
// accesses.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    fn layout(slabs: u32) -> Layout {
        Layout::from_size_align(slabs as usize * SLAB_BYTES + TAIL_BYTES, SLAB_BYTES).expect("a sane size")
    }

    pub(crate) fn reserve(
        slabs: u32,
        _limit_slabs: u32,
        _wanted: PagesWanted,
        _column_bytes: usize,
    ) -> Result<Arena, MemoryError> {
        let layout = Arena::layout(slabs);
        // SAFETY: the layout has a size other than zero.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        Ok(Arena { base, slabs })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn kind(&self) -> PageKind {
        PageKind::Small
    }

    pub(crate) fn map_slab(&self, slab: SlabId) -> io::Result<()> {
        assert!(slab.0 < self.slabs);
        Ok(())
    }

    pub(crate) fn populate(&self, _slab: SlabId) {}

    /// Zeroes the slab, as giving it back to a kernel would. The caller holds all of its columns.
    pub(crate) fn give_back(&self, slab: SlabId) -> io::Result<()> {
        // SAFETY: the slab lies in the allocation and holds nothing that anybody may still read.
        unsafe { self.base.add(slab.0 as usize * SLAB_BYTES).write_bytes(0, SLAB_BYTES) };
        Ok(())
    }

    pub(crate) fn spare_bytes(&self) -> u64 {
        0
    }

    pub(crate) fn description(&self) -> String {
        "an ordinary allocation".to_string()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `reserve` with this layout; whoever holds a pointer into it keeps the arena alive.
        unsafe { dealloc(self.base, Arena::layout(self.slabs)) };
    }
}
