//! A hitmap by its definition: a `bool` for each bit, nothing packed, and no code shared with the fast hitmaps.
#![allow(dead_code, reason = "each test uses its part")]

use larder_temperature::{Digest, Hitmap, Reference};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Few cases under Miri, which interprets every step.
pub(crate) fn cases(many: u32) -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 2 } else { many },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Digest number `key`.
pub(crate) fn digest(key: u32) -> Digest {
    // The digests of successive keys differ in few bits, which is the hardest case.
    Digest::from_bits(key)
}

/// A step that a test does on a map.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Keys, and whether each one is stored.
    Mark(Vec<(u32, bool)>),
    Zones(Vec<u32>),
    Age,
    AgeSome(usize),
    Grow(u64),
}

/// Steps with keys below `keys`, and with growth for fewer than `items` items.
pub(crate) fn steps(keys: u32, items: u64) -> impl Strategy<Value = Vec<Step>> {
    let batch = if cfg!(miri) { 20 } else { 40 };
    let step = prop_oneof![
        10 => prop::collection::vec((0..keys, any::<bool>()), 0..batch).prop_map(Step::Mark),
        3 => prop::collection::vec(0..keys, 0..batch).prop_map(Step::Zones),
        2 => Just(Step::Age),
        3 => (0usize..400).prop_map(Step::AgeSome),
        2 => (0usize..20_000).prop_map(Step::AgeSome),
        1 => (0..items).prop_map(Step::Grow),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 8 } else { 60 })
}

pub(crate) fn references(batch: &[(u32, bool)]) -> Vec<Reference> {
    let reference = |&(key, store): &(u32, bool)| match store {
        true => Reference::store(digest(key)),
        false => Reference::read(digest(key)),
    };
    batch.iter().map(reference).collect()
}

pub(crate) fn zones(map: &mut dyn Hitmap, keys: &[u32]) -> Vec<u8> {
    let digests: Vec<Digest> = keys.iter().map(|&key| digest(key)).collect();
    let mut zones = vec![77];
    map.zones(&digests, &mut zones);
    assert_eq!(zones.remove(0), 77, "zones are appended");
    zones
}

/// A level of a line, or a whole level: one `bool` per bit.
pub(crate) type Bits = Vec<bool>;

/// How the bits of keys are arranged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layout {
    /// One line: all levels of a key in one of many lines, whose levels have [`LINE_LEVELS`] bits.
    Line,
    /// Published: levels each twice as large as the one below. A key has this many bits.
    Published(u32),
}

/// The bits of the levels of a line, the lowest level first.
const LINE_LEVELS: [usize; 3] = [128, 128, 256];

/// Bits of a stripe in level 1 of a published map.
const STRIPE: usize = 512;

/// Stacks of levels. A position in the top level is a position in a lower level modulo its size.
///
/// An aging of the published layout changes all bits at once. Which stripes it has reached only decides when it is
/// over.
#[derive(Clone, Debug)]
pub(crate) struct Naive {
    pub(crate) layout: Layout,
    /// For each line, its levels from the lowest up.
    pub(crate) lines: Vec<Vec<Bits>>,
    pub(crate) set_counter: Option<Bits>,
    /// Lines that the aging has not reached yet.
    pub(crate) to_fold: usize,
    /// Stripes of a published map that the aging has not reached yet.
    pub(crate) to_reach: BTreeSet<usize>,
}

impl Naive {
    fn new(layout: Layout, lines: usize, levels: impl IntoIterator<Item = usize>) -> Naive {
        let line: Vec<Bits> = levels.into_iter().map(|bits| vec![false; bits]).collect();
        let lines = vec![line; lines];
        Naive { layout, lines, set_counter: None, to_fold: 0, to_reach: BTreeSet::new() }
    }

    pub(crate) fn line(lines: usize) -> Naive {
        Naive::new(Layout::Line, lines, LINE_LEVELS)
    }

    pub(crate) fn published(hash_bits: u8, first_bits: usize, levels: u8, set_counter: bool) -> Naive {
        let levels = (0..levels).map(|level| first_bits << level);
        let naive = Naive::new(Layout::Published(hash_bits.into()), 1, levels);
        Naive { set_counter: set_counter.then(|| vec![false; first_bits]), ..naive }
    }

    /// Mixed bits, with integers that do not overflow.
    fn mixed(key: u32) -> u128 {
        let modulus = 1u128 << 64;
        let x = (u128::from(digest(key).bits()) + 1) * 0x9E37_79B9_7F4A_7C15 % modulus;
        let x = (x ^ (x / (1 << 32))) * 0xD6E8_FEB8_6659_FD93 % modulus;
        x ^ (x / (1 << 32))
    }

