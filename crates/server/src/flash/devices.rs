//! The devices of the flash tier: each is opened, and several are used as one.

use crate::settings::{Direct, FlashDevice, FlashSettings};
use larder_flash::device::{self, Device, DeviceOptions, OpenError, together};
use larder_ssd::simulated;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

/// Opens the devices that the settings name, as one. With `format`, whatever they hold is given up.
///
/// Devices that are used together need zones of one length. Where that is not given, each device has a length of its
/// own at first. If the lengths differ, the first one that suits all devices is used, from the shortest on.
///
/// # Errors
/// A device cannot be opened, or is given twice; or the devices do not fit together, or are not those of the last time.
pub(super) fn open(wanted: &FlashSettings, format: bool) -> Result<Arc<dyn Device>, OpenError> {
    if wanted.devices.iter().any(FlashDevice::is_simulated) {
        tracing::warn!(
            "flash: a simulated drive lives in memory, and what it holds is gone when the server stops"
        );
    }
    if let Some(error) = given_twice(wanted) {
        return Err(error);
    }
    let lengths: BTreeSet<u64> = {
        let devices = open_all(wanted, wanted.zone_bytes)?;
        let lengths: BTreeSet<u64> = devices.iter().map(|device| device.geometry().zone_bytes).collect();
        if lengths.len() == 1 {
            return together(devices, format);
        }
        lengths
    };
    for length in lengths {
        match open_all(wanted, Some(length)) {
            Ok(devices) if devices.iter().all(|device| device.geometry().zone_bytes == length) => {
                return together(devices, format);
            }
            _ => {}
        }
    }
    together(open_all(wanted, wanted.zone_bytes)?, format)
}

/// Says so if a device is given twice.
pub(super) fn given_twice(wanted: &FlashSettings) -> Option<OpenError> {
    let mut seen = HashSet::new();
    // Two simulated drives of a kind are two drives.
    let mut drives = wanted.devices.iter().filter(|device| !device.is_simulated());
    let twice = drives.find(|device| !seen.insert(device.to_string()))?;
    Some(OpenError(format!("{twice} is given twice: give each device once")))
}

fn open_all(wanted: &FlashSettings, zone_bytes: Option<u64>) -> Result<Vec<Arc<dyn Device>>, OpenError> {
    wanted.devices.iter().map(|device| open_one(device, wanted.direct, zone_bytes)).collect()
}

/// Why what is at a path cannot be a device.
pub(super) fn unfit(wanted: &FlashSettings, path: &Path, bytes: Option<u64>) -> Option<OpenError> {
    let FlashSettings { zone_bytes, direct, .. } = wanted;
    device::check(path, &DeviceOptions { bytes, zone_bytes: *zone_bytes, direct: as_device(*direct) }).err()
}

fn as_device(direct: Direct) -> device::Direct {
    match direct {
        Direct::Auto => device::Direct::Auto,
        Direct::On => device::Direct::On,
        Direct::Off => device::Direct::Off,
    }
}

fn open_one(
    wanted: &FlashDevice,
    direct: Direct,
    zone_bytes: Option<u64>,
) -> Result<Arc<dyn Device>, OpenError> {
    let direct = as_device(direct);
    match wanted {
        FlashDevice::Path { path, size_bytes } => {
            device::open(path, &DeviceOptions { bytes: *size_bytes, zone_bytes, direct })
        }
        FlashDevice::Simulated { profile, size_bytes } => simulated(profile, *size_bytes, zone_bytes),
    }
}
