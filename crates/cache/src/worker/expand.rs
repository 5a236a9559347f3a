//! Reading values that are stored compressed.

use super::Worker;
use crate::compression::Expander;
use crate::item_store::ItemStore;
use larder_flash::Found;
use larder_memory::Compressed;
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::sync::Once;

/// What a worker expands values with.
#[derive(Default)]
pub(super) struct ExpandSide {
    expander: RefCell<Box<Expander>>,
    /// Room for a value, kept for its memory.
    room: Cell<Vec<u8>>,
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
    pub(super) fn found(&self, store: &ItemStore, mut found: Found) -> Option<Found> {
        if !found.state.extension().is_compressed {
            return Some(found);
        }
        let mut value = Vec::new();
        let stored = Compressed::read(&found.value);
        value.reserve_exact(stored.plain_bytes as usize);
        if !self.expander.borrow_mut().expand(&store.dictionaries, stored, &mut value) {
            return None;
        }
        (found.value_bytes, found.state) = (value.len() as u64, found.state.compressed(false));
        found.value = value;
        Some(found)
    }
}

impl Worker {
    /// Expands a value of an item in memory.
    ///
    /// A record in memory was written by this process, or its checksum and its dictionary were checked at the start. If
    /// it cannot be expanded all the same, the machine's memory is damaged: the value is as long as it was, and zeros.
    pub fn expand(&self, stored: Compressed<'_>) -> Expanded<'_> {
        let side = &self.expand_side;
        let mut value = side.room.take();
        value.clear();
        self.counters().expansions.add(1);
        if !side.expander.borrow_mut().expand(&self.cache.store.dictionaries, stored, &mut value) {
            static TOLD: Once = Once::new();
            TOLD.call_once(|| tracing::error!("a compressed value is damaged: is the machine's memory?"));
            value.resize(stored.plain_bytes as usize, 0);
        }
        Expanded { side, value }
    }
}
