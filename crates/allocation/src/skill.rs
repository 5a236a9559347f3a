//! Whether what a miss costs says something of the next miss of its key.
//!
//! A sample of the keys is remembered with the penalty of their last miss. When such a key is missed again, there is a
//! pair: the penalty of before and the present one. Only penalties count that a client has stated, or that were
//! measured just now: an item that brings its penalty along from flash, or takes it from an older version, would
//! confirm itself.
//!
//! The pairs of a block are compared with the means of the block, so that a back end that is slow for a while, for all
//! keys, shows no skill. Of the products of the two deviations, the sum and the sum of the squares are kept: the root
//! of the latter is White's standard error of the former. A few keys that happened to be slow both times prove no more
//! than as many others.

use crate::{CostEvidence, Subclass};

/// Sampled keys that are remembered. A pair takes two misses of a key, so the fewer keys are sampled, the longer it
/// takes until costs count: on a workload like Facebook's ETC 1.25 million requests, and 2 million with a quarter of
/// these places.
const KEYS: usize = 16_384;
/// Pairs of a block.
const BLOCK: usize = 64;
/// What earlier blocks weigh when another one ends: as many pairs as 64 blocks count, so that one dear key in a hundred
/// is seen.
const DECAY: f64 = 63.0 / 64.0;
/// The covariance that shows skill, in standard errors, and the least slope of the penalties of now over those of
/// before, both as numbers of subclasses. Chance comes to 4 in one of 30,000 blocks.
const ERRORS_SHOWN: f64 = 4.0;
const SLOPE_SHOWN: f64 = 0.25;
/// Skill is lost only where pairs as different in the penalty before as this many keys speak against it.
const KEYS_AGAINST: f64 = 25.0;
/// The remembered counts of stated and of measured penalties together.
const COUNTED_MAX: u32 = 1024;

/// Learns from penalties whether they count.
pub struct CostSkill {
    /// Number of the subclass and 13 bits of the hash of a key, 0 = free.
    keys: Box<[u16; KEYS]>,
    /// The subclasses before and now of the pairs of this block.
    block: Vec<(u8, u8)>,
    /// Sums over pairs of the product of the deviations, and of its square.
    products: f64,
    squares: f64,
    /// The same of the square of the deviation before.
    before_squares: f64,
    before_fourths: f64,
    has_skill: bool,
    /// Stated and measured penalties of late.
    counted: [u32; 2],
    states: bool,
}

impl Default for CostSkill {
    fn default() -> CostSkill {
        CostSkill {
            keys: Box::new([0; KEYS]),
            block: Vec::with_capacity(BLOCK),
            products: 0.0,
            squares: 0.0,
            before_squares: 0.0,
            before_fourths: 0.0,
            has_skill: false,
            counted: [0; 2],
            states: false,
        }
    }
}

impl CostSkill {
    /// Memory, bytes.
    pub const BYTES: u64 = (size_of::<CostSkill>() + 2 * KEYS + 2 * BLOCK) as u64;

    /// How far the hash of a key is shifted where the cache holds `items` items: the key is sampled if 0 is left. The
    /// sampled items then take about half of the places. The other half is for sampled keys that the cache lacks.
    pub fn shift_for(items: u64) -> u32 {
        u64::BITS - (2 * items / KEYS as u64).max(1).ilog2()
    }

    /// Whether a key of this hash is sampled.
    #[inline]
    pub fn samples(hash: u64, shift: u32) -> bool {
        hash.checked_shr(shift).unwrap_or(0) == 0
    }

    /// A miss of a sampled key cost this: a client said so (`stated`), or it was measured.
    pub fn note(&mut self, hash: u64, penalty: Subclass, stated: bool) {
        self.counted[usize::from(!stated)] += 1;
        let (all, of) = (self.counted[0] + self.counted[1], if self.states { 3 } else { 2 });
        self.states = of * self.counted[0] >= all;
        if all >= COUNTED_MAX {
            self.counted = self.counted.map(|count| count / 2);
        }
        // The high bits chose the key. 0 is kept for a free place.
        let mixed = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let place = &mut self.keys[(mixed >> 20) as usize % KEYS];
        let tag = (mixed >> 51) as u16 | 1;
        let before = (*place >> 3 == tag).then_some((*place & 7) as u8);
        let now = penalty.number() as u8;
        *place = tag << 3 | u16::from(now);
        if let Some(before) = before {
            self.block.push((before, now));
            if self.block.len() == BLOCK {
                self.end_block();
            }
        }
    }

