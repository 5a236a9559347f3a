//! LIRS (Jiang and Zhang, SIGMETRICS 2002, section 3).

use super::frame::Scheme;
use super::interface::{Access, GHOST_KEY_BITS, LINKS_BITS};
use super::slots::Slots;

/// The paper's stack S. It holds the LIR items (reused soon), and the HIR items and ghosts used more recently than
/// the LIR item at the bottom.
const STACK: u8 = 0;
/// Stored items that are not in the stack.
const OUTSIDE: u8 = 1;

/// The number of lists.
pub(super) const LISTS: usize = 2;

const NIL: u32 = u32::MAX;

/// A first-in-first-out queue of slots, independent of the list that each slot is in.
struct Chain {
    /// (before, after) of each slot; outdated for a slot that is not in the queue.
    links: Vec<(u32, u32)>,
    first: u32,
    last: u32,
}

impl Chain {
    fn new() -> Chain {
        Chain { links: Vec::new(), first: NIL, last: NIL }
    }

    fn first(&self) -> Option<u32> {
        Some(self.first).filter(|&slot| slot != NIL)
    }

    fn push(&mut self, slot: u32) {
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, (NIL, NIL));
        }
        self.links[slot as usize] = (self.last, NIL);
        match self.last {
            NIL => self.first = slot,
            last => self.links[last as usize].1 = slot,
        }
        self.last = slot;
    }

    fn remove(&mut self, slot: u32) {
        let (before, after) = self.links[slot as usize];
        match before {
            NIL => self.first = after,
            before => self.links[before as usize].1 = after,
        }
        match after {
            NIL => self.last = before,
            after => self.links[after as usize].0 = before,
        }
    }
}

/// Divides items into LIR and HIR by how recently they were used twice. HIR items have 1 % of the capacity and are
/// evicted first, in the order of the paper's queue Q. A HIR item that is accessed while its key is in the stack
/// becomes LIR, whether it is stored or a ghost.
///
/// The paper does not limit the number of ghosts. As in libCacheSim, the stack holds at most twice the capacity here;
/// the oldest ghosts are dropped first.
pub(super) struct Lirs {
    queue: Chain,
    ghosts: Chain,
    lir_size: u64,
}

fn lir_max(slots: &Slots<u32>) -> u64 {
    slots.capacity() - (slots.capacity() / 100).max(1).min(slots.capacity())
}

impl Lirs {
    /// An empty cache.
    pub(super) fn new() -> Lirs {
        Lirs { queue: Chain::new(), ghosts: Chain::new(), lir_size: 0 }
    }

    /// Counts an item as LIR, with its present size.
    fn count_lir(&mut self, slots: &mut Slots<u32>, slot: u32) {
        let size = slots.size(slot);
        let counted = std::mem::replace(slots.data(slot), size);
        self.lir_size = self.lir_size - u64::from(counted) + u64::from(size);
    }

    /// Removes everything but LIR items from the bottom of the stack.
    fn prune(&mut self, slots: &mut Slots<u32>) {
        while let Some(bottom) = slots.tail(STACK).filter(|&slot| *slots.data(slot) == 0) {
            if slots.is_resident(bottom) {
                slots.move_to(OUTSIDE, bottom);
            } else {
                self.ghosts.remove(bottom);
                slots.free(bottom);
            }
        }
    }

    /// Turns the LIR item at the bottom of the stack into the newest HIR item of the queue.
    fn demote(&mut self, slots: &mut Slots<u32>) {
        if let Some(bottom) = slots.tail(STACK) {
            self.lir_size -= u64::from(std::mem::take(slots.data(bottom)));
            slots.move_to(OUTSIDE, bottom);
            self.queue.push(bottom);
            self.prune(slots);
        }
    }

    fn settle(&mut self, slots: &mut Slots<u32>) {
        self.prune(slots);
        while self.lir_size > lir_max(slots) {
            self.demote(slots);
        }
        while slots.list_size(STACK) > slots.capacity().saturating_mul(2)
            && let Some(ghost) = self.ghosts.first()
        {
            self.ghosts.remove(ghost);
            slots.free(ghost);
        }
    }
}

impl Scheme for Lirs {
    /// The size with which the item counts as LIR; 0 = the item is HIR.
    type Data = u32;

    fn hit(&mut self, slots: &mut Slots<u32>, slot: u32, _: &Access) {
        let was_lir = *slots.data(slot) > 0;
        let in_stack = slots.list_of(slot) == STACK;
        slots.move_to(STACK, slot);
        if was_lir {
            self.count_lir(slots, slot);
        } else {
            self.queue.remove(slot);
            if in_stack {
                self.count_lir(slots, slot);
            } else {
                self.queue.push(slot);
            }
        }
        self.settle(slots);
    }

    fn miss(&mut self, slots: &mut Slots<u32>, ghost: Option<u32>, access: &Access) {
        if let Some(ghost) = ghost {
            self.ghosts.remove(ghost);
            slots.free(ghost);
        }
        self.make_room(slots, access.size);
        let lir_has_room = self.lir_size + u64::from(access.size) <= lir_max(slots);
        let slot = slots.add_to(STACK, access.id, access.size, 0);
        if ghost.is_some() || lir_has_room {
            self.count_lir(slots, slot);
        } else {
            self.queue.push(slot);
        }
        self.settle(slots);
    }

    fn evict(&mut self, slots: &mut Slots<u32>) {
        let Some(first) = self.queue.first() else { return self.demote(slots) };
        self.queue.remove(first);
        if slots.list_of(first) == STACK {
            slots.make_ghost(first);
            self.ghosts.push(first);
        } else {
            slots.free(first);
        }
    }

    fn forget(&mut self, slots: &mut Slots<u32>, slot: u32) {
        let counted = *slots.data(slot);
        if counted == 0 {
            self.queue.remove(slot);
        }
        self.lir_size -= u64::from(counted);
        slots.free(slot);
        self.prune(slots);
    }

    /// Links for the stack and for the queue and two bits for membership, for the item and for one ghost; and the key
    /// of the ghost.
    fn metadata_bits(&self) -> f64 {
        2.0 * (2.0 * LINKS_BITS + 2.0) + GHOST_KEY_BITS
    }
}
