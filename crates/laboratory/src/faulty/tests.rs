//! The faulty device does what was requested, when it was requested, and nothing else.

use super::*;
use crate::{MemoryDevice, pages};

const PAGE: u64 = PAGE_BYTES as u64;
const ZONE: ZoneId = ZoneId(1);

fn device() -> FaultyDevice {
    FaultyDevice::new(Arc::new(MemoryDevice::new(4, 64)))
}

fn read(device: &FaultyDevice, count: usize) -> Result<PageBuffer, DeviceError> {
    let mut buffer = PageBuffer::new(count);
    device.read(ZONE, 0, &mut buffer).map(|()| buffer)
}

fn state(device: &FaultyDevice) -> ZoneState {
    device.report(ZONE).expect("a report").state
}

#[test]
fn the_nth_append_fails_and_the_zone_with_it() {
    let device = device();
    device.append(ZONE, &pages(1, 1)).expect("not counted: it was before");
    device.fault_append(2, AppendFault::Fail);
    device.append(ZONE, &pages(1, 2)).expect("the first");
    assert!(matches!(device.append(ZONE, &pages(1, 3)), Err(DeviceError::Io { errno: Some(5), .. })));
    assert_eq!(state(&device), ZoneState::Full(2 * PAGE));
    assert!(matches!(device.append(ZONE, &pages(1, 3)), Err(DeviceError::State { .. })));
    device.append(ZoneId(2), &pages(1, 3)).expect("other zones work");
    assert!(*read(&device, 1).expect("a read") == *pages(1, 1));
    device.reset(ZONE).expect("a reset");
    assert_eq!(device.append(ZONE, &pages(1, 4)), Ok(0));
    assert_eq!(device.counters().errors, 1);
}

#[test]
fn a_short_append_leaves_its_beginning() {
    let device = device();
    device.fault_append(1, AppendFault::Short(2));
    assert!(device.append(ZONE, &pages(4, 1)).is_err());
    assert_eq!(state(&device), ZoneState::Full(2 * PAGE));
    assert!(*read(&device, 2).expect("a read") == pages(4, 1)[..2 * PAGE_BYTES]);
}

#[test]
fn a_torn_append_is_told_by_its_pages_only() {
    let device = device();
    device.fault_append(1, AppendFault::Torn(1));
    assert_eq!(device.append(ZONE, &pages(3, 1)), Ok(0));
    let found = read(&device, 3).expect("a read");
    let meant = pages(3, 1);
    assert!(found[..PAGE_BYTES] == meant[..PAGE_BYTES]);
    for page in 1..3 {
        let at = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
        assert!(found[at.clone()] != meant[at]);
    }
}

#[test]
fn reads_fail_or_lie() {
    let device = device();
    device.append(ZONE, &pages(2, 1)).expect("an append");
    device.fault_read(1, ReadFault::Fail);
    device.fault_read(2, ReadFault::Corrupt(2 * PAGE_BYTES + 7));
    assert!(read(&device, 2).is_err());
    let mut found = read(&device, 2).expect("it says that all is well");
    assert_eq!(found[7], !pages(2, 1)[7]);
    found[7] = !found[7];
    assert!(*found == *pages(2, 1), "one byte only");
    assert!(*read(&device, 2).expect("a read") == *pages(2, 1));
}

#[test]
fn queued_reads_fail_or_lie() {
    let device = device();
    device.append(ZONE, &pages(4, 1)).expect("an append");
    let mut queue = device.reads(8).expect("a queue");
    device.fault_read(2, ReadFault::Fail);
    device.fault_read(4, ReadFault::Corrupt(0));
    for token in 10..15 {
        queue.submit(token, ZONE, 0, PageBuffer::new(1)).expect("room");
    }
    queue.kick();
    let mut done: Vec<ReadDone> = Vec::new();
    queue.reap(&mut done);
    let outcome =
        |read: &ReadDone| (read.token, read.result.is_ok() && *read.buffer == pages(4, 1)[..PAGE_BYTES]);
    let outcomes: Vec<_> = done.iter().map(outcome).collect();
    assert_eq!(outcomes, [(10, true), (11, false), (12, true), (13, false), (14, true)]);
    assert!(done[3].result.is_ok(), "corruption is not told");
}

#[test]
fn resets_and_syncs_fail_once() {
    let device = device();
    device.append(ZONE, &pages(1, 1)).expect("an append");
    device.fault_reset(1);
    device.fault_sync(2);
    assert!(device.reset(ZONE).is_err());
    assert!(*read(&device, 1).expect("a read") == *pages(1, 1), "it was not erased");
    device.reset(ZONE).expect("a reset");
    device.sync().expect("the first");
    assert!(device.sync().is_err());
    device.sync().expect("the third");
}

#[test]
fn a_device_that_is_gone_does_nothing() {
    let device = device();
    device.append(ZONE, &pages(1, 1)).expect("an append");
    let mut queue = device.reads(2).expect("a queue");
    queue.submit(1, ZONE, 0, PageBuffer::new(1)).expect("room");
    device.set_gone(true);
    assert_eq!(device.append(ZONE, &pages(1, 2)), Err(DeviceError::Gone));
    assert_eq!(read(&device, 1).err(), Some(DeviceError::Gone));
    assert_eq!(device.report(ZONE), Err(DeviceError::Gone));
    assert_eq!(device.finish(ZONE), Err(DeviceError::Gone));
    assert_eq!(device.reset(ZONE), Err(DeviceError::Gone));
    assert_eq!(device.sync(), Err(DeviceError::Gone));
    queue.kick();
    let mut done = Vec::new();
    queue.reap(&mut done);
    assert_eq!(done[0].result, Err(DeviceError::Gone), "also what was under way");
    device.set_gone(false);
    assert!(*read(&device, 1).expect("it came back") == *pages(1, 1));
}

#[test]
fn slow_appends_wait_for_the_gate() {
    let device = device();
    device.close_gate();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| device.append(ZONE, &pages(1, 1)));
        device.wait_at_gate(1);
        assert_eq!((device.at_gate(), state(&device)), (1, ZoneState::Empty), "nothing is written yet");
        device.open_gate();
        assert_eq!(slow.join().expect("no panic"), Ok(0));
        device.close_gate();
        let lost = scope.spawn(|| device.append(ZONE, &pages(1, 2)));
        device.wait_at_gate(1);
        device.set_gone(true);
        assert_eq!(lost.join().expect("no panic"), Err(DeviceError::Gone), "nobody waits for ever");
    });
}
