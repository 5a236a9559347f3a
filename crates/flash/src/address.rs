//! Address pages: which generations may hold a hash. They are on the device, for generations whose filters do not fit
//! into memory.
//!
//! One run of segments in order of hash, the address run, covers all generations together. Two reads then find a
//! record: one of its address page, one of its data. Memory has the fences of the run, and a cache of pages that were
//! read often. Every merge writes a new run. A page is complete in itself:
//!
//! ```text
//! first prefix u64 | entries u16 | generations u8 | 0 u8 | number of each generation u64 ... | entries
//!
//! entry     LEB128 (7 bits a byte) of   (prefix - prefix of the entry before) << 5 | position of the generation
//! ```
//!
//! The prefix is the upper 44 bits of a hash. Entries of one prefix stay in one page. With a thousand million entries,
//! an entry takes 3 bytes, and one absent hash in 16,000 has an entry.
//!
//! Lock: `ring` of the page cache, a leaf.

use crate::device::{Device, PAGE_BYTES, PageBuffer, ZoneId};
use crate::fence::Fences;
use crate::page::{self, PAYLOAD_BYTES};
use crate::segment::{Gap, Run, SegmentSummary};
use crate::shim::Mutex;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A share of 1, in the unit of [`AddressCounts`].
pub(crate) const SHARE_PARTS: u64 = 1 << 16;
/// Generations there may be at a time. One more drops the oldest.
pub(crate) const GENERATIONS_MAX: usize = 24;
/// Bits of a hash that an entry keeps.
const PREFIX_BITS: u32 = 44;
const HEADER_BYTES: usize = 12;
/// Bits of an entry that name the position of its generation in the page.
const SLOT_BITS: u32 = 5;
const _: () = assert!(GENERATIONS_MAX <= 1 << SLOT_BITS);
/// Length of the longest entry, bytes.
const ENTRY_BYTES_MAX: usize = (PREFIX_BITS + SLOT_BITS).div_ceil(7) as usize;
/// Memory that a cached page takes beside its payload, about, bytes: its entries in the map and in the ring.
const CACHED_OVERHEAD_BYTES: usize = 112;

/// What a merge has counted among the entries of the address run.
#[derive(Clone, Default, Debug)]
pub(crate) struct AddressCounts {
    /// For each generation by its number, the share of its entries that newer generations supersede, in
    /// [`SHARE_PARTS`].
    pub(crate) superseded: Vec<(u64, u32)>,
    /// The share of the entries of the new generation that supersede one of an older generation, in [`SHARE_PARTS`];
    /// `None` if nothing of the log was merged.
    pub(crate) renewed: Option<u32>,
}

impl AddressCounts {
    /// `part` of `all` as a share.
    pub(crate) fn share(part: u64, all: u64) -> u32 {
        (part * SHARE_PARTS / all.max(1)).min(SHARE_PARTS) as u32
    }
}

/// The prefix of a hash: what an entry keeps of it.
pub(crate) fn prefix_of(hash: u64) -> u64 {
    hash >> (64 - PREFIX_BITS)
}

/// The hashes with this prefix.
fn hashes_from(prefix: u64) -> RangeInclusive<u64> {
    let shift = 64 - PREFIX_BITS;
    prefix << shift..=prefix << shift | ((1 << shift) - 1)
}

/// Collects entries, in order of their prefixes, into pages.
pub(crate) struct PageWriter {
    /// Numbers of the generations that entries of the run may name. Every page repeats them.
    generations: Vec<u64>,
    page: Vec<u8>,
    entries: u16,
    first: u64,
    last: u64,
    /// The prefix that is being collected, and a bit for each generation that has it.
    pending: Option<(u64, u32)>,
    /// Entries of each generation, and how many of them have the prefix of an entry of a newer generation.
    counts: Vec<(u64, u64)>,
    /// Entries of each generation below this prefix are not counted.
    counted_from: Vec<u64>,
    /// Entries of the first generation that have the prefix of an older one.
    renewed: u64,
}

/// A page that is full.
pub(crate) struct FullPage {
    /// The lowest and the highest hash that the page has an entry for.
    pub(crate) hashes: (u64, u64),
    /// The whole payload.
    pub(crate) payload: Vec<u8>,
}

impl PageWriter {
    /// A writer of entries that name these generations, newest first, at most [`GENERATIONS_MAX`] of them.
    pub(crate) fn new(generations: Vec<u64>) -> PageWriter {
        debug_assert!(generations.len() <= GENERATIONS_MAX);
        let (counts, counted_from) = (vec![(0, 0); generations.len()], vec![0; generations.len()]);
        PageWriter {
            generations,
            page: Vec::new(),
            entries: 0,
            first: 0,
            last: 0,
            pending: None,
            counts,
            counted_from,
            renewed: 0,
        }
    }

