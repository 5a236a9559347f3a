//! The zones of the device: the use of each, the segments in each, and which zone is written or reclaimed next.
//!
//! Lock: `zones`, held for moments only. It comes after the append lock of the log; under it only the locks of the meta
//! log are taken. The device is never written or erased under it.

mod failed;
mod restore;

use super::directory::Segment;
use super::meta::Meta;
use super::picture::{ZoneUse, ZoneView};
use super::stats::ZoneCounts;
use super::status::Status;
use crate::device::{Device, DeviceError, Geometry, PAGE_BYTES, ZoneId};
use crate::generation::Generations;
use crate::options::FlashOptions;
use crate::segment::Kind;
use crate::space::{
    self, ChannelLoad, FreeZones, MakeSpacePolicy, Meter, SpaceBounds, SpacePolicy, Work, ZoneSummary,
};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Seconds of writing that the measured write rate looks back on.
const RATE_WINDOW_S: f64 = 10.0;
/// For each percent of the space that is live and should not be, a reclaim drops 5 percent of the cold records.
const DROPPED_PER_PERCENT: u32 = 5;
/// At most one zone in 16 is kept for what a reclaim writes again.
const RESERVE_PART: u32 = 16;
/// Reclaim hurries when one zone in 128 is erased beyond those that are kept.
const HURRY_PART: u32 = 128;
/// For how long a zone that could not be read is not reclaimed.
const UNREADABLE_FOR: Duration = Duration::from_secs(60);

/// What a zone is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// Superblocks and journal.
    Meta,
    /// To be written next; `erased` says whether it must be erased first.
    Free { erased: bool },
    /// Segments of the log or of extents are appended to it.
    Open,
    /// Written to its end, with segments of the log or of extents.
    Full,
    /// Its survivors were appended to the log again. It can be erased when the segment of this sequence is durable.
    Draining(u64),
    /// A merge writes to it. The sequence of the newest segment in it so far.
    Merging(u64),
    /// Segments of generations or address pages. The sequence of the newest one.
    Generation(u64),
    /// Its device has failed. Its segments cannot be read. They stay known, because they hide older versions, until the
    /// zone is the oldest or a flush has removed them.
    Lost,
    /// It failed, and is neither read nor written any more.
    Retired,
}

struct Zone {
    role: Role,
    /// Its segments of the log or of extents, oldest first.
    segments: Vec<Arc<Segment>>,
    /// How often it was erased since the device was opened.
    resets: u64,
    /// Segments below this sequence do not exist in it: a restart ignores them.
    floor: u64,
    /// When a reclaim last found that it cannot be read to its end.
    unreadable: Option<Instant>,
}

impl Zone {
    /// Sequence of its oldest segment.
    fn oldest(&self) -> Option<u64> {
        self.segments.first().map(|first| first.sequence())
    }

    /// Sequence of its newest segment.
    fn newest(&self) -> Option<u64> {
        self.segments.last().map(|last| last.sequence())
    }

    /// The mean length of its records that are no tombstones, bytes.
    fn mean_record_bytes(&self) -> u64 {
        let items = self.segments.iter().map(|segment| segment.items());
        let (count, bytes) = items.fold((0, 0), |sum, (count, bytes)| (sum.0 + count, sum.1 + bytes));
        bytes / count.max(1)
    }

    fn kind(&self) -> Option<Kind> {
        self.segments.first().map(|first| first.kind)
    }

    fn view(&self, now_unix_s: u32) -> ZoneView {
        let used = match (self.role, self.kind()) {
            (Role::Meta, _) => ZoneUse::Meta,
            (Role::Free { .. }, _) => ZoneUse::Free,
            (Role::Open | Role::Merging(_), _) => ZoneUse::Open,
            (Role::Generation(_), Some(Kind::Address)) => ZoneUse::Addresses,
            (Role::Generation(_), _) => ZoneUse::Generation,
            (Role::Draining(_), _) => ZoneUse::Draining,
            (Role::Lost | Role::Retired, _) => ZoneUse::Retired,
            (Role::Full, Some(Kind::Generation)) => ZoneUse::Generation,
            (Role::Full, Some(Kind::Extents)) => ZoneUse::Extents,
            (Role::Full, Some(Kind::Address)) => ZoneUse::Addresses,
            (Role::Full, Some(Kind::Log) | None) => ZoneUse::Log,
        };
        ZoneView {
            used,
            written_bytes: self.segments.iter().map(|segment| segment.record_bytes).sum(),
            live_bytes: self.segments.iter().map(|segment| segment.live_bytes(now_unix_s)).sum(),
            resets: self.resets,
        }
    }
}

