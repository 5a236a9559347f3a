//! The set of stored items from which a sampling policy chooses.

use crate::mix::SplitMix;

/// A set of slots in a dense array. Every slot is equally likely to be sampled.
#[derive(Default)]
pub(super) struct SampleSet {
    slots: Vec<u32>,
    /// Position in `slots` of each slot; outdated for a slot that is not in the set.
    positions: Vec<u32>,
}

impl SampleSet {
    /// The number of slots in the set.
    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Adds a slot that is not in the set.
    pub(super) fn insert(&mut self, slot: u32) {
        if self.positions.len() <= slot as usize {
            self.positions.resize(slot as usize + 1, 0);
        }
        self.positions[slot as usize] = self.slots.len() as u32;
        self.slots.push(slot);
    }

    /// Removes a slot that is in the set. The last slot of the array takes its position.
    pub(super) fn remove(&mut self, slot: u32) {
        let position = self.positions[slot as usize];
        self.slots.swap_remove(position as usize);
        if let Some(&moved) = self.slots.get(position as usize) {
            self.positions[moved as usize] = position;
        }
    }

    /// Returns a random slot, which stays in the set. The set must not be empty.
    #[inline]
    pub(super) fn sample(&self, rng: &mut SplitMix) -> u32 {
        self.slots[rng.below(self.len()) as usize]
    }
}
