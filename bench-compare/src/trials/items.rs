//! How many small items a server keeps in its memory: far more are stored than fit, and all of them are asked for.

use std::time::Duration;

use anyhow::{Result, bail};

use super::figures::{Figure, TrialFigures};
use super::stage::Stage;
use crate::exchange::STORE_DEPTH;
use crate::procfs;
use crate::servers::Process;
use crate::wire::{KEY_BYTES, ValueBytes};

/// Bytes of a value.
const VALUE_BYTES: u32 = 64;
/// Bytes of key and value for each byte of the limit: well beyond it, whatever a server needs besides.
const TIMES_STORED: f64 = 3.0;
/// Maximum time for a server to become idle after all items were stored.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(10);

/// Items of one size, stored once each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Items {
    limit_bytes: f64,
}

impl Items {
    /// Items for a limit of 64 MiB times `scale`.
    pub(crate) fn new(scale: f64) -> Self {
        Self { limit_bytes: f64::from(64 << 20) * scale }
    }

    /// Length of the values.
    pub(crate) fn value_bytes(&self) -> ValueBytes {
        ValueBytes::fixed(VALUE_BYTES)
    }

    fn stored(&self) -> u32 {
        (TIMES_STORED * self.limit_bytes / payload_bytes()) as u32
    }

    /// What an item takes of the limit beyond its key and value.
    fn beyond_payload(&self, kept: u64) -> f64 {
        self.limit_bytes / kept as f64 - payload_bytes()
    }
}

/// Length of key and value.
fn payload_bytes() -> f64 {
    KEY_BYTES as f64 + f64::from(VALUE_BYTES)
}

/// Stores all items and counts those that are still there.
pub(crate) fn run(items: &Items, stage: &Stage<'_>) -> Result<(TrialFigures, Process)> {
    let process = (stage.start)()?;
    let mut exchange = stage.visit(&process)?;
    let ids: Vec<u32> = (0..items.stored()).collect();
    let mut refused = 0;
    for batch in ids.chunks(STORE_DEPTH) {
        refused += exchange.set(batch)?;
    }
    let settled = process.settle(SETTLE_TIME_MAX)?;
    let counted = exchange.items().ok();
    let mut kept = 0;
    for batch in ids.chunks(STORE_DEPTH) {
        kept += exchange.get(batch, &mut Vec::new())?;
    }
    if kept == 0 {
        bail!("nothing is left of {} items", ids.len());
    }
    if kept == ids.len() as u64 {
        bail!("all of {} items are there: the limit had no effect", ids.len());
    }
    let resident_mib = procfs::resident_bytes(process.pid())? as f64 / f64::from(1 << 20);
    let mut figures = TrialFigures {
        requests: ids.len() as u64,
        figures: vec![
            Figure::compared("items kept", Some(kept as f64), 0),
            Figure::new("items it counts", counted.map(|count| count as f64), 0),
            Figure::new("limit beyond payload, B/item", Some(items.beyond_payload(kept)), 1),
            Figure::new("RSS, MiB", Some(resident_mib), 1),
        ],
        ..TrialFigures::default()
    };
    figures.note_refused(refused);
    if !settled {
        figures.notes.push("still tidying up when the items were counted".to_owned());
    }
    Ok((figures, process))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_stored_than_any_server_can_keep() {
        let items = Items::new(0.125);
        let bytes = f64::from(items.stored()) * payload_bytes();
        assert!(bytes > 2.9 * items.limit_bytes, "{bytes}");
        let all = (items.limit_bytes / payload_bytes()) as u64;
        assert!(items.beyond_payload(all).abs() < 0.01);
        assert!((items.beyond_payload(all / 2) - payload_bytes()).abs() < 0.1);
    }
}
