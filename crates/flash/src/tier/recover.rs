//! A restart: what the device holds is taken in, newest first, while lookups and puts work already.

use super::directory::{Place, Segment};
use super::fallback::Waiting;
use super::zones::Use;
use crate::device::{DeviceError, ZoneId, ZoneState};
use crate::extent_table::Extent;
use crate::flash::{Flash, FlashError};
use crate::hit_bits::HitBits;
use crate::meta::Opened;
use crate::recovery::{Progress, Recovery, Sink};
use crate::segment::{Kind, SegmentFacts};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// A recovery that has begun.
pub(crate) struct Recovering {
    recovery: Recovery,
    /// Segments from here on are of this run.
    next_sequence: u64,
    /// Segments of generations and address runs.
    rows: Vec<SegmentFacts>,
    /// Segments that were not taken in, or not whole: zone and sequence.
    lost: Vec<(ZoneId, u64)>,
}

impl Flash {
    /// Looks for segments, and keeps their zones from being written.
    pub(crate) fn begin_recovery(&self, opened: &Opened) -> Result<(), FlashError> {
        let failed = |error: DeviceError| FlashError(format!("flash: {error}"));
        let recovery = Recovery::begin(self.device.clone(), opened).map_err(failed)?;
        let used: HashSet<u32> = recovery.left().map(|found| found.zone.0).collect();
        {
            let mut zones = self.zones();
            zones.reuse(|zone| {
                if used.contains(&zone.0) {
                    return Some(Use::Full);
                }
                match self.device.report(zone).map(|report| report.state) {
                    Ok(ZoneState::Empty) => Some(Use::Free { erased: true }),
                    Ok(ZoneState::Offline) => Some(Use::Retired),
                    _ => None,
                }
            });
        }
        let found = !used.is_empty();
        self.recovering.store(found, SeqCst);
        let recovering =
            Recovering { recovery, next_sequence: opened.next_sequence, lost: Vec::new(), rows: Vec::new() };
        *self.recovery.lock().expect("no panic under this lock") = found.then_some(recovering);
        self.put_journal_again(opened)
    }

    /// Invalidations whose tombstones were lost with a segment in memory.
    fn put_journal_again(&self, opened: &Opened) -> Result<(), FlashError> {
        let mut newest = 0;
        for record in &opened.journal {
            loop {
                let mut append = self.append();
                let waiting = Waiting { hash: record.hash, supersedes_extent: true };
                if let Some(sequence) = self.place_tombstone(&mut append, &record.key, waiting) {
                    newest = sequence;
                    break;
                }
                drop(append);
                if !self.write_sealed() {
                    return Err(FlashError(
                        "flash: there is no room for the invalidations in the journal".into(),
                    ));
                }
            }
        }
        if !opened.journal.is_empty() {
            self.meta.placed(newest);
        }
        Ok(())
    }

    /// Takes the next segment in. Says whether there was anything to do.
    pub(crate) fn recover_step(&self) -> bool {
        let mut held = self.recovery.lock().expect("no panic under this lock");
        let Some(recovering) = held.as_mut() else { return false };
        let next_sequence = recovering.next_sequence;
        let mut sink =
            Intake { flash: self, next_sequence, lost: &mut recovering.lost, rows: &mut recovering.rows };
        match recovering.recovery.step(&mut sink) {
            Ok(Progress::Left(_)) => true,
            Ok(Progress::Done) => {
                let lost = std::mem::take(&mut recovering.lost);
                let rows = std::mem::take(&mut recovering.rows);
                *held = None;
                self.release_lost(&lost, &rows, next_sequence);
                self.restore_generations(rows);
                self.end_recovery();
                true
            }
            Err(error) => {
                *held = None;
                self.device_error("recovery", ZoneId(0), &error);
                self.turn_off("the device is gone");
                true
            }
        }
    }

    /// What was not taken in must not be found by a later start either, which may not know any more why it was not. `rows` were
    /// taken in.
    fn release_lost(&self, lost: &[(ZoneId, u64)], rows: &[SegmentFacts], next_sequence: u64) {
        if lost.is_empty() {
            return;
        }
        let mut first_kept = BTreeMap::new();
        for (zone, sequence) in rows.iter().map(|row| (row.zone, row.head.sequence)) {
            let first = first_kept.entry(zone).or_insert(sequence);
            *first = sequence.min(*first);
        }
        let mut floors = BTreeMap::new();
        for (zone, sequence) in lost {
            let segment = self.zones().get(*zone).segments.first().map(|first| first.sequence());
            let floor = match segment.or(first_kept.get(zone).copied()) {
                None => next_sequence,
                // It was never written to its end, and will not exist the next time either. A floor would take what is kept.
                Some(kept) if kept < *sequence => continue,
                Some(kept) => kept.max(sequence + 1),
            };
            let known = floors.entry(*zone).or_insert(floor);
            *known = floor.max(*known);
        }
        let released: Vec<(ZoneId, u64)> = floors.into_iter().collect();
        if let Err(error) = self.meta.release(&released) {
            self.device_error("release", ZoneId(0), &error);
            self.turn_off("what was lost could not be written down");
        }
    }

