//! How a pass writes what it keeps: as it is, compressed, or plain again.
//!
//! What is made of a value is made before its bucket is locked, for nobody should wait for a compressor.

use crate::compression::{Expander, Kinds, VALUE_BYTES_MIN, Way};
use crate::counters::Counters;
use crate::item_store::ItemStore;
use crate::note::FlashNote;
use larder_compression::Compressor;
use larder_item::{Location, State};
use larder_memory::{Compressed, Item, LAST_ACCESS_STALE_S, NewItem, OpenColumn, Value};
use std::sync::Arc;
use std::time::Instant;

/// An item with this warmth, after as many reads since a pass last met it, is stored plain; with a lower one than
/// [`COMPRESSED_BELOW`] compressed. Between the two it stays as it is, so that nothing swings.
const PLAIN_FROM: u8 = 3;
const COMPRESSED_BELOW: u8 = 2;

/// How one item is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// As it is.
    Same,
    /// Plain, from the room for values.
    Plain,
    /// Compressed, from the room for values.
    Compressed,
}

/// What forms are made with.
#[derive(Default)]
pub(in crate::keeper) struct Forms {
    pub(in crate::keeper) kinds: Kinds,
    compressor: Compressor,
    expander: Expander,
    /// A plain value, or what one was compressed to.
    made: Vec<u8>,
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
        let is_right = form == Form::Compressed
            && store.dictionaries.is_on_flash(Compressed::read(&self.made).dictionary);
        if is_right { form } else { Form::Same }
    }

    /// Takes note of a live item that a pass has met.
    pub(super) fn meet(&mut self, store: &ItemStore, item: &Item<'_>) {
        if let Value::Whole(value) = item.value() {
            self.kinds.meet(store, item.key(), value);
        }
    }

    /// How to write an item that stays and had this `warmth`. `has_time` = nobody waits for the pass.
    pub(super) fn of(
        &mut self,
        store: &ItemStore,
        item: &Item<'_>,
        warmth: u8,
        has_time: bool,
        counters: &Counters,
    ) -> Form {
        let warmth = if store.index.marks() { warmth } else { by_last_use(store, item) };
        match item.value() {
            Value::Whole(value) if warmth < COMPRESSED_BELOW && value.len() >= VALUE_BYTES_MIN => {
                self.compress(store, item, Source::Given(value), has_time, counters)
            }
            Value::Compressed(stored) if warmth >= PLAIN_FROM && has_time => {
                match self.expand(store, stored) {
                    true => {
                        std::mem::swap(&mut self.made, &mut self.plain);
                        counters.expanded.add(1);
                        Form::Plain
                    }
                    false => Form::Same,
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
        self.expander.expand(&store.dictionaries, stored, &mut self.plain)
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

    /// Places a copy of a record that is to have another form than it had. `item` has its other fields.
    pub(super) fn place(&self, open: &mut OpenColumn, item: &NewItem<'_>, form: Form) -> Option<Location> {
        match form {
            Form::Compressed => open.place_compressed(item, &Compressed::read(&self.made)),
            Form::Plain | Form::Same => open.place(&NewItem { value: [&self.made, &[]], ..*item }),
        }
    }
}

/// The warmth of an item whose entry has none, by its last use, which is known to a minute.
fn by_last_use(store: &ItemStore, item: &Item<'_>) -> u8 {
    let idle_s = item.state().idle_s(store.clock.now_s());
    if idle_s < 2 * LAST_ACCESS_STALE_S { PLAIN_FROM } else { 0 }
}

/// Where a value is that is compressed.
enum Source<'a> {
    Given(&'a [u8]),
    /// In the room for plain values.
    Expanded,
}
