use super::Set;
use crate::device::{DeviceError, PageBuffer, ReadDone, ReadQueue, ZoneId};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// What the event of reads that reached no member counts as, beside the numbers of the members.
const REFUSED: u64 = u64::MAX;
/// Members whose events one system call asks for.
const EVENTS_MAX: usize = 32;
/// A wait that does not wait.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A queue of each member, and a descriptor that is readable while any of theirs is.
pub(super) struct StripedReads {
    set: Arc<Set>,
    /// The queue of each member; none of a member that had failed before.
    queues: Vec<Option<Box<dyn ReadQueue>>>,
    depth: usize,
    epoll: OwnedFd,
    /// Reads that reached no member. The next reap returns them.
    refused: Vec<ReadDone>,
    event: OwnedFd,
    /// By token of a member's queue, which counts the reads of this one: the token and the zone of the caller.
    submitted: Vec<(u64, ZoneId)>,
    /// Indices in `submitted` that are free.
    free: Vec<usize>,
}

impl StripedReads {
    /// # Errors
    /// The operating system has no room for another queue.
    pub(super) fn new(set: Arc<Set>, depth: u32) -> Result<StripedReads, DeviceError> {
        let failed = |what: &'static str| move |error: rustix::io::Errno| DeviceError::io(what, error.into());
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed("epoll"))?;
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(failed("eventfd"))?;
        epoll::add(&epoll, &event, EventData::new_u64(REFUSED), EventFlags::IN).map_err(failed("epoll"))?;
        let mut queues = Vec::new();
        for (number, member) in set.members().iter().enumerate() {
            let queue = match member.did(member.device().reads(depth)) {
                Err(_) if member.has_failed() => None,
                queue => Some(queue?),
            };
            if let Some(queue) = &queue {
                let data = EventData::new_u64(number as u64);
                epoll::add(&epoll, queue.fd(), data, EventFlags::IN).map_err(failed("epoll"))?;
            }
            queues.push(queue);
        }
        let depth = depth.max(1) as usize;
        Ok(StripedReads {
            set,
            queues,
            depth,
            epoll,
            refused: Vec::new(),
            event,
            submitted: Vec::new(),
            free: Vec::new(),
        })
    }

    /// The reads of a member that have completed.
    fn reap_member(&mut self, number: usize, done: &mut Vec<ReadDone>) {
        let from = done.len();
        let Some(queue) = &mut self.queues[number] else { return };
        queue.reap(done);
        let member = &self.set.members()[number];
        for read in &mut done[from..] {
            let slot = read.token as usize;
            let (token, zone) = self.submitted[slot];
            self.free.push(slot);
            read.token = token;
            let result = std::mem::replace(&mut read.result, Ok(()));
            read.result = member.did(result).map_err(|error| self.set.error(error, zone));
        }
    }
}

impl ReadQueue for StripedReads {
    fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn has_room(&self) -> bool {
        self.in_flight() < self.depth && self.queues.iter().flatten().all(|queue| queue.has_room())
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
        let found = self.set.place(zone).and_then(|(number, local)| match &mut self.queues[number] {
            Some(queue) if !self.set.members()[number].has_failed() => Ok((queue, local)),
            _ => Err(self.set.refusal(zone)),
        });
        let (queue, local) = match found {
            Ok(found) => found,
            Err(error) => {
                self.refused.push(ReadDone { token, buffer, result: Err(error) });
                return Ok(());
            }
        };
        let slot = self.free.pop().unwrap_or(self.submitted.len());
        match queue.submit(slot as u64, local, offset, buffer) {
            Ok(()) if slot == self.submitted.len() => self.submitted.push((token, zone)),
            Ok(()) => self.submitted[slot] = (token, zone),
            Err(buffer) => {
                if slot < self.submitted.len() {
                    self.free.push(slot);
                }
                return Err(buffer);
            }
        }
        Ok(())
    }

    fn kick(&mut self) {
        let waits = |queue: &&mut Box<dyn ReadQueue>| queue.in_flight() > 0;
        self.queues.iter_mut().flatten().filter(waits).for_each(|queue| queue.kick());
        if !self.refused.is_empty() {
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    fn reap(&mut self, done: &mut Vec<ReadDone>) {
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut events[..], Some(&NOW)) else { return };
        for event in ready {
            match event.data.u64() {
                REFUSED => {
                    let _ = rustix::io::read(&self.event, &mut [0; 8]);
                    done.append(&mut self.refused);
                }
                number => self.reap_member(number as usize, done),
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.refused.len() + self.queues.iter().flatten().map(|queue| queue.in_flight()).sum::<usize>()
    }
}
