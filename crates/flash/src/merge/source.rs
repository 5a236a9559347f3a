//! One sorted segment on its way into a merge, read once, in large reads.

use super::Input;
use crate::device::{Device, PAGE_BYTES, PageBuffer};
use crate::hit_bits::HitBits;
use crate::page;
use crate::record::{Decoded, Record};
use crate::segment::Run;
use larder_item::KeyHasher;
use std::ops::RangeInclusive;

/// A segment and how far it was read. Pages that are damaged are stepped over; the hashes they may have held are told.
pub(super) struct Source<'a> {
    device: &'a dyn Device,
    hasher: &'a KeyHasher,
    run: Run,
    sealed_sequence: u64,
    hits: Option<&'a HitBits>,
    chunk_pages: u32,
    /// The next data page to read, and up to which one pages are read one by one, since a larger read failed.
    page: u32,
    careful_until: u32,
    /// What was read and not yet left behind; the current record takes `bytes` from `at`.
    payload: Vec<u8>,
    at: usize,
    bytes: usize,
    hash: u64,
    items_left: u32,
    /// Set while nothing good was found behind a damaged page: the last hash before it.
    lost_from: Option<u64>,
    pages_read: u64,
    pages_damaged: u64,
}

impl<'a> Source<'a> {
    /// Before the first record: [`Source::advance`] goes to it.
    pub(super) fn new(
        device: &'a dyn Device,
        hasher: &'a KeyHasher,
        input: &Input<'a>,
        chunk_pages: u32,
    ) -> Source<'a> {
        let Input { run, sealed_sequence, hits } = *input;
        Source {
            device,
            hasher,
            run,
            sealed_sequence,
            hits,
            chunk_pages: chunk_pages.max(1),
            page: 0,
            careful_until: 0,
            payload: Vec::new(),
            at: 0,
            bytes: 0,
            hash: 0,
            items_left: run.items,
            lost_from: None,
            pages_read: 0,
            pages_damaged: 0,
        }
    }

    /// The hash of the current record.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// The current record, and its bytes here.
    pub(super) fn record(&self) -> Option<(Record<'_>, usize)> {
        match Record::decode(self.payload.get(self.at..)?, self.run.cas_base) {
            Decoded::Whole(record, bytes) => Some((record, bytes)),
            Decoded::Short => None,
        }
    }

    /// Whether the current record was read since it was written.
    pub(super) fn is_warm(&self) -> bool {
        self.hits.is_some_and(|hits| hits.is_hit(self.hash))
    }

    /// See [`Input`].
    pub(super) fn sealed_sequence(&self) -> u64 {
        self.sealed_sequence
    }

    pub(super) fn pages_read(&self) -> u64 {
        self.pages_read
    }

    pub(super) fn pages_damaged(&self) -> u64 {
        self.pages_damaged
    }

    /// Goes to the next record; false at the end. Ranges of hashes, ends included, of which records may have been stepped over
    /// are added to `voids` before any record behind them is shown.
    pub(super) fn advance(&mut self, voids: &mut Vec<RangeInclusive<u64>>) -> bool {
        self.at += self.bytes;
        self.bytes = 0;
        loop {
            if let Decoded::Whole(record, bytes) = Record::decode(&self.payload[self.at..], self.run.cas_base)
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
            voids.push(self.lost_from.take().unwrap_or(self.hash)..=u64::MAX);
        }
        (self.page, self.items_left) = (self.run.data_pages, 0);
        self.payload = Vec::new();
        self.at = 0;
        false
    }

    /// Reads on; false at the end.
    fn fill(&mut self) -> bool {
        while self.page < self.run.data_pages {
            let careful = self.page < self.careful_until;
            let pages = if careful { 1 } else { self.chunk_pages.min(self.run.data_pages - self.page) };
            let first = self.run.first_data_page + self.page;
            let mut buffer = PageBuffer::new(pages as usize);
            let read = self.device.read(self.run.zone, first as u64 * PAGE_BYTES as u64, &mut buffer);
            self.pages_read += pages as u64;
            let piece = read.ok().and_then(|()| page::compact(&mut buffer, self.run.sequence, first).ok());
            let Some((piece, first_record)) = piece else {
                self.step_over(pages);
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

    /// A read of so many pages came to nothing: one by one, or without this one.
    fn step_over(&mut self, pages: u32) {
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
