//! The cost of the index structures of the flash tier: of a lookup in each, and of building them.
//!
//! `cargo bench -p larder-flash --bench structures`. Each row has the fastest of seven runs and their median; other work on
//! the machine makes a run slower, never faster. Sizes are those of a segment of 64 MiB with items of 100 bytes (600,000
//! items), and of a log of 16 M entries. *hit* stands for hashes that were inserted, *miss* for others. Each lookup takes
//! another hash, in no order, so tables that are larger than the CPU's caches are read from memory.

use larder_flash::structures::{
    Candidates, Extent, ExtentTable, FenceBuilder, Filter, HitBits, IdSet, LogTable, generations,
};
use std::hint::black_box;
use std::time::Instant;

const LOOKUPS: u64 = 1_000_000;
const RUNS: usize = 7;
/// Items of 100 bytes in a segment of 64 MiB.
const SEGMENT_ITEMS: u64 = 600_000;

/// The hash of the `n`th item.
fn hash(n: u64) -> u64 {
    let x = (n + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 29)
}

/// Prints how long one of the `of` parts of the work takes, ns.
fn cost(name: &str, of: u64, mut work: impl FnMut()) {
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_nanos() as f64 / of as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("| {name} | {:.1} | {:.1} |", runs[0], runs[RUNS / 2]);
}

/// Prints the cost of a lookup: a million hits of items below `items` in no order, and a million misses.
fn lookups(name: &str, items: u64, mut look: impl FnMut(u64)) {
    let mut state = items;
    let mut next = move || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        hash(((state >> 32) * items) >> 32)
    };
    let hashes: Vec<u64> = (0..LOOKUPS).map(|_| next()).collect();
    cost(&format!("{name}, hit"), LOOKUPS, || hashes.iter().for_each(|hash| look(*hash)));
    cost(&format!("{name}, miss"), LOOKUPS, || hashes.iter().for_each(|hash| look(!*hash)));
}

fn filters() {
    let hashes: Vec<u64> = (0..SEGMENT_ITEMS).map(hash).collect();
    cost("filter, build, a key", SEGMENT_ITEMS, || {
        black_box(Filter::build(&hashes));
    });
    let filter = Filter::build(&hashes);
    lookups("filter of 600 k", SEGMENT_ITEMS, |hash| {
        black_box(filter.may_contain(hash));
    });
}

fn fences() {
    let mut hashes: Vec<u64> = (0..SEGMENT_ITEMS).map(hash).collect();
    hashes.sort_unstable();
    let mut builder = FenceBuilder::new();
    hashes.iter().enumerate().for_each(|(n, hash)| builder.push((n * 108 / 4080) as u32, *hash));
    let fences = builder.finish((SEGMENT_ITEMS * 108).div_ceil(4080) as u32);
    lookups("fences of 16 k pages", SEGMENT_ITEMS, |hash| {
        black_box(fences.page(hash));
    });
}

fn log_tables() {
    for (name, id_max) in [("log table, narrow", 255), ("log table, middle", 511), ("log table, wide", 2047)]
    {
        let table = LogTable::new(32 << 20, id_max);
        let items = table.capacity();
        let start = Instant::now();
        (0..items)
            .for_each(|n| table.insert(hash(n), 1 + (n * 200 / items) as u16).expect("below its capacity"));
        let each = start.elapsed().as_nanos() as f64 / items as f64;
        println!("| {name}, insert up to {} M of 95 % | {each:.1} | |", items >> 20);
        let mut out = Candidates::new();
        lookups(name, items, |hash| {
            table.candidates(hash, &mut out);
            black_box(out.len());
        });
        let mut dead = IdSet::new();
        dead.insert(7);
        cost(&format!("{name}, sweep, an entry"), items, || {
            black_box(table.sweep(&dead, &mut || ()));
        });
    }
    let table = ExtentTable::new(32 << 20);
    let items = table.capacity();
    (0..items).for_each(|n| {
        table.insert(hash(n), Extent { address: n + 1, pages: 1 }).expect("below its capacity")
    });
    lookups("extent table", items, |hash| {
        black_box(table.candidates(hash).len());
    });
}

fn main() {
    println!("| | fastest, ns | median, ns |\n|---|---|---|");
    filters();
    fences();
    log_tables();
    let bits = HitBits::new(SEGMENT_ITEMS);
    lookups("hit bits, mark", SEGMENT_ITEMS, |hash| bits.mark(hash));
    for chunks in [1, 16] {
        let items = SEGMENT_ITEMS * chunks / 4;
        let (search, items) = (generations(9, chunks, SEGMENT_ITEMS / 4), items * 9);
        lookups(&format!("search in 9 generations of {chunks} chunks"), items, |hash| {
            black_box(search(hash));
        });
    }
}
