//! The way of items out of memory: to flash, or for good.
//!
//! One rule keeps the two levels consistent: **the thread that removes the last entry of a key first makes flash right,
//! under the writer bit of the key's bucket.** Either it puts the item itself on flash, where the item is then the
//! newest version, or it invalidates whatever flash has of the key. (A *clean* item is on flash already, and nothing is
//! written.) So for a key without an entry in memory, the newest version is on flash, if there is one at all.
//!
//! [`Levels`] is what the callers hold: the store, and the [`Demoter`] if there is a flash tier.

use crate::admission::{Admission, Admitted, Offered};
use crate::compression::Expander;
use crate::counters::{Counters, Totals};
use crate::flash_level::{Exclusive, FlashLevel, to_unix_s};
use crate::flash_note::FlashNote;
use crate::item_store::Destination;
use crate::item_store::{ItemStore, Life};
use crate::penalties::remembered;
use larder_flash::{Commit, Flash, FlashItem, Put, Recover};
use larder_item::{Extension, FlashState, KeyHash, Location, PrefixesFull, State};
use larder_memory::{Compressed, Guard, Item, Value};
use std::borrow::Cow;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long the keeper waits for flash before it goes on with its other tasks, and how long between two looks.
const FLASH_WAIT_MAX: Duration = Duration::from_millis(10);
/// A device that has taken nothing for at least so long, in milliseconds, is not waited for.
const STALL_MS_MIN: u32 = 1000;
/// Seconds between two warnings that evicted items are lost.
const TELL_SHED_EVERY_S: u32 = 60;
const FLASH_PAUSE: Duration = Duration::from_micros(500);

/// Memory, and the way to flash if there is a tier behind memory.
#[derive(Clone, Copy)]
pub(crate) struct Levels<'a> {
    pub(crate) store: &'a ItemStore,
    pub(crate) demoter: Option<&'a Demoter>,
    /// Room is needed at once: items may be evicted although flash does not take them.
    pub(crate) is_urgent: bool,
}

/// An item whose entry is about to be removed.
pub(crate) struct Leaving<'a> {
    pub(crate) hash: KeyHash,
    pub(crate) at: Location,
    /// Warmth of its entry.
    pub(crate) warmth: u8,
    pub(crate) parts: SentParts,
    /// What its value was compressed to, with a dictionary that lies beside the items on flash.
    pub(crate) compressed: Option<&'a [u8]>,
}

/// What became of the parts of a long value after the first one, which are sent before the bucket is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SentParts {
    /// None were sent. A value of one part can be put all the same.
    None,
    /// The item at this location was admitted, and its parts are on flash.
    Sent(Location),
    /// The item at this location was not admitted, or flash is behind.
    Refused(Location),
}

