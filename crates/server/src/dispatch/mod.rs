//! Bytes in, requests, bytes out: the only place that knows both the protocols and the cache.
//!
//! ```text
//!             dispatcher.rs      a worker's turn: reads requests ahead, executes them in order
//!            /             \
//!  memcached/ resp/      execute/
//!   Request -> Operation   Operation -> Outcome     waits for flash, streams large values, counts
//!   Outcome -> bytes       knows no protocol
//!            \             /
//!      operation.rs  outcome.rs  output.rs  progress.rs
//! ```
//!
//! A request goes through four steps: parse, execute, outcome, compose. `memcached` and `resp` read a request as an
//! `Operation`, `execute` executes it, and the protocol's composer words the
//! `Outcome` into the connection's `Output`.

mod connection;
mod cursor;
mod decimal;
mod dispatcher;
mod execute;
mod fleet;
mod interpreter;
mod item_key;
pub mod live;
mod memcached;
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
pub use resp::Shared as RespShared;
pub use state::{Drivers, ServerState, ShutdownHook};
pub use users::{Access, Users};
pub(crate) use watch::WatchCounts;

/// One client's conversation, with what it keeps for RESP.
pub type Connection = connection::Connection<resp::Session>;
