//! The items in memory: columns, index and clock, and the rules about items that every read and every write needs.
//!
//! [`ItemStore`] is the bottom of this crate. Workers, the keeper and the demoter all work on it; it knows none of
//! them. It takes no lock on the way of a lookup.
//!
//! * `start.rs` makes the store.
//! * `floors.rs` has what was flushed, `supply.rs` the free columns, `leaving.rs` the live items that make room.

mod floors;
mod leaving;
mod start;
mod supply;

pub(crate) use floors::Floors;
pub(crate) use leaving::Leaving;
pub use leaving::{Departure, Destination, Hearer};
pub(crate) use start::FlashNeeds;
pub(crate) use supply::RESERVED_COLUMNS;

use crate::budget::{Budget, Limits};
use crate::clock::Clock;
use crate::column_group::is_correlated;
use crate::compression::Compression;
use crate::counters::{CounterBlocks, Counters};
use crate::namespaces::Namespaces;
use crate::padded::CachePadded;
use crate::placement::Placement;
use crate::worth::WorthSetting;
use larder_index::{BucketGuard, Entry, Found, HoldsKey, Index, WARMTH_MAX};
use larder_item::{Expiry, KeyHash, KeyHasher, Location, PrefixFloors, PrefixesFull, State, ValueLayout};
use larder_memory::{ColumnId, ColumnState, Guard, Item, Memory, Value};
use std::sync::atomic::{AtomicU64, Ordering};
use supply::{COLUMNS_PER_WORKER_MIN, Supply};

/// What a bucket costs together with its share of sub-buckets at the fill target.
const INDEX_BYTES_PER_BUCKET: u64 = 86;
/// Items are moved out of sparse columns, and nothing is evicted, while more than an eighth of the used bytes is dead.
/// With a quarter, a set of items that fills 0.8 of the columns and is overwritten at random lost a tenth of its items;
/// with an eighth it lost nothing, for 28 % more CPU time.
const MUCH_DEAD_SHARE: u64 = 8;
/// The fewest columns that `cache_memlimit` may leave. With half as many, writers waited for a column for too long
/// while the limit went down under load.
const COLUMNS_MIN: usize = 32;
/// The most columns that are looked at for the oldest one.
const AGE_LOOKS_MAX: u32 = 16_384;

/// All items in memory, and what is needed to find them.
pub(crate) struct ItemStore {
    pub(crate) memory: Memory,
    pub(crate) index: Index,
    pub(crate) hasher: KeyHasher,
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    /// What the worth of an item is made of.
    pub(crate) worth: WorthSetting,
    /// Where items stand that are moved.
    pub(crate) placement: Placement,
    /// What each thread has counted.
    pub(crate) counters: CounterBlocks,
    /// Tenants with shares of the memory.
    pub(crate) namespaces: Namespaces,
    /// Live items that leave memory.
    pub(crate) leaving: Leaving,
    /// What was flushed.
    pub(crate) floors: Floors,
    /// Which values are compressed, and with what.
    pub(crate) compression: Compression,
    supply: Supply,
    /// The last CAS number given out.
    cas: CachePadded<AtomicU64>,
    /// Bytes in sealed columns that have expired or were flushed, as the keeper last knew.
    over_bytes: CachePadded<AtomicU64>,
}

/// Whether an item that is found may be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Live,
    Expired,
    Flushed,
}

impl ItemStore {
    /// Bytes in sealed columns that have expired or were flushed, as the keeper last knew: about a second ago.
    pub(crate) fn over_bytes(&self) -> u64 {
        self.over_bytes.0.load(Ordering::Relaxed)
    }

