//! The log becomes a generation when it holds its share of the device. Where erased zones are few, a merge collects
//! garbage of the oldest generations as well.
//!
//! Takes no lock that it holds for long; [`super::reclaim::Reclaim`] runs one merge at a time.

use super::directory::Segment;
use super::log::Log;
use super::lookup::Lookup;
use super::release::Release;
use super::shape::{MERGE_PERCENT, Shape};
use super::space::{LogZone, Space};
use super::status::TimeSlice;
use crate::device::{Device, PAGE_BYTES, ZoneId};
use crate::generation::{GENERATIONS_MAX, Generation, List};
use crate::merge::{Collected, Input, Merge, Merged, Progress, Room, Rooms, Settings};
use crate::options::FlashOptions;
use crate::segment::{Kind, SegmentSummary};
use larder_item::KeyHasher;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Pages between two looks at whether the merge is still wanted, and whether the core is wanted elsewhere.
const STEP_PAGES: u64 = 16;
/// Pages that one read of a generation takes at most.
const CHUNK_READ_PAGES_MAX: u64 = 16;
/// Fewest pages at the end of a zone that a segment of a generation is begun in.
const ROOM_PAGES_MIN: u32 = 8;
/// Filling of the log table, percent, at which the log counts as full.
const TABLE_FULL_PERCENT: u64 = 85;
/// How many of the zones the log takes where its table cannot hold all items that the device can, percent.
const LOG_PERCENT: u8 = 10;
/// A merge collects unless there is room for 3 merges. With less room, what is put during a merge finds no zone.
const MERGES_AHEAD: usize = 3;
/// The garbage of a zone, as a share of it, for which a merge collects it: the least where there is hardly an erased
/// zone, and the most where [`MERGES_AHEAD`] merges have room.
const GARBAGE_SHARE: (f64, f64) = (0.06, 0.5);
/// The share of garbage in a generation of which none is known.
const GARBAGE_GUESS: f64 = 0.5;
/// With 4 generations fewer than there may be, a merge collects the oldest ones whatever their garbage is.
const GENERATIONS_SPARE: usize = 4;
/// How many of the oldest generations that are.
const GENERATIONS_TOGETHER: usize = 2;
/// Bytes of an entry of the address run, about.
const ENTRY_BYTES: u64 = 3;
/// Where there are generations, 4 percent of the zones are kept erased for merges that collect, beside those for
/// the address run. At least 4 zones are.
const KEPT_PERCENT: u8 = 4;
const KEPT_ZONES_MIN: usize = 4;
/// Where there are generations, records of the log that are shorter than this on average, bytes, are merged and not
/// reclaimed: a reclaim reads a page for each record that was replaced, because a generation may have an older one.
pub(crate) const RECLAIMED_BYTES_MIN: u64 = 256;
/// At most this part of all zones is kept.
const KEPT_PART_MAX: u32 = 8;

/// Why a merge came to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GivenUp {
    /// There is no zone for it, and no generation whose zone it could get.
    NoRoom,
    /// The tier stops, was flushed or has failed meanwhile, or the device takes no more.
    Disturbed,
}

/// Merges the log into generations.
pub(crate) struct Merging {
    lookup: Lookup,
    space: Arc<Space>,
    log: Arc<Log>,
    release: Arc<Release>,
    device: Arc<dyn Device>,
    hasher: KeyHasher,
    shape: Shape,
    cutoff_s: u32,
    log_percent: u8,
    /// How many merges that collected were given up since one was not. The next one takes less.
    failures: AtomicU32,
    /// The newest generation when zones were kept erased for merges; 0: none.
    kept_for: AtomicU64,
    /// Whether a merge was asked for by [`Merging::want`].
    is_wanted: AtomicBool,
}

/// What a merge takes.
struct Plan {
    log: Vec<LogZone>,
    /// Zones of generations.
    collected: HashSet<ZoneId>,
    /// Zones that the merge will write, about.
    writes: u32,
}

