//! The meta log: the part of the device that says what the rest of it holds, and what must not be forgotten.
//!
//! Zones 0 and 1 hold one append-only log. It is written in frames. The first frame of a zone is a **state**: the
//! superblock, what is known of every zone, the journal records in force, and the deleted prefixes. Journal records,
//! released zones and further states follow, one frame each. Every frame is durable before the next one is written.
//! When the zone is full, or cannot be appended to, a state is written to the other zone; when that state is durable,
//! the old zone is erased. A loss of power can only tear the last frame, and nothing was acknowledged that is only in
//! that frame.
//!
//! ```text
//!  zone 0   | state | journal | journal | released | journal | torn     <- read up to here
//!  zone 1   | state | ...                                               <- the higher first number is the log
//! ```
//!
//! **Opening** reads both zones, decides what of the device is kept ([`Start`]), and begins a new round in the zone
//! that does not hold the log. From then on the device counts as not cleanly closed. **Sequences** of segments are
//! handed out below a ceiling that is durable, so no sequence is ever handed out twice, whatever a crash loses.
//!
//! **Journal**: many threads add invalidations ([`MetaLog::add`]); one thread writes them ([`MetaLog::tend`]) when
//! somebody waits ([`MetaLog::want_commit`]), they fill a frame, or some time has passed, and raises
//! [`MetaLog::committed`]. A record is in force until the segment that has its tombstone is durable; then it
//! is obsolete. If the records in force do not fit into a zone, commits wait until segments are sealed
//! ([`MetaLog::wants_seal`]).
//!
//! **If the device fails**: a frame that cannot be appended to one zone goes to the other zone, as part of a state.
//! If that fails too, the first zone is erased and takes the state: a loss of power in between loses the log, or
//! leaves an old one if the other zone is on a device that is back at the next start. If that fails as well, a state
//! that keeps nothing is tried in both zones. If one zone takes it, commits go on, and only a restart finds an empty
//! device. If neither zone takes it, the log is broken ([`MetaLog::is_broken`]): nothing is committed any more, and the
//! tier must make sure that no segment survives.
//!
//! * `frame.rs` is the format. `scan.rs` reads a zone. `open.rs` decides what is kept. `zone.rs` writes and erases.
//! * `journal.rs` has the journal records, and its own lock. `ranges.rs` has the floors of ranges of hashes.

mod frame;
mod journal;
mod open;
mod ranges;
mod scan;
#[cfg(all(test, not(loom)))]
mod tests;
mod zone;

pub(crate) use frame::{JournalRecord, META_ZONES, Superblock, UNPLACED, ZoneBounds};
pub(crate) use open::{MetaOptions, Start};
pub(crate) use ranges::RangeFloors;

use crate::device::{Device, DeviceError, PAGE_BYTES, ZoneId};
use crate::error::FlashError;
use crate::options::Recover;
use arc_swap::ArcSwap;
use frame::{Body, Frame, LogState, NOTE_BYTES};
use journal::{Batch, Journal, Snapshot};
use larder_item::{PREFIX_TABLE_BYTES_MAX, PrefixFloors, PrefixesFull};
use open::{Found, RESERVE};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use zone::{erase, write_pages};

/// CAS numbers that one write covers.
const CAS_RESERVE: u64 = 1 << 24;
/// Distance between the last number of a round and the first number of the next one: frames that were torn have used
/// numbers that are not known.
const ROUND_GAP: u64 = 1 << 16;
/// More segments than are written between two starts.
const SESSION_SEQUENCES: u64 = 1 << 40;
/// Deleted prefixes take a sixteenth of a meta zone at most.
const PREFIXES_SHARE: u64 = 16;
/// A note takes an eighth of a meta zone at most.
const NOTE_SHARE: u64 = 8;
/// Journal records in force take a quarter of a meta zone before segments are sealed early.
const JOURNAL_SHARE: u64 = 4;
/// How long [`MetaLog::wait_and_tend`] waits for a segment to become durable when the records in force do not fit.
const BLOCKED_WAIT: Duration = Duration::from_millis(2);

