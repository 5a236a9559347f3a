//! The log becomes a generation when it holds its share of the device.
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
use crate::merge::{Input, Merge, Merged, Progress, Room, Rooms, Settings};
use crate::options::FlashOptions;
use crate::segment::{Kind, SegmentSummary};
use larder_item::KeyHasher;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Pages between two looks at whether the merge is still wanted, and whether the core is wanted elsewhere.
const STEP_PAGES: u64 = 16;
/// Fewest pages at the end of a zone that a segment of a generation is begun in.
const ROOM_PAGES_MIN: u32 = 8;
/// Filling of the log table, percent, at which the log counts as full.
const TABLE_FULL_PERCENT: u64 = 85;
/// Numbers of the log table beyond one for each buffer that are kept free.
const IDS_SPARE: usize = 2;

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
        Merging { lookup, space, log, release, device, hasher, shape, cutoff_s, log_percent }
    }

    /// Full zones of the log, oldest first, if the oldest of them are to be merged: the log has its share of the zones,
    /// its table is crowded, or its numbers run out.
    fn due(&self) -> Vec<LogZone> {
        let full = self.space.log_zones();
        let table_full = self.log.take_table_full();
        if table_full && full.is_empty() {
            self.log.set_table_full();
            self.log.set_close_zone(true);
        }
        let is_crowded = self.lookup.index.is_table_filled(TABLE_FULL_PERCENT)
            || !self.log.has_ids(self.shape.buffers as usize + IDS_SPARE)
            || table_full;
        let zones = self.device.geometry().zones;
        let has_share = self.log_percent < 100 && full.len() >= share(zones, self.log_percent);
        if is_crowded || has_share { full } else { Vec::new() }
    }

    /// Merges the oldest part of the log if that is due.
    pub(crate) fn round(&self) -> Round {
        // Something waits for room in the table.
        let is_stuck = self.log.is_stuck();
        let mut log = self.due();
        if log.is_empty() {
            return Round::NotDue;
        }
        // A merge drops tombstones that hide nothing in the list. They may still hide what a restart would find. And
        // what was reclaimed is still found in the log, where it would be taken for newer than the generation.
        if self.lookup.generations.has_unreleased() || self.space.is_log_draining() {
            self.log.seal_all();
            return Round::Waits;
        }
        let room = self.space.zones_for_merge();
        log.truncate(share(self.device.geometry().zones, MERGE_PERCENT).min(room.max(1)));
        let mut rooms = MergeRooms { merging: self, open: [None, None], first_sequence: u64::MAX };
        let merged = self.run(&log, &mut rooms);
        for (zone, _) in rooms.open.into_iter().flatten() {
            self.space.finish(zone);
        }
        Round::Ended(match merged {
            Ok((merged, floor)) => self.install(merged, floor, &log),
            Err(why) => {
                self.lookup.status.counters.merges_given_up.fetch_add(1, Relaxed);
                self.abandon();
                // There was no generation to drop for its zones, so the next merge would get no further. If it is
                // urgent, the oldest zone of the log is dropped.
                is_stuck && why == GivenUp::NoRoom && self.release.drop_oldest()
            }
        })
    }

    /// What the merge has written is released.
    fn abandon(&self) {
        self.space.end_merging();
        self.release.idle_generation_zones();
    }

    /// Percent of the cold items to keep.
    fn keep_percent(&self) -> u8 {
        let now = self.lookup.status.now();
        let generations = self.lookup.generations.stats(now).live_bytes;
        self.space.keep_percent(generations, now) as u8
    }

    fn run(&self, log: &[LogZone], rooms: &mut MergeRooms<'_>) -> Result<(Merged, u64), GivenUp> {
        let (meta, generations) = (&self.lookup.meta, &self.lookup.generations);
        let floor = meta.floor();
        let all = log.iter().flat_map(|(_, segments)| segments);
        let segments: Vec<&Arc<Segment>> = all.filter(|segment| segment.sequence() >= floor).collect();
        let inputs: Vec<Input<'_>> = segments
            .iter()
            .map(|segment| Input {
                run: segment.run,
                sealed_sequence: segment.sealed_sequence,
                hits: segment.hits.as_ref(),
            })
            .collect();
        let dead = |hash: u64| self.log.must_mark(hash);
        let dropped = |hash: u64, sequence: u64| sequence < meta.floor_of(hash);
        let deleted = |key: &[u8], sequence: u64| meta.hides(key, sequence);
        let read_pages = self.shape.merge_reads / (2 * PAGE_BYTES as u64) / inputs.len().max(1) as u64;
        let settings = Settings {
            device: &*self.device,
            hasher: &self.hasher,
            device_uuid: meta.device_uuid(),
            now_unix_s: self.lookup.status.now(),
            cutoff_s: self.cutoff_s,
            keep_percent: self.keep_percent(),
            dead_extents: &dead,
            dropped: &dropped,
            deleted: &deleted,
            read_pages: read_pages.clamp(2, 64) as u32,
            write_pages: self.shape.chunk_pages,
        };
        let items = segments.iter().map(|segment| segment.run.items as u64).sum();
        let wanted = generations.wanted(items);
        let next = || meta.next_sequence().ok_or(GivenUp::Disturbed);
        let (number, address) = (next()?, next()?);
        rooms.first_sequence = number;
        let mut merge = Merge::begin(settings, &inputs, generations.list(), wanted, number, address);
        let mut slice = TimeSlice::begin(&self.lookup.status);
        loop {
            slice.yield_if_due(|| self.log.is_urgent());
            if self.lookup.status.is_stopping() || !meta.is_on() || meta.floor() != floor {
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
                    let zone = rooms.open[0].map_or(ZoneId(0), |(zone, _)| zone);
                    self.lookup.status.device_error("merge", zone, &error);
                    merge.abort();
                    return Err(GivenUp::Disturbed);
                }
            }
        }
    }

    fn install(&self, merged: Merged, floor: u64, log: &[LogZone]) -> bool {
        if self.lookup.meta.has_journal() {
            if let Err(error) = self.device.sync() {
                self.lookup.status.device_error("sync", ZoneId(0), &error);
                self.abandon();
                return false;
            }
            // Before the log forgets its zones, so that a crash finds all of them or none.
            self.space.note_generations_durable();
        }
        self.release.install_merge(merged, floor, log)
    }

    /// A zone for a merge. The last one is left for the log, so that what has to be written can be.
    fn take_zone(&self, sequence: u64) -> Option<ZoneId> {
        for _ in 0..self.device.geometry().zones {
            if self.space.has_zone_for_merge() {
                return self.space.take_zone(sequence);
            }
            if !self.release.drop_oldest_of_all() {
                return None;
            }
        }
        None
    }
}

