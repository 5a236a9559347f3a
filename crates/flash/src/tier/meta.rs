//! What of the device counts, now and after a restart: the floor, the flushes, the journal and its commits, and whether
//! the tier works at all.
//!
//! The **floor** is a sequence. Segments below it do not exist any more, whatever the device shows: a flush raises the
//! floor instead of erasing. The **journal** makes invalidations durable in mode `journal`; a reply to a client waits
//! for the commit of its invalidation. Both are written by [`MetaLog`], in zones 0 and 1.
//!
//! Lock: `listeners`, a leaf. The locks of the meta log are last in the order of locks, so every function here may be
//! called under any lock of the tier.

use super::stamps::Stamps;
use super::status::Status;
use crate::device::{DeviceError, ZoneId};
use crate::item::{Commit, Stamp};
use crate::meta::{MetaLog, Opened, RangeFloors, UNPLACED};
use crate::options::Recover;
use arc_swap::ArcSwap;
use larder_item::{PrefixFloors, PrefixesFull};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// What of the device counts.
pub(crate) struct Meta {
    status: Arc<Status>,
    log: Arc<MetaLog>,
    recover: Recover,
    uuid: [u8; 16],
    /// Whether the tier works. Once it has failed, it stays off.
    on: AtomicBool,
    /// Segments below this sequence do not exist any more.
    floor: AtomicU64,
    /// The highest floor that was announced, and the highest one that the device has.
    announced_floor: AtomicU64,
    lasting_floor: AtomicU64,
    /// The same as the floor for ranges of hashes.
    ranges: Arc<RangeFloors>,
    /// Tombstones that waited are in segments or ranges that were dropped, and the journal does not know it yet.
    owes_placing: AtomicBool,
    flushing: Flushing,
    stamps: Stamps,
    forgotten: ArcSwap<Forgotten>,
    /// The commit that listeners were told of last.
    told: AtomicU64,
    /// Event descriptors of fetchers, to be written when commits become durable.
    listeners: Mutex<Vec<Weak<OwnedFd>>>,
}

/// Flushes that have begun and not ended.
#[derive(Default)]
struct Flushing {
    of_all: AtomicU32,
    /// Whether a prefix is being deleted, and which. Memory may have let go of an item already that hid an older one.
    of_prefix: AtomicBool,
    prefix: ArcSwap<Vec<u8>>,
}

/// What is remembered of prefixes that were forgotten, for lookups that began before.
#[derive(Default)]
struct Forgotten {
    /// The deleted prefixes as they were before some were last forgotten.
    prefixes: Arc<PrefixFloors>,
    /// The lowest sequence that a segment had then. All that were forgotten so far have floors up to it.
    below: u64,
}

impl Meta {
    /// The meta log that was opened, with stamps of at most `stamps_bytes`.
    pub(crate) fn new(status: Arc<Status>, opened: &Opened, recover: Recover, stamps_bytes: u64) -> Meta {
        Meta {
            status,
            log: opened.log.clone(),
            recover,
            uuid: opened.superblock.uuid,
            on: AtomicBool::new(true),
            floor: AtomicU64::new(opened.superblock.flush_floor),
            announced_floor: AtomicU64::new(opened.superblock.flush_floor),
            lasting_floor: AtomicU64::new(opened.superblock.flush_floor),
            ranges: opened.log.ranges().clone(),
            owes_placing: AtomicBool::new(false),
            flushing: Flushing::default(),
            stamps: Stamps::new(stamps_bytes),
            forgotten: ArcSwap::default(),
            told: AtomicU64::new(0),
            listeners: Mutex::default(),
        }
    }

    /// The number that was chosen when the device was formatted.
    pub(crate) fn device_uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// What a restart after a crash keeps.
    pub(crate) fn recover(&self) -> Recover {
        self.recover
    }

    /// Whether invalidations are written to the journal.
    pub(crate) fn has_journal(&self) -> bool {
        self.recover == Recover::Journal
    }

    // Whether the tier works.

