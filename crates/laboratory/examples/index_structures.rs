//! Cache lines that a request fetches, by the structure of the index, counted as in Fig. 12 of Cavast's paper, and the
//! time that it takes.
//!
//! `cargo run --release -p larder-laboratory --example index_structures [-- KEYS [ROUNDS [CORE]]]`
//!
//! An access to a bucket or sub-bucket counts one line, an access to an item as many lines as the item has. A lookup
//! accesses an item when nothing else says that it is another one: always in a chain of items, and where the tag is the
//! same, or there are no tags, in a bucket of entries. The second figure counts only the first line of an item whose
//! key is another one, for a processor does not load what nobody reads. The third is nanoseconds of processor time,
//! the median of the rounds; a hit reads all lines of its item, and a SET writes them. Where SETs begin with an empty
//! table, its growth is in the time.
//!
//! The structures are real ones in memory, but without all that a server needs besides: locks, deletions, eviction.
//! Counts are the same in every run. The benchmarks `lookup` and `write` of `larder-index` time Larder's own index.

#[path = "../../../benches/support/buckets.rs"]
mod buckets;
#[allow(unreachable_pub, reason = "benchmarks of the package share it")]
#[path = "../../../benches/support/zipf.rs"]
mod zipf;

use buckets::{Buckets, Overflow, Shape};
use larder_item::KeyHasher;
use std::hint::black_box;
use zipf::Zipf;

const LINE_BYTES: u64 = 64;
/// Key, value and header of the paper's SYS items: keys of about 30 bytes, values of about 500.
const ITEM_BYTES: u64 = 530;
const ITEM_LINES: usize = ITEM_BYTES.div_ceil(LINE_BYTES) as usize;
const REQUESTS: usize = 2_000_000;
const ZIPF_EXPONENT: f64 = 0.99;
/// SETs in a hundred requests.
const MIXES: [u64; 4] = [0, 10, 50, 100];
const LOADS: [f64; 2] = [1.5, 6.0];

/// Name, growth, entries of a bucket, whether there are tags. The paper's bucket has six, with tags of two bytes beside
/// pointers of eight; Larder's has seven, and so has one without tags.
const BUCKETS: [(&str, Overflow, usize, bool); 6] = [
    ("list of buckets, tags", Overflow::List, 6, true),
    ("tree of buckets, tags", Overflow::Tree, 6, true),
    ("runs of sub-buckets, tags", Overflow::Runs, 7, true),
    ("list of buckets, no tags", Overflow::List, 7, false),
    ("tree of buckets, no tags", Overflow::Tree, 7, false),
    ("runs of sub-buckets, no tags", Overflow::Runs, 7, false),
];

/// Key, value and header, in lines of their own.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Item([[u64; 8]; ITEM_LINES]);

/// The words of the first line.
const LINK: usize = 0;
const KEY: usize = 1;
/// A word of every line.
const VALUE: usize = 2;

/// All items that there can be. Their memory is there from the start.
struct Items {
    items: Vec<Item>,
    /// For the growth of tables.
    hashes: Vec<u64>,
    len: usize,
}

impl Items {
    fn new(keys: usize) -> Items {
        // Not zero, so that the kernel gives the pages now.
        Items { items: vec![Item([[1; 8]; ITEM_LINES]); keys], hashes: vec![1; keys], len: 0 }
    }

    fn add(&mut self, key: u32, hash: u64) -> usize {
        let at = self.len;
        self.items[at].0[0][KEY] = u64::from(key);
        self.hashes[at] = hash;
        self.write(at);
        self.len += 1;
        at
    }

    fn write(&mut self, at: usize) {
        self.items[at].0.iter_mut().for_each(|line| line[VALUE] += 1);
    }

    fn read(&self, at: usize) -> u64 {
        self.items[at].0.iter().map(|line| line[VALUE]).fold(0, u64::wrapping_add)
    }

    fn is(&self, at: usize, key: u32) -> bool {
        self.items[at].0[0][KEY] == u64::from(key)
    }
}

