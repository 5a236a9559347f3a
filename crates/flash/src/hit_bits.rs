//! Which items were read since they were written: one bit for each item, found by hash.

use crate::shim::AtomicU64;
use std::sync::atomic::Ordering;

/// A bit set by hash for each item that was read. Bits are never cleared one by one. Two hashes may share a bit, so an
/// item may seem to have been read though it was not.
pub struct HitBits {
    words: Box<[AtomicU64]>,
}

impl HitBits {
    /// Bits for `items` items, none set.
    pub fn new(items: u64) -> HitBits {
        let words = items.div_ceil(64).max(1);
        HitBits { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The word that has the bit of a hash, and the bit.
    fn bit(&self, hash: u64) -> (&AtomicU64, u64) {
        let spread =
            hash.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let bits = self.words.len() as u128 * 64;
        let bit = ((spread as u128 * bits) >> 64) as usize;
        (&self.words[bit / 64], 1 << (bit % 64))
    }

    /// Notes that an item was read. It writes only the first time, so that later reads leave the cache line shared.
    pub fn mark(&self, hash: u64) {
        let (word, bit) = self.bit(hash);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Whether an item was read. The answer may be yes because another item was.
    pub fn is_hit(&self, hash: u64) -> bool {
        let (word, bit) = self.bit(hash);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Memory for `items` items, bytes.
    pub fn bytes_for(items: u64) -> u64 {
        size_of::<HitBits>() as u64 + items.div_ceil(64).max(1) * 8
    }

    /// Memory taken, bytes.
    pub fn bytes(&self) -> usize {
        size_of::<HitBits>() + size_of_val(&*self.words)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn what_was_marked_is_hit(marked in prop::collection::hash_set(any::<u64>(), 0..200), items in 0u64..1000) {
            let bits = HitBits::new(items);
            marked.iter().for_each(|hash| bits.mark(*hash));
            prop_assert!(marked.iter().all(|hash| bits.is_hit(*hash)));
            prop_assert_eq!(bits.bytes() as u64, HitBits::bytes_for(items));
        }
    }

    #[test]
    fn a_bit_an_item_and_few_are_taken_for_others() {
        let items = 100_000u64;
        let bits = HitBits::new(items);
        assert!(bits.bytes() as u64 <= items / 8 + 64);
        // Hashes of a narrow range, as a segment of a generation has them.
        let hash = |n: u64| {
            let x = (n + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let x = (x ^ (x >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (x ^ (x >> 29)) / 100
        };
        let marked: HashSet<u64> = (0..items / 10).map(hash).collect();
        marked.iter().for_each(|hash| bits.mark(*hash));
        let others = (items..2 * items).filter(|n| bits.is_hit(hash(*n))).count() as f64 / items as f64;
        // One bit in ten is set, less what coincides: 1 - e^-0.1.
        assert!((0.08..0.11).contains(&others), "{others}");
    }
}
