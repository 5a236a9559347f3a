//! The workbench: simulation and replay of cache traffic. Operators use the workbench to choose memory sizes,
//! researchers to compare policies, and the tests of Larder to judge Larder itself.
//!
//! ```text
//!   trace, workload ---> source ---> simulate (policy)      hit ratios, side by side
//!     (a file)  (a law)    |   \---> mrc ---> plan          curves, and what to buy
//!                          \-------> replay                 a real server under the same load
//!   capture ---> trace                                       what the clients of a server ask for, told or in packets
//!                       live ---> plan                       what a running server knows of itself
//!                                       \____ report        tables, SVG, one HTML file
//! ```
//!
//! Words: a [`Request`] is one line of a trace. A [`Source`] yields requests; it is a trace file or a workload. A
//! *workload* is a law that generates requests, such as Zipf's. A *policy* decides which items a full cache evicts.
//!
//! Everything except `replay`, `live`, `capture` and `progress` runs on the time of the trace and reads no clock.
//! `replay` drives a real server and therefore runs on the time of the machine.
#![forbid(unsafe_code)]

pub mod capture;
pub mod compressible;
pub mod live;
mod mix;
pub mod mrc;
pub mod plan;
pub mod policy;
pub mod progress;
pub mod replay;
pub mod report;
mod request;
pub mod simulate;
mod source;
pub mod trace;
pub mod workload;

pub use request::{Fields, Op, PENALTY_UNKNOWN_US, Request};
pub use source::{CHUNK_REQUESTS, Limited, Source, SourceError, Stoppable};
