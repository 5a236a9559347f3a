//! Reclaims that cannot be carried out as usual.

use super::Bench;
use crate::device::{
    Device, DeviceCounters, DeviceError, Geometry, PageBuffer, ReadQueue, ZoneId, ZoneReport,
};
use crate::test_devices::MemoryDevice;
use crate::{FlashOptions, OpsPolicy, Put, ReclaimPolicy};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SEGMENT_BYTES: u64 = 16 * 4096;
const ZONE_PAGES: u64 = 512;
/// Bytes of a value of the log.
const SHORT: usize = 960;
/// Keys with such values that fill a zone, about.
const KEYS_OF_ZONE: u32 = ZONE_PAGES as u32 * 4;

/// A device in memory whose appends can be slow.
struct Hampered {
    inner: MemoryDevice,
    /// How long an append takes, milliseconds.
    append_ms: AtomicU64,
}

impl Hampered {
    fn new(zones: u32) -> Arc<Hampered> {
        let inner = MemoryDevice::new(zones, ZONE_PAGES);
        Arc::new(Hampered { inner, append_ms: AtomicU64::new(0) })
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
    (options.reclaim, options.ops) = (ReclaimPolicy::Greedy, OpsPolicy::Static(90));
}

/// Puts versions of some keys. What is full is written, and nothing is reclaimed.
fn put_all(bench: &Bench, keys: impl Iterator<Item = u32>, version: u8, bytes: usize) {
    for key in keys {
        while bench.put(format!("key {key}").as_bytes(), &vec![version; bytes], 0) == Put::Shed {
            bench.flash.components().writer.write_sealed();
        }
    }
}

/// Three full zones, and one more. Every other item of the first zone was replaced.
fn fill(bench: &Bench, bytes: usize, keys_of_zone: u32) {
    put_all(bench, 0..3 * keys_of_zone, 1, bytes);
    put_all(bench, (0..keys_of_zone).step_by(2), 2, bytes);
    bench.flash.components().log.seal_all();
    bench.flash.components().writer.write_sealed();
}

/// How many of the items of [`fill`] are not found.
fn lost(bench: &mut Bench, keys_of_zone: u32) -> usize {
    let is_lost = |key: &u32| {
        let version = if *key < keys_of_zone && key.is_multiple_of(2) { 2 } else { 1 };
        let found = bench.value(format!("key {key}").as_bytes());
        found.is_none_or(|value| value[0] != version)
    };
    (0..3 * keys_of_zone).filter(is_lost).count()
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
    fill(&bench, SHORT, KEYS_OF_ZONE);
    assert_eq!(lost(&mut bench, KEYS_OF_ZONE), 0);
    device.append_ms.store(100, Ordering::SeqCst);
    bench.flash.start().unwrap();
    // The zone has more survivors than there is room for in memory.
    wait_until(|| bench.flash.is_behind() && bench.flash.stats().survivors > 0);
    bench.flash.close().unwrap();
    assert!(bench.flash.stats().survivors < KEYS_OF_ZONE as u64 / 2, "the reclaim is under way");
    device.append_ms.store(0, Ordering::SeqCst);
    bench.restart();
    assert_eq!(lost(&mut bench, KEYS_OF_ZONE), 0);
}

#[test]
fn a_reclaim_without_threads_loses_nothing_for_want_of_room() {
    let mut bench = Bench::on(Hampered::new(14), eager);
    fill(&bench, SHORT, KEYS_OF_ZONE);
    bench.flash.components().reclaim.round();
    let stats = bench.flash.stats();
    assert!(stats.survivors > 0 && stats.reclaims == 0 && stats.quick_drops == 0, "{stats:?}");
    (0..8).for_each(|_| bench.flash.tend());
    assert!(bench.flash.stats().reclaims > 0, "{:?}", bench.flash.stats());
    assert_eq!(lost(&mut bench, KEYS_OF_ZONE), 0);
    bench.restart();
    assert_eq!(lost(&mut bench, KEYS_OF_ZONE), 0);
}