/// What became of the wish to merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Round {
    /// The log has room.
    NotDue,
    /// The log has to be merged, but not before there is space for it, or what was reclaimed is durable.
    Waits,
    /// A merge was done, or given up. Says whether space was gained.
    Ended(bool),
}

impl Merging {
    /// Nothing is merged yet.
    pub(crate) fn new(
        release: Arc<Release>,
        (lookup, space, log): (Lookup, Arc<Space>, Arc<Log>),
        (device, hasher): (Arc<dyn Device>, KeyHasher),
        shape: Shape,
        options: &FlashOptions,
    ) -> Merging {
        let (cutoff_s, log_percent) = (options.cutoff_s, options.log_percent);
        let (failures, kept_for) = (AtomicU32::new(0), AtomicU64::new(0));
        let is_wanted = AtomicBool::new(false);
        Merging {
            lookup,
            space,
            log,
            release,
            device,
            hasher,
            shape,
            cutoff_s,
            log_percent,
            failures,
            kept_for,
            is_wanted,
        }
    }

    /// Full zones of the log, oldest first, if the oldest of them are to be merged: the log has its share of the zones,
    /// its table is crowded, or its numbers run out.
    fn due(&self) -> Vec<LogZone> {
        let full = self.space.log_zones();
        let table_full = self.log.take_table_full() && !self.log.sweep_retired();
        if table_full && full.is_empty() {
            self.log.set_table_full();
            self.log.set_close_zone(true);
        }
        let is_crowded =
            self.lookup.index.is_table_filled(TABLE_FULL_PERCENT) || self.log.is_short_of_ids() || table_full;
        let zones = self.device.geometry().zones;
        // A table that will be full before the device is cannot save a merge. The sooner what is superseded is in
        // generations, the sooner it is counted and collected.
        let filled_for_all = TABLE_FULL_PERCENT * full.len() as u64 / zones as u64;
        let has_part =
            full.len() >= share(zones, LOG_PERCENT) && self.lookup.index.is_table_filled(filled_for_all);
        let has_share = has_part || self.log_percent < 100 && full.len() >= share(zones, self.log_percent);
        if is_crowded || has_share || self.is_wanted.load(Relaxed) { full } else { Vec::new() }
    }

    /// Merges the oldest part of the log if that is due.
    pub(crate) fn round(&self) -> Round {
        self.keep_zones();
        // Something waits for room in the table.
        let is_stuck = self.log.is_stuck();
        let log = self.due();
        if log.is_empty() {
            return Round::NotDue;
        }
        if self.must_wait() {
            return Round::Waits;
        }
        self.is_wanted.store(false, Relaxed);
        let plan = self.plan(log, GARBAGE_SHARE.1);
        let collects = !plan.collected.is_empty();
        Round::Ended(match self.merge(&plan) {
            Ok(gained) => gained,
            // There was no generation to drop for its zones, so the next merge would get no further. If it is urgent,
            // the oldest zone of the log is dropped.
            Err(why) => is_stuck && why == GivenUp::NoRoom && !collects && self.release.drop_oldest(),
        })
    }

    /// Keeps zones erased for merges that collect, where there is something to collect.
    fn keep_zones(&self) {
        let newest =
            self.lookup.generations.list().newest_first().first().map_or(0, |newest| newest.number());
        if self.kept_for.swap(newest, Relaxed) == newest {
            return;
        }
        let kept = if self.has_merged() { self.kept_zones() + self.address_zones() } else { 0 };
        // On a device of a few zones there is nothing to spare: its oldest zones are dropped instead.
        self.space.keep_for_merges((kept as u32).min(self.device.geometry().zones / KEPT_PART_MAX));
    }

    /// Whether there are generations.
    pub(crate) fn has_merged(&self) -> bool {
        !self.lookup.generations.list().newest_first().is_empty()
    }

    fn kept_zones(&self) -> usize {
        share(self.device.geometry().zones, KEPT_PERCENT).max(KEPT_ZONES_MIN)
    }

