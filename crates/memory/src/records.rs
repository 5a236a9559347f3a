//! Walking the key rows of a sealed column.

use crate::item::{Chunk, Item};
use crate::reader::Guard;
use larder_item::{HEADER_BYTES, Location};

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
