//! Zones in memory: the device that tests use where no device matters.

use super::{
    Device, DeviceCounters, DeviceError, Geometry, PAGE_BYTES, PageBuffer, ReadDone, ReadQueue, ZoneId,
    ZoneReport, ZoneState,
};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Default)]
struct Zone {
    bytes: Vec<u8>,
    finished: bool,
    resets: u64,
}

struct State {
    geometry: Geometry,
    zones: Vec<Mutex<Zone>>,
    counters: Mutex<DeviceCounters>,
}

/// A device of memory. Clones share it, so that a test can close what stands on it and open it again.
#[derive(Clone)]
pub struct MemoryDevice(Arc<State>);

impl MemoryDevice {
    /// `zones` zones of `zone_pages` pages.
    pub fn new(zones: u32, zone_pages: u64) -> MemoryDevice {
        let geometry = Geometry {
            zones,
            zone_bytes: zone_pages * PAGE_BYTES as u64,
            channels: 1,
            open_zones_max: zones,
        };
        let zones = (0..zones).map(|_| Mutex::default()).collect();
        MemoryDevice(Arc::new(State { geometry, zones, counters: Mutex::default() }))
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
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| DeviceError::io("eventfd", error.into()))?;
        Ok(Box::new(MemoryReads { device: self.clone(), depth, event, done: Vec::new() }))
    }
}

/// Reads that are complete as soon as they are submitted, but seen only when reaped.
struct MemoryReads {
    device: MemoryDevice,
    depth: u32,
    event: OwnedFd,
    done: Vec<ReadDone>,
}

impl ReadQueue for MemoryReads {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn has_room(&self) -> bool {
        self.done.len() < self.depth as usize
    }

    fn submit(
        &mut self,
        token: u64,
        zone: ZoneId,
        offset: u64,
        mut buffer: PageBuffer,
    ) -> Result<(), PageBuffer> {
        if !self.has_room() {
            return Err(buffer);
        }
        let result = self.device.read(zone, offset, &mut buffer);
        self.done.push(ReadDone { token, buffer, result });
        Ok(())
    }

    fn kick(&mut self) {
        if !self.done.is_empty() {
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    fn reap(&mut self, done: &mut Vec<ReadDone>) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}
