//! Reads all records of a segment, from the first to the last, in large reads.

use super::SegmentSummary;
use crate::device::{Device, DeviceError, PAGE_BYTES, PageBuffer, ReadDone, ReadQueue, ZoneId};
use crate::page::{self, PageError};
use crate::record::{Decoded, Record};
use larder_item::KeyHasher;
use rustix::event::{PollFd, PollFlags, poll};

/// Why a scan failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ScanError {
    /// The device failed.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// A page is damaged.
    #[error("a page is damaged: {0:?}")]
    Page(PageError),
    /// The segment has fewer records than its foot says, or its last record is incomplete.
    #[error("its records do not add up")]
    Records,
}

/// A record that a scan returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scanned<'a> {
    /// The hash of the record.
    pub(crate) hash: u64,
    /// The record.
    pub(crate) record: Record<'a>,
    /// Bytes of the record on the device.
    pub(crate) bytes: usize,
    /// Where [`Scan::again`] finds the record.
    pub(crate) at: usize,
}

/// What one scan of a device after the other uses: memory, and a read that is under way while the chunk before it is
/// worked on.
#[derive(Default)]
pub(crate) struct ScanReads {
    /// `None` before the first read, and where the device has no room for another queue.
    queue: Option<Box<dyn ReadQueue>>,
    done: Vec<ReadDone>,
    /// Memory for a chunk that is not in use.
    spare: Option<PageBuffer>,
    /// Payload that was read.
    payload: Vec<u8>,
}

impl ScanReads {
    /// Memory for a chunk of `pages` pages.
    fn buffer(&mut self, pages: u32) -> PageBuffer {
        let pages = pages as usize;
        let spare = self.spare.take().filter(|buffer| buffer.capacity_pages() >= pages);
        let mut buffer = spare.unwrap_or_else(|| PageBuffer::new(pages));
        buffer.set_pages(pages);
        buffer
    }

    /// Begins to read pages, if the device can. [`ScanReads::take`] for the same pages is next.
    fn begin(&mut self, device: &dyn Device, zone: ZoneId, page: u32, pages: u32) {
        let buffer = self.buffer(pages);
        self.queue = self.queue.take().or_else(|| device.reads(1).ok());
        self.spare = match &mut self.queue {
            Some(queue) => queue.submit(0, zone, page as u64 * PAGE_BYTES as u64, buffer).err(),
            None => Some(buffer),
        };
        self.queue.iter_mut().for_each(|queue| queue.kick());
    }

    /// The pages: those that [`ScanReads::begin`] has read, or else they are read now.
    fn take(
        &mut self,
        device: &dyn Device,
        zone: ZoneId,
        page: u32,
        pages: u32,
    ) -> Result<PageBuffer, DeviceError> {
        match self.end() {
            // What could not be read is read again by itself, and then the error counts.
            Some(done) if done.result.is_ok() => return Ok(done.buffer),
            Some(done) => self.spare = Some(done.buffer),
            None => {}
        }
        let mut buffer = self.buffer(pages);
        device.read(zone, page as u64 * PAGE_BYTES as u64, &mut buffer)?;
        Ok(buffer)
    }

    /// Waits for the end of the read that is under way, if there is one.
    fn end(&mut self) -> Option<ReadDone> {
        let queue = self.queue.as_mut().filter(|queue| queue.in_flight() > 0)?;
        while self.done.is_empty() {
            queue.reap(&mut self.done);
            if self.done.is_empty() {
                let _ = poll(&mut [PollFd::new(&queue.fd(), PollFlags::IN)], None);
            }
        }
        self.done.pop()
    }

    /// Gives the memory back until the next scan. A scan that was given up may have left a read under way.
    pub(crate) fn rest(&mut self) {
        self.end();
        (self.spare, self.payload) = (None, Vec::new());
    }
}

/// A scan of one segment. After an error it is over.
pub(crate) struct Scan<'a> {
    device: &'a dyn Device,
    hasher: &'a KeyHasher,
    zone: ZoneId,
    sequence: u64,
    cas_base: u64,
    chunk_pages: u32,
    /// The next page of the zone to read.
    page: u32,
    /// Data pages that are left.
    pages_left: u32,
    items_left: u32,
    reads: &'a mut ScanReads,
    /// The records from here on in the payload that was read were not returned yet.
    at: usize,
}

