//! The journal records of the meta log in memory: those in force, and those that are not written yet.

use super::frame::{self, FRAME_PAGES_MAX, JournalRecord, RECORD_BYTES, UNPLACED};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The journal records. Threads add records; one thread takes them in batches, writes them, and reports them as
/// committed. It begins when somebody waits for a record ([`Journal::want`]), so that what is added in one go is
/// written in one frame.
///
/// Its lock is never held while the device works.
#[derive(Default)]
pub(super) struct Journal {
    records: Mutex<Records>,
    /// Notified when something is to be written.
    woken: Condvar,
    /// Number of the last record that is durable or obsolete, together with all records before it.
    committed: AtomicU64,
    /// Number of the last record that was added. Changed under the lock.
    added: AtomicU64,
    /// Bytes of the records in force.
    bytes_in_force: AtomicU64,
}

#[derive(Default)]
struct Records {
    /// The records in force, encoded, by the segment that has their tombstones. Records that are not written yet are
    /// here too.
    in_force: BTreeMap<u64, Vec<u8>>,
    /// The records that are not written yet, encoded, oldest first.
    unwritten: Vec<u8>,
    /// The segment that took the unplaced records.
    placed: Option<u64>,
    /// That segment is durable. The device still has the records as unplaced, and would put them again after every
    /// crash, until a state is written.
    state_is_due: bool,
    /// Somebody waits for the last record, or the records fill a frame.
    wanted: bool,
    stop: bool,
}

/// The answer of [`Journal::next_batch`].
pub(super) enum Batch {
    /// No record waits.
    Nothing,
    /// The next records do not fit.
    DoesNotFit,
    /// Write these records, which may be none, then call [`Journal::commit`] with `upto`.
    Records { payload: Vec<u8>, upto: u64 },
}

/// What a state frame has to say of the journal.
pub(super) struct Snapshot {
    /// The records in force, encoded.
    pub(super) in_force: Vec<u8>,
    /// The oldest segment that has a tombstone of a record in force.
    pub(super) oldest_segment: u64,
    /// Number of the last record in the snapshot.
    pub(super) upto: u64,
}

impl Records {
    fn bytes_in_force(&self) -> usize {
        self.in_force.values().map(Vec::len).sum()
    }

    fn oldest_segment(&self) -> u64 {
        self.in_force.keys().next().copied().unwrap_or(UNPLACED)
    }
}

/// The position in `bytes` of every record, and its segment.
fn walk(bytes: &[u8]) -> impl Iterator<Item = (Range<usize>, u64)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let length = RECORD_BYTES + *bytes.get(at)? as usize;
        let segment = u64::from_le_bytes(bytes.get(at + 1..at + 9)?.try_into().ok()?);
        let range = at..at + length;
        at += length;
        Some((range, segment))
    })
}

/// Writes the segment into all unplaced records in `bytes`.
fn assign(bytes: &mut [u8], segment: u64) {
    let unplaced: Vec<usize> =
        walk(bytes).filter(|(_, of)| *of == UNPLACED).map(|(range, _)| range.start).collect();
    for at in unplaced {
        bytes[at + 1..at + 9].copy_from_slice(&segment.to_le_bytes());
    }
}

impl Journal {
    /// A journal in which the records that a crash left are in force, without a segment.
    pub(super) fn restored(found: &[JournalRecord]) -> Journal {
        let mut records = Records::default();
        for record in found {
            let unplaced = records.in_force.entry(UNPLACED).or_default();
            frame::push_record(unplaced, UNPLACED, record.hash, &record.key);
        }
        let bytes_in_force = AtomicU64::new(records.bytes_in_force() as u64);
        Journal { records: Mutex::new(records), bytes_in_force, ..Journal::default() }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().expect("no panic under this lock")
    }

    /// Adds a record. Returns its number.
    pub(super) fn add(&self, segment: u64, hash: u64, key: &[u8]) -> u64 {
        let mut records = self.records();
        let in_force = records.in_force.entry(segment).or_default();
        let before = in_force.len();
        frame::push_record(in_force, segment, hash, key);
        let bytes = in_force.len() - before;
        frame::push_record(&mut records.unwritten, segment, hash, key);
        let number = self.added.fetch_add(1, Ordering::AcqRel) + 1;
        self.bytes_in_force.fetch_add(bytes as u64, Ordering::Relaxed);
        if frame::pages_for(records.unwritten.len()) >= FRAME_PAGES_MAX {
            self.want_in(records);
        }
        number
    }

    /// Somebody waits for the last record.
    pub(super) fn want(&self) {
        self.want_in(self.records());
    }

    fn want_in(&self, mut records: MutexGuard<'_, Records>) {
        let news = !std::mem::replace(&mut records.wanted, true);
        drop(records);
        if news {
            self.woken.notify_one();
        }
    }

    /// See [`super::MetaLog::placed`].
    pub(super) fn placed(&self, segment: u64) {
        let mut records = self.records();
        if let Some(mut unplaced) = records.in_force.remove(&UNPLACED) {
            assign(&mut unplaced, segment);
            records.in_force.entry(segment).or_default().append(&mut unplaced);
            records.placed = records.placed.max(Some(segment));
            assign(&mut records.unwritten, segment);
        }
    }

