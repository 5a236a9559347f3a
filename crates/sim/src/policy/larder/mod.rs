//! Larder's own policies, run by the server's own code.
//!
//! Worth counts as in the server: the penalty of an access is that of the item which it stores.
//!
//! * Where caches are measured in items, [`build`] gives a model of columns. The server's policy
//!   ([`larder_cache::Temperature`]) decides over columns of items, with the warmth bits of the index. A column holds
//!   a thousandth of the capacity, from 1 to 512 items; with the published hitmap a column holds one item, as in its
//!   paper. As in the server, a dead item occupies its position until its column is reclaimed. Unlike in the server,
//!   an overwrite counts as a read and keeps its position, and there is no reserve of free columns: the whole
//!   capacity is used.
//! * Where caches are measured in bytes, [`RealCache`] is the server's cache with one worker: real items in real
//!   memory, on the time of the trace. The size is the server's `-m`. It includes the index, the bookkeeping of
//!   columns, the headers of items, and the share for connection buffers (a sixteenth, at least 4 MiB).
//!   It may have the server's flash tier behind it, and shrink values as a server that compresses does.

mod columns;
mod real;
mod second_level;

pub use real::{COMPRESS_RATIOS, LIMIT_BYTES_MIN, RealCache, RealItem, RealOptions};
pub use second_level::{FLASH_BYTES_MIN, FlashCounts};

use super::interface::Policy;
use columns::Columns;
use larder_cache::{Temperature, TemperatureKind, WorthMode, WorthOptions};

/// The name in a report of Larder with its default policy.
pub const NAME: &str = "larder";

/// One of Larder's policies.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// How the cache knows which items are warm.
    pub temperature: TemperatureKind,
    /// What the worth of an item is made of.
    pub worth: WorthOptions,
}

impl From<TemperatureKind> for Variant {
    /// The policy with the server's default worth.
    fn from(temperature: TemperatureKind) -> Variant {
        Variant { temperature, worth: WorthOptions::default() }
    }
}

/// Larder's policies by name: how each knows which items are warm, and what their worth is made of.
const VARIANTS: [(&str, &str, WorthMode); 7] = [
    (NAME, "entry", WorthMode::Auto),
    ("larder-penalty", "entry", WorthMode::Penalty),
    ("larder-hits", "entry", WorthMode::Hits),
    ("larder-static", "entry", WorthMode::Static),
    ("larder-hitmap", "hitmap", WorthMode::Auto),
    ("larder-hitmap-published", "hitmap-published", WorthMode::Auto),
    ("larder-off", "off", WorthMode::Auto),
];

/// The names of Larder's policies.
pub fn names() -> impl Iterator<Item = &'static str> {
    VARIANTS.iter().map(|(name, ..)| *name)
}

/// The policy with this name, with the server's default objective.
pub fn variant(name: &str) -> Option<Variant> {
    let (_, temperature, mode) = *VARIANTS.iter().find(|(known, ..)| *known == name)?;
    let temperature = TemperatureKind::named(temperature)?;
    Some(Variant { temperature, worth: WorthOptions { mode, ..WorthOptions::default() } })
}

/// A model for `capacity` items; `seed` starts the random numbers of policies that sample.
///
/// # Errors
/// A capacity of 2^31 items or more.
pub fn build(variant: impl Into<Variant>, capacity: u64, seed: u64) -> Result<Box<dyn Policy>, String> {
    Ok(Box::new(Columns::new(countable(capacity)?, variant.into(), seed)))
}

/// A model over columns of one item each, with a policy supplied by the caller. The policy gets access records in
/// batches of `batch`; `None` = as many as with [`build`]: half a percent of the capacity, at most 1024.
///
/// # Errors
/// A capacity of 2^31 items or more.
pub fn build_items(
    temperature: Box<dyn Temperature>,
    capacity: u64,
    batch: Option<usize>,
    seed: u64,
) -> Result<Box<dyn Policy>, String> {
    let capacity = countable(capacity)?;
    let batch = batch.unwrap_or(columns::batch_for(capacity)).max(1);
    Ok(Box::new(Columns::of(temperature, capacity, 1, batch, seed)))
}

/// Checks the capacity of a model.
fn countable(capacity: u64) -> Result<u32, String> {
    match u32::try_from(capacity) {
        Ok(capacity) if capacity < 1 << 31 => Ok(capacity.max(1)),
        _ => Err(format!("larder: {capacity} items are too many: 2147483647 at most")),
    }
}
