//! Re-partitioning while there is room: hot items are moved to columns of their own.
//!
//! Cavast does it every 1,000 accesses to a slab, by the slab's LRU list. Here the warmth in the index entries says
//! which items are hot. Three things follow from it:
//!
//! * **When to look.** A gauge, a thousandth of the buckets, says how far the entries have become warm. The index is
//!   searched when a 32nd of them was read, and again at every doubling. So the first search comes soon, and later ones
//!   find what rises later.
//! * **Whether to move.** If every item is as likely to be read as any other, the numbers of reads follow Poisson's
//!   law, and those that have the most had luck. So items are moved only if several times more of them are hot than
//!   luck explains.
//! * **When to forget.** When half of the entries of the gauge were read, or searches have come that far, all entries
//!   cool. A hot item that has not been read for some rounds is moved back. It must cool twice for that, and be read
//!   three times to rise, so no item goes to and fro.
//!
//! Nothing is moved while the cache is being filled or columns are short: then the pass divides items by warmth anyway.

use super::pass::{MovesTo, Pass};
use crate::demoter::Levels;
use crate::item_store::ItemStore;
use crate::selector::{Selector, is_hot};
use crate::temperature::Queue;
use larder_index::{Entry, WARMTH_MAX};
use larder_item::Location;
use larder_memory::{ColumnId, ColumnState};
use std::time::{Duration, Instant};

/// One bucket in 1,024 belongs to the gauge.
const GAUGE_SHARE: u64 = 1024;
/// The gauge has 512 buckets at least, or all there are.
const GAUGE_BUCKETS_MIN: u64 = 512;
/// The share of the gauge's entries that were read at which the index is searched first, and at which entries cool.
const FIRST_SEARCH: f64 = 1.0 / 32.0;
const COOLS: f64 = 0.5;
/// Items are moved if four times more of them are hot than luck explains, and four entries of the gauge at least.
const TIMES_LUCK: f64 = 4.0;
const HOT_MIN: u64 = 4;
/// Hot items may take a 24th of the live bytes.
const HOT_SHARE: u64 = 24;
/// Buckets between two looks at the time, and at whether another thread wants the keeper.
pub(super) const BUCKETS_AT_ONCE: u64 = 128;
/// How far ahead buckets are prefetched.
const PREFETCHED: u64 = 8;
/// The gauge is read no more often than this, unless a caller waits for the round.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// What the keeper remembers of it.
pub(super) struct Repartition {
    looked: Option<Instant>,
    /// The next search comes when this share of the gauge's entries was read.
    next_search: f64,
    /// The search or the cooling under way, and its next bucket.
    under_way: Option<(Walk, u64)>,
    /// Bytes of the columns of hot items when the search began, and what was moved since.
    hot_bytes: u64,
    seen: Vec<(Location, u8)>,
    fallen: Vec<(Location, u8)>,
}

/// What is done to each bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Walk {
    /// Hot items are moved up.
    Search,
    /// Entries cool, and hot items that are cold are moved down.
    Cool,
}

impl Default for Repartition {
    fn default() -> Repartition {
        Repartition {
            looked: None,
            next_search: FIRST_SEARCH,
            under_way: None,
            hot_bytes: 0,
            seen: Vec::new(),
            fallen: Vec::new(),
        }
    }
}

impl Repartition {
    /// Looks at the gauge, unless something is under way. Returns whether there is something to do. `is_calm`: nobody
    /// waits for the round.
    pub(super) fn look(&mut self, store: &ItemStore, is_calm: bool) -> bool {
        let is_early = self.looked.is_some_and(|looked| looked.elapsed() < LOOK_PERIOD);
        if self.under_way.is_none() && !(is_calm && is_early) {
            self.looked = Some(Instant::now());
            let gauge = Gauge::read(store);
            let read = gauge.share_read();
            if read >= COOLS || self.next_search > COOLS {
                self.under_way = Some((Walk::Cool, 0));
                self.next_search = FIRST_SEARCH;
            } else if read >= self.next_search {
                self.next_search = (self.next_search * 2.0).max(read);
                self.hot_bytes = hot_bytes(store);
                if gauge.is_skewed() {
                    store.counters.keeper().hot_searches.add(1);
                    self.under_way = Some((Walk::Search, 0));
                }
            }
        }
        self.under_way.is_some()
    }

    /// Does what is under way with the next buckets. Returns whether there are more.
    pub(super) fn go_on(&mut self, levels: Levels<'_>, selector: &mut Selector, pass: &mut Pass) -> bool {
        let Some((walk, first)) = self.under_way else { return false };
        pass.online();
        let next = self.walk(levels.store, walk, first);
        let counters = levels.store.counters.keeper();
        let (up, is_stuck) = pass.move_items(levels, selector, MovesTo::Hot, &self.seen);
        counters.moved_up.add(up as u64);
        let (down, _) = pass.move_items(levels, selector, MovesTo::Queue(Queue::Main), &self.fallen);
        counters.moved_down.add(down as u64);
        pass.offline();
        // Without room for all of them, the rest waits for another search.
        self.under_way = next.filter(|_| !is_stuck).map(|next| (walk, next));
        if self.under_way.is_none() {
            pass.give_up_hot(levels.store, selector);
        }
        self.under_way.is_some()
    }

