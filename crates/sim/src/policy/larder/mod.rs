//! Larder's own policies, run by the server's own code.
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

mod columns;
mod real;

pub use real::{LIMIT_BYTES_MIN, RealCache, RealItem};

use super::interface::Policy;
use columns::Columns;
use larder_cache::{Temperature, TemperatureKind};

/// The name in a report of Larder with its default policy.
pub const NAME: &str = "larder";

/// The names of Larder's policies.
const KINDS: [(&str, TemperatureKind); 4] = [
    (NAME, TemperatureKind::Entry),
    ("larder-hitmap", TemperatureKind::Hitmap),
    ("larder-hitmap-published", TemperatureKind::HitmapPublished),
    ("larder-off", TemperatureKind::Off),
];

/// The names of Larder's policies.
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(name, _)| *name)
}

/// The policy with this name.
pub fn kind(name: &str) -> Option<TemperatureKind> {
    KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

/// A model for `capacity` items; `seed` starts the random numbers of policies that sample.
///
/// # Errors
/// A capacity of 2^31 items or more.
pub fn build(kind: TemperatureKind, capacity: u64, seed: u64) -> Result<Box<dyn Policy>, String> {
    Ok(Box::new(Columns::new(countable(capacity)?, kind, seed)))
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
