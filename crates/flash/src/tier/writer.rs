//! The writer: sealed segments go to the device.
//!
//! Lock: `cursors`, held while segments are written: one thread at a time writes. First in the order of locks.

use super::buffer::{Buffer, Content};
use super::log::Log;
use super::lookup::Lookup;
use super::reclaim::Reclaim;
use super::release::Release;
use super::shape::Shape;
use super::space::{Closed, Space};
use super::status::TimeSlice;
use crate::device::{Device, DeviceError, PAGE_BYTES, ZoneId};
use crate::options::Recover;
use crate::segment::{Head, Kind, SegmentSummary, Writer};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// How many zones of a working device may fail one after the other before the tier gives up.
const FAILURES_MAX: u32 = 4;
/// Pages of a segment that are filled between two looks at the time.
const SLICE_PAGES: u32 = 8;

/// Where the next segment of a kind goes.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    zone: ZoneId,
    page: u32,
}

#[derive(Default)]
struct Cursors {
    log: Option<Cursor>,
    extents: Option<Cursor>,
}

impl Cursors {
    fn of(&mut self, kind: Kind) -> &mut Option<Cursor> {
        if kind == Kind::Extents { &mut self.extents } else { &mut self.log }
    }
}

/// The outcome of writing one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrote {
    /// It is on the device, or is not needed any more.
    Yes,
    /// There is no zone for it now.
    NoZone,
    /// The device failed too often.
    Failed,
}

/// Writes sealed segments.
pub(crate) struct LogWriter {
    lookup: Lookup,
    space: Arc<Space>,
    log: Arc<Log>,
    release: Arc<Release>,
    reclaim: Arc<Reclaim>,
    device: Arc<dyn Device>,
    shape: Shape,
    cursors: Mutex<Cursors>,
    /// Since when there is no erased zone for what has to be written.
    no_zone_since: Mutex<Option<Instant>>,
}

impl LogWriter {
    /// No zone is open yet.
    pub(crate) fn new(
        (lookup, space, log): (Lookup, Arc<Space>, Arc<Log>),
        (release, reclaim): (Arc<Release>, Arc<Reclaim>),
        device: Arc<dyn Device>,
        shape: Shape,
    ) -> LogWriter {
        LogWriter {
            lookup,
            space,
            log,
            release,
            reclaim,
            device,
            shape,
            cursors: Mutex::default(),
            no_zone_since: Mutex::default(),
        }
    }

    /// Writes all sealed segments. Says whether anything was done.
    pub(crate) fn write_sealed(&self) -> bool {
        let mut cursors = self.cursors.lock().expect("no panic under this lock");
        let mut any = false;
        let closes = self.log.take_close_zone();
        if closes {
            self.log.seal();
        }
        while self.lookup.meta.is_on() {
            let Some(buffer) = self.log.next_sealed() else { break };
            match self.write(&mut cursors, &buffer) {
                Wrote::Yes => any = true,
                Wrote::NoZone => break,
                Wrote::Failed => self.lookup.meta.turn_off("the device failed to take a segment"),
            }
        }
        if closes && let Some(cursor) = cursors.log.take() {
            self.close_zone(cursor.zone);
            any = true;
        }
        any
    }

    /// Releases zones whose survivors are durable.
    pub(crate) fn release_drained(&self) {
        self.release.drained();
    }

    fn write(&self, cursors: &mut Cursors, buffer: &Arc<Buffer>) -> Wrote {
        let content = buffer.read();
        let Some(found) = content.as_ref() else { return Wrote::Failed };
        if buffer.sequence < self.lookup.meta.floor() || found.live() == 0 {
            drop(content);
            self.log.retire(buffer, false);
            return Wrote::Yes;
        }
        let order = found.order(buffer.kind);
        let mut failures = 0;
        while failures < FAILURES_MAX {
            let Some(cursor) = self.cursor(cursors, buffer, found.segment_pages(buffer.kind)) else {
                return Wrote::NoZone;
            };
            match self.write_to(cursor, buffer, found, &order) {
                Ok(facts) => {
                    *cursors.of(buffer.kind) = Some(Cursor { page: cursor.page + facts.pages, ..cursor });
                    self.count(&facts);
                    self.log.install(buffer, found, &order, facts);
                    drop(content);
                    self.log.retire(buffer, true);
                    return Wrote::Yes;
                }
                Err(error) => {
                    self.lookup.status.device_error("write", cursor.zone, &error);
                    *cursors.of(buffer.kind) = None;
                    self.give_up(cursor.zone, buffer.sequence);
                    if error == DeviceError::Gone {
                        return Wrote::Failed;
                    }
                    // One of several devices has failed: the others may be well.
                    failures = if self.space.is_offline(cursor.zone) { 0 } else { failures + 1 };
                }
            }
        }
        Wrote::Failed
    }

