//! The lookup: everything that a reader sees of the tier, and how it finds the newest version of a key.
//!
//! A lookup asks, in this order: the waiting tombstones, buffers of extents, extents on the device, segments of the log
//! from the newest to the oldest, generations from the newest to the oldest. The first version or tombstone that it
//! meets decides. It takes no lock that a writer holds for long. It reads the log at most [`LOG_READS_MAX`] times, and
//! then generations at most [`GENERATION_READS_MAX`] times. If the zone of a read was erased meanwhile, it begins anew.

use super::buffer::{Buffer, Query};
use super::directory::{LogSegment, PageRun, Segment};
use super::index::Index;
use super::meta::Meta;
use super::space::Space;
use super::status::Status;
use crate::generation::{DataPages, Generations, Next, Search};
use crate::item::{Found, Stamp};
use crate::page::{Joined, PageError};
use crate::record::{Decoded, Record};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Reads of the log and of extents by one lookup at most. Each before the last finds no version of the key: the log
/// table, with tags of seven to ten bits, takes it for another. Two such reads stand before the right one once in
/// some thousand lookups.
pub(crate) const LOG_READS_MAX: u32 = 4;
/// Reads of generations by one lookup at most.
pub(crate) const GENERATION_READS_MAX: u32 = 2;
/// How often the targets of a lookup are collected again because segments were renumbered meanwhile.
const TRIES_MAX: u32 = 8;

/// One place where a version of the key may be.
#[derive(Clone)]
pub(crate) enum Target {
    /// A segment in memory.
    Memory(Arc<Buffer>),
    /// Pages of a segment on the device.
    Flash(Arc<Segment>, PageRun),
}

/// The result of a look at one target.
pub(crate) enum Look {
    /// The key is there, or its tombstone (`None`): the lookup ends, nothing older counts.
    End(Option<Found>),
    /// The key is not there: go on with the next target.
    Next,
    /// The pages are damaged or gone, so nothing older may be believed.
    Unknown,
    /// The buffer was written to the device meanwhile: collect the targets again.
    Again,
}

/// Where a version of the key may be, newest first.
#[derive(Default)]
pub(crate) struct Targets {
    /// Buffers and segments.
    pub(crate) list: Vec<Target>,
    /// Generations, which come after all of them.
    pub(crate) generations: Option<Search>,
}

/// Everything that a lookup needs of the tier. Each thread that reads has its own copy.
#[derive(Clone)]
pub(crate) struct Lookup {
    /// Counters and clock.
    pub(crate) status: Arc<Status>,
    /// Floor, flushes and stamps.
    pub(crate) meta: Arc<Meta>,
    /// Segments of the log and of extents.
    pub(crate) index: Arc<Index>,
    /// What was merged.
    pub(crate) generations: Arc<Generations>,
    /// Whether the log is merged into generations.
    pub(crate) has_generations: bool,
}

impl Lookup {
    /// Whether the log, or a generation, may hold a hash.
    pub(crate) fn log_may_hold(&self, hash: u64) -> bool {
        let floor = self.meta.lasting_floor_of(hash);
        self.status.is_recovering()
            || self.generations.has_unreleased()
            || self.generations.may_hold(hash, floor)
            || self.index.table_may_hold(hash)
                && (floor == self.meta.floor() || !self.index.log_segments(hash, floor).is_empty())
    }

