//! A cuckoo hash table of small slots. A slot has a few bits of the hash (the tag) and a payload, and is in one of two
//! buckets.
//!
//! ```text
//!  bucket, one word     | slot 3 | slot 2 | slot 1 | slot 0 |      slot   | tag | payload |      0 = empty
//! ```
//!
//! The second bucket of a slot follows from its first bucket and its tag, so the writer can move a slot to its other
//! bucket without knowing its hash. An entry that finds no slot goes to a small stash.
//!
//! Readers take no lock and never wait. One writer at a time makes room by moving slots. It writes the copy, then
//! counts the move, then overwrites the original. A reader that finds the entry in neither bucket has seen the
//! overwritten original, so it also sees the new count, and looks again.
//!
//! The same entry may be in the table more than once, for two keys whose hashes agree so far. Each insertion adds one
//! entry, and each removal takes one.
//!
//! Lock: `writer`, a leaf.

use crate::shim::{AtomicU64, Mutex, MutexGuard};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Entries that fit into the stash.
pub(crate) const STASH_SLOTS: usize = if cfg!(loom) { 2 } else { 32 };
/// Buckets that the writer searches for an empty slot.
const SEARCH_MAX: usize = if cfg!(loom) { 8 } else { 512 };

/// There is no room for an entry: not in its two buckets, not after moves, and not in the stash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableFull;

/// A table with `SLOTS` slots of `SLOT_BITS` bits in each bucket. The upper `TAG_BITS` of a slot are the tag, the
/// others the payload. A slot of zeros is empty, and no payload is 0. All slots of a bucket share one word, or each has
/// 64 bits.
pub(crate) struct Cuckoo<const SLOTS: usize, const SLOT_BITS: u32, const TAG_BITS: u32> {
    words: Box<[AtomicU64]>,
    buckets: u64,
    /// How many slots were moved. Counted after the copy is written, and before the original is overwritten.
    moves: AtomicU64,
    /// Entries in the stash.
    stashed: AtomicU64,
    stash: [Stashed; STASH_SLOTS],
    writer: Mutex<Writer>,
}

/// An entry in the stash: its slot (0: none), and the lower of its two buckets.
struct Stashed {
    slot: AtomicU64,
    bucket: AtomicU64,
}

/// Where the entries of a hash are: its two buckets, and the tag of its slots.
#[derive(Clone, Copy)]
struct Position {
    first: u64,
    second: u64,
    tag: u64,
}

/// What only the writer uses.
pub(crate) struct Writer {
    entries: u64,
    search: Vec<Step>,
}

/// A bucket that an empty slot can be moved from.
struct Step {
    bucket: u64,
    /// The step before it, and the slot of that step's bucket whose other bucket this is.
    from: Option<(usize, usize)>,
}

impl<const SLOTS: usize, const SLOT_BITS: u32, const TAG_BITS: u32> Cuckoo<SLOTS, SLOT_BITS, TAG_BITS> {
    const PAYLOAD_BITS: u32 = SLOT_BITS - TAG_BITS;
    const WORDS: usize = if SLOT_BITS == 64 { SLOTS } else { 1 };
    const SLOT_MASK: u64 = u64::MAX >> (64 - SLOT_BITS);
    /// Length of a bucket, bytes.
    pub(crate) const BUCKET_BYTES: u64 = 8 * Self::WORDS as u64;

    /// A table of as many buckets as fit into `bytes_max`, but at least two.
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

