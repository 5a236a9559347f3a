//! Reading parts of an item.

use super::Executor;
use crate::dispatch::operation::{BitRange, ItemKey, Look, Part};
use crate::dispatch::outcome::{ItemValue, Looked, LookedItem, Outcome, Tail};
use crate::dispatch::output::OUTPUT_SOFT_BYTES;
use crate::dispatch::prefixes::PrefixEvent;
use crate::dispatch::progress::{Progress, ValueSource};
use crate::io::Charge;
use larder_cache::{Edit, Hit, Kind, State, Value, Worker};
use larder_collection::{Collection, Entry, is_past};
use larder_protocol::resp::decimal;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

/// A value of up to this number of bytes is shown with a description.
const SHORT_VALUE_BYTES: usize = 64;

impl Executor {
    /// Reads something of an item.
    pub(super) fn look(
        &mut self,
        progress: &mut Progress,
        look: &Look<'_>,
        compose: impl FnOnce(Outcome<'_>) -> Tail,
    ) {
        let Look { key, part, leaves_no_trace } = *look;
        let is_use = !matches!(part, Part::Description | Part::Encoding | Part::Presence);
        let hit = match leaves_no_trace || !is_use {
            true => self.worker.peek(key.hash, key.key),
            false => self.worker.get(key.hash, key.key),
        };
        let hit = hit.filter(|hit| has_head(&self.worker, hit, key.head));
        if is_use {
            let counters = self.worker.counters();
            counters.cmd_get.add(1);
            let event = if hit.is_some() { PrefixEvent::Hit } else { PrefixEvent::Miss };
            self.state.prefixes().note(key.key, event);
            self.count_for_namespace(key.key, hit.is_some());
            match &hit {
                Some(hit) => {
                    counters.get_hits.add(1);
                    if !leaves_no_trace {
                        self.worker.note_fetch(hit);
                    }
                }
                None => {
                    counters.get_misses.add(1);
                    self.worker.note_miss(key.hash, key.key);
                }
            }
        }
        // Whoever asks for a hash sees that it is empty.
        let may_be_over = !matches!(part, Part::Collection(kinds, _) if kinds.contains(&Kind::Hash));
        if may_be_over && hit.as_ref().is_some_and(|hit| is_over(&self.worker, hit, key.head, self.unix_ms()))
        {
            self.end_if_over(&key);
            compose(Outcome::Looked(Looked::Absent));
            return;
        }
        let Some(hit) = hit else {
            compose(Outcome::Looked(Looked::Absent));
            return;
        };
        let length = hit.value_bytes() as usize - key.head.len();
        let kind = hit.item.kind();
        if kind.is_collection() && part.is_of_strings() {
            compose(Outcome::Looked(Looked::WrongKind));
            return;
        }
        let looked = match part {
            Part::Collection(wanted, _) if !wanted.contains(&kind) => Looked::WrongKind,
            Part::Collection(_, unix_ms) => return self.show_collection(&hit, &key, unix_ms, compose),
            Part::Value => return self.show_value(progress, &hit, &key, compose),
            Part::Range(start, end) => {
                let part = if is_backwards(start, end) { None } else { bounds(start, end, length) };
                let Some((from, bytes)) = part else {
                    compose(Outcome::Looked(Looked::Value(ItemValue::Whole(&[]))));
                    return;
                };
                return self.show_part(progress, &hit, (key.head.len() + from, bytes), compose);
            }
            Part::Length => Looked::Number(length as i64),
            Part::Bit(offset) => Looked::Number(self.bit(&hit, &key, offset).into()),
            Part::CountBits(BitRange { start, end: Some(end), .. }) if is_backwards(start, end) => {
                Looked::Number(0)
            }
            Part::CountBits(range) => match self.bits(&hit, &key, range) {
                Some((bytes, cut)) => Looked::Number(count_bits(&bytes, cut)),
                None => Looked::NoMemory,
            },
            Part::FindBit(on, range) => match self.bits(&hit, &key, range) {
                Some((bytes, cut)) => Looked::Number(find_bit(&bytes, cut, on, range, length)),
                None => Looked::NoMemory,
            },
            Part::Digest => match self.with_part(&hit, key.head.len(), length, xxh3_64) {
                Some(digest) => Looked::Number(digest as i64),
                None => Looked::NoMemory,
            },
            Part::Presence => Looked::Present(kind),
            Part::Encoding if kind.is_collection() => {
                self.encoding_of(&hit, &key).map_or(Looked::NoMemory, Looked::Encoding)
            }
            Part::Description | Part::Encoding => Looked::Description(self.description(&hit, &key, length)),
        };
        compose(Outcome::Looked(looked));
    }

    /// What is known of an item beside its value. `length` = that of its value.
    fn description<'h>(&self, hit: &'h Hit<'_>, key: &ItemKey<'_>, length: usize) -> LookedItem<'h> {
        let state = hit.item.state();
        let short_value = match hit.value() {
            Value::Whole(value) if length <= SHORT_VALUE_BYTES => value.get(key.head.len()..),
            _ => None,
        };
        LookedItem {
            expiry: hit.expiry(),
            cas: self.shown_cas(hit.cas()),
            flags: hit.item.flags(),
            value_bytes: length as u32,
            left_ms: hit.expiry().milliseconds().map(|at_ms| (at_ms - self.clock().now_ms()).max(0)),
            was_fetched: state.has(State::FETCHED),
            binary_key: state.has(State::BINARY_KEY),
            short_value,
            kind: hit.item.kind(),
            idle_s: state.idle_s(self.clock().now_s()),
            warmth: self.worker.warmth(key.hash, hit),
            bytes: self.worker.bytes_of(hit),
        }
    }

    /// The unix time of the present turn, in milliseconds.
    pub(super) fn unix_ms(&self) -> u64 {
        (self.now_ms() + self.clock().started_unix_s() * 1000).max(0) as u64
    }

    /// Ends a hash all of whose fields are past. Returns whether there was one.
    #[cold]
    pub(super) fn end_if_over(&mut self, key: &ItemKey<'_>) -> bool {
        let (hit, unix_ms) = (self.worker.peek(key.hash, key.key), self.unix_ms());
        let is_there = hit.is_some_and(|hit| is_over(&self.worker, &hit, key.head, unix_ms));
        if is_there {
            self.worker.edit(key.hash, key.key, [&[]; 2], &mut |worker, hit, _| match hit {
                Some(hit) if is_over(worker, hit, key.head, unix_ms) => Edit::Remove,
                _ => Edit::Keep,
            });
        }
        is_there
    }

    /// Whether a key has a collection.
    pub(in crate::dispatch) fn is_collection(&self, key: &ItemKey<'_>) -> bool {
        self.worker.peek(key.hash, key.key).is_some_and(|hit| hit.item.kind().is_collection())
    }

    /// Shows a collection.
    fn show_collection(
        &self,
        hit: &Hit<'_>,
        key: &ItemKey<'_>,
        unix_ms: u64,
        compose: impl FnOnce(Outcome<'_>) -> Tail,
    ) {
        let length = hit.value_bytes() as usize - key.head.len();
        let (expanded, copy);
        let (value, _charge) = match hit.value() {
            Value::Whole(value) => (value.get(key.head.len()..).unwrap_or_default(), Charge::default()),
            Value::Compressed(stored) => {
                expanded = self.worker.expand(hit.at, stored);
                (expanded.get(key.head.len()..).unwrap_or_default(), Charge::default())
            }
            Value::Chunked { .. } => {
                let Some(charge) = self.charge(length) else {
                    compose(Outcome::Looked(Looked::NoMemory));
                    return;
                };
                let mut bytes = Vec::with_capacity(length);
                self.worker.copy_part(hit, key.head.len(), length, &mut bytes);
                copy = bytes;
                (&copy[..], charge)
            }
        };
        let looked = Collection::read(hit.item.kind(), value, unix_ms);
        compose(Outcome::Looked(looked.map_or(Looked::Absent, Looked::Collection)));
    }

    /// How Redis would encode a collection. `None` = there is no memory for a copy of it.
    fn encoding_of(&self, hit: &Hit<'_>, key: &ItemKey<'_>) -> Option<&'static str> {
        let kind = hit.item.kind();
        let length = hit.value_bytes() as usize - key.head.len();
        let encoding = |value: &[u8]| Collection::read(kind, value, 0).map_or("", encoding);
        self.with_part(hit, key.head.len(), length, encoding)
    }

    fn show_value(
        &self,
        progress: &mut Progress,
        hit: &Hit<'_>,
        key: &ItemKey<'_>,
        compose: impl FnOnce(Outcome<'_>) -> Tail,
    ) {
        if let Value::Chunked { .. } = hit.value()
            && key.head.is_empty()
            && !progress.in_one_piece
        {
            let mut room = None;
            match self.shown_value(hit, &mut room) {
                None => _ = compose(Outcome::Looked(Looked::NoMemory)),
                Some((shown, source)) => {
                    let tail = compose(Outcome::Looked(Looked::Value(shown)));
                    progress.send(source, tail);
                }
            }
            return;
        }
        let part = (key.head.len(), hit.value_bytes() as usize - key.head.len());
        self.show_part(progress, hit, part, compose);
    }

    /// Shows `bytes` of the value from `from` on.
    fn show_part(
        &self,
        progress: &mut Progress,
        hit: &Hit<'_>,
        (from, bytes): (usize, usize),
        compose: impl FnOnce(Outcome<'_>) -> Tail,
    ) {
        if !matches!(hit.value(), Value::Chunked { .. }) {
            let shown = |part: &[u8]| compose(Outcome::Looked(Looked::Value(ItemValue::Whole(part))));
            _ = self.with_part(hit, from, bytes, shown);
            return;
        }
        let Some(charge) = self.charge(bytes) else {
            compose(Outcome::Looked(Looked::NoMemory));
            return;
        };
        let mut part = Vec::with_capacity(bytes);
        self.worker.copy_part(hit, from, bytes, &mut part);
        show_copy(progress, part, charge, |value| compose(Outcome::Looked(Looked::Value(value))));
    }

    /// Takes room for a copy of `bytes` bytes. `None` = there is none.
    pub(in crate::dispatch) fn charge(&self, bytes: usize) -> Option<Charge> {
        match self.state.buffers() {
            Some(buffers) if bytes > OUTPUT_SOFT_BYTES => {
                let fits = buffers.try_hold(bytes as u64);
                fits.then(|| Charge::of(buffers.clone(), bytes as u64))
            }
            _ => Some(Charge::default()),
        }
    }

    /// Calls `f` with a part of the value. `None` = there is no memory for a copy of it.
    fn with_part<R>(
        &self,
        hit: &Hit<'_>,
        from: usize,
        bytes: usize,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        match hit.value() {
            Value::Whole(value) => Some(f(value.get(from..from + bytes).unwrap_or_default())),
            Value::Compressed(stored) => {
                Some(f(self.worker.expand(hit.at, stored).get(from..from + bytes).unwrap_or_default()))
            }
            Value::Chunked { .. } => {
                let _charge = self.charge(bytes)?;
                let mut part = Vec::with_capacity(bytes);
                self.worker.copy_part(hit, from, bytes, &mut part);
                Some(f(&part))
            }
        }
    }

    fn bit(&self, hit: &Hit<'_>, key: &ItemKey<'_>, offset: u64) -> bool {
        let mut byte = Vec::with_capacity(1);
        self.worker.copy_part(hit, key.head.len() + (offset / 8) as usize, 1, &mut byte);
        byte.first().is_some_and(|byte| byte >> (7 - offset % 8) & 1 != 0)
    }

    /// The bytes of a range of bits, and how the range cuts them. `None` = there is no memory for a copy of them.
    fn bits(&self, hit: &Hit<'_>, key: &ItemKey<'_>, range: BitRange) -> Option<(Vec<u8>, Cut)> {
        let length = hit.value_bytes() as usize - key.head.len();
        let unit = if range.in_bits { 8 } else { 1 };
        let Some((from, count)) = bounds(range.start, range.end.unwrap_or(-1), length * unit) else {
            return Some((Vec::new(), Cut::default()));
        };
        let (first, last) = (from / unit, (from + count - 1) / unit);
        let cut = match range.in_bits {
            true => Cut { from_bit: from as u64, skip: from % 8, count },
            false => Cut { from_bit: 8 * from as u64, skip: 0, count: 8 * count },
        };
        let bytes = self.with_part(hit, key.head.len() + first, last - first + 1, <[u8]>::to_vec)?;
        Some((bytes, cut))
    }
}

/// Whether this is the item of the key whose value begins with `head`.
pub(super) fn has_head(worker: &Worker, hit: &Hit<'_>, head: &[u8]) -> bool {
    if head.is_empty() {
        return true;
    }
    let mut own = Vec::with_capacity(head.len());
    worker.copy_part(hit, 0, head.len(), &mut own);
    own == head
}

/// Whether the item is a hash all of whose fields are past.
#[inline]
pub(super) fn is_over(worker: &Worker, hit: &Hit<'_>, head: &[u8], unix_ms: u64) -> bool {
    hit.item.kind() == Kind::Hash && {
        let part = |places: Range<usize>| {
            let mut bytes = Vec::with_capacity(places.len());
            worker.copy_part(hit, head.len() + places.start, places.len(), &mut bytes);
            bytes
        };
        is_past(part, unix_ms)
    }
}

/// How Redis would encode a collection, by its defaults (`hash-max-listpack-entries` and the like).
fn encoding(collection: Collection<'_>) -> &'static str {
    let (count, kind) = (collection.len(), collection.kind());
    let is_whole = |entry: Entry<'_>| decimal(entry.field).is_some();
    match kind {
        Kind::Set if count <= 512 && collection.iter().all(is_whole) => "intset",
        _ if count <= 128 && collection.longest() <= 64 => "listpack",
        Kind::Hash if count <= 512 && collection.longest() <= 64 => "listpack",
        Kind::SortedSet => "skiplist",
        _ => "hashtable",
    }
}

/// Shows a copy of a value: at once, or in pieces if it is long.
pub(super) fn show_copy(
    progress: &mut Progress,
    value: Vec<u8>,
    charge: Charge,
    compose: impl FnOnce(ItemValue<'_>) -> Tail,
) {
    if progress.in_one_piece || value.len() <= OUTPUT_SOFT_BYTES {
        compose(ItemValue::Whole(&value));
        return;
    }
    let tail = compose(ItemValue::Streamed { bytes: value.len() as u32 });
    progress.send(Some(ValueSource::Copy { value, sent: 0, charge }), tail);
}

/// Where a range of whole bytes of a value is cut into bits.
#[derive(Clone, Copy, Default)]
struct Cut {
    /// The first bit of the range, in the value.
    from_bit: u64,
    /// Bits of the first byte before the range.
    skip: usize,
    /// Bits of the range.
    count: usize,
}

/// The range from `start` to `end`, both included, of something of this length: where it begins, and how long it is.
/// `None` = it is empty. Negative numbers count from the end.
pub(super) fn bounds(start: i64, end: i64, length: usize) -> Option<(usize, usize)> {
    let length = length as i64;
    let from_end = |at: i64| if at < 0 { at.saturating_add(length).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(length - 1));
    (length > 0 && start <= end).then(|| (start as usize, (end - start + 1) as usize))
}

/// Whether a range ends before it begins, however long the value is.
fn is_backwards(start: i64, end: i64) -> bool {
    start < 0 && end < 0 && start > end
}

fn count_bits(bytes: &[u8], cut: Cut) -> i64 {
    let all: u64 = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
    // Some bits of the first and of the last byte.
    let outside = (0..cut.skip).chain(cut.skip + cut.count..bytes.len() * 8);
    all as i64 - outside.filter(|at| is_set(bytes, *at)).count() as i64
}

fn is_set(bytes: &[u8], at: usize) -> bool {
    bytes[at / 8] >> (7 - at % 8) & 1 != 0
}

/// The position in the value of the first bit of this kind, or -1. A clear bit is found behind the value, which is as
/// if it went on with zeros, unless the range has an end.
fn find_bit(bytes: &[u8], cut: Cut, on: bool, range: BitRange, length: usize) -> i64 {
    let skipped = if on { 0 } else { 0xff };
    let mut at = cut.skip;
    while at < cut.skip + cut.count {
        if at.is_multiple_of(8) && bytes[at / 8] == skipped && at + 8 <= cut.skip + cut.count {
            at += 8;
            continue;
        }
        if is_set(bytes, at) == on {
            return (cut.from_bit - cut.skip as u64 + at as u64) as i64;
        }
        at += 1;
    }
    if !on && range.end.is_none() && cut.count > 0 { 8 * length as i64 } else { -1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn bits_are_counted_and_found_one_by_one(
            value in prop::collection::vec(prop::sample::select(vec![0u8, 0xff, 0x0f, 0x81, 0x10]), 1..12),
            start in 0usize..96,
            count in 1usize..96,
            on: bool,
        ) {
            let bits: Vec<bool> = (0..value.len() * 8).map(|at| is_set(&value, at)).collect();
            let start = start % bits.len();
            let count = count.min(bits.len() - start);
            let expected = bits[start..start + count].iter().filter(|bit| **bit).count();
            let bytes = &value[start / 8..=(start + count - 1) / 8];
            let cut = Cut { from_bit: start as u64, skip: start % 8, count };
            prop_assert_eq!(count_bits(bytes, cut), expected as i64);
            let range = BitRange { start: 0, end: Some(0), in_bits: true };
            let first = bits[start..start + count].iter().position(|bit| *bit == on);
            let first = first.map_or(-1, |at| (start + at) as i64);
            prop_assert_eq!(find_bit(bytes, cut, on, range, value.len()), first);
        }
    }

    #[test]
    fn ranges_are_cut_as_redis_cuts_them() {
        for (start, end, length, expected) in [
            (0, -1, 5, Some((0, 5))),
            (0, 0, 5, Some((0, 1))),
            (-3, -1, 5, Some((2, 3))),
            (1, 100, 5, Some((1, 4))),
            (-100, 100, 5, Some((0, 5))),
            (-100, -100, 5, Some((0, 1))),
            (-1, -3, 1, Some((0, 1))),
            (5, 10, 5, None),
            (3, 1, 5, None),
            (-1, -3, 5, None),
            (0, -1, 0, None),
            (i64::MIN, i64::MAX, 5, Some((0, 5))),
        ] {
            assert_eq!(bounds(start, end, length), expected, "{start} {end} {length}");
        }
    }
}
