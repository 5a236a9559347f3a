//! The first page of a segment.

use super::Fields;
use crate::device::{Device, DeviceError, PAGE_BYTES, PageBuffer, ZoneId};
use crate::page::{self, PAGE_HEADER_BYTES, PageHeader};

const MAGIC: [u8; 8] = *b"LARDSEG1";
const HEAD_BYTES: usize = 8 + 4 + 2 * 8 + 16 + 4 + 4 + 4 * 8 + 4;

/// What a segment holds, and how its records are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Records sorted by hash, found through the log table.
    Log,
    /// Records sorted by hash, of a range of hashes, found through its filter.
    Generation,
    /// Long records in order of arrival, found through the extent table.
    Extents,
    /// Fingerprints that say which generation holds a hash.
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

/// What is known when a segment is begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// What it holds.
    pub(crate) kind: Kind,
    /// When it was opened, in the order of all segments; never used twice.
    pub(crate) sequence: u64,
    /// The sequence that the next segment had when this one took its last record: an extent of a segment from there on is newer than
    /// whatever is in this one.
    pub(crate) sealed_sequence: u64,
    /// The device it was written to.
    pub(crate) device_uuid: [u8; 16],
    /// What the CAS numbers of its records count from.
    pub(crate) cas_base: u64,
    /// For a generation: its number (the sequence of its first segment). Else 0.
    pub(crate) generation: u64,
    /// Hashes its records may have, both ends included.
    pub(crate) first_hash: u64,
    /// See `first_hash`.
    pub(crate) last_hash: u64,
    /// When it was begun, unix seconds: what the expiry histogram counts from.
    pub(crate) begun_unix_s: u32,
}

impl Head {
    /// Fills the first page, header and all.
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

/// The head in page `number` of a zone, or `None` if there is none. Whether it is of this device, and newer than what it
/// may have been left from, the caller knows.
///
/// # Errors
/// Of the device.
pub(crate) fn read_head(device: &dyn Device, zone: ZoneId, number: u32) -> Result<Option<Head>, DeviceError> {
    let mut page = PageBuffer::new(1);
    device.read(zone, number as u64 * PAGE_BYTES as u64, &mut page)?;
    Ok(Head::parse(&page, zone, number))
}
