//! Items in slots, and slabs in groups: the mechanism over which every scheme decides.

use super::SlabClasses;
use super::nodes::{Node, Nodes};
use super::stack::{Stack, StackPosition};
use larder_curve::mix::KeyMap;

/// The bookkeeping that a scheme needs from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Penalty subclasses per class; 1 = none.
    pub(super) subclasses: usize,
    /// Segments tracked on either side of the end of a stack (m + 1); 0 = none, and no ghosts.
    pub(super) segments: usize,
    /// Whether Bloom filters tell the segments as well.
    pub(super) filtered: bool,
}

/// The properties of an item to store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) key: u64,
    pub(super) size_bytes: u32,
    pub(super) penalty_us: u32,
    pub(super) expires_s: u32,
}

/// The cache: groups with an LRU stack and slabs each. The number of a group is `class * subclasses + subclass`.
///
/// The total of assigned and free slabs is constant, and no group has more items than slots. Nodes exist only for
/// items and ghosts.
pub(crate) struct Store {
    subclasses: usize,
    nodes: Nodes,
    index: KeyMap<u32>,
    stacks: Vec<Stack>,
    slabs: Vec<u32>,
    slots_per_slab: Vec<usize>,
    slabs_free: u32,
    slabs_moved: u64,
    accesses: u64,
}

impl Store {
    pub(super) fn new(classes: &SlabClasses, slabs: u32, shape: Shape) -> Store {
        let groups = classes.len() * shape.subclasses;
        let slots_per_slab: Vec<usize> =
            (0..groups).map(|group| classes.slots_per_slab(group / shape.subclasses)).collect();
        Store {
            subclasses: shape.subclasses,
            nodes: Nodes::default(),
            index: KeyMap::default(),
            stacks: slots_per_slab
                .iter()
                .map(|&slots| Stack::new(shape.segments, slots, shape.filtered))
                .collect(),
            slabs: vec![0; groups],
            slots_per_slab,
            slabs_free: slabs,
            slabs_moved: 0,
            accesses: 0,
        }
    }

