//! The LRU stack of weighted items: computes the weight above an item in time logarithmic in the number of items.
//!
//! Each touch takes the next slot of an array. The slot of an item's last touch holds the item's weight: 1, or its
//! bytes. The weight above an item is the sum of the weights after its slot. Sums of 32 slots, of 32 times 32 slots
//! and so on are kept, so that a query adds up a few cache lines per level. When the array is full, the slots in use
//! are moved together and the array gets twice their number of slots. Memory therefore stays proportional to the
//! number of items.
//!
//! A removed item leaves a *hole*: the caches that held the item have free space, but the items they evicted earlier
//! do not come back. The next stored item fills the topmost holes first and pushes down only the items above them. An
//! item that is touched again leaves its old slot as a hole in the same way. With equal weights the two effects
//! cancel out, and the stack is Mattson's.

use std::collections::BTreeSet;

use crate::mix::KeyMap;

/// The number of slots, or of sums, that make one sum of the next level.
const FAN_OUT: usize = 32;
/// The smallest number of slots. It is small in tests, so that the array is compacted often.
const SLOTS_MIN: usize = if cfg!(test) { 32 } else { 1024 };
/// Owner of a slot without an item: the slot is empty or a hole.
const NOBODY: u32 = u32::MAX;

/// Weights by slot, and their sums by groups of [`FAN_OUT`], by groups of groups, and so on.
struct Sums {
    levels: Vec<Vec<u64>>,
}

impl Sums {
    /// At least `slots` slots, all of weight 0.
    fn new(slots: usize) -> Sums {
        let mut levels = Vec::new();
        let mut len = slots;
        loop {
            let groups = len.div_ceil(FAN_OUT);
            levels.push(vec![0; groups * FAN_OUT]);
            if groups == 1 {
                return Sums { levels };
            }
            len = groups;
        }
    }

    fn slots(&self) -> usize {
        self.levels[0].len()
    }

    fn get(&self, slot: usize) -> u64 {
        self.levels[0][slot]
    }

    fn set(&mut self, slot: usize, weight: u64) {
        let change = weight.wrapping_sub(self.get(slot));
        let mut at = slot;
        for level in &mut self.levels {
            level[at] = level[at].wrapping_add(change);
            at /= FAN_OUT;
        }
    }

    /// The sum of all weights.
    fn all(&self) -> u64 {
        self.levels[self.levels.len() - 1].iter().sum()
    }

    /// The sum of the weights after `slot`.
    fn behind(&self, slot: usize) -> u64 {
        let mut at = slot;
        let mut sum = 0;
        for level in &self.levels {
            let end = (at / FAN_OUT + 1) * FAN_OUT;
            sum += level[at + 1..end].iter().sum::<u64>();
            at /= FAN_OUT;
        }
        sum
    }
}

/// The depth of an item in the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Depth {
    /// The sum of the weights above the item, including holes.
    pub above: u64,
    /// The weight of the item.
    pub weight: u64,
}

/// The LRU stack of weighted items, at most 2^31 of them.
pub struct Stack {
    /// The number of each key. Numbers are reused.
    numbers: KeyMap<u32>,
    numbers_free: Vec<u32>,
    /// The slot of each number, and its key.
    slot_of: Vec<u32>,
    keys: Vec<u64>,
    /// The number whose item is in a slot, or [`NOBODY`].
    owner: Vec<u32>,
    sums: Sums,
    /// The slot of the next touch.
    next: usize,
    /// No item is in a slot before this one.
    bottom: usize,
    /// Slots without an owner whose weight is not 0.
    holes: BTreeSet<u32>,
}

impl Stack {
    /// An empty stack.
    pub fn new() -> Stack {
        let sums = Sums::new(SLOTS_MIN);
        Stack {
            numbers: KeyMap::default(),
            numbers_free: Vec::new(),
            slot_of: Vec::new(),
            keys: Vec::new(),
            owner: vec![NOBODY; sums.slots()],
            sums,
            next: 0,
            bottom: 0,
            holes: BTreeSet::new(),
        }
    }

    /// The number of items.
    pub fn items(&self) -> usize {
        self.numbers.len()
    }

    /// The weight of a stored item.
    pub fn weight(&self, key: u64) -> Option<u64> {
        self.numbers.get(&key).map(|number| self.sums.get(self.slot_of[*number as usize] as usize))
    }

    /// The number of a stored item: below the most items that the stack has had, and the same until the item goes.
    pub fn number(&self, key: u64) -> Option<usize> {
        self.numbers.get(&key).map(|number| *number as usize)
    }

    /// The sum of all weights, including holes.
    pub fn total(&self) -> u64 {
        self.sums.all()
    }

    /// The keys of all items and their weights, the lowest item first.
    pub fn rising(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let slots = self.bottom..self.next;
        slots.filter(|slot| self.owner[*slot] != NOBODY).map(|slot| {
            let key = self.keys[self.owner[slot] as usize];
            (key, self.sums.get(slot))
        })
    }

    /// Removes the lowest item as if it had never been stored. Returns whether there was one.
    pub fn forget_lowest(&mut self) -> bool {
        while self.bottom < self.next && self.owner[self.bottom] == NOBODY {
            self.bottom += 1;
        }
        let Some(&owner) = self.owner[..self.next].get(self.bottom) else { return false };
        let lowest = self.keys[owner as usize];
        self.forget(lowest)
    }

