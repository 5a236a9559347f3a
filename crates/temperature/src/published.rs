//! The hitmap as Catalyst publishes it (section 3.1): hash counters in levels, each twice as large as the one
//! below, and a set counter.
//!
//! ```text
//!  level 4  [ 8 B bits                                                      ]   accessed four times or more
//!  level 3  [ 4 B bits                     ]                                    three times
//!  level 2  [ 2 B bits     ]                                                    twice
//!  level 1  [ B bits ]   set counter [ B bits ]                                 once; stored since the last aging
//! ```
//!
//! All levels use the same hash values of a key. An aging therefore moves each level one down as `low half OR high
//! half` (Fig. 4). It is done piece by piece; meanwhile the map answers as if the whole aging were done.

use crate::hash_counter::{COUNTER_BITS_MIN, HASH_BITS_MAX, HashCounter};
use crate::hitmap::Hitmap;
use crate::mix::mix;
use crate::reference::{Digest, Reference};
use aging::{AgedLevel, Aging, STRIPE_BITS, fold};
use std::ops::Range;

mod aging;

/// Most levels a map can have.
pub const LEVELS_MAX: u8 = 6;
/// Bits of level 1 in the largest map. With six levels the top level then has 2^36 bits, 32 for each digest.
const FIRST_BITS_MAX: u64 = 1 << 31;

/// Number of references judged together. Their mixed bits, and the list of those that are still climbing, stay in
/// the nearest cache.
const CHUNK: usize = 1024;
/// How many references ahead of their use the bits of a key are prefetched.
const AHEAD: usize = 12;

/// The shape of a [`PublishedHitmap`]. The default is the paper's: four levels, three hash bits, a set counter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PublishedOptions {
    /// Number of hash counters: 1 to [`LEVELS_MAX`].
    pub levels: u8,
    /// Bits of a key in each hash counter: 1 to [`HASH_BITS_MAX`].
    pub hash_bits: u8,
    /// Bits of level 1 per item, more than 0. The paper's 256 MB for 100 GB of items of about 300 bytes (section
    /// 4.3) are 6.4 bits. The product is rounded to the nearest power of two by ratio, and is at least
    /// [`COUNTER_BITS_MIN`].
    pub bits_per_item: f64,
    /// Whether the keys stored since the last aging survive the next one (section 3.1.5).
    pub set_counter: bool,
}

impl Default for PublishedOptions {
    fn default() -> PublishedOptions {
        PublishedOptions { levels: 4, hash_bits: 3, bits_per_item: 6.4, set_counter: true }
    }
}

impl PublishedOptions {
    /// Bits of level 1 for `items` items.
    pub fn first_bits_for(&self, items: u64) -> u64 {
        let wanted = (items as f64 * self.bits_per_item).max(1.0);
        let log2 = wanted.log2().round() as u32;
        (1u64 << log2.min(FIRST_BITS_MAX.ilog2())).max(COUNTER_BITS_MIN)
    }

    /// Bytes of a map for `items` items.
    pub fn bytes_for(&self, items: u64) -> u64 {
        self.bytes(self.first_bits_for(items))
    }

    /// Bytes of a map whose level 1 has `first_bits` bits.
    fn bytes(&self, first_bits: u64) -> u64 {
        let counters = (1 << self.levels) - 1 + u64::from(self.set_counter);
        counters * first_bits / 8
    }

    fn check(&self) {
        assert!((1..=LEVELS_MAX).contains(&self.levels), "{} levels", self.levels);
        assert!((1..=HASH_BITS_MAX).contains(&self.hash_bits), "{} hash bits", self.hash_bits);
        assert!(self.bits_per_item > 0.0, "{} bits per item", self.bits_per_item);
    }
}

/// Hash counters in levels, each twice as large as the one below it.
#[derive(Clone, Debug)]
pub struct PublishedHitmap {
    options: PublishedOptions,
    levels: Vec<HashCounter>,
    set_counter: Option<HashCounter>,
    /// The aging in progress.
    aging: Option<Aging>,
    scratch: Scratch,
}

/// What a key is looked for in.
trait Level {
    /// Prefetches the bits of a key.
    fn prefetch(&self, mixed: u64);

    /// Whether all bits of a key are set.
    fn is_marked(&self, mixed: u64) -> bool;
}

