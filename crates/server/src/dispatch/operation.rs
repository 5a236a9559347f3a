//! What a request asks for, in the cache's terms. Every protocol's commands become one of these operations.
//!
//! An operation borrows its key and value from the request. It has no field that only changes the wording of a reply;
//! such things stand in the protocol's reply form.

use larder_cache::{Arith, Delete, Expiry, KeyHash, Mode, Objective, Store, WorthMode};

/// The slab class that all items are shown in, because tools ask for one.
pub(super) const THE_CLASS: u32 = 1;

/// A read of one key's value for a client. The value may be shown straight from flash.
#[derive(Clone, Copy)]
pub(super) struct Get<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: KeyHash,
    /// The outcome shows the CAS number.
    pub(super) with_cas: bool,
    /// A hit gets this expiry after its value was shown.
    pub(super) touch: Option<Expiry>,
}

/// Everything else that a client can ask for.
pub(super) enum Operation<'a> {
    /// A read with conditions and details.
    Read(Read<'a>),
    Store(StoreItem<'a>),
    Delete(DeleteItem<'a>),
    /// Gives the item a new expiry.
    Touch {
        key: &'a [u8],
        hash: KeyHash,
        expiry: Expiry,
    },
    Arith(Arith<'a>),
    /// Reports what is known of the item without using it.
    Describe {
        key: &'a [u8],
        hash: KeyHash,
    },
    /// All items stored until `due_s`, on the cache's clock, are gone from then on; `None` = now.
    Flush {
        due_s: Option<u32>,
    },
    /// How much the server logs.
    SetVerbosity(u8),
    /// Stops the server. `None` = the client named a way to stop that does not exist.
    Shutdown {
        graceful: Option<bool>,
    },
    SetMemoryLimit {
        megabytes: u32,
    },
    SetClock(ClockChange),
    SetWorth(WorthChange),
    Stats(StatsTopic),
    /// What `stats detail` counted.
    PrefixCounts,
    /// Counts are shown from now on.
    ResetStats,
    /// Turns the counting of key prefixes on or off.
    CountPrefixes(bool),
    /// Lists all items. With `is_behind_others` the list is refused, because other replies wait to be sent.
    List {
        form: ListingForm,
        is_behind_others: bool,
    },
    /// Streams the server's log to the client, which this server cannot do.
    Watch {
        is_behind_others: bool,
    },
    Version,
    /// Closes the connection after the earlier replies.
    Quit,
    /// Nothing to execute: the reply depends on the request alone.
    Nothing,
}

/// A read of an item that is brought to memory first.
pub(super) struct Read<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: KeyHash,
    pub(super) value: ValueWanted,
    /// The outcome shows the CAS number.
    pub(super) with_cas: bool,
    /// The read is not a use of the item: neither warmth nor the time of the last access change.
    pub(super) leaves_no_trace: bool,
    /// An absent item is created empty, and the caller wins its token.
    pub(super) create: Option<Create>,
    /// A hit gets this expiry after it was shown.
    pub(super) touch: Option<Expiry>,
    /// When the caller may win the token of an item that is there.
    pub(super) recache: Recache,
}

/// Whether a read shows the value.
#[derive(Clone, Copy)]
pub(super) enum ValueWanted {
    No,
    Yes,
    /// Not if the item still has this CAS number.
    UnlessCas(u64),
}

/// How an absent item is created by a read.
pub(super) struct Create {
    /// The expiry that the request names for the new item.
    pub(super) expiry: Expiry,
    /// The expiry that the item has after it was shown: `expiry`, or the one of a touch in the same request.
    pub(super) final_expiry: Expiry,
    pub(super) explicit_cas: Option<u64>,
    pub(super) binary_key: bool,
}

/// Which items a client wants to fetch anew from their source. One client at a time wins the item's token for that.
#[derive(Clone, Copy)]
pub(super) enum Recache {
    /// Only stale items.
    WhenStale,
    /// Items that expire before this time, too.
    Before(Expiry),
    /// Every item.
    Always,
}

/// A store of a value that is here, or of one that follows in pieces.
pub(super) struct StoreItem<'a> {
    /// What is stored. `compare` is the CAS number that the client named.
    pub(super) store: Store<'a>,
    /// Length of the value, also if it is not here yet.
    pub(super) value_bytes: u32,
    pub(super) old_if_refused: OldItem,
    /// `stats detail` counts the key's prefix.
    pub(super) counts_prefix: bool,
}

/// What becomes of the present item when its replacement is too large or finds no memory. A client must not read what
/// it meant to replace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OldItem {
    Stays,
    /// Goes if the new part alone is too large, and whenever an upload fails.
    GoesIfTooLarge,
    Goes,
}

