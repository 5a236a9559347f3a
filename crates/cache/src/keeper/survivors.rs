//! The columns that the pass moves items to.

use crate::item_store::ItemStore;
use crate::lifetime_class::{LifetimeClass, open_columns_max};
use crate::placement::Placement;
use crate::selector::{set_hot, set_queue};
use crate::temperature::Queue;
use larder_index::WARMTH_MAX;
use larder_item::Expiry;
use larder_memory::{ColumnId, OpenColumn};

/// Items that expire are moved to columns of their own by what is left of their lifetime: up to 8, 16, 32, 64 seconds,
/// and more.
const SECONDS_MAX: [u32; 4] = [8, 16, 32, 64];
const CLASSES: usize = SECONDS_MAX.len() + 1;
/// A column of items that expire is sealed after so many seconds, so that it can go when they have expired.
const OPEN_S_MAX: u32 = 60;

/// Items are divided by warmth while there are so many columns at least: an open column for each warmth is then a small
/// part of memory.
const COLUMNS_BY_WARMTH_MIN: u64 = 4000;
const WARMTHS: usize = WARMTH_MAX as usize + 1;
/// Where hot items are placed in rows, they take one part in so many of a column.
const ROW_SHARE: u64 = 8;

/// What an item is that is moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Zone {
    /// An item that a pass keeps, with the warmth that it keeps, in the columns of a queue.
    Kept(Queue, u8),
    /// A hot item.
    Hot,
}

/// The open columns of the pass, for each of the two queues: those for items that never expire, by warmth, and those
/// for items that do, if there are columns enough. And the columns for hot items.
#[derive(Default)]
pub(super) struct Survivors {
    queues: [Columns; 2],
    hot: Option<OpenColumn>,
    /// Columns that come next for hot items. They are taken together, so that they are beside each other: hot items
    /// then take few translations of addresses.
    hot_next: Vec<OpenColumn>,
}

#[derive(Default)]
struct Columns {
    lasting: [Option<OpenColumn>; WARMTHS],
    expiring: [Option<OpenColumn>; CLASSES],
}

impl Survivors {
    /// Where a copy goes that expires at `expiry`, and the class of its lifetime if the column is for one.
    pub(super) fn place_for(
        &mut self,
        store: &ItemStore,
        zone: Zone,
        expiry: Expiry,
    ) -> (&mut Option<OpenColumn>, Option<LifetimeClass>) {
        let Zone::Kept(queue, warmth) = zone else {
            self.leave_row(store);
            return (&mut self.hot, None);
        };
        // At random, both queues have the same columns.
        let is_random = store.placement == Placement::Random;
        let columns = &mut self.queues[usize::from(queue == Queue::Main && !is_random)];
        if expiry == Expiry::NEVER || open_columns_max(store.columns_max(), store.workers_max()) == 0 {
            let is_by_warmth =
                store.placement.moves_hot_items() && store.columns_max() >= COLUMNS_BY_WARMTH_MIN;
            return (&mut columns.lasting[if is_by_warmth { usize::from(warmth) } else { 0 }], None);
        }
        let now_s = store.clock.now_s();
        let class = LifetimeClass::of(expiry, now_s);
        let longer = SECONDS_MAX.iter().position(|seconds| class.seconds_max() <= *seconds);
        (&mut columns.expiring[longer.unwrap_or(SECONDS_MAX.len())], Some(class))
    }

    /// Takes a column for the next items of a zone, one of which has the number `cas`.
    pub(super) fn take(&mut self, store: &ItemStore, zone: Zone, cas: u64) -> Option<OpenColumn> {
        let Zone::Kept(queue, _) = zone else { return self.take_hot(store, cas) };
        let taken = store.take_column_near(cas)?;
        set_queue(store, &taken, queue);
        Some(taken)
    }

    fn take_hot(&mut self, store: &ItemStore, cas: u64) -> Option<OpenColumn> {
        if self.hot_next.is_empty() {
            // Columns of one slab, as far as writers can do without them.
            let slab = store.memory.geometry().columns_per_slab as usize;
            let spare = store.memory.available_columns().saturating_sub(store.free_columns_target());
            self.hot_next.extend((0..slab.min(spare)).map_while(|_| store.take_column_near(cas)));
            // The lowest is the next one.
            self.hot_next.sort_by_key(|open| std::cmp::Reverse(open.id()));
        }
        self.hot_next.pop().inspect(|open| set_hot(store, open))
    }

    /// Ends a column for hot items whose row is full.
    fn leave_row(&mut self, store: &ItemStore) {
        let column_bytes = store.column_bytes();
        let is_full =
            |open: &OpenColumn| column_bytes - u64::from(open.free_bytes()) > column_bytes / ROW_SHARE;
        if store.placement == Placement::Row && self.hot.as_ref().is_some_and(is_full) {
            self.hot = None;
        }
    }

    /// Gives up the columns that were taken for hot items and hold none.
    pub(super) fn give_up_hot(&mut self) {
        self.hot_next.clear();
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Option<OpenColumn>> {
        let queues = self.queues.iter_mut().flat_map(|of| of.lasting.iter_mut().chain(&mut of.expiring));
        queues.chain([&mut self.hot])
    }

    /// Seals a column that is being filled, so that it can be reclaimed as others are.
    pub(super) fn stop_filling(&mut self, column: ColumnId) {
        for open in self.all() {
            *open = open.take().filter(|open| open.id() != column);
        }
        self.hot_next.retain(|open| open.id() != column);
    }

    /// Seals the columns that were born before `birth`.
    pub(super) fn seal_below(&mut self, store: &ItemStore, birth: u64, mut sealed: impl FnMut(ColumnId)) {
        for open in self.all() {
            if let Some(old) = open.take_if(|open| open.birth() < birth) {
                sealed(old.seal_at(store.clock.now_s()));
            }
        }
        self.hot_next.retain(|open| open.birth() >= birth);
    }

    /// Seals the columns that were opened long ago and hold items that expire.
    pub(super) fn seal_old(&mut self, store: &ItemStore, mut sealed: impl FnMut(ColumnId)) {
        let now_s = store.clock.now_s();
        for open in self.queues.iter_mut().flat_map(|of| &mut of.expiring) {
            let is_old = |open: &mut OpenColumn| {
                now_s.saturating_sub(store.memory.column(open.id()).opened_s()) > OPEN_S_MAX
            };
            if let Some(old) = open.take_if(is_old) {
                sealed(old.seal_at(now_s));
            }
        }
    }
}
