//! The reader of one thread: its lookups, none of which blocks.
//!
//! The caller begins a lookup with a token ([`Fetcher::begin`]). If it needs a read, the read is queued;
//! [`Fetcher::kick`] hands all queued reads to the device, and [`Fetcher::poll`] returns the results by their tokens
//! once [`Fetcher::fd`] is readable.

use crate::address::AddressPages;
use crate::device::{Device, DeviceError, PAGE_BYTES, PageBuffer, ReadDone, ReadQueue};
use crate::error::FlashError;
use crate::generation::{DataPages, Next, Search};
use crate::item::{Found, Stamp};
use crate::page;
use crate::record::part_hash;
use crate::tier::buffer::Query;
use crate::tier::directory::{PageRun, Segment};
use crate::tier::lookup::{GENERATION_READS_MAX, LOG_READS_MAX, Look, Lookup, Target};
use crate::tier::meta::Meta;
use larder_item::KeyHash;
use rustix::event::epoll;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Pages of a pooled buffer: most reads have one or two.
const POOLED_PAGES: usize = 2;
/// Memory of a pooled buffer, bytes.
const POOLED_BYTES: u64 = (POOLED_PAGES * PAGE_BYTES) as u64;
/// Memory that each reader has for itself, bytes. What it needs beyond that, it takes from the memory that all readers
/// share.
const RESERVE_BYTES: u64 = 2 * POOLED_BYTES;
/// Reads in flight of one reader at most.
const DEPTH_MAX: u64 = 128;
/// How often a lookup collects its targets again because a buffer was written, or a zone reclaimed, meanwhile.
const RESTARTS_MAX: u32 = 8;

/// How much memory reading may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    /// Memory of all readers together, bytes.
    pub(crate) bytes_max: u64,
    /// Longest value or part, bytes.
    pub(crate) part_bytes_max: usize,
}

/// Tells one thread when invalidations become durable ([`crate::Flash::committed`]).
pub struct CommitListener(Arc<OwnedFd>);

impl CommitListener {
    pub(crate) fn new(meta: &Meta) -> Result<CommitListener, FlashError> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| FlashError(format!("flash: eventfd: {error}")))?;
        let event = Arc::new(event);
        meta.listen(&event);
        Ok(CommitListener(event))
    }

    /// A descriptor that is readable when more invalidations are durable than at the last [`CommitListener::clear`].
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes the descriptor unreadable until more invalidations are durable.
    pub fn clear(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }

    /// Makes the descriptor readable.
    fn raise(&self) {
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// The reader of one thread. It begins lookups, and hands over their results when the device has answered.
pub struct Fetcher {
    lookup: Lookup,
    reads: Box<dyn ReadQueue>,
    /// Memory that all readers together may take, bytes.
    bytes_max: u64,
    /// Reads up to this length find memory once no other read is under way, bytes.
    waiting_bytes_max: u64,
    /// While all readers have at most this much memory, they keep buffers for the next reads, bytes.
    kept_bytes_max: u64,
    /// Readable when the queue of reads or `commits` is.
    epoll: OwnedFd,
    commits: CommitListener,
    /// Buffers of [`POOLED_PAGES`] pages for the next reads.
    pool: Vec<PageBuffer>,
    /// Lookups that wait for a read, by the token of the read.
    pending: Vec<Option<Pending>>,
    /// Tokens that are free.
    vacant: Vec<usize>,
    done: Vec<ReadDone>,
    /// Reads in flight at most.
    depth: u32,
    /// Memory of the buffers in flight and in the pool, bytes.
    bytes: u64,
    /// How much of it is beyond the reserve, bytes.
    borrowed: u64,
}

/// The result of beginning a lookup.
#[derive(Debug)]
pub enum Begun {
    /// The item is not on flash.
    Absent,
    /// The item was in a segment that is still in memory.
    Here(Found),
    /// A read is queued. The result comes through [`Fetcher::poll`], with the token.
    Started,
    /// The queue of reads is full: call [`Fetcher::poll`] first.
    Busy,
}

/// The pages that a lookup reads.
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
    /// Targets that are left, the next one last.
    targets: Vec<Target>,
    /// The search of generations, which comes after all targets.
    generations: Option<Search>,
    /// The pages that are being read.
    reading: Option<Reading>,
    /// Reads so far, and how many of them were of generations.
    reads: u32,
    generation_reads: u32,
    restarts: u32,
}

