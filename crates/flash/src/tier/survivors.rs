//! What a zone that is reclaimed still has to say: records worth keeping, and tombstones that still hide something.

use super::append::Refused;
use super::buffer::{Buffer, Wanted};
use super::directory::{Place, Segment};
use super::lookup::{Look, PageRun};
use crate::device::{PageBuffer, ZoneId};
use crate::flash::{Flash, Stamp};
use crate::record::Record;
use crate::segment::{Kind, Scan, Scanned};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Instant;

/// Times a record is judged that something happens to meanwhile.
const TRIES_MAX: u32 = 16;

/// How much was kept of what could have been.
#[derive(Default)]
struct Kept {
    live: u64,
    kept: u64,
}

/// Whether there is no other version that it could hide: what it is found under names its version.
fn is_later_part(record: &Record<'_>) -> bool {
    record.part.is_some_and(|part| part.number > 0)
}

impl Flash {
    /// Puts again what is worth it. Returns the sequence of the newest segment that took any of it (0 for none): when that is
    /// durable the zone can go. `None` if the zone could not be read to its end, or something had no place: it must stay.
    pub(crate) fn move_survivors(&self, zone: ZoneId) -> Option<u64> {
        let segments = self.zones().get(zone).segments.clone();
        let mut newest = 0;
        let mut kept = Kept::default();
        let floor = self.floor.load(SeqCst);
        for segment in segments.iter().filter(|segment| segment.sequence() >= floor) {
            newest = newest.max(self.move_survivors_of(segment, &mut kept)?);
        }
        Some(newest)
    }

    fn move_survivors_of(&self, segment: &Arc<Segment>, kept: &mut Kept) -> Option<u64> {
        let pages = self.shape.chunk_pages as u32;
        let mut scan = Scan::over(&*self.device, &self.hasher, segment.run, pages);
        let mut newest = 0;
        let mut turn = Instant::now();
        loop {
            self.breathe(&mut turn);
            let next = scan.next();
            match next {
                Ok(None) => return Some(newest),
                Ok(Some(scanned)) => match segment.kind {
                    Kind::Extents => newest = newest.max(self.move_extent(segment, &scanned, kept)?),
                    _ => newest = newest.max(self.move_record(segment, &scanned, kept)?),
                },
                Err(error) => {
                    self.scan_error(segment.zone(), &error);
                    return None;
                }
            }
        }
    }

    /// Whether a live record is to be kept, warm ones always, and as many others as the share allows.
    fn worth_keeping(&self, segment: &Segment, hash: u64, kept: &mut Kept) -> bool {
        kept.live += 1;
        let warm = segment.hits.as_ref().is_some_and(|hits| hits.is_hit(hash));
        let keep = warm || (kept.kept + 1) * 100 <= kept.live * self.options.keep_percent as u64;
        kept.kept += keep as u64;
        keep
    }

    fn move_extent(&self, segment: &Segment, scanned: &Scanned<'_>, kept: &mut Kept) -> Option<u64> {
        let Scanned { hash, record, .. } = *scanned;
        let stamp = self.stamps.get(hash);
        if self.is_flushed(segment) {
            return Some(0);
        }
        let zone_pages = self.shape.zone_pages as u64;
        let pages = segment.run.first_data_page..segment.run.first_data_page + segment.run.data_pages;
        let is_here = self.extents.candidates(hash).iter().any(|extent| {
            extent.address / zone_pages == segment.zone().0 as u64
                && pages.contains(&((extent.address % zone_pages) as u32))
        });
        if !is_here {
            return Some(0);
        }
        if self.is_dying(&record) || !self.worth_keeping(segment, hash, kept) {
            return self.drop_extent(hash, &record, stamp);
        }
        match self.keep(hash, &record, stamp) {
            Ok(sequence) => Some(sequence),
            Err(Refused::Changed) => Some(0),
            Err(Refused::NoRoom) => self.drop_extent(hash, &record, stamp),
        }
    }

    /// An extent that goes hides nothing in the log; but if there are dead ones older than it, it was all that said so.
    fn drop_extent(&self, hash: u64, record: &Record<'_>, stamp: Stamp) -> Option<u64> {
        let marked = self.must_mark(&self.append(), hash);
        if !marked || is_later_part(record) {
            return Some(0);
        }
        match self.append_survivor(hash, &Record::tombstone(record.key, true), stamp) {
            Ok(sequence) => Some(sequence),
            Err(Refused::Changed) => Some(0),
            Err(Refused::NoRoom) => None,
        }
    }

