//! The foot: the last pages of a segment, with everything that a restart needs of it.
//!
//! ```text
//!  | numbers | fences | filter | histogram | hashes | superseded extents | extents
//!  | tombstones | gaps | zeros | trailer |
//! ```
//!
//! The trailer is at the very end of the payload of the last page: the CRC-32C of the foot, its bytes, its pages, and
//! a magic number. A restart finds the last page of the segment from the end of what is written in the zone. If the
//! device does not know that end, a binary search finds the page: the pages of a segment are one run.

use super::fields::Fields;
use super::{ExtentEntry, Gap, HashList, Head, SegmentSummary, Tombstones};
use crate::device::{Device, DeviceError, PAGE_BYTES, PageBuffer, ZoneId};
use crate::expiry_histogram::ExpiryHistogram;
use crate::fence::Fences;
use crate::filter::Filter;
use crate::page::{self, PAYLOAD_BYTES};

const MAGIC: u32 = u32::from_le_bytes(*b"LFOT");
const TRAILER_BYTES: usize = 16;
const VERSION: u32 = 1;
/// Bytes of the numbers, of the lengths of the eight pieces, and of the histogram.
const FIXED_BYTES: u64 = 4 + 3 * 4 + 2 * 8 + 8 * 4 + ExpiryHistogram::ENCODED_BYTES as u64;

/// See [`SegmentSummary`] for the fields.
pub(super) struct Foot {
    pub(super) data_pages: u32,
    pub(super) items: u32,
    pub(super) tombstones: u32,
    pub(super) record_bytes: u64,
    pub(super) cas_max: u64,
    pub(super) fences: Fences,
    pub(super) filter: Option<Filter>,
    pub(super) histogram: ExpiryHistogram,
    pub(super) hashes: HashList,
    pub(super) superseded_extents: Vec<(u64, u64)>,
    pub(super) extents: Vec<ExtentEntry>,
    pub(super) which_tombstones: Tombstones,
    pub(super) gaps: Vec<Gap>,
}

/// Most pages that the foot of a segment without a filter takes.
pub(crate) fn foot_pages_max(data_pages: u32, hashes: u32, superseded_extents: u32, extents: u32) -> u32 {
    let bytes = FIXED_BYTES
        + Fences::bytes_for(data_pages as u64)
        + HashList::bytes_max(hashes)
        + Tombstones::bytes_max(hashes)
        + 16 * superseded_extents as u64
        + 16 * extents as u64
        + TRAILER_BYTES as u64;
    bytes.div_ceil(PAYLOAD_BYTES as u64) as u32
}

/// Appends a piece with its length, 4 bytes, in front.
fn piece(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

impl Foot {
    /// The foot of a segment without records.
    pub(super) fn new(histogram: ExpiryHistogram) -> Foot {
        Foot {
            data_pages: 0,
            items: 0,
            tombstones: 0,
            record_bytes: 0,
            cas_max: 0,
            fences: Fences::build(&[]),
            filter: None,
            histogram,
            hashes: HashList::default(),
            superseded_extents: Vec::new(),
            extents: Vec::new(),
            which_tombstones: Tombstones::default(),
            gaps: Vec::new(),
        }
    }

    /// The foot, zeros, and the trailer: the payloads of whole pages.
    pub(super) fn to_pages_of_bytes(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for number in [self.data_pages, self.items, self.tombstones] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.record_bytes, self.cas_max] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        piece(&mut out, |out| self.fences.to_bytes(out));
        piece(&mut out, |out| {
            if let Some(filter) = &self.filter {
                filter.to_bytes(out);
            }
        });
        piece(&mut out, |out| self.histogram.to_bytes(out));
        piece(&mut out, |out| self.hashes.to_bytes(out));
        piece(&mut out, |out| {
            for (hash, below) in &self.superseded_extents {
                out.extend_from_slice(&hash.to_le_bytes());
                out.extend_from_slice(&below.to_le_bytes());
            }
        });
        piece(&mut out, |out| {
            for extent in &self.extents {
                out.extend_from_slice(&extent.hash.to_le_bytes());
                out.extend_from_slice(&extent.page.to_le_bytes());
                out.extend_from_slice(&extent.pages.to_le_bytes());
            }
        });
        piece(&mut out, |out| self.which_tombstones.to_bytes(out));
        piece(&mut out, |out| {
            let numbers = self.gaps.iter().flat_map(|gap| [gap.first_hash, gap.last_hash, gap.below]);
            numbers.for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        });
        let (crc, length) = (crc32c::crc32c(&out), out.len());
        let pages = (length + TRAILER_BYTES).div_ceil(PAYLOAD_BYTES);
        out.resize(pages * PAYLOAD_BYTES - TRAILER_BYTES, 0);
        for number in [crc, length as u32, pages as u32, MAGIC] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out
    }

    /// The foot that was encoded in `bytes`, or `None` if it is not valid.
    fn parse(bytes: &[u8]) -> Option<Foot> {
        let mut fields = Fields(bytes);
        if fields.word()? != VERSION {
            return None;
        }
        let (data_pages, items, tombstones) = (fields.word()?, fields.word()?, fields.word()?);
        let (record_bytes, cas_max) = (fields.long()?, fields.long()?);
        let fences = Fences::from_bytes(fields.piece()?)?;
        let filter = match fields.piece()? {
            [] => None,
            bytes => Some(Filter::from_bytes(bytes)?),
        };
        let histogram = ExpiryHistogram::from_bytes(fields.piece()?)?;
        let hashes = HashList::from_bytes(fields.piece()?)?;
        let mut superseded_extents = Vec::new();
        for bytes in fields.piece()?.as_chunks::<16>().0 {
            let mut fields = Fields(bytes);
            superseded_extents.push((fields.long()?, fields.long()?));
        }
        let mut extents = Vec::new();
        for bytes in fields.piece()?.as_chunks::<16>().0 {
            let mut fields = Fields(bytes);
            extents.push(ExtentEntry { hash: fields.long()?, page: fields.word()?, pages: fields.word()? });
        }
        // Earlier servers wrote six pieces, or seven.
        let which_tombstones = Tombstones::from_bytes(fields.piece().unwrap_or_default())?;
        let mut gaps = Vec::new();
        for bytes in fields.piece().unwrap_or_default().as_chunks::<24>().0 {
            let mut fields = Fields(bytes);
            gaps.push(Gap { first_hash: fields.long()?, last_hash: fields.long()?, below: fields.long()? });
        }
        (fences.pages() <= data_pages).then_some(Foot {
            data_pages,
            items,
            tombstones,
            record_bytes,
            cas_max,
            fences,
            filter,
            histogram,
            hashes,
            superseded_extents,
            extents,
            which_tombstones,
            gaps,
        })
    }

    /// Joins the foot with the head and the position of the segment.
    pub(super) fn into_summary(
        self,
        head: Head,
        zone: ZoneId,
        first_page: u32,
        pages: u32,
    ) -> SegmentSummary {
        SegmentSummary {
            head,
            zone,
            first_page,
            data_pages: self.data_pages,
            pages,
            items: self.items,
            tombstones: self.tombstones,
            record_bytes: self.record_bytes,
            cas_max: self.cas_max,
            fences: self.fences,
            filter: self.filter,
            histogram: self.histogram,
            hashes: self.hashes,
            superseded_extents: self.superseded_extents,
            extents: self.extents,
            which_tombstones: self.which_tombstones,
            gaps: self.gaps,
        }
    }
}

