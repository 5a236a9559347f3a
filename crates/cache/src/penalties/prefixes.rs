//! What misses cost, by the prefix of the key: an estimate for items of which nothing better is known.
//!
//! The prefix of a key is what stands before the first delimiter (`-D`, by default `:`) in its first
//! [`PREFIX_BYTES_MAX`] bytes. All keys without one share an entry. The table keeps for each prefix the mean of the
//! logarithm of the penalties, in which the newest ones count most.
//!
//! ```text
//!  word   63                       32 31      24 23    16 15                      0
//!        +---------------------------+----------+--------+-------------------------+
//!        |        fingerprint        |    0     | count  | mean of log2(us) * 2^11 |
//!        +---------------------------+----------+--------+-------------------------+
//! ```
//!
//! The table is lossy. A prefix has two places, and a new prefix takes the one with the lower count once other
//! prefixes have worn that count down to nothing. An update that races with another one is lost.

use super::word::Word;
use larder_allocation::Subclass;

/// Where the prefix of a key ends at most, in bytes.
pub(super) const PREFIX_BYTES_MAX: usize = 32;
/// How many prefixes the table holds.
const PREFIXES: usize = 1024;
/// Bytes that the table takes.
pub(super) const PREFIXES_BYTES: u64 = PREFIXES as u64 * 8;

/// The count stays here. It is also the number of penalties that the mean goes back to, about.
const COUNT_MAX: u64 = 16;
const COUNT_SHIFT: u32 = 16;
/// Fractional bits of a logarithm.
const FRACTION_BITS: u32 = 11;
const LOG_MASK: u64 = 0xffff;

/// The table.
pub(super) struct Prefixes<W> {
    /// Of two neighbours one pair.
    words: Box<[W]>,
    /// 0 until the first penalty is learnt: a cache that is only written to looks up no prefix.
    knows: W,
    delimiter: u8,
}

/// The base-2 logarithm of `us`, at least 1, with 11 fractional bits. Between powers of two it is a straight line, so
/// that [`exponential`] is its exact inverse.
#[inline]
fn logarithm(us: u32) -> u64 {
    let us = u64::from(us.max(1));
    let power = us.ilog2();
    let rest = (us << 32 >> power) - (1 << 32);
    u64::from(power) << FRACTION_BITS | rest >> (32 - FRACTION_BITS)
}

/// The number of microseconds with this logarithm, rounded down.
#[inline]
fn exponential(log: u64) -> u32 {
    let (power, rest) = (log >> FRACTION_BITS, log & ((1 << FRACTION_BITS) - 1));
    (((1 << FRACTION_BITS | rest) << power) >> FRACTION_BITS).min(u32::MAX.into()) as u32
}

/// Mixes eight more bytes into the hash of a prefix.
#[inline(always)]
fn mixed(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The lowest bit that is set is the high bit of the first byte of `word` that is a delimiter. 0: no byte is.
#[inline(always)]
fn delimiters_in(word: u64, delimiters: u64) -> u64 {
    let others = word ^ delimiters;
    others.wrapping_sub(ONES) & !others & HIGHS
}

/// All bits of the bytes below the one that the lowest bit of `found`, which is not 0, is in.
#[inline(always)]
fn bytes_below(found: u64) -> u64 {
    (found ^ (found - 1)) >> 8
}

/// A hash of the key's prefix; 0 for a key without one. The hash needs no seed: a client that makes prefixes meet
/// gets worse estimates, and nothing else.
#[inline]
fn prefix_hash(key: &[u8], delimiter: u8) -> u64 {
    let key = &key[..key.len().min(PREFIX_BYTES_MAX)];
    let delimiters = u64::from(delimiter) * ONES;
    let mut hash = 1;
    let (whole, rest) = key.as_chunks::<8>();
    for bytes in whole {
        let word = u64::from_le_bytes(*bytes);
        let found = delimiters_in(word, delimiters);
        if found != 0 {
            return mixed(hash, word & bytes_below(found));
        }
        hash = mixed(hash, word);
    }
    if rest.is_empty() {
        return 0;
    }
    let rest_bits = 8 * rest.len();
    let word = match key.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last) >> (64 - rest_bits),
        None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    };
    // The zeros above the rest may look like delimiters.
    let found = delimiters_in(word, delimiters) & ((1 << rest_bits) - 1);
    if found == 0 { 0 } else { mixed(hash, word & bytes_below(found)) }
}

impl<W: Word> Prefixes<W> {
    /// A table that knows nothing.
    pub(super) fn new(delimiter: u8) -> Prefixes<W> {
        Prefixes { words: (0..PREFIXES).map(|_| W::zero()).collect(), knows: W::zero(), delimiter }
    }

    /// The two places of a prefix, and its fingerprint where a word has it.
    #[inline]
    fn places(&self, key: &[u8]) -> (&[W], u64) {
        let hash = prefix_hash(key, self.delimiter);
        let pair = (hash as usize & (PREFIXES / 2 - 1)) * 2;
        (&self.words[pair..pair + 2], hash >> 32 << 32)
    }

