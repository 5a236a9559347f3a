//! What is kept of a zone that is reclaimed: records worth keeping, and tombstones that still hide something.

use super::ahead::Ahead;
use super::buffer::Query;
use super::directory::{LogSegment, PageRun, Segment};
use super::log::{Log, Refused};
use super::lookup::{Look, Lookup, find_record};
use super::space::{Space, Unkept};
use super::status::TimeSlice;
use crate::device::{Device, PAGE_BYTES, PageBuffer, ZoneId};
use crate::item::Stamp;
use crate::options::FlashOptions;
use crate::record::Record;
use crate::segment::{Kind, Scan, ScanReads, Scanned};
use larder_item::KeyHasher;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often a record is judged again because something happened under its hash meanwhile.
const TRIES_MAX: u32 = 16;

/// For how long a survivor waits for room while the device takes nothing of any segment.
const STALL: Duration = Duration::from_secs(1);
/// For how long it waits at most: if a table is full, segments that are written make no room.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long it sleeps in between.
const ROOM_PAUSE: Duration = Duration::from_micros(200);

/// Records for which is loaded together what is looked at of each.
const TOUCHED_AT_ONCE: usize = 16;

/// How many records of a zone were live, how many of those were kept, and how many percent may be.
struct KeepQuota {
    live: u64,
    kept: u64,
    percent: u32,
}

/// A record that is judged when the pages are read that it depends on.
struct PutOff {
    /// See [`Scan::again`].
    at: usize,
    /// Whether it is worth keeping.
    worth: bool,
}

/// Whether a record was replaced by a newer one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Replaced {
    Yes,
    No,
    /// A newer segment cannot be read.
    Unknown,
    /// It will be known after the next [`Ahead::read`].
    Later,
}

/// Whether a record is a later part of a long value. Then there is no other version that it could hide, since the hash
/// of a later part depends on the version.
fn is_later_part(record: &Record<'_>) -> bool {
    record.part.is_some_and(|part| part.number > 0)
}

/// Appends survivors of a zone to the log again.
pub(crate) struct Survivors {
    lookup: Lookup,
    space: Arc<Space>,
    log: Arc<Log>,
    device: Arc<dyn Device>,
    hasher: KeyHasher,
    chunk_pages: u32,
    cutoff_s: u32,
    /// Held during a reclaim.
    reads: Mutex<(Ahead, ScanReads)>,
}

impl Survivors {
    /// `chunk_pages` pages of a zone are read at a time, and as many of others.
    pub(crate) fn new(
        (lookup, space, log): (Lookup, Arc<Space>, Arc<Log>),
        (device, hasher): (Arc<dyn Device>, KeyHasher),
        chunk_pages: u32,
        options: &FlashOptions,
    ) -> Survivors {
        let reads = Mutex::new((Ahead::new(device.clone(), chunk_pages), ScanReads::default()));
        Survivors { lookup, space, log, device, hasher, chunk_pages, cutoff_s: options.cutoff_s, reads }
    }

    /// Appends again what is worth it: what was read since it was written, and as much of the rest that `percent` of
    /// all live records are kept. Returns the sequence of the newest segment that took any of it (0: none): when that
    /// is durable the zone can go.
    ///
    /// # Errors
    /// See [`Unkept`]. Some of its records may have been appended again.
    pub(crate) fn keep(&self, zone: ZoneId, percent: u32) -> Result<u64, Unkept> {
        let segments = self.space.segments(zone);
        let (ahead, reads) = &mut *self.reads.lock().expect("no panic under this lock");
        ahead.begin(segments.iter().map(|segment| u64::from(segment.run.data_pages)).sum());
        let mut quota = KeepQuota { live: 0, kept: 0, percent };
        let floor = self.lookup.meta.floor();
        let newest = segments
            .iter()
            .filter(|segment| segment.sequence() >= floor)
            .try_fold(0, |newest: u64, segment| {
                Ok(newest.max(self.keep_segment(segment, &mut quota, ahead, reads)?))
            });
        // A merge needs the memory.
        reads.rest();
        newest
    }

