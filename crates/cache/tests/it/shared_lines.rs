//! Which cache lines a request writes that other threads use too, counted by valgrind.
//!
//! A line that several cores write goes from one to the other, and that bounds what many cores can do together. The
//! count needs no hardware: valgrind's `lackey` names each store of a program. Two workers do the same operation with
//! other keys. A line counts as shared if it belongs to the index or to the memory of items, or if both workers write
//! it. What is left is a worker's own: its stack, its counters, its page of references.
//!
//! `cargo test -p larder-cache --test it shared_lines -- --nocapture` prints the table.

use larder_cache::{Cache, CacheOptions, Delete, Expiry, PagesWanted, Store, Value, Worker};
use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Release};

/// Set in the process that valgrind runs.
const CHILD: &str = "LARDER_SHARED_LINES";
const LINE_BYTES: u64 = 64;
/// How often each worker does each operation.
const TIMES: u64 = 16;
const FILL: u64 = 400;
/// Rounds of the keeper that are counted.
const PASSES: usize = 3;
/// Every store to this says that another operation begins or ends.
static MARK: AtomicU64 = AtomicU64::new(0);

type Action = fn(&mut Worker, u64);

/// What is counted. An operation is done with a key that is prepared so: read three times, stored only, or neither.
const OPERATIONS: [(&str, Prepared, Action); 8] = [
    ("GET of a warm key", Prepared::Read, read),
    ("GET, the first of an item", Prepared::Stored, read),
    ("GET of a key that is not there", Prepared::Absent, |worker, n| {
        assert!(worker.get(worker.cache().hash(&key(n)), &key(n)).is_none());
    }),
    ("SET of a new key", Prepared::Absent, store),
    ("SET over an item", Prepared::Stored, store),
    ("touch", Prepared::Stored, |worker, n| {
        let _ = worker.touch(worker.cache().hash(&key(n)), &key(n), Expiry::NEVER);
    }),
    ("DELETE", Prepared::Stored, |worker, n| {
        let key = key(n);
        let _ = worker.delete(&Delete::of(&key, worker.cache().hash(&key)));
    }),
    ("the end of a turn", Prepared::Absent, |worker, _| worker.quiesce()),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Prepared {
    Read,
    Stored,
    Absent,
}

/// A key, without an allocation: the allocator's lines are those of the thread, which does the work of both workers.
fn key(number: u64) -> [u8; 10] {
    let mut key = *b"key 000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn read(worker: &mut Worker, number: u64) {
    let key = key(number);
    let hit = worker.get(worker.cache().hash(&key), &key).expect("it was stored");
    worker.note_fetch(&hit);
    assert!(matches!(hit.value(), Value::Whole(_)));
}

fn store(worker: &mut Worker, number: u64) {
    store_value(worker, number, &[b'v'; 300]);
}

fn store_value(worker: &mut Worker, number: u64, value: &[u8]) {
    let key = key(number);
    let _ = worker.store(&Store::set(&key, worker.cache().hash(&key), value));
}

fn mark(what: u64) {
    MARK.store(what, Release);
}

/// Does what is counted. Runs under valgrind only.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let options = CacheOptions {
        limit_bytes: 8 << 20,
        workers: 2,
        pages: PagesWanted::Small,
        seed: Some(7),
        ..CacheOptions::default()
    };
    let cache = Cache::new(options).expect("a small cache can be made");
    let mut workers = [cache.worker(), cache.worker()];
    for number in 0..FILL {
        let worker = &mut workers[number as usize % 2];
        store(worker, 900_000 + number);
        worker.quiesce();
    }
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux says what is mapped");
    println!("mark {}", std::ptr::from_ref(&MARK).addr());
    println!("stack {}", std::ptr::from_ref(&workers).addr());
    println!("items {}", items_at(&workers[0]));
    maps.lines().filter_map(|line| line.split(' ').next()).for_each(|range| println!("map {range}"));

    for (operation, (_, prepared, action)) in (0..).zip(OPERATIONS) {
        for worker in 0..2u64 {
            let numbers = (0..TIMES).map(|n| operation * 10_000 + worker * 1000 + n);
            let it = &mut workers[worker as usize];
            for number in numbers.clone().filter(|_| prepared != Prepared::Absent) {
                store(it, number);
                (0..3).filter(|_| prepared == Prepared::Read).for_each(|_| read(it, number));
            }
            it.quiesce();
            for number in numbers {
                mark(1 + 2 * operation + worker);
                action(it, number);
                mark(0);
            }
            it.quiesce();
        }
    }
    let [worker, other] = &mut workers;
    other.offline();
    println!("evicted {}", evict(&cache, worker));
}

/// Fills the cache, and lets the keeper evict in marked rounds. Returns how many items it evicted in these.
fn evict(cache: &Cache, worker: &mut Worker) -> u64 {
    let mut numbers = 200_000..;
    let mut store_some = |worker: &mut Worker, items: usize| {
        for number in numbers.by_ref().take(items) {
            store_value(worker, number, &[b'v'; 4000]);
            worker.quiesce();
        }
    };
    store_some(worker, 2_100);
    let mut evicted = 0;
    for _ in 0..PASSES {
        store_some(worker, 60);
        worker.offline();
        let before = cache.totals().evictions;
        mark(1);
        cache.tend();
        mark(0);
        evicted += cache.totals().evictions - before;
        worker.online();
    }
    evicted
}

/// An address in the memory of items.
fn items_at(worker: &Worker) -> usize {
    let key = key(900_000);
    match worker.get(worker.cache().hash(&key), &key).map(|hit| hit.value()) {
        Some(Value::Whole(value)) => value.as_ptr().addr(),
        _ => panic!("the first item is there"),
    }
}

