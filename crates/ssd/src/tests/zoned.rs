//! The open-channel front end: as a device, and when power goes.

use crate::*;
use larder_flash::device::*;
use proptest::prelude::*;

fn profile() -> Profile {
    Profile { factory_bad_per_mille: 0, ..Profile::test_tiny() }
}

/// Pages that say where they belong.
fn pages(zone: u32, from: u64, count: u64) -> Vec<u8> {
    (from..from + count)
        .flat_map(|page| {
            let mut bytes = vec![(page % 251) as u8; PAGE_BYTES];
            bytes[..4].copy_from_slice(&zone.to_le_bytes());
            bytes[4..12].copy_from_slice(&page.to_le_bytes());
            bytes
        })
        .collect()
}

fn read(device: &dyn Device, zone: u32, page: u64) -> Result<Vec<u8>, DeviceError> {
    let mut buffer = PageBuffer::new(1);
    device.read(ZoneId(zone), page * PAGE_BYTES as u64, &mut buffer)?;
    Ok(buffer.to_vec())
}

#[test]
fn zones_are_stripes_or_blocks() {
    let ssd = SimSsd::new(profile(), 1);
    let geometry = ssd.device().geometry();
    assert_eq!((geometry.zones, geometry.zone_bytes, geometry.channels), (63, 2 << 20, 1));
    let layout = ZoneLayout { luns_per_zone: 1, cache_bytes: 0 };
    let device = SimSsd::with_layout(profile(), layout, 1).device();
    let geometry = device.geometry();
    assert_eq!((geometry.zones, geometry.zone_bytes, geometry.channels), (63 * 8, 256 << 10, 4));
    for zone in [0, 1, 63, 503] {
        device.append(ZoneId(zone), &pages(zone, 0, 64)).unwrap();
        assert_eq!(read(&*device, zone, 63).unwrap(), pages(zone, 63, 1));
    }
    assert!(matches!(device.report(ZoneId(504)), Err(DeviceError::State { .. })));
}

/// The word of the trait, page by page: what is appended in any sizes reads back, staged or programmed.
#[test]
fn appends_of_any_size_read_back() {
    let device = SimSsd::new(profile(), 1).device();
    let zone = ZoneId(5);
    let mut written = 0;
    for count in [1, 3, 4, 5, 30, 1, 100, 7, 361] {
        assert_eq!(device.append(zone, &pages(5, written, count)).unwrap(), written * PAGE_BYTES as u64);
        written += count;
        assert_eq!(read(&*device, 5, written - 1).unwrap(), pages(5, written - 1, 1));
    }
    assert_eq!(device.report(zone).unwrap().state, ZoneState::Full(2 << 20));
    assert_eq!(device.append(zone, &pages(5, 0, 1)), Err(DeviceError::Full(zone)));
    let mut all = PageBuffer::new(512);
    device.read(zone, 0, &mut all).unwrap();
    assert_eq!(*all, *pages(5, 0, 512));
    let counters = device.counters();
    assert_eq!(counters.media_bytes, Some(counters.append_bytes), "DLWA 1.00");
    device.reset(zone).unwrap();
    assert_eq!(device.report(zone).unwrap(), ZoneReport { state: ZoneState::Empty, resets: 1 });
    assert!(read(&*device, 5, 0).is_err());
}

#[test]
fn finish_pads_and_shuts() {
    let device = SimSsd::new(profile(), 1).device();
    device.append(ZoneId(0), &pages(0, 0, 5)).unwrap();
    device.finish(ZoneId(0)).unwrap();
    assert_eq!(device.report(ZoneId(0)).unwrap().state, ZoneState::Full(5 * 4096));
    assert!(matches!(device.append(ZoneId(0), &pages(0, 5, 1)), Err(DeviceError::State { .. })));
    assert_eq!(read(&*device, 0, 4).unwrap(), pages(0, 4, 1));
    assert!(matches!(read(&*device, 0, 5), Err(DeviceError::State { .. })));
    assert_eq!(device.counters().media_bytes, Some(8 * 4096));
}

#[test]
fn reads_in_a_queue_run_side_by_side() {
    let ssd = SimSsd::new(profile(), 1);
    let device = ssd.device();
    device.append(ZoneId(0), &pages(0, 0, 64)).unwrap();
    device.sync().unwrap();
    let mut queue = device.reads(8).unwrap();
    let began = ssd.now_ns();
    for token in 0..8 {
        queue.submit(token, ZoneId(0), token * 4 * 4096, PageBuffer::new(1)).unwrap();
    }
    assert!(queue.submit(8, ZoneId(0), 0, PageBuffer::new(1)).is_err(), "no room");
    queue.kick();
    let mut done = Vec::new();
    queue.reap(&mut done);
    assert_eq!((done.len(), queue.in_flight()), (8, 0));
    for done in done {
        assert_eq!((done.result, &*done.buffer), (Ok(()), &*pages(0, done.token * 4, 1)));
    }
    assert!(ssd.now_ns() - began < 2 * profile().times.read_ns, "eight dies");
    let began = ssd.now_ns();
    (0..8).for_each(|page| drop(read(&*device, 0, page * 4)));
    assert!(ssd.now_ns() - began > 8 * profile().times.read_ns, "one after another");
}

