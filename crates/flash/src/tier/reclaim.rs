//! Zones become free again.

use super::directory::Segment;
use super::zones::Use;
use crate::device::{DeviceError, ZoneId};
use crate::flash::Flash;
use crate::log_table::IdSet;
use crate::segment::Kind;
use crate::space::{self, Work, ZoneFacts};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

impl Flash {
    /// One round: zones that wait for a segment to become durable, then what the watermarks ask for. Says whether anything
    /// was done.
    pub(crate) fn reclaim_round(&self) -> bool {
        let _one = self.reclaiming.lock().expect("no panic under this lock");
        // What is not known yet may be what something hides.
        if !self.is_on() || self.recovering.load(SeqCst) {
            return false;
        }
        let mut released = self.release_drained() | self.release_flushed() | self.free_generation_zones();
        if self.extents_full.swap(false, SeqCst) {
            released |= self.drop_oldest_extents();
        }
        if self.options.generations {
            return self.merge_round() || self.drop_below_mark() || released;
        }
        if self.table_full.swap(false, SeqCst) {
            let dropped = self.drop_oldest();
            self.close_log.store(!dropped, SeqCst);
            return dropped || released;
        }
        let work = {
            let mut zones = self.zones();
            let (free, rates) = (zones.free.len(), zones.meter.rates());
            zones.marks.observe(free, rates);
            zones.marks.work(self.options.reclaim, free)
        };
        let worked = match work {
            Work::Idle => false,
            Work::Quick => self.drop_oldest(),
            Work::Greedy => self.reclaim_greedily(),
        };
        worked || released
    }

    /// With generations: what is oldest goes while there are fewer erased zones than the low mark.
    fn drop_below_mark(&self) -> bool {
        let short = {
            let mut zones = self.zones();
            let (free, rates) = (zones.free.len(), zones.meter.rates());
            zones.marks.observe(free, rates);
            free < zones.marks.low()
        };
        short && (self.drop_oldest_of_all() || self.drop_oldest())
    }

    /// The writer has no zone: whatever is oldest goes.
    pub(crate) fn make_room(&self) -> bool {
        if self.options.generations && !self.recovering.load(SeqCst) && self.drop_oldest_of_all() {
            self.counters.drops_forced.fetch_add(1, Relaxed);
            return true;
        }
        let _one = self.reclaiming.lock().expect("no panic under this lock");
        if self.recovering.load(SeqCst) {
            return false;
        }
        if self.release_drained() | self.release_flushed() {
            return true;
        }
        let dropped = self.drop_oldest();
        self.counters.drops_forced.fetch_add(dropped as u64, Relaxed);
        dropped
    }

    /// The zone with the fewest live bytes goes, if there is anything to gain.
    fn reclaim_greedily(&self) -> bool {
        let begun = Instant::now();
        let gain = self.shape.zone_pages as u64 * crate::device::PAGE_BYTES as u64 / 16;
        let deadline = self.now().saturating_add(self.options.cutoff_s);
        let (victim, below_low) = {
            let zones = self.zones();
            let victim = space::greedy(zones.victims(deadline).map(|(facts, _)| facts), gain);
            (victim, zones.free.len() < zones.marks.low())
        };
        let Some(victim) = victim else { return below_low && self.drop_oldest() };
        self.zones().get(victim.zone).used = Use::Draining(u64::MAX);
        let after = self.move_survivors(victim.zone);
        self.zones().get(victim.zone).used = match after {
            // Nothing of it is lost.
            None => Use::Full,
            Some(sequence) => Use::Draining(sequence),
        };
        self.counters.reclaims.fetch_add(after.is_some() as u64, Relaxed);
        self.release_drained();
        self.zones().meter.reclaimed(begun.elapsed().as_secs_f64());
        // Where the scan failed, the next round would choose it again.
        after.is_some() || self.drop_oldest()
    }