    fn end_recovery(&self) {
        let mut zones = self.zones();
        zones.give_back_empty();
        self.oldest_quarter.store(zones.oldest_quarter(), Relaxed);
        drop(zones);
        self.recovering.store(false, SeqCst);
        self.wake();
    }
}

/// Where segments go that a recovery found.
struct Intake<'a> {
    flash: &'a Flash,
    next_sequence: u64,
    lost: &'a mut Vec<(ZoneId, u64)>,
    rows: &'a mut Vec<SegmentFacts>,
}

impl Intake<'_> {
    fn hits(&self, items: u32) -> Option<HitBits> {
        let flash = self.flash;
        let bits = HitBits::bytes_for(items as u64);
        let fits = flash.counters.hit_bits_bytes.load(Relaxed) + bits <= flash.shape.hit_bits;
        flash.counters.hit_bits_bytes.fetch_add(if fits { bits } else { 0 }, Relaxed);
        fits.then(|| HitBits::new(items as u64))
    }

    /// Makes it one of its zone's.
    fn add_to_zone(&self, segment: &Arc<Segment>) {
        let mut zones = self.flash.zones();
        let segments = &mut zones.get(segment.zone()).segments;
        segments.push(segment.clone());
        segments.sort_by_key(|segment| segment.sequence());
    }

    fn add_log(&self, mut facts: SegmentFacts) -> bool {
        let flash = self.flash;
        let Some(id) = flash.append().ids.pop() else { return false };
        flash.append().raise_cas(facts.cas_max);
        let hashes = std::mem::take(&mut facts.hashes);
        let hits = self.hits(facts.items);
        let segment = Arc::new(Segment::new(id, facts, hits));
        self.add_to_zone(&segment);
        flash.directory.set(id, Place::Flash(segment));
        for hash in hashes.iter() {
            if flash.table.insert(hash, id).is_err() {
                flash.counters.table_full.fetch_add(1, Relaxed);
                return false;
            }
        }
        true
    }

    /// Those that nothing put in this run replaces, the newest first.
    fn add_extents(&self, mut facts: SegmentFacts, dead: Vec<u64>) -> bool {
        let flash = self.flash;
        let cas_max = facts.cas_max;
        let extents = std::mem::take(&mut facts.extents);
        let hits = self.hits(facts.items);
        let segment = Arc::new(Segment::new(0, facts, hits));
        self.add_to_zone(&segment);
        let sequence = segment.sequence();
        let zone_pages = flash.shape.zone_pages as u64;
        let mut append = flash.append();
        append.raise_cas(cas_max);
        let waiting = !flash.drain_fallback(&mut append);
        flash.directory.change_extents(|extents| extents.segments.push(segment.clone()));
        dead.into_iter().for_each(|hash| append.dead.add(flash.extents.class(hash), sequence));
        let mut all = true;
        for extent in extents.into_iter().rev() {
            let class = flash.extents.class(extent.hash);
            let replaced = waiting
                || !flash.extents.candidates(extent.hash).is_empty()
                || flash.buffers_hold(extent.hash)
                || flash.log_places(extent.hash).iter().any(|place| place.sequence() >= self.next_sequence);
            let address = segment.zone().0 as u64 * zone_pages + extent.page as u64;
            let place = Extent { address, pages: extent.pages };
            if replaced {
                append.dead.add(class, sequence);
            } else if flash.extents.insert(extent.hash, place).is_err() {
                flash.counters.table_full.fetch_add(1, Relaxed);
                append.dead.add(class, sequence);
                all = false;
            }
        }
        all
    }
}

impl Sink for Intake<'_> {
    fn add_segment(&mut self, facts: SegmentFacts, dead: Vec<u64>) -> bool {
        match facts.head.kind {
            Kind::Log => self.add_log(facts),
            Kind::Extents => self.add_extents(facts, dead),
            Kind::Generation | Kind::Address => {
                self.flash.append().raise_cas(facts.cas_max);
                self.rows.push(facts);
                true
            }
        }
    }

    fn lost_segment(&mut self, zone: ZoneId, sequence: u64) {
        tracing::debug!("flash: segment {sequence} in zone {} is lost", zone.0);
        self.lost.push((zone, sequence));
    }
}