impl Levels<'_> {
    /// Before the bucket is locked: sends the parts of a long value after the first one to flash, if the item is worth
    /// it. They cannot be found before the first part is there.
    #[inline]
    pub(crate) fn send_parts(
        &self,
        guard: &Guard<'_>,
        hash: KeyHash,
        at: Location,
        counters: &Counters,
    ) -> SentParts {
        match self.demoter {
            Some(demoter) => demoter.send_parts(self, guard, hash, at, counters),
            None => SentParts::None,
        }
    }

    /// Under the writer bit of the item's bucket, before its entry is removed for another reason than a client's
    /// request: puts the item on flash if it is live and worth a write, and otherwise makes sure that nothing older is
    /// found there.
    #[inline]
    pub(crate) fn leave(&self, guard: &Guard<'_>, leaving: &Leaving<'_>, counters: &Counters) {
        match self.demoter {
            Some(demoter) => demoter.leave(self, guard, leaving, counters),
            None if self.store.leaving.is_told() => {
                let item = guard.item(leaving.at);
                if self.store.life(leaving.at, &item) == Life::Live {
                    self.store.leaving.tell(leaving.hash, &item, Destination::Nowhere, &self.store.clock);
                }
            }
            None => {}
        }
    }

    /// Whether live items leave memory to make room: not where they may leave only for flash, and flash has failed.
    pub(crate) fn evicts(&self) -> bool {
        self.store.leaving.happens()
            && (self.store.leaving.may_lose() || self.demoter.is_some_and(|demoter| demoter.flash.is_on()))
    }

    /// Whether live items can leave memory now. If they may leave only for flash, and flash does not take them, copies
    /// of them would only take the columns that are left.
    pub(crate) fn can_evict(&self) -> bool {
        self.store.leaving.may_lose() || (self.evicts() && !self.waits_for_flash())
    }

    /// Whether live items may leave memory only for flash, and flash has no room for them now: it may take them soon.
    pub(crate) fn waits_for_flash(&self) -> bool {
        let has_no_room = |flash: &Flash| flash.is_behind() || flash.is_index_full();
        !self.store.leaving.may_lose() && self.demoter.is_some_and(|demoter| has_no_room(&demoter.flash))
    }

    /// Whether room is not made now because a pass waits for the device to take invalidations.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.demoter.is_some_and(|demoter| demoter.flash.is_waited_for())
    }

    /// Where a live item may leave memory only for flash, as [`Levels::leave`]. Returns false if flash does not take
    /// it: then it has to stay.
    pub(crate) fn leave_for_flash(
        &self,
        guard: &Guard<'_>,
        leaving: &Leaving<'_>,
        counters: &Counters,
    ) -> bool {
        self.demoter.is_some_and(|demoter| demoter.take_over(self.store, guard, leaving, counters))
    }

    /// Before a bucket is locked: waits while more invalidations wait for the device than it should have. It does not
    /// wait for a device that takes nothing.
    #[inline]
    pub(crate) fn wait_for_invalidations(&self, counters: &Counters) {
        if let Some(demoter) = self.demoter {
            demoter.wait_for_invalidations(counters);
        }
    }

    /// Flushes both levels.
    pub(crate) fn flush(&self) {
        match self.demoter {
            None => self.store.flush(),
            Some(demoter) => demoter.flush(self.store),
        }
    }

    /// Flushes, on both levels, the items whose keys begin with `prefix`.
    ///
    /// # Errors
    /// As many prefixes are being deleted, on one of the levels, as its table has room for. Then nothing is flushed.
    pub(crate) fn flush_prefix(&self, prefix: &[u8]) -> Result<(), PrefixesFull> {
        match self.demoter {
            None => self.store.flush_prefix(prefix),
            Some(demoter) => demoter.flush_prefix(self.store, prefix),
        }
    }

    /// Whether what is evicted now would be lost because the device is behind, and the device gets on: whoever needs
    /// room waits for it a little.
    pub(crate) fn holds_back(&self) -> bool {
        if self.is_urgent {
            return false;
        }
        self.demoter.is_some_and(Demoter::is_waited_for) && self.evicts()
    }

    /// Makes stores look again that wait for room, if there are any.
    pub(crate) fn tell_waiting(&self) {
        if let Some(demoter) = self.demoter {
            demoter.flash.tell_waiting();
        }
    }

    /// The keeper waits a little while it is to hold back, and says whether it may evict now. Those who wait for room
    /// look again whether they have waited for too long.
    pub(crate) fn wait_for_flash(&self) -> bool {
        let started = Instant::now();
        while self.holds_back() {
            if started.elapsed() >= FLASH_WAIT_MAX {
                self.tell_waiting();
                return false;
            }
            std::thread::sleep(FLASH_PAUSE);
            self.store.memory.recycle();
        }
        true
    }
}

/// Sends items to flash, and decides which of them are worth a write.
pub(crate) struct Demoter {
    flash: Arc<Flash>,
    note: Arc<FlashNote>,
    /// For compressed values whose dictionaries do not lie on flash. A leaf, as `admission`.
    expander: Mutex<Expander>,
    is_lazy: bool,
    has_journal: bool,
    /// How long a store waits for a device that is behind, in milliseconds.
    wait_max_ms: AtomicU32,
    /// When it was last told what was shed, in seconds of the server's clock, and how much that was by then: of all,
    /// for space, and for the index.
    shed_told: Mutex<(u32, [u64; 3])>,
    /// A leaf in the order of locks: it is taken under a bucket's writer bit.
    admission: Mutex<Admission>,
    /// Held during a flush, so that the end of one flush is not taken for the end of another.
    flushing: Mutex<()>,
}

impl Demoter {
    /// A demoter for the tier of `level`.
    pub(crate) fn new(level: FlashLevel) -> Demoter {
        Demoter {
            note: Arc::new(FlashNote::new(level.flash.clone())),
            flash: level.flash,
            expander: Mutex::default(),
            is_lazy: level.exclusive == Exclusive::Lazy,
            has_journal: level.recover == Recover::Journal,
            wait_max_ms: AtomicU32::new(level.store_wait_max_ms),
            shed_told: Mutex::default(),
            admission: Mutex::new(Admission::new(level.admission)),
            flushing: Mutex::new(()),
        }
    }

