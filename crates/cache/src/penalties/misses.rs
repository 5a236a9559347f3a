//! The table of outstanding misses: keys that a GET missed, and when.
//!
//! The store that follows a miss takes it from the table. The gap between the two is the penalty of the miss (PAMA,
//! section IV).
//!
//! ```text
//!  group (32 bytes)  | way 0 | way 1 | way 2 | way 3 |
//!
//!  word   63                                  24 23             0
//!        +--------------------------------------+----------------+
//!        |  time of the miss, us modulo 2^40    |  fingerprint   |
//!        +--------------------------------------+----------------+
//! ```
//!
//! The table is lossy in three ways, and none of them makes a gap wrong.
//!
//! * If all ways of a group hold misses younger than [`GAP_US_MAX`], the new miss is forgotten. The older misses are
//!   kept: a table that gave way to the newest miss would lose the long gaps, which matter most.
//! * Words are written without a lock prefix, so of two misses that come to one way at the same moment one is lost.
//! * Of two misses of one key the first one stands. A later client waits for the same value, and only for the rest of
//!   the time.
//!
//! A word that nobody takes ends with its age. Two keys with the same group and the same fingerprint are taken for one
//! key. That happens to one pair of keys in 2^33 with the smallest table.

use super::word::Word;
use larder_allocation::Subclass;
use larder_item::KeyHash;

/// The longest gap between a miss and a store that counts as a penalty, in microseconds (PAMA, section IV).
pub(super) const GAP_US_MAX: u64 = Subclass::PENALTY_US_MAX[Subclass::COUNT - 1] as u64;
/// Two threads may disagree so much about the time, in microseconds: each reads the clock once for a batch.
const SKEW_US_MAX: u64 = 1_000_000;
/// The first time that a caller may name, in microseconds: an empty word is then too old for any gap.
pub(super) const TIME_US_MIN: u64 = GAP_US_MAX + 2 * SKEW_US_MAX;

const WAYS: usize = 4;
const FINGERPRINT_BITS: u32 = 24;
const FINGERPRINT_MASK: u64 = (1 << FINGERPRINT_BITS) - 1;

/// The table is taken to be empty 60 seconds after the last miss. That is longer than a gap by far, so that most gaps
/// that are too long are still seen, and counted.
const LATELY_S: u32 = 60;
/// What [`Misses::noted_until_s`] holds from a miss until the next tick.
const JUST_NOTED: u64 = u64::MAX;

/// The ways of one group, in half a cache line.
#[repr(align(32))]
struct Group<W>([W; WAYS]);

/// The table.
pub(super) struct Misses<W> {
    groups: Box<[Group<W>]>,
    /// When the table is taken to be empty, in seconds of the cache's clock, if no miss is noted before; 0 = it is
    /// taken to be empty now. A cache that is only written to looks at this word instead of the table.
    noted_until_s: W,
}

/// What became of a miss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    /// The table holds it.
    Yes,
    /// The table holds an earlier miss of the key.
    Earlier,
    /// The table holds other misses, and the new one is forgotten.
    Forgotten,
}

/// A miss that was found in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outstanding {
    group: usize,
    way: usize,
    word: u64,
    /// Microseconds since the miss, at most [`GAP_US_MAX`]. `None`: more than that.
    pub(super) gap_us: Option<u32>,
}

/// The word of a miss of this key at this time.
#[inline(always)]
fn word_of(hash: KeyHash, now_us: u64) -> u64 {
    now_us << FINGERPRINT_BITS | hash.0 >> (64 - FINGERPRINT_BITS)
}

/// Microseconds from the miss in `word` to `now_us`, plus [`SKEW_US_MAX`].
#[inline(always)]
fn skewed_age_us(word: u64, now_us: u64) -> u64 {
    let now = (now_us + SKEW_US_MAX) << FINGERPRINT_BITS | FINGERPRINT_MASK;
    now.wrapping_sub(word) >> FINGERPRINT_BITS
}

#[inline(always)]
fn is_young(word: u64, now_us: u64) -> bool {
    skewed_age_us(word, now_us) <= GAP_US_MAX + SKEW_US_MAX
}

/// Whether two words have one fingerprint.
#[inline(always)]
fn is_same(word: u64, other: u64) -> bool {
    (word ^ other) & FINGERPRINT_MASK == 0
}

impl<W: Word> Misses<W> {
    /// A table of `bytes`, rounded down to a power of two. It holds four misses at least.
    pub(super) fn new(bytes: u64) -> Misses<W> {
        let groups = 1usize << (bytes / size_of::<Group<W>>() as u64).max(1).ilog2();
        let groups = (0..groups).map(|_| Group(std::array::from_fn(|_| W::zero()))).collect();
        Misses { groups, noted_until_s: W::zero() }
    }

