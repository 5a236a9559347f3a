//! The memcached text protocol, classic and meta, as release 1.6.45 speaks it: bytes to requests, replies to bytes.
//!
//! Goal: reading a request costs nanoseconds, allocates nothing and copies nothing; the same bytes give the same
//! requests however the network cut them. Non-goal: knowing what a request does. There is no cache, clock or
//! socket here.
//!
//! * [`parse()`] takes the front request off a buffer of pipelined ones: `request`, `meta` and `admin` hold what
//!   it may find, `classic` and `fast` read it, `scan` finds the ends of words and numbers.
//! * [`compose`] appends replies to a buffer, [`reply`] holds the fixed ones, [`limits`] every limit.
//!
//! A line ends in `\n` with an optional `\r` before it; a data block must end in `\r\n`.
#![forbid(unsafe_code)]

mod admin;
mod base64;
mod classic;
pub mod compose;
mod fast;
mod keys;
pub mod limits;
mod line;
mod meta;
mod parse;
pub mod reply;
mod request;
mod scan;
mod step;

pub use admin::{Classes, CrawlTarget, DebugTime, Extstore, Lru, LruCrawler, Slabs, StatsKind, WatchKinds};
pub use base64::decode_key;
pub use meta::{Meta, MetaFlags, MetaTokens, MetaVerb};
pub use parse::parse;
pub use request::{Get, Keys, Request, Store, StoreVerb};
pub use step::{ParseOptions, Step};