    /// The number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.slabs.len()
    }

    /// The number of groups per class.
    pub(crate) fn subclasses(&self) -> usize {
        self.subclasses
    }

    /// The number of slabs of each group.
    pub(crate) fn slabs(&self) -> &[u32] {
        &self.slabs
    }

    /// The number of slabs that no group has yet.
    pub(crate) fn slabs_free(&self) -> u32 {
        self.slabs_free
    }

    /// The number of items of a group.
    pub(crate) fn items(&self, group: usize) -> usize {
        self.stacks[group].items()
    }

    /// The number of ghosts of a group.
    #[cfg(test)]
    pub(crate) fn ghosts(&self, group: usize) -> usize {
        self.stacks[group].ghosts()
    }

    /// The number of items that fit into one slab of a group.
    #[cfg(test)]
    pub(crate) fn slots_per_slab(&self, group: usize) -> usize {
        self.slots_per_slab[group]
    }

    /// The number of entries: items and ghosts of all groups.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.nodes.len()
    }

    /// Accesses since the last use of the item that the group would evict next.
    pub(crate) fn lru_age(&self, group: usize) -> Option<u64> {
        let last = self.stacks[group].last_resident()?;
        Some(self.accesses - self.nodes.get(last).used_at)
    }

    /// An access begins.
    pub(super) fn tick(&mut self) {
        self.accesses += 1;
    }

    /// The item or ghost of a key, with its node number.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<(u32, Node)> {
        self.index.get(&key).map(|&at| (at, *self.nodes.get(at)))
    }

    /// Whether a node is a stored item rather than a ghost.
    #[inline]
    pub(super) fn is_resident(&self, node: &Node) -> bool {
        self.stacks[usize::from(node.group)].is_resident(node.zone)
    }

    /// The position of a node in its stack.
    #[inline]
    pub(super) fn position(&self, node: &Node) -> StackPosition {
        self.stacks[usize::from(node.group)].position(usize::from(node.zone))
    }

    /// The position of a key according to the filters of a group; `None` without filters.
    #[inline]
    pub(super) fn judge(&mut self, group: usize, key: u64, hit: bool) -> Option<StackPosition> {
        self.stacks[group].judge(key, hit)
    }

    /// Rebuilds the filters of all groups.
    pub(super) fn rebuild_filters(&mut self) {
        self.stacks.iter_mut().for_each(|stack| stack.rebuild_all_filters(&self.nodes));
    }

    /// Moves a used item to the top of its stack.
    #[inline]
    pub(super) fn use_item(&mut self, at: u32) {
        let node = self.nodes.get_mut(at);
        node.used_at = self.accesses;
        let group = usize::from(node.group);
        self.stacks[group].use_item(&mut self.nodes, at);
    }

    /// Updates the properties of an item, which stays in its group.
    pub(super) fn update(&mut self, at: u32, item: &Item) {
        let node = self.nodes.get_mut(at);
        node.size_bytes = item.size_bytes;
        node.penalty_us = item.penalty_us;
        node.expires_s = item.expires_s;
    }

    /// Removes an item or a ghost.
    pub(super) fn remove(&mut self, at: u32) {
        let node = *self.nodes.get(at);
        self.stacks[usize::from(node.group)].remove(&mut self.nodes, at);
        self.forget(at);
    }

    /// Whether a group has a free slot.
    pub(super) fn has_slot(&self, group: usize) -> bool {
        self.items(group) < self.slabs[group] as usize * self.slots_per_slab[group]
    }

    /// Gives a free slab to a group. Returns whether there was one.
    pub(super) fn take_free_slab(&mut self, group: usize) -> bool {
        if self.slabs_free == 0 {
            return false;
        }
        self.slabs_free -= 1;
        self.slabs[group] += 1;
        true
    }

    /// Stores a new item in a free slot of a group. The key must be absent, and a slot must be free.
    pub(super) fn insert(&mut self, group: usize, item: &Item) {
        debug_assert!(self.has_slot(group));
        let at = self.put_node(group, item);
        self.stacks[group].put_on_top(&mut self.nodes, at);
    }

    /// Remembers an item as a ghost in a group without slabs. The key must be absent.
    pub(super) fn insert_ghost(&mut self, group: usize, item: &Item) {
        let at = self.put_node(group, item);
        if let Some(forgotten) = self.stacks[group].put_ghost(&mut self.nodes, at) {
            self.forget(forgotten);
        }
    }

    /// Evicts the lowest item of a group that has one.
    pub(super) fn evict(&mut self, group: usize) {
        if let Some(forgotten) = self.stacks[group].evict(&mut self.nodes) {
            self.forget(forgotten);
        }
    }

    /// Moves a slab of `from` to `to`. As many of the lowest items of `from` are evicted as no longer have a slot.
    pub(super) fn move_slab(&mut self, from: usize, to: usize) {
        self.slabs[from] -= 1;
        let slots = self.slabs[from] as usize * self.slots_per_slab[from];
        while self.items(from) > slots {
            self.evict(from);
        }
        self.slabs[to] += 1;
        self.slabs_moved += 1;
    }

    fn put_node(&mut self, group: usize, item: &Item) -> u32 {
        let at = self.nodes.put(Node {
            key: item.key,
            used_at: self.accesses,
            prev: super::nodes::NONE,
            next: super::nodes::NONE,
            size_bytes: item.size_bytes,
            penalty_us: item.penalty_us,
            expires_s: item.expires_s,
            group: group as u16,
            zone: 0,
        });
        self.index.insert(item.key, at);
        at
    }

    fn forget(&mut self, at: u32) {
        self.index.remove(&self.nodes.get(at).key);
        self.nodes.free(at);
    }

    /// A group's stack, for tests: the keys of each zone, and of the whole list.
    #[cfg(test)]
    pub(super) fn keys(&self, group: usize, segments: usize) -> (Vec<Vec<u64>>, Vec<u64>) {
        let stack = &self.stacks[group];
        let zones = (0..=2 * segments).map(|zone| stack.keys(&self.nodes, zone)).collect();
        (zones, stack.all_keys(&self.nodes))
    }
}