    /// Of this generation, only what is left is counted: entries from this prefix on.
    pub(crate) fn count_from(&mut self, generation: u64, prefix: u64) {
        if let Some(slot) = self.generations.iter().position(|number| *number == generation) {
            self.counted_from[slot] = prefix;
        }
    }

    /// What was counted among the entries so far. `also` entries of the first generation have superseded one that was
    /// not pushed; `None` if all that the first generation has is of other generations.
    pub(crate) fn counts(&self, also: Option<u64>) -> AddressCounts {
        let newest = self.counts.first();
        let counted = self.generations.iter().zip(&self.counts);
        AddressCounts {
            superseded: counted
                .map(|(number, (all, dead))| (*number, AddressCounts::share(*dead, *all)))
                .collect(),
            renewed: newest.zip(also).map(|((all, _), also)| AddressCounts::share(self.renewed + also, *all)),
        }
    }

    /// Numbers of the generations that entries may name.
    pub(crate) fn generations(&self) -> &[u64] {
        &self.generations
    }

    /// Adds an entry, whose prefix is not below that of the entry before. An entry that names none of the generations
    /// is left out. Returns a page that became full.
    pub(crate) fn push(&mut self, prefix: u64, generation: u64) -> Option<FullPage> {
        let slot = self.generations.iter().position(|number| *number == generation)?;
        match &mut self.pending {
            Some((pending, slots)) if *pending == prefix => {
                *slots |= 1 << slot;
                None
            }
            _ => {
                let full = self.settle();
                self.pending = Some((prefix, 1 << slot));
                full
            }
        }
    }

    /// Writes the entries of the prefix that was collected. Returns a page that became full.
    fn settle(&mut self) -> Option<FullPage> {
        let (prefix, slots) = self.pending.take()?;
        let bytes_max = ENTRY_BYTES_MAX + slots.count_ones() as usize;
        let full = if self.page.len() + bytes_max > PAYLOAD_BYTES { self.take_page() } else { None };
        if self.page.is_empty() {
            self.page.resize(HEADER_BYTES, 0);
            self.generations.iter().for_each(|number| self.page.extend_from_slice(&number.to_le_bytes()));
            (self.first, self.last) = (prefix, prefix);
        }
        let newest = slots.trailing_zeros() as u64;
        let counted = |slot: u64| slots >> slot & 1 == 1 && prefix >= self.counted_from[slot as usize];
        let older = (1..self.generations.len() as u64).any(counted);
        self.renewed += (newest == 0 && older) as u64;
        for slot in (0..GENERATIONS_MAX as u64).filter(|slot| slots >> slot & 1 == 1) {
            if prefix >= self.counted_from[slot as usize] {
                let (all, superseded) = &mut self.counts[slot as usize];
                (*all, *superseded) = (*all + 1, *superseded + (slot > newest) as u64);
            }
            put_number(&mut self.page, (prefix - self.last) << SLOT_BITS | slot);
            self.last = prefix;
            self.entries += 1;
        }
        full
    }

    fn take_page(&mut self) -> Option<FullPage> {
        if self.page.is_empty() {
            return None;
        }
        let mut payload = std::mem::take(&mut self.page);
        payload[..8].copy_from_slice(&self.first.to_le_bytes());
        payload[8..10].copy_from_slice(&self.entries.to_le_bytes());
        payload[10] = self.generations.len() as u8;
        payload.resize(PAYLOAD_BYTES, 0);
        self.entries = 0;
        let hashes = (*hashes_from(self.first).start(), *hashes_from(self.last).end());
        Some(FullPage { hashes, payload })
    }

