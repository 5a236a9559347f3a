//! Facebook's balancing of ages (Nishtala et al., NSDI 2013; PAMA, section II).

use crate::allocation::scheme::{Scheme, SlabAccess};
use crate::allocation::store::Store;

/// A class that must evict is "younger" than the others when the age of its LRU item is below 80 % of the mean age of
/// the other classes' LRU items. It then gets a slab from the class with the oldest LRU item. Ages are in accesses.
pub(super) struct Age;

impl Scheme for Age {
    fn on_access(&mut self, _: &SlabAccess, _: &Store) {}

    fn donor(&mut self, needy: usize, store: &Store) -> Option<usize> {
        let age = store.lru_age(needy)?;
        let (mut sum, mut others, mut oldest) = (0, 0, None);
        for group in (0..store.groups()).filter(|&group| group != needy) {
            let Some(other) = store.lru_age(group) else { continue };
            sum += other;
            others += 1;
            if oldest.is_none_or(|(_, most)| other > most) {
                oldest = Some((group, other));
            }
        }
        let (group, _) = oldest?;
        (age as f64 * f64::from(others) < 0.8 * sum as f64).then_some(group)
    }
}
