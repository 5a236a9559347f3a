//! Devices: the contract that all of them keep (`contract/`), and what only files and block devices do. Those tests
//! show how a device is opened or refused, what a reset gives back to the file system, and what happens to a zone
//! when the medium fails.

use crate::support::{Loop, Mounted, Small, folder};
use larder_flash::device::{
    Device, DeviceError, DeviceOptions, Direct, PAGE_BYTES, PageBuffer, ReadDone, ReadQueue, ReadsBy, ZoneId,
    ZoneState, default_zone_bytes, open, open_reading_by,
};
use larder_laboratory::pages;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const PAGE: u64 = PAGE_BYTES as u64;

fn sized(bytes: u64) -> DeviceOptions {
    DeviceOptions { bytes: Some(bytes), ..DeviceOptions::default() }
}

fn opened(path: &Path, options: &DeviceOptions) -> Arc<dyn Device> {
    open(path, options).unwrap_or_else(|error| panic!("{error}"))
}

/// The message with which a device is refused, without the path. It has one line.
#[track_caller]
fn refusal(path: &Path, options: &DeviceOptions) -> String {
    let error = open(path, options).err().expect("it is refused").0;
    assert!(!error.contains('\n'));
    let name = path.display().to_string();
    error.strip_prefix(&name).unwrap_or(&error).trim().to_owned()
}

/// The next `count` reads of a queue, without waiting for its descriptor.
fn reap(queue: &mut dyn ReadQueue, count: usize) -> Vec<ReadDone> {
    let mut done = Vec::new();
    queue.kick();
    while done.len() < count {
        queue.reap(&mut done);
        std::thread::yield_now();
    }
    done
}

#[test]
fn zones_are_about_256_of_a_power_of_two() {
    assert_eq!(default_zone_bytes(16 * MIB), MIB);
    assert_eq!(default_zone_bytes(256 * MIB), MIB);
    assert_eq!(default_zone_bytes(10 * GIB), 32 * MIB);
    assert_eq!(default_zone_bytes(64 * GIB), 256 * MIB);
    assert_eq!(default_zone_bytes(4096 * GIB), GIB);
    assert_eq!(default_zone_bytes(0), MIB);
    assert_eq!(default_zone_bytes(u64::MAX), GIB);
}

#[test]
fn a_file_is_made_as_long_as_asked_and_its_space_reserved() {
    let folder = folder();
    let path = folder.path().join("flash");
    let device = opened(&path, &sized(10 * MIB + 5));
    let geometry = device.geometry();
    assert_eq!((geometry.zones, geometry.zone_bytes), (10, MIB));
    assert_eq!(device.report(ZoneId(9)).map(|report| report.state), Ok(ZoneState::Unknown));
    let metadata = std::fs::metadata(&path).expect("a file");
    assert_eq!((metadata.len(), metadata.permissions().mode() & 0o777), (10 * MIB + 5, 0o600));
    assert!(metadata.blocks() * 512 >= 10 * MIB);
    drop(device);
    assert_eq!(opened(&path, &DeviceOptions::default()).geometry(), geometry, "it is used whole");
    assert_eq!(opened(&path, &sized(8 * MIB)).geometry().zones, 8, "less of it");
    std::fs::write(&path, b"").expect("an empty file");
    assert_eq!(opened(&path, &sized(6 * MIB)).geometry().zones, 6, "as if it were not there");
}

#[test]
fn what_cannot_be_used_is_refused_in_words() {
    let folder = folder();
    let path = folder.path().join("flash");
    let default = DeviceOptions::default();
    assert_eq!(refusal(&path, &default), "does not exist: give its size, so that it can be made");
    assert_eq!(
        refusal(&path, &sized(3 * MIB)),
        "is too small: 3 MiB hold 3 zones of 1 MiB, and 4 are needed"
    );
    assert!(!path.exists(), "nothing half made is left");
    assert_eq!(refusal(folder.path(), &sized(9 * MIB)), "is a directory: name a file in it");
    let nowhere = folder.path().join("no/flash");
    assert_eq!(refusal(&nowhere, &sized(9 * MIB)), "cannot be made: its directory does not exist");
    assert_eq!(refusal(Path::new("/dev/null"), &default), "is neither a file nor a block device");
    let odd = DeviceOptions { zone_bytes: Some(5000), ..sized(9 * MIB) };
    assert_eq!(refusal(&path, &odd), "zones are of whole pages of 4096 bytes");
    let large = DeviceOptions { zone_bytes: Some(4 * MIB), ..sized(9 * MIB) };
    assert_eq!(refusal(&path, &large), "is too small: 9 MiB hold 2 zones of 4 MiB, and 4 are needed");
    File::create(&path).expect("a file");
    assert_eq!(refusal(&path, &default), "is empty: give its size, so that it can be made");
    drop(opened(&path, &sized(9 * MIB)));
    assert_eq!(
        refusal(&path, &sized(10 * MIB)),
        "has 9 MiB only, and 10 MiB are asked for: ask for less, or remove it to have it made anew"
    );
    assert_eq!(std::fs::metadata(&path).expect("a file").len(), 9 * MIB, "it is left alone");
}

