//! The hash of a key.
//!
//! All randomness about a key comes from one 64-bit hash. The low bits choose the bucket in the index, and the high
//! 16 bits are the tag of the index entry. The hash is seeded when the server starts, so that a client cannot
//! choose keys that share a bucket. A second defence does not depend on the seed: a bucket of the index never holds
//! more than a fixed number of entries.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};

/// The 64-bit hash of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// The 16 bits that an index entry keeps beside the location. They are the top bits of the hash, and so
    /// independent of the bits that choose the bucket, for a table of up to 2^48 buckets.
    #[inline]
    pub fn tag(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// A seeded hash function. A server makes one when it starts.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    secrets: RapidSecrets,
}

impl KeyHasher {
    /// A hasher whose secrets all derive from `seed`. The same seed gives the same hashes on every machine.
    pub fn with_seed(seed: u64) -> Self {
        KeyHasher { secrets: RapidSecrets::seed(seed) }
    }

    /// A hasher seeded with randomness of the operating system, which the standard library provides for its hash
    /// maps.
    pub fn random() -> Self {
        use std::hash::{BuildHasher, Hasher};
        let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
        Self::with_seed(seed)
    }

    /// Hashes a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(rapidhash_v3_nano_inline::<true, false>(key, &self.secrets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_the_hash() {
        let (a, b) = (KeyHasher::with_seed(1), KeyHasher::with_seed(2));
        assert_eq!(a.hash(b"key"), KeyHasher::with_seed(1).hash(b"key"));
        assert_ne!(a.hash(b"key"), b.hash(b"key"));
    }

    #[test]
    fn tags_of_neighbouring_keys_spread() {
        let hasher = KeyHasher::with_seed(7);
        let tags: std::collections::HashSet<u16> =
            (0..4096u32).map(|n| hasher.hash(&n.to_le_bytes()).tag()).collect();
        // 4096 samples of 65536 values: about 3970 distinct tags are expected.
        assert!(tags.len() > 3900, "{}", tags.len());
    }
}
