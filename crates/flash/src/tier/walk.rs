//! A walk over all items on flash, for listings: segment by segment, in the order of their sequences.
//!
//! Whatever becomes of a record, it only ever moves to a segment of a higher sequence: a buffer becomes the segment of
//! the same sequence, a reclaim appends survivors to the newest segment, and a merge writes its generation into new
//! segments. So a walk that goes on from a sequence meets every record that is there all the time, however often it
//! moves meanwhile, and it can be left and taken up again, also after a restart. A record that moves while the walk
//! goes on may be met twice.
//!
//! A record is shown if it is the newest version of its key: not superseded, deleted or flushed, and not expired. Where
//! the tables cannot tell it from another key's, the newer record is read. What the walk reads leaves no trace.

use super::buffer::{Buffer, Query};
use super::directory::{LogSegment, Segment};
use super::lookup::{Lookup, find_record};
use crate::device::{Device, PAGE_BYTES, PageBuffer, ZoneId};
use crate::generation::{Chunk, Next};
use crate::item::Listed;
use crate::page::{self, PAYLOAD_BYTES};
use crate::record::{Record, RecordHead};
use crate::segment::{Kind, Run};
use larder_item::{FOLDED_KEY_BYTES, KeyHash, KeyHasher};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Pages of the log or of a generation that are read at a time.
const PAGES_AT_ONCE: u32 = 16;
/// Reads of one call at most.
const READS_MAX: u32 = 64;
/// Records of a buffer that are looked at in one piece, about.
const RECORDS_AT_ONCE: usize = 512;
/// A place in a segment is one of this number, so that a place fits into the cursor of a client.
const PART_BITS: u32 = 10;
const PARTS: u32 = 1 << PART_BITS;
/// Bits of a place as a number.
const PLACE_BITS: u32 = 41;
/// A place as a number has these lowest bits of the sequence: more than the numbers between the oldest segment and the
/// newest, though each crash skips a million.
const SEQUENCE_BITS: u32 = PLACE_BITS - PART_BITS - 1;
/// So much of a value is listed where it has the whole key, of 64 KiB at most, behind its length.
const FRONT_BYTES_MAX: usize = (64 << 10) + 4;
/// Bytes of the beginning of a compressed value that a listing shows.
const FRONT_OF_COMPRESSED: usize = 4;
/// How often a question is asked again because a buffer was written meanwhile.
const TRIES_MAX: u32 = 8;

/// How far a walk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The sequence of the segment to go on with, or of the next one above it.
    sequence: u64,
    /// Which part of the segment.
    part: u32,
    /// The segment was in memory: its parts are those of the range of hashes. If it is on the device by now, it is
    /// walked from its beginning.
    is_in_memory: bool,
}

impl Place {
    /// The bits that [`Place::to_bits`] may set.
    pub const BITS: u32 = PLACE_BITS;

    /// The place as a number.
    pub fn to_bits(self) -> u64 {
        let low = u64::from(self.part) << 1 | u64::from(self.is_in_memory);
        (self.sequence & ((1 << SEQUENCE_BITS) - 1)) << (PART_BITS + 1) | low
    }
}

/// Where the first record begins in the joined payloads of these pages. `None` = in none of them, as far as they can be
/// read.
fn first_record(pages: &[u8]) -> Option<usize> {
    let mut before = 0;
    for page in pages.chunks(PAGE_BYTES) {
        let header = page::open(page).ok()?;
        if let Some(at) = header.first_record {
            return Some(before + at);
        }
        before += header.used;
    }
    None
}

/// Everything in which records are.
enum Source {
    Buffer(Arc<Buffer>),
    Segment(Arc<Segment>),
    /// A segment of a generation, and the generation's number.
    Chunk(Arc<Chunk>, u64),
}

impl Source {
    fn sequence(&self) -> u64 {
        match self {
            Source::Buffer(buffer) => buffer.sequence,
            Source::Segment(segment) => segment.sequence(),
            Source::Chunk(chunk, _) => chunk.run.sequence,
        }
    }

    /// What the age of its records is compared with.
    fn age(&self) -> u64 {
        match self {
            Source::Chunk(_, generation) => *generation,
            _ => self.sequence(),
        }
    }
}

