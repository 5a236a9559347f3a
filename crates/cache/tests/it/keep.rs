//! Memory that is kept in a file, over the end of the cache that wrote it. A copy of the file that is made while the
//! cache lives is what a process leaves that is killed at this moment.

use crate::frame::{FRAME_BYTES, Numbers, value_of, version_of};
use larder_cache::*;
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const KEYS: u64 = 300;
/// Where a file may be kept.
const SHARED_MEMORY: &str = "/dev/shm";
/// The columns begin behind the head and the bookkeeping, 2 MiB each.
const COLUMNS_AT: usize = 4 << 20;

/// Files that go with the test. `None`: this machine has no tmpfs.
pub(crate) struct Files {
    folder: PathBuf,
}

impl Files {
    pub(crate) fn new(name: &str) -> Option<Files> {
        let folder = Path::new(SHARED_MEMORY).join(format!("larder-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).ok()?;
        check_keep_path(&folder.join("x")).ok()?;
        Some(Files { folder })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn cache_on(path: &Path) -> Arc<Cache> {
    let options = CacheOptions {
        limit_bytes: 24 << 20,
        item_bytes_max: 1 << 20,
        workers: 8,
        column_bytes: Some(64 << 10),
        keep: Some(path.to_owned()),
        ..CacheOptions::default()
    };
    Cache::new(options).expect("a file on a tmpfs can be kept")
}

fn key_of(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// What the slow twin knows of an item.
#[derive(Clone, PartialEq)]
struct Known {
    value: Vec<u8>,
    flags: u32,
    expiry: Expiry,
    cas: u64,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Known { value, flags, expiry, cas } = self;
        let begins = &value[..value.len().min(FRAME_BYTES)];
        write!(f, "{} bytes {begins:?}, flags {flags}, {expiry:?}, cas {cas}", value.len())
    }
}

/// The slow twin of the cache: a map.
type Twin = HashMap<u64, Known>;

fn seen(worker: &Worker, number: u64) -> Option<Known> {
    let key = key_of(number);
    let hit = worker.peek(worker.cache().hash(&key), &key)?;
    let mut value = Vec::new();
    worker.copy_value(&hit, &mut value);
    Some(Known { value, flags: hit.item.flags(), expiry: hit.expiry(), cas: hit.cas() })
}

/// Everything that a cache has, key by key.
fn all_of(cache: &Arc<Cache>) -> Twin {
    let worker = cache.worker();
    (0..KEYS).filter_map(|number| Some((number, seen(&worker, number)?))).collect()
}

/// Changes one item at random, and the twin in the same way.
fn change(worker: &mut Worker, twin: &mut Twin, random: &mut Numbers, version: u64) {
    let cache = worker.cache().clone();
    let number = random.below(KEYS);
    let (key, hash) = (key_of(number), cache.hash(&key_of(number)));
    let expiry = match random.below(3) {
        0 => Expiry::at_s(cache.clock().now_s() + 500 + random.below(1000) as u32),
        _ => Expiry::NEVER,
    };
    let sizes = [FRAME_BYTES as u64 + 8, 300, 3000, 20_000, 90_000];
    let bytes = sizes[random.below(sizes.len() as u64) as usize] as usize;
    let mut value = Vec::new();
    value_of(number as usize, version, bytes, &mut value);
    let mut set = Store::set(&key, hash, &value);
    (set.flags, set.expiry) = (random.below(3) as u32, expiry);
    match random.below(10) {
        0 => {
            let deleted = worker.delete(&Delete::of(&key, hash));
            assert_eq!(deleted == DeleteOutcome::Deleted, twin.remove(&number).is_some());
        }
        1 => {
            let touched = worker.touch(hash, &key, expiry);
            assert_eq!(touched == Touched::Done, twin.contains_key(&number));
            if let Some(known) = twin.get_mut(&number) {
                known.expiry = expiry;
            }
        }
        2 => {
            // What is placed and then taken back must not come back.
            let added = worker.store(&Store { mode: Mode::Add, ..set });
            assert_eq!(matches!(added, StoreOutcome::Stored { .. }), !twin.contains_key(&number));
        }
        3 => {
            let compared = worker.store(&Store { compare: Some(u64::MAX), ..set });
            assert!(matches!(compared, StoreOutcome::Exists | StoreOutcome::NotFound));
        }
        4 => {
            let store = Store { mode: Mode::Append, value: b"appended", ..set };
            let appended = worker.store(&store);
            assert_eq!(matches!(appended, StoreOutcome::Stored { .. }), twin.contains_key(&number));
        }
        5 => {
            // A large value that arrives in two parts, and may be given up in between.
            let Some(mut upload) = worker.begin_upload(hash, 60_000) else { return };
            let long = vec![version as u8; 60_000];
            assert!(worker.fill_upload(&mut upload, &long[..30_000]));
            if random.below(2) == 0 {
                return worker.abandon_upload(upload);
            }
            assert!(worker.fill_upload(&mut upload, &long[30_000..]));
            worker.complete_upload(upload, &set);
        }
        _ => {
            assert!(matches!(worker.store(&set), StoreOutcome::Stored { .. }));
        }
    }
    worker.quiesce();
    match seen(worker, number) {
        Some(known) => drop(twin.insert(number, known)),
        None => assert!(twin.remove(&number).is_none(), "an item is gone"),
    }
}

#[test]
fn a_process_that_is_killed_at_any_moment_leaves_what_its_twin_has() {
    let Some(files) = Files::new("twin") else { return };
    let (path, copy) = (files.path("items"), files.path("copy"));
    let mut random = Numbers(11);
    let mut twin = Twin::new();
    let mut cache = cache_on(&path);
    let mut version = 0;
    for round in 0..30 {
        let mut worker = cache.worker();
        // The second worker stands for another thread, whose columns are open at the same time.
        let mut other = cache.worker();
        for step in 0..80 {
            version += 1;
            let worker = if step % 3 == 0 { &mut other } else { &mut worker };
            change(worker, &mut twin, &mut random, version);
        }
        if round % 3 == 0 {
            worker.offline();
            other.offline();
            cache.tend();
            worker.online();
            other.online();
        }
        if round % 13 == 12 {
            cache.flush(None);
            twin.clear();
            (0..5).for_each(|_| change(&mut worker, &mut twin, &mut random, version));
        }
        std::fs::copy(&path, &copy).expect("there is room for a copy");
        let last_cas = cache.last_cas();
        let killed = cache_on(&copy);
        assert_eq!(killed.recovered().map(|found| found.left.clone()), Some(Left::Killed));
        assert_eq!(killed.recovered().map(|found| (found.damaged_columns, found.lost)), Some((0, 0)));
        assert_eq!(all_of(&killed), twin, "round {round}");
        assert_eq!(killed.items(), twin.len() as u64);
        assert_eq!(killed.live_in_columns(), killed.memory_use().items_bytes, "round {round}");
        assert!(killed.last_cas() >= last_cas);
        // The next rounds go on with what a kill or an ordinary stop has left.
        drop((worker, other));
        match round % 3 {
            0 => {
                drop((cache, killed));
                std::fs::rename(&copy, &path).expect("a file can be renamed");
            }
            1 => {
                cache.end_kept();
                drop(cache);
            }
            _ => drop(cache),
        }
        cache = cache_on(&path);
        let left = if round % 3 == 1 { Left::Stopped } else { Left::Killed };
        assert_eq!(cache.recovered().map(|found| found.left.clone()), Some(left));
        assert_eq!(all_of(&cache), twin, "round {round}, once more");
    }
}

#[test]
fn of_two_versions_that_both_count_one_is_served_and_stays() {
    let Some(files) = Files::new("both") else { return };
    let (path, copy) = (files.path("items"), files.path("copy"));
    let cache = cache_on(&path);
    let mut worker = cache.worker();
    let (key, hash) = (key_of(1), cache.hash(&key_of(1)));
    for bytes in [200, 90_000] {
        let store = |worker: &mut Worker, version| {
            let mut value = Vec::new();
            value_of(1, version, bytes, &mut value);
            assert!(matches!(worker.store(&Store::set(&key, hash, &value)), StoreOutcome::Stored { .. }));
            worker.quiesce();
        };
        store(&mut worker, 1);
        let before = std::fs::read(&path).expect("the file can be read");
        store(&mut worker, 2);
        std::fs::copy(&path, &copy).expect("there is room for a copy");
        let after = std::fs::read(&path).expect("the file can be read");
        // The word of the old record is what has become 0. A process that was killed before has not done that.
        let revoked: Vec<usize> = (COLUMNS_AT..before.len())
            .step_by(4)
            .filter(|at| before[*at..at + 4] != [0; 4] && after[*at..at + 4] == [0; 4])
            .collect();
        assert_eq!(revoked.len(), 1, "one record was replaced");
        let file = std::fs::OpenOptions::new().write(true).open(&copy).expect("the copy can be opened");
        let word = &before[revoked[0]..revoked[0] + 4];
        file.write_all_at(word, revoked[0] as u64).expect("the copy can be written");
        let version = |cache: &Arc<Cache>| {
            assert_eq!(cache.items(), 1);
            assert_eq!(cache.live_in_columns(), cache.memory_use().items_bytes);
            let known = seen(&cache.worker(), 1).expect("one of the two is there");
            version_of(1, &known.value)
        };
        let first = version(&cache_on(&copy));
        assert!([1, 2].contains(&first));
        assert_eq!(version(&cache_on(&copy)), first, "a later process has the same");
    }
}

#[test]
fn bytes_that_were_changed_are_never_served() {
    let Some(files) = Files::new("damage") else { return };
    let (path, copy) = (files.path("items"), files.path("copy"));
    let cache = cache_on(&path);
    let mut worker = cache.worker();
    let (mut twin, mut random) = (Twin::new(), Numbers(5));
    (0..2000).for_each(|version| change(&mut worker, &mut twin, &mut random, version));
    let used = cache.memory_use().columns_bytes;
    let mut found_less = 0;
    for _ in 0..15 {
        std::fs::copy(&path, &copy).expect("there is room for a copy");
        let file = std::fs::OpenOptions::new().write(true).open(&copy).expect("the copy can be opened");
        for _ in 0..3 {
            let at = COLUMNS_AT as u64 + random.below(used);
            let bytes = vec![random.next() as u8; 1 + random.below(100) as usize];
            file.write_all_at(&bytes, at).expect("the copy can be written");
        }
        let damaged = cache_on(&copy);
        let left = all_of(&damaged);
        for (number, known) in &left {
            // When an item expires may change in place, and has no checksum.
            let (value, right) = (&known.value, twin.get(number).map(|known| &known.value));
            assert_eq!(Some(value), right, "{number}");
        }
        assert_eq!(damaged.live_in_columns(), damaged.memory_use().items_bytes);
        found_less += usize::from(left.len() < twin.len());
        // It works on, and a pass over all of it finds nothing to stumble over.
        let mut worker = damaged.worker();
        for number in 0..4000 {
            let (key, value) = (key_of(1000 + number), vec![1; 5000]);
            worker.store(&Store::set(&key, damaged.hash(&key), &value));
            worker.quiesce();
        }
        worker.offline();
        damaged.tend();
    }
    assert!(found_less > 5, "{found_less}");
}

#[test]
fn memory_is_not_kept_where_there_is_flash_or_no_such_file() {
    let refused = |path: &str| {
        let options = CacheOptions { keep: Some(path.into()), ..CacheOptions::default() };
        let text = Cache::new(options).err().expect("no such file can be kept").to_string();
        assert!(text.contains(path) && text.contains("--keep") && !text.contains('\n'), "{text}");
    };
    refused("/no/such/folder/items");
    refused("/proc/items");
    refused("/dev/null");
}
