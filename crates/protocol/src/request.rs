//! The requests that a client can send. Every request borrows from the bytes it was parsed from.

use crate::admin::{DebugTime, Extstore, Lru, LruCrawler, Slabs, StatsKind, WatchKinds, Worth};
use crate::meta::Meta;
use crate::scan::token_end;

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub enum Request<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Get(Get<'a>),
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store(Store<'a>),
    /// `touch <key> <exptime> [noreply]`.
    Touch {
        /// The key, 1 to 250 bytes.
        key: &'a [u8],
        /// memcached's expiry rule: 0 means never, a negative number means expired already, up to 30 days are
        /// relative seconds, and more is a unix time.
        exptime: i32,
        /// The client wants no reply.
        noreply: bool,
    },
    /// `delete <key> [noreply]`.
    Delete {
        /// The key, 1 to 250 bytes.
        key: &'a [u8],
        /// The client wants no reply.
        noreply: bool,
    },
    /// `incr` and `decr`.
    Arith {
        /// The key, 1 to 250 bytes.
        key: &'a [u8],
        /// `true` for `incr` (wraps at 2^64), `false` for `decr` (stops at 0).
        incr: bool,
        /// The number to add or subtract.
        delta: u64,
        /// The client wants no reply.
        noreply: bool,
    },
    /// `mg`, `ms`, `md`, `ma`, `me`, `mf`.
    Meta(Meta<'a>),
    /// `mn`: answer `MN` and flush the replies before it.
    MetaNoop,
    /// `version`.
    Version,
    /// `quit`: close the connection after the earlier replies were flushed.
    Quit,
    /// `verbosity <level> [noreply]`.
    Verbosity {
        /// The level, limited to 2 as in memcached.
        level: u8,
        /// The client wants no reply.
        noreply: bool,
    },
    /// `flush_all [exptime] [noreply]`.
    FlushAll {
        /// A delay of at most 30 days in seconds, or a unix time. `None`, zero and negative numbers mean now.
        exptime: Option<i32>,
        /// The client wants no reply.
        noreply: bool,
    },
    /// `flush_prefix <prefix> [noreply]`, which memcached does not have.
    FlushPrefix {
        /// What the keys of the items begin with, 1 to 250 bytes.
        prefix: &'a [u8],
        /// The client wants no reply.
        noreply: bool,
    },
    /// `shutdown [graceful]`.
    Shutdown {
        /// Whether `graceful` was given. `None` means that another word was given, which is an error if the command
        /// is allowed.
        graceful: Option<bool>,
    },
    /// `cache_memlimit <megabytes> [noreply]`. The command's execution checks the bounds.
    CacheMemlimit {
        /// The number as sent, in MiB.
        megabytes: u32,
        /// The client wants no reply.
        noreply: bool,
    },
    /// `debugtime`, for test runs. A server that does not allow it answers `ERROR`.
    DebugTime(DebugTime),
    /// `stats ...`.
    Stats(StatsKind<'a>),
    /// `slabs ...`.
    Slabs(Slabs),
    /// `lru ...`.
    Lru(Lru),
    /// `worth ...`, which memcached does not have.
    Worth(Worth<'a>),
    /// `lru_crawler ...`.
    LruCrawler(LruCrawler<'a>),
    /// `extstore <setting> <value>`.
    Extstore(Extstore),
    /// `watch ...`.
    Watch(WatchKinds),
    /// `refresh_certs`.
    RefreshCerts,
    /// `config get cluster`, which memcached does not have: the servers of the fleet.
    Fleet,
}

/// A classic retrieval: `get`, `gets`, `gat`, `gats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// The keys in the order of the request, with duplicates. There is at least one.
    pub keys: Keys<'a>,
    /// Whether each `VALUE` line contains the CAS number, as for `gets` and `gats`.
    pub with_cas: bool,
    /// The new time to live of every hit, for `gat` and `gats`.
    pub exptime: Option<i32>,
}

/// The keys of a retrieval: an iterator over slices of 1 to 250 bytes. The lengths were checked when the line was
/// parsed. The first key is stored, so that a request for a single key is scanned only once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    first: &'a [u8],
    rest: &'a [u8],
    remaining: usize,
}

impl<'a> Keys<'a> {
    /// `first`, followed by `remaining - 1` keys separated by spaces in `rest`. `remaining` is at least 1.
    #[inline]
    pub(crate) fn new(first: &'a [u8], rest: &'a [u8], remaining: usize) -> Self {
        Keys { first, rest, remaining }
    }

    /// `remaining` keys of which `rest` begins with the space before them.
    pub(crate) fn behind(rest: &'a [u8], remaining: usize) -> Self {
        let mut keys = Keys { first: &[], rest, remaining: remaining + 1 };
        keys.next();
        keys
    }

    /// A single key that was not read from a line. The caller ensures that its length is valid.
    #[inline]
    pub fn one(key: &'a [u8]) -> Self {
        Keys { first: key, rest: &[], remaining: 1 }
    }

    /// The next key, without taking it.
    #[inline]
    pub fn peek(&self) -> Option<&'a [u8]> {
        (self.remaining > 0).then_some(self.first)
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.remaining == 0 {
            return None;
        }
        let key = self.first;
        self.remaining -= 1;
        if self.remaining > 0 {
            let mut start = 0;
            while self.rest.get(start) == Some(&b' ') {
                start += 1;
            }
            let end = token_end(self.rest, start);
            self.first = &self.rest[start..end];
            self.rest = &self.rest[end..];
        }
        Some(key)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for Keys<'_> {}

/// The classic storage commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreVerb {
    /// Store unconditionally.
    Set,
    /// Store if the key is absent.
    Add,
    /// Store if the key is present.
    Replace,
    /// Append the data to the present value. The flags and the exptime of the line are ignored.
    Append,
    /// Prepend the data to the present value. The flags and the exptime of the line are ignored.
    Prepend,
    /// Store if the item's CAS number is still the given one.
    Cas,
}

/// A classic storage request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// The command.
    pub verb: StoreVerb,
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// The client's flags, stored with the item.
    pub flags: u32,
    /// memcached's expiry rule: 0 means never, a negative number means expired already, up to 30 days are relative
    /// seconds, and more is a unix time.
    pub exptime: i32,
    /// The CAS number of a `cas` command. 0 for the other commands.
    pub cas: u64,
    /// The client wants no reply, not even for an error.
    pub noreply: bool,
    /// Length of the value in bytes, at most [`crate::limits::VALUE_BYTES_MAX`].
    pub bytes: u32,
    /// The value, `bytes` bytes long. Empty in a [`crate::Step::Upload`], whose caller takes the data block itself.
    pub data: &'a [u8],
}
