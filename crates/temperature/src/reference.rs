//! The access record of a request: four bytes.
//!
//! ```text
//!  31    30                                0
//! +-------+---------------------------------+
//! | store |  digest: bits 16..=46 of the hash|
//! +-------+---------------------------------+
//! ```
//!
//! Catalyst's reference pool holds hash digests of 4 bytes (section 3.2.1). Its Algorithm 2 also needs to know
//! which accesses were SETs, hence the store bit.

use larder_item::KeyHash;

/// 31 bits of a key's hash. A hitmap takes two keys with the same digest for one key; two given keys have the same
/// digest with a probability of 1 in 2^31.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Digest(u32);

impl Digest {
    /// Bits of a digest.
    pub const BITS: u32 = 31;
    const MASK: u32 = (1 << Self::BITS) - 1;

    /// The digest of a key's hash. It contains neither the tag of the index nor the lowest bits of the bucket.
    #[inline]
    pub fn of(hash: KeyHash) -> Digest {
        Digest((hash.0 >> 16) as u32 & Self::MASK)
    }

    /// The digest as a number below 2^31.
    #[inline]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The inverse of [`Digest::bits`]. Higher bits are ignored.
    #[inline]
    pub fn from_bits(bits: u32) -> Digest {
        Digest(bits & Self::MASK)
    }
}

/// One access: a digest, and whether the access was a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(transparent)]
pub struct Reference(u32);

impl Reference {
    const STORE: u32 = 1 << Digest::BITS;

    /// A hit of a GET.
    #[inline]
    pub fn read(digest: Digest) -> Reference {
        Reference(digest.0)
    }

    /// A SET, or a miss that was filled.
    #[inline]
    pub fn store(digest: Digest) -> Reference {
        Reference(digest.0 | Self::STORE)
    }

    /// The digest of the accessed key.
    #[inline]
    pub fn digest(self) -> Digest {
        Digest::from_bits(self.0)
    }

    /// Whether the access was a store.
    #[inline]
    pub fn is_store(self) -> bool {
        self.0 & Self::STORE != 0
    }

    /// The word itself.
    #[inline]
    pub fn bits(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_keeps_digest_and_kind() {
        for hash in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
            let digest = Digest::of(KeyHash(hash));
            assert_eq!(Digest::from_bits(digest.bits()), digest);
            let (read, store) = (Reference::read(digest), Reference::store(digest));
            assert_eq!((read.digest(), read.is_store()), (digest, false));
            assert_eq!((store.digest(), store.is_store()), (digest, true));
        }
    }
}
