//! A cache as memcached keeps one: chains of items in a table of 8-byte heads, item structs with header, key and value
//! together in slots of slab classes, and an LRU list for each class. Or the same with buckets of a cache line instead
//! of the chains, as in Cavast's paper.
//!
//! ```text
//!  byte 0      8      16       24     28    32      36    38      40      41     42    48    56
//!       +------+------+--------+------+-----+-------+-----+-------+-------+------+-----+-----+-----+-------+------+
//!       | next | prev | h_next | time | exp | bytes | ref | flags | class | nkey | pad | CAS | key | value | \r\n |
//!       +------+------+--------+------+-----+-------+-----+-------+-------+------+-----+-----+-----+-------+------+
//! ```
//!
//! Items begin anywhere in cache lines. Pointers are offsets into one arena.

use super::buckets::{Buckets, Shape};
use super::plan::Item;

const HEADER_BYTES: usize = 56;
const NEXT: usize = 0;
const PREV: usize = 8;
const H_NEXT: usize = 16;
const TIME: usize = 24;
const BYTES: usize = 32;
const CLASS: usize = 40;
const NKEY: usize = 41;
const SLAB_BYTES: usize = 1 << 20;
/// Growth from one slab class to the next, and the smallest slot, as memcached has them by default.
const FACTOR: f64 = 1.25;
const SLOT_MIN: usize = 96;
/// A table of heads grows when there are three halves of items for each.
const LOAD_HALVES_MAX: usize = 3;

/// When an access moves an item to the front of its list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bump {
    /// At every access: an exact LRU list.
    Always,
    /// Once in a minute, which is not reached here: only the time of the access is written, as memcached does.
    Seldom,
}

/// How items are found.
#[derive(Clone, Copy)]
pub(crate) enum Search {
    /// Heads of 8 bytes and a link in every item.
    Chains,
    /// Buckets of a cache line.
    Buckets(Shape),
}

enum Index {
    Chains(Vec<u64>),
    Buckets(Buckets),
}

pub(crate) struct Twin {
    index: Index,
    arena: Vec<u8>,
    classes: Vec<Class>,
    items: usize,
    bump: Bump,
    now: u32,
}

struct Class {
    slot_bytes: usize,
    /// The slots of the present slab that were not used yet.
    free: std::ops::Range<usize>,
    first: u64,
    last: u64,
}

impl Twin {
    /// A twin for at most `bytes` of slabs.
    pub(crate) fn new(bytes: usize, bump: Bump, search: Search) -> Twin {
        let mut classes = Vec::new();
        let mut slot_bytes = SLOT_MIN;
        while slot_bytes < SLAB_BYTES / 2 {
            classes.push(Class { slot_bytes, free: 0..0, first: 0, last: 0 });
            slot_bytes = ((slot_bytes as f64 * FACTOR) as usize).next_multiple_of(8);
        }
        // Offset 0 means "none". The kernel gives pages as they are used.
        let mut arena = Vec::with_capacity(bytes);
        arena.resize(64, 0);
        let index = match search {
            Search::Chains => Index::Chains(vec![0; 1 << 16]),
            Search::Buckets(shape) => Index::Buckets(Buckets::new(shape)),
        };
        Twin { index, arena, classes, items: 0, bump, now: 1 }
    }

    fn long(&self, at: u64, field: usize) -> u64 {
        long(&self.arena, at, field)
    }

    fn set_long(&mut self, at: u64, field: usize, value: u64) {
        set_long(&mut self.arena, at, field, value);
    }

    fn word(&self, at: u64, field: usize) -> u32 {
        let at = at as usize + field;
        u32::from_le_bytes(self.arena[at..at + 4].try_into().expect("four bytes"))
    }

    /// As memcached compares: the length first.
    fn is(&self, at: u64, key: &[u8]) -> bool {
        usize::from(self.arena[at as usize + NKEY]) == key.len() && key_in(&self.arena, at) == key
    }

    /// The item of `key`, by its chain or bucket.
    fn find(&self, hash: u64, key: &[u8]) -> Option<u64> {
        let heads = match &self.index {
            Index::Chains(heads) => heads,
            Index::Buckets(buckets) => return buckets.find(hash, &mut 0, |at| self.is(at, key)),
        };
        let mut at = heads[head_of(heads, hash)];
        while at != 0 {
            if self.is(at, key) {
                return Some(at);
            }
            at = self.long(at, H_NEXT);
        }
        None
    }

    /// Copies the value of `key` to `out`.
    pub(crate) fn get(&mut self, hash: u64, key: &[u8], out: &mut [u8]) -> usize {
        let Some(at) = self.find(hash, key) else { return 0 };
        self.touch(at);
        let (from, length) = (at as usize + HEADER_BYTES + key.len(), self.word(at, BYTES) as usize);
        out[..length].copy_from_slice(&self.arena[from..from + length]);
        length
    }

