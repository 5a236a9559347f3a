//! A count-min sketch with 4-bit counters: estimates how often keys were used recently.

use crate::mix::mix64;

const ROWS: u64 = 4;
/// Counters per row and item of the cache. Four rows make 16 counters of 4 bits per item.
const WIDTH_PER_ITEM: u64 = 4;
const COUNTERS_PER_WORD: u64 = 16;
const COUNT_MAX: u64 = 15;
/// Uses per item after which all counters are halved.
const USES_PER_ITEM: u64 = 10;

/// A count-min sketch with conservative update. All counters are halved when the sample is full (the "reset" of
/// TinyLFU).
pub(super) struct Sketch {
    /// The rows one after another, each of `width` counters.
    words: Vec<u64>,
    /// Counters per row; a power of two.
    width: u64,
    items: u64,
    uses: u64,
}

impl Sketch {
    /// A sketch for a few items.
    pub(super) fn new() -> Sketch {
        let items = COUNTERS_PER_WORD;
        let width = items * WIDTH_PER_ITEM;
        Sketch { words: vec![0; (ROWS * width / COUNTERS_PER_WORD) as usize], width, items, uses: 0 }
    }

    /// Grows the sketch for a cache of this many items. No estimate changes.
    pub(super) fn fit(&mut self, items: u64) {
        self.items = self.items.max(items);
        while self.width < self.items * WIDTH_PER_ITEM {
            let row_words = (self.width / COUNTERS_PER_WORD) as usize;
            // A key's column gains one high bit, so both halves of the new row start as copies of the old row.
            self.words = self.words.chunks(row_words).flat_map(|row| [row, row].concat()).collect();
            self.width *= 2;
        }
    }

    /// Counts one use of a key.
    pub(super) fn add(&mut self, id: u32) {
        let least = self.estimate(id);
        if least < COUNT_MAX {
            for row in 0..ROWS {
                let (word, shift) = self.counter_at(id, row);
                if (self.words[word] >> shift) & COUNT_MAX == least {
                    self.words[word] += 1 << shift;
                }
            }
        }
        self.uses += 1;
        if self.uses >= self.items * USES_PER_ITEM {
            self.halve();
        }
    }

    /// The estimated number of recent uses of a key, at most 15. Except for the halvings, the estimate is never too
    /// low.
    pub(super) fn estimate(&self, id: u32) -> u64 {
        let count = |row| {
            let (word, shift) = self.counter_at(id, row);
            (self.words[word] >> shift) & COUNT_MAX
        };
        (0..ROWS).map(count).min().unwrap_or(0)
    }

    fn halve(&mut self) {
        for word in &mut self.words {
            *word = (*word >> 1) & 0x7777_7777_7777_7777;
        }
        self.uses /= 2;
    }

    /// The counter of a key in a row: index of the word, and shift within the word.
    fn counter_at(&self, id: u32, row: u64) -> (usize, u64) {
        let hash = mix64(u64::from(id) + 1);
        let column = (hash.wrapping_add(row.wrapping_mul(hash >> 32 | 1))) & (self.width - 1);
        let counter = row * self.width + column;
        ((counter / COUNTERS_PER_WORD) as usize, (counter % COUNTERS_PER_WORD) * 4)
    }
}
