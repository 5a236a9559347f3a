//! What an earlier process left in a kept memory: its items are put into the index again.
//!
//! A record counts if it says so itself and its checksum fits ([`larder_memory::Remains`]). A server that is killed
//! between committing a record and revoking the one that it replaces leaves both. Nobody has been answered then, so
//! either is right; the one that is met first stays. An item in chunks counts if its whole chain does.
//!
//! The columns are walked by several threads, and then the chains, because the chunks of a chain are in other columns.

use crate::item_store::ItemStore;
use larder_item::{KeyHash, Location, State, ValueLayout};
use larder_memory::{ColumnId, ColumnState, Guard, Item, Left, Reader, Record, Remains, Value};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Inserts between two looks at the index's need to grow, and the most buckets that are split at one look.
const GROW_EVERY: usize = 32;
const SPLITS_AT_ONCE: usize = 16;
/// How far ahead buckets are prefetched.
const PREFETCHED: usize = 12;
/// Chains that a thread takes at once.
const CHAINS_AT_ONCE: usize = 64;

/// What a start found in the file of a kept memory.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// How the earlier process ended, or why nothing of it can be used.
    pub left: Left,
    /// Items that are served again, and their bytes.
    pub items: u64,
    /// See `items`.
    pub bytes: u64,
    /// Items that had expired.
    pub expired: u64,
    /// Large values of which a part was missing, compressed ones whose dictionary is damaged, and items that found no
    /// room in the index.
    pub lost: u64,
    /// Columns with bytes that no server has written. Nothing of them is served.
    pub damaged_columns: u64,
    /// How long it took.
    pub took: Duration,
}

/// What one thread has found.
#[derive(Default)]
struct Found {
    items: u64,
    bytes: u64,
    expired: u64,
    lost: u64,
    damaged_columns: u64,
    inserts: usize,
    /// Items whose value is a chain of chunks.
    chains: Vec<(Location, KeyHash)>,
}

impl Found {
    fn add(&mut self, mut other: Found) {
        self.items += other.items;
        self.bytes += other.bytes;
        self.expired += other.expired;
        self.lost += other.lost;
        self.damaged_columns += other.damaged_columns;
        self.chains.append(&mut other.chains);
    }
}

/// Puts the items of an earlier process into the index, with `threads` threads. Calls `sealed` for each column that
/// holds some, in the order of their births; the other columns are free. Nothing else uses the store yet. `None`: the
/// memory is not kept.
pub(crate) fn recover(
    store: &ItemStore,
    threads: usize,
    mut sealed: impl FnMut(ColumnId),
) -> Option<Recovered> {
    let left = store.memory.left()?.clone();
    let started = Instant::now();
    let columns = store.memory.remaining_columns();
    let mut found = in_parallel(store, threads, columns.len(), |walker, nth| walker.column(columns[nth]));
    let chains = std::mem::take(&mut found.chains);
    let parts = chains.len().div_ceil(CHAINS_AT_ONCE);
    found.add(in_parallel(store, threads, parts, |walker, nth| {
        let rest = &chains[nth * CHAINS_AT_ONCE..];
        rest.iter().take(CHAINS_AT_ONCE).for_each(|(at, hash)| walker.chain(*at, *hash));
    }));
    for column in columns {
        match store.memory.column(column) {
            // Damaged ones were given up.
            gone if gone.state() != ColumnState::Sealed => {}
            empty if empty.live_bytes() == 0 => store.memory.give_up_remains(column),
            _ => sealed(column),
        }
    }
    store.counters.keeper().bytes_stored.add(found.bytes);
    store.share_out();
    let Found { items, bytes, expired, lost, damaged_columns, .. } = found;
    Some(Recovered { left, items, bytes, expired, lost, damaged_columns, took: started.elapsed() })
}

/// Runs `work` for each of `parts` numbers, on several threads.
fn in_parallel(
    store: &ItemStore,
    threads: usize,
    parts: usize,
    work: impl Fn(&mut Walker<'_>, usize) + Sync,
) -> Found {
    let next = AtomicUsize::new(0);
    let run = || {
        let reader: Reader = store.memory.register();
        let mut walker = Walker { store, guard: reader.pin(), met: Vec::new(), found: Found::default() };
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            if nth >= parts {
                return walker.found;
            }
            work(&mut walker, nth);
        }
    };
    let mut all = Found::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..threads.min(parts)).map(|_| scope.spawn(run)).collect();
        all.add(run());
        for thread in threads {
            all.add(thread.join().expect("a walk over columns does not panic"));
        }
    });
    all
}

