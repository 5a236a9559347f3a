//! A cache as memcached keeps one: chains of items in a table of 8-byte heads, item structs with header, key and value
//! together in slots of slab classes, and an LRU list for each class.
//!
//! ```text
//!  item   0      8      16       24     28      32      36    38     40     41    48
//!        +------+------+--------+------+-------+-------+-----+------+------+-----+------+-----+-------+----+
//!        | next | prev | h_next | time | exp   | bytes | ref | flags|class | nkey| CAS  | key | value |\r\n|
//!        +------+------+--------+------+-------+-------+-----+------+------+-----+------+-----+-------+----+
//! ```
//!
//!        +------+------+--------+------+-------+-------+-----+------+------+-----+------+-----+-------+----+
//! cache lines. Pointers are offsets into one arena.

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
/// A table of heads grows when there are so many halves of items for each.
const LOAD_HALVES_MAX: usize = 3;

/// When an access moves an item to the front of its list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bump {
    /// At every access: an exact LRU list.
    Always,
    /// Once in a minute, which is not reached here: only the time of the access is written, as memcached does.
    Seldom,
}

pub(crate) struct Twin {
    heads: Vec<u64>,
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
    pub(crate) fn new(bytes: usize, bump: Bump) -> Twin {
        let mut classes = Vec::new();
        let mut slot_bytes = SLOT_MIN;
        while slot_bytes < SLAB_BYTES / 2 {
            classes.push(Class { slot_bytes, free: 0..0, first: 0, last: 0 });
            slot_bytes = ((slot_bytes as f64 * FACTOR) as usize).next_multiple_of(8);
        }
        // Offset 0 means "none". The kernel gives pages as they are used.
        let mut arena = Vec::with_capacity(bytes);
        arena.resize(64, 0);
        Twin { heads: vec![0; 1 << 16], arena, classes, items: 0, bump, now: 1 }
    }

    fn long(&self, at: u64, field: usize) -> u64 {
        let at = at as usize + field;
        u64::from_le_bytes(self.arena[at..at + 8].try_into().expect("eight bytes"))
    }

    fn set_long(&mut self, at: u64, field: usize, value: u64) {
        let at = at as usize + field;
        self.arena[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn word(&self, at: u64, field: usize) -> u32 {
        let at = at as usize + field;
        u32::from_le_bytes(self.arena[at..at + 4].try_into().expect("four bytes"))
    }

    fn key(&self, at: u64) -> &[u8] {
        let at = at as usize;
        &self.arena[at + HEADER_BYTES..at + HEADER_BYTES + usize::from(self.arena[at + NKEY])]
    }

    fn head_of(&self, hash: u64) -> usize {
        hash as usize & (self.heads.len() - 1)
    }

    /// Walks the chain to the item of `key`.
    fn find(&self, hash: u64, key: &[u8]) -> Option<u64> {
        let mut at = self.heads[self.head_of(hash)];
        while at != 0 {
            // As memcached compares: the length first.
            if usize::from(self.arena[at as usize + NKEY]) == key.len() && self.key(at) == key {
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
        let head = self.head_of(hash);
        let chain = std::mem::replace(&mut self.heads[head], at);
        self.set_long(at, H_NEXT, chain);
        self.link_first(at);
        self.items += 1;
        if 2 * self.items > LOAD_HALVES_MAX * self.heads.len() {
            self.grow();
        }
    }

    /// Doubles the table of heads.
    fn grow(&mut self) {
        let old = std::mem::take(&mut self.heads);
        self.heads = vec![0; 2 * old.len()];
        for mut at in old {
            while at != 0 {
                let next = self.long(at, H_NEXT);
                let head = self.head_of(super::plan::hash(self.key(at)));
                let chain = std::mem::replace(&mut self.heads[head], at);
                self.set_long(at, H_NEXT, chain);
                at = next;
            }
        }
    }
}
