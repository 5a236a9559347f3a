//! The cache through its public API, mostly on one thread, with the keeper called by the test or running as a thread.

use larder_cache::*;
use std::sync::Arc;
use std::time::Duration;

fn cache(limit_mib: u64) -> Arc<Cache> {
    Cache::new(CacheOptions {
        limit_bytes: limit_mib << 20,
        workers: 2,
        seed: Some(1),
        ..CacheOptions::default()
    })
    .expect("a small cache can be made")
}

fn store<'a>(cache: &Cache, key: &'a [u8], value: &'a [u8]) -> Store<'a> {
    Store::set(key, cache.hash(key), value)
}

fn delete<'a>(cache: &Cache, key: &'a [u8]) -> Delete<'a> {
    Delete::of(key, cache.hash(key))
}

fn get(worker: &Worker, key: &[u8]) -> Option<Vec<u8>> {
    let hit = worker.get(worker.cache().hash(key), key)?;
    let mut value = Vec::new();
    worker.copy_value(&hit, &mut value);
    Some(value)
}

fn set(worker: &mut Worker, key: &[u8], value: &[u8]) -> StoreOutcome {
    let cache = worker.cache().clone();
    worker.store(&store(&cache, key, value))
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux tells how large a process is");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages") * 4096
}

fn is_stored(outcome: StoreOutcome) -> bool {
    matches!(outcome, StoreOutcome::Stored { .. })
}

#[test]
fn a_batch_finds_what_each_get_finds() {
    // As full as the index gets: one key in seven is in a sub-bucket.
    let options =
        CacheOptions { limit_bytes: 64 << 20, hashpower: Some(3), seed: Some(1), ..CacheOptions::default() };
    let cache = Cache::new(options).expect("a small cache can be made");
    cache.clock().hold();
    let mut worker = cache.worker();
    let keys: Vec<Vec<u8>> = (0..30_000u32).map(|number| format!("key {number}").into_bytes()).collect();
    let expiry = Expiry::at_s(cache.clock().now_s() + 5);
    for (number, key) in keys.iter().enumerate() {
        // Values behind the key, values of several lines, values apart from the key. Every fifth key is absent, and
        // every seventh expires.
        let value = vec![number as u8; [10, 200, 1500][number % 3]];
        let expiry = if number % 7 == 0 { expiry } else { Expiry::NEVER };
        if number % 5 != 0 {
            assert!(is_stored(worker.store(&Store { expiry, ..store(&cache, key, &value) })));
        }
        if number % 64 == 0 {
            worker.quiesce();
        }
    }
    cache.clock().shift(6);
    let mut batch = GetBatch::default();
    let (mut first, mut size) = (0, 1);
    while first + size <= keys.len() {
        let keys = &keys[first..first + size];
        let mut found = vec![None; size];
        let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        batch.get(&worker, &asked, |at, hit| {
            let value = hit.map(|hit| {
                let mut value = Vec::new();
                worker.copy_value(&hit, &mut value);
                value
            });
            assert!(found[at].replace(value).is_none(), "key {at} of {size} was told twice");
        });
        for (at, key) in keys.iter().enumerate() {
            let number = first + at;
            let alone = get(&worker, key);
            assert_eq!(alone.is_some(), number % 5 != 0 && number % 7 != 0, "key {number}");
            assert_eq!(found[at], Some(alone), "key {number}, in a batch of {size}");
        }
        first += size;
        size = size % GetBatch::KEYS_MAX + 1;
        worker.quiesce();
    }
}

/// A limit, in MiB, that leaves columns for little more than the set that is overwritten.
const TIGHT_MIB: u64 = 17;

