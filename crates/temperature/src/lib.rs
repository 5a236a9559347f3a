//! How warm a key is, and whether it was here before.
//!
//! This room knows hashes and bits, nothing of items, columns or threads. The cache owns one hitmap and one ghost, in
//! the keeper's hand; nobody else touches them, so there are no atomics here.

mod hitmap;
mod reference;

pub use hitmap::Hitmap;
pub use reference::{Digest, Reference};
