//! Several devices as one: they keep the contract of a device, and one that is torn away takes only its own zones with
//! it. Whatever is found meanwhile and after any restart is right, and what was replaced or deleted never comes back.

use crate::support::folder;
use crate::support::history::{History, Setup, Tally};
use larder_flash::device::{
    Device, DeviceError, DeviceOptions, OpenError, ReadsBy, ZoneId, ZoneState, open_reading_by, together,
};
use larder_flash::space::Watermarks;
use larder_flash::{Begun, Flash, FlashItem, FlashOptions, Put, Recover};
use larder_item::KeyHasher;
use larder_laboratory::ssd::{Profile, SimSsd};
use larder_laboratory::{
    AppendFault, CutDevice, Dice, FaultyDevice, Flavour, MemoryDevice, contract, pages, readable,
};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn set(members: Vec<Arc<dyn Device>>) -> Arc<dyn Device> {
    together(members, false).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn sets_of_memory_keep_the_contract() {
    contract::check(|| set(vec![Arc::new(MemoryDevice::new(5, 64)), Arc::new(MemoryDevice::new(5, 64))]));
    let members = [5, 9, 3].map(|zones| MemoryDevice::new(zones, 64));
    contract::check_keeping(|| {
        set(members.iter().map(|member| Arc::new(member.clone()) as Arc<dyn Device>).collect())
    });
}

#[test]
fn sets_of_files_keep_the_contract() {
    for reads in [ReadsBy::Auto, ReadsBy::Threads] {
        let folder = folder();
        contract::check_keeping(|| {
            let open = |(name, zones): (&str, u64)| {
                let options = DeviceOptions {
                    bytes: Some(zones * MIB),
                    zone_bytes: Some(MIB),
                    ..DeviceOptions::default()
                };
                open_reading_by(&folder.path().join(name), &options, reads).expect("a file")
            };
            set([("one", 8), ("other", 8), ("long", 15)].map(open).into())
        });
    }
}

#[test]
fn sets_of_faulty_and_simulated_devices_keep_the_contract() {
    contract::check(|| {
        let ssd = SimSsd::new(Profile { blocks: 12, ..Profile::test_tiny() }, 1).device();
        let zone_pages = ssd.geometry().zone_bytes / 4096;
        set(vec![ssd, Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(12, zone_pages))))])
    });
}

/// Two devices of memory that fail on request, and the set of them.
fn faulty() -> ([FaultyDevice; 2], Arc<dyn Device>) {
    let members = [(); 2].map(|()| FaultyDevice::new(Arc::new(MemoryDevice::new(40, 64))));
    let all = members.iter().map(|member| Arc::new(member.clone()) as Arc<dyn Device>);
    let set = set(all.collect());
    (members, set)
}

fn is_refused<T>(result: &Result<T, DeviceError>) -> bool {
    matches!(result, Err(DeviceError::State { what: "its device has failed", .. }))
}

#[test]
fn a_device_that_is_gone_takes_its_zones_only() {
    let ([_, second], set) = faulty();
    let mut queue = set.reads(4).expect("a queue");
    for zone in 0..4 {
        set.append(ZoneId(zone), &pages(2, zone.into())).expect("an append");
    }
    second.set_gone(true);
    assert!(is_refused(&set.append(ZoneId(1), &pages(1, 1))));
    assert!(set.members()[1].has_failed && !set.members()[0].has_failed);
    // It stays like that, whatever the device does now.
    second.set_gone(false);
    assert!(is_refused(&set.append(ZoneId(3), &pages(1, 1))) && is_refused(&set.reset(ZoneId(1))));
    assert_eq!(set.report(ZoneId(1)).map(|report| report.state), Ok(ZoneState::Offline));
    for zone in 0..4 {
        queue.submit(zone.into(), ZoneId(zone), 0, larder_flash::device::PageBuffer::new(1)).expect("room");
    }
    queue.kick();
    let mut done = Vec::new();
    while done.len() < 4 {
        assert!(readable(&*queue, true));
        queue.reap(&mut done);
    }
    for read in done {
        assert_eq!(is_refused(&read.result), read.token % 2 == 1, "zone {}", read.token);
        assert_eq!(read.result.is_ok(), read.token % 2 == 0, "zone {}", read.token);
    }
    set.append(ZoneId(0), &pages(1, 1)).expect("the other one works");
    set.sync().expect("the other one works");
    set.reads(4).expect("a queue is made without it");
}

