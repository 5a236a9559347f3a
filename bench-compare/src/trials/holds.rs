//! What of a part of the flash is found again after it was stored five times over, and what that cost.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::figures::{Figure, TrialFigures};
use super::stage::Stage;
use crate::exchange::{Exchange, STORE_DEPTH};
use crate::keys::{KeyPicker, Popularity};
use crate::servers::Process;
use crate::wire::{KEY_BYTES, ValueBytes};

/// How often as many items are stored as there are.
const ROUNDS: u32 = 5;
/// Bytes of keys and values stored in a second: less than any disk writes, so that the trial asks what is kept and not
/// what is too fast.
const BYTES_PER_S: f64 = 40e6;
/// The most items stored in a second, for the same reason: server, keeper and the threads of flash share one core.
const ITEMS_PER_S: f64 = 50e3;
/// Bytes that a record takes on flash beside its key and value.
const RECORD_MORE: f64 = 8.0;
/// Size of the flash at full scale, MiB.
const FLASH_MIB: f64 = 256.0;

/// Items that take a part of the flash, stored again and again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Holds {
    fill_percent: u32,
    popularity: Popularity,
    value_bytes: ValueBytes,
    flash_mib: u64,
}

impl Holds {
    /// Items of `bytes`, key included, from the shortest to the longest, that fill so much of 256 MiB times `scale`.
    /// The first round stores each once; the others choose by `popularity`.
    fn new(fill_percent: u32, popularity: Popularity, bytes: (u32, u32), scale: f64) -> Self {
        let key = KEY_BYTES as u32;
        let value_bytes = ValueBytes { min: bytes.0 - key, max: bytes.1 - key };
        Self { fill_percent, popularity, value_bytes, flash_mib: (FLASH_MIB * scale) as u64 }
    }

    /// Length of the values.
    pub(crate) fn value_bytes(&self) -> ValueBytes {
        self.value_bytes
    }

    /// Size of the flash, MiB.
    pub(crate) fn flash_mib(&self) -> u64 {
        self.flash_mib
    }

    /// How many items fill the part.
    fn items(&self) -> u32 {
        let each = self.payload_bytes() + RECORD_MORE;
        ((self.flash_mib << 20) as f64 * f64::from(self.fill_percent) / 100.0 / each) as u32
    }

    /// Mean length of key and value.
    fn payload_bytes(&self) -> f64 {
        KEY_BYTES as f64 + self.value_bytes.mean()
    }
}

/// Every combination: name, description, trial.
pub(crate) fn catalogue(scale: f64) -> Vec<(&'static str, &'static str, Holds)> {
    const SIZES: [(u32, u32); 3] = [(100, 100), (1_000, 1_000), (100, 2_000)];
    const ABOUT: [&str; 3] = [
        "items of 100 B that take a part of the flash, stored five times over: what is found",
        "items of 1 KB that take a part of the flash, stored five times over: what is found",
        "items of 100 B to 2 KB that take a part of the flash, stored five times over: what is found",
    ];
    const NAMES: [[&str; 6]; 3] = [
        [
            "flash-holds-100-50",
            "flash-holds-100-50-zipf",
            "flash-holds-100-70",
            "flash-holds-100-70-zipf",
            "flash-holds-100-80",
            "flash-holds-100-80-zipf",
        ],
        [
            "flash-holds-1k-50",
            "flash-holds-1k-50-zipf",
            "flash-holds-1k-70",
            "flash-holds-1k-70-zipf",
            "flash-holds-1k-80",
            "flash-holds-1k-80-zipf",
        ],
        [
            "flash-holds-mixed-50",
            "flash-holds-mixed-50-zipf",
            "flash-holds-mixed-70",
            "flash-holds-mixed-70-zipf",
            "flash-holds-mixed-80",
            "flash-holds-mixed-80-zipf",
        ],
    ];
    let laws =
        [50, 70, 80].map(|fill| [(fill, Popularity::Uniform), (fill, Popularity::Zipf(0.99))]).concat();
    let of_size = |at: usize| -> Vec<(&'static str, &'static str, Holds)> {
        let trial = |(name, (fill, law)): (&&'static str, &(u32, Popularity))| {
            (*name, ABOUT[at], Holds::new(*fill, *law, SIZES[at], scale))
        };
        NAMES[at].iter().zip(&laws).map(trial).collect()
    };
    (0..SIZES.len()).flat_map(of_size).collect()
}

