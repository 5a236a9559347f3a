//! What makes something the newest: puts, invalidations, and the survivors of reclaims. All of it under the append lock.

use super::buffer::{Buffer, Content, Pushed, Wanted};
use super::directory::Place;
use super::fallback::Waiting;
use super::shape::EXTENT_BYTES;
use crate::dead_extents::DeadExtents;
use crate::device::ZoneId;
use crate::flash::{Commit, Flash, FlashItem, Put, Stamp};
use crate::record::{Part, Record, part_hash};
use crate::segment::{Kind, listed};
use larder_item::KeyHash;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, MutexGuard};

/// CAS numbers below the highest one that still have a short form.
const CAS_WINDOW: u64 = 3 << 30;

/// What the append lock guards.
pub(crate) struct Append {
    /// The segment of the log that takes records.
    pub(crate) log: Option<Arc<Buffer>>,
    /// The segment of extents that takes records.
    pub(crate) extents: Option<Arc<Buffer>>,
    /// Full ones, oldest first, the one being written included.
    pub(crate) sealed: VecDeque<Arc<Buffer>>,
    /// Memory for more.
    pub(crate) free: Vec<Content>,
    /// Numbers that mean nothing now.
    pub(crate) ids: Vec<u16>,
    /// The highest CAS number seen.
    pub(crate) cas_max: u64,
    /// Extents that a restart would find were it not for marks in the log, by [`crate::extent_table::ExtentTable::class`]: the
    /// table may take out more than was meant.
    pub(crate) dead: DeadExtents,
}

impl Append {
    /// A number that was seen.
    pub(crate) fn raise_cas(&mut self, cas: u64) {
        self.cas_max = self.cas_max.max(cas);
    }
}

/// There is no buffer, or no room in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoRoom;

/// Why a survivor was not put again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// See [`NoRoom`].
    NoRoom,
    /// Something happened under its hash since it was judged.
    Changed,
}

