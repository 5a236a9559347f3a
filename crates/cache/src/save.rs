//! A graceful stop with a flash tier: what is live in memory goes to flash, or flash is told what is out of date.

use crate::demoter::{Demoter, is_over_on_flash};
use crate::item_store::{ItemStore, Life};
use larder_flash::Put;
use larder_index::WARMTH_MAX;
use larder_item::{Location, State};
use larder_memory::Guard;
use std::time::{Duration, Instant};

/// How long a stop waits for a device that takes nothing.
const DEVICE_WAIT_MAX: Duration = Duration::from_secs(10);
/// The pause between two attempts.
const DEVICE_PAUSE: Duration = Duration::from_millis(1);

/// What [`crate::Cache::save_to_flash`] did, in items.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Saved {
    /// Items that were written.
    pub written: u64,
    /// Items that were on flash already, unchanged.
    pub clean: u64,
    /// Items that flash did not take. They are gone, and so are their older versions.
    pub lost: u64,
}

/// Walks over all items in memory, the coldest first, so that the warmest are the newest on flash. With `write` they
/// are put there; without it only the older versions of changed items are invalidated. The workers must have stopped.
pub(crate) fn settle_flash(store: &ItemStore, demoter: &Demoter, write: bool) -> Saved {
    let mut save = Save { store, demoter, writes: write, may_wait: true, saved: Saved::default() };
    let mut reader = store.memory.register();
    let mut locations = Vec::new();
    for warmth in 0..=WARMTH_MAX {
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            locations.clear();
            let walked = store.index.walk(at, &mut |entry| {
                if entry.warmth == warmth {
                    locations.push(entry.location);
                }
            });
            cursor = walked.next;
            let guard = reader.pin();
            for &at in &locations {
                save.settle(&guard, at);
            }
            reader.quiesce();
        }
    }
    save.saved
}

/// One walk over all items.
struct Save<'a> {
    store: &'a ItemStore,
    demoter: &'a Demoter,
    /// Whether items are put on flash.
    writes: bool,
    /// Whether the device is waited for. It is not any more once it has taken nothing for too long.
    may_wait: bool,
    saved: Saved,
}

impl Save<'_> {
    /// Makes flash right about the item at `at`, if the item is still there.
    fn settle(&mut self, guard: &Guard<'_>, at: Location) {
        let flash = self.demoter.flash();
        let item = guard.item(at);
        let hash = self.store.hasher.hash(item.key());
        let bucket = self.store.index.lock(hash);
        if bucket.find_at(at).is_none() {
            return;
        }
        let life = self.store.life(at, &item);
        if life != Life::Live {
            if !is_over_on_flash(life, &item) && !self.demoter.has_hidden(&item) {
                self.wait_for_invalidations();
                flash.invalidate(hash, item.key());
            }
            return;
        }
        if self.demoter.holds_clean(hash, &item) {
            self.saved.clean += 1;
            return;
        }
        let started = Instant::now();
        while self.writes && self.may_wait {
            // The workers have stopped: nobody waits for the bucket while the device takes the parts.
            if self.demoter.put(self.store, guard, hash, &item) == Put::Stored {
                item.set_state_bits(State::CLEAN);
                self.saved.written += 1;
                return;
            }
            self.pause(started);
        }
        if !self.demoter.has_hidden(&item) {
            self.wait_for_invalidations();
            flash.invalidate(hash, item.key());
        }
        self.saved.lost += 1;
    }

    /// An invalidation that finds no room costs items of other keys.
    fn wait_for_invalidations(&mut self) {
        let started = Instant::now();
        while self.may_wait && self.demoter.flash().is_crowded() {
            self.pause(started);
        }
    }

    /// Gives the device time, unless it has taken nothing since `started` for too long.
    fn pause(&mut self, started: Instant) {
        self.may_wait = started.elapsed() <= DEVICE_WAIT_MAX;
        self.demoter.flash().tend();
        std::thread::sleep(DEVICE_PAUSE);
    }
}
