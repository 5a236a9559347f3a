//! A heap whose entries can be found again: the least key is on top, and the key of any slot may change.

/// Four children per entry: fewer levels, and they lie side by side.
const ARITY: usize = 4;

/// Slots by key. Keys must differ for the order to be the same everywhere; policies put an ordinal into them.
pub(super) struct Heap<K> {
    entries: Vec<(K, u32)>,
    /// Place in `entries` by slot; stale for a slot that is not in.
    places: Vec<u32>,
}

impl<K: Ord + Copy> Heap<K> {
    /// An empty one.
    pub(super) fn new() -> Heap<K> {
        Heap { entries: Vec::new(), places: Vec::new() }
    }

    /// The least key and its slot.
    pub(super) fn least(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// Puts a slot in that is not in.
    pub(super) fn push(&mut self, key: K, slot: u32) {
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, 0);
        }
        self.entries.push((key, slot));
        self.rise(self.entries.len() - 1);
    }

    /// Gives a slot that is in another key.
    pub(super) fn update(&mut self, key: K, slot: u32) {
        let place = self.places[slot as usize] as usize;
        let old = std::mem::replace(&mut self.entries[place].0, key);
        if key < old {
            self.rise(place);
        } else {
            self.sink(place);
        }
    }

    /// Takes a slot out that is in.
    pub(super) fn remove(&mut self, slot: u32) {
        let place = self.places[slot as usize] as usize;
        self.entries.swap_remove(place);
        if let Some(&(_, moved)) = self.entries.get(place) {
            self.places[moved as usize] = place as u32;
            self.rise(place);
            self.sink(self.places[moved as usize] as usize);
        }
    }

    fn rise(&mut self, mut place: usize) {
        let entry = self.entries[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.entries[parent].0 <= entry.0 {
                break;
            }
            self.set(place, self.entries[parent]);
            place = parent;
        }
        self.set(place, entry);
    }

    fn sink(&mut self, mut place: usize) {
        let entry = self.entries[place];
        loop {
            let first = place * ARITY + 1;
            let last = (first + ARITY).min(self.entries.len());
            let Some(child) = (first..last).min_by_key(|&child| self.entries[child].0) else { break };
            if entry.0 <= self.entries[child].0 {
                break;
            }
            self.set(place, self.entries[child]);
            place = child;
        }
        self.set(place, entry);
    }

    fn set(&mut self, place: usize, entry: (K, u32)) {
        self.entries[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }
}
