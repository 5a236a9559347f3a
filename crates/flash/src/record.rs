//! A record: one version of an item on flash, or a tombstone.
//!
//! ```text
//! key length u8 | bits u8 | value length u16 | cas delta u32        8 bytes, always
//! value length, high half u16                                       LONG
//! state u8, or u8 and u16                                           STATE
//! client flags u32                                                  FLAGS
//! expiry, unix seconds u32                                          EXPIRES
//! cas u64                                                           WIDE_CAS (the delta then means nothing)
//! bytes of the whole value u64, number of the part u32              PART
//! key, value
//! ```
//!
//! Little endian, no padding. A line with a name on the right is there only if that bit is set. The CAS number is the
//! base of the segment plus the delta; if the delta does not fit into 32 bits, the number is written whole.
//!
//! Example: an item with a key of 20 bytes and a value of 80 bytes, without flags and expiry, takes 108 bytes, and 0.4
//! bytes for its share of the page's header.

use larder_item::{FlashState, KeyHash, KeyHasher};

/// Length of the fields that every record has, bytes.
pub(crate) const RECORD_HEADER_BYTES: usize = 8;
/// Length of all fields beside key and value, at most, bytes.
#[cfg(test)]
const RECORD_OVERHEAD_MAX: usize = RECORD_HEADER_BYTES + 2 + 3 + 4 + 4 + 8 + 12;

const TOMBSTONE: u8 = 1;
const FLAGS: u8 = 1 << 1;
const EXPIRES: u8 = 1 << 2;
const WIDE_CAS: u8 = 1 << 3;
const PART: u8 = 1 << 4;
const SUPERSEDES_EXTENT: u8 = 1 << 5;
const LONG: u8 = 1 << 6;
const STATE: u8 = 1 << 7;

/// A part of a long value: which one, and of how long a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartOfValue {
    /// Length of the whole value, bytes.
    pub(crate) value_bytes: u64,
    /// Number of the part, from 0. Part 0 is found under the hash of the key, the others under [`part_hash`].
    pub(crate) number: u32,
}

/// A record, decoded. It borrows key and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record<'a> {
    /// 1 to 251 bytes.
    pub(crate) key: &'a [u8],
    /// Empty for a tombstone.
    pub(crate) value: &'a [u8],
    /// Client flags.
    pub(crate) flags: u32,
    /// When the item expires, unix seconds; 0 = never.
    pub(crate) expires_unix_s: u32,
    /// The CAS number. In a tombstone that supersedes extents it is a sequence: the tombstone supersedes extents of
    /// segments below it, and 0 means all that were there when the tombstone's segment was sealed.
    pub(crate) cas: u64,
    /// What flash keeps of the state.
    pub(crate) state: FlashState,
    /// Whether this is a tombstone: older versions of the key do not count any more.
    pub(crate) tombstone: bool,
    /// The mark that older extents of this hash are superseded; see [`crate::dead_extents`].
    pub(crate) supersedes_extent: bool,
    /// Set if the value is one part of a long value.
    pub(crate) part: Option<PartOfValue>,
}

/// The result of decoding bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decoded<'a> {
    /// A record, and its encoded length, bytes.
    Whole(Record<'a>, usize),
    /// The bytes end before the record does.
    Short,
}

