//! Reads by io_uring: one ring for each queue, an eventfd that tells of completions.
//!
//! What is submitted is kept until [`ReadQueue::kick`], which hands all of it over with one system call. What the kernel
//! may write to belongs to a [`Slot`] from then until its completion is seen; [`Drop`] waits for what is under way, and
//! rather leaves memory behind than give it back while the kernel may write to it.

use super::handle::Handle;
use super::{DeviceError, PageBuffer, ReadDone, ReadQueue, ZoneId};
use io_uring::{IoUring, Probe, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Reads of one queue at most.
const DEPTH_MAX: u32 = 4096;
/// How often one read is tried again after `EINTR` or `EAGAIN`.
const TRIES_MAX: u8 = 16;

/// A read that was submitted.
struct Slot {
    token: u64,
    zone: ZoneId,
    buffer: PageBuffer,
    /// Where the read begins on the device.
    position: u64,
    /// Bytes that have come.
    filled: usize,
    tries: u8,
}

/// A queue of reads on a ring of its own.
pub(super) struct UringReads {
    ring: IoUring,
    event: OwnedFd,
    /// Keeps the file open while the kernel reads from it.
    handle: Arc<Handle>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Slots that wait for [`ReadQueue::kick`].
    pending: VecDeque<u32>,
    /// Refused before they reached the kernel: returned by the next reap.
    refused: Vec<ReadDone>,
    /// Slots that the kernel has, or may have: pushed to the ring and not seen again.
    with_kernel: usize,
    /// The last system call did not take everything.
    behind: bool,
}

impl UringReads {
    /// # Errors
    /// Where the system has no io_uring, forbids it, or has no room for a ring.
    pub(super) fn new(handle: Arc<Handle>, depth: u32) -> io::Result<UringReads> {
        let depth = depth.clamp(1, DEPTH_MAX);
        let ring = IoUring::builder().setup_clamp().build(depth)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) {
            return Err(io::Error::other("io_uring does not know how to read (Linux 5.6 does)"));
        }
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        let depth = depth.min(ring.params().sq_entries());
        Ok(UringReads {
            ring,
            event,
            handle,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            pending: VecDeque::new(),
            refused: Vec::new(),
            with_kernel: 0,
            behind: false,
        })
    }

    /// Moves what waits into the ring, and tells the kernel.
    fn push(&mut self) {
        while let Some(&index) = self.pending.front() {
            let Some(slot) = self.slots[index as usize].as_mut() else {
                self.pending.pop_front();
                continue;
            };
            let rest = &mut slot.buffer[slot.filled..];
            let read = opcode::Read::new(
                types::Fd(self.handle.file.as_raw_fd()),
                rest.as_mut_ptr(),
                rest.len().min(u32::MAX as usize) as u32,
            );
            let entry = read.offset(slot.position + slot.filled as u64).build().user_data(u64::from(index));
            // SAFETY: the memory belongs to the slot's buffer, which is neither moved on the heap, nor touched, nor freed
            // before the completion with this index was seen (`complete`) or the ring was given up (`drop`); the file is
            // kept open by `handle`.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                break;
            }
            self.pending.pop_front();
            self.with_kernel += 1;
        }
        self.enter();
    }

    /// Hands the ring to the kernel. What it does not take now (no memory, completions not fetched) is tried again at the next
    /// reap, for which the event is raised.
    fn enter(&mut self) {
        loop {
            self.behind = match self.ring.submit() {
                Ok(_) => !self.ring.submission().is_empty() || !self.pending.is_empty(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => true,
            };
            break;
        }
        if self.behind {
            self.ring_bell();
        }
    }

    fn ring_bell(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// A completion was seen: the kernel has let go of the slot.
    fn complete(&mut self, index: u32, result: i32, done: &mut Vec<ReadDone>) {
        self.with_kernel -= 1;
        let Some(slot) = self.slots[index as usize].as_mut() else { return };
        let again = result == -Errno::INTR.raw_os_error() || result == -Errno::AGAIN.raw_os_error();
        let result = match result {
            _ if again && slot.tries < TRIES_MAX => {
                slot.tries += 1;
                self.pending.push_back(index);
                return;
            }
            ..0 => Err(io::Error::from_raw_os_error(-result)),
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the device ends before that")),
            bytes => {
                slot.filled += bytes as usize;
                if slot.filled < slot.buffer.len() {
                    self.pending.push_back(index);
                    return;
                }
                Ok(())
            }
        };
        let Some(slot) = self.slots[index as usize].take() else { return };
        self.free.push(index);
        let result = match result {
            Ok(()) => {
                self.handle.counters.read(slot.buffer.len());
                Ok(())
            }
            Err(error) => Err(self.handle.failed("reading", Some(slot.zone), error)),
        };
        done.push(ReadDone { token: slot.token, buffer: slot.buffer, result });
    }

    fn refuse(&mut self, token: u64, buffer: PageBuffer, error: DeviceError) {
        self.refused.push(ReadDone { token, buffer, result: Err(error) });
    }
}

impl ReadQueue for UringReads {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn has_room(&self) -> bool {
        self.in_flight() < self.slots.len()
    }

    fn submit(
        &mut self,
        token: u64,
        zone: ZoneId,
        offset: u64,
        buffer: PageBuffer,
    ) -> Result<(), PageBuffer> {
        if !self.has_room() {
            return Err(buffer);
        }
        let position = match self.handle.layout.position(zone, offset, buffer.len()) {
            Ok(position) => position,
            Err(error) => {
                self.refuse(token, buffer, error);
                return Ok(());
            }
        };
        let Some(index) = self.free.pop() else { return Err(buffer) };
        self.slots[index as usize] = Some(Slot { token, zone, buffer, position, filled: 0, tries: 0 });
        self.pending.push_back(index);
        Ok(())
    }

    fn kick(&mut self) {
        if !self.pending.is_empty() {
            self.push();
        }
        if !self.refused.is_empty() {
            self.ring_bell();
        }
    }

    fn reap(&mut self, done: &mut Vec<ReadDone>) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        done.append(&mut self.refused);
        let before = self.pending.len();
        while let Some(entry) = { self.ring.completion().next() } {
            self.complete(entry.user_data() as u32, entry.result(), done);
        }
        // What came short goes on; what was never kicked waits for the kick only if nothing else has to go.
        if self.behind || self.pending.len() > before {
            self.push();
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.refused.len()
    }
}

impl Drop for UringReads {
    fn drop(&mut self) {
        // Nothing new: what was never pushed is not the kernel's. What was pushed is handed over and waited for.
        self.pending.clear();
        while self.with_kernel > 0 {
            while { self.ring.completion().next() }.is_some() {
                self.with_kernel -= 1;
            }
            if self.with_kernel == 0 {
                break;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if transient(&error) => std::thread::yield_now(),
                Err(error) => {
                    tracing::error!(device = %self.handle.name, %error, "flash: reads under way are left behind");
                    std::mem::forget(std::mem::take(&mut self.slots));
                    std::mem::forget(self.handle.clone());
                    return;
                }
            }
        }
    }
}

fn transient(error: &io::Error) -> bool {
    let transient = [Errno::INTR, Errno::AGAIN, Errno::BUSY, Errno::NOMEM];
    transient.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::handle::Layout;
    use crate::device::{PAGE_BYTES, ReadsBy};
    use crate::test_devices::{pages, readable};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// A queue over a file of 8 pages, or None where the system has no io_uring.
    fn queue(folder: &tempfile::TempDir) -> Option<UringReads> {
        let path = folder.path().join("pages");
        let file = File::options().read(true).write(true).create_new(true).open(path).expect("a file");
        file.write_all_at(&pages(8, 1), 0).expect("a write");
        let zone_bytes = 8 * PAGE_BYTES as u64;
        let layout = Layout { zones: 1, stride: zone_bytes, zone_bytes };
        let handle = Handle::new(file, "pages".into(), layout, false, ReadsBy::Uring);
        match UringReads::new(Arc::new(handle), 4) {
            Ok(queue) => Some(queue),
            Err(error) => {
                println!("skip: no io_uring: {error}");
                None
            }
        }
    }

    /// Submits a read of 3 pages and says that the kernel completed it with `result`, without having asked it.
    fn pretend(queue: &mut UringReads, result: i32) -> Vec<ReadDone> {
        queue.submit(7, ZoneId(0), PAGE_BYTES as u64, PageBuffer::new(3)).expect("room");
        let index = queue.pending.pop_front().expect("it waits");
        queue.with_kernel += 1;
        let mut done = Vec::new();
        queue.complete(index, result, &mut done);
        done
    }

    fn finish(queue: &mut UringReads) -> ReadDone {
        let mut done = Vec::new();
        queue.kick();
        while done.is_empty() {
            assert!(readable(queue, true), "nothing comes");
            queue.reap(&mut done);
        }
        assert_eq!((done.len(), queue.in_flight(), queue.with_kernel), (1, 0, 0));
        done.remove(0)
    }

    #[test]
    fn interrupted_reads_are_tried_again() {
        let folder = tempfile::tempdir().expect("a folder");
        for errno in [Errno::INTR, Errno::AGAIN] {
            let Some(mut queue) = queue(&folder) else { return };
            std::fs::remove_file(folder.path().join("pages")).expect("the file goes, its descriptor stays");
            assert!(pretend(&mut queue, -errno.raw_os_error()).is_empty());
            let read = finish(&mut queue);
            assert_eq!((read.token, read.result), (7, Ok(())));
            assert!(*read.buffer == pages(8, 1)[PAGE_BYTES..4 * PAGE_BYTES]);
        }
    }

    #[test]
    fn short_reads_go_on_where_they_stopped() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(mut queue) = queue(&folder) else { return };
        assert!(pretend(&mut queue, 5000).is_empty());
        let read = finish(&mut queue);
        assert_eq!((read.token, read.result), (7, Ok(())));
        assert!(
            read.buffer[..5000].iter().all(|byte| *byte == 0),
            "what was said to be there is not read again"
        );
        assert!(read.buffer[5000..] == pages(8, 1)[PAGE_BYTES + 5000..4 * PAGE_BYTES]);
    }

    #[test]
    fn failures_are_told_and_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(mut queue) = queue(&folder) else { return };
        for (result, expected) in [(-Errno::IO.raw_os_error(), Some(5)), (0, None)] {
            let done = pretend(&mut queue, result);
            assert_eq!((done.len(), queue.in_flight(), queue.with_kernel), (1, 0, 0));
            assert!(matches!(done[0].result, Err(DeviceError::Io { errno, .. }) if errno == expected));
        }
        let done = pretend(&mut queue, -Errno::NODEV.raw_os_error());
        assert_eq!(done[0].result, Err(DeviceError::Gone));
        assert_eq!(queue.handle.counters.snapshot().errors, 3);
    }

    #[test]
    fn a_read_that_is_interrupted_for_ever_comes_to_an_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(mut queue) = queue(&folder) else { return };
        let mut done = pretend(&mut queue, -Errno::INTR.raw_os_error());
        for _ in 0..TRIES_MAX {
            assert!(done.is_empty());
            let index = queue.pending.pop_front().expect("it is tried again");
            queue.with_kernel += 1;
            queue.complete(index, -Errno::INTR.raw_os_error(), &mut done);
        }
        assert!(matches!(done[0].result, Err(DeviceError::Io { errno: Some(4), .. })));
    }

    #[test]
    fn what_was_kicked_is_waited_for_and_the_rest_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(mut queue) = queue(&folder) else { return };
        let handle = queue.handle.clone();
        for token in 0..3 {
            queue.submit(token, ZoneId(0), 0, PageBuffer::new(8)).expect("room");
        }
        queue.kick();
        assert_eq!(queue.with_kernel, 3);
        queue.submit(3, ZoneId(0), 0, PageBuffer::new(8)).expect("room");
        drop(queue);
        assert_eq!(Arc::strong_count(&handle), 1, "nothing was left behind");
    }
}
