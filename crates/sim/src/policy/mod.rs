//! Eviction policies: reference implementations, each from its paper.
//!
//! ```text
//!   Policy <--- Framed (frame): looks up, resizes, keeps within the capacity
//!                  |  \--> Scheme: one per policy; decides list positions and victims
//!                  \-----> Slots (slots): items and ghosts in one arena, linked into lists
//! ```
//!
//! Keys are dense numbers. An access to an item whose size has changed is a hit. If the item grew, the policy then
//! evicts items until the cache is within its capacity; the victim may be the item itself. A size of 0 counts as 1.
//!
//! `examples/own_policy/main.rs` is a policy outside this crate: a [`Scheme`] in its frame. A policy that keeps its
//! items in another way implements [`Policy`].

mod arc;
mod clock;
mod frame;
mod heap;
mod hyperbolic;
mod interface;
mod lhd;
mod lhd_classes;
mod lirs;
mod lru;
mod ranked;
mod redis;
mod s3_fifo;
mod sample_set;
mod segmented;
mod sketch;
mod slots;
#[cfg(test)]
mod tests;
mod tiny_lfu;
mod two_q;

pub use frame::{Framed, Scheme};
pub use interface::{Access, Policy};
pub use slots::Slots;

pub mod larder;

/// The names that [`build`] knows, in the order of a report.
pub const NAMES: &[&str] = &[
    "lru",
    "fifo",
    "clock",
    "redis-lru",
    "segmented-lru",
    "slru",
    "2q",
    "arc",
    "lirs",
    "lfu",
    "s3-fifo",
    "clock2q+",
    "sieve",
    "w-tinylfu",
    "lhd",
    "hyperbolic",
    "gdsf",
    "belady",
];

/// Builds a policy by name, with the parameters of its paper. `capacity` is in the unit of [`Access::size`]; `seed`
/// starts the random numbers of policies that sample.
///
/// # Errors
/// An unknown name; the error lists the known names.
pub fn build(name: &str, capacity: u64, seed: u64) -> Result<Box<dyn Policy>, String> {
    Ok(match name {
        "lru" => Box::new(Framed::new(capacity, lru::LISTS, lru::Lru)),
        "fifo" => Box::new(Framed::new(capacity, lru::LISTS, lru::Fifo)),
        "clock" => Box::new(Framed::new(capacity, clock::LISTS, clock::Clock)),
        "redis-lru" => Box::new(Framed::new(capacity, 0, redis::RedisLru::new(seed))),
        "segmented-lru" => {
            let scheme = segmented::SegmentedLru::default();
            Box::new(Framed::new(capacity, segmented::HOT_WARM_COLD, scheme))
        }
        "slru" => Box::new(Framed::new(capacity, segmented::SEGMENTS, segmented::Slru)),
        "2q" => Box::new(Framed::new(capacity, two_q::LISTS, two_q::TwoQ)),
        "arc" => Box::new(Framed::new(capacity, arc::LISTS, arc::Arc::default())),
        "lirs" => Box::new(Framed::new(capacity, lirs::LISTS, lirs::Lirs::new())),
        "lfu" => Box::new(Framed::new(capacity, 0, ranked::Lfu::new())),
        "s3-fifo" => Box::new(Framed::new(capacity, s3_fifo::LISTS, s3_fifo::S3Fifo::new())),
        "clock2q+" => Box::new(Framed::new(capacity, s3_fifo::LISTS, s3_fifo::S3Fifo::clock2q_plus())),
        "sieve" => Box::new(Framed::new(capacity, clock::LISTS, clock::Sieve::default())),
        "w-tinylfu" => Box::new(Framed::new(capacity, tiny_lfu::LISTS, tiny_lfu::TinyLfu::new())),
        "lhd" => Box::new(Framed::new(capacity, 0, lhd::Lhd::new(capacity, seed))),
        "hyperbolic" => Box::new(Framed::new(capacity, 0, hyperbolic::Hyperbolic::new(seed))),
        "gdsf" => Box::new(Framed::new(capacity, 0, ranked::Gdsf::new())),
        "belady" => Box::new(Framed::new(capacity, 0, ranked::Belady::new())),
        _ => return Err(format!("there is no policy '{name}'; there are {}", NAMES.join(", "))),
    })
}
