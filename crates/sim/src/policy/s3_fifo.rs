//! S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi, SOSP 2023, algorithm 1), and Clock2Q+ (arXiv 2511.21958, section 3), which
//! does not count the uses of a burst.

use super::frame::Scheme;
use super::interface::Access;
use super::slots::Slots;

const SMALL: u8 = 0;
const MAIN: u8 = 1;
const GHOST: u8 = 2;

/// The number of lists.
pub(super) const LISTS: usize = 3;

/// Three FIFO queues. New items enter the small queue, a tenth of the capacity. An item with enough uses at the tail of
/// the small queue moves to the main queue; the others are evicted, and their keys are remembered (up to nine tenths
/// of the capacity). A remembered key that is accessed again enters the main queue directly. A used item at the tail
/// of the main queue is reinserted at its head.
///
/// The papers leave three points open; this implementation follows libCacheSim 0.3.5. A key leaves the ghosts when it
/// is accessed again. The use counter is zero when an item enters the main queue. Until the first eviction, items
/// that do not fit into the small queue enter the main queue.
pub(super) struct S3Fifo {
    /// Uses in the small queue that move an item to the main queue.
    uses_for_main: u8,
    /// The use counter stops here.
    uses_max: u8,
    /// Uses in the newest half of the small queue, the correlation window, do not count.
    has_window: bool,
    has_evicted: bool,
    /// The sum of the sizes that have entered the small queue.
    entered: u64,
}

/// What is known of an item.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    uses: u8,
    /// The sum of the sizes that had entered the small queue when the item had.
    entered: u64,
}

fn small_max(slots: &Slots<Seen>) -> u64 {
    slots.capacity() / 10
}

fn main_max(slots: &Slots<Seen>) -> u64 {
    slots.capacity() - small_max(slots)
}

fn ghosts_max(slots: &Slots<Seen>) -> u64 {
    (u128::from(slots.capacity()) * 9 / 10) as u64
}

impl S3Fifo {
    /// Two uses move an item on, and a counter of two bits.
    pub(super) fn new() -> S3Fifo {
        S3Fifo { uses_for_main: 2, uses_max: 3, has_window: false, has_evicted: false, entered: 0 }
    }

    /// One use behind the correlation window moves an item on, and a bit.
    pub(super) fn clock2q_plus() -> S3Fifo {
        S3Fifo { uses_for_main: 1, uses_max: 1, has_window: true, ..S3Fifo::new() }
    }

    /// Removes items from the small queue until one is evicted. If all are worth keeping, the queue ends up empty.
    fn evict_small(&self, slots: &mut Slots<Seen>) {
        while let Some(oldest) = slots.tail(SMALL) {
            if slots.data(oldest).uses >= self.uses_for_main {
                slots.data(oldest).uses = 0;
                slots.move_to(MAIN, oldest);
            } else {
                slots.make_ghost(oldest);
                slots.move_to(GHOST, oldest);
                break;
            }
        }
        while slots.list_size(GHOST) > ghosts_max(slots)
            && let Some(oldest) = slots.tail(GHOST)
        {
            slots.free(oldest);
        }
    }

    fn evict_main(slots: &mut Slots<Seen>) {
        let Some(oldest) = slots.tail(MAIN) else { return };
        let uses = &mut slots.data(oldest).uses;
        if *uses > 0 {
            *uses -= 1;
            slots.move_to(MAIN, oldest);
        } else {
            slots.free(oldest);
        }
    }
}

impl Scheme for S3Fifo {
    type Data = Seen;

    fn hit(&mut self, slots: &mut Slots<Seen>, slot: u32, _: &Access) {
        let is_new =
            |slots: &mut Slots<Seen>| self.entered - slots.data(slot).entered <= small_max(slots) / 2;
        if self.has_window && slots.list_of(slot) == SMALL && is_new(slots) {
            return;
        }
        let uses = &mut slots.data(slot).uses;
        *uses = (*uses + 1).min(self.uses_max);
    }

    fn miss(&mut self, slots: &mut Slots<Seen>, ghost: Option<u32>, access: &Access) {
        if let Some(ghost) = ghost {
            slots.free(ghost);
        }
        self.make_room(slots, access.size);
        let small_is_full = slots.list_size(SMALL) >= small_max(slots);
        let to_main = ghost.is_some() || (!self.has_evicted && small_is_full);
        self.entered += if to_main { 0 } else { u64::from(access.size) };
        let seen = Seen { uses: 0, entered: self.entered };
        slots.add_to(if to_main { MAIN } else { SMALL }, access.id, access.size, seen);
    }

    fn evict(&mut self, slots: &mut Slots<Seen>) {
        self.has_evicted = true;
        if slots.list_size(MAIN) > main_max(slots) || slots.tail(SMALL).is_none() {
            Self::evict_main(slots);
        } else {
            self.evict_small(slots);
        }
    }

    /// The counter; the queues are rings or the order of a log, and a window is a position of a ring. In addition 0.9
    /// ghosts, each with a fingerprint of 32 bits and an eviction time of 32 bits.
    fn metadata_bits(&self) -> f64 {
        f64::from(u8::BITS - self.uses_max.leading_zeros()) + 0.9 * 64.0
    }
}