    fn keep_segment(
        &self,
        segment: &Arc<Segment>,
        quota: &mut KeepQuota,
        ahead: &mut Ahead,
        reads: &mut ScanReads,
    ) -> Result<u64, Unkept> {
        let mut scan = Scan::over(&*self.device, &self.hasher, segment.run, self.chunk_pages, reads);
        let mut newest = 0;
        let mut slice = TimeSlice::begin(&self.lookup.status);
        let mut put_off = Vec::new();
        let (mut hashes, mut touched) = ([0; TOUCHED_AT_ONCE], 0);
        loop {
            if touched == 0 {
                slice.yield_if_due(|| self.log.is_urgent());
                touched = scan.ahead(&mut hashes);
                self.lookup.touch(hashes[..touched].iter().copied());
            }
            touched = touched.saturating_sub(1);
            if !put_off.is_empty() && (ahead.is_full() || !scan.has_ready()) {
                newest = newest.max(self.keep_put_off(segment, &scan, &mut put_off, ahead)?);
                ahead.clear();
            }
            match scan.next() {
                Ok(None) => return Ok(newest),
                Ok(Some(scanned)) if segment.kind == Kind::Extents => {
                    newest = newest.max(self.keep_extent(segment, &scanned, quota)?);
                }
                Ok(Some(scanned)) => {
                    let worth = self.may_be_worth(segment, &scanned, quota);
                    match self.keep_record(segment, &scanned, worth, ahead)? {
                        Some(sequence) => newest = newest.max(sequence),
                        None => put_off.push(PutOff { at: scanned.at, worth }),
                    }
                }
                Err(error) => {
                    self.lookup.status.scan_error(segment.zone(), &error);
                    return Err(Unkept::Unreadable);
                }
            }
        }
    }

    /// Judges records that were put off, with the pages that they wait for. Says to which segment the newest went.
    fn keep_put_off(
        &self,
        segment: &Arc<Segment>,
        scan: &Scan<'_>,
        put_off: &mut Vec<PutOff>,
        ahead: &mut Ahead,
    ) -> Result<u64, Unkept> {
        let mut newest = 0;
        let mut slice = TimeSlice::begin(&self.lookup.status);
        while !put_off.is_empty() {
            self.lookup.status.counters.reclaim_reads.fetch_add(ahead.read(), Relaxed);
            // A record that has changed meanwhile, or was not on the pages, may wait for further ones.
            for PutOff { at, worth } in std::mem::take(put_off) {
                slice.yield_if_due(|| self.log.is_urgent());
                let Some(scanned) = scan.again(at) else { return Err(Unkept::Unreadable) };
                match self.keep_record(segment, &scanned, worth, ahead)? {
                    Some(sequence) => newest = newest.max(sequence),
                    None => put_off.push(PutOff { at, worth }),
                }
            }
        }
        Ok(newest)
    }

    /// Whether a live record is to be kept: each warm one, and as many others as the share allows.
    fn is_worth_keeping(&self, segment: &Segment, hash: u64, quota: &mut KeepQuota) -> bool {
        quota.live += 1;
        let warm = segment.hits().is_some_and(|hits| hits.is_hit(hash));
        let keep = warm || (quota.kept + 1) * 100 <= quota.live * quota.percent as u64;
        quota.kept += keep as u64;
        keep
    }

    /// Whether a flush has removed a record since its scan began, or its range of hashes was dropped. To be asked after
    /// the stamp is taken: what comes later changes the stamp.
    fn is_flushed(&self, segment: &Segment, hash: u64) -> bool {
        segment.sequence() < self.lookup.meta.floor_of(hash)
    }

    /// Whether a record was deleted by prefix. What comes later is seen when it is appended. Such a record is treated
    /// as one that has expired: it may hide another one.
    fn is_deleted(&self, segment: &Segment, record: &Record<'_>) -> bool {
        self.lookup.meta.hides(record.key, segment.sequence())
    }

    /// Whether a record has expired, or will within the cut-off window.
    fn is_dying(&self, record: &Record<'_>) -> bool {
        record.expired(self.lookup.status.now().saturating_add(self.cutoff_s))
    }

