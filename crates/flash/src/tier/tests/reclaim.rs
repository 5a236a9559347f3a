//! Reclaims that cannot be carried out as usual.

use super::Bench;
use crate::device::{
    Device, DeviceCounters, DeviceError, Geometry, PageBuffer, ReadQueue, ZoneId, ZoneReport,
};
use crate::space::Watermarks;
use crate::test_devices::MemoryDevice;
use crate::{Flash, FlashOptions, Put};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SEGMENT_BYTES: u64 = 16 * 4096;
const ZONE_PAGES: u64 = 512;
/// Items whose records go to the log, and how many of them fill a zone, about.
const SHORT: Items = Items { bytes: 960, of_zone: 1850 };
/// Items that are extents.
const LONG: Items = Items { bytes: 5000, of_zone: 352 };

/// A device in memory whose appends can be slow, and with a zone that only lookups can read.
struct Hampered {
    inner: MemoryDevice,
    /// How long an append takes, milliseconds.
    append_ms: AtomicU64,
    unreadable: AtomicU32,
}

impl Hampered {
    fn new(zones: u32) -> Arc<Hampered> {
        let inner = MemoryDevice::new(zones, ZONE_PAGES);
        Arc::new(Hampered { inner, append_ms: AtomicU64::new(0), unreadable: AtomicU32::new(u32::MAX) })
    }
}

impl Device for Hampered {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn describe(&self) -> String {
        "hampered".into()
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        self.inner.report(zone)
    }

    fn append(&self, zone: ZoneId, pages: &[u8]) -> Result<u64, DeviceError> {
        std::thread::sleep(Duration::from_millis(self.append_ms.load(Ordering::SeqCst)));
        self.inner.append(zone, pages)
    }

    fn read(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> Result<(), DeviceError> {
        if zone.0 == self.unreadable.load(Ordering::SeqCst) {
            return Err(DeviceError::Io { errno: None, what: "the zone is damaged".into() });
        }
        self.inner.read(zone, offset, into)
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.inner.finish(zone)
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.inner.reset(zone)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.inner.sync()
    }

    fn counters(&self) -> DeviceCounters {
        self.inner.counters()
    }

    fn reads(&self, depth: u32) -> Result<Box<dyn ReadQueue>, DeviceError> {
        self.inner.reads(depth)
    }
}

/// Any zone with a little garbage is reclaimed at once.
fn eager(options: &mut FlashOptions) {
    options.segment_bytes = Some(SEGMENT_BYTES);
    options.space = Watermarks::fixed(100);
}

/// Puts versions of some keys. What is full is written, and nothing is reclaimed.
fn put_all(bench: &Bench, keys: impl Iterator<Item = u32>, version: u8, bytes: usize) {
    for key in keys {
        let put = || bench.put(format!("key {key}").as_bytes(), &vec![version; bytes], 0) == Put::Stored;
        let written = || bench.flash.components().writer.write_sealed();
        assert!(put() || (written() && put()), "there is room for it");
    }
}

/// Items of one length.
#[derive(Clone, Copy)]
struct Items {
    bytes: usize,
    of_zone: u32,
}

impl Items {
    /// Three full zones, and one more. In the second one, all items but one in `kept` were replaced.
    fn fill(self, bench: &Bench, kept: u32) {
        put_all(bench, 0..3 * self.of_zone, 1, self.bytes);
        put_all(bench, (0..3 * self.of_zone).filter(|key| self.version(*key, kept) == 2), 2, self.bytes);
        bench.flash.components().log.seal_all();
        bench.flash.components().writer.write_sealed();
    }

    fn version(self, key: u32, kept: u32) -> u8 {
        let is_replaced = (self.of_zone..2 * self.of_zone).contains(&key) && !key.is_multiple_of(kept);
        if is_replaced { 2 } else { 1 }
    }

