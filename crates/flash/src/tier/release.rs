//! Releasing zones: a zone is given up as a whole, erased, and can then be written again.
//!
//! A release has always the same steps:
//!
//! 1. The meta log notes that a restart finds nothing in the zone. From then on no tombstone is needed that hides
//!    something in it.
//! 2. The index forgets the segments in the zone.
//! 3. The zone is erased.
//!
//! Lock: `releasing`, held by the thread that chooses a zone until the zone is erased. Two threads that chose the same
//! zone would erase it twice, and by the second time it may have been written again. Comes after the locks of the
//! writer and of the reclaim, and before the append lock.

use super::directory::Segment;
use super::log::Log;
use super::lookup::Lookup;
use super::space::{LogZone, Space};
use crate::device::ZoneId;
use crate::merge::Merged;
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Releases zones.
pub(crate) struct Release {
    lookup: Lookup,
    space: Arc<Space>,
    log: Arc<Log>,
    /// Bits for items of generations that were read.
    hits_max: u64,
    releasing: Mutex<()>,
}

/// The right to choose and release zones: the `releasing` lock.
pub(crate) struct Releasing<'a> {
    release: &'a Release,
    _lock: MutexGuard<'a, ()>,
}

impl Release {
    /// Nothing is released yet. `hits_max` is how many items of generations a bit is kept for.
    pub(crate) fn new((lookup, space, log): (Lookup, Arc<Space>, Arc<Log>), hits_max: u64) -> Release {
        Release { lookup, space, log, hits_max, releasing: Mutex::default() }
    }

