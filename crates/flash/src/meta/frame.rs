//! The format of the meta log on the device.
//!
//! A **frame** is a run of whole pages: a header of 64 bytes, a payload, and zeros to the end of the last page. All
//! numbers are little-endian.
//!
//! ```text
//!  0 magic u64          8 crc32c u32 over everything behind it     12 version u16    14 kind u16
//! 16 payload bytes u32 20 0 u32                                    24 sequence of the frame u64
//! 32 uuid of the device (16 bytes)                                 48 sequence of the first frame of this zone u64
//! 56 oldest segment u64: journal records of segments before this one are obsolete
//! ```
//!
//! Deleted prefixes are at the end of a state, if there are any: how many u16, and for each its length u8, its floor
//! u64 and its bytes. A note follows them, if there is one. A long note has a version of its own.

use crate::device::PAGE_BYTES;
use larder_item::PrefixFloors;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"LARDMETA");
/// Version of the format of everything on the device: meta log, heads, pages, records, feet.
pub(super) const VERSION: u16 = 2;
/// Version of a frame with a state that has deleted prefixes. A program that does not know them refuses the device,
/// rather than show what was deleted.
const VERSION_WITH_PREFIXES: u16 = 3;
/// Version of a frame with a state that has a note, likewise.
const VERSION_WITH_NOTE: u16 = 4;
/// Version of a frame with a state that has a note of more than [`NOTE_BYTES`], likewise.
const VERSION_WITH_LONG_NOTE: u16 = 5;
/// Room for a note of 256 bytes is always left.
pub(crate) const NOTE_BYTES: usize = 256;
pub(super) const HEADER_BYTES: usize = 64;
const SUPERBLOCK_BYTES: usize = 96;
/// Bytes of a zone's number and bounds.
const ZONE_BYTES: usize = 20;
/// A bit beside a zone's number: the entry has [`ZoneBounds::void`] of the zone in the place of the floor.
const VOID: u32 = 1 << 31;
/// Bytes of a journal record without its key.
pub(super) const RECORD_BYTES: usize = 17;
/// Zones of the meta log, from zone 0 on. Segments are in the zones behind them.
pub(crate) const META_ZONES: u32 = 2;
/// The segment of a journal record whose tombstone is in no segment yet. Higher than every sequence.
pub(crate) const UNPLACED: u64 = u64::MAX;
/// Pages of the largest frame, except for the first frame of a zone and for states.
pub(super) const FRAME_PAGES_MAX: usize = 64;

/// The identity and the shape of the device, and what of it exists. Written when the device is opened, flushed and
/// closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    /// A random number from the time the device was formatted. Frames and segments of an earlier format have another
    /// one.
    pub uuid: [u8; 16],
    /// Zones of the device.
    pub zones: u32,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// Seed of the key hash. The position of every record depends on it.
    pub seed: u64,
    /// The device was closed cleanly: nothing was written after this superblock.
    pub clean: bool,
    /// Since this superblock, invalidations are committed to the journal.
    pub journaled: bool,
    /// Segments below this sequence do not exist, even if they can still be read.
    pub flush_floor: u64,
    /// No segment ever had this sequence or a higher one.
    pub next_sequence: u64,
    /// Above the CAS numbers of all items at the time this superblock was written.
    pub cas_floor: u64,
}

/// Which segments of a zone exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ZoneBounds {
    /// Segments below this sequence do not exist, because the zone was released. They can still be read if the device
    /// cannot erase, or lost the erasure with its power.
    pub floor: u64,
    /// The segment of this sequence is durable, and so is every segment before it in the zone. If it cannot be found,
    /// the device is damaged. 0 if no segment is known to be durable.
    pub top: u64,
    /// Segments of this sequence and above do not exist, although they can perhaps be read: writing the first of them
    /// failed, and it was written again elsewhere; or, where `top` is not below this, their device had failed, and
    /// newer ones were merged meanwhile. 0 if there are none.
    pub void: u64,
}

