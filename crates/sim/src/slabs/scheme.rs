//! What a scheme is told and what it decides.

use super::stack::Place;
use super::store::Store;

/// What a scheme is told of an access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The group of the item.
    pub group: usize,
    /// Whether it was a GET; else something was stored.
    pub get: bool,
    /// Whether the item was there.
    pub hit: bool,
    /// Where in its stack it was found.
    pub place: Place,
    /// What a miss of it costs, in microseconds.
    pub penalty_us: u32,
}

/// Decides over the slabs of a [`Store`].
pub trait Scheme: Send {
    /// Penalty subclasses per class; 1 = none.
    fn subclasses(&self) -> usize {
        1
    }

    /// Segments to be tracked on either side of the end of a stack; 0 = none, and no ghosts.
    fn segments(&self) -> usize {
        0
    }

    /// Whether Bloom filters tell the segments.
    fn filtered(&self) -> bool {
        false
    }

    /// Whether all Bloom filters are to be built anew; asked after each access where there are filters.
    fn filters_due(&mut self) -> bool {
        false
    }

    /// Whether a group without slabs gets its first one from the group with the most, whatever the scheme
    /// would say. memcached grants a class its first slab even above the limit of memory.
    fn first_slab_for_all(&self) -> bool {
        true
    }

    /// An access, before anything changes. A GET that missed is followed by no further one for the client's
    /// SET. A SET of an item that is not there counts as a miss, for it needs a slot like one.
    fn seen(&mut self, seen: &Seen, store: &Store);

    /// Who gives a slab to `needy`, which has no free slot while there is no free slab; `None` or `needy`
    /// itself: nobody, the lowest item of `needy` is replaced.
    fn donor(&mut self, needy: usize, store: &Store) -> Option<usize>;

    /// A slab to be moved after this access, from whom to whom.
    fn due(&mut self, _store: &Store) -> Option<(usize, usize)> {
        None
    }

    /// A slab has moved.
    fn moved(&mut self, _from: usize, _to: usize) {}
}

/// The group with the most slabs, other than `but`; the first of equals.
pub(super) fn richest(store: &Store, but: usize) -> Option<usize> {
    let others = store.slabs().iter().enumerate().filter(|&(group, &slabs)| group != but && slabs > 0);
    others.min_by_key(|&(_, &slabs)| std::cmp::Reverse(slabs)).map(|(group, _)| group)
}
