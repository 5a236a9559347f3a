//! The columns that the pass moves items to.

use crate::item_store::ItemStore;
use crate::lifetime_class::{LifetimeClass, open_columns_max};
use crate::selector::{set_hot, set_queue};
use crate::temperature::Queue;
use larder_index::WARMTH_MAX;
use larder_item::Expiry;
use larder_memory::{ColumnId, NodeId, OpenColumn};

/// Items that expire are moved to columns of their own by what is left of their lifetime: up to 8, 16, 32, 64 seconds,
/// and more.
const SECONDS_MAX: [u32; 4] = [8, 16, 32, 64];
const CLASSES: usize = SECONDS_MAX.len() + 1;
/// A column of items that expire is sealed after 60 seconds, so that it can go when they have expired.
const OPEN_S_MAX: u32 = 60;

/// Items are divided by warmth while there are 4,000 columns at least: an open column for each warmth is then a small
/// part of memory.
const COLUMNS_BY_WARMTH_MIN: u64 = 4000;
/// Each node has open columns of its own while there are 1,000 columns for each: a small part of memory is open then.
const COLUMNS_BY_NODE_MIN: u64 = 1000;
const WARMTHS: usize = WARMTH_MAX as usize + 1;

/// What an item is that is moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Zone {
    /// An item that a pass keeps, with the warmth that it keeps, in the columns of a queue.
    Kept(Queue, u8),
    /// A hot item.
    Hot,
    /// An item of any kind, where nothing may be evicted.
    Packed,
}

/// The open columns of the pass, for each node.
#[derive(Default)]
pub(super) struct Survivors {
    nodes: Vec<OfNode>,
    packed: Option<OpenColumn>,
    /// For the chunks of large values, where nothing may be evicted.
    chunks: Option<OpenColumn>,
}

/// The open columns for items of one node, for each of the two queues: those for items that never expire, by warmth,
/// and those for items that do, if there are columns enough. And the columns for hot items.
#[derive(Default)]
struct OfNode {
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

/// Whether each node has columns of its own.
fn is_by_node(store: &ItemStore) -> bool {
    store.columns_max() >= COLUMNS_BY_NODE_MIN * u64::from(store.memory.nodes().count())
}

impl Survivors {
    fn of(&mut self, store: &ItemStore, node: NodeId) -> &mut OfNode {
        let number = if node.0 > 0 && is_by_node(store) { node.0 as usize } else { 0 };
        if self.nodes.len() <= number {
            self.nodes.resize_with(number + 1, OfNode::default);
        }
        &mut self.nodes[number]
    }

    /// Where a copy goes of an item of `node` that expires at `expiry`, and the class of its lifetime if the column is
    /// for one.
    pub(super) fn place_for(
        &mut self,
        store: &ItemStore,
        node: NodeId,
        zone: Zone,
        expiry: Expiry,
    ) -> (&mut Option<OpenColumn>, Option<LifetimeClass>) {
        let (queue, warmth) = match zone {
            Zone::Packed => return (&mut self.packed, None),
            Zone::Hot => return (&mut self.of(store, node).hot, None),
            Zone::Kept(queue, warmth) => (queue, warmth),
        };
        let of = self.of(store, node);
        let columns = &mut of.queues[usize::from(queue == Queue::Main)];
        if expiry == Expiry::NEVER || open_columns_max(store.columns_max(), store.counters.workers_max()) == 0
        {
            let is_by_warmth =
                store.placement.moves_hot_items() && store.columns_max() >= COLUMNS_BY_WARMTH_MIN;
            return (&mut columns.lasting[if is_by_warmth { usize::from(warmth) } else { 0 }], None);
        }
        let now_s = store.clock.now_s();
        let class = LifetimeClass::of(expiry, now_s);
        let longer = SECONDS_MAX.iter().position(|seconds| class.seconds_max() <= *seconds);
        (&mut columns.expiring[longer.unwrap_or(SECONDS_MAX.len())], Some(class))
    }

