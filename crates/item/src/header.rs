//! The header of a record: two 32-bit words, only those fields that the item needs, and 16 bits.
//!
//! ```text
//! word 0, atomic   31                     9 8     6 5     0
//!                 +------------------------+-------+-------+
//!                 | last access, s mod 2^23|penalty| state |
//!                 +------------------------+-------+-------+
//! word 1           31        24 23  22 21 20 19 18 17         4 3 2   0
//!                 +------------+------+--+-----+--+------------+-+-----+
//!                 | key length |layout|F | CAS |X |value length|E| cas |   cas = bits 16 to 18 of the delta
//!                 +------------+------+--+-----+--+------------+-+-----+   follow: F client flags, X extension,
//! optional fields | ...                                        |           E expiry
//! last 16 bits    | cas delta, low 16 bits |
//!                 +------------------------+
//! ```
//!
//! The CAS number of an item is the base of its column plus a delta, wrapping. A new item is written soon after its
//! column was opened, so 19 bits are enough. [`CasForm`] says what an item has whose number is farther away.
//!
//! The optional fields follow in this order, each only if its bit is set: expiry (1 word, atomic), extension (1 word,
//! atomic; only behind an expiry), client flags (1 word), more of the CAS number (1 or 2 words). A record whose bit X
//! is set and whose bit E is not has no extension: its value is compressed. Then come the fields
//! of the value's layout: for *apart* and *chunk* the offset of the value in the column (1 word), for *chunked* the
//! total length (1 word) and the location of the first chunk (2 words), for *inline* none. Then the last 16 bits of the
//! header, so that the words before are aligned. The key is next, then the value if it is inline.
//!
//! The expiry is a whole second: the first at which the item has expired. The extension has what few items need:
//!
//! ```text
//! extension, atomic  31                     14 13 12   10 9         0
//!                   +-------------------------+--+-------+-----------+   Z = the value is compressed
//!                   |low 18 bits of the expiry|Z | kind  | early, ms |   early = ms before the second it expires
//!                   +-------------------------+--+-------+-----------+
//! ```
//!
//! A reader that finds other bits of the expiry than those of the expiry word looks again: the two are changed one
//! after the other.

/// Bytes of the header without optional fields.
pub const HEADER_BYTES: usize = 10;
/// Bytes of the two words that every record begins with.
pub const HEADER_WORDS_BYTES: usize = 8;
/// Bits of the shortest CAS delta.
pub const CAS_DELTA_BITS: u32 = 19;
/// Bits of a CAS delta with another word.
const CAS_LONG_BITS: u32 = CAS_DELTA_BITS + 32;
/// Longest value of one record, or of one chunk of a large value, in bytes.
pub const VALUE_LENGTH_MAX: usize = (1 << 14) - 1;
/// The last access is stored in seconds modulo this mask plus one, which is about 97 days.
pub const LAST_ACCESS_MASK: u32 = (1 << 23) - 1;
/// Where the last access begins in word 0.
const LAST_ACCESS_SHIFT: u32 = 9;
/// Where the penalty begins in word 0, and in the byte that flash keeps.
const PENALTY_SHIFT: u32 = 6;
const PENALTY_SHIFT_ON_FLASH: u32 = 4;
/// The largest number of a penalty subclass that the three bits hold.
const PENALTY_MAX: u32 = 6;

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