/// An open log, and what it says of the device.
pub(crate) struct Opened {
    /// The log.
    pub log: Arc<MetaLog>,
    /// What of the device is kept.
    pub start: Start,
    /// The superblock, as it is on the device now.
    pub superblock: Superblock,
    /// Sequences below this one are of earlier sessions.
    pub next_sequence: u64,
    /// For every zone, what is known of its segments.
    pub zones: Vec<ZoneBounds>,
    /// Invalidations to be put again, oldest first. They are in force until [`MetaLog::placed`] and
    /// [`MetaLog::obsolete`].
    pub journal: Vec<JournalRecord>,
}

/// The outcome of [`MetaLog::tend`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Round {
    /// There was nothing to write.
    Idle,
    /// Something was written.
    Wrote,
    /// The records in force do not fit. Writing goes on when segments are durable.
    Blocked,
    /// The device takes nothing.
    Broken,
}

/// The log. All threads share it.
pub(crate) struct MetaLog {
    device: Arc<dyn Device>,
    /// Locked while the device writes.
    writer: Mutex<Writer>,
    journal: Journal,
    ranges: Arc<RangeFloors>,
    /// The floors of deleted prefixes.
    prefixes: ArcSwap<PrefixFloors>,
    note: Mutex<Vec<u8>>,
    next_sequence: AtomicU64,
    /// Sequences below this one may be handed out.
    ceiling: AtomicU64,
    broken: AtomicBool,
    zone_pages: u64,
    /// Whether a restart after a crash keeps anything, so that the bounds of zones have to be written down at once. In
    /// mode `clean` they are written when the log is closed.
    outlasts_crashes: bool,
}

/// The end of the log, and what the next state will say.
struct Writer {
    zone: ZoneId,
    /// Pages of the zone that are written.
    pages: u64,
    /// Number of the first frame of the zone.
    first: u64,
    /// Number of the last frame.
    last: u64,
    superblock: Superblock,
    zones: Vec<ZoneBounds>,
    /// Zones whose bounds on the device are not those in `zones`.
    unwritten: BTreeSet<u32>,
}

/// What a state covers.
struct Covered {
    /// The oldest segment with a journal record in force.
    oldest_segment: u64,
    /// Number of the last journal record.
    upto: u64,
    /// The highest floor of a range of hashes.
    highest_floor: u64,
}

impl MetaLog {
    /// Opens the log of a device, or formats a blank device. Afterwards the device counts as not cleanly closed, and
    /// that is durable.
    ///
    /// # Errors
    /// The device holds something else, another version of the format or another geometry, and `format` is not set;
    /// or a meta zone is broken; or the device fails.
    pub(crate) fn open(device: Arc<dyn Device>, options: MetaOptions) -> Result<Opened, FlashError> {
        let Found { start, zone, last, state, journal } = open::find_or_format(&*device, options)?;
        let LogState { mut superblock, zones: known, prefixes, note, .. } = state;
        let next_sequence = superblock.next_sequence.max(superblock.flush_floor);
        superblock.next_sequence = next_sequence.saturating_add(RESERVE);
        superblock.clean = false;
        superblock.journaled = options.recover == Recover::Journal;
        let mut zones = vec![ZoneBounds::default(); superblock.zones as usize];
        let ranges = RangeFloors::new(device.geometry().zone_bytes);
        for (zone, bounds) in known {
            if !ranges.restore(zone, bounds)
                && let Some(zone) = zones.get_mut(zone as usize)
            {
                *zone = bounds;
                if zone.void < superblock.flush_floor {
                    zone.void = 0;
                }
            }
        }
        // Without a journal nothing is durable before the end. After a crash a segment that was durable when the
        // device was closed may be missing for a good reason.
        let mut kept = zones.clone();
        if !superblock.journaled {
            let is_missing = |bounds: &ZoneBounds| bounds.void != 0 && bounds.top >= bounds.void;
            kept.iter_mut().filter(|bounds| !is_missing(bounds)).for_each(|bounds| bounds.top = 0);
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
            journal: Journal::restored(&journal),
            ranges: Arc::new(ranges),
            prefixes: ArcSwap::from_pointee(prefixes),
            note: Mutex::new(note),
            next_sequence: AtomicU64::new(next_sequence),
            ceiling: AtomicU64::new(superblock.next_sequence),
            broken: AtomicBool::new(false),
            zone_pages,
            outlasts_crashes: options.recover != Recover::Clean,
            device,
        };
        let begun = log.begin_in_other_zone(&mut log.writer());
        begun.map_err(|error| FlashError(format!("{}: the meta zones: {error}", log.device.describe())))?;
        Ok(Opened { log: Arc::new(log), start, superblock, next_sequence, zones, journal })
    }

