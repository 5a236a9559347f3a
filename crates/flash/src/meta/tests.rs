use super::*;
use crate::device::PageBuffer;
use crate::test_devices::{CutDevice, Dice, Flavour, MemoryDevice};
use proptest::prelude::*;
use std::collections::BTreeSet;

const FLAVOURS: [Flavour; 3] = [Flavour::Zoned, Flavour::Punched, Flavour::NeverErased];

fn options(recover: Recover) -> MetaOptions {
    MetaOptions { seed: 77, recover, format: false }
}

fn open(device: &(impl Device + Clone + 'static), recover: Recover) -> Opened {
    MetaLog::open(Arc::new(device.clone()), options(recover)).expect("it opens")
}

fn error(device: &(impl Device + Clone + 'static)) -> String {
    match MetaLog::open(Arc::new(device.clone()), options(Recover::Journal)) {
        Ok(_) => panic!("it opened"),
        Err(error) => error.to_string(),
    }
}

fn keys(opened: &Opened) -> Vec<Vec<u8>> {
    opened.journal.iter().map(|record| record.key.clone()).collect()
}

#[test]
fn a_blank_device_is_formatted_and_found_again() {
    for flavour in FLAVOURS {
        let device = CutDevice::new(flavour, 4, 8);
        let first = open(&device, Recover::Clean);
        assert_eq!(first.start, Start::Formatted);
        let sequence = first.log.next_sequence().expect("some are reserved");
        first.log.close(41).expect("it closes");
        assert_eq!(first.log.next_sequence(), None);
        device.power_on(None);
        let second = open(&device, Recover::Clean);
        assert_eq!(second.start, Start::Clean);
        assert_eq!(second.superblock.uuid, first.superblock.uuid);
        assert_eq!((second.superblock.seed, second.superblock.cas_floor), (77, 41));
        assert!(second.log.next_sequence() > Some(sequence));
    }
}

#[test]
fn a_note_stays_as_long_as_what_it_was_beside() {
    for flavour in FLAVOURS {
        for recover in [Recover::Journal, Recover::Clean] {
            let device = CutDevice::new(flavour, 4, 8);
            let note = || open(&device, recover).log.note();
            let first = open(&device, recover);
            assert_eq!(first.log.note(), []);
            first.log.set_note(&[7; NOTE_BYTES]);
            first.log.close(1).expect("it closes");
            device.power_on(None);
            let second = open(&device, recover);
            assert_eq!(second.log.note(), [7; NOTE_BYTES]);
            second.log.set_note(b"other");
            second.log.write_state_now().expect("there is room");
            device.power_on(None);
            // A device that was not closed keeps nothing in mode `clean`.
            assert_eq!(note(), if recover == Recover::Journal { &b"other"[..] } else { b"" });
        }
    }
}

#[test]
fn what_a_crash_leaves_depends_on_both_sessions() {
    use Recover::{BestEffort, Clean, Journal};
    for (before, after, keeps) in [
        (Clean, Clean, false),
        (Journal, Clean, false),
        (Journal, Journal, true),
        (Clean, Journal, false),
        (BestEffort, Journal, false),
        (BestEffort, BestEffort, true),
        (Clean, BestEffort, true),
    ] {
        let device = MemoryDevice::new(4, 8);
        let first = open(&device, before);
        let sequence = first.log.next_sequence().expect("some are reserved");
        drop(first);
        let second = open(&device, after);
        assert_eq!(second.start == Start::Crashed, keeps, "{before:?} then {after:?}");
        assert_eq!(second.superblock.flush_floor <= sequence, keeps);
        assert!(second.log.next_sequence() > Some(sequence));
    }
}

#[test]
fn something_else_is_refused_in_one_line_and_erased_only_if_told() {
    for (zone, offset) in [(0, 1080), (0, 0), (1, 65), (0, 3 * 4096), (3, 9)] {
        let device = CutDevice::new(Flavour::Punched, 4, 8);
        device.overwrite(ZoneId(zone), offset, b"a file system");
        let text = error(&device);
        assert!(text.contains("not blank") && !text.contains('\n'), "{text}");
        let options = MetaOptions { format: true, ..options(Recover::Journal) };
        let opened = MetaLog::open(Arc::new(device.clone()), options).expect("it is formatted");
        assert_eq!(opened.start, Start::Formatted);
    }
}

#[test]
fn another_version_or_geometry_is_refused() {
    let device = CutDevice::new(Flavour::Zoned, 4, 8);
    open(&device, Recover::Clean).log.close(0).expect("it closes");
    let mut page = PageBuffer::new(1);
    let zone = if device.read(ZoneId(0), 0, &mut page).is_ok() { 0 } else { 1 };
    device.read(ZoneId(zone), 0, &mut page).expect("the log is in one of them");
    // The same log seen as a larger device's.
    let larger = CutDevice::new(Flavour::Zoned, 5, 8);
    larger.overwrite(ZoneId(zone), 0, &page);
    let text = error(&larger);
    assert!(text.contains("4 zones of 32768 bytes") && text.contains("5 zones"), "{text}");
    device.overwrite(ZoneId(zone), 12, &[9, 0]);
    assert!(error(&device).contains("version 9"), "{}", error(&device));
    assert!(error(&MemoryDevice::new(2, 8)).contains("too few"));
    assert!(error(&MemoryDevice::new(3, 3)).contains("too small"));
    // The bounds of 1,200 zones are as long as 12 of the 16 pages.
    let many = error(&MemoryDevice::new(1200, 16));
    let told = "memory: 1200 zones of 64 KiB are too many: what is known of all of them does not fit into one; make \
                larger zones, of 128 KiB at least, or take the default";
    assert_eq!(many, told);
}

#[test]
fn a_new_format_is_not_mistaken_for_the_old_one_on_a_device_that_cannot_erase() {
    let device = CutDevice::new(Flavour::NeverErased, 4, 8);
    let old = open(&device, Recover::Journal);
    for n in 0..40 {
        old.log.add(old.log.next_sequence().expect("reserved"), n, b"old");
        assert_eq!(old.log.tend(), Round::Wrote);
        old.log.flush(u64::MAX - 1).expect("it flushes");
    }
    device.power_on(None);
    let format = MetaOptions { format: true, ..options(Recover::Journal) };
    let new = MetaLog::open(Arc::new(device.clone()), format).expect("it is formatted");
    device.power_on(None);
    assert_eq!(open(&device, Recover::Journal).superblock.uuid, new.superblock.uuid);
    assert_ne!(old.superblock.uuid, new.superblock.uuid);
}

#[test]
fn records_are_in_force_until_their_segment_is_durable() {
    let device = MemoryDevice::new(4, 8);
    let opened = open(&device, Recover::Journal);
    let log = opened.log;
    let (a, b) = (log.next_sequence().expect("reserved"), log.next_sequence().expect("reserved"));
    log.add(a, 1, b"a1");
    log.add(b, 2, b"b1");
    log.add(UNPLACED, 3, b"u1");
    let last = log.add(a, 4, b"a2");
    assert_eq!(log.committed(), 0);
    assert_eq!(log.tend(), Round::Wrote);
    assert_eq!(log.committed(), last);
    assert_eq!(log.tend(), Round::Idle);
    log.obsolete(a);
    // The obsolescence of `a` reaches the device with the next frame.
    log.add(b, 5, b"b2");
    log.tend();
    drop(log);
    let opened = open(&device, Recover::Journal);
    assert_eq!(keys(&opened), [b"b1".to_vec(), b"u1".to_vec(), b"b2".to_vec()]);
    // Still in force after another crash, until they are placed and durable.
    drop(opened);
    let opened = open(&device, Recover::Journal);
    assert_eq!(opened.journal.len(), 3);
    let segment = opened.log.next_sequence().expect("reserved");
    opened.log.placed(segment);
    opened.log.obsolete(segment);
    opened.log.add(segment + 1, 6, b"c");
    opened.log.tend();
    drop(opened);
    assert_eq!(keys(&open(&device, Recover::Journal)), [b"c".to_vec()]);
}

#[test]
fn commits_wait_while_the_records_in_force_have_no_room() {
    let device = MemoryDevice::new(4, 4);
    let log = open(&device, Recover::Journal).log;
    let key = [7; 200];
    let (mut number, mut round) = (0, Round::Idle);
    for n in 0..200 {
        number = log.add(1 + n / 60, n, &key);
        round = log.tend();
        if round == Round::Blocked {
            break;
        }
        assert_eq!((round, log.committed()), (Round::Wrote, number));
    }
    assert_eq!(round, Round::Blocked);
    assert!(log.wants_seal());
    assert!(log.committed() < number);
    log.obsolete(1);
    assert_eq!(log.tend(), Round::Wrote);
    assert_eq!(log.committed(), number);
    assert!(!log.is_broken());
}

#[test]
fn sequences_are_reserved_ahead_and_never_given_twice() {
    let device = MemoryDevice::new(3, 4);
    let log = open(&device, Recover::BestEffort).log;
    let first = log.next_sequence().expect("reserved");
    log.next_sequence.store(first + RESERVE - 1, Ordering::Relaxed);
    assert!(log.next_sequence().is_some());
    assert_eq!(log.next_sequence(), None, "not before the device knows");
    assert_eq!(log.tend(), Round::Wrote);
    let next = log.next_sequence().expect("more are reserved");
    drop(log);
    assert!(open(&device, Recover::BestEffort).log.next_sequence().expect("reserved") > next);
}

#[test]
fn released_zones_and_floors_outlive_a_crash_with_a_journal() {
    let device = MemoryDevice::new(6, 4);
    let log = open(&device, Recover::Journal).log;
    for n in 1..30 {
        log.release(&[(ZoneId(2), n), (ZoneId(5), n + (1 << 50))]).expect("it is written");
    }
    drop(log);
    let opened = open(&device, Recover::Journal);
    assert_eq!(opened.zones[5].floor, 29 + (1 << 50));
    let floor = 5 + (1 << 50);
    opened.log.flush(floor).expect("it is written");
    drop(opened);
    let opened = open(&device, Recover::Journal);
    assert_eq!(opened.superblock.flush_floor, floor);
    assert_eq!(opened.zones[5].floor, 29 + (1 << 50));
}

#[test]
fn a_failing_zone_is_left_for_the_other_and_failure_of_both_keeps_nothing() {
    let device = CutDevice::new(Flavour::Zoned, 4, 8);
    let log = open(&device, Recover::Journal).log;
    log.add(5, 1, b"a");
    assert_eq!(log.tend(), Round::Wrote);
    let zone = log.writer().zone;
    let other = ZoneId(1 - zone.0);
    device.fail(zone, true);
    let number = log.add(5, 2, b"b");
    assert_eq!(log.tend(), Round::Wrote);
    assert_eq!((log.committed(), log.writer().zone), (number, other));
    device.power_on(None);
    device.fail(zone, false);
    let opened = open(&device, Recover::Journal);
    assert_eq!(keys(&opened), [b"a".to_vec(), b"b".to_vec()]);
    for zone in [zone, other] {
        device.fail(zone, true);
    }
    let number = opened.log.add(6, 3, b"c");
    assert_eq!(opened.log.tend(), Round::Broken);
    assert!(opened.log.is_broken());
    assert!(opened.log.committed() < number, "nothing is said to be durable that is not");
    assert!(opened.log.flush(9).is_err() && opened.log.close(0).is_err());
}

#[test]
fn a_full_zone_whose_successor_fails_is_begun_again() {
    let device = CutDevice::new(Flavour::Zoned, 4, 4);
    let log = open(&device, Recover::Journal).log;
    let sequence = log.next_sequence().expect("reserved");
    let other = ZoneId(1 - log.writer().zone.0);
    device.fail(other, true);
    for n in 0..8 {
        let number = log.add(sequence, n, b"key");
        assert_eq!(log.tend(), Round::Wrote);
        assert_eq!(log.committed(), number);
    }
    let later = log.next_sequence().expect("reserved");
    drop(log);
    device.fail(other, false);
    let opened = open(&device, Recover::Journal);
    assert!(opened.superblock.flush_floor <= sequence && opened.next_sequence > later);
    assert_eq!(opened.journal.len(), 8);
}

#[test]
fn journal_records_leave_room_for_the_bounds_of_all_zones() {
    let device = CutDevice::new(Flavour::Zoned, 130, 8);
    let log = open(&device, Recover::Journal).log;
    let segment = log.next_sequence().expect("reserved");
    let mut added = 0;
    while log.tend() != Round::Blocked {
        log.add(segment, added, &[7; 200]);
        added += 1;
        assert!(added < 1000, "they are never too many");
    }
    assert!(added > 60, "a half of a zone at least is for them: {added}");
    let zones: Vec<_> = (2..130).map(|zone| (ZoneId(zone), 0, segment + 1)).collect();
    log.narrow(&zones).expect("there is room");
    drop(log);
    let opened = open(&device, Recover::Journal);
    assert!(opened.zones[2..].iter().all(|bounds| bounds.void == segment + 1));
    let zones: Vec<_> = (2..130).map(|zone| (ZoneId(zone), segment + 2)).collect();
    opened.log.release(&zones).expect("there is room after a restart as well");
}

#[test]
fn what_is_written_after_a_state_that_keeps_nothing_is_not_found_either() {
    let device = CutDevice::new(Flavour::Zoned, 4, 8);
    let log = open(&device, Recover::Journal).log;
    let before = log.next_sequence().expect("reserved");
    log.keep_nothing(&mut log.writer(), DeviceError::Full(ZoneId(0))).expect("a zone takes it");
    // A segment that was open then, and one that is opened later, are gone together.
    let later = log.next_sequence().expect("reserved");
    assert_eq!(later, before + 1);
    drop(log);
    let opened = open(&device, Recover::Journal);
    assert!(opened.superblock.flush_floor > later);
    let next = opened.log.next_sequence().expect("reserved");
    assert!(next >= opened.superblock.flush_floor, "what comes after the restart is found again");
    assert_eq!(opened.next_sequence, next);
}

#[test]
fn damage_within_the_log_is_not_taken_for_its_end() {
    for page in 0..4 {
        for recover in [Recover::Journal, Recover::BestEffort] {
            let device = CutDevice::new(Flavour::Zoned, 4, 8);
            let log = open(&device, Recover::Journal).log;
            let sequence = log.next_sequence().expect("reserved");
            for n in 0..4 {
                log.add(sequence, n, b"key");
                log.tend();
            }
            let zone = log.writer().zone;
            device.damage(zone, page);
            drop(log);
            if page == 0 {
                // Nothing can be read at all.
                assert_eq!(open(&device, recover).start, Start::Formatted);
                continue;
            }
            let opened = open(&device, recover);
            let dropped = matches!(opened.start, Start::Dropped(_));
            assert_eq!(dropped, recover == Recover::Journal, "page {page}");
            assert_eq!(opened.superblock.flush_floor > sequence, dropped);
        }
    }
}

#[test]
fn what_is_added_before_somebody_waits_takes_one_write() {
    let device = MemoryDevice::new(4, 64);
    let log = open(&device, Recover::Journal).log;
    let appends = device.counters().appends;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| while log.wait_and_tend(Duration::from_secs(600)) {});
        let last = (0..50).map(|n| log.add(1, n, b"key")).max().expect("some were added");
        log.want_commit();
        while log.committed() < last {
            std::thread::yield_now();
        }
        log.stop();
        writer.join().expect("it ends");
    });
    assert_eq!(device.counters().appends - appends, 1);
}

