//! Guards: reading items, chunks and whole columns while nothing of them can be overwritten.

use super::chunk::Chunk;
use super::item::Item;
use super::pin::ColumnPin;
use super::{Inner, Memory};
use crate::column::{ColumnId, ColumnState};
use crate::prefetch::prefetch_read;
use larder_item::{HEADER_BYTES, KeyHash, Location, UNIT_BYTES};

impl Memory {
    /// Walks the key rows of a sealed column: every record ever placed in it, dead or alive, in order of placing.
    /// Empty if the column is not sealed, or somebody pins it (a chunk of it may still be written).
    pub fn records<'g>(&self, guard: &Guard<'g>, id: ColumnId) -> Records<'g> {
        guard.records(id)
    }
}

/// The reading of one batch, or part of it. Free to make, free to copy.
///
/// **The rule of locations.** A location given to a guard was read from the index (or from a record found there)
/// while the guard's reader was online, with no quiescent point since; or it was placed by the caller in a column
/// that is not retired. Such a location stays good for as long as the guard lives, even if the item is replaced or
/// moved meanwhile. The rule is the caller's to keep, because a location is a plain number. If it is broken the
/// guard still reads inside the arena, and inside one column: a record that is none gives wrong bytes, or bytes that
/// change, but never a fault.
#[derive(Clone, Copy)]
pub struct Guard<'g> {
    base: *const u8,
    arena_bytes: u64,
    column_mask: u32,
    inner: &'g Inner,
    memory: &'g Memory,
}

impl<'g> Guard<'g> {
    /// For a reader that is online for as long as `memory` is borrowed.
    #[inline]
    pub(super) fn new(memory: &'g Memory) -> Guard<'g> {
        let inner = &*memory.inner;
        Guard {
            base: inner.arena.base(),
            arena_bytes: inner.arena_bytes,
            column_mask: inner.geometry.column_bytes - 1,
            inner,
            memory,
        }
    }

    /// The memory that is read.
    #[inline]
    pub fn memory(&self) -> &'g Memory {
        self.memory
    }

    /// The record at `at`; see the rule of locations above.
    ///
    /// # Panics
    /// If `at` is on flash, beyond the arena, or so near a column's end that no record can begin there.
    #[inline]
    pub fn item(&self, at: Location) -> Item<'g> {
        let offset = at.offset();
        let in_column = offset as u32 & self.column_mask;
        let inside = offset < self.arena_bytes && in_column <= self.column_mask + 1 - HEADER_BYTES as u32;
        if !inside {
            no_record(at);
        }
        debug_assert!(self.may_be_read(at), "{at:?} breaks the rule of locations");
        // SAFETY: inside the arena and the column by the comparison; locations count units of 4 bytes. The bytes
        // were written before the location was published. They are written again only when the column is free
        // again, that is, after this guard's reader announced a quiescent point, which it cannot do during 'g.
        // (This last fact rests on the rule of locations.)
        unsafe { Item::new(self.base.add(offset as usize), in_column, self.column_mask + 1, self.inner) }
    }

    /// Whether the location's column holds records at all.
    fn may_be_read(&self, at: Location) -> bool {
        let state = self.memory.column(self.memory.column_of(at)).state();
        !matches!(state, ColumnState::Absent | ColumnState::Free)
    }

    /// The chunk at `at`; see the rule of locations above. If the record is no chunk the answer is an empty one of
    /// chain 0.
    ///
    /// # Panics
    /// As [`Guard::item`].
    #[inline]
    pub fn chunk(&self, at: Location) -> Chunk<'g> {
        let nothing = Chunk { bytes: &[], next: None, chain: 0, owner: KeyHash(0) };
        Chunk::of(&self.item(at)).unwrap_or(nothing)
    }

    /// Asks for the first two lines of a record. Harmless for any location.
    #[inline]
    pub fn prefetch(&self, at: Location) {
        let record = self.base.wrapping_add(at.offset() as usize);
        prefetch_read(record);
        prefetch_read(record.wrapping_add(64));
    }

    /// Asks for the value of a record whose first lines are there already; see the rule of locations above.
    ///
    /// # Panics
    /// As [`Guard::item`].
    #[inline(always)]
    pub fn prefetch_value(&self, at: Location) {
        self.item(at).prefetch_value();
    }

    /// Walks the key rows of a sealed column: every record ever placed in it, dead or alive, in order of placing.
    /// Empty if the column is not sealed, or somebody pins it (a chunk of it may still be written).
    pub fn records(&self, id: ColumnId) -> Records<'g> {
        let column = self.memory.column(id);
        // In this order: no new chunk is begun in a sealed column, so a pin seen gone stays gone for chunks. If the
        // state is Sealed now, then a later retirement waits for this guard's reader.
        let walkable = column.state() == ColumnState::Sealed && !column.is_pinned();
        let start = u64::from(id.0) << self.inner.column_shift;
        let length = if walkable { column.keys_end() } else { 0 };
        Records::new(*self, start, start + u64::from(length), !walkable)
    }

    /// Keeps the column of `at` from being reused beyond the guard's life, for bytes that are still being sent.
    /// The location obeys the rule of locations.
    pub fn keep(&self, at: Location) -> ColumnPin {
        ColumnPin::new(self.memory.clone(), self.memory.column_of(at))
    }
}

#[cold]
#[inline(never)]
fn no_record(at: Location) -> ! {
    panic!("{at:?} can be no record's location (a record begins on a multiple of {UNIT_BYTES} in a column)")
}

/// What stands in the key rows.
#[derive(Clone, Copy, Debug)]
pub enum Record<'g> {
    /// An item, dead or alive.
    Item(Item<'g>),
    /// A piece of a large value, dead or alive.
    Chunk(Chunk<'g>),
}

/// Every record of a column, in order of placing.
pub struct Records<'g> {
    guard: Guard<'g>,
    at: u64,
    end: u64,
    refused: bool,
}

impl<'g> Records<'g> {
    /// Whether the walk was refused because the column was not sealed, or pinned, when it began: then it is empty, and
    /// says nothing of what the column holds.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// From `at` to `end`, in bytes from the start of the arena, both on records' borders of one sealed column.
    pub(crate) fn new(guard: Guard<'g>, at: u64, end: u64, refused: bool) -> Records<'g> {
        Records { guard, at, end, refused }
    }
}

impl<'g> Iterator for Records<'g> {
    type Item = (Location, Record<'g>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at + HEADER_BYTES as u64 > self.end {
            return None;
        }
        let location = Location::from_offset(self.at);
        let item = self.guard.item(location);
        self.at += item.header().record_bytes() as u64;
        Some((location, Chunk::of(&item).map_or(Record::Item(item), Record::Chunk)))
    }
}
