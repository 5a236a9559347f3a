//! Tests of each scheme's characteristic behaviour on caches of a few slabs.

use super::super::*;
use super::twin::settings;
use larder_sim::{Op, Request};

const SLAB: u64 = 256;

fn request(op: Op, key: u64, bytes: u32, penalty_us: u32) -> Request {
    Request { op, key, value_bytes: bytes, penalty_us, ..Request::default() }
}

fn get(key: u64, bytes: u32, penalty_us: u32) -> Request {
    request(Op::Get, key, bytes, penalty_us)
}

fn simulator(name: &str, slabs: u64, change: impl Fn(&mut SchemeSettings)) -> Simulator {
    let mut settings = settings(SLAB, None);
    change(&mut settings.scheme);
    Simulator::new(name, slabs * SLAB, &settings).unwrap()
}

#[test]
fn classes_double_from_64_octets() {
    let classes = SlabClasses::new(1 << 20, 2.0, Some(12)).unwrap();
    assert_eq!(classes.len(), 12);
    assert_eq!((classes.slot_bytes(0), classes.slot_bytes(11)), (64, 128 << 10));
    assert_eq!((classes.slots_per_slab(0), classes.slots_per_slab(11)), (16_384, 8));
    assert_eq!(classes.class_of(0), Some(0));
    assert_eq!(classes.class_of(64), Some(0));
    assert_eq!(classes.class_of(65), Some(1));
    assert_eq!(classes.class_of(128 << 10), Some(11));
    assert_eq!(classes.class_of((128 << 10) + 1), None);
}

#[test]
fn classes_of_a_small_factor_end_with_a_slot_of_one_slab() {
    let classes = SlabClasses::new(1 << 20, 1.25, None).unwrap();
    assert_eq!((classes.slot_bytes(1), classes.slot_bytes(2)), (80, 104));
    assert_eq!(classes.slot_bytes(classes.len() - 1), 1 << 20);
    assert!((0..classes.len()).all(|class| classes.slot_bytes(class).is_multiple_of(8)));
}

