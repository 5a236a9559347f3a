//! One of two devices fails, and zones are erased under reads.

use super::Bench;
use super::fragile::FragileDevice;
use crate::device::{Device, ZoneId, together};
use crate::test_devices::{CutDevice, Flavour, MemoryDevice};
use crate::{Begun, FlashOptions, Put, ZoneUse};
use std::sync::Arc;

fn key(number: u32) -> Vec<u8> {
    format!("key {number:08}").into_bytes()
}

/// Puts items of 100 bytes, tending now and then.
fn fill(bench: &Bench, items: std::ops::Range<u32>) {
    for n in items {
        while bench.put(&key(n), &[n as u8; 88], 0) == Put::Shed {
            bench.flash.tend();
        }
        if n % 100 == 0 {
            bench.flash.tend();
        }
    }
}

/// A tier on two devices, and the second one, which has the zones of odd numbers.
fn on_two(change: impl FnOnce(&mut FlashOptions)) -> (Bench, FragileDevice) {
    let second = FragileDevice::new(MemoryDevice::new(40, 64));
    let members: Vec<Arc<dyn Device>> = vec![Arc::new(MemoryDevice::new(40, 64)), Arc::new(second.clone())];
    let bench = Bench::on(together(members, true).unwrap(), |options| {
        options.memory_bytes = 8 << 20;
        options.segment_bytes = Some(32 * 4096);
        change(options);
    });
    (bench, second)
}

/// Fills a tier on two devices, of which the second one fails when the next merge has read it so often.
fn a_device_fails_during_a_merge(items: u32, rounds: u32, reads: i64) {
    let found = |bench: &mut Bench| {
        (0..items).filter(|n| bench.value(&key(*n)).is_some_and(|value| value == [*n as u8; 88])).count()
    };
    let (mut bench, second) = on_two(|options| options.generations = true);
    (0..rounds).for_each(|_| fill(&bench, 0..items));
    bench.settle();
    let (all, before) = (found(&mut bench), bench.flash.stats());
    assert!(before.merges > 1 && all > items as usize * 9 / 10, "{all} of {items}: {before:?}");
    assert_eq!(before.zones_collected > 0, rounds > 1, "{before:?}");
    second.fail_after(reads);
    let mut more = items..2 * items;
    while bench.flash.stats().merges_given_up == 0 && bench.flash.stats().merges == before.merges {
        let next = more.next().expect("it is merged some day");
        fill(&bench, next..next + 1);
    }
    assert!(bench.flash.devices()[1].has_failed);
    let (half, stats) = (found(&mut bench), bench.flash.stats());
    assert!(half * 10 > all * 4, "{half} of {all} are left: {stats:?}");
    fill(&bench, 3 * items..3 * items + 20_000);
    bench.settle();
    // The oldest generations made room.
    let (left, stats) = (found(&mut bench), bench.flash.stats());
    assert!(stats.merges > before.merges, "merges go on: {stats:?}");
    assert!(left * 4 > all, "{left} of {all} are left: {stats:?}");
}

#[test]
fn a_device_that_fails_during_a_merge_voids_nothing_on_the_other() {
    [1, 4, 9].into_iter().for_each(|reads| a_device_fails_during_a_merge(60_000, 1, reads));
}

#[test]
fn nor_does_one_that_fails_while_garbage_of_generations_is_collected() {
    [1, 3, 5].into_iter().for_each(|reads| a_device_fails_during_a_merge(60_000, 5, reads));
}

#[test]
fn a_zone_that_was_full_and_not_closed_when_its_device_failed_is_lost() {
    let (bench, second) = on_two(|_| {});
    let use_of = |zone: ZoneId| bench.flash.zone_views()[zone.0 as usize].used;
    let space = bench.flash.components().space;
    let is_written = |zone: &ZoneId| {
        let pages: u32 = space.segments(*zone).iter().map(|segment| segment.pages).sum();
        use_of(*zone) == ZoneUse::Open && pages > 50
    };
    let mut items = 0..100_000;
    let zone = items.find_map(|n| {
        fill(&bench, n..n + 1);
        bench.flash.tend();
        (1..78).step_by(2).map(ZoneId).find(is_written)
    });
    let zone = zone.expect("every other zone is on the second device");
    second.fail_after(0);
    assert!(space.is_offline(zone));
    bench.settle();
    while use_of(zone) == ZoneUse::Open {
        let next = items.next().expect("the zone is closed some day");
        fill(&bench, next..next + 1);
    }
    bench.settle();
    assert_eq!(use_of(zone), ZoneUse::Retired);
    assert!(bench.flash.is_on());
}

/// Keys of one of the oldest generations are looked up, and a merge has collected its zones before they are read.
fn collected_under_reads(device: impl Device + 'static) {
    let mut bench = Bench::on(Arc::new(FragileDevice::new(device)), |options| {
        options.generations = true;
        options.memory_bytes = 8 << 20;
        options.segment_bytes = Some(32 * 4096);
        options.fill_percent = 90;
    });
    let items = 40_000;
    fill(&bench, 0..items);
    let mut reading = 0;
    for n in (0..items).step_by(500) {
        let hash = bench.hash(&key(n));
        match bench.fetcher.begin(n.into(), hash, &key(n)) {
            Begun::Started => reading += 1,
            Begun::Here(_) | Begun::Absent => {}
            Begun::Busy => break,
        }
    }
    assert!(reading > 40, "{reading}");
    let before = bench.flash.stats().zones_collected;
    // The same keys again, so that there is garbage.
    for n in (0..20).flat_map(|_| (0..items).filter(|n| n % 500 != 0)) {
        if bench.flash.stats().zones_collected > before + 20 {
            break;
        }
        fill(&bench, n..n + 1);
    }
    let stats = bench.flash.stats();
    assert!(stats.zones_collected > before + 20, "{stats:?}");
    let (mut found, mut done) = (0, 0);
    bench.fetcher.kick();
    for _ in 0..100 {
        bench.fetcher.poll(&mut |_, answer| {
            found += answer.is_some() as u32;
            done += 1;
        });
    }
    assert_eq!(done, reading);
    let stats = bench.flash.stats();
    assert_eq!((stats.damaged_pages, stats.misses_for_damage, stats.device_errors), (0, 0, 0), "{stats:?}");
    assert!(found > reading * 9 / 10, "{found} of {reading}: {stats:?}");
}

#[test]
fn an_item_that_a_merge_moves_under_a_read_is_found_where_erased_pages_are_zeros() {
    collected_under_reads(CutDevice::new(Flavour::Punched, 64, 64));
}

#[test]
fn an_item_that_a_merge_moves_under_a_read_is_found_where_erased_pages_are_refused() {
    collected_under_reads(MemoryDevice::new(64, 64));
}