/// Walks over the items of the tier.
pub(crate) struct Walk {
    lookup: Lookup,
    device: Arc<dyn Device>,
    hasher: KeyHasher,
}

impl Walk {
    pub(crate) fn new(lookup: Lookup, device: Arc<dyn Device>, hasher: KeyHasher) -> Walk {
        Walk { lookup, device, hasher }
    }

    /// See [`crate::Flash::list`].
    pub(crate) fn list(&self, from: Place, least: usize, out: &mut Vec<Listed>) -> Option<Place> {
        let (mut place, wanted, mut reads) = (from, out.len() + least, READS_MAX);
        loop {
            if !self.lookup.meta.is_serving() {
                return None;
            }
            let source = self.lookup.index.unmoved(|| self.source(place.sequence), Option::is_none)?;
            if source.sequence() != place.sequence {
                place = Place { sequence: source.sequence(), part: 0, is_in_memory: false };
            }
            let part = match &source {
                Source::Buffer(buffer) => self.list_buffer(&source, buffer, place, out),
                Source::Segment(segment) => self.list_pages(&source, segment.run, place, (&mut reads, out)),
                Source::Chunk(chunk, _) => self.list_pages(&source, chunk.run, place, (&mut reads, out)),
            };
            place = match part {
                Some(part) => Place { part, is_in_memory: matches!(source, Source::Buffer(_)), ..place },
                None => Place { sequence: place.sequence + 1, part: 0, is_in_memory: false },
            };
            if out.len() >= wanted || reads == 0 {
                return Some(place);
            }
        }
    }

    /// The place of the oldest segment.
    pub(crate) fn first_place(&self) -> Place {
        let oldest = self.source(0).map_or(0, |source| source.sequence());
        Place { sequence: oldest, part: 0, is_in_memory: false }
    }

    /// Some place, chosen by a random number.
    pub(crate) fn random_place(&self, random: u64) -> Place {
        let mut places = Vec::new();
        self.each_source(&mut |sequence, source| {
            let pages = match source() {
                Source::Buffer(_) => 1,
                Source::Segment(segment) => segment.run.data_pages,
                Source::Chunk(chunk, _) => chunk.run.data_pages,
            };
            places.push((sequence, pages));
        });
        let pages: u64 = places.iter().map(|(_, pages)| u64::from(*pages)).sum();
        let mut page = random % pages.max(1);
        for (sequence, pages) in places {
            if page < u64::from(pages) {
                let part = page as u32 / pages.div_ceil(PARTS).max(1);
                return Place { sequence, part, is_in_memory: false };
            }
            page -= u64::from(pages);
        }
        self.first_place()
    }

    /// The place that a number names, which [`Place::to_bits`] made.
    pub(crate) fn place_of(&self, bits: u64) -> Place {
        let mask = (1 << SEQUENCE_BITS) - 1;
        let newest = self.newest();
        let behind = newest.wrapping_sub(bits >> (PART_BITS + 1)) & mask;
        // The place may be the one behind the newest segment.
        let is_behind = behind == mask;
        let sequence = if is_behind { newest + 1 } else { newest.saturating_sub(behind) };
        Place { sequence, part: bits as u32 >> 1 & (PARTS - 1), is_in_memory: bits & 1 != 0 }
    }

    /// See [`crate::Flash::live_items`].
    pub(crate) fn live_items(&self) -> u64 {
        if !self.lookup.meta.is_serving() {
            return 0;
        }
        let (now, floor) = (self.lookup.status.now(), self.lookup.meta.floor());
        let share = |items: u64, live: u64, all: u64| items as f64 * live as f64 / all.max(1) as f64;
        let (mut log, mut generations) = (0.0, 0.0);
        self.each_source(&mut |_, source| match source() {
            Source::Buffer(buffer) if buffer.sequence >= floor => {
                log += buffer.read().as_ref().map_or(0, |content| content.live_items()) as f64;
            }
            Source::Segment(segment) if segment.sequence() >= floor => {
                let (items, bytes) = segment.live_items();
                let fresh = segment.histogram.live_bytes(now).min(segment.record_bytes);
                log += share(items, bytes, segment.items().1) * share(1, fresh, segment.record_bytes);
            }
            Source::Chunk(chunk, number) if number >= floor => {
                let list = self.lookup.generations.list();
                let generation = list.position(number).map(|n| &list.newest_first()[n]);
                let superseded = generation.and_then(|known| known.superseded_share()).unwrap_or(0.0);
                let live = chunk.histogram.live_bytes(now).min(chunk.record_bytes);
                generations += share(chunk.run.items.into(), live, chunk.record_bytes) * (1.0 - superseded);
            }
            _ => {}
        });
        (log + generations).max(0.0).round() as u64
    }