/// Overwrites a set of 8 MB, in order or at random, until more than twice as much was stored as `limit_mib` would hold.
/// The cache must not grow to the limit, lose an item, or lose track of a column.
fn overwrite_a_small_set(limit_mib: u64, is_drawn: bool, evict: bool, temperature: TemperatureKind) {
    const KEYS: u64 = 20_000;
    let options = CacheOptions {
        limit_bytes: limit_mib << 20,
        evict,
        seed: Some(1),
        temperature,
        ..CacheOptions::default()
    };
    let cache = Cache::new(options).expect("a small cache can be made");
    let mut worker = cache.worker();
    let mut versions = vec![0u32; KEYS as usize];
    let (mut lot, mut stored) = (1u64, 0u64);
    let mut highest = 0;
    // Large values are never moved, so some columns hold chunks that have to stay.
    let large: Vec<Vec<u8>> = (0..10u8).map(|n| vec![n; 100_000 + 7_777 * usize::from(n)]).collect();
    for turn in 0..40 * KEYS {
        lot = lot.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let number = if is_drawn && turn >= KEYS { (lot >> 33) % KEYS } else { turn % KEYS } as usize;
        versions[number] += 1;
        let mut value = [b'v'; 360];
        value[..4].copy_from_slice(&versions[number].to_le_bytes());
        assert!(is_stored(set(&mut worker, format!("key {number}").as_bytes(), &value)), "turn {turn}");
        stored += value.len() as u64;
        if turn < 10 {
            let value = &large[turn as usize];
            assert!(is_stored(set(&mut worker, format!("large {turn}").as_bytes(), value)));
        }
        if turn % 64 == 0 {
            worker.quiesce();
            cache.tend();
            highest = highest.max(cache.memory_use().columns_bytes);
        }
    }
    let live = KEYS * 400 + large.iter().map(Vec::len).sum::<usize>() as u64;
    assert!(stored > (2 * limit_mib) << 20);
    // At random, the columns in use come to 2.4 times the live bytes. Open and returning columns come on top.
    assert!(highest < live * 3 + (6 << 20), "{highest} bytes of columns for {live} live ones");
    assert_eq!(cache.totals().evictions, 0, "{temperature:?}, {} MB of columns", highest >> 20);
    let facts = cache.temperature_stats();
    let columns = facts.probation_columns + facts.main_columns;
    assert!(columns <= 2 * highest / u64::from(cache.column_bytes()) + 64, "{columns} columns are known");
    for (number, version) in versions.iter().enumerate() {
        let value = get(&worker, format!("key {number}").as_bytes());
        assert_eq!(value.expect("nothing was evicted")[..4], version.to_le_bytes(), "key {number}");
    }
    for (number, value) in large.iter().enumerate() {
        assert_eq!(get(&worker, format!("large {number}").as_bytes()).as_ref(), Some(value));
    }
}

#[test]
fn a_small_set_that_is_overwritten_in_order_stays_small() {
    overwrite_a_small_set(128, false, true, TemperatureKind::ENTRY);
}

#[test]
fn a_small_set_that_is_overwritten_at_random_stays_small() {
    for temperature in TemperatureKind::ALL {
        overwrite_a_small_set(128, true, true, temperature);
    }
    overwrite_a_small_set(128, true, false, TemperatureKind::ENTRY);
}

#[test]
fn a_set_that_is_overwritten_at_random_needs_little_more_room_than_it_has_items() {
    for temperature in TemperatureKind::ALL {
        // The hitmap takes a part of the limit.
        let more_mib = u64::from(temperature != TemperatureKind::ENTRY);
        overwrite_a_small_set(TIGHT_MIB + more_mib, true, true, temperature);
    }
    overwrite_a_small_set(TIGHT_MIB, true, false, TemperatureKind::ENTRY);
}

/// A pass moves items out of a column until it meets a part of a large value, which stays. When the large value is
/// gone, the column comes back.
#[test]
fn without_eviction_every_column_comes_back_when_what_was_not_moved_is_gone() {
    const KEYS: u32 = 20_000;
    let options =
        CacheOptions { limit_bytes: 20 << 20, evict: false, seed: Some(1), ..CacheOptions::default() };
    let cache = Cache::new(options).expect("a small cache can be made");
    let mut worker = cache.worker();
    let small = [b'v'; 360];
    let mut lot = 1u64;
    for turn in 0..12 * KEYS {
        lot = lot.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let number = if turn < KEYS { turn } else { (lot >> 33) as u32 % KEYS };
        let outcome = set(&mut worker, format!("small {number}").as_bytes(), &small);
        assert!(is_stored(outcome), "turn {turn}: {outcome:?}");
        // Chunks are in many columns.
        if turn < KEYS && turn % 200 == 0 {
            set(&mut worker, format!("large {}", turn / 200).as_bytes(), &[b'l'; 5_000]);
        }
        if turn % 16 == 0 {
            worker.quiesce();
            cache.tend();
        }
        if turn % 5000 == 0 {
            assert_eq!(cache.live_in_columns(), cache.memory_use().items_bytes, "turn {turn}");
        }
    }
    let small_keys = (0..KEYS).map(|number| format!("small {number}"));
    for key in small_keys.chain((0..KEYS / 200).map(|number| format!("large {number}"))) {
        worker.delete(&delete(&cache, key.as_bytes()));
    }
    for _ in 0..100 {
        worker.quiesce();
        cache.tend();
    }
    assert_eq!(cache.items(), 0);
    // As many items as fit into an empty cache of this size.
    let mut fits = 0;
    while is_stored(set(&mut worker, format!("later {fits}").as_bytes(), &small)) {
        fits += 1;
        worker.quiesce();
    }
    let fresh = Cache::new(CacheOptions {
        limit_bytes: 20 << 20,
        evict: false,
        seed: Some(1),
        ..CacheOptions::default()
    })
    .expect("a small cache can be made");
    let mut worker = fresh.worker();
    let mut fits_fresh = 0;
    while is_stored(set(&mut worker, format!("later {fits_fresh}").as_bytes(), &small)) {
        fits_fresh += 1;
    }
    assert!(fits * 100 > fits_fresh * 98, "{fits} items where {fits_fresh} fit at first");
}

