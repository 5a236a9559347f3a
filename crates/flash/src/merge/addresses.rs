//! The address run that a merge writes beside its generation. Its entries come from three sources, merged in order of
//! hash: the old address run, the generations that the old run does not cover, and the new generation.

use super::output::{Output, Rooms};
use super::settings::Settings;
use super::source::{Input, Source};
use crate::address::{AddressCounts, AddressRun, FullPage, PageWriter, RunStream, prefix_of};
use crate::device::DeviceError;
use crate::generation::{Chunk, Generation, List};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Reads the records of a generation again, for their hashes.
struct Rescan<'a> {
    settings: Settings<'a>,
    generation: u64,
    /// The chunks that are left, each with the last hash of its range.
    chunks: VecDeque<(Arc<Chunk>, u64)>,
    source: Option<Source<'a>>,
    pages_read: u64,
}

impl<'a> Rescan<'a> {
    /// At the first record of the generation.
    fn new(
        settings: Settings<'a>,
        generation: &Generation,
        voids: &mut Vec<RangeInclusive<u64>>,
    ) -> Rescan<'a> {
        let chunks = generation.ranges().map(|(chunk, last_hash)| (chunk.clone(), last_hash)).collect();
        let generation = generation.number();
        let mut rescan = Rescan { settings, generation, chunks, source: None, pages_read: 0 };
        rescan.advance(voids);
        rescan
    }

    /// The prefix of the current record; `None` at the end.
    fn peek(&self) -> Option<u64> {
        self.source.as_ref().map(|source| prefix_of(source.hash()))
    }

    /// Goes to the next record.
    fn advance(&mut self, voids: &mut Vec<RangeInclusive<u64>>) {
        loop {
            if let Some(source) = &mut self.source {
                let before = source.pages_read();
                let more = source.advance(voids);
                self.pages_read += source.pages_read() - before;
                if more {
                    return;
                }
            }
            let Settings { device, hasher, chunk_read_pages, .. } = self.settings;
            let next = self.chunks.pop_front();
            self.source = next.map(|(chunk, last_hash)| {
                let input = Input {
                    run: chunk.run,
                    age: chunk.run.sequence,
                    hashes: (chunk.first_hash, last_hash),
                    sealed_sequence: 0,
                    hits: None,
                };
                Source::new(device, hasher, &input, chunk_read_pages)
            });
            if self.source.is_none() {
                return;
            }
        }
    }
}

/// The address run that is being written, and the sources of its entries.
pub(super) struct Addresses<'a> {
    list: Arc<List>,
    old: Option<RunStream<'a>>,
    rescans: Vec<Rescan<'a>>,
    writer: PageWriter,
    /// Pages of entries that are full and not written yet.
    queue: VecDeque<FullPage>,
    pub(super) output: Output<'a>,
    /// Old entries up to this prefix were taken.
    prefix: Option<u64>,
    /// An old entry with that prefix names a generation without a filter.
    unfiltered_holds: bool,
    /// An old entry with that prefix names a generation that is not collected.
    newer_holds: bool,
    /// The generation that is collected up to a hash, and that hash.
    collected_below: Option<(u64, u64)>,
}

