//! Reads all records of a segment, from the first to the last, in large reads.

use super::SegmentSummary;
use crate::device::{Device, DeviceError, PAGE_BYTES, PageBuffer, ZoneId};
use crate::page::{self, PageError};
use crate::record::{Decoded, Record};
use larder_item::KeyHasher;

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
    /// Payload that was read. The records from `at` on were not returned yet.
    payload: Vec<u8>,
    at: usize,
}

impl<'a> Scan<'a> {
    /// A scan of these data pages. Each read takes `chunk_pages` pages.
    pub(crate) fn over(
        device: &'a dyn Device,
        hasher: &'a KeyHasher,
        run: Run,
        chunk_pages: u32,
    ) -> Scan<'a> {
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
            payload: Vec::new(),
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
        while Record::decode(&self.payload[self.at..], self.cas_base) == Decoded::Short {
            self.fill()?;
        }
        let Decoded::Whole(record, bytes) = Record::decode(&self.payload[self.at..], self.cas_base) else {
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
        self.items_left > 0 && Record::decode(&self.payload[self.at..], self.cas_base) != Decoded::Short
    }

    /// A record that was returned since the last read.
    pub(crate) fn again(&self, at: usize) -> Option<Scanned<'_>> {
        match Record::decode(self.payload.get(at..)?, self.cas_base) {
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
            && let Decoded::Whole(record, bytes) = Record::decode(&self.payload[at..], self.cas_base)
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
        let mut buffer = PageBuffer::new(pages as usize);
        self.device.read(self.zone, self.page as u64 * PAGE_BYTES as u64, &mut buffer)?;
        let (piece, _) = page::compact(&mut buffer, self.sequence, self.page).map_err(ScanError::Page)?;
        self.payload.drain(..self.at);
        self.at = 0;
        self.payload.extend_from_slice(piece);
        self.page += pages;
        self.pages_left -= pages;
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