    /// Items that are not found.
    fn lost(self, bench: &mut Bench, kept: u32) -> Vec<u32> {
        let is_lost = |key: &u32| {
            let found = bench.value(format!("key {key}").as_bytes());
            found.is_none_or(|value| value[0] != self.version(*key, kept))
        };
        (0..3 * self.of_zone).filter(is_lost).collect()
    }
}

/// The zone with the most garbage.
fn worst_zone(bench: &Bench) -> u32 {
    let views = bench.flash.zone_views();
    let garbage = |number: &usize| views[*number].written_bytes - views[*number].live_bytes;
    (0..views.len()).max_by_key(garbage).unwrap() as u32
}

/// Waits until `is_so`.
fn wait_until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come about");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_stop_during_a_reclaim_loses_nothing() {
    let device = Hampered::new(14);
    let mut bench = Bench::on(device.clone(), eager);
    SHORT.fill(&bench, 2);
    assert_eq!(SHORT.lost(&mut bench, 2), []);
    device.append_ms.store(2000, Ordering::SeqCst);
    bench.flash.start().unwrap();
    // The zone has more survivors than there is room for in memory.
    wait_until(|| bench.flash.is_behind() && bench.flash.stats().survivors > 0);
    device.append_ms.store(0, Ordering::SeqCst);
    bench.flash.close().unwrap();
    bench.restart();
    assert_eq!(SHORT.lost(&mut bench, 2), []);
}

#[test]
fn a_reclaim_without_threads_loses_nothing_for_want_of_room() {
    let mut bench = Bench::on(Hampered::new(14), eager);
    SHORT.fill(&bench, 2);
    bench.flash.components().reclaim.round();
    let stats = bench.flash.stats();
    assert!(stats.survivors > 0 && stats.reclaims == 0 && stats.quick_drops == 0, "{stats:?}");
    (0..8).for_each(|_| bench.flash.tend());
    assert!(bench.flash.stats().reclaims > 0, "{:?}", bench.flash.stats());
    assert_eq!(SHORT.lost(&mut bench, 2), []);
    bench.restart();
    assert_eq!(SHORT.lost(&mut bench, 2), []);
}

#[test]
fn a_zone_that_was_taken_from_a_reclaim_is_not_taken_back() {
    let bench = Bench::on(Hampered::new(14), eager);
    SHORT.fill(&bench, 2);
    let space = bench.flash.components().space;
    let (victim, _) = space.begin_draining(u32::MAX, 0, (0, false));
    let zone = victim.expect("half of a zone is garbage").zone;
    assert_eq!(space.draining(), 1);
    // Another thread has dropped it for want of space.
    space.erase(zone);
    space.end_draining(zone, Ok(1));
    assert_eq!(space.draining(), 0, "it may be written again by now");
}

#[test]
fn a_zone_that_cannot_be_read_costs_no_other_zone() {
    let device = Hampered::new(14);
    let mut bench = Bench::on(device.clone(), eager);
    SHORT.fill(&bench, 2);
    let rounds = |bench: &Bench| {
        for _ in 0..8 {
            bench.flash.components().reclaim.round();
            bench.flash.components().writer.write_sealed();
        }
    };
    device.unreadable.store(worst_zone(&bench), Ordering::SeqCst);
    rounds(&bench);
    let stats = bench.flash.stats();
    assert_eq!((stats.quick_drops, stats.reclaims, stats.device_errors), (0, 0, 1), "{stats:?}");
    assert_eq!(SHORT.lost(&mut bench, 2), []);
    // Another zone has garbage as well, but not as much.
    put_all(&bench, (0..SHORT.of_zone).step_by(4), 1, SHORT.bytes);
    rounds(&bench);
    let stats = bench.flash.stats();
    assert_eq!((stats.quick_drops, stats.device_errors), (0, 1), "{stats:?}");
    assert!(stats.reclaims > 0, "{stats:?}");
    assert_eq!(SHORT.lost(&mut bench, 2), []);
}