    fn newest(&self) -> u64 {
        let mut newest = 0;
        self.each_source(&mut |sequence, _| newest = newest.max(sequence));
        newest
    }

    /// What has the lowest sequence from this one on.
    fn source(&self, from: u64) -> Option<Source> {
        let mut lowest: Option<(u64, Source)> = None;
        self.each_source(&mut |sequence, source| {
            if sequence >= from && lowest.as_ref().is_none_or(|(known, _)| sequence < *known) {
                lowest = Some((sequence, source()));
            }
        });
        lowest.map(|(_, source)| source)
    }

    /// Names all segments. The log comes before the generations: a merge shows its generation before the log forgets
    /// its segments.
    fn each_source(&self, f: &mut dyn FnMut(u64, &dyn Fn() -> Source)) {
        let extents = self.lookup.index.directory.extents();
        for buffer in &extents.buffers {
            f(buffer.sequence, &|| Source::Buffer(buffer.clone()));
        }
        for segment in &extents.segments {
            f(segment.sequence(), &|| Source::Segment(segment.clone()));
        }
        for segment in self.lookup.index.directory.all() {
            f(segment.sequence(), &|| match &*segment {
                LogSegment::Memory(buffer) => Source::Buffer(buffer.clone()),
                LogSegment::Flash(segment) => Source::Segment(segment.clone()),
            });
        }
        let list = self.lookup.generations.list();
        for generation in list.newest_first() {
            for chunk in generation.chunks() {
                f(chunk.run.sequence, &|| Source::Chunk(chunk.clone(), generation.number()));
            }
        }
    }

    /// Lists a part of a buffer: a range of hashes. Returns the next part; `None` at its end.
    fn list_buffer(
        &self,
        source: &Source,
        buffer: &Buffer,
        place: Place,
        out: &mut Vec<Listed>,
    ) -> Option<u32> {
        let part = if place.is_in_memory { place.part } else { 0 };
        let mut met = Vec::new();
        let end = {
            let content = buffer.read();
            // It was written, or dropped, just now: then it is found on the device, or not at all. If it was flushed
            // while it was written, the directory has it until its zone is released.
            let Some(content) = content.as_ref() else {
                return (buffer.sequence >= self.lookup.meta.floor()).then_some(0);
            };
            let pieces = content.len().div_ceil(RECORDS_AT_ONCE).max(1) as u32;
            let end = part + PARTS.div_ceil(pieces);
            let range = part..end;
            let live = (0..content.len() as u32).filter(|index| content.is_live(*index));
            for (hash, record) in live.filter_map(|index| content.at(index, buffer.cas_base)) {
                if range.contains(&part_of(hash)) && self.may_be_shown(source, hash, &record) {
                    let front = &record.value[..record.value.len().min(front_bytes(&record))];
                    let lengths = (record.value.len(), record.encoded_bytes(buffer.cas_base));
                    met.push(listed(hash, &record, front, lengths));
                }
            }
            end
        };
        met.retain(|item| self.is_newest(source, item.hash.0, &item.key));
        out.append(&mut met);
        (end < PARTS).then_some(end)
    }

