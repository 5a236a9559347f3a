//! The log becomes a generation when it holds its share, and the oldest generation goes when space is needed.

use super::directory::Segment;
use super::zones::Use;
use crate::address::AddressRun;
use crate::device::{PAGE_BYTES, ZoneId};
use crate::flash::Flash;
use crate::generation::{Generation, Next, Released};
use crate::hit_bits::HitBits;
use crate::merge::{Input, Merge, Merged, Progress, Room, Rooms, Settings};
use crate::options::Recover;
use crate::segment::{Kind, SegmentFacts};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Instant;

/// Zones of the log, percent of all that hold segments, at which they are merged.
pub(crate) const LOG_PERCENT: u32 = 8;
/// Pages between two looks at whether the tier is still needed, and whether others need the core.
const STEP_PAGES: u64 = 16;
/// Fewest pages of a zone's rest that a segment of a generation is begun in.
const ROOM_PAGES_MIN: u32 = 8;
/// Filling of the log table, percent, at which the log counts as full.
const TABLE_PERCENT: u64 = 85;
/// And at which the merge that is to empty it is pressed for time.
const TABLE_PRESSED_PERCENT: u64 = 92;

/// A zone of the log, and its segments.
type LogZone = (ZoneId, Vec<Arc<Segment>>);

/// Why a merge came to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GivenUp {
    /// There is no zone for it, and no generation that could go in its place.
    NoRoom,
    /// The tier stops, was flushed or has failed meanwhile, or the device takes no more.
    Disturbed,
}

/// Where a merge writes.
struct MergeRooms<'a> {
    flash: &'a Flash,
    open: [Option<(ZoneId, u32)>; 2],
}

impl MergeRooms<'_> {
    fn place(kind: Kind) -> usize {
        (kind == Kind::Address) as usize
    }
}

impl Rooms for MergeRooms<'_> {
    fn room(&mut self, kind: Kind) -> Option<Room> {
        let shape = &self.flash.shape;
        let open = &mut self.open[Self::place(kind)];
        if let Some((zone, page)) = *open {
            let left = shape.zone_pages - page;
            if left >= ROOM_PAGES_MIN.max(shape.buffer.segment_pages / 4) {
                return Some(Room { zone, first_page: page, pages: left.min(shape.buffer.segment_pages) });
            }
            *open = None;
            self.flash.finish_zone(zone);
        }
        let zone = self.flash.take_merge_zone()?;
        self.flash.zones().get(zone).used = Use::Merging(0);
        *open = Some((zone, 0));
        Some(Room { zone, first_page: 0, pages: shape.buffer.segment_pages })
    }

    fn sequence(&mut self) -> u64 {
        self.flash.next_sequence().unwrap_or(u64::MAX)
    }

    fn written(&mut self, facts: &SegmentFacts) {
        if let Some((_, page)) = &mut self.open[Self::place(facts.head.kind)] {
            *page = facts.first_page + facts.pages;
        }
        self.flash.zones().get(facts.zone).used = Use::Merging(facts.head.sequence);
        self.flash.counters.appended_bytes.fetch_add(facts.pages as u64 * PAGE_BYTES as u64, Relaxed);
        self.flash.counters.segments_written.fetch_add(1, Relaxed);
    }
}

impl Flash {
    /// Full zones of the log, oldest first, and whether they are to be merged.
    fn log_zones(&self) -> (Vec<LogZone>, bool) {
        let zones = self.zones();
        let is_log =
            |segments: &[Arc<Segment>]| segments.first().is_some_and(|first| first.kind == Kind::Log);
        let full = zones
            .zones
            .iter()
            .enumerate()
            .filter(|(_, zone)| zone.used == Use::Full && is_log(&zone.segments));
        let mut full: Vec<_> =
            full.map(|(number, zone)| (ZoneId(number as u32), zone.segments.clone())).collect();
        full.sort_by_key(|(_, segments)| segments.first().map(|first| first.sequence()));
        let short = zones.free.len() <= zones.marks.low();
        drop(zones);
        let share = (self.device.geometry().zones * LOG_PERCENT / 100).max(1) as usize;
        let table_full = self.table_full.swap(false, SeqCst);
        if table_full && full.is_empty() {
            self.table_full.store(true, SeqCst);
            self.close_log.store(true, SeqCst);
        }
        let crowded = self.is_table_filled(TABLE_PERCENT)
            || self.append().ids.len() < self.shape.buffers as usize + 2
            || table_full;
        // Where space is short and there is something older, that goes first: small merges make many generations, and each of
        // them a false read now and then.
        let short = short && self.generations.list().newest_first().is_empty();
        let due = !full.is_empty() && (full.len() >= share || crowded || short);
        (full, due)
    }

