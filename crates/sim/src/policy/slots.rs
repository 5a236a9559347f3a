//! The items of one simulated cache: an arena of slots that are linked into lists and found by key number.
//!
//! A key that has appeared costs 4 bytes; an item, stored or ghost, costs one slot. Nothing is hashed.

/// "No slot", "no list".
const NIL: u32 = u32::MAX;
const NO_LIST: u8 = u8::MAX;

/// One item. `newer` and `older` link the slot into its list.
#[derive(Clone, Copy)]
struct Slot<T> {
    id: u32,
    size: u32,
    newer: u32,
    older: u32,
    list: u8,
    resident: bool,
    data: T,
}

/// A queue of slots. Slots join at the head (the newest) and usually leave at the tail (the oldest).
#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    size: u64,
}

/// Items by slot number, in a fixed number of lists. A ghost (a remembered key without an item) has a slot too, but
/// does not count as used space.
///
/// Lists are numbered from 0. The number of a slot is valid until [`Slots::free`]; functions panic for a number that
/// never was one.
pub struct Slots<T> {
    slot_of_id: Vec<u32>,
    slots: Vec<Slot<T>>,
    lists: Vec<List>,
    /// First of the free slots, which are chained by `older`.
    free: u32,
    capacity: u64,
    used: u64,
    items: u64,
}

impl<T: Copy> Slots<T> {
    /// An empty arena with `lists` lists, for a cache of this capacity.
    pub fn new(capacity: u64, lists: usize) -> Slots<T> {
        assert!(lists < usize::from(NO_LIST));
        Slots {
            slot_of_id: Vec::new(),
            slots: Vec::new(),
            lists: vec![List { head: NIL, tail: NIL, size: 0 }; lists],
            free: NIL,
            capacity,
            used: 0,
            items: 0,
        }
    }

    /// The limit of the sum of the sizes of the stored items.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The sum of the sizes of the stored items.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// The number of stored items.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Whether something must be evicted before another `size` fits.
    pub fn lacks(&self, size: u32) -> bool {
        self.used + u64::from(size) > self.capacity
    }

    /// The slot of a key, whether stored or ghost.
    #[inline]
    pub fn find(&self, id: u32) -> Option<u32> {
        self.slot_of_id.get(id as usize).copied().filter(|&slot| slot != NIL)
    }

    /// Gives a stored item a slot that is in no list. The key must not have a slot.
    pub fn add(&mut self, id: u32, size: u32, data: T) -> u32 {
        let item = Slot { id, size, newer: NIL, older: NIL, list: NO_LIST, resident: true, data };
        let slot = if self.free == NIL {
            self.slots.push(item);
            (self.slots.len() - 1) as u32
        } else {
            let slot = self.free;
            self.free = self.slots[slot as usize].older;
            self.slots[slot as usize] = item;
            slot
        };
        if self.slot_of_id.len() <= id as usize {
            self.slot_of_id.resize(id as usize + 1, NIL);
        }
        debug_assert_eq!(self.slot_of_id[id as usize], NIL);
        self.slot_of_id[id as usize] = slot;
        self.used += u64::from(size);
        self.items += 1;
        slot
    }

    /// [`Slots::add`] and [`Slots::push`] in one.
    pub fn add_to(&mut self, list: u8, id: u32, size: u32, data: T) -> u32 {
        let slot = self.add(id, size, data);
        self.push(list, slot);
        slot
    }

    /// Removes an item or a ghost completely.
    pub fn free(&mut self, slot: u32) {
        self.unlink(slot);
        self.make_ghost(slot);
        self.slot_of_id[self.slots[slot as usize].id as usize] = NIL;
        self.slots[slot as usize].older = self.free;
        self.free = slot;
    }

    /// Turns a stored item into a ghost, which no longer counts as used space. The slot stays in its list.
    pub fn make_ghost(&mut self, slot: u32) {
        let item = &mut self.slots[slot as usize];
        if item.resident {
            item.resident = false;
            self.used -= u64::from(item.size);
            self.items -= 1;
        }
    }

    /// Changes the size of an item.
    pub fn resize(&mut self, slot: u32, size: u32) {
        let item = &mut self.slots[slot as usize];
        let old = u64::from(std::mem::replace(&mut item.size, size));
        if item.resident {
            self.used = self.used - old + u64::from(size);
        }
        if item.list != NO_LIST {
            let list = &mut self.lists[usize::from(item.list)];
            list.size = list.size - old + u64::from(size);
        }
    }

    /// Puts a slot that is in no list at the head of `list`.
    pub fn push(&mut self, list: u8, slot: u32) {
        let to = &mut self.lists[usize::from(list)];
        let item = &mut self.slots[slot as usize];
        debug_assert_eq!(item.list, NO_LIST);
        item.list = list;
        item.newer = NIL;
        item.older = to.head;
        to.size += u64::from(item.size);
        let second = std::mem::replace(&mut to.head, slot);
        if second == NIL {
            to.tail = slot;
        } else {
            self.slots[second as usize].newer = slot;
        }
    }

    /// Removes a slot from its list, if it is in one.
    pub fn unlink(&mut self, slot: u32) {
        let Slot { list, newer, older, size, .. } = self.slots[slot as usize];
        if list == NO_LIST {
            return;
        }
        let from = &mut self.lists[usize::from(list)];
        from.size -= u64::from(size);
        if newer == NIL {
            from.head = older;
        } else {
            self.slots[newer as usize].older = older;
        }
        if older == NIL {
            from.tail = newer;
        } else {
            self.slots[older as usize].newer = newer;
        }
        self.slots[slot as usize].list = NO_LIST;
    }

    /// Moves a slot to the head of `list` from any list.
    #[inline]
    pub fn move_to(&mut self, list: u8, slot: u32) {
        if self.lists[usize::from(list)].head != slot {
            self.unlink(slot);
            self.push(list, slot);
        }
    }

    /// The oldest slot of a list.
    pub fn tail(&self, list: u8) -> Option<u32> {
        Some(self.lists[usize::from(list)].tail).filter(|&slot| slot != NIL)
    }

    /// The next slot towards the head of the list.
    pub fn newer(&self, slot: u32) -> Option<u32> {
        Some(self.slots[slot as usize].newer).filter(|&slot| slot != NIL)
    }

    /// The sum of the sizes in a list.
    pub fn list_size(&self, list: u8) -> u64 {
        self.lists[usize::from(list)].size
    }

    /// The list of a slot, which must be in one.
    #[inline]
    pub fn list_of(&self, slot: u32) -> u8 {
        self.slots[slot as usize].list
    }

    /// Whether the slot holds a stored item; false for a ghost.
    #[inline]
    pub fn is_resident(&self, slot: u32) -> bool {
        self.slots[slot as usize].resident
    }

    /// The number of the key.
    pub fn id(&self, slot: u32) -> u32 {
        self.slots[slot as usize].id
    }

    /// The size of the item.
    pub fn size(&self, slot: u32) -> u32 {
        self.slots[slot as usize].size
    }

    /// The data that the policy keeps with the item.
    #[inline]
    pub fn data(&mut self, slot: u32) -> &mut T {
        &mut self.slots[slot as usize].data
    }
}
