//! Renders a key number as the text of a key.
//!
//! The number is written in base 64 (at most 11 digits, without leading zeros) after the prefix, and padded with dots
//! to the length that the trace gives. A dot is not a digit, so different numbers never give the same text. If the
//! length of the trace is too short, the key becomes longer.

use super::options::Protocol;
use crate::mix::mix64;

/// The longest key of memcached.
const MEMCACHED_KEY_BYTES_MAX: usize = 250;

const DIGITS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
const FILLER: [u8; 64] = [b'.'; 64];

/// Renders keys.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: Vec<u8>,
    bytes_max: usize,
}

impl Keys {
    /// Keys that start with `prefix`.
    pub(super) fn new(prefix: &str, protocol: Protocol) -> Keys {
        let bytes_max = match protocol {
            Protocol::Memcached => MEMCACHED_KEY_BYTES_MAX,
            Protocol::Resp => u16::MAX as usize,
        };
        Keys { prefix: prefix.as_bytes().to_vec(), bytes_max }
    }

    /// Length of the text of key `key` in bytes, where the trace gives `key_bytes`.
    #[inline]
    pub(super) fn length(&self, key: u64, key_bytes: u16) -> usize {
        let needed = self.prefix.len() + digits(key);
        needed.max(usize::from(key_bytes).min(self.bytes_max))
    }

    /// Appends the text to `out`. `length` is the result of [`Keys::length`].
    #[inline]
    pub(super) fn put(&self, out: &mut Vec<u8>, key: u64, length: usize) {
        out.extend_from_slice(&self.prefix);
        let count = digits(key);
        let mut text = [0u8; 11];
        let mut rest = key;
        for digit in text[..count].iter_mut().rev() {
            *digit = DIGITS[(rest & 63) as usize];
            rest >>= 6;
        }
        out.extend_from_slice(&text[..count]);
        let mut missing = length - self.prefix.len() - count;
        while missing > 0 {
            let piece = missing.min(FILLER.len());
            out.extend_from_slice(&FILLER[..piece]);
            missing -= piece;
        }
    }

    /// The identity of a key: a mix of its number and the length of its text.
    #[inline]
    pub(super) fn identity(key: u64, length: usize) -> u64 {
        mix64(key.wrapping_add((length as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
}

/// The number of base-64 digits of a number.
#[inline]
fn digits(key: u64) -> usize {
    ((64 - (key | 1).leading_zeros()) as usize).div_ceil(6)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn text(keys: &Keys, key: u64, key_bytes: u16) -> Vec<u8> {
        let mut out = Vec::new();
        let length = keys.length(key, key_bytes);
        keys.put(&mut out, key, length);
        assert_eq!(out.len(), length);
        out
    }

    #[test]
    fn keys_have_the_length_of_the_trace_where_it_suffices() {
        let keys = Keys::new("t:", Protocol::Memcached);
        assert_eq!(text(&keys, 0, 0), b"t:0");
        assert_eq!(text(&keys, 63, 5), b"t:_..");
        assert_eq!(text(&keys, 64, 4), b"t:10");
        assert_eq!(text(&keys, u64::MAX, 3).len(), 13);
        assert_eq!(text(&keys, 7, 200).len(), 200);
        assert_eq!(text(&keys, 7, 2000).len(), 250);
        assert_eq!(text(&Keys::new("", Protocol::Resp), 7, 2000).len(), 2000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn different_numbers_never_share_a_text(
            numbers in proptest::collection::vec((0u64..5000, 0u16..12), 1..400),
        ) {
            let keys = Keys::new("k", Protocol::Memcached);
            let mut owners: HashMap<Vec<u8>, u64> = HashMap::new();
            for (number, key_bytes) in numbers {
                let owner = *owners.entry(text(&keys, number, key_bytes)).or_insert(number);
                prop_assert_eq!(owner, number);
            }
        }
    }
}
