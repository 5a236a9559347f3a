//! A restart: what the device holds is taken in, the newest first, while lookups and puts work already.
//!
//! Lock: `running`, held for one segment at a time. First in the order of locks, beside the writer's.

use super::log::Log;
use super::lookup::Lookup;
use super::space::Space;
use super::writer::LogWriter;
use crate::address::AddressRun;
use crate::device::{Device, DeviceError, ZoneId};
use crate::error::FlashError;
use crate::generation::Generation;
use crate::meta::Opened;
use crate::recovery::{Progress, Recovery, Sink};
use crate::segment::{Kind, SegmentSummary};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

/// A recovery that has begun.
struct Running {
    recovery: Recovery,
    /// Segments from this sequence on are of this run.
    next_sequence: u64,
    taken: Taken,
}

/// What was not put into the log.
#[derive(Default)]
struct Taken {
    /// Segments of generations and address runs. They are shown when all of them are known.
    of_generations: Vec<SegmentSummary>,
    /// Segments that were not taken in, or not whole: zone and sequence.
    lost: Vec<(ZoneId, u64)>,
}

/// Takes in what an earlier run left on the device.
pub(crate) struct Restart {
    lookup: Lookup,
    space: Arc<Space>,
    log: Arc<Log>,
    device: Arc<dyn Device>,
    running: Mutex<Option<Running>>,
}

impl Restart {
    /// Finds the segments that the device has, keeps their zones from being written, and appends the invalidations of
    /// the journal again.
    ///
    /// # Errors
    /// The device is gone, or takes no records of its own.
    pub(crate) fn begin(
        (lookup, space, log): (Lookup, Arc<Space>, Arc<Log>),
        device: Arc<dyn Device>,
        writer: &LogWriter,
        opened: &Opened,
    ) -> Result<Restart, FlashError> {
        let failed = |error: DeviceError| FlashError(format!("flash: {error}"));
        let recovery = Recovery::begin(device.clone(), opened).map_err(failed)?;
        let mut used: HashSet<u32> = recovery.left().map(|found| found.zone.0).collect();
        let bounds = opened.zones.iter().enumerate().map(|(zone, bounds)| (ZoneId(zone as u32), bounds));
        let bounds = bounds.filter(|(zone, bounds)| bounds.void > 0 && !used.contains(&zone.0));
        // Durable segments that the run before declared missing: they stay so until what they hid is gone.
        let (missing, voids): (Vec<_>, Vec<_>) = bounds.partition(|(_, bounds)| bounds.top >= bounds.void);
        let missing: Vec<_> = missing.into_iter().map(|(zone, bounds)| (zone, bounds.top)).collect();
        used.extend(missing.iter().map(|(zone, _)| zone.0));
        // Zones without segments are written again, and what is written then must count.
        let voids: Vec<_> = voids.into_iter().map(|(zone, bounds)| (zone, bounds.void + 1)).collect();
        if !voids.is_empty() && !lookup.meta.release(&voids) {
            return Err(FlashError("flash: that zones are empty could not be written down".into()));
        }
        space.begin_recovery(|zone| used.contains(&zone.0));
        lookup.status.set_recovering(!used.is_empty());
        let next_sequence = opened.next_sequence;
        let taken = Taken { lost: missing, ..Taken::default() };
        let running = (!used.is_empty()).then_some(Running { recovery, next_sequence, taken });
        let restart = Restart { lookup, space, log, device, running: Mutex::new(running) };
        restart.replay_journal(opened, writer);
        Ok(restart)
    }

    /// Appends the invalidations whose tombstones were lost with a segment in memory. Those that find no room wait, and
    /// the journal keeps all until they are placed.
    fn replay_journal(&self, opened: &Opened, writer: &LogWriter) {
        let (mut newest, mut waits) = (None, false);
        for record in &opened.journal {
            let mut placed = None;
            while !waits && placed.is_none() {
                placed = self.log.append_journaled(&record.key, record.hash);
                waits = placed.is_none() && !writer.write_sealed();
            }
            match placed {
                Some(sequence) => newest = Some(sequence),
                // In their order: once one waits, so do all that follow.
                None => self.log.hold_journaled(&record.key, record.hash),
            }
        }
        if let Some(newest) = newest
            && !waits
        {
            self.lookup.meta.journal_replayed(newest);
        }
    }

