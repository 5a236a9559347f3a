use super::*;
use crate::meta::{MetaLog, MetaOptions};
use crate::options::Recover;
use crate::record::Record;
use crate::segment::Writer;

use crate::test_devices::{CutDevice, Dice, Flavour, MemoryDevice};

fn open(device: &(impl Device + Clone + 'static), recover: Recover) -> Opened {
    let options = MetaOptions { seed: 1, recover, format: false };
    MetaLog::open(Arc::new(device.clone()), options).expect("it opens")
}

fn write(device: &dyn Device, opened: &Opened, of: (Kind, u64), at: (u32, u32), hashes: &[i64]) -> u32 {
    try_write(device, opened, of, at, hashes).expect("it is written")
}

/// A segment whose records have these hashes; those below zero supersede an extent. Returns the page behind it.
fn try_write(
    device: &dyn Device,
    opened: &Opened,
    (kind, sequence): (Kind, u64),
    (zone, first_page): (u32, u32),
    hashes: &[i64],
) -> Result<u32, DeviceError> {
    let head = Head {
        kind,
        sequence,
        // The log segments here fill until the second one after them is begun.
        sealed_sequence: sequence + if kind == Kind::Log { 3 } else { 1 },
        device_uuid: opened.superblock.uuid,
        cas_base: 0,
        generation: 0,
        first_hash: 0,
        last_hash: u64::MAX,
        begun_unix_s: 0,
    };
    let mut writer = Writer::begin(device, ZoneId(zone), first_page, head, 4, hashes.len() as u32, false);
    let mut hashes = hashes.to_vec();
    hashes.sort_unstable_by_key(|hash| hash.unsigned_abs());
    for hash in hashes {
        let key = hash.to_le_bytes();
        let value = [5; 700];
        let record = Record { tombstone: false, value: &value, ..Record::tombstone(&key, hash < 0) };
        writer.push(hash.unsigned_abs(), &record)?;
    }
    Ok(first_page + writer.finish()?.pages)
}

/// What a recovery hands over, in order.
#[derive(Default)]
struct Taken {
    segments: Vec<(Kind, u64)>,
    zones: Vec<ZoneId>,
    extents: Vec<(u64, u64)>,
    lost: Vec<u64>,
    dead: usize,
}

impl Sink for Taken {
    fn add_segment(&mut self, facts: SegmentSummary, dead: Vec<u64>) -> bool {
        self.dead += dead.len();
        self.segments.push((facts.head.kind, facts.head.sequence));
        self.zones.push(facts.zone);
        self.extents.extend(facts.extents.iter().map(|extent| (facts.head.sequence, extent.hash)));
        true
    }

    fn lost_segment(&mut self, _zone: ZoneId, sequence: u64) {
        self.lost.push(sequence);
    }
}

fn recover(device: &(impl Device + Clone + 'static), opened: &Opened) -> Taken {
    let mut recovery = Recovery::begin(Arc::new(device.clone()), opened).expect("it begins");
    let mut taken = Taken::default();
    let mut left = recovery.left().count();
    while let Progress::Left(now) = recovery.step(&mut taken).expect("the device is there") {
        left -= 1;
        assert_eq!(now, left);
    }
    taken
}

#[test]
fn log_before_generations_before_extents_and_each_newest_first() {
    for flavour in [Flavour::Zoned, Flavour::Punched, Flavour::NeverErased] {
        let device = CutDevice::new(flavour, 6, 32);
        let opened = open(&device, Recover::Journal);
        for zone in 2..6 {
            device.reset(ZoneId(zone)).expect("it is erased");
        }
        let base = opened.next_sequence;
        let mut page = 0;
        for (n, hashes) in [(0, vec![1; 3]), (3, vec![1; 20]), (7, vec![9; 1])] {
            page = write(&device, &opened, (Kind::Log, base + n), (2, page), &hashes);
        }
        let page = write(&device, &opened, (Kind::Generation, base + 8), (3, 0), &[4, 5]);
        write(&device, &opened, (Kind::Generation, base + 9), (3, page), &[6, 7]);
        write(&device, &opened, (Kind::Extents, base + 2), (4, 0), &[40, 41]);
        write(&device, &opened, (Kind::Log, base + 5), (5, 0), &[2]);
        let uuid = opened.superblock.uuid;
        drop(opened);
        device.sync().expect("it is there");
        device.power_on(None);
        let opened = open(&device, Recover::Journal);
        assert_eq!(opened.superblock.uuid, uuid);
        let taken = recover(&device, &opened);
        let order: Vec<(Kind, u64)> = taken.segments.iter().map(|(kind, of)| (*kind, of - base)).collect();
        let (log, generation) = (Kind::Log, Kind::Generation);
        let expected =
            [(log, 7), (log, 5), (log, 3), (log, 0), (generation, 9), (generation, 8), (Kind::Extents, 2)];
        assert_eq!(order, expected, "{flavour:?}");
        assert_eq!(taken.extents, [(base + 2, 40), (base + 2, 41)]);
    }
}

#[test]
fn floors_formats_and_torn_segments_do_not_exist() {
    let device = CutDevice::new(Flavour::NeverErased, 8, 16);
    let opened = open(&device, Recover::Journal);
    for zone in 2..8 {
        device.reset(ZoneId(zone)).expect("it is erased");
    }
    let base = opened.next_sequence;
    write(&device, &opened, (Kind::Log, base), (2, 0), &[1]);
    write(&device, &opened, (Kind::Log, base + 10), (3, 0), &[2]);
    write(&device, &opened, (Kind::Log, base + 11), (4, 0), &[3]);
    write(&device, &opened, (Kind::Log, base + 12), (5, 0), &(1..20).collect::<Vec<i64>>());
    let page = write(&device, &opened, (Kind::Log, base + 13), (6, 0), &[3]);
    write(&device, &opened, (Kind::Log, base + 14), (6, page), &[3]);
    // Of a session that has not begun.
    write(&device, &opened, (Kind::Log, base + (1 << 40)), (7, 0), &[3]);
    opened.log.release(&[(ZoneId(3), base + 11)]).expect("it is written");
    opened.log.flush(base + 5).expect("it is written");
    device.damage(ZoneId(5), 5);
    device.damage(ZoneId(6), page as u64 - 1);
    drop(opened);
    device.power_on(None);
    let opened = open(&device, Recover::Journal);
    let taken = recover(&device, &opened);
    // What lies behind a segment whose end cannot be found is not found either.
    assert_eq!(taken.segments, [(Kind::Log, base + 11)]);
    assert_eq!(taken.lost, [base + 13, base + 12]);
    drop(opened);
    // A new format does not find the old one's.
    let options = MetaOptions { seed: 1, recover: Recover::BestEffort, format: true };
    let opened = MetaLog::open(Arc::new(device.clone()), options).expect("it is formatted");
    assert!(recover(&device, &opened).segments.is_empty());
}

#[test]
fn of_two_copies_one_is_taken() {
    for (void, durable, expected) in [(false, false, 1), (false, true, 0), (true, false, 0)] {
        let device = CutDevice::new(Flavour::Zoned, 6, 32);
        let opened = open(&device, Recover::Journal);
        let base = opened.next_sequence;
        let page = write(&device, &opened, (Kind::Log, base), (2, 0), &[1]);
        // Writing it failed after its last page, so it was written again. Meanwhile a record was replaced.
        write(&device, &opened, (Kind::Log, base + 1), (2, page), &[2, 3]);
        write(&device, &opened, (Kind::Log, base + 1), (3, 0), &[2]);
        if void {
            opened.log.narrow(&[(ZoneId(2), 0, base + 1)]).expect("it is written");
        }
        if durable {
            opened.log.written(ZoneId(3), base + 1);
            opened.log.release(&[(ZoneId(4), base)]).expect("it is written");
        }
        drop(opened);
        device.sync().expect("it is there");
        device.power_on(None);
        let opened = open(&device, Recover::Journal);
        let taken = recover(&device, &opened);
        assert_eq!(taken.segments, [(Kind::Log, base + 1), (Kind::Log, base)], "{void} {durable}");
        // A copy that is not known to be void is told of, so that the next start does not find it.
        assert_eq!(taken.lost.len(), usize::from(!void), "{void} {durable}");
        let from = taken.zones.iter().position(|zone| *zone == ZoneId(2));
        assert_eq!(from == Some(0), expected == 1, "{void} {durable}");
    }
}

#[test]
fn what_an_earlier_round_left_behind_the_end_of_a_zone_is_not_followed() {
    let device = CutDevice::new(Flavour::NeverErased, 4, 32);
    let opened = open(&device, Recover::BestEffort);
    let base = opened.next_sequence;
    device.reset(ZoneId(2)).expect("it is erased");
    let page = write(&device, &opened, (Kind::Log, base), (2, 0), &[1]);
    write(&device, &opened, (Kind::Log, base + 1), (2, page), &[2]);
    device.reset(ZoneId(2)).expect("it is erased");
    assert_eq!(write(&device, &opened, (Kind::Log, base + 2), (2, 0), &[3]), page);
    drop(opened);
    device.power_on(None);
    let taken = recover(&device, &open(&device, Recover::BestEffort));
    assert_eq!(taken.segments, [(Kind::Log, base + 2)]);
}

#[test]
fn an_extent_is_dropped_if_anything_later_may_have_replaced_it() {
    let device = MemoryDevice::new(9, 32);
    let opened = open(&device, Recover::Journal);
    let base = opened.next_sequence;
    // Older than the extents for certain; open when they were begun; newer; a generation, older and newer; other
    // extents.
    write(&device, &opened, (Kind::Log, base + 1), (2, 0), &[-1]);
    write(&device, &opened, (Kind::Log, base + 3), (3, 0), &[-2, 3]);
    write(&device, &opened, (Kind::Extents, base + 5), (4, 0), &[1, 2, 3, 4, 5, 6, 7, 8]);
    write(&device, &opened, (Kind::Log, base + 6), (5, 0), &[-4]);
    write(&device, &opened, (Kind::Generation, base + 4), (6, 0), &[-5]);
    write(&device, &opened, (Kind::Generation, base + 7), (7, 0), &[-6]);
    write(&device, &opened, (Kind::Extents, base + 8), (8, 0), &[-7]);
    drop(opened);
    let opened = open(&device, Recover::Journal);
    let taken = recover(&device, &opened);
    let kept: Vec<(u64, u64)> = taken.extents.iter().map(|(of, hash)| (of - base, *hash)).collect();
    assert_eq!(kept, [(8, 7), (5, 1), (5, 3), (5, 5), (5, 8)]);
}

#[test]
fn what_was_synced_survives_any_cut_and_nothing_half_written_does() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let flavour = [Flavour::Zoned, Flavour::Punched, Flavour::NeverErased][seed as usize % 3];
        let device = CutDevice::new(flavour, 5, 24);
        let mut durable: [Vec<u64>; 5] = Default::default();
        for _ in 0..4 {
            let opened = open(&device, Recover::Journal);
            let taken = recover(&device, &opened);
            let found: Vec<u64> = taken.segments.iter().map(|(_, sequence)| *sequence).collect();
            for sequence in durable.iter().flatten() {
                assert!(found.contains(sequence), "seed {seed}: {sequence} was synced");
            }
            device.cut_after(dice.below(60));
            let zone = 2 + dice.below(3) as u32;
            durable[zone as usize].clear();
            let floor = opened.log.next_sequence().expect("reserved");
            let released = opened.log.release(&[(ZoneId(zone), floor)]);
            if released.is_ok() && device.reset(ZoneId(zone)).is_ok() {
                rewrite(&device, &opened, zone, &mut dice, &mut durable[zone as usize]);
            }
            device.power_on(Some(&mut dice));
        }
    }
}