    /// Merges the log, if it is due. Says whether it was.
    pub(crate) fn merge_round(&self) -> bool {
        // Somebody waits for room in the table.
        let stuck = self.table_full.load(SeqCst) || !self.fallback.is_empty();
        let (log, due) = self.log_zones();
        // A merge drops tombstones that hide nothing; what a restart would find they still hide.
        if !due || self.unreleased.load(SeqCst) {
            return false;
        }
        let mut rooms = MergeRooms { flash: self, open: [None, None] };
        let merged = self.run_merge(&log, &mut rooms);
        let open: Vec<ZoneId> = rooms.open.into_iter().flatten().map(|(zone, _)| zone).collect();
        open.into_iter().for_each(|zone| self.finish_zone(zone));
        match merged {
            Ok((merged, floor)) => self.install_merge(merged, floor, &log),
            Err(why) => {
                self.counters.merges_given_up.fetch_add(1, Relaxed);
                self.end_merge_zones();
                self.free_generation_zones();
                // There is nothing older that it could have taken the room of. If it is urgent, the log's own oldest goes: the
                // next merge would come no further.
                stuck && why == GivenUp::NoRoom && self.drop_oldest()
            }
        }
    }

    /// Nothing is dropped for being cold while there is room for it and for as much again as the reclaim holds ready.
    fn keep_percent(&self, log_zones: usize) -> u8 {
        let zones = self.zones();
        let has_room = zones.free.len() as usize >= zones.marks.high() as usize + log_zones;
        if has_room { 100 } else { self.options.keep_percent }
    }

    fn run_merge(&self, log: &[LogZone], rooms: &mut MergeRooms<'_>) -> Result<(Merged, u64), GivenUp> {
        let floor = self.floor.load(SeqCst);
        let segments: Vec<&Arc<Segment>> = log
            .iter()
            .flat_map(|(_, segments)| segments)
            .filter(|segment| segment.sequence() >= floor)
            .collect();
        let inputs: Vec<Input<'_>> = segments
            .iter()
            .map(|segment| Input {
                run: segment.run,
                sealed_sequence: segment.sealed_sequence,
                hits: segment.hits.as_ref(),
            })
            .collect();
        let dead = |hash: u64| self.must_mark(&self.append(), hash);
        let read_pages = self.shape.merge_reads / (2 * PAGE_BYTES as u64) / inputs.len().max(1) as u64;
        let settings = Settings {
            device: &*self.device,
            hasher: &self.hasher,
            device_uuid: self.uuid,
            now_unix_s: self.now(),
            cutoff_s: self.options.cutoff_s,
            keep_percent: self.keep_percent(log.len()),
            dead_extents: &dead,
            read_pages: read_pages.clamp(2, 64) as u32,
            write_pages: self.shape.chunk_pages,
        };
        let items = segments.iter().map(|segment| segment.run.items as u64).sum();
        let wanted = self.generations.wanted(items);
        let next = || self.next_sequence().ok_or(GivenUp::Disturbed);
        let (number, address) = (next()?, next()?);
        let mut merge = Merge::begin(settings, &inputs, self.generations.list(), wanted, number, address);
        let mut turn = Instant::now();
        loop {
            self.breathe(&mut turn);
            if self.stop.load(SeqCst) || !self.is_on() || self.floor.load(SeqCst) != floor {
                merge.abort();
                return Err(GivenUp::Disturbed);
            }
            match merge.step(STEP_PAGES, rooms) {
                Ok(Progress::Working) => {}
                Ok(Progress::Done) => {
                    return merge.finish().map(|merged| (merged, floor)).ok_or(GivenUp::Disturbed);
                }
                Ok(Progress::NeedsRoom(_)) => {
                    merge.abort();
                    return Err(GivenUp::NoRoom);
                }
                Err(error) => {
                    self.device_error("merge", rooms.open[0].map_or(ZoneId(0), |(zone, _)| zone), &error);
                    merge.abort();
                    return Err(GivenUp::Disturbed);
                }
            }
        }
    }

    /// Whether erased space is waited for: there are few erased zones, or little room in the log's table.
    pub(crate) fn is_pressed(&self) -> bool {
        let zones = self.zones();
        let short = zones.free.len() <= zones.marks.low();
        drop(zones);
        short || self.is_table_filled(TABLE_PRESSED_PERCENT)
    }

