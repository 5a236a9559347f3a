//! Policies that evict the item of lowest rank: LFU, GDSF and Belady's MIN.

use super::frame::Scheme;
use super::heap::Heap;
use super::interface::Access;
use super::slots::Slots;

/// Evicts the item with the fewest uses since it was stored. Among equals, the item that has had that count for the
/// longest time goes first.
pub(super) struct Lfu {
    heap: Heap<(u64, u64)>,
    now: u64,
}

impl Lfu {
    /// An empty cache.
    pub(super) fn new() -> Lfu {
        Lfu { heap: Heap::new(), now: 0 }
    }
}

impl Scheme for Lfu {
    /// Number of uses.
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

    /// The constant-time LFU of Shah, Mitra and Matani (2010) has two list pointers and a pointer to the node of the
    /// frequency.
    fn metadata_bits(&self) -> f64 {
        192.0
    }
}

/// Greedy-Dual-Size-Frequency (Cherkasova, HPL-98-69R1, 1998), with equal costs for all misses. The rank of an item
/// is `inflation + uses / size`; the inflation is the rank of the last victim.
pub(super) struct Gdsf {
    heap: Heap<(u64, u64)>,
    inflation: f64,
    now: u64,
}

impl Gdsf {
    /// An empty cache.
    pub(super) fn new() -> Gdsf {
        Gdsf { heap: Heap::new(), inflation: 0.0, now: 0 }
    }

    /// The rank as an integer. The bits of non-negative floating-point numbers have the same order as the numbers.
    fn rank(&self, uses: u64, size: u32) -> (u64, u64) {
        let rank = self.inflation + uses as f64 / f64::from(size);
        (rank.to_bits(), self.now)
    }
}

impl Scheme for Gdsf {
    /// Number of uses.
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

    /// A rank of 64 bits, a use count of 32 bits, and an entry and a position in the heap of 32 bits each.
    fn metadata_bits(&self) -> f64 {
        160.0
    }
}

/// Belady's MIN (IBM Systems Journal 5(2), 1966): evicts the item whose next access is farthest in the future. Where
/// all sizes are equal, no policy that stores every item has fewer misses. Where sizes differ, MIN is only a strong
/// reference.
pub(super) struct Belady {
    /// Keyed by (`u64::MAX` less the ordinal of the next access, ordinal of this access).
    heap: Heap<(u64, u64)>,
    now: u64,
}

impl Belady {
    /// An empty cache.
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

    /// No bits: no server knows the future.
    fn metadata_bits(&self) -> f64 {
        0.0
    }

    fn needs_next(&self) -> bool {
        true
    }
}