#[test]
fn what_was_set_is_got_and_what_was_deleted_is_not() {
    let cache = cache(16);
    let mut worker = cache.worker();
    assert!(get(&worker, b"k").is_none());
    assert!(is_stored(set(&mut worker, b"k", b"one")));
    assert!(is_stored(set(&mut worker, b"k", b"two")));
    assert_eq!(get(&worker, b"k").unwrap(), b"two");
    let delete = delete(&cache, b"k");
    assert_eq!(worker.delete(&delete), DeleteOutcome::Deleted);
    assert_eq!(worker.delete(&delete), DeleteOutcome::NotFound);
    assert!(get(&worker, b"k").is_none());
}

#[test]
fn values_of_every_size_come_back_whole() {
    let cache = Cache::new(CacheOptions {
        limit_bytes: 64 << 20,
        item_bytes_max: 20 << 20,
        workers: 1,
        ..CacheOptions::default()
    })
    .unwrap();
    let mut worker = cache.worker();
    let bytes: Vec<u8> = (0..5_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for length in
        [0, 1, 63, 64, 511, 512, 513, 4095, 8191, 8192, 8193, 16384, 16385, 32767, 100_000, 5_000_000]
    {
        let key = format!("length-{length}");
        assert!(is_stored(set(&mut worker, key.as_bytes(), &bytes[..length])), "{length}");
        assert!(get(&worker, key.as_bytes()).unwrap() == bytes[..length], "{length}");
    }
    // Appends to a short value, which becomes a chain, and to a long one.
    let append = |key| Store { mode: Mode::Append, ..store(&cache, key, &bytes[..20_000]) };
    assert!(is_stored(worker.store(&append(b"length-1"))));
    let mut expected = bytes[..1].to_vec();
    expected.extend_from_slice(&bytes[..20_000]);
    assert!(get(&worker, b"length-1").unwrap() == expected);
    assert!(is_stored(worker.store(&append(b"length-1"))));
    assert_eq!(get(&worker, b"length-1").unwrap().len(), 40_001);
}

#[test]
fn a_full_cache_evicts_and_keeps_what_is_read() {
    let cache = cache(16);
    let mut worker = cache.worker();
    let value = vec![b'v'; 1000];
    assert!(is_stored(set(&mut worker, b"favourite", b"mine")));
    for n in 0..100_000u32 {
        assert!(is_stored(set(&mut worker, format!("key-{n}").as_bytes(), &value)), "{n}");
        if n % 100 == 0 {
            worker.quiesce();
            assert_eq!(get(&worker, b"favourite").as_deref(), Some(&b"mine"[..]), "after {n}");
        }
    }
    let totals = cache.totals();
    assert!(totals.evictions > 50_000, "{totals:?}");
    assert!(cache.items() > 8_000, "{} items of 1000 bytes in 16 MiB", cache.items());
    let used = cache.memory_use();
    assert!(used.columns_bytes + used.index_bytes <= used.limit_bytes, "{used:?}");
    let live =
        (0..100_000u32).filter(|n| get(&worker, format!("key-{n}").as_bytes()).is_some()).count() as u64;
    assert_eq!(live + 1, cache.items());
}

#[test]
fn what_is_evicted_is_counted_by_how_long_nobody_asked_for_it() {
    let cache = cache(16);
    cache.clock().hold();
    let mut worker = cache.worker();
    let value = vec![b'v'; 1000];
    let expiry = Expiry::at_s(cache.clock().now_s() + 10_000);
    for n in 0..3_000u32 {
        let key = format!("old-{n}");
        let expiry = if n % 2 == 0 { expiry } else { Expiry::NEVER };
        assert!(is_stored(worker.store(&Store { expiry, ..store(&cache, key.as_bytes(), &value) })));
        worker.quiesce();
    }
    cache.clock().shift(100);
    // A column in which nothing was stored for a minute is not kept open.
    (0..=60).for_each(|_| worker.tick());
    assert_eq!((cache.age_s(), cache.totals().evicted_idle_s), (100, 0));
    for n in 0..60_000u32 {
        set(&mut worker, format!("new-{n}").as_bytes(), &value);
        worker.quiesce();
    }
    let totals = cache.totals();
    assert!(totals.evictions > 40_000);
    let stayed = |parity: u32| {
        let here = |n: &u32| get(&worker, format!("old-{n}").as_bytes()).is_some();
        (0..3_000).filter(|n| n % 2 == parity).filter(here).count() as u64
    };
    let (stayed_expiring, stayed_forever) = (stayed(0), stayed(1));
    assert!(stayed_expiring + stayed_forever < 100);
    assert_eq!(totals.evicted_nonzero, 1_500 - stayed_expiring);
    assert_eq!(totals.evicted_idle_s, 100 * (3_000 - stayed_expiring - stayed_forever));
    assert_eq!((cache.evicted_idle_s(), cache.age_s()), (0, 0));
}

#[test]
fn a_write_gives_up_when_another_worker_stands_still_and_goes_on_when_it_moves() {
    let cache = cache(16);
    let mut worker = cache.worker();
    // The columns that it looked something up in before it stood still are not reused.
    let mut still = cache.worker();
    let value = [b'v'; 1000];
    let mut number = 0;
    let mut set_next = |worker: &mut Worker| {
        number += 1;
        set(worker, format!("key {number}").as_bytes(), &value)
    };
    loop {
        match set_next(&mut worker) {
            StoreOutcome::NoRoom => break,
            outcome => assert!(is_stored(outcome), "{outcome:?}"),
        }
    }
    still.offline();
    assert!((0..20_000).all(|_| is_stored(set_next(&mut worker))));
}

#[test]
fn without_eviction_a_full_cache_refuses_and_loses_nothing() {
    let cache = Cache::new(CacheOptions {
        limit_bytes: 16 << 20,
        evict: false,
        workers: 1,
        ..CacheOptions::default()
    })
    .unwrap();
    let mut worker = cache.worker();
    let value = vec![b'v'; 1000];
    let stored = (0..100_000u32)
        .take_while(|n| is_stored(set(&mut worker, format!("key-{n}").as_bytes(), &value)))
        .count() as u32;
    assert!((8_000..16_000).contains(&stored), "{stored}");
    assert_eq!(set(&mut worker, b"more", &value), StoreOutcome::NoRoom);
    for n in 0..stored {
        assert!(get(&worker, format!("key-{n}").as_bytes()).is_some(), "{n} of {stored}");
    }
    // Deleted items make room again.
    for n in 0..stored / 2 {
        let key = format!("key-{n}");
        let delete = delete(&cache, key.as_bytes());
        assert_eq!(worker.delete(&delete), DeleteOutcome::Deleted);
    }
    assert!(is_stored(set(&mut worker, b"more", &value)));
}

#[test]
fn without_eviction_a_limit_that_cannot_be_met_makes_no_store_wait() {
    let options = CacheOptions { limit_bytes: 32 << 20, evict: false, workers: 1, ..CacheOptions::default() };
    let cache = Cache::new(options).unwrap();
    let keeper = cache.keep().unwrap();
    let mut worker = cache.worker();
    let value = vec![b'v'; 1000];
    let stored = (0..100_000u32)
        .take_while(|n| is_stored(set(&mut worker, format!("key-{n}").as_bytes(), &value)))
        .count() as u32;
    // No column is sparse enough to be worth a move, although more than a tenth of all bytes is dead.
    for n in (0..stored).step_by(7) {
        assert_eq!(worker.delete(&delete(&cache, format!("key-{n}").as_bytes())), DeleteOutcome::Deleted);
    }
    worker.quiesce();
    assert!(cache.set_limit(16 << 20));
    // What was deleted may give room to as many.
    let mut more =
        (0..=stored / 7).skip_while(|n| is_stored(set(&mut worker, format!("other-{n}").as_bytes(), &value)));
    assert!(more.next().is_some(), "no store is refused");
    drop(more);
    // Once the keeper has found that there is nothing to free, a store is refused after a look or two. One that waits
    // looks for room for a second. While the keeper tries to empty a slab, a store waits for it.
    const TRIES: u32 = 400;
    const LOOKS_MAX: u64 = 20;
    let is_refused_at_once = |n| {
        let before = worker.quiesced();
        let is_refused = !is_stored(set(&mut worker, format!("more-{n}").as_bytes(), &value));
        is_refused && worker.quiesced() - before <= LOOKS_MAX
    };
    assert!((0..TRIES).any(is_refused_at_once), "each of {TRIES} stores waited");
    worker.offline();
    cache.stop_keeper();
    keeper.join().unwrap();
}

#[test]
fn expired_items_are_never_served_and_leave_in_the_pass() {
    let cache = cache(16);
    cache.clock().hold();
    let mut worker = cache.worker();
    let now_s = cache.clock().now_s();
    for n in 0..1000u32 {
        let key = format!("short-{n}");
        let expiry = Expiry::at_s(now_s + 10);
        assert!(is_stored(worker.store(&Store { expiry, ..store(&cache, key.as_bytes(), b"v") })));
    }
    cache.clock().shift(9);
    assert!(get(&worker, b"short-1").is_some());
    assert_eq!(worker.touch(cache.hash(b"short-2"), b"short-2", Expiry::at_s(now_s + 100)), Touched::Done);
    assert_eq!(worker.touch(cache.hash(b"short-3"), b"short-3", Expiry::NEVER), Touched::Done);
    cache.clock().shift(1);
    assert!(get(&worker, b"short-1").is_none());
    assert!(get(&worker, b"short-2").is_some() && get(&worker, b"short-3").is_some());
    // A column in which nothing was stored for a minute is not kept open.
    (0..=60).for_each(|_| worker.tick());
    let value = vec![b'v'; 1000];
    for n in 0..40_000u32 {
        set(&mut worker, format!("fill-{n}").as_bytes(), &value);
        worker.quiesce();
    }
    assert!(cache.totals().reclaimed >= 998, "{:?}", cache.totals());
}

#[test]
fn a_touch_gives_an_item_an_expiry_it_had_no_word_for() {
    let cache = cache(16);
    cache.clock().hold();
    let mut worker = cache.worker();
    set(&mut worker, b"k", b"v");
    let cas = worker.get(cache.hash(b"k"), b"k").unwrap().cas();
    let expiry = Expiry::at_s(cache.clock().now_s() + 5);
    assert_eq!(worker.touch(cache.hash(b"k"), b"k", expiry), Touched::Done);
    let hit = worker.get(cache.hash(b"k"), b"k").unwrap();
    assert_eq!((hit.expiry(), hit.cas()), (expiry, cas), "a touch keeps the CAS number");
}

#[test]
fn a_flush_takes_everything_stored_before_it_and_nothing_after() {
    let cache = cache(16);
    cache.clock().hold();
    let mut worker = cache.worker();
    let mut other = cache.worker();
    set(&mut worker, b"a", b"1");
    set(&mut other, b"b", b"2");
    cache.flush(None);
    assert!(get(&worker, b"a").is_none() && get(&worker, b"b").is_none());
    set(&mut worker, b"a", b"3");
    assert_eq!(get(&other, b"a").unwrap(), b"3");
    let due_s = cache.clock().now_s() + 5;
    cache.flush(Some(due_s));
    assert!(get(&worker, b"a").is_some());
    cache.clock().shift(5);
    cache.tick();
    assert!(get(&worker, b"a").is_none());
    assert!(matches!(
        worker.store(&Store { mode: Mode::Add, ..store(&cache, b"a", b"4") }),
        StoreOutcome::Stored { .. }
    ));
}

#[test]
fn compare_and_swap_and_the_stale_protocol() {
    let cache = cache(16);
    let mut worker = cache.worker();
    set(&mut worker, b"k", b"v");
    let cas = worker.get(cache.hash(b"k"), b"k").unwrap().cas();
    let with = |compare| Store { compare: Some(compare), ..store(&cache, b"k", b"w") };
    assert_eq!(worker.store(&with(cas + 1)), StoreOutcome::Exists);
    assert!(is_stored(worker.store(&with(cas))));
    assert_eq!(worker.store(&with(cas)), StoreOutcome::Exists);
    assert_eq!(
        worker.store(&Store { compare: Some(1), ..store(&cache, b"absent", b"w") }),
        StoreOutcome::NotFound
    );
    // With `invalidate`, a lower number stores the value, but marks it as stale.
    assert!(is_stored(worker.store(&Store { invalidate: true, ..with(cas) })));
    let hit = worker.get(cache.hash(b"k"), b"k").unwrap();
    assert!(hit.item.state().has(State::STALE));
    assert!(
        worker.claim_token(cache.hash(b"k"), b"k") && !worker.claim_token(cache.hash(b"k"), b"k"),
        "only the first claim wins"
    );
    set(&mut worker, b"k", b"fresh");
    assert!(!worker.get(cache.hash(b"k"), b"k").unwrap().item.state().has(State::STALE));
}

#[test]
fn counting_wraps_up_and_stops_at_zero() {
    let cache = cache(16);
    let mut worker = cache.worker();
    set(&mut worker, b"n", b"10");
    let arith = |increment, delta| Arith::of(b"n", cache.hash(b"n"), increment, delta);
    let number = |outcome| match outcome {
        ArithOutcome::Done { value, .. } => value,
        other => panic!("{other:?}"),
    };
    assert_eq!(number(worker.arith(&arith(false, 1))), 9);
    assert_eq!(get(&worker, b"n").unwrap(), b"9 ", "the old length is kept");
    assert_eq!(number(worker.arith(&arith(true, 991))), 1000);
    assert_eq!(number(worker.arith(&arith(false, 5000))), 0);
    assert_eq!(number(worker.arith(&arith(true, u64::MAX))), u64::MAX);
    assert_eq!(number(worker.arith(&arith(true, 2))), 1);
    set(&mut worker, b"n", b"x1");
    assert_eq!(worker.arith(&arith(true, 1)), ArithOutcome::NonNumeric);
}

#[test]
fn an_abandoned_upload_leaves_nothing_behind() {
    let cache = cache(16);
    let mut worker = cache.worker();
    let piece = vec![7u8; 50_000];
    for round in 0..400 {
        let mut upload =
            worker.begin_upload(cache.hash(b"big"), 200_000).unwrap_or_else(|| panic!("round {round}"));
        assert!(worker.fill_upload(&mut upload, &piece));
        assert_eq!(upload.missing_bytes(), 150_000);
        worker.abandon_upload(upload);
        worker.quiesce();
    }
    assert!(get(&worker, b"big").is_none());
    assert_eq!(cache.items(), 0);
}

#[test]
fn small_items_find_room_beside_large_values_that_come_slowly() {
    let cache = cache(64);
    let mut worker = cache.worker();
    let piece = [b'v'; 8 << 10];
    // Values that come and go, so that the chunks of the slow ones are not side by side.
    let quick = [b'q'; 50_000];
    let mut uploads: Vec<(usize, Upload)> = Vec::new();
    let (mut begun, mut refused) = (0, 0);
    for round in 0..40 {
        for number in uploads.len()..100 {
            uploads.extend(worker.begin_upload(cache.hash(b"big"), 200_000).map(|upload| (number, upload)));
            begun += 1;
        }
        let mut left = Vec::new();
        for (number, mut upload) in uploads {
            let more = piece.len().min(upload.missing_bytes());
            if worker.fill_upload(&mut upload, &piece[..more]) {
                left.push((number, upload));
            } else {
                worker.abandon_upload(upload);
                refused += 1;
            }
            assert!(is_stored(set(&mut worker, b"quick", &quick)), "round {round}, {number}");
            for nth in 0..70 {
                let key = format!("small {round} {number} {nth}");
                assert!(is_stored(set(&mut worker, key.as_bytes(), &piece[..900])), "{key}");
            }
            worker.quiesce();
            cache.tend();
        }
        uploads = left;
    }
    assert!(refused > 0, "{begun} uploads left room for everything");
    assert!(!uploads.is_empty(), "some are let through");
    uploads.into_iter().for_each(|(_, upload)| worker.abandon_upload(upload));
}

#[test]
fn what_is_added_to_a_large_value_stands_before_or_behind_it() {
    let cache = cache(64);
    let mut worker = cache.worker();
    let mut expected: Vec<u8> = Vec::new();
    let upload_of = |worker: &mut Worker, store: &Store<'_>, value: &[u8]| {
        let mut upload = worker.begin_upload(store.hash, value.len() as u32).expect("there is room");
        assert!(worker.fill_upload(&mut upload, value));
        worker.complete_upload(upload, store)
    };
    assert!(is_stored(set(&mut worker, b"key", b"")));
    let sizes = [70_000usize, 3, 100_000, 16_384, 1, 200_000];
    for (nth, &size) in sizes.iter().cycle().take(24).enumerate() {
        let value: Vec<u8> = (0..size).map(|byte| (byte * 7 + nth) as u8).collect();
        let mode = if nth % 4 < 2 { Mode::Append } else { Mode::Prepend };
        if mode == Mode::Append {
            expected.extend_from_slice(&value);
        } else {
            expected.splice(..0, value.iter().copied());
        }
        let is_upload = nth % 2 == 0;
        let wanted = Store { mode, flags: 7, ..store(&cache, b"key", if is_upload { b"" } else { &value }) };
        let outcome = if is_upload { upload_of(&mut worker, &wanted, &value) } else { worker.store(&wanted) };
        let StoreOutcome::Stored { value_bytes, .. } = outcome else { panic!("{nth}: {outcome:?}") };
        assert_eq!(value_bytes as usize, expected.len());
        assert!(get(&worker, b"key").as_deref() == Some(&expected[..]), "{mode:?} {size}");
        worker.quiesce();
        cache.tend();
        if expected.len() > 900_000 {
            expected.clear();
            assert!(is_stored(set(&mut worker, b"key", b"")));
        }
    }
    // Marking as stale writes the item anew as well.
    let delete = Delete { invalidate: true, ..delete(&cache, b"key") };
    assert_eq!(worker.delete(&delete), DeleteOutcome::Deleted);
    assert!(get(&worker, b"key").as_deref() == Some(&expected[..]));
    // Nothing is pinned any more, so everything goes.
    cache.flush(None);
    worker.quiesce();
    drop(worker);
    (0..3).for_each(|_| cache.tend());
    assert_eq!((cache.live_in_columns(), cache.memory_use().items_bytes), (0, 0));
}