    /// Zones that the next address run will take, about.
    fn address_zones(&self) -> usize {
        let generations = &self.lookup.generations;
        let zones = match generations.list().address() {
            Some(run) => run.zones().collect::<HashSet<_>>().len(),
            None => (generations.stats(0).items * ENTRY_BYTES / self.device.geometry().zone_bytes) as usize,
        };
        zones + 1
    }

    /// Whether a merge has to wait. A merge drops tombstones that hide nothing in the list. They may still hide what a
    /// restart would find. And what was reclaimed is still found in the log, where it would be taken for newer than the
    /// generation.
    fn must_wait(&self) -> bool {
        let waits = self.lookup.generations.has_unreleased() || self.space.is_log_draining();
        if waits {
            self.log.seal_all();
        }
        waits
    }

    /// Asks for a merge by the next round, because no zone has garbage that is known of: what the log supersedes in
    /// generations is counted by a merge only. Says whether there is something to merge.
    pub(crate) fn want(&self) -> bool {
        let wants = self.has_merged() && !self.space.log_zones().is_empty();
        self.is_wanted.store(wants, Relaxed);
        wants
    }

    /// Collects garbage of the oldest generations, if `garbage_percent` of their zones are.
    pub(crate) fn collect(&self, garbage_percent: u32) -> Round {
        let garbage_share = garbage_percent as f64 / 100.0;
        if self.oldest_garbage().is_none_or(|share| share < garbage_share) {
            return Round::NotDue;
        }
        let plan = self.plan(Vec::new(), garbage_share);
        if plan.collected.is_empty() {
            return Round::NotDue;
        }
        // Not before there is a plan: this seals segments early, which wastes space.
        if self.must_wait() {
            self.release.end_collecting();
            return Round::Waits;
        }
        Round::Ended(self.merge(&plan).unwrap_or(false))
    }

    /// The garbage in the zone that would be collected first, as a share of it; `None` without generations.
    fn oldest_garbage(&self) -> Option<f64> {
        let zones = self.lookup.generations.zones_to_collect(self.lookup.status.now(), 1);
        zones.first().map(|(_, garbage)| garbage.unwrap_or(GARBAGE_GUESS))
    }

    /// Whether a merge that collects gains something.
    pub(crate) fn has_garbage(&self) -> bool {
        self.lookup.has_generations
            && self.oldest_garbage().is_some_and(|share| share >= GARBAGE_SHARE.0)
            && self.may_collect(&self.lookup.generations.list())
    }

    /// Whether all chunks of generations can be read. A merge that collects reads those that stay as well, for their
    /// hashes. What it cannot read may be newer than anything with a hash of the same range, so that would go, on
    /// devices that are well. Instead the oldest generations are dropped, until those are gone that had a part on the
    /// device that has failed.
    fn may_collect(&self, list: &List) -> bool {
        let mut zones = list.newest_first().iter().flat_map(|generation| generation.zones());
        !self.space.has_failed_devices() || !zones.any(|zone| self.space.is_offline(zone))
    }

