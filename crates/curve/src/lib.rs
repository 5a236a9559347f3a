//! Miss-ratio curves of LRU: what every size of a cache would miss, from one pass over its requests.
//!
//! * [`Stack`] computes the *stack distance* of a use: the bytes that were used since the key's last use, the key's own
//!   included. An LRU cache of at least that size has the key (Mattson et al., IBM Systems Journal 9(2), 1970).
//! * [`Histogram`] counts distances in bounded memory.
//! * [`Sampled`] follows a running cache: a sample of its keys, of fixed size (SHARDS: Waldspurger, Park, Garthwaite
//!   and Ahmad, FAST 2015).
//!
//! Goal: arithmetic, with no clock, thread or trace in it. Non-goal: another model than LRU.
#![forbid(unsafe_code)]

mod histogram;
pub mod mix;
mod sampled;
mod stack;

pub use histogram::Histogram;
pub use sampled::{Point, Sampled, SampledCurve, Use};
pub use stack::{Depth, Stack};
