//! Small caches of digests beside the real cache, to find out which rules fit the requests.
//!
//! The best rules depend on the requests. With a probation of 10 % of the cache, items that are asked for only once
//! leave soon. But if keys come back once, after a while, such a probation is too short. So several small caches
//! simulate a sample of the same requests, each with another [`Arm`], and the arm with the fewest misses is used. The
//! method is miniature simulation (Waldspurger et al., Cache Modeling and Optimization using Miniature Simulations,
//! USENIX ATC 2017) with the spatial sampling of SHARDS (FAST 2015). It keeps the policy from falling far below LRU on
//! traces where S3-FIFO does.

use crate::arm::{Arm, Round, WARMTH_MAX};
use crate::ghost::Ghost;
use crate::mix::scramble;
use crate::reference::{Digest, Reference};
use larder_item::KeyHash;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Most items of a shadow.
pub const SHADOW_ITEMS_MAX: u64 = 1024;
/// The weight that the misses of earlier windows keep when a window ends.
/// A weight of a half is about 46,000 references old.
const DECAY: f64 = 0.9985;
/// A shadow replaces the best one only if it has fewer misses by this share.
const ADVANTAGE: f64 = 0.01;
/// The references of a window.
const WINDOW: u64 = 100;
/// Most shadows: a key has one byte of state for each.
const SHADOWS_MAX: usize = 12;

/// The state of a key in one shadow: which queue it is in and how warm it is, two bits each, and whether its reads do
/// not count yet.
const NOWHERE: u8 = 0;
const PROBATION: u8 = 1;
const MAIN: u8 = 2;
const PART: u8 = 3;
const WARM: u8 = 4;
const WARMTH: u8 = WARMTH_MAX * WARM;
const CORRELATED: u8 = 16;

type States = [u8; SHADOWS_MAX];

/// A small cache with one arm.
struct Shadow {
    arm: Arm,
    /// The oldest in front. Empty if the arm takes items in order.
    probation: VecDeque<u32>,
    /// The oldest in front. All items if the arm takes items in order.
    main: VecDeque<u32>,
    ghost: Ghost,
    round: Round,
    misses: u32,
    /// Misses of the earlier windows, each weighted by [`DECAY`] relative to the next one.
    missed: f64,
}

/// Digests are random already. The sampled ones have their high bits in common, so they are mixed once more.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("digests are hashed as u32");
    }

    fn write_u32(&mut self, digest: u32) {
        self.0 = scramble(u64::from(digest));
    }
}

/// The small caches.
pub struct Shadows {
    shadows: Vec<Shadow>,
    keys: HashMap<u32, States, BuildHasherDefault<Mixed>>,
    /// Items of each shadow.
    capacity: usize,
    /// The sample consists of the digests below this number.
    below: u32,
    references: u64,
    best: usize,
}

impl Shadows {
    /// One shadow for each arm. The first arm is the best until another one proves better.
    ///
    /// # Panics
    /// If there are no arms, or more than 12.
    pub fn new(arms: &[Arm]) -> Shadows {
        assert!(!arms.is_empty() && arms.len() <= SHADOWS_MAX, "1 to {SHADOWS_MAX} arms");
        let shadow = |&arm| Shadow {
            arm,
            probation: VecDeque::new(),
            main: VecDeque::new(),
            ghost: Ghost::for_entries(1),
            round: Round::default(),
            misses: 0,
            missed: 0.0,
        };
        Shadows {
            shadows: arms.iter().map(shadow).collect(),
            keys: HashMap::default(),
            capacity: 0,
            below: 0,
            references: 0,
            best: 0,
        }
    }

    /// Adapts the shadows to a real cache of about `items` items. The sample becomes as large as
    /// [`SHADOW_ITEMS_MAX`] allows. The shadows keep their contents as far as they fit.
    pub fn fit(&mut self, items: u64) {
        let mut halvings = 0;
        while items >> halvings > SHADOW_ITEMS_MAX {
            halvings += 1;
        }
        let capacity = (items >> halvings).max(1) as usize;
        let capacity_before = std::mem::replace(&mut self.capacity, capacity);
        let below = ((1u64 << Digest::BITS) >> halvings) as u32;
        let is_narrower = below < std::mem::replace(&mut self.below, below);
        if is_narrower {
            self.keys.retain(|digest, _| *digest < below);
        }
        for nth in 0..self.shadows.len() {
            let Shadow { arm, probation, main, ghost, .. } = &mut self.shadows[nth];
            ghost.resize(capacity as u64);
            let mut left = arm.correlated_of(capacity_before).saturating_sub(arm.correlated_of(capacity));
            if is_narrower {
                probation.retain(|digest| *digest < below);
                main.retain(|digest| *digest < below);
                left = capacity_before;
            }
            // The real cache goes by the lengths of the queues at once, and the next miss may be long in coming.
            self.make_room(nth, capacity);
            self.end_correlated(nth, left);
        }
    }

