//! The rules of order, one by one.

use super::{Bench, finish};
use crate::device::{Device, PAGE_BYTES, ZoneId, ZoneState};
use crate::record::Record;
use crate::segment::{Head, Kind, Writer};
use crate::space::Watermarks;
use crate::test_devices::MemoryDevice;
use crate::{Begun, FlashOptions, FlashState, Put, Recover};
use larder_item::{Extension, State};
use std::sync::Arc;
use std::time::Duration;

fn stored(bench: &Bench, key: &str, value: &[u8]) {
    assert_eq!(bench.put(key.as_bytes(), value, 0), Put::Stored);
}

/// Seals and writes what is open, with keys of no interest.
fn write_out(bench: &Bench, round: u32) {
    let written = bench.flash.stats().segments_written;
    for n in 0.. {
        stored(bench, &format!("filling {round} {n}"), &[1; 400]);
        bench.flash.tend();
        if bench.flash.stats().segments_written > written {
            return;
        }
    }
}

#[test]
fn what_was_put_is_found_in_memory_and_on_the_device() {
    let mut bench = Bench::new(20, 64, |_| {});
    stored(&bench, "a", b"first");
    assert_eq!(bench.value(b"a").unwrap(), b"first");
    write_out(&bench, 0);
    let found = bench.get(b"a").unwrap();
    assert_eq!((found.value.as_slice(), found.flags, found.cas, found.warm), (&b"first"[..], 7, 1005, false));
    assert!(bench.get(b"a").unwrap().warm, "it was read before");
    assert!(bench.get(b"b").is_none());
    let stats = bench.flash.stats();
    assert_eq!((stats.hits_in_buffers, stats.hits, stats.misses), (1, 3, 1));
    assert_eq!(stats.reads_for_hits, 2);
}

#[test]
fn the_newest_version_is_found_first_wherever_it_is() {
    let mut bench = Bench::new(20, 64, |_| {});
    for round in 0..5 {
        let value = [round as u8; 30];
        stored(&bench, "a", &value);
        assert_eq!(bench.value(b"a").unwrap(), value);
        write_out(&bench, round);
        assert_eq!(bench.value(b"a").unwrap(), value);
    }
    bench.invalidate(b"a");
    assert!(bench.value(b"a").is_none());
    write_out(&bench, 9);
    assert!(bench.value(b"a").is_none(), "a tombstone on the device hides all of them");
}

#[test]
fn extents_and_short_versions_replace_each_other() {
    let mut bench = Bench::new(40, 64, |_| {});
    let long = vec![3; 9000];
    for round in 0..4 {
        stored(&bench, "a", b"short");
        if round % 2 == 0 {
            write_out(&bench, round);
        }
        assert_eq!(bench.value(b"a").unwrap(), b"short");
        stored(&bench, "a", &long);
        assert_eq!(bench.value(b"a").unwrap(), long);
        for n in 0..40 {
            stored(&bench, &format!("long {n}"), &long);
            bench.flash.tend();
        }
        assert_eq!(bench.value(b"a").unwrap(), long);
    }
    assert!(bench.flash.stats().extents > 0);
    bench.invalidate(b"a");
    assert!(bench.value(b"a").is_none());
}

/// More extents die than the tier remembers one by one.
#[test]
fn extents_that_replace_each_other_leave_no_tombstones() {
    const KEYS: usize = 400;
    let mut bench = Bench::new(130, 64, |options| options.memory_bytes = 2 << 20);
    let value = |key: usize, round: usize| format!("{key} {round} ").repeat(900).into_bytes();
    for round in 0..12 {
        for key in 0..KEYS {
            while bench.put(format!("key {key}").as_bytes(), &value(key, round), 0) == Put::Shed {
                bench.flash.tend();
            }
            bench.flash.tend();
        }
    }
    let stats = bench.flash.stats();
    assert!(stats.reclaims > 0, "{stats:?}");
    assert_eq!(stats.tombstones_kept, 0, "{stats:?}");
    bench.restart();
    for key in 0..KEYS {
        let found = bench.value(format!("key {key}").as_bytes());
        assert!(found.is_none_or(|found| found == value(key, 11)), "an old version of key {key}");
    }
}

