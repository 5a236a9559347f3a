/// Bytes of a page: the smallest read, the smallest write, and the unit that has a checksum.
pub const PAGE_BYTES: usize = 4096;

/// A buffer of whole pages that begins at a multiple of [`PAGE_BYTES`]. Devices that bypass the page cache
/// (`O_DIRECT`) need that alignment.
pub struct PageBuffer {
    /// One page more than is used, so that an aligned range of the wanted length lies in it.
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl PageBuffer {
    /// `pages` pages of zeros.
    pub fn new(pages: usize) -> PageBuffer {
        let memory = vec![0; (pages + 1) * PAGE_BYTES];
        let start = memory.as_ptr().align_offset(PAGE_BYTES);
        assert!(start < PAGE_BYTES, "a byte pointer can be aligned");
        PageBuffer { memory, start, bytes: pages * PAGE_BYTES }
    }

    /// Makes the buffer `pages` pages long, or as long as its memory allows.
    pub fn set_pages(&mut self, pages: usize) {
        self.bytes = pages.min(self.capacity_pages()) * PAGE_BYTES;
    }

    /// The length that the buffer's memory allows, in pages.
    pub fn capacity_pages(&self) -> usize {
        self.memory.len() / PAGE_BYTES - 1
    }

    /// The length of the buffer, in pages.
    pub fn pages(&self) -> usize {
        self.bytes / PAGE_BYTES
    }
}

impl std::ops::Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }
}

impl std::ops::DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

impl std::fmt::Debug for PageBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageBuffer({} pages)", self.pages())
    }
}
