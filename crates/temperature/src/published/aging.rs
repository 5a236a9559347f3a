//! An aging that is done stripe by stripe.
//!
//! ```text
//!  level 3  [ ..#..... | ..#..... | ..#..... | ..#..... ]      # = one stripe
//!  level 2  [ ..#..... | ..#..... ]
//!  level 1  [ ..#..... ]   set counter [ ..#..... ]
//! ```
//!
//! A stripe is one cache line of level 1, and the bits of the other counters whose positions are the same modulo the
//! size of level 1. An aging moves no bit from one stripe to another. Stripes can therefore be folded one at a time and
//! in any order. What the fold of a stripe will be can be read before it is done: see [`AgedLevel`].

use super::Level;
use crate::hash_counter::{COUNTER_BITS_MIN, HashCounter};
use crate::prefetch::prefetch;
use std::ops::Range;

/// Words of a stripe in level 1.
const STRIPE_WORDS: usize = 8;
/// Bits of a stripe in level 1.
pub(super) const STRIPE_BITS: u64 = STRIPE_WORDS as u64 * u64::BITS as u64;

const _: () = assert!(COUNTER_BITS_MIN.is_multiple_of(STRIPE_BITS), "a counter has whole stripes");

/// An aging in progress: which stripes are folded. At least one is not.
#[derive(Clone, Debug)]
pub(super) struct Aging {
    /// A bit for each stripe.
    folded: Vec<u64>,
    /// Number of stripes: a power of two.
    stripes: usize,
    /// Stripes that are not folded.
    left: usize,
    /// All stripes before this one are folded.
    cursor: usize,
}

impl Aging {
    /// The beginning of an aging of a map with this level 1.
    pub(super) fn begun(first: &HashCounter) -> Aging {
        let stripes = first.words().len() / STRIPE_WORDS;
        let folded = vec![0; stripes.div_ceil(u64::BITS as usize)];
        Aging { folded, stripes, left: stripes, cursor: 0 }
    }

    fn is_folded(&self, stripe: usize) -> bool {
        self.folded[stripe / u64::BITS as usize] >> (stripe % u64::BITS as usize) & 1 == 1
    }

    /// The stripe of a word of any counter, if the stripe is not folded.
    #[inline]
    pub(super) fn unfolded(&self, word: usize) -> Option<usize> {
        let stripe = (word / STRIPE_WORDS) & (self.stripes - 1);
        (!self.is_folded(stripe)).then_some(stripe)
    }

    /// The next stripes to fold, which are neighbours: from 1 to `stripes_max` of them.
    pub(super) fn next_stripes(&mut self, stripes_max: usize) -> Range<usize> {
        while self.is_folded(self.cursor) {
            self.cursor += 1;
        }
        let most = self.stripes.min(self.cursor.saturating_add(stripes_max));
        let end = (self.cursor + 1..most).find(|stripe| self.is_folded(*stripe));
        self.cursor..end.unwrap_or(most)
    }

    /// Notes that these stripes, which were not folded, are folded now. Returns whether they were the last ones.
    pub(super) fn note(&mut self, stripes: Range<usize>) -> bool {
        self.left -= stripes.len();
        for stripe in stripes {
            self.folded[stripe / u64::BITS as usize] |= 1 << (stripe % u64::BITS as usize);
        }
        self.left == 0
    }
}

/// Folds stripes: each level takes the place of the one below it, the top level is cleared, and the set counter goes to
/// level 1.
pub(super) fn fold(levels: &mut [HashCounter], set_counter: Option<&mut HashCounter>, stripes: Range<usize>) {
    let first_words = levels[0].words().len();
    let words = stripes.start * STRIPE_WORDS..stripes.end * STRIPE_WORDS;
    // The words of the stripes in a level.
    let parts = |level: usize| {
        let words = words.clone();
        (0..1 << level).map(move |part| words.start + part * first_words..words.end + part * first_words)
    };
    for upper in 1..levels.len() {
        let (below, above) = levels.split_at_mut(upper);
        parts(upper - 1).for_each(|words| below[upper - 1].become_fold_of(&above[0], words));
    }
    let top = levels.len() - 1;
    parts(top).for_each(|words| levels[top].clear_words(words));
    if let Some(set) = set_counter {
        levels[0].or_words(set, words.clone());
        set.clear_words(words);
    }
}

/// A level as the aging in progress leaves it. In the stripes that are not folded yet it is made of the level above it
/// and, if it is level 1, of the set counter.
pub(super) struct AgedLevel<'a> {
    pub(super) aging: &'a Aging,
    pub(super) level: &'a HashCounter,
    pub(super) above: Option<&'a HashCounter>,
    pub(super) set_counter: Option<&'a HashCounter>,
}

impl AgedLevel<'_> {
    /// A word as it will be.
    fn word(&self, word: usize) -> u64 {
        if self.aging.unfolded(word).is_none() {
            return self.level.words()[word];
        }
        let half = self.level.words().len();
        let above = self.above.map_or(0, |above| above.words()[word] | above.words()[half + word]);
        above | self.set_counter.map_or(0, |set| set.words()[word])
    }
}

impl Level for AgedLevel<'_> {
    fn prefetch(&self, mixed: u64) {
        for nth in 0..self.level.hash_bits() {
            let (word, _) = self.level.word_and_bit(mixed, nth);
            if self.aging.unfolded(word).is_none() {
                prefetch(self.level.words(), word);
                continue;
            }
            if let Some(above) = self.above {
                prefetch(above.words(), word);
                prefetch(above.words(), self.level.words().len() + word);
            }
            if let Some(set) = self.set_counter {
                prefetch(set.words(), word);
            }
        }
    }

    fn is_marked(&self, mixed: u64) -> bool {
        (0..self.level.hash_bits()).all(|nth| {
            let (word, bit) = self.level.word_and_bit(mixed, nth);
            self.word(word) & bit != 0
        })
    }
}
