//! Writers: one at a time per bucket.

use crate::bucket::{
    Bucket, MAIN_ENTRIES, SUB_ENTRIES, SUBS_MAX, Sub, VERSION_ONE, WRITER, empty_slot, has_subs, number,
    number_for, numbers, publish, with_number,
};
use crate::entry::{Entry, direction, identity, pack, tag_word, unpack, warmth_of};
use crate::holds_key::HoldsKey;
use crate::index::{Index, Snapshot};
use crate::shim::{AtomicU64, pause};
use larder_item::{KeyHash, Location};
use std::sync::atomic::Ordering;

/// Two sub-buckets are joined when they hold at most this many entries together; below their capacity, so that the
/// next insert does not split them again.
const JOINED_MAX: usize = if cfg!(loom) { 1 } else { SUB_ENTRIES - 2 };

/// Below this many buckets every insert looks whether the index should grow; from there on one in
/// [`SAMPLE`] of a thread's inserts does.
const SAMPLED_FROM_BUCKETS: u64 = 4096;
const SAMPLE: u64 = 64;

/// An entry that a writer found in its bucket, and where.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The entry as it was when found.
    pub entry: Entry,
    identity: u64,
    slot: SlotName,
}

/// A slot of a bucket: 0..7 in its own line, `sub-bucket number * 8 + k` in a sub-bucket.
type SlotName = usize;

/// The bucket has no room for another entry of this tag. Remove something and insert again.
#[derive(Clone, Copy, Debug)]
pub struct Full {
    /// The least warm entry among those whose removal makes room.
    pub victim: Found,
}

/// The exclusive right to write one bucket. Readers go on meanwhile, and find what they find; those that find nothing
/// wait for the drop, so hold it for as little as can be.
pub struct BucketGuard<'i> {
    index: &'i Index,
    bucket: &'i Bucket,
    place: u64,
    hash: KeyHash,
    /// The header to be stored by the unlock, without the writer bit; its sub-bucket numbers are ahead of those in
    /// the bucket.
    header: u64,
    changed: bool,
}

impl Index {
    /// Waits for the writer bit of the bucket of `hash`.
    #[inline]
    pub fn lock(&self, hash: KeyHash) -> BucketGuard<'_> {
        loop {
            let place = self.place(hash);
            let guard = self.lock_place(place, hash);
            // A split of this bucket counts the new one before it unlocks this one, so whoever has the bit sees it.
            if self.place(hash) == place {
                return guard;
            }
        }
    }

    /// Waits for the writer bit of the bucket at `place`.
    #[inline]
    pub(crate) fn lock_place(&self, place: u64, hash: KeyHash) -> BucketGuard<'_> {
        let mut turns = 0;
        loop {
            let header = self.bucket(place).header.load(Ordering::Relaxed);
            if header & WRITER == 0
                && let Some(guard) = self.try_lock_place(place, hash, header)
            {
                return guard;
            }
            pause(&mut turns);
        }
    }

    /// Takes the writer bit if the header is still `header`.
    #[inline]
    pub(crate) fn try_lock_place(&self, place: u64, hash: KeyHash, header: u64) -> Option<BucketGuard<'_>> {
        let bucket = self.bucket(place);
        // Acquire, pairs with the Release in `BucketGuard::drop`: the last writer's changes are seen.
        bucket
            .header
            .compare_exchange(header, header | WRITER, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| BucketGuard { index: self, bucket, place, hash, header, changed: false })
    }

    /// Takes the writer bit of a bucket that nobody else can reach yet.
    pub(crate) fn lock_unborn(&self, place: u64) -> BucketGuard<'_> {
        let bucket = self.bucket(place);
        let header = bucket.header.load(Ordering::Relaxed);
        // Relaxed: published by the Release store of `buckets` in `split`.
        bucket.header.store(header | WRITER, Ordering::Relaxed);
        BucketGuard { index: self, bucket, place, hash: KeyHash(place), header, changed: true }
    }
}

impl Drop for BucketGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let next = if self.changed { self.header.wrapping_add(VERSION_ONE) } else { self.header };
        // Release, pairs with the Acquire of the next writer's compare-and-swap and of the readers' first header load:
        // whoever sees the bucket unlocked sees its entries and the sub-buckets it names.
        self.bucket.header.store(next, Ordering::Release);
    }
}