    /// A miss of the key was found to cost `penalty_us` microseconds.
    pub(super) fn learn(&self, key: &[u8], penalty_us: u32) {
        let (places, fingerprint) = self.places(key);
        let log = logarithm(penalty_us);
        let words = [places[0].get(), places[1].get()];
        let known = words.iter().position(|&word| count(word) > 0 && word >> 32 == fingerprint >> 32);
        let (at, now) = match known {
            Some(at) => {
                let (old, count) = (words[at] & LOG_MASK, (count(words[at]) + 1).min(COUNT_MAX));
                // The first penalties count alike, later ones a sixteenth.
                let mean = (old * (count - 1) + log + count / 2) / count;
                (at, fingerprint | count << COUNT_SHIFT | mean)
            }
            None => {
                let at = usize::from(count(words[1]) < count(words[0]));
                match count(words[at]) {
                    0 => (at, fingerprint | 1 << COUNT_SHIFT | log),
                    _ => (at, words[at] - (1 << COUNT_SHIFT)),
                }
            }
        };
        places[at].set(now);
        if self.knows.get() == 0 {
            self.knows.set(1);
        }
    }

    /// Whether anything is known of any prefix.
    #[inline]
    pub(super) fn knows(&self) -> bool {
        self.knows.get() != 0
    }

    /// The subclass of what misses of keys with this prefix cost. `None`: nothing is known of the prefix.
    pub(super) fn estimate(&self, key: &[u8]) -> Option<Subclass> {
        let (places, fingerprint) = self.places(key);
        let mut words = places.iter().map(Word::get);
        let word = words.find(|&word| count(word) > 0 && word >> 32 == fingerprint >> 32)?;
        Some(Subclass::of_us(exponential(word & LOG_MASK)))
    }
}

/// How many penalties a word was made of.
#[inline]
fn count(word: u64) -> u64 {
    word >> COUNT_SHIFT & 0xff
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicU64;

    type Table = Prefixes<AtomicU64>;

    /// The definition of a prefix.
    fn naive_prefix(key: &[u8], delimiter: u8) -> Option<&[u8]> {
        let end = key.iter().take(PREFIX_BYTES_MAX).position(|&byte| byte == delimiter)?;
        Some(&key[..end])
    }

    fn naive_hash(key: &[u8], delimiter: u8) -> u64 {
        let Some(prefix) = naive_prefix(key, delimiter) else { return 0 };
        let mut hash = 1;
        // As many whole words as the prefix has, and one for what is left of it, even if that is nothing.
        for at in 0..=prefix.len() / 8 {
            let bytes = &prefix[at * 8..prefix.len().min(at * 8 + 8)];
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            hash = mixed(hash, u64::from_le_bytes(word));
        }
        hash
    }

    proptest! {
        #[test]
        fn the_prefix_is_what_its_definition_says(
            key in prop::collection::vec(prop_oneof![any::<u8>(), b'9'..b'<'], 0..60),
            delimiter in prop_oneof![Just(b':'), any::<u8>()],
        ) {
            prop_assert_eq!(prefix_hash(&key, delimiter), naive_hash(&key, delimiter));
        }

        #[test]
        fn a_logarithm_and_back_changes_no_subclass_by_more_than_its_edge(us in 1u32..5_000_001) {
            let back = exponential(logarithm(us));
            prop_assert!(back <= us && us - back <= us >> FRACTION_BITS, "{} {}", us, back);
        }

        #[test]
        fn what_is_always_the_same_is_learnt(us in 1u32..5_000_001, times in 1usize..100) {
            let table = Table::new(b':');
            for _ in 0..times {
                table.learn(b"user:1", us);
            }
            let known = table.words.iter().map(Word::get).find(|word| *word != 0).expect("one word is set");
            prop_assert_eq!(known & LOG_MASK, logarithm(us));
            prop_assert_eq!(count(known), (times as u64).min(COUNT_MAX));
        }
    }

    #[test]
    fn each_prefix_has_its_own_estimate() {
        let table = Table::new(b':');
        assert_eq!(table.estimate(b"user:1"), None);
        for (prefix, penalty_us) in [("user", 300), ("feed", 2_000_000), ("a-prefix-of-two-words", 50_000)] {
            for number in 0..20 {
                table.learn(format!("{prefix}:{number}").as_bytes(), penalty_us);
            }
        }
        table.learn(b"no prefix", 5_000);
        let class = |key: &str| table.estimate(key.as_bytes()).map(Subclass::number);
        assert_eq!(
            [class("user:x"), class("feed:x"), class("a-prefix-of-two-words:x:y")],
            [0, 4, 2].map(Some)
        );
        assert_eq!([class("another"), class("userx"), class("other:x")], [Some(1), Some(1), None]);
    }

    #[test]
    fn the_mean_follows_a_change() {
        let table = Table::new(b':');
        (0..100).for_each(|_| table.learn(b"user:1", 500));
        table.learn(b"user:1", 5_000_000);
        assert_eq!(table.estimate(b"user:1"), Some(Subclass::of_us(500)), "one outlier changes nothing");
        (0..100).for_each(|_| table.learn(b"user:1", 2_000_000));
        assert_eq!(table.estimate(b"user:1"), Some(Subclass::of_us(2_000_000)));
    }

    #[test]
    fn a_rare_prefix_does_not_displace_a_frequent_one() {
        let table = Table::new(b':');
        // Enough prefixes come once each for every pair to meet several of them.
        for number in 0..20_000u32 {
            table.learn(b"hot:1", 300);
            table.learn(format!("cold{number}:1").as_bytes(), 2_000_000);
        }
        assert_eq!(table.estimate(b"hot:1"), Some(Subclass::of_us(300)));
        let cold =
            (0..20_000u32).filter(|n| table.estimate(format!("cold{n}:1").as_bytes()).is_some()).count();
        assert!((1..=PREFIXES).contains(&cold), "{cold}");
        // A prefix that becomes frequent finds a place.
        (0..100).for_each(|_| table.learn(b"new:1", 40_000));
        assert_eq!(table.estimate(b"new:1"), Some(Subclass::of_us(40_000)));
    }
}
