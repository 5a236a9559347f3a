//! The arithmetic of space: how many erased zones to hold ready, when to reclaim, which zone to reclaim next, and which
//! erased zone to write next. There are no clocks, devices and locks here.
//!
//! The erased zones that are held ready are the over-provisioned space (OPS). It has two watermarks, those of DIDACache
//! (Shen, Chen, Jia, Shao, FAST'17, sections 3.4 and 3.5):
//!
//! ```text
//!  erased zones   0 ......... low ............. high .........
//!                 | any garbage | much garbage   | nothing to do
//! ```
//!
//! Other than in DIDACache, the marks stay within the space that is not for live items, and a zone is dropped unread
//! only where no zone has garbage to gain (or where the policy is quick): what lives on flash is worth more than the
//! time to write it again.

use crate::device::ZoneId;
use crate::options::{OpsPolicy, ReclaimPolicy};
use std::collections::BTreeSet;

/// Distance between the two marks, percent of all zones (DIDACache).
pub const WINDOW_PERCENT: u32 = 15;
/// The low mark is at most this share of all zones, percent, so that three quarters of the device are always used for
/// items.
pub const LOW_MAX_PERCENT: u32 = 25;
/// Share of a zone, percent, that has to be garbage if the zone is reclaimed just below the high mark. At the low mark
/// it is [`GARBAGE_MIN_PERCENT`]; in between it falls in proportion.
pub const GARBAGE_AHEAD_PERCENT: u32 = 50;
/// Share of a zone, percent, that has to be garbage if the zone is reclaimed however many zones are erased. So the log
/// has few versions of a key, and its table has room for them.
pub const GARBAGE_ALWAYS_PERCENT: u32 = 85;
/// Least share of a zone, percent, that has to be garbage if the zone is reclaimed at all: for less, more is written
/// than is gained.
pub const GARBAGE_MIN_PERCENT: u32 = 6;
/// Loads of channels are those of the last so many zones of each, about.
pub const LOAD_ZONES: u64 = 4;
/// How many zones [`ReclaimPolicy::NormalQuick`] drops at once, in low marks (the slides on flash key-value caches,
/// "Implementation: QuickGC").
pub const QUICK_PER_LOW: f64 = 1.8;

/// What reclaim is to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Nothing: enough zones are erased.
    Idle,
    /// Reclaim the zone with the fewest live bytes ([`greedy`]), and write its survivors again, if at least so many
    /// percent of the zone are garbage.
    Greedy(u32),
    /// Drop so many zones unread, the oldest first ([`oldest`]).
    Quick(u32),
}

/// How fast zones are filled and reclaimed, as a [`Meter`] measures it, for [`OpsPolicy::Queuing`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rates {
    /// Zones filled per second by new data (the paper's lambda: rate x size of items / bytes of a slab).
    pub taken_per_s: f64,
    /// Zones that can be reclaimed per second, one after the other (mu: 1 / (time to erase + everything else)).
    pub reclaimed_per_s: f64,
}

impl Rates {
    /// The zones that wait in an M/M/1 queue: `lambda / (mu - lambda)`. `None` if zones are filled as fast as they are
    /// reclaimed, or faster.
    pub fn queue_zones(&self) -> Option<f64> {
        let gap = self.reclaimed_per_s - self.taken_per_s;
        (gap > 0.0 && self.taken_per_s >= 0.0).then(|| self.taken_per_s / gap)
    }
}

/// The two watermarks, in erased zones, and how they move.
#[derive(Clone, Debug)]
pub struct Watermarks {
    policy: OpsPolicy,
    zones: u32,
    window: u32,
    low: u32,
    low_min: u32,
    low_max: u32,
    /// Whether fewer zones than the low mark were erased at the last observation. The mark is raised only once until
    /// that ends.
    below: bool,
    /// The low mark before the last observation.
    low_before: u32,
}