#[test]
fn subclasses_end_where_the_paper_ends_them() {
    let of = [1, 1_000, 1_001, 10_000, 10_001, 100_000, 100_001, 1_000_000, 1_000_001, 5_000_000];
    assert_eq!(of.map(subclass_of), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
}

#[test]
fn a_static_class_keeps_what_it_got_first() {
    let mut cache = simulator("static", 2, |_| {});
    (0..8).for_each(|key| cache.request(&get(key, 60, 1000)));
    assert_eq!(cache.store().slabs(), [2, 0, 0]);
    // The first slab of a class is always granted, a second is not.
    (100..110).for_each(|key| cache.request(&get(key, 200, 1000)));
    assert_eq!(cache.store().slabs(), [1, 0, 1]);
    assert_eq!(cache.totals().slabs_moved, 1);
}

#[test]
fn psa_moves_a_slab_from_the_fewest_requests_per_slab_to_the_most_misses() {
    let mut cache = simulator("psa", 4, |scheme| scheme.psa_misses = 11);
    (0..2).for_each(|key| cache.request(&get(key, 250, 1000)));
    (10..18).for_each(|key| cache.request(&get(key, 60, 1000)));
    assert_eq!(cache.store().slabs(), [2, 0, 2]);
    cache.request(&get(20, 60, 1000));
    assert_eq!(cache.store().slabs(), [3, 0, 1]);
    (30..80).for_each(|key| cache.request(&get(key, 60, 1000)));
    assert_eq!(cache.store().slabs(), [3, 0, 1], "a class keeps its last slab");
}

#[test]
fn automove_waits_for_three_windows() {
    let mut cache = simulator("automove", 4, |scheme| scheme.automove_window = 10);
    (0..2).for_each(|key| cache.request(&get(key, 250, 1000)));
    (10..18).for_each(|key| cache.request(&get(key, 60, 1000)));
    (100..129).for_each(|key| cache.request(&get(key, 60, 1000)));
    assert_eq!(cache.store().slabs(), [2, 0, 2]);
    cache.request(&get(129, 60, 1000));
    assert_eq!(cache.store().slabs(), [3, 0, 1]);
}

#[test]
fn the_age_scheme_takes_from_the_class_with_the_oldest_item() {
    let mut cache = simulator("age", 4, |_| {});
    (0..2).for_each(|key| cache.request(&get(key, 250, 1000)));
    (10..30).for_each(|key| cache.request(&get(key, 60, 1000)));
    assert_eq!(cache.store().slabs(), [4, 0, 0]);
}

#[test]
fn twemcache_moves_a_slab_with_most_misses_and_favours_nobody() {
    let mut cache = simulator("twemcache", 30, |_| {});
    for at in 0..3_000 {
        cache.request(&get(at, [60, 120, 250][(at % 3) as usize], 1000));
    }
    assert!(cache.store().slabs().iter().all(|&slabs| slabs < 25), "{:?}", cache.store().slabs());
    assert!(cache.totals().slabs_moved > 500);
}

/// Cheap items that are reused too late in one class, and expensive ones in another.
fn two_loops(cache: &mut Simulator) {
    for at in 0..20_000_u64 {
        cache.request(&get(at % 12, 60, 2_000));
        cache.request(&get(1000 + at % 12, 60, 2_000_000));
    }
}

#[test]
fn pama_gives_room_to_the_dear_ones() {
    let mut pama = simulator("pama-exact", 4, |scheme| scheme.value_window = 500);
    let mut fixed = simulator("static", 4, |_| {});
    two_loops(&mut pama);
    two_loops(&mut fixed);
    // Twelve expensive items need three of the four slabs.
    assert_eq!(pama.store().slabs()[4], 3, "{:?}", pama.store().slabs());
    assert!(pama.totals().service_us * 2 < fixed.totals().service_us);
}

#[test]
fn a_set_that_nobody_asks_for_again_earns_no_slab() {
    let mut cache = simulator("pama-exact", 4, |scheme| scheme.value_window = 500);
    for at in 0..3_000_u64 {
        cache.request(&get(at % 16, 60, 50_000));
    }
    let before = cache.store().slabs().to_vec();
    (0..500).for_each(|at| cache.request(&request(Op::Set, 5_000 + at, 250, 50_000)));
    assert_eq!(cache.store().slabs(), before);
}

#[test]
fn deletes_and_expiries_free_their_slots() {
    let mut cache = simulator("static", 1, |_| {});
    (0..4).for_each(|key| cache.request(&request(Op::Set, key, 60, 0)));
    cache.request(&request(Op::Delete, 2, 0, 0));
    assert_eq!(cache.store().items(0), 3);
    cache.request(&Request { ttl_s: 5, time_s: 10, ..request(Op::Set, 9, 60, 0) });
    cache.request(&Request { time_s: 14, ..get(9, 60, 0) });
    assert_eq!(cache.totals().hits, 1);
    cache.request(&Request { time_s: 15, ..get(9, 60, 0) });
    assert_eq!((cache.totals().hits, cache.totals().gets), (1, 2));
    // A change of an item keeps its expiry.
    cache.request(&Request { ttl_s: 5, time_s: 20, ..request(Op::Set, 9, 60, 0) });
    cache.request(&Request { time_s: 22, ..request(Op::Incr, 9, 0, 0) });
    cache.request(&Request { time_s: 24, ..get(9, 60, 0) });
    cache.request(&Request { time_s: 25, ..get(9, 60, 0) });
    assert_eq!((cache.totals().hits, cache.totals().gets), (2, 4));
}

#[test]
fn an_item_larger_than_the_largest_slot_is_refused() {
    let mut cache = simulator("pama", 4, |_| {});
    cache.request(&get(1, 257, 1000));
    cache.request(&request(Op::Set, 2, 257, 1000));
    assert_eq!((cache.totals().too_large, cache.store().entries()), (2, 0));
}

#[test]
fn without_refill_only_sets_fill_the_cache() {
    let mut settings = settings(SLAB, None);
    settings.refill = false;
    let mut cache = Simulator::new("pama", 4 * SLAB, &settings).unwrap();
    (0..2).for_each(|_| cache.request(&get(1, 60, 1000)));
    assert_eq!((cache.totals().hits, cache.store().entries()), (0, 0));
    cache.request(&request(Op::Set, 1, 60, 1000));
    cache.request(&get(1, 60, 1000));
    assert_eq!(cache.totals().hits, 1);
}

#[test]
fn penalties_are_the_requests_the_items_or_the_default_and_gaps_above_5_s_are_dropped() {
    let mut cache = simulator("static", 4, |_| {});
    let service = |cache: &mut Simulator, request: Request| {
        let before = cache.totals().service_us;
        cache.request(&request);
        cache.totals().service_us - before
    };
    assert_eq!(service(&mut cache, get(1, 60, 0)), 100_000);
    assert_eq!(service(&mut cache, get(2, 60, 7_000)), 7_000);
    assert_eq!(service(&mut cache, get(3, 60, 5_000_001)), 100_000);
    assert_eq!(service(&mut cache, get(4, 60, 5_000_000)), 5_000_000);
    assert_eq!(service(&mut cache, get(4, 60, 5_000_000)), 100, "a hit takes a constant");
}

#[test]
fn a_burst_is_a_tenth_of_the_memory_in_its_classes() {
    let burst =
        Burst { at_gets: 3, memory_ratio: 0.1, class_first: 1, classes: 2, sets_per_get: 5, penalty_us: 0 };
    let mut settings = settings(SLAB, Some(burst));
    let mut cache = Simulator::new("static", 100 * SLAB, &settings).unwrap();
    (0..200).for_each(|_| cache.request(&get(1, 60, 1000)));
    let bytes: u64 = burst.requests(100 * SLAB, &settings.classes).map(|request| request.item_bytes()).sum();
    assert!((2_300..=2_560).contains(&bytes), "{bytes} bytes");
    let items = burst.requests(100 * SLAB, &settings.classes).count();
    assert_eq!(cache.store().items(1) + cache.store().items(2), items);
    assert_eq!(cache.store().slabs()[0], 1);
    settings.burst = Some(Burst { class_first: 2, ..burst });
    assert!(Simulator::new("static", 100 * SLAB, &settings).err().unwrap().contains("classes 0 to 2"));
}