    /// Whether the tier may hold a hash. A no is never wrong; a yes is wrong for one absent hash in 16 to 200, by the
    /// width of the log table.
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        let holds =
            || self.log_may_hold(hash) || self.index.has_extent(hash, self.meta.lasting_floor_of(hash));
        self.meta.is_on() && self.index.unmoved(holds, |holds| !holds)
    }

    /// Segments of the log that may hold a hash, newest first.
    pub(crate) fn log_segments(&self, hash: u64) -> Vec<Arc<LogSegment>> {
        self.index.log_segments(hash, self.meta.floor_of(hash))
    }

    /// Loads what lookups of these hashes look at, so that the lookups after it wait for memory less.
    pub(crate) fn touch(&self, hashes: impl Iterator<Item = u64> + Clone) {
        let stamps = hashes.clone().fold(0, |seen, hash| seen ^ self.meta.stamp(hash).0);
        let generations = if self.has_generations { self.generations.touch(hashes.clone()) } else { 0 };
        std::hint::black_box(stamps ^ generations ^ self.index.touch(hashes));
    }

    /// Collects where the key may be. `None`: it is nowhere.
    pub(crate) fn targets(&self, query: &Query<'_>) -> Option<Targets> {
        if !self.meta.is_serving() {
            return None;
        }
        for _ in 0..TRIES_MAX {
            let changes = self.index.directory.changes();
            if self.index.waiting.contains(query.hash, query.key) {
                return None;
            }
            let mut targets = Targets::default();
            self.extent_targets(query, &mut targets);
            for segment in self.log_segments(query.hash) {
                match &*segment {
                    LogSegment::Memory(buffer) => targets.list.push(Target::Memory(buffer.clone())),
                    LogSegment::Flash(segment) => {
                        if let Some(run) = segment.pages_of(query.hash) {
                            targets.list.push(Target::Flash(segment.clone(), run));
                        }
                    }
                }
            }
            // After the log: a merge shows its generation before the log forgets its segments.
            let floor = self.meta.floor_of(query.hash);
            targets.generations = self.has_generations.then(|| self.generations.search(query.hash, floor));
            if self.index.directory.changes() == changes {
                return Some(targets);
            }
        }
        None
    }

    fn extent_targets(&self, query: &Query<'_>, targets: &mut Targets) {
        let extents = self.index.directory.extents();
        let floor = self.meta.floor_of(query.hash);
        let buffers = extents.buffers.iter().rev().filter(|buffer| buffer.sequence >= floor);
        targets.list.extend(buffers.cloned().map(Target::Memory));
        drop(extents);
        let runs = self.index.extent_runs(query.hash, floor);
        targets.list.extend(runs.into_iter().map(|(segment, run)| Target::Flash(segment, run)));
    }

    /// The item of a record that was found in the segment of this sequence, or the generation of this number; `None`
    /// for a tombstone, an expired item, or one that was deleted by prefix, also if that was forgotten since the lookup
    /// began. (Nobody asks for a later part of a deleted value.)
    fn item(&self, record: &Record<'_>, sequence: u64, warm: bool, stamp: Stamp) -> Option<Found> {
        let is_first = record.part.is_none_or(|part| part.number == 0);
        if record.tombstone
            || record.expired(self.status.now())
            || is_first
                && (self.meta.hides(record.key, sequence)
                    || self.meta.has_hidden(record.key, sequence, stamp))
        {
            return None;
        }
        Some(Found {
            value: record.value.to_vec(),
            value_bytes: record.part.map_or(record.value.len() as u64, |part| part.value_bytes),
            flags: record.flags,
            expires_unix_s: record.expires_unix_s,
            cas: record.cas,
            state: record.state,
            warm,
            stamp,
            age: sequence,
        })
    }

    /// Looks into a buffer.
    pub(crate) fn look_in_buffer(&self, buffer: &Buffer, query: &Query<'_>, stamp: Stamp) -> Look {
        let content = buffer.read();
        let Some(content) = content.as_ref() else { return Look::Again };
        match content.find(query, buffer.cas_base) {
            Some(record) => {
                let found = self.item(&record, buffer.sequence, false, stamp);
                self.status.counters.hits_in_buffers.fetch_add(found.is_some() as u64, Relaxed);
                Look::End(found)
            }
            None => Look::Next,
        }
    }

    /// Looks into pages of a segment that were read.
    pub(crate) fn look_in_segment(
        &self,
        segment: &Segment,
        run: &PageRun,
        pages: &mut [u8],
        query: &Query<'_>,
        stamp: Stamp,
    ) -> Look {
        let was_hit = |hash| {
            segment.hits().is_some_and(|hits| {
                let warm = hits.is_hit(hash);
                hits.mark(hash);
                warm
            })
        };
        let found = find_record(segment.sequence(), segment.run.cas_base, run.first, pages, query);
        self.note_damage(&found, || self.index.has_segment(segment));
        self.judge(found, (query, segment.sequence()), stamp, was_hit)
    }

    /// Looks into pages of a generation that were read.
    pub(crate) fn look_in_generation(
        &self,
        place: &DataPages,
        pages: &mut [u8],
        query: &Query<'_>,
        stamp: Stamp,
    ) -> Look {
        let found = find_record(place.sequence, place.cas_base, place.page, pages, query);
        self.note_damage(&found, || self.generations.has_chunk(place));
        self.judge(found, (query, place.generation), stamp, |hash| self.generations.mark_hit(hash))
    }

    /// Counts a page that is damaged, if the pages are still listed. If not, their zone was erased under the read, and
    /// an erased page may be anything.
    fn note_damage(&self, found: &Result<Option<Record<'_>>, PageError>, is_listed: impl FnOnce() -> bool) {
        if matches!(found, Err(PageError::Checksum | PageError::Shape)) && is_listed() {
            self.status.counters.damaged_pages.fetch_add(1, Relaxed);
        }
    }

    /// What a search of pages means for the lookup. `age` is the sequence of the segment, or the number of the
    /// generation. `was_hit` marks the record as read, and says whether it was before.
    fn judge(
        &self,
        found: Result<Option<Record<'_>>, PageError>,
        (query, age): (&Query<'_>, u64),
        stamp: Stamp,
        was_hit: impl FnOnce(u64) -> bool,
    ) -> Look {
        match found {
            // Damaged, or the zone was erased since, and perhaps written again.
            Err(_) => Look::Unknown,
            Ok(None) => Look::Next,
            Ok(Some(record)) => Look::End(self.item(&record, age, was_hit(query.hash), stamp)),
        }
    }

    /// Whether the newest version of a hash is here, and not among what is reclaimed next.
    pub(crate) fn holds_for_a_while(&self, hash: u64, space: &Space) -> bool {
        if !self.meta.is_serving() {
            return false;
        }
        let extents = self.index.extent_runs(hash, self.meta.floor_of(hash));
        if let Some((segment, _)) = extents.first() {
            return space.stays_for_a_while(segment.sequence());
        }
        if self.index.extents_buffers_hold(hash) {
            return true;
        }
        match self.log_segments(hash).first() {
            Some(segment) => space.stays_for_a_while(segment.sequence()),
            None => self.has_generations && self.generation_stays_for_a_while(hash),
        }
    }

    /// Whether the newest version of a hash, as far as filters know, is in a generation that is not among the oldest
    /// quarter.
    fn generation_stays_for_a_while(&self, hash: u64) -> bool {
        let list = self.generations.list();
        match self.generations.search(hash, self.meta.floor_of(hash)).next() {
            Next::Data(place) => {
                let count = list.newest_first().len();
                list.position(place.generation).is_some_and(|age| (age + 1) * 4 <= count * 3 || count < 4)
            }
            Next::Address(_) | Next::Nowhere => false,
        }
    }
}

/// The record that a query finds in pages that were read: consecutive pages, from page `first_page` of the zone, of the
/// segment with this sequence. Pages behind the record are neither checked nor copied.
///
/// # Errors
/// The first page that is not what it should be.
pub(crate) fn find_record<'a>(
    sequence: u64,
    cas_base: u64,
    first_page: u32,
    pages: &'a mut [u8],
    query: &Query<'_>,
) -> Result<Option<Record<'a>>, PageError> {
    let (mut joined, begins) = Joined::first(pages, sequence, first_page)?;
    let Some(mut at) = begins else { return Ok(None) };
    loop {
        match Record::decode(&joined.payload()[at..], cas_base) {
            Decoded::Whole(record, _) if record.is(query.key, query.cas, query.part) => break,
            Decoded::Whole(_, bytes) => at += bytes,
            // Behind the last record of a page, or where a record runs over its end.
            Decoded::Short => {
                if !joined.join_next()? {
                    return Ok(None);
                }
            }
        }
    }
    match Record::decode(&joined.into_payload()[at..], cas_base) {
        Decoded::Whole(record, _) => Ok(Some(record)),
        Decoded::Short => Ok(None),
    }
}