#[test]
fn a_failed_program_ends_the_zone_and_loses_nothing_older() {
    let ssd = SimSsd::new(profile(), 1);
    let device = ssd.device();
    device.append(ZoneId(0), &pages(0, 0, 6)).unwrap();
    ssd.inject(Fault::Program);
    assert!(matches!(device.append(ZoneId(0), &pages(0, 6, 4)), Err(DeviceError::Io { .. })));
    assert_eq!(device.report(ZoneId(0)).unwrap().state, ZoneState::Full(6 * 4096));
    assert!(device.append(ZoneId(0), &pages(0, 6, 1)).is_err());
    (0..6).for_each(|page| assert_eq!(read(&*device, 0, page).unwrap(), pages(0, page, 1)));
    device.reset(ZoneId(0)).unwrap();
    device.append(ZoneId(0), &pages(0, 0, 512)).unwrap();
    assert_eq!(read(&*device, 0, 511).unwrap(), pages(0, 511, 1));
    assert_eq!((ssd.wear().bad_blocks, device.counters().errors), (1, 2));
}

#[test]
fn worn_out_zones_go_offline_one_by_one() {
    let profile = Profile { erases_max: 3, ..profile() };
    let device = SimSsd::new(profile, 1).device();
    let some = pages(0, 0, 32);
    let mut offline = 0;
    for _ in 0..60 {
        for zone in 0..4 {
            let id = ZoneId(zone);
            if device.append(id, &some).is_err() || device.reset(id).is_err() {
                offline += (device.report(id).unwrap().state == ZoneState::Offline) as u32;
            }
        }
    }
    assert!(offline > 0, "nothing lasts");
    let left = (0..63).filter(|zone| device.report(ZoneId(*zone)).unwrap().state == ZoneState::Empty).count();
    assert!(left >= 59, "the others are untouched: {left}");
}

#[test]
fn without_power_everything_says_so() {
    let ssd = SimSsd::new(profile(), 1);
    let device = ssd.device();
    device.append(ZoneId(1), &pages(1, 0, 9)).unwrap();
    device.sync().unwrap();
    ssd.cut_power();
    assert!(!ssd.is_on());
    assert_eq!(device.append(ZoneId(1), &pages(1, 9, 1)), Err(DeviceError::Gone));
    assert_eq!(device.report(ZoneId(1)), Err(DeviceError::Gone));
    assert_eq!(read(&*device, 1, 0), Err(DeviceError::Gone));
    assert_eq!(device.finish(ZoneId(1)), Err(DeviceError::Gone));
    assert_eq!(device.reset(ZoneId(1)), Err(DeviceError::Gone));
    assert_eq!(device.sync(), Err(DeviceError::Gone));
    let mut queue = device.reads(1).unwrap();
    queue.submit(0, ZoneId(1), 0, PageBuffer::new(1)).unwrap();
    let mut done = Vec::new();
    queue.reap(&mut done);
    assert_eq!(done[0].result, Err(DeviceError::Gone));
    ssd.power_on();
    assert_eq!(device.report(ZoneId(1)).unwrap().state, ZoneState::Open(9 * 4096));
    device.append(ZoneId(1), &pages(1, 9, 1)).unwrap();
    (0..10).for_each(|page| assert_eq!(read(&*device, 1, page).unwrap(), pages(1, page, 1)));
}

/// What happens in a run: page counts to append to one of four zones, now and then a sync, finish or reset.
#[derive(Clone, Copy, Debug)]
enum Call {
    Append(u32, u64),
    Sync,
    Finish(u32),
    Reset(u32),
}

/// What a zone must show after a cut: the pages that were synced, and which may be there besides.
#[derive(Clone, Copy, Default)]
struct Model {
    written: u64,
    synced: u64,
    resetting: bool,
}

/// Runs the calls until one fails; returns what is known of the zones.
fn run(device: &dyn Device, calls: &[Call]) -> ([Model; 4], bool) {
    let mut zones = [Model::default(); 4];
    for call in calls {
        let result = match *call {
            Call::Append(zone, count) => {
                let at = zones[zone as usize].written;
                let result = device.append(ZoneId(zone), &pages(zone, at, count)).map(drop);
                if matches!(result, Ok(()) | Err(DeviceError::Gone)) {
                    zones[zone as usize].written += count;
                }
                result
            }
            Call::Sync => {
                device.sync().map(|()| zones.iter_mut().for_each(|zone| zone.synced = zone.written))
            }
            Call::Finish(zone) => device.finish(ZoneId(zone)),
            Call::Reset(zone) => {
                let result = device.reset(ZoneId(zone));
                match result {
                    Ok(()) => zones[zone as usize] = Model::default(),
                    _ => zones[zone as usize].resetting = true,
                }
                result
            }
        };
        if result == Err(DeviceError::Gone) {
            return (zones, true);
        }
    }
    (zones, false)
}