impl<'a> Record<'a> {
    /// A tombstone for a key.
    pub(crate) fn tombstone(key: &'a [u8], supersedes_extent: bool) -> Record<'a> {
        Record {
            key,
            value: &[],
            flags: 0,
            expires_unix_s: 0,
            cas: 0,
            state: FlashState::PLAIN,
            tombstone: true,
            supersedes_extent,
            part: None,
        }
    }

    /// The hash that the record is found under.
    pub(crate) fn hash(&self, hasher: &KeyHasher) -> u64 {
        let hash = hasher.hash(self.key);
        match self.part {
            Some(part) if part.number > 0 => part_hash(hash, self.cas, part.number),
            _ => hash.0,
        }
    }

    /// Encoded length in a segment whose CAS numbers count from `cas_base`, bytes.
    pub(crate) fn encoded_bytes(&self, cas_base: u64) -> usize {
        let optional = |present: bool, bytes: usize| if present { bytes } else { 0 };
        RECORD_HEADER_BYTES
            + optional(self.value.len() > u16::MAX as usize, 2)
            + self.state.length()
            + optional(self.flags != 0, 4)
            + optional(self.expires_unix_s != 0, 4)
            + optional(self.wide_cas(cas_base), 8)
            + optional(self.part.is_some(), 12)
            + self.key.len()
            + self.value.len()
    }

    fn wide_cas(&self, cas_base: u64) -> bool {
        match self.tombstone {
            true => self.cas != 0,
            false => self.cas.wrapping_sub(cas_base) > u32::MAX as u64,
        }
    }

    /// Appends the record to `out`.
    pub(crate) fn encode(&self, cas_base: u64, out: &mut Vec<u8>) {
        debug_assert!(self.key.len() <= u8::MAX as usize && self.value.len() <= u32::MAX as usize);
        let wide_cas = self.wide_cas(cas_base);
        let long = self.value.len() > u16::MAX as usize;
        let bit = |present: bool, bit: u8| if present { bit } else { 0 };
        let bits = bit(self.tombstone, TOMBSTONE)
            | bit(self.flags != 0, FLAGS)
            | bit(self.expires_unix_s != 0, EXPIRES)
            | bit(wide_cas, WIDE_CAS)
            | bit(self.part.is_some(), PART)
            | bit(self.supersedes_extent, SUPERSEDES_EXTENT)
            | bit(long, LONG)
            | bit(self.state.length() > 0, STATE);
        let delta = if self.tombstone || wide_cas { 0 } else { self.cas.wrapping_sub(cas_base) as u32 };
        out.extend_from_slice(&[self.key.len() as u8, bits]);
        out.extend_from_slice(&(self.value.len() as u16).to_le_bytes());
        out.extend_from_slice(&delta.to_le_bytes());
        if long {
            out.extend_from_slice(&((self.value.len() >> 16) as u16).to_le_bytes());
        }
        out.extend_from_slice(&self.state.to_bytes()[..self.state.length()]);
        if self.flags != 0 {
            out.extend_from_slice(&self.flags.to_le_bytes());
        }
        if self.expires_unix_s != 0 {
            out.extend_from_slice(&self.expires_unix_s.to_le_bytes());
        }
        if wide_cas {
            out.extend_from_slice(&self.cas.to_le_bytes());
        }
        if let Some(part) = self.part {
            out.extend_from_slice(&part.value_bytes.to_le_bytes());
            out.extend_from_slice(&part.number.to_le_bytes());
        }
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
    }

    /// Decodes the record at the beginning of `bytes`. All bytes are some record, or the beginning of one.
    pub(crate) fn decode(bytes: &'a [u8], cas_base: u64) -> Decoded<'a> {
        decode(bytes, cas_base).map_or(Decoded::Short, |(record, length)| Decoded::Whole(record, length))
    }

    /// Whether this is part `number` (0: the item itself) of a version of the key. For parts from 1 on the CAS number
    /// must be equal too.
    pub(crate) fn is(&self, key: &[u8], cas: u64, number: u32) -> bool {
        let own = self.part.map_or(0, |part| part.number);
        self.key == key && own == number && (number == 0 || self.cas == cas)
    }

    /// Whether the item has expired at a time.
    pub(crate) fn expired(&self, now_unix_s: u32) -> bool {
        self.expires_unix_s != 0 && self.expires_unix_s <= now_unix_s
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*taken)
}

/// A record without its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHead<'a> {
    /// The record; its value is empty.
    pub(crate) record: Record<'a>,
    /// Length of the value, or of the part of it that is in the record, bytes.
    pub(crate) value_bytes: usize,
    /// Length of the whole record, bytes.
    pub(crate) bytes: usize,
}

impl<'a> RecordHead<'a> {
    /// Decodes the head of the record at the beginning of `bytes`. `None`: the bytes end before the head does, or no
    /// record begins there.
    pub(crate) fn decode(bytes: &'a [u8], cas_base: u64) -> Option<RecordHead<'a>> {
        let (record, value_bytes, head_bytes) = decode_head(bytes, cas_base)?;
        let is_one = !record.key.is_empty();
        is_one.then_some(RecordHead { record, value_bytes, bytes: head_bytes + value_bytes })
    }
}

fn decode(bytes: &[u8], cas_base: u64) -> Option<(Record<'_>, usize)> {
    let (record, value_bytes, head_bytes) = decode_head(bytes, cas_base)?;
    let value = bytes.get(head_bytes..head_bytes + value_bytes)?;
    Some((Record { value, ..record }, head_bytes + value_bytes))
}

/// A record without its value, the length of its value, and that of what is before the value.
#[inline]
fn decode_head(bytes: &[u8], cas_base: u64) -> Option<(Record<'_>, usize, usize)> {
    let mut rest = bytes;
    let [key_length, bits] = take::<2>(&mut rest)?;
    let has = |bit: u8| bits & bit != 0;
    let mut value_length = u16::from_le_bytes(take(&mut rest)?) as usize;
    let delta = u32::from_le_bytes(take(&mut rest)?);
    if has(LONG) {
        value_length |= (u16::from_le_bytes(take(&mut rest)?) as usize) << 16;
    }
    let state = match has(STATE) {
        true => FlashState::from_bytes(take::<1>(&mut rest)?[0], || take::<2>(&mut rest))?,
        false => FlashState::PLAIN,
    };
    let flags = if has(FLAGS) { u32::from_le_bytes(take(&mut rest)?) } else { 0 };
    let expires_unix_s = if has(EXPIRES) { u32::from_le_bytes(take(&mut rest)?) } else { 0 };
    let tombstone = has(TOMBSTONE);
    let cas = match (tombstone, has(WIDE_CAS)) {
        (_, true) => u64::from_le_bytes(take(&mut rest)?),
        (true, false) => 0,
        (false, false) => cas_base.wrapping_add(delta as u64),
    };
    let part = match has(PART) {
        true => Some(PartOfValue {
            value_bytes: u64::from_le_bytes(take(&mut rest)?),
            number: u32::from_le_bytes(take(&mut rest)?),
        }),
        false => None,
    };
    let (key, rest) = rest.split_at_checked(key_length as usize)?;
    let supersedes_extent = has(SUPERSEDES_EXTENT);
    let value = &[];
    let record = Record { key, value, flags, expires_unix_s, cas, state, tombstone, supersedes_extent, part };
    Some((record, value_length, bytes.len() - rest.len()))
}

/// The hash of part `number` (from 1) of a long value: `hash` is that of its key, `cas` its CAS number.
pub(crate) fn part_hash(hash: KeyHash, cas: u64, number: u32) -> u64 {
    mix(hash.0 ^ mix(cas ^ ((number as u64) << 32 | 0x9e37_79b9)))
}

/// Mixes bits, so that each bit of the input changes all of the result: the finisher of splitmix64 (Steele et al.,
/// OOPSLA 2014; constants by Stafford).
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use larder_item::{Extension, Kind, State};
    use proptest::prelude::*;