impl<'i> BucketGuard<'i> {
    /// The hash the bucket was locked for.
    #[inline]
    pub fn hash(&self) -> KeyHash {
        self.hash
    }

    /// The entry of `key`, which must be the key whose hash was locked.
    #[inline]
    pub fn find(&self, key: &[u8], owner: &impl HoldsKey) -> Option<Found> {
        let tag = tag_word(self.hash);
        self.reachable().find(|found| {
            found.identity ^ tag < 1 << crate::entry::TAG_SHIFT && owner.holds(found.entry.location, key)
        })
    }

    /// The entry of the locked hash that points at `at`.
    #[inline]
    pub fn find_at(&self, at: Location) -> Option<Found> {
        let wanted = pack(self.hash.tag(), at, 0);
        self.reachable().find(|found| found.identity == wanted)
    }

    /// All entries of the bucket, those of other hashes too.
    pub fn entries(&self) -> impl Iterator<Item = Found> {
        let subs =
            numbers(self.header).flat_map(|number| found_in(&self.sub(number).entries, number * SUB_ENTRIES));
        found_in(&self.bucket.entries, 0).chain(subs)
    }

    /// The entries whose slots the locked hash could use: the bucket's line and one sub-bucket.
    #[inline]
    fn reachable(&self) -> impl Iterator<Item = Found> {
        let number = number_for(self.header, tag_word(self.hash));
        let sub = (number != 0).then(|| found_in(&self.sub(number).entries, number * SUB_ENTRIES));
        found_in(&self.bucket.entries, 0).chain(sub.into_iter().flatten())
    }

    /// Adds an entry for the locked hash. The key must not have one yet, and the record at `at` must be complete: any
    /// reader may read it from now on.
    ///
    /// # Errors
    /// [`Full`] if the bucket has as many entries as it can hold, or there is no memory for another sub-bucket.
    #[inline]
    pub fn insert(&mut self, at: Location, warmth: u8) -> Result<(), Full> {
        if !self.put(pack(self.hash.tag(), at, warmth)) {
            return Err(Full { victim: self.victim() });
        }
        self.index.inserted();
        Ok(())
    }

    /// Points the entry at `new`, a complete record of the same key. Returns false, and does nothing, if `found` was
    /// removed since.
    #[inline]
    pub fn replace(&mut self, found: &Found, new: Location, warmth: u8) -> bool {
        let Some(slot) = self.slot_of(found) else { return false };
        let tag = found.identity & u64::MAX << crate::entry::TAG_SHIFT;
        let word = pack((tag >> crate::entry::TAG_SHIFT) as u16, new, warmth);
        publish(slot, word);
        self.changed = true;
        true
    }

    /// Removes the entry. Returns false if it was removed already.
    #[inline]
    pub fn remove(&mut self, found: &Found) -> bool {
        let Some(slot) = self.slot_of(found) else { return false };
        publish(slot, 0);
        self.changed = true;
        self.index.count.take_one();
        if has_subs(self.header) {
            self.tidy();
        }
        true
    }