impl Level for &HashCounter {
    #[inline(always)]
    fn prefetch(&self, mixed: u64) {
        HashCounter::prefetch(self, mixed);
    }

    #[inline(always)]
    fn is_marked(&self, mixed: u64) -> bool {
        HashCounter::is_marked(self, mixed)
    }
}

/// Buffers for one batch, kept to be reused.
#[derive(Clone, Default, Debug)]
struct Scratch {
    mixed: Vec<u64>,
    climbing: Vec<u16>,
    zones: Vec<u8>,
}

impl PublishedHitmap {
    /// An empty map for `items` items.
    ///
    /// # Panics
    /// If an option is out of its range.
    pub fn for_items(items: u64, options: PublishedOptions) -> PublishedHitmap {
        options.check();
        let first_bits = options.first_bits_for(items);
        let levels = (0..options.levels)
            .map(|level| HashCounter::new(first_bits << level, options.hash_bits))
            .collect();
        let set_counter = options.set_counter.then(|| HashCounter::new(first_bits, options.hash_bits));
        PublishedHitmap { options, levels, set_counter, aging: None, scratch: Scratch::default() }
    }

    /// A map with the bits of another one, from level 1 upward.
    ///
    /// # Panics
    /// If an option is out of its range, or the length of a counter does not match the options.
    pub fn from_words(
        options: PublishedOptions,
        levels: Vec<Vec<u64>>,
        set_counter: Option<Vec<u64>>,
    ) -> PublishedHitmap {
        options.check();
        let counter = |words| HashCounter::from_words(words, options.hash_bits);
        let levels: Vec<HashCounter> = levels.into_iter().map(counter).collect();
        let set_counter = set_counter.map(counter);
        assert_eq!(levels.len(), usize::from(options.levels), "levels");
        assert_eq!(set_counter.is_some(), options.set_counter, "set counter");
        let first_bits = levels[0].bits();
        assert!((COUNTER_BITS_MIN..=FIRST_BITS_MAX).contains(&first_bits), "{first_bits} bits");
        for (level, counter) in levels.iter().enumerate() {
            assert_eq!(counter.bits(), first_bits << level, "bits of level {}", level + 1);
        }
        assert!(set_counter.as_ref().is_none_or(|set| set.bits() == first_bits), "bits of the set counter");
        PublishedHitmap { options, levels, set_counter, aging: None, scratch: Scratch::default() }
    }

    /// The hash counters, from level 1 upward. While an aging is in progress their bits mean something only to the map
    /// itself: some are those before the aging.
    pub fn counters(&self) -> &[HashCounter] {
        &self.levels
    }

    /// The set counter, if there is one. As [`PublishedHitmap::counters`] while an aging is in progress.
    pub fn set_counter(&self) -> Option<&HashCounter> {
        self.set_counter.as_ref()
    }

    /// Appends the zones of the keys.
    fn judge<T: Copy>(&mut self, of: &[T], digest: impl Fn(T) -> Digest, zones: &mut Vec<u8>) {
        let Some(aging) = &self.aging else {
            return self.scratch.judge(of, digest, zones, self.levels.iter());
        };
        let above = self.levels.iter().skip(1).map(Some).chain([None]);
        let set_counter = std::iter::once(self.set_counter.as_ref()).chain(std::iter::repeat(None));
        let levels = self.levels.iter().zip(above).zip(set_counter);
        let aged = |((level, above), set_counter)| AgedLevel { aging, level, above, set_counter };
        self.scratch.judge(of, digest, zones, levels.map(aged));
    }

    /// Marks a key in a level, counted from 0, of the map as the aging in progress leaves it.
    ///
    /// A stripe that is not folded yet will have in this level what it has in the level above now. Above the top level
    /// there is none, and the aging would take away what is in the set counter: for these the stripe is folded first.
    fn mark_while_aging(&mut self, reference: Reference, level: usize) {
        if level == self.levels.len() {
            return;
        }
        let mixed = mix(reference.digest());
        let is_stored = level == 0 && reference.is_store() && self.set_counter.is_some();
        for nth in 0..self.options.hash_bits {
            let (word, _) = self.levels[level].word_and_bit(mixed, nth);
            let place = match self.aging.as_ref().and_then(|aging| aging.unfolded(word)) {
                None => level,
                Some(_) if level + 1 < self.levels.len() && !is_stored => level + 1,
                Some(stripe) => {
                    self.fold(stripe..stripe + 1);
                    level
                }
            };
            self.levels[place].mark_one(mixed, nth);
            if is_stored && let Some(set) = &mut self.set_counter {
                set.mark_one(mixed, nth);
            }
        }
    }

