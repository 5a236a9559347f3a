//! Expected hits: how often an item of a class is read until the pass meets it again.

use crate::Group;

/// The queue in which the pass met an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetIn {
    /// Among new items.
    Probation,
    /// Among items that a pass kept before.
    Main,
}

/// What the temperature knew of an item when the pass met it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Warmth {
    /// The queue.
    pub met_in: MetIn,
    /// Level of warmth, 0 = not read since the last pass. Levels above 3 count as 3.
    pub level: u8,
    /// Whether the item stays if the temperature alone decides. An item that was not read stays for example if it was
    /// evicted shortly before it was stored.
    pub stays: bool,
}

/// Levels 0 to 3.
const LEVELS: usize = 4;
/// Each level in each queue, of items that stay and of items that go.
const WARMTHS: usize = 4 * LEVELS;
/// The mean that an observed mean falls back to counts as 20 observations.
const PRIOR_OBSERVATIONS: f32 = 20.0;
/// Expected hits of an item that was not read and goes, and of one that stays, as long as nothing was observed. Of an
/// item that was read, the level is expected.
const PRIOR_COLD: f32 = 0.1;
const PRIOR_RETURNED: f32 = 0.5;
/// At the end of a window, every observation keeps this weight.
const DECAY: f32 = 0.8;

impl Warmth {
    /// The number of the warmth, below [`WARMTHS`].
    #[inline]
    fn number(self) -> usize {
        let row = 2 * usize::from(self.met_in == MetIn::Main) + usize::from(self.stays);
        row * LEVELS + usize::from(self.level).min(LEVELS - 1)
    }
}

/// The sum and the number of observations.
#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f32,
    count: f32,
}

impl Mean {
    fn add(&mut self, hits: f32) {
        self.sum += hits;
        self.count += 1.0;
    }

    fn decay(&mut self) {
        self.sum *= DECAY;
        self.count *= DECAY;
    }

    /// The mean, drawn towards `prior` as long as there are few observations.
    fn or(&self, prior: f32) -> f32 {
        (self.sum + prior * PRIOR_OBSERVATIONS) / (self.count + PRIOR_OBSERVATIONS)
    }
}

/// A class of items: a warmth and a group, in one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Class(u16);

impl Class {
    pub(crate) fn of(warmth: Warmth, group: Group) -> Class {
        Class((warmth.number() * Group::COUNT + group.number()) as u16)
    }
}

/// Expected hits of every class. The items of one group are judged by their own history once there is enough of it, and
/// by that of all groups before.
pub(crate) struct ExpectedHits {
    /// By class.
    of_class: Box<[Mean]>,
    /// By warmth, over all groups.
    of_warmth: [Mean; WARMTHS],
    /// The answers, kept ready for the pass.
    expected: Box<[f32]>,
}

impl ExpectedHits {
    /// Nothing was observed yet.
    pub(crate) fn new() -> ExpectedHits {
        let mut hits = ExpectedHits {
            of_class: vec![Mean::default(); WARMTHS * Group::COUNT].into(),
            of_warmth: [Mean::default(); WARMTHS],
            expected: vec![0.0; WARMTHS * Group::COUNT].into(),
        };
        (0..WARMTHS).for_each(|warmth| hits.expect(warmth));
        hits
    }

    /// Expected hits of an item of `class`. Never 0.
    #[inline]
    pub(crate) fn of(&self, class: Class) -> f32 {
        self.expected[usize::from(class.0)]
    }

    /// An item of `class` was read `hits` times until the pass met it again, or would have met it.
    pub(crate) fn observe(&mut self, class: Class, hits: f32) {
        let at = usize::from(class.0);
        self.of_class[at].add(hits);
        self.of_warmth[at / Group::COUNT].add(hits);
        self.expect(at / Group::COUNT);
    }

    /// A window of accesses has ended.
    pub(crate) fn end_window(&mut self) {
        self.of_class.iter_mut().chain(&mut self.of_warmth).for_each(Mean::decay);
        (0..WARMTHS).for_each(|warmth| self.expect(warmth));
    }

    /// Computes the answers for all groups of one warmth.
    fn expect(&mut self, warmth: usize) {
        let stays = warmth / LEVELS % 2 == 1;
        let prior = match warmth % LEVELS {
            0 if stays => PRIOR_RETURNED,
            0 => PRIOR_COLD,
            level => level as f32,
        };
        let of_warmth = self.of_warmth[warmth].or(prior);
        let classes = warmth * Group::COUNT..(warmth + 1) * Group::COUNT;
        for (expected, mean) in self.expected[classes.clone()].iter_mut().zip(&self.of_class[classes]) {
            *expected = mean.or(of_warmth).max(f32::MIN_POSITIVE);
        }
    }

    /// Bytes of the tables.
    pub(crate) fn bytes(&self) -> u64 {
        (size_of_val(&self.of_class[..]) + size_of_val(&self.expected[..])) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Subclass;

    fn cold(bytes: u32) -> Class {
        let warmth = Warmth { met_in: MetIn::Main, level: 0, stays: false };
        Class::of(warmth, Group::of(bytes, Subclass::UNKNOWN))
    }

    #[test]
    fn a_group_without_a_history_is_judged_by_that_of_all_groups() {
        let mut hits = ExpectedHits::new();
        assert!((hits.of(cold(50)) - PRIOR_COLD).abs() < 1e-6);
        for _ in 0..1000 {
            hits.observe(cold(50), 2.0);
        }
        assert!((hits.of(cold(50)) - 2.0).abs() < 0.1, "{}", hits.of(cold(50)));
        assert!((hits.of(cold(5000)) - 2.0).abs() < 0.1, "{}", hits.of(cold(5000)));
        for _ in 0..1000 {
            hits.observe(cold(5000), 0.0);
        }
        assert!(hits.of(cold(5000)) < 0.05, "{}", hits.of(cold(5000)));
        assert!(hits.of(cold(50)) > 1.9, "{}", hits.of(cold(50)));
    }

    #[test]
    fn old_observations_fade_when_windows_end() {
        let mut hits = ExpectedHits::new();
        (0..1000).for_each(|_| hits.observe(cold(50), 2.0));
        (0..60).for_each(|_| hits.end_window());
        assert!((hits.of(cold(50)) - PRIOR_COLD).abs() < 0.01, "{}", hits.of(cold(50)));
    }

    #[test]
    fn every_warmth_has_a_number_of_its_own() {
        let mut seen = std::collections::HashSet::new();
        for met_in in [MetIn::Probation, MetIn::Main] {
            for (level, stays) in (0..4).flat_map(|level| [(level, false), (level, true)]) {
                assert!(seen.insert(Warmth { met_in, level, stays }.number()));
            }
        }
        assert_eq!(seen.len(), WARMTHS);
        assert!(seen.into_iter().all(|number| number < WARMTHS));
    }
}
