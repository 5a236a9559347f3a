//! The FTL baseline: what comes back, and what it costs, beside known curves.

use crate::Rng;
use crate::*;
use larder_flash::device::*;
use proptest::prelude::*;

fn profile(blocks: u32) -> Profile {
    Profile { factory_bad_per_mille: 0, blocks, keeps_contents: false, ..Profile::test_tiny() }
}

fn options(over_provisioning_percent: f64) -> FtlOptions {
    FtlOptions { over_provisioning_percent, ..FtlOptions::default() }
}

/// DLWA of the writes after the first `warm` times the span, of `times` times the span more.
fn dlwa(ftl: &mut Ftl, warm: u32, times: u32, mut next: impl FnMut(&mut Ftl) -> (u32, u32)) -> f64 {
    let zeros = vec![0; LBA_BYTES * 64];
    let span = ftl.lbas() as u64 * LBA_BYTES as u64;
    let mut before = ftl.counters();
    for times in [warm, times] {
        before = ftl.counters();
        let until = before.host_bytes + span * times as u64;
        while ftl.counters().host_bytes < until {
            let (lba, count) = next(ftl);
            // One after another: a drive that is asked for everything at once has long queues to keep books of.
            let now = ftl.nand().idle_at_ns();
            ftl.write(now, lba, &zeros[..count as usize * LBA_BYTES]).unwrap();
        }
    }
    ftl.check();
    let after = ftl.counters();
    (after.media_bytes - before.media_bytes) as f64 / (after.host_bytes - before.host_bytes) as f64
}

/// Every logical block once.
fn fill(ftl: &mut Ftl) {
    dlwa(ftl, 0, 1, sequential());
}

fn sequential() -> impl FnMut(&mut Ftl) -> (u32, u32) {
    let mut lba = 0;
    move |ftl| {
        let count = (ftl.lbas() - lba).min(64);
        let from = lba;
        lba = (lba + count) % ftl.lbas();
        (from, count)
    }
}

fn uniform(seed: u64) -> impl FnMut(&mut Ftl) -> (u32, u32) {
    let mut rng = Rng::new(seed);
    move |ftl| (rng.below(ftl.lbas() as u64) as u32, 1)
}

/// Write amplification of greedy collection under uniform random writes, for large blocks: Xiang and Kurkoski, "An
/// improved analytic expression for write amplification in NAND flash" (ICNC 2012); the same as Desnoyers, "Analytic
/// modeling of SSD write performance" (SYSTOR 2012), has for FIFO, which greedy becomes as blocks grow. With a =
/// physical space in use / logical space and u = part of a victim that is valid: u = exp(-a (1 - u)), and A = 1 / (1
/// - u) = a / (a + W(-a e^-a)).
fn greedy_curve(a: f64) -> f64 {
    let mut u = 0.0f64;
    (0..10_000).for_each(|_| u = (-a * (1.0 - u)).exp());
    1.0 / (1.0 - u)
}

#[test]
fn the_curve_is_the_published_one() {
    // Solved by hand; the last of them a drive that hides half of itself.
    for (a, is) in [(1.07, 7.817), (1.28, 2.481), (2.0, 1.255)] {
        assert!((greedy_curve(a) / is - 1.0).abs() < 0.001, "{a}: {}", greedy_curve(a));
    }
}

#[test]
fn sequential_overwrite_costs_nothing() {
    for op in [7.0, 28.0] {
        let mut ftl = Ftl::new(profile(128), options(op), 1);
        let dlwa = dlwa(&mut ftl, 2, 3, sequential());
        assert!((0.999..1.001).contains(&dlwa), "{op} %: {dlwa}");
        assert_eq!(ftl.counters().copied_bytes, 0);
    }
}

#[test]
fn uniform_random_writes_cost_what_greedy_costs() {
    for op in [7.0, 28.0] {
        let profile = profile(256);
        let mut ftl = Ftl::new(profile.clone(), options(op), 1);
        fill(&mut ftl);
        let found = dlwa(&mut ftl, 3, 2, uniform(7));
        // Out of use at any time: the erased line that is held ready, and half of each of the two that are being
        // written.
        let lines = profile.blocks as f64 - 2.0;
        let a = lines * 512.0 / ftl.lbas() as f64;
        let is = greedy_curve(a);
        assert!((found / is - 1.0).abs() < 0.05, "{op} %: {found} beside {is} (a = {a})");
    }
}

