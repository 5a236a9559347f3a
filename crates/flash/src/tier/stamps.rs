//! Whether anything happened under a hash since.

use crate::flash::Stamp;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counters, striped by hash, and one of flushes. A stamp that did not change between two looks says that no put, invalidation
/// or flush under such a hash began or ended between them.
pub(crate) struct Stamps {
    stripes: Box<[AtomicU32]>,
    flushes: AtomicU32,
}

impl Stamps {
    /// As many as fit into so many bytes, 64 Ki at most.
    pub(crate) fn new(bytes_max: u64) -> Stamps {
        let count = (bytes_max / 4).clamp(16, 1 << 16);
        let count = 1u64 << count.ilog2();
        Stamps { stripes: (0..count).map(|_| AtomicU32::new(0)).collect(), flushes: AtomicU32::new(0) }
    }

    fn stripe(&self, hash: u64) -> &AtomicU32 {
        &self.stripes[(hash >> 20) as usize & (self.stripes.len() - 1)]
    }

    /// Called before something happens and after it: a stamp taken in between is no stamp of before or after.
    pub(crate) fn bump(&self, hash: u64) {
        self.stripe(hash).fetch_add(1, Ordering::SeqCst);
    }

    /// The same for every hash.
    pub(crate) fn bump_all(&self) {
        self.flushes.fetch_add(1, Ordering::SeqCst);
    }

    /// Now.
    pub(crate) fn get(&self, hash: u64) -> Stamp {
        let flushes = self.flushes.load(Ordering::SeqCst) as u64;
        Stamp(flushes << 32 | self.stripe(hash).load(Ordering::SeqCst) as u64)
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.stripes.len() as u64 * 4
    }
}
