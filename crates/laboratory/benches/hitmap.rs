//! The time of a mark, a zone and an aging, for maps of 1 M and 16 M items. The fastest of seven runs is shown, because
//! other work on the machine can only slow a run down, and the median.
//!
//! `cargo bench -p larder-laboratory --bench hitmap`. The maps are as full as they get in use: each item was marked
//! once on average since the last aging. *random*: all items are equally likely. *hot*: a thousand items in the top
//! level.

use larder_item::KeyHash;
use larder_temperature::{Digest, Ghost, Hitmap, LineHitmap, PublishedHitmap, PublishedOptions, Reference};
use std::hint::black_box;
use std::time::Instant;

const BATCH: usize = 10_000;
const BATCHES: usize = 100;
const RUNS: usize = 7;
const HOT: u64 = 1000;

/// Digests of random items from 0 to `items`.
struct RandomItems {
    items: u64,
    state: u64,
}

impl RandomItems {
    fn new(items: u64) -> RandomItems {
        RandomItems { items, state: items }
    }

    fn hash(item: u64) -> KeyHash {
        let x = (item + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB);
        KeyHash(x ^ (x >> 29))
    }

    /// The hash of the next item.
    fn next(&mut self) -> KeyHash {
        self.state = self.state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        RandomItems::hash(((self.state >> 32) * self.items) >> 32)
    }

    fn references(&mut self, count: usize) -> Vec<Reference> {
        (0..count).map(|_| Reference::read(Digest::of(self.next()))).collect()
    }
}

/// Nanoseconds.
struct Cost {
    fastest: f64,
    median: f64,
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} ({:.1})", self.fastest, self.median)
    }
}

/// The time of `work` divided by `of`. The time of `prepare` does not count.
fn cost<P>(of: f64, mut prepare: impl FnMut() -> P, mut work: impl FnMut(P)) -> Cost {
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let prepared = prepare();
            let start = Instant::now();
            work(prepared);
            start.elapsed().as_nanos() as f64 / of
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    Cost { fastest: runs[0], median: runs[RUNS / 2] }
}

fn fill(map: &mut dyn Hitmap, items: u64) {
    let mut random_items = RandomItems::new(items);
    for _ in 0..items / BATCH as u64 {
        map.mark(&random_items.references(BATCH));
    }
}

fn measure(name: &str, items: u64, map: &mut dyn Hitmap) {
    fill(map, items);
    let mut line = format!("| {name} | {} M | {} |", items >> 20, map.bytes_for(0) >> 20);
    for (of, seed) in [(items, 1), (HOT, 2)] {
        let mut random_items = RandomItems { items: of, state: seed };
        if of == HOT {
            for _ in 0..10 {
                map.mark(&random_items.references(BATCH));
            }
        }
        let mark = cost(
            (BATCH * BATCHES) as f64,
            || random_items.references(BATCH * BATCHES),
            |references| references.chunks(BATCH).for_each(|batch| map.mark(batch)),
        );
        let mut zones = Vec::new();
        let zone = cost(
            (BATCH * BATCHES) as f64,
            || random_items.references(BATCH * BATCHES).iter().map(|r| r.digest()).collect::<Vec<Digest>>(),
            |digests| {
                for batch in digests.chunks(BATCH) {
                    zones.clear();
                    map.zones(batch, &mut zones);
                    black_box(&zones);
                }
            },
        );
        line += &format!(" {mark} | {zone} |");
    }
    let age = cost(
        1e6,
        || (),
        |()| {
            map.age();
            while map.age_some(1 << 20) {}
        },
    );
    println!("{line} {age} |");
}

fn measure_ghost(entries: u64) {
    let mut ghost = Ghost::for_entries(entries);
    let mut random_items = RandomItems::new(u64::from(u32::MAX));
    (0..2 * entries).for_each(|_| ghost.push(random_items.next()));
    const AHEAD: usize = 16;
    let mut each = |work: fn(&mut Ghost, KeyHash) -> bool, ahead: usize| {
        cost(
            (BATCH * BATCHES) as f64,
            || (0..BATCH * BATCHES + ahead).map(|_| random_items.next()).collect::<Vec<_>>(),
            |keys| {
                for at in 0..BATCH * BATCHES {
                    if ahead > 0 {
                        ghost.prefetch(keys[at + ahead]);
                    }
                    black_box(work(&mut ghost, keys[at]));
                }
            },
        )
    };
    let push = |ghost: &mut Ghost, key| {
        ghost.push(key);
        true
    };
    let take = |ghost: &mut Ghost, key| ghost.take(key).is_some();
    let figures = [each(push, 0), each(push, AHEAD), each(take, 0), each(take, AHEAD)];
    let figures = figures.map(|cost| cost.to_string()).join(" | ");
    println!("| {} M | {} | {figures} |", entries >> 20, ghost.bytes() >> 20);
}

fn main() {
    println!("| map | items | MiB | mark random, ns | zone random | mark hot | zone hot | aging, ms |");
    println!("|---|---|---|---|---|---|---|---|");
    for items in [1 << 20, 16 << 20] {
        measure("line", items, &mut LineHitmap::for_items(items));
        let options = PublishedOptions::default();
        measure("published", items, &mut PublishedHitmap::for_items(items, options));
    }
    println!(
        "\n| ghost, entries | MiB | push, ns | push, fetched ahead | take of a stranger | fetched ahead |"
    );
    println!("|---|---|---|---|---|---|");
    for entries in [1 << 20, 16 << 20] {
        measure_ghost(entries);
    }
}
