//! Values that identify themselves.
//!
//! ```text
//!   16 bytes or more:  | key: 4 | total length: 4 | version: 8 | pattern from key, length and version ... |
//!   fewer:             | pattern from key and length |
//! ```
//!
//! The pattern is cut from one block of random bytes, so making a value is a copy and verifying it a comparison. A
//! value that was appended or prepended to is a row of such values.

use super::options::Verify;
use crate::mix::mix64;

/// Length of the header with key, length and version, in bytes.
pub(super) const HEADER_BYTES: usize = 16;

const STEP_BYTES: usize = 8 * 1024;
const BLOCK_BYTES: usize = 2 * STEP_BYTES;
/// How far the position in the block advances from one step of a long value to the next; odd, so that steps differ.
const STEP_STRIDE: usize = 4051;
/// Length in bytes up to which `Verify::Fast` compares every byte.
const FAST_BYTES: usize = 64;

/// The result of verifying a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Checked {
    /// A value of this key with this version.
    Whole(u64),
    /// Several values of this key in a row; the newest has this version.
    Row(u64),
    /// A value of this key that is too short for a version.
    Short,
    /// Not the value that was stored.
    Wrong(Flaw),
}

/// The flaw of a wrong value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flaw {
    /// The bytes differ.
    Octets,
    /// The value is too short or too long.
    Length,
    /// The value belongs to another key.
    Key,
}

/// Makes and verifies values.
pub(super) struct Values {
    block: Box<[u8]>,
    verify: Verify,
}

impl Values {
    /// Verifies as closely as `verify` says.
    pub(super) fn new(verify: Verify) -> Values {
        let words = (0..BLOCK_BYTES as u64 / 8).map(|word| mix64(word.wrapping_add(0x6c61_7264_6572)));
        Values { block: words.flat_map(u64::to_le_bytes).collect(), verify }
    }

    /// Appends the value of the key `identity` with `bytes` bytes to `out`.
    #[inline]
    pub(super) fn put(&self, out: &mut Vec<u8>, identity: u64, version: u64, bytes: usize) {
        if bytes < HEADER_BYTES {
            out.extend_from_slice(&short(identity, bytes)[..bytes]);
            return;
        }
        let header = Header { whose: (identity >> 32) as u32, bytes: bytes as u32, version };
        out.extend_from_slice(&header.to_bytes());
        let mut place = header.place();
        let mut left = bytes - HEADER_BYTES;
        while left > 0 {
            let piece = left.min(STEP_BYTES);
            out.extend_from_slice(&self.block[place..place + piece]);
            left -= piece;
            place = (place + STEP_STRIDE) % STEP_BYTES;
        }
    }

    /// Verifies a value that was read for the key `identity`.
    #[inline]
    pub(super) fn check(&self, value: &[u8], identity: u64) -> Checked {
        let Some(header) = Header::read(value) else {
            let good = short(identity, value.len());
            let same = good[..value.len()] == *value;
            return if same { Checked::Short } else { Checked::Wrong(Flaw::Octets) };
        };
        let own = header.whose == (identity >> 32) as u32;
        if header.bytes as usize == value.len() {
            return match (self.body_is_good(&header, &value[HEADER_BYTES..]), own) {
                (true, true) => Checked::Whole(header.version),
                (true, false) => Checked::Wrong(Flaw::Key),
                (false, _) => Checked::Wrong(Flaw::Octets),
            };
        }
        if own { self.check_row(value, identity) } else { Checked::Wrong(Flaw::Octets) }
    }

    /// Verifies a row of values.
    fn check_row(&self, value: &[u8], identity: u64) -> Checked {
        let whose = (identity >> 32) as u32;
        let mut rest = value;
        let mut newest = 0;
        while !rest.is_empty() {
            let Some(header) = Header::read(rest).filter(|header| header.whose == whose) else {
                return Checked::Wrong(Flaw::Length);
            };
            let bytes = header.bytes as usize;
            if bytes < HEADER_BYTES || bytes > rest.len() {
                return Checked::Wrong(Flaw::Length);
            }
            if !self.body_is_good(&header, &rest[HEADER_BYTES..bytes]) {
                return Checked::Wrong(Flaw::Octets);
            }
            newest = newest.max(header.version);
            rest = &rest[bytes..];
        }
        Checked::Row(newest)
    }

    #[inline]
    fn body_is_good(&self, header: &Header, body: &[u8]) -> bool {
        if self.verify == Verify::Fast && body.len() > FAST_BYTES {
            return true;
        }
        let mut place = header.place();
        for piece in body.chunks(STEP_BYTES) {
            if self.block[place..place + piece.len()] != *piece {
                return false;
            }
            place = (place + STEP_STRIDE) % STEP_BYTES;
        }
        true
    }

    /// The first position at which a value differs from the one that its own header announces, or that the key should
    /// have.
    pub(super) fn first_difference(&self, value: &[u8], identity: u64) -> Option<usize> {
        let mut good = Vec::new();
        let version = Header::read(value).map_or(0, |header| header.version);
        self.put(&mut good, identity, version, value.len());
        good.iter().zip(value).position(|(good, came)| good != came)
    }
}

