//! The meta zones: how the device stands, and what must not be forgotten.
//!
//! Zones 0 and 1 are one append-only log. A zone of it begins with a **state** (superblock, what is known of zones, journal
//! records that are not obsolete); more states, journal records and released zones follow, one frame each, every one durable
//! before the next is written. When a zone is full, or may not be appended to, the state goes to the other zone, and when it
//! is durable there, the old zone is erased. What a loss of power tears is the last frame, which nobody was told of.
//!
//! ```text
//!  zone 0   | state | journal | journal | released | journal | torn        <- read up to here
//!  zone 1   | state | ...                                                  <- the log is where the first number is higher
//! ```
//!
//! **Opening** reads both zones, decides what of the device is kept ([`Start`]) and begins a new round in the zone that is not the
//! log: from then on the device is dirty. **Sequences** of segments are handed out below a ceiling that is durable, so none is
//! ever given twice, whatever a crash forgets.
//!
//! **Journal**: threads [`MetaLog::add`] invalidations, one thread writes them ([`MetaLog::tend`]) and raises
//! [`MetaLog::committed`]. A record is obsolete when the segment that has its tombstone is durable. If the records in
//! force do not fit into a zone, commits wait until segments are sealed ([`MetaLog::wants_seal`]).
//!
//! **If the device fails**: what cannot be appended in one zone goes to the other one. Where that fails too, a state that keeps
//! nothing is tried in either; if one is taken, commits go on, and only a restart finds an empty device. If neither zone
//! takes anything the log is [`MetaLog::is_broken`], commits stop, and the tier must make sure that no segment survives.

mod frame;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use frame::{JournalRecord, Superblock, ZoneBounds};

use crate::device::{Device, DeviceError, PAGE_BYTES, PageBuffer, ZoneId, ZoneState};
use crate::error::FlashError;
use crate::options::Recover;
use frame::{Body, Frame, State};
use scan::ZoneLog;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Zones of the meta log; segments have the zones from here on.
pub(crate) const META_ZONES: u32 = 2;
/// The segment of a journal record whose tombstone is in no segment yet. Higher than every sequence.
pub(crate) const UNPLACED: u64 = u64::MAX;
/// Fewest pages of a zone that the log can live in.
const ZONE_PAGES_MIN: u64 = 4;
/// Largest frame that is not the first of its zone, unless it is a state.
const FRAME_PAGES_MAX: usize = 64;
/// Sequences made safe to hand out by one write.
const RESERVE: u64 = 1 << 20;
/// CAS numbers covered by one write.
const CAS_RESERVE: u64 = 1 << 24;
/// Between the last number of a zone and the first of the next one: frames that were torn have numbers of their own.
const ROUND_GAP: u64 = 1 << 16;

/// How the log is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetaOptions {
    /// Seed of the key hash, if the device has none yet.
    pub seed: u64,
    /// What a crash leaves of the device, and whether there is a journal from now on.
    pub recover: Recover,
    /// Forget whatever is there, even if it is not ours.
    pub format: bool,
}

/// What the device is opened with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// It was blank, or is to be.
    Formatted,
    /// After a clean shutdown.
    Clean,
    /// After a crash; the journal records are to be put again.
    Crashed,
    /// Everything on it is dropped, because of this.
    Dropped(&'static str),
}

/// An open log, and what it says of the device.
pub(crate) struct Opened {
    pub log: Arc<MetaLog>,
    pub start: Start,
    /// As of now, written to the device.
    pub superblock: Superblock,
    /// Sequences below this one are of earlier sessions.
    pub next_sequence: u64,
    /// For every zone what is known of its segments.
    pub zones: Vec<ZoneBounds>,
    /// Invalidations to be put again, oldest first; in force until [`MetaLog::placed`] and [`MetaLog::obsolete`].
    pub journal: Vec<JournalRecord>,
}

/// What a round of writing came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Round {
    /// There was nothing to write.
    Idle,
    /// Something was written.
    Wrote,
    /// The records in force have no room: it goes on when segments are durable.
    Blocked,
    /// The device took nothing.
    Broken,
}

