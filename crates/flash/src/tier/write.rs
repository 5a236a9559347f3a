//! Sealed segments go to the device.

use super::buffer::{Buffer, Content};
use super::directory::{Place, Segment};
use super::zones::Use;
use crate::device::{DeviceError, ZoneId};
use crate::flash::Flash;
use crate::hit_bits::HitBits;
use crate::options::Recover;
use crate::segment::{Head, Kind, SegmentFacts, Writer};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Instant;

/// Zones that may fail one after the other before the tier gives up.
const FAILURES_MAX: u32 = 4;

/// Pages of a segment that are filled between two looks at the time.
const TURN_PAGES: u32 = 8;

/// Where the next segment of a kind goes.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    zone: ZoneId,
    page: u32,
}

/// What the `writing` lock guards: who has it writes segments.
#[derive(Default)]
pub(crate) struct Writing {
    log: Option<Cursor>,
    extents: Option<Cursor>,
}

impl Writing {
    fn cursor(&mut self, kind: Kind) -> &mut Option<Cursor> {
        if kind == Kind::Extents { &mut self.extents } else { &mut self.log }
    }
}

/// What came of writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrote {
    Yes,
    /// There is no zone; later, perhaps.
    NoZone,
    /// The device failed too often.
    Failed,
}

impl Flash {
    /// Writes what is sealed. Says whether anything was.
    pub(crate) fn write_sealed(&self) -> bool {
        let mut writing = self.writing.lock().expect("no panic under this lock");
        let mut any = false;
        let closes = self.close_log.swap(false, SeqCst);
        if closes {
            self.seal(&mut self.append(), Kind::Log);
        }
        while self.is_on() {
            let Some(buffer) = self.append().sealed.front().cloned() else { break };
            match self.write_segment(&mut writing, &buffer) {
                Wrote::Yes => any = true,
                Wrote::NoZone => break,
                Wrote::Failed => self.turn_off("the device failed to take a segment"),
            }
        }
        if closes && let Some(cursor) = writing.log.take() {
            self.close_zone(cursor.zone);
            any = true;
        }
        any
    }

