//! The server: listeners, workers, connections, protocols, the admin endpoint.
//!
//! * [`settings`] is what the server is told before it starts;
//! * [`run`](run()) puts everything together, from the settings to the last closed connection;
//! * [`io`] moves bytes between sockets and an [`io::Service`], and never looks at them;
//! * [`dispatch`] is that service: it reads requests, executes them on the cache and words the replies;
//! * [`flash`] opens and closes the flash tier;
//! * [`admin`] shows over HTTP the numbers that `metrics`, `worth` and [`latency`] collect.
//!
//! The server does not decide which items stay in memory. The cache does.

pub mod admin;
mod compression;
mod cpus;
pub mod dispatch;
mod error;
pub mod flash;
pub mod io;
mod keep;
mod keys;
pub mod latency;
mod metrics;
mod own_process;
mod prefault;
mod run;
mod seldom;
pub mod settings;
mod sizing;
mod startup_warnings;
mod tls;
mod version;
mod worth;

pub use error::RunError;
pub use run::{doubts_of_start, problems_of_start, run};
