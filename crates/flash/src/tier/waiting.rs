//! Tombstones that found no room in a buffer.
//!
//! An invalidation is never refused. If no buffer has room for its tombstone, the key waits here, and no lookup finds
//! anything of it. Before the next record is appended, the waiting tombstones are.
//!
//! The set is bounded. Threads that can wait do so while it is *crowded*, until it is *stalled*: the device has taken
//! nothing for a while. If it is full all the same, a range of hashes is dropped ([`super::log::Log`]).
//!
//! Lock: `keys`, a leaf.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Memory that a waiting tombstone takes beside its key, bytes, about.
const EACH_BYTES: usize = 96;
/// How long nothing was taken when the set counts as stalled.
const STALL: Duration = Duration::from_secs(1);

/// A tombstone that waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WaitingTombstone {
    /// The hash of its key.
    pub(crate) hash: u64,
    /// Its key.
    pub(crate) key: Box<[u8]>,
    /// See [`crate::record::Record::supersedes_extent`].
    pub(crate) supersedes_extent: bool,
}

struct Keys {
    /// By hash, and so by range of hashes. Few hashes have two keys.
    by_hash: BTreeMap<u64, Vec<WaitingTombstone>>,
    count: usize,
    bytes: usize,
    /// When one was taken last, or found the set empty.
    moved: Instant,
}

impl Keys {
    fn forget(&mut self, tombstone: &WaitingTombstone) {
        self.bytes -= tombstone.key.len() + EACH_BYTES;
        self.count -= 1;
        self.moved = Instant::now();
    }
}

/// A bounded set of waiting tombstones by their keys.
pub(crate) struct WaitingTombstones {
    keys: Mutex<Keys>,
    /// How many wait, and their bytes, to be read without the lock.
    count: AtomicUsize,
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl WaitingTombstones {
    /// A set that takes at most `bytes_max`.
    pub(crate) fn new(bytes_max: u64) -> WaitingTombstones {
        let keys = Keys { by_hash: BTreeMap::new(), count: 0, bytes: 0, moved: Instant::now() };
        WaitingTombstones {
            keys: Mutex::new(keys),
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            bytes_max: bytes_max as usize,
        }
    }

    /// Runs `act` on the keys.
    fn with<T>(&self, act: impl FnOnce(&mut Keys) -> T) -> T {
        let mut keys = self.keys.lock().expect("no panic under this lock");
        let result = act(&mut keys);
        self.bytes.store(keys.bytes, Ordering::SeqCst);
        self.count.store(keys.count, Ordering::SeqCst);
        result
    }

    /// Adds the tombstone of a key; `false` if there is no memory for it.
    pub(crate) fn add(&self, hash: u64, key: &[u8], supersedes_extent: bool) -> bool {
        self.with(|keys| {
            let of_hash = keys.by_hash.get_mut(&hash);
            if let Some(known) = of_hash.and_then(|all| all.iter_mut().find(|known| *known.key == *key)) {
                known.supersedes_extent |= supersedes_extent;
                return true;
            }
            let bytes = key.len() + EACH_BYTES;
            if keys.bytes + bytes > self.bytes_max {
                return false;
            }
            if keys.count == 0 {
                keys.moved = Instant::now();
            }
            keys.bytes += bytes;
            keys.count += 1;
            let tombstone = WaitingTombstone { hash, key: key.into(), supersedes_extent };
            keys.by_hash.entry(hash).or_default().push(tombstone);
            true
        })
    }

    /// Whether the tombstone of a key waits.
    pub(crate) fn contains(&self, hash: u64, key: &[u8]) -> bool {
        !self.is_empty()
            && self.with(|keys| {
                keys.by_hash.get(&hash).is_some_and(|all| all.iter().any(|known| *known.key == *key))
            })
    }

    /// Offers one tombstone after the other to `place`, and removes those that it takes, until it refuses one. Says
    /// whether none is left. Lookups find each of them here until it was taken. The caller sees to it that nobody else
    /// changes the set.
    pub(crate) fn drain(&self, mut place: impl FnMut(&WaitingTombstone) -> bool) -> bool {
        while !self.is_empty() {
            let first = self.with(|keys| keys.by_hash.values().next().and_then(|all| all.last()).cloned());
            let Some(first) = first else { break };
            if !place(&first) {
                return false;
            }
            self.with(|keys| {
                keys.forget(&first);
                if let Some(all) = keys.by_hash.get_mut(&first.hash) {
                    all.pop();
                    if all.is_empty() {
                        keys.by_hash.remove(&first.hash);
                    }
                }
            });
        }
        true
    }

    /// Removes those of a range of hashes.
    pub(crate) fn forget(&self, hashes: &RangeInclusive<u64>) {
        self.with(|keys| {
            let mut tail = keys.by_hash.split_off(hashes.start());
            let mut beyond =
                hashes.end().checked_add(1).map(|next| tail.split_off(&next)).unwrap_or_default();
            keys.by_hash.append(&mut beyond);
            let gone: Vec<WaitingTombstone> = tail.into_values().flatten().collect();
            let moved = keys.moved;
            gone.iter().for_each(|tombstone| keys.forget(tombstone));
            // The device has taken none of them.
            keys.moved = moved;
        });
    }

    /// Removes all.
    pub(crate) fn clear(&self) {
        self.with(|keys| {
            keys.by_hash.clear();
            (keys.count, keys.bytes) = (0, 0);
        });
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether a thread that can wait should do so before it adds one.
    pub(crate) fn is_crowded(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) > self.bytes_max / 2
    }

    /// Whether the device has taken none of them for so long that nobody waits for it any more.
    pub(crate) fn is_stalled(&self) -> bool {
        !self.is_empty() && self.with(|keys| keys.moved.elapsed() > STALL)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_waits_once_and_is_found_until_it_is_taken() {
        let waiting = WaitingTombstones::new(1 << 20);
        assert!(waiting.add(5, b"a", false) && waiting.add(5, b"b", false) && waiting.add(9, b"c", false));
        assert!(waiting.add(5, b"a", true));
        assert_eq!(waiting.len(), 3);
        assert!(waiting.contains(5, b"a") && !waiting.contains(9, b"a"));
        let mut taken = Vec::new();
        let drained = waiting.drain(|tombstone| {
            assert!(waiting.contains(tombstone.hash, &tombstone.key));
            taken.push((tombstone.key.to_vec(), tombstone.supersedes_extent));
            taken.len() < 3
        });
        assert!(!drained && waiting.len() == 1 && waiting.contains(9, b"c"));
        taken.truncate(2);
        taken.sort();
        assert_eq!(taken, [(b"a".to_vec(), true), (b"b".to_vec(), false)]);
        assert!(waiting.drain(|_| true) && waiting.is_empty());
    }

    #[test]
    fn a_full_set_takes_more_when_a_range_was_forgotten() {
        let waiting = WaitingTombstones::new(4 * (EACH_BYTES as u64 + 1));
        assert!([1, 100, 200, u64::MAX].iter().all(|hash| waiting.add(*hash, b"k", false)));
        assert!(waiting.is_crowded() && !waiting.add(7, b"k", false));
        waiting.forget(&(50..=200));
        assert_eq!(waiting.len(), 2);
        assert!(
            waiting.contains(1, b"k") && waiting.contains(u64::MAX, b"k") && !waiting.contains(100, b"k")
        );
        assert!(waiting.add(7, b"k", false) && !waiting.is_stalled());
        waiting.forget(&(200..=u64::MAX));
        assert!(!waiting.contains(u64::MAX, b"k"));
        waiting.clear();
        assert!(waiting.is_empty() && !waiting.is_crowded());
    }
}
