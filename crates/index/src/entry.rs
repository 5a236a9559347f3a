//! One entry: a 64-bit word.
//!
//! ```text
//!  63            48 47    46 45      46-g 45-g                            0
//! +----------------+--------+------------+---------------------------------+
//! |      tag       | warmth |   growth   |  location, each bit inverted    |
//! +----------------+--------+------------+---------------------------------+
//! ```
//!
//! The word 0 means "no entry". The location is stored inverted, because otherwise the first record of the arena
//! (location 0, tag 0, warmth 0) would be that word. With the inversion only the highest location would be it, and no
//! record begins there.
//!
//! An arena needs fewer bits than a location has. The `g` bits that are left hold the next bits of the hash that growth
//! will ask for, so that a bucket can split without reading the records of its entries. A bucket whose entries are
//! where they are by `level` bits of their hashes has the bits from [`Format::window`] on; the window moves on when its
//! last bit was used. With `g` = 0 every split reads records.

use larder_item::{KeyHash, Location};

/// The highest warmth. At this warmth hits no longer write to the entry.
pub const WARMTH_MAX: u8 = 3;

pub(crate) const TAG_SHIFT: u32 = 48;
pub(crate) const WARMTH_SHIFT: u32 = Location::BITS;
pub(crate) const WARMTH_ONE: u64 = 1 << WARMTH_SHIFT;
const WARMTH_MASK: u64 = 3 << WARMTH_SHIFT;
const TAG_MASK: u64 = u64::MAX << TAG_SHIFT;
/// The most bits of the hash that an entry has for growth.
const GROWTH_BITS_MAX: u32 = 20;

const _: () = assert!(Location::BITS + 2 + 16 == 64);

/// What the index knows about an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Where the record begins.
    pub location: Location,
    /// How often the entry was marked since it was inserted, up to [`WARMTH_MAX`]. A mark that races with a writer
    /// or another mark may be missing.
    pub warmth: u8,
}

/// How the words of one index are divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// The bits of the location.
    location_mask: u64,
    growth_bits: u32,
}

impl Format {
    /// Words for locations of `location_bits` bits.
    pub(crate) fn new(location_bits: u32) -> Format {
        let growth_bits = (Location::BITS - location_bits).min(GROWTH_BITS_MAX);
        Format { location_mask: (1 << (Location::BITS - growth_bits)) - 1, growth_bits }
    }

    /// The bits of the location.
    #[inline(always)]
    pub(crate) fn location_mask(self) -> u64 {
        self.location_mask
    }

    /// Packs the entry of `hash` into its word, for a bucket of `level`.
    #[inline]
    pub(crate) fn pack(self, hash: KeyHash, level: u32, location: Location, warmth: u8) -> u64 {
        debug_assert!(warmth <= WARMTH_MAX && location.bits() <= self.location_mask, "{location:?}");
        let word = tag_word(hash)
            | (warmth.min(WARMTH_MAX) as u64) << WARMTH_SHIFT
            | self.growth(hash, level)
            | (location.bits() ^ self.location_mask);
        debug_assert!(word != 0, "no record begins at the highest location");
        word
    }

    /// `word` with another location and warmth.
    #[inline]
    pub(crate) fn moved(self, word: u64, location: Location, warmth: u8) -> u64 {
        word & !(WARMTH_MASK | self.location_mask)
            | (warmth.min(WARMTH_MAX) as u64) << WARMTH_SHIFT
            | (location.bits() ^ self.location_mask)
    }

    /// The location and the warmth in `word`.
    #[inline]
    pub(crate) fn unpack(self, word: u64) -> Entry {
        Entry { location: Location::from_bits(!word & self.location_mask), warmth: warmth_of(word) }
    }

    /// Whether `word` has the tag of `hash` and the location `at`.
    #[inline]
    pub(crate) fn is_at(self, word: u64, hash: KeyHash, at: Location) -> bool {
        word != 0
            && word & (TAG_MASK | self.location_mask) == tag_word(hash) | (at.bits() ^ self.location_mask)
    }

    /// The lowest of the bits of the hash that entries of a bucket of `level` have. Without growth bits there is none.
    fn window(self, level: u32) -> u32 {
        level - level.checked_rem(self.growth_bits).unwrap_or(0)
    }

