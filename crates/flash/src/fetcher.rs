//! The reader of one thread: its lookups, none of which blocks.
//!
//! The caller begins a lookup with a token ([`Fetcher::begin`]). If it needs a read, the read is queued; [`Fetcher::kick`] hands all
//! queued reads to the device, and [`Fetcher::poll`] returns the results by their tokens once [`Fetcher::fd`] is readable.

use crate::address::AddressPages;
use crate::device::{Device, DeviceError, PAGE_BYTES, PageBuffer, ReadDone, ReadQueue};
use crate::error::FlashError;
use crate::generation::{DataPages, Next, Search};
use crate::item::{Found, Stamp};
use crate::page;
use crate::record::part_hash;
use crate::tier::buffer::Query;
use crate::tier::directory::{PageRun, Segment};
use crate::tier::lookup::{Look, Lookup, READS_MAX, Target};
use larder_item::KeyHash;
use rustix::event::epoll;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Pages of a pooled buffer: what most lookups read.
const POOLED_PAGES: usize = 2;
/// Bytes that each thread is sure to have for reading; what it needs beyond them it shares with the others.
const RESERVE_BYTES: u64 = 2 * (POOLED_PAGES * PAGE_BYTES) as u64;
/// Reads in flight, at most.
const DEPTH_MAX: u64 = 128;
/// Times a lookup begins again because its buffer was written, or its zone reclaimed, while it looked.
const RESTARTS_MAX: u32 = 8;

/// How much memory reading may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    /// Memory of all readers together, bytes.
    pub(crate) bytes_max: u64,
    /// Longest value or part, bytes.
    pub(crate) part_bytes_max: usize,
}

/// The reader of one thread. It begins lookups, and hands over their results when the device has answered.
pub struct Fetcher {
    lookup: Lookup,
    reads: Box<dyn ReadQueue>,
    /// Memory that all readers together may take, bytes.
    bytes_max: u64,
    /// Readable when the queue of reads or `commits` is.
    epoll: OwnedFd,
    /// Written to when commits become durable.
    commits: Arc<OwnedFd>,
    /// Buffers of [`POOLED_PAGES`] pages for the next reads.
    pool: Vec<PageBuffer>,
    /// Lookups that wait for a read, by the token of the read.
    pending: Vec<Option<Pending>>,
    /// Tokens that are free.
    vacant: Vec<usize>,
    done: Vec<ReadDone>,
    /// Reads in flight at most.
    depth: u32,
    /// Memory of buffers in flight, bytes.
    bytes: u64,
    /// How much of it is beyond the reserve, bytes.
    borrowed: u64,
}

/// What came of beginning a fetch.
#[derive(Debug)]
pub enum Begun {
    /// It is not on flash.
    Absent,
    /// It was still in a segment in memory.
    Here(Found),
    /// It comes through [`Fetcher::poll`] with the token.
    Started,
    /// The queue is full: poll first.
    Busy,
}

/// What is being read.
enum Reading {
    Segment(Arc<Segment>, PageRun),
    Generation(DataPages),
    Address(AddressPages),
}

impl Reading {
    fn run(&self) -> PageRun {
        match self {
            Reading::Segment(_, run) => run.clone(),
            Reading::Generation(place) => PageRun { zone: place.zone, first: place.page, count: place.pages },
            Reading::Address(place) => PageRun { zone: place.zone, first: place.page, count: place.pages },
        }
    }
}

/// A lookup that has not ended.
struct Pending {
    token: u64,
    hash: u64,
    key: Vec<u8>,
    cas: u64,
    part: u32,
    stamp: Stamp,
    /// What is left to look at, the next one last.
    targets: Vec<Target>,
    /// What comes after all of them.
    generations: Option<Search>,
    /// The pages that are being read.
    reading: Option<Reading>,
    reads: u32,
    restarts: u32,
}

impl Pending {
    /// Bytes of the pages that are to be read.
    fn read_bytes(&self) -> u64 {
        self.reading.as_ref().map_or(0, |reading| reading.run().count as u64 * PAGE_BYTES as u64)
    }

    fn query(&self) -> Query<'_> {
        Query { hash: self.hash, key: &self.key, cas: self.cas, part: self.part }
    }
}

/// How far a lookup went without waiting.
enum Went {
    End(Option<Found>),
    /// Pages have to be read.
    Read,
}

