//! Items to look up, and two simple tables to compare the index with.
#![allow(dead_code, reason = "each benchmark uses its part")]

use larder_index::{HoldsKey, Index, IndexOptions};
use larder_item::{KeyHash, KeyHasher, Location};

/// Records of one cache line with the key first, as far apart as small items are.
#[repr(align(64))]
pub(crate) struct Record {
    key: u64,
    /// The link of [`ChainedList`], stored in the item as memcached does.
    next: u32,
}

/// Record n has the key n.
pub(crate) struct Records {
    hasher: KeyHasher,
    pub(crate) records: Vec<Record>,
}

impl Records {
    pub(crate) fn new(len: u64) -> Records {
        let records = (0..len).map(|key| Record { key, next: 0 }).collect();
        Records { hasher: KeyHasher::with_seed(5), records }
    }

    #[inline]
    pub(crate) fn hash(&self, key: u64) -> KeyHash {
        self.hasher.hash(&key.to_le_bytes())
    }

    #[inline]
    pub(crate) fn at(key: u64) -> Location {
        Location::from_offset(64 * key)
    }
}

impl HoldsKey for Records {
    #[inline]
    fn holds(&self, at: Location, key: &[u8]) -> bool {
        self.records[(at.offset() / 64) as usize].key.to_le_bytes() == key
    }

    #[inline]
    fn hash_of(&self, at: Location) -> KeyHash {
        self.hash(self.records[(at.offset() / 64) as usize].key)
    }

    #[inline]
    fn prefetch(&self, at: Location) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is a hint and cannot fault, whatever the address.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(
                self.records.as_ptr().wrapping_add((at.offset() / 64) as usize).cast(),
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

/// Inserts record `key`. About one insert in a million finds its bucket full; the coldest entry is then removed, as
/// in a cache.
pub(crate) fn insert(index: &Index, records: &Records, key: u64) {
    let mut guard = index.lock(records.hash(key));
    while let Err(full) = guard.insert(Records::at(key), 0) {
        guard.remove(&full.victim);
    }
}

/// An index of the first `len` records, grown from 1024 buckets.
pub(crate) fn filled_index(records: &Records, len: u64, fill_target: u32) -> Index {
    let index =
        Index::new(IndexOptions { fill_target, buckets_log2_max: 24, ..IndexOptions::default() }).unwrap();
    for key in 0..len {
        insert(&index, records, key);
        while index.needs_growth() {
            index.grow(records, 8);
        }
    }
    index
}

/// Random numbers, in an order that no prefetcher guesses.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    #[inline]
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 as u128 * end as u128) >> 64) as u64
    }
}

/// One head per bucket and links through the items: every step reads an item. It takes 4 bytes per bucket and 4
/// bytes in each item, with as many buckets as items.
pub(crate) struct ChainedList {
    heads: Vec<u32>,
}

impl ChainedList {
    pub(crate) fn filled(records: &mut Records, len: u64) -> ChainedList {
        let mut heads = vec![u32::MAX; len.next_power_of_two() as usize];
        for key in 0..len {
            let place = records.hash(key).0 as usize & (heads.len() - 1);
            records.records[key as usize].next = std::mem::replace(&mut heads[place], key as u32);
        }
        ChainedList { heads }
    }

    pub(crate) fn get(&self, hash: KeyHash, key: u64, records: &Records) -> Option<u64> {
        let mut at = self.heads[hash.0 as usize & (self.heads.len() - 1)];
        while at != u32::MAX {
            let record = &records.records[at as usize];
            if record.key == key {
                return Some(at as u64);
            }
            at = record.next;
        }
        None
    }
}

/// Buckets of seven tagged 8-byte entries and a link to the next line. There is a power of two of buckets, and a
/// chain may have any length.
pub(crate) struct ChainedLines {
    mask: usize,
    lines: Vec<Line>,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    next: u64,
    entries: [u64; 7],
}

impl ChainedLines {
    pub(crate) fn filled(records: &Records, len: u64, fill: u64) -> ChainedLines {
        let buckets = (len / fill).next_power_of_two() as usize;
        let empty = Line { next: 0, entries: [0; 7] };
        let mut table = ChainedLines { mask: buckets - 1, lines: vec![empty; buckets] };
        for key in 0..len {
            let hash = records.hash(key);
            let mut at = hash.0 as usize & table.mask;
            loop {
                if let Some(slot) = table.lines[at].entries.iter_mut().find(|slot| **slot == 0) {
                    *slot = (hash.tag() as u64) << 48 | (key + 1);
                    break;
                }
                if table.lines[at].next == 0 {
                    table.lines[at].next = table.lines.len() as u64;
                    table.lines.push(empty);
                }
                at = table.lines[at].next as usize;
            }
        }
        table
    }

    pub(crate) fn get(&self, hash: KeyHash, key: u64, records: &Records) -> Option<u64> {
        let mut at = hash.0 as usize & self.mask;
        loop {
            let line = &self.lines[at];
            for entry in line.entries {
                let record = (entry & ((1 << 48) - 1)).wrapping_sub(1);
                if entry >> 48 == hash.tag() as u64
                    && entry != 0
                    && records.records[record as usize].key == key
                {
                    return Some(record);
                }
            }
            if line.next == 0 {
                return None;
            }
            at = line.next as usize;
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        64 * self.lines.len()
    }
}