    /// The flash tier.
    #[inline]
    pub(crate) fn flash(&self) -> &Arc<Flash> {
        &self.flash
    }

    /// What lies beside the items on flash.
    pub(crate) fn note(&self) -> &Arc<FlashNote> {
        &self.note
    }

    /// Whether a promoted item stays on flash.
    #[inline]
    pub(crate) fn is_lazy(&self) -> bool {
        self.is_lazy
    }

    /// Whether a write over a key that flash may hold is committed to the journal before it is answered.
    #[inline]
    pub(crate) fn has_journal(&self) -> bool {
        self.has_journal
    }

    /// Whether the device is behind and gets on: it has taken something for as long as a store waits, or a second if
    /// that is longer.
    fn is_waited_for(&self) -> bool {
        let most_ms = self.wait_max_ms.load(Relaxed).max(STALL_MS_MIN);
        self.flash.is_behind() && self.flash.stalled_for_ms() <= u64::from(most_ms)
    }

    /// How long a store waits for a device that is behind.
    pub(crate) fn wait_max(&self) -> Duration {
        Duration::from_millis(self.wait_max_ms.load(Relaxed).into())
    }

    /// See [`Demoter::wait_max`].
    pub(crate) fn set_wait_max_ms(&self, wait_max_ms: u32) {
        self.wait_max_ms.store(wait_max_ms, Relaxed);
    }

    /// Another budget of bytes that are written to flash in a day; `None` = no bound.
    pub(crate) fn set_write_budget(&self, per_day: Option<u64>) {
        self.admission.lock().expect("no panic under this lock").set_write_budget(per_day);
    }

    /// Bytes that admission remembers evictions with.
    pub(crate) fn admission_bytes(&self) -> u64 {
        self.admission.lock().expect("no panic under this lock").bytes()
    }

    /// Whether nothing of the key of an item in memory is found on flash. With a journal that is so once the item was
    /// stored or changed: what flash had was invalidated then, and nothing was put since.
    #[inline]
    pub(crate) fn has_hidden(&self, item: &Item<'_>) -> bool {
        self.has_journal && !item.state().has(State::CLEAN)
    }

    /// Under the writer bit of the key's bucket: as [`Demoter::invalidate`], where memory has an item of the key.
    #[inline]
    pub(crate) fn invalidate_of(&self, hash: KeyHash, item: &Item<'_>) -> Option<Commit> {
        // That its invalidation is durable is not known.
        if self.has_hidden(item) { self.flash.last_uncommitted() } else { self.invalidate(hash, item.key()) }
    }

    /// Under the writer bit of the key's bucket: nothing of the key is found on flash from now on. The caller removes
    /// the key's entry, or memory holds none.
    #[inline]
    pub(crate) fn invalidate(&self, hash: KeyHash, key: &[u8]) -> Option<Commit> {
        self.flash.invalidate(hash, key)
    }

    /// See [`Levels::wait_for_invalidations`].
    #[inline]
    pub(crate) fn wait_for_invalidations(&self, counters: &Counters) {
        if self.flash.is_crowded() {
            counters.invalidation_waits.add(1);
            self.flash.wait_for_invalidations();
        }
    }

    /// Flushes both levels. The order of the three steps matters: see `docs/internals/concurrency.md`, "Flush".
    fn flush(&self, store: &ItemStore) {
        let _one_at_a_time = self.flushing.lock().expect("no panic under this lock");
        self.flash.begin_flush();
        store.flush();
        self.flash.end_flush();
    }

    /// As [`Demoter::flush`], but only of the items whose keys begin with `prefix`.
    fn flush_prefix(&self, store: &ItemStore, prefix: &[u8]) -> Result<(), PrefixesFull> {
        let _one_at_a_time = self.flushing.lock().expect("no panic under this lock");
        if !self.flash.takes_prefix(prefix) {
            return Err(PrefixesFull);
        }
        self.flash.begin_prefix_flush(prefix);
        let raised = store.flush_prefix(prefix);
        let dropped = raised.and_then(|()| self.flash.drop_prefix(prefix));
        self.flash.end_prefix_flush();
        dropped?;
        self.flash.write_prefixes();
        Ok(())
    }

