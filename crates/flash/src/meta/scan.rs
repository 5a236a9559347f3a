//! Reads a meta zone: every frame up to the first page that is none.

use super::frame::{Body, FRAME_PAGES_MAX, Frame, JournalRecord, LogState, NoFrame, ZoneBounds, records};
use crate::device::{Device, DeviceError, PAGE_BYTES, PageBuffer, ZoneId, ZoneState};
use std::collections::BTreeMap;

/// Pages that one read takes.
const WINDOW_PAGES: usize = 64;
/// Pages behind the end of the log in which later frames are looked for. A later frame there means that the end is
/// damage. Twice the largest frame that is not the first one of its zone.
const LOOK_AHEAD_PAGES: u64 = 2 * FRAME_PAGES_MAX as u64;

/// What a meta zone holds.
#[derive(Debug)]
pub(super) enum ZoneContent {
    /// Nothing.
    Blank,
    /// A log that cannot be read: its first frame is torn or damaged.
    Torn,
    /// A log of another version of the format.
    Version(u16),
    /// Something else.
    Foreign,
    /// A log.
    Log(Box<ScannedLog>),
}

/// A log, read from beginning to end.
#[derive(Debug)]
pub(super) struct ScannedLog {
    /// Sequence of its first frame. If both zones hold a log, the higher one counts.
    pub first: u64,
    /// Sequence of its last frame.
    pub last: u64,
    /// The last state, with the bounds of zones that were written after it.
    pub state: LogState,
    /// Journal records that are not obsolete.
    pub journal: Vec<JournalRecord>,
    /// A frame that was committed cannot be read: later frames follow behind it.
    pub damaged: bool,
}

/// The pages of a zone, read through a window. A page that cannot be read is all zeros.
struct Pages<'a> {
    device: &'a dyn Device,
    zone: ZoneId,
    /// Pages behind this one are not written.
    end: u64,
    window: PageBuffer,
    at: u64,
    filled: usize,
}

impl<'a> Pages<'a> {
    fn new(device: &'a dyn Device, zone: ZoneId, end: u64) -> Self {
        Pages { device, zone, end, window: PageBuffer::new(WINDOW_PAGES), at: 0, filled: 0 }
    }

    /// One page.
    ///
    /// # Errors
    /// The device is gone.
    fn page(&mut self, page: u64) -> Result<&[u8], DeviceError> {
        if page < self.at || page >= self.at + self.filled as u64 {
            self.fill(page)?;
        }
        let offset = (page - self.at) as usize * PAGE_BYTES;
        Ok(&self.window[offset..offset + PAGE_BYTES])
    }

    fn fill(&mut self, page: u64) -> Result<(), DeviceError> {
        let pages = (self.end.saturating_sub(page)).clamp(1, WINDOW_PAGES as u64) as usize;
        let mut buffer = PageBuffer::new(pages);
        let offset = page * PAGE_BYTES as u64;
        match self.device.read(self.zone, offset, &mut buffer) {
            Ok(()) => self.window[..buffer.len()].copy_from_slice(&buffer),
            Err(DeviceError::Gone) => return Err(DeviceError::Gone),
            // One bad page fails the whole read: read the pages one by one.
            Err(_) => {
                let mut one = PageBuffer::new(1);
                for n in 0..pages {
                    let offset = offset + (n * PAGE_BYTES) as u64;
                    let into = &mut self.window[n * PAGE_BYTES..(n + 1) * PAGE_BYTES];
                    match self.device.read(self.zone, offset, &mut one) {
                        Ok(()) => into.copy_from_slice(&one),
                        Err(DeviceError::Gone) => return Err(DeviceError::Gone),
                        Err(_) => into.fill(0),
                    }
                }
            }
        }
        (self.at, self.filled) = (page, pages);
        Ok(())
    }

    /// The frame that begins at this page, and the number of its pages.
    fn frame(&mut self, page: u64) -> Result<Result<(Frame, u64), NoFrame>, DeviceError> {
        if page >= self.end {
            return Ok(Err(NoFrame::Blank));
        }
        let pages = match Frame::pages(self.page(page)?) {
            Ok(pages) if pages as u64 <= self.end - page => pages,
            Ok(_) => return Ok(Err(NoFrame::Torn)),
            Err(error) => return Ok(Err(error)),
        };
        let mut bytes = Vec::with_capacity(pages * PAGE_BYTES);
        for n in 0..pages as u64 {
            bytes.extend_from_slice(self.page(page + n)?);
        }
        Ok(Frame::decode(&bytes).map(|frame| (frame, pages as u64)))
    }
}