    /// The correlated period of the next `left` items behind the newest ones of one shadow has ended.
    fn end_correlated(&mut self, nth: usize, left: usize) {
        let Shadow { arm, probation, main, .. } = &self.shadows[nth];
        let queue = if arm.in_order { main } else { probation };
        for digest in queue.iter().rev().skip(arm.correlated_of(self.capacity)).take(left) {
            self.keys.get_mut(digest).expect("every item has a state")[nth] &= !CORRELATED;
        }
    }

    /// Only references with a digest below this number are wanted. The number is 0 until [`Shadows::fit`] is
    /// called.
    #[inline]
    pub fn below(&self) -> u32 {
        self.below
    }

    /// The arm with the fewest misses recently.
    pub fn best(&self) -> &Arm {
        &self.shadows[self.best].arm
    }

    /// The share of probation in the shadow of the best arm, 0..=1. It is larger than the arm's share where few items
    /// deserve to go on to the main queue.
    pub fn probation(&self) -> f64 {
        self.shadows[self.best].probation.len() as f64 / self.capacity.max(1) as f64
    }

    /// Processes a reference. References outside the sample are ignored. If a shadow does not have the key, both a
    /// store and a read count as a miss that was filled: at a read the real cache had the key, and this one would
    /// not have had it.
    pub fn reference(&mut self, reference: Reference) {
        let digest = reference.digest().bits();
        if digest >= self.below {
            return;
        }
        let states = self.keys.entry(digest).or_default();
        let mut missing = 0u16;
        for (nth, shadow) in self.shadows.iter_mut().enumerate() {
            let state = &mut states[nth];
            if *state & PART == NOWHERE {
                *state = PROBATION;
                missing |= 1 << nth;
                shadow.misses += 1;
            } else if *state & CORRELATED == 0 && *state & WARMTH < WARMTH {
                *state += WARM;
            }
        }
        for nth in (0..self.shadows.len()).filter(|nth| missing >> nth & 1 != 0) {
            self.make_room(nth, self.capacity - 1);
            self.push(nth, digest);
        }
        self.references += 1;
        if self.references >= WINDOW {
            self.end_window();
        }
    }

    /// Adds an item to one shadow. Under an arm with a correlated period its reads do not count yet; those of the item
    /// that leaves the period do from now on.
    fn push(&mut self, nth: usize, digest: u32) {
        let Shadow { arm, probation, main, .. } = &mut self.shadows[nth];
        let queue = if arm.in_order { main } else { probation };
        queue.push_back(digest);
        if arm.correlated_of(self.capacity) == 0 {
            return;
        }
        self.keys.get_mut(&digest).expect("every item has a state")[nth] |= CORRELATED;
        self.end_correlated(nth, 1);
    }

    /// Evicts from one shadow until it has no more than `most` items.
    fn make_room(&mut self, nth: usize, most: usize) {
        let Shadow { arm, probation, main, ghost, round, .. } = &mut self.shadows[nth];
        let from_probation = arm.share * self.capacity as f64;
        while probation.len() + main.len() > most {
            let is_over = probation.len() as f64 > from_probation || main.is_empty();
            let queue = if is_over { &mut *probation } else { &mut *main };
            let digest = queue.pop_front().expect("a part above its share is not empty");
            let states = self.keys.get_mut(&digest).expect("every digest in a queue has a state");
            let state = &mut states[nth];
            let (key, warmth) = (KeyHash(u64::from(digest)), (*state & WARMTH) / WARM);
            let stays = if *state & PART == PROBATION {
                let is_full = arm.is_full(main.len(), self.capacity);
                arm.promote(key, warmth, ghost, arm.terms(is_full, ghost, round))
            } else {
                round.advance(main.len(), ghost);
                arm.cool(key, warmth, round)
            };
            if let Some(warmth) = stays {
                *state = MAIN + warmth * WARM;
                main.push_back(digest);
            } else {
                *state = NOWHERE;
                ghost.push(key);
                if *states == States::default() {
                    self.keys.remove(&digest);
                }
            }
        }
    }

    fn end_window(&mut self) {
        self.references = 0;
        for shadow in &mut self.shadows {
            shadow.missed = shadow.missed * DECAY + f64::from(std::mem::take(&mut shadow.misses));
        }
        let missed = |nth: usize| self.shadows[nth].missed;
        let least =
            (0..self.shadows.len()).min_by(|&one, &other| missed(one).total_cmp(&missed(other))).unwrap_or(0);
        if missed(least) < missed(self.best) * (1.0 - ADVANTAGE) {
            self.best = least;
        }
    }

