//! The largest items that were seen: a short table, and the size from which on an item is of interest.

use larder_item::KeyHash;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Items in the table.
const ENTRIES: usize = 64;
/// Smaller items are of no interest, in bytes of value.
const FLOOR_BYTES_MIN: u32 = 64;

/// An item that was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LargeKey {
    /// Hash of the key.
    pub hash: KeyHash,
    /// The key.
    pub key: Box<[u8]>,
    /// Length of the value when it was last seen, in bytes.
    pub value_bytes: u32,
}

/// The largest items of a cache, as far as they were seen.
pub struct LargeKeys {
    /// Only larger values are of interest.
    floor: AtomicU32,
    entries: Mutex<Vec<LargeKey>>,
}

impl Default for LargeKeys {
    fn default() -> LargeKeys {
        LargeKeys { floor: AtomicU32::new(FLOOR_BYTES_MIN), entries: Mutex::new(Vec::with_capacity(ENTRIES)) }
    }
}

impl LargeKeys {
    /// Bytes that the table takes.
    pub(crate) const BYTES: u64 = (ENTRIES * (size_of::<LargeKey>() + larder_item::FOLDED_KEY_BYTES)) as u64;

    /// Only values of more bytes are of interest.
    #[inline]
    pub fn floor(&self) -> u32 {
        self.floor.load(Relaxed)
    }

    /// An item was seen. Nobody waits: while another thread looks at the table, the item is not noted.
    #[cold]
    pub fn note(&self, hash: KeyHash, key: &[u8], value_bytes: u32) {
        let Ok(mut entries) = self.entries.try_lock() else { return };
        if let Some(known) = entries.iter_mut().find(|known| known.hash == hash && *known.key == *key) {
            known.value_bytes = value_bytes;
        } else if value_bytes > self.floor() {
            if entries.len() == ENTRIES {
                let smallest = (0..ENTRIES).min_by_key(|at| entries[*at].value_bytes).unwrap_or(0);
                entries.swap_remove(smallest);
            }
            entries.push(LargeKey { hash, key: key.into(), value_bytes });
        }
        self.set_floor(&entries);
    }

    /// Asks how large each item is now. `None` = it is gone, and leaves the table.
    pub fn check(&self, size_of: impl Fn(&LargeKey) -> Option<u32>) {
        let Ok(mut entries) = self.entries.try_lock() else { return };
        entries.retain_mut(|entry| match size_of(entry) {
            Some(value_bytes) => {
                entry.value_bytes = value_bytes;
                true
            }
            None => false,
        });
        self.set_floor(&entries);
    }

    /// The largest items, the largest first.
    pub fn largest(&self, most: usize) -> Vec<LargeKey> {
        let mut entries = self.entries.lock().expect("no panic under this lock").clone();
        entries.sort_by(|a, b| b.value_bytes.cmp(&a.value_bytes).then_with(|| a.key.cmp(&b.key)));
        entries.truncate(most);
        entries
    }

    /// Forgets everything.
    pub fn reset(&self) {
        let mut entries = self.entries.lock().expect("no panic under this lock");
        entries.clear();
        self.set_floor(&entries);
    }

    fn set_floor(&self, entries: &[LargeKey]) {
        let smallest = entries.iter().map(|entry| entry.value_bytes).min().unwrap_or(0);
        let floor = if entries.len() < ENTRIES { FLOOR_BYTES_MIN } else { smallest };
        self.floor.store(floor.max(FLOOR_BYTES_MIN), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::BTreeMap;

    #[test]
    fn the_largest_of_all_that_were_noted_are_kept() {
        let (large, mut random) = (LargeKeys::default(), Random::new(3));
        let mut sizes = BTreeMap::new();
        for n in 0..5000_u64 {
            let bytes = 65 + random.below(1 << 20) as u32;
            if bytes > large.floor() {
                large.note(KeyHash(n), &n.to_be_bytes(), bytes);
            }
            sizes.insert(n, bytes);
        }
        let mut expected: Vec<u32> = sizes.values().copied().collect();
        expected.sort_by(|a, b| b.cmp(a));
        let found: Vec<u32> = large.largest(ENTRIES).iter().map(|item| item.value_bytes).collect();
        assert_eq!(found, expected[..ENTRIES]);
    }

    #[test]
    fn an_item_that_shrinks_or_goes_makes_room() {
        let large = LargeKeys::default();
        for n in 0..ENTRIES as u64 {
            large.note(KeyHash(n), &n.to_be_bytes(), 1000 + n as u32);
        }
        assert_eq!(large.floor(), 1000);
        large.note(KeyHash(5), &5_u64.to_be_bytes(), 70);
        assert_eq!((large.floor(), large.largest(99).len()), (70, ENTRIES));
        large.check(|item| (item.hash.0 >= 10).then_some(item.value_bytes + 1));
        assert_eq!((large.floor(), large.largest(99).len()), (FLOOR_BYTES_MIN, ENTRIES - 10));
        assert_eq!(large.largest(1)[0].value_bytes, 1064);
        large.reset();
        assert!(large.largest(99).is_empty());
    }
}
