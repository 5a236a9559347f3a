//! One policy at one cache size over the whole trace.

use std::time::{Duration, Instant};

use super::feed::{Chunk, Prepared, Verb};
use crate::policy::larder::{FlashCounts, RealCache, RealItem};
use crate::policy::{Access, Policy};

/// The simulated cache.
pub(super) enum Model {
    /// A policy on key numbers.
    Policy(Box<dyn Policy>),
    /// The server's cache, with real items in real memory.
    Larder(Box<RealCache>),
}

/// Sums of what happened after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Gets.
    pub gets: u64,
    /// Gets that were hits.
    pub hits: u64,
    /// Bytes of key and value of all gets.
    pub bytes: u64,
    /// Bytes of key and value of the hits.
    pub hit_bytes: u64,
    /// Sum of the miss penalties in microseconds.
    pub penalty_us: u64,
    /// Items evicted for lack of room, including items that were refused.
    pub evictions: u64,
    /// Items found to be expired and removed.
    pub expired: u64,
    /// What flash did, where Larder has some. Its hits are among the hits.
    pub flash: Option<FlashCounts>,
}

/// Gets and hits over time, in windows of equally many requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Windows {
    /// Requests per window.
    pub requests: u64,
    /// (gets, hits) of each window.
    pub sums: Vec<(u64, u64)>,
}

/// Initial number of requests per window.
const WINDOW_REQUESTS: u64 = 1 << 10;
/// At this number of windows, neighbours are joined in pairs.
const WINDOWS_MAX: usize = 256;

impl Windows {
    fn new() -> Windows {
        Windows { requests: WINDOW_REQUESTS, sums: Vec::new() }
    }

    /// Ordinal of the first request after the window of request `ordinal`.
    fn end_of(&self, ordinal: u64) -> u64 {
        (ordinal / self.requests + 1) * self.requests
    }

    fn add(&mut self, ordinal: u64, gets: u64, hits: u64) {
        let mut at = (ordinal / self.requests) as usize;
        if at >= WINDOWS_MAX {
            self.sums = self.sums.chunks(2).map(add_up).collect();
            self.requests *= 2;
            at /= 2;
        }
        if at >= self.sums.len() {
            self.sums.resize(at + 1, (0, 0));
        }
        self.sums[at] = add_up(&[self.sums[at], (gets, hits)]);
    }
}

fn add_up(sums: &[(u64, u64)]) -> (u64, u64) {
    sums.iter().fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1))
}

/// The result of one simulation.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The counts after the warm-up.
    pub counts: Counts,
    /// Hits over time, including the warm-up.
    pub windows: Windows,
    /// Items stored at the end.
    pub items: u64,
    /// Space used by them, in the unit of the cache size.
    pub used: u64,
    /// Bits of bookkeeping per item, as the policy's paper counts them.
    pub metadata_bits: f64,
    /// About which share of those items is compressed; `None` where no items are real.
    pub compressed_share: Option<f64>,
    /// Time spent on this simulation.
    pub took: Duration,
}

/// A simulation in progress.
pub(super) struct Simulation {
    model: Model,
    capacity: u64,
    counts: Counts,
    windows: Windows,
    /// Expiry of each key's item in seconds since the start of the trace; 0 = never. Empty where times to live are
    /// ignored.
    expires: Vec<u32>,
    ttls: bool,
    /// Items stored and removed since counting began, and items held when it began.
    stored: u64,
    removed: u64,
    held: u64,
    /// Evictions and expiries of the real cache before counting began, and what its flash did.
    real_before: (u64, u64, Option<FlashCounts>),
    counted_from: u64,
    is_counting: bool,
    chunks_done: u64,
    took: Duration,
}

impl Simulation {
    /// A simulation that counts from request `counted_from` on.
    pub(super) fn new(model: Model, capacity: u64, ttls: bool, counted_from: u64) -> Simulation {
        Simulation {
            model,
            capacity,
            counts: Counts::default(),
            windows: Windows::new(),
            expires: Vec::new(),
            ttls,
            stored: 0,
            removed: 0,
            held: 0,
            real_before: (0, 0, None),
            counted_from,
            is_counting: false,
            chunks_done: 0,
            took: Duration::ZERO,
        }
    }

    /// The number of chunks simulated so far.
    pub(super) fn chunks_done(&self) -> u64 {
        self.chunks_done
    }

    /// Simulates the next chunk. Returns the time spent on all chunks so far.
    pub(super) fn run(&mut self, chunk: &Chunk) -> Duration {
        let started = Instant::now();
        if self.ttls && matches!(self.model, Model::Policy(_)) {
            self.expires.resize(chunk.keys, 0);
        }
        let end = chunk.first + chunk.requests.len() as u64;
        let mut from = chunk.first;
        while from < end {
            if from == self.counted_from {
                self.start_counting();
            }
            let mut to = end.min(self.windows.end_of(from));
            if from < self.counted_from {
                to = to.min(self.counted_from);
            }
            let before = self.counts;
            self.stretch(chunk, (from - chunk.first) as usize..(to - chunk.first) as usize);
            self.windows.add(from, self.counts.gets - before.gets, self.counts.hits - before.hits);
            from = to;
        }
        self.chunks_done += 1;
        self.took += started.elapsed();
        self.took
    }

