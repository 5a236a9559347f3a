//! Prefixes whose items were deleted, each with a floor: what is older than the floor is not there.
//!
//! A delete by prefix costs no look at any item. It adds one row to a table, and every look at an item that may be
//! older than a floor asks the table. Whoever holds the table decides what "older" means: memory counts births of
//! columns, flash counts sequences of segments.
//!
//! ```text
//!   prefix     floor   parent         the rows are in order of prefix
//!   "a:"        40       -            the parent of a row is the longest other prefix in the table that it begins with
//!   "a:b:"      57     "a:"
//!   "c"         12       -
//! ```
//!
//! All prefixes in the table that a key begins with are one row and its parents. That row is the one with the highest
//! prefix that is not above the key, or one of its parents. So a look costs one binary search.
//!
//! A prefix does not cover what stands in other databases: keys in which [`DATABASE_MARK`] follows it. So the empty
//! prefix is database 0, `a:` database 0 of the tenant `a`, and `a:` with the mark behind it all others of this tenant.

/// Stands before the keys of every database but 0 (`SELECT`), behind the name of the tenant if there is one; a byte
/// with the number of the database follows. No text begins so: these bytes never occur in UTF-8.
pub const DATABASE_MARK: [u8; 3] = [0xff, 0xfe, 0xfd];

/// Whether `key` begins with `prefix` and is not of another database. There are none within a database but 0.
#[inline]
pub fn covers(prefix: &[u8], key: &[u8]) -> bool {
    let is_of_database = || prefix.windows(DATABASE_MARK.len()).any(|bytes| bytes == DATABASE_MARK);
    key.strip_prefix(prefix).is_some_and(|rest| !rest.starts_with(&DATABASE_MARK) || is_of_database())
}

/// The most rows of a table.
pub const PREFIXES_MAX: usize = 256;
/// The most bytes that all rows of a table take together: [`ROW_BYTES`] and the prefix for each.
pub const PREFIX_TABLE_BYTES_MAX: usize = 16 << 10;
/// What a row takes beside its prefix, bytes.
pub const ROW_BYTES: usize = 16;

/// One deleted prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    prefix: Box<[u8]>,
    /// What the row was raised to.
    floor: u64,
    /// The highest floor of the row and of those of its parents that cover its prefix.
    highest: u64,
    /// The parent's number.
    parent: Option<u16>,
}

/// The table has no room for another prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixesFull;

/// The floors of deleted prefixes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrefixFloors {
    /// In order of prefix.
    rows: Vec<Row>,
    bytes_max: usize,
}

impl Default for PrefixFloors {
    fn default() -> PrefixFloors {
        PrefixFloors::within(PREFIX_TABLE_BYTES_MAX)
    }
}

impl PrefixFloors {
    /// An empty table whose rows may take `bytes_max` bytes together, and [`PREFIX_TABLE_BYTES_MAX`] at most.
    pub fn within(bytes_max: usize) -> PrefixFloors {
        PrefixFloors { rows: Vec::new(), bytes_max: bytes_max.min(PREFIX_TABLE_BYTES_MAX) }
    }

    /// The highest floor of the prefixes that cover `key`; 0 if there is none.
    pub fn floor_of(&self, key: &[u8]) -> u64 {
        let behind = self.rows.partition_point(|row| &*row.prefix <= key);
        let mut number = behind.checked_sub(1);
        while let Some(row) = number.map(|number| &self.rows[number]) {
            if covers(&row.prefix, key) {
                return row.highest;
            }
            number = row.parent.map(usize::from);
        }
        0
    }

