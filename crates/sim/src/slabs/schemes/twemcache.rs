//! Twemcache's random reassignment of slabs (PAMA, section II).

use crate::mix::hash_of;

use crate::slabs::scheme::{Scheme, Seen};
use crate::slabs::store::Store;

/// A class without a free slot gets a slab of a class drawn at random from all that have one. If it draws
/// itself, one of its items is replaced.
pub(super) struct Twemcache {
    seed: u64,
    drawn: u64,
}

impl Twemcache {
    /// With lots drawn from `seed`.
    pub(super) fn new(seed: u64) -> Twemcache {
        Twemcache { seed: hash_of(seed), drawn: 0 }
    }
}

impl Scheme for Twemcache {
    fn seen(&mut self, _: &Seen, _: &Store) {}

    fn donor(&mut self, _: usize, store: &Store) -> Option<usize> {
        let owners = store.slabs().iter().filter(|&&slabs| slabs > 0).count() as u64;
        self.drawn += 1;
        let lot = hash_of(self.seed ^ self.drawn).checked_rem(owners)?;
        let owner = store.slabs().iter().enumerate().filter(|&(_, &slabs)| slabs > 0).nth(lot as usize);
        owner.map(|(group, _)| group)
    }
}