/// A full zone of the log, and its segments.
pub(crate) type LogZone = (ZoneId, Vec<Arc<Segment>>);

/// What became of a zone that takes no more segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    /// It is full, and may be reclaimed, unless its device has failed.
    Full,
    /// Everything in it was released meanwhile. It is to be erased.
    Empty,
}

/// Why a reclaim has not kept all that is worth it of a zone. It has to stay as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unkept {
    /// It cannot be read.
    Unreadable,
    /// There is no room in the log now: nobody makes any, or the device takes nothing. Or a flush is not durable yet.
    NotNow,
}

/// What is shown of all zones and their segments.
#[derive(Default)]
pub(crate) struct SpaceStats {
    /// Zones by their use.
    pub(crate) zones: ZoneCounts,
    /// The low mark, erased zones.
    pub(crate) low: u32,
    /// The high mark, erased zones.
    pub(crate) high: u32,
    /// Zones filled per second, lately.
    pub(crate) zones_per_s: f64,
    /// Segments of the log and of extents.
    pub(crate) segments: u64,
    /// Memory taken by what is known of those segments, bytes.
    pub(crate) segment_bytes: u64,
    /// Tombstones in the segments.
    pub(crate) tombstones: u64,
    /// Estimated live bytes of the records in them.
    pub(crate) live_bytes: u64,
    /// Bytes of the other records in them.
    pub(crate) dead_bytes: u64,
}

/// The zones, and how much erased space there is.
struct Zones {
    all: Vec<Zone>,
    zone_bytes: u64,
    free: FreeZones,
    /// The number of erased zones that are kept for merges.
    for_merges: u32,
    load: ChannelLoad,
    marks: Box<dyn SpacePolicy>,
    meter: Meter,
}

impl Zones {
    /// All zones free and not erased, except the first `meta` ones.
    fn new(geometry: &Geometry, meta: u32, marks: Box<dyn SpacePolicy>) -> Zones {
        let mut free = FreeZones::new(geometry.channels);
        let zone = |number| {
            let role = if number < meta { Role::Meta } else { Role::Free { erased: false } };
            if number >= meta {
                free.add(ZoneId(number), 0);
            }
            Zone { role, segments: Vec::new(), resets: 0, floor: 0, unreadable: None }
        };
        let all = (0..geometry.zones).map(zone).collect();
        Zones {
            all,
            zone_bytes: geometry.zone_bytes,
            free,
            for_merges: 0,
            load: ChannelLoad::new(geometry.channels, geometry.zone_bytes),
            marks,
            meter: Meter::new(RATE_WINDOW_S),
        }
    }

    fn get(&mut self, zone: ZoneId) -> &mut Zone {
        &mut self.all[zone.0 as usize]
    }

    fn numbered(&self) -> impl Iterator<Item = (ZoneId, &Zone)> {
        self.all.iter().enumerate().map(|(number, zone)| (ZoneId(number as u32), zone))
    }

    fn is_short(&self) -> bool {
        self.spare() <= self.marks.low()
    }

    /// Erased zones beyond those that are kept for merges.
    fn spare(&self) -> u32 {
        self.free.len().saturating_sub(self.for_merges)
    }

    /// The next zone to write with segments from `sequence` on, and whether it is erased.
    fn take(&mut self, sequence: u64) -> Option<(ZoneId, bool)> {
        let all = &self.all;
        let zone = self.free.take(&self.load, |zone| all[zone.0 as usize].floor <= sequence)?;
        let erased = self.get(zone).role == Role::Free { erased: true };
        self.get(zone).role = Role::Open;
        Some((zone, erased))
    }

    /// The zone can be written again.
    fn give_back(&mut self, zone: ZoneId, erased: bool) {
        let found = self.get(zone);
        found.role = Role::Free { erased };
        found.segments.clear();
        found.unreadable = None;
        found.resets += erased as u64;
        let resets = found.resets;
        self.free.add(zone, resets);
    }