    #[test]
    fn a_plain_item_takes_eight_bytes_more_than_itself() {
        let (key, value) = ([b'k'; 20], [b'v'; 80]);
        let record =
            Record { key: &key, value: &value, cas: 1007, tombstone: false, ..Record::tombstone(&[], false) };
        assert_eq!(record.encoded_bytes(1000), 108);
    }

    proptest! {
        #[test]
        fn round_trip(
            key in proptest::collection::vec(any::<u8>(), 1..=251),
            value in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..300),
                (65_530usize..65_600).prop_map(|length| vec![9; length]),
            ],
            (flags, expires_unix_s, state) in any::<(u32, u32, u32)>(),
            (early_ms, kind) in (0u16..1000, prop::sample::select(vec![Kind::Text, Kind::Parts, Kind::SortedSet])),
            (cas, cas_base) in prop_oneof![any::<(u64, u64)>(), Just((5_000_000_007, 5_000_000_000))],
            part in proptest::option::of(any::<(u64, u32)>()),
            supersedes_extent: bool,
            cut in any::<prop::sample::Index>(),
        ) {
            let part = part.map(|(value_bytes, number)| PartOfValue { value_bytes, number });
            let state = FlashState::of(State(state), Extension { early_ms, kind, is_compressed: false });
            let record = Record {
                key: &key, value: &value, flags, expires_unix_s, cas, state, tombstone: false, supersedes_extent, part,
            };
            let mut bytes = Vec::new();
            record.encode(cas_base, &mut bytes);
            prop_assert_eq!(bytes.len(), record.encoded_bytes(cas_base));
            prop_assert!(bytes.len() <= RECORD_OVERHEAD_MAX + key.len() + value.len());
            let length = bytes.len();
            prop_assert_eq!(Record::decode(&bytes[..cut.index(length)], cas_base), Decoded::Short);
            bytes.extend_from_slice(b"behind");
            prop_assert_eq!(Record::decode(&bytes, cas_base), Decoded::Whole(record, length));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = Record::decode(&bytes, 1);
        }
    }
}
