//! The writes that clients ask for, and their outcomes.

use larder_item::{Expiry, KeyHash};

/// When a store goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Always.
    Set,
    /// Only if the key is absent.
    Add,
    /// Only if the key is present.
    Replace,
    /// Behind the present value.
    Append,
    /// Before the present value.
    Prepend,
}

/// A store of a value that is here in one piece.
#[derive(Clone, Copy, Debug)]
pub struct Store<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its hash.
    pub hash: KeyHash,
    /// When it goes through.
    pub mode: Mode,
    /// Client flags.
    pub flags: u32,
    /// Expiry of the new item (append and prepend keep the old one).
    pub expiry: Expiry,
    /// The value.
    pub value: &'a [u8],
    /// Only if the present item has this CAS number.
    pub compare: Option<u64>,
    /// The new item's CAS number, else the next one.
    pub explicit_cas: Option<u64>,
    /// With `compare`: if the number given is lower than the item's, store all the same, but marked stale.
    pub invalidate: bool,
    /// Append and prepend create an absent item, with this expiry.
    pub vivify: Option<Expiry>,
    /// The key was sent in base64.
    pub binary_key: bool,
}

impl Store<'_> {
    /// Whether it adds to the present value.
    pub(crate) fn joins(&self) -> bool {
        matches!(self.mode, Mode::Append | Mode::Prepend)
    }
}

/// What came of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreOutcome {
    /// It is stored.
    Stored {
        /// CAS number of the new item.
        cas: u64,
        /// Length of the whole value now, bytes.
        value_bytes: u32,
    },
    /// The mode did not allow it.
    NotStored,
    /// The CAS number differs.
    Exists,
    /// Compared with an absent item.
    NotFound,
    /// The item would be larger than the limit.
    TooLarge,
    /// No memory, and none could be made.
    NoRoom,
}

/// A delete, or a marking as stale.
#[derive(Clone, Copy, Debug)]
pub struct Delete<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its hash.
    pub hash: KeyHash,
    /// Only if the item has this CAS number.
    pub compare: Option<u64>,
    /// CAS number of what stays behind.
    pub explicit_cas: Option<u64>,
    /// Keep the item, but mark it stale.
    pub invalidate: bool,
    /// Keep an empty item.
    pub drop_value: bool,
    /// New expiry of what stays behind.
    pub expiry: Option<Expiry>,
    /// Client flags of an emptied item.
    pub flags: u32,
}

/// What came of a delete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeleteOutcome {
    /// Gone, or marked.
    Deleted,
    /// There was nothing.
    NotFound,
    /// The CAS number differs.
    Exists,
    /// No memory for what should have stayed behind.
    NoRoom,
}

/// An increment or decrement.
#[derive(Clone, Copy, Debug)]
pub struct Arith<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its hash.
    pub hash: KeyHash,
    /// Up (wrapping at 2^64) or down (stopping at 0).
    pub increment: bool,
    /// By how much.
    pub delta: u64,
    /// Create an absent item with this expiry and value.
    pub initial: Option<(Expiry, u64)>,
    /// Only if the item has this CAS number.
    pub compare: Option<u64>,
    /// The new CAS number, else the next one.
    pub explicit_cas: Option<u64>,
    /// New expiry.
    pub expiry: Option<Expiry>,
    /// The key was sent in base64.
    pub binary_key: bool,
}

/// What came of an increment or decrement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArithOutcome {
    /// Done.
    Done {
        /// The number now.
        value: u64,
        /// The item's CAS number now.
        cas: u64,
        /// The item's expiry before this request gave it another; that of `initial` if it was created.
        expiry: Expiry,
        /// Whether the item was created.
        created: bool,
    },
    /// There was nothing.
    NotFound,
    /// The value is no decimal number of 64 bits.
    NonNumeric,
    /// The CAS number differs.
    Exists,
    /// No memory.
    NoRoom,
}

/// What came of a touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touched {
    /// The expiry is set.
    Done,
    /// There was nothing.
    NotFound,
    /// The item had to be rewritten and there was no memory.
    NoRoom,
}
