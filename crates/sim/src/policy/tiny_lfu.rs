//! W-TinyLFU (Einziger, Friedman, Manes, ACM Transactions on Storage 13(4), 2017).

use super::frame::Scheme;
use super::interface::{Access, LINKS_BITS};
use super::sketch::Sketch;
use super::slots::Slots;

const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;

/// The number of lists.
pub(super) const LISTS: usize = 3;

/// An LRU window of 1 % of the capacity takes every new item. The rest of the capacity, the main part, is a segmented
/// LRU of which four fifths are protected. An item that falls out of the window enters the main part only if the
/// sketch has counted more uses of it than of each item that would have to be evicted for it.
///
/// Every request is counted. The paper's optional doorkeeper, which saves memory, is left out.
pub(super) struct TinyLfu {
    sketch: Sketch,
}

fn window_max(slots: &Slots<()>) -> u64 {
    (slots.capacity() / 100).max(1)
}

fn main_max(slots: &Slots<()>) -> u64 {
    slots.capacity() - window_max(slots)
}

fn protected_max(slots: &Slots<()>) -> u64 {
    (u128::from(main_max(slots)) * 4 / 5) as u64
}

fn main_lacks(slots: &Slots<()>, size: u32) -> bool {
    slots.list_size(PROBATION) + slots.list_size(PROTECTED) + u64::from(size) > main_max(slots)
}

fn main_victim(slots: &Slots<()>) -> Option<u32> {
    slots.tail(PROBATION).or_else(|| slots.tail(PROTECTED))
}

impl TinyLfu {
    /// An empty cache.
    pub(super) fn new() -> TinyLfu {
        TinyLfu { sketch: Sketch::new() }
    }

    /// Brings the window and the main part back within their shares.
    fn settle(&self, slots: &mut Slots<()>) {
        while main_lacks(slots, 0)
            && let Some(victim) = main_victim(slots)
        {
            slots.free(victim);
        }
        while slots.list_size(WINDOW) > window_max(slots)
            && let Some(candidate) = slots.tail(WINDOW)
        {
            if self.wins(slots, candidate) {
                slots.move_to(PROBATION, candidate);
            } else {
                slots.free(candidate);
            }
        }
    }

    /// Whether a candidate from the window enters the main part. If so, room for it has been made.
    fn wins(&self, slots: &mut Slots<()>, candidate: u32) -> bool {
        let size = slots.size(candidate);
        if u64::from(size) > main_max(slots) {
            return false;
        }
        let uses = self.sketch.estimate(slots.id(candidate));
        while main_lacks(slots, size)
            && let Some(victim) = main_victim(slots)
        {
            if uses <= self.sketch.estimate(slots.id(victim)) {
                return false;
            }
            slots.free(victim);
        }
        true
    }
}

impl Scheme for TinyLfu {
    type Data = ();

    fn hit(&mut self, slots: &mut Slots<()>, slot: u32, access: &Access) {
        self.sketch.add(access.id);
        let list = slots.list_of(slot);
        slots.move_to(if list == WINDOW { WINDOW } else { PROTECTED }, slot);
        while slots.list_size(PROTECTED) > protected_max(slots)
            && let Some(oldest) = slots.tail(PROTECTED)
        {
            slots.move_to(PROBATION, oldest);
        }
        self.settle(slots);
    }

    fn miss(&mut self, slots: &mut Slots<()>, _: Option<u32>, access: &Access) {
        self.sketch.fit(slots.items() + 1);
        self.sketch.add(access.id);
        slots.add_to(WINDOW, access.id, access.size, ());
        self.settle(slots);
    }

    fn evict(&mut self, slots: &mut Slots<()>) {
        if let Some(victim) = main_victim(slots).or_else(|| slots.tail(WINDOW)) {
            slots.free(victim);
        }
    }

    /// Two pointers and two bits for the list; 16 counters of 4 bits.
    fn metadata_bits(&self) -> f64 {
        LINKS_BITS + 2.0 + 64.0
    }
}