/// A structure of the index. References are places of items and one more.
trait Structure {
    /// The place of the item of a key.
    fn look_up(&self, items: &Items, key: u32, hash: u64, lines: &mut Lines) -> Option<usize>;
    /// Inserts an item whose key is absent.
    fn insert(&mut self, items: &mut Items, at: usize, hash: u64);
    fn len(&self) -> usize;
    /// Bytes of the index, without items.
    fn bytes(&self) -> u64;
}

/// Lines fetched.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Lines {
    of_index: u64,
    /// Items read or written whole, and items of another key, of which one line may be enough.
    items: u64,
    others: u64,
}

impl Lines {
    fn as_published(&self) -> u64 {
        self.of_index + (self.items + self.others) * ITEM_LINES as u64
    }

    fn as_read(&self) -> u64 {
        self.of_index + self.items * ITEM_LINES as u64 + self.others
    }
}

/// Heads of 8 bytes and a link in every item, as in memcached.
struct Chained {
    heads: Vec<u64>,
    items: usize,
    load: f64,
}

impl Chained {
    fn new(load: f64) -> Chained {
        Chained { heads: vec![0; 1024], items: 0, load }
    }

    fn head_of(&self, hash: u64) -> usize {
        hash as usize & (self.heads.len() - 1)
    }

    /// The newest item becomes the first.
    fn link(&mut self, items: &mut Items, at: usize, hash: u64) {
        let head = self.head_of(hash);
        items.items[at].0[0][LINK] = std::mem::replace(&mut self.heads[head], at as u64 + 1);
    }
}

impl Structure for Chained {
    #[inline]
    fn look_up(&self, items: &Items, key: u32, hash: u64, lines: &mut Lines) -> Option<usize> {
        lines.of_index += 1;
        let mut reference = self.heads[self.head_of(hash)];
        while reference != 0 {
            let at = reference as usize - 1;
            if items.is(at, key) {
                return Some(at);
            }
            lines.others += 1;
            reference = items.items[at].0[0][LINK];
        }
        None
    }

    fn insert(&mut self, items: &mut Items, at: usize, hash: u64) {
        self.link(items, at, hash);
        self.items += 1;
        if self.items as f64 > self.load * self.heads.len() as f64 {
            let old = std::mem::take(&mut self.heads);
            self.heads = vec![0; 2 * old.len()];
            for mut reference in old {
                while reference != 0 {
                    let at = reference as usize - 1;
                    reference = items.items[at].0[0][LINK];
                    self.link(items, at, items.hashes[at]);
                }
            }
        }
    }

    fn len(&self) -> usize {
        self.items
    }

    /// Heads, and the links in the items.
    fn bytes(&self) -> u64 {
        8 * (self.heads.len() + self.items) as u64
    }
}

impl Structure for Buckets {
    #[inline]
    fn look_up(&self, items: &Items, key: u32, hash: u64, lines: &mut Lines) -> Option<usize> {
        let mut others = 0;
        let found = self.find(hash, &mut lines.of_index, |reference| {
            let is_it = items.is(reference as usize - 1, key);
            others += u64::from(!is_it);
            is_it
        });
        lines.others += others;
        Some(found? as usize - 1)
    }

    fn insert(&mut self, items: &mut Items, at: usize, hash: u64) {
        Buckets::insert(self, hash, at as u64 + 1);
        self.grow_if_full(|reference| items.hashes[reference as usize - 1]);
    }

    fn len(&self) -> usize {
        self.items()
    }

    fn bytes(&self) -> u64 {
        Buckets::bytes(self)
    }
}

