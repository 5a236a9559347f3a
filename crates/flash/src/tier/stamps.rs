//! Stamps: whether anything happened under a hash since an earlier look.

use crate::item::Stamp;
use std::sync::atomic::{AtomicU32, Ordering};

/// Stripes of a table that is as large as it gets.
const STRIPES_MAX: u64 = 1 << 16;

/// Counters striped by hash, one counter of flushes, and one of how often deleted prefixes were forgotten. If a stamp
/// is the same at two looks, then no put, invalidation or flush of such a hash ended between the looks. Hashes that
/// share a stripe share their stamps.
pub(crate) struct Stamps {
    stripes: Box<[AtomicU32]>,
    flushes: AtomicU32,
    forgets: AtomicU32,
}

impl Stamps {
    /// As many stripes as fit into `bytes_max`, but at least 16 and at most 64 Ki.
    pub(crate) fn new(bytes_max: u64) -> Stamps {
        let count = (bytes_max / 4).clamp(16, STRIPES_MAX);
        let count = 1u64 << count.ilog2();
        Stamps {
            stripes: (0..count).map(|_| AtomicU32::new(0)).collect(),
            flushes: AtomicU32::new(0),
            forgets: AtomicU32::new(0),
        }
    }

    fn stripe(&self, hash: u64) -> &AtomicU32 {
        &self.stripes[(hash >> 20) as usize & (self.stripes.len() - 1)]
    }

    /// Changes the stamp of a hash. A put calls it before and after its change, so that a stamp taken during the
    /// put equals neither the one before nor the one after. An invalidation calls it after its change.
    pub(crate) fn bump(&self, hash: u64) {
        self.stripe(hash).fetch_add(1, Ordering::SeqCst);
    }

    /// Changes the stamps of all hashes.
    pub(crate) fn bump_all(&self) {
        self.flushes.fetch_add(1, Ordering::SeqCst);
    }

    /// Deleted prefixes are about to be forgotten.
    pub(crate) fn begin_forgetting(&self) {
        self.forgets.fetch_add(1, Ordering::SeqCst);
    }

    /// How often deleted prefixes were forgotten, or are about to be, since a stamp was taken.
    pub(crate) fn forgotten_since(&self, stamp: Stamp) -> u16 {
        (self.forgets.load(Ordering::SeqCst) as u16).wrapping_sub((stamp.0 >> 32) as u16)
    }

    /// The stamp of a hash now.
    pub(crate) fn get(&self, hash: u64) -> Stamp {
        let flushes = u64::from(self.flushes.load(Ordering::SeqCst) as u16);
        let forgets = u64::from(self.forgets.load(Ordering::SeqCst) as u16);
        Stamp(flushes << 48 | forgets << 32 | self.stripe(hash).load(Ordering::SeqCst) as u64)
    }

    /// Memory taken, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.stripes.len() as u64 * 4
    }
}
