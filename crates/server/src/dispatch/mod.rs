//! Bytes in, requests, bytes out: the only place that knows both the protocols and the cache.
//!
//! ```text
//!             dispatcher.rs             a worker's turn: the window, the cursor and the hints
//!            /             \
//!   memcached/             resp/        gather: bytes -> requests; execute: Request -> Operation, Outcome -> bytes
//!            \             /
//!    interpreter.rs   window.rs   cursor.rs   connection.rs
//!                   |
//!                execute/               Operation -> Outcome: waits for flash, streams large values, counts
//!                   |
//!   operation.rs  outcome.rs  output.rs  progress.rs
//! ```
//!
//! A request goes through four steps: parse, operation, outcome, reply. `memcached` and `resp` read a request as an
//! `Operation`, `execute` executes it, and the protocol words the `Outcome` into the connection's `Output`.

mod connection;
mod cursor;
mod databases;
mod decimal;
mod dispatcher;
mod execute;
mod fleet;
mod interpreter;
mod item_key;
pub mod live;
mod memcached;
mod news;
mod operation;
mod outcome;
mod output;
mod own_keys;
mod prefixes;
mod progress;
mod protocol;
mod request_log;
mod resp;
mod state;
mod users;
mod watch;
mod window;

pub use dispatcher::Dispatcher;
pub use resp::{Connection, Shared as RespShared};
pub use state::{Drivers, ServerState, ShutdownHook};
pub use users::{Access, Users};
pub(crate) use watch::WatchCounts;