/// Reads page `number` of a zone into `into`. Returns whether it belongs to the segment.
fn belongs_to(device: &dyn Device, zone: ZoneId, head: &Head, number: u32, into: &mut PageBuffer) -> bool {
    let read = device.read(zone, number as u64 * PAGE_BYTES as u64, into);
    read.is_ok() && page::check(into, head.sequence, number).is_ok()
}

/// The last page of the segment whose head is in page `first_page`. The page is before `end`.
pub(crate) fn last_page(device: &dyn Device, zone: ZoneId, head: &Head, first_page: u32, end: u32) -> u32 {
    let mut page = PageBuffer::new(1);
    let (mut known, mut beyond) = (first_page, end);
    // Usually the segment ends where the writing of the zone ends: one read tells.
    if beyond > known + 1 && belongs_to(device, zone, head, beyond - 1, &mut page) {
        return beyond - 1;
    }
    while beyond - known > 1 {
        let middle = known + (beyond - known) / 2;
        if belongs_to(device, zone, head, middle, &mut page) {
            known = middle;
        } else {
            beyond = middle;
        }
    }
    known
}

/// Reads the foot of the segment whose head is in page `first_page`. `None` if the segment has no valid foot.
/// `end_page` is the end of what is written in the zone, or of the zone. The next segment of the zone, if there is
/// one, follows directly behind.
///
/// # Errors
/// The device cannot read the foot.
pub(crate) fn read_foot(
    device: &dyn Device,
    zone: ZoneId,
    head: &Head,
    first_page: u32,
    end_page: u32,
) -> Result<Option<SegmentSummary>, DeviceError> {
    if end_page <= first_page {
        return Ok(None);
    }
    let last = last_page(device, zone, head, first_page, end_page);
    let mut page = PageBuffer::new(1);
    device.read(zone, last as u64 * PAGE_BYTES as u64, &mut page)?;
    let Some((crc, length, pages)) = trailer(&page) else { return Ok(None) };
    let Some(start) = last.checked_sub(pages.saturating_sub(1)).filter(|start| *start > first_page) else {
        return Ok(None);
    };
    let mut foot = PageBuffer::new(pages as usize);
    device.read(zone, start as u64 * PAGE_BYTES as u64, &mut foot)?;
    let Ok((bytes, _)) = page::compact(&mut foot, head.sequence, start) else { return Ok(None) };
    let Some(bytes) = bytes.get(..length as usize) else { return Ok(None) };
    if crc32c::crc32c(bytes) != crc {
        return Ok(None);
    }
    let Some(parsed) = Foot::parse(bytes) else { return Ok(None) };
    // Between the head and the foot there are exactly the data pages.
    if (first_page + 1).checked_add(parsed.data_pages) != Some(start) {
        return Ok(None);
    }
    Ok(Some(parsed.into_summary(head.clone(), zone, first_page, last - first_page + 1)))
}

/// The CRC of the foot, its bytes and its pages, from the trailer in the last page.
fn trailer(page: &[u8]) -> Option<(u32, u32, u32)> {
    let mut fields = Fields(page.get(PAGE_BYTES - TRAILER_BYTES..)?);
    let found = (fields.word()?, fields.word()?, fields.word()?);
    (fields.word()? == MAGIC && found.2 > 0 && found.1 as u64 <= found.2 as u64 * PAYLOAD_BYTES as u64)
        .then_some(found)
}
