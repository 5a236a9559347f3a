//! Penalties of misses: where a worker notes a miss, and where a record gets its subclass.

use super::Worker;
use crate::commands::Store;
use crate::penalties::{Price, Source, remembered, with_penalty};
use larder_allocation::Subclass;
use larder_item::{KeyHash, Location};
use larder_memory::Guard;
use std::time::Instant;

/// Where a record comes from that is about to be published.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    source: Source,
    /// When the batch began in which the request came, in microseconds; 0 = nobody said, or nothing is measured.
    came_us: u64,
}

impl Worker {
    /// A batch of requests begins. Gaps between misses and stores are measured from the beginning of one batch to that
    /// of another; a worker that is never told of a batch measures none.
    #[inline]
    pub fn begin_batch(&mut self, now: Instant) {
        self.batch_began = Some(now);
        self.batch_began_us.set(0);
    }

    /// When the present batch began, in microseconds; 0 = nobody said, or nothing is measured. The time is converted
    /// once for each batch that needs it.
    #[inline]
    pub(super) fn batch_began_us(&self) -> u64 {
        let penalties = &self.cache.penalties;
        if !penalties.is_on() {
            return 0;
        }
        if self.batch_began_us.get() == 0
            && let Some(began) = self.batch_began
        {
            self.batch_began_us.set(penalties.us_at(began));
        }
        self.batch_began_us.get()
    }

    /// The answer to a GET of this key is that there is no such item. The store that follows ends the miss.
    #[inline]
    pub fn note_miss(&self, hash: KeyHash) {
        let now_us = self.batch_began_us();
        if now_us != 0 {
            self.cache.penalties.note_miss(hash, now_us, self.counters());
        }
    }

    /// The origin of what this client stores.
    #[inline]
    pub(super) fn origin_of(&self, store: &Store<'_>) -> Origin {
        let source = store.penalty.map_or(Source::Store, Source::Stated);
        Origin { source, came_us: self.batch_began_us() }
    }

    /// The origin of what this client stores, the first byte of which came in a batch that began at `came_us`.
    pub(super) fn origin_at(&self, store: &Store<'_>, came_us: u64) -> Origin {
        Origin { came_us, ..self.origin_of(store) }
    }

    /// What is known of the penalty of the record at `new` before its key is looked up. The record remembers it. No
    /// entry leads to the record yet.
    #[inline]
    pub(super) fn price(&self, guard: &Guard<'_>, hash: KeyHash, origin: Origin, new: Location) -> Price {
        let penalties = &self.cache.penalties;
        let price = penalties.price(hash, origin.source, origin.came_us);
        if let Some(subclass) = price.subclass() {
            remember(guard, new, subclass);
        }
        price
    }

    /// Under the writer bit of the key's bucket: the record at `new` takes the penalty of the item at `old`, which it
    /// replaces, or else that of other keys of its prefix, if nothing better is known.
    #[inline]
    pub(super) fn inherit_penalty(
        &self,
        guard: &Guard<'_>,
        key: &[u8],
        new: Location,
        old: Option<Location>,
    ) {
        let penalties = &self.cache.penalties;
        if !penalties.is_on() || remembered(guard.item(new).state()).is_some() {
            return;
        }
        let of_old = old.and_then(|old| remembered(guard.item(old).state()));
        if let Some(subclass) = of_old.or_else(|| penalties.estimate(key)) {
            remember(guard, new, subclass);
        }
    }
}

impl Origin {
    /// The record takes the place of an item that changes, or of a value that is still to come.
    pub(super) const ITEM: Origin = Origin { source: Source::Item, came_us: 0 };
}

/// Writes the subclass to a record to which no entry leads yet.
#[inline]
fn remember(guard: &Guard<'_>, new: Location, subclass: Subclass) {
    let item = guard.item(new);
    item.replace_state(with_penalty(item.state(), Some(subclass)));
}
