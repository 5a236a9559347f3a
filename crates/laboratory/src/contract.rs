//! The contract of [`Device`], as checks that every implementation passes. The tests of a device call [`check`].
//!
//! Each check opens the device with a function of the caller and drops it at the end. The function opens a fresh
//! medium each time, or the same medium ([`Subject::keeps`]). The device has at least [`ZONES_MIN`] zones of at least
//! 16 pages. A check panics with a message that says what is broken.

use crate::{pages, readable};
use larder_flash::device::{
    Device, DeviceError, PAGE_BYTES, PageBuffer, ReadDone, ReadQueue, ZONES_MIN, ZoneId, ZoneState,
};
use std::sync::Arc;

/// The device that is checked.
pub struct Subject<'a> {
    /// Opens the device. It is called again only after the device that it returned before was dropped.
    pub open: &'a dyn Fn() -> Arc<dyn Device>,
    /// `open` opens the same medium each time, with the contents that were synced before.
    pub keeps: bool,
}

/// The name of a check, and its function.
pub type Check = (&'static str, fn(&Subject<'_>));

/// All checks.
pub const CHECKS: &[Check] = &[
    ("what it looks like", looks),
    ("a reset zone is empty", reset_makes_empty),
    ("appends follow each other", appends_follow),
    ("a zone takes what it holds and no more", full),
    ("pages are whole", whole_pages),
    ("a finished zone takes no more", finished),
    ("zones beyond the last are refused", beyond_the_last),
    ("reads beyond the end are refused", reads_beyond_the_end),
    ("zones do not mix", zones_apart),
    ("any memory will do", any_memory),
    ("appends to several zones at a time", parallel_zones),
    ("two appends to one zone are no mixture", parallel_appends),
    ("a limit of open zones is kept", open_limit),
    ("counters count", counters),
    ("queued reads come back once each", queued_reads),
    ("a queue has the room it was given", queue_room),
    ("a queue tells of what it cannot read", queue_errors),
    ("a queue can be dropped with reads under way", queue_dropped),
    ("what was synced is there after opening again", kept),
    ("an unknown zone is reset before it is written", unknown),
    ("long runs of operations, beside a naive twin", long_runs),
];

/// Runs all checks.
///
/// # Panics
/// If one fails.
pub fn check(open: impl Fn() -> Arc<dyn Device>) {
    run(&Subject { open: &open, keeps: false });
}

/// Runs all checks on a device that keeps its contents from one opening to the next.
///
/// # Panics
/// If one fails.
pub fn check_keeping(open: impl Fn() -> Arc<dyn Device>) {
    run(&Subject { open: &open, keeps: true });
}

fn run(subject: &Subject<'_>) {
    for (name, check) in CHECKS {
        println!("contract: {name}");
        check(subject);
    }
}

const PAGE: u64 = PAGE_BYTES as u64;
const FIRST: ZoneId = ZoneId(0);
const SECOND: ZoneId = ZoneId(1);

fn fresh(subject: &Subject<'_>, zones: &[ZoneId]) -> Arc<dyn Device> {
    let device = (subject.open)();
    // On a device that keeps its contents an earlier check may have left as many zones open as the device allows.
    for zone in 0..device.geometry().zones {
        let zone = ZoneId(zone);
        let open = matches!(state(&*device, zone), ZoneState::Open(_));
        if zones.contains(&zone) || open {
            device.reset(zone).unwrap_or_else(|error| panic!("a zone can be reset: {error}"));
        }
    }
    device
}

fn state(device: &dyn Device, zone: ZoneId) -> ZoneState {
    device.report(zone).expect("a zone can be asked for").state
}

fn append(device: &dyn Device, zone: ZoneId, bytes: &[u8]) -> u64 {
    device.append(zone, bytes).unwrap_or_else(|error| panic!("an append to {zone:?}: {error}"))
}

fn read(device: &dyn Device, zone: ZoneId, offset: u64, count: usize) -> PageBuffer {
    let mut buffer = PageBuffer::new(count);
    device.read(zone, offset, &mut buffer).unwrap_or_else(|error| panic!("a read of {zone:?}: {error}"));
    buffer
}

fn is_state<T>(result: Result<T, DeviceError>) -> bool {
    matches!(result, Err(DeviceError::State { .. }))
}