#[test]
fn a_file_that_may_not_be_written_is_refused() {
    let folder = folder();
    let path = folder.path().join("flash");
    drop(opened(&path, &sized(4 * MIB)));
    std::fs::set_permissions(&path, Permissions::from_mode(0o400)).expect("permissions");
    if File::options().write(true).open(&path).is_ok() {
        println!("skip: nothing is forbidden to root");
        return;
    }
    assert!(refusal(&path, &DeviceOptions::default()).starts_with("may not be read and written"));
}

#[test]
fn two_servers_never_share_a_file() {
    let folder = folder();
    let path = folder.path().join("flash");
    let first = opened(&path, &sized(4 * MIB));
    assert_eq!(refusal(&path, &sized(4 * MIB)), "is in use by another server: each needs its own");
    let queue = first.reads(1).expect("a queue");
    drop(first);
    assert!(open(&path, &sized(4 * MIB)).is_err(), "somebody still reads from it");
    drop(queue);
    opened(&path, &sized(4 * MIB));
}

#[test]
fn more_than_the_file_system_has_is_refused_at_once() {
    let folder = folder();
    let path = folder.path().join("flash");
    let line = refusal(&path, &sized(1 << 60));
    assert!(line.starts_with("needs 1048576 TiB, and the file system has "), "{line}");
    assert!(line.ends_with(" left: ask for less, or free some"), "{line}");
    assert!(!path.exists(), "nothing half made is left");
}

#[test]
fn a_reset_file_zone_keeps_its_blocks_and_is_written_over() {
    let folder = folder();
    let path = folder.path().join("flash");
    for direct in [Direct::Auto, Direct::Off] {
        let device = opened(&path, &DeviceOptions { direct, ..sized(6 * MIB) });
        let zone = ZoneId(2);
        device.reset(zone).expect("a reset");
        device.append(zone, &pages(100, 1)).expect("an append");
        device.sync().expect("a sync");
        device.reset(zone).expect("a reset");
        assert_eq!(device.append(zone, &pages(50, 2)), Ok(0));
        let mut buffer = PageBuffer::new(50);
        device.read(zone, 0, &mut buffer).expect("a read");
        assert!(*buffer == *pages(50, 2));
        let metadata = std::fs::metadata(&path).expect("a file");
        assert_eq!(metadata.len(), 6 * MIB);
        assert!(metadata.blocks() * 512 >= 6 * MIB, "the space is still ours");
    }
}

#[test]
fn a_reset_reaches_the_device_below() {
    let Some(disk) = Loop::new(16 * MIB) else { return };
    let device = opened(disk.path(), &DeviceOptions::default());
    assert_eq!(device.geometry().zones, 16);
    for zone in 0..16 {
        device.reset(ZoneId(zone)).expect("a reset");
        device.append(ZoneId(zone), &pages(256, 1)).expect("an append");
    }
    device.sync().expect("a sync");
    assert!(disk.blocks() * 512 >= 16 * MIB);
    for zone in 4..16 {
        device.reset(ZoneId(zone)).expect("a reset");
    }
    device.sync().expect("a sync");
    assert!(disk.blocks() * 512 <= 5 * MIB, "{} KiB", disk.blocks() / 2);
    let mut buffer = PageBuffer::new(256);
    device.read(ZoneId(3), 0, &mut buffer).expect("a read");
    assert!(*buffer == *pages(256, 1), "its neighbour is as it was");
}

#[test]
fn block_devices_in_use_or_read_only_are_refused() {
    let Some(disk) = Loop::new(16 * MIB) else { return };
    let default = DeviceOptions::default();
    assert_eq!(
        refusal(disk.path(), &sized(17 * MIB)),
        "has 16 MiB only, and 17 MiB are asked for: ask for less"
    );
    let first = opened(disk.path(), &default);
    assert_eq!(refusal(disk.path(), &default), "is in use: unmount it, or stop the program that has it");
    drop(first);
    drop(opened(disk.path(), &default));
    let Some(read_only) = Loop::with(16 * MIB, &["--read-only"]) else { return };
    assert_eq!(refusal(read_only.path(), &default), "is read-only");
}

