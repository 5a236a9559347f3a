//! From the text of a key to its number.

use larder_item::KeyHasher;

/// The seed under which the text of keys is hashed; it never changes, so that numbers stay comparable
/// between runs.
const SEED: u64 = 0x6c61_7264_6572_0001;

/// Reads keys: a decimal number as [`crate::Request::key`] would be written is itself, any other text its
/// hash.
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
}

/// A number in the one way in which it is written down, below 2^64.
#[inline]
fn canonical_decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 || (text[0] == b'0' && text.len() > 1) {
        return None;
    }
    let mut value = 0u64;
    for &octet in text {
        let digit = octet.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}
