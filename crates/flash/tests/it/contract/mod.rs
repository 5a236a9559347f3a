//! The contract of devices, on every device that a machine without flash can have: memory, files with and without the
//! page cache, loop devices (as root), and a faulty device without faults. Files and loop devices are read by
//! io_uring and by threads.

use crate::support::{Loop, folder};
use larder_flash::device::{Device, DeviceOptions, Direct, ReadsBy, open_reading_by};
use larder_laboratory::contract::{self, Op};
use larder_laboratory::{AppendFault, FaultyDevice, MemoryDevice, ReadFault};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn options(direct: Direct) -> DeviceOptions {
    DeviceOptions { bytes: Some(16 * MIB), zone_bytes: Some(MIB), direct }
}

fn opened(path: &Path, options: &DeviceOptions, reads: ReadsBy) -> Arc<dyn Device> {
    open_reading_by(path, options, reads).unwrap_or_else(|error| panic!("{error}"))
}

fn check_file(direct: Direct, reads: ReadsBy) {
    let folder = folder();
    let path = folder.path().join("flash");
    contract::check_keeping(|| opened(&path, &options(direct), reads));
}

#[test]
fn memory() {
    contract::check(|| Arc::new(MemoryDevice::new(8, 64)));
}

#[test]
fn memory_again() {
    let device = MemoryDevice::new(8, 64);
    contract::check_keeping(|| Arc::new(device.clone()));
}

#[test]
fn faulty_without_faults() {
    contract::check(|| Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(8, 64)))));
}

#[test]
fn file_direct_by_io_uring() {
    check_file(Direct::Auto, ReadsBy::Auto);
}

#[test]
fn file_direct_by_threads() {
    check_file(Direct::Auto, ReadsBy::Threads);
}

#[test]
fn file_through_the_page_cache_by_io_uring() {
    check_file(Direct::Off, ReadsBy::Auto);
}

#[test]
fn file_through_the_page_cache_by_threads() {
    check_file(Direct::Off, ReadsBy::Threads);
}

#[test]
fn loop_device() {
    let Some(disk) = Loop::new(16 * MIB) else { return };
    for (direct, reads) in [
        (Direct::On, ReadsBy::Auto),
        (Direct::On, ReadsBy::Threads),
        (Direct::Off, ReadsBy::Auto),
        (Direct::Off, ReadsBy::Threads),
    ] {
        let options = DeviceOptions { bytes: None, ..options(direct) };
        contract::check_keeping(|| opened(disk.path(), &options, reads));
    }
}

/// The checks find a device that goes wrong once.
#[test]
fn liars_are_found_out() {
    type Arm = fn(&FaultyDevice);
    let lies: [(&str, Arm); 6] = [
        ("an append fails", |device| device.fault_append(3, AppendFault::Fail)),
        ("an append is short", |device| device.fault_append(3, AppendFault::Short(1))),
        ("an append is torn", |device| {
            (1..30).for_each(|nth| device.fault_append(nth, AppendFault::Torn(0)))
        }),
        ("a read fails", |device| device.fault_read(2, ReadFault::Fail)),
        ("a read is wrong in one byte", |device| device.fault_read(2, ReadFault::Corrupt(99))),
        ("a reset fails", |device| device.fault_reset(7)),
    ];
    for (lie, arm) in lies {
        let device = FaultyDevice::new(Arc::new(MemoryDevice::new(6, 64)));
        arm(&device);
        let follow = || contract::follow(&device, &contract::ops(1, 300, 20));
        assert!(catch_unwind(AssertUnwindSafe(follow)).is_err(), "{lie}, and nobody notices");
    }
    contract::follow(&MemoryDevice::new(6, 64), &contract::ops(1, 300, 20));
}

fn op() -> impl Strategy<Value = Op> {
    let zone = 0..6u32;
    prop_oneof![
        6 => (zone.clone(), 1..200usize, any::<u32>()).prop_map(|(z, n, seed)| Op::Append(z, n, seed.into())),
        3 => (zone.clone(), any::<u64>(), 1..8usize).prop_map(|(z, page, n)| Op::Read(z, page, n)),
        3 => (zone.clone(), any::<u64>(), 1..8usize).prop_map(|(z, page, n)| Op::QueuedRead(z, page, n)),
        1 => zone.clone().prop_map(Op::Finish),
        1 => zone.clone().prop_map(Op::Reset),
        1 => zone.prop_map(Op::Report),
        1 => Just(Op::Sync),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn files_are_like_a_vector_of_zones(
        ops in prop::collection::vec(op(), 1..60),
        is_direct: bool,
        by_threads: bool,
    ) {
        let folder = folder();
        let direct = if is_direct { Direct::Auto } else { Direct::Off };
        let reads = if by_threads { ReadsBy::Threads } else { ReadsBy::Auto };
        let options = DeviceOptions { bytes: Some(6 * MIB), ..options(direct) };
        contract::follow(&*opened(&folder.path().join("flash"), &options, reads), &ops);
    }

    #[test]
    fn memory_is_like_a_vector_of_zones(ops in prop::collection::vec(op(), 1..100)) {
        contract::follow(&MemoryDevice::new(6, 256), &ops);
        contract::follow(&FaultyDevice::new(Arc::new(MemoryDevice::new(6, 256))), &ops);
    }
}
