//! A value while it is written.

use super::words::{TEXT, Words};
use crate::rng::Rng;

/// What has to be left for another entry of a list, in bytes: more than any entry and the text behind it take.
const ENTRY_BYTES: usize = 160;

/// A value of a fixed length that is written at the end of a buffer.
pub(super) struct Draft<'a> {
    /// The buffer.
    pub(super) out: &'a mut Vec<u8>,
    rng: Rng,
    end: usize,
}

impl<'a> Draft<'a> {
    /// A value of `bytes` bytes, drawn from the sequence of `seed`.
    pub(super) fn new(out: &'a mut Vec<u8>, seed: u64, bytes: usize) -> Self {
        let end = out.len() + bytes;
        Self { out, rng: Rng::new(seed), end }
    }

    /// Bytes that are still to be written.
    pub(super) fn left(&self) -> usize {
        self.end.saturating_sub(self.out.len())
    }

    /// Cuts or fills up with blanks what is not exactly as long as it should be: a length that no record fits.
    pub(super) fn finish(self) {
        self.out.resize(self.end, b' ');
    }

    /// Writes a part with `write`, and takes it back unless `reserve` bytes are left behind it.
    pub(super) fn part(&mut self, reserve: usize, write: impl FnOnce(&mut Self)) -> bool {
        let begin = self.out.len();
        write(self);
        let fits = self.out.len() + reserve <= self.end;
        if !fits {
            self.out.truncate(begin);
        }
        fits
    }

    /// Writes entries until a text takes the rest. Returns their number.
    pub(super) fn entries(&mut self, reserve: usize, mut write: impl FnMut(&mut Self, usize)) -> usize {
        let mut count = 0;
        while self.left() > reserve + ENTRY_BYTES {
            write(self, count);
            count += 1;
        }
        count
    }

    /// Whether there is room for an entry.
    pub(super) fn has_room(&self, reserve: usize) -> bool {
        self.left() > reserve + ENTRY_BYTES
    }

    /// Writes bytes.
    pub(super) fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// One of the words.
    pub(super) fn pick(&mut self, words: &Words) -> &'static [u8] {
        words[self.rng.below(words.len() as u32) as usize]
    }

    /// Writes one of the words.
    pub(super) fn word(&mut self, words: &Words) -> &mut Self {
        let word = self.pick(words);
        self.put(word)
    }

    /// Writes a word in small letters.
    pub(super) fn small(&mut self, word: &[u8]) -> &mut Self {
        self.out.extend(word.iter().map(u8::to_ascii_lowercase));
        self
    }

    /// Writes one of a few texts.
    pub(super) fn one_of(&mut self, texts: &[&str]) -> &mut Self {
        let chosen = self.below(texts.len() as u32) as usize;
        self.put(texts[chosen].as_bytes())
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.rng.below(bound)
    }

    /// Writes a number of that many digits, 1 to 9, of which the first is not 0.
    pub(super) fn number(&mut self, digits: u32) -> &mut Self {
        let least = 10u32.pow(digits - 1);
        let number = least + self.below(9 * least);
        self.decimal(number, digits)
    }

    /// Writes a number from `least` on below `end` in two digits.
    pub(super) fn two_digits(&mut self, least: u32, end: u32) -> &mut Self {
        let number = least + self.below(end - least);
        self.decimal(number, 2)
    }

    fn decimal(&mut self, mut number: u32, digits: u32) -> &mut Self {
        let mut text = [b'0'; 10];
        let text = &mut text[..digits as usize];
        for digit in text.iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        self.out.extend_from_slice(text);
        self
    }

    /// Writes a date as in 2026-03-05, with a year from `first_year` on, at most `years` later.
    pub(super) fn date(&mut self, first_year: u32, years: u32) -> &mut Self {
        let year = first_year + self.below(years);
        self.decimal(year, 4).put(b"-").two_digits(1, 13).put(b"-").two_digits(1, 29)
    }

    /// Writes a time of the day as in 14:05:09.
    pub(super) fn time(&mut self) -> &mut Self {
        self.two_digits(0, 24).put(b":").two_digits(0, 60).put(b":").two_digits(0, 60)
    }

    /// Writes hexadecimal digits.
    pub(super) fn hex(&mut self, digits: usize) -> &mut Self {
        let mut bits = 0;
        for at in 0..digits {
            if at % 16 == 0 {
                bits = self.rng.next();
            }
            self.out.push(b"0123456789abcdef"[(bits & 15) as usize]);
            bits >>= 4;
        }
        self
    }

    /// Writes bytes by chance.
    pub(super) fn bytes(&mut self, count: usize) -> &mut Self {
        let end = self.out.len() + count;
        while self.out.len() < end {
            let bits = self.rng.next();
            self.put(&bits.to_le_bytes());
        }
        self.out.truncate(end);
        self
    }

    /// Writes words until only `reserve` bytes are left. The last word is cut.
    pub(super) fn text(&mut self, reserve: usize) -> &mut Self {
        let end = self.end.saturating_sub(reserve).max(self.out.len());
        while self.out.len() < end {
            self.word_of_text();
        }
        self.out.truncate(end);
        self
    }

    /// Writes a word and a blank. A quarter of all words are in no list, as rare words and foreign names are.
    pub(super) fn word_of_text(&mut self) {
        if self.below(4) > 0 {
            self.word(&TEXT).put(b" ");
            return;
        }
        for _ in 0..2 + self.below(2) {
            let (consonant, vowel) = (self.below(20) as usize, self.below(5) as usize);
            self.put(&[b"bcdfghjklmnpqrstvwxz"[consonant], b"aeiou"[vowel]]);
        }
        self.put(b" ");
    }
}