    /// The sequence of a new segment: higher than all sequences before, and never handed out again, not even after a
    /// crash.
    ///
    /// `None` if no more sequences are reserved. That happens only if no superblock was written for a million segments.
    pub(crate) fn next_sequence(&self) -> Option<u64> {
        let sequence = self.next_sequence.fetch_add(1, Ordering::Relaxed);
        (sequence < self.ceiling.load(Ordering::Acquire)).then_some(sequence)
    }

    /// Adds a journal record: the key was invalidated by a tombstone in `segment` ([`UNPLACED`] if no segment has the
    /// tombstone yet). The record is durable when [`MetaLog::committed`] reaches the number that is returned. Does
    /// not wait.
    ///
    /// Call it before that segment can be sealed, that is, under the lock of its buffer. A record that is added after
    /// [`MetaLog::obsolete`] of its segment stays in force until the log is closed.
    pub(crate) fn add(&self, segment: u64, hash: u64, key: &[u8]) -> u64 {
        let number = self.journal.add(segment, hash, key);
        if self.wants_seal() {
            self.journal.want();
        }
        number
    }

    /// Records up to this number are durable, or obsolete.
    pub(crate) fn committed(&self) -> u64 {
        self.journal.committed()
    }

    /// The number of the last journal record.
    pub(crate) fn added(&self) -> u64 {
        self.journal.added()
    }

    /// Reports that the unplaced tombstones are all in this segment now, or in older ones.
    pub(crate) fn placed(&self, segment: u64) {
        self.journal.placed(segment);
    }

    /// Reports that the segment is durable, or was dropped together with everything older. Its records are not needed
    /// any more.
    pub(crate) fn obsolete(&self, segment: u64) {
        self.journal.obsolete(segment);
    }

    /// Whether the records in force take so much space that segments with tombstones should be sealed early.
    pub(crate) fn wants_seal(&self) -> bool {
        self.journal.bytes_in_force() > self.zone_pages * PAGE_BYTES as u64 / JOURNAL_SHARE
    }

    /// Whether neither meta zone can be written any more. From then on nothing is committed, and the contents of the
    /// device must not be used at the next start. The tier erases what it can, and serves nothing from the device.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// The floors of ranges of hashes. A floor that is raised is durable soon with a journal, and without one when the
    /// log is closed.
    pub(crate) fn ranges(&self) -> &Arc<RangeFloors> {
        &self.ranges
    }

    /// The floors of deleted prefixes: records of keys with this prefix, in segments below the floor, do not exist any
    /// more.
    #[inline]
    pub(crate) fn prefixes(&self) -> arc_swap::Guard<Arc<PrefixFloors>> {
        self.prefixes.load()
    }

    /// Raises the floor of a prefix. It is durable after the next [`MetaLog::write_state_now`]. One thread at a time
    /// changes the floors.
    ///
    /// # Errors
    /// There is no room for the prefix: its state has to fit into a meta zone together with the journal.
    pub(crate) fn raise_prefix(&self, prefix: &[u8], floor: u64) -> Result<(), PrefixesFull> {
        self.prefixes.store(Arc::new(self.prefixes_with(prefix, floor)?));
        Ok(())
    }

    /// The floors as they are after a raise.
    ///
    /// # Errors
    /// There is no room for the prefix.
    pub(crate) fn prefixes_with(&self, prefix: &[u8], floor: u64) -> Result<PrefixFloors, PrefixesFull> {
        let mut prefixes = PrefixFloors::clone(&self.prefixes());
        prefixes.raise(prefix, floor)?;
        let bytes_max = prefixes_bytes_max(self.zone_pages * PAGE_BYTES as u64);
        if frame::prefixes_bytes(&prefixes) <= bytes_max { Ok(prefixes) } else { Err(PrefixesFull) }
    }