    fn keep_extent(
        &self,
        segment: &Segment,
        scanned: &Scanned<'_>,
        quota: &mut KeepQuota,
    ) -> Result<u64, Unkept> {
        let Scanned { hash, record, .. } = *scanned;
        let mut is_worth = None;
        for _ in 0..TRIES_MAX {
            let stamp = self.lookup.meta.stamp(hash);
            if self.is_flushed(segment, hash) || !self.lookup.index.leads_to(hash, segment) {
                return Ok(0);
            }
            let goes = self.is_dying(&record) || self.is_deleted(segment, &record);
            let worth = *is_worth.get_or_insert_with(|| !goes && self.is_worth_keeping(segment, hash, quota));
            // An earlier run may have had longer segments. Another reclaim would find no room for it either.
            let fits = self.log.fits_a_segment(&record);
            let kept = if goes || !worth || !fits {
                self.drop_extent(hash, &record, (segment.sequence(), stamp))
            } else {
                self.append(hash, &record, (segment.sequence(), stamp))
            };
            match kept {
                Ok(sequence) => {
                    let is_lost = worth && !goes && !fits;
                    self.lookup.status.counters.survivors_lost.fetch_add(is_lost as u64, Relaxed);
                    return Ok(sequence);
                }
                Err(Refused::NoRoom) => break,
                // Something happened under such a hash, perhaps to another key: judge the record again.
                Err(Refused::Changed) => {}
            }
        }
        Err(Unkept::NotNow)
    }

    /// An extent that goes hides nothing in the log. But if older extents of its hash are dead, it was all that said
    /// so, and a tombstone says it from now on.
    fn drop_extent(&self, hash: u64, record: &Record<'_>, since: (u64, Stamp)) -> Result<u64, Refused> {
        if !self.log.must_mark(hash) || is_later_part(record) {
            return Ok(0);
        }
        self.append_waiting(hash, &Record::tombstone(record.key, true), since)
    }

    /// Appends a record again, and counts it. `since` = the sequence of its segment, and the stamp.
    fn append(&self, hash: u64, record: &Record<'_>, since: (u64, Stamp)) -> Result<u64, Refused> {
        let kept = self.append_waiting(hash, record, since);
        let counters = &self.lookup.status.counters;
        let counter = if kept.is_ok() { &counters.survivors } else { &counters.survivors_lost };
        counter.fetch_add(1, Relaxed);
        if kept.is_ok() {
            counters.survivor_bytes.fetch_add((record.key.len() + record.value.len()) as u64, Relaxed);
        }
        kept
    }

    /// Appends a record again, or a tombstone in its stead. Waits for room in the log while threads make it.
    fn append_waiting(&self, hash: u64, record: &Record<'_>, since: (u64, Stamp)) -> Result<u64, Refused> {
        let kept = self.log.append_survivor(hash, record, since);
        if kept != Err(Refused::NoRoom) {
            return kept;
        }
        let begun = Instant::now();
        let (mut seen, mut moved) = (self.log.progress(), begun);
        loop {
            let kept = self.log.append_survivor(hash, record, since);
            let status = &self.lookup.status;
            let waits = kept == Err(Refused::NoRoom) && status.is_threaded() && !status.is_stopping();
            if !waits || !self.lookup.meta.is_on() {
                return kept;
            }
            let progress = self.log.progress();
            if progress != seen {
                (seen, moved) = (progress, Instant::now());
            }
            if moved.elapsed() > STALL || begun.elapsed() > ROOM_WAIT_MAX {
                return kept;
            }
            std::thread::sleep(ROOM_PAUSE);
        }
    }

    /// Whether a record is to be kept if it is the newest of its key.
    fn may_be_worth(&self, segment: &Segment, scanned: &Scanned<'_>, quota: &mut KeepQuota) -> bool {
        let record = &scanned.record;
        !record.tombstone && !self.is_dying(record) && self.is_worth_keeping(segment, scanned.hash, quota)
    }

    /// Keeps a record or what it hides, and says in which segment (0: nothing was kept). `None`: it has to be judged
    /// again after the next [`Ahead::read`].
    fn keep_record(
        &self,
        segment: &Arc<Segment>,
        scanned: &Scanned<'_>,
        worth: bool,
        ahead: &mut Ahead,
    ) -> Result<Option<u64>, Unkept> {
        let Scanned { hash, record, .. } = *scanned;
        for _ in 0..TRIES_MAX {
            match self.try_keep_record(segment, hash, &record, worth, ahead) {
                Ok(kept) => return Ok(kept),
                Err(Refused::NoRoom) => break,
                // Something happened under such a hash, perhaps to another key: judge the record again.
                Err(Refused::Changed) => {}
            }
        }
        Err(Unkept::NotNow)
    }

