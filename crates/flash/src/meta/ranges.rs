//! Ranges of hashes that were dropped: the last resort when invalidations find no room.
//!
//! The hashes are divided into equal ranges. Each range has a floor: records of the range in segments below that
//! sequence do not exist any more, wherever they are found. A floor only rises.
//!
//! The device has the floors among the bounds of the zones, as those of zones behind [`RANGES`], which no device has.

use super::frame::ZoneBounds;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// The number that range 0 has among the zones on the device. The bit above it marks entries of other bounds.
const RANGES: u32 = 1 << 30;
/// The most ranges, as a power of two.
const LOG2_MAX: u32 = 12;
/// Bytes of a meta zone for each range: the floors take a sixth of the zone at most.
const ZONE_BYTES_EACH: u64 = 128;

/// The floors of all ranges.
pub(crate) struct RangeFloors {
    floors: Box<[AtomicU64]>,
    log2: u32,
    /// How many ranges have a floor.
    count: AtomicUsize,
    /// The highest floor; 0: no range was ever dropped.
    highest: AtomicU64,
    /// The highest floor that the device has.
    durable: AtomicU64,
}

impl RangeFloors {
    /// No range was dropped. `zone_bytes` is the length of a zone, which has to hold all floors.
    pub(crate) fn new(zone_bytes: u64) -> RangeFloors {
        let log2 = Self::log2_for(zone_bytes);
        RangeFloors {
            floors: (0..1usize << log2).map(|_| AtomicU64::new(0)).collect(),
            log2,
            count: AtomicUsize::new(0),
            highest: AtomicU64::new(0),
            durable: AtomicU64::new(0),
        }
    }

    fn log2_for(zone_bytes: u64) -> u32 {
        (zone_bytes / ZONE_BYTES_EACH).max(16).ilog2().min(LOG2_MAX)
    }

    /// How many ranges there are with zones of this length.
    pub(super) fn ranges_for(zone_bytes: u64) -> usize {
        1 << Self::log2_for(zone_bytes)
    }

    /// Memory that the floors take for zones of this length, bytes.
    pub(crate) fn bytes_for(zone_bytes: u64) -> u64 {
        8 << Self::log2_for(zone_bytes)
    }

    fn number(&self, hash: u64) -> usize {
        (hash >> (u64::BITS - self.log2)) as usize
    }

    /// The hashes of the range that a hash is in.
    pub(crate) fn hashes(&self, hash: u64) -> RangeInclusive<u64> {
        let first = (self.number(hash) as u64) << (u64::BITS - self.log2);
        first..=first + (u64::MAX >> self.log2)
    }

    /// Records of this hash in segments below this sequence do not exist any more.
    #[inline]
    pub(crate) fn of(&self, hash: u64) -> u64 {
        if self.highest.load(SeqCst) == 0 { 0 } else { self.floors[self.number(hash)].load(SeqCst) }
    }

    /// Raises the floor of the range that a hash is in.
    pub(crate) fn raise(&self, hash: u64, floor: u64) {
        self.raise_number(self.number(hash), floor);
    }

    fn raise_number(&self, number: usize, floor: u64) {
        if self.floors[number].fetch_max(floor, SeqCst) == 0 {
            self.count.fetch_add(1, SeqCst);
        }
        self.highest.fetch_max(floor, SeqCst);
    }

    /// Takes over what the device has of it; says whether these bounds are those of a range.
    pub(super) fn restore(&self, zone: u32, bounds: ZoneBounds) -> bool {
        let Some(number) = zone.checked_sub(RANGES).map(|number| number as usize) else { return false };
        if number < self.floors.len() {
            self.raise_number(number, bounds.floor);
            self.durable.fetch_max(bounds.floor, SeqCst);
        }
        true
    }

    /// The floors above `above`, as the device has them, and the highest floor, which is among them. When they are
    /// durable, [`RangeFloors::note_durable`] is told.
    pub(super) fn bounds(&self, above: u64) -> (Vec<(u32, ZoneBounds)>, u64) {
        // Before the floors: a range that is dropped meanwhile may be missing.
        let highest = self.highest.load(SeqCst);
        if highest <= above {
            return (Vec::new(), highest);
        }
        let floors = self.floors.iter().enumerate().map(|(number, floor)| (number, floor.load(SeqCst)));
        let bounds = floors
            .filter(|(_, floor)| *floor > above)
            .map(|(number, floor)| (RANGES + number as u32, ZoneBounds { floor, ..ZoneBounds::default() }));
        (bounds.collect(), highest)
    }

    /// How many ranges have a floor.
    pub(super) fn count(&self) -> usize {
        self.count.load(SeqCst)
    }

    /// The device has all floors up to this one.
    pub(super) fn note_durable(&self, highest: u64) {
        self.durable.fetch_max(highest, SeqCst);
    }

    /// The highest floor of any range.
    pub(crate) fn highest(&self) -> u64 {
        self.highest.load(SeqCst)
    }

    /// Whether the device has all floors.
    pub(crate) fn are_durable(&self) -> bool {
        self.are_durable_up_to(self.highest())
    }

    /// Whether the device has all floors up to this one.
    pub(crate) fn are_durable_up_to(&self, floor: u64) -> bool {
        self.durable.load(SeqCst) >= floor
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_that_of_the_whole_range_and_of_no_other() {
        let ranges = RangeFloors::new(1 << 20);
        assert_eq!((ranges.of(7), ranges.are_durable()), (0, true));
        let hash = 0x1234_5678_9abc_def0;
        let hashes = ranges.hashes(hash);
        assert!(hashes.contains(&hash));
        ranges.raise(hash, 40);
        assert_eq!((ranges.of(*hashes.start()), ranges.of(*hashes.end())), (40, 40));
        assert_eq!((ranges.of(hashes.start() - 1), ranges.of(hashes.end() + 1)), (0, 0));
        ranges.raise(hash, 30);
        assert_eq!(ranges.of(hash), 40, "a floor does not fall");
        assert!(!ranges.are_durable());
    }

    #[test]
    fn what_the_device_has_comes_back() {
        let ranges = RangeFloors::new(16 << 10);
        for (hash, floor) in [(0, 5), (u64::MAX, 9), (1 << 60, 7)] {
            ranges.raise(hash, floor);
        }
        let (bounds, highest) = ranges.bounds(5);
        assert_eq!((bounds.len(), highest), (2, 9), "a flush has the others");
        ranges.note_durable(highest);
        assert!(ranges.are_durable());
        let again = RangeFloors::new(16 << 10);
        assert!(bounds.into_iter().all(|(zone, bounds)| again.restore(zone, bounds)));
        assert!(!again.restore(3, ZoneBounds { floor: 8, ..ZoneBounds::default() }), "zone 3 is a zone");
        assert_eq!((again.of(0), again.of(u64::MAX), again.of(1 << 60)), (0, 9, 7));
        assert!(again.are_durable());
    }
}