    /// The slot that `found` is in now. Inserting and removing other entries may have moved it.
    #[inline]
    fn slot_of(&self, found: &Found) -> Option<&'i AtomicU64> {
        let holds = |slot: &&AtomicU64| identity(slot.load(Ordering::Relaxed)) == found.identity;
        let slot = match found.slot {
            k if k < MAIN_ENTRIES => Some(&self.bucket.entries[k]),
            name if numbers(self.header).any(|n| n == name / SUB_ENTRIES) => {
                Some(&self.sub(name / SUB_ENTRIES).entries[name % SUB_ENTRIES])
            }
            _ => None,
        };
        slot.filter(holds).or_else(|| self.slots().find(holds))
    }

    /// All slots of the bucket.
    fn slots(&self) -> impl Iterator<Item = &'i AtomicU64> {
        self.bucket
            .entries
            .iter()
            .chain(numbers(self.header).flat_map(|number| self.sub(number).entries.iter()))
    }

    /// Sub-bucket `number` of this bucket.
    #[inline]
    fn sub(&self, number: usize) -> &'i Sub {
        self.index.pool.sub(self.place, number).expect("the chunk of a sub-bucket in use stays in its table")
    }

    /// The least warm entry in the slots that the locked hash could use.
    #[cold]
    fn victim(&self) -> Found {
        self.reachable().min_by_key(|found| found.entry.warmth).expect("a bucket without room has entries")
    }

    /// Stores an entry word where there is room, making room in sub-buckets if need be. False if there is none.
    #[inline]
    pub(crate) fn put(&mut self, word: u64) -> bool {
        self.changed = true;
        if let Some(slot) = empty_slot(&self.bucket.entries) {
            publish(slot, word);
            return true;
        }
        self.put_in_sub(word)
    }

    fn put_in_sub(&mut self, word: u64) -> bool {
        loop {
            let number = number_for(self.header, word);
            if number == 0 {
                let Some(number) = self.roomy_sub().or_else(|| self.index.pool.take(self.place)) else {
                    break;
                };
                self.point(0, number);
            } else if let Some(slot) = empty_slot(&self.sub(number).entries) {
                publish(slot, word);
                return true;
            } else if !self.divide(number) {
                break;
            }
        }
        self.put_in_place_of_a_mover(word)
    }

    /// A sub-bucket with at least two empty slots.
    fn roomy_sub(&self) -> Option<usize> {
        numbers(self.header).find(|number| self.sub(*number).count() + 2 <= SUB_ENTRIES)
    }

    /// Lets all directions that point at sub-bucket `from` point at `to`.
    fn point(&mut self, from: usize, to: usize) {
        for d in 0..SUBS_MAX {
            if number(self.header, d) == from {
                self.header = with_number(self.header, d, to);
            }
        }
    }

    /// Splits a sub-bucket that serves several directions in two. False if it serves one, or there is no other.
    fn divide(&mut self, from: usize) -> bool {
        let served = (0..SUBS_MAX).filter(|d| number(self.header, *d) == from).count();
        if served < 2 {
            return false;
        }
        let Some(to) = self.index.pool.take(self.place) else { return false };
        let second_half = (0..SUBS_MAX).filter(|d| number(self.header, *d) == from).skip(served / 2);
        self.header = second_half.fold(self.header, |header, d| with_number(header, d, to));
        let (source, target) = (self.sub(from), self.sub(to));
        for (slot, free) in source.entries.iter().zip(&target.entries) {
            let word = slot.load(Ordering::Relaxed);
            if word != 0 && number_for(self.header, word) == to {
                publish(free, word);
                publish(slot, 0);
            }
        }
        true
    }

    /// Room in the bucket's own line, by moving one of its entries to that entry's own sub-bucket.
    #[cold]
    fn put_in_place_of_a_mover(&mut self, word: u64) -> bool {
        let bucket = self.bucket;
        for slot in &bucket.entries {
            let mover = slot.load(Ordering::Relaxed);
            while direction(mover) != direction(word) {
                let number = number_for(self.header, mover);
                if number == 0 {
                    break;
                }
                if let Some(free) = empty_slot(&self.sub(number).entries) {
                    publish(free, mover);
                    publish(slot, word);
                    return true;
                }
                if !self.divide(number) {
                    break;
                }
            }
        }
        false
    }

    /// Puts things right after entries have gone: fills the bucket's line from its sub-buckets, joins sub-buckets that
    /// have become small, and gives back empty ones.
    pub(crate) fn tidy(&mut self) {
        let pool = &self.index.pool;
        while let Some(hole) = empty_slot(&self.bucket.entries)
            && let Some(from) = self.warmest_in_subs()
        {
            publish(hole, from.load(Ordering::Relaxed));
            publish(from, 0);
        }
        let mut counts = numbers(self.header).map(|n| (n, self.sub(n).count())).collect_small();
        while let Some((from, into)) = counts.pair_to_join() {
            for slot in &self.sub(from).entries {
                let word = slot.load(Ordering::Relaxed);
                if word != 0 {
                    let free = empty_slot(&self.sub(into).entries).expect("the two fit into one");
                    publish(free, word);
                    publish(slot, 0);
                }
            }
            self.point(from, into);
            pool.give_back(self.place, from);
        }
        if let Some(last) = counts.only_empty_one() {
            self.point(last, 0);
            pool.give_back(self.place, last);
        }
    }

    /// The warmest entry outside the bucket's line: it gains most from moving there.
    fn warmest_in_subs(&self) -> Option<&'i AtomicU64> {
        self.slots()
            .skip(MAIN_ENTRIES)
            .filter(|slot| slot.load(Ordering::Relaxed) != 0)
            .max_by_key(|slot| warmth_of(slot.load(Ordering::Relaxed)))
    }

    /// Moves sub-buckets to lower numbers where there are free ones, so that the neighbourhood's last chunks empty.
    pub(crate) fn lower_subs(&mut self) {
        let (index, place) = (self.index, self.place);
        for from in numbers(self.header) {
            let Some(to) = index.pool.take_below(place, from) else { continue };
            let (source, target) = (self.sub(from), self.sub(to));
            for (slot, free) in source.entries.iter().zip(&target.entries) {
                publish(free, slot.load(Ordering::Relaxed));
                publish(slot, 0);
            }
            self.point(from, to);
            index.pool.give_back(place, from);
            self.changed = true;
        }
    }

    /// The words that are `wanted`, the warmest first.
    pub(crate) fn words_warmest_first(&self, wanted: impl Fn(u64) -> bool) -> Snapshot {
        let mut seen = Snapshot::empty(self.header);
        self.slots()
            .map(|slot| slot.load(Ordering::Relaxed))
            .filter(|word| wanted(*word))
            .for_each(|word| seen.push(word));
        seen.sort_warmest_first();
        seen
    }

    /// Empties the slots whose word `leaves`, then tidies.
    pub(crate) fn clear(&mut self, mut leaves: impl FnMut(u64) -> bool) {
        self.changed = true;
        for slot in self.slots() {
            let word = slot.load(Ordering::Relaxed);
            if word != 0 && leaves(word) {
                publish(slot, 0);
            }
        }
        self.tidy();
    }
}