    /// Folds stripes that are not folded yet. With the last ones the aging is over.
    fn fold(&mut self, stripes: Range<usize>) {
        fold(&mut self.levels, self.set_counter.as_mut(), stripes.clone());
        if let Some(aging) = &mut self.aging
            && aging.note(stripes)
        {
            self.aging = None;
        }
    }
}

impl Scratch {
    /// Appends the zones of the keys. The work goes level by level: few keys still climb above level 1, and on
    /// every level the lines are prefetched before they are needed.
    fn judge<T: Copy>(
        &mut self,
        of: &[T],
        digest: impl Fn(T) -> Digest,
        zones: &mut Vec<u8>,
        levels: impl Iterator<Item = impl Level> + Clone,
    ) {
        let Scratch { mixed, climbing, .. } = self;
        for chunk in of.chunks(CHUNK) {
            let first = zones.len();
            zones.resize(first + chunk.len(), 0);
            let zones = &mut zones[first..];
            mixed.clear();
            mixed.extend(chunk.iter().map(|&one| mix(digest(one))));
            climbing.clear();
            climbing.extend(0..chunk.len() as u16);
            for level in levels.clone() {
                climbing.iter().take(AHEAD).for_each(|&one| level.prefetch(mixed[usize::from(one)]));
                let mut left = 0;
                for at in 0..climbing.len() {
                    if let Some(&ahead) = climbing.get(at + AHEAD) {
                        level.prefetch(mixed[usize::from(ahead)]);
                    }
                    let one = climbing[at];
                    let marked = level.is_marked(mixed[usize::from(one)]);
                    zones[usize::from(one)] += u8::from(marked);
                    climbing[left] = one;
                    left += usize::from(marked);
                }
                climbing.truncate(left);
            }
        }
    }
}

impl Hitmap for PublishedHitmap {
    fn mark(&mut self, references: &[Reference]) {
        let mut zones = std::mem::take(&mut self.scratch.zones);
        zones.clear();
        self.judge(references, Reference::digest, &mut zones);
        let is_aging = self.aging.is_some();
        for (reference, &zone) in references.iter().zip(&zones) {
            if is_aging {
                self.mark_while_aging(*reference, usize::from(zone));
                continue;
            }
            let Some(level) = self.levels.get_mut(usize::from(zone)) else { continue };
            let mixed = mix(reference.digest());
            level.mark(mixed);
            if let (0, true, Some(set)) = (zone, reference.is_store(), &mut self.set_counter) {
                set.mark(mixed);
            }
        }
        self.scratch.zones = zones;
    }

    fn zones(&mut self, digests: &[Digest], zones: &mut Vec<u8>) {
        self.judge(digests, |digest| digest, zones);
    }

    /// From now on the map answers as if the whole aging were done. A mark made while the aging is in progress is not
    /// lost with it.
    fn age(&mut self) {
        self.aging.get_or_insert_with(|| Aging::begun(&self.levels[0]));
    }

    /// Folds as many stripes as `bytes` bytes of the map are. In a map of four levels with a set counter a stripe is
    /// 1 KiB. With less than a stripe the call only returns whether an aging is in progress.
    fn age_some(&mut self, bytes: usize) -> bool {
        let mut stripes = bytes / self.options.bytes(STRIPE_BITS) as usize;
        while stripes > 0
            && let Some(aging) = &mut self.aging
        {
            let some = aging.next_stripes(stripes);
            stripes -= some.len();
            self.fold(some);
        }
        self.aging.is_some()
    }

    /// An aging in progress is completed before the map grows.
    fn grow(&mut self, items: u64) {
        let first_bits = self.options.first_bits_for(items);
        while self.levels[0].bits() < first_bits {
            self.age_some(usize::MAX);
            self.levels.iter_mut().chain(&mut self.set_counter).for_each(HashCounter::double);
        }
    }

    fn bytes_for(&self, items: u64) -> u64 {
        self.options.bytes(self.options.first_bits_for(items).max(self.levels[0].bits()))
    }

    fn levels(&self) -> u8 {
        self.options.levels
    }

    fn processor(&self) -> String {
        "the CPU".into()
    }
}
