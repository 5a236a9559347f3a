//! Namespaces: shares that the pass heeds, counters, and the longest time to live.

use larder_cache::*;
use std::sync::Arc;

fn cache(limit_mib: u64) -> Arc<Cache> {
    let options =
        CacheOptions { limit_bytes: limit_mib << 20, workers: 1, seed: Some(1), ..CacheOptions::default() };
    Cache::new(options).expect("a small cache can be made")
}

fn namespace(name: &str, least_percent: u8, most_percent: u8, ttl_max_s: u32) -> Namespace {
    Namespace { name: name.to_owned(), least_percent, most_percent, ttl_max_s }
}

fn set(worker: &mut Worker, key: &[u8], bytes: usize) {
    let hash = worker.cache().hash(key);
    let outcome = worker.store(&Store::set(key, hash, &vec![b'v'; bytes]));
    assert!(matches!(outcome, StoreOutcome::Stored { .. }), "{outcome:?}");
}

fn is_there(worker: &Worker, key: &[u8]) -> bool {
    worker.get(worker.cache().hash(key), key).is_some()
}

/// How many of the items of a quiet tenant, which nobody reads, are left after another one has stored eight times as
/// much as there is room for. `reads` is how often that one reads each of its items.
fn left_after_a_flood(namespaces: &[Namespace], reads: usize) -> (usize, Vec<NamespaceStats>) {
    let cache = cache(64);
    cache.set_namespaces(namespaces, b':').unwrap();
    let keeper = cache.keep().expect("a thread can be started");
    let mut worker = cache.worker();
    let key = |number: usize| format!("quiet:{number}").into_bytes();
    let loud = |number: usize| format!("loud:{number}").into_bytes();
    for number in 0..1_000_000usize {
        if number == 200_000 {
            // By now the index has grown, and takes no more room from the columns.
            for number in 0..QUIET {
                set(&mut worker, &key(number), 250);
                if number % 64 == 0 {
                    worker.quiesce();
                }
            }
        }
        set(&mut worker, &loud(number), 250);
        for ago in 0..reads {
            is_there(&worker, &loud(number.saturating_sub(1000 * ago)));
        }
        if number % 64 == 0 {
            worker.quiesce();
        }
    }
    worker.quiesce();
    let left = (0..QUIET).filter(|number| is_there(&worker, &key(*number))).count();
    worker.offline();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let stats = cache.namespaces();
    cache.stop_keeper();
    keeper.join().expect("the keeper does not panic");
    (left, stats)
}

const QUIET: usize = 60_000;

#[test]
fn a_flood_leaves_another_tenant_its_least_share() {
    let (left, _) = left_after_a_flood(&[], 0);
    assert!(left < QUIET / 2, "without a share most items go: {left} are left");
    for reads in [0, 2] {
        let (left, stats) = left_after_a_flood(&[namespace("quiet", 50, 100, 0)], reads);
        // While a slab is given back there may be no column to move items to, and some go although they have a share. A
        // writer that does nothing else meets that often in so small a cache.
        assert!(left >= QUIET * 2 / 3, "{left} are left with {reads} reads, {stats:?}");
        let quiet = &stats[0];
        assert!(quiet.items.abs_diff(left as u64) < QUIET as u64 / 8, "{quiet:?}");
        assert!(quiet.evictions as usize <= QUIET / 2 && quiet.sets == QUIET as u64, "{quiet:?}");
        assert!(quiet.bytes < quiet.share_bytes.0, "{quiet:?}");
    }
}

#[test]
fn a_tenant_above_its_most_share_goes_first() {
    let (left, stats) = left_after_a_flood(&[namespace("loud", 0, 40, 0)], 0);
    // Until the first estimate nobody knows that it is above.
    assert!(left >= QUIET / 2, "{left} are left, although they have no share of their own: {stats:?}");
    assert!(stats[0].bytes > stats[0].share_bytes.1, "nobody else wants the room: {stats:?}");
    assert!(stats[0].evictions > 600_000, "{stats:?}");
}

#[test]
fn items_live_no_longer_than_their_namespace_allows() {
    let cache = cache(32);
    cache.clock().hold();
    cache.set_namespaces(&[namespace("short", 0, 100, 100)], b':').unwrap();
    let mut worker = cache.worker();
    let expiry = |worker: &Worker, key: &[u8]| worker.peek(worker.cache().hash(key), key).unwrap().expiry();
    let now_s = cache.clock().now_s();
    set(&mut worker, b"short:ever", 10);
    set(&mut worker, b"long:ever", 10);
    set(&mut worker, b"short:large", 500_000);
    let hash = cache.hash(b"short:soon");
    worker.store(&Store { expiry: Expiry::at_s(now_s + 5), ..Store::set(b"short:soon", hash, b"x") });
    assert_eq!(expiry(&worker, b"short:ever"), Expiry::at_s(now_s + 100));
    assert_eq!(expiry(&worker, b"short:large"), Expiry::at_s(now_s + 100));
    assert_eq!(expiry(&worker, b"short:soon"), Expiry::at_s(now_s + 5));
    assert_eq!(expiry(&worker, b"long:ever"), Expiry::NEVER);
    worker.touch(hash, b"short:soon", Expiry::NEVER);
    assert_eq!(expiry(&worker, b"short:soon"), Expiry::at_s(now_s + 100));
    cache.clock().shift(101);
    assert!(!is_there(&worker, b"short:ever") && is_there(&worker, b"long:ever"));
    // A namespace that is not named any more has no limit.
    cache.set_namespaces(&[], b':').unwrap();
    set(&mut worker, b"short:ever", 10);
    assert_eq!(expiry(&worker, b"short:ever"), Expiry::NEVER);
}

#[test]
fn a_list_that_cannot_be_changes_nothing() {
    let cache = cache(32);
    cache.set_namespaces(&[namespace("a", 10, 20, 0)], b':').unwrap();
    assert!(cache.set_namespaces(&[namespace("b", 90, 100, 0)], b':').is_err());
    assert_eq!(cache.namespaces().len(), 1);
    let worker = cache.worker();
    worker.count_read_of_namespace(b"a:1", true);
    worker.count_read_of_namespace(b"b:1", true);
    assert_eq!((cache.namespaces()[0].gets, cache.namespaces()[0].hits), (1, 1));
}
