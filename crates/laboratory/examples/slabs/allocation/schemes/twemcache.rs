//! Twemcache's random reassignment of slabs (PAMA, section II).

use larder_curve::mix::hash_of;

use crate::allocation::scheme::{Scheme, SlabAccess};
use crate::allocation::store::Store;

/// A class without a free slot gets a slab from a class sampled at random among all that have one. If it samples
/// itself, one of its own items is evicted.
pub(super) struct Twemcache {
    seed: u64,
    samples: u64,
}

impl Twemcache {
    /// A scheme whose random numbers start from `seed`.
    pub(super) fn new(seed: u64) -> Twemcache {
        Twemcache { seed: hash_of(seed), samples: 0 }
    }
}

impl Scheme for Twemcache {
    fn on_access(&mut self, _: &SlabAccess, _: &Store) {}

    fn donor(&mut self, _: usize, store: &Store) -> Option<usize> {
        let owners = store.slabs().iter().filter(|&&slabs| slabs > 0).count() as u64;
        self.samples += 1;
        let random = hash_of(self.seed ^ self.samples).checked_rem(owners)?;
        let owner = store.slabs().iter().enumerate().filter(|&(_, &slabs)| slabs > 0).nth(random as usize);
        owner.map(|(group, _)| group)
    }
}