    fn lock(&self) -> Releasing<'_> {
        Releasing { release: self, _lock: self.releasing.lock().expect("no panic under this lock") }
    }

    /// Chooses a zone for something else than its release, while none is between its choice and its erasing. Else it
    /// could be that one, which is erased, and perhaps written again.
    pub(crate) fn while_none_is_released<T>(&self, choose: impl FnOnce() -> T) -> T {
        let _releasing = self.lock();
        choose()
    }

    /// Writes down that segments of these zones below a sequence do not exist any more. Says whether that worked.
    fn note(&self, zones: &[(ZoneId, u64)]) -> bool {
        let is_noted = self.lookup.meta.release(zones);
        if is_noted {
            self.space.note_released(zones);
        }
        is_noted
    }

    fn count_drop(&self, dropped: bool) -> bool {
        self.lookup.status.counters.quick_drops.fetch_add(dropped as u64, Relaxed);
        dropped
    }

    // Zones in which nothing is left.

    /// Releases zones whose survivors are durable. Says whether there was any.
    pub(crate) fn drained(&self) -> bool {
        let releasing = self.lock();
        let drained = self.space.drained(self.log.oldest_unwritten());
        releasing.all(drained)
    }

    /// Releases zones in which a flush has left nothing. Says whether there was any.
    pub(crate) fn flushed(&self) -> bool {
        let releasing = self.lock();
        let flushed = self.space.flushed(self.lookup.meta.floor());
        releasing.all(flushed)
    }

    /// Forgets the deleted prefixes of which nothing is left.
    pub(crate) fn forget_prefixes(&self) {
        if self.lookup.meta.prefixes() == 0 {
            return;
        }
        let _releasing = self.lock();
        let generations = &self.lookup.generations;
        if generations.has_unreleased() {
            return;
        }
        // In the order in which a record goes on.
        let unwritten = self.log.oldest_unwritten();
        let written = self.space.oldest_segment();
        let merged = generations.list().newest_first().last().map_or(u64::MAX, |oldest| oldest.number());
        self.log.forget_prefixes(unwritten.min(written).min(merged));
    }

    /// Releases zones of generations in which no generation has anything. Says whether there was any.
    pub(crate) fn idle_generation_zones(&self) -> bool {
        self.lock().idle_generation_zones()
    }

    /// Erases a zone that was closed and has lost all its segments. Waits until the thread that released them is done.
    pub(crate) fn erase_emptied(&self, zone: ZoneId) {
        let _releasing = self.lock();
        self.space.erase(zone);
    }

    // Zones that are dropped unread, because space is needed.

    /// Drops the oldest zone; nothing is read back. The oldest zone of the log hides nothing, and a zone of extents
    /// never does.
    pub(crate) fn drop_oldest(&self) -> bool {
        let generations = &self.lookup.generations;
        if !generations.list().newest_first().is_empty() || generations.has_unreleased() {
            // Tombstones in the log may hide versions in generations, so the log must not go first. If generations are
            // switched off now, those of an earlier run are dropped.
            return !self.lookup.has_generations && self.drop_oldest_of_all();
        }
        let releasing = self.lock();
        let begun = Instant::now();
        let Some(oldest) = self.space.oldest_droppable(self.lookup.status.now()) else { return false };
        let dropped = releasing.marked_extents(oldest.zone) && releasing.zone(oldest.zone);
        self.count_drop(dropped);
        self.space.note_reclaimed(begun.elapsed().as_secs_f64());
        dropped
    }

    /// Drops a zone of extents that a reclaim could not read, unless one of its extents may be all that says that an
    /// older one is dead.
    pub(crate) fn drop_unreadable_extents(&self) -> bool {
        let releasing = self.lock();
        let dead_from = self.log.oldest_dead_extent();
        let zone = self.space.unreadable_extents(dead_from);
        self.count_drop(zone.is_some_and(|zone| releasing.zone(zone)))
    }

    /// Drops the oldest zone of extents, because the extent table is full.
    pub(crate) fn drop_oldest_extents(&self) -> bool {
        let releasing = self.lock();
        let oldest = self.space.oldest_extents();
        self.count_drop(oldest.is_some_and(|oldest| releasing.zone(oldest.zone)))
    }

    /// Drops a zone of the oldest generation, or of the extents if they are older.
    pub(crate) fn drop_oldest_of_all(&self) -> bool {
        let releasing = self.lock();
        if self.lookup.generations.is_collecting() {
            return false;
        }
        let generation = self.lookup.generations.list().newest_first().last().map(|oldest| oldest.number());
        match (generation, self.space.oldest_extents()) {
            (Some(number), Some(extents)) if extents.order >= number => releasing.generation_zone(),
            (Some(_), None) => releasing.generation_zone(),
            (_, Some(extents)) => self.count_drop(releasing.zone(extents.zone)),
            (None, None) => false,
        }
    }

    // What a merge leaves behind.

    /// Chooses zones of generations to collect. Until [`Release::end_collecting`], none is dropped.
    pub(crate) fn begin_collecting(&self, choose: impl FnOnce() -> HashSet<ZoneId>) -> HashSet<ZoneId> {
        let _releasing = self.lock();
        let chosen = choose();
        self.lookup.generations.set_collecting(!chosen.is_empty());
        chosen
    }

    /// The merge that collects zones of generations has ended.
    pub(crate) fn end_collecting(&self) {
        let _releasing = self.lock();
        self.lookup.generations.set_collecting(false);
    }

    /// Shows a new generation in place of the log zones, and of the zones of generations, that it was made of, and
    /// releases those. `floor` is the one that the merge began with. Says whether the zones are released.
    pub(crate) fn install_merge(
        &self,
        merged: Merged,
        floor: u64,
        log: &[LogZone],
        collected: &HashSet<ZoneId>,
    ) -> bool {
        let end = |segments: &[Arc<Segment>]| segments.last().map_or(0, |last| last.sequence() + 1);
        let mut ends: Vec<(ZoneId, u64)> =
            log.iter().map(|(zone, segments)| (*zone, end(segments))).collect();
        let releasing = self.lock();
        let is_collected = |(zone, _): &(ZoneId, u64)| collected.contains(zone);
        ends.extend(self.space.generation_zones().into_iter().filter(is_collected));
        let (has_voids, lost_marks) = (!merged.voids.is_empty(), merged.lost_marks);
        let installed = self.log.with_floor(|now| {
            // The merge has left out what is below the floor, which has to be durable before the log zones go.
            let installs = now == floor && !self.lookup.meta.owes_floor();
            if installs {
                self.show_generation(merged, collected);
            }
            self.space.end_merging();
            installs
        });
        if !installed {
            releasing.idle_generation_zones();
            return false;
        }
        self.lookup.generations.reset_hits(self.hits_max);
        // Chunks that were dropped because of damage must go from the device before the log, which may have hidden
        // them. So must extents, where a mark that one is superseded is gone.
        let are_gone = (has_voids || lost_marks) && releasing.idle_generation_zones();
        // A flush that has begun meanwhile keeps them until its floor is durable.
        if lost_marks && !are_gone || self.lookup.meta.owes_floor() {
            return false;
        }
        // A device that has failed may be back at the next start. Its segments of the log would then hide what is newer
        // in the new generation. So the restart takes them for missing, and drops all that is older.
        let merged_end = log.iter().map(|(_, segments)| end(segments)).max().unwrap_or(0);
        let meta = &self.lookup.meta;
        let lost = self.space.lost_log_zones(meta.floor(), merged_end);
        // That they were durable is what makes them missing.
        lost.iter().for_each(|(zone, _, newest)| meta.segment_written(*zone, *newest));
        let lost: Vec<_> = lost.into_iter().map(|(zone, oldest, _)| (zone, 0, oldest)).collect();
        if !lost.is_empty() && !meta.narrow(&lost) {
            return false;
        }
        // If this fails the log stays, and hides the same records in the new generation.
        if !self.note(&ends) {
            return false;
        }
        for (zone, segments) in log {
            self.log.forget_segments(*zone, segments);
            self.space.erase(*zone);
        }
        releasing.idle_generation_zones();
        true
    }

    fn show_generation(&self, merged: Merged, collected: &HashSet<ZoneId>) {
        let (counters, generations) = (&self.lookup.status.counters, &self.lookup.generations);
        let counts = merged.counts;
        counters.merges.fetch_add(1, Relaxed);
        counters.merged_records.fetch_add(counts.kept, Relaxed);
        counters.merged_bytes.fetch_add(counts.kept_bytes, Relaxed);
        counters.merge_dropped.fetch_add(counts.cold + counts.expired + counts.superseded, Relaxed);
        counters.zones_collected.fetch_add(collected.len() as u64, Relaxed);
        generations.begin_release();
        if merged.lost_marks {
            let list = generations.list();
            let chunks = list.newest_first().iter().flat_map(|generation| generation.chunks());
            let chunks =
                chunks.filter(|chunk| chunk.supersedes_extents && collected.contains(&chunk.run.zone));
            generations.raise_unmarked_extents(chunks.map(|chunk| chunk.run.sequence + 1).max().unwrap_or(0));
        }
        let gone = generations.install(merged.generation, merged.address, &merged.voids, collected);
        generations.note_marks_gone(&gone);
        if let Some(counts) = &merged.addresses {
            generations.note_counts(counts);
        }
        if !merged.voids.is_empty() {
            counters.damaged_pages.fetch_add(merged.voids.len() as u64, Relaxed);
            tracing::warn!(
                ranges = merged.voids.len(),
                "a merge met damage: what older generations have there goes"
            );
            // The damaged pages may have had marks as well.
            generations.raise_unmarked_extents(self.lookup.meta.next_sequence().unwrap_or(u64::MAX));
        }
    }
}