/// Two workers append large and small values to the same item: each value arrives whole and once, and an append that
/// had to be repeated leaves nothing behind.
#[test]
fn appends_that_meet_are_done_over_and_leave_nothing_behind() {
    const ROUNDS: usize = 400;
    /// With the large values they are less than the largest item, however long the large ones take.
    const SMALL_MAX: usize = 100_000;
    let options = CacheOptions {
        limit_bytes: 64 << 20,
        workers: 2,
        evict: false,
        seed: Some(1),
        ..CacheOptions::default()
    };
    let cache = Cache::new(options).expect("a small cache can be made");
    let append = |value| Store { mode: Mode::Append, ..store(&cache, b"key", value) };
    let mut large = cache.worker();
    let mut small = cache.worker();
    for _ in 0..10 {
        assert!(is_stored(set(&mut large, b"key", b"")));
        large.offline();
        let is_done = std::sync::atomic::AtomicBool::new(false);
        let (large_done, small_done) = std::thread::scope(|scope| {
            let large_done = scope.spawn(|| {
                large.online();
                let value = [b'L'; 20_000];
                for _ in 0..ROUNDS / 10 {
                    let mut upload = large.begin_upload(cache.hash(b"key"), value.len() as u32).unwrap();
                    assert!(large.fill_upload(&mut upload, &value));
                    let outcome = large.complete_upload(upload, &append(b""));
                    assert!(is_stored(outcome), "{outcome:?}");
                    large.quiesce();
                }
                is_done.store(true, std::sync::atomic::Ordering::Relaxed);
                large.offline();
                ROUNDS / 10
            });
            let mut small_done = 0;
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                if small_done < SMALL_MAX {
                    let began = std::time::Instant::now();
                    let outcome = small.store(&append(b"s"));
                    assert!(is_stored(outcome), "{outcome:?} after {small_done}, {:?}", began.elapsed());
                    small_done += 1;
                }
                small.quiesce();
            }
            small.offline();
            (large_done.join().unwrap(), small_done)
        });
        large.online();
        let value = get(&large, b"key").expect("nothing is evicted");
        let larges = value.iter().filter(|&&byte| byte == b'L').count();
        assert_eq!((larges, value.len() - larges), (large_done * 20_000, small_done));
        assert!(
            value.split(|&byte| byte == b's').all(|run| run.len().is_multiple_of(20_000)),
            "a part is torn"
        );
        large.quiesce();
        assert_eq!(cache.live_in_columns(), cache.memory_use().items_bytes);
        large.offline();
        cache.tend();
        small.online();
        large.online();
    }
}

