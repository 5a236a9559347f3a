//! A cache of several NUMA nodes. The machine need not have the nodes: what the kernel does not bind lies anywhere.

use larder_cache::{Cache, CacheOptions, NodeId, NumaNodes, PagesWanted, Store, Value, Worker};
use std::sync::Arc;

fn cache(limit_bytes: u64, nodes: usize) -> Arc<Cache> {
    let options = CacheOptions {
        limit_bytes,
        workers: 2,
        pages: PagesWanted::Small,
        column_bytes: Some(32 << 10),
        seed: Some(5),
        // No kernel has more nodes than 1024.
        nodes: NumaNodes::with_cpus((0..nodes).map(|node| (2000 + node, vec![node]))),
        ..CacheOptions::default()
    };
    Cache::new(options).expect("a small cache can be made")
}

fn value(number: u64) -> Vec<u8> {
    format!("{number:>800}").into_bytes()
}

fn store(worker: &mut Worker, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let key = number.to_be_bytes();
        let hash = worker.cache().hash(&key);
        let _ = worker.store(&Store::set(&key, hash, &value(number)));
        worker.quiesce();
    }
}

/// How many of the items are there. Each of them has its own value.
fn found(worker: &mut Worker, numbers: std::ops::Range<u64>) -> u64 {
    let mut found = 0;
    for number in numbers {
        let key = number.to_be_bytes();
        let hash = worker.cache().hash(&key);
        if let Some(hit) = worker.get(hash, &key) {
            assert!(matches!(hit.value(), Value::Whole(bytes) if bytes == value(number)));
            found += 1;
        }
        worker.quiesce();
    }
    found
}

#[test]
fn workers_fill_columns_of_their_nodes() {
    let cache = cache(64 << 20, 2);
    let [mut zero, mut one] = [0, 1].map(|node| cache.worker_on(NodeId(node)));
    store(&mut zero, 0..5_000);
    store(&mut one, 5_000..10_000);
    cache.tend();
    assert_eq!((found(&mut zero, 0..10_000), found(&mut one, 0..10_000)), (10_000, 10_000));
    let totals = cache.totals();
    assert!(totals.numa_local_columns >= 2 * 5_000 * 800 / (32 << 10));
    assert_eq!(totals.numa_remote_columns, 0, "each node has more than is stored");
    assert_eq!(cache.nodes(), 2);
    assert!(cache.unbound_slabs() >= 4, "the kernel has no such nodes, and the cache goes on");
}

#[test]
fn a_node_that_is_used_up_gets_columns_of_the_other() {
    let cache = cache(64 << 20, 2);
    let [mut zero, mut one] = [0, 1].map(|node| cache.worker_on(NodeId(node)));
    // More than half of the limit, by one worker.
    store(&mut zero, 0..50_000);
    let remote = cache.totals().numa_remote_columns;
    assert!(remote > 0);
    assert_eq!(cache.totals().evictions, 0, "nothing goes while the other node has room");
    assert_eq!(found(&mut one, 0..50_000), 50_000);
    // Now the keeper has to make room, again and again.
    zero.offline();
    store(&mut one, 100_000..250_000);
    cache.tend();
    assert!(cache.totals().evictions > 0);
    assert!(found(&mut one, 240_000..250_000) > 9_000, "what was stored last is there");
    assert!(cache.memory_use().columns_bytes <= 64 << 20);
}

#[test]
fn items_of_both_nodes_are_moved_and_none_is_lost() {
    let cache = cache(80 << 20, 2);
    let mut workers = [0, 1].map(|node| cache.worker_on(NodeId(node)));
    let mut store_all = |is_stored: &dyn Fn(u64) -> bool| {
        for number in (0..20_000).filter(|number| is_stored(*number)) {
            store(&mut workers[0], number..number + 1);
            store(&mut workers[1], 20_000 + number..20_001 + number);
            if number % 500 == 499 {
                cache.tend();
            }
        }
    };
    store_all(&|_| true);
    // Some items are never stored again: the pass has to move them out of columns that are dead but for them.
    (0..4).for_each(|round| store_all(&|number| number % 8 > round % 2));
    let totals = cache.totals();
    assert!(totals.moved > 500, "{} were moved", totals.moved);
    assert!(totals.numa_local_columns > 2 * totals.numa_remote_columns, "{totals:?}");
    assert_eq!((totals.evictions, found(&mut workers[1], 0..40_000)), (0, 40_000));
}

#[test]
fn one_node_counts_nothing() {
    let cache = cache(64 << 20, 1);
    let mut worker = cache.worker();
    store(&mut worker, 0..1_000);
    let totals = cache.totals();
    assert_eq!((totals.numa_local_columns, totals.numa_remote_columns, cache.unbound_slabs()), (0, 0, 0));
}
