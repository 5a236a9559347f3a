//! Values that are stored compressed, against a map that has them plain.

use crate::keep::Files;
use crate::tier;
use larder_cache::*;
use larder_flash::Recover;
use larder_laboratory::MemoryDevice;
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Keys that are stored, far more than memory has room for.
const KEYS: u64 = 60_000;
/// Where the first dictionary is in the file of a kept memory.
const FIRST_DICTIONARY_AT: u64 = 8 << 10;
/// Compressed items that there are when a test begins, at least.
const HELD_MIN: u64 = 3000;
/// Rounds over all keys after which a test gives up.
const ROUNDS_MAX: u64 = 200;

fn options() -> CacheOptions {
    let (limit_bytes, compress) = (16 << 20, Compress::Auto);
    CacheOptions { limit_bytes, workers: 1, seed: Some(7), compress, ..CacheOptions::default() }
}

fn key_of(number: u64) -> Vec<u8> {
    format!("{}:{number:08}", ["user", "page"][(number % 2) as usize]).into_bytes()
}

/// Other values in each round.
fn value_of(number: u64, round: u64) -> Vec<u8> {
    let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 ^ round;
    match number % 2 {
        0 => format!(
            "{{\"id\":{number},\"round\":{round},\"name\":\"user {}\",\"mail\":\"user{random}@example.org\",\"city\":\
             \"Lima\",\"roles\":[\"reader\",\"editor\"],\"created\":\"2026-03-{:02}T10:00:00Z\",\"active\":true}}",
            random % 9973,
            random % 28 + 1
        ),
        _ => format!(
            "<article id=\"{number}\" class=\"card\"><h2>Page {random}</h2><p class=\"lead\">Round {round}</p><a \
             href=\"/pages/{number}\">more</a></article>"
        ),
    }
    .into_bytes()
}

/// The value of an item in memory, and whether it is stored compressed.
fn seen(worker: &Worker, key: &[u8]) -> Option<(Vec<u8>, bool)> {
    let hit = worker.peek(worker.cache().hash(key), key)?;
    let mut value = Vec::new();
    worker.copy_value(&hit, &mut value);
    assert_eq!(hit.value_bytes() as usize, value.len());
    let mut part = Vec::new();
    worker.copy_part(&hit, 5, 20, &mut part);
    assert_eq!(part, value[5..25]);
    let is_compressed = match hit.value() {
        Value::Compressed(stored) => {
            assert_eq!(&worker.expand(hit.at, stored)[..], &value[..]);
            assert!(stored.stored.len() * 4 <= value.len() * 3 + 12, "it saves a quarter");
            true
        }
        _ => false,
    };
    Some((value, is_compressed))
}

fn store(worker: &mut Worker, key: &[u8], value: &[u8]) {
    let hash = worker.cache().hash(key);
    let stored = worker.store(&Store::set(key, hash, value));
    assert!(matches!(stored, StoreOutcome::Stored { .. }), "{stored:?}");
}

/// Stores all keys, in rounds, until the cache has compressed `wanted` items, and has some thousand of them. Half of
/// the keys are read, so that probation lets some through. Returns the round of each key.
fn fill(cache: &Arc<Cache>, worker: &mut Worker, wanted: u64) -> HashMap<u64, u64> {
    fill_from(0, cache, worker, wanted)
}

/// The same of the keys from `first` on.
fn fill_from(first: u64, cache: &Arc<Cache>, worker: &mut Worker, wanted: u64) -> HashMap<u64, u64> {
    fill_with(value_of, first, cache, worker, wanted, HELD_MIN)
}

/// The same with the values that are made of the number of a key and a round, until it has `held` compressed items.
fn fill_with(
    value_of: impl Fn(u64, u64) -> Vec<u8>,
    first: u64,
    cache: &Arc<Cache>,
    worker: &mut Worker,
    wanted: u64,
    held: u64,
) -> HashMap<u64, u64> {
    for round in 0..ROUNDS_MAX {
        store_all(&value_of, first, round, cache, worker);
        if cache.totals().compressed >= wanted && cache.compression_stats().compressed_items >= held {
            return (first..first + KEYS).map(|number| (number, round)).collect();
        }
        // The trainer may need the processor.
        std::thread::yield_now();
    }
    panic!("{} items were compressed, {:?}", cache.totals().compressed, cache.compression_stats());
}