    fn write_to(
        &self,
        cursor: Cursor,
        buffer: &Buffer,
        content: &Content,
        order: &[u32],
    ) -> Result<SegmentSummary, DeviceError> {
        let meta = &self.lookup.meta;
        let head = Head {
            kind: buffer.kind,
            sequence: buffer.sequence,
            sealed_sequence: buffer.sealed_sequence(),
            device_uuid: meta.device_uuid(),
            cas_base: buffer.cas_base,
            generation: 0,
            first_hash: 0,
            last_hash: u64::MAX,
            begun_unix_s: buffer.begun_unix_s,
        };
        let (device, items) = (&*self.device, order.len() as u32);
        let chunk_pages = self.shape.chunk_pages;
        let mut writer = Writer::begin(device, cursor.zone, cursor.page, head, chunk_pages, items, false);
        // Filling the segment takes the core. While enough buffers are free, workers get the core in between.
        let mut slice = TimeSlice::begin(&self.lookup.status);
        let mut pages_seen = 0;
        for number in order {
            if let Some((hash, record)) = content.at(*number, buffer.cas_base) {
                writer.push(hash, &record)?;
            }
            if writer.pages() - pages_seen >= SLICE_PAGES {
                pages_seen = writer.pages();
                self.log.note_progress();
                slice.yield_if_due(|| self.log.is_write_urgent());
            }
        }
        if meta.has_journal() {
            // A tombstone in the log that an extent of this segment stands on is durable before the extent is.
            meta.commit();
        }
        if meta.recover() != Recover::Clean {
            // After a crash the highest CAS number is not known before all feet are read.
            meta.cover_cas(self.log.cas_max())?;
        }
        let facts = writer.finish()?;
        self.log.note_progress();
        if meta.has_journal() {
            self.device.sync()?;
            if self.space.is_offline(cursor.zone) {
                // Another thread was told that the device failed to make durable what it had.
                return Err(DeviceError::State { zone: cursor.zone, what: "its device has failed" });
            }
            meta.segment_written(cursor.zone, facts.head.sequence);
        }
        Ok(facts)
    }

    fn count(&self, facts: &SegmentSummary) {
        let bytes = facts.pages as u64 * PAGE_BYTES as u64;
        let counters = &self.lookup.status.counters;
        counters.appended_bytes.fetch_add(bytes, Relaxed);
        counters.segments_written.fetch_add(1, Relaxed);
        self.space.note_written(facts.zone, bytes, facts.pages as f64 / self.shape.zone_pages as f64);
    }

    /// Where the segment of a buffer, of `pages` pages, can be written.
    fn cursor(&self, cursors: &mut Cursors, buffer: &Buffer, pages: u32) -> Option<Cursor> {
        let kind = buffer.kind;
        if let Some(cursor) = *cursors.of(kind) {
            // Numbers of the log table are given back when the zone is merged: they must not run out before it is
            // closed.
            let is_crowded = self.lookup.has_generations && kind == Kind::Log && self.log.is_short_of_ids();
            if self.shape.zone_pages - cursor.page >= pages && !is_crowded {
                return Some(cursor);
            }
            *cursors.of(kind) = None;
            self.close_zone(cursor.zone);
        }
        let cursor = Cursor { zone: self.take_zone(buffer.sequence)?, page: 0 };
        *cursors.of(kind) = Some(cursor);
        Some(cursor)
    }

    fn close_zone(&self, zone: ZoneId) {
        if self.space.close(zone) == Closed::Empty {
            // Another thread has released all segments of the zone, and may still be at work on it.
            self.release.erase_emptied(zone);
        }
    }

    /// Writes no more to a zone that failed. The failed segment may be complete there nevertheless. It is written down
    /// that it does not exist, so that no restart finds it beside its other copy or after it. If that cannot be written
    /// now, it is with the next release of any zone, and before that both copies are the same.
    fn give_up(&self, zone: ZoneId, sequence: u64) {
        if self.space.give_up(zone) {
            self.lookup.meta.release(&[(zone, sequence + 1)]);
        } else {
            self.lookup.meta.narrow(&[(zone, 0, sequence)]);
        }
    }

    /// An erased zone for segments from `sequence` on, for which room is made if need be.
    fn take_zone(&self, sequence: u64) -> Option<ZoneId> {
        let mut no_zone_since = self.no_zone_since.lock().expect("no panic under this lock");
        loop {
            if let Some(zone) = self.space.take_zone(sequence) {
                *no_zone_since = None;
                return Some(zone);
            }
            if self.space.is_none_for(sequence) {
                self.log.drop_everything();
                return None;
            }
            let since = *no_zone_since.get_or_insert_with(Instant::now);
            if !self.reclaim.make_room(since.elapsed()) {
                return None;
            }
        }
    }
}
