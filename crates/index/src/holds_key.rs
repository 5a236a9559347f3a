//! The interface between the index and the owner of the items.

use larder_item::{KeyHash, Location};

/// The owner of the items whose locations the index keeps.
///
/// Every location passed to these methods was in the index a moment ago, and may have been removed since. The owner
/// keeps such records readable for as long as the value lives on which the method is called, for example with a
/// pinned epoch.
pub trait HoldsKey {
    /// Whether the record at `at` has the key `key`. The index calls it only when a tag matches, about once per
    /// lookup.
    fn holds(&self, at: Location, key: &[u8]) -> bool;

    /// The hash of the key of the record at `at`, which is the hash that its entry was inserted under. The index
    /// calls it for every entry of a bucket that splits.
    fn hash_of(&self, at: Location) -> KeyHash;

    /// Whether a read of the record at `at` raises the warmth of its entry. The index asks where the warmth can rise.
    fn reads_count(&self, _at: Location) -> bool {
        true
    }

    /// Hints that the record at `at` will be read soon.
    fn prefetch(&self, at: Location);
}