    /// Memory taken, bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.words) + SEARCH_MAX * size_of::<Step>()
    }

    /// The number of slots.
    pub(crate) fn slots(&self) -> u64 {
        self.buckets * SLOTS as u64
    }

    /// The writer's lock: nothing is inserted or removed while it is held.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().expect("no panic under this lock")
    }

    /// Entries in the table.
    pub(crate) fn len(&self) -> u64 {
        self.lock().entries
    }

    #[inline]
    fn position(&self, hash: u64) -> Position {
        let mixed = hash.wrapping_mul(0x9FB2_1C65_1E98_DF25);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let tag = mixed & (u64::MAX >> (64 - TAG_BITS));
        let first = ((mixed >> 32) * self.buckets) >> 32;
        Position { first, second: self.other(first, tag), tag }
    }

    /// The other bucket of a slot with this tag in this bucket. The other bucket of that one is this bucket.
    #[inline]
    fn other(&self, bucket: u64, tag: u64) -> u64 {
        // The tag is mixed: with a plain multiple of it, moves would reach few buckets, and the table would be full too
        // soon.
        let spread = (tag + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let spread = (spread ^ (spread >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32;
        let sum = (spread * self.buckets) >> 32;
        if sum >= bucket { sum - bucket } else { sum + self.buckets - bucket }
    }

    /// The class of a hash: equal for all hashes that the table cannot tell apart, and seldom equal for others.
    pub(crate) fn class(&self, hash: u64) -> u64 {
        let position = self.position(hash);
        position.first.min(position.second) << TAG_BITS | position.tag
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

    /// Called only by the writer, so nothing changes between the load and the store. Release pairs with the readers'
    /// Acquire: a reader that sees what overwrote a slot also sees that the slot was moved.
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

    /// Calls `found` with the payload of each entry that may be of this hash. If a slot was moved meanwhile, some
    /// payloads come more than once.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut found: impl FnMut(u64)) {
        let position = self.position(hash);
        loop {
            let before = self.moves.load(Acquire);
            // Both buckets are loaded before either is searched, so that their cache misses overlap.
            let words = [position.first, position.second].map(|bucket| self.word(bucket, 0).load(Acquire));
            self.scan(position.first, words[0], position.tag, &mut found);
            if position.second != position.first {
                self.scan(position.second, words[1], position.tag, &mut found);
            }
            if self.stashed.load(Acquire) != 0 {
                self.scan_stash(position, &mut found);
            }
            // The loads above are Acquire, so this one comes after them.
            if self.moves.load(Relaxed) == before {
                return;
            }
        }
    }

    /// Loads the first words of both buckets of a hash, so that a search right after finds them in the processor's
    /// cache. The result means nothing.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) -> u64 {
        let position = self.position(hash);
        self.word(position.first, 0).load(Relaxed) ^ self.word(position.second, 0).load(Relaxed)
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
    fn scan_stash(&self, position: Position, found: &mut impl FnMut(u64)) {
        for stashed in &self.stash {
            let slot = stashed.slot.load(Acquire);
            let bucket = stashed.bucket.load(Acquire);
            if slot != 0
                && slot >> Self::PAYLOAD_BITS == position.tag
                && bucket == position.first.min(position.second)
            {
                found(slot & (u64::MAX >> (64 - Self::PAYLOAD_BITS)));
            }
        }
    }

    /// Adds an entry. A slot counts as empty if `dead` says yes to its payload. The stash takes an entry that finds no
    /// slot, if `stashes`.
    ///
    /// # Errors
    /// [`TableFull`]. Then the table has the same entries as before.
    pub(crate) fn insert(
        &self,
        hash: u64,
        payload: u64,
        dead: impl Fn(u64) -> bool,
        stashes: bool,
    ) -> Result<(), TableFull> {
        debug_assert!(payload != 0 && payload >> Self::PAYLOAD_BITS == 0);
        let position = self.position(hash);
        let slot = position.tag << Self::PAYLOAD_BITS | payload;
        let mut writer = self.lock();
        let empty = |slot: u64| slot == 0 || dead(slot & (u64::MAX >> (64 - Self::PAYLOAD_BITS)));
        match self.make_room(&mut writer, position, &empty) {
            Some((bucket, at)) => self.set(bucket, at, slot),
            None if stashes => self.add_to_stash(position, slot)?,
            None => return Err(TableFull),
        }
        writer.entries += 1;
        Ok(())
    }

    /// Makes a slot in one of the two buckets empty: finds the nearest empty slot that moves can bring there, and moves
    /// it.
    fn make_room(
        &self,
        writer: &mut Writer,
        position: Position,
        empty: &impl Fn(u64) -> bool,
    ) -> Option<(u64, usize)> {
        let Writer { entries, search } = writer;
        search.clear();
        search.push(Step { bucket: position.first, from: None });
        search.push(Step { bucket: position.second, from: None });
        let mut next = 0;
        while next < search.len() {
            let bucket = search[next].bucket;
            if let Some(slot) = (0..SLOTS).find(|slot| empty(self.get(bucket, *slot))) {
                // A dead entry is overwritten; it was counted until now.
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

    /// Whether the way to a step comes through a bucket. A way through a bucket twice would move a slot that it has
    /// moved already.
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

    /// Moves slots along a way, the last one first, until a slot in the first step's bucket may be overwritten.
    fn move_along(&self, search: &[Step], mut step: usize, mut slot: usize) -> (u64, usize) {
        while let Some((from, moved)) = search[step].from {
            let source = search[from].bucket;
            self.set(search[step].bucket, slot, self.get(source, moved));
            self.count_move();
            (step, slot) = (from, moved);
        }
        (search[step].bucket, slot)
    }

    /// Release: this store comes after that of the copy. The store that overwrites the original is Release as well, and
    /// comes after this one.
    fn count_move(&self) {
        self.moves.store(self.moves.load(Relaxed) + 1, Release);
    }

    /// Adds an entry to the stash. Called only by the writer.
    fn add_to_stash(&self, position: Position, slot: u64) -> Result<(), TableFull> {
        let free = self.stash.iter().find(|stashed| stashed.slot.load(Relaxed) == 0).ok_or(TableFull)?;
        // Release: a reader that sees the new entry also sees that the old one was moved.
        free.bucket.store(position.first.min(position.second), Release);
        free.slot.store(slot, Release);
        self.stashed.store(self.stashed.load(Relaxed) + 1, Release);
        Ok(())
    }

    /// Entries in the stash.
    #[cfg(test)]
    pub(crate) fn stashed(&self) -> u64 {
        self.stashed.load(Relaxed)
    }

    /// Removes entries that may be of this hash, if `wanted` says yes to their payload: all of them, or the first one.
    /// Says how many.
    pub(crate) fn remove(&self, hash: u64, all: bool, wanted: impl Fn(u64) -> bool) -> u64 {
        let position = self.position(hash);
        let mut writer = self.lock();
        let payload = |slot: u64| slot & (u64::MAX >> (64 - Self::PAYLOAD_BITS));
        let goes =
            |slot: u64| slot != 0 && slot >> Self::PAYLOAD_BITS == position.tag && wanted(payload(slot));
        let mut removed = 0;
        let buckets =
            [Some(position.first), Some(position.second).filter(|second| *second != position.first)];
        for bucket in buckets.into_iter().flatten() {
            for slot in 0..SLOTS {
                if (all || removed == 0) && goes(self.get(bucket, slot)) {
                    self.set(bucket, slot, 0);
                    removed += 1;
                }
            }
        }
        for stashed in &self.stash {
            let here = stashed.bucket.load(Relaxed) == position.first.min(position.second);
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

    /// The lowest bit of each slot of a word.
    const LOWEST: u64 = {
        let (mut bits, mut slot) = (0, 0);
        while slot < SLOTS / Self::WORDS {
            bits |= 1 << (slot as u32 * SLOT_BITS);
            slot += 1;
        }
        bits
    };

    /// Whether some slot of a word has this payload. Yes may be wrong.
    #[inline]
    fn may_have(word: u64, payload: u64) -> bool {
        const { assert!(TAG_BITS > 0) };
        // Of each slot only the payload is left, so that the highest bit is 0. It becomes 1 where 1 is taken from 0.
        let (payloads, highest) =
            ((u64::MAX >> (64 - Self::PAYLOAD_BITS)) * Self::LOWEST, Self::LOWEST << (SLOT_BITS - 1));
        let differs = (word ^ (payload * Self::LOWEST)) & payloads;
        differs.wrapping_sub(Self::LOWEST) & highest != 0
    }

    /// Removes all entries to whose payload `dead` says yes, and says how many. It takes the lock for 4096 buckets at a
    /// time, and calls `between` after each time. Meanwhile [`Cuckoo::insert`] must get the same `dead`, or it may move
    /// dead entries to buckets that were swept already. `few` has all payloads of which `dead` says yes, if they are
    /// few: then most buckets are passed over quickly.
    pub(crate) fn sweep(
        &self,
        dead: impl Fn(u64) -> bool,
        few: Option<&[u16]>,
        between: &mut dyn FnMut(),
    ) -> u64 {
        const BUCKETS: u64 = 4096;
        let goes = |slot: u64| slot != 0 && dead(slot & (u64::MAX >> (64 - Self::PAYLOAD_BITS)));
        let is_passed_over = |word: u64| match few {
            Some(few) => !few.iter().fold(false, |found, id| found | Self::may_have(word, u64::from(*id))),
            None => word == 0,
        };
        let mut all = 0;
        for begin in (0..self.buckets).step_by(BUCKETS as usize) {
            let mut writer = self.lock();
            let mut removed = 0;
            let end = (begin + BUCKETS).min(self.buckets);
            for word in &self.words[begin as usize * Self::WORDS..end as usize * Self::WORDS] {
                let before = word.load(Relaxed);
                if is_passed_over(before) {
                    continue;
                }
                let mut after = before;
                for slot in 0..SLOTS / Self::WORDS {
                    if goes(Self::part(before, slot)) {
                        after &= !(Self::SLOT_MASK << (slot as u32 * SLOT_BITS));
                        removed += 1;
                    }
                }
                if after != before {
                    word.store(after, Release);
                }
            }
            writer.entries -= removed;
            all += removed;
            drop(writer);
            between();
        }
        all + self.sweep_stash(goes)
    }

    /// Removes dead entries from the stash, and moves others to buckets that have room again.
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
                let position = Position { first: bucket, second: self.other(bucket, tag), tag };
                let Some((bucket, at)) = self.make_room(&mut writer, position, &|slot| slot == 0) else {
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

    /// How many slots were moved.
    #[cfg(all(test, loom))]
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Relaxed)
    }

    /// Whether both buckets of `a` are the first one of `b`, and `b` has another one.
    #[cfg(all(test, loom))]
    pub(crate) fn only_bucket_is_first_of(&self, a: u64, b: u64) -> bool {
        let (a, b) = (self.position(a), self.position(b));
        a.first == a.second && a.first == b.first && b.second != b.first
    }
}
