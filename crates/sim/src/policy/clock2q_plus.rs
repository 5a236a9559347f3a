//! Clock2Q+ (arXiv 2511.21958, section 3).

use super::frame::Scheme;
use super::interface::Access;
use super::slots::Slots;

const SMALL: u8 = 0;
const MAIN: u8 = 1;
const GHOST: u8 = 2;

/// The number of lists.
pub(super) const LISTS: usize = 3;

/// What is known of an item.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// It was used, in the small queue after its correlation window.
    used: bool,
    /// The sum of the sizes that had entered the small queue when the item had.
    entered: u64,
}

/// A small queue, a tenth of the capacity, before a main queue that is a CLOCK with one bit. An item that was used in
/// the small queue moves on to the main queue; the others are evicted, and their keys are remembered (up to nine tenths
/// of the capacity). A remembered key that is accessed again enters the main queue directly. Uses in the newest half of
/// the small queue, the correlation window, do not count.
///
/// The defaults are those of libCacheSim 0.3.5, as are the points that the paper leaves open: those of
/// [`S3Fifo`](super::s3_fifo::S3Fifo).
#[derive(Default)]
pub(super) struct Clock2QPlus {
    has_evicted: bool,
    /// The sum of the sizes that have entered the small queue.
    entered: u64,
}

fn small_max(slots: &Slots<Seen>) -> u64 {
    slots.capacity() / 10
}

fn window(slots: &Slots<Seen>) -> u64 {
    small_max(slots) / 2
}

fn main_max(slots: &Slots<Seen>) -> u64 {
    slots.capacity() - small_max(slots)
}

fn ghosts_max(slots: &Slots<Seen>) -> u64 {
    (u128::from(slots.capacity()) * 9 / 10) as u64
}

impl Clock2QPlus {
    /// Removes items from the small queue until one is evicted. If all were used, the queue ends up empty.
    fn evict_small(slots: &mut Slots<Seen>) {
        while let Some(oldest) = slots.tail(SMALL) {
            if std::mem::take(&mut slots.data(oldest).used) {
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
        if std::mem::take(&mut slots.data(oldest).used) {
            slots.move_to(MAIN, oldest);
        } else {
            slots.free(oldest);
        }
    }
}

impl Scheme for Clock2QPlus {
    type Data = Seen;

    fn hit(&mut self, slots: &mut Slots<Seen>, slot: u32, _: &Access) {
        let counts = slots.list_of(slot) == MAIN || self.entered - slots.data(slot).entered > window(slots);
        slots.data(slot).used |= counts;
    }

    fn miss(&mut self, slots: &mut Slots<Seen>, ghost: Option<u32>, access: &Access) {
        if let Some(ghost) = ghost {
            slots.free(ghost);
        }
        self.make_room(slots, access.size);
        let small_is_full = slots.list_size(SMALL) >= small_max(slots);
        let to_main = ghost.is_some() || (!self.has_evicted && small_is_full);
        self.entered += if to_main { 0 } else { u64::from(access.size) };
        let seen = Seen { used: false, entered: self.entered };
        slots.add_to(if to_main { MAIN } else { SMALL }, access.id, access.size, seen);
    }

    fn evict(&mut self, slots: &mut Slots<Seen>) {
        self.has_evicted = true;
        if slots.list_size(MAIN) > main_max(slots) || slots.tail(SMALL).is_none() {
            Self::evict_main(slots);
        } else {
            Self::evict_small(slots);
        }
    }

    /// One bit; the queues are rings, and the window is a position of a ring. In addition 0.9 ghosts, each with a
    /// fingerprint of 32 bits and an eviction time of 32 bits.
    fn metadata_bits(&self) -> f64 {
        1.0 + 0.9 * 64.0
    }
}