/// The log. Shared by all threads.
pub(crate) struct MetaLog {
    device: Arc<dyn Device>,
    /// Held while the device writes.
    writer: Mutex<Writer>,
    /// Never held while the device works.
    waiting: Mutex<Waiting>,
    woken: Condvar,
    committed: AtomicU64,
    next_sequence: AtomicU64,
    /// Sequences below this one may be handed out.
    ceiling: AtomicU64,
    live_bytes: AtomicU64,
    broken: AtomicBool,
    zone_pages: u64,
}

struct Writer {
    zone: ZoneId,
    /// Pages of it that are written.
    pages: u64,
    /// Number of the first frame of the zone, and of the last one.
    first: u64,
    last: u64,
    superblock: Superblock,
    zones: Vec<ZoneBounds>,
    /// Zones of which the device does not know everything yet.
    unwritten: BTreeSet<u32>,
}

#[derive(Default)]
struct Waiting {
    /// Records in force, encoded, by the segment of their tombstone. What is not written yet is here too.
    live: BTreeMap<u64, Vec<u8>>,
    /// Records that are not written yet, encoded.
    fresh: Vec<u8>,
    /// Number of the last record added.
    added: u64,
    /// The segment that took unplaced records. When it is durable a state is written, because on the device they are unplaced
    /// still, and would be put again after every crash.
    placed: Option<u64>,
    restate: bool,
    stop: bool,
}

impl Waiting {
    fn live_bytes(&self) -> usize {
        self.live.values().map(Vec::len).sum()
    }

    fn oldest_segment(&self) -> u64 {
        self.live.keys().next().copied().unwrap_or(UNPLACED)
    }
}

/// Lengths of the records in `bytes`, and their segments.
fn walk(bytes: &[u8]) -> impl Iterator<Item = (std::ops::Range<usize>, u64)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let length = frame::RECORD_BYTES + *bytes.get(at)? as usize;
        let segment = u64::from_le_bytes(bytes.get(at + 1..at + 9)?.try_into().ok()?);
        let range = at..at + length;
        at += length;
        Some((range, segment))
    })
}

/// Says of unplaced records where their tombstones are.
fn place(bytes: &mut [u8], segment: u64) {
    let unplaced: Vec<usize> =
        walk(bytes).filter(|(_, of)| *of == UNPLACED).map(|(range, _)| range.start).collect();
    for at in unplaced {
        bytes[at + 1..at + 9].copy_from_slice(&segment.to_le_bytes());
    }
}