    fn send_parts(
        &self,
        levels: &Levels<'_>,
        guard: &Guard<'_>,
        hash: KeyHash,
        at: Location,
        counters: &Counters,
    ) -> SentParts {
        let store = levels.store;
        let item = guard.item(at);
        if item.value_bytes() as usize <= self.flash.part_bytes_max()
            || store.life(at, &item) != Life::Live
            || self.holds_clean(hash, &item)
        {
            return SentParts::None;
        }
        let warmth = store.index.warmth_at(hash, at).unwrap_or(0);
        let offered = offered(store, hash, &item, warmth, None);
        if store.leaving.may_lose() && !self.is_admitted(levels, &item, &offered, counters) {
            return SentParts::Refused(at);
        }
        if self.put_parts(store, guard, hash, &item) == Put::Stored {
            SentParts::Sent(at)
        } else {
            self.shed(store, hash, &item, warmth, counters);
            SentParts::Refused(at)
        }
    }

    fn leave(&self, levels: &Levels<'_>, guard: &Guard<'_>, leaving: &Leaving<'_>, counters: &Counters) {
        self.leave_after(levels, guard, leaving, counters, || {});
    }

    /// As [`Demoter::leave`]. `meanwhile` runs between the look at the item's life and the put, so that a test can be
    /// another thread at that moment.
    #[inline]
    fn leave_after(
        &self,
        levels: &Levels<'_>,
        guard: &Guard<'_>,
        leaving: &Leaving<'_>,
        counters: &Counters,
        meanwhile: impl FnOnce(),
    ) {
        let store = levels.store;
        let item = guard.item(leaving.at);
        let life = store.life(leaving.at, &item);
        meanwhile();
        let is_right = match life {
            // A flush may have come since the item's life was looked at: see `docs/internals/concurrency.md`.
            Life::Live => {
                let (is_right, to) = self.demote(levels, guard, leaving, &item, counters);
                store.leaving.tell(leaving.hash, &item, to, &store.clock);
                is_right && !store.is_flushed(leaving.at, &item)
            }
            Life::Expired | Life::Flushed => is_over_on_flash(life, &item) || self.has_hidden(&item),
        };
        if !is_right {
            self.flash.invalidate(leaving.hash, item.key());
        }
    }

    /// Puts a live item on flash if it is worth it. Returns whether flash holds no other version of the key now, and
    /// where the item has gone.
    fn demote(
        &self,
        levels: &Levels<'_>,
        guard: &Guard<'_>,
        leaving: &Leaving<'_>,
        item: &Item<'_>,
        counters: &Counters,
    ) -> (bool, Destination) {
        let store = levels.store;
        // What flash has of a clean item is the same version: it may stay, whether flash takes this copy or not.
        let is_clean = item.state().has(State::CLEAN);
        let is_right = is_clean || self.has_hidden(item);
        if is_clean && self.flash.still_holds(leaving.hash) {
            counters.elided.add(1);
            return (true, Destination::OnFlashAlready);
        }
        match leaving.parts {
            SentParts::Refused(at) if at == leaving.at => return (is_right, Destination::Nowhere),
            SentParts::Sent(at) if at == leaving.at => {}
            _ if item.value_bytes() as usize > self.flash.part_bytes_max() => {
                self.count_shed(item, leaving.warmth, counters);
                return (is_right, Destination::Nowhere);
            }
            _ => {
                let offered = offered(store, leaving.hash, item, leaving.warmth, leaving.compressed);
                if !self.is_admitted(levels, item, &offered, counters) {
                    return (is_right, Destination::Nowhere);
                }
            }
        }
        if self.put_first(store, guard, leaving.hash, item, leaving.compressed) == Put::Stored {
            counters.demoted.add(1);
            return (true, Destination::Flash);
        }
        self.shed(store, leaving.hash, item, leaving.warmth, counters);
        (is_right, Destination::Nowhere)
    }

