//! What has room on the device stays there, whatever is overwritten.

use super::Bench;
use crate::space::Watermarks;
use crate::{FlashStats, Put};
use std::collections::HashMap;

const ZONES: u32 = 130;
const ZONE_PAGES: u64 = 64;
/// How often an item is stored again, on average.
const ROUNDS: u64 = 5;
const STORES_PER_TURN: u64 = 64;

/// Stores items that fill `percent` of the device, and then as many at random, several times over. The log is merged
/// when it has `log_percent` of the zones. The tier has its turn after each few stores: threads of its own would come
/// late on a busy machine. At most `lost_max` of the items may be lost, and `alwa_max` bytes written for each byte that
/// was stored.
fn overwritten(
    percent: u64,
    value_bytes: usize,
    log_percent: u8,
    lost_max: f64,
    alwa_max: f64,
) -> FlashStats {
    let mut bench = Bench::new(ZONES, ZONE_PAGES, |options| {
        options.generations = true;
        (options.log_percent, options.fill_percent, options.space) =
            (log_percent, 85, Watermarks::by_rates());
        options.memory_bytes = 8 << 20;
    });
    let items = (ZONES as u64 - 2) * ZONE_PAGES * 4096 * percent / 100 / (value_bytes as u64 + 20);
    let mut newest = HashMap::new();
    let mut random = 1u64;
    for n in 0..items * (1 + ROUNDS) {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let key = if n < items { n } else { (random >> 33) % items };
        let mut value = n.to_le_bytes().to_vec();
        value.resize(value_bytes, 7);
        while bench.put(format!("key {key}").as_bytes(), &value, 0) == Put::Shed {
            bench.flash.tend();
        }
        if n % STORES_PER_TURN == 0 {
            bench.flash.tend();
        }
        newest.insert(key, value);
    }
    let mut lost = 0;
    for (key, value) in &newest {
        let found = bench.value(format!("key {key}").as_bytes());
        lost += u64::from(found.is_none());
        assert!(found.is_none_or(|found| found == *value), "an old version of key {key}");
    }
    let stats = bench.flash.stats();
    bench.flash.close().expect("it is closed in order");
    let lost = lost as f64 / items as f64;
    let alwa = stats.appended_bytes as f64 / stats.admitted_bytes as f64;
    assert!(lost < lost_max && alwa < alwa_max, "{percent} %: {lost} lost, {alwa} written");
    stats
}

#[test]
fn what_takes_a_part_of_the_device_stays() {
    for (percent, lost_max, alwa_max) in
        [(25, 0.005, 1.5), (50, 0.005, 1.6), (70, 0.01, 2.8), (80, 0.01, 5.0)]
    {
        let stats = overwritten(percent, 960, 100, lost_max, alwa_max);
        assert_eq!(stats.drops_of_all, 0);
    }
}

#[test]
fn a_restart_knows_what_is_garbage() {
    let mut bench = Bench::new(ZONES, ZONE_PAGES, |options| {
        options.generations = false;
        (options.fill_percent, options.memory_bytes) = (85, 8 << 20);
    });
    // Items of the log and extents. A half of them is replaced, too little of each zone for a reclaim without need.
    for round in 0..2u8 {
        for key in (0..6000u32).step_by(1 + usize::from(round)) {
            let value = vec![round; if key % 8 == 0 { 6000 } else { 900 }];
            while bench.put(format!("key {key}").as_bytes(), &value, 0) == Put::Shed {
                bench.flash.tend();
            }
        }
        bench.settle();
    }
    let before = bench.flash.stats();
    assert!(before.dead_bytes > 2 << 20, "{} dead", before.dead_bytes);
    bench.restart();
    let after = bench.flash.stats();
    let ratio = after.dead_bytes as f64 / before.dead_bytes as f64;
    assert!((0.85..1.15).contains(&ratio), "{} dead before, {} after", before.dead_bytes, after.dead_bytes);
}

#[test]
fn what_is_merged_into_generations_stays() {
    for (percent, lost_max, alwa_max) in [(25, 0.02, 3.0), (50, 0.02, 9.0)] {
        let stats = overwritten(percent, 100, 8, lost_max, alwa_max);
        assert!(stats.zones_collected > 50 && stats.drops_of_all == 0, "{stats:?}");
    }
}