/// Fills a zone with segments until it is full or the power goes; says which of them are durable.
fn rewrite(device: &CutDevice, opened: &Opened, zone: u32, dice: &mut Dice, durable: &mut Vec<u64>) {
    let (mut page, mut written) = (0, Vec::new());
    while page < 16 {
        let sequence = opened.log.next_sequence().expect("reserved");
        let hashes: Vec<i64> = (1..2 + dice.below(20) as i64).map(|n| n * 977).collect();
        match try_write(device, opened, (Kind::Log, sequence), (zone, page), &hashes) {
            Ok(end) => page = end,
            Err(_) => return,
        }
        written.push(sequence);
        if dice.chance(50) && device.sync().is_ok() {
            durable.append(&mut written);
        }
    }
}

/// Four log segments, a generation and extents, of which `damage` damages something that was durable.
fn after_damage(damage: impl Fn(&CutDevice, u64)) -> Vec<u64> {
    let device = CutDevice::new(Flavour::Zoned, 8, 16);
    let opened = open(&device, Recover::Journal);
    let base = opened.next_sequence;
    let (log, generation, extents) = (Kind::Log, Kind::Generation, Kind::Extents);
    let mut end = 0;
    for (n, kind, zone) in [
        (0, extents, 2),
        (1, log, 3),
        (2, log, 4),
        (3, log, 4),
        (4, extents, 5),
        (5, log, 6),
        (6, generation, 7),
    ] {
        while opened.log.next_sequence().expect("reserved") < base + n {}
        let page = if n == 3 { end } else { 0 };
        end = write(&device, &opened, (kind, base + n), (zone, page), &(1..9).collect::<Vec<i64>>());
        device.sync().expect("it is durable");
        opened.log.written(ZoneId(zone), base + n);
    }
    opened.log.close(0).expect("it closes");
    drop(opened);
    damage(&device, end as u64);
    device.power_on(None);
    let taken = recover(&device, &open(&device, Recover::Clean));
    taken.segments.iter().map(|(_, sequence)| sequence - base).collect()
}

