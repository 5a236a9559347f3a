//! More is evicted than the device takes: what was read is on flash afterwards.

use crate::tier::{fetch, open_on};
use larder_cache::*;
use larder_flash::Recover;
use larder_flash::device::Device;
use larder_laboratory::{MemoryDevice, SlowDevice};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LIMIT_BYTES: u64 = 8 << 20;
/// What the device takes in a second: little, so that a busy machine stores twice as much.
const DEVICE_BYTES_PER_S: u64 = 24 << 20;
/// How often a burst is tried again, because the machine was busy.
const TRIES_MAX: usize = 3;

/// The items of a burst.
#[derive(Clone, Copy)]
struct Item {
    value_bytes: usize,
    /// Whether it is read before it leaves memory.
    is_read: bool,
    /// What a miss of it costs, if the client says so.
    penalty: Option<Subclass>,
}

struct Burst {
    cache: Arc<Cache>,
    worker: Worker,
    device: Arc<dyn Device>,
}

fn key_of(number: usize) -> Vec<u8> {
    format!("item-{number:06}").into_bytes()
}

fn value_of(number: usize, bytes: usize) -> Vec<u8> {
    let mut value = format!("{number}-").into_bytes().repeat(bytes);
    value.truncate(bytes);
    value
}

impl Burst {
    fn new() -> Burst {
        let memory = Arc::new(MemoryDevice::new(256, 256));
        let device: Arc<dyn Device> = Arc::new(SlowDevice::new(memory, DEVICE_BYTES_PER_S));
        let flash = open_on(device.clone(), Recover::Clean, None, false);
        let options = CacheOptions { limit_bytes: LIMIT_BYTES, workers: 1, ..CacheOptions::default() };
        let cache = Cache::with_flash(options, Some(flash.into())).expect("a small cache can be made");
        Burst { worker: cache.worker(), cache, device }
    }

    /// Stores `bytes` of values, twice as fast as the device takes them.
    fn run(&mut self, bytes: u64, item: impl Fn(usize) -> Item) -> usize {
        let (began, mut stored) = (Instant::now(), 0);
        for number in 0.. {
            let Item { value_bytes, is_read, penalty } = item(number);
            let (key, value) = (key_of(number), value_of(number, value_bytes));
            let hash = self.cache.hash(&key);
            let outcome = self.worker.store(&Store { penalty, ..Store::set(&key, hash, &value) });
            assert!(matches!(outcome, StoreOutcome::Stored { .. }), "{outcome:?}");
            if is_read {
                assert!(self.worker.get(hash, &key).is_some());
            }
            self.worker.quiesce();
            stored += value.len() as u64;
            if stored >= bytes {
                return number + 1;
            }
            let due_s = stored as f64 / (2 * DEVICE_BYTES_PER_S) as f64;
            while began.elapsed().as_secs_f64() < due_s {
                std::thread::sleep(Duration::from_micros(200));
                self.worker.quiesce();
            }
        }
        unreachable!("there are numbers enough")
    }

    fn has(&mut self, number: usize, bytes: usize) -> bool {
        let key = key_of(number);
        let hash = self.cache.hash(&key);
        if self.worker.peek(hash, &key).is_some() {
            return true;
        }
        let found = self.worker.flash_may_hold(hash, &key).then(|| fetch(&mut self.worker, hash, &key));
        found.flatten().is_some_and(|found| {
            assert!(found.value == value_of(number, bytes), "item {number} has another value");
            true
        })
    }
}

/// The share of the items that is found after a burst, of those for which `is_of` says so and of the others.
fn found_after(bytes: u64, item: impl Fn(usize) -> Item, is_of: impl Fn(Item) -> bool) -> (f64, f64, Totals) {
    // One at a time: two would be slower than the device is meant to be.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut burst = Burst::new();
    let keeper = burst.cache.keep().expect("a thread can be started");
    let count = burst.run(bytes, &item);
    burst.cache.stop_keeper();
    keeper.join().expect("the keeper does not panic");
    let (mut found, mut all) = ([0.0; 2], [0.0; 2]);
    for number in 0..count {
        let of = usize::from(is_of(item(number)));
        all[of] += 1.0;
        found[of] += f64::from(burst.has(number, item(number).value_bytes));
    }
    let totals = burst.cache.totals();
    let written = burst.device.counters().append_bytes;
    println!("{count} items, {written} bytes written, found {found:?} of {all:?}");
    (found[1] / all[1], found[0] / all[0], totals)
}

#[test]
fn what_was_read_survives_stores_at_twice_the_rate_of_the_device() {
    let item = |number: usize| Item { value_bytes: 8192, is_read: number.is_multiple_of(4), penalty: None };
    let is_well = || {
        let (read, unread, totals) = found_after(72 << 20, item, |item| item.is_read);
        assert_eq!(totals.shed_read + totals.shed_unread, totals.demotions_shed);
        println!("{} of the read items were shed, {} others", totals.shed_read, totals.shed_unread);
        // The rest of what the device takes is not wasted.
        read >= 0.9 && unread >= 0.2 && totals.shed_unread >= 10 * totals.shed_read
    };
    // A machine that is busy for as long as the burst takes is slower than the device.
    assert!((0..TRIES_MAX).any(|_| is_well()), "see the figures above");
}

/// Long and short items are written to segments of their own. Neither kind keeps the buffers from the other.
#[test]
fn costly_items_survive_a_burst_of_cheap_ones_of_another_length() {
    for long_are_costly in [true, false] {
        // By bytes, a quarter is costly.
        let item = |number: usize| {
            let is_long = if long_are_costly { number.is_multiple_of(25) } else { number.is_multiple_of(4) };
            let is_costly = is_long == long_are_costly;
            Item {
                value_bytes: if is_long { 8192 } else { 1000 },
                is_read: false,
                penalty: Some(Subclass::of_us(if is_costly { 4_000_000 } else { 2_000 })),
            }
        };
        let found = || -> (f64, f64) {
            let (long, short, _) = found_after(72 << 20, item, |item| item.value_bytes > 1000);
            if long_are_costly { (long, short) } else { (short, long) }
        };
        let is_well = |(costly, cheap): (f64, f64)| costly >= 0.85 && cheap >= 0.2;
        // A machine that is busy for as long as the burst takes is slower than the device.
        let mut tries = (0..TRIES_MAX).map(|_| found());
        assert!(tries.any(is_well), "long are costly {long_are_costly}: see the figures above");
    }
}