/// Checks a zone after power came back; says whether something was torn or lost.
fn check(device: &dyn Device, zone: u32, model: Model) -> Result<(bool, bool), TestCaseError> {
    let state = device.report(ZoneId(zone)).unwrap().state;
    let length = match state {
        ZoneState::Empty => 0,
        ZoneState::Open(bytes) | ZoneState::Full(bytes) => bytes / PAGE_BYTES as u64,
        ZoneState::Unknown => {
            prop_assert!(model.resetting);
            prop_assert!(device.append(ZoneId(zone), &pages(zone, 0, 1)).is_err());
            (0..model.written).for_each(|page| drop(read(device, zone, page)));
            return Ok((false, false));
        }
        ZoneState::Offline => return Err(TestCaseError::fail("offline")),
    };
    prop_assert!(
        model.synced <= length && length <= model.written,
        "{} {length} {}",
        model.synced,
        model.written
    );
    let mut torn = false;
    for page in 0..length {
        if read(device, zone, page).ok() != Some(pages(zone, page, 1)) {
            prop_assert!(page >= model.synced, "zone {zone}: synced page {page} of {}", model.synced);
            prop_assert_eq!(page, length - 1, "only the last page is torn");
            torn = true;
        }
    }
    if let ZoneState::Open(_) = state {
        let room = device.geometry().zone_bytes / PAGE_BYTES as u64 - length;
        device.append(ZoneId(zone), &pages(zone, length, room.min(9))).unwrap();
        prop_assert!(read(device, zone, length).unwrap() == pages(zone, length, 1));
    }
    Ok((torn, length < model.written))
}

#[test]
fn power_cut_at_every_operation() {
    let calls = [
        Call::Append(0, 9),
        Call::Append(1, 40),
        Call::Sync,
        Call::Append(0, 3),
        Call::Append(1, 1),
        Call::Append(2, 130),
        Call::Finish(1),
        Call::Append(2, 2),
        Call::Sync,
        Call::Reset(1),
        Call::Append(1, 33),
        Call::Append(3, 6),
        Call::Finish(3),
        Call::Reset(0),
        Call::Append(2, 20),
    ];
    let whole = SimSsd::new(profile(), 0);
    run(&*whole.device(), &calls);
    let (mut torn, mut lost, mut unknown) = (0, 0, 0);
    for cut in 0..whole.operations() {
        let ssd = SimSsd::new(profile(), cut);
        let device = ssd.device();
        ssd.cut_power_after(cut);
        let (zones, was_cut) = run(&*device, &calls);
        assert!(was_cut && !ssd.is_on());
        ssd.power_on();
        assert_eq!(ssd.operations(), cut);
        for (zone, model) in zones.into_iter().enumerate() {
            let state = device.report(ZoneId(zone as u32)).unwrap().state;
            unknown += (state == ZoneState::Unknown) as u32;
            let found = check(&*device, zone as u32, model).unwrap();
            (torn, lost) = (torn + found.0 as u32, lost + found.1 as u32);
            device.reset(ZoneId(zone as u32)).unwrap();
            device.append(ZoneId(zone as u32), &pages(zone as u32, 0, 5)).unwrap();
        }
    }
    assert!(torn > 20 && lost > 50 && unknown > 5, "{torn} torn, {lost} lost, {unknown} unknown");
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = prop_oneof![
        6 => (0..4u32, 1..70u64).prop_map(|(zone, count)| Call::Append(zone, count)),
        2 => Just(Call::Sync),
        1 => (0..4u32).prop_map(Call::Finish),
        1 => (0..4u32).prop_map(Call::Reset),
    ];
    prop::collection::vec(call, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_calls_any_cut(calls in calls(), cut in 0..3000u64, seed: u64, single: bool, cache in 0..(1u64 << 18)) {
        let wide = if single { 1 } else { 8 };
        let ssd = SimSsd::with_layout(profile(), ZoneLayout { luns_per_zone: wide, cache_bytes: cache }, seed);
        let device = ssd.device();
        ssd.cut_power_after(cut);
        let (zones, was_cut) = run(&*device, &calls);
        if !was_cut {
            ssd.cut_power();
        }
        ssd.power_on();
        for (zone, model) in zones.into_iter().enumerate() {
            check(&*device, zone as u32, model)?;
        }
    }
}
