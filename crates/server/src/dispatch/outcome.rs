//! What came of an operation. A protocol's composer turns an outcome into a reply.
//!
//! The outcome of a read borrows the item: the composer copies the value from the column straight into the output.

use super::operation::ListingForm;
use super::prefixes::PrefixCount;
use larder_cache::{
    ArithOutcome, Copied, DeleteOutcome, Expiry, Kind, Listed, StoreOutcome, Subclass, Touched,
};
use larder_collection::Collection;
use std::borrow::Cow;

/// The bytes that a composer wants behind a value that is streamed. Empty where nothing is streamed.
pub(super) type Tail = &'static [u8];

/// What came of a [`super::operation::Get`].
pub(super) enum GetOutcome<'w> {
    Hit(FoundItem<'w>),
    Miss,
    /// The item is a collection, and has no value that could be shown.
    WrongKind,
    /// The item is there, but there is no memory to stream its large value.
    NoMemory,
}

/// Words the outcome of a [`super::operation::Get`]. It is a trait and not a closure so that the composer is inlined
/// into the read of an item in memory, which is the most frequent operation of all.
pub(super) trait ComposeGet {
    /// The reply shows the client's flags.
    const SHOWS_FLAGS: bool;

    /// Words the outcome. What is returned follows a value that is streamed.
    fn compose(self, outcome: GetOutcome<'_>) -> Tail;
}

/// An item as a plain read shows it.
pub(super) struct FoundItem<'w> {
    /// The client's flags.
    pub(super) flags: u32,
    /// The CAS number, if it was asked for.
    pub(super) cas: Option<u64>,
    pub(super) value: ItemValue<'w>,
}

/// The value of an item.
pub(super) enum ItemValue<'w> {
    /// All of it.
    Whole(&'w [u8]),
    /// It is too large for one output buffer. It is streamed behind what the composer writes, and then the composer's
    /// [`Tail`].
    Streamed { bytes: u32 },
}

