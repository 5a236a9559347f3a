//! The hitmap that keeps all levels of a key in one cache line.
//!
//! ```text
//!  word   0         1         2         3         4         5         6         7
//!      +---------+---------+---------+---------+---------+---------+---------+---------+
//!      |        L1         |        L2         |                  L3                   |
//!      +---------+---------+---------+---------+---------+---------+---------+---------+
//! bits          128                 128                         256
//! ```
//!
//! A line is like a small published map with three hash bits, with two differences. The second level is as large as the
//! first. And the three positions of a key differ only in their lowest six bits, so that they lie in one word on every
//! level. A mark therefore reads one line and writes at most one word.

use crate::hitmap::Hitmap;
use crate::mix::mix;
use crate::prefetch::prefetch;
use crate::reference::{Digest, Reference};

/// Levels of the map.
const LEVELS: u8 = 3;
/// Words of a line.
const LINE_WORDS: usize = 8;
/// Bytes of a line.
const LINE_BYTES: usize = 64;
/// Most items that one line is sized for. With more items, keys share more bits and level 1 becomes less reliable.
const ITEMS_PER_LINE: u64 = 11;
/// Lines of the largest map, which has one line for eight digests.
const LINES_MAX: u64 = 1 << 28;

/// How many keys ahead of its use a line is prefetched.
const AHEAD: usize = 16;

const _: () = assert!(LINE_WORDS * size_of::<u64>() == LINE_BYTES);
const _: () = assert!(LINES_MAX * LINE_WORDS as u64 <= 1 << 32, "a word's number fits in 32 bits");

/// The words of a line.
type Line = [u64; LINE_WORDS];

/// The bits of a key in its line.
///
/// ```text
///  63                                32 31            20 19 18 17    12 11     6 5      0
/// +------------------------------------+----------------+-----+--------+--------+--------+
/// |  line (highest bits)               |                | sel |    c   |    b   |   a    |
/// +------------------------------------+----------------+-----+--------+--------+--------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct KeyBits {
    /// The key's bits in its word of each level. They are one to three bits, because positions may coincide.
    mask: u64,
    /// Chooses the word of level 3 (with both bits) and the words of levels 1 and 2 (with the low bit).
    sel: usize,
}

/// The bits of the key with these mixed bits.
#[inline(always)]
fn key_bits(mixed: u64) -> KeyBits {
    let mask = 1 << (mixed & 63) | 1 << (mixed >> 6 & 63) | 1 << (mixed >> 12 & 63);
    KeyBits { mask, sel: (mixed >> 18 & 3) as usize }
}

/// The line of the key with these mixed bits, in a map of `lines` lines.
#[inline(always)]
fn line_of(mixed: u64, lines: u64) -> usize {
    (((mixed >> 32) * lines) >> 32) as usize
}

impl KeyBits {
    /// The word of the line, for each level.
    #[inline(always)]
    fn words(self) -> [usize; LEVELS as usize] {
        let half = self.sel & 1;
        [half, 2 + half, 4 + self.sel]
    }

    /// The number of levels, counted from the first, that contain the key.
    #[inline(always)]
    fn zone(self, line: &Line) -> u8 {
        // No branches: the next lines are already being prefetched, and a mispredicted branch would discard them.
        let mut all = true;
        self.words()
            .into_iter()
            .map(|word| {
                all &= line[word] & self.mask == self.mask;
                u8::from(all)
            })
            .sum()
    }
}

/// Moves each level one level down. The highest level is folded into half its size (Catalyst, Fig. 4).
#[inline(always)]
fn fold(line: &mut Line) {
    let [_, _, l2_0, l2_1, l3_0, l3_1, l3_2, l3_3] = *line;
    *line = [l2_0, l2_1, l3_0 | l3_2, l3_1 | l3_3, 0, 0, 0, 0];
}