#[test]
fn a_large_read_goes_on_to_its_end_when_its_item_is_replaced() {
    let cache = cache(16);
    let mut worker = cache.worker();
    let big: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    assert!(is_stored(set(&mut worker, b"big", &big)));
    let mut read = {
        let hit = worker.get(cache.hash(b"big"), b"big").unwrap();
        worker.begin_large_read(&hit).unwrap()
    };
    let mut out = Vec::new();
    assert!(worker.continue_large_read(&mut read, 1000, &mut out));
    set(&mut worker, b"big", b"small now");
    let value = vec![b'v'; 1000];
    for n in 0..60_000u32 {
        set(&mut worker, format!("fill-{n}").as_bytes(), &value);
        worker.quiesce();
    }
    while worker.continue_large_read(&mut read, 10_000, &mut out) {}
    worker.end_large_read(read);
    assert!(out == big);
}

#[test]
fn a_lower_limit_gives_slabs_back() {
    let cache = cache(64);
    let keeper = cache.keep().unwrap();
    let mut worker = cache.worker();
    let value = vec![b'v'; 1000];
    for n in 0..100_000u32 {
        set(&mut worker, format!("fill-{n}").as_bytes(), &value);
        worker.quiesce();
    }
    assert!(cache.memory_use().columns_bytes > 40 << 20);
    assert!(cache.set_limit(24 << 20));
    worker.offline();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while cache.memory_use().columns_bytes > 24 << 20 && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    worker.online();
    assert!(cache.memory_use().columns_bytes <= 24 << 20, "{:?}", cache.memory_use());
    assert!(is_stored(set(&mut worker, b"still", b"works")));
    assert_eq!(get(&worker, b"still").unwrap(), b"works");
    cache.stop_keeper();
    keeper.join().unwrap();
}

