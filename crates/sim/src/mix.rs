//! How this crate scrambles 64-bit keys, and the hash map that uses it.
//!
//! Everything here gives the same numbers on every machine and in every run.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// The step of SplitMix64: 2^64 divided by the golden ratio, an odd number.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection of 64 bits that looks random.
#[inline]
pub(crate) fn mix64(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

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

/// The hash of a key. It differs from [`mix64`] in that key 0 does not hash to 0.
#[inline]
pub(crate) fn hash_of(key: u64) -> u64 {
    mix64(key.wrapping_add(GOLDEN))
}

/// Hashes 64-bit keys by [`hash_of`].
#[derive(Clone, Copy, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = hash_of(self.0 ^ u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, key: u64) {
        self.0 = hash_of(key);
    }
}

/// A hash map from 64-bit keys. No result may depend on the order of its entries.
pub(crate) type KeyMap<V> = HashMap<u64, V, BuildHasherDefault<KeyHasher>>;

/// A hash set of 64-bit keys. No result may depend on the order of its entries.
pub(crate) type KeySet = HashSet<u64, BuildHasherDefault<KeyHasher>>;
