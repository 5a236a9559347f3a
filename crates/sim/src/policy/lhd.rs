//! LHD (Beckmann, Chen, Cidon, NSDI 2018), with the parameters of its authors' simulator.

use super::frame::Scheme;
use super::interface::Access;
use super::lhd_classes::Classes;
use super::random::{Random, Urn};
use super::slots::Slots;

/// Items drawn for an eviction, and how many while it learns.
const SAMPLES: u32 = 32;
const SAMPLES_EARLY: u32 = 8;
/// How many of the latest items that came with a poor rank are looked at in each eviction.
const ADMITTED: usize = 8;
/// How many reconfigurations the early phase takes.
const EARLY: u32 = 50;
/// One request in so many makes its item an explorer, which is hard to evict, so that late hits are seen...
const EXPLORE_ONE_IN: u64 = 32;
/// ... as long as explorers take less than one part in so many of the cache.
const EXPLORERS_PART: u64 = 100;
/// Requests between two reconfigurations.
const RECONFIGURE_EVERY: u32 = 1 << 20;
/// How many ages are told apart.
const AGES: usize = 20_000;
/// Requests in a step of age, as a shift, until it is adapted.
const AGE_SHIFT: u32 = 10;
/// How much of the past the rank of the average victim keeps.
const VICTIM_DECAY: f32 = 0.9;

/// What is kept with an item.
#[derive(Clone, Copy)]
pub(super) struct Tag {
    used_at: u64,
    /// Age at its last hit and at the one before, coarse.
    last_age: u32,
    last_last_age: u32,
    /// What it takes from the explorers' budget; 0 = it is none.
    explorer_size: u32,
}

/// Least hit density: the item leaves that, by its age and class, brings the fewest hits for the space and
/// time that it is expected to take. Items are sampled; classes and densities are in [`Classes`].
///
/// The densities are learnt anew every 1,048,576 requests, as the authors do: a shorter trace sees the
/// initial ranks (younger and more lately used first, per octet) only.
pub(super) struct Lhd {
    random: Random,
    urn: Urn,
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
    /// An empty one; `seed` decides samples and explorers.
    pub(super) fn new(capacity: u64, seed: u64) -> Lhd {
        Lhd::with(capacity, seed, Classes::new(AGES, AGE_SHIFT), RECONFIGURE_EVERY)
    }

    /// One that learns anew every so many requests.
    pub(super) fn with(capacity: u64, seed: u64, classes: Classes, reconfigure_every: u32) -> Lhd {
        Lhd {
            random: Random::new(seed),
            urn: Urn::default(),
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

    /// The end of an access that put in or hit `slot`: its new time, and perhaps it explores.
    fn touch(&mut self, slots: &mut Slots<Tag>, slot: u32, is_new: bool) {
        let size = slots.size(slot);
        let explore = self.random.next().is_multiple_of(EXPLORE_ONE_IN);
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
            let slot = self.urn.draw(&mut self.random);
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
        self.urn.put(slot);
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
        self.urn.take(slot);
        slots.free(slot);
    }

    /// A time of 32 bits, two ages of 15, and the explorer's bit; the size is with the item.
    fn metadata_bits(&self) -> f64 {
        63.0
    }
}
