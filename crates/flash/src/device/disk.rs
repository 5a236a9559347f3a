use super::handle::Handle;
use super::table::ZoneTable;
use super::{
    Device, DeviceCounters, DeviceError, Geometry, PageBuffer, ReadQueue, ZoneId, ZoneReport, ZoneState,
};
use std::io;
use std::sync::Arc;

/// What files, block devices and zoned block devices do each in their own way.
pub(super) trait Medium: Send + Sync {
    /// What it is: `file`, `block device`.
    fn kind(&self) -> &'static str;

    /// Erases a zone.
    fn erase(&self, handle: &Handle, zone: ZoneId) -> io::Result<()>;

    /// Tells the device that no more will be written to a zone before it is erased.
    fn finish(&self, handle: &Handle, zone: ZoneId) -> io::Result<()>;

    /// A zone has been written to its end.
    fn filled(&self, handle: &Handle, zone: ZoneId) -> io::Result<()>;

    /// Whether a zone that failed can be used no more.
    fn lost(&self, handle: &Handle, zone: ZoneId) -> Lost;
}

/// What became of a zone that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lost {
    /// It may work after a reset.
    No,
    /// It can be read, never written again.
    Writes,
    /// All of it.
    All,
}

/// A file, a block device or a zoned block device, opened by [`super::open`]. Nobody else can open it through this crate
/// meanwhile.
pub struct DiskDevice {
    handle: Arc<Handle>,
    table: ZoneTable,
    open_zones_max: u32,
    medium: Box<dyn Medium>,
}

impl DiskDevice {
    /// `states` as for [`ZoneTable::new`].
    pub(super) fn new(
        handle: Handle,
        states: Vec<(ZoneState, bool)>,
        open_zones_max: u32,
        medium: Box<dyn Medium>,
    ) -> DiskDevice {
        let table = ZoneTable::new(states, handle.layout.zone_bytes, open_zones_max);
        DiskDevice { handle: Arc::new(handle), table, open_zones_max, medium }
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
            // The device's own pointer is anywhere between; the zone is left as if it were finished.
            let _ = self.medium.finish(&self.handle, zone);
            self.table.appended(zone, pages.len(), false);
            if self.medium.lost(&self.handle, zone) == Lost::All {
                self.table.went_offline(zone);
            }
            return Err(error);
        }
        if self.table.appended(zone, pages.len(), true)
            && let Err(error) = self.medium.filled(&self.handle, zone)
        {
            // What was written is written.
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
                let lost = self.medium.lost(&self.handle, zone);
                let state = if lost == Lost::No { ZoneState::Unknown } else { ZoneState::Offline };
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

    fn reads(&self, depth: u32) -> Result<Box<dyn ReadQueue>, DeviceError> {
        self.handle.reads(depth)
    }
}
