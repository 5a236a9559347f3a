//! How warm a key is, and whether it was here before.
//!
//! This room knows hashes and bits, nothing of items, columns or threads. The cache owns one hitmap and one ghost, in
//! the keeper's hand; nobody else touches them, so there are no atomics here.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "what a driver in C is given and gives")]
mod cuda;
mod ghost;
mod hash_counter;
mod hitmap;
mod line;
mod mix;
#[allow(unsafe_code, reason = "a hint that cannot fault")]
mod prefetch;
mod published;
mod reference;
mod resilient;
mod shadows;

pub use cuda::{BatchTimes, CudaError, CudaHitmap, Layout, MemoryMode};
pub use ghost::Ghost;
pub use hash_counter::{COUNTER_BITS_MIN, HASH_BITS_MAX, HashCounter};
pub use hitmap::Hitmap;
pub use line::LineHitmap;
pub use mix::mix;
pub use published::{LEVELS_MAX, PublishedHitmap, PublishedOptions};
pub use reference::{Digest, Reference};
pub use resilient::Resilient;
pub use shadows::{SHADOW_ITEMS_MAX, Shadows};
