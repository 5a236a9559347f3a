//! Leaving memory: to flash, or for good.
//!
//! The rule that keeps the two levels honest: **whoever takes the last entry of a key away first makes the flash right,
//! under the writer bit of the key's bucket.** Either the item itself is put there and is the newest version, or whatever is
//! there of the key is invalidated. (An item that is *clean* is there already.) So a key that memory does not know is a key
//! whose newest version is on flash, if it is anywhere.

use crate::admission::{Admitted, Offered};
use crate::counters::Counters;
use crate::engine::{Cache, Life};
use crate::level::{Level, to_unix_s};
use larder_flash::{Commit, Flash, FlashItem, Put};
use larder_item::{KeyHash, Location, State};
use larder_memory::{Guard, Item, Value};
use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// An item whose entry is about to be removed.
pub(crate) struct Leaving {
    pub(crate) hash: KeyHash,
    pub(crate) at: Location,
    /// Warmth of its entry.
    pub(crate) warmth: u8,
    pub(crate) parts: Parts,
}

/// What became of the parts of a long value that go before the bucket is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parts {
    /// Nobody sent any: a value of one part can go all the same.
    None,
    /// Those of the item there are on flash, and it was admitted.
    Sent(Location),
    /// The item there was not admitted, or flash is behind.
    Refused(Location),
}

/// What [`Cache::save_to_flash`] did, in items.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Saved {
    /// Written.
    pub written: u64,
    /// On flash already, unchanged.
    pub clean: u64,
    /// Not taken by flash: gone, and their older versions with them.
    pub lost: u64,
}

/// How long [`Cache::save_to_flash`] waits for a device that takes nothing.
const SAVE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Between two attempts.
const SAVE_PAUSE: Duration = Duration::from_millis(1);
/// Warmth of entries goes from 0 to this.
const WARMTH_MAX: u8 = larder_index::WARMTH_MAX;

impl Cache {
    /// Before the bucket is locked: sends the parts of a long value after the first to flash, if it is worth it. They cannot
    /// be found before the first part is.
    #[inline]
    pub(crate) fn send_parts(
        &self,
        guard: &Guard<'_>,
        hash: KeyHash,
        at: Location,
        counters: &Counters,
    ) -> Parts {
        match &self.level {
            Some(level) => self.send_parts_to(level, guard, hash, at, counters),
            None => Parts::None,
        }
    }

    fn send_parts_to(
        &self,
        level: &Level,
        guard: &Guard<'_>,
        hash: KeyHash,
        at: Location,
        counters: &Counters,
    ) -> Parts {
        let item = guard.item(at);
        if item.value_bytes() as usize <= level.flash.part_bytes_max()
            || self.life(at, &item) != Life::Live
            || item.state().has(State::CLEAN) && level.flash.still_holds(hash)
        {
            return Parts::None;
        }
        let warmth = self.index.warmth_at(hash, at).unwrap_or(0);
        if !self.is_admitted(level, hash, &item, warmth) {
            counters.admission_rejected.add(1);
            return Parts::Refused(at);
        }
        if put_parts(&level.flash, guard, hash, &item) == Put::Stored {
            Parts::Sent(at)
        } else {
            counters.demotions_shed.add(1);
            Parts::Refused(at)
        }
    }

    /// Under the writer bit of its bucket, before the entry of an item is removed for another reason than a client's word: the
    /// item goes to flash if it is live and worth it, and otherwise nothing older may be found there.
    #[inline]
    pub(crate) fn leave(&self, guard: &Guard<'_>, leaving: &Leaving, counters: &Counters) {
        if let Some(level) = &self.level {
            self.leave_for(level, guard, leaving, counters);
        }
    }

    fn leave_for(&self, level: &Level, guard: &Guard<'_>, leaving: &Leaving, counters: &Counters) {
        let item = guard.item(leaving.at);
        if self.life(leaving.at, &item) == Life::Live
            && self.demote(level, guard, leaving, &item, counters)
            // A flush may have come since the look before: see docs/concurrency.md.
            && !self.is_flushed(leaving.at)
        {
            return;
        }
        level.flash.invalidate(leaving.hash, item.key());
    }

