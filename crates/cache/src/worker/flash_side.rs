//! What a worker has of flash.

use larder_flash::{Commit, CommitListener, Fetcher, Flash};
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
            columns_taken: 0,
            takes_until: 0,
        }
    }
}
