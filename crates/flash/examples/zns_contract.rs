//! Checks the contract of devices on zoned block devices, and the behaviour that only they have. `tests/zns/run.sh`
//! runs it in a virtual machine with such devices. The contents of the devices are lost.
//!
//!     zns_contract [--forbid-io-uring] /dev/nvme0n1 [/dev/nullb0 /sys/kernel/config/nullb/nullb0]
//!
//! With the configuration folder of a null_blk device, zones are made read-only and offline while they are used. With
//! `--forbid-io-uring`, io_uring is switched off at the end, for all programs of the system.

use larder_flash::device::{
    Device, DeviceOptions, Direct, PAGE_BYTES, PageBuffer, ReadsBy, ZoneId, ZoneState, open, open_reading_by,
};
use larder_laboratory::contract::{CHECKS, Subject};
use larder_laboratory::pages;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PAGE: u64 = PAGE_BYTES as u64;
/// `O_DIRECT` on x86-64 and AArch64 differ; the checks run on x86-64.
const O_DIRECT: i32 = 0o40000;
const SECTOR: u64 = 512;

#[derive(Default)]
struct Tally {
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Tally {
    fn run(&mut self, name: &str, check: impl FnOnce()) {
        match catch_unwind(AssertUnwindSafe(check)) {
            Ok(()) => {
                self.passed += 1;
                println!("ok   {name}");
            }
            Err(_) => {
                self.failed += 1;
                println!("FAIL {name}");
            }
        }
    }

    fn skip(&mut self, name: &str, why: &str) {
        self.skipped += 1;
        println!("skip {name}: {why}");
    }
}

fn main() {
    let mut arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let flag = arguments.iter().position(|argument| argument.as_os_str() == "--forbid-io-uring");
    let forbids = flag.map(|at| arguments.remove(at)).is_some();
    let mut tally = Tally::default();
    for path in arguments.iter().take(2) {
        if path.exists() {
            check_device(path, &mut tally);
        } else {
            tally.skip(&path.display().to_string(), "it is not there");
        }
    }
    if let [_, path, configuration] = &arguments[..] {
        check_lost_zones(path, configuration, &mut tally);
    }
    if let (true, Some(path)) = (forbids, arguments.first()) {
        check_without_io_uring(path, &mut tally);
    }
    println!("{} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped);
    std::process::exit(i32::from(tally.failed > 0));
}

fn opened(path: &Path, reads: ReadsBy) -> Arc<dyn Device> {
    open_reading_by(path, &DeviceOptions::default(), reads).unwrap_or_else(|error| panic!("{error}"))
}

fn device(path: &Path) -> Arc<dyn Device> {
    opened(path, ReadsBy::Auto)
}

fn state(device: &dyn Device, zone: ZoneId) -> ZoneState {
    device.report(zone).expect("a report").state
}

fn read(device: &dyn Device, zone: ZoneId, offset: u64, count: usize) -> PageBuffer {
    let mut buffer = PageBuffer::new(count);
    device.read(zone, offset, &mut buffer).expect("a read");
    buffer
}

/// A check of a behaviour that only zoned devices have, and its name.
type Own = (&'static str, fn(&Path));

/// One value of the device's queue in sysfs.
fn setting(path: &Path, name: &str) -> u64 {
    let disk = path.file_name().expect("a name").to_string_lossy();
    let text = std::fs::read_to_string(format!("/sys/block/{disk}/queue/{name}")).expect("sysfs");
    text.trim().parse().expect("a number")
}

fn check_device(path: &Path, tally: &mut Tally) {
    let name = path.display().to_string();
    for reads in [ReadsBy::Uring, ReadsBy::Threads] {
        for (what, check) in CHECKS {
            let subject = Subject { open: &|| opened(path, reads), keeps: true };
            tally.run(&format!("{name} {reads:?}: {what}"), || check(&subject));
        }
    }
    let own: [Own; 6] = [
        ("it is recognised, and its zones are its own", recognised),
        ("write pointers outlive the program", pointers_kept),
        ("the device refuses to be overwritten, and a foreign write is survived", foreign_write),
        ("all zones full, in large appends", all_full),
        ("nobody else may open it", exclusive),
        ("zones of another size and the page cache are refused", refused_options),
    ];
    for (what, check) in own {
        tally.run(&format!("{name}: {what}"), || check(path));
    }
}

fn recognised(path: &Path) {
    let device = device(path);
    assert!(device.describe().starts_with("zoned block device"), "{}", device.describe());
    let geometry = device.geometry();
    let zone_bytes = setting(path, "chunk_sectors") * SECTOR;
    assert_eq!(u64::from(geometry.zones), setting(path, "nr_zones"));
    let is_nvme = path.to_string_lossy().contains("nvme");
    // The emulated namespace has zones of 4 MiB with a capacity of 3 MiB.
    assert_eq!(geometry.zone_bytes, if is_nvme { zone_bytes / 4 * 3 } else { zone_bytes });
    let limits = ["max_open_zones", "max_active_zones"].map(|name| setting(path, name));
    let limit = limits.into_iter().filter(|limit| *limit > 0).min().expect("a limit was configured");
    assert_eq!(u64::from(geometry.open_zones_max), limit);
}

fn pointers_kept(path: &Path) {
    let zones = [ZoneId(2), ZoneId(3), ZoneId(4)];
    let first = device(path);
    for zone in zones {
        first.reset(zone).expect("a reset");
    }
    first.append(zones[0], &pages(5, 1)).expect("an append");
    first.append(zones[1], &pages(6, 2)).expect("an append");
    first.finish(zones[1]).expect("a finish");
    drop(first);
    let second = device(path);
    assert_eq!(state(&*second, zones[0]), ZoneState::Open(5 * PAGE));
    assert!(matches!(state(&*second, zones[1]), ZoneState::Full(_)));
    assert_eq!(state(&*second, zones[2]), ZoneState::Empty);
    assert_eq!(second.append(zones[0], &pages(2, 3)), Ok(5 * PAGE), "it goes on");
    assert!(second.append(zones[1], &pages(2, 3)).is_err());
    assert_eq!(*read(&*second, zones[0], 0, 5), *pages(5, 1));
    assert_eq!(*read(&*second, zones[0], 5 * PAGE, 2), *pages(2, 3));
    assert_eq!(*read(&*second, zones[1], 0, 6), *pages(6, 2));
}

fn raw(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(path).expect("the device")
}

fn foreign_write(path: &Path) {
    let device = device(path);
    let zone = ZoneId(2);
    let start = u64::from(zone.0) * setting(path, "chunk_sectors") * SECTOR;
    device.reset(zone).expect("a reset");
    device.append(zone, &pages(4, 1)).expect("an append");
    let foreign = raw(path);
    assert_eq!(foreign.write_at(&pages(1, 9), start + 4 * PAGE).expect("at the pointer"), PAGE_BYTES);
    // The pointer is not where it was left.
    let errors = device.counters().errors;
    assert!(device.append(zone, &pages(2, 2)).is_err());
    assert_eq!(device.counters().errors, errors + 1);
    assert_eq!(state(&*device, zone), ZoneState::Full(4 * PAGE));
    assert_eq!(*read(&*device, zone, 0, 4), *pages(4, 1));
    device.reset(zone).expect("a reset");
    assert_eq!(device.append(zone, &pages(2, 2)), Ok(0));
    assert_eq!(*read(&*device, zone, 0, 2), *pages(2, 2));
    assert!(foreign.write_at(&pages(1, 9), start).is_err(), "the device is no zoned one");
    assert!(foreign.write_at(&pages(1, 9), start + 8 * PAGE).is_err(), "the device is no zoned one");
    assert_eq!(*read(&*device, zone, 0, 2), *pages(2, 2));
}

fn all_full(path: &Path) {
    let device = device(path);
    let geometry = device.geometry();
    let count = (geometry.zone_bytes / PAGE) as usize;
    for zone in (0..geometry.zones).map(ZoneId) {
        device.reset(zone).expect("a reset");
        device.append(zone, &pages(count, u64::from(zone.0))).expect("an append");
    }
    for zone in (0..geometry.zones).map(ZoneId) {
        assert_eq!(state(&*device, zone), ZoneState::Full(geometry.zone_bytes));
        assert!(*read(&*device, zone, 0, count) == *pages(count, u64::from(zone.0)), "{zone:?}");
    }
    for zone in (0..geometry.zones).map(ZoneId) {
        device.reset(zone).expect("a reset");
    }
}

fn exclusive(path: &Path) {
    let first = device(path);
    let second = open(path, &DeviceOptions::default());
    assert!(second.is_err_and(|error| error.0.contains("in use")));
    drop(first);
    device(path);
}

fn refused_options(path: &Path) {
    let buffered = DeviceOptions { direct: Direct::Off, ..DeviceOptions::default() };
    assert!(open(path, &buffered).is_err_and(|error| error.0.contains("page cache")));
    let sized = DeviceOptions { zone_bytes: Some(64 * PAGE), ..DeviceOptions::default() };
    assert!(open(path, &sized).is_err_and(|error| error.0.contains("zones of its own")));
}

/// Zones that go read-only or offline: null_blk does that on request (Linux 6.3).
fn check_lost_zones(path: &Path, configuration: &Path, tally: &mut Tally) {
    let name = format!("{}: zones that are lost", path.display());
    if !configuration.join("zone_offline").exists() {
        return tally.skip(&name, "this kernel cannot make null_blk lose zones");
    }
    let make = |what: &str, zone: ZoneId| {
        let sector = u64::from(zone.0) * setting(path, "chunk_sectors");
        std::fs::write(configuration.join(what), sector.to_string()).expect("configfs");
    };
    tally.run(&format!("{name}, while they are written"), || {
        let device = device(path);
        let (read_only, offline) = (ZoneId(7), ZoneId(8));
        for zone in [read_only, offline] {
            device.reset(zone).expect("a reset");
            device.append(zone, &pages(3, 1)).expect("an append");
        }
        make("zone_readonly", read_only);
        make("zone_offline", offline);
        assert!(device.append(read_only, &pages(1, 2)).is_err());
        assert_eq!(state(&*device, read_only), ZoneState::Full(3 * PAGE), "it can still be read");
        assert_eq!(*read(&*device, read_only, 0, 3), *pages(3, 1));
        assert!(device.reset(read_only).is_err());
        assert_eq!(state(&*device, read_only), ZoneState::Offline, "it is of no use any more");
        assert!(device.append(offline, &pages(1, 2)).is_err());
        assert_eq!(state(&*device, offline), ZoneState::Offline);
        assert!(device.read(offline, 0, &mut PageBuffer::new(1)).is_err());
        assert!(device.reset(offline).is_err());
        device.reset(ZoneId(9)).expect("the others work");
        device.append(ZoneId(9), &pages(1, 2)).expect("the others work");
    });
    tally.run(&format!("{name}, before it was opened"), || {
        let device = device(path);
        assert_eq!(state(&*device, ZoneId(8)), ZoneState::Offline);
        assert!(matches!(state(&*device, ZoneId(7)), ZoneState::Full(_)), "it may hold something");
        assert!(device.append(ZoneId(8), &pages(1, 1)).is_err());
        assert!(device.reset(ZoneId(7)).is_err());
        assert_eq!(state(&*device, ZoneId(7)), ZoneState::Offline);
    });
}

fn check_without_io_uring(path: &Path, tally: &mut Tally) {
    let name = "threads read where io_uring is forbidden";
    let setting = Path::new("/proc/sys/kernel/io_uring_disabled");
    if !setting.exists() {
        return tally.skip(name, "this kernel cannot forbid it");
    }
    std::fs::write(setting, "2").expect("a setting of the kernel");
    tally.run(name, || {
        assert!(opened(path, ReadsBy::Uring).reads(1).is_err(), "it is forbidden");
        for (_, check) in CHECKS.iter().filter(|(what, _)| what.contains("queue")) {
            check(&Subject { open: &|| device(path), keeps: true });
        }
    });
}
