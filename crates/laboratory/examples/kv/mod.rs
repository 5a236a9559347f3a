//! A model of the space management of DIDACache and Fatcache: a key-value cache of slabs of equal slots, in virtual
//! time.
//!
//! Keys are numbers. An index holds the slab and the slot of the newest version of each key. Slabs are filled in
//! memory and written whole. The watermarks and the choice of the next slab are those of `larder_flash::space`; the
//! flash is the simulated SSD.

pub(crate) mod flash;
pub(crate) mod workload;

use flash::Store;
use larder_flash::device::ZoneId;
use larder_flash::space::{self, Meter, Watermarks, Work, ZoneSummary};
use larder_flash::{OpsPolicy, ReclaimPolicy};
use larder_laboratory::ssd::Histogram;
use std::collections::VecDeque;

/// The address of a key that is not cached.
const NOWHERE: u64 = u64::MAX;

/// Which slab is reclaimed, and what happens to its live items.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Eviction {
    /// DIDACache: a background thread reclaims slabs between two watermarks.
    Managed(ReclaimPolicy, OpsPolicy),
    /// Fatcache: when no slab is free, the slab with the fewest live items. They are written again.
    Greedy,
    /// Fatcache: the least recently used slab. Its items are dropped.
    Kick,
    /// Fatcache: the slab that was written first. Its live items are written again.
    FifoCopies,
    /// Fatcache as it is: the slab that was written first. Its items are dropped.
    Fifo {
        /// Whether the index entry of an item is deleted only if it points to this very slab.
        guarded: bool,
    },
}

/// The parameters of the cache. Times are virtual nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) keys: u32,
    pub(crate) slots: u32,
    pub(crate) slots_per_page: u32,
    pub(crate) eviction: Eviction,
    /// Number of slabs in memory, which are filled or written.
    pub(crate) buffers: usize,
    /// Processor time of a request. One thread handles all requests.
    pub(crate) request_ns: u64,
    /// Processor time of moving one item.
    pub(crate) copy_ns: u64,
    /// Processor time of dropping one slab.
    pub(crate) drop_ns: u64,
    /// Whether a background thread writes full slabs. Without it, the request that fills a slab waits for the write.
    pub(crate) background_flush: bool,
    /// Whether a background thread reclaims slabs ahead of need. Without it, the request that finds no free slab
    /// reclaims one.
    pub(crate) background_reclaim: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlabState {
    Free,
    Filling,
    Full,
}

struct Slab {
    state: SlabState,
    keys: Vec<u32>,
    live: u32,
    used: u64,
}

/// The origin of a write; each has a slab of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Host = 0,
    Reclaim = 1,
}

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counters {
    pub(crate) sets: u64,
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    pub(crate) copied: u64,
    pub(crate) dropped: u64,
    pub(crate) reclaims: u64,
    pub(crate) quick: u64,
    pub(crate) stalled_ns: u64,
}

pub(crate) struct Cache {
    settings: Settings,
    pub(crate) store: Box<dyn Store>,
    index: Vec<u64>,
    slabs: Vec<Slab>,
    filling: [Option<u32>; 2],
    /// For every slab that is being written, the time when its write ends; oldest first.
    flushing: VecDeque<u64>,
    /// The slabs that are being erased, and the time when the erase ends.
    erasing: VecDeque<(u64, u32)>,
    marks: Watermarks,
    meter: Meter,
    clock: u64,
    /// The full slabs, oldest first, if they are reclaimed in that order.
    by_age: VecDeque<u32>,
    cpu_free: u64,
    reclaimer_free: u64,
    pub(crate) counters: Counters,
    pub(crate) latency: Histogram,
    pub(crate) low_sum: (u64, u64),
}

impl Cache {
    pub(crate) fn new(settings: Settings, store: Box<dyn Store>) -> Cache {
        let slabs = store.slabs();
        let slab = || Slab { state: SlabState::Free, keys: Vec::new(), live: 0, used: 0 };
        let policy = match settings.eviction {
            Eviction::Managed(_, policy) => policy,
            _ => OpsPolicy::Static(1),
        };
        Cache {
            index: vec![NOWHERE; settings.keys as usize],
            slabs: (0..slabs).map(|_| slab()).collect(),
            filling: [None; 2],
            flushing: VecDeque::new(),
            erasing: VecDeque::new(),
            marks: Watermarks::new(policy, slabs),
            // Averages over the time in which a hundredth of the slabs is filled at full speed.
            meter: Meter::new(
                settings.request_ns as f64 * 1e-9 * settings.slots as f64 * slabs as f64 / 100.0,
            ),
            clock: 0,
            by_age: VecDeque::new(),
            cpu_free: 0,
            reclaimer_free: 0,
            counters: Counters::default(),
            latency: Histogram::default(),
            low_sum: (0, 0),
            settings,
            store,
        }
    }

    /// Sets the counters and the histogram to zero. The contents stay.
    pub(crate) fn begin_measuring(&mut self) {
        self.counters = Counters::default();
        self.latency = Histogram::default();
        self.low_sum = (0, 0);
    }

