//! What a client can ask for. Everything borrows from the bytes it was parsed from.

use crate::admin::{DebugTime, Extstore, Lru, LruCrawler, Slabs, StatsKind, WatchKinds};
use crate::meta::Meta;
use crate::scan::token_end;

/// One request of the text protocol, classic or meta.
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
        /// memcached's expiry rule: 0 never, negative at once, up to 30 days relative seconds, else unix time.
        exptime: i32,
        /// No reply is wanted.
        noreply: bool,
    },
    /// `delete <key> [noreply]`.
    Delete {
        /// The key, 1 to 250 bytes.
        key: &'a [u8],
        /// No reply is wanted.
        noreply: bool,
    },
    /// `incr` and `decr`.
    Arith {
        /// The key, 1 to 250 bytes.
        key: &'a [u8],
        /// `true` for `incr` (wraps at 2^64), `false` for `decr` (stops at 0).
        incr: bool,
        /// What to add or take away.
        delta: u64,
        /// No reply is wanted.
        noreply: bool,
    },
    /// `mg`, `ms`, `md`, `ma`, `me`.
    Meta(Meta<'a>),
    /// `mn`: answer `MN` and flush the replies before it.
    MetaNoop,
    /// `version`.
    Version,
    /// `quit`: close after the earlier replies were flushed.
    Quit,
    /// `verbosity <level> [noreply]`.
    Verbosity {
        /// Capped at 2, as memcached does.
        level: u8,
        /// No reply is wanted.
        noreply: bool,
    },
    /// `flush_all [exptime] [noreply]`.
    FlushAll {
        /// Delay (at most 30 days, in seconds) or unix time; `None`, zero and negative mean now.
        exptime: Option<i32>,
        /// No reply is wanted.
        noreply: bool,
    },
    /// `shutdown [graceful]`.
    Shutdown {
        /// Whether `graceful` was given; `None` = something else was, which is a mistake where the command is allowed.
        graceful: Option<bool>,
    },
    /// `cache_memlimit <megabytes> [noreply]`. The bounds are the executor's to check.
    CacheMemlimit {
        /// As sent, in MiB.
        megabytes: u32,
        /// No reply is wanted.
        noreply: bool,
    },
    /// `debugtime`: for test runs; whoever may not flush is answered `ERROR`.
    DebugTime(DebugTime),
    /// `stats ...`.
    Stats(StatsKind<'a>),
    /// `slabs ...`.
    Slabs(Slabs),
    /// `lru ...`.
    Lru(Lru),
    /// `lru_crawler ...`.
    LruCrawler(LruCrawler<'a>),
    /// `extstore <setting> <value>`.
    Extstore(Extstore),
    /// `watch ...`.
    Watch(WatchKinds),
    /// `refresh_certs`.
    RefreshCerts,
}

/// A classic retrieval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// The keys in request order, duplicates included; at least one.
    pub keys: Keys<'a>,
    /// `gets` and `gats`: the CAS number goes into each `VALUE` line.
    pub with_cas: bool,
    /// `gat` and `gats`: the new time to live of every hit.
    pub exptime: Option<i32>,
}

/// The keys of a retrieval: an iterator over slices of 1 to 250 bytes. The lengths were checked when the line
/// was parsed and the first key is remembered, so asking for a single key scans nothing again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    first: &'a [u8],
    rest: &'a [u8],
    remaining: usize,
}

impl<'a> Keys<'a> {
    /// `first`, then `remaining - 1` more keys separated by spaces in `rest`. `remaining` is at least 1.
    #[inline]
    pub(crate) fn new(first: &'a [u8], rest: &'a [u8], remaining: usize) -> Self {
        Keys { first, rest, remaining }
    }

    /// A single key that was not read from a line. The caller answers for its length.
    #[inline]
    pub fn one(key: &'a [u8]) -> Self {
        Keys { first: key, rest: &[], remaining: 1 }
    }

    /// The key at the front without taking it.
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

/// Which classic storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreVerb {
    /// Store unconditionally.
    Set,
    /// Store if absent.
    Add,
    /// Store if present.
    Replace,
    /// Put the data after what is there; flags and expiry of the line are ignored.
    Append,
    /// Put the data before what is there; flags and expiry of the line are ignored.
    Prepend,
    /// Store if the CAS number is still the given one.
    Cas,
}

/// A classic storage request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// Which command.
    pub verb: StoreVerb,
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// The client's flags, stored with the item.
    pub flags: u32,
    /// memcached's expiry rule: 0 never, negative at once, up to 30 days relative seconds, else unix time.
    pub exptime: i32,
    /// The CAS number of a `cas`; 0 for the others.
    pub cas: u64,
    /// No reply is wanted, not even an error.
    pub noreply: bool,
    /// Length of the value in bytes, at most [`crate::limits::VALUE_BYTES_MAX`].
    pub bytes: u32,
    /// The value, `bytes` long; empty in a [`crate::Step::Upload`], whose caller takes the block itself.
    pub data: &'a [u8],
}
