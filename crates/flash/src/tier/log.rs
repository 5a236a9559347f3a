//! The log: each version of an item is appended to it first. Its segments are filled in memory and sealed; the writer
//! writes them to the device. Lookups find a record from the moment when it is appended.
//!
//! Lookups must find the newest version first. A segment's sequence is its age, and an extent is newer than each record
//! of the log with its hash. To keep that true, everything that makes a version the newest (a put, an invalidation, a
//! survivor of a reclaim) happens under the **append lock**, which only this file takes. So does everything that takes
//! a segment out of the index.
//!
//! Under the append lock may be taken: the lock of the zones ([`super::space::Space`]), the lock of a buffer, the lock
//! of the waiting tombstones, the list of generations while it changes, and the locks of the meta log. `sweeping` is
//! taken before the append lock.

mod extents;
mod forget;
mod restore;

use super::buffer::{Buffer, Content, Pushed, Query};
use super::directory::{LogSegment, RecordBits, Segment};
use super::index::Index;
use super::lookup::Lookup;
use super::meta::Meta;
use super::shape::{EXTENT_BYTES, Shape};
use super::space::Space;
use super::stats::Counters;
use super::status::Status;
use super::waiting::WaitingTombstone;
use crate::dead_extents::DeadExtents;
use crate::extent_table::Extent;
use crate::hit_bits::HitBits;
use crate::item::{Commit, Put, Room, Stamp};
use crate::record::Record;
use crate::segment::{Kind, SegmentSummary, listed};
use forget::Retired;
use larder_item::{FOLDED_KEY_BYTES, KeyHash, KeyHasher, PrefixesFull};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};

/// A CAS number that is lower than the highest one by less than this is stored in four bytes.
const CAS_WINDOW: u64 = 3 << 30;
/// With fewer free buffers the device is behind.
const BUFFERS_LOW: u32 = 2;
/// Seconds between two warnings that ranges of hashes are dropped.
const WARN_EVERY_S: u32 = 10;
/// The part of the log table, percent, that is kept for tombstones and for what a reclaim appends again.
const TABLE_KEPT_PERCENT: u64 = 3;
/// Bits for each record of a segment that say which were replaced.
const SUPERSEDED_BITS: u64 = 3;
/// Filling of the log table, percent, at which the work that empties it is urgent.
const TABLE_URGENT_PERCENT: u64 = 92;

/// What the append lock guards.
struct Append {
    /// The open segment of the log.
    log: Option<Arc<Buffer>>,
    /// The open segment of extents.
    extents: Option<Arc<Buffer>>,
    /// Full segments in memory, oldest first; the first one may be on its way to the device.
    sealed: VecDeque<Arc<Buffer>>,
    /// Memory for more segments.
    free: Vec<Content>,
    /// Extents found no buffer, and none is open for them.
    extents_wait: bool,
    /// What a reclaim appends again found no buffer: the next one is for it.
    survivors_wait: bool,
    /// Numbers of the log table that mean no segment now.
    ids: Vec<u16>,
    /// The highest CAS number seen.
    cas_max: u64,
    /// Extents that a restart would find if there were no marks in the log, by
    /// [`crate::extent_table::ExtentTable::class`]. By class, because the table removes all extents of a class
    /// together.
    dead: DeadExtents,
}

impl Append {
    fn raise_cas(&mut self, cas: u64) {
        self.cas_max = self.cas_max.max(cas);
    }

    fn open(&mut self, kind: Kind) -> &mut Option<Arc<Buffer>> {
        if kind == Kind::Extents { &mut self.extents } else { &mut self.log }
    }
}

/// Who appends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    /// A version that is new to flash.
    Put,
    /// A reclaim, which appends again what was here before.
    Survivor,
    /// An invalidation, or what is left of a record that goes.
    Tombstone,
}

/// There is no buffer, or no room in the log table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoRoom;

/// Why a survivor was not appended again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// See [`NoRoom`].
    NoRoom,
    /// Something happened under its hash since it was judged.
    Changed,
}

/// The log.
pub(crate) struct Log {
    lookup: Lookup,
    space: Arc<Space>,
    shape: Shape,
    hasher: KeyHasher,
    append: Mutex<Append>,
    /// Whether some extent is dead on the device: see [`DeadExtents::any`].
    any_dead: Arc<AtomicBool>,
    /// The log table had no room, or its numbers ran out.
    table_full: AtomicBool,
    /// The extent table had no room.
    extents_full: AtomicBool,
    /// The zone of the log is to be closed before it is full, so that it can be merged or dropped: all versions of some
    /// key that the log table has room for are in it.
    close_zone: AtomicBool,
    /// Memory for the bits that say which records were replaced, bytes.
    superseded_bytes: AtomicU64,
    /// When it was last logged that ranges of hashes are dropped, unix seconds.
    warned_unix_s: AtomicU32,
    /// See [`Log::progress`].
    progress: AtomicU64,
    /// How many buffers are free: what the append lock guards, for those who need not know it to the buffer.
    free_buffers: AtomicU32,
    /// What the next sweep of the log table takes out. Held by the thread that sweeps: one at a time.
    sweeping: Mutex<Retired>,
}