impl Index {
    /// Counts an insert, and now and then looks whether the index has become too full.
    #[inline]
    fn inserted(&self) {
        let own = self.count.add_one();
        if own.is_multiple_of(SAMPLE) || self.buckets.load(Ordering::Relaxed) < SAMPLED_FROM_BUCKETS {
            self.look_whether_to_grow();
        }
    }
}

/// The entries in `slots`, the first of which is called `first`.
#[inline]
fn found_in<const N: usize>(slots: &[AtomicU64; N], first: SlotName) -> impl Iterator<Item = Found> + '_ {
    slots.iter().enumerate().filter_map(move |(k, slot)| {
        let word = slot.load(Ordering::Relaxed);
        (word != 0).then(|| Found { entry: unpack(word), identity: identity(word), slot: first + k })
    })
}

/// How many entries each sub-bucket of one bucket holds.
struct Counts {
    len: usize,
    counts: [(usize, usize); SUBS_MAX],
}

trait CollectSmall {
    fn collect_small(self) -> Counts;
}

impl<I: Iterator<Item = (usize, usize)>> CollectSmall for I {
    fn collect_small(self) -> Counts {
        let mut small = Counts { len: 0, counts: [(0, 0); SUBS_MAX] };
        for pair in self {
            small.counts[small.len] = pair;
            small.len += 1;
        }
        small
    }
}

impl Counts {
    /// Two sub-buckets that fit into one, the first to be moved into the second; reckons as if that were done.
    fn pair_to_join(&mut self) -> Option<(usize, usize)> {
        for from in 1..self.len {
            for into in 0..from {
                let together = self.counts[from].1 + self.counts[into].1;
                if together <= JOINED_MAX {
                    let pair = (self.counts[from].0, self.counts[into].0);
                    self.counts[into].1 = together;
                    self.len -= 1;
                    self.counts[from] = self.counts[self.len];
                    return Some(pair);
                }
            }
        }
        None
    }

    /// The only sub-bucket left, if it is empty.
    fn only_empty_one(&self) -> Option<usize> {
        (self.len == 1 && self.counts[0].1 == 0).then_some(self.counts[0].0)
    }
}
