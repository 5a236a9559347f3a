use super::at_once::AtOnce;
use super::clock::Clock;
use super::ftl::{Ftl, FtlError, FtlOptions, LBA_BYTES};
use super::profile::Profile;
use super::stats::Wear;
use super::timed_reads;
use larder_flash::device::{
    ChannelCounters, Device, DeviceCounters, DeviceError, Geometry, PAGE_BYTES, PageBuffer, ReadQueue,
    ZoneId, ZoneReport, ZoneState,
};
use std::sync::{Arc, Mutex, MutexGuard};

/// A drive with an [`Ftl`], as a [`Device`]: zones are ranges of logical blocks, and a reset is a TRIM. With it a
/// test measures the write amplification of a zone-writing cache on an ordinary drive
/// ([`DeviceCounters::media_bytes`]). Clones are the same drive.
///
/// Like a real drive, it knows nothing of zones: [`FtlSsd::reopen`] forgets the write pointers.
#[derive(Clone)]
pub struct FtlSsd(Arc<Mutex<Inner>>, Clock);

struct Inner {
    ftl: Ftl,
    zones: Vec<Zone>,
    zone_lbas: u32,
    /// Whether a reset tells the drive that its blocks hold nothing any more.
    trims: bool,
    clock: Clock,
    counters: DeviceCounters,
}

#[derive(Clone, Copy)]
struct Zone {
    state: ZoneState,
    resets: u64,
}

impl FtlSsd {
    /// An erased drive with zones of `zone_bytes` bytes. A rest at the end that is no whole zone is not used.
    ///
    /// # Panics
    /// As [`Ftl::new`]; or if `zone_bytes` is not a multiple of the logical block, or larger than the drive.
    pub fn new(profile: Profile, options: FtlOptions, zone_bytes: u64, seed: u64) -> FtlSsd {
        FtlSsd::with_clock(profile, options, zone_bytes, seed, Clock::virtual_time())
    }

    /// A drive in real time: its operations take as long as they would.
    ///
    /// # Panics
    /// As [`FtlSsd::new`].
    pub fn in_real_time(profile: Profile, options: FtlOptions, zone_bytes: u64, seed: u64) -> FtlSsd {
        FtlSsd::with_clock(profile, options, zone_bytes, seed, Clock::real_time())
    }

    fn with_clock(profile: Profile, options: FtlOptions, zone_bytes: u64, seed: u64, clock: Clock) -> FtlSsd {
        let ftl = Ftl::new(profile, options, seed);
        let zone_lbas = u32::try_from(zone_bytes / LBA_BYTES as u64).unwrap_or(u32::MAX);
        assert!(zone_lbas > 0 && zone_bytes.is_multiple_of(LBA_BYTES as u64), "whole logical blocks");
        let count = ftl.lbas() / zone_lbas;
        assert!(count > 0, "at least one zone");
        let zones = vec![Zone { state: ZoneState::Empty, resets: 0 }; count as usize];
        let inner = Inner { ftl, zones, zone_lbas, trims: true, clock, counters: DeviceCounters::default() };
        FtlSsd(Arc::new(Mutex::new(inner)), clock)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no panic under this lock")
    }

    /// The drive as a device. Every call returns another handle to the same drive.
    pub fn device(&self) -> Arc<dyn Device> {
        Arc::new(self.clone())
    }

    /// Forgets the write pointers, as a restart does: zones that hold anything are [`ZoneState::Unknown`].
    pub fn reopen(&self) {
        let inner = &mut *self.lock();
        for (i, zone) in inner.zones.iter_mut().enumerate() {
            let first = i as u32 * inner.zone_lbas;
            let holds = (first..first + inner.zone_lbas).any(|lba| inner.ftl.is_mapped(lba));
            *zone = Zone { state: if holds { ZoneState::Unknown } else { ZoneState::Empty }, resets: 0 };
        }
    }

    /// From now on, or not any more, a reset is a TRIM. Without it the drive keeps what it holds until the zone is
    /// written again, as where a host does not trim.
    pub fn set_trims(&self, trims: bool) {
        self.lock().trims = trims;
    }

    /// How evenly the blocks are worn.
    pub fn wear(&self) -> Wear {
        self.lock().ftl.wear()
    }

    /// Time since the drive was built, nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.lock().clock.now_ns()
    }
}

fn device_error(error: FtlError) -> DeviceError {
    DeviceError::Io { errno: None, what: error.to_string() }
}

impl Inner {
    fn zone(&self, zone: ZoneId) -> Result<Zone, DeviceError> {
        let found = self.zones.get(zone.0 as usize).copied();
        found.ok_or(DeviceError::State { zone, what: "there is no such zone" })
    }

    fn zone_bytes(&self) -> u64 {
        self.zone_lbas as u64 * LBA_BYTES as u64
    }

