//! TLS below the service: what a connection's bytes become behind the handshake.
//!
//! ```text
//!   accept -> handshakes.rs -> handshake_thread.rs (threads tls-0, ..) -> worker: link.rs <-> session.rs -> records.rs
//!                                      \-> kernel.rs: the kernel encrypts, and the link knows nothing of it
//! ```
//!
//! A worker never sees a connection before its handshake is done. So a storm of handshakes, with the signature that
//! each costs, takes the time of the threads that do handshakes, which the system gives less of than workers get.

mod kernel;
pub(super) mod records;
mod session;

pub(super) use kernel::Kernel;
pub(super) use records::Stage;
pub(crate) use session::SESSION_BYTES;
pub(super) use session::Session;