#[test]
fn items_have_what_connections_do_not_need_and_give_it_back() {
    let columns_bytes = |lends_buffers, evict| {
        let options = CacheOptions {
            limit_bytes: 64 << 20,
            lends_buffers,
            evict,
            seed: Some(1),
            ..CacheOptions::default()
        };
        let cache = Cache::new(options).unwrap();
        let used = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(1 << 20));
        let meter = used.clone();
        cache.measure_buffers_by(move || meter.load(std::sync::atomic::Ordering::Relaxed));
        let mut worker = cache.worker();
        let mut fill = || {
            for n in 0..100_000u32 {
                set(&mut worker, format!("fill-{n}").as_bytes(), &[b'v'; 1000]);
                worker.quiesce();
            }
            worker.offline();
            cache.tend();
            worker.online();
            cache.memory_use().columns_bytes
        };
        let before = fill();
        used.store(cache.memory_use().buffers_cap_bytes, std::sync::atomic::Ordering::Relaxed);
        (before, fill())
    };
    let (others, same) = columns_bytes(false, true);
    assert_eq!(others, same);
    assert_eq!(columns_bytes(true, true), (others + (2 << 20), others), "half of 4 MiB is lent");
    assert_eq!(columns_bytes(true, false), (others, others), "without eviction nothing could be taken back");
}

