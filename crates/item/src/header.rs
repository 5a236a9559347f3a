//! The header of a record: three 32-bit words, followed by only those fields that the item needs.
//!
//! ```text
//! word 0, atomic   31                       8 7      0
//!                 +--------------------------+--------+
//!                 | last access, s mod 2^24  | state  |
//!                 +--------------------------+--------+
//! word 1           31        24 23  22 21 20 19          5 4 3   0
//!                 +------------+------+--+--+-------------+-+-----+
//!                 | key length |layout|F |C |value length |E| cas |   cas = bits 32..36 of the delta
//!                 +------------+------+--+--+-------------+-+-----+   follow: F client flags, C wide CAS, E expiry
//! word 2          | cas delta, low 32 bits                      |
//!                 +---------------------------------------------+
//! ```
//!
//! The CAS number of an item is the base of its column plus the 36-bit delta, wrapping. An item whose CAS number
//! cannot be written that way, because a client chose it, carries all 64 bits in a field of its own.
//!
//! The optional fields follow in this order, each only if its bit is set: expiry (1 word, atomic), client flags (1
//! word), wide CAS (2 words). Then come the fields of the value's layout: for *apart* and *chunk* the offset of the
//! value in the column (1 word), for *chunked* the total length (1 word) and the location of the first chunk (2
//! words), for *inline* none. The key is next, then the value if it is inline.

/// Bytes of the three words that every record has.
pub const HEADER_BYTES: usize = 12;
/// Bits of the CAS delta in the header.
pub const CAS_DELTA_BITS: u32 = 36;
/// Longest value of one record, or of one chunk of a large value, in bytes.
pub const VALUE_LENGTH_MAX: usize = (1 << 15) - 1;
/// The last access is stored in seconds modulo this mask plus one, which is about 194 days.
pub const LAST_ACCESS_MASK: u32 = (1 << 24) - 1;

/// Where the value of a record is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ValueLayout {
    /// Behind the key, in the same record.
    Inline = 0,
    /// At the high end of the same column.
    Apart = 1,
    /// In a chain of chunks.
    Chunked = 2,
    /// The record is itself one chunk of a large value.
    Chunk = 3,
}

/// Word 0, which is atomic: eight state bits and the time of the last access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State(pub u32);

impl State {
    /// The item was read at least once.
    pub const FETCHED: u32 = 1;
    /// A client marked the item stale (`md I`, or `ms I` with a lower CAS).
    pub const STALE: u32 = 1 << 1;
    /// A client holds the right to recache the item: `W` was answered to it.
    pub const TOKEN_SENT: u32 = 1 << 2;
    /// The key was sent base64-encoded and may contain any byte.
    pub const BINARY_KEY: u32 = 1 << 3;
    /// No index entry leads to the record any more, so the keeper's pass need not look it up.
    pub const DEAD: u32 = 1 << 4;
    /// Flash holds this version of the item as its newest, so nothing has to be written when the item leaves
    /// memory. Every change of the item clears the bit while the writer bit of its bucket is held.
    pub const CLEAN: u32 = 1 << 5;
    /// The bits that an item keeps when it moves to flash and back.
    pub const KEPT_ON_FLASH: u32 = Self::FETCHED | Self::STALE | Self::TOKEN_SENT | Self::BINARY_KEY;

    /// A state with the bits `bits` and a last access at `now_s`.
    pub fn at(now_s: u32, bits: u32) -> State {
        State((now_s & LAST_ACCESS_MASK) << 8 | bits)
    }

    /// Whether `bit` is set.
    #[inline]
    pub fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    /// The state bits without the time of the last access.
    pub fn bits(self) -> u32 {
        self.0 & 0xff
    }

    /// Seconds since the last access. For an item idle for longer than 194 days the answer is too small by a
    /// multiple of 194 days.
    #[inline]
    pub fn idle_s(self, now_s: u32) -> u32 {
        now_s.wrapping_sub(self.0 >> 8) & LAST_ACCESS_MASK
    }
}

