//! A priority queue of slots: finds the least key, and can change the key of any slot.

/// Children per entry. Four children make the heap flatter than two, and the children share a cache line.
const ARITY: usize = 4;

/// Slots ordered by key. The keys must differ from each other, or the order of equals would be arbitrary; policies
/// therefore include an ordinal.
pub(super) struct Heap<K> {
    entries: Vec<(K, u32)>,
    /// Position in `entries` of each slot; outdated for a slot that is not in the heap.
    positions: Vec<u32>,
}

impl<K: Ord + Copy> Heap<K> {
    /// An empty heap.
    pub(super) fn new() -> Heap<K> {
        Heap { entries: Vec::new(), positions: Vec::new() }
    }

    /// The least key and its slot.
    pub(super) fn least(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// Adds a slot that is not in the heap.
    pub(super) fn push(&mut self, key: K, slot: u32) {
        if self.positions.len() <= slot as usize {
            self.positions.resize(slot as usize + 1, 0);
        }
        self.entries.push((key, slot));
        self.rise(self.entries.len() - 1);
    }

    /// Changes the key of a slot that is in the heap.
    pub(super) fn update(&mut self, key: K, slot: u32) {
        let position = self.positions[slot as usize] as usize;
        let old = std::mem::replace(&mut self.entries[position].0, key);
        if key < old {
            self.rise(position);
        } else {
            self.sink(position);
        }
    }

    /// Removes a slot that is in the heap.
    pub(super) fn remove(&mut self, slot: u32) {
        let position = self.positions[slot as usize] as usize;
        self.entries.swap_remove(position);
        if let Some(&(_, moved)) = self.entries.get(position) {
            self.positions[moved as usize] = position as u32;
            self.rise(position);
            self.sink(self.positions[moved as usize] as usize);
        }
    }

    fn rise(&mut self, mut position: usize) {
        let entry = self.entries[position];
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if self.entries[parent].0 <= entry.0 {
                break;
            }
            self.set(position, self.entries[parent]);
            position = parent;
        }
        self.set(position, entry);
    }

    fn sink(&mut self, mut position: usize) {
        let entry = self.entries[position];
        loop {
            let first = position * ARITY + 1;
            let last = (first + ARITY).min(self.entries.len());
            let Some(child) = (first..last).min_by_key(|&child| self.entries[child].0) else { break };
            if entry.0 <= self.entries[child].0 {
                break;
            }
            self.set(position, self.entries[child]);
            position = child;
        }
        self.set(position, entry);
    }

    fn set(&mut self, position: usize, entry: (K, u32)) {
        self.entries[position] = entry;
        self.positions[entry.1 as usize] = position as u32;
    }
}
