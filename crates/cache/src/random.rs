//! The random numbers of the keeper and of admission: fast, repeatable, not secret.

/// A generator: xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016).
pub(crate) struct Random(u64);

impl Random {
    /// A generator that starts at `seed`, which must not be 0.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 32 random bits.
    pub(crate) fn next_u32(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }

    /// A random number from 0 to `bound` - 1. `bound` is at most 2^32.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (u64::from(self.next_u32()) * bound) >> 32
    }
}
