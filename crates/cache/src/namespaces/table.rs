//! The namespaces that were named last, found by what a key begins with.

use super::estimate::Estimate;
use super::setting::{NAMESPACE_BYTES_MAX, Namespace, NamespaceStats};
use crate::counters::Counter;
use crate::padded::CachePadded;
use larder_item::DATABASE_MARK;
use memchr::memchr;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// How the items of a namespace are treated by a pass. What goes first comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Standing {
    /// It has more than its most.
    Above,
    /// As those of anybody.
    Within,
    /// It has less than its least share.
    Below,
}

/// What one worker, or the keeper, has counted of a namespace.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) gets: Counter,
    pub(super) hits: Counter,
    pub(super) sets: Counter,
    /// Any thread may count here: a worker evicts what a full bucket has no room for.
    pub(super) evictions: AtomicU64,
}

/// One namespace, and what is known of it.
pub(crate) struct Row {
    pub(super) namespace: Namespace,
    /// The beginning of its name.
    begin: u64,
    /// Its number, which stays when settings change. Another namespace has it only long after this one is gone.
    pub(crate) number: NonZeroU8,
    /// Uses of its keys whose digest is below this number are wanted for its curve. The keeper sets it.
    pub(crate) curve_below: AtomicU32,
    /// One for each worker, and the last one for the keeper. They stay when settings change.
    pub(super) counts: Arc<[CachePadded<Counts>]>,
    pub(super) estimate: CachePadded<Estimate>,
}

impl Row {
    /// Reads of its keys since it was named.
    pub(crate) fn gets(&self) -> u64 {
        self.sum(|counts| counts.gets.get())
    }

    /// About how many bytes its items take.
    pub(crate) fn bytes(&self) -> u64 {
        self.estimate.0.bytes.load(Relaxed)
    }

    /// About how many items it has.
    pub(super) fn items(&self) -> u64 {
        self.estimate.0.items.load(Relaxed)
    }

    fn sum(&self, of: fn(&Counts) -> u64) -> u64 {
        self.counts.iter().map(|one| of(&one.0)).sum()
    }

    /// What is known of it.
    pub(super) fn stats(&self, memory_bytes: u64) -> NamespaceStats {
        let share = |percent: u8| memory_bytes / 100 * u64::from(percent);
        NamespaceStats {
            gets: self.gets(),
            hits: self.sum(|counts| counts.hits.get()),
            sets: self.sum(|counts| counts.sets.get()),
            evictions: self.sum(|counts| counts.evictions.load(Relaxed)),
            items: self.items(),
            bytes: self.bytes(),
            share_bytes: (share(self.namespace.least_percent), share(self.namespace.most_percent)),
            namespace: self.namespace.clone(),
        }
    }

    /// Takes in a sample of the index. `found` of its items were found, which stand for `items` items of `bytes` bytes.
    pub(crate) fn take_sample(&self, items: u64, bytes: u64, found: u64, is_exact: bool) {
        self.estimate.0.sample(items, bytes, found, is_exact);
    }

    pub(super) fn standing(&self, memory_bytes: u64) -> Standing {
        let bytes = self.bytes();
        let share = |percent: u8| memory_bytes / 100 * u64::from(percent);
        if bytes < share(self.namespace.least_percent) {
            Standing::Below
        } else if self.namespace.most_percent < 100 && bytes > share(self.namespace.most_percent) {
            Standing::Above
        } else {
            Standing::Within
        }
    }
}

/// The namespaces that were named last.
#[derive(Default)]
pub(crate) struct Table {
    pub(super) delimiter: u8,
    /// In order of name.
    pub(crate) rows: Vec<Row>,
    /// Which row has which name.
    slots: Slots,
    /// The number that was given last.
    last_number: u8,
}

/// A hash table with open addresses: the number of a row and 1, or 0. Three quarters of it are free at least.
struct Slots([u8; SLOTS]);

/// Slots for [`NAMESPACES_MAX`] names. The number of a slot is a byte.
const SLOTS: usize = 256;

