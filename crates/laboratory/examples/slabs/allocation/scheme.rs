//! The interface of an allocation scheme: what a scheme sees, and the trait [`Scheme`].

use super::stack::StackPosition;
use super::store::Store;

/// One access, as a scheme sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlabAccess {
    /// The group of the item.
    pub(crate) group: usize,
    /// Whether the access was a GET; otherwise an item was stored.
    pub(crate) get: bool,
    /// Whether the item was present.
    pub(crate) hit: bool,
    /// Position of the item in its stack.
    pub(crate) position: StackPosition,
    /// Cost of a miss of the item, in microseconds.
    pub(crate) penalty_us: u32,
}

/// Decides which group of a [`Store`] gives a slab to which.
pub(crate) trait Scheme: Send {
    /// The number of penalty subclasses per class; 1 = none.
    fn subclasses(&self) -> usize {
        1
    }

    /// The number of segments to track on either side of the end of a stack; 0 = none, and no ghosts.
    fn segments(&self) -> usize {
        0
    }

    /// Whether Bloom filters tell the segments.
    fn filtered(&self) -> bool {
        false
    }

    /// Whether all Bloom filters must be rebuilt. Called after each access where there are filters.
    fn filters_due(&mut self) -> bool {
        false
    }

    /// Whether a group without slabs gets its first slab from the group with the most slabs, without asking the
    /// scheme. memcached grants a class its first slab even above the memory limit.
    fn first_slab_for_all(&self) -> bool {
        true
    }

    /// An access, before the store changes. A GET that missed is not followed by another access for the client's SET.
    /// A SET of an absent item counts as a miss, because it needs a slot like a miss.
    fn on_access(&mut self, access: &SlabAccess, store: &Store);

    /// The group that gives a slab to `needy`, which has no free slot while no slab is free. `None` or `needy` itself
    /// means that no slab moves and the lowest item of `needy` is evicted.
    fn donor(&mut self, needy: usize, store: &Store) -> Option<usize>;

    /// A slab to move after this access: (from, to).
    fn due(&mut self, _store: &Store) -> Option<(usize, usize)> {
        None
    }

    /// A slab has moved.
    fn moved(&mut self, _from: usize, _to: usize) {}
}

/// The group with the most slabs except `but`; the first among equals.
pub(super) fn richest(store: &Store, but: usize) -> Option<usize> {
    let others = store.slabs().iter().enumerate().filter(|&(group, &slabs)| group != but && slabs > 0);
    others.min_by_key(|&(_, &slabs)| std::cmp::Reverse(slabs)).map(|(group, _)| group)
}
