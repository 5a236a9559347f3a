//! Hashes, sets and sorted sets as the value of one item: a compact encoding that is read in place.
//!
//! ```text
//! +--------+-------+--------------+------------------+-------------+------------+---------------------------+
//! | format | count | fingerprints | ends of entries  | (scores)    | (times)    | entries                   |
//! | u8     | u24   | u8 each      | u16 or u32 each  | f64 each    | u64 each   | [length of field] bytes   |
//! +--------+-------+--------------+------------------+-------------+------------+---------------------------+
//! ```
//!
//! All numbers are little-endian. The ends have 16 bits where all entries together are shorter than 64 KiB. A
//! fingerprint is one byte that follows from the field: a lookup searches the fingerprints, and compares only the
//! entries that they name, one in 256 of the others. Sorted sets have scores, and stand in their order: by score, and
//! by member where scores are equal. The entries of the others stand in the order in which they came. Times are there
//! only where a field of a hash has one: until when it lives, in milliseconds since 1970.
//!
//! A value is never changed in place: an [`Editor`] makes the next one.
#![forbid(unsafe_code)]

mod editor;
mod table;

pub use editor::Editor;

use larder_item::Kind;
use memchr::memchr_iter;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

/// Bytes of the format and the count.
const HEAD_BYTES: usize = 4;
const SCORE_BYTES: usize = 8;
const TIME_BYTES: usize = 8;
/// The format: ends have 32 bits.
const WIDE: u8 = 1;
/// The format: some fields have a time.
const TIMED: u8 = 2;
/// The most entries of a collection.
pub const ENTRIES_MAX: usize = (1 << 24) - 1;

/// An entry of a collection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry<'a> {
    /// The field of a hash, or the member of a set.
    pub field: &'a [u8],
    /// The value of a hash's field.
    pub value: &'a [u8],
    /// The score of a sorted set's member.
    pub score: f64,
    /// Until when a field of a hash lives, in milliseconds since 1970; 0 = as long as the hash.
    pub until_ms: u64,
}

impl<'a> Entry<'a> {
    /// A member of a set.
    pub fn member(field: &'a [u8]) -> Entry<'a> {
        Entry { field, value: &[], score: 0.0, until_ms: 0 }
    }

    /// A field of a hash.
    pub fn pair(field: &'a [u8], value: &'a [u8]) -> Entry<'a> {
        Entry { value, ..Entry::member(field) }
    }

    /// The order of the members of a sorted set.
    pub fn order(&self, other: &Entry<'_>) -> Ordering {
        let by_score = self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
        by_score.then_with(|| self.field.cmp(other.field))
    }

    /// A member of a sorted set.
    pub fn scored(field: &'a [u8], score: f64) -> Entry<'a> {
        Entry { score, ..Entry::member(field) }
    }
}

impl Entry<'_> {
    /// Bytes that it takes among the entries of a collection.
    fn bytes(&self, kind: Kind) -> usize {
        let length = match (kind, self.field.len()) {
            (Kind::Hash, ..255) => 1,
            (Kind::Hash, _) => 5,
            _ => 0,
        };
        length + self.field.len() + self.value.len()
    }

    /// Appends it as it stands there.
    fn write(&self, kind: Kind, out: &mut Vec<u8>) {
        match (kind, self.field.len()) {
            (Kind::Hash, length @ ..255) => out.push(length as u8),
            (Kind::Hash, length) => {
                out.push(255);
                out.extend_from_slice(&(length as u32).to_le_bytes());
            }
            _ => {}
        }
        out.extend_from_slice(self.field);
        out.extend_from_slice(self.value);
    }
}

