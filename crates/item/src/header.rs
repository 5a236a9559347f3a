//! The header of a record: three 32-bit words, then only the fields this item needs.
//!
//! ```text
//! word 0, atomic   31                       8 7      0
//!                 +--------------------------+--------+
//!                 | last access, s mod 2^24  | state  |
//!                 +--------------------------+--------+
//! word 1           31        24 23 22 21 20 19          5 4   0
//!                 +------------+--+--+--+--+-------------+-----+
//!                 | key length | place|F |C |value length | cas |   bit 20 = C, 21 = F, 22-23 = place
//!                 +------------+-----+--+--+-------------+-----+   cas here: bits 32..36 of the delta
//! word 2          | cas delta, low 32 bits                     |
//! then            | expiry, s, atomic            always-present bit E lives in cas bit 4, see below
//! ```
//!
//! Written out: word 1 = `key_length << 24 | place << 22 | has_flags << 21 | has_wide_cas << 20 |
//! value_length << 5 | has_expiry << 4 | cas_delta >> 32` with 4 bits for the last. The CAS number of an item is
//! its column's base plus the delta (36 bits, wrapping); an item whose CAS does not fit (a client chose it)
//! carries all 64 bits instead.
//!
//! Optional fields follow in this order, each present only if its bit says so:
//! expiry (1 word), client flags (1 word), wide CAS (2 words), then by place:
//! *inline* nothing; *apart* the value's offset in the column (1 word); *chunked* total length (1 word) and the
//! first chunk's location (2 words); *chunk* is not an item but a piece of one. Then the key, then an inline value.

/// Bytes of the part that every record has.
pub const HEADER_BYTES: usize = 12;
/// Bits of the CAS delta kept in the header.
pub const CAS_DELTA_BITS: u32 = 36;
/// Longest value, in bytes, of one record or of one chunk of a large value.
pub const VALUE_LENGTH_MAX: usize = (1 << 15) - 1;
/// The last access is kept modulo this mask plus one, in seconds (about 194 days).
pub const LAST_ACCESS_MASK: u32 = (1 << 24) - 1;

/// Where a record's value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ValuePlace {
    /// Behind the key, in the same record.
    Inline = 0,
    /// At the high end of the same column.
    Apart = 1,
    /// In a chain of chunks.
    Chunked = 2,
    /// This record is itself one chunk of a large value.
    Chunk = 3,
}

/// The atomic first word: eight state bits and the time of the last access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State(pub u32);

impl State {
    /// The item was read at least once.
    pub const FETCHED: u32 = 1;
    /// A client marked the item stale (`md I`, or `ms I` with a lower CAS).
    pub const STALE: u32 = 1 << 1;
    /// A client holds the right to recache the item (`W` was answered).
    pub const TOKEN_SENT: u32 = 1 << 2;
    /// The key came base64-encoded and may hold any byte.
    pub const BINARY_KEY: u32 = 1 << 3;
    /// No entry leads to the record any more: the pass need not ask the index for it.
    pub const DEAD: u32 = 1 << 4;
    /// The newest version on flash is this very item: when it leaves memory nothing has to be written. Cleared under the
    /// writer bit by whatever changes the item.
    pub const CLEAN: u32 = 1 << 5;
    /// The bits that go along when an item moves to flash and back.
    pub const KEPT_ON_FLASH: u32 = Self::FETCHED | Self::STALE | Self::TOKEN_SENT | Self::BINARY_KEY;

    /// A state whose last access is `now_s`.
    pub fn at(now_s: u32, bits: u32) -> State {
        State((now_s & LAST_ACCESS_MASK) << 8 | bits)
    }

    /// Whether `bit` is set.
    #[inline]
    pub fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    /// The state bits without the time.
    pub fn bits(self) -> u32 {
        self.0 & 0xff
    }

    /// Seconds since the last access. Wrong by multiples of 194 days for items idle longer than that.
    #[inline]
    pub fn idle_s(self, now_s: u32) -> u32 {
        now_s.wrapping_sub(self.0 >> 8) & LAST_ACCESS_MASK
    }
}

/// A header, unpacked: the words 1 and 2 and which optional fields follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Key length in bytes, 1..=250 (24 for a chunk's own bookkeeping).
    pub key_length: u8,
    /// Where the value is.
    pub place: ValuePlace,
    /// Bytes of the value in this record; 0 for a chunked item, whose length is a field of its own.
    pub value_length: u16,
    /// An expiry word follows.
    pub has_expiry: bool,
    /// A client-flags word follows.
    pub has_flags: bool,
    /// Two words with the whole CAS follow, and `cas_delta` means nothing.
    pub has_wide_cas: bool,
    /// CAS minus the column's base, modulo 2^36.
    pub cas_delta: u64,
}

/// How many 32-bit words the optional fields of `header` take.
#[inline]
pub fn word_count(header: &Header) -> usize {
    let place = match header.place {
        ValuePlace::Inline => 0,
        ValuePlace::Apart | ValuePlace::Chunk => 1,
        ValuePlace::Chunked => 3,
    };
    header.has_expiry as usize + header.has_flags as usize + 2 * header.has_wide_cas as usize + place
}

impl Header {
    /// Words 1 and 2.
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
                | (self.place as u32) << 22
                | (self.has_flags as u32) << 21
                | (self.has_wide_cas as u32) << 20
                | (self.value_length as u32) << 5
                | (self.has_expiry as u32) << 4
                | (self.cas_delta >> 32) as u32,
            self.cas_delta as u32,
        ]
    }

    /// The inverse of [`Header::pack`]. Every pair of words is some header.
    #[inline]
    pub fn unpack(words: [u32; 2]) -> Header {
        let word = words[0];
        Header {
            key_length: (word >> 24) as u8,
            place: match word >> 22 & 3 {
                0 => ValuePlace::Inline,
                1 => ValuePlace::Apart,
                2 => ValuePlace::Chunked,
                _ => ValuePlace::Chunk,
            },
            value_length: (word >> 5 & 0x7fff) as u16,
            has_expiry: word >> 4 & 1 != 0,
            has_flags: word >> 21 & 1 != 0,
            has_wide_cas: word >> 20 & 1 != 0,
            cas_delta: ((word & 0xf) as u64) << 32 | words[1] as u64,
        }
    }

    /// Where the key begins, in bytes from the start of the record.
    #[inline]
    pub fn key_offset(&self) -> usize {
        HEADER_BYTES + 4 * word_count(self)
    }

    /// Bytes of the whole record in the key rows, rounded up to the next record's start.
    #[inline]
    pub fn record_bytes(&self) -> usize {
        let inline = if self.place == ValuePlace::Inline { self.value_length as usize } else { 0 };
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
            place: ValuePlace::Inline,
            value_length: 64,
            has_expiry: false,
            has_flags: false,
            has_wide_cas: false,
            cas_delta: 5,
        };
        assert_eq!(header.record_bytes(), 108); // 12 + 30 + 64, rounded up to 4
    }
}