    /// The growth bits of `hash` at their place in an entry of a bucket of `level`.
    fn growth(self, hash: KeyHash, level: u32) -> u64 {
        let bits = hash.0 >> self.window(level) & ((1 << self.growth_bits) - 1);
        bits << (WARMTH_SHIFT - self.growth_bits)
    }

    /// Whether a bucket of `level` came to that level by a split that had to read the records of its entries, because
    /// they had no bits for that level.
    pub(crate) fn is_renewed_at(self, level: u32) -> bool {
        self.growth_bits == 0 || level.is_multiple_of(self.growth_bits)
    }

    /// Whether an entry moves when its bucket of `level` splits. Not for buckets that are renewed then.
    #[inline]
    pub(crate) fn moves(self, word: u64, level: u32) -> bool {
        word >> (WARMTH_SHIFT - self.growth_bits + level % self.growth_bits) & 1 != 0
    }

    /// `word`, an entry of `hash`, with the growth bits that a bucket of `level` needs.
    pub(crate) fn renewed(self, word: u64, hash: KeyHash, level: u32) -> u64 {
        let growth_mask = ((1 << self.growth_bits) - 1) << (WARMTH_SHIFT - self.growth_bits);
        word & !growth_mask | self.growth(hash, level)
    }
}

/// The tag of `hash` at its position in an entry. All other bits are 0.
#[inline]
pub(crate) fn tag_word(hash: KeyHash) -> u64 {
    (hash.tag() as u64) << TAG_SHIFT
}

/// The warmth in `word`.
#[inline]
pub(crate) fn warmth_of(word: u64) -> u8 {
    (word >> WARMTH_SHIFT & 3) as u8
}

/// `word` without its warmth. Equal results mean the same tag, location and growth bits.
#[inline]
pub(crate) fn identity(word: u64) -> u64 {
    word & !WARMTH_MASK
}

/// The two bits of the tag that choose a sub-bucket.
#[inline]
pub(crate) fn direction(word: u64) -> usize {
    (word >> TAG_SHIFT & 3) as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 1000 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn entries_round_trip(
            hash: u64,
            warmth in 0u8..4,
            bits in 0u64..(1 << Location::BITS) - 1,
            location_bits in 10..=Location::BITS,
            level in 0u32..34,
        ) {
            let (hash, format) = (KeyHash(hash), Format::new(location_bits));
            let location = Location::from_bits(bits % ((1 << location_bits) - 1));
            let word = format.pack(hash, level, location, warmth);
            prop_assert_ne!(word, 0);
            prop_assert_eq!(format.unpack(word), Entry { location, warmth });
            prop_assert_eq!(word & TAG_MASK, tag_word(hash));
            prop_assert_eq!(identity(word), format.pack(hash, level, location, 0));
            prop_assert!(format.is_at(word, hash, location));
            let elsewhere = Location::from_bits((bits % ((1 << location_bits) - 1)) ^ 1);
            prop_assert!(!format.is_at(word, hash, elsewhere));
            prop_assert_eq!(format.moved(format.pack(hash, level, elsewhere, 1), location, warmth), word);
        }

        /// The bits of an entry say where it goes, whatever the level and the number of bits.
        #[test]
        fn an_entry_knows_where_growth_puts_it(hash: u64, location_bits in 10..=Location::BITS) {
            let (hash, format) = (KeyHash(hash), Format::new(location_bits));
            let mut word = format.pack(hash, 0, Location::from_offset(40), 2);
            for level in 0..34 {
                if !format.is_renewed_at(level + 1) {
                    prop_assert_eq!(format.moves(word, level), hash.0 >> level & 1 != 0, "level {}", level);
                } else {
                    word = format.renewed(word, hash, level + 1);
                }
                prop_assert_eq!(word, format.pack(hash, level + 1, Location::from_offset(40), 2));
            }
        }
    }

    #[test]
    fn the_first_record_of_the_arena_has_an_entry() {
        for location_bits in [30, Location::BITS] {
            assert_ne!(Format::new(location_bits).pack(KeyHash(0), 0, Location::from_offset(0), 0), 0);
        }
    }
}
