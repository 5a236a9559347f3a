//! How much fresh memory is taken from the machine ahead of the writers: as much as they took in the last moments.
//!
//! The kernel fills a page with zeros when it is first touched. A writer should not wait for that, so the keeper
//! touches memory ahead. But memory that nobody is about to write must not be taken: a cache of a few items takes
//! little. So the keeper looks in each round how many columns the writers have taken that no one had used before.

use crate::item_store::ItemStore;
use larder_memory::FreshPages;
use std::time::{Duration, Instant};

/// The keeper is ahead by what the writers take in this time: its period, in which it may be late.
const AHEAD: Duration = Duration::from_millis(100);
/// It is ahead by 64 MiB at most, and by an eighth of what is used, or a slab if that is more: a small cache stays
/// small, however fast it is written.
const AHEAD_BYTES_MAX: u64 = 64 << 20;
const AHEAD_SHARE: u64 = 8;
/// Rates are measured over this time at least.
const MEASURED_MIN: Duration = Duration::from_millis(20);
/// At 16 MB a second the first touch may hold writers up.
const HURRIED_BYTES_PER_S: f64 = 16e6;
/// Below 2 MB a second there is time to put huge pages in place of small ones.
const QUIET_BYTES_PER_S: f64 = 2e6;
/// Memory that was taken ahead and is not used is given back after this time without fresh memory.
const GIVEN_BACK_AFTER: Duration = Duration::from_secs(5);

/// What the keeper remembers of it from round to round.
pub(super) struct FreshMemory {
    looked: Instant,
    /// When writers last took fresh memory.
    last_taken: Instant,
    /// Columns of fresh memory that writers had taken at the last look.
    taken: u64,
    columns_per_s: f64,
}

impl Default for FreshMemory {
    fn default() -> FreshMemory {
        let now = Instant::now();
        FreshMemory { looked: now, last_taken: now, taken: 0, columns_per_s: 0.0 }
    }
}

/// What is to be done about fresh memory in a round.
pub(super) struct Plan {
    /// There is time for work that nobody waits for.
    pub(super) is_quiet: bool,
    /// Nobody has taken fresh memory for some seconds: what was taken ahead is given back.
    pub(super) is_over: bool,
}

impl FreshMemory {
    /// Looks at what was taken since the last look, and sets how far ahead the keeper is.
    pub(super) fn look(&mut self, store: &ItemStore) -> Plan {
        let now = Instant::now();
        let (passed, column_bytes) = (now - self.looked, store.column_bytes() as f64);
        if passed >= MEASURED_MIN {
            let taken = store.memory.fresh_columns_taken();
            let per_s = taken.saturating_sub(self.taken) as f64 / passed.as_secs_f64();
            if taken > self.taken {
                self.last_taken = now;
            }
            (self.looked, self.taken) = (now, taken);
            // Half of the old rate: it takes some moments to rise and to fall.
            self.columns_per_s = if per_s > 0.0 || self.columns_per_s * column_bytes > QUIET_BYTES_PER_S {
                (self.columns_per_s + per_s) / 2.0
            } else {
                0.0
            };
            let slab_bytes = u64::from(store.memory.geometry().slab_bytes);
            let most_bytes = (store.used_bytes() / AHEAD_SHARE).clamp(slab_bytes, AHEAD_BYTES_MAX);
            let most = most_bytes / store.column_bytes();
            let ahead = (self.columns_per_s * AHEAD.as_secs_f64()).ceil() as u64;
            store.set_columns_ahead(ahead.min(most) as usize);
            store.memory.set_hurried(self.columns_per_s * column_bytes > HURRIED_BYTES_PER_S);
        }
        Plan {
            is_quiet: self.columns_per_s * column_bytes < QUIET_BYTES_PER_S,
            is_over: now - self.last_taken > GIVEN_BACK_AFTER,
        }
    }
}

/// Takes as much memory from the machine as the last look asked for.
pub(super) fn touch_ahead(store: &ItemStore) {
    store.memory.touch_ahead(store.columns_ahead(), FreshPages::InStep);
}
