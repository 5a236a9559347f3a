//! Miss penalties: what a miss of a key cost its client.
//!
//! The source is PAMA (section III, and the estimates of section IV). What a store knows of the penalty comes from the
//! first of these that has an answer:
//!
//! 1. the client's own word ([`crate::Store::penalty`]);
//! 2. the time since a GET missed the key, from the table of outstanding misses (`misses.rs`);
//! 3. the item that the store replaces, which remembers its subclass (`remembered.rs`);
//! 4. other keys of the same prefix (`prefixes.rs`);
//! 5. nothing: then the item counts as one of 100 ms ([`Subclass::UNKNOWN`](larder_allocation::Subclass::UNKNOWN)).
//!
//! No part of this takes a lock, and all of it is lossy. Both tables are bounded and inside the memory limit.

mod misses;
mod prefixes;
mod remembered;
mod word;

pub(crate) use remembered::{remembered, with_penalty};

use crate::counters::Counters;
use larder_allocation::Subclass;
use larder_item::KeyHash;
use misses::{Misses, Noted, Outstanding, TIME_US_MIN};
use prefixes::{PREFIXES_BYTES, Prefixes};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The table of outstanding misses takes one part in so many of the memory limit, within the two bounds below: at 64
/// MiB it holds 4,096 misses, from 1 GiB on 65,536.
const MISSES_SHARE: u64 = 2048;
const MISSES_BYTES_MIN: u64 = 4 << 10;
const MISSES_BYTES_MAX: u64 = 512 << 10;

/// What the cache knows of penalties beside what its items remember.
pub(crate) struct Penalties {
    /// Whether penalties are measured and estimated now.
    is_on: AtomicBool,
    started: Instant,
    misses: Misses<AtomicU64>,
    prefixes: Prefixes<AtomicU64>,
}

/// How the penalty of a store became known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// The client stated it.
    Stated(Subclass),
    /// A client stores, and states nothing.
    Store,
    /// The record takes the place of an item that changes, or of a value that is still to come.
    Item,
}

/// What is known of a store's penalty before its key is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Price {
    source: Source,
    outstanding: Option<Outstanding>,
}

impl Price {
    /// The subclass that was stated or measured.
    #[inline]
    pub(crate) fn subclass(&self) -> Option<Subclass> {
        match self.source {
            Source::Stated(subclass) => Some(subclass),
            _ => self.outstanding.and_then(|found| found.gap_us).map(Subclass::of_us),
        }
    }
}

impl Penalties {
    /// The bytes that the tables take under a memory limit.
    pub(crate) fn bytes_for(limit_bytes: u64) -> u64 {
        Penalties::misses_bytes(limit_bytes) + PREFIXES_BYTES
    }

    fn misses_bytes(limit_bytes: u64) -> u64 {
        (limit_bytes / MISSES_SHARE).clamp(MISSES_BYTES_MIN, MISSES_BYTES_MAX)
    }

    /// Tables that know nothing.
    pub(crate) fn new(limit_bytes: u64, is_on: bool, delimiter: u8) -> Penalties {
        Penalties {
            is_on: AtomicBool::new(is_on),
            started: Instant::now(),
            misses: Misses::new(Penalties::misses_bytes(limit_bytes)),
            prefixes: Prefixes::new(delimiter),
        }
    }

    /// Whether penalties are measured and estimated now.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Begins or stops to measure and to estimate penalties. What items remember stays.
    pub(crate) fn turn(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// The moment `now` in microseconds, never 0.
    pub(crate) fn us_at(&self, now: Instant) -> u64 {
        TIME_US_MIN + now.saturating_duration_since(self.started).as_micros() as u64
    }

    /// A GET missed the key at `now_us`.
    #[inline]
    pub(crate) fn note_miss(&self, hash: KeyHash, now_us: u64, counters: &Counters) {
        if self.misses.note(hash, now_us) == Noted::Forgotten {
            counters.misses_forgotten.add(1);
        }
    }

    /// What is known of the penalty of a store that came at `came_us`; 0 = the time is not known.
    #[inline]
    pub(crate) fn price(&self, hash: KeyHash, source: Source, came_us: u64) -> Price {
        let outstanding = if came_us == 0 { None } else { self.misses.find(hash, came_us) };
        Price { source, outstanding }
    }

    /// An estimate for a key of which nothing better is known.
    #[inline]
    pub(crate) fn estimate(&self, key: &[u8]) -> Option<Subclass> {
        self.prefixes.estimate(key)
    }

    /// The store of this price went through: its miss is over, and its prefix learns.
    #[inline]
    pub(crate) fn settle(&self, price: &Price, key: &[u8], counters: &Counters) {
        if price.outstanding.is_some() || matches!(price.source, Source::Stated(_)) {
            self.learn(price, key, counters);
        }
    }

    #[inline(never)]
    fn learn(&self, price: &Price, key: &[u8], counters: &Counters) {
        let is_mine = price.outstanding.is_some_and(|found| self.misses.take(&found));
        match price.source {
            Source::Stated(subclass) => {
                if self.is_on() {
                    self.prefixes.learn(key, subclass.typical_us());
                }
                counters.penalties_stated.add(1);
                count(counters, subclass);
            }
            Source::Store if is_mine => {
                let Some(gap_us) = price.outstanding.and_then(|found| found.gap_us) else {
                    return counters.penalties_discarded.add(1);
                };
                self.prefixes.learn(key, gap_us);
                counters.penalties_measured.add(1);
                counters.penalties_measured_us.add(gap_us.into());
                count(counters, Subclass::of_us(gap_us));
            }
            Source::Store | Source::Item => {}
        }
    }
}

/// Counts a penalty of this subclass.
fn count(counters: &Counters, subclass: Subclass) {
    let by_subclass: [_; Subclass::COUNT] = [
        &counters.penalties_to_1_ms,
        &counters.penalties_to_10_ms,
        &counters.penalties_to_100_ms,
        &counters.penalties_to_1_s,
        &counters.penalties_to_5_s,
    ];
    by_subclass[subclass.number()].add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_a_small_part_of_the_limit() {
        for limit_mib in [8u64, 64, 1024, 1 << 20] {
            let bytes = Penalties::bytes_for(limit_mib << 20);
            assert!(bytes * 500 <= limit_mib << 20, "{bytes} B of {limit_mib} MiB");
        }
    }
}