    /// See [`Levels::leave_for_flash`]. Admission is not asked.
    fn take_over(
        &self,
        store: &ItemStore,
        guard: &Guard<'_>,
        leaving: &Leaving<'_>,
        counters: &Counters,
    ) -> bool {
        let item = guard.item(leaving.at);
        if self.holds_clean(leaving.hash, &item) {
            counters.elided.add(1);
            store.leaving.tell(leaving.hash, &item, Destination::OnFlashAlready, &store.clock);
            return true;
        }
        let is_whole = item.value_bytes() as usize <= self.flash.part_bytes_max();
        let may_put = is_whole || leaving.parts == SentParts::Sent(leaving.at);
        let put = || self.put_first(store, guard, leaving.hash, &item, leaving.compressed);
        if !may_put || put() != Put::Stored {
            counters.demotions_shed.add(1);
            return false;
        }
        counters.demoted.add(1);
        store.leaving.tell(leaving.hash, &item, Destination::Flash, &store.clock);
        // As in `leave_after`.
        if store.is_flushed(leaving.at, &item) {
            self.flash.invalidate(leaving.hash, item.key());
        }
        true
    }

    /// Whether the item came from flash unchanged, and flash still has it.
    pub(crate) fn holds_clean(&self, hash: KeyHash, item: &Item<'_>) -> bool {
        item.state().has(State::CLEAN) && self.flash.still_holds(hash)
    }

    /// Whether an item goes to flash. Counts it if not.
    fn is_admitted(
        &self,
        levels: &Levels<'_>,
        item: &Item<'_>,
        offered: &Offered,
        counters: &Counters,
    ) -> bool {
        let store = levels.store;
        // Where the keeper waits for the device, every item finds room.
        let room =
            if levels.is_urgent { self.flash.room(offered.bytes) } else { self.flash.room_of_all_buffers() };
        let mut admission = self.admission.lock().expect("no panic under this lock");
        let admitted = admission.judge(offered, store.worth.get(), room, store.clock.now_s());
        drop(admission);
        match admitted {
            Admitted::Yes => {}
            Admitted::Outranked => self.count_shed(item, offered.warmth, counters),
            Admitted::NeverRead | Admitted::First | Admitted::OverBudget => {
                counters.admission_rejected.add(1);
            }
        }
        admitted == Admitted::Yes
    }

    /// Flash had no room for an item that was admitted.
    fn shed(&self, store: &ItemStore, hash: KeyHash, item: &Item<'_>, warmth: u8, counters: &Counters) {
        let offered = offered(store, hash, item, warmth, None);
        // Some parts of a long value may be written, though nothing finds them.
        let was_written = item.value_bytes() as usize > self.flash.part_bytes_max();
        let mut admission = self.admission.lock().expect("no panic under this lock");
        admission.note_shed(&offered, store.worth.get(), was_written);
        drop(admission);
        self.count_shed(item, warmth, counters);
    }

    /// Counts an item that is lost because the tier does not take it now, and why.
    fn count_shed(&self, item: &Item<'_>, warmth: u8, counters: &Counters) {
        counters.demotions_shed.add(1);
        let is_read = warmth > 0 || item.state().has(State::FETCHED);
        if is_read { &counters.shed_read } else { &counters.shed_unread }.add(1);
        if self.flash.is_short_of_space() {
            counters.shed_for_space.add(1);
        } else if self.flash.is_index_full() {
            counters.shed_for_index.add(1);
        }
    }

    /// About once a second: logs what was shed lately, once a minute, and what helps.
    pub(crate) fn tell_shed(&self, now_s: u32, totals: impl FnOnce() -> Totals) {
        let mut told = self.shed_told.lock().expect("no panic under this lock");
        if now_s < told.0.saturating_add(TELL_SHED_EVERY_S) {
            return;
        }
        let totals = totals();
        let now = [totals.demotions_shed, totals.shed_for_space, totals.shed_for_index];
        let [all, space, index] = std::array::from_fn(|at| now[at].saturating_sub(told.1[at]));
        *told = (now_s, now);
        if all > 0 {
            tracing::warn!(
                "flash: {all} evicted items were lost lately, {space} because erased space is short (lower \
                 flash.tuning.fill), {index} because the index is full (raise --flash-memory), the others because the \
                 device was behind (admit less: --flash-admit, --flash-write-budget; or let stores wait longer: \
                 flash.tuning.store-wait)"
            );
        }
    }

    /// Puts all parts of an item, without asking admission. The first part goes last: it makes the others findable.
    pub(crate) fn put(&self, store: &ItemStore, guard: &Guard<'_>, hash: KeyHash, item: &Item<'_>) -> Put {
        match self.put_parts(store, guard, hash, item) {
            Put::Stored => self.put_first(store, guard, hash, item, None),
            refused => refused,
        }
    }

