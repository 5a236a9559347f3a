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
//!
//! Two buckets take eight versions of a hash, or six. Further ones are entries of other hashes that follow from it, its
//! levels: with four slots a bucket, level 0 has versions 1 to 8, level 1 versions 9 to 16, and so on. A reader looks
//! at a further level only where a mark says that the level before was full.
//!
//! Locks: `overflow.sets`, then the writer's lock of the table. Both are leaves for others.

use crate::cuckoo::{Cuckoo, STASH_SLOTS};
use crate::shim::{AtomicU64, Mutex};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

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
/// Levels that a hash has.
const LEVELS: u64 = 4;
/// Entries that the buckets of all levels and the stash have together.
const CANDIDATES_MAX: usize = 8 * LEVELS as usize + STASH_SLOTS;
/// There is one mark for 16 slots, but there are at most [`MARKS_MAX`].
const SLOTS_PER_MARK: u64 = 16;
const MARKS_MAX: u64 = 1 << 16;
/// The other set of marks is used when one in 8 is set.
const MARKED_PART: u64 = 8;

/// Up to 12 numbers, a sweep compares all slots of a bucket with each of them at once.
const FEW_IDS: usize = 12;

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

    fn remove_all(&mut self, ids: &IdSet) {
        self.0.iter_mut().zip(ids.0).for_each(|(word, gone)| *word &= !gone);
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Whether a number is in the set.
    pub fn contains(&self, id: u16) -> bool {
        self.0.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }
}

impl<'a> FromIterator<&'a u16> for IdSet {
    fn from_iter<I: IntoIterator<Item = &'a u16>>(ids: I) -> IdSet {
        let mut set = IdSet::new();
        ids.into_iter().for_each(|id| set.insert(*id));
        set
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
    /// A bit for each number whose entries are to be swept out.
    dying: [AtomicU64; ID_WORDS],
    overflow: Overflow,
}

/// Which hashes have entries at further levels. There are two sets of marks: one takes new marks while the entries that
/// the other leads to go with their segments. Then that one is emptied.
struct Overflow {
    /// A bit for each mark.
    marks: [Box<[AtomicU64]>; 2],
    /// Whether any segment has entries at further levels.
    is_used: AtomicU64,
    sets: Mutex<MarkSets>,
}

struct MarkSets {
    sets: [MarkSet; 2],
    /// The set that takes new marks.
    current: usize,
}

struct MarkSet {
    /// Marks that are set.
    marked: u64,
    /// Segments with entries that this set leads to.
    segments: IdSet,
}

