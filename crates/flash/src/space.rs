//! The arithmetic of space: how many erased zones to hold ready, when to reclaim, which zone to reclaim next, and which
//! erased zone to write next. There are no clocks, devices and locks here.
//!
//! The erased zones that are held ready are the over-provisioned space. It has two watermarks, those of DIDACache
//! (Shen, Chen, Jia, Shao, FAST'17, sections 3.4 and 3.5):
//!
//! ```text
//!  erased zones   0 ......... low ............. high .........
//!                 | any garbage | much garbage   | nearly all
//! ```
//!
//! Other than in DIDACache, the marks stay within the space that is not for live items, and a zone is dropped unread
//! only where no zone has garbage to gain: what lives on flash is worth more than the time to write it again.
//! `docs/decisions/0019-one-way-to-free-zones.md` has the ways that were measured beside this one.

use crate::device::ZoneId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Distance between two marks that do not move, percent of all zones (DIDACache).
pub const WINDOW_PERCENT: u32 = 15;
/// The same between marks that follow the rates. What is erased is not used for items, so reclaim finds less garbage in
/// each zone. Where stores wait for flash, a burst needs no more.
pub const RATES_WINDOW_PERCENT: u32 = 4;
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
/// Loads of channels are those of about the last four zones of each.
pub const LOAD_ZONES: u64 = 4;
/// What reclaim is to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Nothing: enough zones are erased.
    Idle,
    /// Reclaim the zone with the fewest live bytes ([`greedy`]), and write its survivors again, if this percentage of
    /// the zone or more is garbage. If there is no such zone, and fewer zones are erased than the low mark asks for,
    /// the [`oldest`] is dropped where space runs out.
    Greedy(u32),
    /// Drop this number of zones unread, the oldest first ([`oldest`]).
    Drop(u32),
}

/// When zones are freed, and how. [`Watermarks`] are the tier's own rule; experiments bring others.
pub trait SpacePolicy: Send {
    /// The low mark: with fewer erased zones, space is short.
    fn low(&self) -> u32;
    /// The high mark: with as many erased zones there is no hurry.
    fn high(&self) -> u32;
    /// What one round of reclaim is to do while `free` zones are erased.
    fn next(&mut self, free: u32, rates: Rates) -> Work;
}

/// The space that a [`SpacePolicy`] divides.
#[derive(Clone, Copy, Debug)]
pub struct SpaceBounds {
    /// All zones for items.
    pub zones: u32,
    /// The percentage of them that live items may take.
    pub fill_percent: u32,
    /// The least low mark.
    pub reserve: u32,
}

/// Makes the policy of a tier, whose zones are known when it is opened.
pub type MakeSpacePolicy = Arc<dyn Fn(SpaceBounds) -> Box<dyn SpacePolicy> + Send + Sync>;

/// How fast zones are filled and reclaimed, as a [`Meter`] measures it.
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

/// The two watermarks, in erased zones. The zone with the most garbage is reclaimed; the more zones are erased, the
/// more garbage makes a zone worth it.
#[derive(Clone, Debug)]
pub struct Watermarks {
    zones: u32,
    window: u32,
    low: u32,
    /// The bounds of the low mark if it follows the rates.
    low_range: Option<(u32, u32)>,
}

impl Watermarks {
    /// Marks that follow the rates: the low mark is [`Rates::queue_zones`]. It is at least the reserve, at most
    /// [`LOW_MAX_PERCENT`] and at most half of what live items may not take. The high mark is
    /// [`RATES_WINDOW_PERCENT`] higher, or by the other half.
    pub fn by_rates() -> MakeSpacePolicy {
        Arc::new(|bounds| Box::new(Watermarks::that_follow_rates(bounds)))
    }

    /// Marks that do not move, for tests and experiments that must not depend on rates. The high mark is this
    /// percentage of the zones.
    pub fn fixed(percent: u8) -> MakeSpacePolicy {
        Arc::new(move |bounds| Box::new(Watermarks::that_stay(percent, bounds)))
    }

    fn that_follow_rates(bounds: SpaceBounds) -> Watermarks {
        let half = share(bounds.zones, 100 - bounds.fill_percent.min(100)) / 2;
        let low_min = share(bounds.zones, 1).max(bounds.reserve).max(1);
        let low_max = share(bounds.zones, LOW_MAX_PERCENT).min(half).max(low_min);
        let window = share(bounds.zones, RATES_WINDOW_PERCENT).min(half).max(1);
        Watermarks { zones: bounds.zones, window, low: low_min, low_range: Some((low_min, low_max)) }
    }

    /// The low mark is lower than the high one by [`WINDOW_PERCENT`], but at least a third of it.
    fn that_stay(percent: u8, bounds: SpaceBounds) -> Watermarks {
        let high = share(bounds.zones, percent as u32).max(bounds.reserve + 1).max(2);
        let low = high.saturating_sub(share(bounds.zones, WINDOW_PERCENT)).max(high / 3).max(bounds.reserve);
        let low = low.clamp(1, high - 1);
        Watermarks { zones: bounds.zones, window: high - low, low, low_range: None }
    }

    /// The percentage of a zone that has to be garbage while `free` zones are erased.
    fn garbage_percent(&self, free: u32) -> u32 {
        if free >= self.high() {
            return GARBAGE_ALWAYS_PERCENT;
        }
        let above = free.saturating_sub(self.low).min(self.window);
        GARBAGE_MIN_PERCENT + (GARBAGE_AHEAD_PERCENT - GARBAGE_MIN_PERCENT) * above / self.window.max(1)
    }
}

impl SpacePolicy for Watermarks {
    fn low(&self) -> u32 {
        self.low
    }

    fn high(&self) -> u32 {
        (self.low + self.window).min(self.zones)
    }

    fn next(&mut self, free: u32, rates: Rates) -> Work {
        if let Some((least, most)) = self.low_range {
            let wanted = rates.queue_zones().map_or(f64::INFINITY, f64::ceil);
            self.low = wanted.clamp(least as f64, most as f64) as u32;
        }
        Work::Greedy(self.garbage_percent(free))
    }
}

/// This percentage of the zones, rounded up.
fn share(zones: u32, percent: u32) -> u32 {
    (zones as u64 * percent.min(100) as u64).div_ceil(100) as u32
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
    /// The loads are halved when this number of bytes was written.
    halved_after: u64,
}

impl ChannelLoad {
    /// `channels` idle channels, but at least one. What was written counts half as much after each [`LOAD_ZONES`] zones
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
    /// No free zones, on `channels` channels. Zone `z` is on channel `z % channels`.
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

    /// Takes out a zone that was added with `resets` erasures, if it is there.
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
