//! The part that all policies share: look-ups, changes of size, and the limit of the capacity.

use super::interface::{Access, Policy};
use super::slots::Slots;

/// The part in which one policy differs from another. The frame passes only sizes from 1 to the capacity.
pub trait Scheme: Send {
    /// Data that the policy keeps with each item.
    type Data: Copy + Send;

    /// A stored item was accessed. Its size is already up to date.
    fn hit(&mut self, slots: &mut Slots<Self::Data>, slot: u32, access: &Access);

    /// An item that is not stored was accessed. `ghost` is the slot of its key if the policy remembers the key. The
    /// policy makes room and stores the item, or refuses it.
    fn miss(&mut self, slots: &mut Slots<Self::Data>, ghost: Option<u32>, access: &Access);

    /// Brings the cache closer to having room. Repeated calls eventually evict a stored item.
    fn evict(&mut self, slots: &mut Slots<Self::Data>);

    /// An item was deleted.
    fn forget(&mut self, slots: &mut Slots<Self::Data>, slot: u32) {
        slots.free(slot);
    }

    /// See [`Policy::metadata_bits`].
    fn metadata_bits(&self) -> f64;

    /// See [`Policy::needs_next`].
    fn needs_next(&self) -> bool {
        false
    }

    /// Evicts until another `size` fits.
    fn make_room(&mut self, slots: &mut Slots<Self::Data>, size: u32) {
        while slots.lacks(size) {
            self.evict(slots);
        }
    }

    /// Makes room for a new item and stores it at the head of `list`.
    fn admit(&mut self, slots: &mut Slots<Self::Data>, list: u8, access: &Access, data: Self::Data) {
        self.make_room(slots, access.size);
        slots.add_to(list, access.id, access.size, data);
    }
}

/// A policy: a [`Scheme`] and the slots that it manages.
pub struct Framed<S: Scheme> {
    slots: Slots<S::Data>,
    scheme: S,
}

impl<S: Scheme> Framed<S> {
    /// An empty cache; `lists` is the number of lists that the scheme uses.
    pub fn new(capacity: u64, lists: usize, scheme: S) -> Framed<S> {
        Framed { slots: Slots::new(capacity, lists), scheme }
    }
}

impl<S: Scheme> Policy for Framed<S> {
    fn access(&mut self, access: &Access) -> bool {
        let access = &Access { size: access.size.max(1), ..*access };
        let fits = u64::from(access.size) <= self.slots.capacity();
        let slot = self.slots.find(access.id);
        let Some(slot) = slot.filter(|&slot| self.slots.is_resident(slot)) else {
            if fits {
                self.scheme.miss(&mut self.slots, slot, access);
            }
            return false;
        };
        if !fits {
            self.scheme.forget(&mut self.slots, slot);
            return true;
        }
        if access.size != self.slots.size(slot) {
            self.slots.resize(slot, access.size);
        }
        self.scheme.hit(&mut self.slots, slot, access);
        self.scheme.make_room(&mut self.slots, 0);
        true
    }

    fn contains(&self, id: u32) -> bool {
        self.slots.find(id).is_some_and(|slot| self.slots.is_resident(slot))
    }

    fn remove(&mut self, id: u32) {
        if let Some(slot) = self.slots.find(id).filter(|&slot| self.slots.is_resident(slot)) {
            self.scheme.forget(&mut self.slots, slot);
        }
    }

    fn used(&self) -> u64 {
        self.slots.used()
    }

    fn items(&self) -> u64 {
        self.slots.items()
    }

    fn metadata_bits(&self) -> f64 {
        self.scheme.metadata_bits()
    }

    fn needs_next(&self) -> bool {
        self.scheme.needs_next()
    }
}
