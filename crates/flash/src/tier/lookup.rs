//! Where the newest version of a key may be, newest first.

use super::buffer::{Buffer, Wanted};
use super::directory::{Place, Segment};
use crate::device::{PAGE_BYTES, ZoneId};
use crate::flash::{Flash, Found, Stamp};
use crate::generation::{Search, Where};
use crate::log_table::Candidates;
use crate::page;
use crate::record::{Decoded, Record};
use crate::segment::listed;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Reads of one lookup, at most.
pub(crate) const READS_MAX: u32 = 2;
/// Times a lookup begins again when segments lose their meaning under it.
const TRIES_MAX: u32 = 8;

/// Pages to read.
#[derive(Clone, Debug)]
pub(crate) struct PageRun {
    pub(crate) zone: ZoneId,
    /// Page in the zone.
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// One place where the key may be.
#[derive(Clone)]
pub(crate) enum Target {
    /// A buffer.
    Memory(Arc<Buffer>),
    /// Pages of a segment.
    Flash(Arc<Segment>, PageRun),
}

/// What a look at one place came to.
pub(crate) enum Look {
    /// The key, or its tombstone: nothing older counts.
    End(Option<Found>),
    /// It is not there.
    Next,
    /// Nobody can say what was there: nothing older may be believed.
    Unknown,
    /// The buffer went to the device meanwhile: look again.
    Again,
}

/// Places, newest first.
#[derive(Default)]
pub(crate) struct Targets {
    pub(crate) list: Vec<Target>,
    /// What comes after all of them.
    pub(crate) generations: Option<Search>,
}

impl Segment {
    /// Pages in which every record of this hash begins.
    pub(crate) fn pages_of(&self, hash: u64) -> Option<PageRun> {
        let pages = self.fences.page(hash);
        let first = self.run.first_data_page + pages.first;
        (pages.count > 0).then(|| PageRun { zone: self.zone(), first, count: pages.count })
    }
}

impl Flash {
    /// The segment that an address of the extent table lies in.
    pub(crate) fn extent_segment(&self, address: u64) -> Option<Arc<Segment>> {
        let zone_pages = self.shape.zone_pages as u64;
        let zone = ZoneId(u32::try_from(address / zone_pages).ok()?);
        self.directory.extents().at(zone, (address % zone_pages) as u32).cloned()
    }

    /// What the log table's numbers mean, newest first. Numbers without a meaning are left out.
    pub(crate) fn log_places(&self, hash: u64) -> Vec<Arc<Place>> {
        let floor = self.floor.load(SeqCst);
        let mut candidates = Candidates::new();
        self.table.candidates(listed(hash), &mut candidates);
        let mut places: Vec<Arc<Place>> =
            candidates.iter().filter_map(|id| self.directory.get(*id)).collect();
        places.retain(|place| place.sequence() >= floor);
        places.sort_by_key(|place| std::cmp::Reverse(place.sequence()));
        places
    }

    /// Whether the log, or a generation, may hold a hash.
    pub(crate) fn log_may_hold(&self, hash: u64) -> bool {
        let mut candidates = Candidates::new();
        self.table.candidates(listed(hash), &mut candidates);
        !candidates.is_empty()
            || self.recovering.load(SeqCst)
            || self.unreleased.load(SeqCst)
            || self.generations.may_hold(hash)
    }

    pub(crate) fn may_hold_hash(&self, hash: u64) -> bool {
        let holds = || {
            self.log_may_hold(hash) || !self.extents.candidates(hash).is_empty() || self.buffers_hold(hash)
        };
        self.is_on() && self.unmoved(holds, |holds| !holds)
    }

    /// Looks, and looks again if what came is `doubtful` and something was moved meanwhile: an extent from its buffer to the
    /// device, or from there to another buffer, is in neither for one who looks at each before it comes there.
    pub(crate) fn unmoved<T>(&self, look: impl Fn() -> T, doubtful: impl Fn(&T) -> bool) -> T {
        loop {
            let changes = self.directory.changes();
            let seen = look();
            if !doubtful(&seen) || self.directory.changes() == changes {
                return seen;
            }
        }
    }

