//! ARC (Megiddo and Modha, FAST 2003, figure 4).

use super::frame::Scheme;
use super::interface::{Access, GHOST_KEY_BITS, LINKS_BITS};
use super::slots::Slots;

/// The paper's four lists: T1 holds items used once, T2 items used at least twice, B1 and B2 the keys evicted from T1
/// and T2.
const T1: u8 = 0;
const T2: u8 = 1;
const B1: u8 = 2;
const B2: u8 = 3;

/// The number of lists.
pub(super) const LISTS: usize = 4;

/// Two LRU queues. Hits on recently evicted keys decide how the capacity is divided between the queues.
///
/// The paper counts pages. This implementation counts sizes: each adaptation moves the target by the size of the item
/// times the paper's ratio. With sizes of 1 it is exactly the paper's algorithm.
#[derive(Default)]
pub(super) struct Arc {
    /// The paper's `p`: the target size of T1.
    target: f64,
    /// Whether the key of the current request was found in B2.
    in_b2: bool,
}

impl Arc {
    /// Cases II and III of the paper: a hit on an evicted key moves the target.
    fn adapt(&mut self, slots: &Slots<()>, ghost: u32, size: u32) {
        let (b1, b2) = (slots.list_size(B1) as f64, slots.list_size(B2) as f64);
        if slots.list_of(ghost) == B1 {
            let step = f64::from(size) * (b2 / b1).max(1.0);
            self.target = (self.target + step).min(slots.capacity() as f64);
        } else {
            let step = f64::from(size) * (b1 / b2).max(1.0);
            self.target = (self.target - step).max(0.0);
        }
    }

    /// The paper's REPLACE.
    fn replace(&self, slots: &mut Slots<()>) {
        let t1 = slots.list_size(T1) as f64;
        let above = t1 > self.target || (self.in_b2 && t1 == self.target);
        let from_t1 = slots.tail(T1).filter(|_| above || slots.tail(T2).is_none());
        if let Some(oldest) = from_t1 {
            slots.make_ghost(oldest);
            slots.move_to(B1, oldest);
        } else if let Some(oldest) = slots.tail(T2) {
            slots.make_ghost(oldest);
            slots.move_to(B2, oldest);
        }
    }

    /// Case IV of the paper, for a key in none of the lists: makes room for `size`.
    fn make_room_for_new(&self, slots: &mut Slots<()>, size: u32) {
        while slots.lacks(size) {
            let l1 = slots.list_size(T1) + slots.list_size(B1);
            if l1 + u64::from(size) <= slots.capacity() {
                self.replace(slots);
            } else if let Some(oldest) = slots.tail(B1) {
                slots.free(oldest);
                self.replace(slots);
            } else if let Some(oldest) = slots.tail(T1) {
                slots.free(oldest);
            } else {
                self.replace(slots);
            }
        }
    }

    /// Limits T1 and B1 together to the capacity, and all four lists to twice the capacity.
    fn trim_ghosts(slots: &mut Slots<()>) {
        let l1 = |slots: &Slots<()>| slots.list_size(T1) + slots.list_size(B1);
        let l2 = |slots: &Slots<()>| slots.list_size(T2) + slots.list_size(B2);
        while l1(slots) > slots.capacity()
            && let Some(oldest) = slots.tail(B1)
        {
            slots.free(oldest);
        }
        while l1(slots) + l2(slots) > slots.capacity().saturating_mul(2)
            && let Some(oldest) = slots.tail(B2)
        {
            slots.free(oldest);
        }
    }
}

impl Scheme for Arc {
    type Data = ();

    fn hit(&mut self, slots: &mut Slots<()>, slot: u32, _: &Access) {
        slots.move_to(T2, slot);
        self.in_b2 = false;
        self.make_room(slots, 0);
        Self::trim_ghosts(slots);
    }

    fn miss(&mut self, slots: &mut Slots<()>, ghost: Option<u32>, access: &Access) {
        if let Some(ghost) = ghost {
            self.adapt(slots, ghost, access.size);
            self.in_b2 = slots.list_of(ghost) == B2;
            slots.free(ghost);
            self.make_room(slots, access.size);
            slots.add_to(T2, access.id, access.size, ());
        } else {
            self.in_b2 = false;
            self.make_room_for_new(slots, access.size);
            slots.add_to(T1, access.id, access.size, ());
        }
        Self::trim_ghosts(slots);
    }

    fn evict(&mut self, slots: &mut Slots<()>) {
        self.replace(slots);
    }

    /// Two pointers and two bits for the list, for the item and for one ghost; and the key of the ghost.
    fn metadata_bits(&self) -> f64 {
        2.0 * (LINKS_BITS + 2.0) + GHOST_KEY_BITS
    }
}