fn looks(subject: &Subject<'_>) {
    let device = (subject.open)();
    let geometry = device.geometry();
    assert!(geometry.zones >= ZONES_MIN, "{} zones", geometry.zones);
    assert!(geometry.zone_bytes >= 16 * PAGE && geometry.zone_bytes.is_multiple_of(PAGE));
    assert!(geometry.channels >= 1 && geometry.open_zones_max >= 1);
    assert!(!device.describe().is_empty());
    assert_eq!(geometry, device.geometry(), "it does not change");
}

fn reset_makes_empty(subject: &Subject<'_>) {
    let device = fresh(subject, &[FIRST]);
    let before = device.report(FIRST).expect("a report");
    assert_eq!(before.state, ZoneState::Empty);
    append(&*device, FIRST, &pages(2, 1));
    assert_eq!(state(&*device, FIRST), ZoneState::Open(2 * PAGE));
    device.reset(FIRST).expect("a reset");
    let after = device.report(FIRST).expect("a report");
    assert_eq!((after.state, after.resets), (ZoneState::Empty, before.resets + 1));
    assert_eq!(append(&*device, FIRST, &pages(1, 2)), 0, "it begins again");
    assert_eq!(*read(&*device, FIRST, 0, 1), *pages(1, 2));
}

fn appends_follow(subject: &Subject<'_>) {
    let device = fresh(subject, &[FIRST]);
    let mut expected = Vec::new();
    for (index, count) in [1, 3, 2, 7, 1].into_iter().enumerate() {
        let some = pages(count, index as u64);
        assert_eq!(append(&*device, FIRST, &some), expected.len() as u64);
        expected.extend_from_slice(&some);
        assert_eq!(state(&*device, FIRST), ZoneState::Open(expected.len() as u64));
    }
    assert_eq!(*read(&*device, FIRST, 0, 14), *expected);
    assert_eq!(*read(&*device, FIRST, 3 * PAGE, 5), expected[3 * PAGE_BYTES..8 * PAGE_BYTES]);
}

fn full(subject: &Subject<'_>) {
    let device = fresh(subject, &[FIRST]);
    let zone_bytes = device.geometry().zone_bytes;
    let holds = (zone_bytes / PAGE) as usize;
    assert_eq!(device.append(FIRST, &pages(holds + 1, 1)), Err(DeviceError::Full(FIRST)));
    assert_eq!(state(&*device, FIRST), ZoneState::Empty, "nothing was written");
    append(&*device, FIRST, &pages(1, 2));
    assert_eq!(device.append(FIRST, &pages(holds, 1)), Err(DeviceError::Full(FIRST)));
    assert_eq!(state(&*device, FIRST), ZoneState::Open(PAGE), "nothing was written");
    append(&*device, FIRST, &pages(holds - 1, 3));
    assert_eq!(state(&*device, FIRST), ZoneState::Full(zone_bytes));
    assert!(device.append(FIRST, &pages(1, 4)).is_err(), "it is full");
    assert_eq!(*read(&*device, FIRST, 0, 1), *pages(1, 2));
    assert_eq!(*read(&*device, FIRST, PAGE, holds - 1), *pages(holds - 1, 3));
    device.reset(FIRST).expect("a reset");
    assert_eq!(append(&*device, FIRST, &pages(holds, 5)), 0, "all at once");
    assert_eq!(*read(&*device, FIRST, 0, holds), *pages(holds, 5));
}

fn whole_pages(subject: &Subject<'_>) {
    let device = fresh(subject, &[FIRST]);
    assert!(is_state(device.append(FIRST, &pages(2, 1)[..PAGE_BYTES + 1])));
    assert!(is_state(device.append(FIRST, &[7])));
    assert_eq!(state(&*device, FIRST), ZoneState::Empty);
    assert_eq!(append(&*device, FIRST, &pages(1, 1)), 0, "the zone took no harm");
}

fn finished(subject: &Subject<'_>) {
    let device = fresh(subject, &[FIRST, SECOND]);
    append(&*device, FIRST, &pages(3, 1));
    device.finish(FIRST).expect("a finish");
    assert_eq!(state(&*device, FIRST), ZoneState::Full(3 * PAGE));
    assert!(is_state(device.append(FIRST, &pages(1, 2))));
    assert_eq!(*read(&*device, FIRST, 0, 3), *pages(3, 1));
    device.finish(FIRST).expect("once more does no harm");
    device.finish(SECOND).expect("an empty zone can be finished");
    assert_eq!(state(&*device, SECOND), ZoneState::Full(0));
    device.reset(FIRST).expect("a reset");
    assert_eq!(append(&*device, FIRST, &pages(1, 3)), 0);
}

