//! Invalidations that find no room.

use super::Bench;
use crate::test_devices::MemoryDevice;
use crate::{FlashOptions, Put, Recover};
use std::sync::Arc;

const KEYS: u32 = 3000;

fn key(number: u32) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

fn open(device: &MemoryDevice, recover: Recover, format: bool) -> Bench {
    Bench::on(Arc::new(device.clone()), |options: &mut FlashOptions| {
        (options.generations, options.recover, options.format) = (true, recover, format);
        options.segment_bytes = Some(16 * 4096);
    })
}

/// Takes in what an earlier run left.
fn take_in(bench: &Bench) {
    while bench.flash.stats().is_recovering {
        bench.flash.tend();
    }
}

/// Stores the keys, and invalidates every third of them while the device takes nothing.
fn invalidate_on_a_stalled_device(bench: &mut Bench) {
    for number in 0..KEYS {
        while bench.put(&key(number), &[number as u8; 200], 0) == Put::Shed {
            bench.flash.tend();
        }
    }
    bench.settle();
    let others = (0..).find(|n| bench.put(format!("other {n}").as_bytes(), &[1; 200], 0) == Put::Shed);
    assert!(others.is_some_and(|n| n > 10), "the buffers are full now");
    (0..KEYS).step_by(3).for_each(|number| bench.invalidate(&key(number)));
}

/// How many of the keys that nobody invalidated are found. The others are not.
fn found(bench: &mut Bench) -> u32 {
    let mut found = 0;
    for number in 0..KEYS {
        let value = bench.value(&key(number));
        assert!(number % 3 != 0 || value.is_none(), "key {number} was invalidated");
        assert!(value.as_ref().is_none_or(|value| *value == [number as u8; 200]));
        found += value.is_some() as u32;
    }
    found
}

#[test]
fn a_stalled_device_costs_ranges_and_not_everything() {
    for recover in [Recover::Clean, Recover::Journal] {
        let device = MemoryDevice::new(60, 64);
        let mut bench = open(&device, recover, true);
        invalidate_on_a_stalled_device(&mut bench);
        let stats = bench.flash.stats();
        assert_eq!(stats.drops_of_all, 0);
        assert!(stats.range_drops > 100, "{stats:?}");
        // There are 2,048 ranges.
        let kept = found(&mut bench);
        assert!(kept > KEYS / 3, "{kept} of {KEYS}");
        bench.within_its_memory();
        bench.settle();
        assert!(!bench.flash.owes_invalidations());
        assert!(found(&mut bench).abs_diff(kept) < 20);
        // What was dropped can be stored again.
        for number in (0..KEYS).step_by(3) {
            while bench.put(&key(number), &[7; 20], 0) == Put::Shed {
                bench.flash.tend();
            }
            assert_eq!(bench.value(&key(number)).unwrap(), [7; 20]);
            bench.invalidate(&key(number));
        }
        bench.settle();
        bench.flash.close().unwrap();
        let mut bench = open(&device, recover, false);
        take_in(&bench);
        let kept_still = found(&mut bench);
        assert!(kept_still.abs_diff(kept) < 20, "{kept_still} of {kept} outlive a restart");
    }
}

#[test]
fn a_merge_leaves_out_what_was_dropped_before() {
    let device = MemoryDevice::new(60, 64);
    let mut bench = open(&device, Recover::Clean, true);
    invalidate_on_a_stalled_device(&mut bench);
    let kept = found(&mut bench);
    // Enough for several merges.
    for number in 0..20_000 {
        while bench.put(format!("filling {}", number % 1000).as_bytes(), &[9; 200], 0) == Put::Shed {
            bench.flash.tend();
        }
    }
    bench.settle();
    let stats = bench.flash.stats();
    assert!(stats.merges > 0 && stats.range_drops > 100, "{stats:?}");
    assert!(found(&mut bench) <= kept);
}

#[test]
fn a_committed_invalidation_outlives_a_crash_although_its_range_was_dropped() {
    let device = MemoryDevice::new(60, 64);
    let mut bench = open(&device, Recover::Journal, true);
    invalidate_on_a_stalled_device(&mut bench);
    assert!(bench.flash.stats().range_drops > 100);
    let last = bench.flash.invalidate(bench.hash(b"other 1"), b"other 1").unwrap();
    bench.flash.components().meta.commit();
    assert!(bench.flash.committed() >= last, "the journal takes it, whatever waits");
    let mut crashed = open(&device, Recover::Journal, false);
    take_in(&crashed);
    found(&mut crashed);
    // A crash after the tier has caught up.
    drop(crashed);
    bench.settle();
    bench.settle();
    let mut crashed = open(&device, Recover::Journal, false);
    take_in(&crashed);
    assert!(found(&mut crashed) > 0);
}

