//! RESP2 and RESP3, the protocols of Redis and Valkey: bytes to requests, and replies to bytes.
//!
//! The goals are those of memcached's parser: reading a request takes nanoseconds, allocates nothing and copies
//! nothing, and the same bytes give the same requests however the network cut them. A request that comes in many small
//! pieces is not read again from its beginning: the caller keeps a [`Resume`].
//!
//! * [`parse`] takes the front request off a buffer and answers with a [`Step`]; [`inline_args`] splits a line of
//!   words;
//! * [`lookup`] finds the [`Command`] of a name. The table of all commands is in `commands/`;
//! * [`compose`] appends replies to a buffer, and [`limits`] has every limit.

mod args;
mod command;
mod commands;
pub mod compose;
mod inline;
pub mod limits;
mod lookup;
mod parse;
mod slot;
mod syntax;

pub use args::{Args, decimal};
pub use command::{Command, Id, Keys, flags};
pub use commands::absence;
pub use compose::Version;
pub use inline::inline_args;
pub use lookup::{COUNT, all, command_of, lookup};
pub use parse::{Fault, Options, Resume, Step, Upload, parse};
pub use slot::{SLOTS, slot_of};
pub use syntax::{Argument, Kind, arguments};
