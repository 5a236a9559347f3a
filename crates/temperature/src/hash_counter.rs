//! A hash counter: a bit array in which every key has a few bits (Catalyst, section 3.1.1). It is a Bloom filter
//! that can be halved.
//!
//! Keys are given as their mixed bits, see [`crate::mix()`].

use crate::prefetch::prefetch;
use std::ops::Range;

/// Bits of the smallest counter: one cache line.
pub const COUNTER_BITS_MIN: u64 = 512;
/// Most bits that a key can have in a counter.
pub const HASH_BITS_MAX: u8 = 4;

const WORD_BITS: u64 = u64::BITS as u64;
/// The positions of a key are its mixed bits rotated by 0, 1, 2, 3 times this number. It is a third of a word, so
/// that three positions share few bits.
const TURN: u32 = 21;

/// A bit array. A key is *marked* if all its bits are set. A key that was never marked may seem to be marked; a key
/// that was marked always is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HashCounter {
    words: Vec<u64>,
    hash_bits: u8,
}

impl HashCounter {
    /// An empty counter of `bits` bits, in which each key has `hash_bits` bits.
    ///
    /// # Panics
    /// Unless `bits` is a power of two of at least [`COUNTER_BITS_MIN`], and `hash_bits` is from 1 to
    /// [`HASH_BITS_MAX`].
    pub fn new(bits: u64, hash_bits: u8) -> HashCounter {
        assert!(bits >= COUNTER_BITS_MIN, "a counter of {bits} bits");
        HashCounter::from_words(vec![0; (bits / WORD_BITS) as usize], hash_bits)
    }

    /// A counter with these bits, starting with bit 0 of the first word: the inverse of [`HashCounter::words`].
    ///
    /// # Panics
    /// As [`HashCounter::new`], except that a counter may be smaller than the smallest one, because folding makes
    /// such counters.
    pub fn from_words(words: Vec<u64>, hash_bits: u8) -> HashCounter {
        assert!(words.len().is_power_of_two(), "{} words", words.len());
        assert!((1..=HASH_BITS_MAX).contains(&hash_bits), "{hash_bits} hash bits");
        HashCounter { words, hash_bits }
    }

    /// Number of bits in the array.
    pub fn bits(&self) -> u64 {
        self.words.len() as u64 * WORD_BITS
    }

    /// The array, starting with bit 0 of the first word.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Bits of a key in the array.
    pub(crate) fn hash_bits(&self) -> u8 {
        self.hash_bits
    }

    /// The `nth` bit of a key: the index of its word, and the bit in the word.
    #[inline(always)]
    pub(crate) fn word_and_bit(&self, mixed: u64, nth: u8) -> (usize, u64) {
        let position = mixed.rotate_left(TURN * u32::from(nth)) & (self.bits() - 1);
        ((position / WORD_BITS) as usize, 1 << (position % WORD_BITS))
    }

    /// Sets the bits of a key.
    #[inline]
    pub fn mark(&mut self, mixed: u64) {
        for nth in 0..self.hash_bits {
            self.mark_one(mixed, nth);
        }
    }

    /// Sets the `nth` bit of a key.
    #[inline]
    pub(crate) fn mark_one(&mut self, mixed: u64, nth: u8) {
        let (word, bit) = self.word_and_bit(mixed, nth);
        self.words[word] |= bit;
    }

    /// Whether all bits of a key are set.
    #[inline]
    pub fn is_marked(&self, mixed: u64) -> bool {
        // No early exit: a mispredicted branch costs more than the reads that it would save.
        let mut all = true;
        for nth in 0..self.hash_bits {
            let (word, bit) = self.word_and_bit(mixed, nth);
            all &= self.words[word] & bit != 0;
        }
        all
    }

    /// Prefetches the bits of a key.
    #[inline]
    pub(crate) fn prefetch(&self, mixed: u64) {
        for nth in 0..self.hash_bits {
            prefetch(&self.words, self.word_and_bit(mixed, nth).0);
        }
    }

    /// Replaces these of its own words by those of the fold of `upper`: low half OR high half (Catalyst, Fig. 4). When
    /// all words are replaced, a key that was marked in `upper` is marked here.
    ///
    /// # Panics
    /// Unless `upper` is twice as long, its keys have as many bits, and there are such words.
    pub fn become_fold_of(&mut self, upper: &HashCounter, words: Range<usize>) {
        assert_eq!(
            (2 * self.words.len(), self.hash_bits),
            (upper.words.len(), upper.hash_bits),
            "not a half"
        );
        assert!(!self.words.is_empty(), "one word has no half");
        let (low, high) = upper.words.split_at(self.words.len());
        let (low, high) = (&low[words.clone()], &high[words.clone()]);
        for ((word, low), high) in self.words[words].iter_mut().zip(low).zip(high) {
            *word = low | high;
        }
    }