#[test]
fn a_stamp_changes_with_whatever_makes_a_version_old() {
    let bench = Bench::new(20, 64, |_| {});
    let hash = bench.hash(b"a");
    let mut seen = vec![bench.flash.stamp(hash)];
    let mut changed = |bench: &Bench| {
        let stamp = bench.flash.stamp(hash);
        assert!(!seen.contains(&stamp));
        seen.push(stamp);
    };
    stored(&bench, "a", b"x");
    changed(&bench);
    bench.invalidate(b"a");
    changed(&bench);
    bench.flash.begin_flush();
    changed(&bench);
    bench.flash.end_flush();
    changed(&bench);
    bench.invalidate(b"a");
    changed(&bench);
    let stamp = bench.flash.stamp(hash);
    bench.flash.tend();
    assert_eq!(bench.flash.stamp(hash), stamp);
}

#[test]
fn nothing_is_found_while_a_flush_is_under_way_and_nothing_old_after_it() {
    let mut bench = Bench::new(20, 64, |_| {});
    stored(&bench, "a", b"x");
    write_out(&bench, 0);
    stored(&bench, "b", b"x");
    bench.flash.begin_flush();
    assert!(bench.value(b"a").is_none() && bench.value(b"b").is_none());
    assert_eq!(bench.put(b"c", b"x", 0), Put::Shed);
    bench.flash.end_flush();
    assert!(bench.value(b"a").is_none() && bench.value(b"b").is_none());
    stored(&bench, "a", b"y");
    assert_eq!(bench.value(b"a").unwrap(), b"y");
    bench.settle();
    assert_eq!(bench.value(b"a").unwrap(), b"y");
    assert!(bench.value(b"b").is_none());
}

#[test]
fn a_deleted_prefix_is_forgotten_when_nothing_is_as_old() {
    for generations in [false, true] {
        let mut bench = Bench::new(24, 64, |options| options.generations = generations);
        for key in ["a:1", "a:2", "a:2:3", "b:1"] {
            stored(&bench, key, b"old");
        }
        write_out(&bench, 0);
        stored(&bench, "a:3", b"old");
        assert!(bench.delete_prefix(b"a:2") && bench.delete_prefix(b"a:"));
        assert_eq!(bench.flash.deleted_prefixes(), 1, "one of them covers the other");
        stored(&bench, "a:1", b"new");
        for _ in 0..2 {
            for key in ["a:2", "a:2:3", "a:3"] {
                assert!(bench.value(key.as_bytes()).is_none(), "{key}");
            }
            assert_eq!(bench.value(b"a:1").unwrap(), b"new");
            assert_eq!(bench.value(b"b:1").unwrap(), b"old");
            bench.restart();
            assert_eq!(bench.flash.deleted_prefixes(), 1, "the device has it");
        }
        // Everything is written over, and what is as old goes.
        let mut puts = 0;
        while bench.flash.deleted_prefixes() > 0 {
            bench.put(format!("filling {puts}").as_bytes(), &[9; 300], 0);
            puts += 1;
            if puts % 50 == 0 {
                bench.flash.tend();
            }
            assert!(puts < 200_000, "it is never forgotten, generations {generations}");
        }
        assert!(bench.value(b"a:2").is_none() && bench.value(b"a:3").is_none());
    }
}

#[test]
fn a_lookup_that_is_under_way_while_a_deleted_prefix_is_forgotten_finds_nothing() {
    let mut bench = Bench::new(12, 32, |options| options.generations = false);
    assert_eq!(bench.put(b"gone:1", b"value", 0), Put::Stored);
    // Its segment is written, and read by the lookup.
    let fill = |bench: &Bench, round: u32| {
        for n in 0..400u32 {
            // Whether it is taken does not matter.
            let _: Put = bench.put(format!("{round} {n}").as_bytes(), &[1; 900], 0);
        }
        bench.settle();
    };
    fill(&bench, 0);
    assert!(bench.delete_prefix(b"gone:"));
    let (hash, mut rounds) = (bench.hash(b"gone:1"), 0);
    let begun = bench.fetcher.begin(1, hash, b"gone:1");
    assert!(matches!(begun, Begun::Started), "it is on the device");
    bench.fetcher.kick();
    while bench.flash.deleted_prefixes() > 0 {
        rounds += 1;
        assert!(rounds < 100, "the prefix is never forgotten");
        fill(&bench, rounds);
    }
    assert!(finish(&mut bench.fetcher, begun).is_none());
    assert_eq!(bench.value(b"gone:1"), None);
}

