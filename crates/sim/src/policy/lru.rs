//! LRU and FIFO: one queue each. LRU moves an accessed item to the head, FIFO does not.

use super::frame::Scheme;
use super::interface::{Access, LINKS_BITS};
use super::slots::Slots;

const QUEUE: u8 = 0;

/// The number of lists of either policy.
pub(super) const LISTS: usize = 1;

/// Evicts the least recently used item.
pub(super) struct Lru;

/// Evicts the oldest item.
pub(super) struct Fifo;

fn evict_tail(slots: &mut Slots<()>) {
    if let Some(oldest) = slots.tail(QUEUE) {
        slots.free(oldest);
    }
}

impl Scheme for Lru {
    type Data = ();

    fn hit(&mut self, slots: &mut Slots<()>, slot: u32, _: &Access) {
        slots.move_to(QUEUE, slot);
    }

    fn miss(&mut self, slots: &mut Slots<()>, _: Option<u32>, access: &Access) {
        self.admit(slots, QUEUE, access, ());
    }

    fn evict(&mut self, slots: &mut Slots<()>) {
        evict_tail(slots);
    }

    /// Two pointers.
    fn metadata_bits(&self) -> f64 {
        LINKS_BITS
    }
}

impl Scheme for Fifo {
    type Data = ();

    fn hit(&mut self, _: &mut Slots<()>, _: u32, _: &Access) {}

    fn miss(&mut self, slots: &mut Slots<()>, _: Option<u32>, access: &Access) {
        self.admit(slots, QUEUE, access, ());
    }

    fn evict(&mut self, slots: &mut Slots<()>) {
        evict_tail(slots);
    }

    /// No bits: the order in which a ring or a log is written is the queue.
    fn metadata_bits(&self) -> f64 {
        0.0
    }
}
