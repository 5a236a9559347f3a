//! LHD (Beckmann, Chen, Cidon, NSDI 2018), with the parameters of its authors' simulator.

use super::frame::Scheme;
use super::interface::Access;
use super::lhd_classes::Classes;
use super::sample_set::SampleSet;
use super::slots::Slots;
use crate::mix::SplitMix;

/// Items sampled per eviction, after and during the early phase.
const SAMPLES: u32 = 32;
const SAMPLES_EARLY: u32 = 8;
/// Recently stored items with a low density that each eviction also examines.
const ADMITTED: usize = 8;
/// Reconfigurations in the early phase.
const EARLY: u32 = 50;
/// One access in 32 makes its item an explorer. An explorer is hard to evict, so that late hits become visible.
const EXPLORE_ONE_IN: u64 = 32;
/// Explorers may take at most one part in 100 of the capacity.
const EXPLORERS_PART: u64 = 100;
/// Requests between two reconfigurations.
const RECONFIGURE_EVERY: u32 = 1 << 20;
/// Number of distinct ages.
const AGES: usize = 20_000;
/// Initial requests per step of age, as a shift: 2^10.
const AGE_SHIFT: u32 = 10;
/// Weight of the past in the running mean of the victims' density.
const VICTIM_DECAY: f32 = 0.9;

/// Data kept with an item.
#[derive(Clone, Copy)]
pub(super) struct Tag {
    used_at: u64,
    /// Coarse ages at the last hit and at the hit before.
    last_age: u32,
    last_last_age: u32,
    /// Size charged to the budget of the explorers; 0 = the item is no explorer.
    explorer_size: u32,
}

/// Least Hit Density: evicts the sampled item from which the fewest hits per unit of space and time are expected,
/// given its age and class. [`Classes`] keeps the statistics.
///
/// Densities are learned anew every 1,048,576 requests, as in the authors' simulator. A shorter trace therefore sees
/// only the initial ranking: younger and more recently used items first, per byte.
pub(super) struct Lhd {
    rng: SplitMix,
    residents: SampleSet,
    classes: Classes,
    now: u64,
    reconfigure_every: u32,
    until_reconfiguration: u32,
    reconfigurations: u32,
    admitted: [Option<u32>; ADMITTED],
    admitted_next: usize,
    victim_density: f32,
    explorers_left: i64,
}

impl Lhd {
    /// An empty cache; `seed` starts the random numbers for samples and explorers.
    pub(super) fn new(capacity: u64, seed: u64) -> Lhd {
        Lhd::with(capacity, seed, Classes::new(AGES, AGE_SHIFT), RECONFIGURE_EVERY)
    }

    /// An empty cache that reconfigures after this many requests.
    pub(super) fn with(capacity: u64, seed: u64, classes: Classes, reconfigure_every: u32) -> Lhd {
        Lhd {
            rng: SplitMix::new(seed),
            residents: SampleSet::default(),
            classes,
            now: 0,
            reconfigure_every,
            until_reconfiguration: reconfigure_every,
            reconfigurations: 0,
            admitted: [None; ADMITTED],
            admitted_next: 0,
            victim_density: 0.0,
            explorers_left: i64::try_from(capacity / EXPLORERS_PART).unwrap_or(i64::MAX),
        }
    }

    fn age(&self, tag: &Tag) -> usize {
        self.classes.coarse(self.now - tag.used_at)
    }

    fn density(&self, slots: &mut Slots<Tag>, slot: u32) -> f32 {
        let size = slots.size(slot) as f32;
        let tag = slots.data(slot);
        let age = self.age(tag);
        if age == self.classes.oldest() {
            return f32::MIN;
        }
        let of_class = self.classes.density(tag.last_age + tag.last_last_age, age);
        of_class / size + if tag.explorer_size > 0 { 1.0 } else { 0.0 }
    }

    /// Ends an access to `slot`: updates its time and possibly makes it an explorer.
    fn touch(&mut self, slots: &mut Slots<Tag>, slot: u32, is_new: bool) {
        let size = slots.size(slot);
        let explore = self.rng.next().is_multiple_of(EXPLORE_ONE_IN);
        let explorer = explore && self.explorers_left > 0 && self.reconfigurations < EARLY;
        let tag = slots.data(slot);
        tag.used_at = self.now;
        tag.explorer_size = if explorer { size } else { 0 };
        self.explorers_left -= i64::from(tag.explorer_size);
        if is_new && !explore && self.density(slots, slot) < self.victim_density {
            self.admitted[self.admitted_next % ADMITTED] = Some(slots.id(slot));
            self.admitted_next += 1;
        }
        self.now += 1;
        self.until_reconfiguration -= 1;
        if self.until_reconfiguration == 0 {
            self.classes.reconfigure(slots.items(), self.reconfigurations);
            self.until_reconfiguration = self.reconfigure_every;
            self.reconfigurations += 1;
        }
    }

    fn victim(&mut self, slots: &mut Slots<Tag>) -> Option<u32> {
        let mut victim = None;
        let mut least = f32::MAX;
        let samples = if self.reconfigurations > EARLY { SAMPLES } else { SAMPLES_EARLY };
        for _ in 0..samples {
            let slot = self.residents.sample(&mut self.rng);
            let density = self.density(slots, slot);
            if density < least {
                (victim, least) = (Some(slot), density);
            }
        }
        for id in self.admitted.into_iter().flatten() {
            let Some(slot) = slots.find(id) else { continue };
            let density = self.density(slots, slot);
            if density < least {
                (victim, least) = (Some(slot), density);
            }
        }
        self.victim_density = VICTIM_DECAY * self.victim_density + (1.0 - VICTIM_DECAY) * least;
        victim
    }
}

impl Scheme for Lhd {
    type Data = Tag;

    fn hit(&mut self, slots: &mut Slots<Tag>, slot: u32, _: &Access) {
        let tag = *slots.data(slot);
        let age = self.age(&tag);
        self.classes.count_hit(tag.last_age + tag.last_last_age, age);
        self.explorers_left += i64::from(tag.explorer_size);
        let tag = slots.data(slot);
        tag.last_last_age = tag.last_age;
        tag.last_age = age as u32;
        self.touch(slots, slot, false);
    }

    fn miss(&mut self, slots: &mut Slots<Tag>, _: Option<u32>, access: &Access) {
        self.make_room(slots, access.size);
        let never = self.classes.oldest() as u32 + 1;
        let tag = Tag { used_at: self.now, last_age: 0, last_last_age: never, explorer_size: 0 };
        let slot = slots.add(access.id, access.size, tag);
        self.residents.insert(slot);
        self.touch(slots, slot, true);
    }

    fn evict(&mut self, slots: &mut Slots<Tag>) {
        if let Some(slot) = self.victim(slots) {
            let tag = *slots.data(slot);
            self.classes.count_eviction(tag.last_age + tag.last_last_age, self.age(&tag));
            self.forget(slots, slot);
        }
    }

    fn forget(&mut self, slots: &mut Slots<Tag>, slot: u32) {
        self.explorers_left += i64::from(slots.data(slot).explorer_size);
        self.residents.remove(slot);
        slots.free(slot);
    }

    /// A time of 32 bits, two ages of 15 bits, and the explorer's bit. The size is stored with the item.
    fn metadata_bits(&self) -> f64 {
        63.0
    }
}
