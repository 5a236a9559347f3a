//! Crashes while a floor is in memory only. What it hides is on the device still, and so must be what hid it before.

use super::Bench;
use crate::test_devices::MemoryDevice;
use crate::{FlashOptions, Put, Recover};
use std::sync::Arc;

fn open(device: &MemoryDevice, format: bool) -> Bench {
    Bench::on(Arc::new(device.clone()), |options: &mut FlashOptions| {
        (options.recover, options.format) = (Recover::Journal, format);
        options.segment_bytes = Some(16 * 4096);
    })
}

/// Opens the device as a crash leaves it.
fn crashed(device: &MemoryDevice) -> Bench {
    let bench = open(device, false);
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
    components.meta.write_prefixes().unwrap();
    assert_eq!(crashed(&device).value(b"prefix:1"), None, "its deletion was answered");
    let bench = open(&device, false);
    bench.flash.begin_flush();
    bench.flash.end_flush();
    assert_eq!(bench.flash.deleted_prefixes(), 0);
}