    fn start_counting(&mut self) {
        self.is_counting = true;
        self.counts = Counts::default();
        (self.stored, self.removed) = (0, 0);
        match &self.model {
            Model::Policy(policy) => self.held = policy.items(),
            Model::Larder(cache) => {
                self.real_before = (cache.evictions(), cache.expired(), cache.flash_counts());
            }
        }
    }

    fn stretch(&mut self, chunk: &Chunk, range: std::ops::Range<usize>) {
        for at in range {
            let request = &chunk.requests[at];
            let hit = match &mut self.model {
                Model::Policy(_) => self.step(request, &chunk.access(at)),
                Model::Larder(cache) => real_step(cache, request, self.ttls),
            };
            if request.verb == Verb::Get {
                let counts = &mut self.counts;
                counts.gets += 1;
                counts.bytes += u64::from(request.bytes);
                if hit {
                    counts.hits += 1;
                    counts.hit_bytes += u64::from(request.bytes);
                } else {
                    counts.penalty_us += u64::from(request.penalty_us);
                }
            }
        }
    }

    /// Applies one request to a policy. Returns whether the item was stored.
    #[inline]
    fn step(&mut self, request: &Prepared, access: &Access) -> bool {
        if self.ttls {
            self.expire(request);
        }
        let Model::Policy(policy) = &mut self.model else { return false };
        let present = match request.verb {
            Verb::Get | Verb::Write => policy.access(access),
            Verb::Add => {
                // An add of a present key leaves the item unchanged.
                let present = policy.contains(access.id);
                if !present {
                    policy.access(access);
                }
                present
            }
            Verb::Replace | Verb::Alter => {
                let present = policy.contains(access.id);
                if present {
                    policy.access(access);
                    if request.verb == Verb::Replace {
                        self.set_expiry(request);
                    }
                }
                return present;
            }
            Verb::Delete => {
                let present = policy.contains(access.id);
                if present {
                    policy.remove(access.id);
                    self.removed += 1;
                }
                return present;
            }
        };
        if !present {
            self.stored += u64::from(u64::from(request.size) <= self.capacity);
        }
        if !present || request.verb == Verb::Write {
            self.set_expiry(request);
        }
        present
    }

    /// Removes the item of `request` if it has expired.
    fn expire(&mut self, request: &Prepared) {
        let expires = &mut self.expires[request.id as usize];
        if *expires == 0 || *expires > request.time_s {
            return;
        }
        *expires = 0;
        let Model::Policy(policy) = &mut self.model else { return };
        if policy.contains(request.id) {
            policy.remove(request.id);
            self.removed += 1;
            self.counts.expired += 1;
        }
    }

    #[inline]
    fn set_expiry(&mut self, request: &Prepared) {
        if self.ttls {
            let Prepared { time_s, ttl_s, .. } = *request;
            self.expires[request.id as usize] = if ttl_s == 0 { 0 } else { time_s.saturating_add(ttl_s) };
        }
    }

    /// The result.
    pub(super) fn finish(self) -> Run {
        let mut counts = self.counts;
        let mut compressed_share = None;
        let (items, used, metadata_bits) = match &self.model {
            Model::Policy(policy) => {
                counts.evictions = (self.held + self.stored).saturating_sub(self.removed + policy.items());
                (policy.items(), policy.used(), policy.metadata_bits())
            }
            Model::Larder(cache) => {
                counts.evictions = cache.evictions() - self.real_before.0;
                counts.expired = cache.expired() - self.real_before.1;
                counts.flash = cache.flash_counts().map(|now| now - self.real_before.2.unwrap_or_default());
                compressed_share = Some(cache.compressed_share());
                (cache.items(), cache.used_bytes(), cache.metadata_bits())
            }
        };
        if !self.is_counting {
            counts = Counts::default();
        }
        let Simulation { windows, took, .. } = self;
        Run { counts, windows, items, used, metadata_bits, compressed_share, took }
    }
}

/// Applies one request to the server's cache. Returns whether the item was stored.
fn real_step(cache: &mut RealCache, request: &Prepared, ttls: bool) -> bool {
    let item = RealItem {
        id: request.id,
        key_bytes: request.key_bytes,
        item_bytes: request.bytes,
        ttl_s: if ttls { request.ttl_s } else { 0 },
        penalty_us: request.penalty_us,
    };
    cache.set_time(request.time_s);
    match request.verb {
        Verb::Get => cache.get_or_fill(&item),
        Verb::Write => cache.set(&item),
        Verb::Add => cache.add(&item),
        Verb::Replace => cache.replace(&item),
        Verb::Alter => cache.alter(&item),
        Verb::Delete => cache.delete(&item),
    }
}
