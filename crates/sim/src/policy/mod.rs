//! Eviction policies: reference implementations, each from its paper, on dense key numbers.
//!
//! ```text
//!   Policy <--- Framed (frame): looks up, resizes, keeps within the capacity
//!                  |  \--> Scheme: one per policy; which item goes where, and who leaves
//!                  \-----> Slots (slots): items and ghosts in one arena, linked into lists
//! ```
//!
//! A request for an item whose size has changed is a hit; others leave until it fits again, or itself if it
//! is the policy's choice. A size of 0 counts as 1.

mod arc;
mod clock;
mod frame;
mod heap;
mod hyperbolic;
mod lhd;
mod lhd_classes;
mod lirs;
mod lru;
mod random;
mod ranked;
mod redis;
mod s3_fifo;
mod segmented;
mod sketch;
mod slots;
#[cfg(test)]
mod tests;
mod tiny_lfu;
mod two_q;

use frame::Framed;

pub mod larder;

/// One request as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Dense number of the key: 0, 1, 2 ... in the order of first appearance.
    pub id: u32,
    /// What the item is charged for: 1 where items are counted, else octets. It may change from access to
    /// access.
    pub size: u32,
    /// Seconds since the trace began.
    pub time_s: u32,
    /// What a miss costs, in microseconds.
    pub penalty_us: u32,
    /// Ordinal of the next access to the key, `u64::MAX` = never; only where [`Policy::needs_next`] is true.
    pub next: u64,
}

/// A cache of bounded capacity that decides who leaves.
///
/// Capacity is in the unit of [`Access::size`]. An item larger than the capacity is never kept.
pub trait Policy: Send {
    /// Looks an item up; a miss puts it in, evicting as needed. Returns whether it was there.
    fn access(&mut self, access: &Access) -> bool;

    /// Whether the item is there; changes nothing.
    fn contains(&self, id: u32) -> bool;

    /// Removes an item (a delete, an expiry). Nothing happens if it is not there.
    fn remove(&mut self, id: u32);

    /// The sum of sizes of what is there; never above the capacity.
    fn used(&self) -> u64;

    /// How many items are there.
    fn items(&self) -> u64;

    /// Bits of bookkeeping per resident item that an implementation in a server needs, ghosts included, as
    /// its paper counts them; the index and the item are not counted.
    fn metadata_bits(&self) -> f64;

    /// Whether [`Access::next`] must be filled in (Belady).
    fn needs_next(&self) -> bool {
        false
    }
}

/// Two pointers of a list.
const LINKS_BITS: f64 = 128.0;

/// A key that is remembered by its digest.
const GHOST_KEY_BITS: f64 = 64.0;

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
    "sieve",
    "w-tinylfu",
    "lhd",
    "hyperbolic",
    "gdsf",
    "belady",
];

/// Builds a policy by name, with its usual parameters. `capacity` in the unit of [`Access::size`]; `seed` for
/// those that draw lots.
///
/// # Errors
/// An unknown name, with those that exist.
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
        "s3-fifo" => Box::new(Framed::new(capacity, s3_fifo::LISTS, s3_fifo::S3Fifo::default())),
        "sieve" => Box::new(Framed::new(capacity, clock::LISTS, clock::Sieve::default())),
        "w-tinylfu" => Box::new(Framed::new(capacity, tiny_lfu::LISTS, tiny_lfu::TinyLfu::new())),
        "lhd" => Box::new(Framed::new(capacity, 0, lhd::Lhd::new(capacity, seed))),
        "hyperbolic" => Box::new(Framed::new(capacity, 0, hyperbolic::Hyperbolic::new(seed))),
        "gdsf" => Box::new(Framed::new(capacity, 0, ranked::Gdsf::new())),
        "belady" => Box::new(Framed::new(capacity, 0, ranked::Belady::new())),
        _ => return Err(format!("there is no policy '{name}'; there are {}", NAMES.join(", "))),
    })
}