/// What a run found.
#[derive(Clone, Copy)]
struct Found {
    lines: Lines,
    ns: f64,
    bytes_per_item: f64,
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<usize>().ok());
    let (keys, rounds) = (numbers.next().unwrap_or(1_500_000), numbers.next().unwrap_or(3));
    pin(numbers.next().unwrap_or(1));
    println!(
        "{keys} keys, items of {ITEM_BYTES} bytes, Zipf {ZIPF_EXPONENT}, {REQUESTS} requests, {rounds} rounds; load \
         average {}",
        std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim()
    );
    println!(
        "lines for each request, as published / where only the first line of another key's item is read; ns\n"
    );
    println!(
        "{:<34}{:>21}{:>21}{:>21}{:>21}{:>9}{:>7}",
        "SET:GET", "0:100", "10:90", "50:50", "100:0", "B/item", "of all"
    );
    let mixes = MIXES.map(|sets| draw(keys, sets));
    let mut items = Items::new(keys);
    for load in LOADS {
        let mut row = |name: &str, measure: &mut dyn FnMut(&mut Items, usize, &[u32]) -> Found| {
            print!("{:<34}", format!("{name}, {load}"));
            let mut bytes_per_item = Vec::new();
            for (requests, sets) in mixes.iter().zip(MIXES) {
                let stored = if sets == 0 { keys } else { 0 };
                let found: Vec<Found> =
                    (0..rounds.max(1)).map(|_| measure(&mut items, stored, requests)).collect();
                assert!(found.iter().all(|round| round.lines == found[0].lines), "counts do not vary");
                let mut ns: Vec<f64> = found.iter().map(|round| round.ns).collect();
                ns.sort_unstable_by(f64::total_cmp);
                let each = |lines: u64| lines as f64 / REQUESTS as f64;
                let lines = found[0].lines;
                print!(
                    "{:>7.2} /{:>5.2}{:>7.0}",
                    each(lines.as_published()),
                    each(lines.as_read()),
                    ns[ns.len() / 2]
                );
                bytes_per_item.push(found[0].bytes_per_item);
            }
            // All keys are there in the first mix, those that were drawn in the last. Tables grow by doubling, so both
            // depend on when they last did.
            println!("{:>9.1}{:>7.1}", bytes_per_item[MIXES.len() - 1], bytes_per_item[0]);
        };
        row("chained items", &mut |items, stored, requests| {
            run(&mut Chained::new(load), items, stored, requests)
        });
        for (name, overflow, slots, tags) in BUCKETS {
            let shape = Shape { overflow, slots, tags, load };
            row(name, &mut |items, stored, requests| run(&mut Buckets::new(shape), items, stored, requests));
        }
    }
}

/// Requests: the number of a key, twice, and one more for a SET.
fn draw(keys: usize, sets: u64) -> Vec<u32> {
    let (law, mut random) = (Zipf::new(keys as u64, ZIPF_EXPONENT), 1u64);
    let mut next = || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        random >> 11
    };
    let mut request = || {
        let key = law.item(law.rank(|| next() as f64 / (1u64 << 53) as f64)) as u32;
        2 * key + u32::from(next() % 100 < sets)
    };
    (0..REQUESTS).map(|_| request()).collect()
}

/// Does all requests. The keys below `stored` are there before.
fn run(structure: &mut impl Structure, items: &mut Items, stored: usize, requests: &[u32]) -> Found {
    let hasher = KeyHasher::with_seed(5);
    let hash = |key: u32| hasher.hash(&key.to_le_bytes()).0;
    items.len = 0;
    for key in 0..stored as u32 {
        let at = items.add(key, hash(key));
        structure.insert(items, at, hash(key));
    }
    let (mut lines, mut sum) = (Lines::default(), 0u64);
    let began = cpu_ns();
    for request in requests {
        let (key, is_set) = (request >> 1, request & 1 == 1);
        let hash = hash(key);
        match (structure.look_up(items, key, hash, &mut lines), is_set) {
            (Some(at), false) => sum = sum.wrapping_add(items.read(at)),
            (Some(at), true) => items.write(at),
            (None, true) => {
                let at = items.add(key, hash);
                structure.insert(items, at, hash);
            }
            (None, false) => continue,
        }
        lines.items += 1;
    }
    let ns = (cpu_ns() - began) / requests.len() as f64;
    black_box(sum);
    Found { lines, ns, bytes_per_item: structure.bytes() as f64 / structure.len() as f64 }
}

fn cpu_ns() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    spent.tv_sec as f64 * 1e9 + spent.tv_nsec as f64
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    if rustix::thread::sched_setaffinity(None, &set).is_err() {
        eprintln!("could not bind the thread to processor {core}");
    }
}