    /// Whether the tier works. If not, it has failed, and everything is a miss.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(SeqCst)
    }

    /// Whether items are stored and found now: the tier works, and no flush is under way.
    pub(crate) fn is_serving(&self) -> bool {
        self.is_on() && self.flushing.of_all.load(SeqCst) == 0
    }

    /// The tier has failed: everything is a miss from now on, also after a restart as far as that can still be written
    /// down.
    pub(crate) fn turn_off(&self, why: &str) {
        if self.on.swap(false, SeqCst) {
            tracing::error!("flash is switched off: {why}");
            self.stamps.bump_all();
            let _ = self.log.flush(self.next_sequence().unwrap_or(u64::MAX));
        }
    }

    // Stamps.

    /// The stamp of a hash.
    pub(crate) fn stamp(&self, hash: u64) -> Stamp {
        self.stamps.get(hash)
    }

    /// Changes the stamp of a hash; see [`Stamps::bump`].
    pub(crate) fn bump_stamp(&self, hash: u64) {
        self.stamps.bump(hash);
    }

    // Floor and flushes.

    /// Segments below this sequence do not exist any more.
    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(SeqCst)
    }

    /// Records of this hash in segments below this sequence do not exist any more.
    #[inline]
    pub(crate) fn floor_of(&self, hash: u64) -> u64 {
        self.floor().max(self.ranges.of(hash))
    }

    /// As [`Meta::floor_of`], for the decision whether a key needs a tombstone: a floor that a crash would lose hides
    /// nothing in the end.
    pub(crate) fn lasting_floor_of(&self, hash: u64) -> u64 {
        if self.keeps_ranges() { self.floor_of(hash) } else { self.floor() }
    }

    /// Whether what is dropped by ranges of hashes stays so after a crash. Without a journal it does not have to.
    pub(crate) fn keeps_ranges(&self) -> bool {
        !self.has_journal() || self.ranges.are_durable()
    }

    /// The highest floor of a range that was dropped.
    pub(crate) fn highest_range_floor(&self) -> u64 {
        self.ranges.highest()
    }

    /// As [`Meta::keeps_ranges`], of the ranges with floors up to this one.
    pub(crate) fn keeps_ranges_up_to(&self, floor: u64) -> bool {
        !self.has_journal() || self.ranges.are_durable_up_to(floor)
    }

    /// Drops the range of hashes that a hash is in: nothing of it that was put before exists any more. Returns the
    /// range. The caller holds the append lock, and no segment that is open takes another record.
    pub(crate) fn drop_range(&self, hash: u64) -> RangeInclusive<u64> {
        // Twice: a merge that took its sequence in between may have begun before the first floor was there. Its
        // generation is below the second floor.
        for _ in 0..2 {
            self.ranges.raise(hash, self.next_sequence().unwrap_or(u64::MAX));
        }
        self.stamps.bump_all();
        self.ranges.hashes(hash)
    }

    /// A floor will be raised to this. To be called before anything is dropped for it, under the append lock.
    pub(crate) fn announce_floor(&self, floor: u64) {
        self.announced_floor.fetch_max(floor, SeqCst);
    }

    /// Raises the floor in memory, and changes all stamps. The caller holds the append lock, has announced the floor,
    /// and writes it down ([`Meta::write_floor`]) when it has let the lock go or can wait.
    pub(crate) fn raise_floor(&self, floor: u64) {
        self.floor.store(floor, SeqCst);
        self.stamps.bump_all();
    }

    /// Whether a floor was announced that the device does not have. A crash would bring back what is below it, so
    /// nothing that hides something there is given up meanwhile. To be asked after the choice of what is to be given
    /// up, which may have been made because of such a floor.
    pub(crate) fn owes_floor(&self) -> bool {
        self.lasting_floor.load(SeqCst) < self.announced_floor.load(SeqCst)
    }

    /// Whether the record of this key in the segment of this sequence was deleted by prefix since. In a generation, the
    /// generation's number counts.
    #[inline]
    pub(crate) fn hides(&self, key: &[u8], sequence: u64) -> bool {
        // First what is being deleted: it is among the others before it is not any more.
        if self.flushing.of_prefix.load(SeqCst) && key.starts_with(&self.flushing.prefix.load()) {
            return true;
        }
        let prefixes = self.log.prefixes();
        !prefixes.is_empty() && sequence < prefixes.floor_of(key)
    }

    /// Whether the record was deleted by a prefix that was forgotten since a stamp was taken: the lookup may have read
    /// it before its segment went. To be asked after [`Meta::hides`]. The record of a segment that has gone meanwhile
    /// counts as one if prefixes were forgotten several times since.
    pub(crate) fn has_hidden(&self, key: &[u8], sequence: u64, stamp: Stamp) -> bool {
        let since = self.stamps.forgotten_since(stamp);
        if since == 0 {
            return false;
        }
        let forgotten = self.forgotten.load();
        // A forgotten prefix hides nothing in a segment that is there.
        sequence < forgotten.below
            && (since > 1
                || sequence < forgotten.prefixes.floor_of(key)
                || self.stamps.forgotten_since(stamp) != since)
    }

    /// To be called before prefixes with floors up to `oldest` are forgotten, so that a lookup that finds one gone sees
    /// that.
    fn begin_forgetting(&self, oldest: u64) {
        let below = self.forgotten.load().below.max(oldest);
        self.forgotten.store(Arc::new(Forgotten { prefixes: Arc::clone(&self.log.prefixes()), below }));
        self.stamps.begin_forgetting();
    }

    /// How many deleted prefixes there may still be records of.
    pub(crate) fn prefixes(&self) -> usize {
        self.log.prefixes().len()
    }

    /// Whether there is room for another deleted prefix.
    pub(crate) fn takes_prefix(&self, prefix: &[u8]) -> bool {
        self.log.prefixes_with(prefix, u64::MAX).is_ok()
    }

    /// Deletes by prefix what is in segments that were opened before. The caller holds the append lock, and no segment
    /// that is open takes another record.
    ///
    /// # Errors
    /// There is no room for the prefix. Nothing is deleted then.
    pub(crate) fn raise_prefix(&self, prefix: &[u8]) -> Result<(), PrefixesFull> {
        // Twice: a merge that took its number in between may have begun before the first floor was there. Its
        // generation is below the second floor.
        for _ in 0..2 {
            self.log.raise_prefix(prefix, self.next_sequence().unwrap_or(u64::MAX))?;
        }
        Ok(())
    }

    /// Forgets the prefixes whose floors are not above `oldest`, the lowest sequence that a segment has. Not while a
    /// floor is not durable: a state that is written now has the old floor, and would not have the prefixes. The caller
    /// holds the append lock.
    pub(crate) fn forget_prefixes(&self, oldest: u64) {
        let lowest = self.log.prefixes().lowest();
        if lowest != 0 && lowest <= oldest && !self.owes_floor() {
            self.begin_forgetting(oldest);
            self.log.forget_prefixes(oldest);
        }
    }

    /// What the owner of the items has noted beside them.
    pub(crate) fn note(&self) -> Vec<u8> {
        self.log.note()
    }

    /// The longest note, in bytes.
    pub(crate) fn note_bytes_max(&self) -> usize {
        self.log.note_bytes_max()
    }

    /// Notes something beside the items. It is durable after [`Meta::write_state_now`].
    pub(crate) fn set_note(&self, note: &[u8]) {
        self.log.set_note(note);
    }

    /// Makes the floors of prefixes and the note durable. If the journal leaves no room for them, says so.
    pub(crate) fn write_state_now(&self) -> Result<(), DeviceError> {
        self.log.write_state_now()
    }

    /// Makes the floor durable. If that fails, the tier is turned off.
    pub(crate) fn write_floor(&self, floor: u64, on_failure: &str) {
        match self.log.flush(floor) {
            Ok(()) => {
                self.lasting_floor.fetch_max(floor, SeqCst);
            }
            Err(error) => {
                self.status.device_error("flush", ZoneId(0), &error);
                self.turn_off(on_failure);
            }
        }
    }

    /// A flush begins: nothing is found or stored until [`Meta::end_flush`].
    pub(crate) fn begin_flush(&self) {
        self.flushing.of_all.fetch_add(1, SeqCst);
        self.stamps.bump_all();
    }

    /// A flush has ended.
    pub(crate) fn end_flush(&self) {
        self.stamps.bump_all();
        self.flushing.of_all.fetch_sub(1, SeqCst);
    }

    /// A prefix is about to be deleted. All that flash has of it is hidden until [`Meta::end_prefix_flush`]. One at a
    /// time.
    pub(crate) fn begin_prefix_flush(&self, prefix: &[u8]) {
        self.flushing.prefix.store(Arc::new(prefix.to_vec()));
        self.flushing.of_prefix.store(true, SeqCst);
    }

    /// The prefix is deleted.
    pub(crate) fn end_prefix_flush(&self) {
        self.flushing.of_prefix.store(false, SeqCst);
    }

    // Sequences and the zones that have them.

    /// A sequence for a new segment: higher than all before it, and never given again. `None` if no more are reserved.
    pub(crate) fn next_sequence(&self) -> Option<u64> {
        self.log.next_sequence()
    }

    /// Writes down that segments of these zones below these sequences, which are all that they have, do not exist any
    /// more. Says whether that worked.
    pub(crate) fn release(&self, zones: &[(ZoneId, u64)]) -> bool {
        self.is_released(zones.first().map(|(zone, _)| *zone), self.log.release(zones))
    }

    /// Writes down that segments of these zones below the first sequence and from the second one on (if it is not 0) do
    /// not exist any more. Says whether that worked.
    pub(crate) fn narrow(&self, zones: &[(ZoneId, u64, u64)]) -> bool {
        self.is_released(zones.first().map(|(zone, ..)| *zone), self.log.narrow(zones))
    }

    fn is_released(&self, zone: Option<ZoneId>, result: Result<(), DeviceError>) -> bool {
        if let Err(error) = &result {
            self.status.device_error("release", zone.unwrap_or(ZoneId(0)), error);
        }
        result.is_ok()
    }

    /// Notes that the segment of this sequence is durable, and so is everything before it in its zone.
    pub(crate) fn segment_written(&self, zone: ZoneId, sequence: u64) {
        self.log.written(zone, sequence);
    }

    /// Makes sure that a restart knows a CAS number above `cas`.
    ///
    /// # Errors
    /// The meta zones take nothing, or have no room.
    pub(crate) fn cover_cas(&self, cas: u64) -> Result<(), crate::device::DeviceError> {
        self.log.cover_cas(cas)
    }

    // Journal and commits.

    /// Notes an invalidation in the journal, if there is one. `sequence` is the segment of its tombstone; `None` if the
    /// tombstone waits for a buffer.
    pub(crate) fn journal(&self, sequence: Option<u64>, hash: u64, key: &[u8]) -> Option<Commit> {
        self.has_journal().then(|| Commit(self.log.add(sequence.unwrap_or(UNPLACED), hash, key)))
    }

    /// The last invalidation of all, unless it is durable.
    pub(crate) fn last_uncommitted(&self) -> Option<Commit> {
        let added = self.log.added();
        (self.has_journal() && added > self.log.committed()).then_some(Commit(added))
    }

    /// The tombstones that waited for a buffer are in the segment of this sequence, in older ones, or in ranges that
    /// were dropped.
    pub(crate) fn tombstones_placed(&self, sequence: u64) {
        if !self.has_journal() {
            return;
        }
        // Until the floors are durable, the journal alone says that these keys were invalidated.
        let is_known = self.ranges.are_durable();
        self.owes_placing.store(!is_known, SeqCst);
        if is_known {
            self.log.placed(sequence);
        }
    }

    /// After a flush nothing is left in the segment of this sequence, nor in older ones: the tombstones of their items
    /// are not needed any more, wherever they are, nor are the floors of dropped ranges.
    pub(crate) fn tombstones_flushed(&self, sequence: u64) {
        self.owes_placing.store(false, SeqCst);
        if self.has_journal() {
            self.log.placed(sequence);
        }
    }

    /// Whether [`Meta::tombstones_placed`] is to be called again although no tombstone waits.
    pub(crate) fn owes_placing(&self) -> bool {
        self.owes_placing.load(SeqCst)
    }

    /// The same for tombstones that were read from the journal, whatever the mode is now.
    pub(crate) fn journal_replayed(&self, sequence: u64) {
        self.log.placed(sequence);
    }

    /// The segment is durable, or dropped with everything older: its journal records are not needed any more. Those
    /// below a floor that is not durable stay, and go together with the write of that floor. The caller holds the
    /// append lock.
    pub(crate) fn segment_durable(&self, sequence: u64) {
        let stays = self.owes_floor() && sequence < self.floor();
        if self.has_journal() && !stays {
            self.log.obsolete(sequence);
        }
    }

    /// Writes the meta log as far as it has room, and tells the listeners of new commits.
    pub(crate) fn commit(&self) {
        self.log.tend();
        self.tell_commits();
    }

    /// Reserves more sequences when few are left. For a tier without a journal.
    pub(crate) fn tend(&self) {
        self.log.tend();
    }

    /// Somebody waits until the last invalidation is durable.
    pub(crate) fn want_commit(&self) {
        self.log.want_commit();
    }

    /// Waits until invalidations are wanted, and writes them. For the thread that commits; `false` once it is to end.
    pub(crate) fn wait_and_commit(&self, for_at_most: Duration) -> bool {
        let goes_on = self.log.wait_and_tend(for_at_most);
        self.tell_commits();
        goes_on
    }

    /// Ends [`Meta::wait_and_commit`].
    pub(crate) fn stop(&self) {
        self.log.stop();
    }

    /// Whether journal records take so much room that segments with tombstones should be sealed early.
    pub(crate) fn wants_seal(&self) -> bool {
        self.log.wants_seal()
    }

    /// Turns the tier off if the meta zones take nothing any more. In mode `clean` it goes on: without them no start
    /// keeps anything, and there is nothing else that they are needed for before the next flush.
    pub(crate) fn check_zones(&self) {
        if self.log.is_broken() && self.recover != Recover::Clean {
            self.turn_off("the meta zones take nothing any more");
        }
    }

    /// Invalidations up to this one are durable.
    pub(crate) fn committed(&self) -> Commit {
        Commit(self.log.committed())
    }

    /// Whether no invalidation will ever be durable again.
    pub(crate) fn commits_nothing(&self) -> bool {
        self.log.is_broken()
    }

    /// From now on `listener` is written to when commits become durable.
    pub(crate) fn listen(&self, listener: &Arc<OwnedFd>) {
        self.listeners.lock().expect("no panic under this lock").push(Arc::downgrade(listener));
    }

    fn tell_commits(&self) {
        let committed = if self.commits_nothing() { u64::MAX } else { self.log.committed() };
        if self.told.swap(committed, SeqCst) != committed {
            self.tell();
        }
    }

    /// Tells the listeners that there is news: of commits, or of room.
    pub(crate) fn tell(&self) {
        let mut listeners = self.listeners.lock().expect("no panic under this lock");
        listeners.retain(|listener| {
            let Some(event) = listener.upgrade() else { return false };
            let _ = rustix::io::write(&*event, &1u64.to_ne_bytes());
            true
        });
    }

    /// Marks the device as cleanly closed.
    ///
    /// # Errors
    /// Of the device: then it is not cleanly closed.
    pub(crate) fn close(&self, cas_floor: u64) -> Result<(), DeviceError> {
        self.log.close(cas_floor)
    }

    /// Memory taken by stamps, bytes.
    pub(crate) fn stamps_bytes(&self) -> u64 {
        self.stamps.bytes()
    }

    /// Memory taken by the journal, bytes.
    pub(crate) fn journal_bytes(&self) -> u64 {
        self.log.bytes()
    }
}
