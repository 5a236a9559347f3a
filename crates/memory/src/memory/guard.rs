//! Guards: reading items, chunks and whole columns while nothing of them can be overwritten.

use super::chunk::Chunk;
use super::item::{Item, Remains};
use super::pin::ColumnPin;
use super::{Inner, Memory};
use crate::column::{ColumnId, ColumnState};
use crate::prefetch::prefetch_read;
use larder_item::{HEADER_BYTES, KeyHash, Location, UNIT_BYTES};

impl Memory {
    /// Walks the key rows of a sealed column: every record ever placed in it, live or dead, in the order of
    /// placing. The walk is empty if the column is not sealed, or is pinned, because a chunk of a pinned column may
    /// still be written.
    pub fn records<'g>(&self, guard: &Guard<'g>, id: ColumnId) -> Records<'g> {
        guard.records(id)
    }
}

/// The right to read while a batch, or part of one, is processed. A guard costs nothing to make and is free to
/// copy.
///
/// **The rule of locations.** A location passed to a guard must come from one of two sources. Either it was read
/// from the index, or from a record found there, while the guard's reader was online and with no quiescent point
/// since; or the caller placed it in a column that is not retired. Such a location stays valid for as long as the
/// guard lives, even if the item is replaced or moved meanwhile. The caller must keep the rule, because a location
/// is a plain number. If the rule is broken, the guard still reads inside the arena and inside one column. It may
/// then return wrong bytes, or bytes that change, but it never faults.
#[derive(Clone, Copy)]
pub struct Guard<'g> {
    base: *const u8,
    arena_bytes: u64,
    column_mask: u32,
    inner: &'g Inner,
    memory: &'g Memory,
}

impl<'g> Guard<'g> {
    /// A guard for a reader that stays online for as long as `memory` is borrowed.
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