impl ZoneBounds {
    /// Whether a segment of this sequence exists, as far as the bounds tell.
    pub(crate) fn admits(&self, sequence: u64) -> bool {
        sequence >= self.floor && (self.void == 0 || sequence < self.void)
    }

    /// The most entries that the bounds of a zone take in a frame.
    pub(super) const ENTRIES_MAX: usize = 2;
}

/// Everything that the log says up to some frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LogState {
    pub superblock: Superblock,
    /// The zones whose bounds are known.
    pub zones: Vec<(u32, ZoneBounds)>,
    /// The journal records, encoded, oldest first.
    pub journal: Vec<u8>,
    /// Deleted prefixes: records of keys with this prefix, in segments below the floor, do not exist any more.
    pub prefixes: PrefixFloors,
    /// What the owner of the items has noted beside them.
    pub note: Vec<u8>,
}

impl LogState {
    /// Nothing but a superblock.
    pub(super) fn empty(superblock: Superblock) -> LogState {
        LogState {
            superblock,
            zones: Vec::new(),
            journal: Vec::new(),
            prefixes: PrefixFloors::default(),
            note: Vec::new(),
        }
    }
}

/// A key that was invalidated, and the segment whose tombstone makes this record obsolete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct JournalRecord {
    /// Sequence of the segment that has the tombstone, or [`UNPLACED`].
    pub segment: u64,
    /// Hash of the key.
    pub hash: u64,
    /// The key, up to 255 bytes.
    pub key: Vec<u8>,
}

/// The contents of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Body {
    /// The whole state. It replaces everything that was read before it. Every zone of the log begins with a state.
    State(LogState),
    /// Further journal records.
    Journal(Vec<u8>),
    /// New bounds of some zones.
    Zones(Vec<(u32, ZoneBounds)>),
}

/// A frame without its checksum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub sequence: u64,
    pub uuid: [u8; 16],
    /// Sequence of the first frame of the zone.
    pub first: u64,
    pub oldest_segment: u64,
    pub body: Body,
}

/// Why pages are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoFrame {
    /// All bits are 0, or all are 1: an erased page.
    Blank,
    /// The page begins like a frame, which is torn or damaged.
    Torn,
    /// The page begins like a frame of a version that this program does not know.
    Version(u16),
    /// Something else.
    Foreign,
}

/// Pages of a frame with a payload of `payload` bytes.
pub(super) fn pages_for(payload: usize) -> usize {
    (HEADER_BYTES + payload).div_ceil(PAGE_BYTES)
}

/// Bytes of the payload of a [`Body::State`] with `zones` entries of zones and `journal` bytes of records.
pub(super) fn state_bytes(zones: usize, journal: usize) -> usize {
    SUPERBLOCK_BYTES + 4 + ZONE_BYTES * zones + 4 + journal
}

/// Bytes that deleted prefixes add to the payload of a [`Body::State`] at most.
pub(super) fn prefixes_bytes(prefixes: &PrefixFloors) -> usize {
    2 + prefixes.iter().map(|(prefix, _)| 9 + prefix.len()).sum::<usize>()
}

fn push_prefixes_and_note(out: &mut Vec<u8>, prefixes: &PrefixFloors, note: &[u8]) {
    if prefixes.is_empty() && note.is_empty() {
        return;
    }
    out.extend_from_slice(&(prefixes.len() as u16).to_le_bytes());
    for (prefix, floor) in prefixes.iter() {
        out.push(prefix.len() as u8);
        out.extend_from_slice(&floor.to_le_bytes());
        out.extend_from_slice(prefix);
    }
    out.extend_from_slice(note);
}

fn prefixes(reader: &mut Reader<'_>) -> Option<PrefixFloors> {
    let mut prefixes = PrefixFloors::default();
    if reader.0.is_empty() {
        return Some(prefixes);
    }
    for _ in 0..reader.u16()? {
        let length = reader.take(1)?[0] as usize;
        let floor = reader.u64()?;
        prefixes.raise(reader.take(length)?, floor).ok()?;
    }
    Some(prefixes)
}

