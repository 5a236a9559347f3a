//! An owner of items for tests: records are key numbers in a growing list, and tests can control the hash.
#![allow(dead_code, reason = "each test uses its part")]

use larder_index::{HoldsKey, Index, LookupStage, TagMatch};
use larder_item::{KeyHash, KeyHasher, Location};
use std::sync::RwLock;

/// Where a record begins: one record every four bytes.
pub(crate) fn location(record: usize) -> Location {
    Location::from_offset(4 * record as u64)
}

/// Every record ever made, by its location. Nothing is reused, so every location stays readable.
pub(crate) struct Records {
    hasher: KeyHasher,
    /// Bits that are 0 in the hash of every key, to fill a few buckets.
    forced: u64,
    keys: RwLock<Vec<u64>>,
}

impl Records {
    pub(crate) fn new(forced: u64) -> Records {
        Records { hasher: KeyHasher::with_seed(7), forced, keys: RwLock::new(Vec::new()) }
    }

    pub(crate) fn hash(&self, key: u64) -> KeyHash {
        KeyHash(self.hasher.hash(&key.to_le_bytes()).0 & !self.forced)
    }

    /// A new record of `key`.
    pub(crate) fn make(&self, key: u64) -> Location {
        let mut keys = self.keys.write().unwrap();
        keys.push(key);
        location(keys.len() - 1)
    }

    pub(crate) fn key_at(&self, at: Location) -> u64 {
        self.keys.read().unwrap()[(at.offset() / 4) as usize]
    }
}

impl HoldsKey for Records {
    fn holds(&self, at: Location, key: &[u8]) -> bool {
        self.key_at(at).to_le_bytes() == key
    }

    fn hash_of(&self, at: Location) -> KeyHash {
        self.hash(self.key_at(at))
    }

    fn prefetch(&self, _at: Location) {}
}

/// The first entry with the tag of `hash`: the stages of a batched lookup, one after the other.
pub(crate) fn tag_match(index: &Index, hash: KeyHash) -> Option<TagMatch> {
    let lookup = index.batch_lookup();
    match lookup.match_in_bucket(hash, lookup.prefetch(hash)) {
        LookupStage::InSubBucket(below) => lookup.match_in_sub_bucket(hash, below),
        found => found.tag_match(),
    }
}
