//! The log table: which segments of the log may hold a hash. Two bytes an entry, or 21 bits.
//!
//! An entry is a tag and the number of a segment. The more segments there are, the more bits the number needs:
//!
//! | table | slots a bucket | tag | number | absent keys with a candidate |
//! |---|---|---|---|---|
//! | narrow | 4 | 8 bits | 8 bits, up to 255 | about 1 in 30 |
//! | middle | 4 | 7 bits | 9 bits, up to 511 | about 1 in 16 |
//! | wide | 3 | 10 bits | 11 bits, up to 2047 | about 1 in 200 |
//!
//! How readers and the writer work side by side: see `cuckoo`.

use crate::cuckoo::{Cuckoo, STASH_SLOTS};
use crate::shim::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

pub use crate::cuckoo::TableFull;

/// Highest number of a segment in a narrow table; 0 is none.
pub(crate) const NARROW_ID_MAX: u16 = u8::MAX as u16;
/// Highest number of a segment in a middle table.
pub(crate) const MIDDLE_ID_MAX: u16 = (1 << 9) - 1;
/// Highest number of a segment in a wide table.
pub(crate) const WIDE_ID_MAX: u16 = (1 << 11) - 1;
const NARROW_IDS: u64 = NARROW_ID_MAX as u64;
const MIDDLE_IDS: u64 = MIDDLE_ID_MAX as u64;
const ID_WORDS: usize = (WIDE_ID_MAX as usize + 1) / 64;
/// Entries that two buckets and the stash have together.
const CANDIDATES_MAX: usize = 8 + STASH_SLOTS;

/// A set of numbers of segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdSet([u64; ID_WORDS]);

impl IdSet {
    /// An empty set.
    pub fn new() -> IdSet {
        IdSet([0; ID_WORDS])
    }

    /// Adds a number.
    ///
    /// # Panics
    /// If the number is above [`WIDE_ID_MAX`].
    pub fn insert(&mut self, id: u16) {
        self.0[id as usize / 64] |= 1 << (id % 64);
    }

    /// Whether a number is in the set.
    pub fn contains(&self, id: u16) -> bool {
        self.0.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }
}

impl Default for IdSet {
    fn default() -> Self {
        Self::new()
    }
}

/// Numbers of segments that may hold a key. Each comes once, in no order.
#[derive(Clone, Copy, Debug)]
pub struct Candidates {
    ids: [u16; CANDIDATES_MAX],
    len: usize,
}

impl Candidates {
    /// No numbers.
    pub fn new() -> Candidates {
        Candidates { ids: [0; CANDIDATES_MAX], len: 0 }
    }

    fn push(&mut self, id: u16) {
        if !self.contains(&id) && self.len < CANDIDATES_MAX {
            self.ids[self.len] = id;
            self.len += 1;
        }
    }
}

impl Default for Candidates {
    fn default() -> Self {
        Self::new()
    }
}

impl std::ops::Deref for Candidates {
    type Target = [u16];

    fn deref(&self) -> &[u16] {
        &self.ids[..self.len]
    }
}

impl std::ops::DerefMut for Candidates {
    fn deref_mut(&mut self) -> &mut [u16] {
        &mut self.ids[..self.len]
    }
}

enum Table {
    Narrow(Cuckoo<4, 16, 8>),
    Middle(Cuckoo<4, 16, 7>),
    Wide(Cuckoo<3, 21, 10>),
}

/// Does the same with each kind of table.
macro_rules! either {
    ($table:expr, $found:ident => $work:expr) => {
        match $table {
            Table::Narrow($found) => $work,
            Table::Middle($found) => $work,
            Table::Wide($found) => $work,
        }
    };
}

/// The log table. Shared by all threads.
pub struct LogTable {
    table: Table,
    /// A bit for each number whose entries are being swept out.
    dying: [AtomicU64; ID_WORDS],
}

