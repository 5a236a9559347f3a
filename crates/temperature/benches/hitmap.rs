//! What a mark, a zone and an aging cost, for maps of 1 M and 16 M items: the median of some runs.
//!
//! `cargo bench -p larder-temperature --bench hitmap`. The maps are as full as they get: each item was marked once on
//! average since the last aging. *random*: every item as likely as any other; *hot*: a thousand items that stand in the
//! top level.

use larder_item::KeyHash;
use larder_temperature::{Digest, Ghost, Hitmap, LineHitmap, PublishedHitmap, PublishedOptions, Reference};
use std::hint::black_box;
use std::time::Instant;

const BATCH: usize = 10_000;
const BATCHES: usize = 100;
const RUNS: usize = 7;
const HOT: u64 = 1000;

/// Digests drawn from items 0 to `items`, without order.
struct Draw {
    items: u64,
    state: u64,
}

impl Draw {
    fn new(items: u64) -> Draw {
        Draw { items, state: items }
    }

    fn hash(item: u64) -> KeyHash {
        let x = (item + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB);
        KeyHash(x ^ (x >> 29))
    }

    /// The hash of the next item.
    fn next(&mut self) -> KeyHash {
        self.state = self.state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        Draw::hash(((self.state >> 32) * self.items) >> 32)
    }

    fn references(&mut self, count: usize) -> Vec<Reference> {
        (0..count).map(|_| Reference::read(Digest::of(self.next()))).collect()
    }
}

/// The median of the nanoseconds that `work` takes, divided by `of`; `prepare` is not counted.
fn median<P>(of: usize, mut prepare: impl FnMut() -> P, mut work: impl FnMut(P)) -> f64 {
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let prepared = prepare();
            let start = Instant::now();
            work(prepared);
            start.elapsed().as_nanos() as f64 / of as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    runs[RUNS / 2]
}

fn fill(map: &mut dyn Hitmap, items: u64) {
    let mut draw = Draw::new(items);
    for _ in 0..items / BATCH as u64 {
        map.mark(&draw.references(BATCH));
    }
}

fn measure(name: &str, items: u64, map: &mut dyn Hitmap) {
    fill(map, items);
    let mut line = format!("| {name} | {} M | {} |", items >> 20, map.bytes_for(0) >> 20);
    for (of, seed) in [(items, 1), (HOT, 2)] {
        let mut draw = Draw { items: of, state: seed };
        if of == HOT {
            for _ in 0..10 {
                map.mark(&draw.references(BATCH));
            }
        }
        let mark = median(
            BATCH * BATCHES,
            || draw.references(BATCH * BATCHES),
            |references| references.chunks(BATCH).for_each(|batch| map.mark(batch)),
        );
        let mut zones = Vec::new();
        let zone = median(
            BATCH * BATCHES,
            || draw.references(BATCH * BATCHES).iter().map(|r| r.digest()).collect::<Vec<Digest>>(),
            |digests| {
                for batch in digests.chunks(BATCH) {
                    zones.clear();
                    map.zones(batch, &mut zones);
                    black_box(&zones);
                }
            },
        );
        line += &format!(" {mark:.1} | {zone:.1} |");
    }
    let age = median(
        1,
        || (),
        |()| {
            map.age();
            while map.age_some(1 << 20) {}
        },
    );
    println!("{line} {:.2} | {:.1} |", age / 1e6, map.bytes_for(0) as f64 / age);
}

fn measure_ghost(entries: u64) {
    let mut ghost = Ghost::for_entries(entries);
    let mut draw = Draw::new(u64::from(u32::MAX));
    (0..2 * entries).for_each(|_| ghost.push(draw.next()));
    const AHEAD: usize = 16;
    let mut cost = |work: fn(&mut Ghost, KeyHash) -> bool, ahead: usize| {
        median(
            BATCH * BATCHES,
            || (0..BATCH * BATCHES + ahead).map(|_| draw.next()).collect::<Vec<_>>(),
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
    let take = |ghost: &mut Ghost, key| ghost.take(key);
    let figures = [cost(push, 0), cost(push, AHEAD), cost(take, 0), cost(take, AHEAD)];
    let figures = figures.map(|ns| format!("{ns:.1}")).join(" | ");
    println!("| {} M | {} | {figures} |", entries >> 20, ghost.bytes() >> 20);
}

fn main() {
    println!(
        "| map | items | MiB | mark random, ns | zone random | mark hot | zone hot | aging, ms | bytes per ns |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
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