impl Watermarks {
    /// Marks for a device of `zones` zones, of which live items may take `fill_percent`. The low mark is at least
    /// `reserve` zones and at least one.
    ///
    /// With a static policy the high mark is the given share of the zones. The low mark is lower by [`WINDOW_PERCENT`],
    /// but at least a third of the high one. With the others, the low mark is at most [`LOW_MAX_PERCENT`] and at most
    /// half of what live items may not take, and the high mark is [`WINDOW_PERCENT`] higher, or by the other half.
    pub fn new(policy: OpsPolicy, zones: u32, fill_percent: u32, reserve: u32) -> Watermarks {
        let share = |percent: u32| (zones as u64 * percent.min(100) as u64).div_ceil(100) as u32;
        let half = share(100 - fill_percent.min(100)) / 2;
        let low_min = share(1).max(reserve).max(1);
        let low_max = share(LOW_MAX_PERCENT).min(half).max(low_min);
        let (low, window) = match policy {
            OpsPolicy::Static(percent) => {
                let high = share(percent as u32).max(reserve + 1).max(2);
                let low = high.saturating_sub(share(WINDOW_PERCENT)).max(high / 3).max(reserve);
                let low = low.clamp(1, high - 1);
                (low, high - low)
            }
            OpsPolicy::Heuristic | OpsPolicy::Queuing => (low_min, share(WINDOW_PERCENT).min(half).max(1)),
        };
        Watermarks { policy, zones, window, low, low_min, low_max, below: false, low_before: low }
    }

    /// The low mark: with fewer erased zones, any garbage is reclaimed.
    pub fn low(&self) -> u32 {
        self.low
    }

    /// The high mark: with so many erased zones, there is nothing to do.
    pub fn high(&self) -> u32 {
        (self.low + self.window).min(self.zones)
    }

    /// Moves the marks. To be called once for each round of reclaim; `free` zones are erased.
    ///
    /// * Static: the marks do not move.
    /// * Heuristic: the low mark is doubled each time `free` falls below it, and raised by a half where the zones are
    ///   dropped by [`ReclaimPolicy::NormalQuick`]. It goes down by one percent of all zones (at least one zone)
    ///   whenever the high mark is reached.
    /// * Queuing: the low mark is [`Rates::queue_zones`], and as high as possible where that is `None`.
    pub fn observe(&mut self, reclaim: ReclaimPolicy, free: u32, rates: Rates) {
        self.low_before = self.low;
        match self.policy {
            OpsPolicy::Static(_) => {}
            OpsPolicy::Heuristic => {
                if free >= self.high() {
                    self.nothing_to_gain();
                }
                let falls = free < self.low && !self.below;
                self.below = free < self.low;
                if falls {
                    let raised = match reclaim {
                        ReclaimPolicy::NormalQuick => self.low.saturating_add(self.low.div_ceil(2)),
                        _ => self.low.saturating_mul(2),
                    };
                    self.low = raised.min(self.low_max);
                }
            }
            OpsPolicy::Queuing => {
                let wanted = rates.queue_zones().map_or(f64::INFINITY, f64::ceil);
                self.low = wanted.clamp(self.low_min as f64, self.low_max as f64) as u32;
            }
        }
    }

    /// Notes that [`greedy`] found nothing worth reclaiming, so more zones cannot be erased. It counts as reaching the
    /// high mark: otherwise marks that ask for more than all dead bytes would never go down again.
    pub fn nothing_to_gain(&mut self) {
        if self.policy == OpsPolicy::Heuristic {
            self.low = self.low.saturating_sub((self.zones / 100).max(1)).max(self.low_min);
        }
    }

