//! The arena: one reservation of address space that becomes usable slab by slab.
//!
//! ```text
//!  base, aligned to 2 MiB
//!  | explicit huge pages (if any) | read-write, mapped | read-only: a zero page | read-only tail |
//!  0                              huge_slabs ...       ... slabs                 + TAIL_BYTES
//! ```
//!
//! The whole reservation can be read at any time. A slab that is not mapped reads as zeros and takes no memory. The
//! tail keeps a read of fixed size inside the reservation if it begins near the end of the last column. Where the
//! memory is kept in a file, a slab that becomes usable is a slab of the file.

use crate::coloured::{AssembleError, Colouring};
use crate::column::SlabId;
use crate::kept::KeptFile;
use crate::machine;
use crate::memory_options::{MemoryError, PAGE_BYTES, PageKind, PagesWanted, SLAB_BYTES};
use crate::pool::SlabPages;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const TAIL_BYTES: usize = 64 << 10;
/// The kernel's numbers of nodes are below this.
const NODES_MAX: usize = 1024;

/// The reservation, and how its slabs become usable.
pub(crate) struct Arena {
    base: *mut u8,
    slabs: u32,
    /// The mapping as the kernel returned it, before alignment.
    mapping: *mut c_void,
    mapping_bytes: usize,
    kind: PageKind,
    /// The slabs before this number are explicit huge pages, or were.
    huge_slabs: u32,
    /// Which of these slabs were given back.
    huge_given_back: Box<[AtomicBool]>,
    /// The kernel gives transparent huge pages to the slabs behind.
    transparent: bool,
    colouring: Option<Mutex<Colouring>>,
    /// Slabs that were to be coloured and are not.
    uncoloured_slabs: AtomicU32,
    /// Why the wanted pages could not be had, if they could not.
    note: Option<&'static str>,
    /// The file that the slabs are in.
    kept: Option<Arc<KeptFile>>,
}

