//! Space, as arithmetic: how many erased zones to hold ready, what to do about it now, which zone goes next, and which
//! erased zone is written next. No clocks, no devices, no locks; whoever owns zones asks.
//!
//! The watermarks are DIDACache's (Shen, Chen, Jia, Shao, FAST'17, sections 3.4 and 3.5): erased zones held ready are the
//! over-provisioned space (OPS), and between its two marks zones are reclaimed greedily, below the lower one quickly.

use crate::device::ZoneId;
use crate::options::{OpsPolicy, ReclaimPolicy};
use std::collections::BTreeSet;

/// Distance of the two marks, percent of all zones (DIDACache).
pub const WINDOW_PERCENT: u32 = 15;
/// The low mark never passes this share of all zones, percent: whatever the load, three quarters stay a cache.
pub const LOW_MAX_PERCENT: u32 = 25;

/// What to do about space now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Nothing: there are zones enough.
    Idle,
    /// Reclaim the zone with the fewest live bytes ([`greedy`]); what is worth keeping is written again.
    Greedy,
    /// Drop the oldest zone ([`oldest`]), reading nothing back.
    Quick,
}

/// How fast zones are taken and reclaimed, for [`OpsPolicy::Queuing`]. See [`Meter`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rates {
    /// Zones filled per second by new data (the paper's lambda: rate x size of items / bytes of a slab).
    pub taken_per_s: f64,
    /// Zones that can be reclaimed per second, one after another (mu: 1 / (time to erase + everything else)).
    pub reclaimed_per_s: f64,
}

impl Rates {
    /// Zones waiting in an M/M/1 queue: `lambda / (mu - lambda)`; `None` when they come as fast as they go, or faster.
    pub fn queue_zones(&self) -> Option<f64> {
        let gap = self.reclaimed_per_s - self.taken_per_s;
        (gap > 0.0 && self.taken_per_s >= 0.0).then(|| self.taken_per_s / gap)
    }
}

/// The two marks, in erased zones, and how they move.
#[derive(Clone, Debug)]
pub struct Watermarks {
    policy: OpsPolicy,
    zones: u32,
    window: u32,
    low: u32,
    low_min: u32,
    low_max: u32,
    /// Whether the number of erased zones was below the low mark when last observed: it is doubled once per fall.
    below: bool,
}

impl Watermarks {
    /// Marks for a device of `zones` zones, [`WINDOW_PERCENT`] apart.
    pub fn new(policy: OpsPolicy, zones: u32) -> Watermarks {
        Watermarks::with_window(policy, zones, WINDOW_PERCENT)
    }

    /// The same, `window_percent` of all zones apart. At least one zone is always asked for, and the marks are always at
    /// least one zone apart (unless there is only one zone).
    ///
    /// A static share `p` is the high mark; the low one is the window below it, but at least a third of it.
    pub fn with_window(policy: OpsPolicy, zones: u32, window_percent: u32) -> Watermarks {
        let share = |percent: u32| (zones as u64 * percent.min(100) as u64).div_ceil(100) as u32;
        let low_min = share(1).max(1);
        let low_max = share(LOW_MAX_PERCENT).max(low_min);
        let (low, window) = match policy {
            OpsPolicy::Static(percent) => {
                let high = share(percent as u32).max(2);
                let low = high.saturating_sub(share(window_percent)).max(high / 3).clamp(1, high - 1);
                (low, high - low)
            }
            OpsPolicy::Heuristic | OpsPolicy::Queuing => (low_min, share(window_percent).max(1)),
        };
        Watermarks { policy, zones, window, low, low_min, low_max, below: false }
    }

    /// Fewer erased zones than this: quick.
    pub fn low(&self) -> u32 {
        self.low
    }

    /// As many erased zones as this: nothing to do.
    pub fn high(&self) -> u32 {
        (self.low + self.window).min(self.zones)
    }