fn beyond_the_last(subject: &Subject<'_>) {
    let device = fresh(subject, &[]);
    for zone in [ZoneId(device.geometry().zones), ZoneId(u32::MAX)] {
        assert!(is_state(device.report(zone)));
        assert!(is_state(device.append(zone, &pages(1, 1))));
        assert!(is_state(device.read(zone, 0, &mut PageBuffer::new(1))));
        assert!(is_state(device.finish(zone)));
        assert!(is_state(device.reset(zone)));
    }
}

fn reads_beyond_the_end(subject: &Subject<'_>) {
    let device = fresh(subject, &[FIRST, SECOND]);
    let zone_bytes = device.geometry().zone_bytes;
    append(&*device, FIRST, &pages((zone_bytes / PAGE) as usize, 1));
    append(&*device, SECOND, &pages(4, 1));
    for offset in [zone_bytes, zone_bytes - PAGE, zone_bytes + PAGE, u64::MAX - PAGE + 1] {
        assert!(is_state(device.read(FIRST, offset, &mut PageBuffer::new(2))), "two pages at {offset}");
    }
    read(&*device, FIRST, zone_bytes - PAGE, 1);
}

fn zones_apart(subject: &Subject<'_>) {
    let device = fresh(subject, &[FIRST, SECOND]);
    if device.geometry().open_zones_max < 2 {
        return;
    }
    for round in 0..4 {
        append(&*device, FIRST, &pages(1, 10 + round));
        append(&*device, SECOND, &pages(2, 20 + round));
    }
    device.reset(FIRST).expect("a reset");
    append(&*device, FIRST, &pages(1, 30));
    assert_eq!(*read(&*device, FIRST, 0, 1), *pages(1, 30));
    for round in 0..4 {
        assert_eq!(*read(&*device, SECOND, round * 2 * PAGE, 2), *pages(2, 20 + round));
    }
}

fn any_memory(subject: &Subject<'_>) {
    let device = fresh(subject, &[FIRST]);
    let expected = pages(5, 1);
    for shift in [1, 8, 512] {
        let mut memory = vec![0; expected.len() + PAGE_BYTES + shift];
        let start = memory.as_ptr().align_offset(PAGE_BYTES) + shift;
        memory[start..start + expected.len()].copy_from_slice(&expected);
        let offset = append(&*device, FIRST, &memory[start..start + expected.len()]);
        assert_eq!(*read(&*device, FIRST, offset, 5), *expected, "from {shift} bytes beside a page");
    }
}

fn parallel_zones(subject: &Subject<'_>) {
    let zones: Vec<ZoneId> = (0..4).map(ZoneId).collect();
    let device = fresh(subject, &zones);
    let zones = &zones[..zones.len().min(device.geometry().open_zones_max as usize)];
    std::thread::scope(|scope| {
        for zone in zones {
            let device = &*device;
            scope.spawn(move || {
                for round in 0..8 {
                    let offset = append(device, *zone, &pages(2, u64::from(zone.0) << 8 | round));
                    assert_eq!(offset, round * 2 * PAGE);
                    assert_eq!(*read(device, *zone, offset, 2), *pages(2, u64::from(zone.0) << 8 | round));
                }
            });
        }
    });
}

fn parallel_appends(subject: &Subject<'_>) {
    let device = fresh(subject, &[FIRST]);
    let rounds = 4;
    let told: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let append_some = |thread: u64| {
            let device = &*device;
            scope.spawn(move || {
                let mut told = Vec::new();
                for round in 0..rounds {
                    let seed = thread << 8 | round;
                    match device.append(FIRST, &pages(2, seed)) {
                        Ok(offset) => told.push((offset, seed)),
                        Err(DeviceError::State { .. }) => {}
                        Err(error) => panic!("neither written nor refused: {error}"),
                    }
                }
                told
            })
        };
        let threads = [append_some(1), append_some(2)];
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(!told.is_empty(), "one of them went through");
    assert_eq!(state(&*device, FIRST), ZoneState::Open(told.len() as u64 * 2 * PAGE));
    for (offset, seed) in told {
        assert_eq!(*read(&*device, FIRST, offset, 2), *pages(2, seed));
    }
}