    /// The group of a key. The bits do not overlap with those of the fingerprint.
    #[inline(always)]
    fn group_of(&self, hash: KeyHash) -> usize {
        (hash.0 >> 8) as usize & (self.groups.len() - 1)
    }

    /// A GET missed the key at `now_us`, which is at least [`TIME_US_MIN`].
    ///
    /// Does what [`Misses::note_slowly`] does, without a look at every age.
    #[inline]
    pub(super) fn note(&self, hash: KeyHash, now_us: u64) -> Noted {
        if self.noted_until_s.get() != JUST_NOTED {
            self.noted_until_s.set(JUST_NOTED);
        }
        let new = word_of(hash, now_us);
        let Group(ways) = &self.groups[self.group_of(hash)];
        for way in ways {
            let word = way.get();
            if is_same(word, new) {
                return if is_young(word, now_us) {
                    Noted::Earlier
                } else {
                    Self::note_slowly(ways, new, now_us)
                };
            }
        }
        let Some(way) = ways.iter().find(|way| !is_young(way.get(), now_us)) else { return Noted::Forgotten };
        way.set(new);
        Noted::Yes
    }

    /// The definition: what becomes of the miss `new` of `now_us` in its group.
    #[cold]
    #[inline(never)]
    fn note_slowly(ways: &[W; WAYS], new: u64, now_us: u64) -> Noted {
        let mut free = None;
        for way in ways {
            let word = way.get();
            if !is_young(word, now_us) {
                // An outdated miss of the same key makes room before any other, so that no group has two of a key.
                if is_same(word, new) || free.is_none() {
                    free = Some(way);
                }
            } else if is_same(word, new) {
                return Noted::Earlier;
            }
        }
        let Some(way) = free else { return Noted::Forgotten };
        way.set(new);
        Noted::Yes
    }

    /// Whether [`Misses::find`] may find a miss of the key. If not, it finds none, or one that is older than
    /// [`GAP_US_MAX`].
    #[inline]
    pub(super) fn may_hold(&self, hash: KeyHash) -> bool {
        let fingerprint = word_of(hash, 0);
        self.noted_until_s.get() != 0
            && self.groups[self.group_of(hash)].0.iter().any(|way| is_same(way.get(), fingerprint))
    }

    /// About once a second or more often: `now_s` is the time of the cache's clock.
    pub(super) fn tick(&self, now_s: u32) {
        match self.noted_until_s.get() {
            0 => {}
            // If a miss comes at this very moment, it stands.
            JUST_NOTED => _ = self.noted_until_s.replace(JUST_NOTED, u64::from(now_s) + u64::from(LATELY_S)),
            until_s if until_s <= now_s.into() => _ = self.noted_until_s.replace(until_s, 0),
            _ => {}
        }
    }

    /// The miss of the key, seen at `now_us`.
    #[inline]
    pub(super) fn find(&self, hash: KeyHash, now_us: u64) -> Option<Outstanding> {
        let group = self.group_of(hash);
        let fingerprint = word_of(hash, 0);
        let mut outdated = None;
        for (way, word) in self.groups[group].0.iter().map(Word::get).enumerate() {
            if !is_same(word, fingerprint) || word >> FINGERPRINT_BITS == 0 {
                continue;
            }
            let found = |gap_us| Some(Outstanding { group, way, word, gap_us });
            if is_young(word, now_us) {
                return found(Some(skewed_age_us(word, now_us).saturating_sub(SKEW_US_MAX) as u32));
            }
            outdated = outdated.or(found(None));
        }
        outdated
    }

