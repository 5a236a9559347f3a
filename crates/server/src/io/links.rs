//! A worker's connections, by slot.

use super::link::{Driver, Link};
use super::service::{ConnectionId, Conversation};

/// A connection is boxed: it moves from its slot to the batch, and back, as one pointer.
pub(super) type BoxedLink<C, D> = Box<Link<C, D>>;

/// A slot for each connection. A slot is empty while its connection is served, and after the connection is gone.
pub(super) struct Links<C, D: Driver> {
    slots: Vec<Option<BoxedLink<C, D>>>,
    free: Vec<usize>,
    /// Counts the connections. Its value at a connection's begin tells it from others that had its slot.
    generation: u32,
    /// Where the search for idle connections goes on.
    idle_cursor: usize,
}

impl<C: Conversation, D: Driver> Links<C, D> {
    pub(super) fn new() -> Links<C, D> {
        Links { slots: Vec::new(), free: Vec::new(), generation: 0, idle_cursor: 0 }
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no connection.
    pub(super) fn are_none(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    pub(super) fn get(&self, slot: usize) -> Option<&Link<C, D>> {
        self.slots[slot].as_deref()
    }

    /// The connection in a slot, which need not exist.
    #[inline]
    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Link<C, D>> {
        self.slots.get_mut(slot).and_then(Option::as_deref_mut)
    }

    /// A free slot, and the name of the connection that will be in it.
    pub(super) fn reserve(&mut self) -> ConnectionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.generation = self.generation.wrapping_add(1);
        ConnectionId { slot: slot as u32, generation: self.generation }
    }

    /// Puts a connection into its slot.
    #[inline]
    pub(super) fn put(&mut self, slot: usize, link: BoxedLink<C, D>) {
        self.slots[slot] = Some(link);
    }

    /// Takes a connection out of its slot, to work on it.
    #[inline]
    pub(super) fn take(&mut self, slot: usize) -> Option<BoxedLink<C, D>> {
        self.slots[slot].take()
    }

    /// Takes a connection out of its slot if it is one of `which`.
    #[inline]
    pub(super) fn take_if(
        &mut self,
        slot: usize,
        which: impl FnOnce(&mut BoxedLink<C, D>) -> bool,
    ) -> Option<BoxedLink<C, D>> {
        self.slots[slot].take_if(which)
    }

    /// The connection of a slot is gone for good.
    pub(super) fn release(&mut self, slot: usize) {
        self.free.push(slot);
    }

    /// The next slot in which to look for an idle connection. There is at least one slot.
    pub(super) fn next_to_look_at(&mut self) -> usize {
        self.idle_cursor = (self.idle_cursor + 1) % self.slots.len();
        self.idle_cursor
    }
}
