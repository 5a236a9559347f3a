//! Zoned block devices (NVMe ZNS, host-managed SMR). The device keeps the write pointers, and refuses to be
//! overwritten.
//!
//! An append is a sequence of writes at the write pointer. Each write is at most as large as one request of the
//! device, and the next write starts when the one before it has completed. So no scheduler can reorder them.

use super::disk::{DiskDevice, Loss, Medium};
use super::handle::{Handle, Layout};
use super::ioctl::{self, Condition, ZoneInfo};
use super::path::{DevicePath, human_size};
use super::system::{retry, sysfs_value};
use super::{DeviceOptions, OpenError, PAGE_BYTES, ReadsBy, ZONES_MIN, ZoneId, ZoneState};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;

/// Bytes of one write at most. The device may demand fewer.
const WRITE_BYTES_MAX: u64 = 1 << 20;

/// Opens a zoned block device. `queue` is its folder in sysfs; `file` bypasses the page cache.
pub(super) fn open(
    named: &DevicePath<'_>,
    file: File,
    queue: &Path,
    options: &DeviceOptions,
    reads: ReadsBy,
) -> Result<DiskDevice, OpenError> {
    let io_error = |what: &str, error: Errno| named.refuse(&format!("{what}: {error}"));
    let stride = retry(|| ioctl::zone_bytes(&file)).map_err(|error| io_error("has no zones", error))?;
    let zones = report_all(&file).map_err(|error| io_error("does not report its zones", error))?;
    let (layout, capacities) = layout(named, stride, &zones)?;
    if options.zone_bytes.is_some_and(|bytes| bytes != layout.zone_bytes) {
        return Err(named.refuse(&format!(
            "has zones of its own, of {}: do not ask for another size",
            human_size(layout.zone_bytes)
        )));
    }
    let states = zones[..layout.zones as usize].iter().map(|zone| state(zone, layout.zone_bytes)).collect();
    let open_zones_max = limit(queue, layout.zones);
    let sequential = zones.iter().map(|zone| zone.condition != Condition::Conventional).collect();
    let handle = Handle::new(file, named.name.clone(), layout, true);
    let handle = handle.with_write_bytes_max(write_bytes_max(queue));
    let medium = Box::new(Zoned { sequential, capacities });
    Ok(DiskDevice::new(handle, reads, states, open_zones_max, medium))
}

fn report_all(file: &File) -> rustix::io::Result<Vec<ZoneInfo>> {
    let mut zones: Vec<ZoneInfo> = Vec::new();
    loop {
        let next = zones.last().map_or(0, |zone| zone.start.saturating_add(zone.bytes));
        let some = retry(|| ioctl::report_zones(file, next, usize::MAX))?;
        // A device that reports the same zones again would make this loop endless.
        if some.first().is_none_or(|zone| zone.start != next || zone.bytes == 0) {
            return Ok(zones);
        }
        zones.extend(some);
    }
}

/// The layout of the zones, and their capacities. The zones from the first on that have `stride` bytes are used, so a
/// shorter zone at the end is left out. Of every zone as many bytes are used as the smallest zone has.
fn layout(named: &DevicePath<'_>, stride: u64, zones: &[ZoneInfo]) -> Result<(Layout, Vec<u64>), OpenError> {
    let equal = zones.iter().take_while(|zone| zone.bytes == stride).count();
    let zones = &zones[..equal];
    if equal < ZONES_MIN as usize {
        return Err(named.refuse(&format!("is too small: it has {equal} zones, and {ZONES_MIN} are needed")));
    }
    let usable = |zone: &&ZoneInfo| zone.condition != Condition::Offline;
    let smallest = zones.iter().filter(usable).map(|zone| zone.capacity.min(zone.bytes)).min().unwrap_or(0);
    let zone_bytes = smallest / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    if zone_bytes == 0 || !stride.is_multiple_of(PAGE_BYTES as u64) {
        return Err(named.refuse(&format!("has zones that do not hold whole pages of {PAGE_BYTES} bytes")));
    }
    let count = u32::try_from(equal).map_err(|_| named.refuse("has too many zones"))?;
    Ok((Layout { zones: count, stride, zone_bytes }, zones.iter().map(|zone| zone.capacity).collect()))
}