    /// Returns the last pages.
    pub(crate) fn finish(&mut self) -> [Option<FullPage>; 2] {
        [self.settle(), self.take_page()]
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for at in 0..ENTRY_BYTES_MAX {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= ((byte & 0x7f) as u64) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The entries of a page's payload, in order.
struct Entries<'a> {
    generations: &'a [[u8; 8]],
    left: u16,
    prefix: u64,
    code: &'a [u8],
}

impl<'a> Entries<'a> {
    /// The entries of a payload; `None` if it is no address page.
    fn of(payload: &'a [u8]) -> Option<Entries<'a>> {
        let (header, rest) = payload.split_at_checked(HEADER_BYTES)?;
        let prefix = u64::from_le_bytes(header[..8].try_into().ok()?);
        let left = u16::from_le_bytes([header[8], header[9]]);
        let (generations, code) = rest.split_at_checked(header[10] as usize * 8)?;
        let whole = header[10] as usize <= GENERATIONS_MAX && prefix >> PREFIX_BITS == 0;
        whole.then_some(Entries { generations: generations.as_chunks().0, left, prefix, code })
    }

    /// The next entry: its prefix and the number of its generation. `Some(None)` at the end, `None` if the page is not
    /// valid.
    fn next(&mut self) -> Option<Option<(u64, u64)>> {
        if self.left == 0 {
            return Some(None);
        }
        self.left -= 1;
        let number = take_number(&mut self.code)?;
        self.prefix += number >> SLOT_BITS;
        let generation = self.generations.get(number as usize & ((1 << SLOT_BITS) - 1))?;
        (self.prefix >> PREFIX_BITS == 0).then_some(Some((self.prefix, u64::from_le_bytes(*generation))))
    }
}

/// Calls `found` with each generation that address pages name for a hash; `false` if one of them is no address page.
pub(crate) fn entries_of(payload: &[u8], hash: u64, mut found: impl FnMut(u64)) -> bool {
    payload.chunks(PAYLOAD_BYTES).all(|page| entries_of_page(page, hash, &mut found))
}

fn entries_of_page(payload: &[u8], hash: u64, found: &mut impl FnMut(u64)) -> bool {
    let wanted = prefix_of(hash);
    let Some(mut entries) = Entries::of(payload) else { return false };
    loop {
        match entries.next() {
            None => return false,
            Some(Some((prefix, generation))) if prefix <= wanted => {
                if prefix == wanted {
                    found(generation);
                }
            }
            Some(_) => return true,
        }
    }
}

/// Address pages to be read for a hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AddressPages {
    /// The zone.
    pub(crate) zone: ZoneId,
    /// Number of the first page in the zone.
    pub(crate) page: u32,
    /// How many pages: 1, or seldom more where the hash is near the border between two pages.
    pub(crate) pages: u32,
    /// Sequence of the segment, which [`crate::page::compact`] checks.
    pub(crate) sequence: u64,
}

impl AddressPages {
    /// The key of the first page in the cache.
    pub(crate) fn key(&self) -> PageKey {
        PageKey { sequence: self.sequence, page: self.page }
    }
}

/// The name of a page: no two pages ever have the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PageKey {
    sequence: u64,
    page: u32,
}

/// One segment of an address run.
#[derive(Debug)]
pub(crate) struct AddressSegment {
    /// Its data pages, which are address pages.
    pub(crate) run: Run,
    first_hash: u64,
    fences: Fences,
}

/// An address run: the entries of all generations, as one merge has written them.
#[derive(Debug)]
pub(crate) struct AddressRun {
    segments: Box<[AddressSegment]>,
    /// Numbers of the generations whose records all have an entry, except those in the gaps.
    covers: Vec<u64>,
    /// Where entries may be missing: what generations have there does not count.
    gaps: Vec<Gap>,
    /// The zone of the segment that marks the end of the merge. Without it a restart does not find the run.
    end_zone: Option<ZoneId>,
}

impl AddressRun {
    /// The run of segments that a merge has written or a restart has found, in any order, for the generations `covers`.
    /// Among them must be the segment without records that marks the end of the merge: `None` if it is missing.
    pub(crate) fn of(segments: Vec<SegmentSummary>, covers: Vec<u64>) -> Option<AddressRun> {
        let number = segments.first()?.head.generation;
        let marked = segments.iter().any(|facts| facts.items == 0);
        if !marked || segments.iter().any(|facts| facts.head.generation != number) {
            return None;
        }
        let mark = segments.iter().find(|facts| facts.items == 0);
        let (end_zone, gaps) = mark.map(|facts| (facts.zone, facts.gaps.clone())).unzip();
        let segments = segments.into_iter().filter(|facts| facts.items > 0).map(|facts| AddressSegment {
            run: Run::of(&facts),
            first_hash: facts.head.first_hash,
            fences: facts.fences,
        });
        let mut segments: Vec<AddressSegment> = segments.collect();
        segments.sort_unstable_by_key(|segment| segment.first_hash);
        Some(AddressRun { segments: segments.into(), covers, gaps: gaps.unwrap_or_default(), end_zone })
    }