#[test]
fn failures_in_a_row_are_a_failure_for_good_and_one_is_not() {
    let ([first, second], set) = faulty();
    second.fault_append(1, AppendFault::Fail);
    assert!(matches!(set.append(ZoneId(1), &pages(1, 1)), Err(DeviceError::Io { .. })));
    set.append(ZoneId(3), &pages(1, 1)).expect("another zone works");
    (1..=3).for_each(|nth| second.fault_append(nth, AppendFault::Fail));
    for zone in [5, 7, 9] {
        assert!(!set.members()[1].has_failed);
        // Some devices erase nothing and say that all is well, so this proves nothing.
        set.reset(ZoneId(zone)).expect("an erasure");
        set.append(ZoneId(zone), &pages(1, 1)).expect_err("a failure");
    }
    assert!(set.members()[1].has_failed);
    // What a device could not make durable is lost: it has failed at once, and says so once.
    first.fault_sync(1);
    set.append(ZoneId(0), &pages(1, 1)).expect("an append");
    assert_eq!(set.sync(), Err(DeviceError::Gone), "none is left");
    assert_eq!(set.append(ZoneId(0), &pages(1, 1)), Err(DeviceError::Gone));
}

#[test]
fn a_sync_that_fails_is_told_once_and_the_others_are_durable() {
    let ([_, second], set) = faulty();
    set.append(ZoneId(0), &pages(1, 1)).expect("an append");
    set.append(ZoneId(1), &pages(1, 1)).expect("an append");
    second.fault_sync(1);
    set.sync().expect_err("the second one lost something");
    assert!(set.members()[1].has_failed);
    set.sync().expect("the first one is well");
}

// The tier on two devices.

fn options(recover: Recover) -> FlashOptions {
    FlashOptions {
        memory_bytes: 8 << 20,
        segment_bytes: Some(16 * 4096),
        generations: false,
        recover,
        space: Watermarks::fixed(10),
        cutoff_s: 0,
        log_percent: 8,
        fill_percent: 100,
        seed: 5,
        now_unix_s: Arc::new(|| 1_700_000_000),
        format: false,
    }
}

struct Tier {
    flash: Arc<Flash>,
    hasher: KeyHasher,
}

impl Tier {
    fn open(device: Arc<dyn Device>, recover: Recover) -> Tier {
        let flash = Flash::open(device, options(recover)).expect("a tier");
        let hasher = KeyHasher::with_seed(flash.seed());
        Tier { flash, hasher }
    }

    fn put(&self, number: u32, version: u64) {
        let key = format!("key {number}").into_bytes();
        let value = format!("{number} {version} {:0>900}", "").into_bytes();
        let item = FlashItem {
            key: &key,
            value: &value,
            value_bytes: value.len() as u64,
            flags: 0,
            expires_unix_s: 0,
            cas: version,
            state: larder_flash::FlashState::PLAIN,
        };
        while self.flash.put(self.hasher.hash(&key), &item) != Put::Stored {
            assert!(self.flash.stats().is_on, "the tier is on");
            self.flash.tend();
        }
    }

    /// How many of the keys are found. Whatever is found has this version.
    fn found(&self, numbers: std::ops::Range<u32>, version: u64) -> usize {
        let mut fetcher = self.flash.fetcher().expect("a fetcher");
        let expected = |number: u32| format!("{number} {version} ").into_bytes();
        let find = |number: &u32| {
            let key = format!("key {number}").into_bytes();
            let mut answer = match fetcher.begin(1, self.hasher.hash(&key), &key) {
                Begun::Absent | Begun::Busy => Some(None),
                Begun::Here(found) => Some(Some(found)),
                Begun::Started => None,
            };
            while answer.is_none() {
                fetcher.kick();
                fetcher.poll(&mut |_, found| answer = Some(found));
            }
            let found = answer.flatten();
            assert!(found.iter().all(|found| found.value.starts_with(&expected(*number))), "key {number}");
            found.is_some()
        };
        numbers.filter(find).count()
    }

    fn settle(&self) {
        (0..40).for_each(|_| self.flash.tend());
        while self.flash.stats().is_recovering {
            self.flash.tend();
        }
    }
}

#[test]
fn one_of_two_is_torn_away_and_the_other_half_is_found() {
    for recover in [Recover::Clean, Recover::Journal, Recover::BestEffort] {
        let ([_, second], device) = faulty();
        let tier = Tier::open(device, recover);
        // Two versions of everything, so that the newer one may be on one device and the older one on the other.
        for version in 1..=2 {
            (0..4000).for_each(|number| tier.put(number, version));
            tier.settle();
        }
        let all = tier.found(0..4000, 2);
        assert!(all > 3900, "{all} of 4000 before");
        second.set_gone(true);
        let half = tier.found(0..4000, 2);
        assert!((1500..2500).contains(&half), "{half} of 4000 after");
        // It goes on, with more than the first device holds in all.
        for round in 0..3 {
            (10_000..14_000).for_each(|number| tier.put(number, 3 + round));
            tier.settle();
            let found = tier.found(10_000..14_000, 3 + round);
            assert!(found > 3900, "{found} of 4000 in round {round}");
        }
        tier.found(0..4000, 2);
        let members = tier.flash.devices();
        assert!(members[1].has_failed && !members[0].has_failed);
        let stats = tier.flash.stats();
        assert!(stats.is_on && stats.zones.retired >= 38, "{:?}", stats.zones);
    }
}