/// One byte that follows from a field: from its length, its first eight bytes and its last eight.
fn fingerprint(field: &[u8]) -> u8 {
    let (first, last) = match (field.first_chunk(), field.last_chunk()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => (field.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0),
    };
    let mixed = (first ^ last.rotate_left(29) ^ field.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// A collection that is read in place.
#[derive(Clone, Copy, Debug)]
pub struct Collection<'a> {
    kind: Kind,
    count: usize,
    is_wide: bool,
    now_ms: u64,
    value: &'a [u8],
    fingerprints: &'a [u8],
    ends: &'a [u8],
    scores: &'a [u8],
    times: &'a [u8],
    data: &'a [u8],
}

impl<'a> Collection<'a> {
    /// Reads a value. Fields whose time is past at `now_ms` are not there. `None`: it is no collection of this kind.
    pub fn read(kind: Kind, value: &'a [u8], now_ms: u64) -> Option<Collection<'a>> {
        let ([format, count @ ..], rest) = value.split_first_chunk::<HEAD_BYTES>()?;
        let count = usize::from(count[0]) | usize::from(count[1]) << 8 | usize::from(count[2]) << 16;
        let is_wide = format & WIDE != 0;
        let (fingerprints, rest) = rest.split_at_checked(count)?;
        let (ends, rest) = rest.split_at_checked(count * end_bytes(is_wide))?;
        let scores = if kind == Kind::SortedSet { count * SCORE_BYTES } else { 0 };
        let (scores, rest) = rest.split_at_checked(scores)?;
        let times = if format & TIMED != 0 { count * TIME_BYTES } else { 0 };
        let (times, data) = rest.split_at_checked(times)?;
        let whole =
            Collection { kind, count, is_wide, now_ms, value, fingerprints, ends, scores, times, data };
        let end = if count == 0 { 0 } else { whole.end(count - 1) };
        (end == data.len() && format & !(WIDE | TIMED) == 0).then_some(whole)
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The value that was read.
    pub fn bytes(&self) -> &'a [u8] {
        self.value
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        match self.times {
            [] => self.count,
            _ => (0..self.count).filter(|place| self.lives(*place)).count(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        !(0..self.count).any(|place| self.lives(place))
    }

    /// Whether some of its fields have a time, or had one.
    pub fn is_timed(&self) -> bool {
        !self.times.is_empty()
    }

    /// Bytes of the longest field or value, at most.
    pub fn longest(&self) -> usize {
        self.iter().map(|entry| entry.field.len().max(entry.value.len())).max().unwrap_or(0)
    }

    fn end(&self, place: usize) -> usize {
        match self.is_wide {
            true => u32::from_le_bytes(chunk(self.ends, place)) as usize,
            false => u16::from_le_bytes(chunk(self.ends, place)).into(),
        }
    }

    /// Where the entries of some places are, in bytes.
    fn spans(&self, places: Range<usize>) -> Range<usize> {
        let end = |place: usize| if place == 0 { 0 } else { self.end(place - 1) };
        end(places.start)..end(places.end)
    }

    fn span(&self, place: usize) -> Range<usize> {
        self.spans(place..place + 1)
    }

    fn time(&self, place: usize) -> u64 {
        if self.times.is_empty() { 0 } else { u64::from_le_bytes(chunk(self.times, place)) }
    }

    fn lives(&self, place: usize) -> bool {
        let until_ms = self.time(place);
        until_ms == 0 || until_ms > self.now_ms
    }

    /// The score of a sorted set's member at this place.
    pub fn score(&self, place: usize) -> f64 {
        if self.scores.is_empty() { 0.0 } else { f64::from_le_bytes(chunk(self.scores, place)) }
    }

    /// The entry at this place, from 0 on. `None`: there is none. In a hash whose fields have times, places count
    /// those that are past, too, and such an entry is none.
    #[inline]
    pub fn at(&self, place: usize) -> Option<Entry<'a>> {
        if place >= self.count || !self.lives(place) {
            return None;
        }
        let bytes = self.data.get(self.span(place))?;
        let (field, value) = match self.kind {
            Kind::Hash => split_pair(bytes)?,
            _ => (bytes, &[][..]),
        };
        Some(Entry { field, value, score: self.score(place), until_ms: self.time(place) })
    }

    /// Where a field is.
    pub fn find(&self, field: &[u8]) -> Option<usize> {
        memchr_iter(fingerprint(field), self.fingerprints)
            .find(|place| self.at(*place).is_some_and(|entry| entry.field == field))
    }

    /// The entry of a field.
    pub fn get(&self, field: &[u8]) -> Option<Entry<'a>> {
        self.at(self.find(field)?)
    }

    /// Where all fields are, for those who look for many.
    pub fn places(&self) -> HashMap<&'a [u8], usize> {
        let place = |place: usize| Some((self.at(place)?.field, place));
        (0..self.count).filter_map(place).collect()
    }

    /// Whether a field is there.
    pub fn has(&self, field: &[u8]) -> bool {
        self.find(field).is_some()
    }

    /// All entries, in their order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Entry<'a>> + Clone + 'a {
        let whole = *self;
        (0..self.count).filter_map(move |place| whole.at(place))
    }

    /// The entry that has this place among those that live.
    pub fn nth(&self, place: usize) -> Option<Entry<'a>> {
        if self.times.is_empty() { self.at(place) } else { self.iter().nth(place) }
    }

    /// How many members of a sorted set have a score for which `is_before` says so. It says so for the lowest ones.
    pub fn partition(&self, mut is_before: impl FnMut(Entry<'a>) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            match self.at(middle).is_some_and(&mut is_before) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

/// Whether all fields of a hash have a time, and all are past. `part` copies a part of the value: most have no times,
/// and need not be read as a whole.
pub fn is_past(part: impl Fn(Range<usize>) -> Vec<u8>, now_ms: u64) -> bool {
    let head = part(0..HEAD_BYTES);
    let Some((format, count)) = head.split_first() else { return false };
    let count = count.iter().rev().fold(0, |count, byte| count << 8 | usize::from(*byte));
    let from = HEAD_BYTES + count * (1 + end_bytes(format & WIDE != 0));
    let are_past = |times: Vec<u8>| {
        (0..count).all(|place| (1..=now_ms).contains(&u64::from_le_bytes(chunk(&times, place))))
    };
    format & TIMED != 0 && are_past(part(from..from + count * TIME_BYTES))
}

fn end_bytes(is_wide: bool) -> usize {
    if is_wide { 4 } else { 2 }
}

/// Number `place` of a row of numbers; zeros if there is none.
#[inline]
fn chunk<const BYTES: usize>(row: &[u8], place: usize) -> [u8; BYTES] {
    row.get(place * BYTES..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; BYTES])
}

/// Field and value of an entry of a hash. The length of the field stands before it: one byte, or 255 and four.
#[inline]
fn split_pair(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = match bytes.split_first()? {
        (255, rest) => {
            let (length, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        (length, rest) => (usize::from(*length), rest),
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests;
