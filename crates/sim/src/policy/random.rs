//! Lots for the policies that sample.

use crate::mix::mix64;

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): the same seed gives the same lots everywhere.
#[derive(Clone)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// A generator from any seed.
    pub(super) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// 64 even bits.
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix64(self.state)
    }

    /// A number below `bound`, which is at least 1.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u32
    }
}

/// Slots to draw from: a dense array, so that each is as likely as any other.
#[derive(Default)]
pub(super) struct Urn {
    slots: Vec<u32>,
    /// Place in `slots` by slot; stale for a slot that is not in.
    places: Vec<u32>,
}

impl Urn {
    /// How many slots are in.
    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Puts a slot in that is not in.
    pub(super) fn put(&mut self, slot: u32) {
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, 0);
        }
        self.places[slot as usize] = self.slots.len() as u32;
        self.slots.push(slot);
    }

    /// Takes a slot out that is in; the last one gets its place.
    pub(super) fn take(&mut self, slot: u32) {
        let place = self.places[slot as usize];
        self.slots.swap_remove(place as usize);
        if let Some(&moved) = self.slots.get(place as usize) {
            self.places[moved as usize] = place;
        }
    }

    /// Draws one; it stays in. The urn must not be empty.
    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> u32 {
        self.slots[random.below(self.len()) as usize]
    }
}
