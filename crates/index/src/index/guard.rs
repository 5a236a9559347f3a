//! Writers: one at a time per bucket.

use super::{Index, level_of};
use crate::bucket::{
    Bucket, VERSION_ONE, WRITER, empty_slot, publish, run_first, run_size, sub_for, subs, tag_hints, with_run,
};
use crate::entry::{Entry, Format, identity, tag_word, warmth_of};
use crate::holds_key::HoldsKey;
use crate::shim::{AtomicU64, pause};
use crate::snapshot::Snapshot;
use crate::sub_bucket::{RUN_SIZE_MAX, SUB_ENTRIES, SubBucket, SubBucketPosition};
use larder_item::{KeyHash, Location};
use std::sync::atomic::Ordering;

/// A run is halved when every two sub-buckets that become one have at most this many entries together. The number
/// is below the capacity, so that the next insert does not double the run again.
const JOINED_MAX: usize = if cfg!(loom) { 1 } else { SUB_ENTRIES - 2 };

/// With fewer buckets than this, every insert checks whether the index should grow. With more, one in [`SAMPLE`] of
/// a thread's inserts does.
const SAMPLED_FROM_BUCKETS: u64 = 4096;
const SAMPLE: u64 = 64;

/// An entry that a writer found in its bucket, and its slot.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The entry as it was when it was found.
    pub entry: Entry,
    identity: u64,
    slot: SlotName,
}

/// A slot of a bucket: 0..7 in its own line, `(position of the sub-bucket + 1) * 8 + k` in a sub-bucket.
type SlotName = u64;

/// The name of the first slot of a sub-bucket.
#[inline]
fn first_slot_of(position: SubBucketPosition) -> SlotName {
    (u64::from(position.0) + 1) * 8
}

/// The bucket has no room for another entry with this tag. Remove an entry and insert again.
#[derive(Clone, Copy, Debug)]
pub struct Full {
    /// The least warm entry among those whose removal makes room.
    pub victim: Found,
}

/// The exclusive right to write one bucket. Readers continue meanwhile. A reader that finds nothing waits until the
/// guard is dropped, so hold a guard briefly.
pub struct BucketGuard<'i> {
    index: &'i Index,
    bucket: &'i Bucket,
    position: u64,
    hash: KeyHash,
    /// The header that the unlock will store, without the writer bit. Its run may already differ from the run in
    /// the bucket.
    header: u64,
    changed: bool,
}

impl Index {
    /// Waits for the writer bit of the bucket of `hash`, and takes it.
    #[inline]
    pub fn lock(&self, hash: KeyHash) -> BucketGuard<'_> {
        loop {
            let position = self.position(hash);
            let guard = self.lock_position(position, hash);
            // A split or a merge of this bucket stores the new number of buckets before it unlocks this one, so the
            // holder of the writer bit sees the new number.
            if self.position(hash) == position {
                return guard;
            }
        }
    }

    /// Waits for the writer bit of the bucket at `position`, and takes it.
    #[inline]
    pub(super) fn lock_position(&self, position: u64, hash: KeyHash) -> BucketGuard<'_> {
        let mut turns = 0;
        loop {
            let header = self.bucket(position).header.load(Ordering::Relaxed);
            if header & WRITER == 0
                && let Some(guard) = self.try_lock_position(position, hash, header)
            {
                return guard;
            }
            pause(&mut turns);
        }
    }

    /// Takes the writer bit if the header is still `header`.
    #[inline]
    pub(super) fn try_lock_position(
        &self,
        position: u64,
        hash: KeyHash,
        header: u64,
    ) -> Option<BucketGuard<'_>> {
        let bucket = self.bucket(position);
        // Acquire pairs with the Release in `BucketGuard::drop`: the changes of the last writer are visible.
        bucket
            .header
            .compare_exchange(header, header | WRITER, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| BucketGuard { index: self, bucket, position, hash, header, changed: false })
    }
}

impl Drop for BucketGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let next = if self.changed { self.header.wrapping_add(VERSION_ONE) } else { self.header };
        // Release pairs with the Acquire of the next writer's compare-and-swap and of the readers' first load of
        // the header: a thread that sees the bucket unlocked sees its entries and the sub-buckets it names.
        self.bucket.header.store(next, Ordering::Release);
    }
}

