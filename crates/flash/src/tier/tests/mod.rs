mod failures;
mod floors;
mod fragile;
mod generations;
mod holds;
mod invalidations;
mod model;
mod reclaim;
mod rules;
mod steady;
mod stress;
mod walk;

use crate::device::Device;
use crate::space::Watermarks;
use crate::test_devices::MemoryDevice;
use crate::{Begun, Fetcher, Flash, FlashItem, FlashOptions, Found, Put, Recover};
use larder_item::{KeyHash, KeyHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A tier on a device of memory, a clock, and one fetcher.
pub(crate) struct Bench {
    pub(crate) flash: Arc<Flash>,
    pub(crate) fetcher: Fetcher,
    pub(crate) clock: Arc<AtomicU32>,
    device: Arc<dyn Device>,
    options: FlashOptions,
    hasher: KeyHasher,
}

pub(crate) const NOW: u32 = 1_000_000;

pub(crate) fn options(clock: &Arc<AtomicU32>) -> FlashOptions {
    let clock = clock.clone();
    FlashOptions {
        memory_bytes: 4 << 20,
        segment_bytes: None,
        generations: false,
        recover: Recover::Clean,
        space: Watermarks::fixed(25),
        cutoff_s: 0,
        log_percent: 8,
        fill_percent: 100,
        seed: 42,
        now_unix_s: Arc::new(move || clock.load(Ordering::SeqCst)),
        format: true,
    }
}

impl Bench {
    pub(crate) fn new(zones: u32, zone_pages: u64, change: impl FnOnce(&mut FlashOptions)) -> Bench {
        Bench::on(Arc::new(MemoryDevice::new(zones, zone_pages)), change)
    }

    pub(crate) fn on(device: Arc<dyn Device>, change: impl FnOnce(&mut FlashOptions)) -> Bench {
        let clock = Arc::new(AtomicU32::new(NOW));
        let mut options = options(&clock);
        change(&mut options);
        let flash = Flash::open(device.clone(), options.clone()).unwrap();
        let fetcher = flash.fetcher().unwrap();
        let hasher = KeyHasher::with_seed(flash.seed());
        Bench { flash, fetcher, clock, device, options, hasher }
    }

    /// Closes the tier, as far as it can be closed, and opens it again.
    pub(crate) fn restart(&mut self) {
        // A tier that is full of garbage may not be closed in order: then it counts as crashed.
        let _ = self.flash.close();
        self.crash();
    }

    /// Opens the tier again as a crash has left it.
    pub(crate) fn crash(&mut self) {
        let options = FlashOptions { format: false, ..self.options.clone() };
        self.flash = Flash::open(self.device.clone(), options).unwrap();
        self.fetcher = self.flash.fetcher().unwrap();
        while self.flash.stats().is_recovering {
            self.flash.tend();
        }
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8], expires_unix_s: u32) -> Put {
        let item = FlashItem {
            key,
            value,
            value_bytes: value.len() as u64,
            flags: 7,
            expires_unix_s,
            cas: 1000 + value.len() as u64,
            state: larder_item::FlashState::PLAIN,
        };
        self.flash.put(self.hash(key), &item)
    }

    pub(crate) fn invalidate(&self, key: &[u8]) {
        self.flash.invalidate(self.hash(key), key);
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Option<Found> {
        let hash = self.hash(key);
        let begun = self.fetcher.begin(1, hash, key);
        finish(&mut self.fetcher, begun)
    }

    /// Deletes by prefix. Says whether there was room for the prefix.
    pub(crate) fn delete_prefix(&self, prefix: &[u8]) -> bool {
        let takes = self.flash.takes_prefix(prefix);
        if takes {
            self.flash.begin_prefix_flush(prefix);
            self.flash.drop_prefix(prefix).expect("there is room for it");
            self.flash.end_prefix_flush();
            self.flash.write_prefixes();
        }
        takes
    }

    pub(crate) fn value(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        self.get(key).map(|found| found.value)
    }

    /// Rounds enough for everything to settle.
    pub(crate) fn settle(&self) {
        (0..4).for_each(|_| self.flash.tend());
    }

    pub(crate) fn within_its_memory(&self) {
        let stats = self.flash.stats();
        assert!(stats.memory.total() <= stats.memory_cap, "{:?} of {}", stats.memory, stats.memory_cap);
    }
}

pub(crate) fn finish(fetcher: &mut Fetcher, begun: Begun) -> Option<Found> {
    match begun {
        Begun::Absent => None,
        Begun::Here(found) => Some(found),
        Begun::Busy => panic!("nothing else is under way"),
        Begun::Started => {
            let mut answer = None;
            fetcher.kick();
            for _ in 0..10_000 {
                fetcher.poll(&mut |token, found| {
                    assert_eq!(token, 1);
                    answer = Some(found);
                });
                if answer.is_some() {
                    break;
                }
            }
            answer.expect("a read comes to an end")
        }
    }
}