    /// See [`super::MetaLog::obsolete`].
    pub(super) fn obsolete(&self, segment: u64) {
        let mut records = self.records();
        if records.placed == Some(segment) {
            (records.placed, records.state_is_due) = (None, true);
        }
        if let Some(gone) = records.in_force.remove(&segment) {
            self.bytes_in_force.fetch_sub(gone.len() as u64, Ordering::Relaxed);
        }
        drop(records);
        // Records that did not fit may fit now.
        self.woken.notify_one();
    }

    /// Drops the records of segments below `floor`.
    pub(super) fn drop_below(&self, floor: u64) {
        let mut records = self.records();
        let kept = records.in_force.split_off(&floor);
        records.in_force = kept;
        self.bytes_in_force.store(records.bytes_in_force() as u64, Ordering::Relaxed);
    }

    /// No record is in force any more. Those that are not written yet are committed with the next state.
    pub(super) fn clear(&self) {
        self.records().in_force.clear();
        self.bytes_in_force.store(0, Ordering::Relaxed);
    }

    /// Number of the last record that is committed.
    pub(super) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// Reports that the records up to this number are durable, or obsolete.
    pub(super) fn commit(&self, upto: u64) {
        self.committed.fetch_max(upto, Ordering::AcqRel);
    }

    /// Reports that the records up to this number are durable as part of a state: they need not be written by
    /// themselves.
    pub(super) fn commit_with_state(&self, upto: u64) {
        let mut records = self.records();
        let newer = self.added() - upto;
        let written = (walk(&records.unwritten).count() as u64).saturating_sub(newer);
        let end = walk(&records.unwritten).nth(written as usize).map(|(range, _)| range.start);
        let end = end.unwrap_or(records.unwritten.len());
        records.unwritten.drain(..end);
        drop(records);
        self.commit(upto);
    }

    /// Takes the next records to write: as many as one frame holds, without those that are obsolete already. `fits`
    /// is given the bytes of all records in force, and says whether the frame can be written.
    pub(super) fn next_batch(&self, fits: impl FnOnce(usize) -> bool) -> Batch {
        let mut records = self.records();
        let (mut payload, mut taken, mut count) = (Vec::new(), 0, 0);
        for (range, segment) in walk(&records.unwritten) {
            if frame::pages_for(payload.len() + range.len()) > FRAME_PAGES_MAX {
                break;
            }
            (taken, count) = (range.end, count + 1);
            if records.in_force.contains_key(&segment) {
                payload.extend_from_slice(&records.unwritten[range]);
            }
        }
        if count == 0 {
            return Batch::Nothing;
        }
        if !payload.is_empty() && !fits(records.bytes_in_force()) {
            return Batch::DoesNotFit;
        }
        records.unwritten.drain(..taken);
        let upto = self.added() - walk(&records.unwritten).count() as u64;
        Batch::Records { payload, upto }
    }

    /// Drops the records that are not written: nothing will be committed any more.
    pub(super) fn give_up(&self) {
        self.records().unwritten.clear();
    }

    /// The journal as a state frame has it.
    pub(super) fn snapshot(&self) -> Snapshot {
        let records = self.records();
        Snapshot {
            in_force: records.in_force.values().flatten().copied().collect(),
            oldest_segment: records.oldest_segment(),
            upto: self.added(),
        }
    }

    /// The oldest segment that has a tombstone of a record in force.
    pub(super) fn oldest_segment(&self) -> u64 {
        self.records().oldest_segment()
    }

    /// Number of the last record that was added.
    pub(super) fn added(&self) -> u64 {
        self.added.load(Ordering::Acquire)
    }

    /// Bytes of the records in force, counted under the lock.
    pub(super) fn exact_bytes_in_force(&self) -> usize {
        self.records().bytes_in_force()
    }

    /// Bytes of the records in force.
    pub(super) fn bytes_in_force(&self) -> u64 {
        self.bytes_in_force.load(Ordering::Relaxed)
    }

    /// Bytes of memory on the heap.
    pub(super) fn heap_bytes(&self) -> u64 {
        self.records().unwritten.capacity() as u64 + self.bytes_in_force()
    }

    /// Whether a state is to be written because unplaced records have become obsolete. True once for each time.
    pub(super) fn take_state_is_due(&self) -> bool {
        std::mem::take(&mut self.records().state_is_due)
    }

    /// Waits for [`Journal::want`], [`Journal::stop`], or `for_at_most`.
    pub(super) fn wait_for_records(&self, for_at_most: Duration) {
        let waits = |records: &mut Records| !records.wanted && !records.stop;
        let waited = self.woken.wait_timeout_while(self.records(), for_at_most, waits);
        waited.expect("no panic under this lock").0.wanted = false;
    }

    /// Waits until a record becomes obsolete or is wanted, [`Journal::stop`], or `for_at_most`. Records are wanted
    /// then.
    pub(super) fn wait_for_space(&self, for_at_most: Duration) {
        let records = self.records();
        if !records.stop {
            let waited = self.woken.wait_timeout(records, for_at_most);
            waited.expect("no panic under this lock").0.wanted = true;
        }
    }

    /// Ends all waiting, from now on.
    pub(super) fn stop(&self) {
        self.records().stop = true;
        self.woken.notify_all();
    }

    /// Whether [`Journal::stop`] was called.
    pub(super) fn is_stopped(&self) -> bool {
        self.records().stop
    }
}
