//! The columns that the pass moves items to.

use crate::item_store::ItemStore;
use crate::lifetime_class::{LifetimeClass, open_columns_max};
use crate::temperature::Queue;
use larder_item::Expiry;
use larder_memory::{ColumnId, OpenColumn};

/// Items that expire are moved to columns of their own by what is left of their lifetime: up to 8, 16, 32, 64 seconds,
/// and more.
const SECONDS_MAX: [u32; 4] = [8, 16, 32, 64];
const CLASSES: usize = SECONDS_MAX.len() + 1;
/// A column of items that expire is sealed after so many seconds, so that it can go when they have expired.
const OPEN_S_MAX: u32 = 60;

/// The open columns of the pass, for each of the two queues: one for items that never expire, and those for items that
/// do, if there are columns enough.
#[derive(Default)]
pub(super) struct Survivors([[Option<OpenColumn>; 1 + CLASSES]; 2]);

impl Survivors {
    /// Where a copy goes that expires at `expiry`, and the class of its lifetime if the column is for one.
    pub(super) fn place_for(
        &mut self,
        store: &ItemStore,
        queue: Queue,
        expiry: Expiry,
    ) -> (&mut Option<OpenColumn>, Option<LifetimeClass>) {
        let columns = &mut self.0[usize::from(queue == Queue::Main)];
        if expiry == Expiry::NEVER || open_columns_max(store.columns_max(), store.workers_max()) == 0 {
            return (&mut columns[0], None);
        }
        let now_s = store.clock.now_s();
        let class = LifetimeClass::of(expiry, now_s);
        let longer = SECONDS_MAX.iter().position(|seconds| class.seconds_max() <= *seconds);
        (&mut columns[1 + longer.unwrap_or(SECONDS_MAX.len())], Some(class))
    }

    /// Seals a column that is being filled, so that it can be reclaimed as others are.
    pub(super) fn stop_filling(&mut self, column: ColumnId) {
        for open in self.0.iter_mut().flatten() {
            *open = open.take().filter(|open| open.id() != column);
        }
    }

    /// Seals the columns that were opened long ago and hold items that expire.
    pub(super) fn seal_old(&mut self, store: &ItemStore, mut sealed: impl FnMut(ColumnId)) {
        let now_s = store.clock.now_s();
        for open in self.0.iter_mut().flat_map(|columns| &mut columns[1..]) {
            let is_old = |open: &mut OpenColumn| {
                now_s.saturating_sub(store.memory.column(open.id()).opened_s()) > OPEN_S_MAX
            };
            if let Some(old) = open.take_if(is_old) {
                sealed(old.seal_at(now_s));
            }
        }
    }
}
