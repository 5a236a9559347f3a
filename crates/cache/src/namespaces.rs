//! Namespaces: tenants of one cache, told apart by what their keys begin with, up to a delimiter.
//!
//! Only namespaces that were named have a share, counters and a longest time to live. While none is, a request pays one
//! look at a flag where it stores, and nothing where it reads.
//!
//! **Shares.** The keeper estimates a few times a second, from a sample of the index, how many bytes each namespace
//! has, and takes off what is evicted in between. When a pass judges the items of a column, it keeps those of a
//! namespace that has less than its least share, and evicts those of one that has more than its most. The least shares
//! of all together leave a fifth of the memory, so that a pass always finds something to evict. Chunks of large values
//! are not moved, so no share keeps them.
//!
//! What a share keeps has to be moved. So the pass has more columns of its own while there are least shares
//! ([`ItemStore::reserved_columns`]), and where there is none all the same, the item stays where it is and another
//! column goes. After some such columns in a row the next one goes with all that it holds: a writer waits for it.

use crate::counters::Counter;
use crate::item_store::{ItemStore, Life};
use crate::padded::CachePadded;
use crate::random::Random;
use arc_swap::ArcSwap;
use arc_swap::cache::Cache as Cached;
use larder_item::{Expiry, Location};
use larder_memory::{Guard, Value};
use memchr::memchr;
use std::cell::RefCell;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The most namespaces that can be named.
pub const NAMESPACES_MAX: usize = 64;
/// The longest name of a namespace, bytes.
pub const NAMESPACE_BYTES_MAX: usize = 100;
/// The most that the least shares of all namespaces may come to, percent.
pub(crate) const LEAST_PERCENT_MAX: u32 = 80;
/// Those above their shares give all that is given while they have more than one part in so many of the memory. With
/// less, a pass would have to copy too much of others to find it.
const ABOVE_SHARE: u64 = 5;
/// Buckets of the index that an estimate looks at, or all there are: about 3,000 items, so that a share of a half is
/// known within one or two hundredths.
const BUCKETS_SAMPLED: u64 = 512;
/// Where a sample differs from the estimate by no more than chance explains, the estimate goes one part in so many of
/// the way: its own error is then a quarter of a sample's.
const CHANCE_DIVISOR: u64 = 8;
/// Chance explains so many times the root of the number of items found: more happens once in some 16,000 samples.
const CHANCE_ROOTS: u64 = 4;

/// What is set for one namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// What its keys have before the first delimiter.
    pub name: String,
    /// Its items are kept while they take less than this share of the memory for items, percent.
    pub least_percent: u8,
    /// Its items go first while they take more than this share, percent.
    pub most_percent: u8,
    /// The longest time to live of its items, seconds; 0 = no limit.
    pub ttl_max_s: u32,
}

/// Says what is wrong with a list of namespaces, if anything.
///
/// # Errors
/// One line that says what is wrong.
pub fn check_namespaces(list: &[Namespace]) -> Result<(), String> {
    if list.len() > NAMESPACES_MAX {
        return Err(format!("{} namespaces are too many: at most {NAMESPACES_MAX}", list.len()));
    }
    for (nth, namespace) in list.iter().enumerate() {
        let name = &namespace.name;
        if name.is_empty() || name.len() > NAMESPACE_BYTES_MAX {
            return Err(format!("the name of a namespace has 1 to {NAMESPACE_BYTES_MAX} bytes: '{name}'"));
        }
        if list[..nth].iter().any(|other| other.name == *name) {
            return Err(format!("the namespace '{name}' is there twice"));
        }
        if namespace.least_percent > namespace.most_percent || namespace.most_percent > 100 {
            return Err(format!("the shares of '{name}' are no range of percents: give for example 10-50"));
        }
    }
    let least: u32 = list.iter().map(|namespace| u32::from(namespace.least_percent)).sum();
    if least > LEAST_PERCENT_MAX {
        return Err(format!("the least shares come to {least} percent: at most {LEAST_PERCENT_MAX}"));
    }
    Ok(())
}

