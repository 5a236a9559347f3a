//! Queues of segments: memcached's HOT, WARM and COLD, and plain segmented LRU.

use super::frame::Scheme;
use super::interface::{Access, LINKS_BITS};
use super::slots::Slots;

const HOT: u8 = 0;
const WARM: u8 = 1;
const COLD: u8 = 2;

/// Lists of [`SegmentedLru`].
pub(super) const HOT_WARM_COLD: usize = 3;

/// `hot_lru_pct` and `warm_lru_pct`, their defaults, of all that is stored.
const HOT_PERCENT: u64 = 20;
const WARM_PERCENT: u64 = 40;
/// `hot_max_factor` and `warm_max_factor`, in fifths: HOT holds nothing older than 0.2 of what COLD's tail
/// is, WARM nothing older than 2 times that.
const HOT_AGE_FIFTHS: u64 = 1;
const WARM_AGE_FIFTHS: u64 = 10;

/// What memcached keeps with an item: two flags and a time.
#[derive(Clone, Copy)]
pub(super) struct Header {
    fetched: bool,
    active: bool,
    time_s: u32,
}

/// memcached's segmented LRU, its default since 1.5.0 (doc/new_lru.txt; `do_item_bump`, `lru_pull_tail` and
/// `lru_maintainer_juggle` in items.c).
///
/// An item comes into HOT. Its first read marks it fetched, its second active. At the tail of HOT an active
/// item goes to WARM, at the tail of WARM back to WARM's head, its mark cleared in both; an inactive one goes
/// to COLD where its queue is above its share or the item is too old. A second read in COLD takes the item to
/// WARM. Evictions are from COLD. TEMP is for items with a short time to live, and off in memcached unless it
/// is asked for: it is not here.
///
/// memcached's maintainer thread works through the queues now and then; here it is never behind. Ages are in
/// seconds of the trace: where a trace has no times, only the shares count.
#[derive(Default)]
pub(super) struct SegmentedLru {
    now_s: u32,
}

impl SegmentedLru {
    /// Moves one item from the tail of HOT or WARM if it is due; says whether it did.
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

    /// Two pointers, a time of 32 bits, two flags and two bits for which queue.
    fn metadata_bits(&self) -> f64 {
        LINKS_BITS + 36.0
    }
}

/// How many segments [`Slru`] has.
pub(super) const SEGMENTS: usize = 4;

/// Segmented LRU (Karedla, Love, Wherry, Computer 27(3), 1994) with four segments of equal size, as in
/// libCacheSim. An item comes into the lowest segment that has room, the lowest of all where none has; a hit
/// takes it to the head of the next higher; what overflows a segment goes to the head of the next lower. The
/// lowest has the rest of the capacity.
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

    /// Two pointers and two bits for which segment.
    fn metadata_bits(&self) -> f64 {
        LINKS_BITS + 2.0
    }
}