#[test]
fn a_mounted_block_device_is_refused() {
    let Some(disk) = Loop::new(16 * MIB) else { return };
    let Some(_mounted) = Mounted::new(disk.path()) else { return };
    assert_eq!(
        refusal(disk.path(), &DeviceOptions::default()),
        "is in use: unmount it, or stop the program that has it"
    );
}

#[test]
fn a_file_that_shrinks_under_us_is_an_error_and_no_hang() {
    let folder = folder();
    let path = folder.path().join("flash");
    for reads in [ReadsBy::Auto, ReadsBy::Threads] {
        for direct in [Direct::Auto, Direct::Off] {
            let _ = std::fs::remove_file(&path);
            let options = DeviceOptions { direct, ..sized(4 * MIB) };
            let device = open_reading_by(&path, &options, reads).expect("it can be used");
            let zone = ZoneId(1);
            device.reset(zone).expect("a reset");
            device.append(zone, &pages(16, 1)).expect("an append");
            let file = File::options().write(true).open(&path).expect("the file");
            file.set_len(MIB + 4 * PAGE).expect("a shorter file");
            let mut queue = device.reads(4).expect("a queue");
            for (token, page) in [(1, 0), (2, 3), (3, 8)] {
                queue.submit(token, zone, page * PAGE, PageBuffer::new(2)).expect("room");
            }
            let mut done = reap(&mut *queue, 3);
            done.sort_by_key(|read| read.token);
            assert_eq!(done[0].result, Ok(()));
            assert!(*done[0].buffer == pages(16, 1)[..2 * PAGE_BYTES]);
            assert!(matches!(done[1].result, Err(DeviceError::Io { .. })), "half of it is there");
            assert!(matches!(done[2].result, Err(DeviceError::Io { .. })), "nothing of it is there");
            assert_eq!(device.counters().errors, 2);
        }
    }
}

#[test]
fn an_append_that_fails_leaves_what_was_before() {
    // A loop device that is larger than the file system below it.
    let Some(small) = Small::new(8 * MIB) else { return };
    let Some(disk) = Loop::on(&small.path().join("loop"), 32 * MIB) else { return };
    let device =
        opened(disk.path(), &DeviceOptions { zone_bytes: Some(4 * MIB), ..DeviceOptions::default() });
    let (first, second, third) = (ZoneId(0), ZoneId(1), ZoneId(2));
    for zone in [first, second, third] {
        device.reset(zone).expect("a reset");
    }
    device.append(first, &pages(1024, 1)).expect("an append");
    device.append(second, &pages(256, 2)).expect("an append");
    let error = device.append(second, &pages(768, 3)).and_then(|_| device.append(third, &pages(1024, 4)));
    assert!(matches!(error, Err(DeviceError::Io { .. })), "{error:?}");
    assert_eq!(device.counters().errors, 1);
    let failed = if device.report(third).map(|report| report.state) == Ok(ZoneState::Full(0)) {
        third
    } else {
        second
    };
    assert!(matches!(device.append(failed, &pages(1, 5)), Err(DeviceError::State { .. })));
    let mut buffer = PageBuffer::new(256);
    device.read(second, 0, &mut buffer).expect("a read");
    assert!(*buffer == *pages(256, 2));
    device.reset(first).expect("a reset");
    device.reset(failed).expect("a reset gives its space back");
    device.append(failed, &pages(256, 6)).expect("it works again");
}

#[test]
fn the_page_cache_is_used_only_where_it_must_be() {
    let folder = folder();
    let path = folder.path().join("flash");
    let direct = opened(&path, &sized(4 * MIB)).describe();
    assert_eq!(direct, format!("file {}, direct", path.display()));
    let buffered = opened(&path, &DeviceOptions { direct: Direct::Off, ..sized(4 * MIB) }).describe();
    assert_eq!(buffered, format!("file {}, through the page cache", path.display()));
}

#[test]
fn another_size_of_zones() {
    let folder = folder();
    let options = DeviceOptions { zone_bytes: Some(64 * KIB), ..sized(MIB) };
    let device = opened(&folder.path().join("flash"), &options);
    assert_eq!((device.geometry().zones, device.geometry().zone_bytes), (16, 64 * KIB));
    device.reset(ZoneId(15)).expect("a reset");
    device.append(ZoneId(15), &pages(16, 1)).expect("an append");
    assert!(matches!(device.append(ZoneId(15), &pages(1, 1)), Err(DeviceError::State { .. })));
    let mut last = vec![0; PAGE_BYTES];
    let file = File::open(folder.path().join("flash")).expect("the file");
    file.read_exact_at(&mut last, MIB - PAGE).expect("a read");
    assert!(last == pages(16, 1)[15 * PAGE_BYTES..], "zones lie one behind the other");
}
