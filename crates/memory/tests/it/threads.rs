//! Readers and writers at the same time: bytes read under a guard never change, however fast columns are reused.
#![cfg(not(loom))]

use larder_item::{Expiry, Kind, Location, State};
use larder_memory::{ColumnId, Guard, Item, Memory, MemoryOptions, NewItem, OpenColumn, PagesWanted, Value};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Entries of a simple index, divided among the writers.
const ENTRIES: usize = if cfg!(miri) { 16 } else { 512 };
const WRITERS: usize = 2;
const READERS: usize = if cfg!(miri) { 1 } else { 3 };
/// Items that each writer places.
const ITEMS: u64 = if cfg!(miri) { 60 } else { 200_000 };

/// A simple index: location bits + 1, or 0.
struct Index([AtomicU64; ENTRIES]);

impl Index {
    fn get(&self, entry: usize) -> Option<Location> {
        // Acquire pairs with the Release of `set`: a reader that sees the location also sees the bytes.
        self.0[entry].load(Ordering::Acquire).checked_sub(1).map(Location::from_bits)
    }

    fn set(&self, entry: usize, at: Option<Location>) {
        self.0[entry].store(at.map_or(0, |at| at.bits() + 1), Ordering::Release);
    }
}

fn value_of(serial: u64) -> Vec<u8> {
    let length = if cfg!(miri) { 3 + serial as usize % 20 } else { 3 + (serial as usize * 131) % 2000 };
    vec![serial as u8; length]
}

fn take_column(memory: &Memory) -> OpenColumn {
    loop {
        if let Some(open) = memory.take_column(0, 0) {
            break open;
        }
        // Every column waits for some reader.
        std::thread::yield_now();
    }
}

/// Writes its share of the entries again and again, and keeps a handful of sealed columns.
fn write(memory: &Memory, index: &Index, writer: usize) {
    let mut sealed: std::collections::VecDeque<ColumnId> = Default::default();
    let mut open = take_column(memory);
    let mut serial = 0;
    while serial < ITEMS {
        let entry = (serial as usize * WRITERS + writer) % ENTRIES;
        let (key, value) = (format!("{entry}:{serial}"), value_of(serial));
        let new = NewItem {
            key: key.as_bytes(),
            value: [&value, b""],
            flags: serial as u32,
            expiry: Expiry::at_s(1 + serial as u32),
            cas: serial,
            state: State(0),
            kind: Kind::Text,
        };
        let full = if cfg!(miri) { serial % 8 == 7 } else { false };
        let placed = if full { None } else { open.place(&new) };
        let Some(at) = placed else {
            sealed.push_back(open.seal());
            if sealed.len() > 4 {
                retire_oldest(memory, index, &mut sealed);
            }
            open = take_column(memory);
            serial += full as u64;
            continue;
        };
        index.set(entry, Some(at));
        serial += 1;
    }
}

fn retire_oldest(memory: &Memory, index: &Index, sealed: &mut std::collections::VecDeque<ColumnId>) {
    let oldest = sealed.pop_front().unwrap();
    for entry in 0..ENTRIES {
        // Only this writer sets entries that lead to its own columns.
        if index.get(entry).is_some_and(|at| memory.column_of(at) == oldest) {
            index.set(entry, None);
        }
    }
    memory.retire(oldest);
    // At once, so that the same few columns are reused again and again.
    memory.recycle();
}

fn check(item: &Item<'_>, entry: usize) -> Option<u64> {
    let text = std::str::from_utf8(item.key()).expect("a key as it was written");
    let (number, serial) = text.split_once(':').expect("a key as it was written");
    assert_eq!(number.parse(), Ok(entry));
    let serial: u64 = serial.parse().unwrap();
    assert_eq!(item.value(), Value::Whole(&value_of(serial)));
    assert_eq!((item.flags(), item.cas()), (serial as u32, serial));
    Some(serial)
}

fn read(memory: &Memory, index: &Index, seed: u64, done: &AtomicBool) -> u64 {
    let mut reader = memory.register();
    let mut random = seed;
    let mut batches = 0;
    while !done.load(Ordering::Relaxed) {
        let guard: Guard<'_> = reader.pin();
        let mut seen = Vec::new();
        for _ in 0..16 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let entry = (random >> 33) as usize % ENTRIES;
            if let Some(at) = index.get(entry) {
                let item = guard.item(at);
                item.mark_fetched();
                item.touch_last_access(batches as u32);
                seen.push((item, entry, check(&item, entry)));
            }
        }
        // The bytes must be the same much later.
        std::thread::yield_now();
        for (item, entry, serial) in seen {
            assert_eq!(check(&item, entry), serial);
        }
        batches += 1;
        if batches % 7 == 0 {
            reader.offline();
            std::thread::yield_now();
            reader.online();
        } else {
            reader.quiesce();
        }
    }
    batches
}

#[test]
fn bytes_under_a_guard_never_change_while_columns_are_reused() {
    let options = MemoryOptions {
        limit_bytes: 2 << 20,
        column_bytes: Some(32 << 10),
        pages: PagesWanted::Small,
        ..MemoryOptions::default()
    };
    let memory = Memory::new(options).unwrap();
    let index = Index([const { AtomicU64::new(0) }; ENTRIES]);
    let done = AtomicBool::new(false);
    let batches: u64 = std::thread::scope(|scope| {
        let (memory, index, done) = (&memory, &index, &done);
        let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(move || write(memory, index, n))).collect();
        let readers: Vec<_> =
            (0..READERS).map(|n| scope.spawn(move || read(memory, index, n as u64, done))).collect();
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        written.into_iter().for_each(|written| written.unwrap());
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    let births = memory.take_column(0, 0).map_or(0, |open| open.birth());
    println!("items placed in {births} columns, {batches} batches read");
    assert!(cfg!(miri) || births > 64, "columns were reused");
    memory.recycle();
    assert_eq!(memory.retired_columns(), 0, "a reader that was dropped holds nothing back");
}

/// A reader never sees an expiry that nobody set, although an expiry with milliseconds takes two words.
#[test]
fn an_expiry_with_milliseconds_changes_as_a_whole() {
    let options = MemoryOptions {
        limit_bytes: 2 << 20,
        column_bytes: Some(32 << 10),
        pages: PagesWanted::Small,
        ..MemoryOptions::default()
    };
    let memory = Memory::new(options).unwrap();
    let mut open = memory.take_column(0, 0).expect("a column");
    let both = [Expiry::at_ms(10_999), Expiry::at_ms(12_001)];
    let new = NewItem {
        key: b"key",
        value: [b"value", b""],
        flags: 0,
        expiry: both[0],
        cas: 0,
        state: State(0),
        kind: Kind::Parts,
    };
    let at = open.place(&new).expect("room");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let reader = memory.register();
                while !stop.load(Ordering::Relaxed) {
                    let guard = reader.pin();
                    let item = guard.item(at);
                    let seen = item.expiry();
                    // A writer that is interrupted between its two stores shows the whole second of the new one.
                    let whole = both.map(|expiry| Expiry::at_s(expiry.seconds()));
                    assert!(both.contains(&seen) || whole.contains(&seen), "{seen:?}");
                    assert_eq!(item.kind(), Kind::Parts);
                }
            });
        }
        let reader = memory.register();
        for round in 0..if cfg!(miri) { 20 } else { 300_000 } {
            assert!(reader.pin().item(at).set_expiry(both[round % 2]));
        }
        stop.store(true, Ordering::Relaxed);
    });
}
