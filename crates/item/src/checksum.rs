//! The checksum of a record, for memory that outlives its process.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

/// The same for every process: a later one checks what an earlier one wrote.
static SECRETS: RapidSecrets = RapidSecrets::seed(0x6c61_7264_6572_0001);
/// An odd number with about as many ones as zeros.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The checksum of two pieces of bytes, one behind the other, under `salt`. It is never 0. The same pieces under
/// another salt have another checksum. A change of this function is a change of the format of kept memory.
#[inline]
pub fn checksum(salt: u64, pieces: [&[u8]; 2]) -> u32 {
    let hash = |piece: &[u8]| rapidhash_v3_micro_inline::<true, false>(piece, &SECRETS);
    let mut mixed = hash(pieces[0]) ^ salt.wrapping_mul(MULTIPLIER);
    if !pieces[1].is_empty() {
        mixed = mixed.wrapping_mul(MULTIPLIER).rotate_left(29) ^ hash(pieces[1]);
    }
    let product = u128::from(mixed) * u128::from(MULTIPLIER);
    let folded = (product >> 64) as u64 ^ product as u64;
    (folded as u32 ^ (folded >> 32) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn the_checksum_is_the_one_that_earlier_processes_wrote() {
        assert_eq!(checksum(1, [b"key", b""]), 506_673_636);
        assert_eq!(
            checksum(2, [b"a longer row of some record, key and value", b"and a value apart"]),
            3_211_371_313
        );
    }

    #[test]
    fn checksums_of_neighbours_spread() {
        let sums: HashSet<u32> = (0..1u64 << 16).map(|salt| checksum(salt, [b"record", b""])).collect();
        assert!(sums.len() > 65_500, "{}", sums.len());
    }

    proptest! {
        #[test]
        fn every_byte_counts(
            salt: u64,
            row in prop::collection::vec(any::<u8>(), 1..200),
            apart in prop::collection::vec(any::<u8>(), 1..200),
            at: usize,
            flip in 1u8..,
        ) {
            let sum = checksum(salt, [&row, &apart]);
            prop_assert_ne!(sum, 0);
            prop_assert_ne!(sum, checksum(salt ^ 1, [&row, &apart]));
            let (mut other_row, mut other_apart) = (row.clone(), apart.clone());
            other_row[at % row.len()] ^= flip;
            other_apart[at % apart.len()] ^= flip;
            prop_assert_ne!(sum, checksum(salt, [&other_row, &apart]));
            prop_assert_ne!(sum, checksum(salt, [&row, &other_apart]));
        }
    }
}
