//! The rules by which items pass from probation to the main queue, and stay there.
//!
//! No rule is best for all requests. An *arm* is one set of rules, and a cache follows one arm at a time. The
//! [`Shadows`](crate::Shadows) find out which arm that should be.

use crate::ghost::Ghost;
use crate::mix::scramble;
use larder_item::KeyHash;

/// The highest warmth of an item.
pub const WARMTH_MAX: u8 = 3;
/// The main queue is full if it has this part of what probation leaves to it.
const FULL: f64 = 0.9;

/// How lately a key must have been evicted to count as one that comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Return {
    /// As lately as the ghost can tell.
    Known,
    /// Within the last half of the ghost's size in evictions. A key that comes back later is asked for less often than
    /// the items of the main queue, if each key has a constant probability.
    Half,
    /// While the main queue was swept once. LIRS has this rule (Jiang and Zhang, SIGMETRICS 2002, section 3.1): a key
    /// deserves a place if its time between two requests is shorter than the time that the coldest item of the main
    /// queue has been there without one.
    Round,
}

/// What a sweep takes from an item's warmth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cooling {
    /// One.
    Even,
    /// One, but from the highest warmth only every other time. The highest warmth stands for any number of requests
    /// above it, so the items that have it differ most. The same two bits count a little further, as in a Morris
    /// counter (Morris, Communications of the ACM 21(10), 1978).
    Slow,
}

/// One set of rules.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Arm {
    /// The share of probation in all items, 0..=1. When probation has more, it gives.
    pub share: f64,
    /// Whether the oldest item gives instead, in whichever queue it is. Together the queues are then one.
    pub in_order: bool,
    /// An item goes on to the main queue after this number of reads. Above [`WARMTH_MAX`]: reads do not count.
    pub reads: u8,
    /// An item also goes on if its key was evicted so lately.
    pub comes_back: Return,
    /// Whether an item takes the reads beyond the first with it.
    pub keeps_reads: bool,
    /// What a sweep of the main queue takes.
    pub cooling: Cooling,
    /// The part of probation, 0..=1, in which reads do not count: its newest items. The requests of the burst that
    /// brought an item say nothing about the next visit. LRU-K calls that time the correlated reference period
    /// (O'Neil, O'Neil and Weikum, SIGMOD 1993, section 2.1.1); Clock2Q+ has it as a window of half of its small queue
    /// (arXiv 2511.21958).
    pub correlated: f64,
    /// While the main queue has room, half of all keys, always the same ones, go on to it, whether anything is known of
    /// them or not. In a loop that is larger than the cache nothing is ever known of any key.
    pub fills: bool,
}

impl Arm {
    /// S3-FIFO with a threshold of one read, and another share for probation.
    pub const fn of_share(share: f64) -> Arm {
        let (comes_back, cooling) = (Return::Known, Cooling::Even);
        Arm {
            share,
            in_order: false,
            reads: 1,
            comes_back,
            keeps_reads: false,
            cooling,
            correlated: 0.0,
            fills: false,
        }
    }

    /// The arms of a cache whose index entries count reads.
    ///
    /// 1. S3-FIFO (Yang et al., SOSP 2023).
    /// 2. For keys of constant popularity: probation is only a filter, because a key that comes back to the ghost has
    ///    been measured over a longer time.
    /// 3. LIRS's measure of who comes back soon enough.
    /// 4. As 2Q (Johnson and Shasha, VLDB 1994): reads during probation are one visit, and only a second visit counts.
    /// 5. Recency: items stay for a while, however they are used.
    /// 6. Nearly first in, first out. Where each key is asked for twice, nothing else works.
    /// 7. CLOCK with two bits, and a ghost. It is never far from LRU, and recovers soonest when what is popular changes
    ///    at once.
    /// 8. S3-FIFO with a correlated reference period, as Clock2Q+: for requests that come in bursts.
    /// 9. For loops: what once filled the main queue stays there.
    pub const ALL: [Arm; 9] = [
        Arm::of_share(0.1),
        Arm { share: 0.01, comes_back: Return::Half, cooling: Cooling::Slow, ..Arm::of_share(0.0) },
        Arm { share: 0.05, comes_back: Return::Round, cooling: Cooling::Slow, ..Arm::of_share(0.0) },
        Arm {
            reads: WARMTH_MAX + 1,
            comes_back: Return::Round,
            cooling: Cooling::Slow,
            ..Arm::of_share(0.1)
        },
        Arm { keeps_reads: true, ..Arm::of_share(0.4) },
        Arm { keeps_reads: true, ..Arm::of_share(0.8) },
        Arm { in_order: true, ..Arm::of_share(1.0) },
        Arm { correlated: 0.5, cooling: Cooling::Slow, ..Arm::of_share(0.1) },
        Arm { reads: WARMTH_MAX + 1, comes_back: Return::Round, fills: true, ..Arm::of_share(0.1) },
    ];