impl MetaLog {
    /// Opens what is on the device, or formats a blank one. The device is dirty afterwards, and that is durable.
    ///
    /// # Errors
    /// The device holds something else, another version or another geometry, and `format` is not set; a meta zone is broken;
    /// or the device fails.
    pub(crate) fn open(device: Arc<dyn Device>, options: MetaOptions) -> Result<Opened, FlashError> {
        check_geometry(&*device)?;
        let name = device.describe();
        let failed = |error: DeviceError| FlashError(format!("{name}: the meta zones: {error}"));
        let found = if options.format { None } else { find(&*device)? };
        let (start, zone, last, state, journal) = match found {
            None => {
                // What an earlier format left must not be taken for the log after a crash from here.
                let mut last = 0;
                for zone in [ZoneId(0), ZoneId(1)] {
                    let newest = scan::newest_round(&*device, zone, None).map_err(failed)?;
                    last = last.max(newest.map_or(0, |first| round_end(&*device, first)));
                    erase(&*device, zone).map_err(failed)?;
                }
                let state = fresh_state(&*device, options.seed)?;
                (Start::Formatted, ZoneId(1), last, state, Vec::new())
            }
            Some((zone, log)) => {
                check_superblock(&*device, &log.state.superblock)?;
                let start = decide(&log, options.recover);
                let journal = if matches!(start, Start::Dropped(_)) { Vec::new() } else { log.journal };
                let mut state = log.state;
                if log.damaged {
                    // A state that reserved more sequences may be among what is lost.
                    state.superblock.next_sequence += 16 * RESERVE;
                }
                if matches!(start, Start::Dropped(_)) {
                    state.superblock.flush_floor = state.superblock.next_sequence;
                    state.zones.clear();
                }
                (start, zone, log.last, state, journal)
            }
        };
        let State { mut superblock, zones: known, .. } = state;
        let next_sequence = superblock.next_sequence;
        superblock.next_sequence = next_sequence.saturating_add(RESERVE);
        superblock.clean = false;
        superblock.journaled = options.recover == Recover::Journal;
        let mut zones = vec![ZoneBounds::default(); superblock.zones as usize];
        for (zone, bounds) in known {
            if let Some(zone) = zones.get_mut(zone as usize) {
                *zone = bounds;
            }
        }
        // Without a journal nobody writes down which zones are released: what was durable when it was closed is not to be
        // missed after a crash.
        let mut kept = zones.clone();
        if !superblock.journaled {
            kept.iter_mut().for_each(|bounds| bounds.top = 0);
        }
        let mut waiting = Waiting::default();
        for record in &journal {
            let live = waiting.live.entry(UNPLACED).or_default();
            frame::push_record(live, UNPLACED, record.hash, &record.key);
        }
        let zone_pages = device.geometry().zone_bytes / PAGE_BYTES as u64;
        let log = MetaLog {
            writer: Mutex::new(Writer {
                zone,
                pages: zone_pages,
                first: last,
                last,
                superblock: superblock.clone(),
                zones: kept,
                unwritten: BTreeSet::new(),
            }),
            live_bytes: AtomicU64::new(waiting.live_bytes() as u64),
            waiting: Mutex::new(waiting),
            woken: Condvar::new(),
            committed: AtomicU64::new(0),
            next_sequence: AtomicU64::new(next_sequence),
            ceiling: AtomicU64::new(superblock.next_sequence),
            broken: AtomicBool::new(false),
            zone_pages,
            device,
        };
        log.switch(&mut log.writer()).map_err(failed)?;
        Ok(Opened { log: Arc::new(log), start, superblock, next_sequence, zones, journal })
    }

    /// A sequence for a new segment: higher than all before, and never given again, also after a crash.
    ///
    /// `None` if no more are reserved, which takes a device that has not taken a superblock for a million segments.
    pub(crate) fn next_sequence(&self) -> Option<u64> {
        let sequence = self.next_sequence.fetch_add(1, Ordering::Relaxed);
        (sequence < self.ceiling.load(Ordering::Acquire)).then_some(sequence)
    }

    /// Notes that a key was invalidated by a tombstone in the segment `segment` ([`UNPLACED`] if it has none yet). Durable when
    /// [`MetaLog::committed`] reaches the number returned. Does not wait.
    ///
    /// To be called before that segment can be sealed (under the lock of its buffer): what is added to a segment after
    /// [`MetaLog::obsolete`] is in force until the log is closed.
    pub(crate) fn add(&self, segment: u64, hash: u64, key: &[u8]) -> u64 {
        let mut waiting = self.waiting();
        let live = waiting.live.entry(segment).or_default();
        let before = live.len();
        frame::push_record(live, segment, hash, key);
        let bytes = live.len() - before;
        frame::push_record(&mut waiting.fresh, segment, hash, key);
        waiting.added += 1;
        let number = waiting.added;
        drop(waiting);
        self.live_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.woken.notify_one();
        number
    }

    /// Records up to this number are durable, or obsolete.
    pub(crate) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// The tombstones that were in no segment are all in this one, or in older ones.
    pub(crate) fn placed(&self, segment: u64) {
        let mut waiting = self.waiting();
        if let Some(mut records) = waiting.live.remove(&UNPLACED) {
            place(&mut records, segment);
            waiting.live.entry(segment).or_default().append(&mut records);
            waiting.placed = waiting.placed.max(Some(segment));
            place(&mut waiting.fresh, segment);
        }
    }