impl Fetcher {
    pub(crate) fn new(
        lookup: Lookup,
        device: &dyn Device,
        limits: ReadLimits,
    ) -> Result<Fetcher, FlashError> {
        let failed =
            |what: &str, error: &dyn std::fmt::Display| FlashError(format!("flash: {what}: {error}"));
        let longest = (limits.part_bytes_max + 4 * PAGE_BYTES) as u64;
        // What is left has to do for the longest read, whoever needs it.
        let left = limits.bytes_max.saturating_sub(longest);
        let taken = lookup.status.counters.read_bytes.fetch_add(RESERVE_BYTES, Relaxed) + RESERVE_BYTES;
        if taken > left {
            lookup.status.counters.read_bytes.fetch_sub(RESERVE_BYTES, Relaxed);
            return Err(FlashError(format!(
                "the memory for flash does for {} threads only: more memory, or fewer threads",
                left / RESERVE_BYTES
            )));
        }
        let depth = (limits.bytes_max / (POOLED_PAGES * PAGE_BYTES) as u64).clamp(2, DEPTH_MAX) as u32;
        let reads = device.reads(depth).map_err(|error| failed("a queue of reads", &error))?;
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let commits = Arc::new(event.map_err(|error| failed("eventfd", &error))?);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| failed("epoll", &error))?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, &*commits, data, epoll::EventFlags::IN)
            .map_err(|error| failed("epoll", &error))?;
        // The kernel forgets it when the queue closes it.
        epoll::add(&epoll, reads.fd(), epoll::EventData::new_u64(1), epoll::EventFlags::IN)
            .map_err(|error| failed("epoll", &error))?;
        lookup.meta.listen(&commits);
        Ok(Fetcher {
            lookup,
            reads,
            bytes_max: limits.bytes_max,
            epoll,
            commits,
            pool: Vec::new(),
            pending: Vec::new(),
            vacant: Vec::new(),
            done: Vec::new(),
            depth,
            bytes: 0,
            borrowed: 0,
        })
    }

    /// Readable when [`Fetcher::poll`] has something to say, or when [`Flash::committed`] went up.
    pub fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// How many reads may be in flight.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Makes [`Fetcher::fd`] readable.
    pub fn wake(&self) {
        let _ = rustix::io::write(&*self.commits, &1u64.to_ne_bytes());
    }

    /// Looks for the newest version of a key.
    pub fn begin(&mut self, token: u64, hash: KeyHash, key: &[u8]) -> Begun {
        self.begin_search(token, Query { hash: hash.0, key, cas: 0, part: 0 })
    }

    /// Looks for part `part` (from 1) of the long value whose part 0 had this CAS number.
    pub fn begin_part(&mut self, token: u64, hash: KeyHash, key: &[u8], cas: u64, part: u32) -> Begun {
        let hash = part_hash(hash, cas, part);
        self.begin_search(token, Query { hash, key, cas, part })
    }

    fn begin_search(&mut self, token: u64, query: Query<'_>) -> Begun {
        if !self.reads.has_room() {
            return Begun::Busy;
        }
        // Before anything is looked at.
        let stamp = self.lookup.meta.stamp(query.hash);
        let Some(mut targets) = self.lookup.targets(&query) else {
            self.lookup.status.counters.misses.fetch_add(1, Relaxed);
            return Begun::Absent;
        };
        // Most of what is absent ends here: nothing was kept for it.
        let ahead = match targets.list.is_empty() {
            true => targets.generations.as_mut().map_or(Next::Nowhere, Search::next),
            false => Next::Nowhere,
        };
        if targets.list.is_empty() && ahead == Next::Nowhere {
            self.lookup.status.counters.misses.fetch_add(1, Relaxed);
            return Begun::Absent;
        }
        targets.list.reverse();
        let mut pending = Pending {
            token,
            hash: query.hash,
            key: query.key.to_vec(),
            cas: query.cas,
            part: query.part,
            stamp,
            targets: targets.list,
            generations: targets.generations,
            reading: None,
            reads: 0,
            restarts: 0,
        };
        let went = match ahead {
            Next::Nowhere => self.advance(&mut pending),
            ahead => self.read_generation(&mut pending, ahead),
        };
        match went {
            Went::End(found) => {
                self.count(&pending, found.is_some());
                found.map_or(Begun::Absent, Begun::Here)
            }
            Went::Read => {
                if !self.take_bytes(pending.read_bytes(), false) {
                    return Begun::Busy;
                }
                match self.submit(pending) {
                    Ok(()) => Begun::Started,
                    Err(_) => Begun::Busy,
                }
            }
        }
    }

    /// Goes on until there is an end or something must be read.
    fn advance(&self, pending: &mut Pending) -> Went {
        loop {
            match pending.targets.pop() {
                None => {
                    let next = pending.generations.as_mut().map_or(Next::Nowhere, Search::next);
                    return self.read_generation(pending, next);
                }
                Some(Target::Memory(buffer)) => {
                    match self.lookup.look_in_buffer(&buffer, &pending.query(), pending.stamp) {
                        Look::End(found) => return Went::End(found),
                        Look::Next => {}
                        Look::Again | Look::Unknown => {
                            if !self.restart(pending) {
                                return Went::End(None);
                            }
                        }
                    }
                }
                Some(Target::Flash(segment, run)) => {
                    if pending.reads == READS_MAX {
                        self.lookup.status.counters.misses_for_reads.fetch_add(1, Relaxed);
                        return Went::End(None);
                    }
                    pending.reads += 1;
                    pending.reading = Some(Reading::Segment(segment, run));
                    return Went::Read;
                }
            }
        }
    }

    /// Reads what a search of the generations wants read, if there is a read left that makes sense.
    fn read_generation(&self, pending: &mut Pending, next: Next) -> Went {
        let (reading, needs) = match next {
            Next::Nowhere => return Went::End(None),
            Next::Data(place) => (Reading::Generation(place), 1),
            Next::Address(place) => (Reading::Address(place), 2),
        };
        if pending.reads + needs > READS_MAX {
            self.lookup.status.counters.misses_for_reads.fetch_add(1, Relaxed);
            return Went::End(None);
        }
        pending.reads += 1;
        pending.reading = Some(reading);
        Went::Read
    }

    /// Looks where the key may be now. The stamp stays: it is older, which is safe.
    fn restart(&self, pending: &mut Pending) -> bool {
        pending.restarts += 1;
        if pending.restarts > RESTARTS_MAX {
            return false;
        }
        let Some(targets) = self.lookup.targets(&pending.query()) else { return false };
        pending.targets = targets.list;
        pending.generations = targets.generations;
        pending.targets.reverse();
        true
    }

    /// Accounts what a read takes. `regardless`: for a lookup that goes on, and is about to give back what it has.
    fn take_bytes(&mut self, bytes: u64, regardless: bool) -> bool {
        let lacking = (self.bytes + bytes).saturating_sub(RESERVE_BYTES + self.borrowed);
        if lacking > 0 {
            let (all, most) = (&self.lookup.status.counters.read_bytes, self.bytes_max);
            let fits = |taken: u64| (regardless || taken + lacking <= most).then_some(taken + lacking);
            if all.fetch_update(Relaxed, Relaxed, fits).is_err() {
                return false;
            }
            self.borrowed += lacking;
        }
        self.bytes += bytes;
        true
    }

    fn give_bytes(&mut self, bytes: u64) {
        self.bytes -= bytes;
        let borrowed = self.bytes.saturating_sub(RESERVE_BYTES);
        if borrowed < self.borrowed {
            self.lookup.status.counters.read_bytes.fetch_sub(self.borrowed - borrowed, Relaxed);
            self.borrowed = borrowed;
        }
    }

    /// Reads what is accounted. Gives the lookup back, and the account, if there is no room in the queue.
    // What is given back goes on or ends at once: no reason to allocate.
    #[allow(clippy::result_large_err)]
    fn submit(&mut self, pending: Pending) -> Result<(), Pending> {
        let bytes = pending.read_bytes();
        let Some(run) = pending.reading.as_ref().map(Reading::run) else { return Err(pending) };
        let (zone, at, pages) = (run.zone, run.first as u64 * PAGE_BYTES as u64, run.count as usize);
        let buffer = match self.pool.pop() {
            Some(buffer) if pages == POOLED_PAGES => buffer,
            Some(buffer) => {
                self.pool.push(buffer);
                PageBuffer::new(pages)
            }
            None => PageBuffer::new(pages),
        };
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() - 1
        });
        match self.reads.submit(slot as u64, zone, at, buffer) {
            Ok(()) => {
                self.pending[slot] = Some(pending);
                Ok(())
            }
            Err(buffer) => {
                self.give_bytes(bytes);
                self.keep_buffer(buffer);
                self.vacant.push(slot);
                Err(pending)
            }
        }
    }

    fn keep_buffer(&mut self, buffer: PageBuffer) {
        // DataPages there is no borrowed memory, none may lie here that is not of the reserve.
        let room = (RESERVE_BYTES.max(self.bytes) / (POOLED_PAGES * PAGE_BYTES) as u64).min(DEPTH_MAX);
        if buffer.pages() == POOLED_PAGES && (self.pool.len() as u64) < room {
            self.pool.push(buffer);
        }
    }

    /// Hands what was begun to the device. Once for all of a batch.
    pub fn kick(&mut self) {
        self.reads.kick();
    }

    /// Calls `done` for every fetch that came to its end: with the item, or with `None` where there is none after all.
    pub fn poll(&mut self, done: &mut dyn FnMut(u64, Option<Found>)) {
        let mut reads = std::mem::take(&mut self.done);
        self.reads.reap(&mut reads);
        if reads.is_empty() {
            // Then this is what woke its thread. If both did, it is woken once more.
            let _ = rustix::io::read(&*self.commits, &mut [0; 8]);
        }
        let mut goes_on = false;
        for read in reads.drain(..) {
            let slot = read.token as usize;
            let Some(mut pending) = self.pending.get_mut(slot).and_then(Option::take) else { continue };
            self.vacant.push(slot);
            let bytes = read.buffer.len() as u64;
            let went = self.take_read(&mut pending, read);
            if matches!(went, Went::Read) {
                self.take_bytes(pending.read_bytes(), true);
            }
            self.give_bytes(bytes);
            match went {
                Went::End(found) => {
                    self.count(&pending, found.is_some());
                    done(pending.token, found);
                }
                Went::Read => match self.submit(pending) {
                    Ok(()) => goes_on = true,
                    Err(pending) => {
                        self.count(&pending, false);
                        done(pending.token, None);
                    }
                },
            }
        }
        self.done = reads;
        if goes_on {
            self.kick();
        }
    }

    fn take_read(&mut self, pending: &mut Pending, read: ReadDone) -> Went {
        let ReadDone { mut buffer, result, .. } = read;
        let Some(reading) = pending.reading.take() else { return Went::End(None) };
        let run = reading.run();
        let look = match &result {
            Ok(()) => self.look(pending, &reading, &mut buffer),
            Err(error) => {
                self.lookup.status.device_error("read", run.zone, error);
                if *error == DeviceError::Gone {
                    self.lookup.meta.turn_off("the device is gone");
                }
                Look::Unknown
            }
        };
        self.keep_buffer(buffer);
        match look {
            Look::End(found) => Went::End(found),
            Look::Next if matches!(reading, Reading::Address(_)) => self.advance(pending),
            Look::Next => {
                self.lookup.status.counters.false_reads.fetch_add(1, Relaxed);
                self.advance(pending)
            }
            // DataPages the segment stands no more, its records may stand elsewhere.
            _ if matches!(&reading, Reading::Segment(segment, _) if !self.lookup.index.has_segment(segment))
                && self.restart(pending) =>
            {
                self.advance(pending)
            }
            _ => {
                self.lookup.status.counters.misses_for_damage.fetch_add(1, Relaxed);
                Went::End(None)
            }
        }
    }

    /// Looks into what was read.
    fn look(&self, pending: &mut Pending, reading: &Reading, pages: &mut [u8]) -> Look {
        let lookup = &self.lookup;
        match reading {
            Reading::Segment(segment, run) => {
                lookup.look_in_segment(segment, run, pages, &pending.query(), pending.stamp)
            }
            Reading::Generation(place) => {
                lookup.look_in_generation(place, pages, &pending.query(), pending.stamp)
            }
            Reading::Address(place) => {
                let Ok((payload, _)) = page::compact(pages, place.sequence, place.page) else {
                    return Look::Unknown;
                };
                if !pending.generations.as_mut().is_some_and(|search| search.address_page(payload)) {
                    return Look::Unknown;
                }
                if place.pages == 1 {
                    lookup.generations.keep_page(*place, payload);
                }
                Look::Next
            }
        }
    }

    fn count(&self, pending: &Pending, hit: bool) {
        let counters = &self.lookup.status.counters;
        let (lookups, reads) = match hit {
            true => (&counters.hits, &counters.reads_for_hits),
            false => (&counters.misses, &counters.reads_for_misses),
        };
        lookups.fetch_add(1, Relaxed);
        reads.fetch_add(pending.reads as u64, Relaxed);
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.lookup.status.counters.read_bytes.fetch_sub(RESERVE_BYTES + self.borrowed, Relaxed);
    }
}