    /// The memory that the guard reads.
    #[inline]
    pub fn memory(&self) -> &'g Memory {
        self.memory
    }

    /// The record at `at`. See the rule of locations above.
    ///
    /// # Panics
    /// If `at` is on flash, beyond the arena, or so near the end of a column that no record can begin there.
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
        // were written before the location was published. They are written again only after the column became free
        // again, which requires that this guard's reader announced a quiescent point, and it cannot do so during
        // 'g. (This last fact rests on the rule of locations.)
        unsafe { Item::new(self.base.add(offset as usize), in_column, self.column_mask + 1, self.inner) }
    }

    /// Whether the column of the location holds records at all.
    fn may_be_read(&self, at: Location) -> bool {
        let state = self.memory.column(self.memory.column_of(at)).state();
        !matches!(state, ColumnState::Absent | ColumnState::Free)
    }

    /// The chunk at `at`. See the rule of locations above. If the record is not a chunk, the result is an empty
    /// chunk of chain 0.
    ///
    /// # Panics
    /// As [`Guard::item`].
    #[inline]
    pub fn chunk(&self, at: Location) -> Chunk<'g> {
        let nothing = Chunk { bytes: &[], next: None, chain: 0, owner: KeyHash(0) };
        Chunk::of(&self.item(at)).unwrap_or(nothing)
    }

    /// Prefetches the first two cache lines of a record. Any location is allowed.
    #[inline]
    pub fn prefetch(&self, at: Location) {
        let record = self.base.wrapping_add(at.offset() as usize);
        prefetch_read(record);
        prefetch_read(record.wrapping_add(64));
    }

    /// Prefetches what the death of the record at `at` changes in the bookkeeping of its column. Any location is
    /// allowed.
    #[inline]
    pub fn prefetch_death(&self, at: Location) {
        let column = (at.offset() >> self.inner.column_shift) as usize;
        prefetch_read(self.inner.columns.as_ptr().wrapping_add(column).cast());
    }

    /// Prefetches the value of a record whose first lines have arrived. See the rule of locations above.
    ///
    /// # Panics
    /// As [`Guard::item`].
    #[inline(always)]
    pub fn prefetch_value(&self, at: Location) {
        self.item(at).prefetch_value();
    }

    /// Walks the key rows of a sealed column, as [`Memory::records`] does.
    pub fn records(&self, id: ColumnId) -> Records<'g> {
        let column = self.memory.column(id);
        // In this order: no new chunk is begun in a sealed column, so a column without a pin stays without pins for
        // chunks. If the state is Sealed now, a later retirement waits for this guard's reader.
        let walkable = column.state() == ColumnState::Sealed && !column.is_pinned();
        let start = u64::from(id.0) << self.inner.column_shift;
        let length = if walkable { column.keys_end() } else { 0 };
        Records::new(*self, start, start + u64::from(length), !walkable)
    }

    /// In a kept memory: [`Item::commit`] for the record at `at`. In other memory nothing happens.
    ///
    /// # Panics
    /// As [`Guard::item`].
    #[inline(always)]
    pub fn commit(&self, at: Location) {
        if self.inner.check_bytes != 0 {
            self.commit_kept(at);
        }
    }

    #[inline(never)]
    fn commit_kept(&self, at: Location) {
        self.item(at).commit();
    }

    /// In a kept memory: [`Item::revoke`] for the record at `at`. In other memory nothing happens.
    ///
    /// # Panics
    /// As [`Guard::item`].
    #[inline(always)]
    pub fn revoke(&self, at: Location) {
        if self.inner.check_bytes != 0 {
            self.revoke_kept(at);
        }
    }

    #[inline(never)]
    fn revoke_kept(&self, at: Location) {
        self.item(at).revoke();
    }

    /// The chunk at `at`, if an earlier process left one there that is whole, in a column that was not given up. Any
    /// location is allowed.
    pub fn remaining_chunk(&self, at: Location) -> Option<(Item<'g>, Chunk<'g>)> {
        let (offset, in_column) = (at.offset(), at.offset() as u32 & self.column_mask);
        if at.is_on_flash() || offset >= self.arena_bytes {
            return None;
        }
        let column = self.memory.column(self.memory.column_of(at));
        let is_filled = column.state() == ColumnState::Sealed
            && in_column >= self.inner.check_bytes
            && in_column + HEADER_BYTES as u32 <= column.keys_end();
        let item = is_filled.then(|| self.item(at)).filter(|item| item.remains() == Remains::Whole)?;
        Some((item, Chunk::of(&item)?))
    }

    /// Keeps the column of `at` from being reused beyond the life of the guard, for bytes that are still being
    /// sent. The location must obey the rule of locations.
    pub fn keep(&self, at: Location) -> ColumnPin {
        ColumnPin::new(self.memory.clone(), self.memory.column_of(at))
    }
}

#[cold]
#[inline(never)]
fn no_record(at: Location) -> ! {
    panic!("{at:?} can be no record's location (a record begins on a multiple of {UNIT_BYTES} in a column)")
}

/// A record in the key rows of a column.
#[derive(Clone, Copy, Debug)]
pub enum Record<'g> {
    /// An item, live or dead.
    Item(Item<'g>),
    /// A chunk of a large value, live or dead.
    Chunk(Chunk<'g>),
}

/// Iterates over every record of a column, in the order of placing.
pub struct Records<'g> {
    guard: Guard<'g>,
    at: u64,
    end: u64,
    refused: bool,
}

impl<'g> Records<'g> {
    /// Whether the walk was refused because the column was not sealed, or was pinned, when the walk began. A
    /// refused walk is empty and says nothing about the contents of the column.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// Whether the walk has come to the very end of the column's records.
    pub(crate) fn has_met_all(&self) -> bool {
        self.at == self.end
    }

    /// Walks from `at` to `end`, in bytes from the start of the arena. Both are boundaries of records in one sealed
    /// column.
    pub(crate) fn new(guard: Guard<'g>, at: u64, end: u64, refused: bool) -> Records<'g> {
        Records { guard, at: at + u64::from(guard.inner.check_bytes), end, refused }
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
        self.at += item.header().record_bytes() as u64 + u64::from(self.guard.inner.check_bytes);
        Some((location, Chunk::of(&item).map_or(Record::Item(item), Record::Chunk)))
    }
}