    /// Lists the records that begin in the next pages of a segment. Returns the next part; `None` at its end.
    fn list_pages(
        &self,
        source: &Source,
        run: Run,
        place: Place,
        (reads, out): (&mut u32, &mut Vec<Listed>),
    ) -> Option<u32> {
        let part_pages = run.data_pages.div_ceil(PARTS).max(1);
        let part = if place.is_in_memory { 0 } else { place.part };
        let first = part * part_pages;
        if first >= run.data_pages {
            return None;
        }
        let is_extents = matches!(source, Source::Segment(segment) if segment.kind == Kind::Extents);
        let count = if is_extents { part_pages } else { PAGES_AT_ONCE.next_multiple_of(part_pages) };
        let end = (first + count).min(run.data_pages);
        *reads = reads.saturating_sub(1);
        // The key of the last record may run over the end.
        let pages_read = (end + 1).min(run.data_pages) - first;
        let mut next = end;
        match self.read(run.zone, run.first_data_page + first, pages_read) {
            None => {}
            Some(mut pages) => {
                let number = run.first_data_page + first;
                let begins = first_record(&pages);
                // If there is none, its zone was erased, and its records are elsewhere; or what cannot be read is not
                // there.
                if let Some(begins) = begins
                    && let Ok((payload, _)) = page::compact(&mut pages, run.sequence, number)
                {
                    next = self.list_payload(source, run, payload, (begins, first, end), out);
                }
            }
        }
        (next < run.data_pages).then(|| (next / part_pages).max(part + 1))
    }

    /// Lists the records in `payload`, which begins with page `first`, that begin before page `end`. Returns the page
    /// in which the next record begins.
    fn list_payload(
        &self,
        source: &Source,
        run: Run,
        payload: &[u8],
        (mut at, first, end): (usize, u32, u32),
        out: &mut Vec<Listed>,
    ) -> u32 {
        let mut next = first + (at / PAYLOAD_BYTES) as u32;
        while next < end {
            let Some(head) = payload.get(at..).and_then(|bytes| RecordHead::decode(bytes, run.cas_base))
            else {
                // Zeros behind the last record, or damage.
                return end;
            };
            let hash = head.record.hash(&self.hasher);
            if self.may_be_shown(source, hash, &head.record) && self.is_newest(source, hash, head.record.key)
            {
                let lengths = (head.value_bytes, head.bytes);
                if front_bytes(&head.record) == 0 {
                    out.push(listed(hash, &head.record, &[], lengths));
                } else if let Some(front) = self.front(run, payload, (at, first), &head) {
                    out.push(listed(hash, &head.record, &front, lengths));
                }
            }
            at += head.bytes;
            next = first + (at / PAYLOAD_BYTES) as u32;
        }
        next
    }

    /// The beginning of the value of a record at `at` in `payload`, which begins with page `first`; it is read if it is
    /// not there. `None` = it cannot be read.
    fn front(
        &self,
        run: Run,
        payload: &[u8],
        (at, first): (usize, u32),
        head: &RecordHead<'_>,
    ) -> Option<Vec<u8>> {
        let from = at + head.bytes - head.value_bytes;
        let count = head.value_bytes.min(front_bytes(&head.record));
        if let Some(front) = payload.get(from..from + count) {
            return Some(front.to_vec());
        }
        let (page, skipped) = (first + (from / PAYLOAD_BYTES) as u32, from % PAYLOAD_BYTES);
        let pages_read = ((skipped + count).div_ceil(PAYLOAD_BYTES) as u32).min(run.data_pages - page);
        let mut pages = self.read(run.zone, run.first_data_page + page, pages_read)?;
        let (payload, _) = page::compact(&mut pages, run.sequence, run.first_data_page + page).ok()?;
        payload.get(skipped..skipped + count).map(<[u8]>::to_vec)
    }

    /// Whether a record is an item's, if nothing newer has replaced it.
    fn may_be_shown(&self, source: &Source, hash: u64, record: &Record<'_>) -> bool {
        !record.tombstone
            && record.part.is_none_or(|part| part.number == 0)
            && !record.expired(self.lookup.status.now())
            && source.age() >= self.lookup.meta.floor_of(hash)
            && !self.lookup.meta.hides(record.key, source.age())
    }

    /// Whether a record is the newest version of its key.
    fn is_newest(&self, source: &Source, hash: u64, key: &[u8]) -> bool {
        if self.lookup.index.waiting.contains(hash, key) {
            return false;
        }
        let query = Query { hash, key, cas: 0, part: 0 };
        match source {
            Source::Segment(segment) if segment.kind == Kind::Extents => {
                self.lookup.index.leads_to(hash, segment)
            }
            Source::Segment(segment) => !self.log_has_newer(&query, segment.sequence()),
            // What replaces an extent in a buffer marks it as dead there.
            Source::Buffer(buffer) if buffer.kind == Kind::Extents => true,
            Source::Buffer(buffer) => !self.log_has_newer(&query, buffer.sequence),
            Source::Chunk(_, generation) => {
                !self.log_has_newer(&query, 0) && !self.generations_have_newer(&query, *generation)
            }
        }
    }

