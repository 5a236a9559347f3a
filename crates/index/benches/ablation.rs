//! Cache lines that a request fetches, by the structure of the index: counted as in Fig. 12 of Cavast's paper.
//!
//! `cargo bench -p larder-index --bench ablation [-- KEYS]`
//!
//! An access to a bucket or sub-bucket counts one line, an access to an item as many lines as the item has. A lookup
//! accesses an item when nothing else says that it is another one: always in a chain of items, and where the tag is the
//! same, or there are no tags, in a bucket of entries. The second figure counts only the first line of an item whose
//! key is another one, for a processor does not load what nobody reads.
//!
//! The models say what a structure touches, not what it costs; `lookup` and `write` time the real ones.

use larder_item::{KeyHash, KeyHasher};

const LINE_BYTES: u64 = 64;
/// Key, value and header of the paper's SYS items: keys of about 30 bytes, values of about 500.
const ITEM_BYTES: u64 = 530;
const REQUESTS: u64 = 2_000_000;
/// Entries of the paper's bucket of 64 bytes, with tags of two bytes beside pointers of eight; of Larder's; and of one
/// without tags.
const PAPER_SLOTS: usize = 6;
const LARDER_SLOTS: usize = 7;
const UNTAGGED_SLOTS: usize = 7;
const SUB_SLOTS: usize = 8;

/// How a bucket grows beyond its own line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    /// One more bucket behind the last one.
    List,
    /// Four buckets, chosen by two bits of the tag, and so on.
    Tree,
    /// One, two or four sub-buckets side by side, chosen by two bits of the tag.
    Runs,
}

/// A structure of the index.
trait Structure {
    /// Whether the key is there.
    fn look_up(&self, key: u32, hash: KeyHash, lines: &mut Lines) -> bool;
    /// Inserts a key that is absent. Its bucket was just looked at.
    fn insert(&mut self, key: u32, hash: KeyHash);
    /// Bytes of the index, without items.
    fn bytes(&self) -> u64;
}

/// Makes a structure without items.
type Make<'m> = Box<dyn Fn() -> Box<dyn Structure> + 'm>;

/// Lines fetched.
#[derive(Clone, Copy, Default)]
struct Lines {
    of_index: u64,
    /// Items read whole, and items of another key, of which one line may be enough.
    items: u64,
    others: u64,
}

impl Lines {
    fn as_published(&self) -> u64 {
        self.of_index + (self.items + self.others) * ITEM_BYTES.div_ceil(LINE_BYTES)
    }

    fn as_read(&self) -> u64 {
        self.of_index + self.items * ITEM_BYTES.div_ceil(LINE_BYTES) + self.others
    }
}

/// Heads of 8 bytes and a link in every item.
struct Chained {
    heads: Vec<Vec<u32>>,
    items: usize,
    load: f64,
    hashes: Vec<KeyHash>,
}

impl Structure for Chained {
    fn look_up(&self, key: u32, hash: KeyHash, lines: &mut Lines) -> bool {
        let chain = &self.heads[(hash.0 & (self.heads.len() as u64 - 1)) as usize];
        lines.of_index += 1;
        // The newest item is the first.
        let found = chain.iter().rev().position(|other| *other == key);
        lines.others += found.unwrap_or(chain.len()) as u64;
        found.is_some()
    }

    fn insert(&mut self, key: u32, hash: KeyHash) {
        let mask = self.heads.len() as u64 - 1;
        self.heads[(hash.0 & mask) as usize].push(key);
        self.hashes[key as usize] = hash;
        self.items += 1;
        if self.items as f64 > self.load * self.heads.len() as f64 {
            let old = std::mem::take(&mut self.heads);
            self.heads = vec![Vec::new(); 2 * old.len()];
            let mask = self.heads.len() as u64 - 1;
            for key in old.into_iter().flatten() {
                self.heads[(self.hashes[key as usize].0 & mask) as usize].push(key);
            }
        }
    }

    fn bytes(&self) -> u64 {
        8 * (self.heads.len() + self.items) as u64
    }
}

/// One line of entries, and those behind it.
#[derive(Clone, Default)]
struct Node {
    entries: Vec<(u16, u32)>,
    below: Vec<Option<Box<Node>>>,
}

