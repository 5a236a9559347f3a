//! Tombstones that found no room in a buffer.
//!
//! An invalidation is never refused. If no buffer has room for its tombstone, the key waits here, and no lookup finds
//! anything of it. Before the next record is appended, the waiting tombstones are.
//!
//! Lock: `keys`, a leaf; `drain` calls back under it, under the append lock, which comes before.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory that a waiting tombstone takes beside its key, bytes, about.
const EACH_BYTES: usize = 64;

/// A tombstone that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingTombstone {
    /// The hash of its key.
    pub(crate) hash: u64,
    /// See [`crate::record::Record::supersedes_extent`].
    pub(crate) supersedes_extent: bool,
}

#[derive(Default)]
struct Keys {
    map: HashMap<Box<[u8]>, WaitingTombstone>,
    bytes: usize,
}

/// A bounded set of waiting tombstones by their keys.
pub(crate) struct WaitingTombstones {
    keys: Mutex<Keys>,
    /// Length of the map, to be read without the lock.
    count: AtomicUsize,
    bytes_max: usize,
}

impl WaitingTombstones {
    /// A set that takes at most `bytes_max`.
    pub(crate) fn new(bytes_max: u64) -> WaitingTombstones {
        WaitingTombstones {
            keys: Mutex::default(),
            count: AtomicUsize::new(0),
            bytes_max: bytes_max as usize,
        }
    }

    fn keys(&self) -> std::sync::MutexGuard<'_, Keys> {
        self.keys.lock().expect("no panic under this lock")
    }

    /// Adds the tombstone of a key; `false` if there is no memory for it.
    pub(crate) fn add(&self, key: &[u8], tombstone: WaitingTombstone) -> bool {
        let mut keys = self.keys();
        if let Some(known) = keys.map.get_mut(key) {
            known.supersedes_extent |= tombstone.supersedes_extent;
            return true;
        }
        if keys.bytes + key.len() + EACH_BYTES > self.bytes_max {
            return false;
        }
        keys.bytes += key.len() + EACH_BYTES;
        keys.map.insert(key.into(), tombstone);
        self.count.store(keys.map.len(), Ordering::SeqCst);
        true
    }

    /// Whether the tombstone of a key waits.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        !self.is_empty() && self.keys().map.contains_key(key)
    }

    /// Offers one tombstone after the other to `place`, and removes those that it takes, until it refuses one. Says
    /// whether none is left.
    pub(crate) fn drain(&self, mut place: impl FnMut(&[u8], WaitingTombstone) -> bool) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut keys = self.keys();
        let Keys { map, bytes } = &mut *keys;
        let mut refused = false;
        map.retain(|key, tombstone| {
            refused = refused || !place(key, *tombstone);
            if !refused {
                *bytes -= key.len() + EACH_BYTES;
            }
            refused
        });
        self.count.store(map.len(), Ordering::SeqCst);
        !refused
    }

    /// Removes all.
    pub(crate) fn clear(&self) {
        let mut keys = self.keys();
        *keys = Keys::default();
        self.count.store(0, Ordering::SeqCst);
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}