/// Stores and reads.
pub(crate) fn run(holds: &Holds, stage: &Stage<'_>) -> Result<(TrialFigures, Process)> {
    let process = (stage.start)()?;
    let mut exchange = stage.visit(&process)?;
    let items = holds.items();
    let mut picker = KeyPicker::new(items, holds.popularity, 1);
    let refused = store(holds, &mut exchange, |at| if at < items { at } else { picker.pick() })?;
    let stored = Said::of(&mut exchange)?;
    let hits = found(&mut exchange, 0..items)?;
    let read = Said::of(&mut exchange)?;
    // Nobody has stored these.
    found(&mut exchange, items..2 * items)?;
    let missed = Said::of(&mut exchange)?;
    let mut figures = TrialFigures {
        requests: u64::from(items) * u64::from(ROUNDS),
        figures: vec![
            Figure::new("found %", Some(100.0 * hits as f64 / f64::from(items)), 3),
            Figure::new("ALWA", stored.number("alwa"), 2),
            Figure::new("reads a hit", read.reads_per_hit_since(&stored), 3),
            Figure::new("reads a miss", missed.reads_per_miss_since(&read), 3),
            Figure::new("DRAM an item, B", stored.number("index_bytes_per_item"), 2),
            Figure::new("live % of flash", stored.live_percent(), 1),
            Figure::new("shed", stored.number("demotions_shed"), 0),
            Figure::new("zones dropped", stored.zones_dropped(), 0),
        ],
        ..TrialFigures::default()
    };
    figures.note_refused(refused);
    Ok((figures, process))
}

/// Stores all rounds no faster than [`BYTES_PER_S`] and [`ITEMS_PER_S`]. `choose` says which item comes at a position.
/// Says how many were refused.
fn store(holds: &Holds, exchange: &mut Exchange<'_>, mut choose: impl FnMut(u32) -> u32) -> Result<u64> {
    let (began, all) = (Instant::now(), holds.items() * ROUNDS);
    let (mut refused, mut at) = (0, 0);
    let each_s = (holds.payload_bytes() / BYTES_PER_S).max(1.0 / ITEMS_PER_S);
    while at < all {
        let due = Duration::from_secs_f64(f64::from(at) * each_s);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        let batch: Vec<u32> = (at..all.min(at + STORE_DEPTH as u32)).map(&mut choose).collect();
        refused += exchange.set(&batch)?;
        at += batch.len() as u32;
    }
    Ok(refused)
}

/// How many of the keys a GET finds. A wrong value is an error.
fn found(exchange: &mut Exchange<'_>, ids: Range<u32>) -> Result<u64> {
    let (ids, mut hits): (Vec<u32>, u64) = (ids.collect(), 0);
    if ids.is_empty() {
        bail!("the flash is too small for one item");
    }
    for batch in ids.chunks(STORE_DEPTH) {
        hits += exchange.get(batch, &mut Vec::new())?;
    }
    Ok(hits)
}

/// What a server says of its flash; nothing from a server that has no such statistics.
struct Said(BTreeMap<String, String>);

impl Said {
    fn of(exchange: &mut Exchange<'_>) -> Result<Self> {
        Ok(Self(exchange.stats("stats flash")?))
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.parse().ok()
    }

    fn grown(&self, earlier: &Self, name: &str) -> Option<f64> {
        Some(self.number(name)? - earlier.number(name)?)
    }

    fn reads_per_hit_since(&self, earlier: &Self) -> Option<f64> {
        let grown = |name| self.grown(earlier, name);
        Some(grown("reads_for_hits")? / (grown("lookup_hits")? - grown("lookup_hits_in_buffers")?).max(1.0))
    }

    /// Per key that was asked for and is on no level, most of which no lookup on flash was made for.
    fn reads_per_miss_since(&self, earlier: &Self) -> Option<f64> {
        Some(self.grown(earlier, "reads_for_misses")? / self.grown(earlier, "lookup_misses")?.max(1.0))
    }

    fn live_percent(&self) -> Option<f64> {
        Some(100.0 * self.number("live_bytes")? / self.number("capacity_bytes")?)
    }

    fn zones_dropped(&self) -> Option<f64> {
        Some(self.number("quick_drops")? + self.number("drops_forced")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_trial_of_every_fill_law_and_size() {
        let all = catalogue(1.0);
        assert_eq!(all.len(), 18);
        for (name, _, trial) in &all {
            let fill = format!("-{}", trial.fill_percent);
            assert!(name.contains(&fill), "{name}: {fill}");
            assert_eq!(name.ends_with("-zipf"), trial.popularity != Popularity::Uniform, "{name}");
            assert_eq!(name.contains("-100-"), trial.value_bytes.max == 70, "{name}");
            let bytes = f64::from(trial.items()) * (trial.payload_bytes() + RECORD_MORE);
            let share = bytes / (256 << 20) as f64;
            assert!((share - f64::from(trial.fill_percent) / 100.0).abs() < 1e-3, "{name}: {share}");
        }
    }

    #[test]
    fn figures_come_from_what_the_server_says() {
        let said = |rows: &[(&str, &str)]| {
            Said(rows.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        let before =
            said(&[("reads_for_hits", "10"), ("lookup_hits", "10"), ("lookup_hits_in_buffers", "1")]);
        let after = said(&[("reads_for_hits", "31"), ("lookup_hits", "35"), ("lookup_hits_in_buffers", "6")]);
        assert_eq!(after.reads_per_hit_since(&before), Some(21.0 / 20.0));
        assert_eq!(after.reads_per_miss_since(&before), None);
        assert_eq!(said(&[]).zones_dropped(), None);
    }
}
