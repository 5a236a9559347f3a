//! CLOCK with one bit, as in MemC3 (Fan, Andersen, Kaminsky, NSDI 2013), and SIEVE.

use super::frame::Scheme;
use super::interface::{Access, LINKS_BITS};
use super::slots::Slots;

const QUEUE: u8 = 0;

/// Lists that both use.
pub(super) const LISTS: usize = 1;

/// The hand goes round; it clears the bit of an item that was used and evicts the first whose bit is clear.
/// An item comes in behind the hand with its bit clear. The ring is a queue here: its tail is where the hand
/// is.
pub(super) struct Clock;

impl Scheme for Clock {
    type Data = bool;

    fn hit(&mut self, slots: &mut Slots<bool>, slot: u32, _: &Access) {
        *slots.data(slot) = true;
    }

    fn miss(&mut self, slots: &mut Slots<bool>, _: Option<u32>, access: &Access) {
        self.make_room(slots, access.size);
        slots.add_to(QUEUE, access.id, access.size, false);
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

/// SIEVE (Zhang, Yang, Yue, Vigfusson, Rashmi, NSDI 2024, algorithm 1): like CLOCK, but what the hand spares
/// stays where it is, and new items come in at the head.
#[derive(Default)]
pub(super) struct Sieve {
    /// Where the search goes on; `None` = at the tail.
    hand: Option<u32>,
}

impl Scheme for Sieve {
    type Data = bool;

    fn hit(&mut self, slots: &mut Slots<bool>, slot: u32, _: &Access) {
        *slots.data(slot) = true;
    }

    fn miss(&mut self, slots: &mut Slots<bool>, _: Option<u32>, access: &Access) {
        self.make_room(slots, access.size);
        slots.add_to(QUEUE, access.id, access.size, false);
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