    /// The offset of the pages, and the time when the last one had left the host.
    fn append(&mut self, zone: ZoneId, pages: &[u8]) -> Result<(u64, u64), DeviceError> {
        let offset = match self.zone(zone)?.state {
            ZoneState::Empty => 0,
            ZoneState::Open(written) => written,
            ZoneState::Full(written) if written == self.zone_bytes() => return Err(DeviceError::Full(zone)),
            ZoneState::Full(_) => return Err(DeviceError::State { zone, what: "it is finished" }),
            ZoneState::Unknown => return Err(DeviceError::State { zone, what: "it is not erased" }),
            ZoneState::Offline => return Err(DeviceError::State { zone, what: "it is offline" }),
        };
        if !pages.len().is_multiple_of(PAGE_BYTES) {
            return Err(DeviceError::State { zone, what: "not whole pages" });
        }
        let end = offset + pages.len() as u64;
        if end > self.zone_bytes() {
            return Err(DeviceError::Full(zone));
        }
        let lba = zone.0 * self.zone_lbas + (offset / LBA_BYTES as u64) as u32;
        let zone = &mut self.zones[zone.0 as usize];
        match self.ftl.write(self.clock.now_ns(), lba, pages) {
            Ok(taken) => {
                self.clock.reached(taken);
                zone.state = if end == self.zone_lbas as u64 * LBA_BYTES as u64 {
                    ZoneState::Full(end)
                } else {
                    ZoneState::Open(end)
                };
                self.counters.appends += 1;
                self.counters.append_bytes += pages.len() as u64;
                Ok((offset, taken))
            }
            Err(error) => {
                zone.state = ZoneState::Full(offset);
                Err(device_error(error))
            }
        }
    }

    fn read(&mut self, zone: ZoneId, offset: u64, into: &mut [u8]) -> Result<u64, DeviceError> {
        let bound = match self.zone(zone)?.state {
            ZoneState::Empty | ZoneState::Offline => 0,
            ZoneState::Open(written) | ZoneState::Full(written) => written,
            ZoneState::Unknown => self.zone_bytes(),
        };
        if !offset.is_multiple_of(PAGE_BYTES as u64) || !into.len().is_multiple_of(PAGE_BYTES) {
            return Err(DeviceError::State { zone, what: "not whole pages" });
        }
        if offset.checked_add(into.len() as u64).is_none_or(|end| end > bound) {
            return Err(DeviceError::State { zone, what: "nothing is written there" });
        }
        let lba = zone.0 * self.zone_lbas + (offset / LBA_BYTES as u64) as u32;
        let end = self.ftl.read(self.clock.now_ns(), lba, into).map_err(device_error)?;
        self.counters.reads += 1;
        self.counters.read_bytes += into.len() as u64;
        Ok(end)
    }

    fn finish(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        let written = match self.zone(zone)?.state {
            ZoneState::Empty => 0,
            ZoneState::Open(written) | ZoneState::Full(written) => written,
            _ => return Err(DeviceError::State { zone, what: "it is not erased" }),
        };
        self.zones[zone.0 as usize].state = ZoneState::Full(written);
        Ok(())
    }

    fn reset(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        let resets = self.zone(zone)?.resets + 1;
        if self.trims {
            self.ftl.trim(zone.0 * self.zone_lbas, self.zone_lbas).map_err(device_error)?;
        }
        self.zones[zone.0 as usize] = Zone { state: ZoneState::Empty, resets };
        self.counters.resets += 1;
        Ok(())
    }

    fn count<T>(&mut self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        self.counters.errors += result.is_err() as u64;
        result
    }
}

impl Device for FtlSsd {
    fn geometry(&self) -> Geometry {
        let inner = self.lock();
        let zones = inner.zones.len() as u32;
        Geometry { zones, zone_bytes: inner.zone_bytes(), channels: 1, open_zones_max: zones }
    }

    fn describe(&self) -> String {
        format!("simulated SSD with an FTL, {}", self.lock().ftl.nand().profile().name)
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        let Zone { state, resets } = self.lock().zone(zone)?;
        Ok(ZoneReport { state, resets })
    }

    fn append(&self, zone: ZoneId, pages: &[u8]) -> Result<u64, DeviceError> {
        let mut inner = self.lock();
        let result = inner.append(zone, pages);
        let (offset, taken) = inner.count(result)?;
        drop(inner);
        self.1.wait_until(taken);
        Ok(offset)
    }

    fn read(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> Result<(), DeviceError> {
        let (result, end) = self.read_now(zone, offset, into);
        self.reached(end);
        self.1.wait_until(end);
        result
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        let mut inner = self.lock();
        let result = inner.finish(zone);
        inner.count(result)
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        let mut inner = self.lock();
        let result = inner.reset(zone);
        inner.count(result)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        // The drive has capacitors: everything it has accepted survives a loss of power.
        Ok(())
    }

    fn counters(&self) -> DeviceCounters {
        let inner = self.lock();
        let (media_bytes, erases) = (inner.ftl.counters().media_bytes, inner.ftl.wear().spread());
        DeviceCounters { media_bytes: Some(media_bytes), erases: Some(erases), ..inner.counters }
    }

    fn channels(&self) -> Vec<ChannelCounters> {
        self.lock().ftl.nand().channels()
    }

    fn reads(&self, depth: u32) -> Result<Box<dyn ReadQueue>, DeviceError> {
        timed_reads::reads(self.clone(), self.1, depth)
    }
}

impl AtOnce for FtlSsd {
    fn read_now(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> (Result<(), DeviceError>, u64) {
        let mut inner = self.lock();
        let now = inner.clock.now_ns();
        let result = inner.read(zone, offset, into);
        match inner.count(result) {
            Ok(end) => (Ok(()), end),
            Err(error) => (Err(error), now),
        }
    }

    fn reached(&self, ns: u64) {
        let mut inner = self.lock();
        inner.clock.reached(ns);
    }
}
