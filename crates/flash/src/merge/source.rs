//! One sorted segment that a merge reads: once, from beginning to end, in large reads.

use crate::device::{Device, PAGE_BYTES, PageBuffer};
use crate::hit_bits::HitBits;
use crate::page;
use crate::record::{Decoded, Record};
use crate::segment::Run;
use larder_item::KeyHasher;
use std::ops::RangeInclusive;

/// A segment that is to be merged.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    /// The data pages of the segment.
    pub(crate) run: Run,
    /// How old its records are: the sequence of a segment of the log, or the number of the generation of a chunk.
    pub(crate) age: u64,
    /// The range that the hashes of its records lie in.
    pub(crate) hashes: (u64, u64),
    /// See [`crate::segment::Head::sealed_sequence`].
    pub(crate) sealed_sequence: u64,
    /// Which of its records were read since they were written.
    pub(crate) hits: Option<&'a HitBits>,
}

/// A segment, and the record that the merge has reached in it. A damaged page is skipped, and the range of hashes
/// that it may have held is reported.
pub(super) struct Source<'a> {
    device: &'a dyn Device,
    hasher: &'a KeyHasher,
    input: Input<'a>,
    /// Pages of one read.
    chunk_pages: u32,
    /// The next data page to read.
    page: u32,
    /// Pages below this one are read one by one, because a larger read of them failed.
    careful_until: u32,
    /// Payload that was read and not consumed. The current record takes `bytes` bytes from `at`.
    payload: Vec<u8>,
    at: usize,
    bytes: usize,
    /// The hash of the current record; before the first one, the lowest that a record may have.
    hash: u64,
    items_left: u32,
    /// The last hash before a damaged page, until a record behind the page is found.
    lost_from: Option<u64>,
    pages_read: u64,
    pages_damaged: u64,
}

impl<'a> Source<'a> {
    /// A source in front of its first record: [`Source::advance`] goes to that record.
    pub(super) fn new(
        device: &'a dyn Device,
        hasher: &'a KeyHasher,
        input: &Input<'a>,
        chunk_pages: u32,
    ) -> Source<'a> {
        Source {
            device,
            hasher,
            input: *input,
            chunk_pages: chunk_pages.max(1),
            page: 0,
            careful_until: 0,
            payload: Vec::new(),
            at: 0,
            bytes: 0,
            hash: input.hashes.0,
            items_left: input.run.items,
            lost_from: None,
            pages_read: 0,
            pages_damaged: 0,
        }
    }

    /// The hash of the current record.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether it has gone to its first record.
    pub(super) fn is_begun(&self) -> bool {
        self.page > 0
    }

    /// See [`Input`].
    pub(super) fn age(&self) -> u64 {
        self.input.age
    }

    /// The current record, and the bytes that it takes on the device.
    pub(super) fn record(&self) -> Option<(Record<'_>, usize)> {
        match Record::decode(self.payload.get(self.at..)?, self.input.run.cas_base) {
            Decoded::Whole(record, bytes) => Some((record, bytes)),
            Decoded::Short => None,
        }
    }

    /// Whether the current record was read since it was written.
    pub(super) fn is_warm(&self) -> bool {
        self.input.hits.is_some_and(|hits| hits.is_hit(self.hash))
    }

    /// See [`Input`].
    pub(super) fn sealed_sequence(&self) -> u64 {
        self.input.sealed_sequence
    }

    /// Pages that were read so far, damaged ones included.
    pub(super) fn pages_read(&self) -> u64 {
        self.pages_read
    }

    /// Pages that could not be read.
    pub(super) fn pages_damaged(&self) -> u64 {
        self.pages_damaged
    }

    /// Goes to the next record. Returns false at the end.
    ///
    /// If pages were skipped, the range of hashes between the records around them, both ends included, is added to
    /// `voids` before the record behind them becomes current. Where no record is before or behind them, the range ends
    /// where that of the segment does.
    pub(super) fn advance(&mut self, voids: &mut Vec<RangeInclusive<u64>>) -> bool {
        self.at += self.bytes;
        self.bytes = 0;
        loop {
            if let Decoded::Whole(record, bytes) =
                Record::decode(&self.payload[self.at..], self.input.run.cas_base)
            {
                let hash = record.hash(self.hasher);
                if hash < self.hash {
                    return self.end(true, voids);
                }
                voids.extend(self.lost_from.take().map(|from| from..=hash));
                (self.hash, self.bytes) = (hash, bytes);
                self.items_left = self.items_left.saturating_sub(1);
                return true;
            }
            if !self.fill() {
                return self.end(self.at < self.payload.len() || self.items_left > 0, voids);
            }
        }
    }

    fn end(&mut self, lost: bool, voids: &mut Vec<RangeInclusive<u64>>) -> bool {
        if lost || self.lost_from.is_some() {
            voids.push(self.lost_from.take().unwrap_or(self.hash)..=self.input.hashes.1);
        }
        (self.page, self.items_left) = (self.input.run.data_pages, 0);
        self.payload = Vec::new();
        self.at = 0;
        false
    }

    /// Reads the next pages. Returns false at the end.
    fn fill(&mut self) -> bool {
        while self.page < self.input.run.data_pages {
            let careful = self.page < self.careful_until;
            let pages = if careful { 1 } else { self.chunk_pages.min(self.input.run.data_pages - self.page) };
            let first = self.input.run.first_data_page + self.page;
            let mut buffer = PageBuffer::new(pages as usize);
            let read = self.device.read(self.input.run.zone, first as u64 * PAGE_BYTES as u64, &mut buffer);
            self.pages_read += pages as u64;
            let piece =
                read.ok().and_then(|()| page::compact(&mut buffer, self.input.run.sequence, first).ok());
            let Some((piece, first_record)) = piece else {
                self.skip(pages);
                continue;
            };
            self.page += pages;
            let from = match (self.lost_from, first_record) {
                (None, _) => 0,
                (Some(_), Some(begins)) if self.payload.is_empty() => begins,
                (Some(_), None) if self.payload.is_empty() => continue,
                (Some(_), _) => 0,
            };
            self.payload.drain(..self.at);
            self.at = 0;
            self.payload.extend_from_slice(&piece[from..]);
            return true;
        }
        false
    }

    /// Handles a failed read of `pages` pages: several pages are tried again one by one, and a single page is skipped.
    fn skip(&mut self, pages: u32) {
        if pages > 1 {
            self.careful_until = self.page + pages;
            return;
        }
        self.page += 1;
        self.pages_damaged += 1;
        self.lost_from.get_or_insert(self.hash);
        self.payload.clear();
        self.at = 0;
    }
}