    /// Puts an item whose value is one part, or the first part of a long value; or what its value was `compressed` to.
    fn put_first(
        &self,
        store: &ItemStore,
        guard: &Guard<'_>,
        hash: KeyHash,
        item: &Item<'_>,
        compressed: Option<&[u8]>,
    ) -> Put {
        let (total, part_bytes_max) = (item.value_bytes() as usize, self.flash.part_bytes_max());
        let compressed = compressed.or_else(|| self.stored_compressed(store, item));
        let value = match (compressed, item.value()) {
            (Some(stored), _) => Cow::Borrowed(stored),
            (None, Value::Chunked { first, .. }) => {
                let mut chunks = ChunkReader::new(guard, first);
                Cow::Owned(chunks.take(total.min(part_bytes_max)))
            }
            (None, _) => match self.whole(store, item) {
                Some(value) => value,
                None => return Put::Shed,
            },
        };
        let expiry = item.expiry();
        let is_compressed = compressed.is_some();
        let extension = Extension { early_ms: expiry.early_ms(), kind: item.kind(), is_compressed };
        let value_bytes = if is_compressed { value.len() } else { total };
        self.flash.put(
            hash,
            &FlashItem {
                key: item.key(),
                value: &value[..value.len().min(part_bytes_max)],
                value_bytes: value_bytes as u64,
                flags: item.flags(),
                expires_unix_s: to_unix_s(&store.clock, expiry),
                cas: item.cas(),
                state: FlashState::of(item.state(), extension),
            },
        )
    }

    /// What is stored of a compressed value, if it can go to flash as it is.
    fn stored_compressed<'g>(&self, store: &ItemStore, item: &Item<'g>) -> Option<&'g [u8]> {
        let Value::Compressed(value) = item.value() else { return None };
        let fits = value.plain_bytes as usize <= self.flash.part_bytes_max();
        (fits && store.compression.dictionaries.is_on_flash(value.dictionary)).then_some(value.stored)
    }

    /// The whole value of an item that has no chunks. `None` = it cannot be expanded.
    fn whole<'g>(&self, store: &ItemStore, item: &Item<'g>) -> Option<Cow<'g, [u8]>> {
        match item.value() {
            Value::Whole(value) => Some(Cow::Borrowed(value)),
            Value::Compressed(stored) => {
                let mut value = Vec::new();
                let mut expander = self.expander.lock().expect("no panic under this lock");
                let is_read = expander.expand(&store.compression.dictionaries, stored, &mut value);
                is_read.then_some(Cow::Owned(value))
            }
            Value::Chunked { .. } => None,
        }
    }

    /// Puts the parts of a long value after the first one.
    fn put_parts(&self, store: &ItemStore, guard: &Guard<'_>, hash: KeyHash, item: &Item<'_>) -> Put {
        let part_bytes = self.flash.part_bytes_max();
        let total = item.value_bytes() as usize;
        let (key, cas) = (item.key(), item.cas());
        let parts = 1..total.div_ceil(part_bytes).max(1);
        match item.value() {
            _ if parts.is_empty() => {}
            Value::Whole(_) | Value::Compressed(_) => {
                let Some(value) = self.whole(store, item) else { return Put::Shed };
                for part in parts {
                    let bytes = &value[part * part_bytes..total.min((part + 1) * part_bytes)];
                    if self.flash.put_part(hash, key, cas, part as u32, bytes) == Put::Shed {
                        return Put::Shed;
                    }
                }
            }
            Value::Chunked { first, .. } => {
                let mut chunks = ChunkReader::new(guard, first);
                chunks.skip(part_bytes.min(total));
                for part in parts {
                    let bytes = chunks.take(part_bytes);
                    if self.flash.put_part(hash, key, cas, part as u32, &bytes) == Put::Shed {
                        return Put::Shed;
                    }
                }
            }
        }
        Put::Stored
    }
}

/// Whether nothing that flash has of the key of an item that is over can be served any more.
pub(crate) fn is_over_on_flash(life: Life, item: &Item<'_>) -> bool {
    match life {
        Life::Live => false,
        // What flash has of a clean item is the same version, which has expired as well.
        Life::Expired => item.state().has(State::CLEAN),
        // The flush removes what was put before it, and nothing of a key is put while memory has an entry of it.
        Life::Flushed => true,
    }
}

