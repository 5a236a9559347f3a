//! Deletes by prefix: what readers and commands see, and how the bytes come back.

use larder_cache::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn cache(limit_mib: u64, evict: bool, workers: usize) -> Arc<Cache> {
    let options = CacheOptions {
        limit_bytes: limit_mib << 20,
        evict,
        workers,
        seed: Some(1),
        ..CacheOptions::default()
    };
    Cache::new(options).expect("a small cache can be made")
}

fn set(worker: &mut Worker, key: &[u8], value: &[u8]) {
    let hash = worker.cache().hash(key);
    let outcome = worker.store(&Store::set(key, hash, value));
    assert!(matches!(outcome, StoreOutcome::Stored { .. }), "{outcome:?}");
}

fn get(worker: &Worker, key: &[u8]) -> Option<Vec<u8>> {
    let hit = worker.get(worker.cache().hash(key), key)?;
    let mut value = Vec::new();
    worker.copy_value(&hit, &mut value);
    Some(value)
}

/// All keys that a dump shows.
fn listed(worker: &mut Worker) -> Vec<Vec<u8>> {
    let (mut tour, mut found) = (worker.begin_tour(), Vec::new());
    while worker.list(&mut tour, 1000, Duration::ZERO, &mut found) != Toured::End {}
    let mut keys: Vec<Vec<u8>> = found.into_iter().map(|item| item.key).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Lets the keeper work until it has forgotten every prefix.
fn settle(worker: &mut Worker) {
    settle_all(&mut [worker]);
}

/// As [`settle`], with these workers.
fn settle_all(workers: &mut [&mut Worker]) {
    let until = Instant::now() + Duration::from_secs(60);
    let cache = workers[0].cache().clone();
    while cache.deleted_prefixes().0 > 0 {
        for worker in workers.iter_mut() {
            worker.tick();
            worker.quiesce();
        }
        cache.tend();
        assert!(Instant::now() < until, "a prefix is never forgotten");
    }
}

#[test]
fn a_deleted_prefix_is_gone_at_once_and_its_bytes_come_back_later() {
    const COUNT: usize = 2000;
    let cache = cache(64, true, 1);
    let mut worker = cache.worker();
    let key = |name: &str, number: usize| format!("{name}{number:05}").into_bytes();
    for number in 0..COUNT {
        for name in ["a:", "b:"] {
            set(&mut worker, &key(name, number), &[7; 300]);
        }
    }
    let before = cache.memory_use().items_bytes;
    cache.flush_prefix(b"a:").unwrap();
    assert_eq!(cache.deleted_prefixes(), (1, 0));
    for number in 0..COUNT {
        let (gone, there) = (key("a:", number), key("b:", number));
        assert!(get(&worker, &gone).is_none() && worker.peek(cache.hash(&gone), &gone).is_none());
        assert_eq!(worker.absence(cache.hash(&gone), &gone), Absence::Flushed);
        assert!(get(&worker, &there).is_some());
    }
    assert_eq!(listed(&mut worker).len(), COUNT);
    // What is stored from now on is there, before the keeper comes and after it.
    set(&mut worker, b"a:00007", b"new");
    assert_eq!(get(&worker, b"a:00007").unwrap(), b"new");
    settle(&mut worker);
    assert_eq!(get(&worker, b"a:00007").unwrap(), b"new");
    assert_eq!(listed(&mut worker).len(), COUNT + 1);
    assert_eq!(cache.items(), COUNT as u64 + 1);
    let totals = cache.totals();
    // The item that was replaced was no item to remove any more.
    assert_eq!((totals.reclaimed, totals.evictions), (COUNT as u64 - 1, 0));
    let after = cache.memory_use().items_bytes;
    assert!(after < before * 51 / 100, "{after} of {before} bytes are left");
    assert_eq!(cache.live_in_columns(), after);
}

#[test]
fn a_prefix_that_is_deleted_while_another_one_is_swept_stays_deleted() {
    let cache = cache(64, true, 2);
    let (mut worker, mut reader) = (cache.worker(), cache.worker());
    for number in 0..1000 {
        for name in ["a:", "b:"] {
            set(&mut worker, format!("{name}{number:05}").as_bytes(), b"v");
        }
    }
    cache.flush_prefix(b"a:").unwrap();
    // The walk over the index ends, and waits for the reader. No column is taken before the second delete.
    for _ in 0..10 {
        worker.tick();
        worker.quiesce();
        cache.tend();
    }
    assert_eq!((cache.items(), cache.deleted_prefixes().0), (1000, 1));
    cache.flush_prefix(b"b:").unwrap();
    reader.quiesce();
    settle_all(&mut [&mut worker, &mut reader]);
    assert!(get(&worker, b"b:00007").is_none(), "what was deleted is back");
    assert_eq!((cache.items(), listed(&mut worker).len()), (0, 0));
}

#[test]
fn every_command_takes_a_deleted_item_for_absent() {
    let cache = cache(64, true, 1);
    let mut worker = cache.worker();
    let keys: Vec<Vec<u8>> = (0..20).map(|number| format!("x:{number}").into_bytes()).collect();
    for key in &keys {
        set(&mut worker, key, b"41");
    }
    let hash = |key: &[u8]| cache.hash(key);
    let cas = worker.get(hash(&keys[0]), &keys[0]).unwrap().cas();
    cache.flush_prefix(b"x").unwrap();
    let mut next = keys.iter();
    let mut key = || next.next().unwrap().as_slice();
    let store = |key, mode| Store { mode, ..Store::set(key, cache.hash(key), b"1") };
    let one = key();
    let compare = Store { compare: Some(cas), ..store(one, Mode::Set) };
    assert_eq!(worker.store(&compare), StoreOutcome::NotFound);
    for mode in [Mode::Replace, Mode::Append, Mode::Prepend] {
        assert_eq!(worker.store(&store(key(), mode)), StoreOutcome::NotStored, "{mode:?}");
    }
    let added = key();
    assert!(matches!(worker.store(&store(added, Mode::Add)), StoreOutcome::Stored { .. }));
    assert_eq!(worker.store(&store(added, Mode::Add)), StoreOutcome::NotStored);
    let one = key();
    assert_eq!(worker.touch(hash(one), one, Expiry::NEVER), Touched::NotFound);
    assert_eq!(worker.delete(&Delete::of(one, hash(one))), DeleteOutcome::NotFound);
    let arith = |key, initial| Arith {
        key,
        hash: cache.hash(key),
        increment: true,
        delta: 1,
        initial,
        compare: None,
        explicit_cas: None,
        expiry: None,
        binary_key: false,
    };
    assert_eq!(worker.arith(&arith(key(), None)), ArithOutcome::NotFound);
    let counted = key();
    let created = worker.arith(&arith(counted, Some((Expiry::NEVER, 5))));
    assert!(matches!(created, ArithOutcome::Done { value: 5, created: true, .. }));
    // A client may choose a number that is lower than all before: the item is new all the same.
    let chosen = key();
    worker.store(&Store { explicit_cas: Some(3), ..store(chosen, Mode::Set) });
    for _ in 0..2 {
        assert_eq!(get(&worker, added).unwrap(), b"1");
        assert_eq!(get(&worker, counted).unwrap(), b"5");
        assert_eq!(get(&worker, chosen).unwrap(), b"1");
        assert_eq!(listed(&mut worker).len(), 3);
        settle(&mut worker);
    }
}

#[test]
fn large_values_go_too_and_one_that_arrives_meanwhile_stays() {
    let cache = cache(64, true, 1);
    let mut worker = cache.worker();
    let empty = cache.memory_use().items_bytes;
    let large = vec![b'l'; 900_000];
    for number in 0..8 {
        set(&mut worker, format!("l:{number}").as_bytes(), &large);
    }
    let hash = cache.hash(b"l:new");
    let mut upload = worker.begin_upload(hash, large.len() as u32).expect("there is room");
    assert!(worker.fill_upload(&mut upload, &large[..300_000]));
    cache.flush_prefix(b"l:").unwrap();
    worker.tick();
    assert!(worker.fill_upload(&mut upload, &large[300_000..]));
    let stored = worker.complete_upload(upload, &Store::set(b"l:new", hash, b""));
    assert!(matches!(stored, StoreOutcome::Stored { .. }), "{stored:?}");
    settle(&mut worker);
    assert_eq!(get(&worker, b"l:new").unwrap(), large);
    assert!(get(&worker, b"l:3").is_none());
    assert_eq!(cache.items(), 1);
    let bytes = cache.memory_use().items_bytes - empty;
    assert!((900_000..1_000_000).contains(&bytes), "{bytes} bytes of one item");
}

#[test]
fn where_nothing_may_be_evicted_a_deleted_prefix_makes_room() {
    let cache = cache(8, false, 1);
    let mut worker = cache.worker();
    let mut stored = 0;
    loop {
        let key = format!("p:{stored}").into_bytes();
        if worker.store(&Store::set(&key, cache.hash(&key), &[1; 1000])) == StoreOutcome::NoRoom {
            break;
        }
        stored += 1;
        worker.quiesce();
    }
    assert!(stored > 1000);
    cache.flush_prefix(b"p:").unwrap();
    settle(&mut worker);
    for number in 0..stored / 2 {
        set(&mut worker, format!("q:{number}").as_bytes(), &[2; 1000]);
        worker.quiesce();
    }
    assert_eq!(cache.totals().evictions, 0);
    assert!((0..stored / 2).all(|number| get(&worker, format!("q:{number}").as_bytes()).is_some()));
}

#[test]
fn a_full_table_refuses_until_the_keeper_was_there() {
    let cache = cache(64, true, 1);
    let mut worker = cache.worker();
    set(&mut worker, b"p:1:x", b"x");
    set(&mut worker, b"other", b"o");
    let mut deleted = 0;
    while cache.flush_prefix(format!("p:{deleted}:").as_bytes()).is_ok() {
        deleted += 1;
        assert!(deleted < 10_000, "the table has no bound");
    }
    assert!(deleted > 100);
    assert!(get(&worker, b"other").is_some(), "what was refused was not done");
    cache.flush_prefix(b"p:").expect("it takes the place of all of them");
    assert_eq!(cache.deleted_prefixes().0, 1);
    cache.flush_prefix(b"o").unwrap();
    settle(&mut worker);
    assert_eq!((cache.items(), cache.deleted_prefixes()), (0, (0, 0)));
    cache.flush_prefix(b"more").unwrap();
    cache.flush(None);
    assert_eq!(cache.deleted_prefixes().0, 0, "a flush of all items is one of these, too");
}

/// Keys of three letters from `a` to `d`, so that prefixes of one, two and three letters are nested in each other.
fn key_of(number: u64) -> Vec<u8> {
    (0..3).map(|at| b'a' + (number >> (2 * at) & 3) as u8).collect()
}

#[test]
fn overwrites_and_nested_prefixes_agree_with_a_map() {
    for seed in 1..=20u64 {
        let cache = cache(64, true, 2);
        let mut workers = [cache.worker(), cache.worker()];
        let mut map: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) % below
        };
        for step in 0..4000u32 {
            let worker = &mut workers[random(2) as usize];
            let key = key_of(random(64));
            match random(100) {
                0..60 => {
                    let value = [&step.to_le_bytes()[..], &vec![b'v'; random(2000) as usize]].concat();
                    set(worker, &key, &value);
                    map.insert(key, value);
                }
                60..70 => {
                    let prefix = &key[..1 + random(3) as usize];
                    cache.flush_prefix(prefix).unwrap();
                    map.retain(|key, _| !key.starts_with(prefix));
                }
                70..72 => worker.tick(),
                72..75 => {
                    workers.iter_mut().for_each(Worker::quiesce);
                    cache.tend();
                }
                _ => assert_eq!(get(worker, &key), map.get(&key).cloned(), "seed {seed}, step {step}"),
            }
        }
        workers.iter_mut().for_each(|worker| {
            worker.tick();
            worker.offline();
        });
        let [mut worker, _] = workers;
        worker.online();
        settle(&mut worker);
        assert_eq!(listed(&mut worker), map.keys().cloned().collect::<Vec<_>>());
        assert_eq!(cache.items(), map.len() as u64);
    }
}