/// One thread's walk.
struct Walker<'a> {
    store: &'a ItemStore,
    guard: Guard<'a>,
    /// Items of the present column that count. Kept for its memory.
    met: Vec<(Location, KeyHash)>,
    found: Found,
}

impl<'a> Walker<'a> {
    /// Walks one column. Its chains are left to be looked at when all columns were walked.
    fn column(&mut self, column: ColumnId) {
        let Walker { store, guard, met, found } = self;
        met.clear();
        let (chains_before, expired_before) = (found.chains.len(), found.expired);
        let is_right = store.memory.walk_remains(guard, column, |at, record, remains| {
            let item = guard.item(at);
            if matches!(record, Record::Chunk(_)) || remains != Remains::Whole {
                return item.set_alive(false);
            }
            if store.clock.has_passed(item.expiry()) {
                found.expired += 1;
                return reject(&item);
            }
            if let Value::Compressed(value) = item.value()
                && store.compression.dictionaries.get(value.dictionary).is_none()
            {
                found.lost += 1;
                return reject(&item);
            }
            let hash = store.hasher.hash(item.key());
            if item.value_layout() == ValueLayout::Chunked {
                found.chains.push((at, hash));
            } else {
                met.push((at, hash));
            }
        });
        if !is_right {
            found.chains.truncate(chains_before);
            found.expired = expired_before;
            found.damaged_columns += 1;
            store.memory.give_up_remains(column);
            return;
        }
        for nth in 0..self.met.len() {
            let (at, hash) = self.met[nth];
            if let Some((_, ahead)) = self.met.get(nth + PREFETCHED) {
                self.store.index.prefetch(*ahead);
            }
            let item = self.guard.item(at);
            if self.insert(at, hash, &item) {
                self.found.bytes += u64::from(item.live_again());
            }
        }
    }

    /// Looks at an item whose value is a chain of chunks.
    fn chain(&mut self, at: Location, hash: KeyHash) {
        let guard = self.guard;
        let item = guard.item(at);
        let Some(chunks) = self.whole_chain(&item, hash) else {
            self.found.lost += 1;
            return reject(&item);
        };
        if self.insert(at, hash, &item) {
            for record in chunks.iter().chain([&item]) {
                self.found.bytes += u64::from(record.live_again());
            }
        }
    }

    /// The chunks of an item, if all of them are there and whole.
    fn whole_chain(&self, item: &Item<'_>, hash: KeyHash) -> Option<Vec<Item<'a>>> {
        let Value::Chunked { total, first } = item.value() else { return None };
        let (mut chunks, mut bytes, mut chain, mut next) = (Vec::new(), 0u64, None, Some(first));
        while let Some(at) = next {
            let (record, chunk) = self.guard.remaining_chunk(at)?;
            bytes += chunk.bytes.len() as u64;
            let is_ours = chunk.owner == hash && *chain.get_or_insert(chunk.chain) == chunk.chain;
            if !is_ours || chunk.bytes.is_empty() || bytes > u64::from(total) {
                return None;
            }
            chunks.push(record);
            next = chunk.next;
        }
        (bytes == u64::from(total)).then_some(chunks)
    }

    /// Inserts an entry. Returns false if the item does not count after all.
    fn insert(&mut self, at: Location, hash: KeyHash, item: &Item<'_>) -> bool {
        let Walker { store, guard, found, .. } = self;
        let keys = store.key_reader(guard);
        // Nobody knows how warm it was. What was never read is colder.
        let warmth = u8::from(item.state().has(State::FETCHED));
        loop {
            let mut bucket = store.index.lock(hash);
            if bucket.find(item.key(), &keys).is_some() {
                reject(item);
                return false;
            }
            if bucket.insert(at, warmth).is_ok() {
                break;
            }
            drop(bucket);
            if !store.index.needs_growth() {
                reject(item);
                found.lost += 1;
                return false;
            }
            // The thread that grows the index may have to wait for a processor.
            if store.index.grow(&keys, SPLITS_AT_ONCE) == 0 {
                std::thread::yield_now();
            }
        }
        found.items += 1;
        found.inserts += 1;
        if found.inserts.is_multiple_of(GROW_EVERY) && store.index.needs_growth() {
            store.index.grow(&keys, SPLITS_AT_ONCE);
        }
        true
    }
}

/// The record does not count after all, for a later process neither.
fn reject(item: &Item<'_>) {
    item.set_alive(false);
    item.revoke();
}