    /// How many of the newest of `all` items (or columns) do not count reads.
    pub fn correlated_of(&self, all: usize) -> usize {
        (self.correlated * self.share * all as f64) as usize
    }

    /// Whether a main queue of `main` among `all` items (or columns) has nearly all that probation leaves to it.
    pub fn is_full(&self, main: usize, all: usize) -> bool {
        main as f64 >= FULL * (1.0 - self.share) * all as f64
    }

    /// What a key needs to go on to the main queue. As long as that queue has room, every key that the ghost knows goes
    /// on: a queue that nothing may enter would never be swept, and its sweep would never give a limit under which
    /// something may enter.
    pub fn terms(&self, is_full: bool, ghost: &Ghost, round: &Round) -> Terms {
        let age_max = match self.comes_back {
            _ if !is_full => u64::MAX,
            Return::Known => u64::MAX,
            Return::Half => ghost.entries() / 2,
            Return::Round => round.evictions(),
        };
        Terms { age_max, takes_half: self.fills && !is_full }
    }

    /// The warmth with which an item goes on to the main queue at the end of its probation, or `None` if it is evicted.
    /// A key in the ghost is forgotten there, if the ghost has to be asked.
    #[inline]
    pub fn promote(&self, key: KeyHash, warmth: u8, ghost: &mut Ghost, terms: Terms) -> Option<u8> {
        let stays = warmth >= self.reads
            || ghost.take(key).is_some_and(|age| age <= terms.age_max)
            || terms.lets_in(key);
        stays.then_some(if self.keeps_reads { warmth.saturating_sub(1) } else { 0 })
    }

    /// The warmth that the sweep leaves to an item of the main queue, or `None` if the item is evicted.
    #[inline]
    pub fn cool(&self, key: KeyHash, warmth: u8, round: &Round) -> Option<u8> {
        let stays_hot = self.cooling == Cooling::Slow && warmth == WARMTH_MAX && round.is_spared(key);
        if stays_hot { Some(warmth) } else { warmth.checked_sub(1) }
    }
}

/// What a key needs to go on to the main queue, beside reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The age, in evictions, up to which a key counts as one that comes back.
    age_max: u64,
    /// Whether half of all keys need nothing.
    takes_half: bool,
}

impl Terms {
    /// Whether the key needs nothing: it is one of half of all keys, always the same ones.
    #[inline]
    pub fn lets_in(&self, key: KeyHash) -> bool {
        self.takes_half && scramble(key.0) & 1 != 0
    }
}

/// Counts how often the main queue was swept, and how many evictions a sweep of all of it took.
#[derive(Clone, Debug)]
pub struct Round {
    /// Parts of the queue that this round has yet to reach.
    left: usize,
    number: u32,
    /// [`Ghost::pushed`] when the round began.
    began: u64,
    /// Evictions during the last round.
    evictions: u64,
}

impl Default for Round {
    fn default() -> Round {
        Round { left: 0, number: 0, began: 0, evictions: u64::MAX }
    }
}

impl Round {
    /// The sweep examines the next part of the main queue, an item or a column. `queued` parts are behind it.
    pub fn advance(&mut self, queued: usize, ghost: &Ghost) {
        if self.left > 1 {
            self.left -= 1;
            return;
        }
        self.evictions = ghost.pushed() - self.began;
        *self =
            Round { left: queued + 1, number: self.number.wrapping_add(1), began: ghost.pushed(), ..*self };
    }

