//! What an item costs in the index, in bytes: the promise of `docs/numbers.md`.
#![cfg(not(any(loom, miri)))]

use larder_index::{HoldsKey, Index, IndexOptions};
use larder_item::{KeyHash, KeyHasher, Location};

/// Record n is the key n.
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
    let options =
        IndexOptions { buckets_log2: 0, buckets_log2_max: 20, fill_target, huge: false, marks: true };
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
            let expected = index.bytes_for_buckets(index.buckets());
            println!(
                "fill {fill_target}: {n} items, {} buckets, {:.2} B per item, {:.2} foreseen",
                index.buckets(),
                index.bytes() as f64 / n as f64,
                expected as f64 / n as f64
            );
            assert!(index.bytes() <= expected, "{} > {expected}", index.bytes());
            assert!(expected <= index.bytes() + index.bytes() / 2);
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
