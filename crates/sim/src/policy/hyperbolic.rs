//! Hyperbolic caching (Blankstein, Sen, Freedman, USENIX ATC 2017), its basic priority.

use super::frame::Scheme;
use super::interface::Access;
use super::random::{Random, Urn};
use super::slots::Slots;

/// How many items an eviction looks at.
const SAMPLES: usize = 64;

/// What is kept with an item.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    uses: u64,
    came_at: u64,
}

/// Of 64 items that are drawn, the one leaves that was used least often for the time it has been there. Time
/// is counted in requests. Costs and sizes, by which the paper can weigh an item, do not count.
pub(super) struct Hyperbolic {
    random: Random,
    urn: Urn,
    now: u64,
}

impl Hyperbolic {
    /// An empty one; `seed` decides the samples.
    pub(super) fn new(seed: u64) -> Hyperbolic {
        Hyperbolic { random: Random::new(seed), urn: Urn::default(), now: 0 }
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
        self.urn.put(slot);
    }

    fn evict(&mut self, slots: &mut Slots<Counts>) {
        let mut victim = None;
        let mut least = f64::INFINITY;
        for _ in 0..SAMPLES {
            let slot = self.urn.draw(&mut self.random);
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
        self.urn.take(slot);
        slots.free(slot);
    }

    /// A count and a time of 32 bits each.
    fn metadata_bits(&self) -> f64 {
        64.0
    }
}