    /// The line of a key, and its positions in a level of unlimited size.
    fn line_and_positions(&self, key: u32) -> (usize, Vec<u128>) {
        let mixed = Naive::mixed(key);
        match self.layout {
            Layout::Line => {
                let line = (mixed >> 32) * self.lines.len() as u128 / (1 << 32);
                let select = mixed / (1 << 18) % 4;
                let positions = [1, 1 << 6, 1 << 12].map(|place| mixed / place % 64 + 64 * select);
                (line as usize, positions.to_vec())
            }
            Layout::Published(hash_bits) => {
                let twice = mixed << 64 | mixed;
                (0, (0..hash_bits).map(|nth| (twice << (21 * nth)) >> 64).collect())
            }
        }
    }

    pub(crate) fn zone(&self, key: u32) -> u8 {
        let (line, positions) = self.line_and_positions(key);
        let holds = |level: &&Bits| positions.iter().all(|p| level[(p % level.len() as u128) as usize]);
        self.lines[line].iter().take_while(holds).count() as u8
    }

    pub(crate) fn mark(&mut self, batch: &[(u32, bool)]) {
        let before = self.clone();
        for &(key, store) in batch {
            let (line, positions) = self.line_and_positions(key);
            let zone = before.zone(key);
            let set = |bits: &mut Bits| {
                for position in &positions {
                    let at = position % bits.len() as u128;
                    bits[at as usize] = true;
                }
            };
            if let Some(level) = self.lines[line].get_mut(usize::from(zone)) {
                set(level);
            }
            if zone == 0 && store {
                self.set_counter.iter_mut().for_each(set);
            }
            // These marks have no place in a stripe that the aging has not reached, so it reaches the stripe now.
            let is_top = usize::from(zone) + 1 == self.lines[line].len();
            if is_top || zone == 0 && store && self.set_counter.is_some() {
                let first_bits = self.lines[line][0].len() as u128;
                for position in &positions {
                    self.to_reach.remove(&((position % first_bits) as usize / STRIPE));
                }
            }
        }
    }

    fn fold(&mut self, line: usize) {
        let levels = &mut self.lines[line];
        for level in 0..levels.len() {
            let bits = levels[level].len();
            let above = levels.get(level + 1).cloned().unwrap_or_default();
            // All positions above that equal this one modulo the size here.
            levels[level] = (0..bits).map(|p| above.iter().skip(p).step_by(bits).any(|bit| *bit)).collect();
        }
        if let Some(set_counter) = &mut self.set_counter {
            for (bit, set) in levels[0].iter_mut().zip(set_counter) {
                *bit |= std::mem::take(set);
            }
        }
    }

    pub(crate) fn age(&mut self) {
        match self.layout {
            Layout::Line if self.to_fold == 0 => self.to_fold = self.lines.len(),
            Layout::Published(_) if self.to_reach.is_empty() => {
                self.fold(0);
                self.to_reach = (0..self.lines[0][0].len() / STRIPE).collect();
            }
            _ => {}
        }
    }

    pub(crate) fn age_some(&mut self, bytes: usize) -> bool {
        match self.layout {
            Layout::Line => {
                for _ in 0..(bytes / 64).min(self.to_fold) {
                    self.fold(self.lines.len() - self.to_fold);
                    self.to_fold -= 1;
                }
            }
            Layout::Published(_) => {
                let stripes = self.lines[0][0].len() / STRIPE;
                for _ in 0..bytes as u64 / (self.published_bytes() / stripes as u64) {
                    self.to_reach.pop_first();
                }
            }
        }
        self.to_fold > 0 || !self.to_reach.is_empty()
    }

    /// Bytes of a published map.
    pub(crate) fn published_bytes(&self) -> u64 {
        self.lines[0].iter().chain(&self.set_counter).map(|level| level.len() as u64 / 8).sum()
    }

    /// Doubles the number of lines, or the number of bits.
    pub(crate) fn double(&mut self) {
        match self.layout {
            Layout::Line => {
                let twice = |line: &Vec<Bits>| [line.clone(), line.clone()];
                self.lines = self.lines.iter().flat_map(twice).collect();
                self.to_fold *= 2;
            }
            Layout::Published(_) => {
                self.to_reach.clear();
                self.lines[0]
                    .iter_mut()
                    .chain(&mut self.set_counter)
                    .for_each(|level| *level = level.repeat(2));
            }
        }
    }
}

/// The bits of words, lowest first.
pub(crate) fn bits(words: &[u64]) -> Bits {
    words.iter().flat_map(|word| (0..64).map(move |n| word >> n & 1 == 1)).collect()
}
