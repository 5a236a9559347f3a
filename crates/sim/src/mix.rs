//! How this crate scrambles 64-bit keys, and its random numbers.
//!
//! Everything here gives the same numbers on every machine and in every run.

pub(crate) use larder_curve::mix::{GOLDEN, KeyMap, KeySet, hash_of, mix64};

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): the same seed gives the same random numbers everywhere.
#[derive(Clone)]
pub(crate) struct SplitMix {
    state: u64,
}

impl SplitMix {
    /// The generator of `seed`; every seed is good.
    pub(crate) fn new(seed: u64) -> SplitMix {
        SplitMix { state: seed }
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix64(self.state)
    }

    /// A random number below `bound`, which must be at least 1.
    #[inline]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u32
    }
}