    /// Quick: the oldest zone goes, nothing is read back. The oldest of the log hides nothing, and an extents zone never does.
    pub(crate) fn drop_oldest(&self) -> bool {
        if !self.generations.list().newest_first().is_empty() || self.unreleased.load(SeqCst) {
            // The log hides what is in them. Where none are made any more, those of an earlier run go first.
            return !self.options.generations && self.drop_oldest_of_all();
        }
        let _one = self.releasing();
        let begun = Instant::now();
        let now = self.now();
        let oldest = {
            let zones = self.zones();
            let drained = zones.zones.iter().enumerate().filter_map(|(number, zone)| {
                let first = zone.segments.first()?;
                matches!(zone.used, Use::Draining(_) | Use::Open).then_some((
                    ZoneFacts {
                        zone: ZoneId(number as u32),
                        written_bytes: 0,
                        live_bytes: 0,
                        order: first.sequence(),
                    },
                    first.kind,
                ))
            });
            let log_first = zones
                .victims(now)
                .chain(drained)
                .filter(|(_, kind)| *kind != Kind::Extents)
                .map(|(facts, _)| facts.order)
                .min();
            let may_go = |(facts, kind): &(ZoneFacts, Kind)| {
                *kind == Kind::Extents || log_first.is_none_or(|first| first >= facts.order)
            };
            space::oldest(zones.victims(now).filter(may_go).map(|(facts, _)| facts))
                .or_else(|| self.drained_oldest(&zones, log_first))
        };
        let Some(oldest) = oldest else { return false };
        let dropped = self.release_marked_extents(oldest.zone) && self.release(oldest.zone);
        self.counters.quick_drops.fetch_add(dropped as u64, Relaxed);
        self.zones().meter.reclaimed(begun.elapsed().as_secs_f64());
        dropped
    }

    /// The extent table is full: the oldest zone of extents goes.
    fn drop_oldest_extents(&self) -> bool {
        let _one = self.releasing();
        let oldest = self.zones().oldest_extents();
        let dropped = oldest.is_some_and(|oldest| self.release(oldest.zone));
        self.counters.quick_drops.fetch_add(dropped as u64, Relaxed);
        dropped
    }

    /// Sequence of the oldest segment of extents on the device.
    pub(crate) fn oldest_extents(&self) -> Option<u64> {
        self.directory.extents().segments.iter().map(|segment| segment.sequence()).min()
    }

    /// A zone of the log that waits for its survivors to become durable, if it is the oldest of all.
    fn drained_oldest(&self, zones: &super::zones::Zones, log_first: Option<u64>) -> Option<ZoneFacts> {
        let oldest = zones.zones.iter().enumerate().find(|(_, zone)| {
            matches!(zone.used, Use::Draining(_))
                && zone.segments.first().is_some_and(|first| Some(first.sequence()) == log_first)
        });
        oldest.map(|(number, _)| ZoneFacts {
            zone: ZoneId(number as u32),
            written_bytes: 0,
            live_bytes: 0,
            order: log_first.unwrap_or(0),
        })
    }

    /// Zones whose survivors are durable go.
    fn release_drained(&self) -> bool {
        let _one = self.releasing();
        let unwritten = self.oldest_unwritten();
        let is_drained = |used: Use| matches!(used, Use::Draining(after) if after < unwritten);
        let drained: Vec<ZoneId> = {
            let zones = self.zones();
            let drained = zones.zones.iter().enumerate().filter(|(_, zone)| is_drained(zone.used));
            drained.map(|(number, _)| ZoneId(number as u32)).collect()
        };
        let any = drained.into_iter().map(|zone| self.release(zone)).fold(false, |any, one| any | one);
        let (waits, short) = {
            let zones = self.zones();
            let waits = zones.zones.iter().any(|zone| matches!(zone.used, Use::Draining(_)));
            (waits, zones.free.len() <= zones.marks.low())
        };
        if waits && short {
            // They wait for segments that may take long to fill.
            let mut append = self.append();
            self.seal(&mut append, Kind::Log);
            self.seal(&mut append, Kind::Extents);
        }
        any
    }

    /// Zones in which a flush left nothing go.
    fn release_flushed(&self) -> bool {
        let _one = self.releasing();
        let floor = self.floor.load(SeqCst);
        let flushed: Vec<ZoneId> = {
            let zones = self.zones();
            let is_flushed = |zone: &super::zones::Zone| {
                zone.used == Use::Full && zone.segments.last().is_some_and(|last| last.sequence() < floor)
            };
            let flushed = zones.zones.iter().enumerate().filter(|(_, zone)| is_flushed(zone));
            flushed.map(|(number, _)| ZoneId(number as u32)).collect()
        };
        flushed.into_iter().map(|zone| self.release(zone)).fold(false, |any, one| any | one)
    }

    /// Sequence of the oldest segment that is in memory only.
    fn oldest_unwritten(&self) -> u64 {
        let append = self.append();
        let open = append.log.iter().chain(&append.extents).chain(&append.sealed);
        open.map(|buffer| buffer.sequence).min().unwrap_or(u64::MAX)
    }

