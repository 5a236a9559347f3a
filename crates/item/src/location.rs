//! Where the record of an item begins.
//!
//! ```text
//!  45   44                                  0
//! +---+--------------------------------------+
//! | F |  offset in the arena / 4 bytes       |
//! +---+--------------------------------------+
//!   F = on flash: the other 45 bits belong to the flash tier
//! ```
//!
//! The size of a column is a power of two, and columns lie side by side in the arena. The column number is
//! therefore the high part of the offset, and the offset in the column is the low part. Neither takes a
//! multiplication.

/// Records begin at multiples of this many bytes.
pub const UNIT_BYTES: u64 = 4;

/// The 46-bit location of a record: column number and offset in one number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location(u64);

impl Location {
    /// Bits that a location takes in an entry.
    pub const BITS: u32 = 46;
    const ON_FLASH: u64 = 1 << 45;

    /// The location of the record that begins `offset` bytes into the arena.
    ///
    /// # Panics
    /// In debug builds, if the offset is not a multiple of [`UNIT_BYTES`] or lies beyond 128 TiB.
    #[inline]
    pub fn from_offset(offset: u64) -> Self {
        let unit = offset / UNIT_BYTES;
        debug_assert!(offset.is_multiple_of(UNIT_BYTES), "records begin on {UNIT_BYTES}-byte boundaries");
        debug_assert!(unit < Self::ON_FLASH, "the arena ends below 128 TiB");
        Location(unit)
    }

    /// A location from the 46 bits that an entry keeps.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Location(bits & ((1 << Self::BITS) - 1))
    }

    /// Bits that the locations in an arena of `arena_bytes` bytes need.
    pub fn bits_for(arena_bytes: u64) -> u32 {
        let units = arena_bytes.div_ceil(UNIT_BYTES);
        units.next_power_of_two().trailing_zeros().min(Self::BITS)
    }

    /// The 46 bits that an entry keeps.
    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Offset from the start of the arena, in bytes. It has no meaning for a location on flash.
    #[inline]
    pub fn offset(self) -> u64 {
        self.0 * UNIT_BYTES
    }

    /// Whether the item is on flash and not in memory.
    #[inline]
    pub fn is_on_flash(self) -> bool {
        self.0 & Self::ON_FLASH != 0
    }
}

impl std::fmt::Debug for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_on_flash() { write!(f, "flash:{:x}", self.0) } else { write!(f, "@{:x}", self.offset()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_needs_bits_for_its_last_record() {
        for (arena_bytes, bits) in [(2 << 20, 19), (3 << 20, 20), (16 << 30, 32), (64 << 40, 44)] {
            assert_eq!(Location::bits_for(arena_bytes), bits);
            assert!(Location::from_offset(arena_bytes - 12).bits() < (1 << bits) - 1);
        }
    }

    #[test]
    fn bits_and_offset_round_trip() {
        for offset in [0, 4, 8, 131_072, (1 << 46) - 4, (1 << 47) - 4] {
            let location = Location::from_offset(offset);
            assert_eq!(location.offset(), offset);
            assert_eq!(Location::from_bits(location.bits()), location);
            assert!(!location.is_on_flash());
        }
    }
}
