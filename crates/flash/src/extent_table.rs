//! The extent table: where the records are that are too long for a hash-ordered segment. Eight bytes for each.
//!
//! ```text
//!  63           50 49        40 39                                         0
//! +---------------+------------+--------------------------------------------+
//! |      tag      |   pages    |  page of the device it begins on, not 0    |     pages: 0 = more than 1023
//! +---------------+------------+--------------------------------------------+
//! ```
//!
//! How readers and the writer work side by side: see `cuckoo`.

use crate::cuckoo::{Cuckoo, STASH_SLOTS, TableFull};
use crate::shim::AtomicU64;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const ADDRESS_BITS: u32 = 40;
/// The highest address of a page: enough for 4 PiB.
pub(crate) const ADDRESS_MAX: u64 = (1 << ADDRESS_BITS) - 1;
/// The length of the longest record whose length an entry can keep, pages.
pub(crate) const PAGES_MAX: u32 = (1 << 10) - 1;
/// Entries that two buckets and the stash have together.
const EXTENTS_MAX: usize = 8 + STASH_SLOTS;

/// The position of a long record on the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Extent {
    /// The page that the record begins on, counted over all zones; never 0.
    pub address: u64,
    /// How many pages the record takes; 0 = more than 1023.
    pub pages: u32,
}

impl Extent {
    fn pack(self) -> u64 {
        let pages = if self.pages > PAGES_MAX { 0 } else { self.pages };
        (pages as u64) << ADDRESS_BITS | self.address
    }

    fn unpack(payload: u64) -> Extent {
        Extent { address: payload & ADDRESS_MAX, pages: (payload >> ADDRESS_BITS) as u32 }
    }
}

/// The extent table. Shared by all threads.
pub struct ExtentTable {
    table: Cuckoo<4, 64, 14>,
    /// Addresses whose entries are being swept out: the first one, and the one behind the last.
    dying: [AtomicU64; 2],
    /// Whether there was ever an entry (1). Where no value is long, lookups need not look at the table.
    used: AtomicU64,
}

impl ExtentTable {
    /// A table as large as fits into `bytes_max`.
    pub fn new(bytes_max: u64) -> ExtentTable {
        let left = bytes_max.saturating_sub(3 * size_of::<AtomicU64>() as u64);
        let dying = std::array::from_fn(|_| AtomicU64::new(0));
        ExtentTable { table: Cuckoo::new(left), dying, used: AtomicU64::new(0) }
    }

    fn is_dying(&self, payload: u64) -> bool {
        let address = Extent::unpack(payload).address;
        (self.dying[0].load(Relaxed)..self.dying[1].load(Relaxed)).contains(&address)
    }

    /// Adds the position of a record with this hash.
    ///
    /// # Errors
    /// [`TableFull`]: when about 97 % of the slots are taken, or one hash has more than eight entries.
    pub fn insert(&self, hash: u64, extent: Extent) -> Result<(), TableFull> {
        if extent.address == 0 || extent.address > ADDRESS_MAX {
            return Err(TableFull);
        }
        // Before the entry, so that a reader that could see the entry sees this.
        if self.used.load(Relaxed) == 0 {
            self.used.store(1, Release);
        }
        self.table.insert(hash, extent.pack(), |payload| self.is_dying(payload), true)
    }

    /// Every position that was inserted for this hash and not removed, and seldom one of another hash. Each comes once,
    /// the highest address first.
    pub fn candidates(&self, hash: u64) -> Extents {
        let mut found = Extents { extents: [Extent { address: 0, pages: 0 }; EXTENTS_MAX], len: 0 };
        if self.used.load(Acquire) == 0 {
            return found;
        }
        self.table.find(hash, |payload| {
            let extent = Extent::unpack(payload);
            if !found.contains(&extent) && found.len < EXTENTS_MAX {
                found.extents[found.len] = extent;
                found.len += 1;
            }
        });
        found.extents[..found.len].sort_unstable_by(|a, b| b.cmp(a));
        found
    }

