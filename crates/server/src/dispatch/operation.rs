//! What a request asks for, in the cache's terms. Every protocol's commands become one of these operations.
//!
//! An operation borrows its key and value from the request. It has no field that only changes the wording of a reply;
//! such things stand in the protocol's reply form.

use super::decimal::Decimal;
use larder_cache::{Arith, Delete, Expiry, KeyHash, Kind, Mode, Objective, Store, WorthMode};
use larder_collection::Collection;
use larder_protocol::WatchKinds;

/// The slab class that all items are shown in, because tools ask for one.
pub(super) const THE_CLASS: u32 = 1;

/// A key as its item has it.
#[derive(Clone, Copy)]
pub(super) struct ItemKey<'a> {
    /// The key of the item.
    pub(super) key: &'a [u8],
    pub(super) hash: KeyHash,
    /// What the item's value begins with and no client is shown. Empty, but for keys that an item cannot have as they
    /// are.
    pub(super) head: &'a [u8],
}

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
    /// Gives the item a new expiry. The outcome is [`super::outcome::Outcome::TouchedItem`] if it `shows_item`.
    Touch {
        key: &'a [u8],
        hash: KeyHash,
        expiry: Expiry,
        shows_item: bool,
    },
    Arith(Arith<'a>),
    /// Reads something of the item.
    Look(Look<'a>),
    /// Changes the item, depending on what it is now.
    Edit(ItemKey<'a>, Change<'a>),
    /// Copies the item to another key.
    Copy(CopyItem<'a>),
    /// All items stored until `due_s`, on the cache's clock, are gone from then on; `None` = now.
    Flush {
        due_s: Option<u32>,
    },
    /// The items whose keys begin with `prefix` are gone.
    FlushPrefix {
        prefix: &'a [u8],
    },
    /// The items of a client are gone: those whose keys begin with `prefix`, which the server puts before them.
    FlushKeys {
        prefix: &'a [u8],
        /// Also those of the databases that the client has not chosen.
        in_all_databases: bool,
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
    /// Reads the certificates again.
    RefreshCertificates,
    /// Names the servers of the fleet.
    NameFleet,
    Stats(StatsTopic),
    /// What the namespace with this name would miss with more memory or less.
    SizingOf(&'a [u8]),
    /// What `stats detail` counted.
    PrefixCounts,
    /// Counts are shown from now on.
    ResetStats,
    /// Forgets which keys are hot.
    ResetHotKeys,
    /// Forgets which items are large.
    ResetLargeKeys,
    /// Turns the counting of key prefixes on or off.
    CountPrefixes(bool),
    /// Lists all items. With `is_behind_others` the list is refused, because other replies wait to be sent.
    List {
        form: ListingForm,
        is_behind_others: bool,
    },
    /// Tells the client of what happens, line by line, from now on. With `is_behind_others` the client is refused,
    /// because other replies wait to be sent.
    Watch {
        kinds: WatchKinds,
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
    /// None, not even stale ones: the client may not store what it would fetch.
    Never,
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
    /// Moves the clock by this number of seconds.
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
    Namespaces,
    Compression,
    Flash,
    Penalties,
    HotKeys,
    LargeKeys,
    Mrc,
    Latency,
}

/// A change of what the worth of an item is made of.
#[derive(Clone, Copy)]
pub(super) enum WorthChange {
    Mode(WorthMode),
    Objective(Objective),
}

/// A read of a value, of a part of it, or of something that follows from it.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) key: ItemKey<'a>,
    pub(super) part: Part,
    /// The read is not a use of the item.
    pub(super) leaves_no_trace: bool,
}

/// What of an item is read.
#[derive(Clone, Copy)]
pub(super) enum Part {
    /// The value.
    Value,
    /// The collection, if it is of one of these kinds. Times of fields are compared with this one, in milliseconds
    /// since 1970.
    Collection(&'static [Kind], u64),
    /// The bytes from the first number to the second, both included. Negative numbers count from the end.
    Range(i64, i64),
    /// The length of the value, in bytes.
    Length,
    /// One bit; bit 0 is the highest of the first byte.
    Bit(u64),
    /// How many bits are set.
    CountBits(BitRange),
    /// Where the first bit of this kind is.
    FindBit(bool, BitRange),
    /// The digest of the value (XXH3, 64 bits).
    Digest,
    /// Everything but the value. This is not a use of the item.
    Description,
    /// How Redis would encode a collection, or the description of a string.
    Encoding,
    /// Whether the item is there. This is not a use of the item.
    Presence,
}

impl Part {
    /// Whether only strings have it. Who asks for the length of a collection hears that it is none.
    pub(super) fn is_of_strings(self) -> bool {
        !matches!(self, Part::Collection(..) | Part::Description | Part::Encoding | Part::Presence)
    }
}

/// A part of a value in bytes or in bits. Negative numbers count from the end.
#[derive(Clone, Copy)]
pub(super) struct BitRange {
    pub(super) start: i64,
    /// `None` = to the end.
    pub(super) end: Option<i64>,
    /// The numbers count bits and not bytes.
    pub(super) in_bits: bool,
}

/// A change that depends on the present item.
#[derive(Clone, Copy)]
pub(super) enum Change<'a> {
    /// Stores a value. The outcome shows the old one with `shows_old`.
    Replace { value: &'a [u8], condition: Condition<'a>, expiry: NewExpiry, shows_old: bool },
    /// Adds to the end of the value, or creates it.
    Append(&'a [u8]),
    /// Writes into the value from an offset on. A gap is filled with zeros.
    Overwrite { offset: u64, bytes: &'a [u8] },
    /// Sets or clears one bit.
    SetBit { offset: u64, on: bool },
    /// Adds to a whole number. An absent item counts as 0.
    Add(i64),
    /// Adds to a decimal number. An absent item counts as 0. `None` = what is to be added is no number.
    AddDecimal(Option<&'a Decimal>),
    /// Sets the expiry. A time that is past ends the item.
    Expire { expiry: Expiry, condition: ExpireIf },
    /// Takes the expiry away.
    Persist,
    /// Shows the value, and gives the item an expiry if there is one.
    ShowAndExpire(Option<Expiry>),
    /// Shows the value, and deletes the item.
    ShowAndRemove,
    /// Deletes the item.
    Remove(Condition<'a>),
    /// Makes another collection of the one that is there.
    Rewrite(&'a Rewrite<'a>),
}

/// What an edit of a collection makes of it.
pub(super) type Rewriting<'a> = dyn Fn(Option<Collection<'_>>, &mut Vec<u8>) -> Rewritten + 'a;

/// A change of a collection.
pub(super) struct Rewrite<'a> {
    /// Of which kind it is, and will be.
    pub(super) kind: Kind,
    /// Whatever is there makes room for it.
    pub(super) replaces: bool,
    /// Times of fields are compared with this one, in milliseconds since 1970.
    pub(super) unix_ms: u64,
    /// Appends the next value to the buffer. It is asked again if another client changes the item meanwhile.
    pub(super) make: &'a Rewriting<'a>,
}

/// What becomes of a collection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rewritten {
    /// It stays as it is.
    Same,
    /// It has the value that was made.
    Next,
    /// Nothing is left of it.
    Gone,
}

/// When a change goes through.
#[derive(Clone, Copy)]
pub(super) enum Condition<'a> {
    Always,
    IfAbsent,
    IfPresent,
    /// Only if there is a value, and it is this one.
    IfEqual(&'a [u8]),
    /// Only if there is no such value.
    IfNotEqual(&'a [u8]),
    /// Only if there is a value of this digest.
    IfDigest(u64),
    /// Only if there is no value of this digest.
    IfNotDigest(u64),
}

/// The expiry of a value that replaces another.
#[derive(Clone, Copy)]
pub(super) enum NewExpiry {
    /// That of the item before.
    Kept,
    /// A time that is past ends the item.
    At(Expiry),
}

/// When an expiry is set. An item without one lasts for ever.
#[derive(Clone, Copy, Default)]
pub(super) struct ExpireIf {
    /// Only if the item has none.
    pub(super) has_none: bool,
    /// Only if it has one.
    pub(super) has_one: bool,
    /// Only if the new one is later.
    pub(super) is_later: bool,
    /// Only if the new one is earlier.
    pub(super) is_earlier: bool,
}

/// A copy of an item under another key.
#[derive(Clone, Copy)]
pub(super) struct CopyItem<'a> {
    pub(super) from: ItemKey<'a>,
    pub(super) to: ItemKey<'a>,
    /// An item that the other key has is replaced.
    pub(super) replaces: bool,
    /// The item does not stay under its own key.
    pub(super) moves: bool,
}

/// What a list of items says of each.
#[derive(Clone, Copy)]
pub(super) enum ListingForm {
    /// All that is known.
    Everything,
    /// The key.
    Keys,
    /// The key, the length of the value and the expiry, up to a number of items and of bytes of reply.
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

/// Where the item of an operation is that is about to be executed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// In memory, or nowhere.
    Memory,
    /// On flash, and need not be in memory.
    Flash,
    /// On flash perhaps. It should be in memory, and could not be brought there.
    OutOfReach,
}

impl<'a> Operation<'a> {
    /// The key of an operation that depends on the present item, its hash, and what the operation needs of the item. A
    /// plain set depends on nothing, nor does a delete without a reply.
    pub(super) fn need(&self) -> Option<(&[u8], KeyHash, Need)> {
        match self {
            Operation::Read(Read { key, hash, .. })
            | Operation::Touch { key, hash, .. }
            | Operation::Arith(Arith { key, hash, .. }) => Some((key, *hash, Need::Memory)),
            Operation::Store(StoreItem { store, .. }) => {
                let depends = store.mode != Mode::Set || store.compare.is_some();
                depends.then_some((store.key, store.hash, Need::Memory))
            }
            Operation::Edit(ItemKey { key, hash, .. }, _)
            | Operation::Look(Look { key: ItemKey { key, hash, .. }, .. })
            | Operation::Copy(CopyItem { from: ItemKey { key, hash, .. }, .. }) => {
                Some((key, *hash, Need::Memory))
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

    /// Whether the outcome of the operation follows from the value of the present item.
    pub(super) fn depends_on_value(&self) -> bool {
        match self {
            Operation::Look(Look { part: Part::Collection(..), .. }) | Operation::Copy(_) => true,
            Operation::Arith(_) => true,
            Operation::Store(item) => item.store.mode != Mode::Set,
            Operation::Edit(_, change) => match change {
                Change::Rewrite(rewrite) => !rewrite.replaces,
                Change::Append(_) | Change::Overwrite { .. } | Change::SetBit { .. } => true,
                Change::Add(_) | Change::AddDecimal(_) => true,
                _ => false,
            },
            _ => false,
        }
    }

    /// What is left of the operation for a client that may only read. `None` = it may not be executed. Whoever lists
    /// items, or watches the log, only reads.
    pub(super) fn without_changes(self) -> Option<Self> {
        match self {
            Operation::Read(Read { create: None, touch: None, .. }) => {
                let Operation::Read(read) = self else { return None };
                Some(Operation::Read(Read { recache: Recache::Never, ..read }))
            }
            Operation::Look(_)
            | Operation::Stats(_)
            | Operation::SizingOf(_)
            | Operation::PrefixCounts
            | Operation::List { .. }
            | Operation::Watch { .. }
            | Operation::NameFleet
            | Operation::Version
            | Operation::Quit
            | Operation::Nothing => Some(self),
            _ => None,
        }
    }

    /// What becomes of the operation for a client whose keys all begin with `prefix`. `None` = it may not be executed:
    /// it is about the whole server, or shows keys of others. The composer of a list leaves out what is not the
    /// client's.
    pub(super) fn within(self, prefix: &'a [u8]) -> Option<Self> {
        match self {
            Operation::Flush { due_s: None } => Some(Operation::FlushKeys { prefix, in_all_databases: true }),
            Operation::Stats(StatsTopic::HotKeys | StatsTopic::LargeKeys) => None,
            // The prefix is the name of the client's namespace and the delimiter.
            Operation::SizingOf(name) if prefix.split_last().is_none_or(|(_, own)| own != name) => None,
            Operation::Read(_)
            | Operation::Store(_)
            | Operation::Delete(_)
            | Operation::Touch { .. }
            | Operation::Arith(_)
            | Operation::Look(_)
            | Operation::Edit(..)
            | Operation::Copy(_)
            | Operation::FlushPrefix { .. }
            | Operation::Stats(_)
            | Operation::SizingOf(_)
            | Operation::List { .. }
            | Operation::NameFleet
            | Operation::Version
            | Operation::Quit
            | Operation::Nothing => Some(self),
            _ => None,
        }
    }

    /// Whether what was looked up ahead for later requests may be out of date after this operation.
    pub(super) fn may_change_items(&self) -> bool {
        match self {
            Operation::Read(read) => read.create.is_some() || read.touch.is_some(),
            Operation::Look(_) => false,
            Operation::Nothing | Operation::Version | Operation::SetVerbosity(_) => false,
            _ => true,
        }
    }
}
