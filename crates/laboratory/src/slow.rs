//! A device that takes a given number of bytes a second and no more.

use larder_flash::device::{
    Device, DeviceCounters, DeviceError, Geometry, PageBuffer, ReadQueue, ZoneId, ZoneReport,
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A device whose caller was late catches up with as much as it takes in this time.
const CATCHES_UP: Duration = Duration::from_millis(100);

/// A device that wraps another one and whose appends take time, one after the other. Everything else is as fast as
/// below.
pub struct SlowDevice {
    inner: Arc<dyn Device>,
    bytes_per_s: f64,
    /// When the last append ends.
    busy_until: Mutex<Instant>,
}

impl SlowDevice {
    /// `inner`, which takes `bytes_per_s` from now on.
    pub fn new(inner: Arc<dyn Device>, bytes_per_s: u64) -> SlowDevice {
        SlowDevice { inner, bytes_per_s: bytes_per_s as f64, busy_until: Mutex::new(Instant::now()) }
    }
}

impl Device for SlowDevice {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn describe(&self) -> String {
        format!("{}, slow", self.inner.describe())
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        self.inner.report(zone)
    }

    fn append(&self, zone: ZoneId, pages: &[u8]) -> Result<u64, DeviceError> {
        let takes = Duration::from_secs_f64(pages.len() as f64 / self.bytes_per_s);
        let ends = {
            let mut busy_until = self.busy_until.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            *busy_until = (*busy_until).max(Instant::now() - CATCHES_UP) + takes;
            *busy_until
        };
        std::thread::sleep(ends.saturating_duration_since(Instant::now()));
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