/// The number of pages of a zone that may be written; `None` if the zone cannot be read.
pub(super) fn written_pages(device: &dyn Device, zone: ZoneId) -> Result<Option<u64>, DeviceError> {
    let page = PAGE_BYTES as u64;
    Ok(match device.report(zone)?.state {
        ZoneState::Empty => Some(0),
        ZoneState::Open(bytes) | ZoneState::Full(bytes) => Some(bytes / page),
        ZoneState::Unknown => Some(device.geometry().zone_bytes / page),
        ZoneState::Offline => None,
    })
}

/// Whether the first `pages` pages of a zone were never written.
pub(super) fn is_blank(device: &dyn Device, zone: ZoneId, pages: u64) -> Result<bool, DeviceError> {
    let Some(end) = written_pages(device, zone)? else { return Ok(true) };
    let mut reader = Pages::new(device, zone, end);
    for page in 0..end.min(pages) {
        if Frame::pages(reader.page(page)?) != Err(NoFrame::Blank) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads a meta zone.
pub(super) fn read(device: &dyn Device, zone: ZoneId) -> Result<ZoneContent, DeviceError> {
    let Some(end) = written_pages(device, zone)? else { return Ok(ZoneContent::Torn) };
    let mut pages = Pages::new(device, zone, end);
    let (begin, mut at) = match pages.frame(0)? {
        Ok(found) => found,
        Err(NoFrame::Blank) => return Ok(ZoneContent::Blank),
        Err(NoFrame::Torn) => return Ok(ZoneContent::Torn),
        Err(NoFrame::Version(version)) => return Ok(ZoneContent::Version(version)),
        Err(NoFrame::Foreign) => return Ok(ZoneContent::Foreign),
    };
    let Frame { sequence: first, uuid, oldest_segment: mut oldest, body: Body::State(mut state), .. } = begin
    else {
        return Ok(ZoneContent::Torn);
    };
    let mut last = first;
    let mut journal = std::mem::take(&mut state.journal);
    let mut zones: BTreeMap<u32, ZoneBounds> = state.zones.drain(..).collect();
    // Frames that an earlier round left in this zone have another `first`.
    while let Ok((frame, length)) = pages.frame(at)? {
        if frame.uuid != uuid || frame.first != first || frame.sequence != last + 1 {
            break;
        }
        match frame.body {
            Body::State(mut next) => {
                journal = std::mem::take(&mut next.journal);
                zones = next.zones.drain(..).collect();
                state = next;
            }
            Body::Journal(more) => journal.extend_from_slice(&more),
            Body::Zones(more) => zones.extend(more),
        }
        (last, oldest, at) = (frame.sequence, frame.oldest_segment, at + length);
    }
    let damaged = continues_behind(&mut pages, at, (uuid, first, last))?;
    state.zones = zones.into_iter().collect();
    let (journal, damaged) = match records(&journal) {
        Some(records) => (records, damaged),
        None => (Vec::new(), true),
    };
    let journal = journal.into_iter().filter(|record| record.segment >= oldest).collect();
    Ok(ZoneContent::Log(Box::new(ScannedLog { first, last, state, journal, damaged })))
}

/// Whether later frames of the same log follow behind its end. A frame is written only when the frame before it is
/// durable, so a loss of power cannot cause that: a page that was committed is damaged.
fn continues_behind(
    pages: &mut Pages<'_>,
    end: u64,
    (uuid, first, last): ([u8; 16], u64, u64),
) -> Result<bool, DeviceError> {
    for page in end + 1..end.saturating_add(1 + LOOK_AHEAD_PAGES).min(pages.end) {
        if let Ok((frame, _)) = pages.frame(page)?
            && frame.uuid == uuid
            && frame.first == first
            && frame.sequence > last
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The first number of the newest round that has left a frame near the beginning of a zone. With `uuid`, only rounds
/// of that device count.
pub(super) fn newest_round(
    device: &dyn Device,
    zone: ZoneId,
    uuid: Option<[u8; 16]>,
) -> Result<Option<u64>, DeviceError> {
    let Some(end) = written_pages(device, zone)? else { return Ok(None) };
    let mut pages = Pages::new(device, zone, end);
    let mut newest = None;
    for page in 0..end.min(LOOK_AHEAD_PAGES) {
        if let Ok((frame, _)) = pages.frame(page)?
            && uuid.is_none_or(|uuid| uuid == frame.uuid)
        {
            newest = newest.max(Some(frame.first));
        }
    }
    Ok(newest)
}