    /// Reads from the first page of a run which generations it names; none if that page cannot be read.
    pub(crate) fn covered(device: &dyn Device, segments: &[SegmentSummary]) -> Vec<u64> {
        let Some(facts) = segments.iter().find(|facts| facts.items > 0) else { return Vec::new() };
        let (run, mut page) = (Run::of(facts), PageBuffer::new(1));
        let read = device.read(run.zone, run.first_data_page as u64 * PAGE_BYTES as u64, &mut page);
        let payload =
            read.ok().and_then(|()| page::compact(&mut page, run.sequence, run.first_data_page).ok());
        let entries = payload.and_then(|(payload, _)| Entries::of(payload));
        entries.map_or_else(Vec::new, |entries| {
            entries.generations.iter().map(|number| u64::from_le_bytes(*number)).collect()
        })
    }

    /// Where entries may be missing.
    pub(crate) fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Whether all records of the generation of this number have an entry, except those in the gaps.
    pub(crate) fn covers(&self, generation: u64) -> bool {
        self.covers.contains(&generation)
    }

    /// The zones that it needs.
    pub(crate) fn zones(&self) -> impl Iterator<Item = ZoneId> + '_ {
        self.segments.iter().map(|segment| segment.run.zone).chain(self.end_zone)
    }

    /// Whether one of its segments has this sequence.
    pub(crate) fn has_segment(&self, sequence: u64) -> bool {
        self.segments.iter().any(|segment| segment.run.sequence == sequence)
    }

    /// Its segments, in order of hash.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn segments(&self) -> &[AddressSegment] {
        &self.segments
    }

    /// The page that has the entries of a hash, if there is one.
    pub(crate) fn page(&self, hash: u64) -> Option<AddressPages> {
        let index = self.segments.partition_point(|segment| segment.first_hash <= hash).checked_sub(1)?;
        let segment = &self.segments[index];
        let found = segment.fences.begins(hash);
        (found.count > 0).then_some(AddressPages {
            zone: segment.run.zone,
            page: segment.run.first_data_page + found.first,
            pages: found.count,
            sequence: segment.run.sequence,
        })
    }

    /// Memory taken, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let fences = |segment: &AddressSegment| segment.fences.bytes() - size_of::<Fences>();
        let segments: usize = self.segments.iter().map(fences).sum();
        (size_of::<AddressRun>() + size_of_val(&*self.segments) + segments + 8 * self.covers.len()) as u64
            + size_of_val(&*self.gaps) as u64
    }
}

/// Reads an address run from its first entry to its last.
pub(crate) struct RunStream<'a> {
    device: &'a dyn Device,
    run: Arc<AddressRun>,
    segment: usize,
    page: u32,
    chunk_pages: u32,
    /// Entries that were read and not taken yet, the last one first.
    entries: Vec<(u64, u64)>,
    pages_read: u64,
    /// Whether a page could not be read, so that entries are missing.
    damaged: bool,
    /// The prefix of the last entry that was read.
    last: u64,
    /// The last prefix before a page that could not be read, until an entry behind the page is found.
    lost_from: Option<u64>,
    /// Ranges of hashes of which entries may be missing.
    lost: Vec<RangeInclusive<u64>>,
}

impl<'a> RunStream<'a> {
    /// A stream that reads `chunk_pages` pages at a time.
    pub(crate) fn new(device: &'a dyn Device, run: Arc<AddressRun>, chunk_pages: u32) -> RunStream<'a> {
        let chunk_pages = chunk_pages.max(1);
        // The first segment of a run begins at hash 0. A restart may have found only those behind a damaged one.
        let is_whole = run.segments.first().is_some_and(|first| first.first_hash == 0);
        RunStream {
            device,
            run,
            segment: 0,
            page: 0,
            chunk_pages,
            entries: Vec::new(),
            pages_read: 0,
            damaged: !is_whole,
            last: 0,
            lost_from: (!is_whole).then_some(0),
            lost: Vec::new(),
        }
    }

    /// The next entry: its prefix and the number of its generation.
    pub(crate) fn peek(&mut self) -> Option<(u64, u64)> {
        while self.entries.is_empty() && self.read() {}
        self.entries.last().copied()
    }

    /// Takes the entry that [`RunStream::peek`] returned.
    pub(crate) fn take(&mut self) {
        self.entries.pop();
    }

    /// Pages read so far.
    pub(crate) fn pages_read(&self) -> u64 {
        self.pages_read
    }

    /// Takes the ranges of hashes of which entries may be missing, as far as the stream has come.
    pub(crate) fn take_lost(&mut self) -> std::vec::Drain<'_, RangeInclusive<u64>> {
        self.lost.drain(..)
    }