    /// Raises the floor of a prefix. Rows that it makes needless go: those of longer prefixes with lower floors.
    ///
    /// # Errors
    /// The table has no room. It is unchanged then.
    pub fn raise(&mut self, prefix: &[u8], floor: u64) -> Result<(), PrefixesFull> {
        if self.floor_of(prefix) >= floor {
            return Ok(());
        }
        let goes = |row: &Row| covers(prefix, &row.prefix) && row.floor <= floor;
        let stays = || self.rows.iter().filter(|row| !goes(row));
        let bytes = stays().map(|row| ROW_BYTES + row.prefix.len()).sum::<usize>();
        if stays().count() >= PREFIXES_MAX || bytes + ROW_BYTES + prefix.len() > self.bytes_max {
            return Err(PrefixesFull);
        }
        self.rows.retain(|row| !goes(row));
        let at = self.rows.partition_point(|row| &*row.prefix < prefix);
        self.rows.insert(at, Row { prefix: prefix.into(), floor, highest: floor, parent: None });
        self.link();
        Ok(())
    }

    /// Removes the rows whose floors are at `floor` or below. Returns whether there were any.
    pub fn forget(&mut self, floor: u64) -> bool {
        self.forget_where(|row| row.floor <= floor)
    }

    /// Removes the rows that `others` has as well, with the same floors. Returns whether there were any.
    pub fn forget_rows_of(&mut self, others: &PrefixFloors) -> bool {
        self.forget_where(|row| {
            let found = others.rows.binary_search_by(|other| other.prefix.cmp(&row.prefix));
            found.is_ok_and(|at| others.rows[at].floor == row.floor)
        })
    }

    fn forget_where(&mut self, goes: impl Fn(&Row) -> bool) -> bool {
        let before = self.rows.len();
        self.rows.retain(|row| !goes(row));
        self.link();
        self.rows.len() < before
    }

    /// Finds the parent of each row, and what follows from it.
    fn link(&mut self) {
        // The rows that the present one may begin with, each a prefix of the next.
        let mut above: Vec<u16> = Vec::new();
        for number in 0..self.rows.len() {
            let (before, from) = self.rows.split_at_mut(number);
            let row = &mut from[0];
            while above.last().is_some_and(|last| !row.prefix.starts_with(&before[usize::from(*last)].prefix))
            {
                above.pop();
            }
            row.parent = above.last().copied();
            let covering = above.iter().map(|&number| &before[usize::from(number)]);
            let covering = covering.filter(|parent| covers(&parent.prefix, &row.prefix));
            row.highest = covering.map(|parent| parent.floor).fold(row.floor, u64::max);
            above.push(number as u16);
        }
    }

    /// The highest floor of all; 0 if the table is empty.
    pub fn highest(&self) -> u64 {
        self.rows.iter().map(|row| row.floor).max().unwrap_or(0)
    }

