//! A hash map from keys of 64 bits, the same on every machine and in every run. Its order is never looked at.

use crate::mix::{GOLDEN, mix64};
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
    mix64(word.wrapping_add(GOLDEN))
}
