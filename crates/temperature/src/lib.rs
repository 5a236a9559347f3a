//! How warm a key is, and whether it was in the cache before.
//!
//! This crate knows hashes and bits, and nothing of items, columns or threads. The keeper owns one hitmap and one
//! ghost and is the only thread that uses them, so there are no atomics here.
//!
//! * [`Hitmap`] is the interface of every hitmap. [`LineHitmap`] and [`PublishedHitmap`] run on the CPU.
//! * [`DeviceHitmap`] is what a hitmap on a device offers in addition. The crate `larder-cuda` implements it, and
//!   [`ResilientHitmap`] falls back to the CPU when the device fails.
//! * [`Ghost`] remembers fingerprints of evicted keys. An [`Arm`] is a set of rules by which items stay or go.
//!   [`Shadows`] simulates small caches, one for each arm, to find out which rules fit the requests.

#![deny(unsafe_code)]

mod arm;
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

pub use arm::{Arm, Cooling, Return, Round, WARMTH_MAX};
pub use ghost::Ghost;
pub use hash_counter::{COUNTER_BITS_MIN, HASH_BITS_MAX, HashCounter};
pub use hitmap::{Answers, DeviceHitmap, Hitmap};
pub use line::LineHitmap;
pub use mix::mix;
pub use published::{LEVELS_MAX, PublishedHitmap, PublishedOptions};
pub use reference::{Digest, Reference};
pub use resilient::ResilientHitmap;
pub use shadows::{SHADOW_ITEMS_MAX, Shadows};