    /// Full zones that nothing reclaims yet, with the kind of their segments. One that could not be read is none for a
    /// while.
    fn victims(&self, now_unix_s: u32) -> impl Iterator<Item = (ZoneSummary, Kind)> + '_ {
        let full = self.summaries(now_unix_s, |role| role == Role::Full);
        full.filter(|(facts, _)| {
            let unreadable = self.all[facts.zone.0 as usize].unreadable;
            unreadable.is_none_or(|since| since.elapsed() > UNREADABLE_FOR)
        })
    }

    /// Zones of some roles, with the kind of their segments.
    fn summaries(
        &self,
        now_unix_s: u32,
        has: fn(Role) -> bool,
    ) -> impl Iterator<Item = (ZoneSummary, Kind)> + '_ {
        self.numbered().filter(move |(_, zone)| has(zone.role)).filter_map(move |(number, zone)| {
            // Nothing is written behind the last segment of a full zone any more.
            let pages = zone.segments.iter().map(|segment| segment.pages as u64).sum::<u64>();
            let tail_bytes = self.zone_bytes.saturating_sub(pages * PAGE_BYTES as u64);
            let records_bytes: u64 = zone.segments.iter().map(|segment| segment.record_bytes).sum();
            let facts = ZoneSummary {
                zone: number,
                written_bytes: records_bytes + tail_bytes,
                live_bytes: zone.segments.iter().map(|segment| segment.live_bytes(now_unix_s)).sum(),
                order: zone.oldest()?,
            };
            Some((facts, zone.kind()?))
        })
    }

    fn oldest_extents(&self) -> Option<ZoneSummary> {
        let full = self.summaries(0, |role| matches!(role, Role::Full | Role::Lost));
        space::oldest(full.filter(|(_, kind)| *kind == Kind::Extents).map(|(facts, _)| facts))
    }

    /// The oldest zone that may be dropped unread: a zone of extents, which hides nothing, or the zone with the oldest
    /// segments of the log, also if it is draining. The latter goes first if it cannot be read.
    fn oldest_droppable(&self, now_unix_s: u32) -> Option<ZoneSummary> {
        let written = self.numbered().filter(|(_, zone)| {
            matches!(zone.role, Role::Full | Role::Draining(_) | Role::Open | Role::Lost)
                && zone.kind().is_some_and(|kind| kind != Kind::Extents)
        });
        let log_first = written.filter_map(|(_, zone)| zone.oldest()).min();
        let may_go = |(facts, kind): &(ZoneSummary, Kind)| {
            *kind == Kind::Extents || log_first.is_none_or(|first| first >= facts.order)
        };
        let full = self.summaries(now_unix_s, |role| matches!(role, Role::Full | Role::Lost));
        let full: Vec<_> = full.filter(may_go).collect();
        let is_unreadable = |(facts, kind): &&(ZoneSummary, Kind)| {
            *kind != Kind::Extents && self.all[facts.zone.0 as usize].unreadable.is_some()
        };
        let unreadable = full.iter().find(is_unreadable).map(|(facts, _)| *facts);
        unreadable
            .or_else(|| space::oldest(full.iter().map(|(facts, _)| *facts)))
            .or_else(|| self.draining(log_first?))
    }

    /// The draining zone whose oldest segment has this sequence.
    fn draining(&self, oldest: u64) -> Option<ZoneSummary> {
        let is_it = |zone: &Zone| matches!(zone.role, Role::Draining(_)) && zone.oldest() == Some(oldest);
        let (zone, _) = self.numbered().find(|(_, zone)| is_it(zone))?;
        Some(ZoneSummary { zone, written_bytes: 0, live_bytes: 0, order: oldest })
    }

    /// Sequence below which segments stand in the oldest quarter of the written zones. 0 where a quarter of all zones
    /// is free: then no written zone is reclaimed soon.
    fn oldest_quarter(&self) -> u64 {
        let at_risk = (self.all.len() / 4).saturating_sub(self.free.len() as usize);
        if at_risk == 0 {
            return 0;
        }
        let mut orders: Vec<u64> = self.all.iter().filter_map(Zone::oldest).collect();
        orders.sort_unstable();
        orders.get(at_risk).copied().unwrap_or(0)
    }
}

/// What the policy divides. A reclaim hurries some time before puts are refused.
fn bounds(zones: u32, fill_percent: u8, reserve: u32) -> SpaceBounds {
    SpaceBounds { zones, fill_percent: fill_percent as u32, reserve: reserve + zones / HURRY_PART }
}

