//! Regular files and block devices that can be overwritten. Their write pointers are kept in memory
//! ([`super::table::ZoneTable`]).

use super::disk::{DiskDevice, Loss, Medium};
use super::handle::Handle;
use super::system::retry;
use super::{ReadsBy, ZoneId, ZoneState, ioctl};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, Result};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A regular file.
pub(super) fn file(handle: Handle, reads: ReadsBy) -> DiskDevice {
    device(handle, reads, "file", punch)
}

/// A block device.
pub(super) fn block(handle: Handle, reads: ReadsBy) -> DiskDevice {
    device(handle, reads, "block device", |handle, offset| {
        retry(|| ioctl::discard(&handle.file, offset, handle.layout.zone_bytes))
    })
}

fn device(
    handle: Handle,
    reads: ReadsBy,
    kind: &'static str,
    erase: fn(&Handle, u64) -> Result<()>,
) -> DiskDevice {
    let zones = handle.layout.zones;
    let states = vec![(ZoneState::Unknown, false); zones as usize];
    let medium = Conventional { kind, erase, cannot_erase: AtomicBool::new(false) };
    DiskDevice::new(handle, reads, states, zones, Box::new(medium))
}

/// Gives the blocks of a zone back to the file system, so that the device below can erase them. Then reserves new
/// blocks, so that a later append does not fail for want of space.
fn punch(handle: &Handle, offset: u64) -> Result<()> {
    let bytes = handle.layout.zone_bytes;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    retry(|| fallocate(&handle.file, hole, offset, bytes))?;
    match retry(|| fallocate(&handle.file, FallocateFlags::KEEP_SIZE, offset, bytes)) {
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        // Another program took the space in between. The zone is erased; the next append to it may fail.
        Err(error) => {
            handle.failed("reserving the space of a zone", None, error.into());
            Ok(())
        }
    }
}

struct Conventional {
    kind: &'static str,
    erase: fn(&Handle, u64) -> Result<()>,
    /// The device below does not support discard: an erased zone keeps its old bytes until they are overwritten.
    cannot_erase: AtomicBool,
}

impl Medium for Conventional {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn erase(&self, handle: &Handle, zone: ZoneId) -> io::Result<()> {
        if self.cannot_erase.load(Relaxed) {
            return Ok(());
        }
        let start = handle.layout.start(zone).map_err(io::Error::other)?;
        match (self.erase)(handle, start) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY | Errno::INVAL) => {
                if !self.cannot_erase.swap(true, Relaxed) {
                    tracing::info!(device = %handle.name, "flash: no discard here, zones are written over");
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn finish(&self, _: &Handle, _: ZoneId) -> io::Result<()> {
        Ok(())
    }

    fn filled(&self, _: &Handle, _: ZoneId) -> io::Result<()> {
        Ok(())
    }

    fn loss(&self, _: &Handle, _: ZoneId) -> Loss {
        Loss::Nothing
    }
}
