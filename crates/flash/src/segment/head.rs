//! The head: the first page of a segment.

use super::fields::Fields;
use crate::device::{Device, DeviceError, PAGE_BYTES, PageBuffer, ZoneId};
use crate::page::{self, PAGE_HEADER_BYTES, PageHeader};

const MAGIC: [u8; 8] = *b"LARDSEG1";
const HEAD_BYTES: usize = 8 + 4 + 2 * 8 + 16 + 4 + 4 + 4 * 8 + 4;

/// The contents of a segment, and how a lookup finds its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Records of the log, sorted by hash. The log table finds them.
    Log,
    /// Records of a generation: a range of hashes, sorted. A filter or the address run finds them.
    Generation,
    /// Long records in order of arrival. The extent table finds them.
    Extents,
    /// An address run: fingerprints that say which generation holds a hash.
    Address,
}

impl Kind {
    fn number(self) -> u32 {
        match self {
            Kind::Log => 1,
            Kind::Generation => 2,
            Kind::Extents => 3,
            Kind::Address => 4,
        }
    }

    fn from_number(number: u32) -> Option<Kind> {
        [Kind::Log, Kind::Generation, Kind::Extents, Kind::Address]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

/// What is known of a segment when its write begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// The kind of the segment.
    pub(crate) kind: Kind,
    /// The number of the segment in the order in which all segments were opened. Never used twice.
    pub(crate) sequence: u64,
    /// The sequence of the next segment at the time this segment took its last record. Extents in segments from that
    /// sequence on are newer than all records of this segment.
    pub(crate) sealed_sequence: u64,
    /// The identity of the device.
    pub(crate) device_uuid: [u8; 16],
    /// The records store their CAS numbers relative to this number.
    pub(crate) cas_base: u64,
    /// The number of its generation: the sequence of the first segment of that generation. 0 if it is of no generation.
    pub(crate) generation: u64,
    /// The lowest hash that a record may have.
    pub(crate) first_hash: u64,
    /// The highest hash that a record may have.
    pub(crate) last_hash: u64,
    /// When the write began, unix seconds. The expiry histogram counts from that time.
    pub(crate) begun_unix_s: u32,
}

impl Head {
    /// Fills the first page of the segment: page `number` of the zone.
    pub(super) fn write(&self, page: &mut [u8], zone: ZoneId, number: u32) {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.kind.number().to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.sealed_sequence.to_le_bytes());
        bytes.extend_from_slice(&self.device_uuid);
        bytes.extend_from_slice(&zone.0.to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&self.cas_base.to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.first_hash.to_le_bytes());
        bytes.extend_from_slice(&self.last_hash.to_le_bytes());
        bytes.extend_from_slice(&self.begun_unix_s.to_le_bytes());
        page[PAGE_HEADER_BYTES..][..bytes.len()].copy_from_slice(&bytes);
        page[PAGE_HEADER_BYTES + bytes.len()..].fill(0);
        let epoch = page::epoch_of(self.sequence);
        page::seal(page, PageHeader { epoch, number, first_record: None, used: bytes.len() });
    }

    /// The head in page `number` of the zone, or `None` if the page holds none.
    fn parse(page: &[u8], zone: ZoneId, number: u32) -> Option<Head> {
        let header = page::open(page).ok()?;
        let mut fields = Fields(page.get(PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + header.used)?);
        if fields.take::<8>()? != MAGIC {
            return None;
        }
        let kind = Kind::from_number(fields.word()?)?;
        let sequence = fields.long()?;
        let sealed_sequence = fields.long()?;
        let device_uuid = fields.take::<16>()?;
        if (fields.word()?, fields.word()?) != (zone.0, number) {
            return None;
        }
        let head = Head {
            kind,
            sequence,
            sealed_sequence,
            device_uuid,
            cas_base: fields.long()?,
            generation: fields.long()?,
            first_hash: fields.long()?,
            last_hash: fields.long()?,
            begun_unix_s: fields.word()?,
        };
        (header.epoch == page::epoch_of(sequence) && header.number == number).then_some(head)
    }
}

/// Reads the head in page `number` of a zone. `None` if the page holds none. The caller checks whether the head is of
/// this device, and whether the segment still exists.
///
/// # Errors
/// The device fails.
pub(crate) fn read_head(device: &dyn Device, zone: ZoneId, number: u32) -> Result<Option<Head>, DeviceError> {
    let mut page = PageBuffer::new(1);
    device.read(zone, number as u64 * PAGE_BYTES as u64, &mut page)?;
    Ok(Head::parse(&page, zone, number))
}