/// The direction that FDP-CacheLib (EuroSys'25) reports: a drive that is half used costs little, a full one much.
#[test]
fn sequential_and_random_together_cost_more_the_fuller_the_drive() {
    let mixed = |used: f64| {
        let mut rng = Rng::new(3);
        let mut zone = 0;
        let mut ftl = Ftl::new(profile(128), options(7.0), 1);
        let span = (ftl.lbas() as f64 * used) as u32;
        // An eighth of the space is small random writes, the rest a ring of 256-KiB segments; half the bytes go to
        // each.
        let small = span / 8;
        let mut turn = 0;
        dlwa(&mut ftl, 3, 3, move |_| {
            turn += 1;
            if turn % 65 != 0 {
                return (rng.below(small as u64) as u32, 1);
            }
            zone = (zone + 64) % (span - small - 64);
            (small + zone, 64)
        })
    };
    let (half, full) = (mixed(0.5), mixed(1.0));
    assert!(half < 1.5 && full > half + 0.7, "{half} half used, {full} full");
}

#[test]
fn trim_makes_room() {
    let mut ftl = Ftl::new(profile(64), options(7.0), 1);
    fill(&mut ftl);
    let half = ftl.lbas() / 2;
    ftl.trim(half, half).unwrap();
    assert!(ftl.is_mapped(0) && !ftl.is_mapped(half));
    let mut rng = Rng::new(1);
    let found = dlwa(&mut ftl, 4, 4, |_| (rng.below(half as u64) as u32, 1));
    assert!(found < 1.3, "as much over-provisioned as used: {found}");
}

#[test]
fn levelling_moves_what_lies_still() {
    let wear = |level_wear_at| {
        let options = FtlOptions { level_wear_at, ..options(28.0) };
        let mut ftl = Ftl::new(profile(64), options, 1);
        fill(&mut ftl);
        let mut rng = Rng::new(1);
        let hot = ftl.lbas() / 10;
        dlwa(&mut ftl, 0, 20, |_| (rng.below(hot as u64) as u32, 1));
        (ftl.wear(), ftl.counters())
    };
    let (off, counters) = wear(None);
    assert_eq!((off.min, counters.levelled), (0, 0));
    let (on, counters) = wear(Some(10));
    assert!(on.max - on.min <= 15 && on.gini < off.gini / 3.0 && counters.levelled > 0, "{on:?} {off:?}");
}

#[test]
fn nobody_writes_for_ever() {
    let profile = Profile { erases_max: 5, factory_bad_per_mille: 20, ..profile(32) };
    let mut ftl = Ftl::new(profile, options(28.0), 5);
    let zeros = vec![0; LBA_BYTES];
    let mut rng = Rng::new(1);
    let error = loop {
        let lba = rng.below(ftl.lbas() as u64) as u32;
        let now = ftl.nand().idle_at_ns();
        if let Err(error) = ftl.write(now, lba, &zeros) {
            break error;
        }
    };
    assert_eq!(error, FtlError::WornOut);
    assert!(ftl.wear().bad_blocks > 10);
    assert_eq!(ftl.read(0, ftl.lbas(), &mut [0; LBA_BYTES]), Err(FtlError::Range(ftl.lbas())));
}

#[derive(Clone, Debug)]
enum Call {
    Write(u32, u8),
    Trim(u32, u32),
    FailProgram,
    FailErase,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    /// The slow twin is a list of bytes.
    #[test]
    fn what_was_written_last_is_read(calls in prop::collection::vec(prop_oneof![
        40 => (0..700u32, any::<u8>()).prop_map(|(lba, fill)| Call::Write(lba, fill)),
        1 => (0..700u32, 0..50u32).prop_map(|(lba, count)| Call::Trim(lba, count)),
        1 => Just(Call::FailProgram),
        1 => Just(Call::FailErase),
    ], 0..4000), seed: u64) {
        let profile = Profile {
            blocks: 16, pages: 16, keeps_contents: true, factory_bad_per_mille: 20, ..Profile::test_tiny()
        };
        let mut ftl = Ftl::new(profile, options(80.0), seed);
        let mut twin = vec![0u8; ftl.lbas() as usize];
        let mut faults = 0;
        for call in calls {
            match call {
                Call::Write(lba, fill) => {
                    let now = ftl.nand().idle_at_ns();
                    ftl.write(now, lba, &[fill; LBA_BYTES]).unwrap();
                    twin[lba as usize] = fill;
                }
                Call::Trim(lba, count) => {
                    ftl.trim(lba, count).unwrap();
                    twin[lba as usize..(lba + count) as usize].fill(0);
                }
                // No more of them than blocks can be spared.
                _ if faults >= 8 => {}
                Call::FailProgram => { ftl.nand_mut().inject(Fault::Program); faults += 1 }
                Call::FailErase => { ftl.nand_mut().inject(Fault::Erase); faults += 1 }
            }
        }
        ftl.check();
        let mut block = [0; LBA_BYTES];
        for (lba, fill) in twin.iter().enumerate() {
            ftl.read(0, lba as u32, &mut block).unwrap();
            prop_assert!(block == [*fill; LBA_BYTES], "block {lba}");
        }
    }
}