    fn is_table_filled(&self, percent: u64) -> bool {
        self.table.len() * 100 >= self.table.capacity() * percent
    }

    fn install_merge(&self, merged: Merged, floor: u64, log: &[LogZone]) -> bool {
        if self.options.recover == Recover::Journal
            && let Err(error) = self.device.sync()
        {
            self.device_error("sync", ZoneId(0), &error);
            self.end_merge_zones();
            self.free_generation_zones();
            return false;
        }
        // Before the log forgets its zones, so that a crash finds all of them or none.
        let top = |segments: &[Arc<Segment>]| segments.last().map_or(0, |last| last.sequence() + 1);
        let released: Vec<(ZoneId, u64)> =
            log.iter().map(|(zone, segments)| (*zone, top(segments))).collect();
        if self.options.recover == Recover::Journal {
            self.note_generations_written();
        }
        let _one = self.releasing();
        let has_voids = !merged.voids.is_empty();
        {
            let append = self.append();
            if self.floor.load(SeqCst) != floor {
                drop(append);
                self.end_merge_zones();
                self.free_idle_zones();
                return false;
            }
            let counts = merged.counts;
            self.counters.merges.fetch_add(1, Relaxed);
            self.counters.merged_records.fetch_add(counts.kept, Relaxed);
            self.counters.merged_bytes.fetch_add(counts.kept_bytes, Relaxed);
            self.counters.merge_dropped.fetch_add(counts.cold + counts.expired + counts.superseded, Relaxed);
            self.unreleased.store(true, SeqCst);
            let gone = self.generations.install(merged.generation, merged.address, &merged.voids);
            self.note_gone(&gone);
            if !merged.voids.is_empty() {
                self.counters.damaged_pages.fetch_add(merged.voids.len() as u64, Relaxed);
                tracing::warn!(
                    ranges = merged.voids.len(),
                    "a merge met damage: what older generations have there goes"
                );
                // Marks may have been there as well.
                self.unmarked.fetch_max(self.next_sequence().unwrap_or(u64::MAX), SeqCst);
            }
            self.end_merge_zones();
        }
        self.generation_hits.store(Arc::new(HitBits::new(self.shape.generation_hits * 8)));
        // What went for damage goes on the device before the log does, which may have hidden it.
        if has_voids {
            self.free_idle_zones();
        }
        if let Err(error) = self.meta.release(&released) {
            // What is in the log still hides what is in the new generation, which is the same.
            self.device_error("release", ZoneId(0), &error);
            return false;
        }
        for (zone, segments) in log {
            self.forget_segments(*zone, segments);
            self.erase(*zone);
        }
        self.free_idle_zones();
        true
    }

    /// Chunks that went may have been all that said of some extents that they are superseded: those go before the zones do.
    fn note_gone(&self, gone: &Released) {
        let marks = gone.chunks.iter().filter(|chunk| chunk.supersedes_extents);
        let below = marks.map(|chunk| chunk.run.sequence + 1).max().unwrap_or(0);
        self.unmarked.fetch_max(below, SeqCst);
    }

    /// What of generations is durable.
    pub(crate) fn note_generations_written(&self) {
        let zones = self.zones();
        for (number, zone) in zones.zones.iter().enumerate() {
            if let Use::Generation(top) | Use::Merging(top) = zone.used
                && top > 0
            {
                self.meta.written(ZoneId(number as u32), top);
            }
        }
    }

    /// Zones of generations in which nothing is looked for any more go.
    pub(crate) fn free_generation_zones(&self) -> bool {
        let _one = self.releasing();
        self.free_idle_zones()
    }

    /// The same, under the `releasing` lock.
    fn free_idle_zones(&self) -> bool {
        let unmarked = self.unmarked.load(SeqCst);
        if unmarked > 0 && !self.release_extents_below(unmarked) {
            return false;
        }
        // Unless more went meanwhile.
        let _ = self.unmarked.compare_exchange(unmarked, 0, SeqCst, SeqCst);
        let generation = |(number, zone): (usize, &super::zones::Zone)| match zone.used {
            Use::Generation(top) => Some((ZoneId(number as u32), top + 1)),
            _ => None,
        };
        // Before the list: what a merge wrote is in the list first, and counts as a generation's zone afterwards.
        let mut idle: Vec<(ZoneId, u64)> =
            self.zones().zones.iter().enumerate().filter_map(generation).collect();
        let list = self.generations.list();
        let chunks = list.newest_first().iter().flat_map(|generation| generation.chunks());
        let mut used: HashSet<ZoneId> = chunks.map(|chunk| chunk.run.zone).collect();
        used.extend(list.address().iter().flat_map(|run| run.segments()).map(|segment| segment.run.zone));
        idle.retain(|(zone, _)| !used.contains(zone));
        if idle.is_empty() {
            self.unreleased.store(false, SeqCst);
            return false;
        }
        if let Err(error) = self.meta.release(&idle) {
            self.device_error("release", ZoneId(0), &error);
            return false;
        }
        self.unreleased.store(false, SeqCst);
        idle.iter().for_each(|(zone, _)| self.erase(*zone));
        true
    }

