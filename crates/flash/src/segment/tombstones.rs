//! Which records of a log segment are tombstones, and how many bytes those take. A restart counts with them how much of
//! a segment is live, without reading the records.

/// One bit for each record of a segment, up to its last tombstone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tombstones {
    bytes: u64,
    bits: Vec<u8>,
}

impl Tombstones {
    /// Notes that the record of this number, counted from 0, is a tombstone of this length. Numbers rise.
    pub(crate) fn add(&mut self, number: u32, bytes: u64) {
        self.bytes += bytes;
        self.bits.resize(number as usize / 8 + 1, 0);
        self.bits[number as usize / 8] |= 1 << (number % 8);
    }

    /// Length of all tombstones, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the record of this number is a tombstone.
    pub(crate) fn has(&self, number: usize) -> bool {
        self.bits.get(number / 8).is_some_and(|bits| bits >> (number % 8) & 1 != 0)
    }

    /// Most bytes that [`Tombstones::to_bytes`] appends for `records` records.
    pub(crate) fn bytes_max(records: u32) -> u64 {
        8 + records.div_ceil(8) as u64
    }

    /// Appends what [`Tombstones::from_bytes`] reads: nothing where there is no tombstone.
    pub(crate) fn to_bytes(&self, out: &mut Vec<u8>) {
        if !self.bits.is_empty() {
            out.extend_from_slice(&self.bytes.to_le_bytes());
            out.extend_from_slice(&self.bits);
        }
    }

    /// What [`Tombstones::to_bytes`] wrote, or `None` if `bytes` are something else.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Tombstones> {
        if bytes.is_empty() {
            return Some(Tombstones::default());
        }
        let (length, bits) = bytes.split_first_chunk::<8>()?;
        Some(Tombstones { bytes: u64::from_le_bytes(*length), bits: bits.to_vec() })
    }
}