    /// About how many bytes of memory the shadows take.
    pub fn bytes(&self) -> u64 {
        let entry = size_of::<(u32, States)>() + 1;
        let queues = |shadow: &Shadow| {
            4 * (shadow.probation.capacity() + shadow.main.capacity()) as u64 + shadow.ghost.bytes()
        };
        // A table is at most 7/8 full.
        (self.keys.capacity() * 8 / 7 * entry) as u64 + self.shadows.iter().map(queues).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::{Cooling, Return};
    use proptest::prelude::*;

    /// A shadow by its definition: every question is answered by a search.
    struct Naive {
        arm: Arm,
        capacity: usize,
        /// Key and warmth, the oldest first.
        probation: Vec<(u32, u8)>,
        main: Vec<(u32, u8)>,
        /// Since when the items of both are there.
        since: HashMap<u32, usize>,
        now: usize,
        ghost: Ghost,
        round: Round,
        misses: u32,
    }

    impl Naive {
        fn reference(&mut self, digest: u32) {
            let newest = (self.arm.correlated * self.arm.share * self.capacity as f64) as usize;
            let counting = self.probation.len().saturating_sub(newest);
            if self.probation[counting..].iter().any(|item| item.0 == digest) {
                return;
            }
            let found = self.probation.iter_mut().chain(&mut self.main).find(|item| item.0 == digest);
            if let Some((_, warmth)) = found {
                *warmth = (*warmth + 1).min(3);
                return;
            }
            self.misses += 1;
            while self.probation.len() + self.main.len() == self.capacity {
                let key = |digest: u32| KeyHash(u64::from(digest));
                let (share, of) = (self.arm.share, self.capacity as f64);
                let since = |item: Option<&(u32, u8)>| item.map_or(usize::MAX, |item| self.since[&item.0]);
                let is_older = since(self.probation.first()) < since(self.main.first());
                let is_over = self.main.is_empty() || self.probation.len() as f64 / of > share;
                let (oldest, stays) = if if self.arm.in_order { is_older } else { is_over } {
                    let (oldest, warmth) = self.probation.remove(0);
                    let main = if self.arm.in_order {
                        self.main.len() + self.probation.len()
                    } else {
                        self.main.len()
                    };
                    let is_full = main as f64 / of >= 0.9 * (1.0 - share);
                    let age_max = match (is_full, self.arm.comes_back) {
                        (false, _) | (_, Return::Known) => u64::MAX,
                        (_, Return::Half) => self.ghost.entries() / 2,
                        (_, Return::Round) => self.round.evictions(),
                    };
                    let is_wanted = warmth >= self.arm.reads
                        || self.ghost.take(key(oldest)).is_some_and(|age| age <= age_max)
                        || self.arm.fills && !is_full && scramble(u64::from(oldest)) % 2 == 1;
                    let kept = if self.arm.keeps_reads { warmth.max(1) - 1 } else { 0 };
                    (oldest, is_wanted.then_some(kept))
                } else {
                    let (oldest, warmth) = self.main.remove(0);
                    self.round.advance(self.main.len(), &self.ghost);
                    (oldest, self.arm.cool(key(oldest), warmth, &self.round))
                };
                self.now += 1;
                self.since.insert(oldest, self.now);
                match stays {
                    Some(warmth) => self.main.push((oldest, warmth)),
                    None => self.ghost.push(key(oldest)),
                }
            }
            self.now += 1;
            self.since.insert(digest, self.now);
            self.probation.push((digest, 0));
        }
    }

    fn read(digest: u32) -> Reference {
        Reference::read(Digest::from_bits(digest))
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 200 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn a_shadow_misses_what_the_naive_one_misses(
            capacity in 1usize..40,
            // Eighths are exact in binary, so that both sides compare the same numbers.
            arms in prop::collection::vec(
                (0u32..12, 1u8..5, 0usize..3, any::<[bool; 4]>()),
                1..4,
            ),
            digests in prop::collection::vec(0u32..60, 0..if cfg!(miri) { 60 } else { 90 }),
        ) {
            let arm = |&(eighths, reads, nth, are): &(u32, u8, usize, [bool; 4])| Arm {
                share: f64::from(eighths.min(8)) / 8.0,
                in_order: eighths > 8,
                reads,
                // Rounds are of the main queue, which an arm that takes items in order does not have.
                comes_back: [Return::Known, Return::Half, Return::Round][if eighths > 8 { nth % 2 } else { nth }],
                keeps_reads: are[0],
                cooling: if are[1] && eighths <= 8 { Cooling::Slow } else { Cooling::Even },
                correlated: if are[2] && eighths <= 8 { 0.5 } else { 0.0 },
                fills: are[3],
            };
            let arms: Vec<Arm> = arms.iter().map(arm).collect();
            let mut shadows = Shadows::new(&arms);
            shadows.fit(capacity as u64);
            prop_assert_eq!(shadows.below(), 1 << 31);
            let mut ghost = Ghost::for_entries(1);
            ghost.resize(capacity as u64);
            let mut naive: Vec<Naive> = arms.iter().map(|&arm| Naive {
                arm,
                capacity,
                probation: vec![],
                main: vec![],
                since: HashMap::new(),
                now: 0,
                ghost: ghost.clone(),
                round: Round::default(),
                misses: 0,
            }).collect();
            for digest in digests {
                shadows.reference(read(digest));
                naive.iter_mut().for_each(|shadow| shadow.reference(digest));
            }
            // These are fewer references than a window has.
            for (shadow, naive) in shadows.shadows.iter().zip(&naive) {
                prop_assert_eq!(shadow.misses, naive.misses);
                let mut main = naive.main.clone();
                if naive.arm.in_order {
                    main.extend(&naive.probation);
                    main.sort_by_key(|item| naive.since[&item.0]);
                } else {
                    prop_assert!(shadow.probation.iter().eq(naive.probation.iter().map(|(digest, _)| digest)));
                }
                prop_assert!(shadow.main.iter().eq(main.iter().map(|(digest, _)| digest)));
            }
            let held: std::collections::HashSet<_> =
                naive.iter().flat_map(|one| one.probation.iter().chain(&one.main)).map(|item| item.0).collect();
            prop_assert_eq!(shadows.keys.len(), held.len());
        }
    }

    #[test]
    fn the_sample_is_as_large_as_the_shadows_allow() {
        let mut shadows = Shadows::new(&[Arm::of_share(0.1)]);
        assert_eq!(shadows.below(), 0);
        for (items, capacity, one_in) in
            [(0, 1, 1), (1024, 1024, 1), (1025, 512, 2), (1 << 30, 1024, 1 << 20)]
        {
            shadows.fit(items);
            assert_eq!((shadows.capacity, shadows.below()), (capacity, (1u32 << 31) / one_in), "{items}");
        }
    }

    #[test]
    fn what_fits_into_a_smaller_cache_stays_and_the_newest_of_it_is_as_new_as_it_was() {
        let arm = Arm { correlated: 0.5, ..Arm::of_share(0.5) };
        for (items, capacity, below) in [(800, 800, 1 << 31), (600, 600, 1 << 31), (1200, 600, 1 << 30)] {
            let mut shadows = Shadows::new(&[arm]);
            shadows.fit(1000);
            let digests = || (0..1000u32).map(|n| n.wrapping_mul(0x9E37_79B9) >> 1);
            digests().for_each(|digest| shadows.reference(read(digest)));
            digests().for_each(|digest| shadows.reference(read(digest)));
            assert_eq!(shadows.probation(), 1.0);
            shadows.fit(items);
            assert_eq!((shadows.capacity, shadows.below()), (capacity, below));
            let Shadow { probation, main, .. } = &shadows.shadows[0];
            assert!(probation.iter().chain(main).all(|digest| *digest < below));
            let held = (probation.len() + main.len()) as f64;
            assert!(held <= capacity as f64 && held > 0.8 * capacity as f64, "{held}");
            assert!(shadows.probation() < 0.9, "{}", shadows.probation());
            let is_new = |digest: &u32| shadows.keys[digest][0] & CORRELATED != 0;
            let newest = arm.correlated_of(capacity);
            assert!(probation.iter().rev().take(newest / 2).all(is_new));
            assert!(!probation.iter().rev().skip(newest).chain(main).any(is_new));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "half a million references, each interpreted")]
    fn keys_that_come_back_once_after_a_while_get_a_long_probation() {
        let mut shadows = Shadows::new(&[0.125, 0.75].map(Arm::of_share));
        shadows.fit(512);
        assert_eq!(shadows.best().share, 0.125);
        // Each key occurs twice, with 200 references to other keys in between.
        for n in 0..40_000u32 {
            shadows.reference(read(n.wrapping_mul(0x9E37_79B9)));
            shadows.reference(read(n.wrapping_sub(100).wrapping_mul(0x9E37_79B9)));
        }
        assert_eq!(shadows.best().share, 0.75);
        // A few keys occur again and again, among many that occur once.
        for n in 0..400_000u32 {
            let digest = if n % 2 == 0 { n / 2 % 450 } else { n };
            shadows.reference(read(digest.wrapping_mul(0x85EB_CA6B)));
        }
        assert_eq!(shadows.best().share, 0.125);
        assert!(shadows.bytes() < 100 << 10, "{}", shadows.bytes());
    }
}
