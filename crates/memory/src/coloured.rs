//! Coloured page pools: columns that cover every cache set equally often, without huge pages.
//!
//! The CPU cache chooses a set by the physical address. Inside a huge page the low 21 bits of an address are
//! physical, but pages of 4 KiB can lie anywhere. The *colour* of a page is its frame number modulo the pages of a
//! column. Pages of one colour use the same cache sets and form one row, and one page of every colour, in order,
//! forms a column.
//!
//! The steps: take pages from the kernel, read their frame numbers from `/proc/self/pagemap`, keep the pages in
//! pools by colour, and move them with `mremap` to addresses where their colour is needed. Neighbouring frames
//! usually come together, so whole runs of pages are moved at once. Runs matter because each run is a mapping of
//! its own, and a process may have only `vm.max_map_count` mappings.
//!
//! The kernel may later move a page to another frame, for compaction or NUMA balancing. The column is then spread
//! less evenly over the cache, and nothing else changes.

use crate::machine;
use crate::memory_options::{PAGE_BYTES, SLAB_BYTES};
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap_fixed, munmap};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::{null_mut, with_exposed_provenance_mut};

const PAGES_PER_SLAB: usize = SLAB_BYTES / PAGE_BYTES;
/// How often to ask the kernel for the pages of another slab before accepting a page of the wrong colour. Each
/// round finds a page of a given colour with a probability of nearly 1, so the limit is reached only on an
/// unusually fragmented machine.
const GATHER_ROUNDS_MAX: usize = 16;
/// Number of pages in a pool that are compared when looking for the longest run.
const CANDIDATES: usize = 16;

/// The pools: pages taken from the kernel and not yet used, by colour.
pub(crate) struct Colouring {
    colours: usize,
    pagemap: File,
    /// The address of every page in the pools, with its colour.
    spare: BTreeMap<usize, usize>,
    /// Addresses by colour. An address that `spare` does not confirm is out of date.
    by_colour: Vec<Vec<usize>>,
    mappings_made: usize,
    mappings_max: usize,
    misplaced: u64,
}

/// Why a slab has no coloured pages.
pub(crate) enum AssembleError {
    /// The process would need more mappings than it may have. The slab is untouched.
    MappingsSpent,
    /// The kernel refused a call. The range of the slab may be in any state.
    Kernel(io::Error),
}

impl From<rustix::io::Errno> for AssembleError {
    fn from(error: rustix::io::Errno) -> Self {
        AssembleError::Kernel(error.into())
    }
}