/// Word 0, which is atomic: six state bits, the penalty subclass and the time of the last access.
///
/// The three bits of the penalty hold the number of the subclass plus one, and 0 for an unknown penalty.
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
    /// The bits of the penalty subclass.
    pub const PENALTY: u32 = 7 << PENALTY_SHIFT;
    /// All bits but those of the last access.
    const BITS: u32 = (1 << LAST_ACCESS_SHIFT) - 1;
    /// The state bits that an item keeps when it moves to flash and back.
    const KEPT_ON_FLASH: u32 = Self::FETCHED | Self::STALE | Self::TOKEN_SENT | Self::BINARY_KEY;

    /// A state with the bits `bits` and a last access at `now_s`.
    #[inline]
    pub fn at(now_s: u32, bits: u32) -> State {
        State((now_s & LAST_ACCESS_MASK) << LAST_ACCESS_SHIFT | bits & Self::BITS)
    }

    /// Whether `bit` is set.
    #[inline]
    pub fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    /// The state bits and the penalty, without the time of the last access.
    #[inline]
    pub fn bits(self) -> u32 {
        self.0 & Self::BITS
    }

    /// The same last access with other state bits and another penalty.
    #[inline]
    pub fn with_bits(self, bits: u32) -> State {
        State(self.0 & !Self::BITS | bits & Self::BITS)
    }

    /// The number of the item's penalty subclass, at most 6. `None`: the penalty is unknown.
    #[inline]
    pub fn penalty(self) -> Option<u8> {
        (((self.0 & Self::PENALTY) >> PENALTY_SHIFT) as u8).checked_sub(1)
    }

    /// The same state with another penalty subclass.
    ///
    /// # Panics
    /// In debug builds, if the number is above 6.
    #[inline]
    pub fn with_penalty(self, subclass: Option<u8>) -> State {
        let field = subclass.map_or(0, |number| u32::from(number) + 1);
        debug_assert!(field <= PENALTY_MAX + 1, "a penalty subclass takes three bits");
        State(self.0 & !Self::PENALTY | field << PENALTY_SHIFT & Self::PENALTY)
    }

    /// The same state with the penalty subclass of another one.
    #[inline]
    pub fn with_penalty_of(self, other: State) -> State {
        State(self.0 & !Self::PENALTY | other.0 & Self::PENALTY)
    }

    /// What flash keeps of the state, in one byte: the state bits that are kept there, and the penalty. The byte of
    /// an item without such bits and without a known penalty is 0. Bit 7 is free for [`FlashState`].
    ///
    /// ```text
    ///   7   6     4   3            2            1       0
    /// +---+---------+------------+------------+-------+---------+
    /// | 0 | penalty | binary key | token sent | stale | fetched |
    /// +---+---------+------------+------------+-------+---------+
    /// ```
    fn flash_byte(self) -> u8 {
        let penalty = (self.0 & Self::PENALTY) >> PENALTY_SHIFT;
        (self.0 & Self::KEPT_ON_FLASH | penalty << PENALTY_SHIFT_ON_FLASH) as u8
    }

    /// The state of an item that comes from flash, without a last access. The inverse of [`State::flash_byte`].
    fn from_flash_byte(byte: u8) -> State {
        let penalty = u32::from(byte) >> PENALTY_SHIFT_ON_FLASH << PENALTY_SHIFT & Self::PENALTY;
        State(u32::from(byte) & Self::KEPT_ON_FLASH | penalty)
    }

    /// Seconds since the last access. For an item idle for longer than 97 days the answer is too small by a
    /// multiple of 97 days.
    #[inline]
    pub fn idle_s(self, now_s: u32) -> u32 {
        now_s.wrapping_sub(self.0 >> LAST_ACCESS_SHIFT) & LAST_ACCESS_MASK
    }
}

/// How the CAS number of an item is written down, relative to the base of its column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CasForm {
    /// The number is so much above the base: less than 2^19.
    Near(u32),
    /// The number is so much above the base less 2^50: less than 2^51. A word of 32 bits follows. An item has this
    /// form if it was moved to a column of much younger or older items, or if its column was filled slowly.
    Far(u64),
    /// The whole number, which a client chose, follows in two words.
    Whole,
}

impl CasForm {
    /// What is subtracted from the base of a far number.
    const FAR_BELOW: u64 = 1 << (CAS_LONG_BITS - 1);

    /// The form of the number `cas` in a column with the base `base`.
    #[inline]
    pub fn of(cas: u64, base: u64) -> CasForm {
        let near = cas.wrapping_sub(base);
        if near >> CAS_DELTA_BITS == 0 {
            return CasForm::Near(near as u32);
        }
        let far = near.wrapping_add(Self::FAR_BELOW);
        if far >> CAS_LONG_BITS == 0 { CasForm::Far(far) } else { CasForm::Whole }
    }

    /// The number, in a column with the base `base`. `whole` is asked for one that follows.
    #[inline]
    pub fn cas(self, base: u64, whole: impl FnOnce() -> u64) -> u64 {
        match self {
            CasForm::Near(delta) => base.wrapping_add(delta.into()),
            CasForm::Far(delta) => base.wrapping_add(delta).wrapping_sub(Self::FAR_BELOW),
            CasForm::Whole => whole(),
        }
    }

    /// Number of 32-bit words that follow.
    #[inline]
    pub fn words(self) -> usize {
        match self {
            CasForm::Near(_) => 0,
            CasForm::Far(_) => 1,
            CasForm::Whole => 2,
        }
    }
}

/// What the value of an item is to clients of Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Kind {
    /// A string.
    #[default]
    Text,
    /// A string that was changed in parts (`OBJECT ENCODING` tells).
    Parts,
    /// A hash.
    Hash,
    /// A set.
    Set,
    /// A sorted set.
    SortedSet,
}