    /// What to do while `free` zones are erased.
    ///
    /// * Adaptive: greedy. Below the high mark, the further below, the less garbage makes a zone worth it; above, it
    ///   takes [`GARBAGE_ALWAYS_PERCENT`].
    /// * Greedy: greedy below the high mark, whatever there is to gain.
    /// * Quick: below the low mark, the oldest zone.
    /// * Normal and quick: greedy between the marks. Below the low one, [`QUICK_PER_LOW`] times as many zones at once
    ///   as it had before the last observation, but no more than the high mark asks for.
    ///
    /// If [`greedy`] finds no zone, the caller waits until `free` is below the low mark, and then drops the [`oldest`]
    /// zone.
    pub fn work(&self, reclaim: ReclaimPolicy, free: u32) -> Work {
        match reclaim {
            ReclaimPolicy::Adaptive if free < self.high() => Work::Greedy(self.garbage_percent(free)),
            ReclaimPolicy::Adaptive => Work::Greedy(GARBAGE_ALWAYS_PERCENT),
            ReclaimPolicy::Greedy if free < self.high() => Work::Greedy(GARBAGE_MIN_PERCENT),
            ReclaimPolicy::Quick if free < self.low() => Work::Quick(1),
            ReclaimPolicy::NormalQuick if free < self.low() => {
                let zones = (QUICK_PER_LOW * f64::from(self.low_before)).ceil() as u32;
                Work::Quick(zones.min(self.high() - free))
            }
            ReclaimPolicy::NormalQuick if free < self.high() => Work::Greedy(GARBAGE_MIN_PERCENT),
            _ => Work::Idle,
        }
    }

    /// The share of a zone, percent, that has to be garbage while `free` zones are erased.
    fn garbage_percent(&self, free: u32) -> u32 {
        let above = free.saturating_sub(self.low()).min(self.window);
        GARBAGE_MIN_PERCENT + (GARBAGE_AHEAD_PERCENT - GARBAGE_MIN_PERCENT) * above / self.window.max(1)
    }
}

/// Measures [`Rates`] as exponentially weighted means. The caller gives the times.
#[derive(Clone, Debug)]
pub struct Meter {
    window_s: f64,
    taken_per_s: f64,
    last_s: Option<f64>,
    reclaim_s: f64,
}

impl Meter {
    /// A meter that looks back on about `window_s` seconds of writing. Each reclaim counts for a sixteenth: with a mean
    /// that follows single reclaims, the low mark would jump from one end to the other.
    pub fn new(window_s: f64) -> Meter {
        Meter { window_s: window_s.max(1e-9), taken_per_s: 0.0, last_s: None, reclaim_s: 0.0 }
    }

    /// Notes that `zones` zones (also parts of one) were filled since the last call. `now_s` is the time of any clock
    /// that does not go back, seconds.
    pub fn took(&mut self, zones: f64, now_s: f64) {
        let Some(last) = self.last_s.replace(now_s) else { return };
        let span = (now_s - last).max(0.0);
        let old = (-span / self.window_s).exp();
        // The limit of the weight for a span towards 0 is 1 / window.
        let weight = if span > 0.0 { (1.0 - old) / span } else { 1.0 / self.window_s };
        self.taken_per_s = self.taken_per_s * old + zones * weight;
    }

    /// Notes that a zone was reclaimed, which took `seconds`, erasure included.
    pub fn reclaimed(&mut self, seconds: f64) {
        let seconds = seconds.max(1e-9);
        self.reclaim_s =
            if self.reclaim_s == 0.0 { seconds } else { self.reclaim_s + (seconds - self.reclaim_s) / 16.0 };
    }

    /// The rates. Before the first reclaim, the rate of reclaiming is infinite.
    pub fn rates(&self) -> Rates {
        let reclaimed_per_s = if self.reclaim_s > 0.0 { 1.0 / self.reclaim_s } else { f64::INFINITY };
        Rates { taken_per_s: self.taken_per_s, reclaimed_per_s }
    }
}

/// A full zone that may be reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneSummary {
    /// The zone.
    pub zone: ZoneId,
    /// Length of its records, and of what was left empty behind its last segment, bytes.
    pub written_bytes: u64,
    /// Length of its records that are neither superseded nor deleted nor expired, bytes.
    pub live_bytes: u64,
    /// The sequence of its oldest segment: the lower, the older.
    pub order: u64,
}

impl ZoneSummary {
    /// Length of all other records and of what was left empty, bytes.
    pub fn dead_bytes(&self) -> u64 {
        self.written_bytes.saturating_sub(self.live_bytes)
    }
}