    /// Returns whether flash holds nothing but this item now.
    fn demote(
        &self,
        level: &Level,
        guard: &Guard<'_>,
        leaving: &Leaving,
        item: &Item<'_>,
        counters: &Counters,
    ) -> bool {
        let is_clean = item.state().has(State::CLEAN);
        if is_clean && level.flash.still_holds(leaving.hash) {
            counters.elided.add(1);
            return true;
        }
        match leaving.parts {
            Parts::Refused(at) if at == leaving.at => return is_clean,
            Parts::Sent(at) if at == leaving.at => {}
            _ if item.value_bytes() as usize > level.flash.part_bytes_max() => {
                counters.demotions_shed.add(1);
                return is_clean;
            }
            _ => {
                if !self.is_admitted(level, leaving.hash, item, leaving.warmth) {
                    counters.admission_rejected.add(1);
                    return is_clean;
                }
            }
        }
        if self.put_first(level, guard, leaving.hash, item) == Put::Stored {
            counters.demoted.add(1);
            return true;
        }
        counters.demotions_shed.add(1);
        // What is there of a clean item is the same version: it may stay.
        is_clean
    }

    fn is_admitted(&self, level: &Level, hash: KeyHash, item: &Item<'_>, warmth: u8) -> bool {
        let bytes = item.key().len() as u64 + u64::from(item.value_bytes());
        let offered = Offered { hash, bytes, warmth, fetched: item.state().has(State::FETCHED) };
        let mut admission = level.admission.lock().expect("no panic under this lock");
        admission.judge(&offered, self.clock.now_s()) == Admitted::Yes
    }

    /// Puts an item, or the first part of one, on flash.
    fn put_first(&self, level: &Level, guard: &Guard<'_>, hash: KeyHash, item: &Item<'_>) -> Put {
        let value = match item.value() {
            Value::Whole(value) => Cow::Borrowed(value),
            Value::Chunked { first, total } => {
                let mut chunks = Chunks::of(guard, first);
                Cow::Owned(chunks.take((total as usize).min(level.flash.part_bytes_max())))
            }
        };
        level.flash.put(
            hash,
            &FlashItem {
                key: item.key(),
                value: &value,
                value_bytes: item.value_bytes().into(),
                flags: item.flags(),
                expires_unix_s: to_unix_s(&self.clock, item.expiry()),
                cas: item.cas(),
                state: (item.state().bits() & State::KEPT_ON_FLASH) as u8,
            },
        )
    }

    /// A key that memory does not hold, or whose entry is removed by a client's word: nothing of it is found on flash from now
    /// on. Under the writer bit of its bucket.
    #[inline]
    pub(crate) fn invalidate(&self, hash: KeyHash, key: &[u8]) -> Option<Commit> {
        self.level.as_ref()?.flash.invalidate(hash, key)
    }

    /// At a graceful stop, after the workers have stopped and before the tier is closed: what is live in memory goes to
    /// flash, the coldest first, so that the warmest is the newest there. What flash does not take, and what has expired, is
    /// invalidated. Admission is not asked. Waits for a device that is behind, but not for one that takes nothing for ten
    /// seconds.
    ///
    /// A tier that is closed without this, or [`Cache::leave_to_flash`], comes back with the versions that memory had replaced. A
    /// flush that is to come is carried out now.
    pub fn save_to_flash(&self) -> Saved {
        self.settle_flash(true)
    }

    /// As [`Cache::save_to_flash`], but nothing is written: flash keeps what it has, except what memory has replaced.
    pub fn leave_to_flash(&self) -> Saved {
        self.settle_flash(false)
    }

    fn settle_flash(&self, write: bool) -> Saved {
        let mut saved = Saved::default();
        let Some(level) = &self.level else { return saved };
        if self.flush_due_s.load(Ordering::Relaxed) != 0 {
            // Nobody would remember it after the restart.
            self.flush(None);
        }
        let mut reader = self.memory.register();
        let mut places = Vec::new();
        let mut device = Patience { writes: write, waits: true };
        for warmth in 0..=WARMTH_MAX {
            let mut bucket = Some(0);
            while let Some(at) = bucket {
                places.clear();
                bucket = self.index.walk(at, &mut |entry| {
                    if entry.warmth == warmth {
                        places.push(entry.location);
                    }
                });
                let guard = reader.pin();
                for &at in &places {
                    self.save(level, &guard, at, &mut device, &mut saved);
                }
                reader.quiesce();
            }
        }
        saved
    }