/// Words that begin at a cache line, zero at first. The kernel provides a page at the first write to it.
#[derive(Debug)]
struct Lines {
    storage: Vec<u64>,
    first: usize,
    words: usize,
}

impl Lines {
    fn zeros(lines: u64) -> Lines {
        let words = lines as usize * LINE_WORDS;
        let storage = vec![0; words + LINE_WORDS - 1];
        // If the alignment cannot be computed, a key may span two cache lines, which costs only time.
        let first = storage.as_ptr().align_offset(LINE_BYTES).min(LINE_WORDS - 1);
        Lines { storage, first, words }
    }

    #[inline(always)]
    fn words(&self) -> &[u64] {
        &self.storage[self.first..][..self.words]
    }

    fn words_mut(&mut self) -> &mut [u64] {
        &mut self.storage[self.first..][..self.words]
    }

    #[inline(always)]
    fn lines(&self) -> &[Line] {
        self.words().as_chunks().0
    }

    #[inline(always)]
    fn lines_mut(&mut self) -> &mut [Line] {
        self.words_mut().as_chunks_mut().0
    }
}

/// A hitmap of three levels with one cache line for each key. It has no set counter, because a ghost remembers
/// which keys were in the cache before.
#[derive(Debug)]
pub struct LineHitmap {
    lines: Lines,
    /// The next line to fold, while an aging is in progress.
    cursor: Option<usize>,
    /// The writes of the current batch: word and bits. The vector is as long as the longest batch so far.
    writes: Vec<(u32, u64)>,
}

impl LineHitmap {
    /// An empty map for `items` items, at most 11 per line. A full map takes 5.8 bytes per item, and twice that
    /// right after a doubling.
    pub fn for_items(items: u64) -> LineHitmap {
        LineHitmap { lines: Lines::zeros(LineHitmap::lines_for(items)), cursor: None, writes: Vec::new() }
    }

    /// A map with the words of another one, and the line at which that map's aging stood.
    ///
    /// # Panics
    /// Unless there is at least one line of 8 words, and the cursor is one of the lines.
    pub fn from_words(words: &[u64], cursor: Option<u64>) -> LineHitmap {
        let lines = (words.len() / LINE_WORDS) as u64;
        assert!(words.len().is_multiple_of(LINE_WORDS), "{} words", words.len());
        assert!((1..=LINES_MAX).contains(&lines), "{lines} lines");
        assert!(cursor.is_none_or(|cursor| cursor < lines), "line {cursor:?} of {lines}");
        let mut map = LineHitmap { lines: Lines::zeros(lines), cursor: None, writes: Vec::new() };
        map.lines.words_mut().copy_from_slice(words);
        map.cursor = cursor.map(|cursor| cursor as usize);
        map
    }

    /// Levels of the map.
    pub const LEVELS: u8 = LEVELS;
    /// 64-bit words of a line.
    pub const LINE_WORDS: usize = LINE_WORDS;
    /// Bytes of a line.
    pub const LINE_BYTES: usize = LINE_BYTES;

    /// Lines of a map that is sized for `items` items.
    pub fn lines_for(items: u64) -> u64 {
        items.div_ceil(ITEMS_PER_LINE).clamp(1, LINES_MAX)
    }

    /// How often `lines` lines must double to suffice for `items` items. A map grows by doublings only: after any other
    /// growth a new line could not be traced back to one old line.
    pub fn doublings(lines: u64, items: u64) -> u32 {
        let mut doublings = 0;
        while lines << doublings < LineHitmap::lines_for(items) && lines << (doublings + 1) <= LINES_MAX {
            doublings += 1;
        }
        doublings
    }

    /// Bytes of a map that is sized for `items` items.
    pub fn bytes_for_items(items: u64) -> u64 {
        LineHitmap::lines_for(items) * LINE_BYTES as u64
    }

    /// All words of the map, 8 per line.
    pub fn words(&self) -> &[u64] {
        self.lines.words()
    }

