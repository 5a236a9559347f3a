//! Miss penalties: what a miss of a key cost its client.
//!
//! The source is PAMA (section III, and the estimates of section IV). What a store knows of the penalty comes from the
//! first of these that has an answer:
//!
//! 1. the client's own word ([`crate::Store::penalty`]);
//! 2. the time since a GET missed the key, from the table of outstanding misses (`misses.rs`);
//! 3. the item that the store replaces, which remembers its subclass (`remembered.rs`);
//! 4. other keys of the same prefix (`prefixes.rs`);
//! 5. nothing: then the item is judged by the median of all penalties so far, and before the first one as an item of
//!    100 ms ([`Subclass::UNKNOWN`](larder_allocation::Subclass::UNKNOWN)).
//!
//! No part of this takes a lock, and all of it is lossy. Both tables are bounded and inside the memory limit.

mod misses;
mod prefixes;
mod remembered;
mod word;

pub(crate) use misses::Noted;
pub(crate) use remembered::{remembered, with_penalty};

use crate::counters::Counters;
use larder_allocation::{CostSkill, Subclass};
use larder_item::KeyHash;
use misses::{Misses, Outstanding, TIME_US_MIN};
use prefixes::{PREFIXES_BYTES, Prefixes};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The table of outstanding misses takes one part in 2,048 of the memory limit, within the two bounds below: at 64 MiB
/// it holds 4,096 misses, from 1 GiB on 65,536.
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

/// What a store of a client says of the penalty: the client stated it, or a miss of the key is outstanding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Price {
    stated: Option<Subclass>,
    outstanding: Option<Outstanding>,
}

impl Price {
    /// The subclass that was stated or measured. `None`: the gap was too long.
    #[inline]
    pub(crate) fn subclass(&self) -> Option<Subclass> {
        self.stated.or_else(|| self.outstanding?.gap_us.map(Subclass::of_us))
    }
}

impl Penalties {
    /// The bytes that the tables take under a memory limit.
    pub(crate) fn bytes_for(limit_bytes: u64) -> u64 {
        Penalties::misses_bytes(limit_bytes) + PREFIXES_BYTES + CostSkill::BYTES
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
    pub(crate) fn note_miss(&self, hash: KeyHash, now_us: u64) -> Noted {
        self.misses.note(hash, now_us)
    }

    /// Whether a miss of the key may be outstanding. If not, [`Penalties::price`] finds no gap.
    #[inline]
    pub(crate) fn may_be_outstanding(&self, hash: KeyHash) -> bool {
        self.misses.may_hold(hash)
    }

    /// What is known of the penalty of a store that came at `came_us`; 0 = the time is not known. `None`: nothing is,
    /// before the key is looked up.
    pub(crate) fn price(&self, hash: KeyHash, stated: Option<Subclass>, came_us: u64) -> Option<Price> {
        let outstanding = if came_us == 0 { None } else { self.misses.find(hash, came_us) };
        (stated.is_some() || outstanding.is_some()).then_some(Price { stated, outstanding })
    }

    /// Whether [`Penalties::estimate`] may have an answer for some key.
    #[inline]
    pub(crate) fn estimates(&self) -> bool {
        self.prefixes.knows()
    }

    /// An estimate for a key of which nothing better is known.
    pub(crate) fn estimate(&self, key: &[u8]) -> Option<Subclass> {
        self.prefixes.estimate(key)
    }

    /// About once a second or more often: `now_s` is the time of the cache's clock.
    pub(crate) fn tick(&self, now_s: u32) {
        self.misses.tick(now_s);
    }

    /// The store of this price went through: its miss is over, and its prefix learns. Returns what the miss cost, and
    /// whether the client has said so; `None` if that is not known, or nothing is to be measured.
    #[inline(never)]
    pub(crate) fn settle(&self, price: &Price, key: &[u8], counters: &Counters) -> Option<(Subclass, bool)> {
        let is_mine = price.outstanding.is_some_and(|found| self.misses.take(&found));
        if let Some(subclass) = price.stated {
            if self.is_on() {
                self.prefixes.learn(key, subclass.typical_us());
            }
            counters.penalties_stated.add(1);
            count(counters, subclass);
            self.is_on().then_some((subclass, true))
        } else if is_mine {
            let Some(gap_us) = price.outstanding.and_then(|found| found.gap_us) else {
                counters.penalties_discarded.add(1);
                return None;
            };
            self.prefixes.learn(key, gap_us);
            counters.penalties_measured.add(1);
            counters.penalties_measured_us.add(gap_us.into());
            let subclass = Subclass::of_us(gap_us);
            count(counters, subclass);
            Some((subclass, false))
        } else {
            None
        }
    }
}

/// Counts a penalty of this subclass.
fn count(counters: &Counters, subclass: Subclass) {
    counters.penalties()[subclass.number()].add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_a_small_part_of_the_limit() {
        for limit_mib in [8u64, 64, 1024, 1 << 20] {
            let bytes = Penalties::bytes_for(limit_mib << 20);
            assert!(bytes * 180 <= limit_mib << 20, "{bytes} B of {limit_mib} MiB");
        }
    }
}