#[test]
fn a_lower_limit_leaves_most_of_what_it_allows_in_use() {
    let cache = cache(1024);
    let mut worker = cache.worker();
    assert!(cache.set_limit(24 << 20));
    let keys: Vec<String> = (0..6000).map(|n| format!("key-{n}")).collect();
    for key in &keys {
        assert!(is_stored(set(&mut worker, key.as_bytes(), &[7; 1000])));
        worker.quiesce();
        cache.tend();
    }
    let kept = keys.iter().filter(|key| get(&worker, key.as_bytes()).is_some()).count();
    assert!(kept == keys.len(), "{kept} of {}", keys.len());
}

#[test]
fn what_may_not_be_evicted_is_known_once_however_often_it_is_met() {
    let options =
        CacheOptions { limit_bytes: 64 << 20, evict: false, seed: Some(1), ..CacheOptions::default() };
    let cache = Cache::new(options).unwrap();
    let mut worker = cache.worker();
    let mut stored = 0;
    while is_stored(set(&mut worker, format!("key-{stored}").as_bytes(), &[7; 1000])) {
        stored += 1;
        worker.quiesce();
    }
    assert!(cache.set_limit(32 << 20));
    worker.offline();
    (0..500).for_each(|_| cache.tend());
    worker.online();
    let columns = cache.memory_use().columns_bytes / u64::from(cache.column_bytes());
    let known = cache.temperature_stats().probation_columns;
    assert!(known <= 2 * columns, "{known} for {columns} columns");
    assert!((0..stored).all(|n| get(&worker, format!("key-{n}").as_bytes()).is_some()));
}

