//! Buckets of one cache line, and what a full one grows into: a list, a tree or runs of sub-buckets. They are as real
//! as an index without deletions has to be: entries of 8 bytes, a tag of 16 bits in each, and links in the line itself.
//!
//! ```text
//!  bucket: 64 bytes, one line         links: four of 16 bits, into the sub-buckets of the block; 0 = none
//!  +---------+---------+-- ... --+---------+---------+
//!  | entry 0 | entry 1 |         | entry 6 |  links  |   list: one. tree: one for each value of two bits of the tag.
//!  +---------+---------+-- ... --+---------+---------+   runs: the first sub-bucket and how many there are.
//!
//!  entry: 8 bytes                     a block is 4,096 buckets and their sub-buckets
//!  +-----+-----------+
//!  | tag | reference |   0 = free; a reference is not 0
//!  | 16  |    48     |
//!  +-----+-----------+
//! ```

/// How a bucket grows beyond its own line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// One more bucket behind the last one.
    List,
    /// Four buckets, chosen by two bits of the tag, each of which is made when it is needed, and so on.
    Tree,
    /// One, two or four sub-buckets side by side, chosen by two bits of the tag. They have eight entries and no links.
    Runs,
}

/// What buckets are like.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) overflow: Overflow,
    /// Entries of a bucket, at most seven.
    pub(crate) slots: usize,
    /// Whether an entry with another tag is known to be of another key.
    pub(crate) tags: bool,
    /// The number of buckets doubles when there are more items for each.
    pub(crate) load: f64,
}

const LINKS: usize = 7;
const SUB_SLOTS: usize = 8;
const RUN_MAX: usize = 4;
const TAG_SHIFT: u32 = 48;
const REFERENCE: u64 = (1 << TAG_SHIFT) - 1;
const BLOCK_BUCKETS: usize = 4096;
const BUCKETS_MIN: usize = 1024;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

/// The sub-buckets of 4,096 buckets.
#[derive(Clone, Default)]
struct Block {
    lines: Vec<Line>,
    /// Runs that nobody uses, of one and of two lines.
    free: [Vec<usize>; 2],
}

impl Block {
    /// The place of `count` empty lines side by side.
    fn take(&mut self, count: usize) -> usize {
        if let Some(place) = self.free.get_mut(count.ilog2() as usize).and_then(Vec::pop) {
            return place;
        }
        let place = self.lines.len();
        self.lines.resize(place + count, Line([0; 8]));
        assert!(self.lines.len() < 1 << 16, "a link of 16 bits reaches all sub-buckets");
        place
    }

    /// Empties a run and keeps it for another bucket. Returns its entries.
    fn give(&mut self, place: usize, count: usize) -> Vec<u64> {
        let lines = &mut self.lines[place..place + count];
        let entries = lines.iter().flat_map(|line| line.0).filter(|entry| *entry != 0).collect();
        lines.fill(Line([0; 8]));
        if count > 0 {
            self.free[count.ilog2() as usize].push(place);
        }
        entries
    }
}

pub(crate) struct Buckets {
    shape: Shape,
    lines: Vec<Line>,
    blocks: Vec<Block>,
    items: usize,
}

impl Buckets {
    pub(crate) fn new(shape: Shape) -> Buckets {
        Buckets::with_lines(shape, BUCKETS_MIN)
    }

    fn with_lines(shape: Shape, count: usize) -> Buckets {
        assert!(shape.slots <= LINKS, "a line has eight words");
        let blocks = vec![Block::default(); count.div_ceil(BLOCK_BUCKETS)];
        Buckets { shape, lines: vec![Line([0; 8]); count], blocks, items: 0 }
    }

    pub(crate) fn items(&self) -> usize {
        self.items
    }

    pub(crate) fn bytes(&self) -> u64 {
        64 * (self.lines.len() + self.blocks.iter().map(|block| block.lines.len()).sum::<usize>()) as u64
    }

    #[inline]
    fn place_of(&self, hash: u64) -> usize {
        hash as usize & (self.lines.len() - 1)
    }

    #[inline]
    fn slots_at(&self, depth: u32) -> usize {
        if depth > 0 && self.shape.overflow == Overflow::Runs { SUB_SLOTS } else { self.shape.slots }
    }

    /// The sub-bucket behind a line in which the key of `tag` may be.
    #[inline]
    fn next(&self, line: &Line, tag: u64, depth: u32) -> Option<usize> {
        let links = line.0[LINKS];
        match self.shape.overflow {
            Overflow::List => link(links, 0).checked_sub(1),
            Overflow::Tree => link(links, direction(tag, depth)).checked_sub(1),
            Overflow::Runs if depth > 0 => None,
            Overflow::Runs => Some(link(links, 0).checked_sub(1)? + part(tag, link(links, 1))),
        }
    }