    /// Whether entries may be missing.
    pub(crate) fn damaged(&self) -> bool {
        self.damaged
    }

    /// Reads the next pages; `false` at the end.
    fn read(&mut self) -> bool {
        let Some(segment) = self.run.segments.get(self.segment) else {
            self.lost.extend(self.lost_from.take().map(|from| *hashes_from(from).start()..=u64::MAX));
            return false;
        };
        let run = segment.run;
        if self.page >= run.data_pages {
            (self.segment, self.page) = (self.segment + 1, 0);
            return true;
        }
        let pages = self.chunk_pages.min(run.data_pages - self.page);
        let first = run.first_data_page + self.page;
        let mut buffer = PageBuffer::new(pages as usize);
        let read = self.device.read(run.zone, first as u64 * PAGE_BYTES as u64, &mut buffer);
        for (index, bytes) in buffer.chunks(PAGE_BYTES).enumerate() {
            let checked = page::check(bytes, run.sequence, first + index as u32);
            let page = &bytes[page::PAGE_HEADER_BYTES..];
            let before = self.entries.len();
            let whole = read.is_ok() && checked.is_ok() && self.take_entries(page);
            self.damaged |= !whole;
            if let (true, Some((first, _))) = (whole, self.entries.get(before)) {
                let to = *hashes_from(*first).end();
                self.lost.extend(self.lost_from.take().map(|from| *hashes_from(from).start()..=to));
            }
            if !whole {
                self.lost_from.get_or_insert(self.last);
            }
            self.last = self.entries.last().map_or(self.last, |(prefix, _)| *prefix);
        }
        self.page += pages;
        self.pages_read += pages as u64;
        self.entries.reverse();
        true
    }

    fn take_entries(&mut self, payload: &[u8]) -> bool {
        let Some(mut entries) = Entries::of(payload) else { return false };
        loop {
            match entries.next() {
                Some(Some(entry)) => self.entries.push(entry),
                Some(None) => return true,
                None => return false,
            }
        }
    }
}

/// A cache of address pages, replaced by CLOCK: a page that was used since the cursor passed it stays for another
/// round.
pub(crate) struct PageCache {
    pages_max: usize,
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    pages: Vec<CachedPage>,
    /// The position in `pages` of each.
    positions: HashMap<PageKey, usize>,
    /// The position that is looked at next for a page to replace.
    cursor: usize,
}

struct CachedPage {
    key: PageKey,
    payload: Arc<[u8]>,
    /// Whether the page was used since the cursor passed it.
    used: bool,
}

impl PageCache {
    /// An empty cache of as many pages as fit into `bytes_max`.
    pub(crate) fn new(bytes_max: u64) -> PageCache {
        let pages_max = (bytes_max / (PAYLOAD_BYTES + CACHED_OVERHEAD_BYTES) as u64) as usize;
        PageCache { pages_max, ring: Mutex::new(Ring::default()) }
    }

    /// Memory taken when the cache is full, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.pages_max * (PAYLOAD_BYTES + CACHED_OVERHEAD_BYTES)) as u64
    }

    /// The payload of a page, if it is cached.
    pub(crate) fn get(&self, key: PageKey) -> Option<Arc<[u8]>> {
        if self.pages_max == 0 {
            return None;
        }
        let mut ring = self.ring.lock().expect("no panic under this lock");
        let position = *ring.positions.get(&key)?;
        let page = &mut ring.pages[position];
        page.used = true;
        Some(page.payload.clone())
    }

    /// Caches a page in place of one that was not used lately. Nothing is cached if `payload` is not that of one page.
    pub(crate) fn put(&self, key: PageKey, payload: &[u8]) {
        if self.pages_max == 0 || payload.len() != PAYLOAD_BYTES {
            return;
        }
        let page = CachedPage { key, payload: payload.into(), used: false };
        let mut ring = self.ring.lock().expect("no panic under this lock");
        if ring.positions.contains_key(&key) {
            return;
        }
        if ring.pages.len() < self.pages_max {
            let position = ring.pages.len();
            ring.pages.push(page);
            ring.positions.insert(key, position);
            return;
        }
        loop {
            let cursor = ring.cursor;
            ring.cursor = (cursor + 1) % ring.pages.len();
            if !std::mem::take(&mut ring.pages[cursor].used) {
                let gone = std::mem::replace(&mut ring.pages[cursor], page);
                ring.positions.remove(&gone.key);
                ring.positions.insert(key, cursor);
                return;
            }
        }
    }
}
