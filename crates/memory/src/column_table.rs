//! The bookkeeping of all columns that there can ever be. Only the part for columns that were used takes memory.
//!
//! The allocator is not asked for it: for types that are aligned to a cache line it fills the whole table with zeros,
//! and a table for address space that is never used would then take memory too.

use crate::column::Column;
use crate::kept::KeptFile;
use crate::memory_options::MemoryError;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ops::Deref;
use std::ptr::null_mut;

/// A slice of columns in zeroed pages of its own.
pub(crate) struct ColumnTable {
    first: *const Column,
    length: usize,
    mapping_bytes: usize,
}

// SAFETY: the table owns its mapping, and columns consist of atomics.
unsafe impl Send for ColumnTable {}
// SAFETY: as above.
unsafe impl Sync for ColumnTable {}

impl ColumnTable {
    /// A table of `length` columns, at least one. All of them are Absent.
    pub(crate) fn new(length: usize) -> Result<ColumnTable, MemoryError> {
        let bytes = length * size_of::<Column>();
        let (both, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let mapping = unsafe { mmap_anonymous(null_mut(), bytes, both, flags) }
            .map_err(|error| MemoryError::Reserve { bytes: bytes as u64, error: error.into() })?;
        Ok(ColumnTable { first: mapping.cast::<Column>(), length, mapping_bytes: bytes })
    }

    /// The table in a file. The columns are as an earlier process left them.
    pub(crate) fn on_file(kept: &KeptFile, length: usize) -> Result<ColumnTable, MemoryError> {
        let (first, mapping_bytes) =
            kept.map_entries().map_err(|error| MemoryError::Reserve { bytes: 0, error })?;
        assert!(
            length * size_of::<Column>() <= mapping_bytes,
            "the file has an entry for each of its columns"
        );
        Ok(ColumnTable { first, length, mapping_bytes })
    }
}

impl Deref for ColumnTable {
    type Target = [Column];

    #[inline]
    fn deref(&self) -> &[Column] {
        // SAFETY: the mapping has room for `length` columns, begins at a page, and lives as long as the table. A column
        // consists of atomic integers only, for which all bits are values. State 0 is Absent.
        unsafe { std::slice::from_raw_parts(self.first, self.length) }
    }
}

impl Drop for ColumnTable {
    fn drop(&mut self) {
        // SAFETY: the mapping is the table's own, and nobody borrows it any more.
        let _ = unsafe { munmap(self.first.cast_mut().cast(), self.mapping_bytes) };
    }
}
