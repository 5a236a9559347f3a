//! Changing items, and counting what came of it.

use super::Executor;
use crate::dispatch::operation::{DeleteItem, OldItem, StoreItem};
use crate::dispatch::outcome::{Outcome, TouchedItem};
use crate::dispatch::prefixes::PrefixEvent;
use larder_cache::{
    Arith, ArithOutcome, Delete, DeleteOutcome, Expiry, KeyHash, Mode, Store, StoreOutcome, Touched,
};

impl Executor {
    #[inline(always)]
    pub(super) fn store(&mut self, item: &StoreItem<'_>) -> StoreOutcome {
        let store = &item.store;
        let outcome = match store.compare {
            None => self.worker.store(store),
            Some(_) => {
                let store = self.with_compared_cas(store);
                self.worker.store(&store)
            }
        };
        self.count_store(outcome, store.compare.is_some());
        self.settle_store(item, outcome)
    }

    /// What a store does beside storing: the key's prefix is counted, and a refused store may end the present item.
    #[inline]
    pub(super) fn settle_store(&mut self, item: &StoreItem<'_>, outcome: StoreOutcome) -> StoreOutcome {
        if item.counts_prefix {
            self.state.prefixes().note(item.store.key, PrefixEvent::Set);
        }
        match outcome {
            StoreOutcome::Stored { cas, value_bytes } => {
                self.note_if_large(item.store.hash, item.store.key, value_bytes);
                StoreOutcome::Stored { cas: self.shown_cas(cas), value_bytes }
            }
            StoreOutcome::TooLarge | StoreOutcome::NoRoom => {
                self.end_old_item(item);
                outcome
            }
            _ => outcome,
        }
    }

    /// The store named a CAS number: the store with the number that items are compared with. Where CAS is switched off
    /// no item has the number that a client names, as no client was told any. No item has the number 0: a store that
    /// adds to a value and names 0 compares nothing, as in memcached.
    pub(super) fn with_compared_cas<'a>(&self, store: &Store<'a>) -> Store<'a> {
        let joins = matches!(store.mode, Mode::Append | Mode::Prepend);
        let compare = self.compared_cas(store.compare).filter(|&cas| cas != 0 || !joins);
        Store { compare, ..*store }
    }

    fn compared_cas(&self, named: Option<u64>) -> Option<u64> {
        let is_enabled = self.state.settings().cas_enabled;
        named.map(|cas| if is_enabled || cas == 0 { cas } else { u64::MAX })
    }

    /// The store was refused for its size or for want of memory.
    #[cold]
    fn end_old_item(&mut self, item: &StoreItem<'_>) {
        let Store { key, hash, .. } = item.store;
        let goes = match item.old_if_refused {
            OldItem::Stays => false,
            OldItem::GoesIfTooLarge => !self.worker.fits(key.len(), item.value_bytes.into()),
            OldItem::Goes => true,
        };
        if goes {
            self.delete_quietly(key, hash);
        }
    }

    /// Counts a store as memcached does. `compared` = the client named a CAS number.
    #[inline]
    pub(super) fn count_store(&self, outcome: StoreOutcome, compared: bool) {
        let counters = self.worker.counters();
        match outcome {
            StoreOutcome::TooLarge => return counters.store_too_large.add(1),
            StoreOutcome::NoRoom => return counters.store_no_memory.add(1),
            StoreOutcome::Stored { .. } if compared => counters.cas_hits.add(1),
            StoreOutcome::Exists if compared => counters.cas_badval.add(1),
            StoreOutcome::NotFound if compared => counters.cas_misses.add(1),
            _ => {}
        }
        counters.cmd_set.add(1);
    }

    /// `is_on_flash` = memory does not have the item, but flash does.
    pub(super) fn delete(&mut self, item: &DeleteItem<'_>, is_on_flash: bool) -> DeleteOutcome {
        let delete = &item.delete;
        let outcome = match delete.compare {
            None => self.worker.delete(delete),
            Some(_) => {
                // Where CAS is switched off every item is shown with the number 0, so a delete that names 0 compares
                // nothing.
                let is_enabled = self.state.settings().cas_enabled;
                let compare = self.compared_cas(delete.compare).filter(|&cas| cas != 0 || is_enabled);
                self.worker.delete(&Delete { compare, ..*delete })
            }
        };
        let outcome = match outcome {
            DeleteOutcome::NotFound if is_on_flash => DeleteOutcome::Deleted,
            outcome => outcome,
        };
        if item.counts_prefix {
            self.state.prefixes().note(delete.key, PrefixEvent::Delete);
        }
        let counters = self.worker.counters();
        match outcome {
            DeleteOutcome::Deleted => counters.delete_hits.add(1),
            DeleteOutcome::NotFound => counters.delete_misses.add(1),
            DeleteOutcome::Exists | DeleteOutcome::NoRoom => {}
        }
        outcome
    }

    /// Deletes an item that no client asked to delete. Nothing is counted.
    pub(in crate::dispatch) fn delete_quietly(&mut self, key: &[u8], hash: KeyHash) {
        self.worker.delete(&Delete::of(key, hash));
    }

    pub(super) fn touch(&mut self, key: &[u8], hash: KeyHash, expiry: Expiry) -> Touched {
        let touched = self.worker.touch(hash, key, expiry);
        self.count_touch(touched)
    }

    /// Sets the expiry of an item that was shown, if it was there: reading it left its trace already.
    pub(super) fn touch_shown(&mut self, key: &[u8], hash: KeyHash, expiry: Expiry) -> Touched {
        let touched = self.worker.set_expiry(hash, key, expiry);
        self.count_touch(touched)
    }

    fn count_touch(&self, touched: Touched) -> Touched {
        let counters = self.worker.counters();
        counters.cmd_touch.add(1);
        match touched {
            Touched::Done => counters.touch_hits.add(1),
            _ => counters.touch_misses.add(1),
        }
        touched
    }

    /// Gives an item a new expiry, and shows the item as it was.
    pub(super) fn touch_and_show(&mut self, key: &[u8], hash: KeyHash, expiry: Expiry) -> Outcome<'static> {
        let item = self.worker.peek(hash, key);
        let item = item.map(|hit| TouchedItem { flags: hit.item.flags(), cas: self.shown_cas(hit.cas()) });
        match self.touch(key, hash, expiry) {
            Touched::Done => Outcome::TouchedItem(item),
            Touched::NotFound => Outcome::TouchedItem(None),
            Touched::NoRoom => Outcome::Touched(Touched::NoRoom),
        }
    }

    pub(super) fn arith(&mut self, arith: &Arith<'_>) -> ArithOutcome {
        let outcome = match arith.compare {
            None => self.worker.arith(arith),
            Some(_) => {
                // No item has the CAS number 0: memcached takes it for none.
                let compare = self.compared_cas(arith.compare).filter(|&cas| cas != 0);
                self.worker.arith(&Arith { compare, ..*arith })
            }
        };
        let counters = self.worker.counters();
        match (outcome, arith.increment) {
            (ArithOutcome::Done { .. }, true) => counters.incr_hits.add(1),
            (ArithOutcome::Done { .. }, false) => counters.decr_hits.add(1),
            (ArithOutcome::NotFound, true) => counters.incr_misses.add(1),
            (ArithOutcome::NotFound, false) => counters.decr_misses.add(1),
            _ => {}
        }
        match outcome {
            ArithOutcome::Done { value, cas, expiry, created } => {
                ArithOutcome::Done { value, cas: self.shown_cas(cas), expiry, created }
            }
            other => other,
        }
    }
}
