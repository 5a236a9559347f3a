//! The table of columns for Miri and loom, which know no system calls: on the heap.

use crate::column::Column;
use crate::kept::KeptFile;
use crate::memory_options::MemoryError;
use std::ops::Deref;

/// As the table of `column_table.rs`.
pub(crate) struct ColumnTable(Box<[Column]>);

impl ColumnTable {
    /// A table of `length` columns. All of them are Absent.
    pub(crate) fn new(length: usize) -> Result<ColumnTable, MemoryError> {
        // SAFETY: a column consists of atomic integers only, for which zero is a value. State 0 is Absent.
        Ok(ColumnTable(unsafe { Box::<[Column]>::new_zeroed_slice(length).assume_init() }))
    }

    pub(crate) fn on_file(kept: &KeptFile, _length: usize) -> Result<ColumnTable, MemoryError> {
        match *kept {}
    }
}

impl Deref for ColumnTable {
    type Target = [Column];

    fn deref(&self) -> &[Column] {
        &self.0
    }
}