    fn try_keep_record(
        &self,
        segment: &Segment,
        hash: u64,
        record: &Record<'_>,
        worth: bool,
        ahead: &mut Ahead,
    ) -> Result<Option<u64>, Refused> {
        let stamp = self.lookup.meta.stamp(hash);
        let lasting = self.lookup.meta.lasting_floor_of(hash);
        if self.is_flushed(segment, hash) {
            // Until a crash cannot bring back what it hides, the record stays where it is.
            return if segment.sequence() < lasting { Ok(Some(0)) } else { Err(Refused::NoRoom) };
        }
        let known = self.lookup.index.log_segments(hash, lasting);
        let own = segment.sequence();
        let older =
            known.iter().any(|other| other.sequence() < own) || self.lookup.generations.may_hold(hash, 0);
        // A newer extent does not count as a replacement. It left a tombstone in the log, which must stay as long as
        // this record does.
        let newer = known.iter().any(|other| other.sequence() > own);
        let hides_extents = record.supersedes_extent && self.log.must_mark(hash);
        let mut is_newest = !newer;
        if newer {
            // The record that replaced this one stays, and hides older versions. That there is one need not be true
            // where the table cannot tell two keys apart; and the bits that say so are those of several keys.
            // To look is worth a read while nobody waits for the device.
            let looks = || ahead.is_worth_more() && !self.log.is_urgent() && !self.log.is_behind();
            let matters = older || hides_extents || !segment.may_be_superseded(hash) || looks();
            let query = Query::of(hash, record);
            let replaced = if matters { self.is_replaced(&query, own, ahead) } else { Replaced::Yes };
            match replaced {
                Replaced::Yes => return Ok(Some(0)),
                Replaced::Later => return Ok(None),
                Replaced::No => is_newest = true,
                Replaced::Unknown => {}
            }
        }
        if worth && is_newest && !self.is_deleted(segment, record) {
            let record = Record { supersedes_extent: hides_extents, ..*record };
            return self.append(hash, &record, (segment.sequence(), stamp)).map(Some);
        }
        if (older || hides_extents || !is_newest) && !is_later_part(record) {
            // The extents that a tombstone is about stay the same when it moves to another segment.
            let cas = if record.tombstone { record.cas } else { 0 };
            let tombstone = Record { cas, ..Record::tombstone(record.key, hides_extents) };
            return self.append_waiting(hash, &tombstone, (own, stamp)).map(Some);
        }
        Ok(Some(0))
    }

    /// Whether a segment of the log newer than `than` has a version of the key or its tombstone.
    fn is_replaced(&self, query: &Query<'_>, than: u64, ahead: &mut Ahead) -> Replaced {
        'again: for _ in 0..TRIES_MAX {
            let known = self.lookup.log_segments(query.hash);
            for newer in known.iter().filter(|other| other.sequence() > than) {
                let has = match &**newer {
                    LogSegment::Memory(buffer) => match self.lookup.look_in_buffer(buffer, query, Stamp(0)) {
                        Look::End(_) => true,
                        Look::Next => false,
                        // The segment is on the device by now.
                        Look::Again => continue 'again,
                        Look::Unknown => return Replaced::Unknown,
                    },
                    LogSegment::Flash(segment) => match segment.pages_of(query.hash) {
                        Some(run) if ahead.wants(segment, &run) => return Replaced::Later,
                        Some(run) => match self.pages_have(segment, &run, query, ahead) {
                            Some(has) => has,
                            None => return Replaced::Unknown,
                        },
                        None => false,
                    },
                };
                if has {
                    return Replaced::Yes;
                }
            }
            return Replaced::No;
        }
        Replaced::Unknown
    }

    /// Whether pages of a segment have a version of the key or its tombstone; `None` if they cannot be read.
    fn pages_have(&self, segment: &Segment, run: &PageRun, query: &Query<'_>, ahead: &Ahead) -> Option<bool> {
        let mut pages = match ahead.get(segment, run) {
            Some(pages) => pages,
            None => self.read_pages(run)?,
        };
        let found = find_record(segment.sequence(), segment.run.cas_base, run.first, &mut pages, query);
        Some(found.ok()?.is_some())
    }

    fn read_pages(&self, run: &PageRun) -> Option<PageBuffer> {
        let mut pages = PageBuffer::new(run.count as usize);
        let status = &self.lookup.status;
        status.counters.reclaim_reads.fetch_add(1, Relaxed);
        match self.device.read(run.zone, run.first as u64 * PAGE_BYTES as u64, &mut pages) {
            Ok(()) => Some(pages),
            Err(error) => {
                status.device_error("read", run.zone, &error);
                None
            }
        }
    }
}
