//! Segmented queues: memcached's HOT, WARM and COLD, and classic segmented LRU.

use super::frame::Scheme;
use super::interface::{Access, LINKS_BITS};
use super::slots::Slots;

const HOT: u8 = 0;
const WARM: u8 = 1;
const COLD: u8 = 2;

/// The number of lists of [`SegmentedLru`].
pub(super) const HOT_WARM_COLD: usize = 3;

/// The defaults of `hot_lru_pct` and `warm_lru_pct`: percent of everything stored.
const HOT_PERCENT: u64 = 20;
const WARM_PERCENT: u64 = 40;
/// The defaults of `hot_max_factor` (0.2) and `warm_max_factor` (2), in fifths. An item of HOT may be at most 0.2
/// times as old as the tail of COLD, an item of WARM at most twice as old.
const HOT_AGE_FIFTHS: u64 = 1;
const WARM_AGE_FIFTHS: u64 = 10;

/// Data that memcached keeps with an item: two flags and a time.
#[derive(Clone, Copy)]
pub(super) struct Header {
    fetched: bool,
    active: bool,
    time_s: u32,
}

/// memcached's segmented LRU, the default since release 1.5.0 (doc/new_lru.txt; `do_item_bump`, `lru_pull_tail` and
/// `lru_maintainer_juggle` in items.c).
///
/// A new item enters HOT. Its first read marks the item as fetched, its second as active. At the tail of HOT or WARM,
/// an active item loses the mark and moves to the head of WARM. An inactive item moves to COLD if its queue is above
/// its share or the item is too old. A second read of an item in COLD moves it to WARM. Evictions take the tail of
/// COLD. The TEMP queue for items with a short time to live is off by default in memcached and is not implemented
/// here.
///
/// memcached's maintainer thread works through the queues periodically; here the queues are maintained after every
/// access. Ages are in seconds of the trace. Where a trace has no times, only the shares count.
#[derive(Default)]
pub(super) struct SegmentedLru {
    now_s: u32,
}

impl SegmentedLru {
    /// Moves the item at the tail of HOT or WARM if a move is due. Returns whether an item was moved.
    fn pull(&self, slots: &mut Slots<Header>, list: u8, percent: u64, age_max_s: u64) -> bool {
        let Some(slot) = slots.tail(list) else { return false };
        let above = slots.list_size(list) > slots.used() * percent / 100;
        let header = slots.data(slot);
        let age_s = u64::from(self.now_s.saturating_sub(header.time_s));
        if std::mem::take(&mut header.active) {
            slots.move_to(WARM, slot);
        } else if above || age_s > age_max_s {
            slots.move_to(COLD, slot);
        } else {
            return false;
        }
        true
    }

    fn juggle(&self, slots: &mut Slots<Header>) {
        let coldest = slots.tail(COLD);
        let age_s = coldest.map_or(0, |slot| u64::from(self.now_s.saturating_sub(slots.data(slot).time_s)));
        while self.pull(slots, HOT, HOT_PERCENT, age_s * HOT_AGE_FIFTHS / 5) {}
        while self.pull(slots, WARM, WARM_PERCENT, age_s * WARM_AGE_FIFTHS / 5) {}
    }
}

impl Scheme for SegmentedLru {
    type Data = Header;

    fn hit(&mut self, slots: &mut Slots<Header>, slot: u32, access: &Access) {
        self.now_s = access.time_s;
        let list = slots.list_of(slot);
        let header = slots.data(slot);
        if !header.fetched {
            header.fetched = true;
        } else if !header.active {
            header.time_s = access.time_s;
            header.active = list != COLD;
            if list == COLD {
                slots.move_to(WARM, slot);
            }
        }
        self.juggle(slots);
    }

    fn miss(&mut self, slots: &mut Slots<Header>, _: Option<u32>, access: &Access) {
        self.now_s = access.time_s;
        self.make_room(slots, access.size);
        let header = Header { fetched: false, active: false, time_s: access.time_s };
        slots.add_to(HOT, access.id, access.size, header);
        self.juggle(slots);
    }

    fn evict(&mut self, slots: &mut Slots<Header>) {
        if let Some(coldest) = slots.tail(COLD) {
            slots.free(coldest);
        } else if !self.pull(slots, HOT, 0, 0) {
            self.pull(slots, WARM, 0, 0);
        }
    }

    /// Two pointers, a time of 32 bits, two flags, and two bits for the queue.
    fn metadata_bits(&self) -> f64 {
        LINKS_BITS + 36.0
    }
}

/// The number of segments of [`Slru`].
pub(super) const SEGMENTS: usize = 4;

/// Segmented LRU (Karedla, Love, Wherry, Computer 27(3), 1994) with four segments of equal size, as in libCacheSim. A
/// new item enters the lowest segment that has room, or segment 0 if none has. A hit moves the item to the head of
/// the next higher segment. Items that overflow a segment move to the head of the next lower segment. Segment 0 has
/// the rest of the capacity.
pub(super) struct Slru;

impl Scheme for Slru {
    type Data = ();

    fn hit(&mut self, slots: &mut Slots<()>, slot: u32, _: &Access) {
        let top = SEGMENTS as u8 - 1;
        slots.move_to((slots.list_of(slot) + 1).min(top), slot);
        let share = slots.capacity() / SEGMENTS as u64;
        for segment in (1..=top).rev() {
            while slots.list_size(segment) > share
                && let Some(oldest) = slots.tail(segment)
            {
                slots.move_to(segment - 1, oldest);
            }
        }
    }

    fn miss(&mut self, slots: &mut Slots<()>, _: Option<u32>, access: &Access) {
        self.make_room(slots, access.size);
        let share = slots.capacity() / SEGMENTS as u64;
        let fits = |segment: &u8| slots.list_size(*segment) + u64::from(access.size) <= share;
        let segment = (0..SEGMENTS as u8).find(fits).unwrap_or(0);
        slots.add_to(segment, access.id, access.size, ());
    }

    fn evict(&mut self, slots: &mut Slots<()>) {
        if let Some(oldest) = (0..SEGMENTS as u8).find_map(|segment| slots.tail(segment)) {
            slots.free(oldest);
        }
    }

    /// Two pointers, and two bits for the segment.
    fn metadata_bits(&self) -> f64 {
        LINKS_BITS + 2.0
    }
}