/// One round over the keys from `first` on.
fn store_all(
    value_of: impl Fn(u64, u64) -> Vec<u8>,
    first: u64,
    round: u64,
    cache: &Arc<Cache>,
    worker: &mut Worker,
) {
    for number in first..first + KEYS {
        let key = key_of(number);
        store(worker, &key, &value_of(number, round));
        if number % 4 < 2 {
            assert!(worker.get(cache.hash(&key), &key).is_some(), "it was stored just now");
        }
        if number % 64 == 0 {
            worker.quiesce();
            cache.tend();
        }
    }
}

/// Keys whose items are stored compressed now. All others that are there are right, too.
fn compressed(worker: &Worker, rounds: &HashMap<u64, u64>) -> Vec<u64> {
    let mut found = Vec::new();
    for (number, round) in rounds {
        if let Some((value, is_compressed)) = seen(worker, &key_of(*number)) {
            assert_eq!(value, value_of(*number, *round), "{number}");
            if is_compressed {
                found.push(*number);
            }
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn a_compressed_value_is_read_and_changed_as_a_plain_one() {
    let cache = Cache::new(options()).expect("a small cache can be made");
    let mut worker = cache.worker();
    let rounds = fill(&cache, &mut worker, 10_000);
    let found = compressed(&worker, &rounds);
    assert!(found.len() > 1000, "{} of {} items", found.len(), cache.items());
    let stats = cache.compression_stats();
    assert!(
        stats.compressed_items > 1000 && stats.expanded_bytes > 3 * stats.compressed_bytes / 2,
        "{stats:?}"
    );
    assert!(stats.dictionaries.iter().any(|of| of.values > 0 && of.items > 0 && of.ratio > 1.5), "{stats:?}");
    let memory = cache.memory_use();
    assert!(stats.dictionaries_bytes > 0 && memory.bookkeeping_bytes > stats.dictionaries_bytes);
    assert_eq!(cache.live_in_columns(), memory.items_bytes);

    let [appended, touched, copied, edited, counted] = found[..5] else { panic!("there are more") };
    let (key, value) = (key_of(appended), value_of(appended, rounds[&appended]));
    let append = Store { mode: Mode::Append, ..Store::set(&key, cache.hash(&key), b" and more") };
    assert!(matches!(worker.store(&append), StoreOutcome::Stored { .. }));
    assert_eq!(seen(&worker, &key), Some(([&value[..], b" and more"].concat(), false)));

    let (key, value) = (key_of(touched), value_of(touched, rounds[&touched]));
    let later = Expiry::from_exptime(1000, cache.clock().now_s(), cache.clock().started_unix_s());
    assert_eq!(worker.touch(cache.hash(&key), &key, later), Touched::Done);
    assert_eq!(worker.peek(cache.hash(&key), &key).map(|hit| hit.expiry()), Some(later));
    assert_eq!(seen(&worker, &key).map(|(value, _)| value), Some(value));

    let (key, value) = (key_of(copied), value_of(copied, rounds[&copied]));
    let (to, head) = (b"copy".as_slice(), b"head ".as_slice());
    let copy_to = CopyTo { key: to, hash: cache.hash(to), skip: 3, head, replaces: true, moves: false };
    assert_eq!(worker.copy(cache.hash(&key), &key, &copy_to), Copied::Done);
    assert_eq!(seen(&worker, to), Some(([head, &value[3..]].concat(), false)));

    let (key, value) = (key_of(edited), value_of(edited, rounds[&edited]));
    let edit = worker.edit(cache.hash(&key), &key, [b"", b"!"], &mut |_, hit, _| {
        assert!(hit.is_some_and(|hit| matches!(hit.value(), Value::Compressed(_))));
        Edit::Append
    });
    assert!(matches!(edit, Edited::Done { value_bytes } if value_bytes as usize == value.len() + 1));
    assert_eq!(seen(&worker, &key), Some(([&value[..], b"!"].concat(), false)));

    let key = key_of(counted);
    assert_eq!(worker.arith(&Arith::of(&key, cache.hash(&key), true, 1)), ArithOutcome::NonNumeric);
}

#[test]
fn off_compresses_nothing_more_and_names_only_what_they_name() {
    let names = |names: &[&str]| Compress::Only(names.iter().map(|name| (*name).to_owned()).collect());
    let cache = Cache::new(CacheOptions { compress: names(&["user"]), ..options() }).expect("it can be made");
    let mut worker = cache.worker();
    // Tenants share no dictionary.
    cache.share_dictionaries(false);
    let rounds = fill(&cache, &mut worker, 5000);
    let found = compressed(&worker, &rounds);
    assert!(!found.is_empty() && found.iter().all(|number| number % 2 == 0), "users only");
    cache.set_compress(Compress::Off);
    let before = cache.totals().compressed;
    for number in 0..KEYS {
        store(&mut worker, &key_of(number), &value_of(number, 0));
        if number % 64 == 0 {
            worker.quiesce();
            cache.tend();
        }
    }
    assert_eq!(cache.totals().compressed, before);
    cache.set_compress(names(&["page"]));
    let rounds = fill(&cache, &mut worker, before + 5000);
    assert!(compressed(&worker, &rounds).iter().any(|number| number % 2 == 1), "pages");
}

#[test]
fn what_is_hot_is_plain_and_what_does_not_shrink_is_left_alone() {
    let cache = Cache::new(options()).expect("a small cache can be made");
    let mut worker = cache.worker();
    let rounds = fill(&cache, &mut worker, 10_000);
    let hot: Vec<u64> = compressed(&worker, &rounds).into_iter().take(200).collect();
    let mut round = 0;
    while hot.iter().any(|number| seen(&worker, &key_of(*number)).is_some_and(|(_, compressed)| compressed)) {
        round += 1;
        assert!(round < ROUNDS_MAX, "a hot item is plain soon");
        for number in 0..KEYS / 4 {
            store(&mut worker, &key_of(KEYS + number), &value_of(number, round));
            if number % 64 == 0 {
                for hot in &hot {
                    let key = key_of(*hot);
                    if let Some(hit) = worker.get(cache.hash(&key), &key)
                        && let Value::Compressed(stored) = hit.value()
                    {
                        worker.expand(hit.at, stored);
                    }
                }
                worker.quiesce();
                cache.tend();
            }
        }
    }
    assert!(cache.totals().expanded > 0);

    let cache = Cache::new(options()).expect("a small cache can be made");
    let (mut worker, mut random) = (cache.worker(), 1u64);
    for number in 0..4 * KEYS {
        let mut noise = [0; 200];
        for byte in &mut noise {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (random >> 56) as u8;
        }
        let key = key_of(number);
        store(&mut worker, &key, &noise);
        _ = worker.get(cache.hash(&key), &key);
        if number % 64 == 0 {
            worker.quiesce();
            cache.tend();
        }
    }
    let totals = cache.totals();
    assert_eq!((totals.compressed, cache.compression_stats().compressed_items), (0, 0));
    assert!(totals.compress_refused < 1000, "{} values were tried", totals.compress_refused);
}

/// Values of another application: nothing that they have in common is in those of [`value_of`].
fn reading_of(number: u64, round: u64) -> Vec<u8> {
    let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 ^ round;
    let unit = ["KELVIN", "PASCAL", "VOLT"][(number % 3) as usize];
    let site = number % 97;
    let reading =
        format!("SENSOR\t{number}\tROUND\t{round}\tUNIT\t{unit}\tREADING\t{random}\tSITE\tNORTH-{site}");
    [reading.as_bytes(), b"\tSTATUS\tCALIBRATED\tOWNER\tMETROLOGY\tINTERVAL\tHOURLY"].concat()
}

#[test]
fn values_that_change_altogether_get_another_dictionary() {
    let cache = Cache::new(options()).expect("it can be made");
    let mut worker = cache.worker();
    fill(&cache, &mut worker, 5000);
    let before = cache.totals().compressed;
    fill_with(reading_of, 0, &cache, &mut worker, before + 20_000, 0);
    let noise = |number: u64, round: u64| {
        let mut random = number << 20 ^ round;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 56) as u8
        };
        (0..200).map(|_| next()).collect()
    };
    // While nothing shrinks nothing changes; then the dictionary still fits.
    (0..3).for_each(|round| store_all(noise, 0, round, &cache, &mut worker));
    let before = cache.totals().compressed;
    fill_with(reading_of, 0, &cache, &mut worker, before + 20_000, 0);
}

#[test]
fn flash_has_compressed_values_that_outlive_the_process() {
    let device = MemoryDevice::new(64, 256);
    let open = || {
        let level = FlashLevel::from(tier::open(&device, Recover::Clean, None));
        Cache::with_flash(options(), Some(level)).expect("it can be made")
    };
    let (rounds, before);
    {
        let cache = open();
        let mut worker = cache.worker();
        cache.set_note(b"note");
        rounds = fill(&cache, &mut worker, 10_000);
        before = cache.flash_tier().expect("there is one").live_items();
        assert!(from_flash(&mut worker, &rounds) > 1000);
        drop(worker);
        cache.save_to_flash();
        cache.flash_tier().expect("there is one").close().expect("memory does not fail");
    }
    let cache = open();
    let mut worker = cache.worker();
    assert_eq!(cache.note(), b"note");
    assert!(cache.compression_stats().dictionaries_bytes > 0);
    assert!(from_flash(&mut worker, &rounds) > 1000, "of {before}");
    assert!(cache.totals().flash_hits > 1000);
    // The dictionaries are damaged: nothing can be expanded, and their numbers are given to no other one.
    let numbers: Vec<u8> = cache.compression_stats().dictionaries.iter().map(|of| of.number).collect();
    let damaged = |number: &u8| [&[*number][..], &[1; 8], &2000u32.to_le_bytes(), &[7; 2000]].concat();
    let damaged = [vec![0, 0], numbers.iter().flat_map(damaged).collect()].concat();
    drop(worker);
    let flash = cache.flash_tier().expect("there is one").clone();
    flash.set_note(&damaged);
    flash.close().expect("memory does not fail");
    let cache = open();
    let mut worker = cache.worker();
    _ = from_flash(&mut worker, &rounds);
    assert!(cache.totals().flash_misses > 1000);
    fill_from(KEYS, &cache, &mut worker, 10_000);
    assert!(cache.compression_stats().dictionaries.iter().all(|of| !numbers.contains(&of.number)));
    _ = from_flash(&mut worker, &rounds);
}

/// How many keys flash answers, all of them rightly.
fn from_flash(worker: &mut Worker, rounds: &HashMap<u64, u64>) -> usize {
    let mut found = 0;
    for (number, round) in rounds {
        let key = key_of(*number);
        let hash = worker.cache().hash(&key);
        if worker.flash_may_hold(hash, &key)
            && let Some(item) = tier::fetch(worker, hash, &key)
        {
            assert_eq!(item.value, value_of(*number, *round), "{number}");
            assert_eq!(item.value_bytes as usize, item.value.len());
            assert!(!item.state.extension().is_compressed);
            found += 1;
        }
    }
    found
}

#[test]
fn a_kept_memory_has_compressed_values_and_their_dictionaries() {
    let Some(files) = Files::new("compress") else { return };
    let (path, copy) = (files.path("items"), files.path("copy"));
    let open = |path: &Path| {
        Cache::new(CacheOptions { keep: Some(path.to_owned()), ..options() }).expect("it can be made")
    };
    let cache = open(&path);
    let mut worker = cache.worker();
    let rounds = fill(&cache, &mut worker, 10_000);
    let found = compressed(&worker, &rounds);
    assert!(found.len() > 1000);
    // What a process leaves that is killed now.
    std::fs::copy(&path, &copy).expect("there is room for a copy");
    let killed = open(&copy);
    let recovered = killed.recovered().expect("memory is kept");
    assert_eq!((recovered.lost, recovered.damaged_columns), (0, 0));
    let mut again = killed.worker();
    assert_eq!(compressed(&again, &rounds), found);
    assert_eq!(killed.live_in_columns(), killed.memory_use().items_bytes);
    // It goes on with the dictionaries that it has.
    let before = killed.totals().compressed;
    let rounds_after = fill(&killed, &mut again, before + 10_000);
    assert!(compressed(&again, &rounds_after).len() > 1000);
    // A dictionary is damaged: what needs it is lost.
    drop((again, killed, worker, cache));
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it can be opened");
    file.write_all_at(b"damage", FIRST_DICTIONARY_AT + 1000).expect("it can be written");
    let damaged = open(&path);
    assert!(damaged.recovered().is_some_and(|recovered| recovered.lost > 1000));
    assert!(compressed(&damaged.worker(), &rounds).len() < found.len());
}
