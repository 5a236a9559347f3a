//! The segments that a merge writes, one after the other, in the rooms that its caller gives it.

use crate::device::{Device, DeviceError, ZoneId};
use crate::filter::Filter;
use crate::page::PAYLOAD_BYTES;
use crate::record::Record;
use crate::segment::{Gap, Head, Kind, SegmentSummary, Writer, foot_pages_max};

/// Pages that stay free in every room behind a segment, for the empty segment that marks the end of the merge.
pub(super) const MARK_PAGES: u32 = 3;
/// Pages that a record may take after the check that the segment is not full.
const RECORD_PAGES: u32 = 2;
/// Most gaps that the mark holds: its foot is one page with them.
pub(super) const GAPS_MAX: usize = 128;

/// Space for a segment: `pages` pages of a zone, from `first_page` on, which is where the zone's write pointer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    /// The zone.
    pub(crate) zone: ZoneId,
    /// The first free page of the zone.
    pub(crate) first_page: u32,
    /// Pages that may be written.
    pub(crate) pages: u32,
}

/// Gives a merge the space and the sequences that it needs.
pub(crate) trait Rooms {
    /// Space for a segment of this kind, or `None` if there is no space now. The first segment of a kind gets a fresh
    /// zone in every merge: a zone with segments of two generations could not be dropped with either of them.
    fn room(&mut self, kind: Kind) -> Option<Room>;

    /// The sequence of another segment.
    fn sequence(&mut self) -> u64;

    /// Called when a segment is complete. Its room ends behind it, but an empty segment may follow in the same room.
    fn written(&mut self, summary: &SegmentSummary);
}

/// A series of segments of one kind, each with higher hashes than the one before.
pub(super) struct Output<'a> {
    device: &'a dyn Device,
    /// The fields that all heads have in common. `generation` is the number of the series: the sequence of its first
    /// segment.
    head: Head,
    write_pages: usize,
    filter: bool,
    writer: Option<Writer<'a>>,
    room: Option<Room>,
    /// Pages of the segment at the last check that it is not full.
    checked_pages: u32,
    superseded_extents: u32,
    segments: Vec<SegmentSummary>,
    rooms: Vec<Room>,
}

impl<'a> Output<'a> {
    /// An output without a segment. `filter` says whether its segments get a filter.
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

    /// The kind of its segments.
    pub(super) fn kind(&self) -> Kind {
        self.head.kind
    }

    /// Makes sure that a record of this hash can be pushed, and begins another segment where needed. The hash is
    /// above all hashes before. Returns false if there is no space now.
    pub(super) fn make_room(&mut self, hash: u64, rooms: &mut dyn Rooms) -> Result<bool, DeviceError> {
        if self.writer.is_some() && self.is_full() {
            self.end_segment(rooms)?;
        }
        if self.writer.is_none() {
            let Some(room) = rooms.room(self.head.kind) else { return Ok(false) };
            // The sequence of the first segment is the number of the whole series.
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

    /// Whether the segment must end now, so that its foot and the mark fit into the room. Computed once for each page.
    fn is_full(&mut self) -> bool {
        let (Some(writer), Some(room)) = (&self.writer, &self.room) else { return false };
        let pages = writer.pages();
        if writer.items() == 0 || pages == self.checked_pages {
            return false;
        }
        self.checked_pages = pages;
        // The records so far, and one page more of them.
        let items = writer.items() + writer.items() / pages.max(1) + 1;
        let foot =
            foot_pages_max(pages + RECORD_PAGES, 0, self.superseded_extents + items / pages.max(1) + 1, 0);
        let filter = match self.filter {
            true => Filter::bytes_for(items as usize).div_ceil(PAYLOAD_BYTES) as u32,
            false => 0,
        };
        pages + RECORD_PAGES + foot + filter + MARK_PAGES > room.pages
    }

    /// Adds a record. [`Output::make_room`] has returned true for its hash.
    pub(super) fn push(&mut self, hash: u64, record: &Record<'_>) -> Result<(), DeviceError> {
        self.superseded_extents += record.supersedes_extent as u32;
        self.writer.as_mut().map_or(Ok(()), |writer| writer.push(hash, record))
    }

    /// Adds bytes that are no record, under a hash. [`Output::make_room`] has returned true for the hash.
    pub(super) fn push_bytes(&mut self, hash: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.writer.as_mut().map_or(Ok(()), |writer| writer.push_bytes(hash, bytes))
    }

    fn end_segment(&mut self, rooms: &mut dyn Rooms) -> Result<(), DeviceError> {
        if let Some(writer) = self.writer.take() {
            let summary = writer.finish()?;
            rooms.written(&summary);
            self.segments.push(summary);
        }
        Ok(())
    }

    /// Ends the last segment, and writes the mark of a complete merge behind it: an empty segment that holds the gaps.
    pub(super) fn end(&mut self, rooms: &mut dyn Rooms, gaps: Vec<Gap>) -> Result<(), DeviceError> {
        self.end_segment(rooms)?;
        let (Some(last), Some(room)) = (self.segments.last(), self.room.take()) else { return Ok(()) };
        let room = Room { first_page: last.first_page + last.pages, ..room };
        let sequence = rooms.sequence();
        self.begin(room, sequence, u64::MAX);
        self.rooms.pop();
        if let Some(writer) = &mut self.writer {
            writer.set_gaps(Gap::join(gaps, GAPS_MAX));
        }
        self.end_segment(rooms)
    }

    /// The segments that were written. Complete after [`Output::end`].
    pub(super) fn into_segments(self) -> Vec<SegmentSummary> {
        self.segments
    }

    /// The rooms into which something may have been written.
    pub(super) fn into_rooms(self) -> Vec<Room> {
        self.rooms
    }
}
