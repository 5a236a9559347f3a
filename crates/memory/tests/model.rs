//! The memory against its slow twin: a map from location to an owned item.
#![cfg(not(loom))]

use larder_item::{Expiry, KeyHash, Location, State};
use larder_memory::{
    Chunk, ColumnId, Item, Memory, MemoryOptions, NewChunked, NewItem, OpenColumn, PagesWanted, Reader,
    Record, Value,
};
use proptest::prelude::*;
use std::collections::HashMap;

/// What a record should say, in plain owned fields.
#[derive(Clone, Debug, PartialEq)]
enum Twin {
    Whole {
        key: Vec<u8>,
        value: Vec<u8>,
        flags: u32,
        expiry: Expiry,
        cas: u64,
        state: State,
        bytes: u32,
    },
    Chunked {
        key: Vec<u8>,
        total: u32,
        first: Location,
        flags: u32,
        expiry: Expiry,
        cas: u64,
        state: State,
        bytes: u32,
    },
    Chunk {
        bytes: Vec<u8>,
        next: Option<Location>,
        chain: u64,
        owner: KeyHash,
    },
}

#[derive(Clone, Debug)]
struct Fields {
    key: Vec<u8>,
    value: Vec<u8>,
    cut: usize,
    flags: u32,
    expiry: Expiry,
    cas: u64,
    state: State,
}

#[derive(Clone, Debug)]
enum Step {
    Place(Fields),
    PlaceThenUndo(Fields),
    PlaceChunked(Fields),
    PlaceChunk(Fields),
    Touch(usize, Expiry, u32),
    Die(usize),
    Seal,
    Retire(usize),
    Quiesce,
    Recycle,
}

fn fields() -> impl Strategy<Value = Fields> {
    let lengths =
        prop_oneof![4 => 0usize..100, 2 => 500usize..530, 2 => 600usize..4000, 1 => 7000usize..8193];
    let key = prop::collection::vec(any::<u8>(), 1..=250);
    let cas = prop_oneof![0u64..1 << 20, (1u64 << 36) - 2..(1 << 36) + 110, any::<u64>()];
    let flags = prop_oneof![Just(0u32), any::<u32>()];
    let expiry = prop_oneof![Just(0u32), any::<u32>()];
    (key, lengths, any::<u8>(), any::<usize>(), flags, expiry, cas, any::<u32>()).prop_map(
        |(key, length, seed, cut, flags, expiry, cas, state)| Fields {
            key,
            value: (0..length).map(|n| seed.wrapping_add((n * 7) as u8)).collect(),
            cut: cut % (length + 1),
            flags,
            expiry: Expiry(expiry),
            cas,
            state: State(state),
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => fields().prop_map(Step::Place),
        2 => fields().prop_map(Step::PlaceThenUndo),
        1 => fields().prop_map(Step::PlaceChunked),
        2 => fields().prop_map(Step::PlaceChunk),
        2 => (any::<usize>(), any::<u32>(), any::<u32>()).prop_map(|(n, expiry, now)| Step::Touch(n, Expiry(expiry), now)),
        2 => any::<usize>().prop_map(Step::Die),
        1 => Just(Step::Seal),
        1 => any::<usize>().prop_map(Step::Retire),
        1 => Just(Step::Quiesce),
        1 => Just(Step::Recycle),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 20 } else { 120 })
}

/// The system under test and its twin.
struct Both {
    memory: Memory,
    reader: Reader,
    open: OpenColumn,
    births: u64,
    items: HashMap<Location, Twin>,
    /// Locations of each column in order of placing, and bytes alive in it.
    columns: HashMap<ColumnId, (Vec<Location>, u32)>,
    sealed: Vec<ColumnId>,
    dead: Vec<Location>,
}

impl Both {
    fn new() -> Both {
        let memory = Memory::new(MemoryOptions {
            limit_bytes: 2 << 20,
            column_bytes: Some(32 << 10),
            pages: PagesWanted::Small,
            inline_value_bytes_max: INLINE_MAX,
            ..MemoryOptions::default()
        })
        .unwrap();
        let reader = memory.register();
        let open = memory.take_column(100, 5).unwrap();
        let columns = HashMap::from([(open.id(), (Vec::new(), 0))]);
        let (items, sealed, dead) = (HashMap::new(), Vec::new(), Vec::new());
        Both { memory, reader, open, births: 1, items, columns, sealed, dead }
    }