/// The state of a zone as it was found, and whether it counts against the device's limit of active zones.
fn state(zone: &ZoneInfo, zone_bytes: u64) -> (ZoneState, bool) {
    let written = zone.written.filter(|written| written.is_multiple_of(PAGE_BYTES as u64));
    match (zone.condition, written) {
        (Condition::Empty, _) => (ZoneState::Empty, false),
        (Condition::Active, Some(0)) => (ZoneState::Empty, true),
        (Condition::Active, Some(written)) if written < zone_bytes => (ZoneState::Open(written), true),
        (Condition::Active, Some(_)) => (ZoneState::Full(zone_bytes), true),
        // The write pointer is not at the beginning of a page: another program wrote the zone.
        (Condition::Active, None) => (ZoneState::Unknown, true),
        (Condition::Full | Condition::ReadOnly, _) => (ZoneState::Full(zone_bytes), false),
        (Condition::Conventional, _) => (ZoneState::Unknown, false),
        (Condition::Offline, _) => (ZoneState::Offline, false),
    }
}

/// How many zones may be open for writing at the same time: the smaller one of the limits of open and of active
/// zones. 0 in sysfs means no limit.
fn limit(queue: &Path, zones: u32) -> u32 {
    ["max_open_zones", "max_active_zones"]
        .into_iter()
        .filter_map(|name| sysfs_value(queue, name)?.parse().ok())
        .filter(|limit| *limit > 0)
        .fold(zones, u32::min)
}

/// Bytes of a write that is one request, however the memory of the caller is split into segments.
fn write_bytes_max(queue: &Path) -> usize {
    let number = |name| sysfs_value(queue, name).and_then(|text| text.parse::<u64>().ok());
    let request = number("max_sectors_kb").map_or(WRITE_BYTES_MAX, |kib| kib.saturating_mul(1024));
    let pieces = number("max_segments").map_or(WRITE_BYTES_MAX, |n| n.saturating_mul(PAGE_BYTES as u64));
    let bytes = request.min(pieces).clamp(PAGE_BYTES as u64, WRITE_BYTES_MAX);
    (bytes / PAGE_BYTES as u64) as usize * PAGE_BYTES
}

struct Zoned {
    /// Whether each zone has a write pointer. Some devices begin with zones that have none.
    sequential: Vec<bool>,
    capacities: Vec<u64>,
}

impl Zoned {
    fn is_sequential(&self, zone: ZoneId) -> bool {
        self.sequential.get(zone.0 as usize).copied().unwrap_or(false)
    }
}