    /// The lowest floor of all; 0 if the table is empty.
    pub fn lowest(&self) -> u64 {
        self.rows.iter().map(|row| row.floor).min().unwrap_or(0)
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The prefixes with their floors, in order of prefix.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.rows.iter().map(|row| (&*row.prefix, row.floor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The slow twin: every row is looked at.
    #[derive(Default)]
    struct Slow(BTreeMap<Vec<u8>, u64>);

    impl Slow {
        fn floor_of(&self, key: &[u8]) -> u64 {
            let matching = self.0.iter().filter(|(prefix, _)| covers(prefix, key));
            matching.map(|(_, floor)| *floor).max().unwrap_or(0)
        }
    }

    /// All strings of up to `count` of the letters `a`, `b` and the mark of a database.
    fn words(count: usize) -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new()];
        let mut begin = 0;
        for _ in 0..count {
            let end = all.len();
            for at in begin..end {
                for letter in [&b"a"[..], b"b", &DATABASE_MARK] {
                    all.push([&all[at][..], letter].concat());
                }
            }
            begin = end;
        }
        all
    }

    #[test]
    fn a_table_says_what_a_look_at_every_row_says() {
        let (prefixes, keys) = (words(4), words(5));
        let mut state = 88172645463325252u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        for _ in 0..200 {
            let (mut fast, mut slow) = (PrefixFloors::default(), Slow::default());
            for step in 1..40u64 {
                // Floors mostly go up, but a restart may read them in any order.
                let floor = if random(4) == 0 { 1 + random(40) as u64 } else { 40 + step };
                if random(10) == 0 {
                    fast.forget(floor);
                    slow.0.retain(|_, of| *of > floor);
                    // What a forgotten prefix had made needless is older, and gone with it.
                } else {
                    let prefix = &prefixes[random(prefixes.len())];
                    fast.raise(prefix, floor).unwrap();
                    let of = slow.0.entry(prefix.clone()).or_default();
                    *of = floor.max(*of);
                }
                for key in &keys {
                    assert_eq!(fast.floor_of(key), slow.floor_of(key), "{key:?} in {fast:?}");
                }
                assert_eq!(fast.highest(), slow.0.values().copied().max().unwrap_or(0));
            }
        }
    }

    #[test]
    fn what_a_shorter_prefix_covers_goes() {
        let mut table = PrefixFloors::default();
        for (floor, prefix) in [(1, "a:1"), (2, "a:2"), (3, "b"), (4, "a:")] {
            table.raise(prefix.as_bytes(), floor).unwrap();
        }
        assert_eq!(table.iter().collect::<Vec<_>>(), [(&b"a:"[..], 4), (&b"b"[..], 3)]);
        table.raise(b"a:2", 5).unwrap();
        assert_eq!((table.floor_of(b"a:2x"), table.floor_of(b"a:1"), table.floor_of(b"a")), (5, 4, 0));
        let before = table.clone();
        assert!(table.forget(4) && !table.forget(4));
        assert_eq!((table.floor_of(b"a:2"), table.floor_of(b"a:1"), table.len()), (5, 0, 1));
        let mut table = before.clone();
        table.raise(b"b", 6).unwrap();
        table.raise(b"c", 4).unwrap();
        assert!(table.forget_rows_of(&before) && !table.forget_rows_of(&before));
        assert_eq!(table.iter().collect::<Vec<_>>(), [(&b"b"[..], 6), (&b"c"[..], 4)]);
    }

    #[test]
    fn a_prefix_leaves_other_databases_alone() {
        let in_database =
            |tenant: &[u8], number: u8, key: &[u8]| [tenant, &DATABASE_MARK[..], &[number], key].concat();
        let mut table = PrefixFloors::default();
        table.raise(b"", 1).unwrap();
        assert_eq!((table.floor_of(b"k"), table.floor_of(&in_database(b"", 1, b"k"))), (1, 0));
        table.raise(&in_database(b"", 1, b""), 2).unwrap();
        assert_eq!((table.floor_of(b"k"), table.floor_of(&in_database(b"", 1, b"k"))), (1, 2));
        assert_eq!(table.floor_of(&in_database(b"", 2, b"k")), 0);
        table.raise(b"a:", 3).unwrap();
        assert_eq!((table.floor_of(b"a:k"), table.floor_of(&in_database(b"a:", 1, b"k"))), (3, 1));
        table.raise(&[b"a:", &DATABASE_MARK[..]].concat(), 4).unwrap();
        assert_eq!((table.floor_of(b"a:k"), table.floor_of(&in_database(b"a:", 1, b"k"))), (3, 4));
        table.raise(b"", 5).unwrap();
        assert_eq!(table.len(), 2, "the rows of database 0 went: {table:?}");
        assert_eq!(table.floor_of(&in_database(b"", 1, b"k")), 2);
    }

    #[test]
    fn a_full_table_refuses_and_stays_as_it_is() {
        let mut table = PrefixFloors::default();
        for number in 0..PREFIXES_MAX as u64 {
            table.raise(format!("{number:04}").as_bytes(), number + 1).unwrap();
        }
        let before = table.clone();
        assert_eq!(table.raise(b"x", 1000), Err(PrefixesFull));
        assert_eq!(table, before);
        table.raise(b"000", 1000).expect("it replaces ten others");
        table.raise(b"x", 1001).expect("there is room by now");
        let mut small = PrefixFloors::within(100);
        small.raise(&[b'x'; 60], 1).unwrap();
        assert_eq!(small.raise(&[b'y'; 60], 2), Err(PrefixesFull));
        small.raise(&[b'x'; 80], 2).expect_err("the shorter one is older and stays");
        small.raise(&[b'x'; 10], 3).unwrap();
        assert_eq!(small.len(), 1);
    }
}
