//! Mixing: every bit of the result depends on every bit of the input.

use crate::reference::Digest;

/// 2^64 divided by the golden ratio; odd.
const FIRST: u64 = 0x9E37_79B9_7F4A_7C15;
const SECOND: u64 = 0xD6E8_FEB8_6659_FD93;

/// Mixes 64 bits, one to one.
#[inline]
pub(crate) fn scramble(word: u64) -> u64 {
    let x = word.wrapping_mul(FIRST);
    let x = (x ^ x >> 32).wrapping_mul(SECOND);
    x ^ x >> 32
}

/// The 64 bits that decide where a key's bits are in both hitmaps. No two digests have the same ones.
#[inline]
pub fn mix(digest: Digest) -> u64 {
    scramble(u64::from(digest.bits()) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_those_that_other_devices_compute() {
        // Computed in Python with integers of any length.
        for (digest, bits) in
            [(0, 0x17fb_89ee_9dca_b42a), (1, 0xc99d_164a_ddff_6dc2), (0x7fff_ffff, 0x4881_3b23_2f2d_ba9d)]
        {
            assert_eq!(mix(Digest::from_bits(digest)), bits, "{digest}");
        }
    }
}
