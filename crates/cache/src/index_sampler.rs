//! Random items of the cache, for policies that judge by samples.

use crate::item_store::{ItemStore, Life};
use crate::random::Random;
use crate::temperature::{Resident, Residents};
use larder_item::{KeyHash, Location};
use larder_memory::{ColumnId, Guard, Item, Record};

/// Records that are prefetched together before the first of them is read.
const PREFETCHED_TOGETHER: usize = 64;

/// Samples items from random buckets of the index.
pub(crate) struct IndexSampler<'a> {
    store: &'a ItemStore,
    guard: Guard<'a>,
    random: &'a mut Random,
}

impl<'a> IndexSampler<'a> {
    /// A sampler that reads records through `guard`.
    pub(crate) fn new(store: &'a ItemStore, guard: Guard<'a>, random: &'a mut Random) -> IndexSampler<'a> {
        IndexSampler { store, guard, random }
    }
}

/// Calls `f` with the items of `most` random buckets, or of all buckets if there are no more. Returns how many items of
/// the cache each of them stands for.
pub(crate) fn sample_items(
    store: &ItemStore,
    guard: &Guard<'_>,
    random: &mut Random,
    most: u64,
    mut f: impl FnMut(Location, &Item<'_>),
) -> f64 {
    let buckets = store.index.buckets();
    let mut locations: Vec<Location> = Vec::new();
    for nth in 0..buckets.min(most) {
        let bucket = if buckets <= most { nth } else { random.below(buckets) };
        store.index.entries_at(bucket, &mut |entry| {
            guard.prefetch(entry.location);
            locations.push(entry.location);
        });
    }
    locations.iter().for_each(|at| f(*at, &guard.item(*at)));
    store.index.len() as f64 / (locations.len().max(1)) as f64
}

impl Residents for IndexSampler<'_> {
    fn sample(&mut self, count: usize, found: &mut Vec<Resident>) {
        let wanted = found.len() + count;
        let mut locations: Vec<Location> = Vec::with_capacity(2 * PREFETCHED_TOGETHER);
        let buckets = self.store.index.buckets();
        // Bounded, for in an index that is nearly empty most buckets hold nothing.
        let mut looks = 2 * count;
        while found.len() < wanted && looks > 0 {
            locations.clear();
            while locations.len() < PREFETCHED_TOGETHER && looks > 0 {
                looks -= 1;
                let bucket = self.random.below(buckets);
                self.store.index.entries_at(bucket, &mut |entry| {
                    self.guard.prefetch(entry.location);
                    locations.push(entry.location);
                });
            }
            for &at in locations.iter().take(wanted - found.len()) {
                let column = self.store.memory.column_of(at);
                let hash = self.store.hasher.hash(self.guard.item(at).key());
                found.push(Resident { hash, column, birth: self.store.memory.column(column).birth() });
            }
        }
    }

    fn of_column(&mut self, column: ColumnId, birth: u64, found: &mut Vec<KeyHash>) {
        if self.store.memory.column(column).birth() != birth {
            return;
        }
        for (at, record) in self.store.memory.records(&self.guard, column) {
            if let Record::Item(item) = record
                && self.store.life(at, &item) == Life::Live
            {
                found.push(self.store.hasher.hash(item.key()));
            }
        }
    }
}
