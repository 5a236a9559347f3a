//! The seam between the index and whoever owns the items.

use larder_item::{KeyHash, Location};

/// The owner of the items whose locations the index keeps.
///
/// Every location given to these methods was in the index a moment ago, and may have been removed since. The
/// implementor keeps such records readable for as long as the value it was called on lives (a pinned epoch).
pub trait HoldsKey {
    /// Whether the record at `at` is that of `key`. Called only after a tag matched, so about once per lookup.
    fn holds(&self, at: Location, key: &[u8]) -> bool;

    /// The hash of the key of the record at `at`: the same word the entry was inserted under. Called for every
    /// entry of a bucket that splits.
    fn hash_of(&self, at: Location) -> KeyHash;

    /// A hint that the record at `at` is about to be read.
    fn prefetch(&self, at: Location);
}