    pub(crate) fn releasing(&self) -> MutexGuard<'_, ()> {
        self.releasing.lock().expect("no panic under this lock")
    }

    /// Nothing in the zone is found any more, and it can be written again. Under the `releasing` lock, like the choice of it.
    pub(crate) fn release(&self, zone: ZoneId) -> bool {
        let released = self.release_content(zone);
        if released {
            self.erase(zone);
        }
        released
    }

    /// Nothing in the zone is found any more. First it is written down that this is so: from the moment it is forgotten
    /// here, a key that was only there gets no tombstone.
    fn release_content(&self, zone: ZoneId) -> bool {
        let segments = self.zones().get(zone).segments.clone();
        let floor = segments.last().map_or(0, |last| last.sequence() + 1);
        if let Err(error) = self.meta.release(&[(zone, floor)]) {
            self.device_error("release", zone, &error);
            return false;
        }
        self.forget_segments(zone, &segments);
        true
    }

    /// Nothing in these segments of a zone is found any more, neither here nor, as is written down already, by a restart.
    pub(crate) fn forget_segments(&self, zone: ZoneId, segments: &[Arc<Segment>]) {
        let ids: Vec<u16> = segments.iter().map(|segment| segment.id).filter(|id| *id != 0).collect();
        let has_extents = segments.iter().any(|segment| segment.kind == Kind::Extents);
        let of_zone = |segment: &Arc<Segment>| segments.iter().any(|known| Arc::ptr_eq(known, segment));
        {
            let mut append = self.append();
            ids.iter().for_each(|id| self.directory.forget(*id));
            if has_extents {
                self.directory.change_extents(|extents| extents.segments.retain(|segment| !of_zone(segment)));
                let oldest = self.oldest_extents();
                for segment in segments {
                    append.dead.release(segment.sequence(), oldest);
                }
            }
            self.zones().get(zone).segments.retain(|segment| !of_zone(segment));
        }
        if has_extents {
            let page = |segment: &Arc<Segment>| {
                zone.0 as u64 * self.shape.zone_pages as u64 + segment.run.first_data_page as u64
            };
            let end = segments.last().map_or(0, |last| page(last) + last.pages as u64);
            let mut turn = Instant::now();
            let dead = segments.first().map_or(end, page)..end;
            self.extents.sweep_zone(dead, &mut || self.breathe(&mut turn));
        }
        self.sweep_ids(&ids);
        for segment in segments {
            let bits = segment.hits.as_ref().map_or(0, |hits| hits.bytes() as u64);
            self.counters.hit_bits_bytes.fetch_sub(bits, Relaxed);
        }
    }

    /// Before a zone of the log goes unread: if it has marks that extents are superseded, those extents go first.
    fn release_marked_extents(&self, zone: ZoneId) -> bool {
        let (marks, end) = {
            let mut zones = self.zones();
            let segments = &zones.get(zone).segments;
            (
                segments.iter().any(|segment| segment.marks_extents),
                segments.last().map_or(0, |last| last.sequence()),
            )
        };
        !marks || self.release_extents_below(end + 1)
    }

    /// Extents segments below this sequence go, if any extent of theirs may lie dead.
    pub(crate) fn release_extents_below(&self, below: u64) -> bool {
        if self.append().dead.is_empty() {
            return true;
        }
        let older: Vec<(ZoneId, bool)> = {
            let zones = self.zones();
            let older = zones.zones.iter().enumerate().filter(|(_, zone)| {
                zone.segments
                    .first()
                    .is_some_and(|first| first.kind == Kind::Extents && first.sequence() < below)
            });
            older.map(|(number, zone)| (ZoneId(number as u32), zone.used == Use::Open)).collect()
        };
        // Of a zone that is still written, only what it has until now.
        older
            .into_iter()
            .all(|(zone, open)| if open { self.release_until_now(zone) } else { self.release(zone) })
    }

    /// The same, of a zone that is still written: what it has until now.
    fn release_until_now(&self, zone: ZoneId) -> bool {
        let released = self.release_content(zone);
        let closed = {
            let mut zones = self.zones();
            let found = zones.get(zone);
            found.used == Use::Full && found.segments.is_empty()
        };
        if released && closed {
            self.erase(zone);
        }
        released
    }

    /// Entries of the log table with these numbers go; then the numbers can be given again.
    pub(crate) fn sweep_ids(&self, ids: &[u16]) {
        if ids.is_empty() {
            return;
        }
        let _one = self.sweeping.lock().expect("no panic under this lock");
        let mut dead = IdSet::new();
        ids.iter().for_each(|id| dead.insert(*id));
        let mut turn = Instant::now();
        self.table.sweep(&dead, &mut || self.breathe(&mut turn));
        self.append().ids.extend_from_slice(ids);
    }

    pub(crate) fn erase(&self, zone: ZoneId) {
        match self.device.reset(zone) {
            Ok(()) => self.zones().give_back(zone, true),
            Err(error) => {
                self.device_error("reset", zone, &error);
                let mut zones = self.zones();
                let found = zones.get(zone);
                found.used = Use::Retired;
                found.segments.clear();
                drop(zones);
                if error == DeviceError::Gone {
                    self.turn_off("the device is gone");
                }
            }
        }
        self.wake();
    }
}