    /// The next line to fold, while an aging is in progress. The lines before it are folded.
    pub fn cursor(&self) -> Option<u64> {
        self.cursor.map(|cursor| cursor as u64)
    }

    /// Calls `found` for each key, in order, with its line, its bits there and its zone.
    #[inline(always)]
    fn judge<T: Copy>(
        &self,
        of: &[T],
        digest: impl Fn(T) -> Digest,
        mut found: impl FnMut(usize, KeyBits, u8),
    ) {
        let lines = self.lines.lines();
        let count = lines.len() as u64;
        let mixed_of = |one: T| {
            let mixed = mix(digest(one));
            prefetch(self.lines.words(), LINE_WORDS * line_of(mixed, count));
            mixed
        };
        let mut fetched = [0; AHEAD];
        for (mixed, &one) in fetched.iter_mut().zip(of) {
            *mixed = mixed_of(one);
        }
        for at in 0..of.len() {
            let slot = &mut fetched[at % AHEAD];
            let mixed = *slot;
            if let Some(&ahead) = of.get(at + AHEAD) {
                *slot = mixed_of(ahead);
            }
            let (line, bits) = (line_of(mixed, count), key_bits(mixed));
            found(line, bits, bits.zone(&lines[line]));
        }
    }
}

impl Hitmap for LineHitmap {
    fn mark(&mut self, references: &[Reference]) {
        let mut writes = std::mem::take(&mut self.writes);
        if writes.len() < references.len() {
            writes.resize(references.len(), (0, 0));
        }
        let mut count = 0;
        self.judge(references, Reference::digest, |line, bits, zone| {
            // The write is stored in any case and counted only if a level is left: no branches, as in
            // `KeyBits::zone`.
            let word = bits.words()[usize::from(zone.min(LEVELS - 1))];
            writes[count] = ((line * LINE_WORDS + word) as u32, bits.mask);
            count += usize::from(zone < LEVELS);
        });
        let words = self.lines.words_mut();
        for &(word, mask) in &writes[..count] {
            words[word as usize] |= mask;
        }
        self.writes = writes;
    }

    fn zones(&mut self, digests: &[Digest], zones: &mut Vec<u8>) {
        zones.reserve(digests.len());
        self.judge(digests, |digest| digest, |_, _, zone| zones.push(zone));
    }

    fn age(&mut self) {
        self.cursor.get_or_insert(0);
    }

    /// Folds `bytes / 64` lines. With fewer than 64 bytes the call only returns whether an aging is in progress.
    fn age_some(&mut self, bytes: usize) -> bool {
        let Some(cursor) = self.cursor else { return false };
        let lines = self.lines.lines_mut();
        let end = cursor.saturating_add(bytes / LINE_BYTES).min(lines.len());
        lines[cursor..end].iter_mut().for_each(fold);
        self.cursor = (end < lines.len()).then_some(end);
        self.cursor.is_some()
    }

    /// Each new line starts as a copy of the old line that its keys come from. The old and the new map exist at the
    /// same time for a moment.
    fn grow(&mut self, items: u64) {
        let old = self.lines.lines();
        let times = 1 << LineHitmap::doublings(old.len() as u64, items);
        if times == 1 {
            return;
        }
        let mut grown = Lines::zeros((old.len() * times) as u64);
        for (copies, line) in grown.lines_mut().chunks_exact_mut(times).zip(old) {
            copies.fill(*line);
        }
        self.lines = grown;
        self.cursor = self.cursor.map(|cursor| cursor * times);
    }

    fn bytes_for(&self, items: u64) -> u64 {
        let lines = self.lines.lines().len() as u64;
        (lines << LineHitmap::doublings(lines, items)) * LINE_BYTES as u64
    }

    fn levels(&self) -> u8 {
        LEVELS
    }

    fn processor(&self) -> String {
        "the CPU".into()
    }
}