/// Tells the other threads that this one has failed.
struct Fails<'a>(&'a AtomicBool);

impl Drop for Fails<'_> {
    fn drop(&mut self) {
        self.0.store(std::thread::panicking() || self.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The key with this number, which has one of 4 prefixes and one of 16 longer ones.
fn prefixed_key(number: u64) -> Vec<u8> {
    format!("{}:{}:{number}", number % 4, number % 16).into_bytes()
}

/// The version that a value begins with.
fn version_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

#[test]
fn with_many_threads_nothing_deleted_is_read_and_nothing_stored_later_is_lost() {
    const KEYS: u64 = 512;
    const WRITERS: usize = 2;
    let cache = cache(64, true, WRITERS + 1);
    let keeper = cache.keep().expect("a thread can be started");
    let until = Instant::now() + Duration::from_secs(3);
    // The highest version of each key that was stored before a delete that has returned; and the highest stored.
    let floors: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let stored: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let failed = AtomicBool::new(false);
    let deletes = AtomicU64::new(0);
    let goes_on = || {
        let is_enough = Instant::now() >= until && deletes.load(Ordering::Relaxed) > 50;
        !is_enough && !failed.load(Ordering::Relaxed)
    };
    std::thread::scope(|scope| {
        for number in 0..WRITERS as u64 {
            let (cache, floors, stored, failed) = (&cache, &floors, &stored, &failed);
            scope.spawn(move || {
                let _fails = Fails(failed);
                let mut worker = cache.worker();
                let mut turn = 0u64;
                while goes_on() {
                    turn += 1;
                    // Each key has one writer.
                    let key = (turn * 7 % KEYS / WRITERS as u64) * WRITERS as u64 + number;
                    let value = [&turn.to_le_bytes()[..], &[0; 200]].concat();
                    let floor_before = floors[key as usize].load(Ordering::SeqCst);
                    set(&mut worker, &prefixed_key(key), &value);
                    stored[key as usize].store(turn, Ordering::SeqCst);
                    match get(&worker, &prefixed_key(key)) {
                        Some(found) => assert_eq!(version_of(&found), turn),
                        // Only a delete that began after the store may have it. Wait for that to be told.
                        None => {
                            let told = || floors[key as usize].load(Ordering::SeqCst) >= turn;
                            let patience = Instant::now() + Duration::from_secs(10);
                            while !told() {
                                assert!(Instant::now() < patience, "{key} is lost: {turn}, {floor_before}");
                                std::thread::yield_now();
                            }
                        }
                    }
                    worker.quiesce();
                    if turn.is_multiple_of(4096) {
                        worker.tick();
                    }
                }
            });
        }
        let (cache, floors, stored, failed, deletes) = (&cache, &floors, &stored, &failed, &deletes);
        scope.spawn(move || {
            let _fails = Fails(failed);
            let mut worker = cache.worker();
            let mut turn = 0u64;
            while goes_on() {
                turn += 1;
                let prefix = if turn.is_multiple_of(3) {
                    format!("{}:", turn % 4)
                } else {
                    format!("{0}:{0}:", turn % 16)
                };
                let is_covered = |key: &u64| prefixed_key(*key).starts_with(prefix.as_bytes());
                let before: Vec<(u64, u64)> = (0..KEYS)
                    .filter(is_covered)
                    .map(|key| (key, stored[key as usize].load(Ordering::SeqCst)))
                    .collect();
                if cache.flush_prefix(prefix.as_bytes()).is_err() {
                    continue;
                }
                deletes.fetch_add(1, Ordering::Relaxed);
                // What was stored by the end of the delete may be gone, what was stored before its begin must be.
                for key in (0..KEYS).filter(is_covered) {
                    let last = stored[key as usize].load(Ordering::SeqCst) + KEYS;
                    floors[key as usize].fetch_max(last, Ordering::SeqCst);
                }
                for (key, version) in before {
                    if let Some(found) = get(&worker, &prefixed_key(key)) {
                        assert!(version_of(&found) > version, "{key}: {version} was deleted by {prefix}");
                    }
                }
                worker.quiesce();
                worker.tick();
                std::thread::sleep(Duration::from_millis(2)); // Stores come in between.
            }
        });
    });
    cache.stop_keeper();
    keeper.join().expect("the keeper does not panic");
}
