//! The hitmap whose keys have one cache line each: all levels of a key stand together.
//!
//! ```text
//!  word   0         1         2         3         4         5         6         7
//!      +---------+---------+---------+---------+---------+---------+---------+---------+
//!      |        L1         |        L2         |                  L3                   |
//!      +---------+---------+---------+---------+---------+---------+---------+---------+
//! bits          128                 128                         256
//! ```
//!
//! A line is a published map of its own with three hash bits, but that level 2 is no larger than level 1, and that the
//! three positions of a key agree in all but their lowest six bits: so they lie in one word on every level. A mark reads
//! one line and writes one word at most.

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
/// Most items that one line is sized for. More items share bits more often and make level 1 less reliable.
const ITEMS_PER_LINE: u64 = 11;
/// Lines of the largest map: eight digests for each line.
const LINES_MAX: u64 = 1 << 28;

/// How far ahead of its use a line is fetched.
const AHEAD: usize = 16;

const _: () = assert!(LINE_WORDS * size_of::<u64>() == LINE_BYTES);
const _: () = assert!(LINES_MAX * LINE_WORDS as u64 <= 1 << 32, "a word's number fits in 32 bits");

/// The words of a line.
type Line = [u64; LINE_WORDS];

/// Where a key stands in its line.
///
/// ```text
///  63                                32 31            20 19 18 17    12 11     6 5      0
/// +------------------------------------+----------------+-----+--------+--------+--------+
/// |  line (highest bits)               |                | sel |    c   |    b   |   a    |
/// +------------------------------------+----------------+-----+--------+--------+--------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct KeyBits {
    /// The key's bits in its word of each level: one to three of them.
    mask: u64,
    /// Which word of level 3 (both bits), and of the levels 1 and 2 (the low one).
    sel: usize,
}

/// Where a key with these mixed bits stands in its line.
#[inline(always)]
fn key_bits(mixed: u64) -> KeyBits {
    let mask = 1 << (mixed & 63) | 1 << (mixed >> 6 & 63) | 1 << (mixed >> 12 & 63);
    KeyBits { mask, sel: (mixed >> 18 & 3) as usize }
}

/// The line of a key with these mixed bits, in a map of `lines` lines.
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

    /// How many levels from the first one on hold the key.
    #[inline(always)]
    fn zone(self, line: &Line) -> u8 {
        // No branches: the next lines are already on their way, and a wrong guess would throw them away.
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

/// Each level one level down, the highest one into half its size (Catalyst, Fig. 4).
#[inline(always)]
fn fold(line: &mut Line) {
    let [_, _, l2_0, l2_1, l3_0, l3_1, l3_2, l3_3] = *line;
    *line = [l2_0, l2_1, l3_0 | l3_2, l3_1 | l3_3, 0, 0, 0, 0];
}

/// Words that begin on a line of the cache, zero at first. The kernel gives a page when one is first written.
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
        // Where the distance cannot be known, a key may stand in two lines of the cache; that costs time only.
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

/// A hitmap of three levels with one line for each key. It has no set counter: a ghost says who was here before.
#[derive(Debug)]
pub struct LineHitmap {
    lines: Lines,
    /// The next line to fold, while an aging is going on.
    cursor: Option<usize>,
    /// What the batch at cursor will set, and where; as long as the longest batch there was.
    writes: Vec<(u32, u64)>,
}

impl LineHitmap {
    /// An empty map for `items` items, at most 11 for each line: 5.8 bytes for each item when it is full, and twice
    /// that right after a doubling.
    pub fn for_items(items: u64) -> LineHitmap {
        LineHitmap { lines: Lines::zeros(LineHitmap::lines_for(items)), cursor: None, writes: Vec::new() }
    }

    /// A map with the words of another one, wherever it has been, and the line at which its aging stood.
    ///
    /// # Panics
    /// Unless there are 8 words for each of one line or more, and the cursor is on one of them.
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

    /// All words, 8 for each line.
    pub fn words(&self) -> &[u64] {
        self.lines.words()
    }

    /// The next line to fold, while an aging is going on; those before it are folded.
    pub fn cursor(&self) -> Option<u64> {
        self.cursor.map(|cursor| cursor as u64)
    }

    /// Calls `found` with the line of each key, its place there and its zone, in order.
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
            // Written down in any case and kept if there is a level left: as in `KeyBits::zone`, no branches.
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

    /// Folds `bytes / 64` lines; with fewer than 64 bytes it only answers.
    fn age_some(&mut self, bytes: usize) -> bool {
        let Some(cursor) = self.cursor else { return false };
        let lines = self.lines.lines_mut();
        let end = cursor.saturating_add(bytes / LINE_BYTES).min(lines.len());
        lines[cursor..end].iter_mut().for_each(fold);
        self.cursor = (end < lines.len()).then_some(end);
        self.cursor.is_some()
    }

    /// A new line holds what the line had that its keys come from; the old map and the new one are there together for a
    /// while.
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

    fn place(&self) -> String {
        "the CPU".into()
    }
}
