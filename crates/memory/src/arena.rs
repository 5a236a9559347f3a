//! The arena: one reservation of address space, made usable a slab at a time.
//!
//! ```text
//!  base, aligned to 2 MiB
//!  | explicit huge pages (if any) | read-write, mapped | read-only: a zero page | read-only tail |
//!  0                              huge_slabs ...       ... slabs                 + TAIL_BYTES
//! ```
//!
//! The whole reservation can be read at any time; a slab that is not mapped reads as zeros and costs nothing.
//! The tail exists so that a fixed-size read that begins in the last column stays inside.

use crate::coloured::{AssembleError, Colouring};
use crate::column::SlabId;
use crate::machine;
use crate::options::{MemoryError, PAGE_BYTES, PageKind, PagesWanted, SLAB_BYTES};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

const TAIL_BYTES: usize = 64 << 10;

/// The reservation and how its slabs are made usable.
pub(crate) struct Arena {
    base: *mut u8,
    slabs: u32,
    /// The mapping as the kernel gave it, before alignment.
    mapping: *mut c_void,
    mapping_bytes: usize,
    kind: PageKind,
    /// The first so many slabs are explicit huge pages.
    huge_slabs: u32,
    colouring: Option<Mutex<Colouring>>,
    /// Slabs that should have been coloured and are not.
    uncoloured_slabs: AtomicU32,
    /// Why the wish could not be granted, if it could not.
    note: Option<&'static str>,
}