/// What admission asks of an item that leaves memory.
fn offered(
    store: &ItemStore,
    hash: KeyHash,
    item: &Item<'_>,
    warmth: u8,
    compressed: Option<&[u8]>,
) -> Offered {
    let value_bytes = match (compressed, item.value()) {
        (Some(stored), _) | (None, Value::Compressed(Compressed { stored, .. })) => stored.len() as u64,
        _ => item.value_bytes().into(),
    };
    let bytes = item.key().len() as u64 + value_bytes;
    let state = item.state();
    let subclass = remembered(state).unwrap_or(store.counters.unknown_penalty());
    Offered { hash, bytes, warmth, fetched: state.has(State::FETCHED), subclass }
}

/// Reads the bytes of a chain of chunks one after another.
struct ChunkReader<'a, 'g> {
    guard: &'a Guard<'g>,
    next: Option<Location>,
    /// Bytes of the present chunk that were not read yet.
    rest: &'g [u8],
}

impl<'a, 'g> ChunkReader<'a, 'g> {
    fn new(guard: &'a Guard<'g>, first: Location) -> Self {
        ChunkReader { guard, next: Some(first), rest: &[] }
    }

    /// The next bytes of one chunk, `bytes_max` at most. Empty at the end of the chain.
    fn piece(&mut self, bytes_max: usize) -> &'g [u8] {
        while self.rest.is_empty()
            && let Some(at) = self.next
        {
            let chunk = self.guard.chunk(at);
            (self.rest, self.next) = (chunk.bytes, chunk.next);
        }
        let (piece, rest) = self.rest.split_at(bytes_max.min(self.rest.len()));
        self.rest = rest;
        piece
    }

    /// The next `bytes` bytes, or all that are left.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = Vec::with_capacity(bytes);
        while taken.len() < bytes {
            let piece = self.piece(bytes - taken.len());
            if piece.is_empty() {
                break;
            }
            taken.extend_from_slice(piece);
        }
        taken
    }

    /// Leaves out the next `bytes` bytes.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cache, CacheOptions, Fetch, Store};
    use larder_flash::FlashOptions;
    use larder_flash::space::Watermarks;
    use larder_laboratory::MemoryDevice;

    /// A cache with flash behind it.
    fn cache() -> Arc<Cache> {
        let device = MemoryDevice::new(64, 256);
        let options = FlashOptions {
            memory_bytes: 16 << 20,
            segment_bytes: None,
            generations: true,
            recover: Recover::Clean,
            space: Watermarks::by_rates(),
            cutoff_s: 0,
            log_percent: 8,
            fill_percent: 50,
            seed: 7,
            now_unix_s: Arc::new(|| 1_000_000_000),
            format: false,
        };
        let flash = Flash::open(Arc::new(device), options).expect("a device of memory can be opened");
        let options = CacheOptions { limit_bytes: 16 << 20, workers: 1, ..CacheOptions::default() };
        Cache::with_flash(options, Some(flash.into())).expect("a small cache can be made")
    }

    /// Stores an item and has it leave memory, with `meanwhile` between the look at its life and its put. Returns
    /// whether it is found on flash then.
    fn is_on_flash_after(meanwhile: impl FnOnce(&Cache)) -> bool {
        let cache = cache();
        let mut worker = cache.worker();
        let (key, hash) = (b"key", cache.hash(b"key"));
        worker.store(&Store::set(key, hash, b"value"));
        worker.quiesce();
        let (store, demoter) = (&cache.store, cache.demoter.as_ref().expect("there is flash"));
        let reader = store.memory.register();
        let guard = reader.pin();
        let mut bucket = store.index.lock(hash);
        let found = bucket.entries().next().expect("the item is in memory");
        let at = found.entry.location;
        let leaving = Leaving { hash, at, warmth: 0, parts: SentParts::None, compressed: None };
        demoter.leave_after(&cache.levels(), &guard, &leaving, store.counters.keeper(), || meanwhile(&cache));
        bucket.remove(&found);
        drop(bucket);
        match worker.fetch(1, hash, key) {
            Fetch::Here(found) => found.value == b"value",
            Fetch::Absent => false,
            _ => panic!("what was put last is in a buffer"),
        }
    }

    #[test]
    fn a_flush_between_the_look_and_the_put_is_not_survived() {
        assert!(is_on_flash_after(|_| {}));
        assert!(!is_on_flash_after(|cache| cache.flush(None)));
    }
}
