//! S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi, SOSP 2023, algorithm 1).

use super::frame::Scheme;
use super::interface::Access;
use super::slots::Slots;

const SMALL: u8 = 0;
const MAIN: u8 = 1;
const GHOST: u8 = 2;

/// The number of lists.
pub(super) const LISTS: usize = 3;

/// Uses in the small queue that move an item to the main queue.
const USES_FOR_MAIN: u8 = 2;
/// The use counter stops here.
const USES_MAX: u8 = 3;

/// Three FIFO queues. New items enter the small queue, a tenth of the capacity. An item with two uses at the tail of
/// the small queue moves to the main queue; the others are evicted, and their keys are remembered (up to nine tenths
/// of the capacity). A remembered key that is accessed again enters the main queue directly. A used item at the tail
/// of the main queue is reinserted at its head.
///
/// The paper leaves three points open; this implementation follows libCacheSim 0.3.5. A key leaves the ghosts when it
/// is accessed again. The use counter is zero when an item enters the main queue. Until the first eviction, items
/// that do not fit into the small queue enter the main queue.
#[derive(Default)]
pub(super) struct S3Fifo {
    has_evicted: bool,
}

fn small_max(slots: &Slots<u8>) -> u64 {
    slots.capacity() / 10
}

fn main_max(slots: &Slots<u8>) -> u64 {
    slots.capacity() - small_max(slots)
}

fn ghosts_max(slots: &Slots<u8>) -> u64 {
    (u128::from(slots.capacity()) * 9 / 10) as u64
}

impl S3Fifo {
    /// Removes items from the small queue until one is evicted. If all are worth keeping, the queue ends up empty.
    fn evict_small(slots: &mut Slots<u8>) {
        while let Some(oldest) = slots.tail(SMALL) {
            if *slots.data(oldest) >= USES_FOR_MAIN {
                *slots.data(oldest) = 0;
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

    fn evict_main(slots: &mut Slots<u8>) {
        let Some(oldest) = slots.tail(MAIN) else { return };
        let uses = slots.data(oldest);
        if *uses > 0 {
            *uses -= 1;
            slots.move_to(MAIN, oldest);
        } else {
            slots.free(oldest);
        }
    }
}

impl Scheme for S3Fifo {
    /// Number of uses, at most 3.
    type Data = u8;

    fn hit(&mut self, slots: &mut Slots<u8>, slot: u32, _: &Access) {
        let uses = slots.data(slot);
        *uses = (*uses + 1).min(USES_MAX);
    }

    fn miss(&mut self, slots: &mut Slots<u8>, ghost: Option<u32>, access: &Access) {
        if let Some(ghost) = ghost {
            slots.free(ghost);
        }
        self.make_room(slots, access.size);
        let small_is_full = slots.list_size(SMALL) >= small_max(slots);
        let to_main = ghost.is_some() || (!self.has_evicted && small_is_full);
        slots.add_to(if to_main { MAIN } else { SMALL }, access.id, access.size, 0);
    }

    fn evict(&mut self, slots: &mut Slots<u8>) {
        self.has_evicted = true;
        if slots.list_size(MAIN) > main_max(slots) || slots.tail(SMALL).is_none() {
            Self::evict_main(slots);
        } else {
            Self::evict_small(slots);
        }
    }

    /// Two bits for the counter; the queues are rings or the order of a log. In addition 0.9 ghosts, each with a
    /// fingerprint of 32 bits and an eviction time of 32 bits.
    fn metadata_bits(&self) -> f64 {
        2.0 + 0.9 * 64.0
    }
}
