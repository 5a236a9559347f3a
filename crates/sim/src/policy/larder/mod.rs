//! Larder's own policy, by the product's own code.
//!
//! * Where items are counted, [`build`] gives a model at the granularity of items: the cache's own policy
//!   ([`larder_cache::Temperature`]) decides over columns of items, with the warmth that the index keeps.
//!   Columns hold a thousandth of the capacity each, 1 to 512 items; with the published hitmap they hold one, as in
//!   its paper. Dead items hold their place until their column goes, as in the product. An overwrite counts
//!   as a read and stays in place. There is no reserve of free columns: the capacity is all used.
//! * Where octets are counted, [`RealCache`] is the cache itself, with one worker: real items, real memory,
//!   the trace's time. The size is `-m`: index, column bookkeeping and the share set aside for connection
//!   buffers (a sixteenth, at least 4 MiB) are inside it, and so is every header.

mod columns;
mod real;

pub use real::{LIMIT_BYTES_MIN, RealCache, RealItem};

use super::interface::Policy;
use columns::Columns;
use larder_cache::{Temperature, TemperatureKind};

/// The name of the product with its default policy in a report.
pub const NAME: &str = "larder";

/// The names of the product's policies, and what each is.
const KINDS: [(&str, TemperatureKind); 4] = [
    (NAME, TemperatureKind::Entry),
    ("larder-hitmap", TemperatureKind::Hitmap),
    ("larder-hitmap-published", TemperatureKind::HitmapPublished),
    ("larder-off", TemperatureKind::Off),
];

/// The names of the product's policies.
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(name, _)| *name)
}

/// The policy of the product with this name.
pub fn kind(name: &str) -> Option<TemperatureKind> {
    KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

/// The model for `capacity` items; `seed` for those that draw lots.
///
/// # Errors
/// A capacity beyond 2^31 items.
pub fn build(kind: TemperatureKind, capacity: u64, seed: u64) -> Result<Box<dyn Policy>, String> {
    Ok(Box::new(Columns::new(countable(capacity)?, kind, seed)))
}

/// A model over columns of one item each, with a policy made by whoever asks. `batch` references reach it together; `None`
/// = as many as with [`build`], a half per cent of the capacity and 1024 at most.
///
/// # Errors
/// A capacity beyond 2^31 items.
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

/// The capacity of a model.
fn countable(capacity: u64) -> Result<u32, String> {
    match u32::try_from(capacity) {
        Ok(capacity) if capacity < 1 << 31 => Ok(capacity.max(1)),
        _ => Err(format!("larder: {capacity} items are too many: 2147483647 at most")),
    }
}