    /// Whether a segment of the log above `than` has a version of the key or its tombstone.
    fn log_has_newer(&self, query: &Query<'_>, than: u64) -> bool {
        'again: for _ in 0..TRIES_MAX {
            let known = self.lookup.log_segments(query.hash);
            for newer in known.iter().filter(|other| other.sequence() > than) {
                let has = match &**newer {
                    LogSegment::Memory(buffer) => {
                        let content = buffer.read();
                        // Without its content, it is on the device by now.
                        let Some(content) = content.as_ref() else { continue 'again };
                        content.find(query, buffer.cas_base).is_some()
                    }
                    LogSegment::Flash(segment) => segment.pages_of(query.hash).is_some_and(|run| {
                        self.pages_have(
                            (run.zone, run.first, run.count),
                            (segment.sequence(), segment.run.cas_base),
                            query,
                        )
                    }),
                };
                if has {
                    return true;
                }
            }
            return false;
        }
        false
    }

    /// Whether a generation above `than` has a version of the key or its tombstone.
    fn generations_have_newer(&self, query: &Query<'_>, than: u64) -> bool {
        let mut search = self.lookup.generations.search(query.hash, than + 1);
        loop {
            match search.next() {
                Next::Nowhere => return false,
                Next::Data(place) => {
                    let (pages, of) =
                        ((place.zone, place.page, place.pages), (place.sequence, place.cas_base));
                    if self.pages_have(pages, of, query) {
                        return true;
                    }
                }
                Next::Address(place) => {
                    let Some(mut pages) = self.read(place.zone, place.page, place.pages) else {
                        return false;
                    };
                    let Ok((payload, _)) = page::compact(&mut pages, place.sequence, place.page) else {
                        return false;
                    };
                    if !search.address_page(payload) {
                        return false;
                    }
                }
            }
        }
    }

    /// Whether pages of a segment have a version of the key or its tombstone.
    fn pages_have(
        &self,
        (zone, first, count): (ZoneId, u32, u32),
        (sequence, cas_base): (u64, u64),
        query: &Query<'_>,
    ) -> bool {
        let Some(mut pages) = self.read(zone, first, count) else { return false };
        matches!(find_record(sequence, cas_base, first, &mut pages, query), Ok(Some(_)))
    }

    fn read(&self, zone: ZoneId, first: u32, count: u32) -> Option<PageBuffer> {
        let mut pages = PageBuffer::new(count as usize);
        self.lookup.status.counters.list_reads.fetch_add(1, Relaxed);
        match self.device.read(zone, u64::from(first) * PAGE_BYTES as u64, &mut pages) {
            Ok(()) => Some(pages),
            Err(error) => {
                self.lookup.status.device_error("read", zone, &error);
                None
            }
        }
    }
}

/// How much of the beginning of a value a listing wants, at most: the whole key, or what says how long the value is.
fn front_bytes(record: &Record<'_>) -> usize {
    match record.state.extension().is_compressed {
        _ if record.key.len() == FOLDED_KEY_BYTES => FRONT_BYTES_MAX,
        true => FRONT_OF_COMPRESSED,
        false => 0,
    }
}

/// The part of the range of hashes that a hash is in.
fn part_of(hash: u64) -> u32 {
    (hash >> (64 - PARTS.ilog2())) as u32
}

fn listed(hash: u64, record: &Record<'_>, front: &[u8], (value_bytes, bytes): (usize, usize)) -> Listed {
    Listed {
        hash: KeyHash(hash),
        key: record.key.to_vec(),
        front: front.to_vec(),
        value_bytes: record.part.map_or(value_bytes as u64, |part| part.value_bytes),
        bytes: bytes as u64,
        flags: record.flags,
        expires_unix_s: record.expires_unix_s,
        cas: record.cas,
        state: record.state,
    }
}