    fn seal(&mut self) {
        // A column that nobody reads is always left: the limit is 64 columns.
        while self.sealed.len() > 50 {
            self.retire(0);
            self.reader.quiesce();
        }
        let next = self.memory.take_column(self.births * 100, 5).expect("columns are left");
        self.births += 1;
        assert_eq!(next.birth(), self.births, "births count up from 1");
        let old = std::mem::replace(&mut self.open, next);
        assert!(self.columns.insert(self.open.id(), (Vec::new(), 0)).is_none(), "a column has one owner");
        self.sealed.push(old.seal());
    }

    fn retire(&mut self, index: usize) {
        let id = self.sealed.swap_remove(index);
        self.memory.retire(id);
        let (locations, _) = self.columns.remove(&id).unwrap();
        for location in locations {
            self.items.remove(&location);
        }
    }

    /// Places by `place`, in a fresh column if the open one is full.
    fn place(&mut self, mut place: impl FnMut(&mut OpenColumn) -> Option<(Location, Twin)>) -> Location {
        let (at, twin) = place(&mut self.open).unwrap_or_else(|| {
            self.seal();
            place(&mut self.open).expect("an empty column holds any record")
        });
        let column = self.columns.get_mut(&self.memory.column_of(at)).unwrap();
        column.0.push(at);
        column.1 += bytes_of(&twin);
        assert!(self.items.insert(at, twin).is_none(), "a place is given once");
        at
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Place(fields) => {
                self.place(|open| place_whole(open, &fields));
            }
            Step::PlaceThenUndo(fields) => {
                let free_bytes = self.open.free_bytes();
                if let Some((at, _)) = place_whole(&mut self.open, &fields) {
                    self.open.undo(at);
                }
                assert_eq!(self.open.free_bytes(), free_bytes);
            }
            Step::PlaceChunked(fields) => {
                let (key, total) = (&fields.key, fields.cas as u32);
                let Fields { flags, expiry, cas, state, .. } = fields;
                let first = Location::from_bits(fields.cas);
                let new = NewChunked { key, total, first, flags, expiry, cas, state };
                self.place(|open| {
                    let free_bytes = open.free_bytes();
                    let at = open.place_chunked(&new)?;
                    let (key, bytes) = (key.clone(), free_bytes - open.free_bytes());
                    Some((at, Twin::Chunked { key, total, first, flags, expiry, cas, state, bytes }))
                });
            }
            Step::PlaceChunk(mut fields) => {
                fields.value.truncate(self.memory.chunk_bytes_max() as usize);
                self.place(|open| place_chunk(open, &fields));
            }
            Step::Touch(n, expiry, now_s) => self.touch(n, expiry, now_s),
            Step::Die(n) => {
                let alive: Vec<_> = self.items.keys().filter(|at| !self.dead.contains(at)).copied().collect();
                if !alive.is_empty() {
                    let at = alive[n % alive.len()];
                    let bytes = bytes_of(&self.items[&at]);
                    let id = self.memory.column_of(at);
                    self.memory.column(id).died(bytes);
                    self.columns.get_mut(&id).unwrap().1 -= bytes;
                    self.dead.push(at);
                }
            }
            Step::Seal => self.seal(),
            Step::Retire(n) if !self.sealed.is_empty() => self.retire(n % self.sealed.len()),
            Step::Retire(_) => {}
            Step::Quiesce => self.reader.quiesce(),
            Step::Recycle => {
                self.reader.quiesce();
                self.memory.recycle();
                assert_eq!(self.memory.retired_columns(), 0, "nobody reads");
            }
        }
        self.dead.retain(|at| self.items.contains_key(at));
    }

    fn touch(&mut self, n: usize, new: Expiry, now_s: u32) {
        let at = self.items.keys().nth(n % self.items.len().max(1)).copied();
        let Some(at) = at else { return };
        let guard = self.reader.pin();
        if let Twin::Whole { expiry, state, .. } | Twin::Chunked { expiry, state, .. } =
            self.items.get_mut(&at).unwrap()
        {
            let item = guard.item(at);
            let changeable = *expiry != Expiry::NEVER;
            assert_eq!(item.set_expiry(new), changeable || new == Expiry::NEVER);
            if changeable {
                *expiry = new;
            }
            item.touch_last_access(now_s);
            item.mark_fetched();
            item.set_state_bits(State::STALE);
            item.clear_state_bits(State::TOKEN_SENT);
            let bits = (state.bits() | State::FETCHED | State::STALE) & !State::TOKEN_SENT;
            let kept = State(state.0 & !0xff | bits);
            *state = if state.idle_s(now_s) >= 60 { State::at(now_s, bits) } else { kept };
        }
    }

    /// Everything readable, the walks and the accounts agree.
    fn check(&self) {
        let guard = self.reader.pin();
        for (&at, twin) in &self.items {
            let record = match twin {
                Twin::Chunk { .. } => Record::Chunk(guard.chunk(at)),
                _ => Record::Item(guard.item(at)),
            };
            assert_eq!(&read(&record), twin, "{at:?}");
        }
        for (&id, (locations, live_bytes)) in &self.columns {
            assert_eq!(self.memory.column(id).live_bytes(), *live_bytes);
            let walked: Vec<_> =
                self.memory.records(&guard, id).map(|(at, record)| (at, read(&record))).collect();
            if id == self.open.id() {
                assert!(walked.is_empty(), "an open column is not walked");
            } else {
                let expected: Vec<_> = locations.iter().map(|at| (*at, self.items[at].clone())).collect();
                assert_eq!(walked, expected);
            }
        }
        let mut sealed: Vec<_> = self.memory.sealed_columns().map(|(id, _)| id).collect();
        let mut expected = self.sealed.clone();
        (sealed.sort(), expected.sort());
        assert_eq!(sealed, expected);
    }
}