    /// Takes a miss that was found from the table. Returns false if another thread has taken it.
    #[inline]
    pub(super) fn take(&self, found: &Outstanding) -> bool {
        self.groups[found.group].0[found.way].replace(found.word, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::sync::atomic::AtomicU64;

    type Table = Misses<AtomicU64>;

    /// A key of the one group of the smallest table.
    fn key(number: u64) -> KeyHash {
        KeyHash(number << 40)
    }

    fn gap_us(table: &Table, hash: KeyHash, now_us: u64) -> Option<u32> {
        let found = table.find(hash, now_us)?;
        assert!(table.take(&found), "nobody else takes it");
        found.gap_us
    }

    #[test]
    fn a_store_takes_the_first_miss_and_no_store_takes_it_twice() {
        let table = Table::new(1 << 12);
        let start_us = TIME_US_MIN;
        assert_eq!(table.note(key(7), start_us), Noted::Yes);
        assert_eq!(table.note(key(7), start_us + 400), Noted::Earlier);
        assert_eq!(gap_us(&table, key(7), start_us + 1500), Some(1500));
        assert_eq!(table.find(key(7), start_us + 1500), None);
    }

    #[test]
    fn a_gap_of_more_than_five_seconds_is_no_penalty() {
        let table = Table::new(1 << 12);
        let start_us = TIME_US_MIN;
        table.note(key(7), start_us);
        let longest = table.find(key(7), start_us + GAP_US_MAX).expect("it is there");
        assert_eq!(longest.gap_us, Some(5_000_000));
        let later = table.find(key(7), start_us + GAP_US_MAX + 1).expect("it is there");
        assert_eq!(later.gap_us, None);
        // The next miss takes the place of the outdated one.
        assert_eq!(table.note(key(7), start_us + GAP_US_MAX + 2), Noted::Yes);
        assert_eq!(gap_us(&table, key(7), start_us + GAP_US_MAX + 12), Some(10));
        assert_eq!(table.find(key(7), start_us + GAP_US_MAX + 12), None);
    }

    #[test]
    fn a_full_group_keeps_the_older_misses() {
        let table = Table::new(1);
        let start_us = TIME_US_MIN;
        for number in 0..WAYS as u64 {
            assert_eq!(table.note(key(number + 1), start_us + number), Noted::Yes);
        }
        assert_eq!(table.note(key(9), start_us + 10), Noted::Forgotten);
        assert_eq!(gap_us(&table, key(1), start_us + 100), Some(100));
        assert_eq!(table.note(key(9), start_us + 110), Noted::Yes);
        assert_eq!(
            table.note(key(10), start_us + GAP_US_MAX + 1),
            Noted::Forgotten,
            "all are young but none"
        );
        assert_eq!(table.note(key(10), start_us + GAP_US_MAX + 2), Noted::Yes, "one is over");
    }

    #[test]
    fn a_store_whose_batch_began_before_the_miss_has_a_gap_of_nothing() {
        let table = Table::new(1);
        table.note(key(3), TIME_US_MIN + 900);
        assert_eq!(gap_us(&table, key(3), TIME_US_MIN), Some(0));
    }

    #[test]
    fn a_minute_after_the_last_miss_the_table_counts_as_empty() {
        let table = Table::new(1 << 12);
        table.tick(1);
        assert!(!table.may_hold(key(7)));
        table.note(key(7), TIME_US_MIN);
        assert!(table.may_hold(key(7)) && !table.may_hold(key(8)));
        for now_s in [100, 159] {
            table.tick(now_s);
            assert!(table.may_hold(key(7)), "{now_s}");
        }
        table.note(key(8), TIME_US_MIN);
        for now_s in [160, 219] {
            table.tick(now_s);
            assert!(table.may_hold(key(7)), "{now_s}");
        }
        table.tick(220);
        assert!(!table.may_hold(key(7)));
        table.note(key(9), TIME_US_MIN);
        assert!(table.may_hold(key(7)));
    }

    /// The definition: every miss is remembered.
    #[derive(Default)]
    struct Naive(HashMap<u64, u64>);

    proptest! {
        /// Whatever happens, a gap is that of the first miss since the last store, or there is none because it was
        /// forgotten.
        #[test]
        fn no_gap_is_wrong(
            steps in prop::collection::vec(
                (any::<bool>(), 1u64..12, prop_oneof![9 => 0u64..3_000_000, 1 => 30_000_000u64..100_000_000]),
                1..200,
            ),
            groups in 0u32..3,
            start_us in prop_oneof![Just(TIME_US_MIN), (1u64 << 40) - 4_000_000..1 << 40],
        ) {
            let table = Table::new(32 << groups);
            let mut naive = Naive::default();
            let mut now_us = start_us;
            for (is_miss, number, pause_us) in steps {
                now_us += pause_us;
                table.tick((now_us / 1_000_000) as u32);
                // The number is in the fingerprint, and its lowest bits in the group.
                let hash = KeyHash(number << 40 | number << 8);
                if is_miss {
                    let standing = naive.0.get(&number).filter(|then| now_us - **then <= GAP_US_MAX);
                    match table.note(hash, now_us) {
                        Noted::Yes => {
                            prop_assert_eq!(standing, None);
                            naive.0.insert(number, now_us);
                        }
                        Noted::Earlier => prop_assert!(standing.is_some()),
                        Noted::Forgotten => {
                            prop_assert_eq!(standing, None);
                            naive.0.remove(&number);
                        }
                    }
                } else {
                    let found = table.find(hash, now_us);
                    let is_seen = table.may_hold(hash);
                    prop_assert!(is_seen || found.is_none_or(|found| found.gap_us.is_none()));
                    let wanted = naive.0.remove(&number).map(|then| now_us - then);
                    let wanted = wanted.filter(|gap_us| *gap_us <= GAP_US_MAX);
                    if let Some(found) = found {
                        prop_assert_eq!(found.gap_us.map(u64::from), wanted);
                        prop_assert!(table.take(&found));
                    } else {
                        prop_assert_eq!(wanted, None);
                    }
                    prop_assert_eq!(table.find(hash, now_us), None);
                }
            }
        }

        /// The short way does what the definition says.
        #[test]
        fn a_miss_is_noted_as_defined(
            steps in prop::collection::vec((any::<bool>(), 1u64..7, 0u64..3_000_000), 1..200),
        ) {
            let (quick, slow) = (Table::new(1), Table::new(1));
            let mut now_us = TIME_US_MIN;
            for (is_miss, number, pause_us) in steps {
                now_us += pause_us;
                if is_miss {
                    let Group(ways) = &slow.groups[0];
                    let defined = Table::note_slowly(ways, word_of(key(number), now_us), now_us);
                    prop_assert_eq!(quick.note(key(number), now_us), defined);
                } else if let Some(found) = quick.find(key(number), now_us) {
                    prop_assert!(quick.take(&found) && slow.take(&found));
                }
                let words = |table: &Table| table.groups[0].0.each_ref().map(Word::get);
                prop_assert_eq!(words(&quick), words(&slow));
            }
        }
    }

    impl Word for loom::sync::atomic::AtomicU64 {
        fn zero() -> Self {
            Self::new(0)
        }

        fn get(&self) -> u64 {
            self.load(std::sync::atomic::Ordering::Relaxed)
        }

        fn set(&self, new: u64) {
            self.store(new, std::sync::atomic::Ordering::Release);
        }

        fn replace(&self, old: u64, new: u64) -> bool {
            use std::sync::atomic::Ordering::{AcqRel, Relaxed};
            self.compare_exchange(old, new, AcqRel, Relaxed).is_ok()
        }
    }

    type Modelled = Misses<loom::sync::atomic::AtomicU64>;

    /// Two threads store the key of one miss.
    #[test]
    fn loom_a_miss_is_taken_once() {
        loom::model(|| {
            let table = loom::sync::Arc::new(Modelled::new(1));
            table.note(key(5), TIME_US_MIN);
            let store = |table: &Modelled| {
                let found = table.find(key(5), TIME_US_MIN + 1000)?;
                assert_eq!(found.gap_us, Some(1000));
                table.take(&found).then_some(())
            };
            let other = table.clone();
            let thread = loom::thread::spawn(move || store(&other));
            let taken = [store(&table), thread.join().expect("it ends")];
            assert_eq!(taken.iter().flatten().count(), 1);
        });
    }

    /// Two threads miss one key at different times, and each then stores it. Every gap is that of one of the misses.
    #[test]
    fn loom_a_gap_is_that_of_a_miss() {
        loom::model(|| {
            let table = loom::sync::Arc::new(Modelled::new(1));
            let miss_and_store = |table: &Modelled, missed_us: u64| {
                table.note(key(5), TIME_US_MIN + missed_us);
                if let Some(found) = table.find(key(5), TIME_US_MIN + 1000) {
                    assert!(matches!(found.gap_us, Some(990 | 980)), "{found:?}");
                    table.take(&found);
                }
            };
            let other = table.clone();
            let thread = loom::thread::spawn(move || miss_and_store(&other, 20));
            miss_and_store(&table, 10);
            thread.join().expect("it ends");
        });
    }

    /// While one thread takes its miss, another notes one of a different key in the same group. Neither sees the
    /// other's.
    #[test]
    fn loom_keys_do_not_meet() {
        const START_US: u64 = TIME_US_MIN;
        loom::model(|| {
            let table = loom::sync::Arc::new(Modelled::new(1));
            table.note(key(5), START_US);
            let other = table.clone();
            let thread = loom::thread::spawn(move || {
                other.note(key(6), START_US + 30);
                other.find(key(6), START_US + 130).map(|found| found.gap_us)
            });
            let found = table.find(key(5), START_US + 50).expect("nobody else takes it");
            assert_eq!(found.gap_us, Some(50));
            assert!(table.take(&found));
            assert_eq!(table.find(key(5), START_US + 50), None);
            assert_eq!(thread.join().expect("it ends"), Some(Some(100)));
        });
    }
}