/// What the child said of its memory.
#[derive(Default)]
struct Places {
    mark: u64,
    stack: u64,
    items: u64,
    evicted: u64,
    maps: Vec<Range<u64>>,
}

impl Places {
    fn read(said: &str) -> Places {
        let mut places = Places::default();
        for line in said.lines() {
            match *line.split(' ').collect::<Vec<_>>() {
                [.., "mark", at] => places.mark = at.parse().expect("an address"),
                ["stack", at] => places.stack = at.parse().expect("an address"),
                ["evicted", items] => places.evicted = items.parse().expect("a number"),
                ["items", at] => places.items = at.parse().expect("an address"),
                ["map", range] => {
                    let ends = range.split_once('-').expect("two addresses");
                    let [begin, end] =
                        [ends.0, ends.1].map(|at| u64::from_str_radix(at, 16).expect("an address"));
                    places.maps.push(begin..end);
                }
                _ => {}
            }
        }
        places
    }

    /// The mapping in which the address lies.
    fn map_of(&self, at: u64) -> Option<&Range<u64>> {
        self.maps.iter().find(|map| map.contains(&at))
    }
}

/// The stores of one operation of one worker: lines by the times it was done.
#[derive(Default)]
struct Written {
    lines: HashMap<u64, BTreeSet<u64>>,
}

/// Reads what lackey says: the addresses of all stores, in order.
fn stores(trace: impl Read) -> Vec<u64> {
    let mut stores = Vec::new();
    let mut reader = BufReader::with_capacity(1 << 20, trace);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).expect("valgrind's output can be read") > 0 {
        if let [b' ', b'S' | b'M', b' ', address @ ..] = line.as_slice() {
            let address =
                address.split(|byte| *byte == b',').next().and_then(|hex| std::str::from_utf8(hex).ok());
            stores.extend(address.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()));
        }
        line.clear();
    }
    stores
}

/// Lines that an operation writes, each time it is done.
#[derive(Clone, Copy, Debug)]
struct Shared {
    index: f64,
    items: f64,
    /// Written by both workers.
    both: f64,
    own: f64,
}

fn count() -> Vec<Shared> {
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=2"])
        .arg(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", "shared_lines::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, "yes")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("valgrind is installed");
    let trace = child.stderr.take().expect("a pipe");
    let reader = std::thread::spawn(move || stores(trace));
    let mut said = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
    let stores = reader.join().expect("the trace is read");
    assert!(child.wait().expect("it ends").success(), "{said}");
    let places = Places::read(&said);
    let (stack, items) = (places.map_of(places.stack), places.map_of(places.items));
    let (stack, items) = (stack.expect("a stack").clone(), items.expect("items").clone());

    // Which operation of which worker wrote a line how often.
    let (counted, pass) = (OPERATIONS.len() * 2, OPERATIONS.len() * 2);
    let mut written: Vec<Written> = (0..=counted).map(|_| Written::default()).collect();
    let (mut current, mut marks) = (None, 0);
    for at in stores {
        if at == places.mark {
            let time = marks / 2;
            current = (marks % 2 == 0).then_some(((time / TIMES as usize).min(pass), time as u64));
            marks += 1;
        } else if let Some((operation, time)) = current
            && !stack.contains(&at)
        {
            written[operation].lines.entry(at / LINE_BYTES).or_default().insert(time);
        }
    }
    assert_eq!(marks, 2 * (counted * TIMES as usize + PASSES));
    // The index is what the first GET of an item writes outside of items and small mappings: the item's warmth.
    let is_big = |map: &Range<u64>| map.end - map.start >= 64 << 10;
    let warmth = written[2].lines.keys().map(|line| line * LINE_BYTES).find(|at| {
        !items.contains(at)
            && !written[3].lines.contains_key(&(at / LINE_BYTES))
            && places.map_of(*at).is_some_and(is_big)
    });
    let index = places.map_of(warmth.expect("a first GET warms an item")).expect("it is mapped").clone();
    let sum = |of: &[Written], times: u64| {
        let pair = of;
        let mut shared = Shared { index: 0.0, items: 0.0, both: 0.0, own: 0.0 };
        for (line, done) in pair.iter().flat_map(|of| &of.lines) {
            let at = line * LINE_BYTES;
            let sum = match () {
                () if index.contains(&at) => &mut shared.index,
                () if items.contains(&at) => &mut shared.items,
                () if pair.iter().all(|of| of.lines.contains_key(line)) => &mut shared.both,
                () => &mut shared.own,
            };
            *sum += done.len() as f64 / times as f64;
        }
        shared
    };
    let mut sums: Vec<_> = written[..counted].chunks(2).map(|pair| sum(pair, 2 * TIMES)).collect();
    sums.push(sum(&written[pass..], places.evicted));
    sums
}

#[test]
fn a_get_of_a_warm_key_writes_no_line_that_others_use() {
    let counted = count();
    println!("lines written each time        index  items  both workers  own");
    for (name, of) in OPERATIONS.iter().map(|of| of.0).chain(["an evicted item, by the keeper"]).zip(&counted)
    {
        println!("{name:<31}{:5.2}  {:5.2}  {:12.2}  {:3.1}", of.index, of.items, of.both, of.own);
    }
    let shared =
        |operation: usize| counted[operation].index + counted[operation].items + counted[operation].both;
    assert_eq!(shared(0), 0.0, "a warm key: {:?}", counted[0]);
    assert_eq!(shared(2), 0.0, "a miss: {:?}", counted[2]);
    assert!(shared(1) <= 2.0, "the warmth and the state of the record: {:?}", counted[1]);
    assert!(counted[3].both < 1.5, "a new key: {:?}", counted[3]);
}
