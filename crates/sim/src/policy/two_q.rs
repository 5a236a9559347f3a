//! 2Q (Johnson and Shasha, VLDB 1994, the full version).

use super::frame::Scheme;
use super::interface::{Access, GHOST_KEY_BITS, LINKS_BITS};
use super::slots::Slots;

const A1_IN: u8 = 0;
const A_M: u8 = 1;
const A1_OUT: u8 = 2;

/// The number of lists.
pub(super) const LISTS: usize = 3;

/// New items enter a FIFO queue (A1in, a quarter of the capacity). The keys of items evicted from A1in are remembered
/// (A1out, half the capacity). A remembered key that is accessed again enters an LRU queue (Am). These are the shares
/// that the paper recommends. A hit in A1in moves nothing.
pub(super) struct TwoQ;

impl TwoQ {
    fn a1_in_max(slots: &Slots<()>) -> u64 {
        slots.capacity() / 4
    }

    fn trim_ghosts(slots: &mut Slots<()>) {
        while slots.list_size(A1_OUT) > slots.capacity() / 2
            && let Some(oldest) = slots.tail(A1_OUT)
        {
            slots.free(oldest);
        }
    }
}

impl Scheme for TwoQ {
    type Data = ();

    fn hit(&mut self, slots: &mut Slots<()>, slot: u32, _: &Access) {
        if slots.list_of(slot) == A_M {
            slots.move_to(A_M, slot);
        }
    }

    fn miss(&mut self, slots: &mut Slots<()>, ghost: Option<u32>, access: &Access) {
        if let Some(ghost) = ghost {
            slots.free(ghost);
        }
        self.admit(slots, if ghost.is_some() { A_M } else { A1_IN }, access, ());
    }

    fn evict(&mut self, slots: &mut Slots<()>) {
        let from_main = slots.list_size(A1_IN) <= Self::a1_in_max(slots);
        if let Some(oldest) = slots.tail(A_M).filter(|_| from_main) {
            slots.free(oldest);
        } else if let Some(oldest) = slots.tail(A1_IN) {
            slots.make_ghost(oldest);
            slots.move_to(A1_OUT, oldest);
            Self::trim_ghosts(slots);
        } else if let Some(oldest) = slots.tail(A_M) {
            slots.free(oldest);
        }
    }

    /// Two pointers and a bit for the queue; half a ghost in a ring.
    fn metadata_bits(&self) -> f64 {
        LINKS_BITS + 1.0 + 0.5 * GHOST_KEY_BITS
    }
}