/// The zones of the device.
pub(crate) struct Space {
    device: Arc<dyn Device>,
    status: Arc<Status>,
    meta: Arc<Meta>,
    zones: Mutex<Zones>,
    /// Segments below this sequence stand in the oldest quarter of the written zones.
    oldest_quarter: AtomicU64,
    /// Erased zones, as of the last change.
    free: AtomicU32,
    /// The number of last erased zones that are kept for what a reclaim writes again.
    reserve: u32,
    /// As many, and those that are kept for merges.
    reserve_and_merges: AtomicU32,
    policy: MakeSpacePolicy,
    fill_percent: u8,
    /// Devices that had failed at the last look, where there are several.
    failed_devices: AtomicUsize,
}

impl Space {
    /// All zones free and not erased, except the first `meta_zones` ones. Segments of `buffered_zones` zones at most
    /// wait in memory.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        status: Arc<Status>,
        meta: Arc<Meta>,
        (meta_zones, buffered_zones): (u32, u32),
        options: &FlashOptions,
    ) -> Space {
        let geometry = device.geometry();
        let working = geometry.zones.saturating_sub(meta_zones);
        let reserve = (buffered_zones + 1).min(working / RESERVE_PART);
        let fill_percent = options.fill_percent;
        let marks = (options.space)(bounds(working, fill_percent, reserve));
        let zones = Zones::new(&geometry, meta_zones, marks);
        let free = AtomicU32::new(zones.free.len());
        Space {
            device,
            status,
            meta,
            zones: Mutex::new(zones),
            oldest_quarter: AtomicU64::new(0),
            free,
            reserve,
            reserve_and_merges: AtomicU32::new(reserve),
            policy: options.space.clone(),
            fill_percent,
            failed_devices: AtomicUsize::new(0),
        }
    }

    fn zones(&self) -> MutexGuard<'_, Zones> {
        self.zones.lock().expect("no panic under this lock")
    }

    /// Notes how many zones are erased. To be called after each change, under the lock.
    fn note_free(&self, zones: &Zones) {
        self.free.store(zones.free.len(), Relaxed);
    }

    /// Whether so few zones are erased that only what a reclaim or a merge writes again may still be appended, and
    /// tombstones.
    #[inline]
    pub(crate) fn is_down_to_reserve(&self) -> bool {
        self.free.load(Relaxed) < self.reserve_and_merges.load(Relaxed)
    }

    /// How many erased zones are kept for merges.
    pub(crate) fn kept_for_merges(&self) -> u32 {
        self.zones().for_merges
    }

    /// Keeps `zones` erased zones for merges.
    pub(crate) fn keep_for_merges(&self, zones: u32) {
        self.zones().for_merges = zones;
        self.reserve_and_merges.store(self.reserve + zones, Relaxed);
    }

    /// Whether the zone of a segment of the log is draining: its records are in younger segments as well.
    pub(crate) fn is_log_draining(&self) -> bool {
        let is_it = |zone: &Zone| matches!(zone.role, Role::Draining(_)) && zone.kind() == Some(Kind::Log);
        self.zones().all.iter().any(is_it)
    }

    // How much erased space there is.

    /// Whether there are so few erased zones that reclaim is urgent.
    pub(crate) fn is_short(&self) -> bool {
        self.zones().is_short()
    }

    /// How many zones a merge may write: the last ones are kept for the log, so that what has to be written can be.
    pub(crate) fn zones_for_merge(&self) -> usize {
        self.zones().free.len().saturating_sub(self.reserve.max(1)) as usize
    }

    /// Percent of the live records of a zone that a reclaim or a merge is to keep: all, unless more of the zones that
    /// work is live than may be.
    pub(crate) fn keep_percent(&self, generations: &Generations, now_unix_s: u32) -> u32 {
        let zone_bytes = self.device.geometry().zone_bytes;
        let (mut space, mut of_log, mut of_extents) = (0, 0, 0);
        let zones = self.zones();
        let works = |zone: &&Zone| !matches!(zone.role, Role::Meta | Role::Lost | Role::Retired);
        for zone in zones.all.iter().filter(works) {
            let live: u64 = zone.segments.iter().map(|segment| segment.live_bytes(now_unix_s)).sum();
            let sum = if zone.kind() == Some(Kind::Extents) { &mut of_extents } else { &mut of_log };
            (*sum, space) = (*sum + live, space + zone_bytes);
        }
        drop(zones);
        // What the log supersedes in generations is not known there yet.
        let superseded = (of_log as f64 * generations.renewed_share()) as u64;
        let of_generations = generations.stats(now_unix_s).live_bytes.saturating_sub(superseded);
        let live_percent = (of_log + of_extents + of_generations).saturating_mul(100) / space.max(1);
        let above = (live_percent as u32).saturating_sub(self.fill_percent as u32);
        100 - (above * DROPPED_PER_PERCENT).min(100)
    }

    /// Whether a merge may take a zone. The last one is kept for the log, so that what has to be written can be.
    pub(crate) fn has_zone_for_merge(&self) -> bool {
        self.zones().free.len() > 1
    }

    /// Whether no zone is erased.
    pub(crate) fn is_used_up(&self) -> bool {
        self.zones().free.is_empty()
    }

    /// Erased zones.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u32 {
        self.zones().free.len()
    }

    /// Sequence of the newest segment in each zone; 0 where there is none.
    #[cfg(test)]
    pub(crate) fn newest_segments(&self) -> Vec<u64> {
        self.zones().all.iter().map(|zone| zone.newest().unwrap_or(0)).collect()
    }

    /// Moves the marks, and says what they ask for.
    pub(crate) fn next_work(&self) -> Work {
        let mut zones = self.zones();
        let (spare, rates) = (zones.spare(), zones.meter.rates());
        zones.marks.next(spare, rates)
    }

    /// A zone was reclaimed, which took `seconds`.
    pub(crate) fn note_reclaimed(&self, seconds: f64) {
        self.zones().meter.reclaimed(seconds);
    }

    /// Whether a segment of this sequence is not in the oldest quarter, which is reclaimed first.
    pub(crate) fn stays_for_a_while(&self, sequence: u64) -> bool {
        sequence >= self.oldest_quarter.load(Relaxed)
    }

    // Zones are taken, written and closed.

    /// An erased zone for segments from `sequence` on, if there is a free one. Erases it if that was not done yet. A
    /// segment gets its sequence when it is opened. If a zone is released meanwhile in which there were younger ones, a
    /// restart would ignore the segment there.
    pub(crate) fn take_zone(&self, sequence: u64) -> Option<ZoneId> {
        loop {
            let (zone, erased) = {
                let mut zones = self.zones();
                let taken = zones.take(sequence);
                self.note_free(&zones);
                taken?
            };
            if self.is_offline(zone) {
                self.zones().get(zone).role = Role::Retired;
                continue;
            }
            if erased {
                return Some(zone);
            }
            match self.device.reset(zone) {
                Ok(()) => {
                    self.zones().get(zone).resets += 1;
                    return Some(zone);
                }
                Err(error) => {
                    self.status.device_error("reset", zone, &error);
                    self.zones().get(zone).role = Role::Retired;
                    if error == DeviceError::Gone {
                        self.meta.turn_off("the device is gone");
                        return None;
                    }
                }
            }
        }
    }

    /// `bytes` were written to a zone: `part` of its length.
    pub(crate) fn note_written(&self, zone: ZoneId, bytes: u64, part: f64) {
        let mut zones = self.zones();
        let now_s = self.status.open_for_s();
        zones.load.add(zone, bytes);
        zones.meter.took(part, now_s);
    }

    /// A segment was written to its zone, behind those that are there.
    pub(crate) fn add_segment(&self, segment: &Arc<Segment>) {
        self.zones().get(segment.zone()).segments.push(segment.clone());
    }

    /// A segment was found in its zone by a restart; the order of such calls does not matter.
    pub(crate) fn restore_segment(&self, segment: &Arc<Segment>) {
        let mut zones = self.zones();
        let segments = &mut zones.get(segment.zone()).segments;
        segments.push(segment.clone());
        segments.sort_by_key(|segment| segment.sequence());
    }

    /// Tells the device that no more is written to a zone.
    pub(crate) fn finish(&self, zone: ZoneId) {
        if let Err(error) = self.device.finish(zone) {
            self.status.device_error("finish", zone, &error);
        }
    }

    /// No more segments of the log or of extents go to a zone.
    pub(crate) fn close(&self, zone: ZoneId) -> Closed {
        self.finish(zone);
        let mut zones = self.zones();
        if zones.get(zone).segments.is_empty() {
            // It stays empty, since only the caller writes to it.
            return Closed::Empty;
        }
        zones.get(zone).role = self.full_or_lost(zone);
        self.oldest_quarter.store(zones.oldest_quarter(), Relaxed);
        drop(zones);
        self.status.wake();
        Closed::Full
    }

    /// Writing to a zone failed: no more goes there. Segments that it has can perhaps be read; says whether it has
    /// none.
    pub(crate) fn give_up(&self, zone: ZoneId) -> bool {
        let mut zones = self.zones();
        let found = zones.get(zone);
        let is_empty = found.segments.is_empty();
        found.role = if is_empty { Role::Retired } else { self.full_or_lost(zone) };
        is_empty
    }

    // Merges.

    /// A merge begins to write to a zone.
    pub(crate) fn begin_merging(&self, zone: ZoneId) {
        self.zones().get(zone).role = Role::Merging(0);
    }

    /// A merge has written the segment of this sequence to a zone.
    pub(crate) fn note_merged(&self, zone: ZoneId, sequence: u64, bytes: u64) {
        let mut zones = self.zones();
        zones.get(zone).role = Role::Merging(sequence);
        zones.load.add(zone, bytes);
    }

    /// The merge is complete, or was given up: its zones are zones of a generation.
    pub(crate) fn end_merging(&self) {
        for zone in &mut self.zones().all {
            if let Role::Merging(top) = zone.role {
                zone.role = Role::Generation(top);
            }
        }
    }

    /// Zones of the log on a device that has failed, if they have a segment from `floor` on that is below `end`: for
    /// each, its oldest such segment and its newest.
    pub(crate) fn lost_log_zones(&self, floor: u64, end: u64) -> Vec<(ZoneId, u64, u64)> {
        let zones = self.zones();
        let lost =
            zones.numbered().filter(|(_, zone)| zone.role == Role::Lost && zone.kind() == Some(Kind::Log));
        let bounds = lost.filter_map(|(number, zone)| {
            let sequences = zone.segments.iter().map(|segment| segment.sequence());
            let oldest = sequences.filter(|sequence| *sequence >= floor).min()?;
            Some((number, oldest, zone.newest()?))
        });
        bounds.filter(|(_, oldest, _)| *oldest < end).collect()
    }

    /// Full zones of the log, oldest first. Lost ones are not among them: what a merge could not read of them would
    /// count as damage, and void what older generations have.
    pub(crate) fn log_zones(&self) -> Vec<LogZone> {
        let zones = self.zones();
        let is_full_log = |zone: &Zone| zone.role == Role::Full && zone.kind() == Some(Kind::Log);
        let full = zones.numbered().filter(|(_, zone)| is_full_log(zone));
        let mut full: Vec<LogZone> = full.map(|(number, zone)| (number, zone.segments.clone())).collect();
        full.sort_by_key(|(_, segments)| segments.first().map(|first| first.sequence()));
        full
    }

    /// Zones of generations, each with the sequence behind its newest segment.
    pub(crate) fn generation_zones(&self) -> Vec<(ZoneId, u64)> {
        let of_generation = |(number, zone): (ZoneId, &Zone)| match zone.role {
            Role::Generation(top) => Some((number, top + 1)),
            _ => None,
        };
        self.zones().numbered().filter_map(of_generation).collect()
    }

    /// Segments of generations were found by a restart in these zones.
    pub(crate) fn restore_generations(&self, segments: &[(ZoneId, u64)]) {
        let mut zones = self.zones();
        for (zone, sequence) in segments {
            let found = zones.get(*zone);
            let top = if let Role::Generation(top) = found.role { top } else { 0 };
            found.role = Role::Generation(top.max(*sequence));
        }
    }

    // What is durable. Under the lock of the zones, so that no zone is erased in between.

    /// Everything in zones of generations is durable.
    pub(crate) fn note_generations_durable(&self) {
        let zones = self.zones();
        for (number, zone) in zones.numbered() {
            if let Role::Generation(top) | Role::Merging(top) = zone.role
                && top > 0
            {
                self.meta.segment_written(number, top);
            }
        }
    }

    /// Every segment of the log and of extents that was written is durable.
    pub(crate) fn note_segments_durable(&self) {
        let zones = self.zones();
        for (number, zone) in zones.numbered() {
            if let Some(newest) = zone.newest() {
                self.meta.segment_written(number, newest);
            }
        }
    }

    // Which zone is reclaimed.

    /// The zone with the fewest bytes that are live at `deadline_unix_s`, if reclaiming it gains `gain_bytes`; and
    /// whether fewer zones are erased than the low mark asks for. The zone is draining from now on. Zones of the log
    /// with records below `record_bytes_min` on average do not count. `for_entries`: what is to be gained are records
    /// of the log. What is empty in a zone does not count then.
    pub(crate) fn begin_draining(
        &self,
        deadline_unix_s: u32,
        gain_bytes: u64,
        (record_bytes_min, for_entries): (u64, bool),
    ) -> (Option<ZoneSummary>, bool) {
        let mut zones = self.zones();
        let counts = |(facts, kind): &(ZoneSummary, Kind)| {
            let zone = &zones.all[facts.zone.0 as usize];
            let records_bytes: u64 = zone.segments.iter().map(|segment| segment.record_bytes).sum();
            let gains = !for_entries
                || *kind == Kind::Log && records_bytes.saturating_sub(facts.live_bytes) >= gain_bytes;
            gains && (*kind != Kind::Log || zone.mean_record_bytes() >= record_bytes_min)
        };
        let victims = zones.victims(deadline_unix_s).filter(counts);
        let victim = space::greedy(victims.map(|(facts, _)| facts), gain_bytes);
        let below_low = zones.spare() < zones.marks.low();
        if let Some(victim) = victim {
            zones.get(victim.zone).role = Role::Draining(u64::MAX);
        }
        (victim, below_low)
    }

    /// Whether a reclaim of some zone gains something, or will soon have gained it.
    pub(crate) fn has_garbage(&self) -> bool {
        let now = self.status.now();
        let gain_bytes = self.device.geometry().zone_bytes * space::GARBAGE_MIN_PERCENT as u64 / 100;
        let zones = self.zones();
        let is_draining = zones.all.iter().any(|zone| matches!(zone.role, Role::Draining(_)));
        is_draining || space::greedy(zones.victims(now).map(|(facts, _)| facts), gain_bytes).is_some()
    }

    /// The survivors of a draining zone were appended again, the last one to the segment of this sequence. Or not all
    /// of them were: the zone stays as it was.
    pub(crate) fn end_draining(&self, zone: ZoneId, kept: Result<u64, Unkept>) {
        let mut zones = self.zones();
        if zones.get(zone).role != Role::Draining(u64::MAX) {
            // It was dropped meanwhile, and may be in use again.
            return;
        }
        let role = kept.map_or_else(|_| self.full_or_lost(zone), Role::Draining);
        let found = zones.get(zone);
        found.role = role;
        if kept == Err(Unkept::Unreadable) {
            found.unreadable = Some(Instant::now());
        }
    }

    /// Draining zones whose survivors are durable: those that wait for a segment below `unwritten`.
    pub(crate) fn drained(&self, unwritten: u64) -> Vec<ZoneId> {
        let is_drained = |role: Role| matches!(role, Role::Draining(after) if after < unwritten);
        let zones = self.zones();
        zones.numbered().filter(|(_, zone)| is_drained(zone.role)).map(|(number, _)| number).collect()
    }

    /// How many draining zones wait for segments to become durable.
    pub(crate) fn draining(&self) -> usize {
        self.zones().all.iter().filter(|zone| matches!(zone.role, Role::Draining(_))).count()
    }

    /// Full zones with all segments below the floor: a flush has removed everything in them.
    pub(crate) fn flushed(&self, floor: u64) -> Vec<ZoneId> {
        let is_flushed = |zone: &Zone| {
            matches!(zone.role, Role::Full | Role::Lost) && zone.newest().is_some_and(|newest| newest < floor)
        };
        let zones = self.zones();
        zones.numbered().filter(|(_, zone)| is_flushed(zone)).map(|(number, _)| number).collect()
    }

    /// The lowest sequence of a segment of the log or of extents on the device; `u64::MAX` if there is none.
    pub(crate) fn oldest_segment(&self) -> u64 {
        self.zones().all.iter().filter_map(Zone::oldest).min().unwrap_or(u64::MAX)
    }

    /// The oldest zone that may be dropped unread.
    pub(crate) fn oldest_droppable(&self, now_unix_s: u32) -> Option<ZoneSummary> {
        self.zones().oldest_droppable(now_unix_s)
    }

    /// A full zone of extents that could not be read, and of which no extent is newer than a dead one elsewhere. Dead
    /// ones are in segments from `dead_from` on.
    pub(crate) fn unreadable_extents(&self, dead_from: u64) -> Option<ZoneId> {
        let may_go = |zone: &Zone| {
            let is_full = zone.role == Role::Full && zone.kind() == Some(Kind::Extents);
            is_full && zone.unreadable.is_some() && zone.oldest().is_some_and(|oldest| dead_from >= oldest)
        };
        let zones = self.zones();
        zones.numbered().find(|(_, zone)| may_go(zone)).map(|(number, _)| number)
    }

    /// The oldest full zone of extents.
    pub(crate) fn oldest_extents(&self) -> Option<ZoneSummary> {
        self.zones().oldest_extents()
    }

    /// Zones of extents with a segment below this sequence, and whether each is still being written.
    pub(crate) fn extents_below(&self, below: u64) -> Vec<(ZoneId, bool)> {
        let is_older = |zone: &Zone| {
            zone.kind() == Some(Kind::Extents) && zone.oldest().is_some_and(|oldest| oldest < below)
        };
        let zones = self.zones();
        let older = zones.numbered().filter(|(_, zone)| is_older(zone));
        older.map(|(number, zone)| (number, zone.role == Role::Open)).collect()
    }

    // The segments in a zone, and its end.

    /// The segments in a zone.
    pub(crate) fn segments(&self, zone: ZoneId) -> Vec<Arc<Segment>> {
        self.zones().get(zone).segments.clone()
    }

    /// Sequences of the oldest and of the newest segment in a zone.
    pub(crate) fn segment_range(&self, zone: ZoneId) -> Option<(u64, u64)> {
        let mut zones = self.zones();
        let zone = zones.get(zone);
        zone.oldest().zip(zone.newest())
    }

    /// These segments are not in a zone any more. The caller holds the append lock.
    pub(crate) fn forget_segments(&self, zone: ZoneId, goes: impl Fn(&Arc<Segment>) -> bool) {
        self.zones().get(zone).segments.retain(|segment| !goes(segment));
    }

    /// Whether a zone was closed and has lost all its segments since.
    pub(crate) fn is_emptied(&self, zone: ZoneId) -> bool {
        let mut zones = self.zones();
        let found = zones.get(zone);
        found.role == Role::Full && found.segments.is_empty()
    }

    /// It was written down that segments of these zones below a sequence do not exist.
    pub(crate) fn note_released(&self, floors: &[(ZoneId, u64)]) {
        let mut zones = self.zones();
        for (zone, floor) in floors {
            let known = &mut zones.get(*zone).floor;
            *known = (*floor).max(*known);
        }
    }

    /// Whether zones are free, and none of them is for a segment of this sequence.
    pub(crate) fn is_none_for(&self, sequence: u64) -> bool {
        let zones = self.zones();
        let mut free = zones.all.iter().filter(|zone| matches!(zone.role, Role::Free { .. })).peekable();
        free.peek().is_some() && free.all(|zone| zone.floor > sequence)
    }

    /// Erases a zone, so that it can be written again. The caller holds the releasing lock.
    pub(crate) fn erase(&self, zone: ZoneId) {
        match self.device.reset(zone) {
            Ok(()) => {
                let mut zones = self.zones();
                zones.give_back(zone, true);
                self.note_free(&zones);
            }
            Err(error) => {
                self.status.device_error("reset", zone, &error);
                let mut zones = self.zones();
                let found = zones.get(zone);
                found.role = Role::Retired;
                found.segments.clear();
                drop(zones);
                if error == DeviceError::Gone {
                    self.meta.turn_off("the device is gone");
                }
            }
        }
        self.status.wake();
    }

    // What is shown.

    /// One line for each zone.
    pub(crate) fn views(&self, now_unix_s: u32) -> Vec<ZoneView> {
        self.zones().all.iter().map(|zone| zone.view(now_unix_s)).collect()
    }

    /// Looks at every zone and segment.
    pub(crate) fn stats(&self, now_unix_s: u32) -> SpaceStats {
        let zones = self.zones();
        let mut stats = SpaceStats {
            low: zones.marks.low(),
            high: zones.marks.high(),
            zones_per_s: zones.meter.rates().taken_per_s,
            ..SpaceStats::default()
        };
        for zone in &zones.all {
            let counts = &mut stats.zones;
            *match zone.role {
                Role::Meta => &mut counts.meta,
                Role::Free { .. } => &mut counts.free,
                Role::Open => &mut counts.open,
                Role::Full => &mut counts.full,
                Role::Merging(_) | Role::Generation(_) => &mut counts.generations,
                Role::Draining(_) => &mut counts.draining,
                Role::Lost | Role::Retired => &mut counts.retired,
            } += 1;
            for segment in &zone.segments {
                let live = segment.live_bytes(now_unix_s);
                stats.segments += 1;
                stats.segment_bytes += segment.bytes();
                stats.tombstones += segment.tombstones as u64;
                stats.live_bytes += live;
                stats.dead_bytes += segment.record_bytes.saturating_sub(live);
            }
        }
        stats
    }
}