/// Appends an encoded journal record.
pub(super) fn push_record(out: &mut Vec<u8>, segment: u64, hash: u64, key: &[u8]) {
    let key = &key[..key.len().min(255)];
    out.push(key.len() as u8);
    out.extend_from_slice(&segment.to_le_bytes());
    out.extend_from_slice(&hash.to_le_bytes());
    out.extend_from_slice(key);
}

/// The journal records in `bytes`; `None` if the last one is incomplete.
pub(super) fn records(bytes: &[u8]) -> Option<Vec<JournalRecord>> {
    let (mut reader, mut out) = (Reader(bytes), Vec::new());
    while !reader.0.is_empty() {
        let length = reader.take(1)?[0] as usize;
        let (segment, hash) = (reader.u64()?, reader.u64()?);
        out.push(JournalRecord { segment, hash, key: reader.take(length)?.to_vec() });
    }
    Some(out)
}

/// Reads numbers and bytes off the front of a slice; `None` where the slice is too short.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

fn push_zones(out: &mut Vec<u8>, zones: &[(u32, ZoneBounds)]) {
    let entries = zones.iter().flat_map(|(zone, bounds)| {
        let void = (bounds.void != 0).then_some((zone | VOID, bounds.void, 0));
        [Some((*zone, bounds.floor, bounds.top)), void].into_iter().flatten()
    });
    let begin = out.len();
    out.extend_from_slice(&[0; 4]);
    for (zone, floor, top) in entries {
        out.extend_from_slice(&zone.to_le_bytes());
        out.extend_from_slice(&floor.to_le_bytes());
        out.extend_from_slice(&top.to_le_bytes());
    }
    let count = ((out.len() - begin) / ZONE_BYTES) as u32;
    out[begin..begin + 4].copy_from_slice(&count.to_le_bytes());
}

fn zones(reader: &mut Reader<'_>) -> Option<Vec<(u32, ZoneBounds)>> {
    let count = reader.u32()? as usize;
    // The count comes from the device: take the bytes first, so that a wrong count allocates nothing.
    let mut bytes = Reader(reader.take(count.checked_mul(ZONE_BYTES)?)?);
    let mut zones: Vec<(u32, ZoneBounds)> = Vec::new();
    for _ in 0..count {
        let (zone, floor, top) = (bytes.u32()?, bytes.u64()?, bytes.u64()?);
        match zones.last_mut() {
            // It follows the other bounds of its zone.
            Some((last, bounds)) if zone == *last | VOID => bounds.void = floor,
            _ => zones.push((zone, ZoneBounds { floor, top, void: 0 })),
        }
    }
    Some(zones)
}

impl Superblock {
    fn push(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&self.zones.to_le_bytes());
        out.extend_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        out.extend_from_slice(&(self.clean as u32 | (self.journaled as u32) << 1).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for word in [self.zone_bytes, self.seed, self.flush_floor, self.next_sequence, self.cas_floor] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.resize(begin + SUPERBLOCK_BYTES, 0);
    }

    fn read(reader: &mut Reader<'_>, uuid: [u8; 16]) -> Option<Superblock> {
        let mut bytes = Reader(reader.take(SUPERBLOCK_BYTES)?);
        let zones = bytes.u32()?;
        if bytes.u32()? as usize != PAGE_BYTES {
            return None;
        }
        let flags = bytes.u32()?;
        bytes.take(4)?;
        Some(Superblock {
            uuid,
            zones,
            zone_bytes: bytes.u64()?,
            seed: bytes.u64()?,
            clean: flags & 1 != 0,
            journaled: flags & 2 != 0,
            flush_floor: bytes.u64()?,
            next_sequence: bytes.u64()?,
            cas_floor: bytes.u64()?,
        })
    }
}