    /// Moves the marks. Called once per round of reclaim and whenever a zone was taken, with the erased zones there are.
    ///
    /// Heuristic: the low mark is doubled each time `free` falls below it, and goes down by one per cent of all zones (at
    /// least one) at every observation that finds the high mark reached. Queuing: see [`Rates::queue_zones`]; without an
    /// answer (`lambda >= mu`) as high as it goes. Static: nothing moves.
    pub fn observe(&mut self, free: u32, rates: Rates) {
        match self.policy {
            OpsPolicy::Static(_) => {}
            OpsPolicy::Heuristic => {
                if free >= self.high() {
                    self.nothing_to_gain();
                }
                let falls = free < self.low && !self.below;
                self.below = free < self.low;
                if falls {
                    self.low = self.low.saturating_mul(2).min(self.low_max);
                }
            }
            OpsPolicy::Queuing => {
                let wanted = rates.queue_zones().map_or(f64::INFINITY, f64::ceil);
                self.low = wanted.clamp(self.low_min as f64, self.low_max as f64) as u32;
            }
        }
    }

    /// Greedy found nothing worth reclaiming: there is no more erased space to be had, wherever the high mark stands. Counts
    /// as reaching it; without this, marks above what garbage there is would never come down again.
    pub fn nothing_to_gain(&mut self) {
        if self.policy == OpsPolicy::Heuristic {
            self.low = self.low.saturating_sub((self.zones / 100).max(1)).max(self.low_min);
        }
    }

    /// What to do when `free` zones are erased.
    ///
    /// Adaptive: below the low mark quick, between the marks greedy. Greedy: greedy below the high mark. Quick: quick
    /// below the low mark. Where greedy finds nothing to gain ([`greedy`] returns `None`), the caller waits until `free` is
    /// below the low mark and then goes on with [`oldest`].
    pub fn work(&self, reclaim: ReclaimPolicy, free: u32) -> Work {
        let (low, high) = (free < self.low(), free < self.high());
        match reclaim {
            ReclaimPolicy::Adaptive if low => Work::Quick,
            ReclaimPolicy::Adaptive | ReclaimPolicy::Greedy if high => Work::Greedy,
            ReclaimPolicy::Quick if low => Work::Quick,
            _ => Work::Idle,
        }
    }
}

/// Measures [`Rates`] from what happened, times given by the caller: exponentially weighted means.
#[derive(Clone, Debug)]
pub struct Meter {
    window_s: f64,
    taken_per_s: f64,
    last_s: Option<f64>,
    reclaim_s: f64,
}

impl Meter {
    /// Remembers about `window_s` seconds of writing; the last reclaims count a sixteenth each:
    /// a mean that follows single ones would throw the low mark from one end to the other.
    pub fn new(window_s: f64) -> Meter {
        Meter { window_s: window_s.max(1e-9), taken_per_s: 0.0, last_s: None, reclaim_s: 0.0 }
    }

    /// `zones` zones (parts of one count) were filled with new data since the last call, at `now_s` seconds of any clock
    /// that does not go back.
    pub fn took(&mut self, zones: f64, now_s: f64) {
        let Some(last) = self.last_s.replace(now_s) else { return };
        let span = (now_s - last).max(0.0);
        let old = (-span / self.window_s).exp();
        // With a span of 0 the rate of the instant is the amount over the window: the limit of the mean below.
        let weight = if span > 0.0 { (1.0 - old) / span } else { 1.0 / self.window_s };
        self.taken_per_s = self.taken_per_s * old + zones * weight;
    }

    /// A zone was reclaimed, and that took `seconds`, erase included.
    pub fn reclaimed(&mut self, seconds: f64) {
        let seconds = seconds.max(1e-9);
        self.reclaim_s =
            if self.reclaim_s == 0.0 { seconds } else { self.reclaim_s + (seconds - self.reclaim_s) / 16.0 };
    }

    /// The rates. Before anything was reclaimed, reclaiming is taken to be endlessly fast.
    pub fn rates(&self) -> Rates {
        let reclaimed_per_s = if self.reclaim_s > 0.0 { 1.0 / self.reclaim_s } else { f64::INFINITY };
        Rates { taken_per_s: self.taken_per_s, reclaimed_per_s }
    }
}

