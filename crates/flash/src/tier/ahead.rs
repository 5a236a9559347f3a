//! Reads of a reclaim that go to the device together. A reclaim has to see for some records whether a newer segment has
//! their key; it puts them off until it knows the pages for many of them.

use super::directory::{PageRun, Segment};
use crate::device::{Device, PAGE_BYTES, PageBuffer, ReadDone, ReadQueue, ZoneId};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Reads in flight at most.
const DEPTH: u32 = 32;

/// Pages by their zone, the first of them, and the sequence of their segment.
type Place = (ZoneId, u32, u64);

fn place_of(segment: &Segment, run: &PageRun) -> Place {
    (run.zone, run.first, segment.sequence())
}

/// Pages that are wanted, or were read.
pub(super) struct Ahead {
    device: Arc<dyn Device>,
    /// `None` before the first read, and where the device has no room for another queue.
    queue: Option<Box<dyn ReadQueue>>,
    /// The pages; `None` until they were read, and where that failed.
    pages: HashMap<Place, Option<PageBuffer>>,
    /// In the order in which they were wanted, with their number.
    wanted: Vec<(Place, u32)>,
    pages_taken: u32,
    pages_max: u32,
    /// Pages that were wanted since [`Ahead::begin`], and the most for which that is worth while where nothing but
    /// chance speaks for it.
    pages_wanted: u64,
    pages_worth: u64,
    done: Vec<ReadDone>,
}

impl Ahead {
    /// No pages. It takes `pages_max` at most.
    pub(super) fn new(device: Arc<dyn Device>, pages_max: u32) -> Ahead {
        let (pages, wanted, done) = (HashMap::new(), Vec::new(), Vec::new());
        Ahead {
            device,
            queue: None,
            pages,
            wanted,
            pages_taken: 0,
            pages_max,
            pages_wanted: 0,
            pages_worth: 0,
            done,
        }
    }

    /// Begins with a zone of `pages` pages. What an earlier one left is let go.
    pub(super) fn begin(&mut self, pages: u64) {
        self.clear();
        (self.pages_wanted, self.pages_worth) = (0, pages);
    }

    /// Whether no more pages were wanted than the zone has.
    pub(super) fn is_worth_more(&self) -> bool {
        self.pages_wanted < self.pages_worth
    }

    /// Wants pages of a segment to be read with the next [`Ahead::read`]. False if they were read already, or there is
    /// no memory for them.
    pub(super) fn wants(&mut self, segment: &Segment, run: &PageRun) -> bool {
        if self.pages_taken + run.count > self.pages_max {
            return false;
        }
        match self.pages.entry(place_of(segment, run)) {
            Entry::Occupied(known) => self.wanted.iter().any(|(place, _)| place == known.key()),
            Entry::Vacant(new) => {
                self.wanted.push((*new.key(), run.count));
                new.insert(None);
                self.pages_taken += run.count;
                self.pages_wanted += u64::from(run.count);
                true
            }
        }
    }

    /// Whether there is hardly room for further pages.
    pub(super) fn is_full(&self) -> bool {
        self.pages_taken * 8 > self.pages_max * 7
    }

    /// A copy of pages of a segment, if they were read.
    pub(super) fn get(&self, segment: &Segment, run: &PageRun) -> Option<PageBuffer> {
        let read = self.pages.get(&place_of(segment, run))?.as_ref()?;
        let mut copy = PageBuffer::new(run.count as usize);
        let bytes = read.get(..copy.len())?;
        copy.copy_from_slice(bytes);
        Some(copy)
    }

    /// Reads what is wanted, and says how many reads that were.
    pub(super) fn read(&mut self) -> u64 {
        let mut queue = self.queue.take().or_else(|| self.device.reads(DEPTH).ok());
        let (mut next, mut read) = (0, 0);
        while let Some(reads) = &mut queue {
            let mut is_refused = false;
            while let Some(((zone, first, _), count)) = self.wanted.get(next)
                && reads.has_room()
            {
                let offset = *first as u64 * PAGE_BYTES as u64;
                if reads.submit(next as u64, *zone, offset, PageBuffer::new(*count as usize)).is_err() {
                    is_refused = true;
                    break;
                }
                next += 1;
            }
            reads.kick();
            reads.reap(&mut self.done);
            for done in self.done.drain(..) {
                read += 1;
                // What could not be read is read again by itself, and then the error counts.
                if done.result.is_ok()
                    && let Some((place, _)) = self.wanted.get(done.token as usize)
                {
                    self.pages.insert(*place, Some(done.buffer));
                }
            }
            if reads.in_flight() == 0 {
                if is_refused || next == self.wanted.len() {
                    break;
                }
                continue;
            }
            let _ = poll(&mut [PollFd::new(&reads.fd(), PollFlags::IN)], None);
        }
        self.queue = queue;
        self.wanted.clear();
        read
    }

    /// Lets go of all pages.
    pub(super) fn clear(&mut self) {
        self.pages.clear();
        self.wanted.clear();
        self.pages_taken = 0;
    }
}