impl<'a> Scan<'a> {
    /// A scan of these data pages. Each read takes `chunk_pages` pages.
    pub(crate) fn over(
        device: &'a dyn Device,
        hasher: &'a KeyHasher,
        run: Run,
        chunk_pages: u32,
        reads: &'a mut ScanReads,
    ) -> Scan<'a> {
        reads.payload.clear();
        Scan {
            device,
            hasher,
            zone: run.zone,
            sequence: run.sequence,
            cas_base: run.cas_base,
            chunk_pages: chunk_pages.max(1),
            page: run.first_data_page,
            pages_left: run.data_pages,
            items_left: run.items,
            reads,
            at: 0,
        }
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// See [`ScanError`]. The remaining records are not returned.
    pub(crate) fn next(&mut self) -> Result<Option<Scanned<'_>>, ScanError> {
        if self.items_left == 0 {
            return Ok(None);
        }
        while Record::decode(&self.reads.payload[self.at..], self.cas_base) == Decoded::Short {
            self.fill()?;
        }
        let Decoded::Whole(record, bytes) = Record::decode(&self.reads.payload[self.at..], self.cas_base)
        else {
            return Err(ScanError::Records);
        };
        let at = self.at;
        self.items_left -= 1;
        self.at += bytes;
        Ok(Some(Scanned { hash: record.hash(self.hasher), record, bytes, at }))
    }

    /// Whether [`Scan::next`] returns a record without a read. Until it reads, [`Scan::again`] finds each record since
    /// the last read.
    pub(crate) fn has_ready(&self) -> bool {
        self.items_left > 0 && Record::decode(&self.reads.payload[self.at..], self.cas_base) != Decoded::Short
    }

    /// A record that was returned since the last read.
    pub(crate) fn again(&self, at: usize) -> Option<Scanned<'_>> {
        match Record::decode(self.reads.payload.get(at..)?, self.cas_base) {
            Decoded::Whole(record, bytes) => {
                Some(Scanned { hash: record.hash(self.hasher), record, bytes, at })
            }
            Decoded::Short => None,
        }
    }

    /// Hashes of the next records, as far as they were read: as many as `room` has room for. Returns how many.
    pub(crate) fn ahead(&self, room: &mut [u64]) -> usize {
        let (mut at, mut count) = (self.at, 0);
        while count < room.len().min(self.items_left as usize)
            && let Decoded::Whole(record, bytes) = Record::decode(&self.reads.payload[at..], self.cas_base)
        {
            room[count] = record.hash(self.hasher);
            (at, count) = (at + bytes, count + 1);
        }
        count
    }

    /// Reads the next pages.
    fn fill(&mut self) -> Result<(), ScanError> {
        if self.pages_left == 0 {
            return Err(ScanError::Records);
        }
        let pages = self.chunk_pages.min(self.pages_left);
        let mut buffer = self.reads.take(self.device, self.zone, self.page, pages)?;
        let (piece, _) = page::compact(&mut buffer, self.sequence, self.page).map_err(ScanError::Page)?;
        self.reads.payload.drain(..self.at);
        self.at = 0;
        self.reads.payload.extend_from_slice(piece);
        self.reads.spare = Some(buffer);
        self.page += pages;
        self.pages_left -= pages;
        let next = self.chunk_pages.min(self.pages_left);
        if next > 0 {
            self.reads.begin(self.device, self.zone, self.page, next);
        }
        Ok(())
    }
}

/// The data pages of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// The zone.
    pub(crate) zone: ZoneId,
    /// See [`super::Head::sequence`].
    pub(crate) sequence: u64,
    /// See [`super::Head::cas_base`].
    pub(crate) cas_base: u64,
    /// The page of the zone that is the first data page.
    pub(crate) first_data_page: u32,
    /// Number of data pages.
    pub(crate) data_pages: u32,
    /// Number of records.
    pub(crate) items: u32,
}

impl Run {
    /// The data pages of a segment.
    pub(crate) fn of(summary: &SegmentSummary) -> Run {
        Run {
            zone: summary.zone,
            sequence: summary.head.sequence,
            cas_base: summary.head.cas_base,
            first_data_page: summary.first_page + 1,
            data_pages: summary.data_pages,
            items: summary.items,
        }
    }
}