impl Flash {
    pub(crate) fn append(&self) -> MutexGuard<'_, Append> {
        self.append.lock().expect("no panic under this lock")
    }

    /// A new segment. What waited for one goes in first.
    fn open_segment(&self, append: &mut Append, kind: Kind) -> Result<Arc<Buffer>, NoRoom> {
        // The last buffer but one is for the log: extents never take all there are.
        let spare = if kind == Kind::Extents { 1 } else { 0 };
        if append.free.len() <= spare {
            return Err(NoRoom);
        }
        if kind == Kind::Log && append.ids.is_empty() {
            self.table_full.store(true, SeqCst);
            self.wake();
            return Err(NoRoom);
        }
        let sequence = self.next_sequence().ok_or(NoRoom)?;
        let id = if kind == Kind::Log { append.ids.pop().ok_or(NoRoom)? } else { 0 };
        let content = append.free.pop().ok_or(NoRoom)?;
        let cas_base = append.cas_max.saturating_sub(CAS_WINDOW);
        let buffer = Arc::new(Buffer::new(id, sequence, kind, cas_base, self.now(), content));
        match kind {
            Kind::Extents => {
                self.directory.change_extents(|extents| extents.buffers.push(buffer.clone()));
                append.extents = Some(buffer.clone());
            }
            _ => {
                self.directory.set(id, Place::Memory(buffer.clone()));
                append.log = Some(buffer.clone());
            }
        }
        Ok(buffer)
    }

    /// The open segment takes no more.
    pub(crate) fn seal(&self, append: &mut Append, kind: Kind) {
        let open = if kind == Kind::Extents { &mut append.extents } else { &mut append.log };
        if let Some(buffer) = open.take_if(|buffer| buffer.read().as_ref().is_some_and(|c| !c.is_empty())) {
            buffer.seal(self.next_sequence().unwrap_or(u64::MAX));
            append.sealed.push_back(buffer);
            self.wake();
        }
    }

    /// Appends to the open segment of the kind, or to a new one. `last` allows the room kept for tombstones.
    fn push(
        &self,
        append: &mut Append,
        kind: Kind,
        hash: u64,
        record: &Record<'_>,
        last: bool,
    ) -> Result<u64, NoRoom> {
        // A segment is in order of hash, and who reads it knows no other hash than this.
        debug_assert_eq!(hash, record.hash(&self.hasher), "a record is put under its own hash");
        if !record.tombstone {
            append.cas_max = append.cas_max.max(record.cas);
        }
        for _ in 0..2 {
            let open = if kind == Kind::Extents { &append.extents } else { &append.log };
            let buffer = match open {
                Some(buffer) => buffer.clone(),
                None => self.open_segment(append, kind)?,
            };
            let all = last || !append.free.is_empty();
            let mut content = buffer.write();
            let Some(found) = content.as_mut() else { return Err(NoRoom) };
            match found.push(kind, hash, record, buffer.cas_base, all) {
                Pushed::Replaced => return Ok(buffer.sequence),
                Pushed::New if kind == Kind::Extents => return Ok(buffer.sequence),
                Pushed::New => {
                    if self.table.insert(listed(hash), buffer.id).is_ok() {
                        return Ok(buffer.sequence);
                    }
                    found.kill(&Wanted::of(hash, record), buffer.cas_base);
                    self.counters.table_full.fetch_add(1, Relaxed);
                    self.table_full.store(true, SeqCst);
                    drop(content);
                    self.wake();
                    return Err(NoRoom);
                }
                Pushed::Full => {
                    drop(content);
                    // Tombstones may still come: without another buffer this one keeps its last room for them.
                    if append.free.is_empty() && !last {
                        return Err(NoRoom);
                    }
                    self.seal(append, kind);
                }
            }
        }
        Err(NoRoom)
    }

    /// Tombstones that waited for a buffer go first: they are older than whatever comes now.
    pub(crate) fn drain_fallback(&self, append: &mut Append) -> bool {
        if self.fallback.is_empty() {
            return true;
        }
        let mut newest = 0;
        let drained = self.fallback.drain(|key, waiting| {
            let placed = self.place_tombstone(append, key, waiting);
            newest = placed.unwrap_or(newest);
            placed.is_some()
        });
        if drained {
            self.tombstones_placed(newest);
        }
        drained
    }

    /// A tombstone that waited, if there is room now.
    pub(crate) fn place_tombstone(&self, append: &mut Append, key: &[u8], waiting: Waiting) -> Option<u64> {
        let record = Record::tombstone(key, waiting.supersedes_extent);
        self.push(append, Kind::Log, waiting.hash, &record, true).ok()
    }

    /// Whether the extent table or a buffer of extents has something under the hash.
    pub(crate) fn has_extent(&self, wanted: &Wanted<'_>) -> bool {
        let in_buffer = |buffer: &Arc<Buffer>| {
            buffer.read().as_ref().is_some_and(|content| content.find(wanted, buffer.cas_base).is_some())
        };
        let has = || {
            !self.extents.candidates(wanted.hash).is_empty()
                || self.directory.extents().buffers.iter().any(in_buffer)
        };
        self.unmoved(has, |has| !has)
    }

    /// Whether a record that becomes the newest must carry the mark that extents are superseded.
    pub(crate) fn must_mark(&self, append: &Append, hash: u64) -> bool {
        append.dead.contains(self.extents.class(hash)) || self.recovering.load(SeqCst)
    }

    /// No extent is the newest any more, but for one in the buffer of the sequence `spare`.
    fn kill_extents(&self, append: &mut Append, wanted: &Wanted<'_>, spare: Option<u64>) {
        self.directory.moves();
        for buffer in &self.directory.extents().buffers {
            if Some(buffer.sequence) == spare {
                continue;
            }
            // One that is sealed may be on its way to the device, this extent with it.
            let killed = buffer.read().as_ref().is_some_and(|content| content.kill(wanted, buffer.cas_base));
            if killed && buffer.sealed_sequence() != u64::MAX {
                append.dead.add(self.extents.class(wanted.hash), buffer.sequence);
            }
        }
        for extent in self.extents.candidates(wanted.hash).iter() {
            if let Some(segment) = self.extent_segment(extent.address) {
                segment.supersede(segment.mean_bytes());
                append.dead.add(self.extents.class(wanted.hash), segment.sequence());
            }
        }
        self.extents.remove_matching(wanted.hash);
    }

    /// Something newer is under this hash: of the newest older segment, about one record is not wanted any more.
    fn note_superseded(&self, hash: u64, newer: u64) {
        let newest = self.log_places(hash).into_iter().find(|place| place.sequence() < newer);
        if let Some(Place::Flash(segment)) = newest.as_deref() {
            segment.supersede(segment.mean_bytes());
        }
    }

    /// Makes a record that is not a tombstone the newest of its key.
    pub(crate) fn append_record(
        &self,
        append: &mut Append,
        hash: u64,
        record: &Record<'_>,
    ) -> Result<(), NoRoom> {
        if !self.drain_fallback(append) {
            return Err(NoRoom);
        }
        let wanted = Wanted::of(hash, record);
        if record.key.len() + record.value.len() > EXTENT_BYTES {
            let marked = self.must_mark(append, hash);
            let own = self.push(append, Kind::Extents, hash, record, false)?;
            self.kill_extents(append, &wanted, Some(own));
            // A log version that stays would be found again when the extent's zone goes, and a mark in the log must not go
            // with the tombstone that has it. Of a later part there is no other version.
            if wanted.part == 0 && (marked || self.log_may_hold(hash)) {
                let tombstone = Record { cas: own, ..Record::tombstone(record.key, marked) };
                match self.push(append, Kind::Log, hash, &tombstone, true) {
                    Ok(sequence) => {
                        self.note_superseded(hash, sequence);
                        self.journal(sequence, hash, record.key);
                    }
                    Err(NoRoom) => {
                        self.append_tombstone(append, hash, record.key);
                        return Err(NoRoom);
                    }
                }
            }
        } else {
            let has_extent = self.has_extent(&wanted);
            let supersedes_extent = has_extent || self.must_mark(append, hash);
            let record = Record { supersedes_extent, ..*record };
            let sequence = self.push(append, Kind::Log, hash, &record, false)?;
            self.note_superseded(hash, sequence);
            if has_extent {
                self.kill_extents(append, &wanted, None);
            }
        }
        Ok(())
    }

    /// Leaves a tombstone for a key. Says in which segment; `None` if it is in none yet.
    fn append_tombstone(&self, append: &mut Append, hash: u64, key: &[u8]) -> Option<u64> {
        let wanted = Wanted { hash, key, cas: 0, part: 0 };
        let has_extent = self.has_extent(&wanted);
        let supersedes_extent = has_extent || self.must_mark(append, hash);
        let placed = if self.drain_fallback(append) {
            let record = Record::tombstone(key, supersedes_extent);
            self.push(append, Kind::Log, hash, &record, true).ok()
        } else {
            None
        };
        match placed {
            Some(sequence) => self.note_superseded(hash, sequence),
            None => {
                self.counters.tombstones_waited.fetch_add(1, Relaxed);
                if !self.fallback.add(key, Waiting { hash, supersedes_extent }) {
                    self.counters.drops_of_all.fetch_add(1, Relaxed);
                    tracing::warn!(
                        "flash is so far behind that invalidations found no room: everything on it is dropped"
                    );
                    self.drop_all(append);
                    if let Err(error) = self.meta.flush(self.floor.load(SeqCst)) {
                        self.device_error("flush", ZoneId(0), &error);
                        self.turn_off("that everything was dropped could not be written down");
                    }
                }
            }
        }
        if has_extent {
            self.kill_extents(append, &wanted, None);
        }
        self.counters.tombstones.fetch_add(1, Relaxed);
        placed
    }

    /// A survivor of a reclaim, or the tombstone in its stead, is put again, if nothing happened under its hash since `stamp`.
    pub(crate) fn append_survivor(
        &self,
        hash: u64,
        record: &Record<'_>,
        stamp: Stamp,
    ) -> Result<u64, Refused> {
        let mut append = self.append();
        if self.stamps.get(hash) != stamp {
            return Err(Refused::Changed);
        }
        if !self.drain_fallback(&mut append) {
            return Err(Refused::NoRoom);
        }
        let kind = match record.key.len() + record.value.len() > EXTENT_BYTES {
            true => Kind::Extents,
            false => Kind::Log,
        };
        let supersedes_extent = kind == Kind::Log && self.must_mark(&append, hash);
        let record = &Record { supersedes_extent, ..*record };
        let placed = self.push(&mut append, kind, hash, record, record.tombstone);
        let sequence = placed.map_err(|NoRoom| Refused::NoRoom)?;
        if kind == Kind::Extents {
            self.kill_extents(&mut append, &Wanted::of(hash, record), Some(sequence));
        }
        Ok(sequence)
    }

    pub(crate) fn put_item(&self, hash: KeyHash, item: &FlashItem<'_>) -> Put {
        let part = (item.value_bytes != item.value.len() as u64)
            .then_some(Part { value_bytes: item.value_bytes, number: 0 });
        let record = Record {
            key: item.key,
            value: item.value,
            flags: item.flags,
            expires_unix_s: item.expires_unix_s,
            cas: item.cas,
            state: item.state,
            part,
            ..Record::tombstone(item.key, false)
        };
        self.put_record(hash.0, &Record { tombstone: false, ..record })
    }

    pub(crate) fn put_part_of(&self, hash: KeyHash, key: &[u8], cas: u64, number: u32, value: &[u8]) -> Put {
        let part = Some(Part { value_bytes: value.len() as u64, number });
        let record = Record { value, cas, part, tombstone: false, ..Record::tombstone(key, false) };
        self.put_record(part_hash(hash, cas, number), &record)
    }

    fn append_stamped(&self, hash: u64, record: &Record<'_>) -> Result<(), NoRoom> {
        let mut append = self.append();
        // Before and after, and both under the lock: a reclaim that judged a record in between appends nothing.
        self.stamps.bump(hash);
        let result = self.append_record(&mut append, hash, record);
        self.stamps.bump(hash);
        result
    }

    fn put_record(&self, hash: u64, record: &Record<'_>) -> Put {
        let fits = (1..=250).contains(&record.key.len()) && record.value.len() <= self.shape.part_bytes_max;
        if !fits || !self.is_on() || self.flushing.load(SeqCst) > 0 {
            self.counters.shed.fetch_add(1, Relaxed);
            return Put::Shed;
        }
        let mut result = self.append_stamped(hash, record);
        if !self.options.background_flush {
            self.write_sealed();
            if result.is_err() {
                result = self.append_stamped(hash, record);
            }
        }
        match result {
            Ok(()) => {
                let bytes = (record.key.len() + record.value.len()) as u64;
                self.counters.puts.fetch_add(1, Relaxed);
                self.counters.admitted_bytes.fetch_add(bytes, Relaxed);
                Put::Stored
            }
            Err(NoRoom) => {
                self.counters.shed.fetch_add(1, Relaxed);
                Put::Shed
            }
        }
    }

    pub(crate) fn invalidate_key(&self, hash: KeyHash, key: &[u8]) -> Option<Commit> {
        let commit = self.hide(hash, key);
        // Also where nothing is to be found: what was found before is not the newest any more. After the look, since something
        // may have been found and gone in the meantime.
        self.stamps.bump(hash.0);
        commit
    }

    /// Leaves a tombstone where one is needed.
    fn hide(&self, hash: KeyHash, key: &[u8]) -> Option<Commit> {
        if !self.is_on() {
            return None;
        }
        let holds = self.may_hold_hash(hash.0);
        // In this order: an extent that the table forgets is counted as dead before.
        if !holds && !self.any_dead.load(SeqCst) {
            return None;
        }
        let mut append = self.append();
        // What only a restart would find needs a tombstone as well.
        if !holds && !self.must_mark(&append, hash.0) {
            return None;
        }
        let floor = self.floor.load(SeqCst);
        let placed = self.append_tombstone(&mut append, hash.0, key);
        // Under the lock: the segment cannot be sealed yet. Where everything was dropped instead, that is durable by now.
        let commit = match self.floor.load(SeqCst) == floor {
            true => self.journal(placed.unwrap_or(crate::meta::UNPLACED), hash.0, key),
            false => None,
        };
        // Before anybody can put a survivor over the tombstone.
        self.stamps.bump(hash.0);
        drop(append);
        if !self.options.background_flush {
            self.write_sealed();
        }
        commit
    }
}