/// The zone with the fewest live bytes; of two equal ones, the older. Only zones with at least `gain_min_bytes` dead
/// bytes (and at least one) count, because reclaiming another zone gains too little.
pub fn greedy(zones: impl IntoIterator<Item = ZoneSummary>, gain_min_bytes: u64) -> Option<ZoneSummary> {
    let worth = |zone: &ZoneSummary| zone.dead_bytes() >= gain_min_bytes.max(1);
    zones.into_iter().filter(worth).min_by_key(|zone| (zone.live_bytes, zone.order))
}

/// The oldest zone.
pub fn oldest(zones: impl IntoIterator<Item = ZoneSummary>) -> Option<ZoneSummary> {
    zones.into_iter().min_by_key(|zone| (zone.order, zone.zone))
}

/// How many bytes were written to each channel of the device lately.
#[derive(Clone, Debug)]
pub struct ChannelLoad {
    loads: Vec<u64>,
    /// Bytes written since the loads were last halved.
    since: u64,
    /// The loads are halved when so many bytes were written.
    halved_after: u64,
}

impl ChannelLoad {
    /// So many idle channels, but at least one. What was written counts half as much after each [`LOAD_ZONES`] zones
    /// of every channel.
    pub fn new(channels: u32, zone_bytes: u64) -> ChannelLoad {
        let channels = channels.max(1);
        let halved_after = LOAD_ZONES * u64::from(channels) * zone_bytes;
        ChannelLoad { loads: vec![0; channels as usize], since: 0, halved_after }
    }

    /// The number of channels.
    pub fn channels(&self) -> u32 {
        self.loads.len() as u32
    }

    /// The channel of a zone; see [`crate::device::Geometry::channels`].
    pub fn channel(&self, zone: ZoneId) -> u32 {
        zone.0 % self.channels()
    }

    /// `bytes` were written to a zone.
    pub fn add(&mut self, zone: ZoneId, bytes: u64) {
        let channel = self.channel(zone) as usize;
        self.loads[channel] += bytes;
        self.since += bytes;
        if self.since >= self.halved_after {
            self.loads.iter_mut().for_each(|load| *load /= 2);
            self.since = 0;
        }
    }

    /// The load of a channel.
    pub fn of(&self, channel: u32) -> u64 {
        self.loads.get(channel as usize).copied().unwrap_or(u64::MAX)
    }
}

/// Free zones, in the order in which they are to be written: first a zone of the least loaded channel, and of those the
/// one that was erased the fewest times.
#[derive(Clone, Debug)]
pub struct FreeZones {
    channels: Vec<BTreeSet<(u64, ZoneId)>>,
    len: u32,
}

impl FreeZones {
    /// No free zones, on so many channels. Zone `z` is on channel `z % channels`.
    pub fn new(channels: u32) -> FreeZones {
        FreeZones { channels: vec![BTreeSet::new(); channels.max(1) as usize], len: 0 }
    }

    /// The number of free zones.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether no zone is free.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a zone that was erased `resets` times. A zone must not be added twice.
    pub fn add(&mut self, zone: ZoneId, resets: u64) {
        let channel = zone.0 as usize % self.channels.len();
        self.len += self.channels[channel].insert((resets, zone)) as u32;
    }

    /// Takes out a zone that was added with so many erasures, if it is there.
    pub fn remove(&mut self, zone: ZoneId, resets: u64) {
        let channel = zone.0 as usize % self.channels.len();
        self.len -= self.channels[channel].remove(&(resets, zone)) as u32;
    }

    /// Takes the zone to write next, of those that `suits` says yes to.
    pub fn take(&mut self, load: &ChannelLoad, suits: impl Fn(ZoneId) -> bool) -> Option<ZoneId> {
        // Among equal loads wear decides, then the number, so that the result is always the same.
        let first = |(channel, zones): (usize, &BTreeSet<(u64, ZoneId)>)| {
            let (resets, zone) = zones.iter().find(|(_, zone)| suits(*zone))?;
            Some((load.of(channel as u32), *resets, *zone))
        };
        let (_, resets, zone) = self.channels.iter().enumerate().filter_map(first).min()?;
        self.remove(zone, resets);
        Some(zone)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