    /// Evictions during the last whole round.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// One bit for each key and round, as good as random.
    fn is_spared(&self, key: KeyHash) -> bool {
        scramble(key.0.rotate_left(self.number % 64)) & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_as_long_as_the_queue_was_when_it_began() {
        let mut ghost = Ghost::for_entries(100);
        let mut round = Round::default();
        assert_eq!(round.evictions(), u64::MAX);
        round.advance(4, &ghost);
        assert_eq!(round.evictions(), 0);
        for (nth, evictions) in [0, 0, 0, 0, 20, 20, 20].into_iter().enumerate() {
            (0..4).for_each(|key| ghost.push(KeyHash(key)));
            round.advance(2, &ghost);
            assert_eq!(round.evictions(), evictions, "{nth}");
        }
        round.advance(2, &ghost);
        assert_eq!(round.evictions(), 8, "three parts, of which two are examined after the pushes");
    }

    #[test]
    #[cfg_attr(miri, ignore = "five thousand keys, each interpreted; arithmetic only")]
    fn an_arm_that_cools_slowly_spares_every_other_hot_item() {
        let [even, slow] = [Arm::ALL[0], Arm::ALL[1]];
        let mut round = Round::default();
        let ghost = Ghost::for_entries(1);
        let mut spared = [0; 2];
        for _ in 0..50 {
            round.advance(0, &ghost);
            for key in (0..100).map(KeyHash) {
                assert_eq!(
                    [0, 1, 2, 3].map(|warmth| even.cool(key, warmth, &round)),
                    [None, Some(0), Some(1), Some(2)]
                );
                assert_eq!([0, 1, 2].map(|warmth| slow.cool(key, warmth, &round)), [None, Some(0), Some(1)]);
                let left = slow.cool(key, 3, &round).expect("warm");
                spared[usize::from(left) - 2] += 1;
            }
        }
        assert!(spared.iter().all(|&count| count > 2300), "{spared:?}");
    }

    #[test]
    fn who_comes_back_depends_on_the_arm_and_on_the_room_in_the_main_queue() {
        let mut ghost = Ghost::for_entries(80);
        let (mut old, mut all) = (KeyHash(0), 0);
        // A key whose bucket is spared by the others.
        for key in 1000.. {
            (ghost, old, all) = (Ghost::for_entries(80), KeyHash(key), 0);
            ghost.push(old);
            (0..60).for_each(|other| ghost.push(KeyHash(other)));
            all += 61;
            if ghost.contains(old) {
                break;
            }
        }
        assert_eq!(ghost.pushed(), all);
        let round = Round { evictions: 50, ..Round::default() };
        for (arm, is_full, stays) in [
            (0, true, true),
            (1, true, false),
            (1, false, true),
            (2, true, false),
            (2, false, true),
            (3, true, false),
        ] {
            let arm = Arm::ALL[arm];
            let terms = arm.terms(is_full, &ghost, &round);
            assert_eq!(arm.promote(old, 0, &mut ghost.clone(), terms).is_some(), stays, "{arm:?}, {is_full}");
            assert_eq!(arm.promote(old, 3, &mut ghost.clone(), terms).is_some(), stays || arm.reads <= 3);
        }
        let long = Round { evictions: 60, ..round };
        let terms = Arm::ALL[2].terms(true, &Ghost::for_entries(1), &long);
        assert_eq!(Arm::ALL[2].promote(old, 0, &mut ghost, terms), Some(0));
        assert!(!ghost.contains(old));
        let terms = Arm::ALL[4].terms(true, &ghost, &round);
        assert_eq!(Arm::ALL[4].promote(old, 3, &mut ghost, terms), Some(2));
        assert!(Arm::ALL[0].is_full(81, 100) && !Arm::ALL[0].is_full(80, 100));
    }

    #[test]
    fn half_of_all_keys_fill_the_main_queue_of_the_arm_for_loops_and_none_of_them_enters_a_full_one() {
        let arm = Arm::ALL.into_iter().find(|arm| arm.fills).expect("an arm for loops");
        let mut ghost = Ghost::for_entries(1);
        let passed = |is_full: bool, ghost: &mut Ghost| {
            let terms = arm.terms(is_full, ghost, &Round::default());
            (0..100).filter(|key| arm.promote(KeyHash(*key), 0, ghost, terms).is_some()).count()
        };
        assert!((30..70).contains(&passed(false, &mut ghost)));
        assert_eq!(passed(true, &mut ghost), 0);
    }
}
