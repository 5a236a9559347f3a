//! The server: listeners, workers, connections, dispatch, the admin endpoint.
//!
//! * `io` moves bytes between sockets and a [`io::Service`];
//! * `dispatch` is that service: the one place that knows both the protocol and the cache;
//! * `admin` shows the numbers over HTTP;
//! * [`run`] puts them together from [`settings::Settings`].
//!
//! Nothing here decides who deserves room: that is the cache's.

pub mod admin;
pub mod dispatch;
mod error;
pub mod flash;
pub mod io;
pub mod latency;
mod metrics;
mod prefault;
mod run;
pub mod settings;

pub use error::RunError;
pub use run::run;

/// What `version` answers: the memcached release whose behaviour is followed, for clients that look at it, then our own.
pub const VERSION_SHOWN: &str = concat!("1.6.45-larder-", env!("CARGO_PKG_VERSION"));
