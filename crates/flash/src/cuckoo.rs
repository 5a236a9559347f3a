//! A hash table of small slots: a few bits of the hash (the tag) and a payload, in one of two buckets.
//!
//! Readers take no lock and never wait. One writer at a time makes room by moving slots to their other bucket: it
//! writes the copy first, counts the move, and only then overwrites the slot the copy was made of. A reader that saw
//! neither has seen the overwritten slot, hence the count, hence that its own count from before is old: it looks again. The other
//! bucket of a slot follows from its bucket and its tag alone, so a slot moves without its hash being known. What finds no place
//! goes to a small stash.
//!
//! The same entry may be in the table more than once (two keys whose hashes agree that far): each insertion is one entry, each
//! removal takes one.

use crate::shim::{AtomicU64, Mutex, MutexGuard};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Entries that may stand in the stash.
pub(crate) const STASH_SLOTS: usize = if cfg!(loom) { 2 } else { 32 };
/// Buckets looked at for a way to an empty slot.
const SEARCH_MAX: usize = if cfg!(loom) { 8 } else { 512 };

/// Neither of its two buckets has room, nor can be given any, and the stash is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableFull;

/// `SLOTS` slots of `SLOT_BITS` bits a bucket, the upper `TAG_BITS` of each the tag, the rest the payload. A slot of zeros is
/// empty: a payload is never 0. Slots of a bucket share one word, or have 64 bits each.
pub(crate) struct Cuckoo<const SLOTS: usize, const SLOT_BITS: u32, const TAG_BITS: u32> {
    words: Box<[AtomicU64]>,
    buckets: u64,
    /// Slots that were moved since the table began. Goes up between the copy and what overwrites the original.
    moves: AtomicU64,
    stashed: AtomicU64,
    stash: [Stashed; STASH_SLOTS],
    writer: Mutex<Writer>,
}

/// An entry in the stash: its slot, and the lesser of its buckets, which is valid while the slot is not 0.
struct Stashed {
    slot: AtomicU64,
    bucket: AtomicU64,
}

/// A hash, as the table sees it.
#[derive(Clone, Copy)]
struct Place {
    first: u64,
    second: u64,
    tag: u64,
}

/// What only the writer has.
pub(crate) struct Writer {
    entries: u64,
    search: Vec<Step>,
}

/// A bucket that can be reached by moving slots.
struct Step {
    bucket: u64,
    /// The step before it, and the slot in that one's bucket whose other bucket this is.
    from: Option<(usize, usize)>,
}

impl<const SLOTS: usize, const SLOT_BITS: u32, const TAG_BITS: u32> Cuckoo<SLOTS, SLOT_BITS, TAG_BITS> {
    const PAYLOAD_BITS: u32 = SLOT_BITS - TAG_BITS;
    const WORDS: usize = if SLOT_BITS == 64 { SLOTS } else { 1 };
    const SLOT_MASK: u64 = u64::MAX >> (64 - SLOT_BITS);
    /// Bytes of a bucket.
    pub(crate) const BUCKET_BYTES: u64 = 8 * Self::WORDS as u64;

    /// As many buckets as fit into so many bytes, but two at least.
    pub(crate) fn new(bytes_max: u64) -> Self {
        const { assert!(SLOT_BITS == 64 || SLOT_BITS as usize * SLOTS <= 64) };
        let fixed = size_of::<Self>() as u64 + (SEARCH_MAX * size_of::<Step>()) as u64;
        let buckets = (bytes_max.saturating_sub(fixed) / Self::BUCKET_BYTES).clamp(2, u32::MAX as u64);
        let words = buckets * Self::WORDS as u64;
        Cuckoo {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            buckets,
            moves: AtomicU64::new(0),
            stashed: AtomicU64::new(0),
            stash: std::array::from_fn(|_| Stashed { slot: AtomicU64::new(0), bucket: AtomicU64::new(0) }),
            writer: Mutex::new(Writer { entries: 0, search: Vec::with_capacity(SEARCH_MAX) }),
        }
    }

