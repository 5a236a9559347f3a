//! The one hash of a key.
//!
//! Every room that needs randomness about a key takes it from the same 64 bits: the low bits choose the
//! bucket, the high 16 are the tag. The hash is seeded at start so that a client cannot aim at a bucket;
//! a bucket that can grow only so far (see the index) is the defence that does not depend on the seed.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};

/// The 64-bit hash of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// The 16 bits kept in the index beside the location. They are the top bits, so they are independent
    /// of the bucket bits for any table of up to 2^48 buckets.
    #[inline]
    pub fn tag(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// A seeded hash function; one per server, drawn at start.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    secrets: RapidSecrets,
}

impl KeyHasher {
    /// A hasher whose every secret derives from `seed`. The same seed gives the same hashes on any machine.
    pub fn with_seed(seed: u64) -> Self {
        KeyHasher { secrets: RapidSecrets::seed(seed) }
    }

    /// A hasher seeded from the operating system's randomness (by way of the standard library's map keys).
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
        // 4096 draws from 65536: the expected number of distinct tags is about 3970.
        assert!(tags.len() > 3900, "{}", tags.len());
    }
}
