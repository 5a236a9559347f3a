//! Converts the text of a key into its number.

use larder_item::KeyHasher;

use super::field::digits;

/// The seed for hashing the text of keys. It never changes, so that key numbers stay comparable between runs.
const SEED: u64 = 0x6c61_7264_6572_0001;

/// Converts keys. A canonical decimal number stands for itself; any other text is hashed.
#[derive(Debug)]
pub(super) struct KeyReader {
    hasher: KeyHasher,
}

impl KeyReader {
    pub(super) fn new() -> KeyReader {
        KeyReader { hasher: KeyHasher::with_seed(SEED) }
    }

    /// The number of a key. `007` and numbers from 2^64 on are text.
    #[inline]
    pub(super) fn read(&self, text: &[u8]) -> u64 {
        canonical_decimal(text).unwrap_or_else(|| self.hasher.hash(text).0)
    }

    /// The number of the key that has the number `key` in a volume.
    #[inline]
    pub(super) fn in_volume(&self, volume: u64, key: u64) -> u64 {
        let mut both = [0; 16];
        both[..8].copy_from_slice(&volume.to_le_bytes());
        both[8..].copy_from_slice(&key.to_le_bytes());
        self.hasher.hash(&both).0
    }
}

/// The value of a decimal number below 2^64 without leading zeros.
#[inline]
fn canonical_decimal(text: &[u8]) -> Option<u64> {
    if text.len() > 1 && text[0] == b'0' { None } else { digits(text) }
}