#[test]
fn a_thread_commits_for_many() {
    let device = MemoryDevice::new(4, 64);
    let opened = open(&device, Recover::Journal);
    let log = &opened.log;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| while log.wait_and_tend(Duration::from_secs(5)) {});
        let adders: Vec<_> = (0..4u64)
            .map(|thread| {
                scope.spawn(move || {
                    for n in 0..50 {
                        let number = log.add(thread + 1, n, &[thread as u8]);
                        log.want_commit();
                        while log.committed() < number {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        for adder in adders {
            adder.join().expect("it adds");
        }
        log.stop();
        writer.join().expect("it ends");
    });
    assert_eq!(log.committed(), 200);
    drop(opened);
    assert_eq!(open(&device, Recover::Journal).journal.len(), 200);
}

/// An operation on the log.
#[derive(Clone, Debug)]
enum Step {
    Add { segment: u8, key: u8 },
    Tend,
    Obsolete { segment: u8 },
    Placed { segment: u8 },
    Release { zone: u8 },
    Flush,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let segment = 0..5u8;
    let step = prop_oneof![
        6 => (0..6u8, any::<u8>()).prop_map(|(segment, key)| Step::Add { segment, key }),
        6 => Just(Step::Tend),
        2 => segment.clone().prop_map(|segment| Step::Obsolete { segment }),
        1 => segment.prop_map(|segment| Step::Placed { segment }),
        2 => (2..5u8).prop_map(|zone| Step::Release { zone }),
        1 => Just(Step::Flush),
        1 => Just(Step::Close),
    ];
    proptest::collection::vec(step, 1..60)
}

/// A model of what must be known after a crash at any time.
#[derive(Default)]
struct Model {
    /// The journal records: segment of the tombstone, number of the record, key.
    records: Vec<(u64, u64, u8)>,
    flush_floor: u64,
    floors: [u64; 5],
    clean: bool,
    cas: u64,
}

/// Runs the steps until the power is cut, and restores it.
fn run(device: &CutDevice, steps: &[Step], mut dice: Dice) -> Result<(), TestCaseError> {
    let opened = open(device, Recover::Journal);
    let (log, mut model) = (opened.log, Model::default());
    let base = log.next_sequence().expect("reserved");
    let mut top = base + 4;
    log.next_sequence.store(base + 5, Ordering::Relaxed);
    device.cut_after(dice.below(80));
    let mut failed = false;
    for step in steps {
        match step {
            Step::Add { segment, key } => {
                let segment = if *segment == 5 { UNPLACED } else { base + *segment as u64 };
                let number = log.add(segment, *key as u64, &[*key; 150]);
                model.records.push((segment, number, *key));
            }
            Step::Tend => failed = log.tend() == Round::Broken,
            Step::Obsolete { segment } => {
                log.obsolete(base + *segment as u64);
                model.records.retain(|(of, ..)| *of != base + *segment as u64);
            }
            Step::Placed { segment } => {
                log.placed(base + *segment as u64);
                for (of, ..) in model.records.iter_mut().filter(|(of, ..)| *of == UNPLACED) {
                    *of = base + *segment as u64;
                }
            }
            Step::Release { zone } => {
                let floor = log.next_sequence().expect("reserved");
                top = floor;
                match log.release(&[(ZoneId(*zone as u32), floor)]) {
                    Ok(()) => model.floors[*zone as usize] = floor,
                    Err(error) => failed = error == DeviceError::Gone,
                }
            }
            Step::Flush => {
                top = log.next_sequence().expect("reserved");
                failed = log.flush(top).is_err();
                if !failed {
                    model.flush_floor = top;
                    model.records.retain(|(of, ..)| *of >= top);
                }
            }
            Step::Close => {
                model.cas += 1;
                let closed = log.close(model.cas);
                prop_assert!(closed.is_ok() || device.is_gone());
                model.clean = closed.is_ok();
                break;
            }
        }
        if failed {
            break;
        }
    }
    let committed = log.committed();
    drop(log);
    device.power_on(Some(&mut dice));
    check(&open(device, Recover::Journal), &model, committed, top)
}

/// Compares what is known after the power came back with the model.
fn check(opened: &Opened, model: &Model, committed: u64, top: u64) -> Result<(), TestCaseError> {
    prop_assert!(!matches!(opened.start, Start::Dropped(_) | Start::Formatted), "{:?}", opened.start);
    if model.clean {
        prop_assert_eq!(opened.start, Start::Clean);
        prop_assert_eq!(opened.superblock.cas_floor, model.cas);
    }
    let found: BTreeSet<u64> = opened.journal.iter().map(|record| record.hash).collect();
    for (segment, number, key) in &model.records {
        let flushed = *segment < opened.superblock.flush_floor;
        // Whoever closes the log has all segments on the device.
        let closed = opened.start == Start::Clean;
        prop_assert!(
            closed || *number > committed || flushed || found.contains(&(*key as u64)),
            "key {} is forgotten",
            key
        );
    }
    for record in &opened.journal {
        prop_assert_eq!(&record.key, &[record.hash as u8; 150]);
    }
    prop_assert!(opened.superblock.flush_floor >= model.flush_floor);
    for (zone, floor) in model.floors.iter().enumerate().skip(2) {
        prop_assert!(opened.zones[zone].floor.max(opened.superblock.flush_floor) >= *floor);
    }
    prop_assert!(opened.log.next_sequence().expect("reserved") > top);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// After each of several losses of power in a row, everything that was acknowledged is known.
    #[test]
    fn after_a_cut_everything_committed_is_known(
        sessions in proptest::collection::vec(steps(), 1..4), seed: u64, flavour in 0..3usize, zone_pages in 4..12u64
    ) {
        let device = CutDevice::new(FLAVOURS[flavour], 5, zone_pages);
        let mut dice = Dice(seed);
        drop(open(&device, Recover::Journal));
        for steps in sessions {
            run(&device, &steps, Dice(dice.next_u64()))?;
        }
    }

    /// A device can be opened after the power was cut while it was formatted or opened.
    #[test]
    fn a_cut_while_opening_is_survived(
        cuts in proptest::collection::vec(0..8u64, 1..6), seed: u64, flavour in 0..3usize
    ) {
        let device = CutDevice::new(FLAVOURS[flavour], 5, 6);
        let mut dice = Dice(seed);
        for cut in cuts {
            device.cut_after(cut);
            let opened = MetaLog::open(Arc::new(device.clone()), options(Recover::Journal));
            if let Ok(opened) = opened {
                opened.log.add(3, 3, b"three");
                opened.log.tend();
            }
            device.power_on(Some(&mut dice));
        }
        prop_assert!(MetaLog::open(Arc::new(device.clone()), options(Recover::Journal)).is_ok());
    }

    /// Any bytes are an error or a log. They never cause a panic, or an allocation larger than the zone.
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 1..300), at in 0..8192usize, fix: bool) {
        let device = CutDevice::new(Flavour::Punched, 4, 4);
        let log = open(&device, Recover::Journal).log;
        log.add(3, 3, b"three");
        log.tend();
        let zone = log.writer().zone;
        device.overwrite(zone, at, &bytes);
        if fix {
            let mut page = PageBuffer::new(1);
            device.read(zone, 0, &mut page).expect("it is there");
            let crc = crc32c::crc32c(&page[12..]);
            device.overwrite(zone, 8, &crc.to_le_bytes());
        }
        let _ = MetaLog::open(Arc::new(device.clone()), options(Recover::Journal));
    }
}

/// What is found of a zone after a crash.
fn bounds_after_crash(device: &CutDevice, recover: Recover, zone: usize) -> ZoneBounds {
    device.power_on(None);
    open(device, recover).zones[zone]
}

#[test]
fn releases_outlast_a_crash_in_every_mode_that_does() {
    for (recover, expected) in [(Recover::Journal, 1), (Recover::BestEffort, 1), (Recover::Clean, 0)] {
        let device = CutDevice::new(Flavour::NeverErased, 8, 8);
        let opened = open(&device, recover);
        let floor = opened.next_sequence + 5;
        opened.log.release(&[(ZoneId(3), floor)]).expect("it is written");
        drop(opened);
        assert_eq!(bounds_after_crash(&device, recover, 3).floor, expected * floor, "{recover:?}");
    }
}

#[test]
fn a_void_stays_until_its_zone_is_released() {
    let device = CutDevice::new(Flavour::NeverErased, 8, 8);
    let opened = open(&device, Recover::Journal);
    let base = opened.next_sequence;
    let log = &opened.log;
    log.written(ZoneId(3), base);
    log.narrow(&[(ZoneId(3), 0, base + 2)]).expect("it is written");
    log.narrow(&[(ZoneId(3), 0, base + 4)]).expect("it is written");
    drop(opened);
    for _ in 0..2 {
        let bounds = bounds_after_crash(&device, Recover::Journal, 3);
        assert_eq!(bounds, ZoneBounds { floor: 0, top: base, void: base + 2 });
        let admitted = |sequence: u64| bounds.admits(base + sequence);
        assert!(admitted(0) && admitted(1) && !admitted(2) && !admitted(9));
    }
    let opened = open(&device, Recover::Journal);
    opened.log.narrow(&[(ZoneId(3), base, 0)]).expect("it is written");
    assert_eq!(bounds_after_crash(&device, Recover::Journal, 3).void, base + 2);
    let opened = open(&device, Recover::Journal);
    // What it is released below is the end of what counts in it. What is void there goes with it.
    opened.log.release(&[(ZoneId(3), base + 1)]).expect("it is written");
    let bounds = bounds_after_crash(&device, Recover::Journal, 3);
    assert_eq!(bounds, ZoneBounds { floor: base + 3, top: 0, void: 0 });
    let opened = open(&device, Recover::Journal);
    opened.log.narrow(&[(ZoneId(4), 0, base + 2)]).expect("it is written");
    opened.log.flush(base + 8).expect("it is written");
    assert_eq!(
        bounds_after_crash(&device, Recover::Journal, 4).void,
        0,
        "the zone may have been written again"
    );
}

#[test]
fn as_many_zones_as_are_taken_leave_room_for_the_journal() {
    let zones = (3..2000)
        .take_while(|zones| holds_bounds(*zones, 16 << 12, NOTE_BYTES))
        .last()
        .expect("some are taken") as u32;
    assert!(error(&MemoryDevice::new(zones + 1, 16)).contains("too many"));
    let opened = open(&MemoryDevice::new(zones, 16), Recover::Journal);
    let log = &opened.log;
    let sequence = log.next_sequence().expect("some are reserved");
    (2..zones).for_each(|zone| log.written(ZoneId(zone), sequence));
    let bounds: Vec<_> = (2..zones).map(|zone| (ZoneId(zone), 0, sequence)).collect();
    log.narrow(&bounds).expect("all bounds fit");
    for range in 0..RangeFloors::ranges_for(16 << 12) as u64 {
        log.ranges().raise(range << 55, sequence);
    }
    while !log.wants_seal() {
        let record = log.add(sequence, 1, &[b'k'; 200]);
        assert_eq!((log.tend(), log.committed()), (Round::Wrote, record));
    }
    log.close(0).expect("it closes");
}
