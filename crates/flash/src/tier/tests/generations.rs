//! The log's way into generations, and what lookups cost there.

use super::{Bench, finish};
use crate::Put;
use larder_item::KeyHasher;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

/// Puts items of 100 bytes, tending now and then; says how many were stored.
fn fill(bench: &Bench, items: std::ops::Range<u32>) {
    for n in items {
        let key = format!("key {n:08}");
        while bench.put(key.as_bytes(), &[n as u8; 88], 0) == Put::Shed {
            bench.flash.tend();
        }
        if n % 500 == 0 {
            bench.flash.tend();
        }
    }
    bench.settle();
}

#[test]
fn items_are_found_in_generations_with_one_read() {
    let mut bench = Bench::new(72, 64, |options| {
        options.generations = true;
        options.memory_bytes = 8 << 20;
        options.segment_bytes = Some(32 * 4096);
    });
    let items = 100_000;
    fill(&bench, 0..items);
    let before = bench.flash.stats();
    assert!(before.merges > 1 && before.generation_items > items as u64 / 2, "{before:?}");
    assert_eq!((before.merges_given_up, before.is_on), (0, true));
    let mut lost = 0;
    for n in 0..items {
        let value = bench.value(format!("key {n:08}").as_bytes());
        lost += value.is_none() as u32;
        assert!(value.is_none_or(|value| value == [n as u8; 88]));
    }
    for n in 0..items {
        assert!(bench.value(format!("none {n:08}").as_bytes()).is_none());
    }
    let stats = bench.flash.stats();
    // Two false reads before the right one, once in some thousand.
    assert!(lost < items / 1000, "{lost} are lost: {stats:?}");
    assert!(stats.reads_per_hit() < 1.1, "{}", stats.reads_per_hit());
    assert!(stats.reads_per_miss() < 0.15, "{}", stats.reads_per_miss());
    bench.within_its_memory();
}

#[test]
fn with_far_too_little_memory_two_reads_are_enough() {
    let mut bench = Bench::new(258, 256, |options| {
        options.generations = true;
        options.memory_bytes = 4 << 20;
        options.segment_bytes = Some(32 * 4096);
    });
    let items = 1_900_000;
    fill(&bench, 0..items);
    let mut found = 0;
    for n in (0..items).step_by(7) {
        let value = bench.value(format!("key {n:08}").as_bytes());
        found += value.is_some() as u32;
        assert!(value.is_none_or(|value| value == [n as u8; 88]));
    }
    let stats = bench.flash.stats();
    println!("FOUND {found}");
    assert!(found > items / 7 / 2, "{found}: {stats:?}");
    assert!(stats.memory.filters < stats.generation_items / 4, "most have no filter: {stats:?}");
    // Two of generations, and now and then one of the log before.
    assert!(stats.reads_per_hit() <= 2.05, "{stats:?}");
    bench.within_its_memory();
}

#[test]
fn the_oldest_generation_goes_and_nothing_old_comes_back() {
    let mut bench = Bench::new(16, 64, |options| {
        options.generations = true;
        options.segment_bytes = Some(16 * 4096);
        options.fill_percent = 50;
    });
    for round in 0..6u32 {
        fill(&bench, round * 20_000..round * 20_000 + 20_000);
        for n in (0..round * 20_000).step_by(3) {
            bench.invalidate(format!("key {n:08}").as_bytes());
        }
    }
    bench.settle();
    let stats = bench.flash.stats();
    assert!(stats.quick_drops > 0 && stats.is_on, "{stats:?}");
    for n in (0..100_000).step_by(3) {
        assert!(bench.value(format!("key {n:08}").as_bytes()).is_none(), "{n}");
    }
    bench.within_its_memory();
}

#[test]
fn a_shutdown_keeps_generations_log_and_extents() {
    let device = std::sync::Arc::new(crate::test_devices::MemoryDevice::new(64, 64));
    let change = |options: &mut crate::FlashOptions| {
        options.generations = true;
        options.memory_bytes = 8 << 20;
        options.segment_bytes = Some(32 * 4096);
        options.format = false;
    };
    let mut bench = Bench::on(device.clone(), change);
    let items = 60_000;
    fill(&bench, 0..items);
    for n in 0..20 {
        assert_eq!(bench.put(format!("long {n}").as_bytes(), &vec![n as u8; 5000], 0), Put::Stored);
        bench.put(format!("long {n}").as_bytes(), &vec![n as u8 + 1; 5000], 0);
    }
    let found = |bench: &mut Bench| -> Vec<u32> {
        (0..items).filter(|n| bench.value(format!("key {n:08}").as_bytes()).is_some()).collect()
    };
    let before = found(&mut bench);
    assert!(before.len() > items as usize * 99 / 100, "{}", before.len());
    bench.flash.close().unwrap();
    drop(bench);
    let mut bench = Bench::on(device, change);
    while bench.flash.stats().is_recovering {
        bench.flash.tend();
    }
    // Two reads may not be enough for a few, and not for the same ones when the tables are filled in another order.
    let after: std::collections::HashSet<u32> = found(&mut bench).into_iter().collect();
    let lost = before.iter().filter(|n| !after.contains(n)).count();
    assert!(lost * 1000 <= before.len(), "{lost} of {} are lost", before.len());
    for n in 0..20u8 {
        assert_eq!(bench.value(format!("long {n}").as_bytes()).unwrap(), vec![n + 1; 5000]);
    }
    assert!(bench.flash.cas_floor() > 6000);
    bench.within_its_memory();
}