    /// The oldest zone of the oldest generation goes.
    fn drop_generation_zone(&self) -> bool {
        let Some(zone) = self.generations.oldest_zone() else { return false };
        self.unreleased.store(true, SeqCst);
        self.note_gone(&self.generations.drop_zone(zone));
        self.counters.quick_drops.fetch_add(1, Relaxed);
        self.free_idle_zones()
    }

    /// A zone for a merge. One is left for the log, so that what has to be written can be.
    fn take_merge_zone(&self) -> Option<ZoneId> {
        for _ in 0..self.device.geometry().zones {
            if self.zones().free.len() > 1 {
                return self.take_free_zone();
            }
            if !self.drop_oldest_of_all() {
                return None;
            }
        }
        None
    }

    /// What is oldest of generations and extents goes, a zone of it.
    pub(crate) fn drop_oldest_of_all(&self) -> bool {
        let _one = self.releasing();
        let generation = self.generations.list().newest_first().last().map(|oldest| oldest.number());
        let extents = self.zones().oldest_extents();
        match (generation, extents) {
            (Some(number), Some(extents)) if extents.order < number => self.release(extents.zone),
            (Some(_), _) => self.drop_generation_zone(),
            (None, Some(extents)) => self.release(extents.zone),
            (None, None) => false,
        }
    }

    /// What a merge wrote is complete, or given up.
    fn end_merge_zones(&self) {
        for zone in &mut self.zones().zones {
            if let Use::Merging(top) = zone.used {
                zone.used = Use::Generation(top);
            }
        }
    }

    pub(crate) fn finish_zone(&self, zone: ZoneId) {
        if let Err(error) = self.device.finish(zone) {
            self.device_error("finish", zone, &error);
        }
    }

    /// Generations and address pages of an earlier run. Says in which zones nothing of it counts.
    pub(crate) fn restore_generations(&self, found: Vec<SegmentFacts>) -> Vec<ZoneId> {
        let (mut rows, mut zones) = (BTreeMap::<(bool, u64), Vec<SegmentFacts>>::new(), Vec::new());
        for facts in found {
            zones.push((facts.zone, facts.head.sequence));
            rows.entry((facts.head.kind == Kind::Address, facts.head.generation)).or_default().push(facts);
        }
        let (mut generations, mut address) = (Vec::new(), None);
        for ((is_address, _), row) in rows {
            if is_address {
                let covers = AddressRun::covered(&*self.device, &row);
                address = AddressRun::of(row, covers).or(address);
            } else {
                generations.extend(Generation::of(row));
            }
        }
        {
            // A flush may have come meanwhile: its floor was set under this lock.
            let _append = self.append();
            let floor = self.floor.load(SeqCst);
            self.unreleased.store(true, SeqCst);
            if generations.iter().all(|generation| generation.number() >= floor) {
                self.note_gone(&self.generations.restore(generations, address));
            }
        }
        {
            let mut all = self.zones();
            for (zone, sequence) in &zones {
                let found = all.get(*zone);
                let top = if let Use::Generation(top) = found.used { top } else { 0 };
                found.used = Use::Generation(top.max(*sequence));
            }
        }
        zones.into_iter().map(|(zone, _)| zone).collect()
    }

    /// Whether the newest version of a hash, as far as filters know, is in a generation that stays for a while.
    pub(crate) fn generations_hold_for_a_while(&self, hash: u64) -> bool {
        let list = self.generations.list();
        match self.generations.search(hash).next() {
            Next::Data(place) => {
                let count = list.newest_first().len();
                list.position(place.generation).is_some_and(|age| (age + 1) * 4 <= count * 3 || count < 4)
            }
            Next::Address(_) | Next::Nowhere => false,
        }
    }
}