impl Default for Slots {
    fn default() -> Slots {
        Slots([0; SLOTS])
    }
}

impl Slots {
    fn of(rows: &[Row]) -> Slots {
        let mut slots = Slots::default();
        for (nth, row) in (1..).zip(rows) {
            let mut slot = slot_of(row.begin, row.namespace.name.len());
            while slots.0[usize::from(slot)] != 0 {
                slot = slot.wrapping_add(1);
            }
            slots.0[usize::from(slot)] = nth;
        }
        slots
    }
}

/// A word of bytes.
const WORD_BYTES: usize = size_of::<u64>();
/// The lowest and the highest bit of each byte of a word.
const LOW_BITS: u64 = u64::from_le_bytes([1; WORD_BYTES]);
const HIGH_BITS: u64 = LOW_BITS << 7;

/// The first bytes of a name as a word, and zeros where there are none.
#[inline]
fn begin_of(name: &[u8]) -> u64 {
    let mut word = [0; WORD_BYTES];
    let bytes = name.len().min(WORD_BYTES);
    word[..bytes].copy_from_slice(&name[..bytes]);
    u64::from_le_bytes(word)
}

/// Where the search for a name begins.
#[inline]
fn slot_of(begin: u64, name_bytes: usize) -> u8 {
    ((begin ^ name_bytes as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// The name before the first delimiter as [`begin_of`] has it, and its length, if a key has the delimiter among its
/// first bytes: a twin of [`name_of`] for short names.
#[inline]
fn short_name_of(key: &[u8], delimiter: u8) -> Option<(u64, usize)> {
    let word = u64::from_le_bytes(*key.first_chunk()?);
    // The byte of the delimiter is the first that is 0 now; its highest bit is the lowest one of these.
    let zeroed = word ^ (LOW_BITS * u64::from(delimiter));
    let found = zeroed.wrapping_sub(LOW_BITS) & !zeroed & HIGH_BITS;
    let name_bytes = found.trailing_zeros() as usize / 8;
    (found != 0).then(|| (word & ((1 << (8 * name_bytes)) - 1), name_bytes))
}

impl Table {
    /// A table of other namespaces. What was counted of those that stay, stays. `blocks` is how many threads count.
    pub(super) fn renamed(&self, list: &[Namespace], delimiter: u8, blocks: usize) -> Table {
        let same = self.delimiter == delimiter;
        let fresh = || (0..blocks).map(|_| CachePadded(Counts::default())).collect();
        let mut last_number = self.last_number;
        // There are far fewer namespaces than numbers. Uses of those that are gone may still be on their way.
        let mut new_number = || {
            loop {
                last_number = last_number.wrapping_add(1);
                if let Some(number) = NonZeroU8::new(last_number)
                    && self.rows.iter().all(|row| row.number != number)
                {
                    return number;
                }
            }
        };
        let row = |namespace: &Namespace| {
            let old = self.rows.iter().find(|row| same && row.namespace.name == namespace.name);
            Row {
                namespace: namespace.clone(),
                begin: begin_of(namespace.name.as_bytes()),
                number: old.map_or_else(&mut new_number, |row| row.number),
                curve_below: AtomicU32::new(old.map_or(0, |row| row.curve_below.load(Relaxed))),
                counts: old.map_or_else(fresh, |row| row.counts.clone()),
                estimate: CachePadded(Estimate::of(old.map_or(0, Row::items), old.map_or(0, Row::bytes))),
            }
        };
        let mut rows: Vec<Row> = list.iter().map(row).collect();
        rows.sort_by(|one, other| one.namespace.name.cmp(&other.namespace.name));
        let slots = Slots::of(&rows);
        Table { delimiter, rows, slots, last_number }
    }

    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        // In a database the keys of a tenant begin as they do elsewhere.
        let key = key.strip_prefix(&DATABASE_MARK).map_or(key, |rest| rest.get(1..).unwrap_or_default());
        match short_name_of(key, self.delimiter) {
            Some((begin, name_bytes)) => self.search(begin, name_bytes, |_| true),
            None => self.named(name_of(key, self.delimiter)?),
        }
    }

    pub(super) fn named(&self, name: &[u8]) -> Option<usize> {
        let rest = &name[name.len().min(WORD_BYTES)..];
        self.search(begin_of(name), name.len(), |other| other[WORD_BYTES.min(other.len())..] == *rest)
    }

    /// The row whose name begins like this, has this length, and `is_it`.
    #[inline]
    fn search(&self, begin: u64, name_bytes: usize, is_it: impl Fn(&[u8]) -> bool) -> Option<usize> {
        let mut slot = slot_of(begin, name_bytes);
        loop {
            let nth = usize::from(self.slots.0[usize::from(slot)]).checked_sub(1)?;
            let row = &self.rows[nth];
            let name = row.namespace.name.as_bytes();
            if row.begin == begin && name.len() == name_bytes && is_it(name) {
                return Some(nth);
            }
            slot = slot.wrapping_add(1);
        }
    }

    pub(super) fn count(&self, key: &[u8], block: usize, add: impl FnOnce(&Counts)) {
        if let Some(nth) = self.find(key) {
            add(&self.rows[nth].counts[block].0);
        }
    }

    /// The namespace with this name.
    pub(crate) fn row(&self, name: &[u8]) -> Option<&Row> {
        self.named(name).map(|nth| &self.rows[nth])
    }
}

/// What a key has before the first delimiter.
#[inline]
fn name_of(key: &[u8], delimiter: u8) -> Option<&[u8]> {
    let end = memchr(delimiter, &key[..key.len().min(NAMESPACE_BYTES_MAX + 1)])?;
    Some(&key[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespaces::setting::NAMESPACES_MAX;

    fn namespace(name: &str, least_percent: u8, most_percent: u8, ttl_max_s: u32) -> Namespace {
        Namespace { name: name.to_owned(), least_percent, most_percent, ttl_max_s }
    }

    #[test]
    fn each_of_as_many_as_there_may_be_is_found_by_its_name() {
        // Names of one length that begin alike begin their searches at one slot.
        let middle = |nth| format!("aaaaaaaaaaaa{nth:02}bbbbbbbbbbbb");
        let names: Vec<String> = (0..32).map(middle).chain((0..32).map(|nth| format!("n{nth}"))).collect();
        let list: Vec<_> = names.iter().map(|name| namespace(name, 0, 100, 0)).collect();
        assert_eq!(list.len(), NAMESPACES_MAX);
        let table = Table::default().renamed(&list, b':', 1);
        for name in &names {
            let found = table.row(name.as_bytes()).map(|row| &row.namespace.name);
            assert_eq!(found, Some(name));
            assert_eq!(table.find(format!("{name}:1").as_bytes()), table.named(name.as_bytes()));
        }
        for absent in ["", "n", "n32", &middle(32), "aaaaaaaaaaaa"] {
            assert_eq!(table.named(absent.as_bytes()), None, "{absent}");
        }
        // With each length of a name the delimiter comes elsewhere, and what follows it does not matter.
        for bytes in 0..20 {
            let key = [&b"abcdefghijklmnopqrstuvwxyz"[..bytes], b":0:\xba\x39:", &[0xff; 9]].concat();
            let expected = (bytes < WORD_BYTES).then(|| (begin_of(&key[..bytes]), bytes));
            assert_eq!(short_name_of(&key, b':'), expected);
            assert_eq!(short_name_of(&key[..(bytes + 1).min(7)], b':'), None, "the key is too short");
        }
        let longest = [b'n'; NAMESPACE_BYTES_MAX + 2];
        assert_eq!(
            name_of(&[&longest[2..], b":"].concat(), b':').map(<[u8]>::len),
            Some(NAMESPACE_BYTES_MAX)
        );
        assert_eq!(name_of(&[&longest[1..], b":"].concat(), b':'), None);
    }
}