// SAFETY: the arena owns its mapping. It hands `base` out as a pointer only, and the users of the pointer prove
// their own accesses. Its methods are system calls, which are safe from any thread.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves `slabs` slabs. The first `limit_slabs` of them will be used first. With a file, its slabs are used, and
    /// it decides about the pages.
    pub(crate) fn reserve(
        slabs: u32,
        limit_slabs: u32,
        wanted: PagesWanted,
        column_bytes: usize,
        kept: Option<Arc<KeptFile>>,
    ) -> Result<Arena, MemoryError> {
        let bytes = slabs as usize * SLAB_BYTES;
        let mapping_bytes = bytes + SLAB_BYTES + TAIL_BYTES;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
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
            huge_given_back: Box::default(),
            transparent: false,
            colouring: None,
            uncoloured_slabs: AtomicU32::new(0),
            note: None,
            kept,
        };
        match &arena.kept {
            None => arena.choose_pages(limit_slabs, wanted, column_bytes)?,
            Some(kept) if kept.is_huge() => arena.kind = PageKind::ExplicitHuge,
            Some(_) => {}
        }
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
            if slabs > 0 && enough && self.map_explicit_huge(SlabId(0), slabs) {
                self.huge_slabs = slabs;
                self.huge_given_back = (0..slabs).map(|_| AtomicBool::new(false)).collect();
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
        self.transparent = !small;
        let rest = self.slab(SlabId(self.huge_slabs));
        let rest_bytes = (self.slabs - self.huge_slabs) as usize * SLAB_BYTES;
        if rest_bytes > 0 {
            // SAFETY: the range is part of our own mapping, and the advice changes no bytes. A kernel without
            // transparent pages refuses the advice and provides small pages, which is all it has.
            let _ = unsafe { madvise(rest.cast(), rest_bytes, Advice::LinuxNoHugepage) };
        }
        Ok(())
    }

    /// Replaces `slabs` slabs, which are not in use, by explicit huge pages. If the result is `false`, they are fresh
    /// small pages.
    fn map_explicit_huge(&self, first: SlabId, slabs: u32) -> bool {
        let bytes = slabs as usize * SLAB_BYTES;
        // Without NORESERVE the kernel reserves the pages now, so that a later access to them cannot fail.
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range lies in our own mapping, and the pool regards it as unmapped: nothing of it is in use.
        let mapped = unsafe { mmap_anonymous(self.slab(first).cast(), bytes, both, flags) }.is_ok();
        if !mapped {
            self.remap_fresh(first, bytes, ProtFlags::READ).expect("the range was mapped a moment ago");
        }
        mapped
    }

    /// Whether a slab has an explicit huge page of its own.
    fn is_explicit_huge(&self, slab: SlabId) -> bool {
        let given_back = self.huge_given_back.get(slab.0 as usize);
        given_back.is_some_and(|given_back| !given_back.load(Ordering::Relaxed))
    }

    /// Asks for an explicit huge page for a slab whose page was given back. Another process may have it by now.
    fn take_huge_again(&self, slab: SlabId) -> bool {
        let Some(given_back) = self.huge_given_back.get(slab.0 as usize) else { return false };
        let is_there = self.map_explicit_huge(slab, 1);
        given_back.store(!is_there, Ordering::Relaxed);
        is_there
    }

    /// Replaces a range that is not in use by fresh small pages.
    fn remap_fresh(&self, first: SlabId, bytes: usize, prot: ProtFlags) -> io::Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the range lies in our own mapping, and the caller holds all of its columns.
        unsafe { mmap_anonymous(self.slab(first).cast(), bytes, prot, flags) }?;
        Ok(())
    }

    fn slab(&self, slab: SlabId) -> *mut u8 {
        self.base.wrapping_add(slab.0 as usize * SLAB_BYTES)
    }

    /// The first byte of the arena.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn kind(&self) -> PageKind {
        self.kind
    }

    /// Says that the pages of a slab are to be those of a node, by the kernel's number. Where the node has no free
    /// pages, the kernel gives others. Pages that are there stay.
    pub(crate) fn bind(&self, slab: SlabId, node: usize) -> io::Result<()> {
        let mut mask = [0u64; NODES_MAX / 64];
        let word = mask.get_mut(node / 64).ok_or(io::ErrorKind::InvalidInput)?;
        *word = 1 << (node % 64);
        // The kernel reads one bit less than it is told.
        let bits = NODES_MAX + 1;
        // SAFETY: the slab is part of our own mapping, and the call changes no byte of it. The kernel reads the mask,
        // which has the bits that it is told of, during the call only.
        let refused = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.slab(slab),
                SLAB_BYTES,
                libc::MPOL_PREFERRED as libc::c_ulong,
                mask.as_ptr(),
                bits,
                0 as libc::c_ulong,
            )
        };
        if refused == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes a slab writable. Its bytes are not cleared. `wants_huge`: its first touch should bring a huge page, where
    /// the machine has transparent ones.
    pub(crate) fn map_slab(&self, slab: SlabId, wants_huge: bool) -> io::Result<SlabPages> {
        assert!(slab.0 < self.slabs);
        if self.kept.is_some() {
            return self.map_slab_of_file(slab, false);
        }
        if self.is_explicit_huge(slab) || self.take_huge_again(slab) || self.map_coloured(slab)? {
            return Ok(SlabPages::Whole);
        }
        let is_huge = self.transparent && wants_huge;
        let advice = if is_huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: the slab is our own mapping. More access rights affect no other memory, and the advice changes no
        // bytes. A kernel without huge pages refuses it and provides small pages, which is all it has.
        unsafe {
            mprotect(self.slab(slab).cast(), SLAB_BYTES, MprotectFlags::READ | MprotectFlags::WRITE)?;
            let _ = madvise(self.slab(slab).cast(), SLAB_BYTES, advice);
        }
        let small = SlabPages::Small { may_collapse: self.transparent };
        Ok(if is_huge { SlabPages::Whole } else { small })
    }

    /// Makes a slab of the file readable and writable. `is_there`: it has its memory already.
    pub(crate) fn map_slab_of_file(&self, slab: SlabId, is_there: bool) -> io::Result<SlabPages> {
        if let Some(kept) = &self.kept {
            if !is_there {
                kept.take_slab(slab)?;
            }
            // SAFETY: the slab is part of our own mapping, and the pool regards it as unmapped: nothing of it is in
            // use.
            unsafe { kept.map_slab(slab, self.slab(slab)) }?;
            // SAFETY: as above, and the advice changes no bytes. A file system without huge pages refuses it.
            let _ = unsafe { madvise(self.slab(slab).cast(), SLAB_BYTES, Advice::LinuxHugepage) };
        }
        Ok(SlabPages::Whole)
    }

    /// Assembles the slab from coloured pages, if these are wanted and possible.
    fn map_coloured(&self, slab: SlabId) -> io::Result<bool> {
        let Some(colouring) = &self.colouring else { return Ok(false) };
        let mut colouring = colouring.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // SAFETY: the slab is ours, and the pool regards it as unmapped: no column of it is in use.
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

    /// Touches every page of a range, so that later writers do not wait for the kernel to zero it.
    pub(crate) fn populate(&self, offset: u64, bytes: usize) {
        // SAFETY: the range is part of a mapped slab, and populating writes no bytes. A kernel older than the advice
        // refuses it; the pages then come at the first access, which is only slower.
        let _ = unsafe { madvise(self.at(offset).cast(), bytes, Advice::LinuxPopulateWrite) };
    }

    /// Puts a huge page in the place of the small ones of a slab, if the kernel has one. A kernel that cannot do it at
    /// once (before 6.1) may do it later.
    pub(crate) fn collapse(&self, slab: SlabId) {
        // SAFETY: the slab is ours, and neither advice changes a byte of it.
        unsafe {
            let _ = madvise(self.slab(slab).cast(), SLAB_BYTES, Advice::LinuxHugepage);
            libc::madvise(self.slab(slab).cast(), SLAB_BYTES, libc::MADV_COLLAPSE);
        }
    }

    /// Gives the small pages of a free column back to the kernel.
    pub(crate) fn give_column_back(&self, offset: u64, bytes: usize) {
        // SAFETY: the column is free, so nothing reads or writes it. Its bytes have no meaning.
        let _ = unsafe { madvise(self.at(offset).cast(), bytes, Advice::LinuxDontNeed) };
    }

    fn at(&self, offset: u64) -> *mut u8 {
        self.base.wrapping_add(offset as usize)
    }

    /// Gives the memory of the slab back to the kernel. The caller holds all of its columns.
    pub(crate) fn give_back(&self, slab: SlabId) -> io::Result<()> {
        if let Some(kept) = &self.kept {
            kept.give_slab_back(slab)?;
            return self.remap_fresh(slab, SLAB_BYTES, ProtFlags::READ);
        }
        if self.is_explicit_huge(slab) {
            // With its mapping the reservation goes. A huge page that is not reserved could be gone at the next access,
            // and the process with it.
            self.remap_fresh(slab, SLAB_BYTES, ProtFlags::READ)?;
            self.huge_given_back[slab.0 as usize].store(true, Ordering::Relaxed);
            return Ok(());
        }
        if self.colouring.is_some() {
            // A fresh mapping also merges with its neighbours, whereas the coloured slab was many small mappings.
            return self.remap_fresh(slab, SLAB_BYTES, ProtFlags::READ);
        }
        // SAFETY: the range lies in our own mapping, and no thread may still read what it holds.
        unsafe { madvise(self.slab(slab).cast(), SLAB_BYTES, Advice::LinuxDontNeed) }?;
        Ok(())
    }

    /// Bytes of coloured pages that are not part of a slab yet.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.colouring.as_ref().map_or(0, |colouring| {
            let colouring = colouring.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            colouring.spare_bytes()
        })
    }

    /// A sentence for people that describes the pages.
    pub(crate) fn description(&self) -> String {
        if let Some(kept) = &self.kept {
            return kept.description();
        }
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
                    "pages of 4 KiB in {colours} cache colours, {misplaced} of the wrong colour, \
                     {plain} slabs uncoloured{why}"
                )
            }
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: every pointer into the arena is held by a value that keeps the arena alive.
        let unmapped = unsafe { munmap(self.mapping, self.mapping_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