    /// Bytes of memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.words) + SEARCH_MAX * size_of::<Step>()
    }

    /// Slots of all buckets together.
    pub(crate) fn slots(&self) -> u64 {
        self.buckets * SLOTS as u64
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().expect("no panic under this lock")
    }

    /// Entries in the table.
    pub(crate) fn len(&self) -> u64 {
        self.lock().entries
    }

    #[inline]
    fn place(&self, hash: u64) -> Place {
        let mixed = hash.wrapping_mul(0x9FB2_1C65_1E98_DF25);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let tag = mixed & (u64::MAX >> (64 - TAG_BITS));
        let first = ((mixed >> 32) * self.buckets) >> 32;
        Place { first, second: self.other(first, tag), tag }
    }

    /// The other bucket of what has this tag and is in this bucket; the other one's other is this one.
    #[inline]
    fn other(&self, bucket: u64, tag: u64) -> u64 {
        // Not merely a multiple of the tag: then moves would lead to few places, and the table be full too soon.
        let spread = (tag + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let spread = (spread ^ (spread >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32;
        let sum = (spread * self.buckets) >> 32;
        if sum >= bucket { sum - bucket } else { sum + self.buckets - bucket }
    }

    /// The same for all hashes that the table cannot tell from this one; it may be the same for others, hardly ever.
    pub(crate) fn class(&self, hash: u64) -> u64 {
        let place = self.place(hash);
        place.first.min(place.second) << TAG_BITS | place.tag
    }

    #[inline]
    fn word(&self, bucket: u64, slot: usize) -> &AtomicU64 {
        &self.words[bucket as usize * Self::WORDS + if SLOT_BITS == 64 { slot } else { 0 }]
    }

    #[inline]
    fn part(word: u64, slot: usize) -> u64 {
        if SLOT_BITS == 64 { word } else { (word >> (slot as u32 * SLOT_BITS)) & Self::SLOT_MASK }
    }

    fn get(&self, bucket: u64, slot: usize) -> u64 {
        Self::part(self.word(bucket, slot).load(Relaxed), slot)
    }

    /// By the writer only, so that nothing is lost between load and store. Release: pairs with the readers' Acquire, so
    /// that who sees what overwrote a slot sees that it was moved.
    fn set(&self, bucket: u64, slot: usize, value: u64) {
        let word = self.word(bucket, slot);
        if SLOT_BITS == 64 {
            word.store(value, Release);
        } else {
            let shift = slot as u32 * SLOT_BITS;
            let others = word.load(Relaxed) & !(Self::SLOT_MASK << shift);
            word.store(others | value << shift, Release);
        }
    }

    /// Asks for the lines that a lookup of this hash needs: loads whose results nothing waits for.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let place = self.place(hash);
        let loaded = (self.word(place.first, 0).load(Relaxed), self.word(place.second, 0).load(Relaxed));
        std::hint::black_box(loaded);
    }

    /// Calls `found` with the payload of every entry that may be of this hash, and with some of them again if something moved
    /// meanwhile.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut found: impl FnMut(u64)) {
        let place = self.place(hash);
        loop {
            let before = self.moves.load(Acquire);
            // Both lines are asked for before either is looked at.
            let words = [place.first, place.second].map(|bucket| self.word(bucket, 0).load(Acquire));
            self.scan(place.first, words[0], place.tag, &mut found);
            if place.second != place.first {
                self.scan(place.second, words[1], place.tag, &mut found);
            }
            if self.stashed.load(Acquire) != 0 {
                self.scan_stash(place, &mut found);
            }
            // The loads above were Acquire: this one comes after them.
            if self.moves.load(Relaxed) == before {
                return;
            }
        }
    }

    #[inline]
    fn scan(&self, bucket: u64, mut word: u64, tag: u64, found: &mut impl FnMut(u64)) {
        for slot in 0..SLOTS {
            if SLOT_BITS == 64 && slot > 0 {
                word = self.word(bucket, slot).load(Acquire);
            }
            let slot = Self::part(word, slot);
            let payload = slot & (u64::MAX >> (64 - Self::PAYLOAD_BITS));
            if slot >> Self::PAYLOAD_BITS == tag && payload != 0 {
                found(payload);
            }
        }
    }

    #[cold]
    fn scan_stash(&self, place: Place, found: &mut impl FnMut(u64)) {
        for stashed in &self.stash {
            let slot = stashed.slot.load(Acquire);
            let bucket = stashed.bucket.load(Acquire);
            if slot != 0 && slot >> Self::PAYLOAD_BITS == place.tag && bucket == place.first.min(place.second)
            {
                found(slot & (u64::MAX >> (64 - Self::PAYLOAD_BITS)));
            }
        }
    }

    /// Adds an entry. Slots for whose payload `dead` says yes count as empty.
    ///
    /// # Errors
    /// [`TableFull`], and nothing was changed that a reader could tell.
    pub(crate) fn insert(
        &self,
        hash: u64,
        payload: u64,
        dead: impl Fn(u64) -> bool,
    ) -> Result<(), TableFull> {
        debug_assert!(payload != 0 && payload >> Self::PAYLOAD_BITS == 0);
        let place = self.place(hash);
        let slot = place.tag << Self::PAYLOAD_BITS | payload;
        let mut writer = self.lock();
        let empty = |slot: u64| slot == 0 || dead(slot & (u64::MAX >> (64 - Self::PAYLOAD_BITS)));
        match self.make_room(&mut writer, place, &empty) {
            Some((bucket, at)) => self.set(bucket, at, slot),
            None => self.put_aside(place, slot)?,
        }
        writer.entries += 1;
        Ok(())
    }

    /// An empty slot in one of the two buckets: of the nearest empty one that can be reached by moves, after those moves.
    fn make_room(
        &self,
        writer: &mut Writer,
        place: Place,
        empty: &impl Fn(u64) -> bool,
    ) -> Option<(u64, usize)> {
        let Writer { entries, search } = writer;
        search.clear();
        search.push(Step { bucket: place.first, from: None });
        search.push(Step { bucket: place.second, from: None });
        let mut next = 0;
        while next < search.len() {
            let bucket = search[next].bucket;
            if let Some(slot) = (0..SLOTS).find(|slot| empty(self.get(bucket, *slot))) {
                // What is dead and still counted is overwritten.
                *entries -= (self.get(bucket, slot) != 0) as u64;
                return Some(self.move_along(search, next, slot));
            }
            for slot in 0..SLOTS {
                if search.len() < SEARCH_MAX {
                    let other = self.other(bucket, self.get(bucket, slot) >> Self::PAYLOAD_BITS);
                    if !self.leads_through(search, next, other) {
                        search.push(Step { bucket: other, from: Some((next, slot)) });
                    }
                }
            }
            next += 1;
        }
        None
    }

    /// Whether the way to a step comes through a bucket: a way that crosses itself would move what it has moved.
    fn leads_through(&self, search: &[Step], mut step: usize, bucket: u64) -> bool {
        loop {
            if search[step].bucket == bucket {
                return true;
            }
            match search[step].from {
                Some((from, _)) => step = from,
                None => return false,
            }
        }
    }

    /// Moves slots towards an empty one, the last first, until one in the first step's bucket may be overwritten.
    fn move_along(&self, search: &[Step], mut step: usize, mut slot: usize) -> (u64, usize) {
        while let Some((from, moved)) = search[step].from {
            let source = search[from].bucket;
            self.set(search[step].bucket, slot, self.get(source, moved));
            self.count_move();
            (step, slot) = (from, moved);
        }
        (search[step].bucket, slot)
    }

    /// Release: comes after the copy. What overwrites the original is a Release store and comes after this.
    fn count_move(&self) {
        self.moves.store(self.moves.load(Relaxed) + 1, Release);
    }

    /// Into the stash. By the writer only.
    fn put_aside(&self, place: Place, slot: u64) -> Result<(), TableFull> {
        let free = self.stash.iter().find(|stashed| stashed.slot.load(Relaxed) == 0).ok_or(TableFull)?;
        // Release: who sees it sees why the place was free.
        free.bucket.store(place.first.min(place.second), Release);
        free.slot.store(slot, Release);
        self.stashed.store(self.stashed.load(Relaxed) + 1, Release);
        Ok(())
    }

    /// Entries in the stash.
    pub(crate) fn stashed(&self) -> u64 {
        self.stashed.load(Relaxed)
    }

    /// Takes out entries that may be of this hash and whose payload `wanted` says yes to; all of them, or the first. How many.
    pub(crate) fn remove(&self, hash: u64, all: bool, wanted: impl Fn(u64) -> bool) -> u64 {
        let place = self.place(hash);
        let mut writer = self.lock();
        let payload = |slot: u64| slot & (u64::MAX >> (64 - Self::PAYLOAD_BITS));
        let goes = |slot: u64| slot != 0 && slot >> Self::PAYLOAD_BITS == place.tag && wanted(payload(slot));
        let mut removed = 0;
        let buckets = [Some(place.first), Some(place.second).filter(|second| *second != place.first)];
        for bucket in buckets.into_iter().flatten() {
            for slot in 0..SLOTS {
                if (all || removed == 0) && goes(self.get(bucket, slot)) {
                    self.set(bucket, slot, 0);
                    removed += 1;
                }
            }
        }
        for stashed in &self.stash {
            let here = stashed.bucket.load(Relaxed) == place.first.min(place.second);
            if (all || removed == 0) && here && goes(stashed.slot.load(Relaxed)) {
                self.clear(stashed);
                removed += 1;
            }
        }
        writer.entries -= removed;
        removed
    }

    fn clear(&self, stashed: &Stashed) {
        stashed.slot.store(0, Release);
        self.stashed.store(self.stashed.load(Relaxed) - 1, Release);
    }

    /// Takes out every entry whose payload `dead` says yes to, a few thousand buckets at a time, so that no writer waits for
    /// long; `between` is called after each few thousand. Meanwhile [`Cuckoo::insert`] must be told of the same dead ones, or it
    /// may move them behind the sweep. How many.
    pub(crate) fn sweep(&self, dead: impl Fn(u64) -> bool, between: &mut dyn FnMut()) -> u64 {
        const BUCKETS: u64 = 4096;
        let goes = |slot: u64| slot != 0 && dead(slot & (u64::MAX >> (64 - Self::PAYLOAD_BITS)));
        let mut all = 0;
        for begin in (0..self.buckets).step_by(BUCKETS as usize) {
            let mut writer = self.lock();
            let mut removed = 0;
            for bucket in begin..(begin + BUCKETS).min(self.buckets) {
                for slot in 0..SLOTS {
                    if goes(self.get(bucket, slot)) {
                        self.set(bucket, slot, 0);
                        removed += 1;
                    }
                }
            }
            writer.entries -= removed;
            all += removed;
            drop(writer);
            between();
        }
        all + self.sweep_stash(goes)
    }

    /// Takes the dead out of the stash, and puts back into the table what has found room there.
    fn sweep_stash(&self, goes: impl Fn(u64) -> bool) -> u64 {
        let mut writer = self.lock();
        let mut removed = 0;
        for stashed in &self.stash {
            let (slot, bucket) = (stashed.slot.load(Relaxed), stashed.bucket.load(Relaxed));
            if slot == 0 {
                continue;
            }
            if goes(slot) {
                removed += 1;
            } else {
                let tag = slot >> Self::PAYLOAD_BITS;
                let place = Place { first: bucket, second: self.other(bucket, tag), tag };
                let Some((bucket, at)) = self.make_room(&mut writer, place, &|slot| slot == 0) else {
                    continue;
                };
                self.set(bucket, at, slot);
                self.count_move();
            }
            self.clear(stashed);
        }
        writer.entries -= removed;
        removed
    }

    /// Slots that were moved so far.
    #[cfg(all(test, loom))]
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Relaxed)
    }

    /// Whether both buckets of `a` are the first one of `b`, and `b` has another one.
    #[cfg(all(test, loom))]
    pub(crate) fn only_bucket_is_first_of(&self, a: u64, b: u64) -> bool {
        let (a, b) = (self.place(a), self.place(b));
        a.first == a.second && a.first == b.first && b.second != b.first
    }
}
