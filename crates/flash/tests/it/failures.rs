//! Devices that fail, and what a restart finds afterwards.

use larder_flash::space::Watermarks;
use larder_flash::{Flash, FlashItem, FlashOptions, Put, Recover};
use larder_item::KeyHasher;
use larder_laboratory::{AppendFault, FaultyDevice, MemoryDevice};
use std::sync::Arc;

const SEGMENT_PAGES: u64 = 16;

fn open(device: &FaultyDevice, recover: Recover) -> Arc<Flash> {
    let options = FlashOptions {
        memory_bytes: 4 << 20,
        segment_bytes: Some(SEGMENT_PAGES << 12),
        generations: false,
        recover,
        space: Watermarks::fixed(10),
        cutoff_s: 0,
        log_percent: 8,
        fill_percent: 100,
        seed: 5,
        now_unix_s: Arc::new(|| 1_700_000_000),
        format: false,
    };
    Flash::open(Arc::new(device.clone()), options).expect("it opens")
}

/// Puts items until a segment waits to be written.
fn fill_segment(flash: &Flash, round: u64, value_bytes: usize) {
    let hasher = KeyHasher::with_seed(flash.seed());
    for n in 0.. {
        let (key, value) = (format!("key {round} {n}"), vec![round as u8; value_bytes]);
        let item = FlashItem {
            key: key.as_bytes(),
            value: &value,
            value_bytes: value.len() as u64,
            flags: 0,
            expires_unix_s: 0,
            cas: round << 32 | n,
            state: larder_flash::FlashState::PLAIN,
        };
        assert_eq!(flash.put(hasher.hash(key.as_bytes()), &item), Put::Stored);
        if flash.stats().segments_waiting > 0 {
            return;
        }
    }
}

/// Whether a segment was written to its end by the `nth` append after it was sealed, and that append failed.
fn fails_after_the_last_page(recover: Recover, value_bytes: usize, nth: u64) -> bool {
    let device = FaultyDevice::new(Arc::new(MemoryDevice::new(20, 64)));
    let flash = open(&device, recover);
    // The first segments of the zone are whole.
    for round in 0..2 {
        fill_segment(&flash, round, value_bytes);
        flash.tend();
    }
    fill_segment(&flash, 2, value_bytes);
    device.fault_append(nth, AppendFault::Short(SEGMENT_PAGES as usize));
    flash.tend();
    // The meta log has another zone to go to, and counts no error.
    let failed = flash.stats().device_errors > 0;
    flash.close().expect("it closes");
    let written = flash.stats().segments;
    drop(flash);
    for start in 0..2 {
        let flash = open(&device, recover);
        while flash.stats().is_recovering {
            flash.tend();
        }
        let found = flash.stats().segments;
        assert_eq!(found, written, "{recover:?}, values of {value_bytes} bytes, append {nth}, start {start}");
        flash.close().expect("it closes");
    }
    failed
}

/// The segment is written again, to another zone, and a restart finds it there only.
#[test]
fn a_segment_that_failed_is_not_found_beside_its_copy() {
    for recover in [Recover::Journal, Recover::Clean, Recover::BestEffort] {
        for value_bytes in [300, 5000] {
            assert!((1..=3).any(|nth| fails_after_the_last_page(recover, value_bytes, nth)), "{recover:?}");
        }
    }
}