    /// The reference of the entry for which `is_it` says so. It is asked for all that may be the one, and `read` counts
    /// the lines of the index.
    #[inline]
    pub(crate) fn find(&self, hash: u64, read: &mut u64, mut is_it: impl FnMut(u64) -> bool) -> Option<u64> {
        let (place, tag) = (self.place_of(hash), hash >> TAG_SHIFT);
        let (mut line, mut depth) = (&self.lines[place], 0);
        loop {
            *read += 1;
            for entry in &line.0[..self.slots_at(depth)] {
                let may_be = *entry != 0 && (!self.shape.tags || *entry >> TAG_SHIFT == tag);
                if may_be && is_it(*entry & REFERENCE) {
                    return Some(*entry & REFERENCE);
                }
            }
            line = &self.blocks[place / BLOCK_BUCKETS].lines[self.next(line, tag, depth)?];
            depth += 1;
        }
    }

    /// Adds an entry for a key that has none. Returns whether there was room.
    pub(crate) fn insert(&mut self, hash: u64, reference: u64) -> bool {
        let (place, tag) = (self.place_of(hash), hash >> TAG_SHIFT);
        let entry = tag << TAG_SHIFT | reference;
        let (mut at, mut depth) = (None::<usize>, 0);
        loop {
            let slots = self.slots_at(depth);
            let block = &mut self.blocks[place / BLOCK_BUCKETS];
            let new = block.lines.len();
            let line = match at {
                None => &mut self.lines[place],
                Some(sub) => &mut block.lines[sub],
            };
            if put(&mut line.0[..slots], entry) {
                self.items += 1;
                return true;
            }
            if self.shape.overflow == Overflow::Runs {
                let added = add_to_run(&mut self.lines[place].0[LINKS], block, entry);
                self.items += usize::from(added);
                return added;
            }
            let which = if self.shape.overflow == Overflow::List { 0 } else { direction(tag, depth) };
            let next = match link(line.0[LINKS], which) {
                0 => {
                    line.0[LINKS] |= (new as u64 + 1) << (16 * which);
                    block.take(1)
                }
                link => link - 1,
            };
            (at, depth) = (Some(next), depth + 1);
        }
    }

    /// Doubles the number of buckets if there are too many items for them.
    pub(crate) fn grow_if_full(&mut self, hash_of: impl Fn(u64) -> u64) {
        if self.items as f64 <= self.shape.load * self.lines.len() as f64 {
            return;
        }
        let grown = Buckets::with_lines(self.shape, 2 * self.lines.len());
        let old = std::mem::replace(self, grown);
        let subs = old.blocks.iter().flat_map(|block| &block.lines).map(|line| &line.0[..old.slots_at(1)]);
        let lines = old.lines.iter().map(|line| &line.0[..old.shape.slots]).chain(subs);
        for entry in lines.flatten().filter(|entry| **entry != 0) {
            let reference = entry & REFERENCE;
            self.insert(hash_of(reference), reference);
        }
    }
}

/// Link `which` of four.
#[inline]
fn link(links: u64, which: usize) -> usize {
    (links >> (16 * which) & 0xffff) as usize
}

/// Two bits of the tag, others in each depth.
#[inline]
fn direction(tag: u64, depth: u32) -> usize {
    (tag >> (2 * depth % 16) & 3) as usize
}

/// Which sub-bucket of a run of `count` a tag belongs to.
#[inline]
fn part(tag: u64, count: usize) -> usize {
    direction(tag, 0) * count / RUN_MAX
}

fn put(slots: &mut [u64], entry: u64) -> bool {
    slots.iter_mut().find(|slot| **slot == 0).map(|slot| *slot = entry).is_some()
}

/// Adds an entry to the run of a bucket. A run that is full where the entry belongs is copied into one twice as long.
fn add_to_run(links: &mut u64, block: &mut Block, entry: u64) -> bool {
    loop {
        let (first, count) = (link(*links, 0).wrapping_sub(1), link(*links, 1));
        if count > 0 && put(&mut block.lines[first + part(entry >> TAG_SHIFT, count)].0, entry) {
            return true;
        }
        if count == RUN_MAX {
            return false;
        }
        let longer = (2 * count).max(1);
        let place = block.take(longer);
        let entries = if count > 0 { block.give(first, count) } else { Vec::new() };
        for entry in entries {
            put(&mut block.lines[place + part(entry >> TAG_SHIFT, longer)].0, entry);
        }
        *links = (place as u64 + 1) | (longer as u64) << 16;
    }
}