impl<'i> BucketGuard<'i> {
    /// The entry of `key`. The hash of `key` must be the one that was locked.
    #[inline]
    pub fn find(&self, key: &[u8], owner: &impl HoldsKey) -> Option<Found> {
        let holds = |found: &Found| owner.holds(found.entry.location, key);
        self.find_among(&self.bucket.entries, 0, holds).or_else(|| {
            let position = sub_for(self.header, tag_word(self.hash))?;
            self.find_among(&self.sub(position).entries, first_slot_of(position), holds)
        })
    }

    /// The entry with the tag of the locked hash for which `holds`, among slots of which the first is called `first`.
    #[inline(always)]
    fn find_among<const N: usize>(
        &self,
        slots: &[AtomicU64; N],
        first: SlotName,
        holds: impl Fn(&Found) -> bool,
    ) -> Option<Found> {
        let mut matches = tag_hints(slots, self.hash.tag());
        while matches != 0 {
            let k = matches.trailing_zeros();
            // Relaxed: only the holder of the writer bit, which this thread is, puts other entries here.
            let word = slots[k as usize].load(Ordering::Relaxed);
            let found = Found::new(self.format(), word, first + u64::from(k));
            if word != 0 && holds(&found) {
                return Some(found);
            }
            matches &= matches - 1;
        }
        None
    }

    fn format(&self) -> Format {
        self.index.format
    }

    /// The entry of the locked hash that points at `at`.
    #[inline]
    pub fn find_at(&self, at: Location) -> Option<Found> {
        self.find_at_among(&self.bucket.entries, 0, at).or_else(|| {
            let position = sub_for(self.header, tag_word(self.hash))?;
            self.find_at_among(&self.sub(position).entries, first_slot_of(position), at)
        })
    }

    #[inline(always)]
    fn find_at_among<const N: usize>(
        &self,
        slots: &[AtomicU64; N],
        first: SlotName,
        at: Location,
    ) -> Option<Found> {
        let words = slots.iter().map(|slot| slot.load(Ordering::Relaxed)).zip(first..);
        let mut here = words.filter(|(word, _)| self.format().is_at(*word, self.hash, at));
        here.next().map(|(word, slot)| Found::new(self.format(), word, slot))
    }

    /// All entries of the bucket, including those of other hashes.
    pub fn entries(&self) -> impl Iterator<Item = Found> {
        let below = subs(self.header).flat_map(|position| {
            found_in(self.format(), &self.sub(position).entries, first_slot_of(position))
        });
        found_in(self.format(), &self.bucket.entries, 0).chain(below)
    }

    /// The entries in slots that the locked hash could use: the bucket's own line and one sub-bucket.
    #[inline]
    fn reachable(&self) -> impl Iterator<Item = Found> {
        let below = sub_for(self.header, tag_word(self.hash));
        let below = below
            .map(|position| found_in(self.format(), &self.sub(position).entries, first_slot_of(position)));
        found_in(self.format(), &self.bucket.entries, 0).chain(below.into_iter().flatten())
    }

    /// Adds an entry for the locked hash. The key must have no entry yet, and the record at `at` must be complete:
    /// from now on any reader may read it.
    ///
    /// # Errors
    /// [`Full`] if the bucket has as many entries as it can hold, or the pool has no further sub-bucket.
    #[inline]
    pub fn insert(&mut self, at: Location, warmth: u8) -> Result<(), Full> {
        // Only a split or a merge of this bucket changes its level, and needs its writer bit.
        let level = level_of(self.position, self.index.buckets());
        if !self.put(self.format().pack(self.hash, level, at, warmth)) {
            return Err(Full { victim: self.victim() });
        }
        self.index.inserted();
        Ok(())
    }

    /// Points the entry at `new`, a complete record of the same key. Returns `false` and does nothing if `found`
    /// has been removed since.
    #[inline]
    pub fn replace(&mut self, found: &Found, new: Location, warmth: u8) -> bool {
        let Some(slot) = self.slot_of(found) else { return false };
        publish(slot, self.format().moved(found.identity, new, warmth));
        self.changed = true;
        true
    }

