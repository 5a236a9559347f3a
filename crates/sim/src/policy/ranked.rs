//! Policies that evict the item of least rank: LFU, GDSF and Belady's MIN.

use super::frame::Scheme;
use super::heap::Heap;
use super::interface::Access;
use super::slots::Slots;

/// The item that was used least often since it came leaves; among equals, the one that has been so for
/// longest.
pub(super) struct Lfu {
    heap: Heap<(u64, u64)>,
    now: u64,
}

impl Lfu {
    /// An empty one.
    pub(super) fn new() -> Lfu {
        Lfu { heap: Heap::new(), now: 0 }
    }
}

impl Scheme for Lfu {
    /// How often it was used.
    type Data = u64;

    fn hit(&mut self, slots: &mut Slots<u64>, slot: u32, _: &Access) {
        self.now += 1;
        *slots.data(slot) += 1;
        self.heap.update((*slots.data(slot), self.now), slot);
    }

    fn miss(&mut self, slots: &mut Slots<u64>, _: Option<u32>, access: &Access) {
        self.now += 1;
        self.make_room(slots, access.size);
        let slot = slots.add(access.id, access.size, 1);
        self.heap.push((1, self.now), slot);
    }

    fn evict(&mut self, slots: &mut Slots<u64>) {
        if let Some((_, slot)) = self.heap.least() {
            self.forget(slots, slot);
        }
    }

    fn forget(&mut self, slots: &mut Slots<u64>, slot: u32) {
        self.heap.remove(slot);
        slots.free(slot);
    }

    /// The constant-time LFU of Shah, Mitra and Matani (2010): two pointers, and one to the frequency's node.
    fn metadata_bits(&self) -> f64 {
        192.0
    }
}

/// Greedy-Dual-Size-Frequency (Cherkasova, HPL-98-69R1, 1998), every miss costing the same: the rank is the
/// inflation plus uses / size, and the inflation is the rank of the last victim.
pub(super) struct Gdsf {
    heap: Heap<(u64, u64)>,
    inflation: f64,
    now: u64,
}

impl Gdsf {
    /// An empty one.
    pub(super) fn new() -> Gdsf {
        Gdsf { heap: Heap::new(), inflation: 0.0, now: 0 }
    }

    /// The rank; the bits of numbers that are not negative are in the order of the numbers.
    fn rank(&self, uses: u64, size: u32) -> (u64, u64) {
        let rank = self.inflation + uses as f64 / f64::from(size);
        (rank.to_bits(), self.now)
    }
}

impl Scheme for Gdsf {
    /// How often it was used.
    type Data = u64;

    fn hit(&mut self, slots: &mut Slots<u64>, slot: u32, access: &Access) {
        self.now += 1;
        *slots.data(slot) += 1;
        let rank = self.rank(*slots.data(slot), access.size);
        self.heap.update(rank, slot);
    }

    fn miss(&mut self, slots: &mut Slots<u64>, _: Option<u32>, access: &Access) {
        self.now += 1;
        self.make_room(slots, access.size);
        let slot = slots.add(access.id, access.size, 1);
        self.heap.push(self.rank(1, access.size), slot);
    }

    fn evict(&mut self, slots: &mut Slots<u64>) {
        if let Some(((rank, _), slot)) = self.heap.least() {
            self.inflation = f64::from_bits(rank);
            self.forget(slots, slot);
        }
    }

    fn forget(&mut self, slots: &mut Slots<u64>, slot: u32) {
        self.heap.remove(slot);
        slots.free(slot);
    }

    /// A rank of 64 bits, a use count of 32, and an entry and a place in the heap of 32 each.
    fn metadata_bits(&self) -> f64 {
        160.0
    }
}

/// Belady's MIN (IBM Systems Journal 5(2), 1966): the item that is needed again last leaves. No policy that
/// takes in every item has fewer misses where all sizes are equal; where they differ it is only a strong
/// yardstick.
pub(super) struct Belady {
    /// By (what the next use lacks to "never", ordinal).
    heap: Heap<(u64, u64)>,
    now: u64,
}

impl Belady {
    /// An empty one.
    pub(super) fn new() -> Belady {
        Belady { heap: Heap::new(), now: 0 }
    }
}

impl Scheme for Belady {
    type Data = ();

    fn hit(&mut self, _: &mut Slots<()>, slot: u32, access: &Access) {
        self.now += 1;
        self.heap.update((u64::MAX - access.next, self.now), slot);
    }

    fn miss(&mut self, slots: &mut Slots<()>, _: Option<u32>, access: &Access) {
        self.now += 1;
        self.make_room(slots, access.size);
        let slot = slots.add(access.id, access.size, ());
        self.heap.push((u64::MAX - access.next, self.now), slot);
    }

    fn evict(&mut self, slots: &mut Slots<()>) {
        if let Some((_, slot)) = self.heap.least() {
            self.forget(slots, slot);
        }
    }

    fn forget(&mut self, slots: &mut Slots<()>, slot: u32) {
        self.heap.remove(slot);
        slots.free(slot);
    }

    /// Nothing: no server knows the future.
    fn metadata_bits(&self) -> f64 {
        0.0
    }

    fn needs_next(&self) -> bool {
        true
    }
}
