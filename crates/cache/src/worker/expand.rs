//! Reading values that are stored compressed, and writing those plain that are hot.
//!
//! A pass cannot tell what is hot: the warmth of an entry ends at three reads, and between two passes over a column
//! even lukewarm items have as many. Here a value is hot that is expanded twice within some thousand expansions. It is
//! written plain at once, between two batches, if there is room without a wait; then a read costs nothing more, until a
//! pass meets the item in the main columns and compresses it again. The fewer values are expanded, the longer it is
//! known that one was.

use super::Worker;
use crate::compression::Expander;
use crate::counters::Counters;
use crate::item_store::{ItemStore, Life};
use larder_flash::Found;
use larder_item::Location;
use larder_memory::{Compressed, NewItem, Value};
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::sync::Once;

/// Slots of the table of values that were expanded lately, as a power of two: 16 KiB.
const SLOTS_LOG2: u32 = 12;
/// Values that are written plain after one batch, at most.
const HOT_MAX: usize = 16;

/// What a worker expands values with.
#[derive(Default)]
pub(super) struct ExpandSide {
    expander: RefCell<Box<Expander>>,
    /// Room for a value, kept for its memory.
    room: Cell<Vec<u8>>,
    /// Where the values were that were expanded lately; empty until one is.
    lately: RefCell<Vec<u32>>,
    /// Where hot values are.
    hot: RefCell<Vec<Location>>,
    has_hot: Cell<bool>,
}

/// A value that was stored compressed. Its room goes back to the worker.
pub struct Expanded<'w> {
    side: &'w ExpandSide,
    value: Vec<u8>,
}

impl Deref for Expanded<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.value
    }
}

impl Drop for Expanded<'_> {
    fn drop(&mut self) {
        self.side.room.set(std::mem::take(&mut self.value));
    }
}

impl ExpandSide {
    /// An item from flash with its plain value. `None` = it cannot be expanded: it is a miss.
    pub(super) fn found(&self, store: &ItemStore, counters: &Counters, mut found: Found) -> Option<Found> {
        if !found.state.extension().is_compressed {
            return Some(found);
        }
        counters.expansions.add(1);
        let mut value = Vec::new();
        let stored = Compressed::read(&found.value);
        value.reserve_exact(stored.plain_bytes as usize);
        if !self.expander.borrow_mut().expand(&store.compression.dictionaries, stored, &mut value) {
            return None;
        }
        (found.value_bytes, found.state) = (value.len() as u64, found.state.compressed(false));
        found.value = value;
        Some(found)
    }

    /// Takes note of a read of the value of the record at `at`.
    fn note(&self, at: Location) {
        let mut lately = self.lately.borrow_mut();
        if lately.is_empty() {
            lately.resize(1 << SLOTS_LOG2, 0);
        }
        let mixed = at.bits().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (slot, mark) = ((mixed >> (64 - SLOTS_LOG2)) as usize, (mixed as u32).max(1));
        if std::mem::replace(&mut lately[slot], mark) != mark {
            return;
        }
        let mut hot = self.hot.borrow_mut();
        if hot.len() < HOT_MAX && !hot.contains(&at) {
            hot.push(at);
            self.has_hot.set(true);
        }
    }
}

impl Worker {
    /// Expands the value of the item at `at` in memory for a client.
    ///
    /// A record in memory was written by this process, or its checksum and its dictionary were checked at the start. If
    /// it cannot be expanded all the same, the machine's memory is damaged: the value is as long as it was, and zeros.
    pub fn expand(&self, at: Location, stored: Compressed<'_>) -> Expanded<'_> {
        self.expand_side.note(at);
        self.expanded(stored)
    }

    /// The same, where the value is read only to be replaced.
    pub(super) fn expanded(&self, stored: Compressed<'_>) -> Expanded<'_> {
        let side = &self.expand_side;
        let mut value = side.room.take();
        value.clear();
        self.counters().expansions.add(1);
        let dictionaries = &self.cache.store.compression.dictionaries;
        if !side.expander.borrow_mut().expand(dictionaries, stored, &mut value) {
            static TOLD: Once = Once::new();
            TOLD.call_once(|| tracing::error!("a compressed value is damaged: is the machine's memory?"));
            value.resize(stored.plain_bytes as usize, 0);
        }
        Expanded { side, value }
    }

    /// After a batch, before its locations are let go: writes plain what is hot.
    #[inline]
    pub(super) fn write_hot_plain(&mut self) {
        if self.expand_side.has_hot.get() {
            self.write_hot();
        }
    }

    #[cold]
    fn write_hot(&mut self) {
        self.expand_side.has_hot.set(false);
        let mut hot = self.expand_side.hot.take();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let quiesced = self.quiesced;
        for at in hot.drain(..) {
            // Nobody should wait for it. Who takes a column lets go of all locations.
            let has_room = self.cache.store.memory.available_columns() > self.cache.store.free_columns_low();
            if has_room && self.quiesced == quiesced {
                self.write_plain(at, &mut key, &mut value);
            }
        }
        *self.expand_side.hot.borrow_mut() = hot;
    }

    /// Writes the item at `at` plain, if it is there and its value is compressed.
    fn write_plain(&mut self, at: Location, key: &mut Vec<u8>, value: &mut Vec<u8>) {
        let guard = self.reader.pin();
        let item = guard.item(at);
        let Value::Compressed(stored) = item.value() else { return };
        value.clear();
        let dictionaries = &self.cache.store.compression.dictionaries;
        if !self.expand_side.expander.borrow_mut().expand(dictionaries, stored, value) {
            return;
        }
        key.clear();
        key.extend_from_slice(item.key());
        let (flags, expiry, cas, state) = (item.flags(), item.expiry(), item.cas(), item.state());
        let kind = item.kind();
        let copy = NewItem { key, value: [value, &[]], flags, expiry, cas, state, kind };
        let (hash, birth) = (self.cache.store.hasher.hash(key), self.cache.store.birth_of(at));
        let Some(new) = self.place_as_it_is(&copy) else { return };
        let (store, guard) = (&self.cache.store, self.reader.pin());
        let mut bucket = store.index.lock(hash);
        // The location may be that of another item by now. And a flush may have come before the column of the copy was
        // taken.
        let found = bucket
            .find_at(at)
            .filter(|_| store.birth_of(at) == birth && store.life(at, &guard.item(at)) == Life::Live);
        let Some(found) = found else {
            drop(bucket);
            return self.take_back(new);
        };
        store.move_entry(&guard, &mut bucket, &found, (new, found.entry.warmth), self.counters());
        self.counters().expanded.add(1);
    }
}
