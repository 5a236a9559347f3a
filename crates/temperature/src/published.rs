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
//! half` (Fig. 4).

use crate::hash_counter::{COUNTER_BITS_MIN, HASH_BITS_MAX, HashCounter};
use crate::hitmap::Hitmap;
use crate::mix::mix;
use crate::reference::{Digest, Reference};

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
    scratch: Scratch,
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
        PublishedHitmap { options, levels, set_counter, scratch: Scratch::default() }
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
        PublishedHitmap { options, levels, set_counter, scratch: Scratch::default() }
    }

    /// The hash counters, from level 1 upward.
    pub fn counters(&self) -> &[HashCounter] {
        &self.levels
    }

    /// The set counter, if there is one.
    pub fn set_counter(&self) -> Option<&HashCounter> {
        self.set_counter.as_ref()
    }

    /// Appends the zones of the keys. The work goes level by level: few keys still climb above level 1, and on
    /// every level the lines are prefetched before they are needed.
    fn judge<T: Copy>(&mut self, of: &[T], digest: impl Fn(T) -> Digest, zones: &mut Vec<u8>) {
        let Scratch { mixed, climbing, .. } = &mut self.scratch;
        for chunk in of.chunks(CHUNK) {
            let first = zones.len();
            zones.resize(first + chunk.len(), 0);
            let zones = &mut zones[first..];
            mixed.clear();
            mixed.extend(chunk.iter().map(|&one| mix(digest(one))));
            climbing.clear();
            climbing.extend(0..chunk.len() as u16);
            for level in &self.levels {
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
        for (reference, &zone) in references.iter().zip(&zones) {
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

    /// Does the whole aging at once, as published. The bits of a key are spread over the map. A mark made between
    /// two pieces of an aging could therefore be lost with those of its bits that are aged later.
    fn age(&mut self) {
        for upper in 1..self.levels.len() {
            let (below, above) = self.levels.split_at_mut(upper);
            below[upper - 1].become_fold_of(&above[0]);
        }
        let (top, rest) = self.levels.split_last_mut().expect("at least one level");
        top.clear();
        if let Some(set) = &mut self.set_counter {
            rest.first_mut().unwrap_or(top).or(set);
            set.clear();
        }
    }

    fn age_some(&mut self, _bytes: usize) -> bool {
        false
    }

    fn grow(&mut self, items: u64) {
        let first_bits = self.options.first_bits_for(items);
        while self.levels[0].bits() < first_bits {
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