fn open_limit(subject: &Subject<'_>) {
    let geometry = (subject.open)().geometry();
    if geometry.open_zones_max >= geometry.zones {
        return;
    }
    let zones: Vec<ZoneId> = (0..=geometry.open_zones_max).map(ZoneId).collect();
    let device = fresh(subject, &zones);
    let (last, others) = zones.split_last().expect("one at least");
    for zone in others {
        append(&*device, *zone, &pages(1, 1));
    }
    assert!(is_state(device.append(*last, &pages(1, 2))), "one zone too many");
    assert_eq!(state(&*device, *last), ZoneState::Empty, "nothing was written");
    device.finish(others[0]).expect("a finish");
    append(&*device, *last, &pages(1, 2));
    assert!(is_state(device.append(others[0], &pages(1, 3))), "it is finished");
    device.reset(*last).expect("a reset");
    device.reset(others[0]).expect("a reset");
    append(&*device, others[0], &pages(1, 3));
    for zone in others {
        device.reset(*zone).expect("a reset");
    }
}

fn counters(subject: &Subject<'_>) {
    let device = fresh(subject, &[FIRST, SECOND]);
    let before = device.counters();
    append(&*device, FIRST, &pages(3, 1));
    append(&*device, SECOND, &pages(1, 2));
    read(&*device, FIRST, 0, 2);
    device.reset(SECOND).expect("a reset");
    let mut queue = device.reads(4).expect("a queue");
    submit(&mut *queue, 1, FIRST, 0, 3);
    drain(&mut *queue, 1);
    let after = device.counters();
    assert_eq!((after.appends - before.appends, after.append_bytes - before.append_bytes), (2, 4 * PAGE));
    assert_eq!((after.reads - before.reads, after.read_bytes - before.read_bytes), (2, 5 * PAGE));
    assert_eq!((after.resets - before.resets, after.errors - before.errors), (1, 0));
}

fn submit(queue: &mut dyn ReadQueue, token: u64, zone: ZoneId, offset: u64, count: usize) {
    queue.submit(token, zone, offset, PageBuffer::new(count)).expect("there is room");
}

/// Kicks the queue, and reaps until `count` reads have come.
fn drain(queue: &mut dyn ReadQueue, count: usize) -> Vec<ReadDone> {
    queue.kick();
    let mut done = Vec::new();
    while done.len() < count {
        assert!(readable(queue, true), "{} of {count} reads came, and no more", done.len());
        queue.reap(&mut done);
    }
    assert_eq!(done.len(), count);
    done
}

fn queued_reads(subject: &Subject<'_>) {
    let device = fresh(subject, &[FIRST, SECOND]);
    let all = pages(16, 1);
    append(&*device, FIRST, &all);
    let mut queue = device.reads(32).expect("a queue");
    assert!(!readable(&*queue, false), "nothing has come");
    for round in 0..20u64 {
        for token in 0..15 {
            submit(&mut *queue, round << 8 | token, FIRST, token * PAGE, 1 + (token as usize + 1) % 2);
        }
        assert_eq!(queue.in_flight(), 15);
        let done = drain(&mut *queue, 15);
        let mut tokens: Vec<u64> = done.iter().map(|read| read.token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (0..15).map(|token| round << 8 | token).collect::<Vec<_>>());
        for read in done {
            read.result.expect("a read");
            let offset = (read.token & 0xff) as usize * PAGE_BYTES;
            assert_eq!(*read.buffer, all[offset..offset + read.buffer.len()]);
        }
        assert_eq!(queue.in_flight(), 0);
    }
    queue.reap(&mut Vec::new());
    assert!(!readable(&*queue, false), "nothing is left");
}

fn queue_room(subject: &Subject<'_>) {
    let device = fresh(subject, &[FIRST]);
    append(&*device, FIRST, &pages(1, 1));
    let mut queue = device.reads(3).expect("a queue");
    for token in 0..3 {
        assert!(queue.has_room());
        submit(&mut *queue, token, FIRST, 0, 1);
    }
    assert!(!queue.has_room());
    let back = queue.submit(3, FIRST, 0, PageBuffer::new(1)).expect_err("there is no room");
    assert_eq!(back.pages(), 1);
    queue.kick();
    queue.kick();
    drain(&mut *queue, 3);
    assert!(queue.has_room());
    submit(&mut *queue, 4, FIRST, 0, 1);
    assert_eq!(drain(&mut *queue, 1)[0].token, 4);
}