impl Medium for Zoned {
    fn kind(&self) -> &'static str {
        "zoned block device"
    }

    fn erase(&self, handle: &Handle, zone: ZoneId) -> io::Result<()> {
        let start = handle.layout.start(zone).map_err(io::Error::other)?;
        if self.is_sequential(zone) {
            retry(|| ioctl::reset_zones(&handle.file, start, handle.layout.stride))?;
        } else {
            let _ = retry(|| ioctl::discard(&handle.file, start, handle.layout.zone_bytes));
        }
        Ok(())
    }

    fn finish(&self, handle: &Handle, zone: ZoneId) -> io::Result<()> {
        if !self.is_sequential(zone) {
            return Ok(());
        }
        let start = handle.layout.start(zone).map_err(io::Error::other)?;
        Ok(retry(|| ioctl::finish_zones(&handle.file, start, handle.layout.stride))?)
    }

    /// Finishes the zone if it has more capacity than the layout uses. The device does not know that such a zone is
    /// full.
    fn filled(&self, handle: &Handle, zone: ZoneId) -> io::Result<()> {
        match self.capacities.get(zone.0 as usize) {
            Some(capacity) if *capacity > handle.layout.zone_bytes => self.finish(handle, zone),
            _ => Ok(()),
        }
    }

    fn loss(&self, handle: &Handle, zone: ZoneId) -> Loss {
        let Ok(start) = handle.layout.start(zone) else { return Loss::Everything };
        let found = retry(|| ioctl::report_zones(&handle.file, start, 1)).unwrap_or_default();
        match found.first().map(|zone| zone.condition) {
            Some(Condition::Offline) => Loss::Everything,
            Some(Condition::ReadOnly) => Loss::Writes,
            _ => Loss::Nothing,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn named() -> DevicePath<'static> {
        DevicePath::new(Path::new("/dev/zoned"))
    }

    /// Zones of 4 MiB with these capacities and conditions.
    fn zones(all: &[(u64, Condition)]) -> Vec<ZoneInfo> {
        let zone = |(index, (capacity, condition)): (usize, &(u64, Condition))| ZoneInfo {
            start: index as u64 * 4 * MIB,
            bytes: 4 * MIB,
            capacity: *capacity,
            written: None,
            condition: *condition,
        };
        all.iter().enumerate().map(zone).collect()
    }

    #[test]
    fn of_unequal_zones_the_smallest_capacity_is_used() {
        let capacities = [3 * MIB, 2 * MIB + 5000, 3 * MIB, 3 * MIB];
        let mut all = zones(&capacities.map(|capacity| (capacity, Condition::Empty)));
        let (found, _) = layout(&named(), 4 * MIB, &all).expect("it can be used");
        assert_eq!(found, Layout { zones: 4, stride: 4 * MIB, zone_bytes: 2 * MIB + 4096 });
        // The capacity of a broken zone does not count, and a shorter zone at the end is left out.
        all[1].condition = Condition::Offline;
        all.push(ZoneInfo { start: 16 * MIB, bytes: MIB, capacity: MIB, ..all[0] });
        let (found, _) = layout(&named(), 4 * MIB, &all).expect("it can be used");
        assert_eq!(found, Layout { zones: 4, stride: 4 * MIB, zone_bytes: 3 * MIB });
    }

    #[test]
    fn devices_that_cannot_be_used_are_refused() {
        let few = zones(&[(MIB, Condition::Empty); 3]);
        let error = layout(&named(), 4 * MIB, &few).expect_err("three zones");
        assert_eq!(error.0, "/dev/zoned is too small: it has 3 zones, and 4 are needed");
        let lost = zones(&[(MIB, Condition::Offline); 5]);
        assert!(layout(&named(), 4 * MIB, &lost).is_err());
        let tiny = zones(&[(512, Condition::Empty); 5]);
        assert!(layout(&named(), 4 * MIB, &tiny).is_err());
        assert!(layout(&named(), 0, &zones(&[(MIB, Condition::Empty); 5])).is_err());
    }

    #[test]
    fn zones_are_taken_over_as_they_are_found() {
        let found = |condition, written| {
            let zone = ZoneInfo { written, ..zones(&[(3 * MIB, condition)])[0] };
            state(&zone, 2 * MIB)
        };
        let active = Condition::Active;
        assert_eq!(found(Condition::Empty, Some(0)), (ZoneState::Empty, false));
        assert_eq!(found(active, Some(0)), (ZoneState::Empty, true));
        assert_eq!(found(active, Some(MIB)), (ZoneState::Open(MIB), true));
        assert_eq!(found(active, Some(2 * MIB + 4096)), (ZoneState::Full(2 * MIB), true));
        assert_eq!(found(active, Some(MIB + 512)), (ZoneState::Unknown, true));
        assert_eq!(found(active, None), (ZoneState::Unknown, true));
        assert_eq!(found(Condition::Full, None), (ZoneState::Full(2 * MIB), false));
        assert_eq!(found(Condition::ReadOnly, None), (ZoneState::Full(2 * MIB), false));
        assert_eq!(found(Condition::Conventional, None), (ZoneState::Unknown, false));
        assert_eq!(found(Condition::Offline, None), (ZoneState::Offline, false));
    }
}