    /// Carries out a SET that arrives at `at`. Returns the time of the answer.
    pub(crate) fn set(&mut self, at: u64, key: u32) -> u64 {
        self.counters.sets += 1;
        let begun = at.max(self.cpu_free);
        let end = self.put(begun + self.settings.request_ns, key, Origin::Host);
        self.cpu_free = end;
        self.latency.add(end - at);
        end
    }

    /// Carries out a GET that arrives at `at`. Returns the time of the answer, and whether the key was found.
    pub(crate) fn get(&mut self, at: u64, key: u32) -> (u64, bool) {
        self.counters.gets += 1;
        let cpu = at.max(self.cpu_free) + self.settings.request_ns;
        self.cpu_free = cpu;
        let address = self.index[key as usize];
        let mut end = cpu;
        if address != NOWHERE {
            self.counters.hits += 1;
            let (slab, slot) = self.split(address);
            self.clock += 1;
            self.slabs[slab as usize].used = self.clock;
            if self.slabs[slab as usize].state == SlabState::Full {
                end = self.store.read(cpu, slab, slot / self.settings.slots_per_page);
            }
        }
        self.latency.add(end - at);
        (end, address != NOWHERE)
    }

    fn split(&self, address: u64) -> (u32, u32) {
        ((address / self.settings.slots as u64) as u32, (address % self.settings.slots as u64) as u32)
    }

    /// Puts an item into the slab that is being filled, and writes the slab when it is full.
    fn put(&mut self, at: u64, key: u32, origin: Origin) -> u64 {
        let (slab, mut now) = match self.filling[origin as usize] {
            Some(slab) => (slab, at),
            None => self.begin_slab(at, origin),
        };
        let old = std::mem::replace(
            &mut self.index[key as usize],
            slab as u64 * self.settings.slots as u64 + self.slabs[slab as usize].keys.len() as u64,
        );
        if old != NOWHERE {
            let (old, _) = self.split(old);
            self.slabs[old as usize].live -= 1;
        }
        let found = &mut self.slabs[slab as usize];
        found.keys.push(key);
        found.live += 1;
        if found.keys.len() == self.settings.slots as usize {
            self.clock += 1;
            (found.state, found.used) = (SlabState::Full, self.clock);
            if matches!(self.settings.eviction, Eviction::FifoCopies | Eviction::Fifo { .. }) {
                self.by_age.push_back(slab);
            }
            self.filling[origin as usize] = None;
            now = self.flush(now, slab, origin);
        }
        now
    }

    /// Writes a full slab. Returns the time when the caller can continue.
    fn flush(&mut self, at: u64, slab: u32, origin: Origin) -> u64 {
        let end = self.store.write(at, slab);
        if origin == Origin::Reclaim {
            return at;
        }
        self.meter.took(1.0, at as f64 * 1e-9);
        if !self.settings.background_flush {
            return end;
        }
        self.flushing.push_back(end);
        let mut now = at;
        while self.flushing.len() >= self.settings.buffers {
            let first = self.flushing.pop_front().unwrap_or(now);
            self.counters.stalled_ns += first.saturating_sub(now);
            now = now.max(first);
        }
        now
    }

    /// Number of free slabs.
    fn free(&mut self, now: u64) -> u32 {
        // Erases on different dies end out of order. A slab whose erase has ended is free.
        let store = &mut self.store;
        self.erasing.retain(|(end, slab)| {
            if *end <= now {
                store.give_back(*slab);
            }
            *end > now
        });
        self.store.free()
    }

    /// Takes a free slab to fill, and the time when it was free.
    fn begin_slab(&mut self, at: u64, origin: Origin) -> (u32, u64) {
        let mut now = at;
        if origin == Origin::Host {
            self.tend(now);
        }
        // The last slab is for the reclaimer, so that it can always write the items that it moves.
        let least = if origin == Origin::Host { 1 } else { 0 };
        while self.free(now) <= least {
            let before = now;
            now = match self.erasing.iter().map(|(end, _)| *end).min() {
                Some(end) => now.max(end),
                None => self.make_room(now),
            };
            if origin == Origin::Host {
                self.counters.stalled_ns += now - before;
            }
        }
        let slab = self.store.take().expect("there was one");
        let found = &mut self.slabs[slab as usize];
        found.state = SlabState::Filling;
        found.keys.clear();
        self.filling[origin as usize] = Some(slab);
        (slab, now)
    }

    /// Lets the background reclaimer, if there is one, work up to now.
    fn tend(&mut self, now: u64) {
        let Eviction::Managed(reclaim, _) = self.settings.eviction else { return };
        let free = self.free(now) + self.erasing.len() as u32;
        self.marks.observe(free, self.meter.rates());
        self.low_sum = (self.low_sum.0 + self.marks.low() as u64, self.low_sum.1 + 1);
        while self.settings.background_reclaim && self.reclaimer_free <= now {
            let free = self.free(now) + self.erasing.len() as u32;
            let work = self.marks.work(reclaim, free);
            if work == Work::Idle {
                // It sleeps until the next call.
                self.reclaimer_free = now;
                break;
            }
            // A reclaimer that is behind continues where it was; one that slept begins now.
            let begun = self.reclaimer_free;
            if !self.reclaim_one(begun, work) {
                self.marks.nothing_to_gain();
                self.reclaimer_free = now;
                break;
            }
        }
    }