impl Kind {
    /// The client flags of the items of collections: where an item has none, nobody has to ask for its kind.
    pub const COLLECTION_FLAGS: u32 = 1;

    /// Whether it is a hash, a set or a sorted set.
    #[inline]
    pub fn is_collection(self) -> bool {
        matches!(self, Kind::Hash | Kind::Set | Kind::SortedSet)
    }

    fn from_bits(bits: u32) -> Kind {
        match bits {
            1 => Kind::Parts,
            2 => Kind::Hash,
            3 => Kind::Set,
            4 => Kind::SortedSet,
            _ => Kind::Text,
        }
    }
}

/// What few items need beside their state: the extension of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extension {
    /// The milliseconds before the second of its expiry at which the item expires, at most 999.
    pub early_ms: u16,
    /// What the value is to clients of Redis.
    pub kind: Kind,
    /// What is stored is the value compressed.
    pub is_compressed: bool,
}

impl Extension {
    /// Bits of the milliseconds.
    const MS_BITS: u32 = 10;
    /// Where the bit of a compressed value is in the word.
    const COMPRESSED_SHIFT: u32 = 13;
    /// Where the bits of the expiry begin in the word.
    const EXPIRY_SHIFT: u32 = 14;

    /// Whether the item needs the word, if its value is stored plain.
    #[inline]
    pub fn is_needed(self) -> bool {
        self.early_ms != 0 || self.kind != Kind::Text
    }

    /// The low 14 bits of the word.
    fn bits(self) -> u32 {
        debug_assert!(self.early_ms < 1000, "milliseconds are a part of a second");
        u32::from(self.is_compressed) << Self::COMPRESSED_SHIFT
            | (self.kind as u32) << Self::MS_BITS
            | u32::from(self.early_ms)
    }

    fn from_bits(bits: u32) -> Extension {
        Extension {
            early_ms: (bits & ((1 << Self::MS_BITS) - 1)) as u16,
            kind: Kind::from_bits(bits >> Self::MS_BITS & 0b111),
            is_compressed: bits >> Self::COMPRESSED_SHIFT & 1 != 0,
        }
    }

    /// The word of a record whose expiry word is `expiry_s`.
    #[inline]
    pub fn pack(self, expiry_s: u32) -> u32 {
        expiry_s << Self::EXPIRY_SHIFT | self.bits()
    }

    /// The inverse of [`Extension::pack`]. `None` if the word was made for another expiry.
    #[inline]
    pub fn unpack(word: u32, expiry_s: u32) -> Option<Extension> {
        (word ^ expiry_s << Self::EXPIRY_SHIFT <= u32::MAX >> (32 - Self::EXPIRY_SHIFT))
            .then(|| Extension::from_bits(word))
    }

    /// What a word says of the value alone, whichever expiry it was made for.
    #[inline]
    pub fn unpack_lasting(word: u32) -> Extension {
        Extension { early_ms: 0, ..Extension::from_bits(word) }
    }
}

/// What flash keeps of an item's state and extension. Most items need no byte, few more than one.
///
/// ```text
///  23 22 21  20  18 17        8   7   6       0
/// +-----+---+------+-----------+---+-----------+     X = the two upper bytes are there
/// |  0  | Z | kind | early, ms | X |  state    |     Z, kind and early: see the extension of a record
/// +-----+---+------+-----------+---+-----------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlashState(u32);

impl FlashState {
    /// An item without state bits, of unknown penalty.
    pub const PLAIN: FlashState = FlashState(0);
    /// The two upper bytes are there.
    const EXTENDED: u32 = 1 << 7;

    /// What flash keeps of an item.
    pub fn of(state: State, extension: Extension) -> FlashState {
        let is_extended = extension.is_needed() || extension.is_compressed;
        let upper = if is_extended { Self::EXTENDED | extension.bits() << 8 } else { 0 };
        FlashState(u32::from(state.flash_byte()) | upper)
    }

    /// The state of an item that comes from flash, without a last access.
    pub fn state(self) -> State {
        State::from_flash_byte(self.0 as u8)
    }

    /// The same of an item whose value is stored compressed, or not.
    pub fn compressed(self, is_compressed: bool) -> FlashState {
        FlashState::of(self.state(), Extension { is_compressed, ..self.extension() })
    }

    /// The extension of an item that comes from flash.
    pub fn extension(self) -> Extension {
        Extension::from_bits(self.0 >> 8)
    }