    /// Whether a flush has come since the scan of it began. Asked after the stamp is taken: a flush that comes later changes that.
    fn is_flushed(&self, segment: &Segment) -> bool {
        segment.sequence() < self.floor.load(SeqCst)
    }

    /// Whether it has expired, or will within the cut-off window.
    fn is_dying(&self, record: &Record<'_>) -> bool {
        record.expired(self.now().saturating_add(self.options.cutoff_s))
    }

    fn keep(&self, hash: u64, record: &Record<'_>, stamp: Stamp) -> Result<u64, Refused> {
        let kept = self.append_survivor(hash, record, stamp);
        let counter = if kept.is_ok() { &self.counters.survivors } else { &self.counters.survivors_lost };
        counter.fetch_add(1, Relaxed);
        if kept.is_ok() {
            self.counters.survivor_bytes.fetch_add((record.key.len() + record.value.len()) as u64, Relaxed);
        }
        kept
    }

    fn move_record(&self, segment: &Arc<Segment>, scanned: &Scanned<'_>, kept: &mut Kept) -> Option<u64> {
        let Scanned { hash, record, .. } = *scanned;
        let worth = !record.tombstone && !self.is_dying(&record) && self.worth_keeping(segment, hash, kept);
        for _ in 0..TRIES_MAX {
            match self.try_move_record(segment, hash, &record, worth) {
                Ok(sequence) => return Some(sequence),
                Err(Refused::NoRoom) => break,
                // Something happened under such a hash, perhaps to another key: judge it again.
                Err(Refused::Changed) => {}
            }
        }
        None
    }

    fn try_move_record(
        &self,
        segment: &Segment,
        hash: u64,
        record: &Record<'_>,
        worth: bool,
    ) -> Result<u64, Refused> {
        let stamp = self.stamps.get(hash);
        if self.is_flushed(segment) {
            return Ok(0);
        }
        let places = self.log_places(hash);
        let own = segment.sequence();
        let older = places.iter().any(|place| place.sequence() < own) || self.generations.may_hold(hash);
        // An extent that is newer counts for nothing: it left a tombstone in the log, which has to stay as long as what it hides.
        let newer = places.iter().any(|place| place.sequence() > own);
        let hides_extents = record.supersedes_extent && self.must_mark(&self.append(), hash);
        let mut known = !newer;
        if newer {
            // Whatever replaced it stays, and hides what is older.
            let matters = older || hides_extents;
            let replaced =
                if matters { self.is_replaced(&Wanted::of(hash, record), own) } else { Some(true) };
            if replaced == Some(true) {
                return Ok(0);
            }
            known = replaced == Some(false);
        }
        if worth && known {
            let record = Record { supersedes_extent: hides_extents, ..*record };
            match self.keep(hash, &record, stamp) {
                Err(Refused::NoRoom) => {}
                other => return other,
            }
        }
        if (older || hides_extents || !known) && !is_later_part(record) {
            // Which extents a tombstone is about does not change with the segment that says so.
            let cas = if record.tombstone { record.cas } else { 0 };
            let tombstone = Record { cas, ..Record::tombstone(record.key, hides_extents) };
            return self.append_survivor(hash, &tombstone, stamp);
        }
        Ok(0)
    }

    /// Whether a newer place of the log has a version of the key or its tombstone, to the letter; `None` where that cannot be read.
    fn is_replaced(&self, wanted: &Wanted<'_>, than: u64) -> Option<bool> {
        let in_buffer = |buffer: &Buffer| match self.look_in_buffer(buffer, wanted, Stamp(0)) {
            Look::End(_) => Some(true),
            Look::Next => Some(false),
            _ => None,
        };
        for place in self.log_places(wanted.hash).iter().filter(|place| place.sequence() > than) {
            let has = match &**place {
                Place::Memory(buffer) => in_buffer(buffer)?,
                Place::Flash(segment) => match segment.pages_of(wanted.hash) {
                    Some(run) => self.pages_have(segment, &run, wanted)?,
                    None => false,
                },
            };
            if has {
                return Some(true);
            }
        }
        Some(false)
    }

    fn pages_have(&self, segment: &Segment, run: &PageRun, wanted: &Wanted<'_>) -> Option<bool> {
        let mut pages = PageBuffer::new(run.count as usize);
        self.counters.reclaim_reads.fetch_add(1, Relaxed);
        let at = run.first as u64 * crate::device::PAGE_BYTES as u64;
        if let Err(error) = self.device.read(run.zone, at, &mut pages) {
            self.device_error("read", run.zone, &error);
            return None;
        }
        self.has_record(segment, run, &mut pages, wanted)
    }
}