#[test]
fn everything_older_than_damage_is_dropped() {
    assert_eq!(after_damage(|_, _| ()), [5, 3, 2, 1, 6, 4, 0]);
    // A page of data says nothing of the segment: its checksum is looked at when it is read.
    assert_eq!(after_damage(|device, _| device.damage(ZoneId(4), 1)), [5, 3, 2, 1, 6, 4, 0]);
    // A foot, and a head.
    let last = |device: &CutDevice, zone| {
        let pages = device.report(ZoneId(zone)).expect("it is there").state;
        let ZoneState::Open(bytes) = pages else { panic!("it was written") };
        device.damage(ZoneId(zone), bytes / PAGE_BYTES as u64 - 1);
    };
    assert_eq!(after_damage(|device, _| last(device, 4)), [5]);
    assert_eq!(after_damage(|device, _| last(device, 3)), [5, 3, 2]);
    assert_eq!(after_damage(|device, _| device.damage(ZoneId(3), 0)), [5, 3, 2]);
    assert_eq!(after_damage(|device, _| last(device, 6)), [0u64; 0]);
    assert_eq!(after_damage(|device, _| last(device, 5)), [5, 3, 2, 1, 6]);
    // What said that some extents are superseded may have been in the generation.
    assert_eq!(after_damage(|device, _| last(device, 7)), [5, 3, 2, 1]);
}