    /// What a merge of these zones of the log takes. Where [`MERGES_AHEAD`] merges have no room, it takes zones
    /// of the oldest generations as well, if at least `garbage_most` of them is garbage. With less room, less
    /// garbage is enough.
    fn plan(&self, mut log: Vec<LogZone>, garbage_most: f64) -> Plan {
        let generations = &self.lookup.generations;
        let wanted = share(self.device.geometry().zones, MERGE_PERCENT);
        let (room, addresses) = (self.space.zones_for_merge(), self.address_zones());
        let list = generations.list();
        let mut writes = 0.0;
        let collected = self.release.begin_collecting(|| {
            let count = list.newest_first().len();
            let ahead = (wanted + addresses) * MERGES_AHEAD;
            let is_crowded = count + GENERATIONS_SPARE >= GENERATIONS_MAX;
            // A quarter of the room is for what is put meanwhile, but not what is kept for merges.
            let most = (room * 3 / 4).max(room.min(self.kept_zones() + addresses)).saturating_sub(addresses);
            let budget = most >> self.failures.load(Relaxed).min(16);
            if budget < 2 {
                self.failures.store(0, Relaxed);
            }
            if count == 0 || budget < 2 || (room >= ahead && !is_crowded) || !self.may_collect(&list) {
                return HashSet::new();
            }
            let of_log = log.len().min(wanted).min((budget / 2).max(1));
            let (least, most) = (GARBAGE_SHARE.0, garbage_most);
            let garbage_min = least + (most - least) * (room as f64 / ahead as f64).min(1.0);
            let oldest = list.newest_first().iter().rev().take(GENERATIONS_TOGETHER);
            let crowding: HashSet<ZoneId> = match is_crowded {
                true => oldest.flat_map(|generation| generation.zones()).collect(),
                false => HashSet::new(),
            };
            let mut written = of_log as f64;
            let mut gain = (ahead.saturating_sub(room) + of_log) as f64;
            let mut chosen = HashSet::new();
            for (zone, garbage) in generations.zones_to_collect(self.lookup.status.now(), usize::MAX) {
                let garbage = garbage.unwrap_or(GARBAGE_GUESS);
                let wanted = crowding.contains(&zone) || (garbage >= garbage_min && gain > 0.0);
                // What is known of the garbage may be wrong by some percent.
                written += 1.0 - garbage * 0.9;
                if !wanted || written > budget as f64 {
                    break;
                }
                gain -= garbage;
                chosen.insert(zone);
            }
            if !chosen.is_empty() {
                log.truncate(of_log);
                writes = written - of_log as f64;
            }
            chosen
        });
        log.truncate(
            wanted.min(room.saturating_sub(if list.has_unfiltered() { addresses } else { 0 })).max(1),
        );
        let writes = writes.ceil() as usize + log.len() + addresses;
        Plan { log, collected, writes: writes as u32 }
    }

    /// Merges what the plan says. Says whether space was gained.
    fn merge(&self, plan: &Plan) -> Result<bool, GivenUp> {
        let may_drop = plan.collected.is_empty();
        let kept = self.space.kept_for_merges();
        let mut rooms = MergeRooms {
            merging: self,
            open: [None, None],
            first_sequence: u64::MAX,
            may_drop,
            kept,
            left: plan.writes,
        };
        let merged = self.run(plan, &mut rooms);
        for (zone, _) in rooms.open.into_iter().flatten() {
            self.space.finish(zone);
        }
        self.space.keep_for_merges(kept);
        let ended = match merged {
            Ok((merged, floor)) => Ok(self.install(merged, floor, plan)),
            Err(why) => {
                self.lookup.status.counters.merges_given_up.fetch_add(1, Relaxed);
                self.abandon();
                Err(why)
            }
        };
        match ended {
            Err(_) if !may_drop => self.failures.fetch_add(1, Relaxed),
            _ => self.failures.swap(0, Relaxed),
        };
        if !may_drop {
            self.release.end_collecting();
        }
        ended
    }

    /// What the merge has written is released.
    fn abandon(&self) {
        self.space.end_merging();
        self.release.idle_generation_zones();
    }

    /// How many pages one read of a segment of the log takes, and one of a generation or of the address run. Half of
    /// the memory for reads is for each of the two, if the merge reads both. A read is in memory twice: its pages, and
    /// what is left of the payload.
    fn read_pages(&self, list: &List, plan: &Plan, segments: usize) -> (u32, u32) {
        let pages = self.shape.budget.merge_reads / (2 * PAGE_BYTES as u64);
        let covered =
            |generation: &Generation| list.address().is_some_and(|run| run.covers(generation.number()));
        let is_collected =
            |generation: &Generation| generation.zones().any(|zone| plan.collected.contains(&zone));
        // One chunk of each generation that is collected, or read again for the address run.
        let all = list.newest_first().iter();
        let chunks =
            all.filter(|generation| is_collected(generation) || !covered(generation)).count() as u64 + 1;
        let reads_chunks = !plan.collected.is_empty() || list.has_unfiltered();
        let of_log = if reads_chunks { pages / 2 } else { pages };
        let read_pages = (of_log / segments.max(1) as u64).clamp(2, 64);
        (read_pages as u32, (pages / 2 / chunks).clamp(2, CHUNK_READ_PAGES_MAX) as u32)
    }