#[test]
fn extents_that_cannot_be_read_go_first_unless_they_hide_others() {
    for hides in [false, true] {
        let device = Hampered::new(14);
        let mut bench = Bench::on(device.clone(), eager);
        LONG.fill(&bench, 2);
        if hides {
            put_all(&bench, 0..1, 1, LONG.bytes);
        }
        device.unreadable.store(worst_zone(&bench), Ordering::SeqCst);
        bench.flash.components().reclaim.round();
        let stats = bench.flash.stats();
        assert_eq!((stats.quick_drops, stats.reclaims, stats.device_errors), (0, 0, 1), "{stats:?}");
        assert!(bench.flash.components().reclaim.make_room(Duration::ZERO));
        assert_eq!(bench.flash.stats().quick_drops, 1);
        let lost = LONG.lost(&mut bench, 2);
        let (first, last) = (lost[0], lost[lost.len() - 1]);
        let goes = if hides { 0..LONG.of_zone + 12 } else { LONG.of_zone - 12..2 * LONG.of_zone + 12 };
        assert!(goes.contains(&first) && goes.contains(&last), "{first} to {last}, {hides}");
        device.unreadable.store(u32::MAX, Ordering::SeqCst);
        bench.restart();
        assert_eq!(LONG.lost(&mut bench, 2), lost);
    }
}

#[test]
fn survivors_wait_for_a_device_that_gets_on() {
    let device = Hampered::new(14);
    let mut bench = Bench::on(device.clone(), eager);
    SHORT.fill(&bench, 4);
    // A segment takes more than half a second, and some are needed.
    device.append_ms.store(600, Ordering::SeqCst);
    bench.flash.start().unwrap();
    wait_until(|| bench.flash.stats().reclaims + bench.flash.stats().quick_drops > 0);
    assert_eq!(bench.flash.stats().quick_drops, 0);
    device.append_ms.store(0, Ordering::SeqCst);
    bench.flash.close().unwrap();
    assert_eq!(SHORT.lost(&mut bench, 4), []);
}

#[test]
fn survivors_do_not_wait_for_ever_for_a_device_that_stands_still() {
    let device = Hampered::new(14);
    let mut bench = Bench::on(device.clone(), eager);
    SHORT.fill(&bench, 4);
    device.append_ms.store(4000, Ordering::SeqCst);
    bench.flash.start().unwrap();
    wait_until(|| bench.flash.stats().survivors_lost > 0);
    device.append_ms.store(0, Ordering::SeqCst);
    wait_until(|| bench.flash.stats().reclaims > 0);
    bench.flash.close().unwrap();
    assert_eq!(bench.flash.stats().quick_drops, 0);
    assert_eq!(SHORT.lost(&mut bench, 4), []);
}

#[test]
fn an_extent_that_is_too_long_for_the_segments_of_this_run_goes_by_itself() {
    // The first run reclaims nothing.
    let mut bench = Bench::on(Hampered::new(14), |options| {
        (options.segment_bytes, options.memory_bytes) = (Some(4 * SEGMENT_BYTES), 8 << 20);
    });
    let (too_long, is_kept) = (60_000, |key: &u32| key.is_multiple_of(4));
    put_all(&bench, 1000..1004, 1, too_long);
    put_all(&bench, 0..300, 1, LONG.bytes);
    put_all(&bench, (0..300).filter(|key| !is_kept(key)), 2, LONG.bytes);
    bench.flash.close().unwrap();
    assert_eq!(bench.value(b"key 1000").map(|value| value.len()), Some(too_long));
    assert_eq!(bench.flash.stats().reclaims, 0);
    eager(&mut bench.options);
    (bench.options.memory_bytes, bench.options.format) = (4 << 20, false);
    bench.flash = Flash::open(bench.device.clone(), bench.options.clone()).unwrap();
    bench.flash.start().unwrap();
    wait_until(|| bench.flash.stats().reclaims + bench.flash.stats().quick_drops > 0);
    let stats = bench.flash.stats();
    assert_eq!((stats.quick_drops, stats.survivors_lost), (0, 4), "{stats:?}");
    bench.flash.close().unwrap();
    bench.restart();
    for key in 0..300 {
        let version = if is_kept(&key) { 1 } else { 2 };
        assert_eq!(bench.value(format!("key {key}").as_bytes()).map(|value| value[0]), Some(version));
    }
    assert_eq!(bench.value(b"key 1000"), None);
}
