//! Miss-ratio curves of LRU in one pass: exact (a tree of stack distances) and sampled (SHARDS).
//!
//! ```text
//!   Source ---> Analysis ---> [filter by hash]  ---> Stack      who lies above whom: distances
//!               (ops)          only where sampled \-> Histogram  how often which distance
//!                                                       \------> Curve: misses by cache size
//! ```
//!
//! Mattson et al. (IBM Systems Journal 9(2), 1970): under LRU a read hits in every cache that is larger than
//! the sum of the items touched since the item's last touch, the item itself included: its *stack distance*.
//! One pass that knows all distances knows the misses of all cache sizes.
//!
//! What is modelled: LRU in one list over all items; a miss is filled at once with the item the trace speaks
//! of. What is not: expiry, slab classes, and items that are refused because they are larger than the whole
//! cache (such an item empties a small cache here).

mod analysis;
mod curve;
mod histogram;
mod stack;
#[cfg(test)]
mod tests;

pub use analysis::{Analysis, Method, OpRule, Settings, analyse, curves};
pub use curve::{Curve, CurveError, Deviation, Point, Unit, to_json};
