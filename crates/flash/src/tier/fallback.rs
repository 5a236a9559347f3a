//! Tombstones that found no buffer.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that one takes beside its key, about.
const EACH_BYTES: usize = 64;

/// One that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Of the key.
    pub(crate) hash: u64,
    /// See [`crate::record::Record::supersedes_extent`].
    pub(crate) supersedes_extent: bool,
}

type Keys = HashMap<Box<[u8]>, Waiting>;

/// A bounded set of keys of which nothing is found.
pub(crate) struct Fallback {
    /// And the bytes they take.
    keys: Mutex<(Keys, usize)>,
    count: AtomicUsize,
    bytes_max: usize,
}

impl Fallback {
    /// For so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Fallback {
        Fallback { keys: Mutex::default(), count: AtomicUsize::new(0), bytes_max: bytes_max as usize }
    }

    /// Takes a key in; false if there is no room.
    pub(crate) fn add(&self, key: &[u8], waiting: Waiting) -> bool {
        let mut keys = self.keys.lock().expect("no panic under this lock");
        let (map, bytes) = &mut *keys;
        if let Some(known) = map.get_mut(key) {
            known.supersedes_extent |= waiting.supersedes_extent;
            return true;
        }
        if *bytes + key.len() + EACH_BYTES > self.bytes_max {
            return false;
        }
        *bytes += key.len() + EACH_BYTES;
        map.insert(key.into(), waiting);
        self.count.store(map.len(), Ordering::SeqCst);
        true
    }

    /// Whether the key is in it.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.count.load(Ordering::SeqCst) > 0
            && self.keys.lock().expect("no panic under this lock").0.contains_key(key)
    }

    /// Calls `place` for each; what it takes goes, until it refuses one. Says whether none is left.
    pub(crate) fn drain(&self, mut place: impl FnMut(&[u8], Waiting) -> bool) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut keys = self.keys.lock().expect("no panic under this lock");
        let (map, bytes) = &mut *keys;
        let mut refused = false;
        map.retain(|key, waiting| {
            refused = refused || !place(key, *waiting);
            if !refused {
                *bytes -= key.len() + EACH_BYTES;
            }
            refused
        });
        self.count.store(map.len(), Ordering::SeqCst);
        !refused
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        let mut keys = self.keys.lock().expect("no panic under this lock");
        *keys = (HashMap::new(), 0);
        self.count.store(0, Ordering::SeqCst);
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}
