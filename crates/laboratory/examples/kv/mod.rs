//! A key-value cache of slabs of equal slots, in virtual time: no more of DIDACache and Fatcache than their space needs.
//!
//! Keys are numbers, an index says in which slab and slot the newest version of each lies, slabs are filled in memory and flushed
//! whole. What happens to full slabs is the crate's own `space`; what that does to flash is its simulated SSD.

pub(crate) mod flash;
pub(crate) mod workload;

use flash::Store;
use larder_flash::device::ZoneId;
use larder_flash::space::{self, Meter, Watermarks, Work, ZoneFacts};
use larder_flash::{OpsPolicy, ReclaimPolicy};
use larder_laboratory::ssd::Histogram;
use std::collections::VecDeque;

const NOWHERE: u64 = u64::MAX;

/// Who goes when there is no room.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Eviction {
    /// DIDACache: between watermarks, in the background.
    Managed(ReclaimPolicy, OpsPolicy),
    /// Fatcache, when no slab is free: the slab with the fewest live items, which are written again.
    Greedy,
    /// Fatcache: the slab that was least recently used, with all that is in it.
    Kick,
    /// Fatcache: the slab that was written first; its live items are written again.
    FifoCopies,
    /// Fatcache as it is: the slab that was written first, with all that is in it.
    Fifo {
        /// Whether the index entry of an item is deleted only if it points to this very slab.
        guarded: bool,
    },
}

/// How the cache is set up, times in virtual nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) keys: u32,
    pub(crate) slots: u32,
    pub(crate) slots_per_page: u32,
    pub(crate) eviction: Eviction,
    /// Slabs in memory that are being filled or flushed.
    pub(crate) buffers: usize,
    /// Processor time of a request, which one thread spends.
    pub(crate) request_ns: u64,
    /// Processor time of moving one item.
    pub(crate) copy_ns: u64,
    /// Processor time of forgetting one slab.
    pub(crate) drop_ns: u64,
    /// Whether somebody else flushes; otherwise whoever fills a slab waits for it.
    pub(crate) background_flush: bool,
    /// Whether somebody else reclaims, ahead of need; otherwise whoever finds no slab.
    pub(crate) background_reclaim: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Filling,
    Full,
}

struct Slab {
    state: State,
    keys: Vec<u32>,
    live: u32,
    used: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
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
    /// When slabs in memory will be on flash: the oldest first.
    flushing: VecDeque<u64>,
    /// Slabs whose erase is not over: from when on they can be written.
    erasing: VecDeque<(u64, u32)>,
    marks: Watermarks,
    meter: Meter,
    turn: u64,
    /// Full slabs, the oldest first, where that is the order in which they go.
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
        let slab = || Slab { state: State::Free, keys: Vec::new(), live: 0, used: 0 };
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
            // Remembers the time that a hundredth of the slabs takes at full speed.
            meter: Meter::new(
                settings.request_ns as f64 * 1e-9 * settings.slots as f64 * slabs as f64 / 100.0,
            ),
            turn: 0,
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

    /// Forgets what was counted and timed, not what is stored.
    pub(crate) fn begin_measuring(&mut self) {
        self.counters = Counters::default();
        self.latency = Histogram::default();
        self.low_sum = (0, 0);
    }

    /// A request that arrives at `at`. Returns when it was answered.
    pub(crate) fn set(&mut self, at: u64, key: u32) -> u64 {
        self.counters.sets += 1;
        let begun = at.max(self.cpu_free);
        let end = self.put(begun + self.settings.request_ns, key, Who::Host);
        self.cpu_free = end;
        self.latency.add(end - at);
        end
    }

    /// The same; says whether it was there.
    pub(crate) fn get(&mut self, at: u64, key: u32) -> (u64, bool) {
        self.counters.gets += 1;
        let cpu = at.max(self.cpu_free) + self.settings.request_ns;
        self.cpu_free = cpu;
        let place = self.index[key as usize];
        let mut end = cpu;
        if place != NOWHERE {
            self.counters.hits += 1;
            let (slab, slot) = self.split(place);
            self.turn += 1;
            self.slabs[slab as usize].used = self.turn;
            if self.slabs[slab as usize].state == State::Full {
                end = self.store.read(cpu, slab, slot / self.settings.slots_per_page);
            }
        }
        self.latency.add(end - at);
        (end, place != NOWHERE)
    }

    fn split(&self, place: u64) -> (u32, u32) {
        ((place / self.settings.slots as u64) as u32, (place % self.settings.slots as u64) as u32)
    }

    /// Writes an item into the slab that is being filled; flushes that when it is full.
    fn put(&mut self, at: u64, key: u32, who: Who) -> u64 {
        let (slab, mut now) = match self.filling[who as usize] {
            Some(slab) => (slab, at),
            None => self.begin_slab(at, who),
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
            self.turn += 1;
            (found.state, found.used) = (State::Full, self.turn);
            if matches!(self.settings.eviction, Eviction::FifoCopies | Eviction::Fifo { .. }) {
                self.by_age.push_back(slab);
            }
            self.filling[who as usize] = None;
            now = self.flush(now, slab, who);
        }
        now
    }