impl<'a> Addresses<'a> {
    /// An address run that covers the new generation with this number and all generations of the list. What is
    /// collected is not in the list; where a part of a generation stays, `collected_below` has its number and its first
    /// hash that stays.
    pub(super) fn new(
        settings: Settings<'a>,
        list: &Arc<List>,
        (number, collected_below): (u64, Option<(u64, u64)>),
        output: Output<'a>,
        voids: &mut Vec<RangeInclusive<u64>>,
    ) -> Addresses<'a> {
        let mut generations = vec![number];
        generations.extend(list.newest_first().iter().map(|generation| generation.number()));
        generations.truncate(crate::generation::GENERATIONS_MAX);
        let uncovered = |generation: &&Arc<Generation>| {
            let covered = list.address().is_some_and(|run| run.covers(generation.number()));
            !covered && generations.contains(&generation.number())
        };
        let rescans = list.newest_first().iter().filter(uncovered);
        let rescans = rescans.map(|generation| Rescan::new(settings, generation, voids)).collect();
        let mut writer = PageWriter::new(generations);
        for generation in list.newest_first() {
            let first_hash = generation.chunks().first().map_or(0, |first| first.first_hash);
            writer.count_from(generation.number(), prefix_of(first_hash));
        }
        Addresses {
            list: list.clone(),
            old: list
                .address()
                .map(|run| RunStream::new(settings.device, run.clone(), settings.chunk_read_pages)),
            rescans,
            writer,
            queue: VecDeque::new(),
            output,
            prefix: None,
            unfiltered_holds: false,
            newer_holds: false,
            collected_below,
        }
    }

    /// Takes old entries in order, up to those of `hash`; `None` takes all. Stops early when about `pages` more pages
    /// were read. Returns whether all wanted entries were taken.
    pub(super) fn advance(
        &mut self,
        hash: Option<u64>,
        pages: u64,
        voids: &mut Vec<RangeInclusive<u64>>,
    ) -> bool {
        let wanted = hash.map_or(u64::MAX, prefix_of);
        if self.prefix.is_none_or(|prefix| prefix < wanted) {
            self.prefix = Some(wanted);
            (self.unfiltered_holds, self.newer_holds) = (false, false);
        }
        let end = self.pages_read() + pages;
        let mut is_done = true;
        while let Some((prefix, generation)) = self.take_least(wanted, voids) {
            let below = self.collected_below.filter(|(number, _)| *number == generation);
            if below.is_none_or(|(_, hash)| prefix >= prefix_of(hash)) {
                let is_wanted = prefix == wanted;
                self.unfiltered_holds |= is_wanted && self.list.is_unfiltered(generation);
                self.newer_holds |= is_wanted && self.list.position(generation).is_some();
            }
            // Also of what is collected: after a crash it may still be there.
            self.queue.extend(self.writer.push(prefix, generation));
            if self.pages_read() >= end {
                is_done = false;
                break;
            }
        }
        // What has these hashes goes with the merge, or the new run would lack its entries.
        voids.extend(self.old.iter_mut().flat_map(RunStream::take_lost));
        is_done
    }

    /// Takes the old entry with the least prefix, if that prefix is not above `wanted`.
    fn take_least(&mut self, wanted: u64, voids: &mut Vec<RangeInclusive<u64>>) -> Option<(u64, u64)> {
        let old = self.old.as_mut().and_then(RunStream::peek);
        let rescan = self.rescans.iter_mut().filter_map(|rescan| Some((rescan.peek()?, rescan)));
        let rescan = rescan.min_by_key(|(prefix, _)| *prefix);
        match (old, rescan) {
            (Some((prefix, generation)), rescan)
                if prefix <= wanted && rescan.as_ref().is_none_or(|(other, _)| prefix <= *other) =>
            {
                if let Some(old) = &mut self.old {
                    old.take();
                }
                Some((prefix, generation))
            }
            (_, Some((prefix, rescan))) if prefix <= wanted => {
                rescan.advance(voids);
                Some((prefix, rescan.generation))
            }
            _ => None,
        }
    }

    /// Whether a generation without a filter may hold the hash of the last [`Addresses::advance`].
    pub(super) fn unfiltered_may_hold(&self) -> bool {
        // A generation that is rescanned has a filter, so the old run knows all generations without one.
        self.unfiltered_holds || self.old.as_ref().is_none_or(RunStream::damaged)
    }

    /// Whether a generation that is newer than all that is collected may hold the hash of the last
    /// [`Addresses::advance`].
    pub(super) fn newer_may_hold(&self) -> bool {
        self.newer_holds
    }

    /// What was counted among the entries. `also` records of the new generation have superseded one that was collected.
    pub(super) fn counts(&self, also: Option<u64>) -> AddressCounts {
        self.writer.counts(also)
    }

    /// Adds the entry of a record of the new generation. Its hash is that of the last [`Addresses::advance`].
    pub(super) fn push(&mut self, hash: u64, generation: u64) {
        self.queue.extend(self.writer.push(prefix_of(hash), generation));
    }

    /// Writes the full pages. Returns false if there is no space now.
    pub(super) fn write(&mut self, rooms: &mut dyn Rooms) -> Result<bool, DeviceError> {
        while let Some(page) = self.queue.front() {
            if !self.output.make_room(page.hashes.0, rooms)? {
                return Ok(false);
            }
            // The page is pushed in two pieces, under its lowest and under its highest hash, so that the fences know
            // both.
            let (first, rest) = page.payload.split_at(8);
            self.output.push_bytes(page.hashes.0, first)?;
            self.output.push_bytes(page.hashes.1, rest)?;
            self.queue.pop_front();
        }
        Ok(true)
    }

    /// Ends the last page: no entries follow.
    pub(super) fn close(&mut self) {
        self.queue.extend(self.writer.finish().into_iter().flatten());
    }

    /// Pages that were read of the old run and of the rescanned generations.
    pub(super) fn pages_read(&self) -> u64 {
        let rescanned: u64 = self.rescans.iter().map(|rescan| rescan.pages_read).sum();
        self.old.as_ref().map_or(0, RunStream::pages_read) + rescanned
    }

    /// The address run that was written; `None` if it has no entries.
    pub(super) fn into_run(self) -> Option<AddressRun> {
        let covers = self.writer.generations().to_vec();
        AddressRun::of(self.output.into_segments(), covers)
    }
}