/// So many percent of the zones, but at least one.
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
}

impl MergeRooms<'_> {
    fn open(&mut self, kind: Kind) -> &mut Option<(ZoneId, u32)> {
        &mut self.open[(kind == Kind::Address) as usize]
    }
}

impl Rooms for MergeRooms<'_> {
    fn room(&mut self, kind: Kind) -> Option<Room> {
        let merging = self.merging;
        let (space, shape, first_sequence) = (&merging.space, &merging.shape, self.first_sequence);
        let open = self.open(kind);
        if let Some((zone, page)) = *open {
            let left = shape.zone_pages - page;
            if left >= ROOM_PAGES_MIN.max(shape.buffer.segment_pages / 4) {
                return Some(Room { zone, first_page: page, pages: left.min(shape.buffer.segment_pages) });
            }
            *open = None;
            space.finish(zone);
        }
        let zone = merging.take_zone(first_sequence)?;
        space.begin_merging(zone);
        *open = Some((zone, 0));
        Some(Room { zone, first_page: 0, pages: shape.buffer.segment_pages })
    }

    fn sequence(&mut self) -> u64 {
        self.merging.lookup.meta.next_sequence().unwrap_or(u64::MAX)
    }

    fn written(&mut self, facts: &SegmentSummary) {
        if let Some((_, page)) = self.open(facts.head.kind) {
            *page = facts.first_page + facts.pages;
        }
        self.merging.space.note_merged(facts.zone, facts.head.sequence);
        let counters = &self.merging.lookup.status.counters;
        counters.appended_bytes.fetch_add(facts.pages as u64 * PAGE_BYTES as u64, Relaxed);
        counters.segments_written.fetch_add(1, Relaxed);
    }
}