    fn run(&self, plan: &Plan, rooms: &mut MergeRooms<'_>) -> Result<(Merged, u64), GivenUp> {
        let (meta, generations) = (&self.lookup.meta, &self.lookup.generations);
        let floor = meta.floor();
        let all = plan.log.iter().flat_map(|(_, segments)| segments);
        let segments: Vec<&Arc<Segment>> = all.filter(|segment| segment.sequence() >= floor).collect();
        let (list, hits) = (generations.list(), generations.hits());
        let (mut inputs, collected) = Collected::inputs(&list, &plan.collected, &hits);
        inputs.extend(segments.iter().map(|segment| Input {
            run: segment.run,
            age: segment.sequence(),
            hashes: (0, u64::MAX),
            sealed_sequence: segment.sealed_sequence,
            hits: segment.hits(),
        }));
        let dead = |hash: u64| self.log.must_mark(hash);
        let dropped = |hash: u64, sequence: u64| sequence < meta.floor_of(hash);
        let deleted = |key: &[u8], sequence: u64| meta.hides(key, sequence);
        let now = self.lookup.status.now();
        let (read_pages, chunk_read_pages) = self.read_pages(&list, plan, segments.len());
        let settings = Settings {
            device: &*self.device,
            hasher: &self.hasher,
            device_uuid: meta.device_uuid(),
            now_unix_s: now,
            cutoff_s: self.cutoff_s,
            keep_percent: self.space.keep_percent(generations, now) as u8,
            dead_extents: &dead,
            dropped: &dropped,
            deleted: &deleted,
            read_pages,
            chunk_read_pages,
            write_pages: self.shape.chunk_pages,
        };
        let items = inputs.iter().map(|input| input.run.items as u64).sum();
        let wanted = generations.wanted(items, collected.inputs > 0);
        let next = || meta.next_sequence().ok_or(GivenUp::Disturbed);
        let (number, address) = (next()?, next()?);
        rooms.first_sequence = number;
        let others =
            if collected.inputs == 0 { list.clone() } else { Arc::new(list.without(&plan.collected)) };
        let mut merge = Merge::begin(settings, (&inputs, collected), others, wanted, number, address);
        let mut slice = TimeSlice::begin(&self.lookup.status);
        loop {
            slice.yield_if_due(|| self.log.is_urgent());
            if self.lookup.status.is_stopping() || !meta.is_on() || meta.floor() != floor {
                merge.abort();
                return Err(GivenUp::Disturbed);
            }
            match merge.step(STEP_PAGES, rooms) {
                Ok(Progress::Working) => {}
                // What it could not read would void what older generations have on devices that are well.
                Ok(Progress::Done)
                    if self.space.has_lost_merge(&plan.log)
                        || !plan.collected.is_empty() && !self.may_collect(&list) =>
                {
                    merge.abort();
                    return Err(GivenUp::Disturbed);
                }
                Ok(Progress::Done) => {
                    return merge.finish().map(|merged| (merged, floor)).ok_or(GivenUp::Disturbed);
                }
                Ok(Progress::NeedsRoom(_)) => {
                    merge.abort();
                    return Err(GivenUp::NoRoom);
                }
                Err(error) => {
                    let zone = rooms.open[0].map_or(ZoneId(0), |(zone, _)| zone);
                    self.lookup.status.device_error("merge", zone, &error);
                    merge.abort();
                    return Err(GivenUp::Disturbed);
                }
            }
        }
    }