    fn end_block(&mut self) {
        let count = self.block.len() as f64;
        let sums = self
            .block
            .iter()
            .fold((0.0, 0.0), |(x, y), (before, now)| (x + f64::from(*before), y + f64::from(*now)));
        let (x, y) = (sums.0 / count, sums.1 / count);
        self.products *= DECAY;
        self.squares *= DECAY * DECAY;
        self.before_squares *= DECAY;
        self.before_fourths *= DECAY * DECAY;
        for (before, now) in self.block.drain(..) {
            let (before, now) = (f64::from(before) - x, f64::from(now) - y);
            self.products += before * now;
            self.squares += (before * now).powi(2);
            self.before_squares += before * before;
            self.before_fourths += before.powi(4);
        }
        let (error, slope_shown) = (self.squares.sqrt(), SLOPE_SHOWN * self.before_squares);
        let is_shown = self.products > (ERRORS_SHOWN * error).max(slope_shown);
        // While penalties count, dear items stay, and those that are missed are much alike. That is no sign against
        // skill: it is lost when the slope is small for certain.
        let deviating = self.before_squares.powi(2) / self.before_fourths;
        let is_refuted = deviating > KEYS_AGAINST && self.products + 2.0 * error < slope_shown;
        self.has_skill = is_shown || self.has_skill && !is_refuted;
    }

    /// What speaks for it that penalties count.
    pub fn evidence(&self) -> CostEvidence {
        match self.has_skill {
            _ if self.states => CostEvidence::Stated,
            true => CostEvidence::Skill,
            false => CostEvidence::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number without a pattern.
    fn mixed(n: u64) -> u64 {
        let x = (n + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 29)
    }

    /// After up to `misses` misses of 500 keys at random: `penalty` is given the key, and the number of the miss. A key
    /// that it gives 9 is not missed.
    fn after(skill: &mut CostSkill, misses: u64, penalty: impl Fn(u64, u64) -> u8) -> CostEvidence {
        for miss in 0..misses {
            let key = mixed(miss) % 500;
            if penalty(key, miss) == 9 {
                continue;
            }
            let subclass = Subclass::from_number(penalty(key, miss)).expect("a number below the count");
            skill.note(mixed(key + 10_000), subclass, false);
        }
        skill.evidence()
    }

    fn one_in(times: u64, n: u64) -> u8 {
        u8::from(mixed(n + 77).is_multiple_of(times))
    }

    #[test]
    fn keys_that_cost_the_same_each_time_show_skill() {
        for times in [2, 10, 50] {
            let mut skill = CostSkill::default();
            assert_eq!(
                after(&mut skill, 6_000, |key, _| 3 * one_in(times, key)),
                CostEvidence::Skill,
                "{times}"
            );
            // Nothing dear is missed any more: that is no sign against it.
            let cheap = |key: u64, miss: u64| if one_in(times, key) > 0 { 9 } else { one_in(1000, miss) };
            assert_eq!(after(&mut skill, 30_000, cheap), CostEvidence::Skill, "{times}");
        }
    }

    #[test]
    fn chance_shows_no_skill() {
        for times in [2, 10, 100] {
            let mut skill = CostSkill::default();
            for round in 0..40 {
                let by_chance = |_: u64, miss: u64| 3 * one_in(times, miss + 5_000 * round);
                assert_eq!(after(&mut skill, 5_000, by_chance), CostEvidence::None, "{times} {round}");
            }
        }
        assert_eq!(after(&mut CostSkill::default(), 10_000, |_, _| 3), CostEvidence::None);
    }

    #[test]
    fn a_back_end_that_is_slow_for_a_while_shows_no_skill() {
        let mut skill = CostSkill::default();
        for round in 0..40 {
            let slow = u8::from(round % 2 == 1);
            let evidence = after(&mut skill, 2_000, |_, miss| (one_in(10, miss) + 2 * slow).min(4));
            assert_eq!(evidence, CostEvidence::None, "{round}");
        }
    }

    #[test]
    fn skill_is_lost_when_penalties_come_by_chance() {
        let mut skill = CostSkill::default();
        assert_eq!(after(&mut skill, 3_000, |key, _| 3 * one_in(4, key)), CostEvidence::Skill);
        assert_eq!(after(&mut skill, 30_000, |_, miss| 3 * one_in(4, miss)), CostEvidence::None);
    }

    #[test]
    fn what_clients_state_counts_until_they_seldom_do() {
        let mut skill = CostSkill::default();
        skill.note(1, Subclass::UNKNOWN, true);
        assert_eq!(skill.evidence(), CostEvidence::Stated);
        (0..400).for_each(|n| skill.note(n, Subclass::UNKNOWN, n % 5 < 2));
        assert_eq!(skill.evidence(), CostEvidence::Stated);
        (0..2000).for_each(|n| skill.note(n, Subclass::UNKNOWN, n % 5 == 0));
        assert_eq!(skill.evidence(), CostEvidence::None);
        (0..2000).for_each(|n| skill.note(n, Subclass::UNKNOWN, n % 5 < 2));
        assert_eq!(skill.evidence(), CostEvidence::None);
    }

    #[test]
    fn the_sample_of_the_items_takes_half_of_the_places() {
        for items in [0u64, 1_000, 100_000, 10_000_000] {
            let shift = CostSkill::shift_for(items);
            let sampled =
                (0..100_000).filter(|n| CostSkill::samples(mixed(*n), shift)).count() as f64 / 100_000.0;
            let wanted = (KEYS as f64 / 2.0 / items.max(1) as f64).min(1.0);
            assert!(sampled >= wanted * 0.7 && sampled <= (wanted * 2.5).min(1.0), "{items}: {sampled}");
        }
    }
}
