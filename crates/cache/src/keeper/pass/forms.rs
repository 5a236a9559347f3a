//! How a pass writes what it keeps, and what leaves for flash: as it is, or compressed.
//!
//! What is made of a value is made before its bucket is locked, for nobody should wait for a compressor.

use crate::compression::Expander;
use crate::counters::Counters;
use crate::flash_note::FlashNote;
use crate::item_store::ItemStore;
use crate::keeper::kinds::{Kinds, VALUE_BYTES_MIN, Way};
use crate::keeper::time_slice::TimeSlice;
use crate::temperature::Queue;
use larder_compression::Compressor;
use larder_item::State;
use larder_memory::{Compressed, Item, LAST_ACCESS_STALE_S, Value};
use std::sync::Arc;
use std::time::Instant;

/// An item of probation with this warmth is hot, for probation is short. Items of the main columns are compressed
/// however warm they are: a worker writes those plain that are hot (`worker/expand.rs`).
const HOT_FROM: u8 = 3;

/// How one item is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// As it is.
    Same,
    /// Compressed, from the room for values.
    Compressed,
}

/// What forms are made with.
#[derive(Default)]
pub(in crate::keeper) struct Forms {
    pub(in crate::keeper) kinds: Kinds,
    compressor: Compressor,
    expander: Expander,
    /// What a value was compressed to.
    made: Vec<u8>,
    /// A value that was expanded.
    plain: Vec<u8>,
}

impl Forms {
    pub(super) fn new(store: &ItemStore, note: Option<Arc<FlashNote>>) -> Forms {
        Forms { kinds: Kinds::of(store, note), ..Forms::default() }
    }

    /// What a value was compressed to, if that was the last form that was made.
    pub(super) fn made(&self) -> &[u8] {
        &self.made
    }

    /// How to write an item to flash that leaves memory.
    pub(super) fn of_leaving(&mut self, store: &ItemStore, item: &Item<'_>, counters: &Counters) -> Form {
        let Value::Whole(value) = item.value() else { return Form::Same };
        if item.state().has(State::CLEAN) {
            return Form::Same;
        }
        let form = self.compress(store, item, Source::Given(value), true, counters);
        let may_lie = || store.compression.dictionaries.is_on_flash(Compressed::read(&self.made).dictionary);
        if form == Form::Compressed && may_lie() { form } else { Form::Same }
    }

    /// Takes note of the live items that a pass has met.
    pub(super) fn meet<'g>(
        &mut self,
        store: &ItemStore,
        slice: &TimeSlice,
        items: impl Iterator<Item = Item<'g>>,
    ) {
        if slice.is_for_writer() {
            return;
        }
        self.kinds.tend(store);
        for item in items {
            if let Value::Whole(value) = item.value() {
                self.kinds.meet(store, item.key(), value);
            }
        }
    }

    /// How to write an item of this queue and warmth that stays. `has_time` = nobody waits for the pass.
    pub(super) fn of(
        &mut self,
        store: &ItemStore,
        item: &Item<'_>,
        (queue, warmth): (Queue, u8),
        has_time: bool,
        counters: &Counters,
    ) -> Form {
        match item.value() {
            Value::Whole(value) if value.len() >= VALUE_BYTES_MIN => {
                match queue == Queue::Probation && is_hot(store, item, warmth) {
                    true => Form::Same,
                    false => self.compress(store, item, Source::Given(value), has_time, counters),
                }
            }
            // No new record should need its dictionary.
            Value::Compressed(stored) if has_time && self.kinds.is_outgoing(stored.dictionary) => {
                match self.expand(store, stored) {
                    true => self.compress(store, item, Source::Expanded, has_time, counters),
                    false => Form::Same,
                }
            }
            _ => Form::Same,
        }
    }

    fn expand(&mut self, store: &ItemStore, stored: Compressed<'_>) -> bool {
        self.plain.clear();
        self.expander.expand(&store.compression.dictionaries, stored, &mut self.plain)
    }

    fn compress(
        &mut self,
        store: &ItemStore,
        item: &Item<'_>,
        source: Source<'_>,
        has_time: bool,
        counters: &Counters,
    ) -> Form {
        let value = match source {
            Source::Given(value) => value,
            Source::Expanded => &self.plain,
        };
        let Some(choice) = self.kinds.choose(store, item.key(), value.len()) else { return Form::Same };
        if !has_time {
            counters.compress_skipped.add(1);
            return Form::Same;
        }
        let began = Instant::now();
        let (dictionary, frame) = match &choice.way {
            Way::Dictionary(number, dictionary) => {
                (*number, self.compressor.compress(value, Some(dictionary)))
            }
            Way::Modelled(thousandths) => (0, value.get(..value.len() * usize::from(*thousandths) / 1000)),
        };
        counters.compress_ns.add(began.elapsed().as_nanos() as u64);
        self.kinds.note(&choice, value.len(), frame.map(<[u8]>::len));
        match frame {
            Some(frame) => {
                counters.compressed.add(1);
                self.made.clear();
                self.made.extend_from_slice(&Compressed::prefix(value.len(), dictionary));
                self.made.extend_from_slice(frame);
                Form::Compressed
            }
            None => {
                counters.compress_refused.add(1);
                Form::Same
            }
        }
    }
}

/// Whether an item of probation is hot. Where entries have no warmth, its last use tells, which is known to a minute.
fn is_hot(store: &ItemStore, item: &Item<'_>, warmth: u8) -> bool {
    match store.index.marks() {
        true => warmth >= HOT_FROM,
        false => item.state().idle_s(store.clock.now_s()) < 2 * LAST_ACCESS_STALE_S,
    }
}

/// Where a value is that is compressed.
enum Source<'a> {
    Given(&'a [u8]),
    /// In the room for plain values.
    Expanded,
}