    /// Where a copy of a chunk goes.
    pub(super) fn chunks(&mut self) -> &mut Option<OpenColumn> {
        &mut self.chunks
    }

    /// Takes a column for the next items of a node and a zone, one of which has the number `cas`.
    pub(super) fn take(
        &mut self,
        store: &ItemStore,
        node: NodeId,
        zone: Zone,
        cas: u64,
    ) -> Option<OpenColumn> {
        let queue = match zone {
            Zone::Packed => Queue::Probation,
            Zone::Hot => return self.of(store, node).take_hot(store, node, cas),
            Zone::Kept(queue, _) => queue,
        };
        let taken = store.take_column_near(node, cas)?;
        set_queue(store, &taken, queue);
        Some(taken)
    }

    /// Gives up the columns that were taken for hot items and hold none.
    pub(super) fn give_up_hot(&mut self, store: &ItemStore, mut sealed: impl FnMut(ColumnId)) {
        let unused = self.nodes.iter_mut().flat_map(|of| of.hot_next.drain(..));
        unused.for_each(|open| end(store, open, &mut sealed));
    }

    /// Bytes that are free in the column that items of all kinds are packed in.
    pub(super) fn packed_free_bytes(&self) -> u64 {
        self.packed.as_ref().map_or(0, |open| open.free_bytes().into())
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Option<OpenColumn>> {
        self.nodes.iter_mut().flat_map(OfNode::all).chain([&mut self.packed, &mut self.chunks])
    }

    /// Ends a column if it is being filled, so that it can be reclaimed as others are.
    pub(super) fn stop_filling(&mut self, store: &ItemStore, column: ColumnId, sealed: impl FnMut(ColumnId)) {
        self.end_where(store, |open| open.id() == column, sealed);
    }

    /// Ends the columns that were born before `birth`.
    pub(super) fn seal_below(&mut self, store: &ItemStore, birth: u64, sealed: impl FnMut(ColumnId)) {
        self.end_where(store, |open| open.birth() < birth, sealed);
    }

    fn end_where(
        &mut self,
        store: &ItemStore,
        ends: impl Fn(&OpenColumn) -> bool,
        mut sealed: impl FnMut(ColumnId),
    ) {
        for open in self.all() {
            if let Some(open) = open.take_if(|open| ends(open)) {
                end(store, open, &mut sealed);
            }
        }
        for of in &mut self.nodes {
            of.hot_next.extract_if(.., |open| ends(open)).for_each(|open| end(store, open, &mut sealed));
        }
    }

    /// Seals the columns that were opened long ago and hold items that expire, and, under a limit with few columns,
    /// those that nodes have for themselves.
    pub(super) fn seal_old(&mut self, store: &ItemStore, mut sealed: impl FnMut(ColumnId)) {
        let now_s = store.clock.now_s();
        for open in self.nodes.iter_mut().flat_map(|of| &mut of.queues).flat_map(|of| &mut of.expiring) {
            let is_old = |open: &mut OpenColumn| {
                now_s.saturating_sub(store.memory.column(open.id()).opened_s()) > OPEN_S_MAX
            };
            if let Some(old) = open.take_if(is_old) {
                end(store, old, &mut sealed);
            }
        }
        if self.nodes.len() > 1 && !is_by_node(store) {
            for mut of in self.nodes.drain(1..) {
                let open = std::mem::take(&mut of.hot_next).into_iter();
                let open = open.chain(of.all().filter_map(Option::take));
                open.for_each(|open| end(store, open, &mut sealed));
            }
        }
    }
}

/// Ends a column that was filled. One that holds nothing is on its way back. `sealed` hears of any other, so that the
/// policy knows it.
fn end(store: &ItemStore, open: OpenColumn, sealed: &mut impl FnMut(ColumnId)) {
    let column = open.seal_at(store.clock.now_s());
    if store.memory.column(column).live_bytes() == 0 {
        store.memory.retire(column);
    } else {
        sealed(column);
    }
}

impl OfNode {
    fn take_hot(&mut self, store: &ItemStore, node: NodeId, cas: u64) -> Option<OpenColumn> {
        if self.hot_next.is_empty() {
            // Columns of one slab, as far as writers can do without them.
            let slab = store.memory.geometry().columns_per_slab as usize;
            let spare = store.memory.available_columns().saturating_sub(store.free_columns_target());
            self.hot_next.extend((0..slab.min(spare)).map_while(|_| store.take_column_near(node, cas)));
            // The lowest is the next one.
            self.hot_next.sort_by_key(|open| std::cmp::Reverse(open.id()));
        }
        self.hot_next.pop().inspect(|open| set_hot(store, open))
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Option<OpenColumn>> {
        let queues = self.queues.iter_mut().flat_map(|of| of.lasting.iter_mut().chain(&mut of.expiring));
        queues.chain([&mut self.hot])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_options::CacheOptions;
    use larder_memory::{NumaNodes, PagesWanted};

    const KEPT: Zone = Zone::Kept(Queue::Main, 0);

    /// A store with two nodes and columns of 32 KiB.
    fn store(limit_bytes: u64) -> ItemStore {
        let options = CacheOptions {
            limit_bytes,
            workers: 1,
            pages: PagesWanted::Small,
            column_bytes: Some(32 << 10),
            nodes: NumaNodes::with_cpus([(0, vec![0]), (1, vec![1])]),
            ..CacheOptions::default()
        };
        ItemStore::new(&options, None, 0).expect("a small store can be made")
    }

    /// Opens a column for items of a node. Returns whether there was one.
    fn open(survivors: &mut Survivors, store: &ItemStore, node: NodeId, zone: Zone) -> bool {
        if survivors.place_for(store, node, zone, Expiry::NEVER).0.is_some() {
            return true;
        }
        let taken = survivors.take(store, node, zone, 1).expect("a free column");
        assert_eq!(store.memory.node_of(taken.id()), node);
        *survivors.place_for(store, node, zone, Expiry::NEVER).0 = Some(taken);
        false
    }

    #[test]
    fn each_node_has_columns_of_its_own_while_there_are_many() {
        let (store, mut survivors) = (store(128 << 20), Survivors::default());
        for zone in [KEPT, Zone::Hot] {
            let opened = [1, 0, 1].map(|node| open(&mut survivors, &store, NodeId(node), zone));
            assert_eq!(opened, [false, false, true], "{zone:?}");
        }
        assert_eq!(store.counters.keeper().numa_remote_columns.get(), 0);
        let slab = store.memory.geometry().columns_per_slab as usize;
        survivors.give_up_hot(&store, |_| panic!("they hold nothing"));
        assert_eq!(store.memory.retired_columns(), 2 * (slab - 1), "they come back");
        survivors.seal_old(&store, |_| panic!("both nodes have theirs"));
        let mut sealed = Vec::new();
        let hot =
            survivors.place_for(&store, NodeId(1), Zone::Hot, Expiry::NEVER).0.as_mut().expect("it is open");
        let (value, state): ([&[u8]; 2], _) = ([b"value", b""], larder_item::State::at(2, 0));
        let item = larder_memory::NewItem {
            key: b"key",
            value,
            flags: 0,
            expiry: Expiry::NEVER,
            cas: 1,
            state,
            kind: larder_item::Kind::Text,
        };
        hot.place(&item).expect("it has room");
        let (hot, before) = (hot.id(), store.memory.retired_columns());
        store.memory.set_limit(32 << 20);
        survivors.seal_old(&store, |column| sealed.push(column));
        assert_eq!(sealed, [hot], "those of the second node are not filled any more");
        assert_eq!(store.memory.retired_columns(), before + 1, "the other one holds nothing");
        assert!(open(&mut survivors, &store, NodeId(1), KEPT), "all nodes share what is open");
    }

    #[test]
    fn few_columns_are_shared_by_all_nodes() {
        let (store, mut survivors) = (store(16 << 20), Survivors::default());
        assert!(!open(&mut survivors, &store, NodeId(1), KEPT));
        assert!(open(&mut survivors, &store, NodeId(0), KEPT));
    }
}