/// How long a restart takes, without a bar: run it by name, in a release build.
#[test]
#[ignore = "takes a gigabyte of memory"]
fn time_of_a_restart() {
    use crate::log_table::LogTable;
    struct Table(LogTable, u16, u64);
    impl Sink for Table {
        fn add_segment(&mut self, facts: SegmentSummary, _: Vec<u64>) -> bool {
            self.1 += 1;
            facts.hashes.iter().for_each(|hash| self.2 += self.0.insert(hash, self.1).is_ok() as u64);
            true
        }

        fn lost_segment(&mut self, _: ZoneId, _: u64) {}
    }
    const ZONES: u32 = 30;
    let device = MemoryDevice::new(2 + ZONES, 8192);
    let opened = open(&device, Recover::Journal);
    for zone in 2..2 + ZONES {
        let sequence = opened.log.next_sequence().expect("reserved");
        let head = Head {
            kind: Kind::Log,
            sequence,
            sealed_sequence: sequence + 1,
            device_uuid: opened.superblock.uuid,
            cas_base: 0,
            generation: 0,
            first_hash: 0,
            last_hash: u64::MAX,
            begun_unix_s: 0,
        };
        let mut hashes: Vec<u64> = (0..31_000).map(|n| crate::record::mix(n << 20 | zone as u64)).collect();
        hashes.sort_unstable();
        let mut writer = Writer::begin(&device, ZoneId(zone), 0, head, 64, 31_000, false);
        let value = [9; 1000];
        for hash in hashes {
            let key = hash.to_le_bytes();
            let record = Record { tombstone: false, value: &value, ..Record::tombstone(&key, false) };
            writer.push(hash, &record).expect("it is written");
        }
        writer.finish().expect("it is written");
    }
    drop(opened);
    let begun = std::time::Instant::now();
    let opened = open(&device, Recover::Journal);
    let mut recovery = Recovery::begin(Arc::new(device.clone()), &opened).expect("it begins");
    let begin = begun.elapsed();
    let mut table = Table(LogTable::new(8 << 20, 255), 0, 0);
    while recovery.step(&mut table).expect("it goes on") != Progress::Done {}
    println!("{} items of 1 KB: heads after {begin:?}, all after {:?}", table.2, begun.elapsed());
}
