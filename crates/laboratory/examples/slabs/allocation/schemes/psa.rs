//! Periodic slab allocation (Carra and Michiardi, ICC 2014; PAMA, section II).

use crate::allocation::scheme::{Scheme, SlabAccess};
use crate::allocation::store::Store;

/// After every M misses, a slab moves from the class with the fewest requests per slab to the class with the most
/// misses, both counted since the last move. A class keeps its last slab.
pub(super) struct Psa {
    misses_max: u64,
    misses_all: u64,
    misses: Vec<u64>,
    requests: Vec<u64>,
}

impl Psa {
    /// For `groups` groups, with M = `misses_max`.
    ///
    /// # Errors
    /// M = 0.
    pub(super) fn new(groups: usize, misses_max: u64) -> Result<Psa, String> {
        if misses_max == 0 {
            return Err("PSA moves a slab every one or more misses, not 0".to_owned());
        }
        Ok(Psa { misses_max, misses_all: 0, misses: vec![0; groups], requests: vec![0; groups] })
    }

    fn choose(&self, store: &Store) -> Option<(usize, usize)> {
        let to = (0..self.misses.len()).min_by_key(|&group| std::cmp::Reverse(self.misses[group]))?;
        let mut least: Option<(usize, f64)> = None;
        for (group, &slabs) in store.slabs().iter().enumerate() {
            let density = self.requests[group] as f64 / f64::from(slabs.max(1));
            if slabs > 1 && group != to && least.is_none_or(|(_, other)| density < other) {
                least = Some((group, density));
            }
        }
        least.map(|(from, _)| (from, to))
    }
}

impl Scheme for Psa {
    fn on_access(&mut self, access: &SlabAccess, _: &Store) {
        self.requests[access.group] += 1;
        self.misses[access.group] += u64::from(!access.hit);
        self.misses_all += u64::from(!access.hit);
    }

    fn donor(&mut self, _: usize, _: &Store) -> Option<usize> {
        None
    }

    fn due(&mut self, store: &Store) -> Option<(usize, usize)> {
        if self.misses_all < self.misses_max {
            return None;
        }
        let chosen = (store.slabs_free() == 0).then(|| self.choose(store)).flatten();
        self.misses_all = 0;
        self.misses.fill(0);
        self.requests.fill(0);
        chosen
    }
}