impl Releasing<'_> {
    /// Releases a zone of the log or of extents. Says whether that worked.
    fn zone(&self, zone: ZoneId) -> bool {
        let released = self.content(zone);
        if released {
            self.release.space.erase(zone);
        }
        released
    }

    /// Releases several zones, of which nothing is needed any more. Says whether any was. They are released one after
    /// the other, so not before the floor that they may have been chosen for is durable.
    fn all(&self, zones: Vec<ZoneId>) -> bool {
        if self.release.lookup.meta.owes_floor() {
            return false;
        }
        zones.into_iter().map(|zone| self.zone(zone)).fold(false, |any, one| any | one)
    }

    /// Releases the segments that a zone has, without erasing it. The release is written down first: once the index has
    /// forgotten the segments, a key that was only there gets no tombstone.
    fn content(&self, zone: ZoneId) -> bool {
        let segments = self.release.space.segments(zone);
        let floor = segments.last().map_or(0, |last| last.sequence() + 1);
        let released = self.release.note(&[(zone, floor)]);
        if released {
            self.release.log.forget_segments(zone, &segments);
        }
        released
    }

    /// Releases the extents that a zone of the log has marks for. To be called before that zone is dropped unread.
    fn marked_extents(&self, zone: ZoneId) -> bool {
        let segments = self.release.space.segments(zone);
        let marks = segments.iter().any(|segment| segment.marks_extents);
        // A segment has marks for all extents that were written until it was sealed.
        let end = segments.iter().map(|segment| segment.sealed_sequence).max().unwrap_or(0);
        !marks || self.extents_below(end)
    }

    /// Releases extents segments below a sequence, if any of their extents may be dead.
    fn extents_below(&self, below: u64) -> bool {
        if !self.release.log.has_dead_extents() {
            return true;
        }
        let older = self.release.space.extents_below(below);
        older.into_iter().all(|(zone, is_open)| match is_open {
            // Segments that are written to it later are not below the sequence.
            true => self.content_until_now(zone),
            false => self.zone(zone),
        })
    }

    /// Releases what an open zone has now. If the writer has closed it meanwhile, the zone is erased here.
    fn content_until_now(&self, zone: ZoneId) -> bool {
        let released = self.content(zone);
        if released && self.release.space.is_emptied(zone) {
            self.release.space.erase(zone);
        }
        released
    }

    /// Drops the oldest zone of the oldest generation.
    fn generation_zone(&self) -> bool {
        let generations = &self.release.lookup.generations;
        let Some(zone) = generations.oldest_zone() else { return false };
        generations.begin_release();
        generations.note_marks_gone(&generations.drop_zone(zone));
        self.release.count_drop(true);
        self.idle_generation_zones()
    }

    /// See [`Release::idle_generation_zones`].
    fn idle_generation_zones(&self) -> bool {
        let space = &self.release.space;
        let generations = &self.release.lookup.generations;
        let unmarked = generations.unmarked_extents();
        if unmarked > 0 && !self.extents_below(unmarked) {
            return false;
        }
        generations.unmarked_extents_gone(unmarked);
        // The zones are read before the list. A merge shows its generation in the list before its zones count as zones
        // of a generation, so no zone of a new generation seems idle.
        let mut idle = space.generation_zones();
        let list = generations.list();
        let zones = list.newest_first().iter().flat_map(|generation| generation.zones());
        let mut used: HashSet<ZoneId> = zones.collect();
        used.extend(list.address().iter().flat_map(|run| run.zones()));
        idle.retain(|(zone, _)| !used.contains(zone));
        // A flush has emptied the list, and extents that the generations had marks for would come back in a crash.
        let meta = &self.release.lookup.meta;
        if meta.owes_floor() {
            return false;
        }
        if !idle.is_empty() && !self.release.note(&idle) {
            return false;
        }
        // Under the append lock: a flush that has begun meanwhile has taken more from the list.
        self.release.log.with_floor(|_| {
            if !meta.owes_floor() {
                generations.end_release();
            }
        });
        idle.iter().for_each(|(zone, _)| space.erase(*zone));
        !idle.is_empty()
    }
}