    /// Forgets the prefixes whose floors are at `floor` or below, for no segment is older. The next state says so.
    pub(crate) fn forget_prefixes(&self, floor: u64) {
        let mut prefixes = PrefixFloors::clone(&self.prefixes());
        if prefixes.forget(floor) {
            self.prefixes.store(Arc::new(prefixes));
        }
    }

    /// What the owner of the items has noted beside them.
    pub(crate) fn note(&self) -> Vec<u8> {
        self.note.lock().expect("no panic under this lock").clone()
    }

    /// Notes what the owner of the items wants to find beside them, up to [`MetaLog::note_bytes_max`] bytes. It is
    /// durable after the next [`MetaLog::write_state_now`].
    pub(crate) fn set_note(&self, note: &[u8]) {
        debug_assert!(note.len() <= self.note_bytes_max());
        *self.note.lock().expect("no panic under this lock") = note.to_vec();
    }

    /// The longest note, in bytes: an eighth of a meta zone, or as much as leaves room for what else there may be.
    pub(crate) fn note_bytes_max(&self) -> usize {
        let (zones, zone_bytes) = (self.writer().zones.len() as u64, self.zone_pages * PAGE_BYTES as u64);
        let halves = std::iter::successors(Some((zone_bytes / NOTE_SHARE) as usize), |bytes| Some(bytes / 2));
        let mut sizes = halves.take_while(|bytes| *bytes > NOTE_BYTES);
        sizes.find(|bytes| holds_bounds(zones, zone_bytes, *bytes)).unwrap_or(NOTE_BYTES)
    }

    /// Makes the floors of deleted prefixes and the note durable.
    ///
    /// # Errors
    /// The log is broken; or the journal records leave no space for the frame ([`DeviceError::Full`]).
    pub(crate) fn write_state_now(&self) -> Result<(), DeviceError> {
        self.write_state_if_room(&mut self.writer())
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        size_of::<MetaLog>() as u64 + self.journal.heap_bytes()
    }

    /// Somebody waits until the last record is committed.
    pub(crate) fn want_commit(&self) {
        self.journal.want();
    }

    /// Waits for [`MetaLog::want_commit`], `for_at_most`, or [`MetaLog::stop`]; then writes. The thread that commits
    /// calls it in a loop. Returns false when that thread is to end.
    pub(crate) fn wait_and_tend(&self, for_at_most: Duration) -> bool {
        self.journal.wait_for_records(for_at_most);
        if self.tend() == Round::Blocked {
            self.journal.wait_for_space(BLOCKED_WAIT);
        }
        !self.journal.is_stopped()
    }

    /// Ends [`MetaLog::wait_and_tend`].
    pub(crate) fn stop(&self) {
        self.journal.stop();
    }