    fn install(&self, merged: Merged, floor: u64, plan: &Plan) -> bool {
        let meta = &self.lookup.meta;
        if meta.has_journal() {
            // The merge has left out tombstones in ranges that were dropped. Before their zones go, it must be durable
            // that the ranges were, or a crash would bring back what the tombstones hid. It knows of none that is
            // dropped from now on.
            let dropped = meta.highest_range_floor();
            meta.commit();
            if !meta.keeps_ranges_up_to(dropped) {
                self.lookup.status.counters.merges_given_up.fetch_add(1, Relaxed);
                self.abandon();
                return false;
            }
            if let Err(error) = self.device.sync() {
                self.lookup.status.device_error("sync", ZoneId(0), &error);
                self.abandon();
                return false;
            }
            // Before the log forgets its zones, so that a crash finds all of them or none.
            self.space.note_generations_durable();
        }
        self.release.install_merge(merged, floor, &plan.log, &plan.collected)
    }

    /// A zone for a merge. The last one is left for the log, so that what has to be written can be.
    fn take_zone(&self, sequence: u64, may_drop: bool) -> Option<ZoneId> {
        for _ in 0..self.device.geometry().zones {
            if self.space.has_zone_for_merge() {
                return self.space.take_zone(sequence);
            }
            if !may_drop || !self.release.drop_oldest_of_all() {
                return None;
            }
        }
        None
    }
}

/// `percent` of the zones, but at least one.
fn share(zones: u32, percent: u8) -> usize {
    (zones as u64 * percent as u64 / 100).max(1) as usize
}

/// Where a merge writes: an open zone for segments of the generation, and one for address pages.
struct MergeRooms<'a> {
    merging: &'a Merging,
    /// The zone, and its next page.
    open: [Option<(ZoneId, u32)>; 2],
    /// The sequence of its first segment.
    first_sequence: u64,
    /// Whether zones may be dropped to make room.
    may_drop: bool,
    /// Zones that were kept erased for merges when it began.
    kept: u32,
    /// Zones that it will take further, about.
    left: u32,
}

impl MergeRooms<'_> {
    fn open(&mut self, kind: Kind) -> &mut Option<(ZoneId, u32)> {
        &mut self.open[(kind == Kind::Address) as usize]
    }
}

impl Rooms for MergeRooms<'_> {
    fn room(&mut self, kind: Kind) -> Option<Room> {
        let merging = self.merging;
        let (space, shape) = (&merging.space, &merging.shape);
        let (first_sequence, may_drop) = (self.first_sequence, self.may_drop);
        let open = self.open(kind);
        if let Some((zone, page)) = *open {
            let left = shape.zone_pages - page;
            if left >= ROOM_PAGES_MIN.max(shape.buffer.segment_pages / 4) {
                return Some(Room { zone, first_page: page, pages: left.min(shape.buffer.segment_pages) });
            }
            *open = None;
            space.finish(zone);
        }
        let zone = merging.take_zone(first_sequence, may_drop)?;
        space.begin_merging(zone);
        *open = Some((zone, 0));
        // What is kept beyond what is left to write is for what is put meanwhile.
        self.left = self.left.saturating_sub(1);
        space.keep_for_merges(self.kept.min(self.left + 1));
        Some(Room { zone, first_page: 0, pages: shape.buffer.segment_pages })
    }

    fn sequence(&mut self) -> u64 {
        self.merging.lookup.meta.next_sequence().unwrap_or(u64::MAX)
    }

    fn written(&mut self, facts: &SegmentSummary) {
        if let Some((_, page)) = self.open(facts.head.kind) {
            *page = facts.first_page + facts.pages;
        }
        let bytes = facts.pages as u64 * PAGE_BYTES as u64;
        self.merging.space.note_merged(facts.zone, facts.head.sequence, bytes);
        let counters = &self.merging.lookup.status.counters;
        counters.appended_bytes.fetch_add(bytes, Relaxed);
        counters.segments_written.fetch_add(1, Relaxed);
    }
}
