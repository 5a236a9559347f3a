//! The layout of a map's words on a device. The words of [`LineHitmap`] are stored as they are. Those of
//! [`PublishedHitmap`] are stored one counter after the other, with level 1 first and the set counter last.

use larder_temperature::{Hitmap, LineHitmap, PublishedHitmap, PublishedOptions};

/// The kind of hitmap that a device holds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Layout {
    /// A [`LineHitmap`]: all levels of a key in 64 bytes.
    Line,
    /// A [`PublishedHitmap`].
    Published(PublishedOptions),
}

/// A layout and its size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Shape {
    /// Any number of lines of 8 words.
    Line { lines: u64 },
    /// `first_bits` is the number of bits of level 1: a power of two, at least 512.
    Published { options: PublishedOptions, first_bits: u64 },
}

impl Shape {
    /// The shape of a map that is sized for `items` items.
    ///
    /// # Panics
    /// If an option is out of its range.
    pub(crate) fn new(layout: Layout, items: u64) -> Shape {
        match layout {
            Layout::Line => Shape::Line { lines: LineHitmap::lines_for(items) },
            Layout::Published(options) => {
                // The constructor panics if an option is out of its range.
                PublishedHitmap::for_items(0, options);
                Shape::Published { options, first_bits: options.first_bits_for(items) }
            }
        }
    }

    /// The shape for `items` items, or this one if it is not smaller.
    pub(crate) fn grown(self, items: u64) -> Shape {
        match self {
            Shape::Line { lines } => Shape::Line { lines: lines << LineHitmap::doublings(lines, items) },
            Shape::Published { options, first_bits } => {
                Shape::Published { options, first_bits: first_bits.max(options.first_bits_for(items)) }
            }
        }
    }

    /// How many times larger this shape is than another size of the same layout: a power of two.
    pub(crate) fn times(self, smaller: Shape) -> u64 {
        self.bytes() as u64 / smaller.bytes() as u64
    }

    /// The same layout, `times` times larger.
    pub(crate) fn multiplied(self, times: u64) -> Shape {
        match self {
            Shape::Line { lines } => Shape::Line { lines: lines * times },
            Shape::Published { options, first_bits } => {
                Shape::Published { options, first_bits: first_bits * times }
            }
        }
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Shape::Line { lines } => lines as usize * LineHitmap::LINE_BYTES,
            Shape::Published { options, .. } => {
                self.counter(options.levels + u8::from(options.set_counter)).1
            }
        }
    }

    pub(crate) fn words(self) -> usize {
        self.bytes() / size_of::<u64>()
    }

    pub(crate) fn levels(self) -> u8 {
        match self {
            Shape::Line { .. } => LineHitmap::LEVELS,
            Shape::Published { options, .. } => options.levels,
        }
    }

    /// Where a hash counter of the published layout begins and ends, in bytes. The counter after the last level is
    /// the set counter.
    pub(crate) fn counter(self, level: u8) -> (usize, usize) {
        let Shape::Published { options, first_bits } = self else { return (0, self.bytes()) };
        let first_bytes = first_bits as usize / 8;
        let begin = first_bytes * ((1 << (level - 1)) - 1);
        (begin, begin + if level > options.levels { first_bytes } else { first_bytes << (level - 1) })
    }

    /// The CPU hitmap with these words. An aging of lines that stands at `cursor` continues there; an aging of levels
    /// is completed here.
    pub(crate) fn on_cpu(self, mut words: Vec<u64>, cursor: Option<u64>) -> Box<dyn Hitmap> {
        let Shape::Published { options, .. } = self else {
            debug_assert_eq!(words.len() % LineHitmap::LINE_WORDS, 0);
            return Box::new(LineHitmap::from_words(&words, cursor));
        };
        if let Some(step) = cursor {
            self.age_from(&mut words, step);
        }
        let mut counters = Vec::new();
        for level in (1..=options.levels + u8::from(options.set_counter)).rev() {
            counters.push(words.split_off(self.counter(level).0 / size_of::<u64>()));
        }
        let set_counter = if options.set_counter { Some(counters.remove(0)) } else { None };
        counters.reverse();
        Box::new(PublishedHitmap::from_words(options, counters, set_counter))
    }

    /// The steps of an aging of the published layout. Each level becomes the fold of the one above it. Then the top
    /// level is cleared, and last the set counter, whose bits the new level 1 has taken over.
    pub(crate) fn aging(self) -> impl Iterator<Item = Aging> {
        let (levels, set_counter) = match self {
            Shape::Line { .. } => (0, false),
            Shape::Published { options, .. } => (options.levels, options.set_counter),
        };
        let also = move |level| (level == 1 && set_counter).then_some(levels + 1);
        let folds = (1..levels).map(move |level| Aging::Fold { level, also: also(level) });
        let top = (levels > 0).then(|| match also(levels) {
            Some(from) => Aging::Copy { level: levels, from },
            None => Aging::Clear { level: levels },
        });
        folds.chain(top).chain(set_counter.then_some(Aging::Clear { level: levels + 1 }))
    }

    /// Does all steps of an aging, beginning with step `step`.
    fn age_from(self, words: &mut [u64], step: u64) {
        let range = |level| {
            let (begin, end) = self.counter(level);
            begin / size_of::<u64>()..end / size_of::<u64>()
        };
        for step in self.aging().skip(step as usize) {
            match step {
                Aging::Fold { level, also } => {
                    let (to, from) = (range(level), range(level + 1));
                    let half = to.len();
                    for word in 0..half {
                        let also = also.map_or(0, |counter| words[range(counter).start + word]);
                        words[to.start + word] =
                            words[from.start + word] | words[from.start + half + word] | also;
                    }
                }
                Aging::Copy { level, from } => words.copy_within(range(from), range(level).start),
                Aging::Clear { level } => words[range(level)].fill(0),
            }
        }
    }
}

/// One step of an aging. Levels are given as the numbers of their counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aging {
    /// A level becomes the fold of the level above it, combined with a counter of its own size.
    Fold { level: u8, also: Option<u8> },
    /// The only level becomes a copy of the set counter.
    Copy { level: u8, from: u8 },
    /// A counter is cleared.
    Clear { level: u8 },
}
