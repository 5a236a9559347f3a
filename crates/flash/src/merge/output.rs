//! The segments that a merge writes, one after the other, wherever it is given room.

use super::{Room, Rooms};
use crate::device::{Device, DeviceError};
use crate::filter::Filter;
use crate::page::PAYLOAD_BYTES;
use crate::record::Record;
use crate::segment::{Head, Kind, SegmentFacts, Writer, foot_pages_max};

/// Pages kept free in every room behind a segment: for the mark that the merge came to its end.
const MARK_PAGES: u32 = 3;
/// Pages that a record may still take after the segment was found not to be full.
const RECORD_PAGES: u32 = 2;

/// A row of segments of one kind.
pub(super) struct Output<'a> {
    device: &'a dyn Device,
    /// What all heads have in common. `generation` is what the row is called: the sequence of its first segment.
    head: Head,
    write_pages: usize,
    filter: bool,
    writer: Option<Writer<'a>>,
    room: Option<Room>,
    /// Pages of the writer when it was last found not to be full.
    checked_pages: u32,
    superseded_extents: u32,
    segments: Vec<SegmentFacts>,
    rooms: Vec<Room>,
}

impl<'a> Output<'a> {
    pub(super) fn new(device: &'a dyn Device, head: Head, write_pages: usize, filter: bool) -> Output<'a> {
        Output {
            device,
            head,
            write_pages,
            filter,
            writer: None,
            room: None,
            checked_pages: 0,
            superseded_extents: 0,
            segments: Vec::new(),
            rooms: Vec::new(),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.head.kind
    }

    /// Sees to it that a record of this hash, which is above all before, has room; false if there is none now.
    pub(super) fn make_room(&mut self, hash: u64, rooms: &mut dyn Rooms) -> Result<bool, DeviceError> {
        if self.writer.is_some() && self.is_full() {
            self.end_segment(rooms)?;
        }
        if self.writer.is_none() {
            let Some(room) = rooms.room(self.head.kind) else { return Ok(false) };
            // The first segment has the sequence that the whole row is called by.
            let (sequence, first_hash) = match self.rooms.is_empty() {
                true => (self.head.generation, 0),
                false => (rooms.sequence(), hash),
            };
            self.begin(room, sequence, first_hash);
        }
        Ok(true)
    }

    fn begin(&mut self, room: Room, sequence: u64, first_hash: u64) {
        let head = Head { sequence, first_hash, last_hash: u64::MAX, ..self.head.clone() };
        let filter = self.filter;
        let writer =
            Writer::begin(self.device, room.zone, room.first_page, head, self.write_pages, 1, filter);
        self.writer = Some(writer);
        self.room = Some(room);
        self.rooms.push(room);
        (self.checked_pages, self.superseded_extents) = (0, 0);
    }

    /// Whether the segment must end, so that its foot and the mark have room. Looked at once a page.
    fn is_full(&mut self) -> bool {
        let (Some(writer), Some(room)) = (&self.writer, &self.room) else { return false };
        let pages = writer.pages();
        if writer.items() == 0 || pages == self.checked_pages {
            return false;
        }
        self.checked_pages = pages;
        // A page more of records than there are, at their density so far.
        let items = writer.items() + writer.items() / pages.max(1) + 1;
        let foot =
            foot_pages_max(pages + RECORD_PAGES, 0, self.superseded_extents + items / pages.max(1) + 1, 0);
        let filter = match self.filter {
            true => Filter::bytes_for(items as usize).div_ceil(PAYLOAD_BYTES) as u32,
            false => 0,
        };
        pages + RECORD_PAGES + foot + filter + MARK_PAGES > room.pages
    }

    /// Adds a record; [`Output::make_room`] said that there is room.
    pub(super) fn push(&mut self, hash: u64, record: &Record<'_>) -> Result<(), DeviceError> {
        self.superseded_extents += record.supersedes_extent as u32;
        self.writer.as_mut().map_or(Ok(()), |writer| writer.push(hash, record))
    }

    /// Adds bytes, as [`Output::push`] does.
    pub(super) fn push_bytes(&mut self, hash: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.writer.as_mut().map_or(Ok(()), |writer| writer.push_bytes(hash, bytes))
    }

    fn end_segment(&mut self, rooms: &mut dyn Rooms) -> Result<(), DeviceError> {
        if let Some(writer) = self.writer.take() {
            let facts = writer.finish()?;
            rooms.written(&facts);
            self.segments.push(facts);
        }
        Ok(())
    }

    /// Ends the last segment, and writes the mark behind it: an empty segment.
    pub(super) fn end(&mut self, rooms: &mut dyn Rooms) -> Result<(), DeviceError> {
        self.end_segment(rooms)?;
        let (Some(last), Some(room)) = (self.segments.last(), self.room.take()) else { return Ok(()) };
        let room = Room { first_page: last.first_page + last.pages, ..room };
        let sequence = rooms.sequence();
        self.begin(room, sequence, u64::MAX);
        self.rooms.pop();
        self.end_segment(rooms)
    }

    /// Everything that was written, if [`Output::end`] came to its end.
    pub(super) fn into_segments(self) -> Vec<SegmentFacts> {
        self.segments
    }

    /// Wherever something may have been written.
    pub(super) fn into_rooms(self) -> Vec<Room> {
        self.rooms
    }
}