/// A delete.
pub(super) struct DeleteItem<'a> {
    /// What is deleted. `compare` is the CAS number that the client named.
    pub(super) delete: Delete<'a>,
    /// The client is told whether the item was there.
    pub(super) is_answered: bool,
    /// `stats detail` counts the key's prefix.
    pub(super) counts_prefix: bool,
}

/// A change of the server's clock, for tests.
#[derive(Clone, Copy)]
pub(super) enum ClockChange {
    /// Moves the clock by so many seconds.
    Move(i64),
    Pause,
    Resume,
}

/// Which statistics are asked for.
#[derive(Clone, Copy)]
pub(super) enum StatsTopic {
    General,
    Settings,
    Items,
    Slabs,
    Sizes,
    Connections,
    Temperature,
    Worth,
    Flash,
    Penalties,
}

/// A change of what the worth of an item is made of.
#[derive(Clone, Copy)]
pub(super) enum WorthChange {
    Mode(WorthMode),
    Objective(Objective),
}

/// What a list of items says of each.
#[derive(Clone, Copy)]
pub(super) enum ListingForm {
    /// All that is known.
    Everything,
    /// The key.
    Keys,
    /// The key, the length of the value and the expiry, up to so many items and bytes of reply.
    Sizes { items_left: usize, bytes_left: usize },
}

/// How an operation depends on an item that only flash has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// It shows the value: the item comes to memory if it is warm.
    Show,
    /// It needs the item in memory.
    Memory,
    /// It only needs to know whether the item is there.
    Know,
}

impl Operation<'_> {
    /// The key of an operation that depends on the present item, its hash, and what the operation needs of the item. A
    /// plain set depends on nothing, nor does a delete without a reply.
    pub(super) fn need(&self) -> Option<(&[u8], KeyHash, Need)> {
        match self {
            Operation::Read(Read { key, hash, .. })
            | Operation::Touch { key, hash, .. }
            | Operation::Arith(Arith { key, hash, .. })
            | Operation::Describe { key, hash } => Some((key, *hash, Need::Memory)),
            Operation::Store(StoreItem { store, .. }) => {
                let depends = store.mode != Mode::Set || store.compare.is_some();
                depends.then_some((store.key, store.hash, Need::Memory))
            }
            Operation::Delete(DeleteItem { delete, is_answered, .. }) => {
                let leaves_something = delete.compare.is_some()
                    || delete.invalidate
                    || delete.drop_value
                    || delete.expiry.is_some();
                let need = match (leaves_something, is_answered) {
                    (true, _) => Need::Memory,
                    (false, true) => Need::Know,
                    (false, false) => return None,
                };
                Some((delete.key, delete.hash, need))
            }
            _ => None,
        }
    }

    /// Whether what was looked up ahead for later requests may be out of date after this operation.
    pub(super) fn may_change_items(&self) -> bool {
        match self {
            Operation::Read(read) => read.create.is_some() || read.touch.is_some(),
            Operation::Nothing | Operation::Version | Operation::SetVerbosity(_) => false,
            _ => true,
        }
    }
}