    /// Writes the records that wait, and reserves more sequences when fewer than half of a reservation are left.
    pub(crate) fn tend(&self) -> Round {
        let mut writer = self.writer();
        if self.is_broken() {
            self.journal.give_up();
            return Round::Broken;
        }
        if writer.superblock.clean {
            return Round::Idle;
        }
        let left =
            self.ceiling.load(Ordering::Relaxed).saturating_sub(self.next_sequence.load(Ordering::Relaxed));
        let mut round = Round::Idle;
        let ranges_are_due = writer.superblock.journaled && !self.ranges.are_durable();
        let state_is_due = self.journal.take_state_is_due() || ranges_are_due;
        if left < RESERVE / 2 || state_is_due {
            if left < RESERVE / 2 {
                let ceiling = writer.superblock.next_sequence.saturating_add(RESERVE);
                writer.superblock.next_sequence = ceiling;
            }
            round = match self.write_state_if_room(&mut writer) {
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

    /// Drops all segments below `floor`, and their journal records. Durable when this returns.
    ///
    /// # Errors
    /// The log is broken.
    pub(crate) fn flush(&self, floor: u64) -> Result<(), DeviceError> {
        let mut writer = self.writer();
        writer.superblock.flush_floor = writer.superblock.flush_floor.max(floor);
        self.journal.drop_below(floor);
        self.write_state(&mut writer)
    }

    /// Releases zones: for each, the segments below a sequence, which are all that it has, do not exist any more, nor
    /// do those that [`MetaLog::narrow`] was told of. After a crash either all of them are released or none.
    ///
    /// Unless the mode is `clean`, the release is durable when this returns, and so is every erasure before it. From
    /// then on a tombstone that hid something in these zones is not needed any more. And nothing of the zones is found
    /// after they were written again, if the device does not erase and loses a part of what is written.
    ///
    /// # Errors
    /// The log is broken; or the journal records leave no space for the frame ([`DeviceError::Full`]). After a crash
    /// now the zones would count as not released.
    pub(crate) fn release(&self, zones: &[(ZoneId, u64)]) -> Result<(), DeviceError> {
        let mut writer = self.writer();
        for (zone, floor) in zones {
            if let Some(known) = writer.zones.get_mut(zone.0 as usize) {
                let floor = if known.void == 0 { *floor } else { known.void.saturating_add(1).max(*floor) };
                raise_floor(known, floor);
                known.void = 0;
                writer.unwritten.insert(zone.0);
            }
        }
        self.append_zones(&mut writer)
    }

    /// Narrows the bounds of zones: for each, segments below the first sequence do not exist any more, nor do those
    /// from the second one on, if it is not 0. Nothing is written to these zones before they are released. A floor
    /// above all sequences so far is a release.
    ///
    /// # Errors
    /// As [`MetaLog::release`]. The next release, or the next state, tells the device all the same.
    pub(crate) fn narrow(&self, zones: &[(ZoneId, u64, u64)]) -> Result<(), DeviceError> {
        let mut writer = self.writer();
        for (zone, floor, void) in zones {
            if let Some(known) = writer.zones.get_mut(zone.0 as usize) {
                raise_floor(known, *floor);
                if known.void < *floor {
                    known.void = 0;
                }
                if *void != 0 && (known.void == 0 || *void < known.void) {
                    known.void = *void;
                }
                writer.unwritten.insert(zone.0);
            }
        }
        self.append_zones(&mut writer)
    }

    /// Appends the bounds that the device does not know.
    fn append_zones(&self, writer: &mut Writer) -> Result<(), DeviceError> {
        if !self.outlasts_crashes {
            return Ok(());
        }
        let news = writer.unwritten.iter().map(|zone| (*zone, writer.zones[*zone as usize])).collect();
        self.append(writer, Body::Zones(news))?;
        writer.unwritten.clear();
        Ok(())
    }

    /// Reports that this segment is durable, and so is every segment before it in the zone. The next frame of zones,
    /// or the next state, tells the device. Until then a restart takes a damaged segment for one that was never
    /// written to its end.
    pub(crate) fn written(&self, zone: ZoneId, sequence: u64) {
        let mut writer = self.writer();
        if let Some(known) = writer.zones.get_mut(zone.0 as usize) {
            known.top = sequence;
            writer.unwritten.insert(zone.0);
        }
    }

    /// Makes sure that the CAS floor after a crash is above `cas`. Call it with the highest CAS number of a segment
    /// before the segment is written. One write covers 16 million numbers, so nearly all calls write nothing.
    ///
    /// # Errors
    /// The log is broken, or has no space ([`DeviceError::Full`]).
    pub(crate) fn cover_cas(&self, cas: u64) -> Result<(), DeviceError> {
        let mut writer = self.writer();
        if cas < writer.superblock.cas_floor {
            return Ok(());
        }
        writer.superblock.cas_floor = cas.saturating_add(CAS_RESERVE);
        self.write_state(&mut writer)
    }

    /// Marks the device as cleanly closed. All segments are durable or dropped by now, and all items have CAS numbers
    /// below `cas_floor`. Nothing may be written to the log afterwards.
    ///
    /// # Errors
    /// The device fails; it is not cleanly closed then.
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
        // Every tombstone is durable, or its range of hashes has a floor that this state has.
        self.journal.clear();
        self.write_state(&mut writer)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().expect("no panic under this lock")
    }

    /// Writes the records that wait, one frame after the other.
    fn commit(&self, writer: &mut Writer) -> Round {
        let mut round = Round::Idle;
        loop {
            if self.is_broken() {
                return Round::Broken;
            }
            // What leaves a page of a state fits into this zone, or goes with a state to the other one.
            match self.journal.next_batch(|in_force| self.leaves_room(writer, in_force)) {
                Batch::Nothing => return round,
                Batch::DoesNotFit => return Round::Blocked,
                Batch::Records { payload, upto } => {
                    if !payload.is_empty() && self.append(writer, Body::Journal(payload)).is_err() {
                        return Round::Broken;
                    }
                    self.journal.commit(upto);
                    round = Round::Wrote;
                }
            }
        }
    }

    /// Whether a frame of `pages` pages fits into the zone of the writer, or a state into the other zone. `in_force`
    /// are the bytes of the journal records in force.
    fn fits(&self, writer: &Writer, pages: u64, in_force: usize) -> bool {
        writer.pages + pages <= self.zone_pages || self.state_pages_max(writer, in_force) <= self.zone_pages
    }

    /// Whether a state leaves a page of its zone beside `in_force` bytes of journal records. A restart needs it:
    /// if it cannot write down what it did not find, it has to give everything up.
    fn leaves_room(&self, writer: &Writer, in_force: usize) -> bool {
        self.state_pages_max(writer, in_force) < self.zone_pages
    }

    /// Pages of a state with the bounds of all zones and `in_force` bytes of journal records.
    fn state_pages_max(&self, writer: &Writer, in_force: usize) -> u64 {
        let entries = writer.zones.len() * ZoneBounds::ENTRIES_MAX + self.ranges.count();
        let note_bytes = self.note.lock().expect("no panic under this lock").len().max(NOTE_BYTES);
        let others = in_force + frame::prefixes_bytes(&self.prefixes()) + note_bytes;
        frame::pages_for(frame::state_bytes(entries, others)) as u64
    }

    /// The state now, and what it covers.
    fn state(&self, writer: &Writer) -> (LogState, Covered) {
        let journal = self.journal.snapshot();
        let flush_floor = writer.superblock.flush_floor;
        let zones = writer.zones.iter().enumerate();
        // Of the other zones the flush floor says all there is to say.
        let counts = |bounds: &ZoneBounds| {
            bounds.floor > flush_floor || bounds.top >= flush_floor || bounds.void >= flush_floor.max(1)
        };
        let zones = zones.filter(|(_, bounds)| counts(bounds));
        let (ranges, highest_floor) = self.ranges.bounds(flush_floor);
        let state = LogState {
            superblock: writer.superblock.clone(),
            zones: zones.map(|(zone, bounds)| (zone as u32, *bounds)).chain(ranges).collect(),
            journal: journal.in_force,
            prefixes: PrefixFloors::clone(&self.prefixes()),
            note: self.note(),
        };
        let Snapshot { oldest_segment, upto, .. } = journal;
        (state, Covered { oldest_segment, upto, highest_floor })
    }

    /// Appends a state, which commits all journal records, if they leave room.
    fn write_state_if_room(&self, writer: &mut Writer) -> Result<(), DeviceError> {
        if !self.leaves_room(writer, self.journal.exact_bytes_in_force()) {
            return Err(DeviceError::Full(writer.zone));
        }
        self.write_state(writer)
    }

    /// Appends a state.
    fn write_state(&self, writer: &mut Writer) -> Result<(), DeviceError> {
        let (state, covered) = self.state(writer);
        self.append(writer, Body::State(state))?;
        self.note_durable(&covered);
        if !writer.superblock.clean {
            self.ceiling.fetch_max(writer.superblock.next_sequence, Ordering::AcqRel);
        }
        Ok(())
    }

    /// A state is on the device.
    fn note_durable(&self, covered: &Covered) {
        self.journal.commit_with_state(covered.upto);
        self.ranges.note_durable(covered.highest_floor);
    }

    /// Appends a frame to the zone of the writer and makes it durable. If that is not possible, its contents become
    /// durable as part of a state in the other zone.
    fn append(&self, writer: &mut Writer, body: Body) -> Result<(), DeviceError> {
        if self.is_broken() {
            return Err(DeviceError::Gone);
        }
        let oldest_segment = self.journal.oldest_segment();
        let sequence = writer.last + 1;
        let uuid = writer.superblock.uuid;
        let frame = Frame { sequence, uuid, first: writer.first, oldest_segment, body }.encode();
        let pages = (frame.len() / PAGE_BYTES) as u64;
        if !self.fits(writer, pages, self.journal.exact_bytes_in_force()) {
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
        match self.begin_in_other_zone(writer).or_else(|_| self.begin_again(writer)) {
            Ok(()) => Ok(()),
            Err(error) => self.keep_nothing(writer, error),
        }
    }

    /// Begins a new round in the zone of the writer, which is erased first.
    fn begin_again(&self, writer: &mut Writer) -> Result<(), DeviceError> {
        let (state, covered) = self.state(writer);
        self.begin_round(writer, writer.zone, state, covered.oldest_segment)?;
        self.note_durable(&covered);
        Ok(())
    }

    /// Begins a new round in the other zone, and erases this one.
    fn begin_in_other_zone(&self, writer: &mut Writer) -> Result<(), DeviceError> {
        let (state, covered) = self.state(writer);
        let old = writer.zone;
        self.begin_round(writer, ZoneId(1 - old.0), state, covered.oldest_segment)?;
        self.note_durable(&covered);
        if let Err(error) = erase(&*self.device, old) {
            tracing::warn!("flash: meta zone {}: {error}", old.0);
        }
        Ok(())
    }

    /// Erases a zone and writes a state as its first frame.
    fn begin_round(
        &self,
        writer: &mut Writer,
        zone: ZoneId,
        state: LogState,
        oldest_segment: u64,
    ) -> Result<(), DeviceError> {
        let first = writer.last + ROUND_GAP;
        let uuid = state.superblock.uuid;
        let frame = Frame { sequence: first, uuid, first, oldest_segment, body: Body::State(state) }.encode();
        // Even if the write fails, the number is not used again: the frame may be on the device.
        writer.last = first;
        erase(&*self.device, zone)?;
        write_pages(&*self.device, zone, 0, &frame)?;
        (writer.zone, writer.first, writer.pages) = (zone, first, (frame.len() / PAGE_BYTES) as u64);
        Ok(())
    }

    /// The last resort when a frame cannot be written anywhere: a state that keeps nothing. Memory and device stay
    /// consistent until the next restart, which finds an empty device. Nor does it find what is written from now on: a
    /// segment that is open has an older sequence than the extents that are written meanwhile, and may yet get records
    /// that supersede them.
    fn keep_nothing(&self, writer: &mut Writer, error: DeviceError) -> Result<(), DeviceError> {
        tracing::error!("flash: the meta zones fail: {error}; nothing on the device is to survive a restart");
        let upto = self.journal.added();
        writer.superblock.flush_floor = writer.superblock.next_sequence.saturating_add(SESSION_SEQUENCES);
        for zone in [ZoneId(1 - writer.zone.0), writer.zone] {
            let superblock = writer.superblock.clone();
            let state = LogState { note: self.note(), ..LogState::empty(superblock) };
            if self.begin_round(writer, zone, state, UNPLACED).is_ok() {
                self.journal.commit_with_state(upto);
                return Ok(());
            }
        }
        tracing::error!("flash: not even that could be written: format the device before it is used again");
        self.broken.store(true, Ordering::Release);
        Err(error)
    }
}

/// The most bytes that deleted prefixes take of a meta zone of this length, beside a note.
fn prefixes_bytes_max(zone_bytes: u64) -> usize {
    ((zone_bytes / PREFIXES_SHARE) as usize).min(PREFIX_TABLE_BYTES_MAX).saturating_sub(NOTE_BYTES)
}

/// Whether a state with the bounds of `zones` zones of this length leaves a page of its zone, whatever ranges and
/// prefixes were dropped, and beside a note of this length and as many journal records as there may be before segments
/// are sealed early. In a smaller zone, commits could wait for ever.
fn holds_bounds(zones: u64, zone_bytes: u64, note_bytes: usize) -> bool {
    let ranges = RangeFloors::ranges_for(zone_bytes) as u64;
    let entries = zones * ZoneBounds::ENTRIES_MAX as u64 + ranges;
    let others = zone_bytes / JOURNAL_SHARE + (prefixes_bytes_max(zone_bytes) + note_bytes) as u64;
    let pages = frame::pages_for(frame::state_bytes(entries as usize, others as usize)) as u64;
    pages < zone_bytes / PAGE_BYTES as u64
}

fn raise_floor(bounds: &mut ZoneBounds, floor: u64) {
    if bounds.top < floor {
        bounds.top = 0;
    }
    bounds.floor = bounds.floor.max(floor);
}