/// Buckets of one cache line.
struct Buckets {
    nodes: Vec<Node>,
    items: usize,
    load: f64,
    slots: usize,
    overflow: Overflow,
    tags: bool,
    hashes: Vec<KeyHash>,
}

impl Buckets {
    fn new(keys: usize, overflow: Overflow, slots: usize, tags: bool, load: f64) -> Buckets {
        let hashes = vec![KeyHash(0); keys];
        Buckets { nodes: vec![Node::default(); 1024], items: 0, load, slots, overflow, tags, hashes }
    }

    fn slots_at(&self, depth: u32) -> usize {
        if self.overflow == Overflow::Runs && depth > 0 { SUB_SLOTS } else { self.slots }
    }

    /// Which of the nodes below an entry with this tag belongs to.
    fn direction(&self, node: &Node, tag: u16, depth: u32) -> usize {
        match self.overflow {
            Overflow::List => 0,
            Overflow::Tree => usize::from(tag >> (2 * depth % 16) & 3),
            Overflow::Runs => usize::from(tag & 3) * node.below.len() / 4,
        }
    }

    fn insert_at(&mut self, key: u32, tag: u16, place: usize) {
        let mut node = std::mem::take(&mut self.nodes[place]);
        self.put(&mut node, key, tag, 0);
        self.nodes[place] = node;
    }

    fn put(&self, node: &mut Node, key: u32, tag: u16, depth: u32) {
        if node.entries.len() < self.slots_at(depth) {
            return node.entries.push((tag, key));
        }
        match self.overflow {
            Overflow::List | Overflow::Tree => {
                let ways = if self.overflow == Overflow::List { 1 } else { 4 };
                node.below.resize(ways, None);
                let at = self.direction(node, tag, depth);
                self.put(node.below[at].get_or_insert_default(), key, tag, depth + 1);
            }
            Overflow::Runs => {
                // A run that is full where the entry belongs is copied into one twice as long.
                loop {
                    let at = self.direction(node, tag, depth);
                    if let Some(Some(sub)) = node.below.get_mut(at)
                        && sub.entries.len() < SUB_SLOTS
                    {
                        return sub.entries.push((tag, key));
                    }
                    if node.below.len() == 4 {
                        return;
                    }
                    let old = std::mem::take(&mut node.below);
                    node.below = vec![Some(Box::default()); (2 * old.len()).max(1)];
                    for (tag, key) in old.into_iter().flatten().flat_map(|sub| sub.entries) {
                        let at = self.direction(node, tag, depth);
                        node.below[at].get_or_insert_default().entries.push((tag, key));
                    }
                }
            }
        }
    }

    fn each(node: &Node, f: &mut impl FnMut(u16, u32)) {
        node.entries.iter().for_each(|(tag, key)| f(*tag, *key));
        node.below.iter().flatten().for_each(|below| Buckets::each(below, f));
    }

    fn lines(node: &Node) -> u64 {
        1 + node.below.iter().flatten().map(|below| Buckets::lines(below)).sum::<u64>()
    }
}

impl Structure for Buckets {
    fn look_up(&self, key: u32, hash: KeyHash, lines: &mut Lines) -> bool {
        let tag = hash.tag();
        let (mut node, mut depth) = (&self.nodes[(hash.0 & (self.nodes.len() as u64 - 1)) as usize], 0);
        loop {
            lines.of_index += 1;
            for (other_tag, other) in &node.entries {
                if *other == key {
                    return true;
                }
                lines.others += u64::from(!self.tags || *other_tag == tag);
            }
            let below = node.below.get(self.direction(node, tag, depth)).and_then(Option::as_ref);
            let Some(next) = below else { return false };
            (node, depth) = (next, depth + 1);
        }
    }

    fn insert(&mut self, key: u32, hash: KeyHash) {
        let place = (hash.0 & (self.nodes.len() as u64 - 1)) as usize;
        self.insert_at(key, hash.tag(), place);
        self.hashes[key as usize] = hash;
        self.items += 1;
        if self.items as f64 > self.load * self.nodes.len() as f64 {
            let old = std::mem::take(&mut self.nodes);
            self.nodes = vec![Node::default(); 2 * old.len()];
            let mask = self.nodes.len() as u64 - 1;
            for node in old {
                let mut entries = Vec::new();
                Buckets::each(&node, &mut |tag, key| entries.push((tag, key)));
                for (tag, key) in entries {
                    self.insert_at(key, tag, (self.hashes[key as usize].0 & mask) as usize);
                }
            }
        }
    }

