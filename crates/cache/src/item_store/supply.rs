//! The supply of free columns: how many are held ready, and for whom.

use super::ItemStore;
use crate::column_group::{begin_correlated, end_correlated};
use crate::counters::Counters;
use crate::padded::CachePadded;
use crate::temperature::NewColumns;
use larder_item::CAS_DELTA_BITS;
use larder_memory::{FreshPages, NodeId, OpenColumn};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The most free columns that are held ready.
const FREE_COLUMNS_MAX: usize = 64;
/// Free columns that only the pass may take, so that warm items find room when writers have taken all other columns.
pub(crate) const RESERVED_COLUMNS: usize = 2;
/// While there are least shares, the pass has 14 columns more: about as many as it fills at a time, for a column may
/// hold cold items of every lifetime that have to stay. In a small cache they are a 64th of all columns.
const RESERVED_FOR_SHARES: usize = 14;
const RESERVED_FOR_SHARES_PART: usize = 64;
/// Where nothing may be evicted, each worker has a column for items that take the place of others. In a small cache
/// they are a 64th of all columns, but one at least.
const RESERVED_FOR_REPLACING_PART: usize = 64;
/// There the pass has columns to copy a large value to, too: four, or in a small cache again a 64th of all columns.
const RESERVED_FOR_CHAINS: usize = 4;
/// Columns there must be for each worker, which fills two of its own.
pub(super) const COLUMNS_PER_WORKER_MIN: usize = 3;
/// The share of the columns that is held ready. With flash behind memory, a burst of writes should find columns while
/// earlier items are being written to flash.
const READY_SHARE: usize = 128;
const READY_SHARE_WITH_FLASH: usize = 16;

/// How many of `columns` columns are held ready under the first limit.
pub(super) fn free_columns_wanted(columns: usize, workers: usize, has_flash: bool) -> usize {
    let share = if has_flash { READY_SHARE_WITH_FLASH } else { READY_SHARE };
    (columns / share).min(FREE_COLUMNS_MAX).max(workers + 3 + RESERVED_COLUMNS)
}

/// What is held ready.
pub(super) struct Supply {
    /// How many free columns are held ready under the first limit.
    wanted: usize,
    /// How many columns of fresh memory are taken from the machine ahead of need.
    ahead: CachePadded<AtomicUsize>,
    /// All memory was taken from the machine at the start, and stays.
    is_prefaulted: AtomicBool,
    /// Writers that found no column, and wait for the keeper's lock or have it.
    writers_waiting: AtomicU32,
    /// A leaf: nothing else is locked under it.
    new_columns: Mutex<NewColumns>,
}

impl Supply {
    pub(super) fn new(wanted: usize) -> Supply {
        Supply {
            wanted,
            ahead: CachePadded(AtomicUsize::new(0)),
            is_prefaulted: AtomicBool::new(false),
            writers_waiting: AtomicU32::new(0),
            new_columns: Mutex::default(),
        }
    }
}

impl ItemStore {
    /// A writer finds no free column, and waits until `work` is done.
    pub(crate) fn while_writer_waits<R>(&self, work: impl FnOnce() -> R) -> R {
        self.supply.writers_waiting.fetch_add(1, Ordering::Relaxed);
        let result = work();
        self.supply.writers_waiting.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// Whether a writer waits that found no free column.
    pub(crate) fn has_waiting_writers(&self) -> bool {
        self.supply.writers_waiting.load(Ordering::Relaxed) > 0
    }

    /// Free columns that only the pass may take.
    pub(crate) fn reserved_columns(&self) -> usize {
        RESERVED_COLUMNS + self.reserved_for_shares()
    }

    fn reserved_for_shares(&self) -> usize {
        match self.namespaces.have_least() {
            true => RESERVED_FOR_SHARES.min(self.columns_max() as usize / RESERVED_FOR_SHARES_PART),
            false => 0,
        }
    }

    /// Free columns that no writer may take for an item beside those that are there.
    pub(crate) fn columns_not_for_new(&self) -> usize {
        let for_chains = match self.leaving.happens() {
            true => 0,
            false => RESERVED_FOR_CHAINS.min(self.columns_max() as usize / RESERVED_FOR_REPLACING_PART),
        };
        self.reserved_columns() + self.columns_for_replacing() + for_chains
    }

    /// Free columns for items that take the place of others.
    pub(crate) fn columns_for_replacing(&self) -> usize {
        if self.leaving.happens() {
            return 0;
        }
        let most = (self.columns_max() as usize / RESERVED_FOR_REPLACING_PART).max(1);
        self.counters.workers_max().min(most)
    }

    /// Takes a free column, of this node if there is one, for a writer whose new items have CAS numbers soon after
    /// `cas`. The last `left_free` are left: at least [`ItemStore::reserved_columns`] are for the pass.
    pub(crate) fn take_column(
        &self,
        node: NodeId,
        cas: u64,
        left_free: usize,
        counters: &Counters,
    ) -> Option<OpenColumn> {
        if self.memory.available_columns() <= left_free {
            self.memory.recycle();
            if self.memory.available_columns() <= left_free {
                return None;
            }
        }
        let taken = self.take_column_with(node, cas, counters)?;
        let ended = |column, birth| end_correlated(&self.memory, column, birth);
        let mut new_columns = self.new_columns();
        if new_columns.opened(taken.id(), taken.birth(), ended) {
            // Under the lock, so that no other thread ends the period before it begins.
            begin_correlated(&self.memory, taken.id());
        }
        Some(taken)
    }

    /// The policy wants this number of columns in their correlated period.
    pub(crate) fn want_new_columns(&self, wanted: usize) {
        self.new_columns().want(wanted, |column, birth| end_correlated(&self.memory, column, birth));
    }

    fn new_columns(&self) -> MutexGuard<'_, NewColumns> {
        self.supply.new_columns.lock().expect("no panic under this lock")
    }