    /// Marks all keys that are marked in `other`.
    ///
    /// # Panics
    /// Unless both counters have the same shape.
    pub fn or(&mut self, other: &HashCounter) {
        self.or_words(other, 0..self.words.len());
    }

    /// Sets the bits of these words that are set in `other`.
    ///
    /// # Panics
    /// Unless both counters have the same shape, and there are such words.
    pub(crate) fn or_words(&mut self, other: &HashCounter, words: Range<usize>) {
        assert_eq!((self.words.len(), self.hash_bits), (other.words.len(), other.hash_bits), "two shapes");
        for (word, other) in self.words[words.clone()].iter_mut().zip(&other.words[words]) {
            *word |= other;
        }
    }

    /// Doubles the array by repeating it: a position modulo twice the size is the old position, or the old position
    /// plus the size. The same keys are marked as before.
    pub fn double(&mut self) {
        self.words.extend_from_within(..);
    }

    /// Sets all bits to 0.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Sets the bits of these words to 0.
    pub(crate) fn clear_words(&mut self, words: Range<usize>) {
        self.words[words].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Digest, mix};
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// The positions of a key by their definition, one bit at a time.
    fn positions(mixed: u64, hash_bits: u8, bits: u64) -> HashSet<u64> {
        let bit = |n: u64| mixed >> (n % 64) & 1;
        (0..u64::from(hash_bits))
            .map(|nth| (0..64).map(|n| bit(n + 64 - 21 * nth % 64) << n).sum::<u64>() % bits)
            .collect()
    }

    /// The counter in half its size.
    fn fold(counter: &HashCounter) -> HashCounter {
        let mut half = HashCounter::from_words(vec![0; counter.words().len() / 2], counter.hash_bits);
        half.become_fold_of(counter, 0..counter.words().len() / 2);
        half
    }

    fn set_of(counter: &HashCounter) -> HashSet<u64> {
        (0..counter.bits()).filter(|p| counter.words()[*p as usize / 64] >> (p % 64) & 1 == 1).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 1 } else { 256 }, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn a_counter_is_a_set_of_positions(
            hash_bits in 1..=HASH_BITS_MAX,
            bits_log2 in 9u32..if cfg!(miri) { 10 } else { 12 },
            keys in prop::collection::vec(0u32..1000, 0..if cfg!(miri) { 10 } else { 100 }),
            others in prop::collection::vec(0u32..1000, 0..if cfg!(miri) { 10 } else { 100 }),
        ) {
            let bits = 1u64 << bits_log2;
            let of = |keys: &[u32]| {
                let mut counter = HashCounter::new(bits, hash_bits);
                let mut model = HashSet::new();
                for key in keys {
                    let mixed = mix(Digest::from_bits(*key));
                    counter.mark(mixed);
                    assert!(counter.is_marked(mixed));
                    model.extend(positions(mixed, hash_bits, bits));
                }
                (counter, model)
            };
            let ((mut counter, mut model), (other, other_model)) = (of(&keys), of(&others));
            prop_assert_eq!(set_of(&counter), model.clone());
            for key in 0..if cfg!(miri) { 10 } else { 1000 } {
                let mixed = mix(Digest::from_bits(key));
                prop_assert_eq!(counter.is_marked(mixed), positions(mixed, hash_bits, bits).is_subset(&model));
            }
            counter.or(&other);
            model.extend(&other_model);
            prop_assert_eq!(set_of(&counter), model.clone());
            prop_assert_eq!(set_of(&fold(&counter)), model.iter().map(|p| p % (bits / 2)).collect());
            let before = counter.clone();
            counter.double();
            prop_assert_eq!(set_of(&counter), model.iter().flat_map(|p| [*p, p + bits]).collect());
            prop_assert_eq!(&fold(&counter), &before, "a fold undoes a doubling");
            counter.clear();
            prop_assert!(set_of(&counter).is_empty());
            prop_assert_eq!(HashCounter::from_words(before.words().to_vec(), hash_bits), before);
        }
    }
}
