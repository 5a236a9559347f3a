//! What was flushed: lines that are drawn for all items, or for those with a prefix.
//!
//! Every column has a birth number. A floor is a birth number too: items in columns born before it are flushed. While
//! there is no floor, the check is one load.

use crate::padded::CachePadded;
use arc_swap::ArcSwap;
use larder_item::{PrefixFloors, PrefixesFull};
use larder_memory::Memory;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The floors of flushes, and of deletes by prefix.
pub(crate) struct Floors {
    /// Columns born before this number may hold flushed items: the highest of `flush` and the floors of `prefixes`; 0 =
    /// nothing was flushed.
    highest: CachePadded<AtomicU64>,
    /// Columns born before this number hold nothing but flushed items; 0 = there was no `flush_all`.
    flush: AtomicU64,
    /// Of columns born before a prefix's floor, the items with that prefix were flushed.
    prefixes: ArcSwap<PrefixFloors>,
    /// Held while a floor is raised or forgotten. A leaf.
    change: Mutex<()>,
    /// How many entries of flushed items the index still has. The count is exact while nothing is stored.
    flushed_entries: CachePadded<AtomicU64>,
    /// The highest birth number of a column that was taken.
    last_birth: AtomicU64,
}

impl Floors {
    /// No floor. The columns that there are were born up to `last_birth`.
    pub(super) fn new(last_birth: u64) -> Floors {
        Floors {
            highest: CachePadded(AtomicU64::new(0)),
            flush: AtomicU64::new(0),
            prefixes: ArcSwap::default(),
            change: Mutex::default(),
            flushed_entries: CachePadded(AtomicU64::new(0)),
            last_birth: AtomicU64::new(last_birth),
        }
    }

    /// A column was taken.
    pub(super) fn born(&self, birth: u64) {
        self.last_birth.fetch_max(birth, Ordering::SeqCst);
    }

    /// Whether an item in a column of this birth may have been flushed. If so, [`Floors::is_below`] tells.
    #[inline(always)]
    pub(super) fn may_be_below(&self, birth: impl FnOnce() -> u64) -> bool {
        let floor = self.highest.0.load(Ordering::SeqCst);
        floor != 0 && birth() < floor
    }

    /// Whether an item with this key, in a column of this birth, was flushed.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_below(&self, birth: u64, key: &[u8]) -> bool {
        birth < self.flush.load(Ordering::SeqCst) || birth < self.prefixes.load().floor_of(key)
    }

    /// How many of `entries` entries are not those of flushed items.
    pub(super) fn not_flushed(&self, entries: u64) -> u64 {
        entries.saturating_sub(self.flushed_entries.0.load(Ordering::Relaxed))
    }

    /// The index has one entry less, of an item in a column of this birth.
    #[inline]
    pub(super) fn entry_is_gone(&self, birth: impl FnOnce() -> u64) {
        let floor = self.flush();
        if floor != 0 && birth() < floor {
            let one_less = |entries: u64| Some(entries.saturating_sub(1));
            let _ = self.flushed_entries.0.try_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        }
    }

    /// Columns born before this number may hold flushed items; 0 = nothing was flushed.
    #[inline]
    pub(crate) fn highest(&self) -> u64 {
        self.highest.0.load(Ordering::Acquire)
    }

    /// Columns born before this number hold nothing but flushed items; 0 = there was no `flush_all`.
    #[inline]
    pub(crate) fn flush(&self) -> u64 {
        self.flush.load(Ordering::Acquire)
    }

    /// The floors of deleted prefixes.
    pub(crate) fn prefixes(&self) -> Arc<PrefixFloors> {
        self.prefixes.load_full()
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.change.lock().expect("no panic under this lock")
    }

    /// Flushes everything that is stored now: raises the flush floor above the birth of every column that holds an
    /// item. `entries` says how many items there are.
    pub(crate) fn raise_flush(&self, memory: &Memory, entries: impl FnOnce() -> u64) {
        let _changing = self.lock();
        self.flushed_entries.0.store(entries(), Ordering::Relaxed);
        self.raise_above_births(|floor| {
            if let Some(head) = memory.head() {
                // First: what a client does not see any more must not come back with a later process.
                head.flush_floor.fetch_max(floor, Ordering::SeqCst);
            }
            self.flush.fetch_max(floor, Ordering::SeqCst);
        });
        // All of them are below the new floor.
        self.prefixes.store(Arc::default());
        note_prefixes_for_later(memory, 0);
    }

    /// Flushes the items that are stored now and whose keys begin with `prefix`.
    ///
    /// # Errors
    /// As many prefixes are being deleted as the table has room for.
    pub(crate) fn raise_prefix(&self, memory: &Memory, prefix: &[u8]) -> Result<(), PrefixesFull> {
        let _changing = self.lock();
        let mut changed = PrefixFloors::clone(&self.prefixes.load());
        changed.raise(prefix, self.last_birth.load(Ordering::SeqCst) + 1)?;
        self.raise_above_births(|floor| {
            if let Some(head) = memory.head() {
                head.prefix_floor.fetch_max(floor, Ordering::SeqCst);
            }
            // There is room for the row from the first time on.
            let _ = changed.raise(prefix, floor);
            self.prefixes.store(Arc::new(changed.clone()));
        });
        Ok(())
    }

    /// Calls `raise` with a floor above the birth of every column that holds an item now.
    fn raise_above_births(&self, mut raise: impl FnMut(u64)) {
        loop {
            let floor = self.last_birth.load(Ordering::SeqCst) + 1;
            raise(floor);
            // After the floors that it stands for.
            self.highest.0.fetch_max(floor, Ordering::SeqCst);
            // A column that was taken while the floor was being raised is caught by another round.
            if self.last_birth.load(Ordering::SeqCst) < floor {
                break;
            }
        }
    }

    /// Forgets the flush at `floor`, unless a later one raised the floor meanwhile.
    pub(crate) fn forget_flush(&self, floor: u64) {
        let _changing = self.lock();
        if self.flush.load(Ordering::SeqCst) == floor {
            self.flush.store(0, Ordering::SeqCst);
            self.flushed_entries.0.store(0, Ordering::Relaxed);
            self.lower_highest();
        }
    }

    /// Forgets the rows of the table of prefixes that `swept` has as well: their items are removed. A row that was
    /// added since stays. It may have the same floor, where no column was taken in between.
    pub(crate) fn forget_prefixes(&self, memory: &Memory, swept: &PrefixFloors) {
        let _changing = self.lock();
        let mut changed = PrefixFloors::clone(&self.prefixes.load());
        if changed.forget_rows_of(swept) {
            note_prefixes_for_later(memory, changed.highest());
            self.prefixes.store(Arc::new(changed));
            self.lower_highest();
        }
    }

    /// After a floor was forgotten. The caller keeps others from changing floors.
    fn lower_highest(&self) {
        let highest = self.prefixes.load().highest().max(self.flush.load(Ordering::SeqCst));
        self.highest.0.store(highest, Ordering::SeqCst);
    }
}

/// In a kept memory: the highest floor of a prefix whose items are not all removed. A later process finds nothing
/// below it.
fn note_prefixes_for_later(memory: &Memory, highest: u64) {
    if let Some(head) = memory.head() {
        head.prefix_floor.store(highest, Ordering::SeqCst);
    }
}