    /// Takes the next segment in. Says whether there was anything to do.
    pub(crate) fn step(&self) -> bool {
        let mut held = self.running.lock().expect("no panic under this lock");
        let Some(running) = held.as_mut() else { return false };
        let next_sequence = running.next_sequence;
        let mut intake = Intake { log: &self.log, next_sequence, taken: &mut running.taken };
        match running.recovery.step(&mut intake) {
            Ok(Progress::Left(_)) => {}
            Ok(Progress::Done) => {
                let taken = std::mem::take(&mut running.taken);
                *held = None;
                self.release_lost(&taken, next_sequence);
                self.restore_generations(taken.of_generations);
                self.space.end_recovery();
                self.lookup.status.set_recovering(false);
                self.lookup.status.wake();
            }
            Err(error) => {
                *held = None;
                self.lookup.status.device_error("recovery", ZoneId(0), &error);
                self.lookup.meta.turn_off("the device is gone");
            }
        }
        true
    }

    /// Releases what was not taken in, so that a later start does not find it: that start may not know any more why it
    /// was left out.
    fn release_lost(&self, taken: &Taken, next_sequence: u64) {
        if taken.lost.is_empty() {
            return;
        }
        let mut of_generations = BTreeMap::new();
        for facts in &taken.of_generations {
            let sequence = facts.head.sequence;
            let (first, last) = of_generations.entry(facts.zone).or_insert((sequence, sequence));
            (*first, *last) = (sequence.min(*first), sequence.max(*last));
        }
        let mut bounds = BTreeMap::new();
        for (zone, sequence) in &taken.lost {
            let kept = self.space.segment_range(*zone).or(of_generations.get(zone).copied());
            let (floor, void) = match kept {
                None => (next_sequence, 0),
                // The copy of a segment that was written elsewhere, or one that was never written to its end.
                Some((_, last)) if last < *sequence => (0, *sequence),
                // It will not be whole the next time either. A floor would take what is kept.
                Some((first, _)) if first < *sequence => continue,
                Some((first, _)) => (first.max(sequence + 1), 0),
            };
            let (known_floor, known_void) = bounds.entry(*zone).or_insert((0, 0));
            *known_floor = floor.max(*known_floor);
            if void != 0 && (*known_void == 0 || void < *known_void) {
                *known_void = void;
            }
        }
        let released: Vec<_> = bounds.into_iter().map(|(zone, (floor, void))| (zone, floor, void)).collect();
        if !self.lookup.meta.narrow(&released) {
            self.lookup.meta.turn_off("what was lost could not be written down");
        }
    }

    /// Puts the generations and the address run of an earlier run in place.
    fn restore_generations(&self, found: Vec<SegmentSummary>) {
        let zones: Vec<_> = found.iter().map(|facts| (facts.zone, facts.head.sequence)).collect();
        let mut rows = BTreeMap::<(bool, u64), Vec<SegmentSummary>>::new();
        for facts in found {
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
        // A flush may have come meanwhile: with its floor, none of them counts.
        self.log.with_floor(|floor| {
            let known = &self.lookup.generations;
            known.begin_release();
            if generations.iter().all(|generation| generation.number() >= floor) {
                known.note_marks_gone(&known.restore(generations, address));
            }
        });
        self.space.restore_generations(&zones);
    }
}

/// Hands segments that were found to the log, and keeps the others for the end.
struct Intake<'a> {
    log: &'a Log,
    next_sequence: u64,
    taken: &'a mut Taken,
}

impl Sink for Intake<'_> {
    fn add_segment(&mut self, facts: SegmentSummary, dead: Vec<u64>) -> bool {
        match facts.head.kind {
            Kind::Log => self.log.restore_log_segment(facts),
            Kind::Extents => self.log.restore_extents(facts, dead, self.next_sequence),
            Kind::Generation | Kind::Address => {
                self.log.restore_cas(facts.cas_max);
                self.taken.of_generations.push(facts);
                true
            }
        }
    }

    fn lost_segment(&mut self, zone: ZoneId, sequence: u64) {
        tracing::debug!("flash: segment {sequence} in zone {} is lost", zone.0);
        self.taken.lost.push((zone, sequence));
    }
}
