//! Compares the curves with slow twins: LRU caches simulated one size at a time, and Mattson's list.

use proptest::prelude::*;

use super::*;
use crate::mix::hash_of;
use crate::{Fields, Op, Request, Source, SourceError};

/// A source over requests in memory.
struct Given {
    requests: Vec<Request>,
    at: usize,
    sizes: bool,
}

impl Source for Given {
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
        let end = (self.at + most).min(self.requests.len());
        into.extend_from_slice(&self.requests[self.at..end]);
        let got = end - self.at;
        self.at = end;
        Ok(got)
    }

    fn fields(&self) -> Fields {
        Fields { sizes: self.sizes, ops: true, ..Fields::default() }
    }

    fn describe(&self) -> String {
        "given".to_owned()
    }

    fn done_ratio(&self) -> Option<f64> {
        Some(self.at as f64 / self.requests.len().max(1) as f64)
    }
}

fn curve_of(requests: &[Request], settings: Settings) -> Curve {
    let mut source = Given { requests: requests.to_vec(), at: 0, sizes: true };
    curves(&mut source, &[settings]).expect("in-memory source").remove(0)
}

/// A cache of one size with the most recent item first. The least recent items are evicted until there is room. An
/// item larger than the cache empties it and is not stored.
struct Lru {
    items: Vec<(u64, u64)>,
    capacity: u64,
}

impl Lru {
    fn find(&self, key: u64) -> Option<(usize, u64)> {
        self.items.iter().position(|item| item.0 == key).map(|at| (at, self.items[at].1))
    }

    fn put(&mut self, key: u64, weight: u64) {
        self.remove(key);
        self.items.insert(0, (key, weight));
        while self.items.iter().map(|item| item.1).sum::<u64>() > self.capacity {
            self.items.pop();
        }
    }

    fn remove(&mut self, key: u64) {
        self.items.retain(|item| item.0 != key);
    }
}

/// Misses of the reads in a cache of one size. `items_there` are the commands that need a stored item in a cache of
/// any size.
fn misses_of_one_cache(requests: &[Request], unit: Unit, capacity: u64) -> u64 {
    let mut cache = Lru { items: Vec::new(), capacity };
    let mut misses = 0;
    for request in requests {
        let weight = if unit == Unit::Objects { 1 } else { request.item_bytes() };
        match request.op {
            Op::Delete => cache.remove(request.key),
            Op::Get => {
                misses += u64::from(cache.find(request.key).is_none());
                cache.put(request.key, weight);
            }
            _ => cache.put(request.key, weight),
        }
    }
    misses
}

fn requests_of(steps: &[(u64, u32, u8)], ops: bool, fixed_sizes: bool) -> Vec<Request> {
    let op = |kind: u8| match kind % 10 {
        0 => Op::Delete,
        1 => Op::Set,
        _ => Op::Get,
    };
    let bytes = |key: u64, drawn: u32| if fixed_sizes { (hash_of(key) % 40) as u32 + 1 } else { drawn };
    steps
        .iter()
        .map(|&(key, drawn, kind)| Request {
            key,
            value_bytes: bytes(key, drawn),
            op: if ops { op(kind) } else { Op::Get },
            ..Request::default()
        })
        .collect()
}