    pub(crate) fn buffers_hold(&self, hash: u64) -> bool {
        let holds =
            |buffer: &Arc<Buffer>| buffer.read().as_ref().is_some_and(|content| content.may_hold(hash));
        self.directory.extents().buffers.iter().any(holds)
    }

    /// Whether a segment is still where it was.
    pub(crate) fn stands(&self, segment: &Segment) -> bool {
        let stands = |place: &Place| matches!(place, Place::Flash(known) if std::ptr::eq(&**known, segment));
        match segment.id {
            0 => {
                let extents = self.directory.extents();
                extents
                    .at(segment.zone(), segment.run.first_data_page)
                    .is_some_and(|known| std::ptr::eq(&**known, segment))
            }
            id => self.directory.get(id).is_some_and(|place| stands(&place)),
        }
    }

    /// Where to look. `None`: nowhere.
    pub(crate) fn targets(&self, wanted: &Wanted<'_>) -> Option<Targets> {
        if !self.is_on() || self.flushing.load(SeqCst) > 0 {
            return None;
        }
        for _ in 0..TRIES_MAX {
            let changes = self.directory.changes();
            if self.fallback.contains(wanted.key) {
                return None;
            }
            let mut targets = Targets::default();
            self.extent_targets(wanted, &mut targets);
            for place in self.log_places(wanted.hash) {
                match &*place {
                    Place::Memory(buffer) => targets.list.push(Target::Memory(buffer.clone())),
                    Place::Flash(segment) => {
                        if let Some(run) = segment.pages_of(wanted.hash) {
                            targets.list.push(Target::Flash(segment.clone(), run));
                        }
                    }
                }
            }
            // After the log: a merge shows its generation before the log forgets.
            targets.generations = self.options.generations.then(|| self.generations.search(wanted.hash));
            if self.directory.changes() == changes {
                return Some(targets);
            }
        }
        None
    }

    fn extent_targets(&self, wanted: &Wanted<'_>, targets: &mut Targets) {
        let extents = self.directory.extents();
        let floor = self.floor.load(SeqCst);
        let buffers = extents.buffers.iter().rev().filter(|buffer| buffer.sequence >= floor);
        targets.list.extend(buffers.cloned().map(Target::Memory));
        drop(extents);
        let runs = self.extent_runs(wanted.hash);
        targets.list.extend(runs.into_iter().map(|(segment, run)| Target::Flash(segment, run)));
    }

    /// Where the extents of a hash are on the device.
    pub(crate) fn extent_runs(&self, hash: u64) -> Vec<(Arc<Segment>, PageRun)> {
        let zone_pages = self.shape.zone_pages as u64;
        let mut runs = Vec::new();
        for extent in self.extents.candidates(hash).iter() {
            let Some(segment) = self.extent_segment(extent.address) else { continue };
            if segment.sequence() < self.floor.load(SeqCst) {
                continue;
            }
            let first = (extent.address % zone_pages) as u32;
            let left = segment.run.first_data_page + segment.run.data_pages - first;
            let most = (self.shape.part_bytes_max + 1024).div_ceil(PAGE_BYTES) as u32 + 2;
            let count = if extent.pages == 0 { most } else { extent.pages }.min(left);
            let run = PageRun { zone: segment.zone(), first, count };
            runs.push((segment, run));
        }
        runs
    }

    /// What a record found for a key is to the caller.
    fn found(&self, record: &Record<'_>, warm: bool, stamp: Stamp) -> Option<Found> {
        if record.tombstone || record.expired(self.now()) {
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
        })
    }

    /// Looks into a buffer.
    pub(crate) fn look_in_buffer(&self, buffer: &Buffer, wanted: &Wanted<'_>, stamp: Stamp) -> Look {
        let content = buffer.read();
        let Some(content) = content.as_ref() else { return Look::Again };
        match content.find(wanted, buffer.cas_base) {
            Some(record) => {
                let found = self.found(&record, false, stamp);
                self.counters.hits_in_buffers.fetch_add(found.is_some() as u64, Relaxed);
                Look::End(found)
            }
            None => Look::Next,
        }
    }