    fn touch(&mut self, at: u64) {
        match self.bump {
            Bump::Always => {
                self.unlink(at);
                self.link_first(at);
                self.now += 1;
                self.set_time(at);
            }
            Bump::Seldom if self.word(at, TIME) != self.now => self.set_time(at),
            Bump::Seldom => {}
        }
    }

    fn set_time(&mut self, at: u64) {
        let field = at as usize + TIME;
        self.arena[field..field + 4].copy_from_slice(&self.now.to_le_bytes());
    }

    fn class_of(&self, at: u64) -> usize {
        usize::from(self.arena[at as usize + CLASS])
    }

    fn unlink(&mut self, at: u64) {
        let (next, prev, class) = (self.long(at, NEXT), self.long(at, PREV), self.class_of(at));
        match prev {
            0 => self.classes[class].first = next,
            _ => self.set_long(prev, NEXT, next),
        }
        match next {
            0 => self.classes[class].last = prev,
            _ => self.set_long(next, PREV, prev),
        }
    }

    fn link_first(&mut self, at: u64) {
        let class = self.class_of(at);
        let first = std::mem::replace(&mut self.classes[class].first, at);
        self.set_long(at, NEXT, first);
        self.set_long(at, PREV, 0);
        match first {
            0 => self.classes[class].last = at,
            _ => self.set_long(first, PREV, at),
        }
    }

    /// Stores a new item.
    pub(crate) fn set(&mut self, hash: u64, key: &[u8], item: &Item) {
        let value_bytes = item.value_bytes as usize;
        let bytes = HEADER_BYTES + key.len() + value_bytes + 2;
        let class = self.classes.iter().position(|class| class.slot_bytes >= bytes).expect("items are small");
        let slot_bytes = self.classes[class].slot_bytes;
        if self.classes[class].free.len() < slot_bytes {
            let start = self.arena.len().next_multiple_of(64);
            assert!(start + SLAB_BYTES <= self.arena.capacity(), "the twin has room for all items");
            self.arena.resize(start + SLAB_BYTES, 0);
            self.classes[class].free = start..start + SLAB_BYTES;
        }
        let at = self.classes[class].free.start as u64;
        self.classes[class].free.start += slot_bytes;
        let place = at as usize;
        self.arena[place + CLASS] = class as u8;
        self.arena[place + NKEY] = key.len() as u8;
        self.arena[place + BYTES..place + BYTES + 4].copy_from_slice(&(value_bytes as u32).to_le_bytes());
        self.arena[place + HEADER_BYTES..place + HEADER_BYTES + key.len()].copy_from_slice(key);
        self.arena[place + HEADER_BYTES + key.len()..place + bytes].fill(b'v');
        self.set_time(at);
        self.link_first(at);
        self.items += 1;
        self.add_to_index(at, hash);
    }

    fn add_to_index(&mut self, at: u64, hash: u64) {
        match &mut self.index {
            Index::Chains(heads) => {
                let head = head_of(heads, hash);
                let chain = std::mem::replace(&mut heads[head], at);
                set_long(&mut self.arena, at, H_NEXT, chain);
                if 2 * self.items > LOAD_HALVES_MAX * heads.len() {
                    *heads = doubled(heads, &mut self.arena);
                }
            }
            Index::Buckets(buckets) => {
                assert!(buckets.insert(hash, at), "lists and trees have room for all");
                buckets.grow_if_full(|at| super::plan::hash(key_in(&self.arena, at)));
            }
        }
    }
}

fn long(arena: &[u8], at: u64, field: usize) -> u64 {
    let at = at as usize + field;
    u64::from_le_bytes(arena[at..at + 8].try_into().expect("eight bytes"))
}

fn set_long(arena: &mut [u8], at: u64, field: usize, value: u64) {
    let at = at as usize + field;
    arena[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn key_in(arena: &[u8], at: u64) -> &[u8] {
    let at = at as usize;
    &arena[at + HEADER_BYTES..at + HEADER_BYTES + usize::from(arena[at + NKEY])]
}

fn head_of(heads: &[u64], hash: u64) -> usize {
    hash as usize & (heads.len() - 1)
}

/// Twice as many heads, and the chains split over them.
fn doubled(old: &[u64], arena: &mut [u8]) -> Vec<u64> {
    let mut heads = vec![0; 2 * old.len()];
    for mut at in old.iter().copied() {
        while at != 0 {
            let next = long(arena, at, H_NEXT);
            let head = head_of(&heads, super::plan::hash(key_in(arena, at)));
            let chain = std::mem::replace(&mut heads[head], at);
            set_long(arena, at, H_NEXT, chain);
            at = next;
        }
    }
    heads
}
