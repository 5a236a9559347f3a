//! A flash tier for tests, used as a server uses it, but one key at a time.
#![allow(dead_code)]

use larder_cache::*;
use larder_flash::device::Device;
use larder_flash::space::Watermarks;
use larder_flash::{FlashOptions, Recover};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a test waits. A device in memory answers at once, but the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn unix_now_s() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32)
}

/// Opens the tier on `device`. Without `now_s` it uses the machine's clock.
pub(crate) fn open(
    device: &(impl Device + Clone + 'static),
    recover: Recover,
    now_s: Option<Arc<AtomicU32>>,
) -> Arc<Flash> {
    open_with(device, recover, now_s, true)
}

/// As [`open`], with generations or without.
pub(crate) fn open_with(
    device: &(impl Device + Clone + 'static),
    recover: Recover,
    now_s: Option<Arc<AtomicU32>>,
    generations: bool,
) -> Arc<Flash> {
    open_on(Arc::new(device.clone()), recover, now_s, generations)
}

/// As [`open_with`], on any device.
pub(crate) fn open_on(
    device: Arc<dyn Device>,
    recover: Recover,
    now_s: Option<Arc<AtomicU32>>,
    generations: bool,
) -> Arc<Flash> {
    let flash = Flash::open(
        device,
        FlashOptions {
            memory_bytes: 16 << 20,
            segment_bytes: None,
            generations,
            recover,
            space: Watermarks::by_rates(),
            cutoff_s: 0,
            log_percent: 8,
            fill_percent: 50,
            seed: 7,
            now_unix_s: Arc::new(move || now_s.as_ref().map_or_else(unix_now_s, |now_s| now_s.load(Relaxed))),
            format: false,
        },
    );
    let flash = flash.expect("a device of memory can be opened");
    flash.start().expect("threads can be started");
    flash
}

/// Waits for the result of the fetch with `token`.
fn wait(worker: &mut Worker, token: u64) -> Option<Found> {
    let until = Instant::now() + PATIENCE;
    worker.kick_fetches();
    let mut came = None;
    loop {
        worker.poll_fetches(&mut |done, found| {
            if done == token {
                came = Some(found);
            }
        });
        if let Some(found) = came {
            return found;
        }
        assert!(Instant::now() < until, "a fetch never came to its end");
        std::thread::yield_now();
    }
}

/// Looks for a key on flash until it is known whether it is there.
pub(crate) fn fetch(worker: &mut Worker, hash: KeyHash, key: &[u8]) -> Option<Found> {
    loop {
        match worker.fetch(1, hash, key) {
            Fetch::Absent => return None,
            Fetch::Here(found) => return Some(found),
            Fetch::Started => return wait(worker, 1),
            Fetch::Busy => worker.poll_fetches(&mut |_, _| {}),
        }
    }
}

fn fetch_part(worker: &mut Worker, hash: KeyHash, key: &[u8], found: &Found, part: u32) -> Option<Found> {
    loop {
        match worker.fetch_part(2, hash, key, found, part) {
            Fetch::Absent => return None,
            Fetch::Here(found) => return Some(found),
            Fetch::Started => return wait(worker, 2),
            Fetch::Busy => worker.poll_fetches(&mut |_, _| {}),
        }
    }
}

/// The whole value of an item that was found, and whether it was promoted. `None`: a part of it is gone.
pub(crate) fn take_in(
    worker: &mut Worker,
    hash: KeyHash,
    key: &[u8],
    found: &Found,
    promote: bool,
) -> Option<(Vec<u8>, bool)> {
    let mut value = found.value.clone();
    if value.len() as u64 == found.value_bytes {
        return Some((value, promote && worker.promote(hash, key, found)));
    }
    let mut promotion = if promote { worker.begin_promotion(hash, key, found) } else { None };
    let mut number = 1;
    while (value.len() as u64) < found.value_bytes {
        assert!(promotion.as_ref().is_none_or(|promotion| promotion.next_part() == Some(number)));
        let Some(part) = fetch_part(worker, hash, key, found, number) else {
            if let Some(promotion) = promotion {
                worker.abandon_promotion(promotion);
            }
            return None;
        };
        value.extend_from_slice(&part.value);
        if let Some(mut filling) = promotion.take() {
            if worker.fill_promotion(&mut filling, &part) {
                promotion = Some(filling);
            } else {
                worker.abandon_promotion(filling);
            }
        }
        number += 1;
    }
    assert_eq!(value.len() as u64, found.value_bytes, "the parts are as long as the whole");
    let promoted = promotion.is_some_and(|promotion| {
        assert_eq!(promotion.next_part(), None);
        worker.complete_promotion(promotion, hash, key, found)
    });
    Some((value, promoted))
}
