//! A device in memory, for tests that need any device.

use super::device::{
    Device, DeviceCounters, DeviceError, Geometry, PAGE_BYTES, PageBuffer, ReadQueue, ZoneId, ZoneReport,
    ZoneState,
};
use super::{AtOnce, reads_at_once};
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Default)]
struct Zone {
    bytes: Vec<u8>,
    finished: bool,
    resets: u64,
}

struct Shared {
    geometry: Geometry,
    zones: Vec<Mutex<Zone>>,
    counters: Mutex<DeviceCounters>,
}

/// A device in memory. Clones share its contents, so a test can close a tier and open another one on the same contents.
#[derive(Clone)]
pub struct MemoryDevice(Arc<Shared>);

impl MemoryDevice {
    /// An empty device of `zones` zones of `zone_pages` pages.
    pub fn new(zones: u32, zone_pages: u64) -> MemoryDevice {
        let geometry = Geometry {
            zones,
            zone_bytes: zone_pages * PAGE_BYTES as u64,
            channels: 1,
            open_zones_max: zones,
        };
        let zones = (0..zones).map(|_| Mutex::default()).collect();
        MemoryDevice(Arc::new(Shared { geometry, zones, counters: Mutex::default() }))
    }

    fn zone(&self, zone: ZoneId) -> Result<MutexGuard<'_, Zone>, DeviceError> {
        let found = self.0.zones.get(zone.0 as usize);
        let found = found.ok_or(DeviceError::State { zone, what: "there is no such zone" })?;
        Ok(found.lock().expect("no panic under this lock"))
    }

    fn count(&self) -> MutexGuard<'_, DeviceCounters> {
        self.0.counters.lock().expect("no panic under this lock")
    }
}

impl Device for MemoryDevice {
    fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    fn describe(&self) -> String {
        "memory".into()
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        let found = self.zone(zone)?;
        let written = found.bytes.len() as u64;
        let state = match written {
            _ if found.finished || written == self.0.geometry.zone_bytes => ZoneState::Full(written),
            0 => ZoneState::Empty,
            _ => ZoneState::Open(written),
        };
        Ok(ZoneReport { state, resets: found.resets })
    }

    fn append(&self, zone: ZoneId, pages: &[u8]) -> Result<u64, DeviceError> {
        let mut found = self.zone(zone)?;
        if !pages.len().is_multiple_of(PAGE_BYTES) {
            return Err(DeviceError::State { zone, what: "not whole pages" });
        }
        if found.finished {
            return Err(DeviceError::State { zone, what: "it is finished" });
        }
        let offset = found.bytes.len() as u64;
        if offset + pages.len() as u64 > self.0.geometry.zone_bytes {
            return Err(DeviceError::Full(zone));
        }
        found.bytes.extend_from_slice(pages);
        drop(found);
        let mut count = self.count();
        count.appends += 1;
        count.append_bytes += pages.len() as u64;
        Ok(offset)
    }

    fn read(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> Result<(), DeviceError> {
        let found = self.zone(zone)?;
        let from = offset as usize;
        let bytes = found.bytes.get(from..from.saturating_add(into.len()));
        into.copy_from_slice(bytes.ok_or(DeviceError::State { zone, what: "nothing is written there" })?);
        drop(found);
        let mut count = self.count();
        count.reads += 1;
        count.read_bytes += into.len() as u64;
        Ok(())
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.zone(zone)?.finished = true;
        Ok(())
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        let mut found = self.zone(zone)?;
        *found = Zone { resets: found.resets + 1, ..Zone::default() };
        drop(found);
        self.count().resets += 1;
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn counters(&self) -> DeviceCounters {
        *self.count()
    }

    fn reads(&self, depth: u32) -> Result<Box<dyn ReadQueue>, DeviceError> {
        reads_at_once(self.clone(), depth)
    }
}

impl AtOnce for MemoryDevice {
    fn read_now(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> (Result<(), DeviceError>, u64) {
        (self.read(zone, offset, into), 0)
    }
}