    /// Gathers what is to be moved of the buckets from `first` on. Returns the first bucket behind them.
    fn walk(&mut self, store: &ItemStore, walk: Walk, first: u64) -> Option<u64> {
        self.seen.clear();
        self.fallen.clear();
        let (hot_bytes_max, step) = (store.counters.live_bytes() / HOT_SHARE, gauge_step(store));
        let item_bytes = store.counters.live_bytes() / store.index.len().max(1);
        let mut next = Some(first);
        while let Some(bucket) = next.filter(|bucket| *bucket < first + BUCKETS_AT_ONCE) {
            store.index.prefetch_bucket(bucket + PREFETCHED);
            let is_gauge = bucket.is_multiple_of(step);
            next = store.index.cool(bucket, &mut |entry: Entry| {
                let is_hot = || is_hot(store, store.memory.column_of(entry.location));
                match walk {
                    Walk::Search => {
                        if entry.warmth == WARMTH_MAX && self.hot_bytes < hot_bytes_max && !is_hot() {
                            self.seen.push((entry.location, entry.warmth));
                            self.hot_bytes += item_bytes;
                        }
                        entry.warmth
                    }
                    Walk::Cool => {
                        if entry.warmth == 0 && is_hot() {
                            self.fallen.push((entry.location, 0));
                        }
                        // The gauge begins anew, so that the next reads show how skewed they are.
                        if is_gauge { 0 } else { entry.warmth / 2 }
                    }
                }
            });
        }
        next
    }
}

/// Bytes of the columns of hot items.
fn hot_bytes(store: &ItemStore) -> u64 {
    let columns = (0..store.memory.columns_mapped()).map(ColumnId).filter(|id| is_hot(store, *id));
    let in_use = columns
        .map(|id| store.memory.column(id))
        .filter(|column| matches!(column.state(), ColumnState::Open | ColumnState::Sealed));
    in_use.map(|column| u64::from(column.live_bytes())).sum()
}

fn gauge_step(store: &ItemStore) -> u64 {
    let buckets = store.index.buckets();
    (buckets / GAUGE_BUCKETS_MIN).clamp(1, GAUGE_SHARE)
}

/// How many entries of the gauge have each warmth.
#[derive(Clone, Copy, Default, Debug)]
struct Gauge([u64; WARMTH_MAX as usize + 1]);

impl Gauge {
    fn read(store: &ItemStore) -> Gauge {
        let mut gauge = Gauge::default();
        let step = gauge_step(store) as usize;
        for bucket in (0..store.index.buckets()).step_by(step) {
            store.index.prefetch_bucket(bucket + PREFETCHED * step as u64);
            store.index.cool(bucket, &mut |entry| {
                gauge.0[usize::from(entry.warmth)] += 1;
                entry.warmth
            });
        }
        gauge
    }

    fn entries(&self) -> f64 {
        self.0.iter().sum::<u64>() as f64
    }

    /// The share of the entries that were read since the gauge began anew.
    fn share_read(&self) -> f64 {
        1.0 - self.0[0] as f64 / self.entries().max(1.0)
    }

    /// Whether more entries are hot than luck explains.
    fn is_skewed(&self) -> bool {
        let [none, once, .., hot] = self.0;
        // Poisson's law: as many entries were read once for one that was not as each is read in the mean.
        let mean = once as f64 / (none as f64).max(1.0);
        let by_luck = 1.0 - (-mean).exp() * (1.0 + mean + mean * mean / 2.0);
        hot >= HOT_MIN && hot as f64 > TIMES_LUCK * by_luck * self.entries()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// A gauge of 6,000 entries after `reads` reads, of which entry `n` gets `share(n)`.
    fn gauge(reads: usize, pick: impl Fn(&mut Random) -> u64) -> Gauge {
        let (mut random, mut counts) = (Random::new(9), vec![0usize; 6_000]);
        (0..reads).for_each(|_| counts[pick(&mut random) as usize] += 1);
        let mut gauge = Gauge::default();
        counts.iter().for_each(|count| gauge.0[(*count).min(3)] += 1);
        gauge
    }

    #[test]
    fn skew_is_told_from_luck() {
        for reads in [200, 400, 800, 1_600, 3_000] {
            let uniform = gauge(reads, |random| random.below(6_000));
            assert!(!uniform.is_skewed(), "{reads}: {uniform:?}");
            // A tenth of the items gets nine tenths of the reads.
            let hotspot = gauge(reads, |random| match random.below(10) {
                0 => 600 + random.below(5_400),
                _ => random.below(600),
            });
            assert!(reads < 400 || hotspot.is_skewed(), "{reads}: {hotspot:?}");
            // Zipf's law of exponent 1, by the inverse of its distribution.
            let zipf = gauge(reads, |random| {
                (6_000f64.powf(random.below(1 << 20) as f64 / (1 << 20) as f64) as u64).min(5_999)
            });
            assert!(zipf.is_skewed(), "{reads}: {zipf:?}");
        }
    }
}
