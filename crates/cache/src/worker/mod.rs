//! A worker: what one thread needs to serve requests.
//!
//! * `read.rs` looks up one key, `batch.rs` many keys whose waits for memory overlap, `list.rs` walks over all items in
//!   memory, `tour.rs` over those on flash too.
//! * `open_columns.rs` has the columns that the worker fills. `write.rs` places records and publishes them;
//!   `change.rs` is what clients ask for: store, delete, arithmetic, touch. `edit.rs` has changes that depend on the
//!   whole present item. `expand.rs` reads values that are stored compressed.
//! * `cas_numbers.rs` has the numbers that tell versions of items apart.
//! * `chain.rs` fills and reads the chains of chunks of large values; `upload.rs` stores a value that arrives in parts.
//! * `fetch.rs` looks on flash and brings items back into memory; `flash_side.rs` is what it needs for that.
//! * `penalty.rs` notes misses, and writes to records what a miss of their key costs. `watch.rs` watches keys.

mod batch;
mod cas_numbers;
mod chain;
mod change;
mod edit;
mod expand;
mod fetch;
mod flash_side;
mod list;
mod open_columns;
mod penalty;
mod read;
mod tour;
mod upload;
mod watch;
mod write;

pub use batch::GetBatch;
pub use chain::{LargeRead, Upload};
pub use edit::{Copied, CopyTo, Edit, Edited, Made};
pub use expand::Expanded;
pub use fetch::{Fetch, Promotion};
pub use list::{Listed, Walk};
pub use read::{Absence, Hit, Lookup};
pub use tour::{Seen, Tour, Toured};
pub use watch::Watch;

use crate::cache::Cache;
use crate::counters::Counters;
use crate::item_store::Life;
use crate::namespaces::Tally;
use crate::references::PagePool;
use crate::sizing::UseRecord;
use cas_numbers::CasNumbers;
use expand::ExpandSide;
use flash_side::FlashSide;
use larder_item::{KeyHash, Location};
use larder_memory::{Item, NodeId, Reader};
use larder_temperature::{Digest, Reference};
use open_columns::{OpenColumns, Place};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// One thread's handle of the cache: its epoch reader, its open columns, its counters.
pub struct Worker {
    cache: Arc<Cache>,
    reader: Reader,
    /// The columns that the worker fills.
    open: OpenColumns,
    /// The node that they are taken from while it has free ones.
    node: NodeId,
    /// The number of its block of counters.
    number: usize,
    /// How often this worker let go of everything it had looked up.
    quiesced: u64,
    inserts: u32,
    cas_numbers: CasNumbers,
    tally: Tally,
    spare: SpareValues,
    expand_side: ExpandSide,
    traces: Traces,
    flash: FlashSide,
    batch_began: BatchBegan,
    /// The item that is being written has the value of the present one.
    changes_nothing: bool,
}

/// Room for values, kept for its memory.
#[derive(Default)]
struct SpareValues {
    /// For the value of an item that is written anew.
    old: Vec<u8>,
    /// For the value that an edit makes.
    made: Vec<u8>,
}

/// Traces of requests on their way to the keeper.
#[derive(Default)]
struct Traces {
    references: PagePool<Reference>,
    /// Uses of sampled keys, for the curves.
    uses: PagePool<UseRecord>,
}

/// When the present batch of requests began.
#[derive(Default)]
struct BatchBegan {
    /// `None`: nobody said.
    at: Option<Instant>,
    /// The same in microseconds, as [`crate::penalties`] counts them; 0 = not asked for yet.
    us: Cell<u64>,
}

impl Cache {
    /// A new worker. Each thread that serves requests takes one.
    ///
    /// # Panics
    /// When more workers register than [`crate::CacheOptions::workers`] announced.
    pub fn worker(self: &Arc<Cache>) -> Worker {
        self.worker_on(NodeId::default())
    }

    /// A new worker whose thread runs on a node: it fills columns of this node while there are some. The node is one of
    /// [`crate::CacheOptions::nodes`].
    ///
    /// # Panics
    /// As [`Cache::worker`]; or if there is no such node.
    pub fn worker_on(self: &Arc<Cache>, node: NodeId) -> Worker {
        let count = self.store.memory.nodes().count();
        assert!(node.0 < count, "the cache has {count} nodes");
        let number = self.register_worker();
        Worker {
            reader: self.store.memory.register(),
            open: OpenColumns::new(self.store.columns_max(), self.store.counters.workers_max()),
            node,
            number,
            quiesced: 0,
            inserts: 0,
            cas_numbers: CasNumbers::new(self.store.counters.workers_max()),
            tally: self.store.namespaces.tally(number),
            spare: SpareValues::default(),
            expand_side: ExpandSide::default(),
            traces: Traces::default(),
            flash: FlashSide::new(self.flash_tier()),
            batch_began: BatchBegan::default(),
            changes_nothing: false,
            cache: self.clone(),
        }
    }
}

