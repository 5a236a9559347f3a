//! libCacheSim's oracleGeneral: little-endian records of 24 bytes, without a header.
//!
//! ```text
//!   0     4                12    16                24
//!   | time | object id      | size | next access   |
//!   | u32 s| u64            | u32 B| i64, -1: never|
//! ```
//!
//! Source: libCacheSim, `libCacheSim/traceReader/customizedReader/oracle/oracleGeneralBin.h`. The next access is an
//! ordinal of a request. It serves Belady's MIN there and is not used here.

/// Bytes per record.
pub(super) const RECORD_BYTES: usize = 24;

/// The content of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) time_s: u32,
    pub(super) id: u64,
    pub(super) size_bytes: u32,
    pub(super) next_access: i64,
}

impl Record {
    /// Decodes a record.
    #[inline]
    pub(super) fn read(octets: &[u8; RECORD_BYTES]) -> Record {
        let u32_at =
            |at: usize| u32::from_le_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        Record { time_s: u32_at(0), id: u64_at(4), size_bytes: u32_at(12), next_access: u64_at(16) as i64 }
    }

    /// Encodes the record.
    #[inline]
    pub(super) fn octets(self) -> [u8; RECORD_BYTES] {
        let mut octets = [0; RECORD_BYTES];
        octets[0..4].copy_from_slice(&self.time_s.to_le_bytes());
        octets[4..12].copy_from_slice(&self.id.to_le_bytes());
        octets[12..16].copy_from_slice(&self.size_bytes.to_le_bytes());
        octets[16..24].copy_from_slice(&self.next_access.to_le_bytes());
        octets
    }
}

/// Whether the start of a file can consist of records: times do not go backwards, and each next access is -1, the
/// largest number, or lies ahead.
pub(super) fn is_plausible(head: &[u8]) -> bool {
    let (records, _) = head.as_chunks::<RECORD_BYTES>();
    let mut latest_s = 0;
    let sound = records.iter().take(1000).zip(0i64..).all(|(octets, at)| {
        let record = Record::read(octets);
        let rises = record.time_s >= latest_s;
        latest_s = record.time_s;
        rises && (record.next_access == -1 || record.next_access >= at)
    });
    sound && !records.is_empty()
}
