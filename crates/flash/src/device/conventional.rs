//! Regular files and block devices that can be overwritten. Their write pointers are kept in memory
//! ([`super::table::ZoneTable`]).

use super::disk::{DiskDevice, Loss, Medium};
use super::handle::Handle;
use super::system::retry;
use super::{ReadsBy, ZoneId, ZoneState, ioctl};
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A regular file. Its erased zones keep their blocks: few zones are erased at a time and are written over soon, and a
/// file system takes longer to give blocks away and back than to write them.
pub(super) fn file(handle: Handle, reads: ReadsBy) -> DiskDevice {
    device(handle, reads, "file", false)
}

/// A block device.
pub(super) fn block(handle: Handle, reads: ReadsBy) -> DiskDevice {
    device(handle, reads, "block device", true)
}

fn device(handle: Handle, reads: ReadsBy, kind: &'static str, discards: bool) -> DiskDevice {
    let zones = handle.layout.zones;
    let states = vec![(ZoneState::Unknown, false); zones as usize];
    DiskDevice::new(handle, reads, states, zones, Box::new(Conventional { kind, discards: discards.into() }))
}

struct Conventional {
    kind: &'static str,
    /// Whether erased zones are discarded. Otherwise they keep their old bytes until they are written over.
    discards: AtomicBool,
}

impl Medium for Conventional {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn erase(&self, handle: &Handle, zone: ZoneId) -> io::Result<()> {
        if !self.discards.load(Relaxed) {
            return Ok(());
        }
        let start = handle.layout.start(zone).map_err(io::Error::other)?;
        match retry(|| ioctl::discard(&handle.file, start, handle.layout.zone_bytes)) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY | Errno::INVAL) => {
                if self.discards.swap(false, Relaxed) {
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