#[test]
fn zones_on_an_ftl_are_a_device() {
    let profile = Profile { keeps_contents: true, ..profile(64) };
    let ssd = FtlSsd::new(profile, options(7.0), 1 << 20, 1);
    let device = ssd.device();
    let geometry = device.geometry();
    assert_eq!((geometry.zones, geometry.zone_bytes), (119, 1 << 20));
    let page = |fill: u8| vec![fill; PAGE_BYTES];
    let zone = ZoneId(118);
    assert_eq!(device.append(zone, &page(1)).unwrap(), 0);
    assert_eq!(device.append(zone, &page(2)).unwrap(), 4096);
    assert_eq!(device.report(zone).unwrap().state, ZoneState::Open(8192));
    let mut buffer = PageBuffer::new(1);
    device.read(zone, 4096, &mut buffer).unwrap();
    assert_eq!(*buffer, *page(2));
    assert!(device.read(zone, 8192, &mut buffer).is_err());
    device.finish(zone).unwrap();
    assert!(matches!(device.append(zone, &page(3)), Err(DeviceError::State { .. })));
    ssd.reopen();
    assert_eq!(device.report(zone).unwrap().state, ZoneState::Unknown);
    assert_eq!(device.report(ZoneId(0)).unwrap().state, ZoneState::Empty);
    device.read(zone, 4096, &mut buffer).unwrap();
    assert!(device.append(zone, &page(3)).is_err());
    device.reset(zone).unwrap();
    device.append(zone, &page(3).repeat(256)).unwrap();
    assert_eq!(device.append(zone, &page(3)), Err(DeviceError::Full(zone)));
    assert!(ssd.now_ns() > 0);
    assert_eq!(device.counters().errors, 4);
}

/// The bar for the cache: zones written whole and erased whole cost nothing on an ordinary drive.
#[test]
fn whole_zones_cost_nothing_on_an_ftl() {
    let ssd = FtlSsd::new(profile(64), options(7.0), 2 << 20, 1);
    let device = ssd.device();
    let zone = vec![0; 2 << 20];
    for round in 0..6 {
        for id in 0..device.geometry().zones {
            if round > 0 {
                device.reset(ZoneId(id)).unwrap();
            }
            device.append(ZoneId(id), &zone).unwrap();
        }
    }
    let counters = device.counters();
    let dlwa = counters.media_bytes.unwrap() as f64 / counters.append_bytes as f64;
    assert!((0.999..1.001).contains(&dlwa), "{dlwa}");
}

#[test]
fn only_a_trim_tells_the_drive_that_a_zone_holds_nothing() {
    for trims in [true, false] {
        let ssd = FtlSsd::new(profile(64), options(7.0), 2 << 20, 1);
        ssd.set_trims(trims);
        let device = ssd.device();
        device.append(ZoneId(3), &vec![1; 2 << 20]).unwrap();
        device.reset(ZoneId(3)).unwrap();
        assert_eq!(device.report(ZoneId(3)).unwrap().state, ZoneState::Empty);
        device.append(ZoneId(3), &vec![2; 4096]).unwrap();
        device.reset(ZoneId(3)).unwrap();
        ssd.reopen();
        let known = if trims { ZoneState::Empty } else { ZoneState::Unknown };
        assert_eq!(device.report(ZoneId(3)).unwrap().state, known, "trims: {trims}");
    }
}
