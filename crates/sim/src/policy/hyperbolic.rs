//! Hyperbolic caching (Blankstein, Sen, Freedman, USENIX ATC 2017), with its basic priority.

use super::frame::Scheme;
use super::interface::Access;
use super::sample_set::SampleSet;
use super::slots::Slots;
use crate::mix::SplitMix;

/// Items sampled per eviction.
const SAMPLES: usize = 64;

/// Data kept with an item.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    uses: u64,
    came_at: u64,
}

/// Samples 64 items and evicts the one with the fewest uses per request since it was stored. The paper can also weigh
/// costs and sizes; this implementation does not.
pub(super) struct Hyperbolic {
    rng: SplitMix,
    residents: SampleSet,
    now: u64,
}

impl Hyperbolic {
    /// An empty cache; `seed` starts the random numbers.
    pub(super) fn new(seed: u64) -> Hyperbolic {
        Hyperbolic { rng: SplitMix::new(seed), residents: SampleSet::default(), now: 0 }
    }
}

impl Scheme for Hyperbolic {
    type Data = Counts;

    fn hit(&mut self, slots: &mut Slots<Counts>, slot: u32, _: &Access) {
        self.now += 1;
        slots.data(slot).uses += 1;
    }

    fn miss(&mut self, slots: &mut Slots<Counts>, _: Option<u32>, access: &Access) {
        self.now += 1;
        self.make_room(slots, access.size);
        let slot = slots.add(access.id, access.size, Counts { uses: 1, came_at: self.now });
        self.residents.insert(slot);
    }

    fn evict(&mut self, slots: &mut Slots<Counts>) {
        let mut victim = None;
        let mut least = f64::INFINITY;
        for _ in 0..SAMPLES {
            let slot = self.residents.sample(&mut self.rng);
            let Counts { uses, came_at } = *slots.data(slot);
            let priority = uses as f64 / (self.now - came_at) as f64;
            if priority < least {
                (victim, least) = (Some(slot), priority);
            }
        }
        if let Some(slot) = victim {
            self.forget(slots, slot);
        }
    }

    fn forget(&mut self, slots: &mut Slots<Counts>, slot: u32) {
        self.residents.remove(slot);
        slots.free(slot);
    }

    /// A count and a time of 32 bits each.
    fn metadata_bits(&self) -> f64 {
        64.0
    }
}
