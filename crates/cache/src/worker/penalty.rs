//! Penalties of misses: where a worker notes a miss, and where a record gets its subclass.

use super::{BatchBegan, Worker};
use crate::commands::Store;
use crate::penalties::{Noted, Price, with_penalty};
use crate::sizing::UseRecord;
use larder_item::{KeyHash, Location, State};
use larder_memory::Guard;
use larder_temperature::Digest;
use std::cell::Cell;
use std::time::Instant;

impl Worker {
    /// A batch of requests begins. Gaps between misses and stores are measured from the beginning of one batch to that
    /// of another; a worker that is never told of a batch measures none.
    #[inline]
    pub fn begin_batch(&mut self, now: Instant) {
        self.batch_began = BatchBegan { at: Some(now), us: Cell::new(0) };
    }

    /// When the present batch began, in microseconds; 0 = nobody said, or nothing is measured. The time is converted
    /// once for each batch that needs it.
    #[inline]
    pub(super) fn batch_began_us(&self) -> u64 {
        match self.batch_began.us.get() {
            0 => self.convert_batch_began(),
            began_us => began_us,
        }
    }

    #[cold]
    #[inline(never)]
    fn convert_batch_began(&self) -> u64 {
        let penalties = &self.cache.penalties;
        let began = self.batch_began.at.filter(|_| penalties.is_on());
        let began_us = began.map_or(0, |began| penalties.us_at(began));
        self.batch_began.us.set(began_us);
        began_us
    }

    /// The answer to a GET of this key is that there is no such item. The store that follows ends the miss.
    #[inline]
    pub fn note_miss(&self, hash: KeyHash, key: &[u8]) {
        self.note_use(Digest::of(hash), key, UseRecord::miss);
        let now_us = self.batch_began_us();
        if now_us != 0 && self.cache.penalties.note_miss(hash, now_us) == Noted::Forgotten {
            self.counters().misses_forgotten.add(1);
        }
    }

    /// Whether the penalty of what this client stores may be known before its key is looked up. If not,
    /// [`Worker::price_of`] finds no subclass.
    #[inline]
    pub(super) fn may_have_price(&self, store: &Store<'_>) -> bool {
        store.penalty.is_some() || self.cache.penalties.may_be_outstanding(store.hash)
    }

    /// What is known of the penalty of what this client stores before its key is looked up. The first byte came in a
    /// batch that began at `came_us`.
    pub(super) fn price_of(&self, store: &Store<'_>, came_us: u64) -> Option<Price> {
        self.cache.penalties.price(store.hash, store.penalty, came_us)
    }

    /// Under the writer bit of the key's bucket: the record at `new`, to which no entry leads yet, takes the penalty of
    /// the item at `old`, which it replaces, or else that of other keys of its prefix.
    #[inline]
    pub(super) fn inherit_penalty(
        &self,
        guard: &Guard<'_>,
        key: &[u8],
        new: Location,
        old: Option<Location>,
    ) {
        let penalties = &self.cache.penalties;
        let of_old = old.map_or(State(0), |old| guard.item(old).state());
        if of_old.has(State::PENALTY) {
            if penalties.is_on() {
                let item = guard.item(new);
                item.replace_state(item.state().with_penalty_of(of_old));
            }
        } else if penalties.estimates() {
            self.estimate_penalty(guard, key, new);
        }
    }

    /// The record at `new`, to which no entry leads yet, takes the penalty of other keys of its prefix, unless its own
    /// is known.
    #[inline(never)]
    fn estimate_penalty(&self, guard: &Guard<'_>, key: &[u8], new: Location) {
        let penalties = &self.cache.penalties;
        let item = guard.item(new);
        if penalties.is_on() && !item.state().has(State::PENALTY) {
            item.replace_state(with_penalty(item.state(), penalties.estimate(key)));
        }
    }
}

/// The state of a record that is stored at this price.
#[inline]
pub(super) fn priced(state: State, price: Option<&Price>) -> State {
    match price.and_then(Price::subclass) {
        None => state,
        known => with_penalty(state, known),
    }
}