// SAFETY: the arena owns its mapping, and `base` is only handed out as a pointer whose users prove their own
// accesses; its methods are system calls, which are safe from any thread.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves `slabs` slabs, of which the first `limit_slabs` will be used first.
    pub(crate) fn reserve(
        slabs: u32,
        limit_slabs: u32,
        wanted: PagesWanted,
        column_bytes: usize,
    ) -> Result<Arena, MemoryError> {
        let bytes = slabs as usize * SLAB_BYTES;
        let mapping_bytes = bytes + SLAB_BYTES + TAIL_BYTES;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nobody's memory.
        let mapping = unsafe { mmap_anonymous(null_mut(), mapping_bytes, ProtFlags::READ, flags) }
            .map_err(|error| MemoryError::Reserve { bytes: mapping_bytes as u64, error: error.into() })?;
        let base = mapping.cast::<u8>().wrapping_add(mapping.align_offset(SLAB_BYTES));
        let mut arena = Arena {
            base,
            slabs,
            mapping,
            mapping_bytes,
            kind: PageKind::Small,
            huge_slabs: 0,
            colouring: None,
            uncoloured_slabs: AtomicU32::new(0),
            note: None,
        };
        arena.choose_pages(limit_slabs, wanted, column_bytes)?;
        Ok(arena)
    }

    fn choose_pages(
        &mut self,
        limit_slabs: u32,
        wanted: PagesWanted,
        column_bytes: usize,
    ) -> Result<(), MemoryError> {
        if matches!(wanted, PagesWanted::Auto | PagesWanted::Huge) {
            let free = machine::free_huge_pages();
            let slabs = u32::try_from(free).unwrap_or(u32::MAX).min(limit_slabs);
            let enough = wanted == PagesWanted::Auto || slabs == limit_slabs;
            if slabs > 0 && enough && self.map_explicit_huge(slabs) {
                self.huge_slabs = slabs;
                self.kind = PageKind::ExplicitHuge;
            } else if wanted == PagesWanted::Huge {
                return Err(MemoryError::HugePagesAbsent { wanted: limit_slabs.into(), free });
            }
        }
        let transparent = machine::transparent_huge_pages();
        if wanted == PagesWanted::Transparent && !transparent {
            return Err(MemoryError::TransparentAbsent);
        }
        if wanted == PagesWanted::Coloured {
            match Colouring::open(column_bytes / PAGE_BYTES) {
                Ok(colouring) => {
                    self.kind = PageKind::Coloured { colours: (column_bytes / PAGE_BYTES) as u32 };
                    self.colouring = Some(Mutex::new(colouring));
                }
                Err(note) => self.note = Some(note),
            }
        }
        let small = matches!(wanted, PagesWanted::Small | PagesWanted::Coloured) || !transparent;
        if !small && self.huge_slabs == 0 {
            self.kind = PageKind::Transparent;
        }
        if wanted == PagesWanted::Auto && small && self.huge_slabs == 0 {
            self.note = Some("no huge pages are in reserve and the kernel gives no transparent ones");
        }
        let advice = if small { Advice::LinuxNoHugepage } else { Advice::LinuxHugepage };
        let rest = self.slab(SlabId(self.huge_slabs));
        let rest_bytes = (self.slabs - self.huge_slabs) as usize * SLAB_BYTES;
        if rest_bytes > 0 {
            // SAFETY: the range is part of our own mapping; the advice changes no bytes. Its refusal (a kernel
            // without transparent pages) leaves small ones, which is what such a kernel has.
            let _ = unsafe { madvise(rest.cast(), rest_bytes, advice) };
        }
        Ok(())
    }

    /// Replaces the first `slabs` slabs by explicit huge pages; `false` leaves them as they were.
    fn map_explicit_huge(&self, slabs: u32) -> bool {
        let bytes = slabs as usize * SLAB_BYTES;
        // Without NORESERVE the kernel sets the pages aside now, so that touching them later cannot fail.
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range lies in our own mapping, and nothing was placed in it yet.
        let mapped = unsafe { mmap_anonymous(self.base.cast(), bytes, both, flags) }.is_ok();
        if !mapped {
            self.remap_fresh(SlabId(0), bytes, ProtFlags::READ).expect("the range was mapped a moment ago");
        }
        mapped
    }

    /// Replaces a range that nobody uses by fresh small pages.
    fn remap_fresh(&self, first: SlabId, bytes: usize, prot: ProtFlags) -> io::Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the range lies in our own mapping, and the caller holds all of its columns.
        unsafe { mmap_anonymous(self.slab(first).cast(), bytes, prot, flags) }?;
        Ok(())
    }

    fn slab(&self, slab: SlabId) -> *mut u8 {
        self.base.wrapping_add(slab.0 as usize * SLAB_BYTES)
    }

    /// The arena's first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn kind(&self) -> PageKind {
        self.kind
    }

    /// Makes a slab writable. Its bytes are whatever they are.
    pub(crate) fn map_slab(&self, slab: SlabId) -> io::Result<()> {
        assert!(slab.0 < self.slabs);
        if slab.0 >= self.huge_slabs && !self.map_coloured(slab)? {
            // SAFETY: the slab is our own mapping; more rights harm nobody.
            unsafe {
                mprotect(self.slab(slab).cast(), SLAB_BYTES, MprotectFlags::READ | MprotectFlags::WRITE)
            }?;
        }
        Ok(())
    }

    /// Assembles the slab from coloured pages, where wanted and possible.
    fn map_coloured(&self, slab: SlabId) -> io::Result<bool> {
        let Some(colouring) = &self.colouring else { return Ok(false) };
        let mut colouring = colouring.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // SAFETY: the slab is ours and unmapped as far as the pool is concerned: no column of it is in use.
        match unsafe { colouring.assemble(self.slab(slab)) } {
            Ok(()) => return Ok(true),
            Err(AssembleError::MappingsSpent) => {}
            Err(AssembleError::Kernel(error)) => {
                tracing::warn!(%error, "coloured pages could not be arranged; this slab has plain ones");
                self.remap_fresh(slab, SLAB_BYTES, ProtFlags::READ)?;
            }
        }
        self.uncoloured_slabs.fetch_add(1, Ordering::Relaxed);
        Ok(false)
    }

    /// Touches every page of a slab, so that later writers do not wait for the kernel to zero it.
    pub(crate) fn populate(&self, slab: SlabId) {
        // SAFETY: the slab is mapped, and populating writes no bytes. A kernel older than the advice refuses;
        // then the pages come at first touch, which is only slower.
        let _ = unsafe { madvise(self.slab(slab).cast(), SLAB_BYTES, Advice::LinuxPopulateWrite) };
    }

    /// Gives the slab's memory back to the kernel. The caller holds all of its columns.
    pub(crate) fn give_back(&self, slab: SlabId) -> io::Result<()> {
        if self.colouring.is_some() {
            // A fresh mapping also joins its neighbours, where the coloured one was many small mappings.
            return self.remap_fresh(slab, SLAB_BYTES, ProtFlags::READ);
        }
        // SAFETY: the range lies in our own mapping and holds nothing that anybody may still read.
        unsafe { madvise(self.slab(slab).cast(), SLAB_BYTES, Advice::LinuxDontNeed) }?;
        Ok(())
    }

    /// Bytes held beside the slabs: coloured pages waiting for their place.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.colouring.as_ref().map_or(0, |colouring| {
            let colouring = colouring.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            colouring.spare_bytes()
        })
    }

    /// One sentence for people.
    pub(crate) fn description(&self) -> String {
        let note = self.note.map(|note| format!(" ({note})")).unwrap_or_default();
        match self.kind {
            PageKind::ExplicitHuge if self.huge_slabs < self.slabs => format!(
                "explicit huge pages of 2 MiB for the first {} slabs, other pages beyond{note}",
                self.huge_slabs
            ),
            PageKind::ExplicitHuge => format!("explicit huge pages of 2 MiB{note}"),
            PageKind::Transparent => format!("transparent huge pages, as the kernel has them{note}"),
            PageKind::Small => format!("small pages of 4 KiB{note}"),
            PageKind::Coloured { colours } => {
                let misplaced = self.colouring.as_ref().map_or(0, |colouring| {
                    colouring.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).misplaced()
                });
                let plain = self.uncoloured_slabs.load(Ordering::Relaxed);
                let why = if plain > 0 { "; raise vm.max_map_count for more" } else { "" };
                format!(
                    "pages of 4 KiB in {colours} cache colours, {misplaced} of the wrong colour, {plain} slabs uncoloured{why}"
                )
            }
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: every pointer into the arena is held by something that keeps the arena alive.
        let unmapped = unsafe { munmap(self.mapping, self.mapping_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
