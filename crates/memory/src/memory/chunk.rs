//! A chunk of a large value, as it lies in a column.
//!
//! A chunk is a record whose key is replaced by 24 bytes of bookkeeping: the hash of the owner's key, the number of
//! the chain, and the location of the next chunk, 8 bytes each. It has a word for the expiry, which its owner's is
//! copied to.

use super::item::{Item, Value};
use larder_item::{HEADER_BYTES, KeyHash, Location, UNIT_BYTES, ValueLayout};

/// Bytes that replace the key of a chunk: the owner's hash, the chain number, the location of the next chunk.
pub(super) const CHUNK_KEY_BYTES: usize = 24;
/// The next-chunk field of the last chunk of a chain.
pub(super) const NO_NEXT: u64 = u64::MAX;
/// Offset of the next-chunk field in the key of a chunk.
pub(super) const CHUNK_NEXT_AT: usize = 16;

/// One piece of a large value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk<'g> {
    /// The bytes of the value that this chunk holds.
    pub bytes: &'g [u8],
    /// The next chunk of the chain.
    pub next: Option<Location>,
    /// The number of the chain, as given when the chunk was placed.
    pub chain: u64,
    /// The hash of the owner's key.
    pub owner: KeyHash,
}

impl<'g> Chunk<'g> {
    /// Reads a record as a chunk. `None` if the record is not a chunk.
    pub(super) fn of(item: &Item<'g>) -> Option<Chunk<'g>> {
        let key = item.key();
        let (ValueLayout::Chunk, Value::Whole(bytes)) = (item.value_layout(), item.value()) else {
            return None;
        };
        if key.len() != CHUNK_KEY_BYTES {
            return None;
        }
        let field = |at: usize| u64::from_ne_bytes(key[at..at + 8].try_into().expect("eight bytes"));
        let next = field(CHUNK_NEXT_AT);
        Some(Chunk {
            bytes,
            next: (next != NO_NEXT).then(|| Location::from_bits(next)),
            chain: field(8),
            owner: KeyHash(field(0)),
        })
    }

    /// Bytes that the chunk takes in its column, as `Item::bytes` says.
    pub fn held_bytes(&self) -> u32 {
        // Beside the header: when the chunk expires, and where its bytes are.
        let (row, unit) = (HEADER_BYTES + 4 + 4 + CHUNK_KEY_BYTES, UNIT_BYTES as usize);
        (row.next_multiple_of(unit) + self.bytes.len().next_multiple_of(unit)) as u32
    }
}