fn same_as_simulated(requests: &[Request], unit: Unit, capacities: impl Iterator<Item = u64>) {
    let curve = curve_of(requests, Settings::new(unit, Method::Exact));
    for capacity in capacities {
        let misses = misses_of_one_cache(requests, unit, capacity);
        let expected = if curve.requests == 0 { 1.0 } else { misses as f64 / curve.requests as f64 };
        let got = curve.miss_ratio(capacity as f64);
        assert!((got - expected).abs() < 1e-9, "{unit} {capacity}: {got} but an LRU cache has {expected}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn objects_are_those_of_simulated_caches(
        steps in prop::collection::vec((0_u64..30, 1_u32..2, any::<u8>()), 1..400), ops: bool
    ) {
        same_as_simulated(&requests_of(&steps, ops, true), Unit::Objects, 1..34);
    }

    #[test]
    fn octets_are_those_of_simulated_caches_under_deletes_and_changing_sizes(
        steps in prop::collection::vec((0_u64..20, 1_u32..40, any::<u8>()), 1..300), ops: bool, fixed: bool
    ) {
        same_as_simulated(&requests_of(&steps, ops, fixed), Unit::Bytes, (1..600).step_by(7));
    }

    #[test]
    fn a_thinned_curve_is_nowhere_further_than_its_tolerance(
        steps in prop::collection::vec((0_u64..60, 1_u32..90, any::<u8>()), 1..400)
    ) {
        let curve = curve_of(&requests_of(&steps, true, true), Settings::new(Unit::Bytes, Method::Exact));
        let thin = curve.thinned(0.02);
        prop_assert!(thin.points.len() <= curve.points.len());
        for size in 0..=curve.footprint() + 1 {
            let apart = (curve.hit_ratio(size as f64) - thin.hit_ratio(size as f64)).abs();
            prop_assert!(apart <= 0.02 + 1e-12, "{size}: {apart}");
        }
    }

    #[test]
    fn shards_of_fixed_size_never_holds_more(
        steps in prop::collection::vec((any::<u64>(), 1_u32..2, any::<u8>()), 1..800), most in 1_usize..60
    ) {
        let settings = Settings::new(Unit::Objects, Method::Size(most));
        let mut analysis = Analysis::new(settings).expect("settings");
        let mut rate = 1.0;
        for request in requests_of(&steps, true, true) {
            analysis.request(&request);
            prop_assert!(analysis.keys() <= most);
            prop_assert!(analysis.rate() <= rate);
            rate = analysis.rate();
        }
    }
}

/// Reads of `keys` keys whose popularity is rank^-1.
fn zipf(keys: u64, requests: u64, seed: u64) -> Vec<Request> {
    let mut cumulated: Vec<f64> = Vec::new();
    for rank in 1..=keys {
        cumulated.push(cumulated.last().unwrap_or(&0.0) + 1.0 / rank as f64);
    }
    let sum = cumulated[cumulated.len() - 1];
    let mut state = seed;
    (0..requests)
        .map(|_| {
            state = hash_of(state);
            let random = (state >> 11) as f64 / (1_u64 << 53) as f64 * sum;
            let key = cumulated.partition_point(|below| *below < random) as u64;
            Request { key, value_bytes: (hash_of(key) % 400) as u32 + 20, ..Request::default() }
        })
        .collect()
}

#[test]
fn a_sample_of_all_is_exact() {
    let requests = zipf(2000, 20_000, 1);
    for unit in [Unit::Objects, Unit::Bytes] {
        let exact = curve_of(&requests, Settings::new(unit, Method::Exact));
        for method in [Method::Rate(1.0), Method::Size(2000)] {
            let sampled = curve_of(&requests, Settings::new(unit, method));
            assert_eq!(
                (&sampled.points, sampled.cold_misses),
                (&exact.points, exact.cold_misses),
                "{method}"
            );
        }
    }
}

#[test]
fn samples_are_near_the_exact_curve_and_the_same_each_time() {
    let requests = zipf(50_000, 400_000, 2);
    for unit in [Unit::Objects, Unit::Bytes] {
        let exact = curve_of(&requests, Settings::new(unit, Method::Exact));
        for method in [Method::Rate(0.05), Method::Size(2000)] {
            let settings = Settings::new(unit, method);
            let sampled = curve_of(&requests, settings);
            let apart = exact.deviation(&sampled);
            assert!(apart.mean < 0.02 && apart.mean > 0.0, "{unit} {method}: {apart:?}");
            assert_eq!(sampled, curve_of(&requests, settings));
            assert_ne!(sampled.points, curve_of(&requests, Settings { seed: 5, ..settings }).points);
        }
    }
}

#[test]
fn distances_stay_right_when_the_stack_moves_together_many_times() {
    let requests = zipf(5000, 60_000, 3);
    let curve = curve_of(&requests, Settings::new(Unit::Bytes, Method::Exact));
    let footprint = curve.footprint();
    for capacity in [footprint / 50, footprint / 7, footprint / 2] {
        let misses = misses_of_one_cache(&requests[..20_000], Unit::Bytes, capacity);
        let short = curve_of(&requests[..20_000], Settings::new(Unit::Bytes, Method::Exact));
        // A distance above 16,384 bytes is known to within 1 part in 8192.
        let (low, high) = (short.miss_ratio(capacity as f64), short.miss_ratio(capacity as f64 * 0.999));
        let simulated = misses as f64 / 20_000.0;
        assert!(low - 0.001 <= simulated && simulated <= high + 0.001, "{low} {simulated} {high}");
    }
}

#[test]
fn writes_move_to_the_front_and_are_not_counted() {
    let step = |key, op| Request { key, value_bytes: 10, op, ..Request::default() };
    let requests = [
        step(1, Op::Set),
        step(2, Op::Set),
        step(1, Op::Incr),
        step(3, Op::Replace),
        step(1, Op::Get),
        step(2, Op::Get),
        step(3, Op::Get),
    ];
    let curve = curve_of(&requests, Settings::new(Unit::Objects, Method::Exact));
    assert_eq!((curve.requests, curve.cold_misses), (3, 1));
    assert!((curve.miss_ratio(1.0) - 2.0 / 3.0).abs() < 1e-12, "1 is on top, for incr touched it");
    assert!(
        (curve.miss_ratio(2.0) - 1.0 / 3.0).abs() < 1e-12,
        "3 was never there, for replace puts nothing in"
    );
    let all = Settings { ops: OpRule::Ignore, ..Settings::new(Unit::Objects, Method::Exact) };
    assert_eq!(curve_of(&requests, all).requests, 7);
}

#[test]
fn appended_octets_are_added() {
    let step = |key, value_bytes, op| Request { key, value_bytes, op, ..Request::default() };
    let requests = [step(1, 10, Op::Set), step(1, 5, Op::Append), step(1, 15, Op::Get)];
    let curve = curve_of(&requests, Settings::new(Unit::Bytes, Method::Exact));
    assert_eq!((curve.miss_ratio(14.0), curve.miss_ratio(15.0)), (1.0, 0.0));
}

#[test]
fn overhead_is_part_of_an_item() {
    let read = Request { key: 1, value_bytes: 10, key_bytes: 4, ..Request::default() };
    let settings = Settings { item_overhead_bytes: 50, ..Settings::new(Unit::Bytes, Method::Exact) };
    let curve = curve_of(&[read, read], settings);
    assert_eq!((curve.miss_ratio(63.0), curve.miss_ratio(64.0), curve.item_bytes_mean), (1.0, 0.5, 64.0));
}

#[test]
fn penalties_are_averaged_over_the_reads_that_know_theirs() {
    let step = |penalty_us, op| Request { key: 1, penalty_us, op, ..Request::default() };
    let requests = [step(10, Op::Get), step(0, Op::Get), step(30, Op::Get), step(99, Op::Set)];
    for method in [Method::Exact, Method::Rate(0.000_001)] {
        assert_eq!(curve_of(&requests, Settings::new(Unit::Objects, method)).penalty_us_mean, 20.0);
    }
}

#[test]
fn a_saved_curve_is_read_back_and_a_broken_one_refused() {
    let curve = curve_of(&zipf(100, 1000, 4), Settings::new(Unit::Bytes, Method::Exact));
    assert_eq!(Curve::from_json(&curve.to_json()), Ok(curve.clone()));
    assert_eq!(Curve::from_json(&format!("{{\"curves\":[{}]}}", curve.to_json())), Ok(curve.clone()));
    let rising = Curve { points: curve.points.iter().rev().copied().collect(), ..curve.clone() };
    let none = Curve { points: Vec::new(), ..curve };
    for text in ["", "{}", "[1]", &rising.to_json(), &none.to_json()] {
        let error = Curve::from_json(text).expect_err(text);
        assert!(error.0.contains("miss-ratio curve") && !error.0.contains('\n'), "{error}");
    }
}

#[test]
fn octets_of_a_trace_without_sizes_are_refused() {
    let mut source = Given { requests: Vec::new(), at: 0, sizes: false };
    let error = curves(&mut source, &[Settings::new(Unit::Bytes, Method::Exact)]).expect_err("no sizes");
    assert!(error.0.contains("no sizes"), "{error}");
    assert!(curves(&mut source, &[Settings::new(Unit::Objects, Method::Exact)]).is_ok());
}

#[test]
fn rates_out_of_range_are_refused() {
    for method in [Method::Rate(0.0), Method::Rate(1.5), Method::Rate(f64::NAN), Method::Size(0)] {
        assert!(Analysis::new(Settings::new(Unit::Objects, method)).is_err(), "{method}");
    }
}

#[test]
fn a_sample_of_few_keys_is_told_and_one_of_none_an_error() {
    let checked = |keys: u64, method: Method| {
        let mut analysis = Analysis::new(Settings::new(Unit::Objects, method)).unwrap();
        (0..keys).for_each(|key| analysis.request(&Request { key, ..Request::default() }));
        analysis.check_sample()
    };
    assert!(checked(50, Method::Rate(1e-9)).unwrap_err().contains("SHARDS looked at no key"));
    assert!(checked(1000, Method::Rate(0.01)).unwrap().unwrap().contains("keys only"));
    assert!(checked(1000, Method::Size(20)).unwrap().unwrap().contains("looked at 20 keys only"));
    for (keys, method) in [
        (0, Method::Rate(0.01)),
        (50, Method::Exact),
        (50, Method::Size(200)),
        (50, Method::Rate(1.0)),
        (20_000, Method::Rate(0.1)),
    ] {
        assert_eq!(checked(keys, method), Ok(None), "{keys} keys, {method}");
    }
}