#[test]
fn a_table_of_prefixes_that_is_full_refuses_and_a_flush_empties_it() {
    let mut bench = Bench::new(20, 64, |_| {});
    stored(&bench, "k", b"x");
    let mut deleted = 0;
    while bench.delete_prefix(format!("{deleted}:{}", "p".repeat(100)).as_bytes()) {
        deleted += 1;
        assert!(deleted < 10_000, "the table has no bound");
    }
    assert!(deleted > 50);
    assert_eq!(bench.flash.deleted_prefixes(), deleted);
    assert_eq!(bench.value(b"k").unwrap(), b"x");
    bench.restart();
    assert_eq!(bench.flash.deleted_prefixes(), deleted);
    bench.flash.begin_flush();
    bench.flash.end_flush();
    assert_eq!(bench.flash.deleted_prefixes(), 0);
    bench.restart();
    assert_eq!(bench.flash.deleted_prefixes(), 0);
}

#[test]
fn a_device_that_is_behind_sheds_puts_and_still_takes_invalidations() {
    let mut bench = Bench::new(20, 64, |options| options.memory_bytes = 8 << 20);
    stored(&bench, "a", b"x");
    let mut puts = 0;
    // Nobody writes: there is no thread, and nobody tends.
    while bench.put(format!("key {puts}").as_bytes(), &[1; 300], 0) == Put::Stored {
        puts += 1;
        assert!(puts < 100_000);
    }
    assert!(bench.flash.stats().segments_waiting > 0);
    bench.invalidate(b"a");
    for n in 0..puts {
        bench.invalidate(format!("key {n}").as_bytes());
    }
    assert!(bench.value(b"a").is_none());
    assert!((0..puts).all(|n| bench.value(format!("key {n}").as_bytes()).is_none()));
    assert!(bench.flash.stats().tombstones_waited > 0);
    bench.settle();
    assert_eq!(bench.flash.stats().segments_waiting, 0);
    assert!((0..puts).all(|n| bench.value(format!("key {n}").as_bytes()).is_none()));
    stored(&bench, "a", b"y");
    assert_eq!(bench.value(b"a").unwrap(), b"y");
}

#[test]
fn long_values_come_in_parts() {
    let mut bench = Bench::new(60, 64, |_| {});
    let part = bench.flash.part_bytes_max();
    let (key, cas) = (b"long", 1000 + part as u64);
    let parts: Vec<Vec<u8>> = (0..3).map(|n| vec![n as u8; part]).collect();
    let hash = bench.hash(key);
    for number in [1, 2] {
        let value = &parts[number as usize];
        while bench.flash.put_part(hash, key, cas, number, value) == Put::Shed {
            bench.flash.tend();
        }
    }
    assert!(bench.value(key).is_none(), "part 0 makes it visible");
    let kept = FlashState::of(State(State::FETCHED), Extension::default());
    let item = crate::FlashItem {
        key,
        value: &parts[0],
        value_bytes: 3 * part as u64,
        flags: 0,
        expires_unix_s: 0,
        cas,
        state: kept,
    };
    assert_eq!(bench.flash.put(hash, &item), Put::Stored);
    bench.settle();
    let found = bench.get(key).unwrap();
    assert_eq!((found.value_bytes, found.cas, found.state), (3 * part as u64, cas, kept));
    assert_eq!(found.value, parts[0]);
    for number in [1, 2] {
        let begun = bench.fetcher.begin_part(1, hash, key, cas, number);
        assert_eq!(super::finish(&mut bench.fetcher, begun).unwrap().value, parts[number as usize]);
        let begun = bench.fetcher.begin_part(1, hash, key, cas + 1, number);
        assert!(super::finish(&mut bench.fetcher, begun).is_none());
    }
}

/// With more memory longer values were written in one piece than can be read now.
#[test]
fn what_is_too_long_for_the_memory_of_reading_is_a_miss_and_not_waited_for() {
    let mut bench = Bench::new(10, 1024, |options| options.memory_bytes = 64 << 20);
    let (long, short) = (vec![1; bench.flash.part_bytes_max()], vec![2; 5000]);
    assert!(long.len() > 500 << 10, "{}", long.len());
    stored(&bench, "long", &long);
    stored(&bench, "short", &short);
    bench.options.memory_bytes = 6 << 20;
    bench.restart();
    assert!(bench.value(b"long").is_none());
    let stats = bench.flash.stats();
    assert_eq!((stats.misses_for_reads, stats.misses, stats.reads_for_misses), (1, 1, 0), "{stats:?}");
    assert_eq!(bench.value(b"short").unwrap(), short);
}

