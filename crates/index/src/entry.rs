//! One entry: a 64-bit word.
//!
//! ```text
//!  63            48 47    46 45                                          0
//! +----------------+--------+---------------------------------------------+
//! |      tag       | warmth |        location, each bit inverted          |
//! +----------------+--------+---------------------------------------------+
//! ```
//!
//! The word 0 means "no entry". The location is stored inverted, because otherwise the first record of the arena
//! (location 0, tag 0, warmth 0) would be that word. With the inversion only the location "on flash, all 45 bits
//! set" would be it, and no item uses that location.

use larder_item::{KeyHash, Location};

/// The highest warmth. At this warmth hits no longer write to the entry.
pub const WARMTH_MAX: u8 = 3;

pub(crate) const TAG_SHIFT: u32 = 48;
pub(crate) const WARMTH_SHIFT: u32 = Location::BITS;
pub(crate) const WARMTH_ONE: u64 = 1 << WARMTH_SHIFT;
const WARMTH_MASK: u64 = 3 << WARMTH_SHIFT;
const LOCATION_MASK: u64 = (1 << Location::BITS) - 1;

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

/// Packs an entry into its word.
#[inline]
pub(crate) fn pack(tag: u16, location: Location, warmth: u8) -> u64 {
    debug_assert!(warmth <= WARMTH_MAX);
    let word = (tag as u64) << TAG_SHIFT
        | (warmth.min(WARMTH_MAX) as u64) << WARMTH_SHIFT
        | (location.bits() ^ LOCATION_MASK);
    debug_assert!(word != 0, "the last location of the flash is not for use");
    word
}

/// The tag of `hash` at its position in an entry. All other bits are 0.
#[inline]
pub(crate) fn tag_word(hash: KeyHash) -> u64 {
    (hash.tag() as u64) << TAG_SHIFT
}

/// The inverse of [`pack`], without the tag.
#[inline]
pub(crate) fn unpack(word: u64) -> Entry {
    Entry { location: Location::from_bits(!word), warmth: warmth_of(word) }
}

/// The warmth in `word`.
#[inline]
pub(crate) fn warmth_of(word: u64) -> u8 {
    (word >> WARMTH_SHIFT & 3) as u8
}

/// `word` without its warmth. Equal results mean the same tag and location.
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
            cases: if cfg!(miri) { 20 } else { 1000 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn entries_round_trip(hash: u64, warmth in 0u8..4, bits in 0u64..(1 << 46) - 1) {
            let (hash, location) = (KeyHash(hash), Location::from_bits(bits));
            let word = pack(hash.tag(), location, warmth);
            prop_assert_ne!(word, 0);
            prop_assert_eq!(unpack(word), Entry { location, warmth });
            prop_assert_eq!(word ^ tag_word(hash) & u64::MAX << 48, word & u64::MAX >> 16);
            prop_assert_eq!(identity(word), pack(hash.tag(), location, 0));
        }
    }

    #[test]
    fn the_first_record_of_the_arena_has_an_entry() {
        assert_ne!(pack(0, Location::from_offset(0), 0), 0);
    }
}