/// What is known of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespaceStats {
    /// What is set.
    pub namespace: Namespace,
    /// Reads of its keys since it was named.
    pub gets: u64,
    /// Those that found an item.
    pub hits: u64,
    /// Items that were stored.
    pub sets: u64,
    /// Live items that were evicted.
    pub evictions: u64,
    /// About how many items are in memory.
    pub items: u64,
    /// About how many bytes they take.
    pub bytes: u64,
    /// The shares in bytes: the least, and the most.
    pub share_bytes: (u64, u64),
}

/// How the items of a namespace are treated by a pass. What goes first comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Standing {
    /// It has more than its most.
    Above,
    /// As those of anybody.
    Within,
    /// It has less than its least share.
    Below,
}

/// What one worker, or the keeper, has counted of a namespace.
#[derive(Default)]
struct Counts {
    gets: Counter,
    hits: Counter,
    sets: Counter,
    /// Any thread may count here: a worker evicts what a full bucket has no room for.
    evictions: AtomicU64,
}

/// One namespace, and what is known of it.
pub(crate) struct Row {
    namespace: Namespace,
    /// The beginning of its name.
    begin: u64,
    /// Its number, which stays when settings change. Another namespace has it only long after this one is gone.
    pub(crate) number: NonZeroU8,
    /// Uses of its keys whose digest is below this number are wanted for its curve. The keeper sets it.
    pub(crate) curve_below: AtomicU32,
    /// One for each worker, and the last one for the keeper. They stay when settings change.
    counts: Arc<[CachePadded<Counts>]>,
    estimate: CachePadded<Estimate>,
}

/// About what a namespace has. Each eviction writes here, so it has a cache line that no read needs.
#[derive(Default)]
struct Estimate {
    items: AtomicU64,
    bytes: AtomicU64,
    /// What was evicted since the last sample.
    items_evicted: AtomicU64,
    bytes_evicted: AtomicU64,
}

impl Estimate {
    /// Takes off what is evicted.
    fn evict(&self, items: u64, bytes: u64) {
        for (estimate, less) in [(&self.items, items), (&self.bytes, bytes)] {
            let _ = estimate.try_update(Relaxed, Relaxed, |now| Some(now.saturating_sub(less)));
        }
        self.items_evicted.fetch_add(items, Relaxed);
        self.bytes_evicted.fetch_add(bytes, Relaxed);
    }

    /// Takes in a sample that found so many items of the namespace.
    fn sample(&self, items: u64, bytes: u64, found: u64, is_exact: bool) {
        let words = [(&self.items, &self.items_evicted, items), (&self.bytes, &self.bytes_evicted, bytes)];
        for (estimate, evicted, sampled) in words {
            let evicted = evicted.swap(0, Relaxed);
            let before = estimate.load(Relaxed);
            let now = if is_exact { sampled } else { refined(before, sampled, found, evicted) };
            estimate.store(now, Relaxed);
        }
    }
}

impl Row {
    /// Reads of its keys since it was named.
    pub(crate) fn gets(&self) -> u64 {
        self.sum(|counts| counts.gets.get())
    }

    /// About how many bytes its items take.
    pub(crate) fn bytes(&self) -> u64 {
        self.estimate.0.bytes.load(Relaxed)
    }

    /// About how many items it has.
    fn items(&self) -> u64 {
        self.estimate.0.items.load(Relaxed)
    }

    fn sum(&self, of: fn(&Counts) -> u64) -> u64 {
        self.counts.iter().map(|one| of(&one.0)).sum()
    }

    fn standing(&self, memory_bytes: u64) -> Standing {
        let bytes = self.bytes();
        let share = |percent: u8| memory_bytes / 100 * u64::from(percent);
        if bytes < share(self.namespace.least_percent) {
            Standing::Below
        } else if self.namespace.most_percent < 100 && bytes > share(self.namespace.most_percent) {
            Standing::Above
        } else {
            Standing::Within
        }
    }
}