    /// Removes the entry. Returns `false` if it has already been removed.
    #[inline]
    pub fn remove(&mut self, found: &Found) -> bool {
        let Some(slot) = self.slot_of(found) else { return false };
        publish(slot, 0);
        self.changed = true;
        self.index.count.take_one();
        if run_size(self.header) != 0 {
            self.tidy();
        }
        true
    }

    /// The slot in which `found` is now. Inserting and removing other entries may have moved it.
    #[inline]
    fn slot_of(&self, found: &Found) -> Option<&'i AtomicU64> {
        let holds = |slot: &&AtomicU64| identity(slot.load(Ordering::Relaxed)) == found.identity;
        let k = (found.slot % 8) as usize;
        let slot = match found.slot / 8 {
            0 => Some(&self.bucket.entries[k]),
            _ => subs(self.header)
                .find(|position| first_slot_of(*position) == found.slot - k as u64)
                .map(|position| &self.sub(position).entries[k]),
        };
        slot.filter(holds).or_else(|| self.slots().find(holds))
    }

    /// All slots of the bucket.
    fn slots(&self) -> impl Iterator<Item = &'i AtomicU64> {
        self.bucket.entries.iter().chain(self.run(self.header).iter().flat_map(|sub| &sub.entries))
    }

    /// The sub-buckets of the run that `header` names.
    #[inline(always)]
    fn run(&self, header: u64) -> &'i [SubBucket] {
        let first = run_first(header).0 as usize;
        let count = 1 << run_size(header) >> 1;
        self.index.pool.subs().get(first..first + count).unwrap_or_default()
    }

    /// The sub-bucket at `position`, which belongs to this bucket's run.
    #[inline]
    fn sub(&self, position: SubBucketPosition) -> &'i SubBucket {
        self.index.pool.sub(position)
    }

    /// The least warm entry in the slots that the locked hash could use.
    #[cold]
    fn victim(&self) -> Found {
        self.victim_by(|entry| entry.warmth)
    }

    /// After [`Full`]: of the entries whose removal makes room, the one that comes first in the order of `key`.
    ///
    /// # Panics
    /// If there is none: the bucket is not full.
    #[cold]
    pub fn victim_by<K: Ord>(&self, mut key: impl FnMut(&Entry) -> K) -> Found {
        self.reachable().min_by_key(|found| key(&found.entry)).expect("a bucket without room has entries")
    }

    /// Stores an entry word, and makes room in sub-buckets if necessary. Returns `false` if there is no room.
    #[inline]
    pub(super) fn put(&mut self, word: u64) -> bool {
        self.changed = true;
        if let Some(slot) = empty_slot(&self.bucket.entries) {
            publish(slot, word);
            return true;
        }
        self.put_in_sub(word)
    }

    fn put_in_sub(&mut self, word: u64) -> bool {
        loop {
            if self.put_in_own_sub(word) {
                return true;
            }
            if !self.double_run() {
                return self.put_in_place_of_a_mover(word);
            }
        }
    }

    /// Stores an entry word in its sub-bucket, if that has room.
    #[inline]
    fn put_in_own_sub(&self, word: u64) -> bool {
        let free = sub_for(self.header, word).and_then(|position| empty_slot(&self.sub(position).entries));
        free.inspect(|slot| publish(slot, word)).is_some()
    }

    /// Gives the bucket a run of twice the length and moves the entries of the old run there. Returns `false` if
    /// the bucket has the longest run, or the pool has no longer one.
    fn double_run(&mut self) -> bool {
        let (old, size) = (self.header, run_size(self.header));
        if size == RUN_SIZE_MAX {
            return false;
        }
        let Some(first) = self.index.pool.take(self.position, size + 1) else { return false };
        self.header = with_run(old, first, size + 1);
        for position in subs(old) {
            self.empty_sub(position);
        }
        if size != 0 {
            self.index.pool.give_back(self.position, run_first(old), size);
        }
        true
    }

    /// Moves the entries of a sub-bucket to the sub-buckets that the current header assigns them.
    fn empty_sub(&self, position: SubBucketPosition) {
        for slot in &self.sub(position).entries {
            let word = slot.load(Ordering::Relaxed);
            if word != 0 {
                let is_put = self.put_in_own_sub(word);
                debug_assert!(is_put, "a run was changed for one without room");
                publish(slot, 0);
            }
        }
    }

    /// Makes room in the bucket's own line: moves one of its entries to that entry's sub-bucket.
    #[cold]
    fn put_in_place_of_a_mover(&mut self, word: u64) -> bool {
        let mut slots = self.bucket.entries.iter();
        let moved = slots.find(|slot| self.put_in_own_sub(slot.load(Ordering::Relaxed)));
        moved.inspect(|slot| publish(slot, word)).is_some()
    }

    /// Restores the order after entries were removed: fills the bucket's own line from its sub-buckets, the warmest
    /// entries first, and returns sub-buckets that are no longer needed.
    pub(super) fn tidy(&mut self) {
        let run = self.run(self.header);
        let (mut left, mut warmths) = (0, 0u32);
        for sub in run {
            for slot in &sub.entries {
                let word = slot.load(Ordering::Relaxed);
                left += u32::from(word != 0);
                warmths |= u32::from(word != 0) << warmth_of(word);
            }
        }
        let is_empty = |slot: &&AtomicU64| slot.load(Ordering::Relaxed) == 0;
        let mut holes = self.bucket.entries.iter().filter(is_empty);
        'filled: while warmths != 0 {
            let warmest = warmths.ilog2();
            warmths ^= 1 << warmest;
            for from in run.iter().flat_map(|sub| &sub.entries) {
                let word = from.load(Ordering::Relaxed);
                if word != 0 && u32::from(warmth_of(word)) == warmest {
                    let Some(hole) = holes.next() else { break 'filled };
                    publish(hole, word);
                    publish(from, 0);
                    left -= 1;
                }
            }
        }
        if left == 0 && run_size(self.header) != 0 {
            let old = self.header;
            self.header = with_run(old, SubBucketPosition(0), 0);
            self.index.pool.give_back(self.position, run_first(old), run_size(old));
        }
        while self.halve_run() {}
    }

    /// Moves to a run of half the length if the remaining entries fit. Returns whether it did.
    fn halve_run(&mut self) -> bool {
        let (old, size, first) = (self.header, run_size(self.header), run_first(self.header));
        // A run without entries was returned by `tidy`.
        if size < 2 {
            return false;
        }
        let half = 1u32 << (size - 2);
        let joined = |pair: &[SubBucket]| pair.iter().map(SubBucket::count).sum::<usize>();
        if self.run(old).chunks_exact(2).any(|pair| joined(pair) > JOINED_MAX) {
            return false;
        }
        if let Some(shorter) = self.index.pool.take_exact(self.position, size - 1) {
            self.header = with_run(old, shorter, size - 1);
            subs(old).for_each(|position| self.empty_sub(position));
            self.index.pool.give_back(self.position, first, size);
            return true;
        }
        self.header = with_run(old, first, size - 1);
        // In order, because a sub-bucket must be empty before another one's entries arrive in it. The first keeps
        // its position.
        subs(old).skip(1).for_each(|position| self.empty_sub(position));
        self.index.pool.give_back(self.position, SubBucketPosition(first.0 + half), size - 1);
        true
    }

    /// Moves a run that is not before the sub-bucket `end` to one that is, as the pool has been told. Returns `false`
    /// if the pool has none.
    pub(super) fn move_run_below(&mut self, end: u32) -> bool {
        let (old, size, first) = (self.header, run_size(self.header), run_first(self.header));
        if size == 0 || first.0 < end {
            return true;
        }
        let Some(to) = self.index.pool.take(self.position, size) else { return false };
        self.changed = true;
        self.header = with_run(old, to, size);
        subs(old).for_each(|position| self.empty_sub(position));
        self.index.pool.give_back(self.position, first, size);
        true
    }

    /// Empties the slots whose word `leaves`, then restores the order.
    #[inline(always)]
    pub(super) fn clear(&mut self, leaves: impl Fn(u64) -> bool) {
        self.changed = true;
        self.each_slot(|slot, word| {
            if leaves(word) {
                publish(slot, 0);
            }
        });
        if run_size(self.header) != 0 {
            self.tidy();
        }
    }

    /// Changes the words of all entries, without a change of tag, location or warmth.
    pub(super) fn renew(&mut self, renewed: impl Fn(u64) -> u64) {
        self.changed = true;
        self.each_slot(|slot, word| publish(slot, renewed(word)));
    }

    /// Calls `f` with each slot that has an entry, and with its word.
    #[inline(always)]
    fn each_slot(&self, mut f: impl FnMut(&'i AtomicU64, u64)) {
        // Loops of a fixed length; an iterator over all slots would ask at each one which line it is in.
        for slot in &self.bucket.entries {
            let word = slot.load(Ordering::Relaxed);
            if word != 0 {
                f(slot, word);
            }
        }
        for sub in self.run(self.header) {
            for slot in &sub.entries {
                let word = slot.load(Ordering::Relaxed);
                if word != 0 {
                    f(slot, word);
                }
            }
        }
    }

    /// Copies all entries to `to`, which has entries of its own, after `renewed` has changed their words; those that
    /// were there are changed by `renewed_there`. The entries stay here as well. Returns `false`, and leaves `to` as it
    /// was, if it has no room for them.
    pub(super) fn copy_all(
        &self,
        to: &mut BucketGuard<'_>,
        renewed: impl Fn(u64) -> u64,
        renewed_there: impl Fn(u64) -> u64,
    ) -> bool {
        let (mut copied, mut are_put) = (Snapshot::empty(0), true);
        self.each_slot(|_, word| {
            are_put = are_put && to.put(renewed(word));
            if are_put {
                copied.push(identity(renewed(word)));
            }
        });
        let is_copied = |word: u64| copied.words().contains(&identity(word));
        if are_put {
            to.renew(|word| if is_copied(word) { word } else { renewed_there(word) });
        } else {
            to.clear(is_copied);
        }
        are_put
    }

    /// Moves the entries that `moves` names to `to`, an empty bucket, after `renewed` has changed their words. They
    /// stay here as well. Returns `false`, and leaves `to` empty, if the pool has no sub-buckets for them.
    #[inline(always)]
    pub(super) fn copy_movers(
        &self,
        to: &mut BucketGuard<'_>,
        moves: impl Fn(u64) -> bool,
        renewed: impl Fn(u64) -> u64,
    ) -> bool {
        // A reader may have read an older header of `to`, before the index shrank.
        to.changed = true;
        let (mut movers, mut rest) = (0, None);
        self.each_slot(|_, word| {
            if moves(word) {
                match to.bucket.entries.get(movers) {
                    Some(slot) => publish(slot, renewed(word)),
                    None => rest.get_or_insert_with(|| Snapshot::empty(0)).push(renewed(word)),
                }
                movers += 1;
            }
        });
        let Some(mut rest) = rest else { return true };
        // The warmest go to the bucket's own line.
        to.each_slot(|slot, word| {
            rest.push(word);
            publish(slot, 0);
        });
        rest.sort_warmest_first();
        let are_put = rest.words().iter().all(|word| to.put(*word));
        if !are_put {
            to.clear(|_| true);
        }
        are_put
    }
}

impl Index {
    /// Counts an insert. Now and then checks whether the index has become too full.
    #[inline]
    fn inserted(&self) {
        let own = self.count.add_one();
        if own.is_multiple_of(SAMPLE) || self.buckets.load(Ordering::Relaxed) < SAMPLED_FROM_BUCKETS {
            self.look_whether_to_grow();
        }
    }
}

impl Found {
    #[inline(always)]
    fn new(format: Format, word: u64, slot: SlotName) -> Found {
        Found { entry: format.unpack(word), identity: identity(word), slot }
    }
}

/// The entries in `slots`, of which the first slot is called `first`.
#[inline]
fn found_in<const N: usize>(
    format: Format,
    slots: &[AtomicU64; N],
    first: SlotName,
) -> impl Iterator<Item = Found> + '_ {
    let words = slots.iter().map(|slot| slot.load(Ordering::Relaxed)).zip(first..);
    words.filter(|(word, _)| *word != 0).map(move |(word, slot)| Found::new(format, word, slot))
}