    fn flush(&mut self, at: u64, slab: u32, who: Who) -> u64 {
        let end = self.store.write(at, slab);
        if who == Who::Reclaim {
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

    fn free(&mut self, now: u64) -> u32 {
        // Erases of different dies end out of order; whoever is done joins the free ones.
        let store = &mut self.store;
        self.erasing.retain(|(end, slab)| {
            if *end <= now {
                store.give_back(*slab);
            }
            *end > now
        });
        self.store.free()
    }

    /// A slab to fill; what it takes to get one, for the host, is waited for.
    fn begin_slab(&mut self, at: u64, who: Who) -> (u32, u64) {
        let mut now = at;
        if who == Who::Host {
            self.tend(now);
        }
        // One slab is the reclaimer's, so that it can always write what it moves.
        let least = if who == Who::Host { 1 } else { 0 };
        while self.free(now) <= least {
            let before = now;
            now = match self.erasing.iter().map(|(end, _)| *end).min() {
                Some(end) => now.max(end),
                None => self.make_room(now),
            };
            if who == Who::Host {
                self.counters.stalled_ns += now - before;
            }
        }
        let slab = self.store.take().expect("there was one");
        let found = &mut self.slabs[slab as usize];
        found.state = State::Filling;
        found.keys.clear();
        self.filling[who as usize] = Some(slab);
        (slab, now)
    }

    /// What the reclaimer has done until now, if there is one.
    fn tend(&mut self, now: u64) {
        let Eviction::Managed(reclaim, _) = self.settings.eviction else { return };
        let free = self.free(now) + self.erasing.len() as u32;
        self.marks.observe(free, self.meter.rates());
        self.low_sum = (self.low_sum.0 + self.marks.low() as u64, self.low_sum.1 + 1);
        while self.settings.background_reclaim && self.reclaimer_free <= now {
            let free = self.free(now) + self.erasing.len() as u32;
            let work = self.marks.work(reclaim, free);
            if work == Work::Idle {
                // It sleeps until somebody asks again.
                self.reclaimer_free = now;
                break;
            }
            // One that is behind goes on where it was; one that slept begins now.
            let begun = self.reclaimer_free;
            if !self.reclaim_one(begun, work) {
                self.marks.nothing_to_gain();
                self.reclaimer_free = now;
                break;
            }
        }
    }

    /// There is no slab at all: reclaims one, and says when that was done.
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

    fn facts(&self) -> impl Iterator<Item = ZoneFacts> + '_ {
        let full = self.slabs.iter().enumerate().filter(|(_, slab)| slab.state == State::Full);
        full.map(|(id, slab)| ZoneFacts {
            zone: ZoneId(id as u32),
            written_bytes: slab.keys.len() as u64,
            live_bytes: slab.live as u64,
            order: slab.used,
        })
    }

    fn least_recent(&self) -> u32 {
        space::oldest(self.facts()).expect("a full slab").zone.0
    }

    fn first_written(&mut self) -> u32 {
        self.by_age.pop_front().expect("a full slab")
    }

    /// Reclaims one slab, from `at` on; `false` if there is nothing to gain.
    fn reclaim_one(&mut self, at: u64, work: Work) -> bool {
        match work {
            Work::Idle => return false,
            Work::Quick => {
                let victim = self.least_recent();
                self.counters.quick += 1;
                self.drop_out(at, victim, true);
            }
            Work::Greedy => {
                // Less than a tenth of a slab is not worth a slab's wear.
                let Some(victim) = space::greedy(self.facts(), self.settings.slots as u64 / 10) else {
                    return false;
                };
                self.move_out(at, victim.zone.0);
            }
        }
        true
    }

    /// Reads what lives in a slab and writes it again.
    fn move_out(&mut self, at: u64, victim: u32) {
        self.counters.reclaims += 1;
        // Nobody else's victim meanwhile.
        self.slabs[victim as usize].state = State::Filling;
        let keys = std::mem::take(&mut self.slabs[victim as usize].keys);
        let base = victim as u64 * self.settings.slots as u64;
        let lives = |cache: &Cache, slot: usize, key: u32| cache.index[key as usize] == base + slot as u64;
        let (mut read, mut page_read) = (at, u32::MAX);
        for (slot, key) in keys.iter().enumerate() {
            let page = slot as u32 / self.settings.slots_per_page;
            if lives(self, slot, *key) && page != page_read {
                page_read = page;
                read = read.max(self.store.read(at, victim, page));
            }
        }
        let mut now = read;
        for (slot, key) in keys.iter().enumerate() {
            if lives(self, slot, *key) {
                self.counters.copied += 1;
                now = self.put(now + self.settings.copy_ns, *key, Who::Reclaim);
            }
        }
        self.release(at, now, victim);
    }

    /// Forgets a slab. The unguarded kind deletes whatever the index has for its keys.
    fn drop_out(&mut self, at: u64, victim: u32, guarded: bool) {
        self.counters.reclaims += 1;
        let keys = std::mem::take(&mut self.slabs[victim as usize].keys);
        for key in keys {
            let place = self.index[key as usize];
            if place == NOWHERE {
                continue;
            }
            let (slab, _) = self.split(place);
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
        slab.state = State::Free;
        let end = self.store.erase(now, victim);
        self.erasing.push_back((end, victim));
        // Its own work and the erase, without what the die had to do before.
        self.meter.reclaimed((now - begun + self.store.erase_ns()) as f64 * 1e-9);
        self.reclaimer_free = now;
    }
}