/// The namespaces that were named last.
#[derive(Default)]
pub(crate) struct Table {
    delimiter: u8,
    /// In order of name.
    pub(crate) rows: Vec<Row>,
    /// Which row has which name.
    slots: Slots,
    /// The number that was given last.
    last_number: u8,
}

/// A hash table with open addresses: the number of a row and 1, or 0. Three quarters of it are free at least.
struct Slots([u8; SLOTS]);

/// Slots for [`NAMESPACES_MAX`] names. The number of a slot is a byte.
const SLOTS: usize = 256;

impl Default for Slots {
    fn default() -> Slots {
        Slots([0; SLOTS])
    }
}

impl Slots {
    fn of(rows: &[Row]) -> Slots {
        let mut slots = Slots::default();
        for (nth, row) in (1..).zip(rows) {
            let mut slot = slot_of(row.begin, row.namespace.name.len());
            while slots.0[usize::from(slot)] != 0 {
                slot = slot.wrapping_add(1);
            }
            slots.0[usize::from(slot)] = nth;
        }
        slots
    }
}

/// A word of bytes.
const WORD_BYTES: usize = size_of::<u64>();
/// The lowest and the highest bit of each byte of a word.
const LOW_BITS: u64 = u64::from_le_bytes([1; WORD_BYTES]);
const HIGH_BITS: u64 = LOW_BITS << 7;

/// The first bytes of a name as a word, and zeros where there are none.
#[inline]
fn begin_of(name: &[u8]) -> u64 {
    let mut word = [0; WORD_BYTES];
    let bytes = name.len().min(WORD_BYTES);
    word[..bytes].copy_from_slice(&name[..bytes]);
    u64::from_le_bytes(word)
}