    /// How many bytes it takes on flash: 0, 1 or 3.
    #[inline]
    pub fn length(self) -> usize {
        match self.0 {
            0 => 0,
            word if word & Self::EXTENDED != 0 => 3,
            _ => 1,
        }
    }

    /// The bytes, of which the first [`FlashState::length`] are kept.
    #[inline]
    pub fn to_bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }

    /// Reads the bytes that begin with `first`, and calls `more` if there are two more. `None` if there are not.
    pub fn from_bytes(first: u8, more: impl FnOnce() -> Option<[u8; 2]>) -> Option<FlashState> {
        let upper = match u32::from(first) & Self::EXTENDED {
            0 => 0,
            _ => u32::from(u16::from_le_bytes(more()?)) & ((1 << Extension::EXPIRY_SHIFT) - 1),
        };
        Some(FlashState(u32::from(first) | upper << 8))
    }
}

/// A header, unpacked: word 1 and the last 16 bits, and which optional fields are between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Key length in bytes, 1..=251. For a chunk: 24 bytes of bookkeeping.
    pub key_length: u8,
    /// Where the value is stored.
    pub layout: ValueLayout,
    /// Bytes of the value in this record. 0 for a chunked item, whose total length is a field of its own.
    pub value_length: u16,
    /// An expiry word follows.
    pub has_expiry: bool,
    /// A client-flags word follows.
    pub has_flags: bool,
    /// The CAS number.
    pub cas: CasForm,
    /// A word with the extension follows, if an expiry word does. Without one, the value is compressed.
    pub has_extension: bool,
}

/// Number of 32-bit words that the optional fields of `header` take.
#[inline]
pub fn word_count(header: &Header) -> usize {
    let layout = match header.layout {
        ValueLayout::Inline => 0,
        ValueLayout::Apart | ValueLayout::Chunk => 1,
        ValueLayout::Chunked => 3,
    };
    let extension = (header.has_extension && header.has_expiry) as usize;
    header.has_expiry as usize + extension + header.has_flags as usize + header.cas.words() + layout
}

impl Header {
    /// Word 1, the last 16 bits, and the word that follows a far CAS number.
    ///
    /// # Panics
    /// In debug builds, if the value is longer than [`VALUE_LENGTH_MAX`] or the CAS number does not fit its form.
    #[inline]
    pub fn pack(&self) -> (u32, u16, u32) {
        debug_assert!((self.value_length as usize) <= VALUE_LENGTH_MAX);
        let (high, far) = match self.cas {
            CasForm::Near(delta) => (delta, 0),
            CasForm::Far(delta) => ((delta >> 32) as u32, delta as u32),
            CasForm::Whole => (0, 0),
        };
        debug_assert!(high >> CAS_DELTA_BITS == 0);
        let word = (self.key_length as u32) << 24
            | (self.layout as u32) << 22
            | (self.has_flags as u32) << 21
            | (self.cas.words() as u32) << 19
            | (self.has_extension as u32) << 18
            | (self.value_length as u32) << 4
            | (self.has_expiry as u32) << 3
            | high >> 16;
        (word, high as u16, far)
    }

