//! The integration tests of this crate, in one program: linking it is most of the time that a test costs.

#[macro_use]
mod io_support;

mod admin;
mod dispatch_binary;
mod dispatch_random_key;
#[path = "../dispatch_support/mod.rs"]
mod dispatch_support;
mod dispatch_transcripts;
mod dispatch_turns;
mod io_limits;
mod io_streams;
mod io_waiting;
mod worth;