    /// About how many bytes of memory the stack takes.
    pub fn bytes(&self) -> u64 {
        let map = self.numbers.capacity() * 8 / 7 * (size_of::<(u64, u32)>() + 1);
        let per_number = self.slot_of.capacity() * (size_of::<u32>() + size_of::<u64>());
        let slots: usize = self.sums.levels.iter().map(|level| level.len() * size_of::<u64>()).sum();
        let words = self.owner.capacity() + self.numbers_free.capacity() + 2 * self.holes.len();
        (map + per_number + slots + words * size_of::<u32>()) as u64
    }

    /// Moves an item to the top with this weight. Returns its previous depth if it was stored.
    pub fn touch(&mut self, key: u64, weight: u64) -> Option<Depth> {
        if self.next == self.sums.slots() {
            self.compact();
        }
        let (number, before) = match self.numbers.get(&key) {
            Some(&number) => {
                let slot = self.slot_of[number as usize] as usize;
                let depth = Depth { above: self.sums.behind(slot), weight: self.sums.get(slot) };
                self.leave(slot, depth.weight != weight || !self.holes.is_empty());
                (number, Some(depth))
            }
            None => (self.new_number(key), None),
        };
        if before.is_none_or(|depth| depth.weight != weight) || !self.holes.is_empty() {
            self.fill_holes(weight);
        }
        self.slot_of[number as usize] = self.next as u32;
        self.owner[self.next] = number;
        self.sums.set(self.next, weight);
        self.next += 1;
        before
    }

    /// Removes an item; its space stays free in the caches that held it. Returns whether it was stored.
    pub fn remove(&mut self, key: u64) -> bool {
        self.take_out(key, true)
    }

    /// Removes an item as if it had never been stored. Returns whether it was stored.
    pub fn forget(&mut self, key: u64) -> bool {
        self.take_out(key, false)
    }

    fn take_out(&mut self, key: u64, hole: bool) -> bool {
        let Some(number) = self.numbers.remove(&key) else { return false };
        self.numbers_free.push(number);
        self.leave(self.slot_of[number as usize] as usize, hole);
        true
    }

    fn leave(&mut self, slot: usize, hole: bool) {
        self.owner[slot] = NOBODY;
        if !hole {
            self.sums.set(slot, 0);
        } else if self.sums.get(slot) != 0 {
            self.holes.insert(slot as u32);
        }
    }

    /// Removes `weight` from the holes, the topmost first.
    fn fill_holes(&mut self, mut weight: u64) {
        while weight > 0 {
            let Some(&hole) = self.holes.last() else { return };
            let room = self.sums.get(hole as usize);
            let filled = room.min(weight);
            self.sums.set(hole as usize, room - filled);
            weight -= filled;
            if filled == room {
                self.holes.pop_last();
            }
        }
    }

    fn new_number(&mut self, key: u64) -> u32 {
        let number = self.numbers_free.pop().unwrap_or_else(|| {
            self.slot_of.push(0);
            self.keys.push(key);
            (self.slot_of.len() - 1) as u32
        });
        self.keys[number as usize] = key;
        self.numbers.insert(key, number);
        number
    }

    /// Moves the slots in use together, in order. Neighbouring holes become one. A hole below all items has no effect
    /// and is dropped.
    fn compact(&mut self) {
        let mut kept: Vec<(u32, u64)> = Vec::with_capacity(2 * self.items());
        for slot in 0..self.next {
            let (owner, weight) = (self.owner[slot], self.sums.get(slot));
            match kept.last_mut() {
                _ if owner != NOBODY => kept.push((owner, weight)),
                Some((NOBODY, hole)) => *hole += weight,
                Some(_) if weight != 0 => kept.push((NOBODY, weight)),
                _ => {}
            }
        }
        self.sums = Sums::new((2 * kept.len()).max(SLOTS_MIN));
        self.owner.clear();
        self.owner.resize(self.sums.slots(), NOBODY);
        self.holes.clear();
        self.next = kept.len();
        self.bottom = 0;
        for (slot, (owner, weight)) in kept.into_iter().enumerate() {
            self.sums.set(slot, weight);
            self.owner[slot] = owner;
            if owner == NOBODY {
                self.holes.insert(slot as u32);
            } else {
                self.slot_of[owner as usize] = slot as u32;
            }
        }
    }
}

impl Default for Stack {
    fn default() -> Stack {
        Stack::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The definition is a list with the latest item in front.
        #[test]
        fn distances_are_those_of_a_list(
            steps in prop::collection::vec((0_u64..300, prop_oneof![9 => Just(false), 1 => Just(true)]), 1..1500)
        ) {
            let mut stack = Stack::new();
            let mut list: Vec<(u64, u64)> = Vec::new();
            for (key, forgets_lowest) in steps {
                if forgets_lowest {
                    prop_assert_eq!(stack.forget_lowest(), list.pop().is_some());
                }
                let weight = key % 7 + 1;
                let at = list.iter().position(|item| item.0 == key);
                let above = at.map(|at| list[..at].iter().map(|item| item.1).sum::<u64>());
                let depth = stack.touch(key, weight);
                prop_assert_eq!(depth.map(|depth| depth.above), above);
                if let Some(at) = at {
                    list.remove(at);
                }
                list.insert(0, (key, weight));
                prop_assert_eq!(stack.items(), list.len());
                prop_assert_eq!(stack.total(), list.iter().map(|item| item.1).sum::<u64>());
                prop_assert!(stack.number(key).is_some_and(|number| number < 300));
                prop_assert!(stack.rising().eq(list.iter().rev().copied()));
            }
        }
    }
}
