//! Miss-ratio curves of LRU in one pass: exact (a tree of stack distances) or sampled (SHARDS).
//!
//! ```text
//!   Source ---> Analysis ---> [filter by hash]  ---> Stack      stack distances
//!               (ops)          only if sampled  \-> Histogram  frequency of each distance
//!                                                       \------> Curve: misses by cache size
//! ```
//!
//! The *stack distance* of a read is the total size of the items touched since the read item's last touch, including
//! that item. Under LRU a read hits in every cache that is at least as large as its stack distance (Mattson et al.,
//! IBM Systems Journal 9(2), 1970). One pass that computes all distances therefore gives the misses of all cache
//! sizes.
//!
//! The model is LRU in one list over all items. A miss stores the item at once. The model leaves out expiry, slab
//! classes, and the refusal of items larger than the whole cache (such an item empties a small cache here).

mod analysis;
mod curve;
#[cfg(test)]
mod tests;

pub use analysis::{Analysis, Method, OpRule, Settings, analyse, curves};
pub use curve::{Curve, CurveError, Deviation, Point, Unit, to_json};