/// The hash of a level.
fn level(hash: u64, number: u64) -> u64 {
    hash ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Overflow {
    fn new(slots: u64) -> Overflow {
        let words = Overflow::words(slots);
        let set = || MarkSet { marked: 0, segments: IdSet::new() };
        Overflow {
            marks: std::array::from_fn(|_| (0..words).map(|_| AtomicU64::new(0)).collect()),
            is_used: AtomicU64::new(0),
            sets: Mutex::new(MarkSets { sets: [set(), set()], current: 0 }),
        }
    }

    /// Words of a set of marks.
    fn words(slots: u64) -> u64 {
        (slots / SLOTS_PER_MARK).next_power_of_two().clamp(64, MARKS_MAX) / 64
    }

    /// Memory for the marks, bytes.
    fn bytes(slots: u64) -> u64 {
        2 * Overflow::words(slots) * 8
    }

    /// The word and the bit of a hash of a level.
    fn mark(&self, hash: u64) -> (usize, u64) {
        let mixed = hash.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let bit = (mixed ^ (mixed >> 32)) as usize & (self.marks[0].len() * 64 - 1);
        (bit / 64, 1 << (bit % 64))
    }

    /// Whether the level of this hash was full.
    fn is_marked(&self, hash: u64) -> bool {
        let (word, bit) = self.mark(hash);
        self.marks.iter().any(|marks| marks[word].load(Acquire) & bit != 0)
    }
}

impl MarkSets {
    /// The entries of these segments are gone.
    fn forget(&mut self, ids: &IdSet, overflow: &Overflow) {
        for (set, marks) in self.sets.iter_mut().zip(&overflow.marks) {
            set.segments.remove_all(ids);
            if set.segments.is_empty() && set.marked != 0 {
                marks.iter().for_each(|word| word.store(0, Release));
                set.marked = 0;
            }
        }
        let is_used = self.sets.iter().any(|set| !set.segments.is_empty());
        overflow.is_used.store(is_used as u64, Release);
    }
}

impl LogTable {
    /// A table as large as fits into `bytes_max`, for segments with numbers up to `id_max`. An entry takes 2.1 bytes
    /// where `id_max` is at most 511, and 2.9 bytes above that. The highest number that any table has is 2047.
    pub fn new(bytes_max: u64, id_max: u64) -> LogTable {
        let ids = match id_max {
            0..=NARROW_IDS => NARROW_ID_MAX,
            ids if ids <= MIDDLE_IDS => MIDDLE_ID_MAX,
            _ => WIDE_ID_MAX,
        };
        // A slot takes two bytes at least.
        let fixed = size_of::<LogTable>() as u64 + Overflow::bytes(bytes_max / 2);
        let left = bytes_max.saturating_sub(fixed);
        let table = match ids {
            NARROW_ID_MAX => Table::Narrow(Cuckoo::new(left)),
            MIDDLE_ID_MAX => Table::Middle(Cuckoo::new(left)),
            _ => Table::Wide(Cuckoo::new(left)),
        };
        let overflow = Overflow::new(either!(&table, table => table.slots()));
        LogTable { table, dying: std::array::from_fn(|_| AtomicU64::new(0)), overflow }
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
    /// [`TableFull`]: when about 97 % of the slots are taken (91 % in a wide table), or more than 32 versions of a hash
    /// are kept (24 in a wide table) and the stash is full.
    pub fn insert(&self, hash: u64, id: u16) -> Result<(), TableFull> {
        debug_assert!(id != 0 && id <= self.id_max() && !self.is_dying(id as u64));
        if self.put(hash, id, false).is_ok() {
            return Ok(());
        }
        // A table with this little room refuses other entries as well.
        let is_crowded = self.len() >= self.capacity();
        if !is_crowded && self.put_beyond(hash, id).is_ok() {
            return Ok(());
        }
        self.put(hash, id, true)
    }

    fn put(&self, hash: u64, id: u16, stashes: bool) -> Result<(), TableFull> {
        either!(&self.table, table => table.insert(hash, id as u64, |id| self.is_dying(id), stashes))
    }

    /// Adds an entry at a further level. The marks come before the entry.
    #[cold]
    fn put_beyond(&self, hash: u64, id: u16) -> Result<(), TableFull> {
        let overflow = &self.overflow;
        let mut sets = overflow.sets.lock().expect("no panic under this lock");
        let marks = overflow.marks[0].len() as u64 * 64;
        let other = 1 - sets.current;
        if sets.sets[other].segments.is_empty() && sets.sets[sets.current].marked * MARKED_PART >= marks {
            sets.current = other;
        }
        let current = sets.current;
        let set = &mut sets.sets[current];
        for number in 1..LEVELS {
            let (word, bit) = overflow.mark(level(hash, number - 1));
            let word = &overflow.marks[current][word];
            let before = word.load(Relaxed);
            set.marked += (before & bit == 0) as u64;
            word.store(before | bit, Release);
            overflow.is_used.store(1, Release);
            if self.put(level(hash, number), id, false).is_ok() {
                set.segments.insert(id);
                return Ok(());
            }
        }
        Err(TableFull)
    }

    /// Writes to `out`, which is emptied first, every segment that was inserted for this hash and not removed, and now
    /// and then one of another hash.
    #[inline]
    pub fn candidates(&self, hash: u64, out: &mut Candidates) {
        out.len = 0;
        either!(&self.table, table => table.find(hash, |id| out.push(id as u16)));
        if self.overflow.is_used.load(Acquire) != 0 {
            self.candidates_beyond(hash, out);
        }
    }

    /// Adds the segments at further levels.
    fn candidates_beyond(&self, hash: u64, out: &mut Candidates) {
        let mut number = 1;
        while number < LEVELS && self.overflow.is_marked(level(hash, number - 1)) {
            either!(&self.table, table => table.find(level(hash, number), |id| out.push(id as u16)));
            number += 1;
        }
    }

    /// Loads what a search for the hash looks at. The result means nothing.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) -> u64 {
        either!(&self.table, table => table.touch(hash))
    }

    /// Gives up all entries of these segments: an insertion may overwrite them, and readers find those that are left.
    /// Each call replaces the set. The numbers can be used again after a sweep of them.
    pub fn give_up(&self, dead: &IdSet) {
        either!(&self.table, table => {
            // Under the writer's lock, so that an insertion sees all of the set or nothing of it.
            let _writer = table.lock();
            self.dying.iter().zip(dead.0).for_each(|(word, bits)| word.store(bits, Relaxed));
        });
    }

    /// Removes all entries of these segments, and says how many. No such entry may be inserted meanwhile. When this
    /// returns, the numbers can be used again. One sweep at a time; `between` is called now and then, without the
    /// writer's lock.
    pub fn sweep(&self, dead: &IdSet, between: &mut dyn FnMut()) -> u64 {
        self.give_up(dead);
        let (mut few, mut count) = ([0; FEW_IDS], 0);
        for id in (1..=self.id_max()).filter(|id| dead.contains(*id)) {
            few.get_mut(count).into_iter().for_each(|at| *at = id);
            count += 1;
        }
        let few = few.get(..count);
        let swept = either!(&self.table, table => table.sweep(|id| dead.contains(id as u16), few, between));
        self.give_up(&IdSet::new());
        self.overflow.sets.lock().expect("no panic under this lock").forget(dead, &self.overflow);
        swept
    }

    /// The number of entries.
    pub fn len(&self) -> u64 {
        either!(&self.table, table => table.len())
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of entries that find room for certain, if no hash has more than a few: 95 % of the slots, or 88 % in
    /// a wide table.
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
        let slots = either!(&self.table, table => table.slots());
        boxed + size_of::<LogTable>() + Overflow::bytes(slots) as usize
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
    fn many_versions_of_a_hash_go_to_further_levels_and_to_the_stash_and_come_back() {
        let table = LogTable::new(24_000, 255);
        let versions: Vec<u16> = (1..=CANDIDATES_MAX as u16).collect();
        versions.iter().for_each(|id| table.insert(5, *id).unwrap());
        assert_eq!(table.stashed(), STASH_SLOTS as u64);
        assert_eq!(found(&table, 5), versions);
        assert_eq!(table.insert(5, 100), Err(TableFull));
        assert_eq!(found(&table, 5), versions);
        assert_eq!(found(&table, 6), []);
        let dead: IdSet = versions.iter().filter(|id| **id > 4 && **id != 11).collect();
        assert_eq!(table.sweep(&dead, &mut || ()), versions.len() as u64 - 5);
        assert_eq!((found(&table, 5), table.stashed(), table.len()), (vec![1, 2, 3, 4, 11], 0, 5));
        assert!(table.overflow.is_marked(5), "one is left");
        table.sweep(&[11].iter().collect(), &mut || ());
        assert!(!table.overflow.is_marked(5), "nothing is left that a mark leads to");
        assert_eq!((found(&table, 5), table.len()), (vec![1, 2, 3, 4], 4));
    }

    #[test]
    fn marks_go_with_the_segments_that_they_lead_to() {
        let table = LogTable::new(40_000, 511);
        // Hash after hash has more versions than two buckets take, while old segments go.
        for round in 0..4000u64 {
            for version in 0..10 {
                table.insert(spread(round), 1 + ((round + version) % 20) as u16).unwrap();
            }
            assert!(found(&table, spread(round)).len() >= 10, "{round}");
            table.sweep(&[1 + ((round + 10) % 20) as u16].iter().collect(), &mut || ());
        }
        let marked = |set: &[AtomicU64]| set.iter().map(|word| word.load(Relaxed).count_ones()).sum::<u32>();
        let marks = table.overflow.marks[0].len() as u32 * 64;
        let most = table.overflow.marks.iter().map(|set| marked(set)).max().unwrap_or(0);
        assert!(most < marks / 2, "{most} of {marks}");
    }

    #[derive(Clone, Debug)]
    enum Act {
        Insert(u64, u16),
        GiveUp(Vec<u16>),
        Sweep(Vec<u16>),
    }

    fn act() -> impl Strategy<Value = Act> {
        // Some hashes have many versions.
        let (hash, id) = (prop_oneof![3 => 0u64..4, 7 => 0u64..400], 1u16..=60);
        let ids = || prop::collection::vec(1u16..=60, 1..20);
        prop_oneof![
            60 => (hash, id).prop_map(|(hash, id)| Act::Insert(hash, id)),
            1 => ids().prop_map(Act::GiveUp),
            2 => ids().prop_map(Act::Sweep),
        ]
    }

    proptest! {
        #[test]
        fn what_is_inserted_is_a_candidate_until_it_is_swept(
            acts in prop::collection::vec(act(), 1..900),
            bytes in 18_000u64..22_000,
            id_max in prop::sample::select(vec![255u64, 511, 2047]),
        ) {
            // From few buckets, near full with what is inserted, to many.
            let table = LogTable::new(bytes + Overflow::bytes(0), id_max);
            let mut twin: HashMap<(u64, u16), u32> = HashMap::new();
            let mut given_up = IdSet::new();
            for act in acts {
                match act {
                    Act::Insert(hash, id) => {
                        if !given_up.contains(id) && table.insert(spread(hash), id).is_ok() {
                            *twin.entry((hash, id)).or_default() += 1;
                        }
                    }
                    Act::GiveUp(ids) => {
                        ids.iter().for_each(|id| given_up.insert(*id));
                        table.give_up(&given_up);
                        twin.retain(|(_, id), _| !given_up.contains(*id));
                    }
                    Act::Sweep(ids) => {
                        let before = table.len();
                        ids.iter().for_each(|id| given_up.insert(*id));
                        twin.retain(|(_, id), _| !given_up.contains(*id));
                        let left = twin.values().sum::<u32>() as u64;
                        prop_assert_eq!(table.sweep(&given_up, &mut || ()), before - left);
                        prop_assert_eq!(table.len(), left);
                        given_up = IdSet::new();
                    }
                }
                prop_assert!(table.len() >= twin.values().sum::<u32>() as u64);
            }
            for (hash, id) in twin.keys() {
                prop_assert!(found(&table, spread(*hash)).contains(id), "{hash} in {id}");
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