#[test]
fn a_stop_without_one_of_two_is_no_reason_to_find_old_values_when_it_is_back() {
    let members = [(); 2].map(|()| FaultyDevice::new(Arc::new(MemoryDevice::new(40, 64))));
    let open = || set(members.iter().map(|member| Arc::new(member.clone()) as Arc<dyn Device>).collect());
    let tier = Tier::open(open(), Recover::Clean);
    (0..4000).for_each(|number| tier.put(number, 1));
    tier.settle();
    members[1].set_gone(true);
    (0..2000).for_each(|number| tier.put(number, 2));
    tier.settle();
    tier.flash.close().expect("a clean stop");
    drop(tier);
    let all = members.iter().map(|member| Arc::new(member.clone()) as Arc<dyn Device>).collect();
    let error: OpenError = together(all, false).err().expect("one is missing");
    assert!(error.0.contains("the device is gone"), "{error}");
    members[1].set_gone(false);
    let tier = Tier::open(open(), Recover::Clean);
    tier.settle();
    assert!(tier.found(0..2000, 2) > 1900);
    let found = tier.found(2000..4000, 1);
    assert!(found > 1900, "{found} of 2000");
}

/// Two or three devices that lose unsynced writes with their power, of which one is torn away in every life.
#[derive(Clone)]
struct Machines(Vec<(CutDevice, FaultyDevice)>);

impl Machines {
    fn random(dice: &mut Dice) -> Machines {
        let zone_pages = [8, 16, 24][dice.below(3) as usize];
        let flavour = [Flavour::Zoned, Flavour::Punched, Flavour::NeverErased][dice.below(3) as usize];
        let member = |_| {
            let device = CutDevice::new(flavour, 8 + dice.below(12) as u32, zone_pages);
            (device.clone(), FaultyDevice::new(Arc::new(device)))
        };
        Machines((0..2 + zone_pages / 24).map(member).collect())
    }

    /// Opens the set, with all its members.
    fn open(&self) -> Result<Arc<dyn Device>, String> {
        self.0.iter().for_each(|(_, member)| member.set_gone(false));
        let members = self.0.iter().map(|(_, member)| Arc::new(member.clone()) as Arc<dyn Device>);
        together(members.collect(), false).map_err(|error| error.0)
    }

    fn tear_away(&self, dice: &mut Dice) {
        self.0[dice.below(self.0.len() as u64) as usize].1.set_gone(true);
    }

    fn cut_power(&self, dice: &mut Dice) {
        self.0.iter().for_each(|(device, _)| device.power_on(Some(dice)));
    }
}

/// How many histories a test tries: 150, or as many as `LARDER_TORN_HISTORIES` says.
fn torn_histories() -> u64 {
    std::env::var("LARDER_TORN_HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(150)
}

fn torn(seed: u64, recover: Recover) -> Result<Tally, String> {
    let mut dice = Dice(seed ^ (recover as u64) << 56 ^ 1 << 40);
    let machines = Machines::random(&mut dice);
    let setup = Setup::random(&mut dice, recover);
    let context = |error: String| format!("seed {seed}, {recover:?}, {setup:?}: {error}");
    let opens = {
        let machines = machines.clone();
        move || machines.open()
    };
    let mut history = History::open(opens, Arc::new(|| false), setup.clone()).map_err(context)?;
    for _ in 0..4 {
        let (steps, torn_at) = (200 + dice.below(600), dice.below(600));
        for step in 0..steps {
            if step == torn_at {
                machines.tear_away(&mut dice);
            }
            history.step(&mut dice).map_err(context)?;
        }
        history.look_at_all().map_err(context)?;
        if !history.flash().stats().is_on {
            return Err(context("one of several was torn away, and the tier is off".into()));
        }
        let closes = history.tally.closes;
        if dice.chance(50) {
            history.reopen(&mut dice, |_| ()).map_err(context)?;
        }
        // A stop may fail without the device that was torn away.
        if history.tally.closes == closes {
            history.crash(&mut dice, |dice| machines.cut_power(dice)).map_err(context)?;
        }
        history.look_at_all().map_err(context)?;
    }
    Ok(history.tally)
}

#[test]
fn whatever_is_torn_away_nothing_wrong_is_found_then_or_later() {
    for recover in [Recover::Clean, Recover::Journal, Recover::BestEffort] {
        let mut tally = Tally::default();
        for seed in 0..torn_histories() {
            match torn(seed, recover) {
                Ok(of) => tally.add(&of),
                Err(error) => panic!("{error}"),
            }
        }
        println!("{recover:?}: {tally:?}");
        assert!(tally.crashes > 20 && tally.closes > 20 && tally.hits > 1000, "{tally:?}");
        assert!((recover == Recover::Clean) == (tally.hits_after_crash == 0), "{tally:?}");
    }
}