/// What came of an [`super::operation::Operation`]. It owns nothing, so that nothing has to be dropped behind a reply.
pub(super) enum Outcome<'w> {
    Read(ReadOutcome<'w>),
    Stored(StoreOutcome),
    Deleted(DeleteOutcome),
    Touched(Touched),
    /// The item that was touched; `None` = there is no such item.
    TouchedItem(Option<TouchedItem>),
    Counted(ArithOutcome),
    Looked(Looked<'w>),
    Edited(EditOutcome<'w>),
    Copied(Copied),
    Stats(&'w StatRows),
    /// Certificates were read again, or could not be, with the reason. `None` = nothing is encrypted.
    Certificates(&'w Option<Result<(), String>>),
    /// The servers of the fleet, as text.
    Fleet(&'w str),
    /// Key prefixes with their counts.
    Prefixes(&'w [(Vec<u8>, PrefixCount)]),
    /// The list that was asked for has no items.
    EmptyList,
    Version(&'static str),
    Done,
    Refused(Refusal),
    /// The connection ends after the earlier replies.
    Closed,
    /// The value of an upload was not followed by the bytes that the protocol wants there. Nothing was stored.
    BadUploadEnd,
    /// An upload found no memory for the rest of its value.
    NoMemoryForUpload,
}

/// What is shown of an item that was touched.
#[derive(Clone, Copy)]
pub(super) struct TouchedItem {
    /// The client's flags.
    pub(super) flags: u32,
    pub(super) cas: u64,
}

/// What came of a [`super::operation::Look`].
pub(super) enum Looked<'w> {
    /// There is no such item.
    Absent,
    Value(ItemValue<'w>),
    Collection(Collection<'w>),
    Number(i64),
    Description(LookedItem<'w>),
    /// How Redis would encode the collection.
    Encoding(&'static str),
    /// The item is there.
    Present(Kind),
    /// It is a collection, and has no such value.
    WrongKind,
    /// The item is there, but there is no memory to show its large value.
    NoMemory,
}

/// An item as [`super::operation::Part::Description`] shows it.
pub(super) struct LookedItem<'w> {
    pub(super) expiry: Expiry,
    pub(super) cas: u64,
    pub(super) flags: u32,
    pub(super) value_bytes: u32,
    /// Milliseconds until the item expires; `None` = never.
    pub(super) left_ms: Option<i64>,
    /// It was read before.
    pub(super) was_fetched: bool,
    /// The key came in base64 when the item was stored.
    pub(super) binary_key: bool,
    /// The value, unless it is long.
    pub(super) short_value: Option<&'w [u8]>,
    pub(super) kind: Kind,
    /// Seconds since the last access.
    pub(super) idle_s: u32,
    /// How often the item was used lately, 0 to 3; `None` = that is not known.
    pub(super) warmth: Option<u8>,
    /// Bytes that the item takes, its overhead included.
    pub(super) bytes: u64,
}

/// What came of a [`super::operation::Change`].
pub(super) enum EditOutcome<'w> {
    /// It was done.
    Done,
    /// It was not done, because of its condition or because there is no such item.
    NotDone,
    /// The value before the change, if there was one, and whether the change was done.
    Old(Option<ItemValue<'w>>),
    /// The length of the value now, or the number.
    Number(i64),
    /// The decimal number now.
    Decimal(&'w [u8]),
    /// The bit before the change.
    Bit(bool),
    /// The item is a collection.
    WrongKind,
    /// The value is not a whole number of 64 bits.
    NotInteger,
    /// The number would not fit into 64 bits.
    Overflow,
    /// The value is not a decimal number.
    NotDecimal,
    /// The decimal number would be infinite.
    Infinite,
    /// The item would be larger than the limit.
    TooLarge,
    /// There is no memory.
    NoMemory,
}

/// Why an operation was not executed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The settings do not allow it.
    Disabled,
    /// The client may only read.
    NotAllowed,
    /// The client has a namespace, and the request is about the whole server.
    OfOthers,
    /// A prefix is empty, or longer than what is known of long keys.
    BadPrefix,
    /// As many prefixes are being deleted as there is room for.
    TooManyPrefixes,
    /// Other replies wait to be sent, and this one has to be alone.
    NotFirst,
    /// The reply may be long, and the request came as a datagram, which is answered in one turn.
    NotByDatagram,
    /// The request names something that does not exist.
    Malformed,
    /// No namespace has the name.
    NoSuchNamespace,
    /// There are as many watchers as there may be.
    TooManyWatchers,
    /// There is no memory for a watcher, or it would not be a stream.
    NoRoomToWatch,
    /// A memory limit under the least one.
    LimitTooSmall,
    /// A memory limit so high that its unit must have been mistaken.
    LimitOfWrongUnit,
    /// A memory limit that cannot be had.
    LimitOutOfBounds,
}

/// What came of a [`super::operation::Read`].
pub(super) enum ReadOutcome<'w> {
    Hit(ItemDetails<'w>),
    Miss,
    /// There is no memory to stream the large value.
    NoMemoryToShow,
    /// There is no memory for the item that the read should have created.
    NoMemoryToCreate,
}

/// An item as a read with details shows it, before the read itself changed anything.
pub(super) struct ItemDetails<'w> {
    /// `None` = it was not asked for.
    pub(super) value: Option<ItemValue<'w>>,
    /// The client's flags.
    pub(super) flags: u32,
    /// 0 if it was not asked for.
    pub(super) cas: u64,
    pub(super) value_bytes: u32,
    pub(super) expiry: Expiry,
    /// The read created the item.
    pub(super) created: bool,
    /// It was read before.
    pub(super) was_fetched: bool,
    /// Seconds since the last access.
    pub(super) idle_s: u32,
    /// The subclass of what a miss of the item costs; `None` = that is unknown.
    pub(super) penalty: Option<Subclass>,
    /// The key came in base64 when the item was stored.
    pub(super) binary_key: bool,
    pub(super) is_stale: bool,
    /// Another client has the item's token.
    pub(super) token_taken: bool,
    /// The caller has just got the item's token.
    pub(super) token_won: bool,
}

/// Statistics: names and values, in the order in which they are shown.
#[derive(Default)]
pub(super) struct StatRows(Vec<(Cow<'static, str>, String)>);

impl StatRows {
    pub(super) fn put(&mut self, name: impl Into<Cow<'static, str>>, value: impl std::fmt::Display) {
        self.0.push((name.into(), value.to_string()));
    }

    /// Names that tools ask for and that mean nothing here.
    pub(super) fn zeros(&mut self, names: &[&'static str]) {
        for name in names {
            self.put(*name, 0);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// The next items of a list.
pub(super) struct ListingPage<'p> {
    /// What is said of each item. The composer counts its limits down.
    pub(super) form: &'p mut ListingForm,
    pub(super) items: &'p [Listed],
    /// No item follows.
    pub(super) is_last: bool,
}