impl LogTable {
    /// A table as large as fits into `bytes_max`, for segments with numbers up to `id_max`. An entry takes 2.1 bytes
    /// where `id_max` is at most 511, and 2.9 bytes above that. The highest number that any table has is 2047.
    pub fn new(bytes_max: u64, id_max: u64) -> LogTable {
        let left = bytes_max.saturating_sub(size_of::<LogTable>() as u64);
        let table = match id_max {
            0..=NARROW_IDS => Table::Narrow(Cuckoo::new(left)),
            ids if ids <= MIDDLE_IDS => Table::Middle(Cuckoo::new(left)),
            _ => Table::Wide(Cuckoo::new(left)),
        };
        LogTable { table, dying: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// The highest number of a segment. The lowest one is 1.
    pub fn id_max(&self) -> u16 {
        match self.table {
            Table::Narrow(_) => NARROW_ID_MAX,
            Table::Middle(_) => MIDDLE_ID_MAX,
            Table::Wide(_) => WIDE_ID_MAX,
        }
    }

    fn is_dying(&self, id: u64) -> bool {
        self.dying[id as usize / 64].load(Relaxed) >> (id % 64) & 1 == 1
    }

    /// Adds an entry: the segment may hold the hash. To be called once for each key, because two keys that the table
    /// cannot tell apart have two entries, and the removal of one leaves the other.
    ///
    /// # Errors
    /// [`TableFull`]: when about 97 % of the slots are taken (91 % in a wide table), or more than eight versions of a
    /// hash are kept and the stash is full.
    pub fn insert(&self, hash: u64, id: u16) -> Result<(), TableFull> {
        debug_assert!(id != 0 && id <= self.id_max() && !self.is_dying(id as u64));
        either!(&self.table, table => table.insert(hash, id as u64, |id| self.is_dying(id)))
    }

    /// Writes to `out`, which is emptied first, every segment that was inserted for this hash and not removed, and now
    /// and then one of another hash.
    #[inline]
    pub fn candidates(&self, hash: u64, out: &mut Candidates) {
        out.len = 0;
        either!(&self.table, table => table.find(hash, |id| out.push(id as u16)));
    }

    /// Loads what a search for the hash looks at. The result means nothing.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) -> u64 {
        either!(&self.table, table => table.touch(hash))
    }

    /// Removes one entry of the hash and the segment; `false` if there is none.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn remove(&self, hash: u64, id: u16) -> bool {
        either!(&self.table, table => table.remove(hash, false, |found| found == id as u64) > 0)
    }

    /// Removes all entries of these segments, and says how many. No such entry may be inserted meanwhile. When this
    /// returns, the numbers can be used again. One sweep at a time; `between` is called now and then, without the
    /// writer's lock.
    pub fn sweep(&self, dead: &IdSet, between: &mut dyn FnMut()) -> u64 {
        self.mark_dying(dead);
        let swept = either!(&self.table, table => table.sweep(|id| dead.contains(id as u16), between));
        self.mark_dying(&IdSet::new());
        swept
    }

    /// Under the writer's lock, so that an insertion sees all of the set or nothing of it.
    fn mark_dying(&self, dead: &IdSet) {
        either!(&self.table, table => {
            let _writer = table.lock();
            self.dying.iter().zip(dead.0).for_each(|(word, bits)| word.store(bits, Relaxed));
        });
    }

