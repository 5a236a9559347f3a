use super::handle::Handle;
use super::pool::PoolReads;
use super::table::ZoneTable;
use super::uring::UringReads;
use super::{
    Device, DeviceCounters, DeviceError, Geometry, PageBuffer, ReadQueue, ReadsBy, ZoneId, ZoneReport,
    ZoneState,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The operations that differ between files, block devices and zoned block devices.
pub(super) trait Medium: Send + Sync {
    /// The kind of the medium for a person: `file`, `block device`.
    fn kind(&self) -> &'static str;

    /// Erases a zone.
    fn erase(&self, handle: &Handle, zone: ZoneId) -> io::Result<()>;

    /// Tells the device that a zone takes no more writes until it is erased.
    fn finish(&self, handle: &Handle, zone: ZoneId) -> io::Result<()>;

    /// Called when an append has filled a zone.
    fn filled(&self, handle: &Handle, zone: ZoneId) -> io::Result<()>;

    /// What of a zone that failed is lost for good.
    fn loss(&self, handle: &Handle, zone: ZoneId) -> Loss;
}

/// What of a zone that failed is lost for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loss {
    /// Nothing: the zone may work after a reset.
    Nothing,
    /// Writing: the zone can only be read.
    Writes,
    /// The whole zone.
    Everything,
}

/// A file, a block device or a zoned block device that [`super::open`] opened. A lock on the file keeps other servers
/// out.
pub struct DiskDevice {
    handle: Arc<Handle>,
    table: ZoneTable,
    open_zones_max: u32,
    medium: Box<dyn Medium>,
    reads: ReadsBy,
    /// The log line that there is no io_uring was written.
    told_no_uring: AtomicBool,
}

impl DiskDevice {
    /// `states` is given to [`ZoneTable::new`].
    pub(super) fn new(
        handle: Handle,
        reads: ReadsBy,
        states: Vec<(ZoneState, bool)>,
        open_zones_max: u32,
        medium: Box<dyn Medium>,
    ) -> DiskDevice {
        let table = ZoneTable::new(states, handle.layout.zone_bytes, open_zones_max);
        let handle = Arc::new(handle);
        DiskDevice { handle, table, open_zones_max, medium, reads, told_no_uring: AtomicBool::new(false) }
    }
}

impl Device for DiskDevice {
    fn geometry(&self) -> Geometry {
        let layout = self.handle.layout;
        Geometry {
            zones: layout.zones,
            zone_bytes: layout.zone_bytes,
            channels: 1,
            open_zones_max: self.open_zones_max,
        }
    }

    fn describe(&self) -> String {
        let how = if self.handle.direct { "direct" } else { "through the page cache" };
        format!("{} {}, {how}", self.medium.kind(), self.handle.name)
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        self.table.report(zone)
    }

    fn append(&self, zone: ZoneId, pages: &[u8]) -> Result<u64, DeviceError> {
        let offset = self.table.begin_append(zone, pages.len())?;
        let written = match self.handle.layout.position(zone, offset, pages.len()) {
            Ok(position) => self.handle.write(zone, position, pages),
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            // Nobody knows how far the device wrote. The zone is ended, so that no append follows.
            let _ = self.medium.finish(&self.handle, zone);
            self.table.appended(zone, pages.len(), false);
            if self.medium.loss(&self.handle, zone) == Loss::Everything {
                self.table.went_offline(zone);
            }
            return Err(error);
        }
        if self.table.appended(zone, pages.len(), true)
            && let Err(error) = self.medium.filled(&self.handle, zone)
        {
            // The pages are written all the same: the append succeeded.
            self.handle.failed("finishing a zone", Some(zone), error);
        }
        Ok(offset)
    }

    fn read(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> Result<(), DeviceError> {
        if self.table.is_offline(zone) {
            return Err(DeviceError::State { zone, what: "it is offline" });
        }
        self.handle.read(zone, offset, into)
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        if !self.table.begin_finish(zone)? {
            return Ok(());
        }
        let finished = self.medium.finish(&self.handle, zone);
        self.table.finished(zone);
        finished.map_err(|error| self.handle.failed("finishing a zone", Some(zone), error))
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.table.begin_reset(zone)?;
        match self.medium.erase(&self.handle, zone) {
            Ok(()) => {
                self.table.reset(zone, ZoneState::Empty);
                self.handle.counters.reset();
                Ok(())
            }
            Err(error) => {
                let loss = self.medium.loss(&self.handle, zone);
                let state = if loss == Loss::Nothing { ZoneState::Unknown } else { ZoneState::Offline };
                self.table.reset(zone, state);
                Err(self.handle.failed("erasing a zone", Some(zone), error))
            }
        }
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.handle.sync()
    }

    fn counters(&self) -> DeviceCounters {
        self.handle.counters.snapshot()
    }

    /// A queue of the kind that the options ask for. With [`ReadsBy::Auto`] threads stand in where there is no
    /// io_uring.
    fn reads(&self, depth: u32) -> Result<Box<dyn ReadQueue>, DeviceError> {
        if self.reads != ReadsBy::Threads {
            match UringReads::new(self.handle.clone(), depth) {
                Ok(queue) => return Ok(Box::new(queue)),
                Err(error) if self.reads == ReadsBy::Uring => return Err(DeviceError::io("io_uring", error)),
                Err(error) => {
                    if !self.told_no_uring.swap(true, Relaxed) {
                        tracing::info!(device = %self.handle.name, %error, "flash: no io_uring, threads read instead");
                    }
                }
            }
        }
        Ok(Box::new(PoolReads::new(self.handle.clone(), depth)?))
    }
}