    /// Reclaims a slab because none is free. Returns the time when that was done.
    fn make_room(&mut self, now: u64) -> u64 {
        let work = match self.settings.eviction {
            Eviction::Managed(reclaim, _) => self.marks.work(reclaim, 0),
            Eviction::Greedy => Work::Greedy,
            Eviction::Kick => Work::Quick,
            Eviction::FifoCopies => {
                let victim = self.first_written();
                self.move_out(now, victim);
                return self.reclaimer_free.max(now);
            }
            Eviction::Fifo { guarded } => {
                let victim = self.first_written();
                self.drop_out(now, victim, guarded);
                return self.reclaimer_free.max(now);
            }
        };
        if !self.reclaim_one(now.max(self.reclaimer_free), work) {
            let victim = self.least_recent();
            self.drop_out(now, victim, true);
        }
        self.reclaimer_free.max(now)
    }

    fn zones(&self) -> impl Iterator<Item = ZoneSummary> + '_ {
        let full = self.slabs.iter().enumerate().filter(|(_, slab)| slab.state == SlabState::Full);
        full.map(|(id, slab)| ZoneSummary {
            zone: ZoneId(id as u32),
            written_bytes: slab.keys.len() as u64,
            live_bytes: slab.live as u64,
            order: slab.used,
        })
    }

    fn least_recent(&self) -> u32 {
        space::oldest(self.zones()).expect("a full slab").zone.0
    }

    fn first_written(&mut self) -> u32 {
        self.by_age.pop_front().expect("a full slab")
    }

    /// Reclaims one slab, from `at` on. Returns false if nothing can be gained.
    fn reclaim_one(&mut self, at: u64, work: Work) -> bool {
        match work {
            Work::Idle => return false,
            Work::Quick => {
                let victim = self.least_recent();
                self.counters.quick += 1;
                self.drop_out(at, victim, true);
            }
            Work::Greedy => {
                // A gain of less than a tenth of a slab is not worth the wear of a slab.
                let Some(victim) = space::greedy(self.zones(), self.settings.slots as u64 / 10) else {
                    return false;
                };
                self.move_out(at, victim.zone.0);
            }
        }
        true
    }

    /// Reads the live items of a slab and writes them again.
    fn move_out(&mut self, at: u64, victim: u32) {
        self.counters.reclaims += 1;
        // In this state it is not chosen as a victim again.
        self.slabs[victim as usize].state = SlabState::Filling;
        let keys = std::mem::take(&mut self.slabs[victim as usize].keys);
        let base = victim as u64 * self.settings.slots as u64;
        let is_live = |cache: &Cache, slot: usize, key: u32| cache.index[key as usize] == base + slot as u64;
        let (mut read, mut page_read) = (at, u32::MAX);
        for (slot, key) in keys.iter().enumerate() {
            let page = slot as u32 / self.settings.slots_per_page;
            if is_live(self, slot, *key) && page != page_read {
                page_read = page;
                read = read.max(self.store.read(at, victim, page));
            }
        }
        let mut now = read;
        for (slot, key) in keys.iter().enumerate() {
            if is_live(self, slot, *key) {
                self.counters.copied += 1;
                now = self.put(now + self.settings.copy_ns, *key, Origin::Reclaim);
            }
        }
        self.release(at, now, victim);
    }

    /// Drops a slab. With `guarded` only index entries that point to the slab are deleted; without, all entries of
    /// its keys.
    fn drop_out(&mut self, at: u64, victim: u32, guarded: bool) {
        self.counters.reclaims += 1;
        let keys = std::mem::take(&mut self.slabs[victim as usize].keys);
        for key in keys {
            let address = self.index[key as usize];
            if address == NOWHERE {
                continue;
            }
            let (slab, _) = self.split(address);
            if !guarded || slab == victim {
                self.index[key as usize] = NOWHERE;
                self.slabs[slab as usize].live -= 1;
                self.counters.dropped += 1;
            }
        }
        self.release(at, at + self.settings.drop_ns, victim);
    }

    fn release(&mut self, begun: u64, now: u64, victim: u32) {
        let slab = &mut self.slabs[victim as usize];
        assert_eq!(slab.live, 0, "nothing points to a slab that is given back");
        slab.state = SlabState::Free;
        let end = self.store.erase(now, victim);
        self.erasing.push_back((end, victim));
        // The work of the reclaimer and the erase, without the time for which the die was busy before.
        self.meter.reclaimed((now - begun + self.store.erase_ns()) as f64 * 1e-9);
        self.reclaimer_free = now;
    }
}
