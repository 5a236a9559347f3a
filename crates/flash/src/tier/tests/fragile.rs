//! A device that reads late, and that is gone when it was read so often.

use crate::device::{
    Device, DeviceCounters, DeviceError, Geometry, PageBuffer, ReadDone, ReadQueue, ZoneId, ZoneReport,
};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A device that wraps another one. Its queues read when they are reaped: what was erased since the read was submitted
/// is read as erased. Clones are the same device.
#[derive(Clone)]
pub(super) struct FragileDevice {
    inner: Arc<dyn Device>,
    /// The number of reads that succeed. Then the device is gone.
    reads_left: Arc<AtomicI64>,
}

impl FragileDevice {
    pub(super) fn new(inner: impl Device + 'static) -> FragileDevice {
        FragileDevice { inner: Arc::new(inner), reads_left: Arc::new(AtomicI64::new(i64::MAX)) }
    }

    /// The device is gone after this number of further reads.
    pub(super) fn fail_after(&self, reads: i64) {
        self.reads_left.store(reads, Ordering::SeqCst);
    }

    fn present(&self) -> Result<&dyn Device, DeviceError> {
        if self.reads_left.load(Ordering::SeqCst) > 0 { Ok(&*self.inner) } else { Err(DeviceError::Gone) }
    }
}

impl Device for FragileDevice {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        self.present()?.report(zone)
    }

    fn append(&self, zone: ZoneId, pages: &[u8]) -> Result<u64, DeviceError> {
        self.present()?.append(zone, pages)
    }

    fn read(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> Result<(), DeviceError> {
        self.present()?.read(zone, offset, into)?;
        self.reads_left.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.present()?.finish(zone)
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.present()?.reset(zone)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.present()?.sync()
    }

    fn counters(&self) -> DeviceCounters {
        self.inner.counters()
    }

    fn reads(&self, _depth: u32) -> Result<Box<dyn ReadQueue>, DeviceError> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| DeviceError::io("eventfd", error.into()))?;
        Ok(Box::new(LateReads { device: self.clone(), event, submitted: Vec::new() }))
    }
}

struct LateReads {
    device: FragileDevice,
    event: OwnedFd,
    submitted: Vec<(u64, ZoneId, u64, PageBuffer)>,
}

impl ReadQueue for LateReads {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn has_room(&self) -> bool {
        true
    }

    fn submit(
        &mut self,
        token: u64,
        zone: ZoneId,
        offset: u64,
        buffer: PageBuffer,
    ) -> Result<(), PageBuffer> {
        self.submitted.push((token, zone, offset, buffer));
        Ok(())
    }

    fn kick(&mut self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    fn reap(&mut self, done: &mut Vec<ReadDone>) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        for (token, zone, offset, mut buffer) in self.submitted.drain(..) {
            let result = self.device.read(zone, offset, &mut buffer);
            done.push(ReadDone { token, buffer, result });
        }
    }

    fn in_flight(&self) -> usize {
        self.submitted.len()
    }
}