    fn save(&self, level: &Level, guard: &Guard<'_>, at: Location, device: &mut Patience, saved: &mut Saved) {
        let item = guard.item(at);
        let hash = self.hasher.hash(item.key());
        let bucket = self.index.lock(hash);
        if bucket.find_at(at).is_none() {
            return;
        }
        if self.life(at, &item) != Life::Live {
            level.flash.invalidate(hash, item.key());
            return;
        }
        if item.state().has(State::CLEAN) && level.flash.still_holds(hash) {
            saved.clean += 1;
            return;
        }
        let started = Instant::now();
        while device.writes && device.waits {
            // The workers have stopped: nobody waits for the bucket while the device takes the parts.
            if put_parts(&level.flash, guard, hash, &item) == Put::Stored
                && self.put_first(level, guard, hash, &item) == Put::Stored
            {
                item.set_state_bits(State::CLEAN);
                saved.written += 1;
                return;
            }
            device.waits = started.elapsed() <= SAVE_WAIT_MAX;
            level.flash.tend();
            std::thread::sleep(SAVE_PAUSE);
        }
        // Invalidations that find no room take everything with them.
        while device.waits && level.flash.owes_invalidations() {
            device.waits = started.elapsed() <= SAVE_WAIT_MAX;
            level.flash.tend();
            std::thread::sleep(SAVE_PAUSE);
        }
        level.flash.invalidate(hash, item.key());
        saved.lost += 1;
    }
}

/// What a stop asks of the device.
struct Patience {
    /// It is to take what is in memory.
    writes: bool,
    /// It is waited for. Not any more once it has taken nothing for too long.
    waits: bool,
}

/// Puts the parts of a long value after the first.
fn put_parts(flash: &Flash, guard: &Guard<'_>, hash: KeyHash, item: &Item<'_>) -> Put {
    let part_bytes = flash.part_bytes_max();
    let total = item.value_bytes() as usize;
    let (key, cas) = (item.key(), item.cas());
    let parts = 1..total.div_ceil(part_bytes).max(1);
    match item.value() {
        Value::Whole(value) => {
            for part in parts {
                let bytes = &value[part * part_bytes..total.min((part + 1) * part_bytes)];
                if flash.put_part(hash, key, cas, part as u32, bytes) == Put::Shed {
                    return Put::Shed;
                }
            }
        }
        Value::Chunked { first, .. } => {
            let mut chunks = Chunks::of(guard, first);
            chunks.skip(part_bytes.min(total));
            for part in parts {
                let bytes = chunks.take(part_bytes);
                if flash.put_part(hash, key, cas, part as u32, &bytes) == Put::Shed {
                    return Put::Shed;
                }
            }
        }
    }
    Put::Stored
}

/// The bytes of a chain, a piece at a time.
struct Chunks<'a, 'g> {
    guard: &'a Guard<'g>,
    next: Option<Location>,
    rest: &'g [u8],
}

impl<'a, 'g> Chunks<'a, 'g> {
    fn of(guard: &'a Guard<'g>, first: Location) -> Self {
        Chunks { guard, next: Some(first), rest: &[] }
    }

    /// The next bytes of one chunk, at most `most`; none at the end.
    fn piece(&mut self, most: usize) -> &'g [u8] {
        while self.rest.is_empty()
            && let Some(at) = self.next
        {
            let chunk = self.guard.chunk(at);
            (self.rest, self.next) = (chunk.bytes, chunk.next);
        }
        let (piece, rest) = self.rest.split_at(most.min(self.rest.len()));
        self.rest = rest;
        piece
    }

    /// The next `most` bytes, or all that are left.
    fn take(&mut self, most: usize) -> Vec<u8> {
        let mut taken = Vec::with_capacity(most);
        while taken.len() < most {
            let piece = self.piece(most - taken.len());
            if piece.is_empty() {
                break;
            }
            taken.extend_from_slice(piece);
        }
        taken
    }

    fn skip(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            let piece = self.piece(left);
            if piece.is_empty() {
                break;
            }
            left -= piece.len();
        }
    }
}
