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
//! (`item_store/supply.rs`), and where there is none all the same, the item stays where it is and another column goes.
//! After some such columns in a row the next one goes with all that it holds: a writer waits for it.

mod estimate;
mod setting;
mod table;

pub use setting::{NAMESPACE_BYTES_MAX, NAMESPACES_MAX, Namespace, NamespaceStats, check_namespaces};
pub(crate) use table::{Row, Standing, Table};

use arc_swap::ArcSwap;
use arc_swap::cache::Cache as Cached;
use larder_item::Expiry;
use std::cell::RefCell;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Those above their shares give all that is given while they have more than a fifth of the memory. With less, a pass
/// would have to copy too much of others to find it.
const ABOVE_SHARE: u64 = 5;

/// What the curves want to hear of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WantedOf {
    /// The number of its namespace, if it has one.
    pub(crate) number: Option<NonZeroU8>,
    /// The curve of its namespace wants uses of keys whose digest is below this number.
    pub(crate) below: u32,
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
        let table = self.table.load().renamed(list, delimiter, blocks);
        self.table.store(Arc::new(table));
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

    /// Counts a live item of `bytes` bytes that is evicted, in the block with this number. The estimate goes down with
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

    /// What is known of each namespace, in order of name. `memory_bytes` is the memory for items.
    pub(crate) fn stats(&self, memory_bytes: u64) -> Vec<NamespaceStats> {
        let table = self.table.load();
        table.rows.iter().map(|row| row.stats(memory_bytes)).collect()
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
