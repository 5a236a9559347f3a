//! Bloom filters that tell the segment of an accessed item, and the removal filter (PAMA, section III).

use larder_curve::mix::hash_of;

/// Bits per element at capacity. With [`PROBES`] probes this gives about 0.9 % false positives, or fewer where the
/// number of bits is rounded up to a power of two.
const BITS_PER_ELEMENT: usize = 10;

/// Bits of the smallest filter. A removal filter of a few bits would fill up before it is cleared.
const BITS_MIN: usize = 1024;

/// Bits set per element.
const PROBES: u64 = 5;

/// A Bloom filter over 64-bit keys (Bloom, CACM 1970).
pub(super) struct Bloom {
    words: Vec<u64>,
    mask: u64,
    added: usize,
}

impl Bloom {
    /// An empty filter for `elements` elements.
    pub(super) fn new(elements: usize) -> Bloom {
        let bits = (elements * BITS_PER_ELEMENT).next_power_of_two().max(BITS_MIN);
        Bloom { words: vec![0; bits / 64], mask: bits as u64 - 1, added: 0 }
    }

    pub(super) fn insert(&mut self, Probe { mut at, step }: Probe) {
        for _ in 0..PROBES {
            let bit = at & self.mask;
            self.words[(bit / 64) as usize] |= 1 << (bit % 64);
            at = at.wrapping_add(step);
        }
        self.added += 1;
    }

    #[inline]
    pub(super) fn contains(&self, Probe { mut at, step }: Probe) -> bool {
        for _ in 0..PROBES {
            let bit = at & self.mask;
            if self.words[(bit / 64) as usize] & (1 << (bit % 64)) == 0 {
                return false;
            }
            at = at.wrapping_add(step);
        }
        true
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.added = 0;
    }

    /// Insertions since the last clear.
    pub(super) fn added(&self) -> usize {
        self.added
    }
}

/// The first bit of a key and the distance to the next (Kirsch and Mitzenmacher, ESA 2006).
#[derive(Clone, Copy)]
pub(super) struct Probe {
    at: u64,
    step: u64,
}

impl Probe {
    #[inline]
    pub(super) fn of(key: u64) -> Probe {
        let hash = hash_of(key);
        Probe { at: hash, step: (hash >> 32) | 1 }
    }
}

/// The filters of one stack: one for each resident and ghost segment, and one removal filter.
///
/// A filter only gains members. The paper does not say when a segment's filter is rebuilt. Here an item is added when
/// it enters a segment. The search goes from the lowest segment upwards, because the filter of a segment still
/// contains items that have moved down into the next one. A filter that took one and a half segments' worth of items
/// is rebuilt from the items now in the segment, which costs O(1) per added item. All filters are rebuilt when the
/// window of the values ends, because a group with few misses would otherwise keep old members for long.
pub(super) struct GroupFilters {
    /// Filters of zones 1 to `2 n`: from the uppermost resident segment to the lowest ghost segment.
    segments: Vec<Bloom>,
    removal: Bloom,
    adds_max: usize,
    due: bool,
}

impl GroupFilters {
    /// Filters for `segments` resident segments and as many ghost segments, of `slots` items each.
    pub(super) fn new(segments: usize, slots: usize) -> GroupFilters {
        let adds_max = slots + slots.div_ceil(2);
        GroupFilters {
            segments: (0..2 * segments).map(|_| Bloom::new(adds_max)).collect(),
            removal: Bloom::new(2 * segments * slots),
            adds_max,
            due: false,
        }
    }

    /// An item enters a zone. If the removal filter contains the item, the filter no longer serves and is cleared.
    pub(super) fn enter(&mut self, zone: usize, key: u64) {
        if zone == 0 {
            return;
        }
        let key = Probe::of(key);
        if self.removal.contains(key) {
            self.removal.clear();
        }
        let filter = &mut self.segments[zone - 1];
        filter.insert(key);
        self.due |= filter.added() >= self.adds_max;
    }

    /// An item leaves the segments because it was used.
    pub(super) fn remove(&mut self, key: u64) {
        self.removal.insert(Probe::of(key));
    }

    /// Clears the removal filter, because all other filters are new.
    pub(super) fn forget_removals(&mut self) {
        self.removal.clear();
    }

    /// The lowest of `zones` whose filter contains the key, unless the removal filter contains it too.
    pub(super) fn judge(&self, zones: std::ops::RangeInclusive<usize>, key: u64) -> Option<usize> {
        let key = Probe::of(key);
        let zone = zones.rev().find(|&zone| self.segments[zone - 1].contains(key))?;
        (!self.removal.contains(key)).then_some(zone)
    }

    /// The zones whose filters must be rebuilt.
    pub(super) fn take_due(&mut self) -> Vec<usize> {
        if !std::mem::take(&mut self.due) {
            return Vec::new();
        }
        (1..=self.segments.len()).filter(|&zone| self.segments[zone - 1].added() >= self.adds_max).collect()
    }

    /// Rebuilds the filter of a zone from `keys`.
    pub(super) fn rebuild(&mut self, zone: usize, keys: impl Iterator<Item = u64>) {
        let filter = &mut self.segments[zone - 1];
        filter.clear();
        keys.for_each(|key| filter.insert(Probe::of(key)));
    }
}
