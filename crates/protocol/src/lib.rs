//! memcached's protocols as release 1.6.45 speaks them, the text protocol (classic and meta) and the binary one, and
//! RESP, the protocol of Redis and Valkey: bytes to requests, and replies to bytes.
//!
//! Goal: reading a request takes nanoseconds, allocates nothing and copies nothing. The same bytes give the same
//! requests, however the network cut them. Non-goal: knowing what a request does. The crate has no cache, no clock
//! and no socket.
//!
//! * [`parse()`] takes the front request off a buffer of pipelined requests and answers with a [`Step`]. `request`,
//!   `meta` and `admin` define the requests. `fast` reads the common lines, `classic` reads every line, and `scan`
//!   finds the ends of words and numbers.
//! * [`compose`] appends replies to a buffer, [`reply`] has the fixed replies, and [`limits`] has every limit.
//! * [`binary`] has the binary protocol: its own requests, and [`binary::parse`].
//!
//! A line ends in `\n`, with an optional `\r` before it. A data block must end in `\r\n`.
//!
//! [`resp`] has the same parts for RESP.
#![forbid(unsafe_code)]

mod admin;
mod base64;
pub mod binary;
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
pub mod resp;
mod scan;
mod step;

pub use admin::{
    Classes, CrawlTarget, DebugTime, Extstore, Lru, LruCrawler, Slabs, StatsKind, WatchKinds, Worth,
};
pub use base64::decode_key;
pub use keys::resume_keys;
pub use meta::{Meta, MetaFlags, MetaTokens, MetaVerb};
pub use parse::parse;
pub use request::{Get, Keys, Request, Store, StoreVerb};
pub use step::{Found, ParseOptions, Step};