/// A header, unpacked: words 1 and 2, and which optional fields follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Key length in bytes, 1..=250. For a chunk: 24 bytes of bookkeeping.
    pub key_length: u8,
    /// Where the value is stored.
    pub layout: ValueLayout,
    /// Bytes of the value in this record. 0 for a chunked item, whose total length is a field of its own.
    pub value_length: u16,
    /// An expiry word follows.
    pub has_expiry: bool,
    /// A client-flags word follows.
    pub has_flags: bool,
    /// Two words with the whole CAS number follow, and `cas_delta` has no meaning.
    pub has_wide_cas: bool,
    /// CAS number minus the base of the column, modulo 2^36.
    pub cas_delta: u64,
}

/// Number of 32-bit words that the optional fields of `header` take.
#[inline]
pub fn word_count(header: &Header) -> usize {
    let layout = match header.layout {
        ValueLayout::Inline => 0,
        ValueLayout::Apart | ValueLayout::Chunk => 1,
        ValueLayout::Chunked => 3,
    };
    header.has_expiry as usize + header.has_flags as usize + 2 * header.has_wide_cas as usize + layout
}

impl Header {
    /// Words 1 and 2 of the header.
    ///
    /// # Panics
    /// In debug builds, if the value is longer than [`VALUE_LENGTH_MAX`] or the delta does not fit.
    #[inline]
    pub fn pack(&self) -> [u32; 2] {
        debug_assert!(
            (self.value_length as usize) <= VALUE_LENGTH_MAX && self.cas_delta >> CAS_DELTA_BITS == 0
        );
        [
            (self.key_length as u32) << 24
                | (self.layout as u32) << 22
                | (self.has_flags as u32) << 21
                | (self.has_wide_cas as u32) << 20
                | (self.value_length as u32) << 5
                | (self.has_expiry as u32) << 4
                | (self.cas_delta >> 32) as u32,
            self.cas_delta as u32,
        ]
    }

    /// The inverse of [`Header::pack`]. Every pair of words is a valid header.
    #[inline]
    pub fn unpack(words: [u32; 2]) -> Header {
        let word = words[0];
        Header {
            key_length: (word >> 24) as u8,
            layout: match word >> 22 & 3 {
                0 => ValueLayout::Inline,
                1 => ValueLayout::Apart,
                2 => ValueLayout::Chunked,
                _ => ValueLayout::Chunk,
            },
            value_length: (word >> 5 & 0x7fff) as u16,
            has_expiry: word >> 4 & 1 != 0,
            has_flags: word >> 21 & 1 != 0,
            has_wide_cas: word >> 20 & 1 != 0,
            cas_delta: ((word & 0xf) as u64) << 32 | words[1] as u64,
        }
    }

    /// Offset of the key in the record, in bytes.
    #[inline]
    pub fn key_offset(&self) -> usize {
        HEADER_BYTES + 4 * word_count(self)
    }

    /// Bytes of the record in the key rows, rounded up to the start of the next record. A value apart is not
    /// included.
    #[inline]
    pub fn record_bytes(&self) -> usize {
        let inline = if self.layout == ValueLayout::Inline { self.value_length as usize } else { 0 };
        (self.key_offset() + self.key_length as usize + inline).next_multiple_of(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_round_trip(a: u32, b: u32) {
            let header = Header::unpack([a, b]);
            prop_assert_eq!(header.pack(), [a, b]);
        }
    }

    #[test]
    fn a_plain_small_item_costs_twelve_bytes() {
        let header = Header {
            key_length: 30,
            layout: ValueLayout::Inline,
            value_length: 64,
            has_expiry: false,
            has_flags: false,
            has_wide_cas: false,
            cas_delta: 5,
        };
        assert_eq!(header.record_bytes(), 108); // 12 + 30 + 64, rounded up to 4
    }
}