/// What is known of a written zone that may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneFacts {
    /// Which.
    pub zone: ZoneId,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Bytes of it that somebody may still want: written, less superseded, deleted and expired ones.
    pub live_bytes: u64,
    /// Age: the lower, the older.
    pub order: u64,
}

impl ZoneFacts {
    /// Bytes that are nobody's any more.
    pub fn dead_bytes(&self) -> u64 {
        self.written_bytes.saturating_sub(self.live_bytes)
    }
}

/// The zone with the fewest live bytes, the older of two equal ones; only zones with at least `gain_min_bytes` of dead bytes
/// (and at least one) are looked at, since to reclaim another one gains nothing.
pub fn greedy(zones: impl IntoIterator<Item = ZoneFacts>, gain_min_bytes: u64) -> Option<ZoneFacts> {
    let worth = |zone: &ZoneFacts| zone.dead_bytes() >= gain_min_bytes.max(1);
    zones.into_iter().filter(worth).min_by_key(|zone| (zone.live_bytes, zone.order))
}

/// The oldest zone.
pub fn oldest(zones: impl IntoIterator<Item = ZoneFacts>) -> Option<ZoneFacts> {
    zones.into_iter().min_by_key(|zone| (zone.order, zone.zone))
}

/// How busy channels are, as what they were asked to do lately, in any unit that compares (nanoseconds of work, say).
#[derive(Clone, Debug)]
pub struct ChannelLoad(Vec<u64>);

impl ChannelLoad {
    /// `channels` idle channels; at least one.
    pub fn new(channels: u32) -> ChannelLoad {
        ChannelLoad(vec![0; channels.max(1) as usize])
    }

    /// How many channels there are.
    pub fn channels(&self) -> u32 {
        self.0.len() as u32
    }

    /// The channel of a zone, as [`crate::device::Geometry::channels`] has it.
    pub fn channel(&self, zone: ZoneId) -> u32 {
        zone.0 % self.0.len() as u32
    }

    /// `zone`'s channel was given `work`.
    pub fn add(&mut self, zone: ZoneId, work: u64) {
        let channel = self.channel(zone) as usize;
        self.0[channel] = self.0[channel].saturating_add(work);
    }

    /// Forgets half of everything: called at any steady pace.
    pub fn age(&mut self) {
        self.0.iter_mut().for_each(|load| *load /= 2);
    }

    /// The load of a channel.
    pub fn of(&self, channel: u32) -> u64 {
        self.0.get(channel as usize).copied().unwrap_or(u64::MAX)
    }
}

/// Erased zones, in the order in which they are to be written: the least loaded channel that has one, there the one that
/// was erased the fewest times.
#[derive(Clone, Debug)]
pub struct FreeZones {
    channels: Vec<BTreeSet<(u64, ZoneId)>>,
    len: u32,
}

impl FreeZones {
    /// None, on `channels` channels (zone `z` lies on channel `z % channels`).
    pub fn new(channels: u32) -> FreeZones {
        FreeZones { channels: vec![BTreeSet::new(); channels.max(1) as usize], len: 0 }
    }

    /// How many.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// `zone` is erased, for the `resets`th time. Adding one twice with different counts is the caller's mistake.
    pub fn add(&mut self, zone: ZoneId, resets: u64) {
        let channel = zone.0 as usize % self.channels.len();
        self.len += self.channels[channel].insert((resets, zone)) as u32;
    }

    /// The next one to write.
    pub fn take(&mut self, load: &ChannelLoad) -> Option<ZoneId> {
        // Equal loads are told apart by wear, then by number, so that nothing depends on chance.
        let first = |(channel, zones): (usize, &BTreeSet<(u64, ZoneId)>)| {
            let (resets, zone) = zones.first()?;
            Some((load.of(channel as u32), *resets, *zone, channel))
        };
        let (_, _, _, channel) = self.channels.iter().enumerate().filter_map(first).min()?;
        let (_, zone) = self.channels[channel].pop_first()?;
        self.len -= 1;
        Some(zone)
    }
}

#[cfg(test)]
mod tests;
