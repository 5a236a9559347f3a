//! What a later memory finds in the file of an earlier one, record by record.
#![cfg(not(any(loom, miri)))]

use larder_item::{Expiry, KeyHash, Kind, Location, State};
use larder_memory::{
    ColumnState, KeepOptions, Left, Memory, MemoryError, MemoryOptions, NewChunked, NewItem, PagesWanted,
    Record, Remains, check_keep_path,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

const SLAB: u64 = 2 << 20;

/// A file that goes with the test. `None`: this machine has no tmpfs.
struct KeptIn(PathBuf);

impl KeptIn {
    fn new(name: &str) -> Option<KeptIn> {
        let path = Path::new("/dev/shm").join(format!("larder-{name}-{}", std::process::id()));
        check_keep_path(&path).ok().map(|()| KeptIn(path))
    }

    fn open(&self, slabs: u64, column_bytes: Option<u32>) -> Result<Memory, MemoryError> {
        let options = MemoryOptions {
            limit_bytes: slabs * SLAB,
            reserve_bytes: Some(2 * slabs * SLAB),
            column_bytes,
            pages: PagesWanted::Small,
            ..MemoryOptions::default()
        };
        Memory::on_file(options, &KeepOptions { path: self.0.clone(), seed: 7 })
    }
}

impl Drop for KeptIn {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn item<'a>(key: &'a [u8], value: &'a [u8]) -> NewItem<'a> {
    NewItem {
        key,
        value: [value, b""],
        flags: 0,
        expiry: Expiry::at_s(100),
        cas: 5,
        state: State(0),
        kind: Kind::Text,
    }
}

/// What is left of each record, by key; a chunk is called so.
fn left_in(memory: &Memory) -> Vec<(Vec<u8>, Remains)> {
    let reader = memory.register();
    let guard = reader.pin();
    let mut found = Vec::new();
    for column in memory.remaining_columns() {
        let is_right = memory.walk_remains(&guard, column, |_, record, remains| match record {
            Record::Item(item) => found.push((item.key().to_vec(), remains)),
            Record::Chunk(_) => found.push((b"chunk".to_vec(), remains)),
        });
        assert!(is_right);
    }
    found
}

#[test]
fn a_record_counts_between_its_commit_and_its_end() {
    let Some(file) = KeptIn::new("records") else { return };
    let memory = file.open(4, Some(64 << 10)).expect("a file on a tmpfs can be kept");
    assert_eq!((memory.left(), memory.kept_seed()), (Some(&Left::Nothing), Some(7)));
    let reader = memory.register();
    let guard = reader.pin();
    let long = vec![3; 4000];
    let mut open = memory.take_column(0, 2).expect("there is a column");
    let mut place = |key: &[u8], value: &[u8]| open.place(&item(key, value)).expect("there is room");
    let (kept, apart) = (place(b"kept", b"value"), place(b"apart", &long));
    let (replaced, _unpublished) = (place(b"replaced", b"value"), place(b"unpublished", b"value"));
    let undone = place(b"undone", b"value");
    [kept, apart, replaced].iter().for_each(|at| guard.commit(*at));
    guard.revoke(replaced);
    open.undo(undone);
    let chunk = |open: &mut larder_memory::OpenColumn| {
        let mut space = open.place_chunk(KeyHash(9), 1, None, 100).expect("there is room");
        space.write(0, &[1; 100]);
        space.location()
    };
    let (whole, _unfinished) = (chunk(&mut open), chunk(&mut open));
    guard.commit(whole);
    let owner = NewChunked {
        key: b"owner",
        total: 100,
        first: whole,
        flags: 0,
        expiry: Expiry::NEVER,
        cas: 6,
        state: State(0),
        kind: Kind::Text,
    };
    guard.commit(open.place_chunked(&owner).expect("there is room"));
    let used = memory.column(open.id()).used_bytes();
    // As a process that is killed: nothing is sealed, and nothing is said.
    std::mem::forget(open);
    let (birth, id) = (memory.last_birth(), memory.column_of(kept));
    drop((reader, memory));
    drop_forgotten(&file);

    let memory = file.open(4, Some(64 << 10)).expect("a file on a tmpfs can be kept");
    assert_eq!((memory.left(), memory.last_birth()), (Some(&Left::Killed), birth));
    let expected = [
        ("kept", Remains::Whole),
        ("apart", Remains::Whole),
        ("replaced", Remains::Over),
        ("unpublished", Remains::Over),
        ("chunk", Remains::Whole),
        ("chunk", Remains::Over),
        ("owner", Remains::Whole),
    ];
    assert_eq!(left_in(&memory), expected.map(|(key, remains)| (key.as_bytes().to_vec(), remains)));
    let column = memory.column(id);
    assert_eq!((column.state(), column.used_bytes(), column.live_bytes()), (ColumnState::Sealed, used, 0));
    let reader = memory.register();
    let guard = reader.pin();
    let bytes = guard.item(apart).live_again() + guard.item(kept).live_again();
    assert_eq!((column.live_bytes(), column.expired_bytes(1 << 20)), (bytes, bytes));
    assert!(guard.remaining_chunk(whole).is_some_and(|(_, chunk)| chunk.bytes == [1; 100]));
    for elsewhere in [0, 4, 64 << 10, (2 << 20) - 4, 1 << 40] {
        assert!(guard.remaining_chunk(Location::from_offset(elsewhere)).is_none(), "{elsewhere}");
    }
    // What an earlier use of a column left does not count in the next one.
    memory.give_up_remains(id);
    let mut open = memory.take_column(0, 2).expect("there is a column");
    assert!(open.id() == id && open.birth() > birth);
    open.place(&item(b"next", b"value")).expect("there is room");
    assert_eq!(guard.item(apart).remains(), Remains::Damaged);
}

/// The memory that a forgotten column holds on to keeps its lock as long as this process lives: the test goes on with a
/// copy of the file, which a killed process would have left.
fn drop_forgotten(file: &KeptIn) {
    let copy = file.0.with_extension("copy");
    std::fs::copy(&file.0, &copy).expect("there is room for a copy");
    std::fs::rename(copy, &file.0).expect("a file can be renamed");
}

#[test]
fn a_file_that_does_not_fit_is_begun_anew_and_says_why() {
    let Some(file) = KeptIn::new("fit") else { return };
    let open = |slabs, column_bytes| file.open(slabs, column_bytes).expect("a file on a tmpfs can be kept");
    let fill = |memory: &Memory| {
        let mut open = memory.take_column(0, 2).expect("there is a column");
        open.place(&item(b"key", b"value")).expect("there is room");
    };
    let why = |memory: &Memory| match memory.left() {
        Some(Left::Unusable(why)) => why.clone(),
        other => panic!("{other:?}"),
    };
    let memory = open(4, Some(64 << 10));
    fill(&memory);
    memory.head().expect("the memory is kept").is_stopped.store(1, Ordering::Release);
    drop(memory);
    // Twice the limit is what it was reserved for, and the size of its columns is taken over.
    let memory = open(8, None);
    assert_eq!((memory.left(), memory.geometry().column_bytes), (Some(&Left::Stopped), 64 << 10));
    assert_eq!((memory.remaining_columns().len(), memory.reserve_bytes()), (1, 8 * SLAB));
    drop(memory);
    let memory = open(9, None);
    assert!(why(&memory).contains("18 MiB"), "{}", why(&memory));
    assert_eq!(memory.remaining_columns().len(), 0);
    fill(&memory);
    drop(memory);
    let memory = open(9, Some(128 << 10));
    assert!(why(&memory).contains("--column-bytes"), "{}", why(&memory));
    assert_eq!((memory.remaining_columns().len(), memory.geometry().column_bytes), (0, 128 << 10));
}