    /// Loads what a search for the hash looks at. The result means nothing.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) -> u64 {
        if self.used.load(Relaxed) == 0 { 0 } else { self.table.touch(hash) }
    }

    /// Removes all entries that may be of this hash, and says how many. Once in 4000 times the entry of another key
    /// goes as well; the caller makes sure that no older version of that key is found then.
    pub fn remove_matching(&self, hash: u64) -> u64 {
        self.table.remove(hash, true, |_| true)
    }

    /// Removes the entry of this hash with this address; `false` if there is none.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn remove(&self, hash: u64, address: u64) -> bool {
        self.table.remove(hash, false, |payload| Extent::unpack(payload).address == address) > 0
    }

    /// Removes all entries with these addresses, and says how many. No such entry may be inserted meanwhile. One sweep
    /// at a time; `between` is called now and then, without the writer's lock.
    pub fn sweep_zone(&self, addresses: Range<u64>, between: &mut dyn FnMut()) -> u64 {
        self.mark_dying(&addresses);
        let swept =
            self.table.sweep(|payload| addresses.contains(&Extent::unpack(payload).address), None, between);
        self.mark_dying(&(0..0));
        swept
    }

    fn mark_dying(&self, addresses: &Range<u64>) {
        let _writer = self.table.lock();
        self.dying[0].store(addresses.start, Relaxed);
        self.dying[1].store(addresses.end, Relaxed);
    }

    /// The class of a hash: equal for all hashes that the table cannot tell apart.
    pub(crate) fn class(&self, hash: u64) -> u64 {
        self.table.class(hash)
    }

    /// The number of entries.
    pub fn len(&self) -> u64 {
        self.table.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of entries that find room for certain, if no hash has more than a few.
    pub fn capacity(&self) -> u64 {
        self.table.slots() * 95 / 100
    }

    /// Memory taken, bytes.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + size_of_val(&self.dying) + size_of_val(&self.used)
    }
}

/// Positions of records with one hash.
#[derive(Clone, Copy, Debug)]
pub struct Extents {
    extents: [Extent; EXTENTS_MAX],
    len: usize,
}

impl std::ops::Deref for Extents {
    type Target = [Extent];

    fn deref(&self) -> &[Extent] {
        &self.extents[..self.len]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn spread(n: u64) -> u64 {
        let x = (n + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 29)
    }

    #[test]
    fn an_entry_takes_eight_bytes_and_an_absent_key_hardly_ever_has_one() {
        let table = ExtentTable::new(2 << 20);
        assert!(table.bytes() <= 2 << 20);
        let extent = |n: u64| Extent { address: n + 1, pages: (n % 300) as u32 + 1 };
        (0..table.capacity()).for_each(|n| table.insert(spread(n), extent(n)).expect("below capacity"));
        assert!((0..table.capacity()).all(|n| table.candidates(spread(n)).contains(&extent(n))));
        let bytes = table.bytes() as f64 / table.len() as f64;
        let seen: usize = (0..1_000_000).map(|n| table.candidates(spread(1 << 40 | n)).len()).sum();
        println!("{bytes:.3} bytes an entry, {} false candidates in a million", seen);
        assert!(bytes <= 8.6, "{bytes}");
        assert!(seen <= 700, "{seen}");
    }

    #[test]
    fn what_cannot_be_written_down_is_refused_or_rounded() {
        let table = ExtentTable::new(4096);
        assert_eq!(table.insert(1, Extent { address: 0, pages: 1 }), Err(TableFull));
        assert_eq!(table.insert(1, Extent { address: ADDRESS_MAX + 1, pages: 1 }), Err(TableFull));
        table.insert(1, Extent { address: ADDRESS_MAX, pages: PAGES_MAX + 1 }).unwrap();
        assert_eq!(*table.candidates(1), [Extent { address: ADDRESS_MAX, pages: 0 }]);
    }

    proptest! {
        #[test]
        fn what_is_inserted_is_a_candidate_until_it_is_removed(
            acts in prop::collection::vec((0u32..12, 0u64..200, 1u64..4000), 1..600),
        ) {
            let table = ExtentTable::new(17_000);
            let mut twin: HashMap<u64, Vec<u64>> = HashMap::new();
            for (what, hash, address) in acts {
                let extent = Extent { address, pages: (address % 9) as u32 };
                match what {
                    0 => {
                        let zone = address..address + 500;
                        table.sweep_zone(zone.clone(), &mut || ());
                        twin.values_mut().for_each(|addresses| addresses.retain(|at| !zone.contains(at)));
                    }
                    1 => {
                        // With 14 bits none of 200 hashes is taken for another one in this table.
                        let known = twin.remove(&hash).unwrap_or_default();
                        prop_assert_eq!(table.remove_matching(spread(hash)), known.len() as u64);
                    }
                    2 => {
                        if let Some(address) = twin.get_mut(&hash).and_then(Vec::pop) {
                            prop_assert!(table.remove(spread(hash), address));
                        }
                    }
                    _ => {
                        let known = twin.entry(hash).or_default();
                        if known.len() < 6 && !known.contains(&address) && table.insert(spread(hash), extent).is_ok() {
                            known.push(address);
                        }
                    }
                }
            }
            for (hash, mut addresses) in twin {
                addresses.sort_unstable_by(|a, b| b.cmp(a));
                let found: Vec<u64> = table.candidates(spread(hash)).iter().map(|extent| extent.address).collect();
                prop_assert_eq!(found, addresses);
            }
        }
    }
}