struct Header {
    whose: u32,
    bytes: u32,
    version: u64,
}

impl Header {
    #[inline]
    fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut text = [0; HEADER_BYTES];
        text[..4].copy_from_slice(&self.whose.to_le_bytes());
        text[4..8].copy_from_slice(&(self.bytes ^ seal(self.whose, self.version)).to_le_bytes());
        text[8..].copy_from_slice(&self.version.to_le_bytes());
        text
    }

    #[inline]
    fn read(value: &[u8]) -> Option<Header> {
        let (head, _) = value.split_first_chunk::<HEADER_BYTES>()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (whose, version) = (word(0), u64::from(word(8)) | u64::from(word(12)) << 32);
        Some(Header { whose, bytes: word(4) ^ seal(whose, version), version })
    }

    /// The start of the pattern within the block.
    #[inline]
    fn place(&self) -> usize {
        let seed = (u64::from(self.whose) << 32 | u64::from(self.bytes)) ^ self.version.rotate_left(17);
        mix64(seed) as usize % STEP_BYTES
    }
}

/// A mask for the length in a header, so that another version is noticed even where there is no pattern.
#[inline]
fn seal(whose: u32, version: u64) -> u32 {
    (mix64(version ^ u64::from(whose) << 32) >> 32) as u32
}

/// The value of a key that is shorter than a header.
#[inline]
fn short(identity: u64, bytes: usize) -> [u8; HEADER_BYTES] {
    let first = mix64(identity ^ bytes as u64);
    let mut octets = [0; HEADER_BYTES];
    octets[..8].copy_from_slice(&first.to_le_bytes());
    octets[8..].copy_from_slice(&mix64(first).to_le_bytes());
    octets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn made(values: &Values, identity: u64, version: u64, bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        values.put(&mut out, identity, version, bytes);
        assert_eq!(out.len(), bytes);
        out
    }

    #[test]
    fn a_value_in_a_row_has_the_newest_version() {
        let values = Values::new(Verify::Full);
        let (first, second) = (made(&values, 9 << 32, 5, 40), made(&values, 9 << 32, 7, 16));
        let row = [second.clone(), first.clone(), second].concat();
        assert_eq!(values.check(&row, 9 << 32), Checked::Row(7));
        assert_eq!(values.check(&row[..row.len() - 1], 9 << 32), Checked::Wrong(Flaw::Length));
        assert_eq!(values.check(&[&first[..], b"x"].concat(), 9 << 32), Checked::Wrong(Flaw::Length));
    }

    #[test]
    fn a_changed_version_is_found_in_a_value_of_nothing_but_a_header() {
        let values = Values::new(Verify::Full);
        let mut value = made(&values, 9 << 32, 5, HEADER_BYTES);
        value[8] ^= 4;
        assert_eq!(values.check(&value, 9 << 32), Checked::Wrong(Flaw::Length));
        assert_eq!(values.first_difference(&value, 9 << 32), Some(4));
    }

    #[test]
    fn the_fast_way_looks_at_headers_only() {
        let values = Values::new(Verify::Fast);
        let mut value = made(&values, 1 << 40, 3, 5000);
        value[4000] ^= 1;
        assert_eq!(values.check(&value, 1 << 40), Checked::Whole(3));
        assert_eq!(Values::new(Verify::Full).check(&value, 1 << 40), Checked::Wrong(Flaw::Octets));
        assert_eq!(values.check(&value[..4000], 1 << 40), Checked::Wrong(Flaw::Length));
        assert_eq!(values.check(&value, 2 << 40), Checked::Wrong(Flaw::Key));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn values_are_recognised_and_every_changed_octet_is_found(
            identity in any::<u64>(), other in any::<u64>(), version in any::<u64>(),
            bytes in prop_oneof![0usize..64, 8000usize..40_000], at in any::<prop::sample::Index>(), bit in 0u8..8,
        ) {
            let values = Values::new(Verify::Full);
            let value = made(&values, identity, version, bytes);
            let good = if bytes < HEADER_BYTES { Checked::Short } else { Checked::Whole(version) };
            prop_assert_eq!(values.check(&value, identity), good);
            if bytes >= HEADER_BYTES && identity >> 32 != other >> 32 {
                prop_assert_eq!(values.check(&value, other), Checked::Wrong(Flaw::Key));
            }
            if bytes > 0 {
                let mut broken = value.clone();
                broken[at.index(bytes)] ^= 1 << bit;
                prop_assert!(matches!(values.check(&broken, identity), Checked::Wrong(_)));
                prop_assert!(values.first_difference(&broken, identity).is_some());
            }
            if bytes > HEADER_BYTES {
                prop_assert!(matches!(values.check(&value[..bytes - 1], identity), Checked::Wrong(_)));
            }
        }
    }
}