fn place_whole(open: &mut OpenColumn, fields: &Fields) -> Option<(Location, Twin)> {
    let Fields { key, value, cut, flags, expiry, cas, state } = fields.clone();
    let (front, back) = value.split_at(cut);
    let free_bytes = open.free_bytes();
    let at = open.place(&NewItem { key: &key, value: [front, back], flags, expiry, cas, state })?;
    let bytes = free_bytes - open.free_bytes();
    Some((at, Twin::Whole { key, value, flags, expiry, cas, state, bytes }))
}

fn place_chunk(open: &mut OpenColumn, fields: &Fields) -> Option<(Location, Twin)> {
    let (owner, chain) = (KeyHash(fields.cas), u64::from(fields.flags));
    let next = (fields.state.0 & 1 == 0).then(|| Location::from_bits(fields.cas));
    let mut space = open.place_chunk(owner, chain, None, fields.value.len() as u16)?;
    space.set_next(next);
    let cut = fields.cut.min(fields.value.len());
    space.write(cut, &fields.value[cut..]);
    space.write(0, &fields.value[..cut]);
    Some((space.location(), Twin::Chunk { bytes: fields.value.clone(), next, chain, owner }))
}

fn bytes_of(twin: &Twin) -> u32 {
    match twin {
        Twin::Whole { bytes, .. } | Twin::Chunked { bytes, .. } => *bytes,
        Twin::Chunk { bytes, .. } => 40 + bytes.len() as u32,
    }
}

fn read(record: &Record<'_>) -> Twin {
    match record {
        Record::Chunk(chunk) => {
            let Chunk { bytes, next, chain, owner } = *chunk;
            assert_eq!(chunk.held_bytes(), 40 + bytes.len() as u32);
            Twin::Chunk { bytes: bytes.to_vec(), next, chain, owner }
        }
        Record::Item(item) => read_item(item),
    }
}

fn read_item(item: &Item<'_>) -> Twin {
    let key = item.key().to_vec();
    assert!(item.key_matches(&key));
    let mut other = key.clone();
    *other.last_mut().unwrap() ^= 1;
    assert!(!item.key_matches(&other) && !item.key_matches(&key[1..]));
    let (flags, expiry, cas, state) = (item.flags(), item.expiry(), item.cas(), item.state());
    match item.value() {
        Value::Whole(value) => {
            assert_eq!(item.value_bytes() as usize, value.len());
            item.prefetch_value();
            Twin::Whole { key, value: value.to_vec(), flags, expiry, cas, state, bytes: item.bytes() }
        }
        Value::Chunked { total, first } => {
            assert_eq!(item.value_bytes(), total);
            Twin::Chunked { key, total, first, flags, expiry, cas, state, bytes: item.bytes() }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 256 },
        failure_persistence: None,
        ..Default::default()
    })]
    #[test]
    fn the_memory_says_what_its_twin_says(steps in steps()) {
        let mut both = Both::new();
        for step in steps {
            both.step(step);
            if !cfg!(miri) {
                both.check();
            }
        }
        both.check();
    }
}