    /// The number of entries.
    pub fn len(&self) -> u64 {
        either!(&self.table, table => table.len())
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// So many entries find room for certain, if no hash has more than a few: 95 % of the slots, or 88 % in a wide
    /// table.
    pub fn capacity(&self) -> u64 {
        match &self.table {
            Table::Narrow(table) => table.slots() * 95 / 100,
            Table::Middle(table) => table.slots() * 95 / 100,
            Table::Wide(table) => table.slots() * 88 / 100,
        }
    }

    /// Entries in the stash, because their buckets had no room.
    #[cfg(test)]
    pub(crate) fn stashed(&self) -> u64 {
        either!(&self.table, table => table.stashed())
    }

    /// Memory taken, bytes.
    pub fn bytes(&self) -> usize {
        let boxed = either!(&self.table, table => table.bytes() - size_of_val(table));
        boxed + size_of::<LogTable>()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::sync::Arc;

    fn spread(n: u64) -> u64 {
        let x = (n + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 29)
    }

    fn found(table: &LogTable, hash: u64) -> Vec<u16> {
        let mut out = Candidates::new();
        table.candidates(hash, &mut out);
        let mut ids = out.to_vec();
        ids.sort_unstable();
        ids
    }

    /// Fills a table of about 4 MB to its capacity and asserts what an entry costs and how often an absent key has one.
    fn full(id_max: u64, bytes_per_item: f64, false_rate: f64) {
        let table = LogTable::new(4 << 20, id_max);
        assert!(table.bytes() <= 4 << 20);
        let ids = table.id_max() as u64;
        for n in 0..table.capacity() {
            table.insert(spread(n), (1 + n % ids) as u16).unwrap_or_else(|_| panic!("full at {n}"));
        }
        assert_eq!(table.len(), table.capacity());
        for n in 0..table.capacity() {
            assert!(found(&table, spread(n)).contains(&((1 + n % ids) as u16)), "{n}");
        }
        let bytes = table.bytes() as f64 / table.len() as f64;
        let absent = 1_000_000;
        let seen: usize = (0..absent).map(|n| found(&table, spread(1 << 40 | n)).len()).sum();
        let seen = seen as f64 / absent as f64;
        println!(
            "up to {id_max}: {bytes:.3} bytes an entry, {seen:.5} false candidates, {} stashed",
            table.stashed()
        );
        assert!(bytes <= bytes_per_item, "{bytes}");
        assert!(seen <= false_rate, "{seen}");
        let mut more = table.len();
        while table.insert(spread(more), 1).is_ok() {
            more += 1;
        }
        println!(
            "full at {:.4} of the slots",
            more as f64 / either!(&table.table, table => table.slots()) as f64
        );
        assert!((0..table.len()).all(|n| !found(&table, spread(n)).is_empty()));
    }

    #[test]
    fn an_entry_takes_two_bytes_and_one_absent_key_in_thirty_has_one() {
        full(255, 2.2, 0.033);
    }

    #[test]
    fn a_middle_entry_takes_two_and_one_absent_key_in_sixteen_has_one() {
        full(511, 2.2, 0.065);
    }

    #[test]
    fn a_wide_entry_takes_three_and_one_absent_key_in_two_hundred_has_one() {
        full(2047, 3.1, 0.0065);
    }

    #[test]
    fn many_versions_of_a_hash_go_to_the_stash_and_come_back() {
        let table = LogTable::new(17_000, 255);
        let versions: Vec<u16> = (1..=8 + STASH_SLOTS as u16).collect();
        versions.iter().for_each(|id| table.insert(5, *id).unwrap());
        assert_eq!(table.stashed(), STASH_SLOTS as u64);
        assert_eq!(found(&table, 5), versions);
        assert_eq!(table.insert(5, 100), Err(TableFull));
        assert_eq!(found(&table, 5), versions);
        let mut dead = IdSet::new();
        versions.iter().filter(|id| **id > 4).for_each(|id| dead.insert(*id));
        assert_eq!(table.sweep(&dead, &mut || ()), versions.len() as u64 - 4);
        assert_eq!((found(&table, 5), table.stashed(), table.len()), (vec![1, 2, 3, 4], 0, 4));
    }

    #[derive(Clone, Debug)]
    enum Act {
        Insert(u64, u16),
        Remove(u64, u16),
        Sweep(Vec<u16>),
    }

    fn act() -> impl Strategy<Value = Act> {
        let (hash, id) = (0u64..400, 1u16..=40);
        prop_oneof![
            20 => (hash.clone(), id.clone()).prop_map(|(hash, id)| Act::Insert(hash, id)),
            6 => (hash, id.clone()).prop_map(|(hash, id)| Act::Remove(hash, id)),
            1 => prop::collection::vec(id, 1..8).prop_map(Act::Sweep),
        ]
    }

    proptest! {
        #[test]
        fn what_is_inserted_is_a_candidate_until_it_is_removed(
            acts in prop::collection::vec(act(), 1..900),
            id_max in prop::sample::select(vec![255u64, 511, 2047]),
        ) {
            // 100 narrow buckets or so: near full with what is inserted.
            let table = LogTable::new(17_000, id_max);
            let mut twin: HashMap<(u64, u16), u32> = HashMap::new();
            for act in acts {
                match act {
                    Act::Insert(hash, id) => {
                        if table.insert(spread(hash), id).is_ok() {
                            *twin.entry((hash, id)).or_default() += 1;
                        }
                    }
                    Act::Remove(hash, id) => {
                        // Only what is there is removed: another's entry that looks the same is not ours to take.
                        if let Some(count) = twin.get_mut(&(hash, id)).filter(|count| **count > 0) {
                            *count -= 1;
                            prop_assert!(table.remove(spread(hash), id));
                        }
                    }
                    Act::Sweep(ids) => {
                        let mut dead = IdSet::new();
                        ids.iter().for_each(|id| dead.insert(*id));
                        let before = twin.values().sum::<u32>();
                        twin.retain(|(_, id), _| !dead.contains(*id));
                        prop_assert_eq!(table.sweep(&dead, &mut || ()), (before - twin.values().sum::<u32>()) as u64);
                    }
                }
                prop_assert_eq!(table.len(), twin.values().sum::<u32>() as u64);
            }
            for ((hash, id), count) in &twin {
                prop_assert!(*count == 0 || found(&table, spread(*hash)).contains(id), "{hash} in {id}");
            }
        }
    }

    #[test]
    fn readers_miss_nothing_while_slots_move() {
        let table = Arc::new(LogTable::new(18_000, 255));
        let capacity = table.capacity();
        let kept = capacity / 2;
        (0..kept).for_each(|n| table.insert(spread(n), 7).unwrap());
        let reader = {
            let table = table.clone();
            std::thread::spawn(move || {
                for _ in 0..30 {
                    assert!((0..kept).all(|n| found(&table, spread(n)).contains(&7)));
                }
            })
        };
        let mut from = kept;
        while !reader.is_finished() {
            (from..from + capacity - kept).for_each(|n| table.insert(spread(n), 8).unwrap());
            let mut dead = IdSet::new();
            dead.insert(8);
            assert_eq!(table.sweep(&dead, &mut || ()), capacity - kept);
            from += capacity;
        }
        reader.join().unwrap();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    fn explore(f: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(3));
        builder.check(f);
    }

    fn has(table: &LogTable, hash: u64, id: u16) -> bool {
        let mut out = Candidates::new();
        table.candidates(hash, &mut out);
        out.contains(&id)
    }

    #[test]
    fn loom_a_slot_that_moves_is_never_missed() {
        explore(|| {
            let table = LogTable::new(0, 255);
            let hash = 1;
            table.insert(hash, 1).unwrap();
            let Table::Narrow(cuckoo) = &table.table else { unreachable!("it was made narrow") };
            // All but the one looked for have no other bucket: it is the one that must move.
            let alone: Vec<u64> =
                (2..).filter(|n| cuckoo.only_bucket_is_first_of(*n, hash)).take(4).collect();
            alone[..3].iter().for_each(|n| table.insert(*n, 2).unwrap());
            let moves = cuckoo.moves();
            let table = Arc::new(table);
            let reader = {
                let table = table.clone();
                loom::thread::spawn(move || assert!(has(&table, hash, 1)))
            };
            table.insert(alone[3], 3).unwrap();
            let Table::Narrow(cuckoo) = &table.table else { unreachable!("it was made narrow") };
            assert_eq!((cuckoo.moves(), cuckoo.stashed()), (moves + 1, 0));
            reader.join().unwrap();
            assert!(has(&table, hash, 1) && has(&table, alone[3], 3));
        });
    }

    #[test]
    fn loom_a_slot_that_comes_back_from_the_stash_is_never_missed() {
        explore(|| {
            let table = LogTable::new(0, 255);
            (1..=9).for_each(|id| table.insert(1, id).unwrap());
            assert_eq!(table.stashed(), 1);
            let table = Arc::new(table);
            let reader = {
                let table = table.clone();
                loom::thread::spawn(move || assert!(has(&table, 1, 9)))
            };
            let mut dead = IdSet::new();
            dead.insert(1);
            assert_eq!(table.sweep(&dead, &mut || ()), 1);
            assert_eq!(table.stashed(), 0);
            reader.join().unwrap();
        });
    }
}
