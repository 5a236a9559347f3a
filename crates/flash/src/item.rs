//! What goes into the tier and what comes out of it: items, stamps and commits.

use larder_item::{FlashState, KeyHash};

/// An item to be stored on flash.
#[derive(Clone, Copy, Debug)]
pub struct FlashItem<'a> {
    /// The key, 1 to 251 bytes.
    pub key: &'a [u8],
    /// The value. A value longer than [`crate::Flash::part_bytes_max`] comes in parts, and this is its first part.
    pub value: &'a [u8],
    /// Length of the whole value, bytes.
    pub value_bytes: u64,
    /// Client flags.
    pub flags: u32,
    /// When the item expires, unix seconds; 0 = never.
    pub expires_unix_s: u32,
    /// The CAS number of the item.
    pub cas: u64,
    /// What flash keeps of the state.
    pub state: FlashState,
}

/// An item that was read from flash. It owns its bytes.
#[derive(Debug)]
pub struct Found {
    /// The value, or the first part of a value that is stored in parts.
    pub value: Vec<u8>,
    /// Length of the whole value, bytes.
    pub value_bytes: u64,
    /// Client flags.
    pub flags: u32,
    /// When the item expires, unix seconds; 0 = never.
    pub expires_unix_s: u32,
    /// The CAS number of the item.
    pub cas: u64,
    /// What flash keeps of the state.
    pub state: FlashState,
    /// Whether the item was read from flash before, since it was written: a warm item deserves memory.
    pub warm: bool,
    /// The stamp of the key from before the lookup. While [`crate::Flash::stamp`] returns the same stamp, and
    /// [`crate::Flash::hides`] says no, this is the newest version.
    pub stamp: Stamp,
    /// The sequence of the segment, or the number of the generation, that the item was found in.
    pub age: u64,
}

/// An item on flash, as a listing shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The hash of the key.
    pub hash: KeyHash,
    /// The key.
    pub key: Vec<u8>,
    /// The beginning of the value: with the whole key, if the key is a folded one
    /// ([`larder_item::FOLDED_KEY_BYTES`]), or the first bytes of a compressed value.
    pub front: Vec<u8>,
    /// Length of the whole value, bytes.
    pub value_bytes: u64,
    /// Length of the record, or of that of the first part of a long value, bytes.
    pub bytes: u64,
    /// Client flags.
    pub flags: u32,
    /// When the item expires, unix seconds; 0 = never.
    pub expires_unix_s: u32,
    /// The CAS number of the item.
    pub cas: u64,
    /// What flash keeps of the state.
    pub state: FlashState,
}

/// The outcome of storing an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// The item was stored. Lookups find it from now on.
    Stored,
    /// The item was not stored, because the device is behind, has failed or is full. The call did not wait.
    Shed,
}

/// Memory for items that were put and are not on the device yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Bytes that fit now.
    pub free_bytes: u64,
    /// Bytes of one buffer. The device gives back one at a time.
    pub buffer_bytes: u64,
    /// Bytes of all buffers.
    pub all_bytes: u64,
}

/// The state of a hash at one moment. Two equal stamps say that no put, invalidation or flush touched the hash in
/// between. How often deleted prefixes were forgotten until then (bits 32 to 47) makes no difference: that hides
/// nothing that is there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamp(pub u64);

impl PartialEq for Stamp {
    fn eq(&self, other: &Stamp) -> bool {
        (self.0 ^ other.0) & !(0xffff << 32) == 0
    }
}

impl Eq for Stamp {}

/// The number of an invalidation in the journal (only in mode `journal`). The invalidation is durable when
/// [`crate::Flash::committed`] has reached this number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Commit(pub u64);