impl Worker {
    /// The cache this worker serves.
    #[inline]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// This worker's counters.
    #[inline]
    pub fn counters(&self) -> &Counters {
        self.cache.store.counters.worker(self.number)
    }

    /// Between batches: the worker holds nothing that it has looked up, so columns that were retired since can be
    /// reused.
    #[inline]
    pub fn quiesce(&mut self) {
        self.write_hot_plain();
        self.quiesced += 1;
        self.cas_numbers.end_batch();
        self.reader.quiesce();
    }

    /// Before the thread blocks: the worker holds back no column until [`Worker::online`].
    pub fn offline(&mut self) {
        self.write_hot_plain();
        self.quiesced += 1;
        self.cas_numbers.end_batch();
        self.reader.offline();
    }

    /// After the thread has blocked.
    pub fn online(&mut self) {
        self.reader.online();
    }

    /// Changes whenever locations that were found earlier may no longer be used.
    #[inline]
    pub fn quiesced(&self) -> u64 {
        self.quiesced
    }

    /// Once a second: lets go of open columns from before a flush, so that it can be forgotten, and of those whose
    /// class of lifetimes brings nothing any more, and queues the references that were noted so far.
    pub fn tick(&mut self) {
        self.cache.keeper.flush_references(&self.traces.references);
        self.traces.uses.flush(&self.cache.sizing.uses);
        let floor = self.cache.store.floors.highest();
        for place in Place::all() {
            if self.open.at(place).is_some_and(|open| open.birth() < floor) {
                self.seal_open(place);
            }
        }
        let (columns, workers) = (self.cache.store.columns_max(), self.cache.store.counters.workers_max());
        for place in self.open.give_up_idle(columns, workers) {
            self.seal_open(place);
        }
    }

    /// Hands an open column to the keeper.
    fn seal_open(&mut self, place: Place) {
        if let Some(open) = self.open.take(place) {
            let sealed = open.seal_at(self.cache.store.clock.now_s());
            self.cache.keeper.sealed(sealed);
        }
    }

    /// Leaves a trace of a read of the item at `at` for the keeper, if policy or curve want to hear of this key.
    #[inline(always)]
    fn note_read(&self, hash: KeyHash, at: Location) {
        if self.cache.keeper.references().is_wanted(Digest::of(hash)) {
            self.note_wanted(Reference::read(Digest::of(hash)), at);
        }
    }

    /// The same of a store.
    #[inline(always)]
    fn note_store(&self, hash: KeyHash, at: Location) {
        if self.cache.keeper.references().is_wanted(Digest::of(hash)) {
            self.note_wanted(Reference::store(Digest::of(hash)), at);
        }
    }

    /// Out of the way of requests that leave no trace, and with few words to be passed.
    #[inline(never)]
    fn note_wanted(&self, reference: Reference, at: Location) {
        let keeper = &self.cache.keeper;
        keeper.note(reference, &self.traces.references);
        let digest = reference.digest();
        if keeper.references().curve_wants(digest) {
            let guard = self.reader.pin();
            let item = guard.item(at);
            let of = if reference.is_store() { UseRecord::store } else { UseRecord::hit };
            self.note_sampled_use(item.key(), of(digest, &item));
        }
    }

    /// Leaves a trace of a use for the curves, if one of them wants to hear of this key.
    #[inline]
    fn note_use(&self, digest: Digest, key: &[u8], use_of: impl FnOnce(Digest) -> UseRecord) {
        if self.cache.keeper.references().curve_wants(digest) {
            self.note_sampled_use(key, use_of(digest));
        }
    }

    /// The digest is below the bound of some curve: leaves a trace if it is below that of the whole cache's curve, or
    /// below that of the key's namespace.
    #[cold]
    #[inline(never)]
    fn note_sampled_use(&self, key: &[u8], used: UseRecord) {
        let keeper = &self.cache.keeper;
        let wanted = self.cache.store.namespaces.wanted_of(key);
        let digest = used.digest();
        let is_wanted = keeper.references().whole_curve_wants(digest) || digest.bits() < wanted.below;
        if is_wanted && self.traces.uses.push(used.of_namespace(wanted.number), &self.cache.sizing.uses) {
            keeper.wake();
        }
    }

    /// Whether `item` may be served, and the reason if not.
    #[inline(always)]
    fn life(&self, at: Location, item: &Item<'_>) -> Life {
        self.cache.store.life(at, item)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        Place::all().for_each(|place| self.seal_open(place));
    }
}
