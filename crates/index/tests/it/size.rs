//! Bytes that an item takes in the index, which `docs/internals/numbers.md` promises.
#![cfg(not(any(loom, miri)))]

use larder_index::{HoldsKey, Index, IndexOptions};
use larder_item::{KeyHash, KeyHasher, Location};

/// Record n has the key n.
struct Numbers(KeyHasher);

impl HoldsKey for Numbers {
    fn holds(&self, at: Location, key: &[u8]) -> bool {
        at.bits().to_le_bytes() == key
    }

    fn hash_of(&self, at: Location) -> KeyHash {
        self.0.hash(&at.bits().to_le_bytes())
    }

    fn prefetch(&self, _at: Location) {}
}

/// Bytes per item at every sixteenth of a doubling around a million items.
fn bytes_per_item(fill_target: u32) -> Vec<f64> {
    let options = IndexOptions {
        buckets_log2: 0,
        buckets_log2_max: 20,
        fill_target,
        huge: false,
        marks: true,
        location_bits: 32,
    };
    let (index, owner) = (Index::new(options).unwrap(), Numbers(KeyHasher::with_seed(1)));
    let (mut costs, mut victims) = (Vec::new(), 0);
    for n in 0..1_200_000u64 {
        let mut guard = index.lock(owner.hash_of(Location::from_bits(n)));
        while let Err(full) = guard.insert(Location::from_bits(n), 0) {
            victims += 1;
            guard.remove(&full.victim);
        }
        drop(guard);
        while index.needs_growth() {
            index.grow(&owner, 4);
        }
        let doubling = 1u64 << n.max(1).ilog2();
        if n > 300_000 && n % (doubling / 16) == 0 {
            println!(
                "fill {fill_target}: {n} items, {} buckets, {:.2} B per item",
                index.buckets(),
                index.bytes() as f64 / n as f64
            );
            costs.push(index.bytes() as f64 / n as f64);
        }
    }
    println!("fill {fill_target}: {victims} entries found their bucket full");
    assert!(victims <= [0, 0, 0, 0, 0, 0, 0, 10, 1000][fill_target as usize]);
    costs
}

#[test]
fn an_item_costs_its_share_of_a_line() {
    for (fill, least, most) in [(4, 15.0, 18.0), (6, 11.0, 14.2), (7, 11.0, 13.3), (8, 10.0, 13.0)] {
        let costs = bytes_per_item(fill);
        let mean = costs.iter().sum::<f64>() / costs.len() as f64;
        println!("fill {fill}: {mean:.2} B per item on average");
        assert!(costs.iter().all(|cost| (least..most).contains(cost)), "fill {fill}: {costs:?}");
    }
}

/// A pool keeps its size while items come and go and their number stays the same.
#[test]
fn items_that_come_and_go_cost_no_more_than_those_that_stay() {
    const TURNOVERS: u64 = 60;
    for n in [34_000u64, 50_000, 62_000] {
        let options = IndexOptions {
            buckets_log2: 0,
            buckets_log2_max: 16,
            fill_target: 6,
            huge: false,
            marks: true,
            location_bits: 32,
        };
        let (index, owner) = (Index::new(options).unwrap(), Numbers(KeyHasher::with_seed(1)));
        let at = Location::from_bits;
        let mut there: Vec<u64> = Vec::new();
        let (mut settled, mut random) = (0, 1u64);
        for item in 0..n * (TURNOVERS + 1) {
            if item >= n {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let gone = there.swap_remove((random >> 33) as usize % there.len());
                let mut guard = index.lock(owner.hash_of(at(gone)));
                let found = guard.find(&gone.to_le_bytes(), &owner).expect("it was put there");
                guard.remove(&found);
            }
            let mut guard = index.lock(owner.hash_of(at(item)));
            guard.insert(at(item), 0).unwrap_or_else(|_| panic!("no room for {item}"));
            drop(guard);
            there.push(item);
            while index.needs_growth() {
                index.grow(&owner, 4);
            }
            if item == 5 * n {
                settled = index.bytes();
            }
        }
        println!("{n} items: {settled} bytes after 5 turnovers, {} after {TURNOVERS}", index.bytes());
        assert!(index.bytes() <= settled + settled / 20, "{n} items: {settled}, then {}", index.bytes());
    }
}
