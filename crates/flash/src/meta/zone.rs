//! Writing and erasing a meta zone.

use crate::device::{Device, DeviceError, PAGE_BYTES, PageBuffer, ZoneId, ZoneState};

/// Appends pages to a zone that has `at` pages, and makes them durable.
pub(super) fn write_pages(
    device: &dyn Device,
    zone: ZoneId,
    at: u64,
    pages: &[u8],
) -> Result<(), DeviceError> {
    // Devices that bypass the page cache need aligned memory.
    let mut buffer = PageBuffer::new(pages.len() / PAGE_BYTES);
    buffer.copy_from_slice(pages);
    if device.append(zone, &buffer)? != at * PAGE_BYTES as u64 {
        return Err(DeviceError::State { zone, what: "what was appended lies elsewhere" });
    }
    match device.sync() {
        // One of several devices has failed now. What the others have was made durable in the same call, and a second
        // one says so. (A single device must not be asked twice: it forgets what it failed to write.)
        Err(_) if !device.members().is_empty() && device.report(zone)?.state != ZoneState::Offline => {
            device.sync()
        }
        result => result,
    }
}

/// Erases a zone, unless it is empty.
pub(super) fn erase(device: &dyn Device, zone: ZoneId) -> Result<(), DeviceError> {
    match device.report(zone)?.state {
        ZoneState::Empty => Ok(()),
        _ => device.reset(zone),
    }
}

/// A number above the numbers of all frames of the round that began with `first`.
pub(super) fn round_end(device: &dyn Device, first: u64) -> u64 {
    first.saturating_add(device.geometry().zone_bytes / PAGE_BYTES as u64)
}
