//! TLS below the service: handshakes on threads of their own, then records in and out in the connection's worker.
//!
//! ```text
//!   accept -> handshakes.rs -> desk.rs (threads tls-0, ..) -> worker: link.rs <-> session.rs -> records.rs
//!                                      \-> kernel.rs: the kernel encrypts, and the link knows nothing of it
//! ```
//!
//! A worker never sees a connection before its handshake is done. So a storm of handshakes, with the signature that
//! each costs, takes the time of the threads that do handshakes, which the system gives less of than workers get.

mod desk;
mod handshakes;
mod kernel;
mod records;
mod session;

pub(super) use desk::run;
pub(super) use handshakes::Handshakes;
pub(super) use records::Stage;
pub(crate) use session::SESSION_BYTES;
pub(super) use session::Session;
