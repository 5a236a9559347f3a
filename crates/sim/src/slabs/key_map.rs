//! A hash map from keys of 64 bits, the same on every machine and in every run. Its order is never looked at.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// From a key to the number of a node.
pub(super) type KeyMap = HashMap<u64, u32, BuildHasherDefault<KeyHasher>>;

/// Hashes one word by [`mix`].
#[derive(Clone, Copy, Default)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(word);
    }
}

/// A bijection in which every bit of the answer depends on every bit of `word` (the finalizer of SplitMix64,
/// Steele et al., OOPSLA 2014).
#[inline]
pub(super) fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
