//! A queue of reads on io_uring: each queue has a ring of its own and an eventfd that the kernel raises at a
//! completion.
//!
//! [`ReadQueue::kick`] hands all submitted reads to the kernel with one system call. From then until the completion
//! is seen, the memory that the kernel writes to belongs to a [`RingRead`]. [`Drop`] waits for the reads in flight.
//! If it cannot wait, it leaks their memory: the kernel may still write to that memory.

use super::handle::Handle;
use super::{DeviceError, PageBuffer, ReadDone, ReadQueue, ZoneId};
use io_uring::{IoUring, Probe, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Reads in one queue at most.
const DEPTH_MAX: u32 = 4096;
/// How often a read is repeated after `EINTR` or `EAGAIN`.
const TRIES_MAX: u8 = 16;

/// A read that was submitted.
struct RingRead {
    token: u64,
    zone: ZoneId,
    buffer: PageBuffer,
    /// The position on the device at which the read begins.
    position: u64,
    /// Bytes that were read so far.
    filled: usize,
    tries: u8,
}

/// A queue of reads on a ring of its own.
pub(super) struct UringReads {
    ring: IoUring,
    event: OwnedFd,
    /// Keeps the file open while the kernel reads from it.
    handle: Arc<Handle>,
    /// Whether the ring knows the file by the number 0.
    is_registered: bool,
    reads: Vec<Option<RingRead>>,
    /// Indices in `reads` that are free.
    free: Vec<u32>,
    /// Indices of reads that wait for [`ReadQueue::kick`].
    pending: VecDeque<u32>,
    /// Reads that were refused before they reached the kernel. The next reap returns them.
    refused: Vec<ReadDone>,
    /// Number of reads that the kernel may be writing to: pushed to the ring, and their completion not seen.
    with_kernel: usize,
    /// The last system call did not take all reads of the ring.
    behind: bool,
}

impl UringReads {
    /// # Errors
    /// The system has no io_uring, forbids it, or has no room for another ring.
    pub(super) fn new(handle: Arc<Handle>, depth: u32) -> io::Result<UringReads> {
        let depth = depth.clamp(1, DEPTH_MAX);
        // A completion need not interrupt a thread that is at work: the thread enters the kernel soon. Linux 5.19.
        let ring = IoUring::builder().setup_clamp().setup_coop_taskrun().build(depth);
        let ring = ring.or_else(|_| IoUring::builder().setup_clamp().build(depth))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) {
            return Err(io::Error::other("io_uring does not know how to read (Linux 5.6 does)"));
        }
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        // A registered file need not be looked up for each read.
        let is_registered = ring.submitter().register_files(&[handle.file.as_raw_fd()]).is_ok();
        let depth = depth.min(ring.params().sq_entries());
        Ok(UringReads {
            ring,
            event,
            handle,
            is_registered,
            reads: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            pending: VecDeque::new(),
            refused: Vec::new(),
            with_kernel: 0,
            behind: false,
        })
    }

    /// Moves the pending reads into the ring, and hands the ring to the kernel.
    fn push(&mut self) {
        while let Some(&index) = self.pending.front() {
            let Some(read) = self.reads[index as usize].as_mut() else {
                self.pending.pop_front();
                continue;
            };
            let rest = &mut read.buffer[read.filled..];
            let (to, bytes) = (rest.as_mut_ptr(), rest.len().min(u32::MAX as usize) as u32);
            let request = match self.is_registered {
                true => opcode::Read::new(types::Fixed(0), to, bytes),
                false => opcode::Read::new(types::Fd(self.handle.file.as_raw_fd()), to, bytes),
            };
            let entry =
                request.offset(read.position + read.filled as u64).build().user_data(u64::from(index));
            // SAFETY: the memory belongs to the buffer of the `RingRead`. The buffer is not moved on the heap, not
            // touched and not freed before the completion with this index was seen (`complete`) or the ring was given
            // up (`drop`). `handle` keeps the file open.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                break;
            }
            self.pending.pop_front();
            self.with_kernel += 1;
        }
        self.enter();
    }

    /// Hands the ring to the kernel. The kernel may refuse a part of it (no memory, completions not fetched). That
    /// part is tried again at the next reap, and the event is raised so that a reap comes.
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
            self.raise_event();
        }
    }

    fn raise_event(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Handles a completion: the kernel does not write to the buffer any more.
    fn complete(&mut self, index: u32, result: i32, done: &mut Vec<ReadDone>) {
        self.with_kernel -= 1;
        let Some(read) = self.reads[index as usize].as_mut() else { return };
        let again = result == -Errno::INTR.raw_os_error() || result == -Errno::AGAIN.raw_os_error();
        let result = match result {
            _ if again && read.tries < TRIES_MAX => {
                read.tries += 1;
                self.pending.push_back(index);
                return;
            }
            ..0 => Err(io::Error::from_raw_os_error(-result)),
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the device ends before that")),
            bytes => {
                read.filled += bytes as usize;
                if read.filled < read.buffer.len() {
                    self.pending.push_back(index);
                    return;
                }
                Ok(())
            }
        };
        let Some(read) = self.reads[index as usize].take() else { return };
        self.free.push(index);
        let result = result.map_err(|error| self.handle.failed("reading", Some(read.zone), error));
        done.push(ReadDone { token: read.token, buffer: read.buffer, result });
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
        self.in_flight() < self.reads.len()
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
        self.reads[index as usize] = Some(RingRead { token, zone, buffer, position, filled: 0, tries: 0 });
        self.pending.push_back(index);
        Ok(())
    }

    fn kick(&mut self) {
        if !self.pending.is_empty() {
            self.push();
        }
        if !self.refused.is_empty() {
            self.raise_event();
        }
    }

    fn reap(&mut self, done: &mut Vec<ReadDone>) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        done.append(&mut self.refused);
        let (before, first) = (self.pending.len(), done.len());
        while let Some(entry) = { self.ring.completion().next() } {
            self.complete(entry.user_data() as u32, entry.result(), done);
        }
        let whole = done[first..].iter().filter(|read| read.result.is_ok());
        let (reads, bytes) =
            whole.fold((0, 0), |(reads, bytes), read| (reads + 1, bytes + read.buffer.len() as u64));
        if reads > 0 {
            self.handle.counters.read(reads, bytes);
        }
        // A short read has become pending again: hand it over now. Reads that were never kicked go with it.
        if self.behind || self.pending.len() > before {
            self.push();
        }
    }

    fn in_flight(&self) -> usize {
        self.reads.len() - self.free.len() + self.refused.len()
    }

    fn is_complete(&mut self) -> bool {
        let completed = self.ring.completion().len() + self.refused.len();
        completed > 0 && completed == self.in_flight()
    }
}

impl Drop for UringReads {
    fn drop(&mut self) {
        // The kernel knows nothing of reads that were never pushed. Those that were pushed are handed over and waited
        // for.
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
                    std::mem::forget(std::mem::take(&mut self.reads));
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::device::PAGE_BYTES;
    use crate::device::handle::Layout;
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
        let handle = Handle::new(file, "pages".into(), layout, false);
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
    fn a_queue_knows_when_all_its_reads_have_completed() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(mut queue) = queue(&folder) else { return };
        assert!(!queue.is_complete());
        for token in 0..2 {
            queue.submit(token, ZoneId(0), 0, PageBuffer::new(1)).expect("room");
        }
        assert!(!queue.is_complete());
        queue.kick();
        while !queue.is_complete() {
            std::thread::yield_now();
        }
        queue.submit(2, ZoneId(0), 0, PageBuffer::new(1)).expect("room");
        assert!(!queue.is_complete(), "one more is under way");
        let mut done = Vec::new();
        queue.reap(&mut done);
        assert_eq!((done.len(), queue.is_complete()), (2, false));
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
