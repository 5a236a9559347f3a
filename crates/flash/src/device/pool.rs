//! A queue of reads that a few threads carry out, for systems without io_uring.

use super::handle::Handle;
use super::{DeviceError, PageBuffer, ReadDone, ReadQueue, ZoneId};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Threads of one queue at most. A thread sleeps in the system call while the device works.
const THREADS_MAX: u32 = 8;

/// A read that was submitted.
struct SubmittedRead {
    token: u64,
    zone: ZoneId,
    offset: u64,
    buffer: PageBuffer,
}

#[derive(Default)]
struct Lists {
    submitted: VecDeque<SubmittedRead>,
    done: Vec<ReadDone>,
    closed: bool,
}

struct Shared {
    handle: Arc<Handle>,
    lists: Mutex<Lists>,
    wake: Condvar,
    event: OwnedFd,
}

impl Shared {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn work(&self) {
        let mut lists = self.lists();
        loop {
            if lists.closed {
                return;
            }
            let Some(SubmittedRead { token, zone, offset, mut buffer }) = lists.submitted.pop_front() else {
                lists = self.wake.wait(lists).unwrap_or_else(|poisoned| poisoned.into_inner());
                continue;
            };
            drop(lists);
            let result = self.handle.read(zone, offset, &mut buffer);
            lists = self.lists();
            lists.done.push(ReadDone { token, buffer, result });
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

/// A queue of reads with threads of its own.
pub(super) struct PoolReads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    depth: usize,
    /// Submitted, and not yet kicked.
    pending: VecDeque<SubmittedRead>,
    in_flight: usize,
}

impl PoolReads {
    /// # Errors
    /// The system gives no eventfd, or not a single thread.
    pub(super) fn new(handle: Arc<Handle>, depth: u32) -> Result<PoolReads, DeviceError> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| DeviceError::io("eventfd", error.into()))?;
        let shared = Shared { handle, lists: Mutex::default(), wake: Condvar::new(), event };
        let depth = depth.max(1);
        let mut queue = PoolReads {
            shared: Arc::new(shared),
            threads: Vec::new(),
            depth: depth as usize,
            pending: VecDeque::new(),
            in_flight: 0,
        };
        for _ in 0..depth.min(THREADS_MAX) {
            let shared = queue.shared.clone();
            let thread = std::thread::Builder::new().name("flash-read".into()).spawn(move || shared.work());
            match thread {
                Ok(thread) => queue.threads.push(thread),
                Err(error) if queue.threads.is_empty() => return Err(DeviceError::io("a thread", error)),
                // One thread is enough.
                Err(_) => break,
            }
        }
        Ok(queue)
    }
}

impl ReadQueue for PoolReads {
    fn fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    fn has_room(&self) -> bool {
        self.in_flight < self.depth
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
        self.in_flight += 1;
        self.pending.push_back(SubmittedRead { token, zone, offset, buffer });
        Ok(())
    }

    fn kick(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.shared.lists().submitted.append(&mut self.pending);
        self.shared.wake.notify_all();
    }

    fn reap(&mut self, done: &mut Vec<ReadDone>) {
        let _ = rustix::io::read(&self.shared.event, &mut [0; 8]);
        let mut lists = self.shared.lists();
        self.in_flight -= lists.done.len();
        done.append(&mut lists.done);
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for PoolReads {
    fn drop(&mut self) {
        self.shared.lists().closed = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
