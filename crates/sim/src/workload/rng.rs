//! Random numbers that are the same on every machine: SplitMix64, xoshiro256++, and a keyed permutation.

pub(super) use crate::mix::{SplitMix, mix64};

/// xoshiro256++ (Blackman and Vigna, ACM TOMS 2021).
pub(super) struct Rng([u64; 4]);

impl Rng {
    /// A generator whose state is filled by SplitMix64, as its authors recommend.
    pub(super) fn new(seed: u64) -> Rng {
        let mut split = SplitMix::new(seed);
        Rng(std::array::from_fn(|_| split.next()))
    }

    /// 64 random bits.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A random number below `n`. The probabilities are equal to within `n` / 2^64.
    #[inline]
    pub(super) fn below(&mut self, n: u64) -> u64 {
        below(self.next(), n)
    }
}

/// Maps 64 random bits to a number below `n` by multiplication (Lemire, ACM TOMACS 2019, without rejection).
#[inline]
pub(super) fn below(bits: u64, n: u64) -> u64 {
    ((bits as u128 * n as u128) >> 64) as u64
}

/// The threshold below which 64 random bits fall with this probability.
pub(super) fn threshold(probability: f64) -> u64 {
    (probability * 18_446_744_073_709_551_616.0) as u64
}

/// A random permutation of `0..n` that is computed instead of stored. It spreads ranks over the keys, one key per
/// rank.
///
/// Three rounds of "add, multiply by an odd number, xor with the upper half" are a bijection of the next power of
/// two. A result outside `0..n` is permuted again (cycle walking: Black and Rogaway, CT-RSA 2002), which happens for
/// fewer than half of the inputs.
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    n: u64,
    mask: u64,
    shift: u32,
    rounds: [(u64, u64); 3],
}

impl Permutation {
    pub(super) fn new(n: u64, seed: u64) -> Permutation {
        let mask = n.next_power_of_two() - 1;
        let mut split = SplitMix::new(seed);
        Permutation {
            n,
            mask,
            shift: (mask.count_ones() / 2).max(1),
            rounds: std::array::from_fn(|_| (split.next(), split.next() | 1)),
        }
    }

    /// The image of `x`, which must be below `n`.
    #[inline]
    pub(super) fn apply(&self, mut x: u64) -> u64 {
        loop {
            for (add, multiply) in self.rounds {
                x = x.wrapping_add(add).wrapping_mul(multiply) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.n {
                return x;
            }
        }
    }
}
