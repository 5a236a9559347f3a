//! The writes that clients ask for, and their outcomes.

use larder_allocation::Subclass;
use larder_item::{Expiry, KeyHash};

/// On which condition a store goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Always.
    Set,
    /// Only if the key is absent.
    Add,
    /// Only if the key is present.
    Replace,
    /// Only if the key is present. The value is added behind the present one.
    Append,
    /// Only if the key is present. The value is added before the present one.
    Prepend,
}

/// A store of a value that has arrived completely.
#[derive(Clone, Copy, Debug)]
pub struct Store<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Hash of the key.
    pub hash: KeyHash,
    /// On which condition the store goes through.
    pub mode: Mode,
    /// Client flags.
    pub flags: u32,
    /// Expiry of the new item. Append and prepend keep the present item's expiry.
    pub expiry: Expiry,
    /// The value.
    pub value: &'a [u8],
    /// Only if the present item has this CAS number.
    pub compare: Option<u64>,
    /// The new item's CAS number; `None` = the next one.
    pub explicit_cas: Option<u64>,
    /// With `compare`: if that number is lower than the present item's, store all the same, but mark the new item as
    /// stale.
    pub invalidate: bool,
    /// Append and prepend create an absent item, with this expiry.
    pub vivify: Option<Expiry>,
    /// The key was sent in base64.
    pub binary_key: bool,
    /// The penalty subclass that the client states; `None` = the cache estimates it.
    pub penalty: Option<Subclass>,
    /// Append and prepend leave a value that was changed in parts, which clients of Redis are told.
    pub marks_parts: bool,
}

impl<'a> Store<'a> {
    /// Stores `value` whatever the cache has, with client flags 0 and without an expiry.
    #[inline]
    pub fn set(key: &'a [u8], hash: KeyHash, value: &'a [u8]) -> Store<'a> {
        Store {
            key,
            hash,
            mode: Mode::Set,
            flags: 0,
            expiry: Expiry::NEVER,
            value,
            compare: None,
            explicit_cas: None,
            invalidate: false,
            vivify: None,
            binary_key: false,
            penalty: None,
            marks_parts: false,
        }
    }

    /// Whether the value is added to the present one.
    pub(crate) fn joins(&self) -> bool {
        matches!(self.mode, Mode::Append | Mode::Prepend)
    }
}

/// The outcome of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreOutcome {
    /// The value is stored.
    Stored {
        /// CAS number of the new item.
        cas: u64,
        /// Length of the whole value now, bytes.
        value_bytes: u32,
    },
    /// The condition of the mode was not met.
    NotStored,
    /// The present item has another CAS number.
    Exists,
    /// There is no item to compare the CAS number with.
    NotFound,
    /// The item would be larger than the limit.
    TooLarge,
    /// There is no memory, and none could be made.
    NoRoom,
}

/// A delete, or a marking as stale.
#[derive(Clone, Copy, Debug)]
pub struct Delete<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Hash of the key.
    pub hash: KeyHash,
    /// Only if the item has this CAS number.
    pub compare: Option<u64>,
    /// CAS number of an item that is kept.
    pub explicit_cas: Option<u64>,
    /// Keep the item, but mark it as stale.
    pub invalidate: bool,
    /// Keep the item, but without its value.
    pub drop_value: bool,
    /// New expiry of an item that is kept.
    pub expiry: Option<Expiry>,
    /// Client flags of an item that is kept without its value.
    pub flags: u32,
}

impl<'a> Delete<'a> {
    /// Deletes the item without any condition.
    #[inline]
    pub fn of(key: &'a [u8], hash: KeyHash) -> Delete<'a> {
        Delete {
            key,
            hash,
            compare: None,
            explicit_cas: None,
            invalidate: false,
            drop_value: false,
            expiry: None,
            flags: 0,
        }
    }
}

/// The outcome of a delete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeleteOutcome {
    /// The item is gone, or marked.
    Deleted,
    /// There was no item.
    NotFound,
    /// The item has another CAS number.
    Exists,
    /// There is no memory for the item that is to be kept.
    NoRoom,
}

/// An increment or decrement.
#[derive(Clone, Copy, Debug)]
pub struct Arith<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Hash of the key.
    pub hash: KeyHash,
    /// Increment (wraps at 2^64) or decrement (stops at 0).
    pub increment: bool,
    /// How much is added or subtracted.
    pub delta: u64,
    /// Create an absent item with this expiry and value.
    pub initial: Option<(Expiry, u64)>,
    /// Only if the item has this CAS number.
    pub compare: Option<u64>,
    /// The new CAS number; `None` = the next one.
    pub explicit_cas: Option<u64>,
    /// New expiry; `None` = the present item's.
    pub expiry: Option<Expiry>,
    /// The key was sent in base64.
    pub binary_key: bool,
}

impl<'a> Arith<'a> {
    /// Changes the number of a present item by `delta`, without any condition.
    #[inline]
    pub fn of(key: &'a [u8], hash: KeyHash, increment: bool, delta: u64) -> Arith<'a> {
        Arith {
            key,
            hash,
            increment,
            delta,
            initial: None,
            compare: None,
            explicit_cas: None,
            expiry: None,
            binary_key: false,
        }
    }
}

/// The outcome of an increment or decrement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArithOutcome {
    /// The number was changed, or created.
    Done {
        /// The number now.
        value: u64,
        /// The item's CAS number now.
        cas: u64,
        /// The item's expiry before the request changed it. For an item that was created, its first expiry.
        expiry: Expiry,
        /// Whether the item was created.
        created: bool,
    },
    /// There was no item.
    NotFound,
    /// The value is not a decimal number of 64 bits.
    NonNumeric,
    /// The item has another CAS number.
    Exists,
    /// There is no memory.
    NoRoom,
}

/// The outcome of a touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touched {
    /// The expiry is set.
    Done,
    /// There was no item.
    NotFound,
    /// The item had to be rewritten, and there was no memory.
    NoRoom,
}
