//! A queue of reads for devices that answer at once: devices in memory, and devices in virtual time.

use super::device::{DeviceError, PageBuffer, ReadDone, ReadQueue, ZoneId};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A device that answers a read at once.
pub trait AtOnce: Send + 'static {
    /// Reads pages. Returns the result and the virtual time of its end, in nanoseconds; 0 on a device without virtual
    /// time.
    fn read_now(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> (Result<(), DeviceError>, u64);

    /// Advances the virtual time to `_ns`, if it is earlier: the caller of a queue has waited for a read.
    fn reached(&self, _ns: u64) {}
}

struct Reads<S> {
    source: S,
    depth: usize,
    event: OwnedFd,
    done: Vec<ReadDone>,
    /// Virtual time at which the last read ends.
    end_ns: u64,
}

/// A queue whose reads complete when they are submitted. In virtual time they run in parallel. The caller sees them
/// when it reaps.
///
/// # Errors
/// The system gives no eventfd.
pub fn reads_at_once(source: impl AtOnce, depth: u32) -> Result<Box<dyn ReadQueue>, DeviceError> {
    let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
        .map_err(|error| DeviceError::io("eventfd", error.into()))?;
    Ok(Box::new(Reads { source, depth: depth as usize, event, done: Vec::new(), end_ns: 0 }))
}

impl<S: AtOnce> ReadQueue for Reads<S> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn has_room(&self) -> bool {
        self.done.len() < self.depth
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
        let (result, end) = self.source.read_now(zone, offset, &mut buffer);
        self.end_ns = self.end_ns.max(end);
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
        self.source.reached(self.end_ns);
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}
