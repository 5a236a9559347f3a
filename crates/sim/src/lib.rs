//! The workbench: what an operator decides with, a researcher compares with, and we judge our own work by.
//!
//! ```text
//!   trace, workload ---> source ---> simulate (policy)      hit ratios, side by side
//!     (a file)  (a law)    |   \---> slabs                  slab allocation, PAMA
//!                          |   \---> mrc ---> plan          curves, and what to buy
//!                          \-------> replay                 a real server under the same load
//!                                       \____ report        tables, SVG, one HTML file
//! ```
//!
//! Words: a [`Request`] is one line of a trace; a [`Source`] is anything that yields requests, a file or a workload;
//! a *workload* is a law that generates requests; a *policy* decides who leaves a cache that is full.
//!
//! Everything runs on the time of the trace: nothing here reads a clock, but for the replay, which drives real servers.
#![forbid(unsafe_code)]

mod mix;
pub mod mrc;
pub mod plan;
pub mod policy;
pub mod progress;
pub mod replay;
pub mod report;
mod request;
pub mod simulate;
pub mod slabs;
mod source;
pub mod trace;
pub mod workload;

pub use request::{Fields, Op, PENALTY_UNKNOWN_US, Request};
pub use source::{CHUNK_REQUESTS, Limited, Source, SourceError};