/// Where the search for a name begins.
#[inline]
fn slot_of(begin: u64, name_bytes: usize) -> u8 {
    ((begin ^ name_bytes as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// The name before the first delimiter as [`begin_of`] has it, and its length, if a key has the delimiter among its
/// first bytes: a twin of [`name_of`] for short names.
#[inline]
fn short_name_of(key: &[u8], delimiter: u8) -> Option<(u64, usize)> {
    let word = u64::from_le_bytes(*key.first_chunk()?);
    // The byte of the delimiter is the first that is 0 now; its highest bit is the lowest one of these.
    let zeroed = word ^ (LOW_BITS * u64::from(delimiter));
    let found = zeroed.wrapping_sub(LOW_BITS) & !zeroed & HIGH_BITS;
    let name_bytes = found.trailing_zeros() as usize / 8;
    (found != 0).then(|| (word & ((1 << (8 * name_bytes)) - 1), name_bytes))
}

impl Table {
    #[inline]
    fn find(&self, key: &[u8]) -> Option<usize> {
        match short_name_of(key, self.delimiter) {
            Some((begin, name_bytes)) => self.search(begin, name_bytes, |_| true),
            None => self.named(name_of(key, self.delimiter)?),
        }
    }

    fn named(&self, name: &[u8]) -> Option<usize> {
        let rest = &name[name.len().min(WORD_BYTES)..];
        self.search(begin_of(name), name.len(), |other| other[WORD_BYTES.min(other.len())..] == *rest)
    }

    /// The row whose name begins like this, has this length, and `is_it`.
    #[inline]
    fn search(&self, begin: u64, name_bytes: usize, is_it: impl Fn(&[u8]) -> bool) -> Option<usize> {
        let mut slot = slot_of(begin, name_bytes);
        loop {
            let nth = usize::from(self.slots.0[usize::from(slot)]).checked_sub(1)?;
            let row = &self.rows[nth];
            let name = row.namespace.name.as_bytes();
            if row.begin == begin && name.len() == name_bytes && is_it(name) {
                return Some(nth);
            }
            slot = slot.wrapping_add(1);
        }
    }

    fn count(&self, key: &[u8], block: usize, add: impl FnOnce(&Counts)) {
        if let Some(nth) = self.find(key) {
            add(&self.rows[nth].counts[block].0);
        }
    }

    /// The namespace with this name.
    pub(crate) fn row(&self, name: &[u8]) -> Option<&Row> {
        self.named(name).map(|nth| &self.rows[nth])
    }
}

/// What the curves want to hear of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WantedOf {
    /// The number of its namespace, if it has one.
    pub(crate) number: Option<NonZeroU8>,
    /// The curve of its namespace wants uses of keys whose digest is below this number.
    pub(crate) below: u32,
}

/// What a key has before the first delimiter.
#[inline]
fn name_of(key: &[u8], delimiter: u8) -> Option<&[u8]> {
    let end = memchr(delimiter, &key[..key.len().min(NAMESPACE_BYTES_MAX + 1)])?;
    Some(&key[..end])
}

/// The namespaces of a cache.
pub(crate) struct Namespaces {
    is_on: AtomicBool,
    /// One of them has a least share.
    has_least: AtomicBool,
    table: Arc<ArcSwap<Table>>,
}

/// The namespaces as a pass over one column sees them.
pub(crate) struct Standings {
    table: Arc<Table>,
    standings: Vec<Standing>,
    others_give: bool,
}

impl Standings {
    /// How an item with this key is treated.
    pub(crate) fn of(&self, key: &[u8]) -> Standing {
        self.table.find(key).map_or(Standing::Within, |nth| self.standings[nth])
    }

    /// Whether those that are above their shares have so much that nobody else need give anything.
    pub(crate) fn others_give(&self) -> bool {
        self.others_give
    }
}

impl Namespaces {
    /// No namespace is named.
    pub(crate) fn new() -> Namespaces {
        Namespaces { is_on: AtomicBool::default(), has_least: AtomicBool::default(), table: Arc::default() }
    }

    /// Whether a namespace is named.
    #[inline(always)]
    pub(crate) fn are_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Whether a namespace has a least share, so that a pass may have to keep what is cold.
    #[inline(always)]
    pub(crate) fn have_least(&self) -> bool {
        self.has_least.load(Relaxed)
    }

    /// Names other namespaces. What was counted of those that stay, stays. `blocks` is how many threads count.
    pub(crate) fn set(&self, list: &[Namespace], delimiter: u8, blocks: usize) {
        let before = self.table.load();
        let same = before.delimiter == delimiter;
        let fresh = || (0..blocks).map(|_| CachePadded(Counts::default())).collect();
        let mut last_number = before.last_number;
        // There are far fewer namespaces than numbers. Uses of those that are gone may still be on their way.
        let mut new_number = || {
            loop {
                last_number = last_number.wrapping_add(1);
                if let Some(number) = NonZeroU8::new(last_number)
                    && before.rows.iter().all(|row| row.number != number)
                {
                    return number;
                }
            }
        };
        let row = |namespace: &Namespace| {
            let old = before.rows.iter().find(|row| same && row.namespace.name == namespace.name);
            Row {
                namespace: namespace.clone(),
                begin: begin_of(namespace.name.as_bytes()),
                number: old.map_or_else(&mut new_number, |row| row.number),
                curve_below: AtomicU32::new(old.map_or(0, |row| row.curve_below.load(Relaxed))),
                counts: old.map_or_else(fresh, |row| row.counts.clone()),
                estimate: CachePadded(Estimate {
                    items: AtomicU64::new(old.map_or(0, Row::items)),
                    bytes: AtomicU64::new(old.map_or(0, Row::bytes)),
                    ..Estimate::default()
                }),
            }
        };
        let mut rows: Vec<Row> = list.iter().map(row).collect();
        rows.sort_by(|one, other| one.namespace.name.cmp(&other.namespace.name));
        let slots = Slots::of(&rows);
        self.table.store(Arc::new(Table { delimiter, rows, slots, last_number }));
        self.is_on.store(!list.is_empty(), Relaxed);
        self.has_least.store(list.iter().any(|namespace| namespace.least_percent > 0), Relaxed);
    }

    /// The namespaces that were named last.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// What the curves of namespaces want to hear of a key.
    pub(crate) fn wanted_of(&self, key: &[u8]) -> WantedOf {
        if !self.are_on() {
            return WantedOf { number: None, below: 0 };
        }
        let table = self.table.load();
        let row = table.find(key).map(|nth| &table.rows[nth]);
        WantedOf {
            number: row.map(|row| row.number),
            below: row.map_or(0, |row| row.curve_below.load(Relaxed)),
        }
    }

    /// What a worker with this number counts by. There is one for each worker.
    pub(crate) fn tally(&self, worker: usize) -> Tally {
        Tally { worker, table: RefCell::new(Cached::new(self.table.clone())) }
    }

    /// Counts a live item of so many bytes that is evicted, in the block with this number. The estimate goes down with
    /// it: one that is too high by chance costs a namespace no more than it is too high.
    pub(crate) fn count_eviction(&self, key: &[u8], bytes: u64, block: usize) {
        let table = self.table.load();
        let Some(row) = table.find(key).map(|nth| &table.rows[nth]) else { return };
        row.counts[block].0.evictions.fetch_add(1, Relaxed);
        row.estimate.0.evict(1, bytes);
    }

    /// The expiry that an item with this key gets instead of `expiry`.
    #[inline]
    pub(crate) fn cap(&self, key: &[u8], expiry: Expiry, now_s: u32) -> Expiry {
        if self.are_on() { self.capped(key, expiry, now_s) } else { expiry }
    }

    #[cold]
    fn capped(&self, key: &[u8], expiry: Expiry, now_s: u32) -> Expiry {
        let table = self.table.load();
        let ttl_max_s = table.find(key).map_or(0, |nth| table.rows[nth].namespace.ttl_max_s);
        let latest_s = now_s.saturating_add(ttl_max_s);
        let is_later = expiry == Expiry::NEVER || expiry.seconds() > latest_s;
        if ttl_max_s != 0 && is_later { Expiry::at_s(latest_s) } else { expiry }
    }

    /// How the items of each namespace are to be treated now.
    pub(crate) fn standings(&self, memory_bytes: u64) -> Standings {
        let table = self.table.load_full();
        let standings: Vec<Standing> = table.rows.iter().map(|row| row.standing(memory_bytes)).collect();
        let above = table.rows.iter().zip(&standings).filter(|(_, standing)| **standing == Standing::Above);
        let above_bytes: u64 = above.map(|(row, _)| row.bytes()).sum();
        Standings { table, standings, others_give: above_bytes > memory_bytes / ABOVE_SHARE }
    }

    /// Estimates anew what each namespace has in memory.
    pub(crate) fn estimate(&self, store: &ItemStore, guard: &Guard<'_>, random: &mut Random) {
        let table = self.table.load_full();
        let buckets = store.index.buckets();
        let (mut all_items, mut all_bytes) = (0u64, 0u64);
        let mut found = vec![(0u64, 0u64); table.rows.len()];
        let mut locations: Vec<Location> = Vec::new();
        for nth in 0..buckets.min(BUCKETS_SAMPLED) {
            let bucket = if buckets <= BUCKETS_SAMPLED { nth } else { random.below(buckets) };
            store.index.walk(bucket, &mut |entry| {
                guard.prefetch(entry.location);
                locations.push(entry.location);
            });
        }
        for at in locations {
            let item = guard.item(at);
            // About what a large value takes: its chunks are many, and are not looked at.
            let bytes = match item.value() {
                Value::Whole(_) => u64::from(item.bytes()),
                Value::Chunked { total, .. } => u64::from(item.bytes()) + u64::from(total),
            };
            (all_items, all_bytes) = (all_items + 1, all_bytes + bytes);
            if store.life(at, &item) == Life::Live
                && let Some(nth) = table.find(item.key())
            {
                found[nth].0 += 1;
                found[nth].1 += bytes;
            }
        }
        let scaled = |part: u64, of: u64, whole: u64| {
            (u128::from(part) * u128::from(whole) / u128::from(of.max(1))) as u64
        };
        for (row, (items, bytes)) in table.rows.iter().zip(found) {
            let sampled_items = scaled(items, all_items, store.index.len());
            let sampled_bytes = scaled(bytes, all_bytes, store.live_bytes());
            row.estimate.0.sample(sampled_items, sampled_bytes, items, buckets <= BUCKETS_SAMPLED);
        }
    }

    /// What is known of each namespace, in order of name. `memory_bytes` is the memory for items.
    pub(crate) fn stats(&self, memory_bytes: u64) -> Vec<NamespaceStats> {
        let table = self.table.load();
        let stats = table.rows.iter().map(|row| {
            let share = |percent: u8| memory_bytes / 100 * u64::from(percent);
            NamespaceStats {
                gets: row.gets(),
                hits: row.sum(|counts| counts.hits.get()),
                sets: row.sum(|counts| counts.sets.get()),
                evictions: row.sum(|counts| counts.evictions.load(Relaxed)),
                items: row.items(),
                bytes: row.bytes(),
                share_bytes: (share(row.namespace.least_percent), share(row.namespace.most_percent)),
                namespace: row.namespace.clone(),
            }
        });
        stats.collect()
    }
}

/// What an estimate becomes when a sample, which found so many items of the namespace, says `sampled`. As much as was
/// `evicted` since the last one may have been stored in its place: so far the estimate goes up with the sample.
fn refined(estimate: u64, sampled: u64, found: u64, evicted: u64) -> u64 {
    let apart = estimate.abs_diff(sampled);
    let by_chance = CHANCE_ROOTS * sampled / found.isqrt().max(1);
    let step = if apart > by_chance { apart } else { apart.div_ceil(CHANCE_DIVISOR) };
    match sampled > estimate {
        true => estimate + step.max(evicted.min(apart)),
        false => estimate - step,
    }
}

/// Counts for one worker what happens to the namespaces. It keeps the table that it saw last.
pub(crate) struct Tally {
    worker: usize,
    table: RefCell<Cached<Arc<ArcSwap<Table>>, Arc<Table>>>,
}

impl Tally {
    /// Counts a read.
    #[inline]
    pub(crate) fn count_read(&self, key: &[u8], is_hit: bool) {
        self.table.borrow_mut().load().count(key, self.worker, |counts| {
            counts.gets.add(1);
            counts.hits.add(is_hit.into());
        });
    }

    /// Counts an item that is stored.
    pub(crate) fn count_set(&self, key: &[u8]) {
        self.table.borrow_mut().load().count(key, self.worker, |counts| counts.sets.add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(name: &str, least_percent: u8, most_percent: u8, ttl_max_s: u32) -> Namespace {
        Namespace { name: name.to_owned(), least_percent, most_percent, ttl_max_s }
    }

    #[test]
    fn a_key_belongs_to_what_stands_before_its_first_delimiter() {
        let namespaces = Namespaces::new();
        let tally = namespaces.tally(1);
        namespaces.set(&[namespace("b", 0, 100, 0), namespace("a", 0, 100, 60)], b':', 2);
        for (key, gets) in [("a:1", 1), ("a:b:1", 2), ("a", 2), ("ab:1", 2), (":a:", 2), ("a:", 3)] {
            tally.count_read(key.as_bytes(), false);
            let stats = namespaces.stats(1000);
            assert_eq!(
                (stats[0].namespace.name.as_str(), stats[0].gets, stats[1].gets),
                ("a", gets, 0),
                "{key}"
            );
        }
        assert_eq!(namespaces.cap(b"a:1", Expiry::NEVER, 100), Expiry::at_s(160));
        assert_eq!(namespaces.cap(b"a:1", Expiry::at_s(161), 100), Expiry::at_s(160));
        assert_eq!(namespaces.cap(b"a:1", Expiry::at_s(130), 100), Expiry::at_s(130));
        assert_eq!(namespaces.cap(b"b:1", Expiry::NEVER, 100), Expiry::NEVER);
        // What was counted of one that stays is kept.
        namespaces.set(&[namespace("a", 10, 100, 0)], b':', 2);
        assert_eq!(namespaces.stats(1000).iter().map(|row| row.gets).collect::<Vec<_>>(), [3]);
        namespaces.set(&[], b':', 2);
        assert!(!namespaces.are_on() && namespaces.stats(1000).is_empty());
    }

    #[test]
    fn each_of_as_many_as_there_may_be_is_found_by_its_name() {
        // Names of one length that begin alike begin their searches at one slot.
        let middle = |nth| format!("aaaaaaaaaaaa{nth:02}bbbbbbbbbbbb");
        let names: Vec<String> = (0..32).map(middle).chain((0..32).map(|nth| format!("n{nth}"))).collect();
        let list: Vec<_> = names.iter().map(|name| namespace(name, 0, 100, 0)).collect();
        assert_eq!(list.len(), NAMESPACES_MAX);
        let namespaces = Namespaces::new();
        namespaces.set(&list, b':', 1);
        let table = namespaces.table();
        for name in &names {
            let found = table.row(name.as_bytes()).map(|row| &row.namespace.name);
            assert_eq!(found, Some(name));
            assert_eq!(table.find(format!("{name}:1").as_bytes()), table.named(name.as_bytes()));
        }
        for absent in ["", "n", "n32", &middle(32), "aaaaaaaaaaaa"] {
            assert_eq!(table.named(absent.as_bytes()), None, "{absent}");
        }
        // With each length of a name the delimiter comes elsewhere, and what follows it does not matter.
        for bytes in 0..20 {
            let key = [&b"abcdefghijklmnopqrstuvwxyz"[..bytes], b":0:\xba\x39:", &[0xff; 9]].concat();
            let expected = (bytes < WORD_BYTES).then(|| (begin_of(&key[..bytes]), bytes));
            assert_eq!(short_name_of(&key, b':'), expected);
            assert_eq!(short_name_of(&key[..(bytes + 1).min(7)], b':'), None, "the key is too short");
        }
        let longest = [b'n'; NAMESPACE_BYTES_MAX + 2];
        assert_eq!(
            name_of(&[&longest[2..], b":"].concat(), b':').map(<[u8]>::len),
            Some(NAMESPACE_BYTES_MAX)
        );
        assert_eq!(name_of(&[&longest[1..], b":"].concat(), b':'), None);
    }

    #[test]
    fn a_number_is_not_given_again_soon() {
        let namespaces = Namespaces::new();
        let number = |name: &str| namespaces.wanted_of(format!("{name}:1").as_bytes()).number;
        assert_eq!(number("stays"), None);
        namespaces.set(&[namespace("stays", 0, 100, 0)], b':', 1);
        let stays = number("stays");
        assert!(stays.is_some());
        let mut before = Vec::new();
        for nth in 0..600 {
            let name = format!("n{nth}");
            namespaces.set(&[namespace("stays", 0, 100, 0), namespace(&name, 0, 100, 0)], b':', 1);
            let given = number(&name).expect("it is named");
            assert_eq!(number("stays"), stays, "what stays keeps its number");
            assert!(Some(given) != stays && !before.iter().rev().take(250).any(|old| *old == given), "{nth}");
            before.push(given);
        }
        namespaces.set(&[namespace("stays", 0, 100, 0)], b'/', 1);
        assert_ne!(namespaces.wanted_of(b"stays/1").number, stays, "its keys are others");
    }

    #[test]
    fn a_list_that_cannot_be_is_refused() {
        let wrong = |list: &[Namespace]| check_namespaces(list).unwrap_err();
        assert!(wrong(&[namespace("", 0, 100, 0)]).contains("1 to 100 bytes"));
        assert!(wrong(&[namespace("a", 0, 100, 0), namespace("a", 1, 100, 0)]).contains("twice"));
        assert!(wrong(&[namespace("a", 50, 40, 0)]).contains("no range"));
        assert!(wrong(&[namespace("a", 50, 101, 0)]).contains("no range"));
        let many: Vec<_> = (0..65).map(|nth| namespace(&format!("{nth}"), 0, 100, 0)).collect();
        assert!(wrong(&many).contains("too many"));
        assert!(wrong(&[namespace("a", 50, 60, 0), namespace("b", 31, 60, 0)]).contains("81 percent"));
        assert_eq!(check_namespaces(&[namespace("a", 50, 60, 0), namespace("b", 30, 60, 0)]), Ok(()));
    }

    #[test]
    fn an_estimate_goes_down_with_what_is_evicted() {
        let namespaces = Namespaces::new();
        namespaces.set(&[namespace("a", 20, 50, 0)], b':', 1);
        let set = |bytes| {
            let table = namespaces.table.load();
            table.rows[0].estimate.0.bytes.store(bytes, Relaxed);
            table.rows[0].estimate.0.items.store(2, Relaxed);
        };
        for (before, bytes, after) in [(501, 1, Standing::Within), (200, 1, Standing::Below)] {
            set(before);
            namespaces.count_eviction(b"b:1", bytes, 0);
            assert_ne!(namespaces.standings(1000).of(b"a:1"), after);
            namespaces.count_eviction(b"a:1", bytes, 0);
            assert_eq!(namespaces.standings(1000).of(b"a:1"), after);
        }
        set(100);
        namespaces.count_eviction(b"a:1", 101, 0);
        let row = &namespaces.stats(1000)[0];
        assert_eq!((row.bytes, row.items, row.evictions), (0, 1, 3));
    }

    #[test]
    fn what_chance_explains_moves_an_estimate_a_little() {
        assert_eq!(refined(0, 1000, 100, 0), 1000, "the first one");
        assert_eq!(refined(1000, 1200, 900, 0), 1200);
        assert_eq!(refined(1000, 920, 900, 0), 990);
        assert_eq!(refined(1000, 920, 900, 80), 990, "less is there, whatever was evicted");
        assert_eq!(refined(1000, 1080, 900, 0), 1010);
        assert_eq!(refined(1000, 1080, 900, 50), 1050, "as much was stored as was evicted");
        assert_eq!(refined(1000, 1080, 900, 500), 1080);
        assert_eq!(refined(1000, 1000, 900, 10), 1000);
        assert_eq!(refined(999, 1000, 900, 0), 1000, "it arrives");
        assert_eq!(refined(1000, 0, 0, 0), 0, "it is gone");
        // A namespace of 6,000 bytes, of which samples find 250 items give or take the root of that.
        let mut random = Random::new(7);
        let mut sample = || (0..3000).filter(|_| random.below(12) == 0).count() as u64;
        let (mut estimate, mut squares, mut squares_of_samples) = (6000, 0, 0);
        for _ in 0..2000 {
            let found = sample();
            estimate = refined(estimate, found * 24, found, 0);
            squares += estimate.abs_diff(6000).pow(2);
            squares_of_samples += (found * 24).abs_diff(6000).pow(2);
        }
        assert!(
            squares * 9 < squares_of_samples,
            "a third of a sample's error: {squares}, {squares_of_samples}"
        );
        // A tenth of it is evicted between two samples, and as much is stored.
        let (mut estimate, mut sum) = (6000, 0);
        for _ in 0..2000 {
            let found = sample();
            estimate = refined(estimate - 600, found * 24, found, 600);
            sum += estimate;
        }
        assert!((5500..6100).contains(&(sum / 2000)), "{} instead of 6000", sum / 2000);
    }

    #[test]
    fn a_namespace_stands_by_its_share() {
        let namespaces = Namespaces::new();
        namespaces.set(&[namespace("a", 20, 50, 0)], b':', 1);
        for (bytes, standing) in
            [(199, Standing::Below), (200, Standing::Within), (500, Standing::Within), (501, Standing::Above)]
        {
            namespaces.table.load().rows[0].estimate.0.bytes.store(bytes, Relaxed);
            let standings = namespaces.standings(1000);
            assert_eq!((standings.of(b"a:1"), standings.of(b"b:1")), (standing, Standing::Within), "{bytes}");
        }
    }
}