    /// The segment is durable, or was dropped with everything older: its records are not needed any more.
    pub(crate) fn obsolete(&self, segment: u64) {
        let mut waiting = self.waiting();
        if waiting.placed == Some(segment) {
            (waiting.placed, waiting.restate) = (None, true);
        }
        if let Some(records) = waiting.live.remove(&segment) {
            self.live_bytes.fetch_sub(records.len() as u64, Ordering::Relaxed);
        }
        drop(waiting);
        // Commits that had no room may have it now.
        self.woken.notify_one();
    }

    /// Whether the records in force take so much room that segments with tombstones should be written early.
    pub(crate) fn wants_seal(&self) -> bool {
        self.live_bytes.load(Ordering::Relaxed) > self.zone_pages * PAGE_BYTES as u64 / 4
    }

    /// Whether neither meta zone takes anything any more: nothing is committed from then on, and the device must not be
    /// believed at the next start. The tier erases what it can, and serves nothing from it.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        let fresh = self.waiting().fresh.capacity() as u64;
        size_of::<MetaLog>() as u64 + fresh + self.live_bytes.load(Ordering::Relaxed)
    }

    /// Waits until there is something to write, `for_at_most` has passed, or [`MetaLog::stop`]; then writes it. For the thread that
    /// commits. Says `false` once it is to end.
    pub(crate) fn wait_and_tend(&self, for_at_most: Duration) -> bool {
        let waiting = self.waiting();
        if waiting.fresh.is_empty() && !waiting.stop {
            drop(self.woken.wait_timeout(waiting, for_at_most).expect("no panic under this lock"));
        } else {
            drop(waiting);
        }
        if self.tend() == Round::Blocked {
            let waiting = self.waiting();
            if !waiting.stop {
                // Until a segment is durable.
                drop(self.woken.wait_timeout(waiting, Duration::from_millis(2)).expect("no panic"));
            }
        }
        !self.waiting().stop
    }

    /// Ends [`MetaLog::wait_and_tend`].
    pub(crate) fn stop(&self) {
        self.waiting().stop = true;
        self.woken.notify_all();
    }

    /// Writes what waits, and reserves more sequences when they run short.
    pub(crate) fn tend(&self) -> Round {
        let mut writer = self.writer();
        if self.is_broken() {
            self.waiting().fresh.clear();
            return Round::Broken;
        }
        if writer.superblock.clean {
            return Round::Idle;
        }
        let left =
            self.ceiling.load(Ordering::Relaxed).saturating_sub(self.next_sequence.load(Ordering::Relaxed));
        let mut round = Round::Idle;
        let restate = std::mem::take(&mut self.waiting().restate);
        if left < RESERVE / 2 || restate {
            if left < RESERVE / 2 {
                let ceiling = writer.superblock.next_sequence.saturating_add(RESERVE);
                writer.superblock.next_sequence = ceiling;
            }
            round = match self.write_state(&mut writer) {
                Ok(()) => Round::Wrote,
                Err(DeviceError::Full(_)) => return Round::Blocked,
                Err(_) => return Round::Broken,
            };
        }
        match self.commit(&mut writer) {
            Round::Idle => round,
            other => other,
        }
    }

    /// From now on segments below `floor` do not exist; durable when this returns. Their journal records are gone too.
    ///
    /// # Errors
    /// The log is broken.
    pub(crate) fn flush(&self, floor: u64) -> Result<(), DeviceError> {
        let mut writer = self.writer();
        writer.superblock.flush_floor = writer.superblock.flush_floor.max(floor);
        let mut waiting = self.waiting();
        let kept = waiting.live.split_off(&floor);
        waiting.live = kept;
        self.live_bytes.store(waiting.live_bytes() as u64, Ordering::Relaxed);
        drop(waiting);
        self.write_state(&mut writer)
    }

    /// Segments of these zones below the sequences do not exist any more. With a journal that is durable when this returns, and so
    /// is every erasure before it: from then on a tombstone is not needed that hid something in them. All of them or none
    /// after a crash.
    ///
    /// # Errors
    /// The log is broken; or it has no room because of journal records ([`DeviceError::Full`]), and the zones count as they
    /// did before if there is a crash now.
    pub(crate) fn release(&self, zones: &[(ZoneId, u64)]) -> Result<(), DeviceError> {
        let mut writer = self.writer();
        for (zone, floor) in zones {
            if let Some(known) = writer.zones.get_mut(zone.0 as usize) {
                let top = if known.top < *floor { 0 } else { known.top };
                *known = ZoneBounds { floor: known.floor.max(*floor), top };
                writer.unwritten.insert(zone.0);
            }
        }
        if !writer.superblock.journaled {
            return Ok(());
        }
        let news = writer.unwritten.iter().map(|zone| (*zone, writer.zones[*zone as usize])).collect();
        self.append(&mut writer, Body::Zones(news))?;
        writer.unwritten.clear();
        Ok(())
    }

    /// The segment is durable, and so is every one before it in the zone. The device learns that with the next frame of zones or
    /// state: until then, damage to the segment is taken for its never having been written to its end.
    pub(crate) fn written(&self, zone: ZoneId, sequence: u64) {
        let mut writer = self.writer();
        if let Some(known) = writer.zones.get_mut(zone.0 as usize) {
            known.top = sequence;
            writer.unwritten.insert(zone.0);
        }
    }

    /// Makes sure that after a crash from now on the CAS floor is above `cas`. To be called with the highest number of a segment
    /// before that is written; hardly ever writes anything.
    ///
    /// # Errors
    /// The log is broken, or has no room ([`DeviceError::Full`]).
    pub(crate) fn cover_cas(&self, cas: u64) -> Result<(), DeviceError> {
        let mut writer = self.writer();
        if cas < writer.superblock.cas_floor {
            return Ok(());
        }
        writer.superblock.cas_floor = cas.saturating_add(CAS_RESERVE);
        self.write_state(&mut writer)
    }

    /// Marks the device as cleanly closed: everything below [`MetaLog::next_sequence`] is durable or gone, and so is every item
    /// whose CAS number is not below `cas_floor`. Nothing may be written to it afterwards.
    ///
    /// # Errors
    /// Of the device; it is not cleanly closed then.
    pub(crate) fn close(&self, cas_floor: u64) -> Result<(), DeviceError> {
        let mut writer = self.writer();
        if self.is_broken() {
            return Err(DeviceError::Gone);
        }
        let ceiling = writer.superblock.next_sequence;
        writer.superblock.clean = true;
        writer.superblock.cas_floor = cas_floor;
        writer.superblock.next_sequence = self.next_sequence.load(Ordering::Relaxed).min(ceiling);
        self.ceiling.store(0, Ordering::Release);
        self.write_state(&mut writer)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().expect("no panic under this lock")
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no panic under this lock")
    }

    /// Writes the records that wait, one frame after the other.
    fn commit(&self, writer: &mut Writer) -> Round {
        let mut round = Round::Idle;
        loop {
            if self.is_broken() {
                return Round::Broken;
            }
            let mut waiting = self.waiting();
            let (mut payload, mut taken, mut records) = (Vec::new(), 0, 0);
            for (range, segment) in walk(&waiting.fresh) {
                if frame::pages_for(payload.len() + range.len()) > FRAME_PAGES_MAX {
                    break;
                }
                (taken, records) = (range.end, records + 1);
                if waiting.live.contains_key(&segment) {
                    payload.extend_from_slice(&waiting.fresh[range]);
                }
            }
            if records == 0 {
                return round;
            }
            let pages = frame::pages_for(payload.len()) as u64;
            if !payload.is_empty() && !self.has_room(&waiting, writer, pages) {
                return Round::Blocked;
            }
            waiting.fresh.drain(..taken);
            let upto = waiting.added - walk(&waiting.fresh).count() as u64;
            drop(waiting);
            if !payload.is_empty() && self.append(writer, Body::Journal(payload)).is_err() {
                return Round::Broken;
            }
            self.committed.fetch_max(upto, Ordering::AcqRel);
            round = Round::Wrote;
        }
    }

    /// Whether a frame of so many pages can be written here, or as part of a state in the other zone.
    fn has_room(&self, waiting: &Waiting, writer: &Writer, pages: u64) -> bool {
        let zones = writer.zones.iter().filter(|bounds| **bounds != ZoneBounds::default()).count();
        let state = frame::pages_for(frame::state_bytes(zones, waiting.live_bytes())) as u64;
        writer.pages + pages <= self.zone_pages || state <= self.zone_pages
    }

    /// Records up to this number are durable as part of a state.
    fn settle(&self, upto: u64) {
        let mut waiting = self.waiting();
        let newer = waiting.added - upto;
        let written = (walk(&waiting.fresh).count() as u64).saturating_sub(newer);
        let end = walk(&waiting.fresh).nth(written as usize).map(|(range, _)| range.start);
        let end = end.unwrap_or(waiting.fresh.len());
        waiting.fresh.drain(..end);
        drop(waiting);
        self.committed.fetch_max(upto, Ordering::AcqRel);
    }

    /// How everything stands, and the number of the last record that is in it.
    fn state(&self, writer: &Writer) -> (State, u64, u64) {
        let waiting = self.waiting();
        let flush_floor = writer.superblock.flush_floor;
        let zones = writer.zones.iter().enumerate();
        // Otherwise everything in the zone is below the floor of all.
        let zones = zones.filter(|(_, bounds)| bounds.floor > flush_floor || bounds.top >= flush_floor);
        let state = State {
            superblock: writer.superblock.clone(),
            zones: zones.map(|(zone, bounds)| (zone as u32, *bounds)).collect(),
            journal: waiting.live.values().flatten().copied().collect(),
        };
        (state, waiting.oldest_segment(), waiting.added)
    }

    fn write_state(&self, writer: &mut Writer) -> Result<(), DeviceError> {
        let (state, _, upto) = self.state(writer);
        self.append(writer, Body::State(state))?;
        self.settle(upto);
        if !writer.superblock.clean {
            self.ceiling.fetch_max(writer.superblock.next_sequence, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Appends a frame and makes it durable: here, or as part of a state in the other zone.
    fn append(&self, writer: &mut Writer, body: Body) -> Result<(), DeviceError> {
        if self.is_broken() {
            return Err(DeviceError::Gone);
        }
        let oldest_segment = self.waiting().oldest_segment();
        let sequence = writer.last + 1;
        let uuid = writer.superblock.uuid;
        let frame = Frame { sequence, uuid, first: writer.first, oldest_segment, body }.encode();
        let pages = (frame.len() / PAGE_BYTES) as u64;
        if !self.has_room(&self.waiting(), writer, pages) {
            return Err(DeviceError::Full(writer.zone));
        }
        if writer.pages + pages <= self.zone_pages {
            match write_pages(&*self.device, writer.zone, writer.pages, &frame) {
                Ok(()) => {
                    writer.last = sequence;
                    writer.pages += pages;
                    return Ok(());
                }
                Err(error) => tracing::warn!("flash: meta zone {}: {error}", writer.zone.0),
            }
        }
        match self.switch(writer) {
            Ok(()) => Ok(()),
            Err(error) => self.keep_nothing(writer, error),
        }
    }

    /// Begins a new round in the other zone, and erases this one.
    fn switch(&self, writer: &mut Writer) -> Result<(), DeviceError> {
        let (state, oldest_segment, upto) = self.state(writer);
        let old = writer.zone;
        self.begin_round(writer, ZoneId(1 - old.0), state, oldest_segment)?;
        self.settle(upto);
        if let Err(error) = erase(&*self.device, old) {
            tracing::warn!("flash: meta zone {}: {error}", old.0);
        }
        Ok(())
    }

    fn begin_round(
        &self,
        writer: &mut Writer,
        zone: ZoneId,
        state: State,
        oldest_segment: u64,
    ) -> Result<(), DeviceError> {
        let first = writer.last + ROUND_GAP;
        let uuid = state.superblock.uuid;
        let frame = Frame { sequence: first, uuid, first, oldest_segment, body: Body::State(state) }.encode();
        // Numbers are not used twice, whatever comes of this.
        writer.last = first;
        erase(&*self.device, zone)?;
        write_pages(&*self.device, zone, 0, &frame)?;
        (writer.zone, writer.first, writer.pages) = (zone, first, (frame.len() / PAGE_BYTES) as u64);
        Ok(())
    }

    /// The last resort when something that must be remembered cannot be: to remember nothing. What is in memory stays right, a
    /// restart finds an empty device.
    fn keep_nothing(&self, writer: &mut Writer, error: DeviceError) -> Result<(), DeviceError> {
        tracing::error!("flash: the meta zones fail: {error}; nothing on the device is to survive a restart");
        let upto = self.waiting().added;
        let floor = writer.superblock.next_sequence;
        writer.superblock.flush_floor = floor;
        writer.superblock.next_sequence = floor.saturating_add(RESERVE);
        for zone in [ZoneId(1 - writer.zone.0), writer.zone] {
            let superblock = writer.superblock.clone();
            let state = State { superblock, zones: Vec::new(), journal: Vec::new() };
            if self.begin_round(writer, zone, state, UNPLACED).is_ok() {
                self.next_sequence.fetch_max(floor, Ordering::AcqRel);
                self.ceiling.fetch_max(writer.superblock.next_sequence, Ordering::AcqRel);
                self.settle(upto);
                return Ok(());
            }
        }
        tracing::error!("flash: not even that could be written: format the device before it is used again");
        self.broken.store(true, Ordering::Release);
        Err(error)
    }
}

/// Appends pages behind the first `at` pages of a zone, and makes them durable.
fn write_pages(device: &dyn Device, zone: ZoneId, at: u64, pages: &[u8]) -> Result<(), DeviceError> {
    // Devices that bypass the page cache want whole aligned pages.
    let mut buffer = PageBuffer::new(pages.len() / PAGE_BYTES);
    buffer.copy_from_slice(pages);
    if device.append(zone, &buffer)? != at * PAGE_BYTES as u64 {
        return Err(DeviceError::State { zone, what: "what was appended lies elsewhere" });
    }
    device.sync()
}

/// Above the number of every frame of the round that began with `first`.
fn round_end(device: &dyn Device, first: u64) -> u64 {
    first.saturating_add(device.geometry().zone_bytes / PAGE_BYTES as u64)
}

fn erase(device: &dyn Device, zone: ZoneId) -> Result<(), DeviceError> {
    match device.report(zone)?.state {
        ZoneState::Empty => Ok(()),
        _ => device.reset(zone),
    }
}

fn check_geometry(device: &dyn Device) -> Result<(), FlashError> {
    let (name, geometry) = (device.describe(), device.geometry());
    if geometry.zones <= META_ZONES {
        return Err(FlashError(format!(
            "{name}: {} zones are too few: two hold the log of the device, and at least one must hold items",
            geometry.zones
        )));
    }
    if geometry.zone_bytes < ZONE_PAGES_MIN * PAGE_BYTES as u64 {
        return Err(FlashError(format!("{name}: zones of {} bytes are too small", geometry.zone_bytes)));
    }
    for zone in [ZoneId(0), ZoneId(1)] {
        let report = device.report(zone).map_err(|error| FlashError(format!("{name}: {error}")))?;
        if report.state == ZoneState::Offline {
            return Err(FlashError(format!(
                "{name}: zone {} is broken, and the log has no other place",
                zone.0
            )));
        }
    }
    Ok(())
}

fn check_superblock(device: &dyn Device, superblock: &Superblock) -> Result<(), FlashError> {
    let geometry = device.geometry();
    if (superblock.zones, superblock.zone_bytes) == (geometry.zones, geometry.zone_bytes) {
        return Ok(());
    }
    Err(FlashError(format!(
        "{}: it was formatted as {} zones of {} bytes, and has {} zones of {} bytes now: give it its old size, or format it",
        device.describe(),
        superblock.zones,
        superblock.zone_bytes,
        geometry.zones,
        geometry.zone_bytes
    )))
}

/// A state for a device that holds nothing.
fn fresh_state(device: &dyn Device, seed: u64) -> Result<State, FlashError> {
    let mut random = [0; 24];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| FlashError(format!("no random numbers: {error}")))?;
    let (uuid, start) = random.split_at(16);
    let start = u64::from_le_bytes(start.try_into().expect("eight bytes"));
    // Somewhere else than an earlier format began, so that its pages do not pass for this one's.
    let start = (start % (1 << 20) + 1) * RESERVE;
    let geometry = device.geometry();
    let superblock = Superblock {
        uuid: uuid.try_into().expect("sixteen bytes"),
        zones: geometry.zones,
        zone_bytes: geometry.zone_bytes,
        seed,
        clean: false,
        journaled: false,
        flush_floor: start,
        next_sequence: start,
        cas_floor: 0,
    };
    Ok(State { superblock, zones: Vec::new(), journal: Vec::new() })
}

/// What of the device is kept.
fn decide(log: &scan::Log, recover: Recover) -> Start {
    let superblock = &log.state.superblock;
    match recover {
        _ if log.damaged && recover != Recover::BestEffort => Start::Dropped("its log is damaged"),
        _ if superblock.clean && !log.damaged => Start::Clean,
        Recover::Clean => Start::Dropped("it was not closed cleanly"),
        Recover::Journal if !superblock.journaled => {
            Start::Dropped("it was not closed cleanly, and had no journal")
        }
        Recover::Journal | Recover::BestEffort => Start::Crashed,
    }
}

/// The log of the device, and its zone; `None` if the device is blank, or was torn while it was formatted.
fn find(device: &dyn Device) -> Result<Option<(ZoneId, scan::Log)>, FlashError> {
    let name = device.describe();
    let failed = |error: DeviceError| FlashError(format!("{name}: the meta zones cannot be read: {error}"));
    let read = |zone| scan::read(device, ZoneId(zone)).map_err(failed);
    let mut best: Option<(ZoneId, scan::Log)> = None;
    let (mut torn, mut foreign, mut other_version) = (false, false, None);
    for zone in 0..META_ZONES {
        match read(zone)? {
            ZoneLog::Log(log) => {
                if best.as_ref().is_none_or(|(_, best)| best.first < log.first) {
                    best = Some((ZoneId(zone), log));
                }
            }
            ZoneLog::Blank => {}
            ZoneLog::Torn => torn = true,
            ZoneLog::Version(version) => other_version = Some(version),
            ZoneLog::Foreign => foreign = true,
        }
    }
    if let Some((zone, mut log)) = best {
        // The other zone may be the log, and have lost its beginning.
        let uuid = log.state.superblock.uuid;
        let newest = scan::newest_round(device, ZoneId(1 - zone.0), Some(uuid)).map_err(failed)?;
        if let Some(first) = newest.filter(|first| *first > log.first) {
            log.damaged = true;
            log.last = log.last.max(round_end(device, first));
        }
        return Ok(Some((zone, log)));
    }
    if let Some(version) = other_version {
        return Err(FlashError(format!(
            "{name}: written in version {version} of the format, and this program knows version {}: format it, or \
             use the program that wrote it",
            frame::VERSION
        )));
    }
    if torn {
        tracing::warn!("flash: {name}: no log can be read, so it is formatted again");
        return Ok(None);
    }
    if foreign || !is_blank(device).map_err(failed)? {
        return Err(FlashError(format!(
            "{name}: it is not blank, and holds nothing of this cache (or with other zones): format it if it may be erased"
        )));
    }
    Ok(None)
}

/// Whether nothing was ever written to the device: the places where file systems, partition tables and volume managers
/// begin, and the first page of every zone.
fn is_blank(device: &dyn Device) -> Result<bool, DeviceError> {
    let geometry = device.geometry();
    for zone in 0..geometry.zones {
        let pages = if zone < META_ZONES { 64 } else { 1 };
        if !scan::is_blank(device, ZoneId(zone), pages)? {
            return Ok(false);
        }
    }
    Ok(true)
}