    /// The inverse of [`Header::pack`]. `far` is asked for the word that follows a far CAS number.
    #[inline]
    pub fn unpack(word: u32, last: u16, far: impl FnOnce() -> u32) -> Header {
        let high = (word & 7) << 16 | u32::from(last);
        Header {
            key_length: (word >> 24) as u8,
            layout: match word >> 22 & 3 {
                0 => ValueLayout::Inline,
                1 => ValueLayout::Apart,
                2 => ValueLayout::Chunked,
                _ => ValueLayout::Chunk,
            },
            value_length: (word >> 4 & VALUE_LENGTH_MAX as u32) as u16,
            has_expiry: word >> 3 & 1 != 0,
            has_extension: word >> 18 & 1 != 0,
            has_flags: word >> 21 & 1 != 0,
            cas: match word >> 19 & 3 {
                0 => CasForm::Near(high),
                1 => CasForm::Far(u64::from(high) << 32 | u64::from(far())),
                _ => CasForm::Whole,
            },
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

    /// A kind of values.
    fn kinds() -> impl Strategy<Value = Kind> {
        prop::sample::select(vec![Kind::Text, Kind::Parts, Kind::Hash, Kind::Set, Kind::SortedSet])
    }

    proptest! {
        #[test]
        fn words_round_trip(word: u32, last: u16, far: u32) {
            let header = Header::unpack(word, last, || far);
            let (packed, packed_last, packed_far) = header.pack();
            prop_assert_eq!(Header::unpack(packed, packed_last, || packed_far), header);
        }

        #[test]
        fn a_cas_number_takes_as_little_as_it_can(base: u64, cas: u64, steps in -(1i64 << 51)..1 << 51) {
            for (cas, words_max) in [
                (cas, 2),
                (base.wrapping_add_signed(steps >> 1), 1),
                (base.wrapping_add_signed((steps >> 32) & 0x7ffff), 0),
            ] {
                let form = CasForm::of(cas, base);
                prop_assert_eq!(form.cas(base, || cas), cas);
                prop_assert!(form.words() <= words_max, "{:?}", form);
                let header = Header {
                    key_length: 1,
                    layout: ValueLayout::Inline,
                    value_length: 0,
                    has_expiry: false,
                    has_flags: false,
                    has_extension: false,
                    cas: form,
                };
                let (word, last, far) = header.pack();
                prop_assert_eq!(Header::unpack(word, last, || far), header);
            }
        }

        #[test]
        fn each_field_of_the_state_keeps_to_its_bits(word: u32, now_s: u32, number in 0u8..7) {
            let state = State(word);
            let known = state.with_penalty(Some(number));
            prop_assert_eq!(known.penalty(), Some(number));
            prop_assert_eq!(known.with_penalty(None).penalty(), None);
            prop_assert_eq!(known.0 & !State::PENALTY, word & !State::PENALTY);
            prop_assert_eq!(state.with_penalty_of(known), known);
            prop_assert_eq!(known.with_penalty_of(state), state);
            prop_assert_eq!(known.idle_s(now_s), state.idle_s(now_s));
            let moved = State::at(now_s, known.bits());
            prop_assert_eq!((moved.idle_s(now_s), moved.bits()), (0, known.bits()));
            prop_assert_eq!(State(0).with_bits(known.bits()), State(known.bits()));
            prop_assert_eq!(known.with_bits(state.bits()), state);
        }

        #[test]
        fn flash_keeps_the_penalty_four_bits_and_the_extension(
            word: u32,
            early_ms in 0u16..1000,
            kind in kinds(),
            is_compressed: bool,
        ) {
            let (state, extension) = (State(word), Extension { early_ms, kind, is_compressed });
            let kept = FlashState::of(state, extension);
            prop_assert_eq!(kept.extension(), extension);
            let back = kept.state();
            prop_assert_eq!(back.penalty(), state.penalty());
            let bits = State::FETCHED | State::STALE | State::TOKEN_SENT | State::BINARY_KEY;
            prop_assert_eq!(back.0 & !State::PENALTY, word & bits);
            let bytes = kept.to_bytes();
            let more = || (kept.length() == 3).then_some([bytes[1], bytes[2]]);
            prop_assert_eq!(FlashState::from_bytes(bytes[0], more), Some(kept));
        }

        #[test]
        fn an_extension_belongs_to_its_expiry(
            expiry_s in 2u32..,
            other_s in 2u32..,
            early_ms in 0u16..1000,
            kind in kinds(),
            is_compressed: bool,
        ) {
            let extension = Extension { early_ms, kind, is_compressed };
            let word = extension.pack(expiry_s);
            prop_assert_eq!(Extension::unpack(word, expiry_s), Some(extension));
            let is_alike = (expiry_s ^ other_s) << 14 == 0;
            prop_assert_eq!(Extension::unpack(word, other_s).is_some(), is_alike);
            prop_assert_eq!(Extension::unpack_lasting(word), Extension { early_ms: 0, kind, is_compressed });
        }
    }

    #[test]
    fn an_item_of_unknown_penalty_needs_no_byte_on_flash() {
        let kept = FlashState::of(State::at(77, State::CLEAN), Extension::default());
        assert_eq!((kept, kept.length()), (FlashState::PLAIN, 0));
        assert_eq!(State::at(77, 0).penalty(), None);
    }

    #[test]
    fn the_last_access_is_known_for_ninety_seven_days() {
        let day_s = 24 * 60 * 60;
        assert_eq!(State::at(5, State::BITS).idle_s(5 + 97 * day_s), 97 * day_s);
    }

    #[test]
    fn a_plain_small_item_costs_ten_bytes() {
        let header = Header {
            key_length: 30,
            layout: ValueLayout::Inline,
            value_length: 64,
            has_expiry: false,
            has_flags: false,
            has_extension: false,
            cas: CasForm::Near(5),
        };
        assert_eq!(header.record_bytes(), 104); // 10 + 30 + 64
        let moved = Header { cas: CasForm::of(5, 1 << 40), ..header };
        assert_eq!(moved.record_bytes(), 108);
    }
}
