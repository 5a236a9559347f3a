//! How 64-bit keys are scrambled, and the hash map that uses it.
//!
//! Everything here gives the same numbers on every machine and in every run.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// The step of SplitMix64: 2^64 divided by the golden ratio, an odd number.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection of 64 bits that looks random.
#[inline]
pub fn mix64(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The hash of a key. It differs from [`mix64`] in that key 0 does not hash to 0.
#[inline]
pub fn hash_of(key: u64) -> u64 {
    mix64(key.wrapping_add(GOLDEN))
}

/// Hashes 64-bit keys by [`hash_of`].
#[derive(Clone, Copy, Default)]
pub struct KeyHasher(u64);

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
pub type KeyMap<V> = HashMap<u64, V, BuildHasherDefault<KeyHasher>>;

/// A hash set of 64-bit keys. No result may depend on the order of its entries.
pub type KeySet = HashSet<u64, BuildHasherDefault<KeyHasher>>;