impl Pending {
    fn query(&self) -> Query<'_> {
        Query { hash: self.hash, key: &self.key, cas: self.cas, part: self.part }
    }

    /// Length of the pages that are to be read, bytes.
    fn read_bytes(&self) -> u64 {
        self.reading.as_ref().map_or(0, |reading| reading.run().count as u64 * PAGE_BYTES as u64)
    }
}

/// Lookups that have ended. The counters, which all threads share, get the sums of a whole batch.
#[derive(Default)]
struct Tally {
    hits: u64,
    reads_for_hits: u64,
    misses: u64,
    reads_for_misses: u64,
}

impl Tally {
    fn note(&mut self, pending: &Pending, hit: bool) {
        let (lookups, reads) = match hit {
            true => (&mut self.hits, &mut self.reads_for_hits),
            false => (&mut self.misses, &mut self.reads_for_misses),
        };
        *lookups += 1;
        *reads += pending.reads as u64;
    }
}

/// Where a lookup stopped.
enum Went {
    /// At its end.
    End(Option<Found>),
    /// At pages that must be read.
    Read,
}

impl Fetcher {
    /// A reader that uses a queue of the device.
    ///
    /// # Errors
    /// The device has no room for another queue, or there is no memory for the buffers of another reader.
    pub(crate) fn new(
        lookup: Lookup,
        device: &dyn Device,
        limits: ReadLimits,
    ) -> Result<Fetcher, FlashError> {
        let failed =
            |what: &str, error: &dyn std::fmt::Display| FlashError(format!("flash: {what}: {error}"));
        let longest = (limits.part_bytes_max + 4 * PAGE_BYTES) as u64;
        // The longest read must fit beside the reserves of all readers.
        let left = limits.bytes_max.saturating_sub(longest);
        let taken = lookup.status.counters.read_bytes.fetch_add(RESERVE_BYTES, Relaxed) + RESERVE_BYTES;
        if taken > left {
            lookup.status.counters.read_bytes.fetch_sub(RESERVE_BYTES, Relaxed);
            return Err(FlashError(format!(
                "the memory for flash does for {} threads only: more memory, or fewer threads",
                left / RESERVE_BYTES
            )));
        }
        let depth = (limits.bytes_max / POOLED_BYTES).clamp(2, DEPTH_MAX) as u32;
        let reads = device.reads(depth).map_err(|error| failed("a queue of reads", &error))?;
        let commits = CommitListener::new(&lookup.meta)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| failed("epoll", &error))?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, &*commits.0, data, epoll::EventFlags::IN)
            .map_err(|error| failed("epoll", &error))?;
        // The kernel removes this entry when the queue closes its descriptor.
        epoll::add(&epoll, reads.fd(), epoll::EventData::new_u64(1), epoll::EventFlags::IN)
            .map_err(|error| failed("epoll", &error))?;
        Ok(Fetcher {
            lookup,
            reads,
            bytes_max: limits.bytes_max,
            waiting_bytes_max: longest,
            // The longest read fits beside what readers without a read in flight have.
            kept_bytes_max: (limits.bytes_max / 2).min(left),
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

    /// A descriptor that is readable when [`Fetcher::poll`] has results, or when more invalidations are durable
    /// ([`crate::Flash::committed`]).
    pub fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// How many reads may be in flight.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Makes [`Fetcher::fd`] readable.
    pub fn wake(&self) {
        self.commits.raise();
    }

    /// Begins to look for the newest version of a key.
    pub fn begin(&mut self, token: u64, hash: KeyHash, key: &[u8]) -> Begun {
        self.begin_search(token, Query { hash: hash.0, key, cas: 0, part: 0 }, true)
    }

    /// The same for a key that no client has asked for yet: a lookup that needs no read is not counted.
    pub fn begin_ahead(&mut self, token: u64, hash: KeyHash, key: &[u8]) -> Begun {
        self.begin_search(token, Query { hash: hash.0, key, cas: 0, part: 0 }, false)
    }

    /// Begins to look for part `part` (from 1) of the long value whose part 0 has this CAS number.
    pub fn begin_part(&mut self, token: u64, hash: KeyHash, key: &[u8], cas: u64, part: u32) -> Begun {
        let hash = part_hash(hash, cas, part);
        self.begin_search(token, Query { hash, key, cas, part }, true)
    }

    fn begin_search(&mut self, token: u64, query: Query<'_>, counts: bool) -> Begun {
        if !self.reads.has_room() {
            return Begun::Busy;
        }
        // Before the first look: the stamp must not be newer than what is found.
        let stamp = self.lookup.meta.stamp(query.hash);
        let Some(mut targets) = self.lookup.targets(&query) else {
            self.lookup.status.counters.misses.fetch_add(counts as u64, Relaxed);
            return Begun::Absent;
        };
        // Most lookups of absent keys end here, before anything is allocated for them.
        let ahead = match targets.list.is_empty() {
            true => targets.generations.as_mut().map_or(Next::Nowhere, Search::next),
            false => Next::Nowhere,
        };
        if targets.list.is_empty() && ahead == Next::Nowhere {
            self.lookup.status.counters.misses.fetch_add(counts as u64, Relaxed);
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
            generation_reads: 0,
            restarts: 0,
        };
        let went = match ahead {
            Next::Nowhere => self.advance(&mut pending),
            ahead => self.read_generation(&mut pending, ahead),
        };
        match went {
            Went::End(found) => {
                if counts {
                    let mut tally = Tally::default();
                    tally.note(&pending, found.is_some());
                    self.count(&tally);
                }
                found.map_or(Begun::Absent, Begun::Here)
            }
            Went::Read => match self.submit(pending, false) {
                Ok(()) => Begun::Started,
                Err(pending) if self.waits_in_vain(&pending) => {
                    let counters = &self.lookup.status.counters;
                    counters.misses_for_reads.fetch_add(counts as u64, Relaxed);
                    counters.misses.fetch_add(counts as u64, Relaxed);
                    Begun::Absent
                }
                Err(_) => Begun::Busy,
            },
        }
    }

    /// Whether a lookup that found no memory for its read may never find any: the read is longer than those that memory
    /// is held ready for, and no read of this reader is under way whose end gives memory back. A device that was filled
    /// with more memory for flash has such records.
    fn waits_in_vain(&self, pending: &Pending) -> bool {
        self.pending.len() == self.vacant.len() && pending.read_bytes() > self.waiting_bytes_max
    }

    /// Goes from target to target until the lookup ends or pages must be read.
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
                    if pending.reads >= LOG_READS_MAX {
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

    /// Prepares the read that a search of the generations asks for, if enough reads are left.
    fn read_generation(&self, pending: &mut Pending, next: Next) -> Went {
        let (reading, needs) = match next {
            Next::Nowhere => return Went::End(None),
            Next::Data(place) => (Reading::Generation(place), 1),
            Next::Address(place) => (Reading::Address(place), 2),
        };
        if pending.generation_reads + needs > GENERATION_READS_MAX {
            self.lookup.status.counters.misses_for_reads.fetch_add(1, Relaxed);
            return Went::End(None);
        }
        pending.reads += 1;
        pending.generation_reads += 1;
        pending.reading = Some(reading);
        Went::Read
    }

    /// Collects the targets again, with as many reads of generations as in the beginning. The old stamp stays, which is
    /// safe: at worst a promotion is refused.
    fn restart(&self, pending: &mut Pending) -> bool {
        pending.restarts += 1;
        if pending.restarts > RESTARTS_MAX {
            return false;
        }
        let Some(targets) = self.lookup.targets(&pending.query()) else { return false };
        pending.targets = targets.list;
        pending.generations = targets.generations;
        pending.generation_reads = 0;
        pending.targets.reverse();
        true
    }

    /// A buffer of `pages` pages, from the pool or with memory of its own; `None` if there is too little memory.
    /// `regardless` is for a lookup that goes on with a read of the usual length: it has just given back the memory of
    /// its last read.
    fn buffer(&mut self, pages: usize, regardless: bool) -> Option<PageBuffer> {
        let pooled = if pages <= POOLED_PAGES { self.pool.pop() } else { None };
        let mut buffer = match pooled {
            Some(buffer) => buffer,
            None => {
                let capacity = pages.max(POOLED_PAGES);
                if !self.take_bytes((capacity * PAGE_BYTES) as u64, regardless) {
                    return None;
                }
                PageBuffer::new(capacity)
            }
        };
        buffer.set_pages(pages);
        Some(buffer)
    }

    /// Keeps a buffer for the next reads, or gives its memory back.
    fn keep_buffer(&mut self, buffer: PageBuffer) {
        let is_spare = self.bytes <= RESERVE_BYTES
            || self.lookup.status.counters.read_bytes.load(Relaxed) <= self.kept_bytes_max;
        if buffer.capacity_pages() == POOLED_PAGES && is_spare && self.pool.len() < self.depth as usize {
            self.pool.push(buffer);
        } else {
            self.give_bytes((buffer.capacity_pages() * PAGE_BYTES) as u64);
        }
    }

    /// Accounts for memory of a buffer; `false` if there is too little.
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

    /// Queues the read of a lookup. If there is no memory for it, or the queue has no room, the lookup is returned.
    // The lookup that is returned is used at once, so it needs no allocation.
    #[allow(clippy::result_large_err)]
    fn submit(&mut self, pending: Pending, regardless: bool) -> Result<(), Pending> {
        let Some(run) = pending.reading.as_ref().map(Reading::run) else { return Err(pending) };
        let at = run.first as u64 * PAGE_BYTES as u64;
        let regardless = regardless && pending.read_bytes() <= self.waiting_bytes_max;
        let Some(buffer) = self.buffer(run.count as usize, regardless) else { return Err(pending) };
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() - 1
        });
        match self.reads.submit(slot as u64, run.zone, at, buffer) {
            Ok(()) => {
                self.pending[slot] = Some(pending);
                Ok(())
            }
            Err(buffer) => {
                self.keep_buffer(buffer);
                self.vacant.push(slot);
                Err(pending)
            }
        }
    }

    /// Hands queued reads to the device. To be called once for a batch of lookups.
    pub fn kick(&mut self) {
        self.reads.kick();
    }

    /// Whether there are results, and no more are to come. It costs no system call. Reads from the page cache have
    /// often completed when [`Fetcher::kick`] returns.
    pub fn is_complete(&mut self) -> bool {
        self.reads.is_complete()
    }

    /// Calls `done` for each lookup that has ended: with its token and the item, or `None` if there is none.
    pub fn poll(&mut self, done: &mut dyn FnMut(u64, Option<Found>)) {
        let mut reads = std::mem::take(&mut self.done);
        self.reads.reap(&mut reads);
        if reads.is_empty() {
            // Then commits have woken the thread. If reads did as well, the thread is woken once more.
            self.commits.clear();
        }
        let (mut goes_on, mut tally) = (false, Tally::default());
        for read in reads.drain(..) {
            let slot = read.token as usize;
            let Some(mut pending) = self.pending.get_mut(slot).and_then(Option::take) else { continue };
            self.vacant.push(slot);
            match self.take_read(&mut pending, read) {
                Went::End(found) => {
                    tally.note(&pending, found.is_some());
                    done(pending.token, found);
                }
                Went::Read => match self.submit(pending, true) {
                    Ok(()) => goes_on = true,
                    Err(pending) => {
                        self.lookup.status.counters.misses_for_reads.fetch_add(1, Relaxed);
                        tally.note(&pending, false);
                        done(pending.token, None);
                    }
                },
            }
        }
        self.done = reads;
        self.count(&tally);
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
            Err(DeviceError::Gone) => {
                self.lookup.status.device_error("read", run.zone, &DeviceError::Gone);
                self.lookup.meta.turn_off("the device is gone");
                Look::Unknown
            }
            Err(error) => {
                // Some devices refuse to read what is erased.
                if self.is_listed(&reading) {
                    self.lookup.status.device_error("read", run.zone, error);
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
            // What was read there may be elsewhere now.
            _ if !self.is_listed(&reading) && self.restart(pending) => self.advance(pending),
            _ => {
                self.lookup.status.counters.misses_for_damage.fetch_add(1, Relaxed);
                Went::End(None)
            }
        }
    }

    /// Whether a lookup that begins now finds the same pages. If not, their zone may have been erased.
    fn is_listed(&self, reading: &Reading) -> bool {
        match reading {
            Reading::Segment(segment, _) => self.lookup.index.has_segment(segment),
            Reading::Generation(place) => self.lookup.generations.has_chunk(place),
            Reading::Address(place) => self.lookup.generations.has_addresses(place),
        }
    }

    /// Looks into pages that were read.
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

    fn count(&self, tally: &Tally) {
        let counters = &self.lookup.status.counters;
        let sums = [
            (&counters.hits, tally.hits),
            (&counters.reads_for_hits, tally.reads_for_hits),
            (&counters.misses, tally.misses),
            (&counters.reads_for_misses, tally.reads_for_misses),
        ];
        sums.into_iter().filter(|(_, count)| *count > 0).for_each(|(sum, count)| {
            sum.fetch_add(count, Relaxed);
        });
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.lookup.status.counters.read_bytes.fetch_sub(RESERVE_BYTES + self.borrowed, Relaxed);
    }
}
