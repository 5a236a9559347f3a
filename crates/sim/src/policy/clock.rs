//! CLOCK with one bit, as in MemC3 (Fan, Andersen, Kaminsky, NSDI 2013), and SIEVE.

use super::frame::Scheme;
use super::interface::{Access, LINKS_BITS};
use super::slots::Slots;

const QUEUE: u8 = 0;

/// The number of lists of either policy.
pub(super) const LISTS: usize = 1;

/// CLOCK: the hand moves around a ring of items, clears the bit of each used item, and evicts the first item whose
/// bit is clear. A new item is inserted behind the hand with its bit clear. Here the ring is a queue whose tail is
/// the position of the hand.
pub(super) struct Clock;

impl Scheme for Clock {
    type Data = bool;

    fn hit(&mut self, slots: &mut Slots<bool>, slot: u32, _: &Access) {
        *slots.data(slot) = true;
    }

    fn miss(&mut self, slots: &mut Slots<bool>, _: Option<u32>, access: &Access) {
        self.admit(slots, QUEUE, access, false);
    }

    fn evict(&mut self, slots: &mut Slots<bool>) {
        let Some(at_hand) = slots.tail(QUEUE) else { return };
        if std::mem::take(slots.data(at_hand)) {
            slots.move_to(QUEUE, at_hand);
        } else {
            slots.free(at_hand);
        }
    }

    /// One bit.
    fn metadata_bits(&self) -> f64 {
        1.0
    }
}

/// SIEVE (Zhang, Yang, Yue, Vigfusson, Rashmi, NSDI 2024, algorithm 1). SIEVE differs from CLOCK in two points: an
/// item that the hand spares stays at its position, and new items are inserted at the head.
#[derive(Default)]
pub(super) struct Sieve {
    /// The item that the next search examines first; `None` = the tail.
    hand: Option<u32>,
}

impl Scheme for Sieve {
    type Data = bool;

    fn hit(&mut self, slots: &mut Slots<bool>, slot: u32, _: &Access) {
        *slots.data(slot) = true;
    }

    fn miss(&mut self, slots: &mut Slots<bool>, _: Option<u32>, access: &Access) {
        self.admit(slots, QUEUE, access, false);
    }

    fn evict(&mut self, slots: &mut Slots<bool>) {
        let Some(at_hand) = self.hand.or_else(|| slots.tail(QUEUE)) else { return };
        self.hand = slots.newer(at_hand);
        if !std::mem::take(slots.data(at_hand)) {
            slots.free(at_hand);
        }
    }

    fn forget(&mut self, slots: &mut Slots<bool>, slot: u32) {
        if self.hand == Some(slot) {
            self.hand = slots.newer(slot);
        }
        slots.free(slot);
    }

    /// One bit and two pointers.
    fn metadata_bits(&self) -> f64 {
        1.0 + LINKS_BITS
    }
}