    fn write_segment(&self, writing: &mut Writing, buffer: &Arc<Buffer>) -> Wrote {
        let content = buffer.read();
        let Some(found) = content.as_ref() else { return Wrote::Failed };
        if buffer.sequence < self.floor.load(SeqCst) || found.live() == 0 {
            drop(content);
            self.retire_buffer(buffer, None);
            return Wrote::Yes;
        }
        let order = found.order(buffer.kind);
        for _ in 0..FAILURES_MAX {
            let Some(cursor) = self.cursor(writing, buffer.kind, found.segment_pages(buffer.kind)) else {
                return Wrote::NoZone;
            };
            match self.write_to(cursor, buffer, found, &order) {
                Ok(facts) => {
                    *writing.cursor(buffer.kind) = Some(Cursor { page: cursor.page + facts.pages, ..cursor });
                    self.count_segment(&facts);
                    let segment = self.install(buffer, found, &order, facts);
                    drop(content);
                    self.retire_buffer(buffer, Some(segment));
                    return Wrote::Yes;
                }
                Err(error) => {
                    self.device_error("write", cursor.zone, &error);
                    *writing.cursor(buffer.kind) = None;
                    self.give_up(cursor.zone, buffer.sequence);
                    if error == DeviceError::Gone {
                        return Wrote::Failed;
                    }
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
    ) -> Result<SegmentFacts, DeviceError> {
        let head = Head {
            kind: buffer.kind,
            sequence: buffer.sequence,
            sealed_sequence: buffer.sealed_sequence(),
            device_uuid: self.uuid,
            cas_base: buffer.cas_base,
            generation: 0,
            first_hash: 0,
            last_hash: u64::MAX,
            begun_unix_s: buffer.begun_unix_s,
        };
        let (device, items) = (&*self.device, order.len() as u32);
        let mut writer =
            Writer::begin(device, cursor.zone, cursor.page, head, self.shape.chunk_pages, items, false);
        // While there is memory for more than one segment beside those being filled, in turns: a worker may need the core.
        let is_pressed = || {
            let append = self.append();
            append.sealed.len() > 1 || append.free.len() <= 1
        };
        let (mut turn, mut seen) = (Instant::now(), 0);
        for index in order {
            if let Some((hash, record)) = content.at(*index, buffer.cas_base) {
                writer.push(hash, &record)?;
            }
            if writer.pages() - seen >= TURN_PAGES {
                seen = writer.pages();
                self.breathe_unless(&mut turn, is_pressed);
            }
        }
        if self.options.recover == Recover::Journal {
            // A tombstone in the log that an extent of this segment stands on is durable before the extent is.
            self.commit_journal();
        }
        if self.options.recover != Recover::Clean {
            // After a crash the highest number is not known before all feet are read.
            let cas_max = self.append().cas_max;
            self.meta.cover_cas(cas_max)?;
        }
        let facts = writer.finish()?;
        if self.options.recover == Recover::Journal {
            self.device.sync()?;
            self.meta.written(cursor.zone, facts.head.sequence);
        }
        Ok(facts)
    }

    fn count_segment(&self, facts: &SegmentFacts) {
        let bytes = facts.pages as u64 * crate::device::PAGE_BYTES as u64;
        self.counters.appended_bytes.fetch_add(bytes, Relaxed);
        self.counters.segments_written.fetch_add(1, Relaxed);
        let mut zones = self.zones();
        zones.load.add(facts.zone, bytes);
        let part = facts.pages as f64 / self.shape.zone_pages as f64;
        let now = self.started.elapsed().as_secs_f64();
        zones.meter.took(part, now);
    }

    /// Makes a written segment one that is found on the device.
    fn install(
        &self,
        buffer: &Buffer,
        content: &Content,
        order: &[u32],
        facts: SegmentFacts,
    ) -> Arc<Segment> {
        let bits = HitBits::bytes_for(facts.items as u64);
        let fits = self.counters.hit_bits_bytes.load(Relaxed) + bits <= self.shape.hit_bits;
        let hits = fits.then(|| HitBits::new(facts.items as u64));
        self.counters.hit_bits_bytes.fetch_add(if fits { bits } else { 0 }, Relaxed);
        let extents = facts.extents.clone();
        let segment = Arc::new(Segment::new(buffer.id, facts, hits));
        // From here on a put or an invalidation finds it where it is, or was before and has marked it dead.
        let mut append = self.append();
        self.zones().get(segment.zone()).segments.push(segment.clone());
        match buffer.kind {
            Kind::Extents => {
                self.directory.change_extents(|extents| extents.segments.push(segment.clone()));
                for (index, extent) in order.iter().zip(extents) {
                    let address = segment.zone().0 as u64 * self.shape.zone_pages as u64 + extent.page as u64;
                    let place = crate::extent_table::Extent { address, pages: extent.pages };
                    if !content.is_live(*index) {
                        append.dead.add(self.extents.class(extent.hash), buffer.sequence);
                    } else if self.extents.insert(extent.hash, place).is_err() {
                        append.dead.add(self.extents.class(extent.hash), buffer.sequence);
                        self.counters.table_full.fetch_add(1, Relaxed);
                        self.extents_full.store(true, SeqCst);
                    }
                }
            }
            _ if buffer.sequence >= self.floor.load(SeqCst) => {
                self.directory.set(buffer.id, Place::Flash(segment.clone()));
            }
            _ => {}
        }
        segment
    }

    /// The buffer is done with: its memory can be used again.
    fn retire_buffer(&self, buffer: &Arc<Buffer>, segment: Option<Arc<Segment>>) {
        let mut append = self.append();
        append.sealed.retain(|sealed| !Arc::ptr_eq(sealed, buffer));
        if buffer.kind == Kind::Extents {
            if segment.is_none() {
                append.dead.release(buffer.sequence, self.oldest_extents());
            }
            self.directory.moves();
            self.directory
                .change_extents(|extents| extents.buffers.retain(|known| !Arc::ptr_eq(known, buffer)));
        } else if segment.is_none() {
            self.directory.forget(buffer.id);
        }
        if let Some(mut content) = buffer.write().take() {
            content.clear();
            append.free.push(content);
        }
        drop(append);
        if buffer.kind != Kind::Extents && segment.is_none() {
            self.sweep_ids(&[buffer.id]);
        }
        self.segment_durable(buffer.sequence);
    }

    /// Where a segment of so many pages can be written.
    fn cursor(&self, writing: &mut Writing, kind: Kind, pages: u32) -> Option<Cursor> {
        if let Some(cursor) = *writing.cursor(kind) {
            // Numbers that are not given back before the zone is merged must not run out in it.
            let crowded = self.options.generations
                && kind == Kind::Log
                && self.append().ids.len() <= self.shape.buffers as usize + 1;
            if self.shape.zone_pages - cursor.page >= pages && !crowded {
                return Some(cursor);
            }
            *writing.cursor(kind) = None;
            self.close_zone(cursor.zone);
        }
        let zone = self.take_zone()?;
        let cursor = Cursor { zone, page: 0 };
        *writing.cursor(kind) = Some(cursor);
        Some(cursor)
    }

    fn close_zone(&self, zone: ZoneId) {
        if let Err(error) = self.device.finish(zone) {
            self.device_error("finish", zone, &error);
        }
        let mut zones = self.zones();
        let found = zones.get(zone);
        if found.segments.is_empty() {
            // All that it had was released, and must not be written again before whoever did that is done with it. It stays
            // empty: nobody else writes.
            drop(zones);
            let _releasing = self.releasing();
            return self.erase(zone);
        }
        found.used = Use::Full;
        self.oldest_quarter.store(zones.oldest_quarter(), Relaxed);
        drop(zones);
        self.wake();
    }

    /// Nothing more is written to a zone that failed. What it has can be read, perhaps. The segment that failed may be there as
    /// a whole all the same: where nothing else is in the zone, no start is to find it beside the other copy, or after that has gone.
    fn give_up(&self, zone: ZoneId, sequence: u64) {
        let mut zones = self.zones();
        let found = zones.get(zone);
        let is_empty = found.segments.is_empty();
        found.used = if is_empty { Use::Retired } else { Use::Full };
        drop(zones);
        if is_empty && let Err(error) = self.meta.release(&[(zone, sequence + 1)]) {
            self.device_error("release", zone, &error);
        }
    }

    /// An erased zone, for which room is made if need be.
    fn take_zone(&self) -> Option<ZoneId> {
        loop {
            if let Some(zone) = self.take_free_zone() {
                return Some(zone);
            }
            if !self.make_room() {
                return None;
            }
        }
    }

    /// An erased zone, if there is one.
    pub(crate) fn take_free_zone(&self) -> Option<ZoneId> {
        loop {
            let (zone, erased) = self.zones().take()?;
            if erased {
                return Some(zone);
            }
            match self.device.reset(zone) {
                Ok(()) => {
                    let mut zones = self.zones();
                    zones.get(zone).resets += 1;
                    return Some(zone);
                }
                Err(error) => {
                    self.device_error("reset", zone, &error);
                    self.zones().get(zone).used = Use::Retired;
                    if error == DeviceError::Gone {
                        return None;
                    }
                }
            }
        }
    }
}
