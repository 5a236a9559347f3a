//! Reads a segment from its first record to its last, in large reads.

use super::SegmentFacts;
use crate::device::{Device, DeviceError, PAGE_BYTES, PageBuffer, ZoneId};
use crate::page::{self, PageError};
use crate::record::{Decoded, Record};
use larder_item::KeyHasher;

/// Why a scan came to no good end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ScanError {
    /// The device failed.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// A page is not what was written.
    #[error("a page is damaged: {0:?}")]
    Page(PageError),
    /// The records are not as many as the foot says, or the last one has no end.
    #[error("its records do not add up")]
    Records,
}

/// A record of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scanned<'a> {
    /// What it is found under.
    pub(crate) hash: u64,
    /// The record.
    pub(crate) record: Record<'a>,
    /// Bytes of it.
    pub(crate) bytes: usize,
}

/// A scan of one segment. After an error it is over.
pub(crate) struct Scan<'a> {
    device: &'a dyn Device,
    hasher: &'a KeyHasher,
    zone: ZoneId,
    sequence: u64,
    cas_base: u64,
    chunk_pages: u32,
    /// The next data page to read, and how many are left.
    page: u32,
    pages_left: u32,
    items_left: u32,
    /// Payload that was read and not yet yielded begins at `at`.
    payload: Vec<u8>,
    at: usize,
}

impl<'a> Scan<'a> {
    /// Over a run of data pages.
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
    /// See [`ScanError`]. Not all records were seen then.
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
        self.items_left -= 1;
        self.at += bytes;
        Ok(Some(Scanned { hash: record.hash(self.hasher), record, bytes }))
    }

    /// Reads the next chunk.
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
    /// Where it is.
    pub(crate) zone: ZoneId,
    /// See [`super::Head`].
    pub(crate) sequence: u64,
    /// See [`super::Head`].
    pub(crate) cas_base: u64,
    /// The page in the zone of the first one.
    pub(crate) first_data_page: u32,
    /// How many.
    pub(crate) data_pages: u32,
    /// Records in them.
    pub(crate) items: u32,
}

impl Run {
    /// Of a segment.
    pub(crate) fn of(facts: &SegmentFacts) -> Run {
        Run {
            zone: facts.zone,
            sequence: facts.head.sequence,
            cas_base: facts.head.cas_base,
            first_data_page: facts.first_page + 1,
            data_pages: facts.data_pages,
            items: facts.items,
        }
    }
}