impl Log {
    /// An empty log. `cas_max` is the highest CAS number that an item on the device may have.
    pub(crate) fn new(
        lookup: Lookup,
        space: Arc<Space>,
        shape: Shape,
        hasher: KeyHasher,
        cas_max: u64,
    ) -> Log {
        let append = Append {
            log: None,
            extents: None,
            sealed: VecDeque::new(),
            free: (0..shape.buffers).map(|_| Content::new(shape.buffer)).collect(),
            extents_wait: false,
            survivors_wait: false,
            ids: (1..=lookup.index.table.id_max()).rev().collect(),
            cas_max,
            dead: DeadExtents::new(shape.budget.dead_extents),
        };
        Log {
            lookup,
            space,
            shape,
            hasher,
            any_dead: append.dead.any(),
            append: Mutex::new(append),
            table_full: AtomicBool::new(false),
            extents_full: AtomicBool::new(false),
            close_zone: AtomicBool::new(false),
            superseded_bytes: AtomicU64::new(0),
            warned_unix_s: AtomicU32::new(0),
            progress: AtomicU64::new(0),
            free_buffers: AtomicU32::new(shape.buffers),
            sweeping: Mutex::default(),
        }
    }

    fn append(&self) -> MutexGuard<'_, Append> {
        self.append.lock().expect("no panic under this lock")
    }

    fn index(&self) -> &Index {
        &self.lookup.index
    }

    fn meta(&self) -> &Meta {
        &self.lookup.meta
    }

    fn status(&self) -> &Status {
        &self.lookup.status
    }

    fn counters(&self) -> &Counters {
        &self.lookup.status.counters
    }

    // What goes in.

    /// Whether a record may be stored now: it is not too long, and the tier serves.
    pub(crate) fn takes(&self, record: &Record<'_>) -> bool {
        (1..=FOLDED_KEY_BYTES).contains(&record.key.len())
            && record.value.len() <= self.shape.part_bytes_max
            && self.meta().is_serving()
    }

    /// Makes a record that is not a tombstone the newest version of its key.
    ///
    /// # Errors
    /// [`NoRoom`]: then the version that was here before is here still.
    pub(crate) fn put(&self, hash: u64, record: &Record<'_>) -> Result<(), NoRoom> {
        let mut append = self.append();
        // Twice, and both times under the lock: a reclaim that took its stamp in between appends nothing.
        self.meta().bump_stamp(hash);
        let result = self.append_record(&mut append, hash, record);
        self.meta().bump_stamp(hash);
        result
    }

    /// Counts a put.
    pub(crate) fn count_put(&self, record: &Record<'_>, put: Put) {
        match put {
            Put::Stored => {
                let bytes = (record.key.len() + record.value.len()) as u64;
                self.counters().puts.fetch_add(1, Relaxed);
                self.counters().admitted_bytes.fetch_add(bytes, Relaxed);
            }
            Put::Shed => {
                self.counters().shed.fetch_add(1, Relaxed);
            }
        }
    }

    /// Leaves a tombstone for a key if one is needed. Returns its commit if there is a journal.
    pub(crate) fn invalidate(&self, hash: KeyHash, key: &[u8]) -> Option<Commit> {
        let commit = self.hide(hash, key);
        // Also if no tombstone was needed: what a lookup has found before is not the newest version any more. And after
        // the check, because a version may have been found and dropped during it.
        self.meta().bump_stamp(hash.0);
        commit
    }

    fn hide(&self, hash: KeyHash, key: &[u8]) -> Option<Commit> {
        if !self.meta().is_on() {
            return None;
        }
        let holds = self.lookup.may_hold(hash.0);
        // The order matters: an extent is counted as dead before the extent table drops it.
        if !holds && !self.any_dead.load(SeqCst) {
            return None;
        }
        let mut append = self.append();
        // A version that only a restart would find needs a tombstone as well.
        if !holds && !self.marks_extent(&append, hash.0) {
            return None;
        }
        let placed = self.append_tombstone(&mut append, hash.0, key);
        // Under the lock, so that the segment cannot be sealed yet.
        let commit = self.meta().journal(placed, hash.0, key);
        // Under the lock: from here on a reclaim cannot append an older version over the tombstone.
        self.meta().bump_stamp(hash.0);
        commit
    }

    /// Appends a survivor of a reclaim, or a tombstone in its stead, if nothing happened under its hash since `stamp`,
    /// and it was not deleted by prefix. `age` = the sequence of its segment. Says to which segment.
    ///
    /// # Errors
    /// Why it was not appended.
    pub(crate) fn append_survivor(
        &self,
        hash: u64,
        record: &Record<'_>,
        (age, stamp): (u64, Stamp),
    ) -> Result<u64, Refused> {
        let mut append = self.append();
        // First: a tombstone that waited may be about this very key.
        let drained = self.drain(&mut append);
        // A prefix is deleted under the lock as well, and moves no stamp.
        let is_deleted = !record.tombstone && self.meta().hides(record.key, age);
        if self.meta().stamp(hash) != stamp || is_deleted {
            return Err(Refused::Changed);
        }
        if !drained {
            return Err(Refused::NoRoom);
        }
        let kind = if is_extent(record) { Kind::Extents } else { Kind::Log };
        let supersedes_extent = kind == Kind::Log && self.marks_extent(&append, hash);
        let record = &Record { supersedes_extent, ..*record };
        let by = if record.tombstone { By::Tombstone } else { By::Survivor };
        let placed = self.push(&mut append, kind, hash, record, by);
        append.survivors_wait = placed.is_err();
        let sequence = placed.map_err(|NoRoom| Refused::NoRoom)?;
        if kind == Kind::Extents {
            self.kill_extents(&mut append, &Query::of(hash, record), Some(sequence));
        }
        Ok(sequence)
    }

    /// Appends a tombstone of the journal. Says to which segment; `None` if there is no room.
    pub(crate) fn append_journaled(&self, key: &[u8], hash: u64) -> Option<u64> {
        let tombstone = WaitingTombstone { hash, key: key.into(), supersedes_extent: true };
        self.place(&mut self.append(), &tombstone)
    }

    /// A tombstone of the journal found no room: it waits for a buffer, or its range of hashes goes.
    pub(crate) fn hold_journaled(&self, key: &[u8], hash: u64) {
        let mut append = self.append();
        if !self.index().waiting.add(hash, key, true) {
            self.drop_range(&mut append, hash);
        }
    }

    /// Appends the tombstones that wait. Says whether none is left.
    pub(crate) fn drain_waiting(&self) -> bool {
        self.drain(&mut self.append())
    }

    // Appending, under the lock.

    /// Opens a segment.
    fn open_segment(&self, append: &mut Append, kind: Kind, by: By) -> Result<Arc<Buffer>, NoRoom> {
        let spare = match kind {
            // Extents take the last buffer only if the log has one: it keeps its last room for tombstones.
            Kind::Extents => usize::from(append.log.is_none()),
            // A log that took every buffer as soon as it is free would leave none to extents.
            _ => usize::from(append.extents_wait && by != By::Tombstone),
        };
        let spare = if by == By::Put && append.survivors_wait { spare.max(1) } else { spare };
        append.extents_wait &= append.free.len() <= spare;
        if append.free.len() <= spare {
            append.extents_wait |= kind == Kind::Extents;
            return Err(NoRoom);
        }
        if kind == Kind::Log && append.ids.is_empty() {
            self.note_table_full();
            return Err(NoRoom);
        }
        let sequence = self.meta().next_sequence().ok_or(NoRoom)?;
        let id = if kind == Kind::Log { append.ids.pop().ok_or(NoRoom)? } else { 0 };
        let content = append.free.pop().ok_or(NoRoom)?;
        self.free_buffers.store(append.free.len() as u32, SeqCst);
        let cas_base = append.cas_max.saturating_sub(CAS_WINDOW);
        let buffer = Arc::new(Buffer::new(id, sequence, kind, cas_base, self.status().now(), content));
        match kind {
            Kind::Extents => {
                self.index().directory.change_extents(|extents| extents.buffers.push(buffer.clone()));
            }
            _ => self.index().directory.set(id, LogSegment::Memory(buffer.clone())),
        }
        *append.open(kind) = Some(buffer.clone());
        Ok(buffer)
    }

    /// Seals the open segment of a kind, if it has records.
    fn seal_open(&self, append: &mut Append, kind: Kind) {
        let has_records = |buffer: &mut Arc<Buffer>| buffer.read().as_ref().is_some_and(|c| !c.is_empty());
        if let Some(buffer) = append.open(kind).take_if(has_records) {
            buffer.seal(self.meta().next_sequence().unwrap_or(u64::MAX));
            if append.sealed.is_empty() {
                // The device was given nothing until now.
                self.status().note_progress();
            }
            append.sealed.push_back(buffer);
            self.status().wake();
        }
    }

    /// Appends a record to the open segment of its kind, or to a new one. Says to which segment.
    fn push(
        &self,
        append: &mut Append,
        kind: Kind,
        hash: u64,
        record: &Record<'_>,
        by: By,
    ) -> Result<u64, NoRoom> {
        // Only a tombstone gets the room that is kept for tombstones.
        let last = by == By::Tombstone;
        // A segment is in order of hash, and a reader computes the hash from the record.
        debug_assert_eq!(hash, record.hash(&self.hasher), "a record is put under its own hash");
        if !record.tombstone {
            append.raise_cas(record.cas);
        }
        for _ in 0..2 {
            let buffer = match append.open(kind) {
                Some(buffer) => buffer.clone(),
                None => self.open_segment(append, kind, by)?,
            };
            let all = last || !append.free.is_empty();
            let mut content = buffer.write();
            let Some(found) = content.as_mut() else { return Err(NoRoom) };
            match found.push(kind, hash, record, buffer.cas_base, all) {
                Pushed::Replaced => return Ok(buffer.sequence),
                Pushed::New if kind == Kind::Extents => return Ok(buffer.sequence),
                Pushed::New => {
                    if self.index().table.insert(listed(hash), buffer.id).is_ok() {
                        return Ok(buffer.sequence);
                    }
                    found.kill(&Query::of(hash, record), buffer.cas_base);
                    self.counters().table_full.fetch_add(1, Relaxed);
                    drop(content);
                    self.note_table_full();
                    return Err(NoRoom);
                }
                Pushed::Full => {
                    drop(content);
                    // There is no other buffer, so this one keeps its last room for tombstones.
                    if append.free.is_empty() && !last {
                        return Err(NoRoom);
                    }
                    self.seal_open(append, kind);
                }
            }
        }
        Err(NoRoom)
    }

    fn note_table_full(&self) {
        self.table_full.store(true, SeqCst);
        self.status().ask();
    }

    /// Appends the tombstones that wait. They are older than the next record, so they come first. Says whether none is
    /// left.
    fn drain(&self, append: &mut Append) -> bool {
        if self.index().waiting.is_empty() {
            if self.meta().owes_placing()
                && let Some(open) = &append.log
            {
                self.meta().tombstones_placed(open.sequence);
            }
            return true;
        }
        let mut newest = 0;
        let drained = self.index().waiting.drain(|tombstone| {
            let placed = self.place(append, tombstone);
            newest = placed.unwrap_or(newest);
            // A reclaim that found an older version before must not append that version over the tombstone.
            self.meta().bump_stamp(tombstone.hash);
            placed.is_some()
        });
        if drained {
            self.meta().tombstones_placed(newest);
        }
        drained
    }

    /// Appends a tombstone that waited, if there is room. Says to which segment.
    fn place(&self, append: &mut Append, tombstone: &WaitingTombstone) -> Option<u64> {
        let record = Record::tombstone(&tombstone.key, tombstone.supersedes_extent);
        self.push(append, Kind::Log, tombstone.hash, &record, By::Tombstone).ok()
    }

    /// Notes that a record of this hash was appended to the segment `newer`: the newest older segment has one live
    /// record less. With a journal, what a put replaces is a tombstone, from when the item in memory was changed.
    fn note_superseded(&self, hash: u64, newer: u64, by: By) {
        let follows_tombstone = by == By::Put && self.meta().has_journal();
        let known = self.lookup.log_segments(hash);
        for (number, older) in known.iter().filter(|segment| segment.sequence() < newer).enumerate() {
            match &**older {
                LogSegment::Flash(segment) => {
                    segment.supersede(listed(hash));
                    if number == 0 && !(follows_tombstone && segment.supersede_tombstone()) {
                        segment.supersede_one();
                    }
                }
                LogSegment::Memory(buffer) if number == 0 => buffer.supersede_one(follows_tombstone),
                LogSegment::Memory(_) => {}
            }
        }
    }

    fn append_record(&self, append: &mut Append, hash: u64, record: &Record<'_>) -> Result<(), NoRoom> {
        if !self.drain(append) {
            return Err(NoRoom);
        }
        if self.index().is_table_down_to(TABLE_KEPT_PERCENT) {
            self.note_table_full();
            return Err(NoRoom);
        }
        if self.space.is_down_to_reserve() {
            self.status().ask();
            return Err(NoRoom);
        }
        let query = Query::of(hash, record);
        if is_extent(record) {
            return self.append_extent(append, &query, record);
        }
        let has_extent = self.has_extent(&query);
        let supersedes_extent = has_extent || self.marks_extent(append, hash);
        let record = Record { supersedes_extent, ..*record };
        let sequence = self.push(append, Kind::Log, hash, &record, By::Put)?;
        self.note_superseded(hash, sequence, By::Put);
        if has_extent {
            self.kill_extents(append, &query, None);
        }
        Ok(())
    }

    fn append_extent(
        &self,
        append: &mut Append,
        query: &Query<'_>,
        record: &Record<'_>,
    ) -> Result<(), NoRoom> {
        let hash = query.hash;
        let marked = self.marks_extent(append, hash);
        let own = self.push(append, Kind::Extents, hash, record, By::Put)?;
        self.kill_extents(append, query, Some(own));
        // The log gets a tombstone if it has an older version, which would be found again when the extent's zone is
        // erased. Older extents that are dead need none: a restart finds this one too, which is newer. But a crash may
        // lose this one with its buffer, so with a journal the tombstone carries on their mark. A later part has only
        // one version.
        let marks = marked && self.meta().has_journal();
        if query.part == 0 && (marks || self.lookup.log_may_hold(hash)) {
            let tombstone = Record { cas: own, ..Record::tombstone(record.key, marked) };
            match self.push(append, Kind::Log, hash, &tombstone, By::Tombstone) {
                Ok(sequence) => {
                    self.note_superseded(hash, sequence, By::Put);
                    self.meta().journal(Some(sequence), hash, record.key);
                }
                Err(NoRoom) => {
                    self.append_tombstone(append, hash, record.key);
                    return Err(NoRoom);
                }
            }
        }
        Ok(())
    }

    /// Appends a tombstone for a key. Says to which segment; `None` if it waits for a buffer.
    fn append_tombstone(&self, append: &mut Append, hash: u64, key: &[u8]) -> Option<u64> {
        let query = Query { hash, key, cas: 0, part: 0 };
        let has_extent = self.has_extent(&query);
        let supersedes_extent = has_extent || self.marks_extent(append, hash);
        let placed = if self.drain(append) {
            let record = Record::tombstone(key, supersedes_extent);
            self.push(append, Kind::Log, hash, &record, By::Tombstone).ok()
        } else {
            None
        };
        match placed {
            Some(sequence) => self.note_superseded(hash, sequence, By::Tombstone),
            None => {
                self.counters().tombstones_waited.fetch_add(1, Relaxed);
                if !self.index().waiting.add(hash, key, supersedes_extent) {
                    self.drop_range(append, hash);
                }
            }
        }
        if has_extent {
            self.kill_extents(append, &query, None);
        }
        self.counters().tombstones.fetch_add(1, Relaxed);
        placed
    }

    /// The last resort when an invalidation finds no room: nothing of the range of hashes that it is in is found any
    /// more.
    fn drop_range(&self, append: &mut Append, hash: u64) {
        // What is put from now on must be in younger segments.
        self.seal_open(append, Kind::Log);
        self.seal_open(append, Kind::Extents);
        let hashes = self.meta().drop_range(hash);
        self.index().waiting.forget(&hashes);
        self.counters().range_drops.fetch_add(1, Relaxed);
        let now = self.status().now();
        let warned = self.warned_unix_s.swap(now, Relaxed);
        if warned.abs_diff(now) >= WARN_EVERY_S {
            tracing::warn!(
                "flash: invalidations find no room because the device is too slow or its table is full: items are \
                 dropped by ranges of keys. A larger --flash-memory has room for more"
            );
        } else {
            self.warned_unix_s.store(warned, Relaxed);
        }
    }

    // Flushes.

    /// Nothing that was put before is found any more; its memory and its zones are given back later. Returns the new
    /// floor, which the caller writes down.
    fn drop_all(&self, append: &mut Append) -> u64 {
        let floor = self.meta().next_sequence().unwrap_or(u64::MAX);
        // Before anything is dropped: until the floor is written down, nothing is given up because of it.
        self.meta().announce_floor(floor);
        // Until then a restart would still find the generations.
        self.lookup.generations.begin_release();
        // First: a lookup that does not see a tombstone of the log any more must not see what the tombstone hid.
        self.lookup.generations.drop_all();
        self.meta().raise_floor(floor);
        self.index().waiting.clear();
        // The tombstones that waited are not needed after a flush. Their journal records go when the floor is durable.
        self.meta().tombstones_flushed(floor.saturating_sub(1));
        self.seal_open(append, Kind::Log);
        self.seal_open(append, Kind::Extents);
        floor
    }

    /// Makes the floor durable. Only now may go what had hidden something below it.
    fn write_floor(&self, floor: u64, on_failure: &str) {
        self.meta().write_floor(floor, on_failure);
        self.forget_prefixes(floor);
        self.status().wake();
    }

    /// Everything that was put before is gone when this returns, also after a restart.
    pub(crate) fn flush(&self) {
        let floor = self.drop_all(&mut self.append());
        self.counters().flushes.fetch_add(1, Relaxed);
        self.write_floor(floor, "a flush could not be written down");
    }

    /// What was put before under keys with this prefix is not found any more.
    ///
    /// # Errors
    /// There is no room for the prefix.
    pub(crate) fn drop_prefix(&self, prefix: &[u8]) -> Result<(), PrefixesFull> {
        let mut append = self.append();
        // What is put from now on must be in younger segments.
        self.seal_open(&mut append, Kind::Log);
        self.seal_open(&mut append, Kind::Extents);
        let dropped = self.meta().raise_prefix(prefix);
        self.status().wake();
        dropped
    }

    /// Forgets the deleted prefixes of which no segment can have a record any more. `oldest` is a durable floor, or the
    /// lowest sequence of a segment on the device while the caller keeps segments from being released.
    pub(crate) fn forget_prefixes(&self, oldest: u64) {
        let _append = self.append();
        self.meta().forget_prefixes(oldest);
    }

    /// The last resort when a segment is older than what was erased in every free zone: a restart would ignore it
    /// there, and find what it hides. Nothing that was put before is found any more.
    pub(crate) fn drop_everything(&self) {
        self.meta().begin_flush();
        let floor = self.drop_all(&mut self.append());
        self.counters().drops_of_all.fetch_add(1, Relaxed);
        self.write_floor(floor, "that everything is dropped could not be written down");
        self.meta().end_flush();
        tracing::warn!(
            "flash: a segment waited for so long that no zone suits it: everything on flash is dropped"
        );
    }

    /// The first half of [`Log::flush`], as if it were cut off there.
    #[cfg(test)]
    pub(crate) fn drop_without_floor(&self) {
        self.drop_all(&mut self.append());
    }

    /// Runs `act` with the floor, under the append lock: no flush and no put comes in between.
    pub(crate) fn with_floor<T>(&self, act: impl FnOnce(u64) -> T) -> T {
        let _append = self.append();
        act(self.meta().floor())
    }

    // Sealed segments, on their way to the device.

    /// Seals the open segment of the log.
    pub(crate) fn seal(&self) {
        self.seal_open(&mut self.append(), Kind::Log);
    }

    /// Seals both open segments.
    pub(crate) fn seal_all(&self) {
        let mut append = self.append();
        self.seal_open(&mut append, Kind::Log);
        self.seal_open(&mut append, Kind::Extents);
    }

    /// Appends the tombstones that wait, and seals both open segments. `None` if not all tombstones found room; else
    /// the highest CAS number of all.
    pub(crate) fn seal_for_good(&self) -> Option<u64> {
        let mut append = self.append();
        if !self.drain(&mut append) {
            return None;
        }
        self.seal_open(&mut append, Kind::Log);
        self.seal_open(&mut append, Kind::Extents);
        Some(append.cas_max)
    }

    /// Journal records are not needed any more when their segments are durable: seals the open one if they take too
    /// much room.
    pub(crate) fn make_room_in_journal(&self) {
        if self.meta().wants_seal() {
            self.seal();
        }
        self.meta().check_zones();
    }

    /// The oldest sealed segment.
    pub(crate) fn next_sealed(&self) -> Option<Arc<Buffer>> {
        self.append().sealed.front().cloned()
    }

    /// Whether sealed segments should be written without a pause: more than one waits, or few buffers are free.
    pub(crate) fn is_write_urgent(&self) -> bool {
        let append = self.append();
        append.sealed.len() > 1 || append.free.len() <= 1
    }

    /// A number that changes whenever the device takes pages of a segment.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Relaxed)
    }

    /// The device has taken pages of a segment.
    pub(crate) fn note_progress(&self) {
        self.progress.fetch_add(1, Relaxed);
        self.status().note_progress();
    }

    /// Makes a segment that was written one that is found on the device. `order` has the numbers of the records that
    /// were written.
    pub(crate) fn install(&self, buffer: &Buffer, content: &Content, order: &[u32], facts: SegmentSummary) {
        let extents = facts.extents.clone();
        let bits = self.record_bits(facts.items, buffer.kind == Kind::Log);
        let segment = Arc::new(Segment::new(buffer.id, facts, bits));
        // Under the lock: a put or an invalidation finds a record in the buffer before, and on the device afterwards.
        // What died in the buffer while it was written is not installed.
        let mut append = self.append();
        let (items, tombstones) = buffer.superseded();
        (0..items).for_each(|_| segment.supersede_one());
        (0..tombstones).filter(|_| !segment.supersede_tombstone()).for_each(|_| segment.supersede_one());
        self.space.add_segment(&segment);
        let index = self.index();
        match buffer.kind {
            Kind::Extents => {
                index.directory.change_extents(|extents| extents.segments.push(segment.clone()));
                for (number, extent) in order.iter().zip(extents) {
                    let class = index.extents.class(extent.hash);
                    let address = index.extent_address(segment.zone(), extent.page);
                    let place = Extent { address, pages: extent.pages };
                    if !content.is_live(*number) {
                        append.dead.add(class, buffer.sequence);
                    } else if index.extents.insert(extent.hash, place).is_err() {
                        append.dead.add(class, buffer.sequence);
                        self.counters().table_full.fetch_add(1, Relaxed);
                        self.extents_full.store(true, SeqCst);
                        // It cannot be found, and says no more that older extents of its key are dead.
                        if let Some((hash, record)) = content.at(*number, buffer.cas_base)
                            && record.part.is_none_or(|part| part.number == 0)
                        {
                            self.append_tombstone(&mut append, hash, record.key);
                        }
                    }
                }
            }
            _ if buffer.sequence >= self.meta().floor() => {
                index.directory.set(buffer.id, LogSegment::Flash(segment));
            }
            _ => {}
        }
    }

    /// Takes back the memory of a buffer: it was written to the device (`written`), or is dropped.
    pub(crate) fn retire(&self, buffer: &Arc<Buffer>, written: bool) {
        let mut append = self.append();
        append.sealed.retain(|sealed| !Arc::ptr_eq(sealed, buffer));
        let directory = &self.index().directory;
        if buffer.kind == Kind::Extents {
            if !written {
                append.dead.release(buffer.sequence, directory.extents().oldest());
            }
            directory.count_change();
            directory.change_extents(|extents| extents.buffers.retain(|known| !Arc::ptr_eq(known, buffer)));
        } else if !written {
            directory.forget(buffer.id);
        }
        let mut records = 0;
        if let Some(mut content) = buffer.write().take() {
            records = content.live() as u64;
            content.clear();
            append.free.push(content);
            self.free_buffers.store(append.free.len() as u32, SeqCst);
        }
        // Under the lock: a flush that came after this may leave other journal records to this segment.
        self.meta().segment_durable(buffer.sequence);
        drop(append);
        if buffer.kind != Kind::Extents && !written {
            self.free_ids(&[buffer.id], records);
        }
        self.tell_room();
    }

    /// Tells those who wait for room in the buffers, if there is some now.
    pub(crate) fn tell_room(&self) {
        if !self.is_behind() && self.status().take_room_wanted() {
            self.meta().tell();
        }
    }

    /// Bits for the records of a segment, if there is memory for them. Those that say which records were replaced are
    /// there if they are wanted, and if a bit stays for each record that the log table has room for: that one says
    /// which were read.
    fn record_bits(&self, records: u32, wants_superseded: bool) -> Option<Box<RecordBits>> {
        let records = records as u64;
        let for_superseded = self.shape.budget.hit_bits.saturating_sub(self.index().table.capacity() / 8);
        let bytes = HitBits::bytes_for(records * SUPERSEDED_BITS);
        let has_room = self.superseded_bytes.load(Relaxed) + bytes <= for_superseded;
        let superseded = if wants_superseded && has_room { SUPERSEDED_BITS } else { 0 };
        let bytes = RecordBits::bytes_for(records, superseded);
        let taken = &self.counters().hit_bits_bytes;
        if taken.load(Relaxed) + bytes > self.shape.budget.hit_bits {
            return None;
        }
        taken.fetch_add(bytes, Relaxed);
        let superseded = (superseded > 0).then(|| HitBits::new(records * superseded));
        let bits = RecordBits { hits: HitBits::new(records), superseded };
        self.superseded_bytes.fetch_add(bits.superseded_bytes(), Relaxed);
        Some(Box::new(bits))
    }

    /// Whether background work should go on without a pause: erased zones are few, or the log table is almost full.
    pub(crate) fn is_urgent(&self) -> bool {
        self.space.is_short() || self.index().is_table_filled(TABLE_URGENT_PERCENT)
    }

    // What others ask of it.

    /// Whether the newest record of a hash must carry the mark that extents are superseded.
    pub(crate) fn must_mark(&self, hash: u64) -> bool {
        self.marks_extent(&self.append(), hash)
    }

    /// Whether some extent is dead on the device.
    pub(crate) fn has_dead_extents(&self) -> bool {
        !self.append().dead.is_empty()
    }

    /// Whether the device is behind: so few buffers are free that the next puts may be shed.
    pub(crate) fn is_behind(&self) -> bool {
        // Of three buffers, two may be open for long.
        let low = if self.shape.buffers > 3 { BUFFERS_LOW } else { BUFFERS_LOW - 1 };
        self.free_buffers.load(SeqCst) < low || self.space.is_down_to_reserve()
    }

    /// Whether the index is full: the log table has so few entries left, or numbers of segments, that the next puts may
    /// be shed.
    pub(crate) fn is_index_full(&self) -> bool {
        self.index().is_table_down_to(TABLE_KEPT_PERCENT) || self.append().ids.len() < 2
    }

    /// The room in the buffers for records of items of this length.
    pub(crate) fn room(&self, item_bytes: u64) -> Room {
        let kind = if item_bytes > EXTENT_BYTES as u64 { Kind::Extents } else { Kind::Log };
        let mut append = self.append();
        let buffer_bytes = self.shape.buffer.record_bytes() as u64;
        let in_open = append.open(kind).as_ref();
        let in_open = in_open.and_then(|open| open.read().as_ref().map(Content::bytes_left)).unwrap_or(0);
        let spare = kind == Kind::Extents && append.log.is_none();
        let buffers = append.free.len().saturating_sub(usize::from(spare));
        let all_bytes = u64::from(self.shape.buffers) * buffer_bytes;
        Room { free_bytes: in_open + buffers as u64 * buffer_bytes, buffer_bytes, all_bytes }
    }

    /// Whether a segment that has nothing else takes a record.
    pub(crate) fn fits_a_segment(&self, record: &Record<'_>) -> bool {
        // A CAS number takes the most bytes where it counts from 0.
        !is_extent(record) || self.shape.buffer.takes_extent(record.encoded_bytes(0))
    }

    /// The lowest sequence of a segment that has dead extents; 0 if that is not known, and `u64::MAX` if there is none.
    pub(crate) fn oldest_dead_extent(&self) -> u64 {
        self.append().dead.oldest()
    }

    /// Whether hardly any numbers of the log table are free: a merge is to free some.
    pub(crate) fn is_short_of_ids(&self) -> bool {
        self.append().ids.len() < forget::IDS_KEPT
    }

    /// The highest CAS number seen.
    pub(crate) fn cas_max(&self) -> u64 {
        self.append().cas_max
    }

    /// Sequence of the oldest segment that is in memory only; `u64::MAX` if there is none.
    pub(crate) fn oldest_unwritten(&self) -> u64 {
        let append = self.append();
        let in_memory = append.log.iter().chain(&append.extents).chain(&append.sealed);
        in_memory.map(|buffer| buffer.sequence).min().unwrap_or(u64::MAX)
    }

    /// Sealed segments that are not written yet, and memory for the set of dead extents, bytes.
    pub(crate) fn stats(&self) -> (u64, u64) {
        let append = self.append();
        (append.sealed.len() as u64, append.dead.bytes())
    }

    /// Whether tombstones wait for room, or the log table was full lately.
    pub(crate) fn is_stuck(&self) -> bool {
        self.table_full.load(SeqCst) || !self.index().waiting.is_empty()
    }

    /// Whether the log table was full since the last call.
    pub(crate) fn take_table_full(&self) -> bool {
        self.table_full.swap(false, SeqCst)
    }

    /// The log table is full still.
    pub(crate) fn set_table_full(&self) {
        self.table_full.store(true, SeqCst);
    }

    /// Whether the extent table was full since the last call.
    pub(crate) fn take_extents_full(&self) -> bool {
        self.extents_full.swap(false, SeqCst)
    }

    /// Asks the writer to close the zone of the log before it is full, or takes that back.
    pub(crate) fn set_close_zone(&self, close: bool) {
        self.close_zone.store(close, SeqCst);
    }

    /// Whether the zone of the log is to be closed. Asked once for each request.
    pub(crate) fn take_close_zone(&self) -> bool {
        self.close_zone.swap(false, SeqCst)
    }
}

/// Whether a record is too long for a hash-ordered segment.
fn is_extent(record: &Record<'_>) -> bool {
    record.key.len() + record.value.len() > EXTENT_BYTES
}