#[test]
fn where_numbers_of_segments_run_out_the_oldest_zone_goes() {
    let mut bench = Bench::new(256, 16, |options| {
        options.memory_bytes = 8 << 20;
        options.space = Watermarks::fixed(1);
    });
    for n in 0..200_000 {
        let key = format!("key {n:06}");
        while bench.put(key.as_bytes(), &[1; 100], 0) == Put::Shed {
            bench.flash.tend();
        }
    }
    let stats = bench.flash.stats();
    assert!(stats.segments + stats.segments_waiting > 245 && stats.quick_drops > 0, "{stats:?}");
    assert!(bench.value(b"key 199000").is_some());
    bench.within_its_memory();
}

#[test]
fn a_full_queue_says_so() {
    let mut bench = Bench::new(20, 64, |_| {});
    for n in 0..2000 {
        stored(&bench, &format!("key {n}"), &[1; 200]);
        bench.flash.tend();
    }
    let mut started = 0;
    for n in 0..1000u64 {
        let key = format!("key {n}");
        let hash = bench.hash(key.as_bytes());
        match bench.fetcher.begin(n, hash, key.as_bytes()) {
            Begun::Started => started += 1,
            Begun::Busy => break,
            other => panic!("{other:?}"),
        }
    }
    assert!((2..1000).contains(&started), "{started}");
    bench.fetcher.kick();
    let mut done = 0;
    bench.fetcher.poll(&mut |_, found| {
        assert!(found.is_some());
        done += 1;
    });
    assert_eq!(done, started);
}

#[test]
fn a_key_that_changes_all_the_time_does_not_stop_the_others() {
    for generations in [false, true] {
        let mut bench = Bench::new(12, 4096, |options| {
            options.generations = generations;
            options.segment_bytes = Some(32 * 4096);
        });
        // Each version in a segment of its own, and all segments in one zone: more than the table takes.
        for n in 0..100u32 {
            bench.put(b"hot", &n.to_le_bytes(), 0);
            for other in 0..400 {
                if bench.put(format!("filling {n} {other}").as_bytes(), &[1; 300], 0) == Put::Shed {
                    bench.flash.tend();
                }
            }
            bench.flash.tend();
        }
        bench.invalidate(b"hot");
        (0..8).for_each(|_| bench.flash.tend());
        let stats = bench.flash.stats();
        assert!(stats.table_full > 0, "{stats:?}");
        assert_eq!(stats.tombstones_waiting, 0, "generations {generations}: {stats:?}");
        assert_eq!(bench.put(b"another", b"value", 0), Put::Stored, "generations {generations}");
        assert!(bench.get(b"hot").is_none());
        bench.flash.close().unwrap();
    }
}

#[test]
fn many_keys_with_a_dozen_versions_each_stop_nobody() {
    let mut bench = Bench::new(60, 256, |options| options.segment_bytes = Some(32 * 4096));
    let keys: Vec<String> = (0..200).map(|key| format!("changing {key}")).collect();
    for version in 0..12u32 {
        let changing = keys.iter().map(|key| (key.clone(), version.to_le_bytes().to_vec()));
        let filling = (0..400).map(|other| (format!("filling {version} {other}"), vec![1; 300]));
        for (key, value) in changing.chain(filling) {
            while bench.put(key.as_bytes(), &value, 0) == Put::Shed {
                bench.flash.tend();
            }
        }
        bench.flash.tend();
    }
    let newest = Some(11u32.to_le_bytes().to_vec());
    assert!(keys.iter().all(|key| bench.value(key.as_bytes()) == newest));
    let stats = bench.flash.stats();
    assert_eq!((stats.table_full, stats.quick_drops, stats.reclaims), (0, 0, 0), "{stats:?}");
    bench.restart();
    assert!(keys.iter().all(|key| bench.value(key.as_bytes()) == newest));
}

#[test]
fn zones_do_not_wait_for_a_segment_of_the_log_that_never_fills() {
    let bench = Bench::new(80, 64, |options| {
        options.space = Watermarks::fixed(20);
    });
    let parts = bench.flash.components();
    // Extents only: all that goes to the log is their tombstones.
    let items = 1000u64;
    let (mut random, mut most) = (1u64, 0);
    for n in 0..items * 12 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let key = if n < items { n } else { (random >> 33) % items };
        let mut rounds = 0;
        while bench.put(format!("key {key}").as_bytes(), &[7; 6000], 0) == Put::Shed {
            rounds += 1;
            parts.writer.write_sealed();
            parts.reclaim.round();
            most = most.max(bench.flash.stats().zones.draining);
            assert!(rounds < 100, "{:?}", bench.flash.stats());
        }
    }
    assert!(most <= 20, "{most}: {:?}", bench.flash.stats());
}