impl Frame {
    /// The frame as whole pages.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES];
        let kind: u16 = match &self.body {
            Body::State(state) => {
                state.superblock.push(&mut out);
                push_zones(&mut out, &state.zones);
                out.extend_from_slice(&(state.journal.len() as u32).to_le_bytes());
                out.extend_from_slice(&state.journal);
                push_prefixes_and_note(&mut out, &state.prefixes, &state.note);
                1
            }
            Body::Journal(records) => {
                out.extend_from_slice(records);
                2
            }
            Body::Zones(zones) => {
                push_zones(&mut out, zones);
                3
            }
        };
        let payload = out.len() - HEADER_BYTES;
        out.resize(pages_for(payload) * PAGE_BYTES, 0);
        out[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        let version = match &self.body {
            Body::State(state) if state.note.len() > NOTE_BYTES => VERSION_WITH_LONG_NOTE,
            Body::State(state) if !state.note.is_empty() => VERSION_WITH_NOTE,
            Body::State(state) if !state.prefixes.is_empty() => VERSION_WITH_PREFIXES,
            _ => VERSION,
        };
        out[12..14].copy_from_slice(&version.to_le_bytes());
        out[14..16].copy_from_slice(&kind.to_le_bytes());
        out[16..20].copy_from_slice(&(payload as u32).to_le_bytes());
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..48].copy_from_slice(&self.uuid);
        out[48..56].copy_from_slice(&self.first.to_le_bytes());
        out[56..64].copy_from_slice(&self.oldest_segment.to_le_bytes());
        let crc = crc32c::crc32c(&out[12..]);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The number of pages that the frame has according to its first page.
    pub(super) fn pages(page: &[u8]) -> Result<usize, NoFrame> {
        if page.iter().all(|byte| *byte == 0) || page.iter().all(|byte| *byte == 0xff) {
            return Err(NoFrame::Blank);
        }
        let mut reader = Reader(page);
        if reader.u64() != Some(MAGIC) {
            return Err(NoFrame::Foreign);
        }
        let mut header = || Some((reader.u32()?, reader.u16()?, reader.u16()?, reader.u32()?));
        let (_crc, version, _kind, payload) = header().ok_or(NoFrame::Torn)?;
        match version {
            VERSION | VERSION_WITH_PREFIXES | VERSION_WITH_NOTE | VERSION_WITH_LONG_NOTE => {}
            // Only the magic was written.
            0 | u16::MAX => return Err(NoFrame::Torn),
            other => return Err(NoFrame::Version(other)),
        }
        Ok(pages_for(payload as usize))
    }

    /// The frame that fills `pages`.
    pub(super) fn decode(pages: &[u8]) -> Result<Frame, NoFrame> {
        Frame::read(pages).ok_or(NoFrame::Torn)
    }

    fn read(pages: &[u8]) -> Option<Frame> {
        let mut reader = Reader(pages);
        let (_magic, crc) = (reader.u64()?, reader.u32()?);
        if crc != crc32c::crc32c(reader.0) {
            return None;
        }
        let (_version, kind, payload, _zero) = (reader.u16()?, reader.u16()?, reader.u32()?, reader.u32()?);
        let sequence = reader.u64()?;
        let uuid = reader.take(16)?.try_into().ok()?;
        let (first, oldest_segment) = (reader.u64()?, reader.u64()?);
        let mut payload = Reader(reader.take(payload as usize)?);
        let body = match kind {
            1 => {
                let superblock = Superblock::read(&mut payload, uuid)?;
                let zones = zones(&mut payload)?;
                let journal = payload.u32()? as usize;
                let journal = payload.take(journal)?.to_vec();
                let prefixes = prefixes(&mut payload)?;
                Body::State(LogState { superblock, zones, journal, prefixes, note: payload.0.to_vec() })
            }
            2 => Body::Journal(payload.0.to_vec()),
            3 => Body::Zones(zones(&mut payload)?),
            _ => return None,
        };
        Some(Frame { sequence, uuid, first, oldest_segment, body })
    }
}