#[test]
fn fresh_items_leave_room_for_tombstones_in_the_log_table() {
    let bench = Bench::new(400, 256, |options| options.memory_bytes = 4 << 20);
    let mut number = 0;
    // The device takes everything, and nothing is reclaimed.
    let shed = loop {
        number += 1;
        if bench.put(format!("{number}").as_bytes(), b"", 0) == Put::Shed
            && !bench.flash.components().writer.write_sealed()
        {
            break number;
        }
    };
    let stats = bench.flash.stats();
    assert!(shed > 50_000, "{stats:?}");
    for number in 1..1000 {
        bench.invalidate(format!("{number}").as_bytes());
        bench.flash.components().writer.write_sealed();
    }
    let stats = bench.flash.stats();
    assert_eq!((stats.tombstones_waited, stats.range_drops), (0, 0), "{stats:?}");
    assert!(stats.tombstones >= 999);
}

/// A device without an erased zone: it holds keys of 200 bytes, and something else.
fn open_full(device: &MemoryDevice, keys: u32) -> Bench {
    let bench = open_small(device, true);
    let store = |name: &[u8], value: &[u8]| {
        while bench.put(name, value, 0) == Put::Shed {
            bench.flash.components().writer.write_sealed();
        }
    };
    (0..keys).for_each(|number| store(&long_key(number), &[1; 40]));
    let mut others = 0;
    while bench.flash.stats().zones.free > 0 {
        store(format!("other {others}").as_bytes(), &[2; 1500]);
        others += 1;
    }
    assert!(bench.flash.may_hold(bench.hash(&long_key(0))));
    bench
}

fn open_small(device: &MemoryDevice, format: bool) -> Bench {
    Bench::on(Arc::new(device.clone()), |options| {
        (options.recover, options.format) = (Recover::Journal, format);
        options.segment_bytes = Some(8 * 4096);
    })
}

/// So long that few tombstones fit into the buffers.
fn long_key(number: u32) -> Vec<u8> {
    format!("{number:0200}").into_bytes()
}

#[test]
fn a_start_on_a_full_device_finds_nothing_that_the_journal_says_is_invalid() {
    const MANY: u32 = 800;
    let device = MemoryDevice::new(8, 64);
    let bench = open_full(&device, MANY);
    // The tombstones are in memory only.
    (0..MANY).for_each(|number| bench.invalidate(&long_key(number)));
    bench.flash.components().meta.commit();
    for _ in 0..2 {
        let mut crashed = open_small(&device, false);
        let is_any = |crashed: &mut Bench| (0..MANY).any(|number| crashed.value(&long_key(number)).is_some());
        take_in(&crashed);
        assert!(!is_any(&mut crashed), "at the start");
        crashed.settle();
        assert!(!is_any(&mut crashed), "after some rounds");
    }
}

#[test]
fn a_flush_succeeds_however_full_the_journal_is() {
    const MANY: u32 = 2400;
    for commits in [false, true] {
        let mut bench = open_full(&MemoryDevice::new(8, 64), MANY);
        for number in 0..MANY {
            bench.invalidate(&long_key(number));
            if commits {
                bench.flash.components().meta.commit();
            }
        }
        bench.flash.begin_flush();
        bench.flash.end_flush();
        assert!(bench.flash.is_on());
        bench.settle();
        assert_eq!(bench.put(b"new", b"value", 0), Put::Stored);
        assert_eq!(bench.value(b"new").unwrap(), b"value");
        bench.flash.close().unwrap();
    }
}

#[test]
fn a_tier_is_closed_however_full_the_journal_is() {
    const MANY: u32 = 2400;
    let device = MemoryDevice::new(8, 64);
    let bench = open_full(&device, MANY);
    (0..MANY).for_each(|number| bench.invalidate(&long_key(number)));
    bench.flash.close().unwrap();
    let mut bench = open_small(&device, false);
    take_in(&bench);
    assert!((0..MANY).all(|number| bench.value(&long_key(number)).is_none()));
}