    fn bytes(&self) -> u64 {
        64 * self.nodes.iter().map(Buckets::lines).sum::<u64>()
    }
}

fn main() {
    let keys = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(1_500_000usize);
    println!("{keys} keys, items of {ITEM_BYTES} bytes, Zipf 0.99, {REQUESTS} requests");
    println!(
        "lines for each request, as published / where only the first line of another key's item is read\n"
    );
    let chained = |load| -> Box<dyn Structure> {
        Box::new(Chained { heads: vec![Vec::new(); 1024], items: 0, load, hashes: vec![KeyHash(0); keys] })
    };
    let buckets = |overflow, slots, tags, load| -> Box<dyn Structure> {
        Box::new(Buckets::new(keys, overflow, slots, tags, load))
    };
    let structures: Vec<(&str, Make<'_>)> = vec![
        ("chained items, 1.5 a head", Box::new(|| chained(1.5))),
        ("list of buckets, tags, 1.5", Box::new(|| buckets(Overflow::List, PAPER_SLOTS, true, 1.5))),
        ("tree of buckets, tags, 1.5", Box::new(|| buckets(Overflow::Tree, PAPER_SLOTS, true, 1.5))),
        ("list of buckets, tags, 6", Box::new(|| buckets(Overflow::List, PAPER_SLOTS, true, 6.0))),
        ("tree of buckets, tags, 6", Box::new(|| buckets(Overflow::Tree, PAPER_SLOTS, true, 6.0))),
        ("runs of sub-buckets, tags, 6", Box::new(|| buckets(Overflow::Runs, LARDER_SLOTS, true, 6.0))),
        ("list of buckets, no tags, 6", Box::new(|| buckets(Overflow::List, UNTAGGED_SLOTS, false, 6.0))),
        ("tree of buckets, no tags, 6", Box::new(|| buckets(Overflow::Tree, UNTAGGED_SLOTS, false, 6.0))),
        ("runs of sub-buckets, no tags, 6", Box::new(|| buckets(Overflow::Runs, LARDER_SLOTS, false, 6.0))),
    ];
    println!("{:<34}{:>16}{:>16}{:>16}{:>16}{:>10}", "SET:GET", "0:100", "10:90", "50:50", "100:0", "B/item");
    for (name, make) in &structures {
        print!("{name:<34}");
        let mut bytes = 0.0;
        for sets in [0, 10, 50, 100] {
            let mut structure = make();
            let lines = run(&mut *structure, keys, sets);
            let each = |lines: u64| lines as f64 / REQUESTS as f64;
            print!("{:>9.2} /{:>5.2}", each(lines.as_published()), each(lines.as_read()));
            bytes = structure.bytes() as f64 / keys as f64;
        }
        println!("{bytes:>10.1}");
    }
}

/// Lines of all requests, of which `sets` in a hundred store. Without stores all keys are there before; else the table
/// begins empty, as in the paper.
fn run(structure: &mut dyn Structure, keys: usize, sets: u64) -> Lines {
    let hasher = KeyHasher::with_seed(5);
    let hash = |key: u32| hasher.hash(&key.to_le_bytes());
    if sets == 0 {
        (0..keys as u32).for_each(|key| structure.insert(key, hash(key)));
    }
    let (mut lines, mut random) = (Lines::default(), 1u64);
    let mut next = || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        random >> 11
    };
    for _ in 0..REQUESTS {
        // Zipf's law of exponent 1, by the inverse of its distribution; the ranks are spread over the keys.
        let rank = (keys as f64).powf(next() as f64 / (1u64 << 53) as f64) as u64;
        let key = (rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys as u64) as u32;
        let is_set = next() % 100 < sets;
        let is_there = structure.look_up(key, hash(key), &mut lines);
        if is_set && !is_there {
            structure.insert(key, hash(key));
        }
        lines.items += u64::from(is_there || is_set);
    }
    lines
}
