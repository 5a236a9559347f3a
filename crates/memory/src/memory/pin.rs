//! Pins: columns that are not reused while a transfer needs them.

use super::Memory;
use super::chunk::NO_NEXT;
use crate::column::ColumnId;
use larder_item::Location;
use std::ptr::copy_nonoverlapping;
use std::sync::atomic::Ordering;

impl Memory {
    #[inline]
    fn pin(&self, id: ColumnId) {
        if self.column(id).pin() {
            self.inner.pinned_columns.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[inline]
    fn unpin(&self, id: ColumnId) {
        if self.column(id).unpin() {
            self.inner.pinned_columns.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A chunk to be filled, which no reader knows yet. It pins its column: the column is neither walked nor reused
/// while the space exists. Nothing is written to the chunk once the owner of its chain is published.
pub struct ChunkSpace {
    memory: Memory,
    at: Location,
    next_field: *mut u8,
    bytes: *mut u8,
    length: u16,
}

// SAFETY: the bytes of the chunk belong to the holder of the space alone.
unsafe impl Send for ChunkSpace {}

impl ChunkSpace {
    /// Pins the column of the chunk at `at`, which `OpenColumn::place_chunk` has claimed.
    pub(super) fn new(
        memory: Memory,
        at: Location,
        next_field: *mut u8,
        bytes: *mut u8,
        length: u16,
    ) -> ChunkSpace {
        memory.pin(memory.column_of(at));
        ChunkSpace { memory, at, next_field, bytes, length }
    }

    /// The location of the chunk's record.
    pub fn location(&self) -> Location {
        self.at
    }

    /// Length of the chunk, in bytes.
    pub fn length(&self) -> u16 {
        self.length
    }

    /// Writes part of the chunk.
    ///
    /// # Panics
    /// If the part extends beyond the chunk.
    pub fn write(&mut self, offset: usize, part: &[u8]) {
        let length = usize::from(self.length);
        assert!(offset <= length && part.len() <= length - offset, "a chunk is overrun");
        // SAFETY: `place_chunk` claimed `length` bytes here for this space, the part lies inside them, and the pin
        // keeps them from being reused.
        unsafe { put(self.bytes.add(offset), part) };
    }

    /// Links the chunk to the next one.
    pub fn set_next(&mut self, next: Option<Location>) {
        let bits = next.map_or(NO_NEXT, Location::bits);
        // SAFETY: the field is in the record that `place_chunk` claimed. No thread reads it while the space exists,
        // because walks skip pinned columns and no entry leads here yet.
        unsafe { put(self.next_field, &bits.to_ne_bytes()) };
    }

    /// Ends the writing but keeps the column pinned, so that the keeper does not touch the chunk until its owner is
    /// published.
    pub fn into_pin(self) -> ColumnPin {
        let column = self.memory.column_of(self.at);
        ColumnPin::new(self.memory.clone(), column)
    }
}

impl Drop for ChunkSpace {
    fn drop(&mut self) {
        self.memory.unpin(self.memory.column_of(self.at));
    }
}

/// Keeps a column from being reused, even if it is retired, until the pin is dropped. A pin is taken while
/// something else still keeps the column: a guard that found a record in it, or another pin.
pub struct ColumnPin {
    memory: Memory,
    column: ColumnId,
}

impl ColumnPin {
    pub(super) fn new(memory: Memory, column: ColumnId) -> ColumnPin {
        memory.pin(column);
        ColumnPin { memory, column }
    }

    /// The pinned column.
    pub fn column(&self) -> ColumnId {
        self.column
    }
}

impl Drop for ColumnPin {
    fn drop(&mut self) {
        self.memory.unpin(self.column);
    }
}

/// Copies `bytes` to `to` and returns the address behind them.
///
/// # Safety
/// `bytes.len()` bytes at `to` are the caller's alone to write.
#[inline(always)]
pub(super) unsafe fn put(to: *mut u8, bytes: &[u8]) -> *mut u8 {
    // SAFETY: by the caller's promise. `bytes` cannot overlap memory that only the caller may see.
    unsafe {
        copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        to.add(bytes.len())
    }
}