    /// Takes a free column for the pass, of the reserved ones too, for items that were stored at about the time of one
    /// with the number `cas`. The column is of this node if there is one.
    pub(crate) fn take_column_near(&self, node: NodeId, cas: u64) -> Option<OpenColumn> {
        let cas_base = cas.wrapping_sub(1 << (CAS_DELTA_BITS - 1));
        self.take_column_with(node, cas_base, self.counters.keeper())
    }

    /// Takes a free column and counts its birth.
    fn take_column_with(&self, node: NodeId, cas_base: u64, counters: &Counters) -> Option<OpenColumn> {
        let taken = self.memory.take_column_on(node, cas_base, self.clock.now_s())?;
        self.floors.born(taken.birth());
        if self.memory.nodes().count() > 1 {
            let is_local = self.memory.node_of(taken.id()) == node;
            if is_local { &counters.numa_local_columns } else { &counters.numa_remote_columns }.add(1);
        }
        Some(taken)
    }

    /// How many free columns are held ready: what was wanted at the start, but at most an eighth of all columns, also
    /// under a lower limit; and what the pass has for shares.
    pub(crate) fn free_columns_target(&self) -> usize {
        self.ready_for_writers() + self.reserved_for_shares()
    }

    /// With this number of free columns left, writers will soon have to wait.
    pub(crate) fn free_columns_low(&self) -> usize {
        self.ready_for_writers() / 4 + self.reserved_columns()
    }

    /// How many of the free columns that are held ready are not for shares.
    fn ready_for_writers(&self) -> usize {
        self.supply.wanted.min(self.columns_max() as usize / 8).max(RESERVED_COLUMNS + 1)
    }

    /// How many columns of fresh memory are taken from the machine ahead of need.
    pub(crate) fn columns_ahead(&self) -> usize {
        self.supply.ahead.0.load(Ordering::Relaxed)
    }

    /// Sets how many columns of fresh memory are taken from the machine ahead of need.
    pub(crate) fn set_columns_ahead(&self, columns: usize) {
        self.supply.ahead.0.store(columns, Ordering::Relaxed);
    }

    /// Whether the keeper should reclaim columns, or take fresh memory, before a writer has to wait for it.
    pub(crate) fn is_short_of_columns(&self) -> bool {
        let (ready, available) = (self.memory.ready_columns(), self.memory.available_columns());
        let is_short =
            self.leaving.happens() && available < self.ready_for_writers() / 2 + self.reserved_for_shares();
        // Before fresh memory is taken the keeper empties sparse columns, measures how fast memory is taken, and sizes
        // what the policy keeps.
        let ahead = self.columns_ahead().max(self.memory.geometry().columns_per_slab as usize);
        is_short || (ready < ahead / 2 && available > ready)
    }

    /// Whether all memory was taken from the machine at the start.
    pub(crate) fn is_prefaulted(&self) -> bool {
        self.supply.is_prefaulted.load(Ordering::Relaxed)
    }

    /// Takes all memory for columns from the machine now, `threads` slabs at a time, so that no write waits later for
    /// the kernel to fill pages with zeros. Gives up between two slabs when `go_on` says no.
    pub(crate) fn prefault(&self, threads: usize, go_on: impl Fn() -> bool + Sync) {
        self.supply.is_prefaulted.store(true, Ordering::Relaxed);
        let at_once = self.memory.geometry().columns_per_slab as usize;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut ready = 0;
                    // Asks for more columns each time, until the number does not go up any more.
                    while go_on() {
                        let now = self.memory.touch_ahead(ready + at_once, FreshPages::Huge);
                        if now <= ready {
                            break;
                        }
                        ready = now;
                    }
                });
            }
        });
    }
}
