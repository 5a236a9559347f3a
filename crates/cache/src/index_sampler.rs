//! Random items of the cache, for policies that judge by samples.

use crate::item_store::ItemStore;
use crate::random::Random;
use crate::temperature::{Resident, Residents};
use larder_item::Location;
use larder_memory::Guard;

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
}