    /// Looks into pages that were read.
    pub(crate) fn look_in_pages(
        &self,
        segment: &Segment,
        run: &PageRun,
        pages: &mut [u8],
        wanted: &Wanted<'_>,
        stamp: Stamp,
    ) -> Look {
        match find_record(segment, run, pages, wanted) {
            Err(page::PageError::Checksum | page::PageError::Shape) => {
                self.counters.damaged_pages.fetch_add(1, Relaxed);
                Look::Unknown
            }
            // The zone was written again since.
            Err(_) => Look::Unknown,
            Ok(None) => Look::Next,
            Ok(Some(record)) => {
                let warm = segment.hits.as_ref().is_some_and(|hits| {
                    let warm = hits.is_hit(wanted.hash);
                    hits.mark(wanted.hash);
                    warm
                });
                Look::End(self.found(&record, warm, stamp))
            }
        }
    }

    /// Looks into pages of a generation that were read.
    pub(crate) fn look_in_generation(
        &self,
        place: &Where,
        pages: &mut [u8],
        wanted: &Wanted<'_>,
        stamp: Stamp,
    ) -> Look {
        match find_in(place.sequence, place.cas_base, place.page, pages, wanted) {
            Err(page::PageError::Checksum | page::PageError::Shape) => {
                self.counters.damaged_pages.fetch_add(1, Relaxed);
                Look::Unknown
            }
            Err(_) => Look::Unknown,
            Ok(None) => Look::Next,
            Ok(Some(record)) => {
                let hits = self.generation_hits.load();
                let warm = hits.is_hit(wanted.hash);
                hits.mark(wanted.hash);
                Look::End(self.found(&record, warm, stamp))
            }
        }
    }

    /// Whether pages that were read have a version of the key, or its tombstone; `None` if they are damaged.
    pub(crate) fn has_record(
        &self,
        segment: &Segment,
        run: &PageRun,
        pages: &mut [u8],
        wanted: &Wanted<'_>,
    ) -> Option<bool> {
        Some(find_record(segment, run, pages, wanted).ok()?.is_some())
    }

    /// Whether the version that was promoted is here, and for a while.
    pub(crate) fn holds_for_a_while(&self, hash: u64) -> bool {
        if !self.is_on() || self.flushing.load(SeqCst) > 0 {
            return false;
        }
        let since = self.oldest_quarter.load(Relaxed);
        let extent =
            self.extents.candidates(hash).first().and_then(|extent| self.extent_segment(extent.address));
        if let Some(segment) = extent {
            return segment.sequence() >= since;
        }
        if self.buffers_hold(hash) {
            return true;
        }
        match self.log_places(hash).first() {
            Some(place) => place.sequence() >= since,
            None => self.options.generations && self.generations_hold_for_a_while(hash),
        }
    }
}

/// The record of a key in pages that were read.
fn find_record<'a>(
    segment: &Segment,
    run: &PageRun,
    pages: &'a mut [u8],
    wanted: &Wanted<'_>,
) -> Result<Option<Record<'a>>, page::PageError> {
    find_in(segment.sequence(), segment.run.cas_base, run.first, pages, wanted)
}

fn find_in<'a>(
    sequence: u64,
    cas_base: u64,
    first_page: u32,
    pages: &'a mut [u8],
    wanted: &Wanted<'_>,
) -> Result<Option<Record<'a>>, page::PageError> {
    let (piece, begins) = page::compact(pages, sequence, first_page)?;
    let mut at = begins.unwrap_or(piece.len());
    while at < piece.len() {
        let Decoded::Whole(record, bytes) = Record::decode(&piece[at..], cas_base) else { break };
        if record.is(wanted.key, wanted.cas, wanted.part) {
            return Ok(Some(record));
        }
        at += bytes;
    }
    Ok(None)
}