fn queue_errors(subject: &Subject<'_>) {
    let device = fresh(subject, &[FIRST]);
    let geometry = device.geometry();
    append(&*device, FIRST, &pages((geometry.zone_bytes / PAGE) as usize, 1));
    let mut queue = device.reads(4).expect("a queue");
    submit(&mut *queue, 1, ZoneId(geometry.zones), 0, 1);
    submit(&mut *queue, 2, FIRST, geometry.zone_bytes - PAGE, 2);
    submit(&mut *queue, 3, FIRST, u64::MAX - PAGE + 1, 1);
    submit(&mut *queue, 4, FIRST, PAGE, 1);
    for read in drain(&mut *queue, 4) {
        assert_eq!(read.result.is_ok(), read.token == 4, "read {}", read.token);
        assert!(read.token == 4 || is_state(read.result));
    }
}

fn queue_dropped(subject: &Subject<'_>) {
    let device = fresh(subject, &[FIRST]);
    append(&*device, FIRST, &pages(16, 1));
    for kick in [false, true] {
        let mut queue = device.reads(16).expect("a queue");
        for token in 0..8 {
            submit(&mut *queue, token, FIRST, 0, 16);
        }
        if kick {
            queue.kick();
        }
        submit(&mut *queue, 9, FIRST, 0, 1);
        drop(queue);
    }
    assert_eq!(*read(&*device, FIRST, 0, 16), *pages(16, 1));
}

fn kept(subject: &Subject<'_>) {
    if !subject.keeps {
        return;
    }
    let device = fresh(subject, &[FIRST, SECOND]);
    append(&*device, FIRST, &pages(5, 1));
    append(&*device, SECOND, &pages(6, 2));
    device.finish(SECOND).expect("a finish");
    device.sync().expect("a sync");
    let geometry = device.geometry();
    drop(device);
    let device = (subject.open)();
    assert_eq!(device.geometry(), geometry);
    match state(&*device, FIRST) {
        ZoneState::Unknown => {}
        found => assert_eq!(found, ZoneState::Open(5 * PAGE)),
    }
    // Not every device knows how much of a finished zone is written.
    assert!(matches!(state(&*device, SECOND), ZoneState::Unknown | ZoneState::Full(_)));
    assert_eq!(*read(&*device, FIRST, 0, 5), *pages(5, 1));
    assert_eq!(*read(&*device, SECOND, 0, 6), *pages(6, 2));
    let mut queue = device.reads(2).expect("a queue");
    submit(&mut *queue, 1, FIRST, 0, 5);
    assert_eq!(*drain(&mut *queue, 1)[0].buffer, *pages(5, 1));
}

fn unknown(subject: &Subject<'_>) {
    if !subject.keeps {
        return;
    }
    drop(fresh(subject, &[FIRST]));
    let device = (subject.open)();
    if state(&*device, FIRST) != ZoneState::Unknown {
        return;
    }
    assert!(is_state(device.append(FIRST, &pages(1, 1))), "nobody knows what is there");
    device.finish(FIRST).expect("nothing is appended anyway");
    device.reset(FIRST).expect("a reset");
    assert_eq!(append(&*device, FIRST, &pages(1, 1)), 0);
}

/// An operation on a device. Zone numbers are taken modulo the number of zones that are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Appends this many pages, whose contents follow from the seed.
    Append(u32, usize, u64),
    /// Reads pages: the first page, and how many. Both are limited to what the zone holds.
    Read(u32, u64, usize),
    /// The same read through a queue.
    QueuedRead(u32, u64, usize),
    /// Finishes a zone.
    Finish(u32),
    /// Resets a zone.
    Reset(u32),
    /// Asks for the state of a zone.
    Report(u32),
    /// Syncs the device.
    Sync,
}

/// The simplest model of a zone.
#[derive(Clone, Default)]
struct Twin {
    bytes: Vec<u8>,
    finished: bool,
}