#[test]
fn whoever_looks_while_everything_is_dropped_sees_nothing_that_was_hidden() {
    let keys: Vec<String> = (0..30_000).step_by(60).map(|n| format!("key {n:08}")).collect();
    let hasher = KeyHasher::with_seed(42);
    for _ in 0..6 {
        let bench = Bench::new(24, 64, |options| {
            options.generations = true;
            options.segment_bytes = Some(16 * 4096);
            options.memory_bytes = 8 << 20;
        });
        fill(&bench, 0..30_000);
        assert!(bench.flash.stats().merges > 0);
        // In the log, while what they hide is in a generation.
        keys.iter().for_each(|key| bench.invalidate(key.as_bytes()));
        let (flash, dropped) = (&bench.flash, AtomicBool::new(false));
        let looks = [const { AtomicU32::new(0) }; 2];
        let look = |count: &AtomicU32| {
            let mut fetcher = flash.fetcher().unwrap();
            while !dropped.load(SeqCst) {
                count.fetch_add(1, SeqCst);
                for key in &keys {
                    let begun = fetcher.begin(1, hasher.hash(key.as_bytes()), key.as_bytes());
                    assert!(finish(&mut fetcher, begun).is_none(), "{key} was deleted");
                }
            }
        };
        std::thread::scope(|scope| {
            let lookers = looks.each_ref().map(|count| scope.spawn(|| look(count)));
            // Both begin another round over the keys, unless they have failed.
            let until_both_went_on = || {
                let before = looks.each_ref().map(|count| count.load(SeqCst));
                let went_on = |(count, before): (&AtomicU32, u32)| count.load(SeqCst) > before;
                while !looks.iter().zip(before).all(went_on) && !lookers.iter().any(|one| one.is_finished()) {
                    std::thread::yield_now();
                }
            };
            until_both_went_on();
            flash.components().log.drop_without_floor();
            until_both_went_on();
            dropped.store(true, SeqCst);
        });
    }
}

#[test]
fn a_tier_whose_log_is_full_is_closed_cleanly_all_the_same() {
    let device = std::sync::Arc::new(crate::test_devices::MemoryDevice::new(24, 64));
    let mut bench = Bench::on(device, |options| {
        options.generations = true;
        options.segment_bytes = Some(16 * 4096);
    });
    // Nothing is merged until the log takes no more.
    let mut items = 0..100_000;
    let stored = items.find(|n| {
        let key = format!("key {n:08}");
        let put = |bench: &Bench| bench.put(key.as_bytes(), &[1; 8], 0);
        put(&bench) == Put::Shed
            && !bench.flash.components().writer.write_sealed()
            && put(&bench) == Put::Shed
    });
    let stored = stored.expect("a log of 1.5 MiB is full some day");
    for n in 0..stored {
        bench.invalidate(format!("key {n:08}").as_bytes());
        if bench.flash.owes_invalidations() {
            break;
        }
    }
    assert!(bench.flash.owes_invalidations(), "{:?}", bench.flash.stats());
    assert!(bench.value(b"key 00000000").is_none());
    bench.flash.close().unwrap();
}

#[test]
fn a_log_that_nothing_has_room_to_merge_loses_its_oldest_and_goes_on() {
    let mut bench = Bench::new(24, 8, |options| {
        options.generations = true;
        options.segment_bytes = Some(8 * 4096);
        options.memory_bytes = 4 << 20;
    });
    let key = |n: u32| format!("key {n:08}").into_bytes();
    let mut items = 0..1000;
    items.find(|n| {
        bench.put(&key(*n), &[*n as u8; 1500], 0) == Put::Shed
            && !bench.flash.components().writer.write_sealed()
    });
    bench.flash.components().writer.write_sealed();
    // All other zones are taken, and no generation could go in place of a merge.
    let space = bench.flash.components().space;
    while space.free() > 2 {
        space.take_zone(u64::MAX);
    }
    for _ in 0..3 {
        bench.flash.components().reclaim.round();
    }
    let stats = bench.flash.stats();
    assert!(stats.is_on && stats.merges_given_up > 0 && stats.quick_drops > 0, "{stats:?}");
    let last = items.start;
    while bench.put(&key(last), &[2; 1500], 0) == Put::Shed {
        bench.flash.tend();
    }
    assert_eq!(bench.value(&key(last)).unwrap(), [2; 1500]);
    bench.flash.close().unwrap();
}