    /// The keeper knows anew how many bytes have expired or were flushed.
    pub(crate) fn set_over_bytes(&self, bytes: u64) {
        self.over_bytes.0.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of all items that can be served, as far as the keeper knows.
    pub(crate) fn servable_bytes(&self) -> u64 {
        self.counters.live_bytes().saturating_sub(self.over_bytes())
    }

    /// Whether so much of the used memory is dead that nothing live need be evicted.
    pub(crate) fn is_much_dead(&self) -> bool {
        let used = self.used_bytes();
        self.servable_bytes() < used - used / MUCH_DEAD_SHARE
    }

    /// Bytes of columns that hold records, live or dead.
    pub(crate) fn used_bytes(&self) -> u64 {
        let idle = (self.memory.free_columns() + self.memory.retired_columns()) as u64;
        self.memory.mapped_bytes().saturating_sub(idle * self.column_bytes())
    }

    /// How many columns there may be under the present limit.
    pub(crate) fn columns_max(&self) -> u64 {
        self.memory.limit_bytes() / self.column_bytes()
    }

    /// Bytes of one column.
    #[inline]
    pub(crate) fn column_bytes(&self) -> u64 {
        u64::from(self.memory.geometry().column_bytes)
    }

    /// The warmth of an entry after an overwrite, which counts as a use of the item.
    pub(crate) fn warmer(&self, entry: &Entry) -> u8 {
        (entry.warmth + u8::from(self.uses_count(entry.location))).min(WARMTH_MAX)
    }

    /// Whether a read or an overwrite of the item at `at` raises the warmth of its entry.
    #[inline]
    pub(crate) fn uses_count(&self, at: Location) -> bool {
        !is_correlated(&self.memory, at)
    }

    /// Compares keys for the index, by reading the records.
    #[inline]
    pub(crate) fn key_reader<'a, 'g>(&'a self, guard: &'a Guard<'g>) -> KeyReader<'a, 'g> {
        KeyReader { guard, store: self }
    }

    /// Whether the index has an entry of the key, for a live item or not.
    pub(crate) fn has_entry(&self, guard: &Guard<'_>, hash: KeyHash, key: &[u8]) -> bool {
        self.index.get(hash, key, &self.key_reader(guard)).is_some()
    }

    /// Whether the item at `at` may be served, and the reason if not.
    #[inline(always)]
    pub(crate) fn life(&self, at: Location, item: &Item<'_>) -> Life {
        if item.may_have_expired(self.clock.now_s()) && self.clock.has_passed(item.expiry()) {
            Life::Expired
        } else if self.is_flushed(at, item) {
            Life::Flushed
        } else {
            Life::Live
        }
    }

    /// Whether the item at `at` was flushed, with all others or by its prefix.
    #[inline(always)]
    pub(crate) fn is_flushed(&self, at: Location, item: &Item<'_>) -> bool {
        let birth = || self.birth_of(at);
        self.floors.may_be_below(birth) && self.floors.is_below(birth(), item.key())
    }

    /// Under the writer bit: makes the entry that was found lead to the copy of its item at `new`, with this warmth.
    pub(crate) fn move_entry(
        &self,
        guard: &Guard<'_>,
        bucket: &mut BucketGuard<'_>,
        found: &Found,
        (new, warmth): (Location, u8),
        counters: &Counters,
    ) {
        let (old_item, new_item) = (guard.item(found.entry.location), guard.item(new));
        // The sizes may differ: a copy may be compressed or plain again, it leaves out the word of an expiry that was
        // taken away, and may need a word for its CAS number.
        let (old_bytes, new_bytes) = (old_item.bytes(), new_item.bytes());
        counters.bytes_died.add(old_bytes.saturating_sub(new_bytes).into());
        counters.bytes_stored.add(new_bytes.saturating_sub(old_bytes).into());
        // Expiry and state may have changed since the copy. Under the writer bit they hold still.
        new_item.copy_state_from(&old_item);
        new_item.commit();
        old_item.revoke();
        bucket.replace(found, new, warmth);
        // The column's own counts must be right, for the column may have to stay because of a later record.
        old_item.die();
    }

    /// How many items the index holds that were not flushed. Expired items count.
    pub(crate) fn items(&self) -> u64 {
        self.floors.not_flushed(self.index.len())
    }

    /// The birth number of the column that holds `at`.
    #[inline]
    pub(crate) fn birth_of(&self, at: Location) -> u64 {
        self.memory.column(self.memory.column_of(at)).birth()
    }

    /// Flushes everything that is stored now.
    pub(crate) fn flush(&self) {
        self.floors.raise_flush(&self.memory, || self.index.len());
    }

    /// Flushes the items that are stored now and whose keys begin with `prefix`.
    ///
    /// # Errors
    /// As many prefixes are being deleted as the table has room for.
    pub(crate) fn flush_prefix(&self, prefix: &[u8]) -> Result<(), PrefixesFull> {
        self.floors.raise_prefix(&self.memory, prefix)
    }

    /// Forgets the rows of the table of prefixes that `swept` has as well: their items are removed.
    pub(crate) fn forget_prefixes(&self, swept: &PrefixFloors) {
        self.floors.forget_prefixes(&self.memory, swept);
    }

    /// The number before the next CAS number.
    pub(crate) fn last_cas(&self) -> &AtomicU64 {
        &self.cas.0
    }

    /// Once a second, and when the process ends: tells a later process of a kept memory how the clock reads, and about
    /// how many items there are, and which CAS numbers were given out.
    pub(crate) fn note_for_later(&self) {
        if let Some(head) = self.memory.head() {
            head.clock_offset_ms.store(self.clock.offset_ms() as u64, Ordering::Relaxed);
            head.items.store(self.index.len(), Ordering::Relaxed);
            head.cas.store(self.cas.0.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Gives the columns what the index, the temperature and the curves of namespaces leave of the limit, and what the
    /// connection buffers lend.
    pub(crate) fn share_out(&self) {
        let (budget, lent) = (self.limits.budget(), self.limits.lent_bytes());
        self.index.set_growth_limit(budget.index_bytes_max() / INDEX_BYTES_PER_BUCKET);
        let others = self.index.bytes() + self.limits.others_bytes();
        let most = budget.columns_bytes(others, lent);
        let beside = budget.columns_bytes(others + self.limits.dictionaries_bytes(), lent);
        // A limit that was lowered has dictionaries until their records are gone.
        self.memory.set_limit(beside.max(self.columns_bytes_min().min(most)));
    }

    /// Whether a limit that is shared out like this leaves columns enough for all workers and the keeper to go on with.
    pub(crate) fn leaves_columns(&self, budget: &Budget) -> bool {
        budget.columns_bytes(self.index.bytes() + self.limits.others_bytes(), 0) >= self.columns_bytes_min()
    }

    /// The fewest columns, in whole slabs, that all workers and the keeper can go on with, in bytes.
    fn columns_bytes_min(&self) -> u64 {
        let per_slab = self.memory.geometry().columns_per_slab as usize;
        // The keeper has counters, too.
        let columns = (self.counters.workers_max() + 1) * COLUMNS_PER_WORKER_MIN + RESERVED_COLUMNS;
        columns.max(COLUMNS_MIN).next_multiple_of(per_slab) as u64 * self.column_bytes()
    }

    /// Counts the bytes of the item at `at` as dead, and returns them. The caller has removed or replaced the item's
    /// entry.
    pub(crate) fn died(&self, guard: &Guard<'_>, at: Location, counters: &Counters) -> u64 {
        self.floors.entry_is_gone(|| self.birth_of(at));
        let mut bytes = 0;
        self.each_record(guard, at, |record| bytes += u64::from(record.die()));
        counters.bytes_died.add(bytes);
        bytes
    }

    /// Counts the record at `at` as dead, but not the chunks that it names: another record has them now.
    pub(crate) fn record_died(&self, guard: &Guard<'_>, at: Location, counters: &Counters) {
        self.floors.entry_is_gone(|| self.birth_of(at));
        counters.bytes_died.add(guard.item(at).die().into());
    }

    /// Changes the expiry of an item in place, and that of its chunks. Returns false if its record has no word for it.
    /// The caller holds the writer bit of the item's bucket, or the item was not published yet.
    pub(crate) fn set_expiry(&self, guard: &Guard<'_>, at: Location, expiry: Expiry) -> bool {
        let mut is_set = true;
        self.each_record(guard, at, |record| is_set &= record.set_expiry(expiry));
        is_set
    }

    /// In a kept memory: the chunks of the item at `at` are complete, and count with it.
    pub(crate) fn commit_chunks(&self, guard: &Guard<'_>, at: Location) {
        if self.memory.head().is_some() {
            let mut next = first_chunk(&guard.item(at));
            while let Some(at) = next {
                guard.item(at).commit();
                next = guard.chunk(at).next;
            }
        }
    }

    /// Bytes that the item at `at` takes, its chunks included.
    #[inline]
    pub(crate) fn bytes_of(&self, guard: &Guard<'_>, at: Location) -> u64 {
        let mut bytes = 0;
        self.each_record(guard, at, |record| bytes += u64::from(record.bytes()));
        bytes
    }

    /// Calls `f` with the item's own record and with that of each of its chunks.
    #[inline]
    fn each_record(&self, guard: &Guard<'_>, at: Location, mut f: impl FnMut(&Item<'_>)) {
        let item = guard.item(at);
        f(&item);
        let mut next = first_chunk(&item);
        while let Some(at) = next {
            f(&guard.item(at));
            next = guard.chunk(at).next;
        }
    }

    /// Counts an item whose entry the pass or a full bucket has removed as dead, and as evicted if it was live, else as
    /// reclaimed.
    pub(crate) fn count_removal(
        &self,
        guard: &Guard<'_>,
        at: Location,
        life: Life,
        warmth: u8,
        counters: &Counters,
    ) {
        let bytes = self.died(guard, at, counters);
        let item = guard.item(at);
        if life == Life::Live {
            return self.count_eviction(&item, bytes, warmth, counters);
        }
        counters.reclaimed.add(1);
        if life == Life::Expired && !item.state().has(State::FETCHED) {
            counters.expired_unfetched.add(1);
        }
    }

    /// Counts an item that is evicted, by the state it was last in. It takes `bytes` bytes.
    fn count_eviction(&self, item: &Item<'_>, bytes: u64, warmth: u8, counters: &Counters) {
        if self.namespaces.are_on() {
            self.namespaces.count_eviction(item.key(), bytes, self.counters.workers_max());
        }
        let idle_s = item.state().idle_s(self.clock.now_s());
        self.leaving.note_idle(idle_s);
        counters.evictions.add(1);
        counters.evicted_idle_s.add(idle_s.into());
        // An overwrite makes an entry warmer as well, but nobody has read the new item.
        if !item.state().has(State::FETCHED) {
            counters.evicted_unfetched.add(1);
        } else if warmth > 0 {
            counters.evicted_active.add(1);
        }
        if item.expiry() != Expiry::NEVER {
            counters.evicted_nonzero.add(1);
        }
    }

    /// About how many seconds ago the oldest column that holds items was begun.
    pub(crate) fn age_s(&self) -> u32 {
        let columns = self.memory.columns_mapped();
        let sampled = (0..columns).step_by(columns.div_ceil(AGE_LOOKS_MAX).max(1) as usize);
        let begun_s = sampled
            .map(|id| self.memory.column(ColumnId(id)))
            .filter(|column| matches!(column.state(), ColumnState::Open | ColumnState::Sealed))
            .filter(|column| column.live_bytes() > 0)
            .map(|column| column.opened_s());
        begun_s.min().map_or(0, |begun_s| self.clock.now_s().saturating_sub(begun_s))
    }

    /// Live bytes as the columns count them. `live_bytes` is what the items count.
    pub(crate) fn live_in_columns(&self) -> u64 {
        let columns = (0..self.memory.columns_mapped()).map(|id| self.memory.column(ColumnId(id)));
        let in_use =
            columns.filter(|column| matches!(column.state(), ColumnState::Open | ColumnState::Sealed));
        in_use.map(|column| u64::from(column.live_bytes())).sum()
    }
}

/// The first chunk of an item whose value is a chain of chunks.
#[inline]
pub(crate) fn first_chunk(item: &Item<'_>) -> Option<Location> {
    // The layout is one look at the header, and the value is not.
    match item.value_layout() {
        ValueLayout::Chunked => match item.value() {
            Value::Chunked { first, .. } => Some(first),
            Value::Whole(_) | Value::Compressed(_) => None,
        },
        _ => None,
    }
}

/// Answers the questions of the index about keys by reading the records.
pub(crate) struct KeyReader<'a, 'g> {
    guard: &'a Guard<'g>,
    store: &'a ItemStore,
}

impl HoldsKey for KeyReader<'_, '_> {
    #[inline]
    fn holds(&self, at: Location, key: &[u8]) -> bool {
        self.guard.item(at).key_matches(key)
    }

    #[inline]
    fn hash_of(&self, at: Location) -> KeyHash {
        self.store.hasher.hash(self.guard.item(at).key())
    }

    #[inline]
    fn reads_count(&self, at: Location) -> bool {
        self.store.uses_count(at)
    }

    #[inline]
    fn prefetch(&self, at: Location) {
        self.guard.prefetch(at);
    }
}