/// Runs the operations on a device, whose zones are reset first, and on a simple model, and compares every answer.
///
/// # Panics
/// At the first difference.
pub fn follow(device: &dyn Device, ops: &[Op]) {
    let geometry = device.geometry();
    let zones = geometry.zones.min(geometry.open_zones_max).min(6);
    let mut twins = vec![Twin::default(); zones as usize];
    for zone in 0..zones {
        device.reset(ZoneId(zone)).expect("a reset");
    }
    let mut queue = device.reads(4).expect("a queue");
    for op in ops {
        step(device, &mut *queue, &mut twins, *op);
    }
}

fn step(device: &dyn Device, queue: &mut dyn ReadQueue, twins: &mut [Twin], op: Op) {
    let zone_bytes = device.geometry().zone_bytes;
    let zones = twins.len() as u32;
    match op {
        Op::Append(zone, count, seed) => {
            let (zone, twin) = (ZoneId(zone % zones), &mut twins[(zone % zones) as usize]);
            let some = pages(count, seed);
            let fits = twin.bytes.len() + some.len() <= zone_bytes as usize;
            match device.append(zone, &some) {
                Ok(offset) => {
                    assert!(fits && !twin.finished, "{op:?} was not refused");
                    assert_eq!(offset, twin.bytes.len() as u64, "{op:?}");
                    twin.bytes.extend_from_slice(&some);
                    twin.finished = twin.bytes.len() as u64 == zone_bytes;
                }
                Err(error) => assert!(!fits || twin.finished, "{op:?}: {error}"),
            }
        }
        Op::Read(zone, page, count) | Op::QueuedRead(zone, page, count) => {
            let (zone, twin) = (ZoneId(zone % zones), &twins[(zone % zones) as usize]);
            let written = twin.bytes.len() / PAGE_BYTES;
            if written == 0 {
                return;
            }
            let page = page % written as u64;
            let count = count.clamp(1, written - page as usize);
            let found = if matches!(op, Op::Read(..)) {
                read(device, zone, page * PAGE, count)
            } else {
                submit(queue, page, zone, page * PAGE, count);
                let done = drain(queue, 1).pop().expect("one");
                assert_eq!((done.token, done.result), (page, Ok(())), "{op:?}");
                done.buffer
            };
            let from = page as usize * PAGE_BYTES;
            assert!(*found == twin.bytes[from..from + found.len()], "{op:?} read something else");
        }
        Op::Finish(zone) => {
            device.finish(ZoneId(zone % zones)).expect("a finish");
            twins[(zone % zones) as usize].finished = true;
        }
        Op::Reset(zone) => {
            device.reset(ZoneId(zone % zones)).expect("a reset");
            twins[(zone % zones) as usize] = Twin::default();
        }
        Op::Report(zone) => {
            let twin = &twins[(zone % zones) as usize];
            let written = twin.bytes.len() as u64;
            let expected = match written {
                _ if twin.finished => ZoneState::Full(written),
                0 => ZoneState::Empty,
                _ => ZoneState::Open(written),
            };
            assert_eq!(state(device, ZoneId(zone % zones)), expected);
        }
        Op::Sync => device.sync().expect("a sync"),
    }
}

/// `count` operations that follow from a seed, with appends of up to `pages_max` pages.
pub fn ops(seed: u64, count: usize, pages_max: usize) -> Vec<Op> {
    let mut word = seed | 1;
    let mut next = |below: u64| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        (word >> 11) % below
    };
    let mut op = || {
        let zone = next(6) as u32;
        match next(16) {
            0..6 => Op::Append(zone, 1 + next(pages_max as u64) as usize, next(1 << 20)),
            6..9 => Op::Read(zone, next(1 << 16), 1 + next(8) as usize),
            9..12 => Op::QueuedRead(zone, next(1 << 16), 1 + next(8) as usize),
            12 => Op::Finish(zone),
            13 => Op::Reset(zone),
            14 => Op::Report(zone),
            _ if next(8) == 0 => Op::Sync,
            _ => Op::Report(zone),
        }
    };
    (0..count).map(|_| op()).collect()
}

fn long_runs(subject: &Subject<'_>) {
    let all: Vec<ZoneId> = (0..6).map(ZoneId).collect();
    for seed in 1..4 {
        let device = fresh(subject, &all[..ZONES_MIN as usize]);
        let zone_pages = (device.geometry().zone_bytes / PAGE) as usize;
        follow(&*device, &ops(seed * 0x9e37_79b9, 300, (zone_pages / 3).min(300)));
    }
}