impl Colouring {
    /// Finds out whether the kernel shows physical addresses.
    ///
    /// # Errors
    /// A clause that says why it does not.
    pub(crate) fn open(colours: usize) -> Result<Colouring, &'static str> {
        let hidden = "page colours are unknown: the kernel shows physical addresses to CAP_SYS_ADMIN only";
        let pagemap = File::open("/proc/self/pagemap").map_err(|_| hidden)?;
        let mut colouring = Colouring {
            colours,
            pagemap,
            spare: BTreeMap::new(),
            by_colour: vec![Vec::new(); colours],
            mappings_made: 0,
            // Half of the mappings are for the arena, and a run taken from the middle of a batch also splits the
            // batch.
            mappings_max: machine::mappings_max() / 4,
            misplaced: 0,
        };
        match colouring.gather() {
            Ok(()) if !colouring.spare.is_empty() => Ok(colouring),
            _ => Err(hidden),
        }
    }

    pub(crate) fn misplaced(&self) -> u64 {
        self.misplaced
    }

    pub(crate) fn spare_bytes(&self) -> u64 {
        (self.spare.len() * PAGE_BYTES) as u64
    }

    /// Puts pages of the right colours under the slab at `target`.
    ///
    /// # Safety
    /// `target` is the start of a slab of address space that belongs to the caller and that no thread uses.
    pub(crate) unsafe fn assemble(&mut self, target: *mut u8) -> Result<(), AssembleError> {
        if self.mappings_made + PAGES_PER_SLAB > self.mappings_max {
            return Err(AssembleError::MappingsSpent);
        }
        let wanted = PAGES_PER_SLAB / self.colours;
        let mut rounds = 0;
        while rounds < GATHER_ROUNDS_MAX && self.smallest_pool() < wanted || self.spare.len() < PAGES_PER_SLAB
        {
            self.gather()?;
            rounds += 1;
        }
        let mut position = 0;
        while position < PAGES_PER_SLAB {
            let (from, pages) = self.take_run(position);
            let bytes = pages * PAGE_BYTES;
            let from = with_exposed_provenance_mut(from);
            let to = target.wrapping_add(position * PAGE_BYTES).cast();
            // SAFETY: the run was in the pools, which are ours alone, and the caller gives us the target.
            unsafe { mremap_fixed(from, bytes, bytes, MremapFlags::MAYMOVE, to) }?;
            self.mappings_made += 1;
            position += pages;
        }
        self.trim(wanted);
        Ok(())
    }

    fn smallest_pool(&self) -> usize {
        let mut sizes = vec![0; self.colours];
        for &colour in self.spare.values() {
            sizes[colour] += 1;
        }
        sizes.into_iter().min().unwrap_or(0)
    }

    /// Takes the pages of one slab from the kernel and sorts them into the pools. A page whose frame the kernel
    /// hides is returned at once.
    fn gather(&mut self) -> Result<(), AssembleError> {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let batch = unsafe { mmap_anonymous(null_mut(), SLAB_BYTES, both, MapFlags::PRIVATE) }?;
        // SAFETY: advice about our own new mapping. A kernel without huge pages refuses it and need not be told.
        let _ = unsafe { madvise(batch, SLAB_BYTES, Advice::LinuxNoHugepage) };
        for page in 0..PAGES_PER_SLAB {
            // SAFETY: inside the mapping just made. A page has no frame before it is written.
            unsafe { batch.cast::<u8>().add(page * PAGE_BYTES).write_volatile(0) };
        }
        let start = batch.expose_provenance();
        let mut records = vec![0u8; PAGES_PER_SLAB * 8];
        let read = self.pagemap.read_exact_at(&mut records, (start / PAGE_BYTES * 8) as u64);
        for page in 0..PAGES_PER_SLAB {
            let address = start + page * PAGE_BYTES;
            let record = u64::from_ne_bytes(records[page * 8..][..8].try_into().expect("eight bytes"));
            match frame(record) {
                Some(frame) if read.is_ok() => {
                    let colour = (frame % self.colours as u64) as usize;
                    self.spare.insert(address, colour);
                    self.by_colour[colour].push(address);
                }
                // SAFETY: the page is ours and in no pool.
                _ => unsafe { munmap(with_exposed_provenance_mut(address), PAGE_BYTES) }?,
            }
        }
        read.map_err(AssembleError::Kernel)
    }

    /// Takes the longest run found that begins with the colour of `position` and continues through the colours.
    /// Returns its address and its number of pages.
    fn take_run(&mut self, position: usize) -> (usize, usize) {
        let colour = position % self.colours;
        let spare = &self.spare;
        self.by_colour[colour].retain(|address| spare.get(address) == Some(&colour));
        let run_from = |address: usize| {
            (0..PAGES_PER_SLAB - position)
                .take_while(|n| {
                    spare.get(&(address + n * PAGE_BYTES)) == Some(&((position + n) % self.colours))
                })
                .count()
        };
        let newest = self.by_colour[colour].iter().rev().take(CANDIDATES);
        let best = newest.map(|&address| (address, run_from(address))).max_by_key(|&(_, pages)| pages);
        let (address, pages) = best.unwrap_or_else(|| {
            self.misplaced += 1;
            (*self.spare.keys().next().expect("the pools hold enough pages"), 1)
        });
        for page in 0..pages {
            self.spare.remove(&(address + page * PAGE_BYTES));
        }
        (address, pages)
    }

    /// Keeps at most `wanted` pages of each colour and returns the others to the kernel.
    fn trim(&mut self, wanted: usize) {
        let mut kept = vec![0; self.colours];
        self.spare.retain(|&address, &mut colour| {
            kept[colour] += 1;
            // SAFETY: the page is ours, and leaves the pools with this call.
            kept[colour] <= wanted
                || unsafe { munmap(with_exposed_provenance_mut(address), PAGE_BYTES) }.is_err()
        });
        let spare = &self.spare;
        for (colour, pool) in self.by_colour.iter_mut().enumerate() {
            pool.retain(|address| spare.get(address) == Some(&colour));
        }
    }
}

impl Drop for Colouring {
    fn drop(&mut self) {
        self.trim(0);
    }
}

/// The frame number in a record of `/proc/self/pagemap`, if the page is present and the kernel shows the number.
fn frame(record: u64) -> Option<u64> {
    let present = record >> 63 == 1;
    let frame = record & ((1 << 55) - 1);
    (present && frame != 0).then_some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FreshPages, Memory, MemoryOptions, PageKind, PagesWanted};

    /// Reads the frame of every page back: page number i of each column has colour i.
    #[test]
    fn columns_cover_every_colour_once_and_in_order() {
        let slabs = 4;
        let options = MemoryOptions {
            limit_bytes: (slabs * SLAB_BYTES) as u64,
            column_bytes: Some(128 << 10),
            pages: PagesWanted::Coloured,
            ..MemoryOptions::default()
        };
        let memory = Memory::new(options).unwrap();
        let PageKind::Coloured { colours } = memory.pages() else {
            println!("skipped: {}", memory.pages_description());
            return;
        };
        assert_eq!(colours, 32);
        assert_eq!(memory.touch_ahead(usize::MAX, FreshPages::Huge), slabs * SLAB_BYTES / (128 << 10));
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let (mut right, mut wrong) = (0, 0);
        for page in 0..slabs * PAGES_PER_SLAB {
            let address = memory.base() as usize + page * PAGE_BYTES;
            let mut record = [0; 8];
            pagemap.read_exact_at(&mut record, (address / PAGE_BYTES * 8) as u64).unwrap();
            let frame = frame(u64::from_ne_bytes(record)).expect("the page was touched when it was gathered");
            *(if frame as usize % 32 == page % 32 { &mut right } else { &mut wrong }) += 1;
        }
        println!("{right} pages of the right colour, {wrong} of the wrong: {}", memory.pages_description());
        // The kernel may have moved a page between the assembly and this check.
        assert!(wrong * 50 <= right, "{wrong} of {} pages have the wrong colour", right + wrong);
    }

    #[test]
    fn a_page_whose_frame_is_hidden_has_no_colour() {
        assert_eq!(frame(1 << 63), None);
        assert_eq!(frame(0x77), None);
        assert_eq!(frame(1 << 63 | 0x77), Some(0x77));
    }
}
