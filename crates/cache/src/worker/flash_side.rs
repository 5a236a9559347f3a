//! What a worker has of flash.

use larder_flash::{Commit, CommitListener, Fetcher, Flash, Stamp};
use larder_item::KeyHash;
use std::cell::Cell;
use std::sync::Arc;

/// What a worker has of flash.
pub(super) struct FlashSide {
    /// Reads from flash. `None`: there is no flash, or it cannot be read.
    pub(super) fetcher: Option<Fetcher>,
    /// Where flash is, but no fetcher: tells when invalidations are durable.
    pub(super) commits: Option<CommitListener>,
    /// Tokens of fetches of parts of long values.
    pub(super) part_fetches: Vec<u64>,
    /// The last invalidation that must be durable before the present requests are answered.
    pub(super) commit: Cell<Option<Commit>>,
    /// Keys that this worker has removed lately, memory and flash alike.
    pub(super) gone: Gone,
    /// How many columns the worker has taken, and up to which number it takes them although flash is behind.
    pub(super) columns_taken: u64,
    pub(super) takes_until: u64,
}

impl FlashSide {
    pub(super) fn new(tier: Option<&Arc<Flash>>) -> FlashSide {
        // A worker without a fetcher does not look on flash, but what it writes stays right.
        let fetcher = tier.and_then(|flash| {
            let fetcher = flash.fetcher();
            fetcher.inspect_err(|error| tracing::error!("a worker cannot read from flash: {error}")).ok()
        });
        // Replies that wait for a commit must not wait longer because the worker has no memory for reading.
        let commits = tier.filter(|_| fetcher.is_none()).and_then(|flash| {
            let commits = flash.commit_listener();
            commits.inspect_err(|error| tracing::error!("a worker hears late of commits: {error}")).ok()
        });
        FlashSide {
            fetcher,
            commits,
            part_fetches: Vec::new(),
            commit: Cell::new(None),
            gone: Gone::new(if tier.is_some() { GONE_MAX } else { 0 }),
            columns_taken: 0,
            takes_until: 0,
        }
    }
}

/// How many removed keys a worker remembers, a power of two: 16 KiB.
const GONE_MAX: usize = 1024;

/// Keys that were removed, with the stamps that they had then: as long as the stamp is the same, flash has nothing of
/// the key. Without it a transaction or a script, which cannot wait, could not tell what it has just deleted from what
/// flash may hold.
pub(super) struct Gone(Box<[Cell<(u64, Stamp)>]>);

impl Gone {
    fn new(most: usize) -> Gone {
        Gone((0..most).map(|_| Cell::new((0, Stamp::default()))).collect())
    }

    fn place(&self, hash: KeyHash) -> Option<&Cell<(u64, Stamp)>> {
        self.0.get(hash.0 as usize & self.0.len().wrapping_sub(1))
    }

    /// Under the writer bit of the key's bucket: neither memory nor flash has anything of the key.
    pub(super) fn note(&self, hash: KeyHash, stamp: Stamp) {
        if let Some(place) = self.place(hash) {
            place.set((hash.0, stamp));
        }
    }

    /// Whether flash has nothing of a key whose stamp is this now. `false` = that is not known.
    pub(super) fn knows(&self, hash: KeyHash, stamp: Stamp) -> bool {
        self.place(hash).is_some_and(|place| place.get() == (hash.0, stamp))
    }
}
