//! What has room on the device stays there, whatever is overwritten.

use super::Bench;
use crate::{OpsPolicy, Put};
use std::collections::HashMap;
use std::time::Duration;

const ZONES: u32 = 130;
const ZONE_PAGES: u64 = 64;
const VALUE_BYTES: usize = 960;
/// How often an item is stored again, on average.
const ROUNDS: u64 = 5;

/// Stores items that fill `percent` of the device, and then as many at random, several times over. The log is merged
/// when it has `log_percent` of the zones. Returns the share of the items that is lost, and the bytes written for
/// each byte that was stored.
fn overwritten(percent: u64, value_bytes: usize, log_percent: u8) -> (f64, f64) {
    let mut bench = Bench::new(ZONES, ZONE_PAGES, |options| {
        options.generations = true;
        (options.log_percent, options.fill_percent, options.ops) = (log_percent, 85, OpsPolicy::Queuing);
        options.memory_bytes = 8 << 20;
    });
    bench.flash.start().expect("threads can be started");
    let items = (ZONES as u64 - 2) * ZONE_PAGES * 4096 * percent / 100 / (value_bytes as u64 + 20);
    let mut newest = HashMap::new();
    let mut random = 1u64;
    for n in 0..items * (1 + ROUNDS) {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let key = if n < items { n } else { (random >> 33) % items };
        let mut value = n.to_le_bytes().to_vec();
        value.resize(value_bytes, 7);
        while bench.put(format!("key {key}").as_bytes(), &value, 0) == Put::Shed {
            std::thread::sleep(Duration::from_micros(100));
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
    (lost as f64 / items as f64, stats.appended_bytes as f64 / stats.admitted_bytes as f64)
}

#[test]
fn a_quarter_and_a_half_of_the_device_stay() {
    for (percent, alwa_max) in [(25, 1.5), (50, 1.6)] {
        let (lost, alwa) = overwritten(percent, VALUE_BYTES, 100);
        println!("{percent} %: {lost} lost, {alwa} written");
        assert!(lost < 0.005 && alwa < alwa_max, "{percent} %: {lost} lost, {alwa} written");
    }
}

#[test]
fn most_of_the_device_stays() {
    for (percent, alwa_max) in [(70, 2.5), (80, 4.5)] {
        let (lost, alwa) = overwritten(percent, VALUE_BYTES, 100);
        println!("{percent} %: {lost} lost, {alwa} written");
        assert!(lost < 0.01 && alwa < alwa_max, "{percent} %: {lost} lost, {alwa} written");
    }
}

#[test]
fn what_is_merged_into_generations_stays() {
    for (percent, alwa_max) in [(25, 3.0), (50, 9.0)] {
        let (lost, alwa) = overwritten(percent, 100, 8);
        println!("{percent} %: {lost} lost, {alwa} written");
        // Some hundredths may be lost where the threads of the tier get no processor for a while.
        assert!(lost < 0.15 && alwa < alwa_max, "{percent} %: {lost} lost, {alwa} written");
    }
}