#[test]
fn a_cache_is_as_large_as_its_limit_says() {
    for limit_log2 in [39, 40, 43] {
        let options = CacheOptions { limit_bytes: 1 << limit_log2, ..CacheOptions::default() };
        let cache = Cache::new(options).unwrap_or_else(|error| panic!("2^{limit_log2} bytes: {error}"));
        assert!(is_stored(set(&mut cache.worker(), b"key", b"value")));
        // What is kept for columns and buckets that were never used takes address space only. The slabs take a word of
        // bookkeeping each, and there are 2^24 of them at most.
        let bytes = resident_bytes();
        assert!(bytes < 2 << 30, "2^{limit_log2} bytes: {} MiB are resident", bytes >> 20);
    }
    let crowded = CacheOptions { limit_bytes: 8 << 20, workers: 64, ..CacheOptions::default() };
    let Err(error) = Cache::new(crowded) else { panic!("64 workers, 64 columns") };
    assert!(error.to_string().contains("(-t)"), "{error}");
}

#[test]
fn a_large_value_that_is_stored_after_a_flush_stays_though_it_began_before() {
    let cache = cache(64);
    let mut worker = cache.worker();
    let value: Vec<u8> = (0..500_000u32).map(|n| n as u8).collect();
    let mut upload = worker.begin_upload(cache.hash(b"big"), value.len() as u32).unwrap();
    assert!(worker.fill_upload(&mut upload, &value[..250_000]));
    cache.flush(None);
    assert!(worker.fill_upload(&mut upload, &value[250_000..]));
    assert!(is_stored(worker.complete_upload(upload, &store(&cache, b"big", b""))));
    for _ in 0..5 {
        worker.quiesce();
        cache.tend();
        assert!(get(&worker, b"big").as_deref() == Some(&value[..]));
    }
}

#[test]
fn what_is_derived_from_an_item_keeps_what_was_changed_meanwhile() {
    let cache = cache(64);
    let mut worker = cache.worker();
    let mut other = cache.worker();
    other.offline();
    let (value, more) = (vec![7; 100_000], vec![8; 1000]);
    for round in 0..300u32 {
        let (early, late) = (Expiry::at_s(1_000_000), Expiry::at_s(2_000_000 + round));
        assert!(is_stored(worker.store(&Store { expiry: early, ..store(&cache, b"key", &value) })));
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                // The copy takes some time, so in many rounds the last touch comes in the middle of it.
                let touches = 1 + round % 100;
                for left in (0..touches).rev() {
                    worker.touch(cache.hash(b"key"), b"key", Expiry::at_s(late.seconds() - left));
                    worker.quiesce();
                }
            });
            let joined = scope.spawn(|| {
                start.wait();
                other.online();
                let joined = other.store(&Store { mode: Mode::Append, ..store(&cache, b"key", &more) });
                other.offline();
                joined
            });
            assert!(is_stored(joined.join().unwrap()));
        });
        let hit = worker.get(cache.hash(b"key"), b"key").expect("it was stored");
        assert_eq!(hit.expiry(), late, "round {round}");
        worker.quiesce();
        cache.tend();
    }
}

#[test]
fn a_walk_lists_every_item() {
    let cache = cache(16);
    let mut worker = cache.worker();
    for n in 0..5000u32 {
        set(&mut worker, format!("key-{n}").as_bytes(), b"v");
    }
    let mut listed = Vec::new();
    let mut tour = worker.begin_tour();
    while worker.list(&mut tour, 100, Duration::ZERO, &mut listed) != Toured::End {}
    let mut keys: Vec<_> = listed.into_iter().map(|item| item.key).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 5000);
}