/// Begins a segment behind what the zone has, and does not end it.
fn tear(bench: &Bench, device: &dyn Device, zone: ZoneId) {
    let ZoneState::Open(bytes) = device.report(zone).unwrap().state else { panic!("the zone is not open") };
    let head = Head {
        kind: Kind::Log,
        sequence: bench.flash.components().meta.next_sequence().unwrap(),
        sealed_sequence: u64::MAX,
        device_uuid: bench.flash.components().meta.device_uuid(),
        cas_base: 0,
        generation: 0,
        first_hash: 0,
        last_hash: u64::MAX,
        begun_unix_s: super::NOW,
    };
    let first_page = (bytes / PAGE_BYTES as u64) as u32;
    let mut writer = Writer::begin(device, zone, first_page, head, 2, 2, false);
    for n in 0..2 {
        writer.push(n, &Record::tombstone(&[n as u8; 250], false)).unwrap();
    }
    let value = [0; 2 * PAGE_BYTES];
    writer.push_bytes(2, &value).unwrap();
}

#[test]
fn a_segment_that_was_torn_takes_none_with_it_that_were_whole() {
    for closes in [false, true] {
        let device = Arc::new(MemoryDevice::new(20, 64));
        let journal = |options: &mut FlashOptions| options.recover = Recover::Journal;
        let again =
            |options: &mut FlashOptions| (options.recover, options.format) = (Recover::Journal, false);
        let bench = Bench::on(device.clone(), journal);
        stored(&bench, "deleted", b"old");
        stored(&bench, "kept", b"value");
        write_out(&bench, 0);
        // In another zone than what it hides.
        let newest = |bench: &Bench| bench.flash.components().space.newest_segments();
        let first = newest(&bench).iter().position(|sequence| *sequence > 0).unwrap();
        let mut round = 1;
        let last = loop {
            bench.invalidate(b"deleted");
            write_out(&bench, round);
            round += 1;
            let newest =
                newest(&bench).into_iter().enumerate().max_by_key(|(_, sequence)| *sequence).unwrap().0;
            if newest != first {
                break ZoneId(newest as u32);
            }
            stored(&bench, "deleted", b"newer");
        };
        tear(&bench, &*device, last);
        drop(bench);
        for start in 0..3 {
            let mut bench = Bench::on(device.clone(), again);
            bench.settle();
            while bench.flash.components().restart.step() {}
            assert_eq!(bench.value(b"kept").as_deref(), Some(&b"value"[..]), "start {start}, {closes}");
            assert!(bench.value(b"deleted").is_none(), "start {start}, {closes}");
            if closes {
                bench.flash.close().unwrap();
            }
        }
    }
}

#[test]
fn a_restart_knows_which_segments_say_that_extents_are_superseded() {
    let mut bench = Bench::new(20, 64, |_| {});
    stored(&bench, "a", &[1; 5000]);
    bench.restart();
    stored(&bench, "a", b"short");
    bench.restart();
    let space = bench.flash.components().space;
    let mut segments = (0..20).flat_map(|zone| space.segments(ZoneId(zone)));
    assert!(segments.any(|segment| segment.marks_extents), "a drop of the zone must take the extent with it");
    assert_eq!(bench.value(b"a").unwrap(), b"short");
}

#[test]
fn a_segment_that_goes_takes_extents_with_it_that_are_younger_than_its_beginning() {
    let mut bench = Bench::new(20, 64, |options| options.segment_bytes = Some(8 * 4096));
    // The segment of the log is opened before that of the extent, and says later that the extent is superseded.
    stored(&bench, "first", b"short");
    stored(&bench, "a", &[1; 5000]);
    (0..8).for_each(|number| stored(&bench, &format!("extent {number}"), &[2; 5000]));
    stored(&bench, "a", b"short");
    // The zone of the log is not so empty that its items move to another one.
    for number in 0..200 {
        stored(&bench, &format!("item {number}"), &[3; 960]);
        bench.flash.tend();
    }
    bench.restart();
    assert_eq!(bench.value(b"a").unwrap(), b"short");
    assert!(bench.flash.components().reclaim.make_room(Duration::ZERO));
    assert_eq!(bench.value(b"first"), None, "the zone of the log is the oldest");
    bench.restart();
    assert_eq!(bench.value(b"a"), None);
}
