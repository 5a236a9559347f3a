//! RESP2 and RESP3, the protocols of Redis and Valkey.
//!
//! * `item_requests` reads requests on items as operations, `compose` words their outcomes;
//! * `catalogue` answers `COMMAND`, `info` `INFO`, `config` `CONFIG`, `client_list` `CLIENT LIST`, `help` `... HELP`;
//! * `errors` has the errors, `glob` the patterns of keys;
//! * `session` is what a connection is in the middle of, `shared` what all workers share, `clients` who is connected.

pub(in crate::dispatch) mod catalogue;
pub(in crate::dispatch) mod client_list;
pub(in crate::dispatch) mod clients;
mod compose;
pub(in crate::dispatch) mod config;
pub(in crate::dispatch) mod errors;
pub(in crate::dispatch) mod glob;
pub(in crate::dispatch) mod help;
pub(in crate::dispatch) mod info;
mod item_requests;
pub(in crate::dispatch) mod session;
pub(in crate::dispatch) mod shared;

pub(in crate::dispatch) use compose::{Form, ValueReply, compose, say, say_error};
pub(in crate::dispatch) use item_requests::{Moment, database, each_operation, item_operation};
