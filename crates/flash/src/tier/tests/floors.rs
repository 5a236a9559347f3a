//! Crashes while a floor, or that of a range of hashes, is in memory only. What it hides is on the device still, and so
//! must be what hid it before.

use super::Bench;
use crate::test_devices::MemoryDevice;
use crate::{FlashOptions, Put, Recover};
use std::sync::Arc;

fn open_with(device: &MemoryDevice, format: bool, generations: bool) -> Bench {
    Bench::on(Arc::new(device.clone()), |options: &mut FlashOptions| {
        (options.recover, options.format) = (Recover::Journal, format);
        options.generations = generations;
        options.segment_bytes = Some(16 * 4096);
    })
}

fn open(device: &MemoryDevice, format: bool) -> Bench {
    open_with(device, format, false)
}

/// Opens the device as a crash leaves it.
fn crashed(device: &MemoryDevice) -> Bench {
    take_in(open(device, false))
}

fn take_in(bench: Bench) -> Bench {
    while bench.flash.stats().is_recovering {
        bench.flash.tend();
    }
    bench
}

/// Seals what is open and writes it. Nothing is reclaimed.
fn write_out(bench: &Bench) {
    bench.flash.components().log.seal_all();
    bench.flash.components().writer.write_sealed();
}

fn stored(bench: &Bench, key: &[u8], value: &[u8]) {
    assert_eq!(bench.put(key, value, 0), Put::Stored);
}

/// Invalidates a key, and acknowledges that.
fn delete(bench: &Bench, key: &[u8]) {
    let commit = bench.flash.invalidate(bench.hash(key), key).expect("it is on flash");
    bench.flash.components().meta.commit();
    assert!(bench.flash.committed() >= commit);
}

#[test]
fn a_flush_keeps_the_journal_until_its_floor_is_durable() {
    let device = MemoryDevice::new(20, 64);
    let bench = open(&device, true);
    stored(&bench, b"deleted", b"value");
    stored(&bench, b"other", b"value");
    write_out(&bench);
    delete(&bench, b"deleted");
    let components = bench.flash.components();
    components.log.drop_without_floor();
    // The segment with the tombstone is below the floor, and is not written.
    components.writer.write_sealed();
    // A frame of the journal.
    delete(&bench, b"other");
    let mut crashed = crashed(&device);
    assert_eq!(crashed.value(b"other"), None);
    assert_eq!(crashed.value(b"deleted"), None, "its invalidation was acknowledged");
}

#[test]
fn a_flush_keeps_tombstones_until_its_floor_is_durable() {
    let device = MemoryDevice::new(20, 64);
    let bench = open(&device, true);
    // An extent, whose zone stays open. The zone of the tombstone does not.
    stored(&bench, b"deleted", &[1; 5000]);
    write_out(&bench);
    delete(&bench, b"deleted");
    let full = |bench: &Bench| bench.flash.stats().zones.full;
    for number in 0.. {
        if full(&bench) > 0 {
            break;
        }
        stored(&bench, format!("filling {number}").as_bytes(), &[2; 1500]);
        if number % 20 == 0 {
            write_out(&bench);
        }
    }
    bench.flash.components().log.drop_without_floor();
    bench.flash.components().reclaim.round();
    assert!(crashed(&device).value(b"deleted").is_none(), "its invalidation was acknowledged");
    // When the floor is durable, the zone goes.
    let bench = crashed(&device);
    bench.flash.begin_flush();
    bench.flash.end_flush();
    bench.settle();
    assert_eq!(full(&bench), 0);
}

#[test]
fn a_flush_keeps_deleted_prefixes_until_its_floor_is_durable() {
    let device = MemoryDevice::new(20, 64);
    let bench = open(&device, true);
    stored(&bench, b"prefix:1", b"value");
    write_out(&bench);
    assert!(bench.delete_prefix(b"prefix:"));
    let components = bench.flash.components();
    components.log.drop_without_floor();
    // A state.
    components.meta.write_state_now().unwrap();
    assert_eq!(crashed(&device).value(b"prefix:1"), None, "its deletion was answered");
    let bench = open(&device, false);
    bench.flash.begin_flush();
    bench.flash.end_flush();
    assert_eq!(bench.flash.deleted_prefixes(), 0);
}

/// A merge meets a tombstone whose range was dropped, and the device has no floor of the range yet. Then the power is
/// cut. If the journal has no room (`is_full`), the floor cannot be written.
fn a_merge_meets_a_dropped_range(is_full: bool) {
    let device = MemoryDevice::new(80, 64);
    let bench = open_with(&device, true, true);
    let components = bench.flash.components();
    let mut numbers = 0..;
    let mut fill = |bench: &Bench| {
        let key = format!("filling {}", numbers.next().unwrap());
        while bench.put(key.as_bytes(), &[2; 1500], 0) == Put::Shed {
            bench.flash.components().writer.write_sealed();
        }
    };
    let full = |bench: &Bench| bench.flash.stats().zones.full;
    stored(&bench, b"deleted", b"value");
    while full(&bench) < 8 {
        fill(&bench);
    }
    bench.settle();
    assert!(bench.flash.stats().merges > 0, "the oldest zone is in a generation");
    delete(&bench, b"deleted");
    write_out(&bench);
    while full(&bench) < 16 {
        fill(&bench);
    }
    write_out(&bench);
    components.meta.drop_range(bench.hash(b"deleted").0);
    for number in 0..if is_full { 1500 } else { 0 } {
        let key = format!("{number:0200}").into_bytes();
        components.meta.journal(None, bench.hash(&key).0, &key);
    }
    let before = bench.flash.stats();
    assert!(before.tombstones_kept > 0);
    for _ in 0..20 {
        components.reclaim.round();
    }
    let stats = bench.flash.stats();
    let given_up = stats.merges_given_up > before.merges_given_up;
    assert_eq!((stats.merges > before.merges, given_up), (!is_full, is_full), "{stats:?}");
    assert_eq!(stats.tombstones_kept > 0, is_full, "{stats:?}");
    let mut crashed = take_in(open_with(&device, false, true));
    assert_eq!(crashed.value(b"deleted"), None, "its invalidation was acknowledged");
}

#[test]
fn a_merge_makes_it_durable_that_ranges_were_dropped() {
    a_merge_meets_a_dropped_range(false);
}

#[test]
fn a_merge_is_given_up_if_that_is_not_possible() {
    a_merge_meets_a_dropped_range(true);
}
