//! Watching a key: whether it was changed since.

use super::{Hit, Worker};
use crate::cache::Cache;
use crate::watches::{Marks, ROW_BYTES};
use larder_item::{Expiry, KeyHash};
use std::sync::Arc;

/// A key that is watched until this is dropped.
pub struct Watch {
    cache: Arc<Cache>,
    hash: KeyHash,
    /// What had happened to the key when the watch began.
    began: Marks,
    /// When the item expires that the key had then. `None` = it had none.
    expiry: Option<Expiry>,
}

impl Watch {
    /// Bytes that a watch takes at most, beside twice the key.
    pub const BYTES: usize = ROW_BYTES + size_of::<Watch>();

    /// Whether the key has been neither stored nor deleted nor given another expiry since, and its item has neither
    /// expired nor been flushed. That an item was evicted, or went to flash and came back, is no change. Keys of the
    /// same hash count as one.
    pub fn is_unchanged(&self) -> bool {
        let marks = self.cache.watches.marks(self.hash);
        let is_over = || marks.flushes != self.began.flushes;
        marks.changes == self.began.changes
            && self.expiry.is_none_or(|expiry| !is_over() && !self.cache.store.clock.has_passed(expiry))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.cache.watches.end(self.hash);
    }
}

impl Worker {
    /// Watches a key from now on. `is_own` says whether an item in memory is the key's. An item that only flash has is
    /// none: the caller brings it to memory before.
    pub fn watch(&self, hash: KeyHash, key: &[u8], is_own: impl FnOnce(&Hit<'_>) -> bool) -> Watch {
        let began = self.cache.watches.begin(hash, key);
        // The watch ends also if the look below panics.
        let mut watch = Watch { cache: self.cache.clone(), hash, began, expiry: None };
        drop(self.cache.store.index.lock(hash));
        watch.expiry = self.peek(hash, key).filter(is_own).map(|hit| hit.expiry());
        watch
    }

    /// When the item of a key expires that memory has once all changes are made of which [`Change`](crate::Change) told
    /// before this call. Whoever begins to keep track of the key before the call misses no later change. `None` =
    /// memory has no item of the key.
    pub fn expiry_after_changes(&self, hash: KeyHash, key: &[u8]) -> Option<Expiry> {
        drop(self.cache.store.index.lock(hash));
        self.peek(hash, key).map(|hit| hit.expiry())
    }

    /// Under the writer bit of the key's bucket: the key is changed. `expiry` = that of its new item.
    #[inline]
    pub(super) fn note_change(&self, hash: KeyHash, key: &[u8], expiry: Expiry) {
        if self.cache.watches.extras.are_noted() {
            self.cache.watches.note_change(hash, key, expiry);
        }
    }
}
