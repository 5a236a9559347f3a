//! The arena without a kernel, for Miri and loom: one zeroed allocation with the same methods.

use crate::column::SlabId;
use crate::kept::KeptFile;
use crate::memory_options::{MemoryError, PageKind, PagesWanted, SLAB_BYTES};
use crate::pool::SlabPages;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::sync::Arc;

const TAIL_BYTES: usize = 64 << 10;

/// The allocation that stands for the reservation.
pub(crate) struct Arena {
    base: *mut u8,
    slabs: u32,
}

// SAFETY: the arena owns its allocation. It hands `base` out as a pointer only, and the users of the pointer prove
// their own accesses.
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
        _kept: Option<Arc<KeptFile>>,
    ) -> Result<Arena, MemoryError> {
        let layout = Arena::layout(slabs);
        // SAFETY: the size of the layout is not zero.
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

    /// There is one node here.
    pub(crate) fn bind(&self, _slab: SlabId, _node: usize) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn map_slab(&self, slab: SlabId, wants_huge: bool) -> io::Result<SlabPages> {
        assert!(slab.0 < self.slabs);
        Ok(if wants_huge { SlabPages::Whole } else { SlabPages::Small { may_collapse: true } })
    }

    pub(crate) fn populate(&self, _offset: u64, _bytes: usize) {}

    pub(crate) fn collapse(&self, _slab: SlabId) {}

    /// Zeroes the column, which has the effect of giving it back to a kernel. The column is free.
    pub(crate) fn give_column_back(&self, offset: u64, bytes: usize) {
        // SAFETY: the column lies in the allocation, and no thread reads or writes it.
        unsafe { self.base.add(offset as usize).write_bytes(0, bytes) };
    }

    /// Zeroes the slab, which has the effect of giving it back to a kernel. The caller holds all of its columns.
    pub(crate) fn give_back(&self, slab: SlabId) -> io::Result<()> {
        // SAFETY: the slab lies in the allocation, and no thread may still read what it holds.
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
        // SAFETY: allocated in `reserve` with this layout. Every holder of a pointer into the arena keeps the arena
        // alive.
        unsafe { dealloc(self.base, Arena::layout(self.slabs)) };
    }
}
