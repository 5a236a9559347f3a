//! Compares the simulations with a naive loop, and checks the documented behaviour.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;
use crate::policy::Access;
use crate::report::{Cell, Part, Report, SHOWN_MAX, Table};
use crate::{Op, Request};

/// A source of requests in memory, with an error at the end if there is one.
struct Fixed {
    requests: Vec<Request>,
    at: usize,
    fields: Fields,
    error: Option<SourceError>,
}

impl Source for Fixed {
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
        // Chunks of an odd length, which a source may deliver.
        let taken = most.min(1001).min(self.requests.len() - self.at);
        into.extend_from_slice(&self.requests[self.at..self.at + taken]);
        self.at += taken;
        match &self.error {
            Some(error) if taken == 0 => Err(error.clone()),
            _ => Ok(taken),
        }
    }

    fn fields(&self) -> Fields {
        self.fields
    }

    fn describe(&self) -> String {
        "fixed".to_owned()
    }

    fn done_ratio(&self) -> Option<f64> {
        None
    }
}

const ALL_FIELDS: Fields = Fields { times: true, sizes: true, ops: true, ttls: true, penalties: true };

fn source_of(requests: &[Request]) -> Box<dyn Source> {
    Box::new(Fixed { requests: requests.to_vec(), at: 0, fields: ALL_FIELDS, error: None })
}

fn simulate(requests: &[Request], rules: &Rules) -> Outcome {
    let open = || Ok(source_of(requests));
    run_with(&open, rules, &build, &mut Progress::new("", true)).unwrap()
}

/// LRU, and the variant that evicts the item needed last; both slow, because they scan.
struct Scanning {
    capacity: u64,
    /// Size, last use, next use.
    held: BTreeMap<u32, (u64, u64, u64)>,
    uses: u64,
    looks_ahead: bool,
}

impl Policy for Scanning {
    fn access(&mut self, access: &Access) -> bool {
        self.uses += 1;
        let present = self.held.remove(&access.id).is_some();
        let size = u64::from(access.size);
        if size > self.capacity {
            return present;
        }
        while self.used() + size > self.capacity {
            let oldest = |(_, held): &(&u32, &(u64, u64, u64))| {
                if self.looks_ahead { u64::MAX - held.2 } else { held.1 }
            };
            let victim = *self.held.iter().min_by_key(oldest).expect("something is held").0;
            self.held.remove(&victim);
        }
        self.held.insert(access.id, (size, self.uses, access.next));
        present
    }

    fn contains(&self, id: u32) -> bool {
        self.held.contains_key(&id)
    }

    fn remove(&mut self, id: u32) {
        self.held.remove(&id);
    }

    fn used(&self) -> u64 {
        self.held.values().map(|held| held.0).sum()
    }

    fn items(&self) -> u64 {
        self.held.len() as u64
    }

    fn metadata_bits(&self) -> f64 {
        128.0
    }

    fn needs_next(&self) -> bool {
        self.looks_ahead
    }
}

fn build(name: &str, capacity: u64, _seed: u64) -> Result<Box<dyn Policy>, String> {
    let looks_ahead = match name {
        "lru" => false,
        "farthest" => true,
        _ => return Err("unknown".to_owned()),
    };
    Ok(Box::new(Scanning { capacity, held: BTreeMap::new(), uses: 0, looks_ahead }))
}

fn rules(policies: &[&str], sizes: &[&str]) -> Rules {
    Rules {
        policies: policies.iter().map(|name| (*name).to_owned()).collect(),
        sizes: sizes.iter().map(|size| Size::parse(size).unwrap()).collect(),
        threads: 2,
        ..Rules::default()
    }
}

fn counts(outcome: &Outcome, at: usize) -> Counts {
    outcome.cells[at].run.as_ref().unwrap().counts
}

/// The documented behaviour, request by request, with LRU as a plain list.
fn naive(requests: &[Request], capacity: u64, rules: &Rules, unit: Unit) -> Counts {
    let obey = rules.ops != Some(OpsRule::Ignore);
    let mut counts = Counts::default();
    // From the least to the most recently used: key, charged size, expiry.
    let mut list: Vec<(u64, u64, Option<u64>)> = Vec::new();
    let mut ttls: HashMap<u64, u32> = HashMap::new();
    let warmup = match rules.warmup {
        Warmup::Requests(requests) => requests as usize,
        Warmup::Share(share) => (share * requests.len() as f64).round() as usize,
    };
    for (ordinal, request) in requests.iter().enumerate() {
        if ordinal == warmup {
            counts = Counts::default();
        }
        let op = if obey { request.op } else { Op::Get };
        let now_s = u64::from(request.time_s);
        let writes = matches!(op, Op::Set | Op::Add | Op::Replace | Op::Cas);
        if request.ttl_s != 0 || writes {
            ttls.insert(request.key, request.ttl_s);
        }
        let ttl_s = u64::from(*ttls.get(&request.key).unwrap_or(&0));
        let expiry = (rules.ttls && ttl_s != 0).then_some(now_s + ttl_s);
        let charge = match unit {
            Unit::Objects => 1,
            Unit::Bytes => request.item_bytes() + u64::from(rules.overhead_bytes),
        };
        if let Some(at) =
            list.iter().position(|held| held.0 == request.key && held.2.is_some_and(|s| s <= now_s))
        {
            list.remove(at);
            counts.expired += 1;
        }
        let at = list.iter().position(|held| held.0 == request.key);
        if op == Op::Get {
            counts.gets += 1;
            counts.bytes += request.item_bytes();
            match at {
                Some(_) => {
                    counts.hits += 1;
                    counts.hit_bytes += request.item_bytes();
                }
                None => counts.penalty_us += u64::from(request.penalty_or_default_us()),
            }
        }
        let old = match (op, at) {
            (Op::Delete, Some(at)) => {
                list.remove(at);
                continue;
            }
            (Op::Delete, None) | (Op::Add, Some(_)) => continue,
            (Op::Get | Op::Set | Op::Add, None) => None,
            (_, None) => continue,
            (_, Some(at)) => Some(list.remove(at)),
        };
        if charge > capacity {
            continue;
        }
        while list.iter().map(|held| held.1).sum::<u64>() + charge > capacity {
            list.remove(0);
            counts.evictions += 1;
        }
        let keeps = matches!(op, Op::Get | Op::Append | Op::Prepend | Op::Incr | Op::Decr);
        let expiry = old.filter(|_| keeps).map_or(expiry, |old| old.2);
        list.push((request.key, charge, expiry));
    }
    counts
}

fn some_requests() -> impl Strategy<Value = Vec<Request>> {
    let one = (0u64..40, 0usize..30, 0u32..3, 1u32..60, 0u32..12, 0u32..3);
    prop::collection::vec(one, 0..1500).prop_map(|all| {
        let mut time_s = 0;
        let mut requests = Vec::new();
        for (key, op, later_s, value_bytes, ttl_s, penalty) in all {
            time_s += later_s / 2;
            requests.push(Request {
                key: key * key * 7919,
                time_s,
                // One size per key where items never expire, because the choice of victims of a growing item is left
                // to the policy.
                value_bytes: if ttl_s == 3 { value_bytes } else { key as u32 },
                ttl_s: if ttl_s < 6 { 0 } else { ttl_s },
                penalty_us: penalty * 1000,
                client: 0,
                key_bytes: 8,
                op: Op::ALL.get(op).copied().unwrap_or(Op::Get),
            });
        }
        requests
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_runner_counts_what_a_plain_loop_counts(
        requests in some_requests(),
        capacity in 1u64..50,
        is_bytes in any::<bool>(),
        obeys in any::<bool>(),
        ttls in any::<bool>(),
        warmup in prop_oneof![
            Just(Warmup::Requests(0)),
            Just(Warmup::Requests(300)),
            Just(Warmup::Share(0.25)),
        ],
    ) {
        let unit = if is_bytes { Unit::Bytes } else { Unit::Objects };
        let capacity = if is_bytes { capacity * 40 } else { capacity };
        let rules = Rules {
            unit: Some(unit),
            ops: Some(if obeys { OpsRule::Obey } else { OpsRule::Ignore }),
            ttls,
            warmup,
            overhead_bytes: 5,
            sizes: vec![Size::Plain(capacity)],
            ..rules(&["lru"], &[])
        };
        let expected = naive(&requests, capacity, &rules, unit);
        let outcome = simulate(&requests, &rules);
        let found = counts(&outcome, 0);
        let all_warmup = outcome.warmup_requests >= requests.len() as u64;
        // With items in bytes that change their size, the evictions caused by the growth are counted differently.
        let expected = if all_warmup { Counts::default() } else { expected };
        let expected = Counts { evictions: found.evictions, ..expected };
        prop_assert_eq!(found, expected);
        if !all_warmup && !is_bytes {
            prop_assert_eq!(found.evictions, naive(&requests, capacity, &rules, unit).evictions);
        }
    }

    #[test]
    fn looking_ahead_beats_lru_and_needs_the_next_access(keys in prop::collection::vec(0u64..60, 1..3000)) {
        let requests: Vec<Request> = keys.iter().map(|&key| Request { key, ..Request::default() }).collect();
        let outcome = simulate(&requests, &rules(&["lru", "farthest"], &["10"]));
        prop_assert!(counts(&outcome, 1).hits >= counts(&outcome, 0).hits);
    }

    #[test]
    fn the_model_of_larder_keeps_within_its_capacity(
        kind in prop::sample::select(larder_cache::TemperatureKind::ALL.to_vec()),
        accesses in prop::collection::vec((0u32..3000, 0u32..10), 0..6000),
        capacity in 1u64..2500,
    ) {
        let mut policy = larder::build(kind, capacity, 7).unwrap();
        let mut known = std::collections::HashSet::new();
        for (id, verb) in accesses {
            if verb == 0 {
                policy.remove(id);
                known.remove(&id);
                prop_assert!(!policy.contains(id));
            } else {
                let access = Access { id, size: 1, time_s: 0, penalty_us: 0, next: u64::MAX };
                let was_there = policy.contains(id);
                prop_assert!(!was_there || known.contains(&id));
                prop_assert_eq!(policy.access(&access), was_there);
                prop_assert!(policy.contains(id));
                known.insert(id);
            }
            prop_assert!(policy.items() <= capacity);
        }
        let held = (0..3000).filter(|&id| policy.contains(id)).count() as u64;
        prop_assert_eq!(held, policy.items());
    }
}

/// Zipf-like keys by inversion of a power law, from a 32-bit linear congruential generator.
fn skewed(requests: usize, keys: u64, value_bytes: impl Fn(u64) -> u32) -> Vec<Request> {
    let mut state = 7u64;
    (0..requests)
        .map(|ordinal| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let draw = (state >> 33) as f64 / (1u64 << 31) as f64;
            let key = libm::pow(keys as f64, draw) as u64;
            let time_s = ordinal as u32 / 1000;
            Request { key, time_s, key_bytes: 20, value_bytes: value_bytes(key), ..Request::default() }
        })
        .collect()
}

#[test]
fn the_model_of_larder_comes_near_lru_or_better_on_skewed_keys() {
    let requests = skewed(60_000, 20_000, |_| 0);
    let outcome = simulate(&requests, &rules(&["lru", "larder"], &["500"]));
    let (lru, larder) = (counts(&outcome, 0), counts(&outcome, 1));
    assert!(larder.hits as f64 > lru.hits as f64 * 0.97, "{larder:?} against {lru:?}");
}

#[test]
fn results_are_the_same_with_any_number_of_threads() {
    let requests = skewed(20_000, 1000, |key| 100 + key as u32);
    let of = |threads| {
        let rules = Rules { threads, ..rules(&["lru", "farthest", "larder"], &["1%", "5%", "77"]) };
        let outcome = simulate(&requests, &rules);
        let runs = outcome.cells.into_iter().map(|cell| {
            let run = cell.run.unwrap();
            (cell.policy, cell.capacity, run.counts, run.windows, run.items, run.used)
        });
        runs.collect::<Vec<_>>()
    };
    let one = of(1);
    assert_eq!(one.len(), 9);
    assert_eq!(one, of(3));
    assert_eq!(one, of(20));
}

#[test]
fn shares_are_those_of_the_traces_keys_and_octets() {
    let requests: Vec<Request> = (0..1000u64)
        .map(|n| Request { key: n % 200, key_bytes: 10, value_bytes: 90, ..Request::default() })
        .collect();
    let objects = simulate(&requests, &rules(&["lru"], &["10%", "100%"]));
    assert_eq!(objects.cells.iter().map(|cell| cell.capacity).collect::<Vec<_>>(), [20, 200]);
    let in_bytes = Rules { unit: Some(Unit::Bytes), overhead_bytes: 50, ..rules(&["lru"], &["10%"]) };
    assert_eq!(simulate(&requests, &in_bytes).cells[0].capacity, 200 * 150 / 10);
    assert_eq!((objects.keys, objects.bytes, objects.requests), (200, 20_000, 1000));
    assert_eq!(counts(&objects, 1).hits, 800);
}

#[test]
fn an_absolute_size_needs_no_first_pass_and_a_share_one() {
    let opened = std::cell::Cell::new(0);
    let open = || {
        opened.set(opened.get() + 1);
        Ok(source_of(&[Request::default()]))
    };
    let opened_for = |policies: &[&str], sizes: &[&str]| {
        opened.set(0);
        run_with(&open, &rules(policies, sizes), &build, &mut Progress::new("", true)).unwrap();
        opened.get()
    };
    assert_eq!(opened_for(&["lru", "larder"], &["10"]), 1);
    assert_eq!(opened_for(&["lru"], &["10%"]), 2);
    assert_eq!(opened_for(&["farthest"], &["10"]), 2);
}

#[test]
fn an_error_in_the_middle_is_told_with_what_was_done() {
    let requests = skewed(5000, 100, |_| 1);
    let open = || -> Result<Box<dyn Source>, SourceError> {
        let error = Some(SourceError::new("fixed: line 5001: no number"));
        Ok(Box::new(Fixed { requests: requests.clone(), at: 0, fields: ALL_FIELDS, error }))
    };
    let asked = rules(&["lru"], &["50%"]);
    let outcome = run_with(&open, &asked, &build, &mut Progress::new("", true)).unwrap();
    assert_eq!(outcome.error, Some(SourceError::new("fixed: line 5001: no number")));
    assert_eq!((outcome.requests, counts(&outcome, 0).gets), (5000, 5000));
    let text = format!("{:?}", report(&outcome, &asked).parts);
    assert!(text.contains("Stopped after 5000 requests: fixed: line 5001"), "{text}");
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let open_with = |fields: Fields| {
        move || -> Result<Box<dyn Source>, SourceError> {
            Ok(Box::new(Fixed { requests: vec![Request::default()], at: 0, fields, error: None }))
        }
    };
    let refused = |fields: Fields, rules: &Rules| {
        let outcome = run_with(&open_with(fields), rules, &build, &mut Progress::new("", true));
        outcome.expect_err("it cannot be").0
    };
    let bare = Fields::default();
    assert!(refused(bare, &rules(&["lru"], &["64m"])).contains("no item sizes"));
    assert!(refused(bare, &Rules { ttls: true, ..rules(&["lru"], &["10"]) }).contains("--ttls"));
    assert!(refused(bare, &Rules { ops: Some(OpsRule::Obey), ..rules(&["lru"], &["10"]) }).contains("--ops"));
    assert!(refused(bare, &rules(&["best"], &["10"])).contains("there is no policy 'best'; there are"));
    assert!(refused(bare, &rules(&["lru"], &["10", "64m"])).contains("are mixed"));
    let bytes = Rules { objective: Some(Objective::Bytes), ..rules(&["lru"], &["10"]) };
    assert!(refused(bare, &bytes).contains("--objective bytes"));
    assert!(refused(ALL_FIELDS, &rules(&["larder"], &["1m"])).contains("too small"));
    let flash = |bytes, size| Rules { flash_bytes: Some(bytes), ..rules(&["larder"], &[size]) };
    assert!(refused(ALL_FIELDS, &flash(1 << 20, "16m")).contains("16m at least"));
    assert!(refused(ALL_FIELDS, &flash(1 << 30, "100")).contains("--sizes such as 64m"));
    assert!(refused(ALL_FIELDS, &flash(1 << 60, "16m")).contains("TMPDIR"));
    let compress = |ratio, size| Rules { compress_ratio: Some(ratio), ..rules(&["larder"], &[size]) };
    for ratio in [0.9, 20.1, -2.0, f64::NAN] {
        assert!(refused(ALL_FIELDS, &compress(ratio, "16m")).contains("from 1 to 20"), "{ratio}");
    }
    assert!(refused(ALL_FIELDS, &compress(2.5, "100")).contains("--sizes such as 64m"));
    let both = Rules { flash_bytes: Some(1 << 30), ..compress(2.5, "16m") };
    assert!(refused(ALL_FIELDS, &both).contains("leave out --flash"));
}

#[test]
fn the_real_cache_comes_near_lru_and_says_where_it_is_too_small() {
    let requests = skewed(120_000, 40_000, |key| 200 + (key % 1000) as u32);
    let rules = rules(&["lru", "larder"], &["2m", "16m"]);
    // LRU by scanning is slow, so its result is compared by the hit ratio in items.
    let outcome = simulate(&requests, &Rules { policies: vec!["larder".to_owned()], ..rules });
    assert_eq!(outcome.cells[0].run.as_ref().unwrap_err(), "too small: 8 MiB at least");
    let larder = counts(&outcome, 1);
    let expected = naive_lru_hits(&requests, 12 << 20);
    assert!(larder.hits as f64 > expected as f64 * 0.97, "{larder:?}, LRU {expected} hits");
    let run = outcome.cells[1].run.as_ref().unwrap();
    assert!(run.used < 16 << 20 && run.items > 5000 && larder.evictions > 0, "{run:?}");
}

#[test]
fn what_memory_has_no_room_for_is_found_on_flash() {
    // Some values have several parts on flash.
    let value_bytes = |key: u64| if key.is_multiple_of(500) { 300_000 } else { 200 + (key % 1000) as u32 };
    let requests = skewed(150_000, 30_000, value_bytes);
    let distinct = requests.iter().map(|request| request.key).collect::<std::collections::HashSet<_>>().len();
    let rules = Rules { flash_bytes: Some(128 << 20), ..rules(&["lru", "larder"], &["12m"]) };
    let outcome = simulate(&requests, &rules);
    let (lru, larder) = (counts(&outcome, 0), counts(&outcome, 1));
    assert_eq!((larder.gets, larder.gets - larder.hits), (150_000, distinct as u64), "each key misses once");
    let flash = larder.flash.unwrap();
    assert!(flash.hits > 0 && flash.hits < larder.hits && flash.written_bytes > 0, "{flash:?}");
    assert!(!flash.has_failed);
    assert_eq!(larder.flash_hit_ratio(), Some(flash.hits as f64 / 150_000.0));
    assert_eq!((lru.flash, lru.hits < larder.hits), (None, true), "others have no flash");
    let in_memory = Counts { flash: None, ..larder }.service_us(&rules).unwrap();
    let more = flash.hits as f64 * f64::from(rules.flash_us) / 150_000.0;
    assert!((larder.service_us(&rules).unwrap() - in_memory - more).abs() < 1e-6);
    assert_eq!(counts(&simulate(&requests, &rules), 1), larder, "a run can be repeated");
}

#[test]
fn values_that_shrink_leave_room_for_more_items() {
    let requests = skewed(100_000, 30_000, |_| 700);
    let plain = rules(&["lru", "larder"], &["10m"]);
    let with = |ratio| simulate(&requests, &Rules { compress_ratio: Some(ratio), ..plain.clone() });
    let (without, shrunk) = (simulate(&requests, &plain), with(2.5));
    let run = |outcome: &Outcome| outcome.cells[1].run.clone().unwrap();
    let (before, after) = (run(&without), run(&shrunk));
    assert_eq!(before.compressed_share, Some(0.0));
    let share = after.compressed_share.unwrap();
    assert!(share > 0.3 && share < 1.0, "{share}");
    assert!(after.counts.hits > before.counts.hits, "{before:?} {after:?}");
    let held = |run: &Run| run.used as f64 / run.items as f64;
    let expected = held(&before) * (1.0 - share + share / 2.5);
    assert!((held(&after) / expected - 1.0).abs() < 0.1, "{} bytes each, not {expected}", held(&after));
    assert_eq!(counts(&with(2.5), 1), after.counts, "a run can be repeated");
    assert_eq!(counts(&with(1.0), 1), before.counts, "nothing shrinks");
    assert_eq!(counts(&shrunk, 0), counts(&without, 0), "other policies compress nothing");
    assert_eq!(shrunk.cells[0].run.as_ref().unwrap().compressed_share, None);
    let text = format!("{:?}", report(&shrunk, &Rules { compress_ratio: Some(2.5), ..plain.clone() }));
    assert!(text.contains("2.5 times shorter") && text.contains("Items compressed at the end"), "{text}");
    assert!(!format!("{:?}", report(&without, &plain)).contains("Items compressed at the end"));
}

#[test]
fn commands_find_what_only_flash_has() {
    let request = |key, op, value_bytes| Request { key, value_bytes, key_bytes: 9, op, ..Request::default() };
    let mut requests = vec![request(1, Op::Set, 1000), request(2, Op::Set, 1000)];
    // They push the first ones out of memory.
    requests.extend((10..30_000).map(|key| request(key, Op::Set, 1000)));
    requests.push(request(2, Op::Delete, 0));
    // A replace of an item that is there gives it another size; a get of that size is a hit.
    requests.push(request(1, Op::Replace, 2000));
    requests.extend([request(1, Op::Get, 2000), request(2, Op::Get, 1000)]);
    let rules = Rules { flash_bytes: Some(128 << 20), ..rules(&["larder"], &["12m"]) };
    let counts = counts(&simulate(&requests, &rules), 0);
    assert_eq!((counts.gets, counts.hits), (2, 1), "the deleted item is gone");
}

/// Hits of LRU over bytes of key and value.
fn naive_lru_hits(requests: &[Request], capacity: u64) -> u64 {
    let (mut by_use, mut held, mut used, mut hits) = (BTreeMap::new(), HashMap::new(), 0, 0);
    for (ordinal, request) in requests.iter().enumerate() {
        if let Some(last) = held.insert(request.key, ordinal) {
            by_use.remove(&last);
            hits += 1;
        } else {
            used += request.item_bytes();
        }
        by_use.insert(ordinal, *request);
        while used > capacity {
            let (_, oldest) = by_use.pop_first().unwrap();
            held.remove(&oldest.key);
            used -= oldest.item_bytes();
        }
    }
    hits
}

#[test]
fn the_real_cache_obeys_operations_and_times_up_to_values_of_a_mebibyte() {
    let sizes = [1, 1000, 20_000, 300_000, 1 << 20, 5 << 20];
    let mut requests = Vec::new();
    for round in 0..40u32 {
        for (key, &value_bytes) in sizes.iter().enumerate() {
            for op in Op::ALL {
                let time_s = round * 10 + key as u32;
                let ttl_s = if key == 1 { 5 } else { 0 };
                let key = key as u64;
                requests.push(Request {
                    key,
                    time_s,
                    value_bytes,
                    ttl_s,
                    key_bytes: 300,
                    op,
                    ..Request::default()
                });
            }
        }
    }
    let rules = Rules { ttls: true, ..rules(&["larder"], &["12m"]) };
    let counts = counts(&simulate(&requests, &rules), 0);
    // Only counting commands follow the delete of each round, so every get misses except after a fill.
    assert_eq!((counts.gets, counts.hits), (240, 0));
    let set = |time_s, op| Request {
        key: 9,
        time_s,
        value_bytes: 100,
        ttl_s: 10,
        key_bytes: 9,
        op,
        ..Request::default()
    };
    let requests = [set(0, Op::Set), set(9, Op::Get), set(10, Op::Get), set(19, Op::Get), set(20, Op::Get)];
    let counts = super::tests::counts(&simulate(&requests, &rules), 0);
    assert_eq!(counts.hits, 2, "at 9 s, and at 19 s what was filled at 10 s");
}

#[test]
fn a_hit_of_another_size_keeps_the_time_that_was_left() {
    let request = |time_s, value_bytes, op| Request {
        key: 9,
        time_s,
        value_bytes,
        ttl_s: 10,
        key_bytes: 9,
        op,
        ..Request::default()
    };
    let requests = [request(0, 100, Op::Set), request(5, 200, Op::Get), request(12, 200, Op::Get)];
    let rules = Rules { ttls: true, ..rules(&["larder"], &["12m"]) };
    assert_eq!(counts(&simulate(&requests, &rules), 0).hits, 1);
}

#[test]
fn a_report_says_why_nothing_was_counted() {
    let told = |requests: &[Request], rules: &Rules| {
        format!("{:?}", report(&simulate(requests, rules), rules).parts)
    };
    let some = skewed(1000, 100, |_| 1);
    let all_warm = Rules { warmup: Warmup::Requests(1000), ..rules(&["lru"], &["10"]) };
    assert!(told(&some, &all_warm).contains("The warm-up is as long as the trace"));
    let nearly = Rules { warmup: Warmup::Requests(999), ..all_warm };
    assert!(!told(&some, &nearly).contains("nothing was counted"));
    assert!(told(&[], &rules(&["lru"], &["10"])).contains("There were no requests"));
    let sets = [Request { op: Op::Set, ..Request::default() }];
    let obey = Rules { ops: Some(OpsRule::Obey), ..rules(&["lru"], &["10"]) };
    assert!(told(&sets, &obey).contains("There was no get"));
}

#[test]
fn reasons_of_empty_cells_are_remarks_and_notes() {
    let rules = rules(&["lru", "larder"], &["1m", "2m", "16m"]);
    let report = report(&simulate(&skewed(1000, 100, |_| 10), &rules), &rules);
    let mut remarks = report.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let remark = remarks.find(|text| text.contains("too small")).unwrap();
    assert!(remark.starts_with("larder was not run at 1 MiB (") && remark.contains(", 2 MiB ("), "{remark}");
    assert!(!remarks.any(|text| text.contains("too small")));
    let details = report.parts.iter().find_map(|part| match part {
        Part::Table(table) if table.columns.last().is_some_and(|name| name == "note") => Some(table.to_csv()),
        _ => None,
    });
    assert!(
        details
            .unwrap()
            .lines()
            .any(|row| row.starts_with("larder,1048576,") && row.ends_with(",,too small: 8 MiB at least"))
    );
}

#[test]
fn the_chart_over_time_ends_with_the_last_request() {
    let rules = rules(&["lru"], &["10"]);
    let report = report(&simulate(&skewed(1234, 100, |_| 1), &rules), &rules);
    let last = report.parts.iter().find_map(|part| match part {
        Part::Chart(chart) if chart.title.starts_with("Hit ratio over time") => chart.series[0].points.last(),
        _ => None,
    });
    assert_eq!(last.map(|point| point.0), Some(1234.0));
}

#[test]
fn a_title_says_what_was_simulated_and_defaults_are_in_small_print() {
    let requests = skewed(1234, 100, |_| 1);
    let of = |rules: &Rules| {
        let Report { title, facts, settings, .. } = report(&simulate(&requests, rules), rules);
        let names = |all: Vec<(String, String)>| all.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        (title, names(facts), names(settings))
    };
    let (title, facts, settings) = of(&rules(&["lru"], &["10"]));
    assert_eq!(title, "lru on fixed: 1,234 requests, a cache of 10 objects");
    assert_eq!(facts, ["requests", "keys", "items of all keys"]);
    assert!(["trace", "warm-up", "a hit takes"].iter().all(|name| settings.iter().any(|one| one == name)));
    let chosen = Rules { warmup: Warmup::Requests(5), ..rules(&["lru", "larder"], &["16m", "1g"]) };
    let (title, facts, _) = of(&chosen);
    assert_eq!(title, "2 eviction policies on fixed: 1,234 requests, caches of 16 MiB to 1 GiB");
    assert!(facts.contains(&"warm-up".to_owned()));
}

#[test]
fn curves_begin_with_the_references_and_the_best_policies() {
    let rules = rules(&["all"], &["5", "20"]);
    let requests = skewed(20_000, 200, |_| 1);
    let outcome = run(&|| Ok(source_of(&requests)), &rules, &mut Progress::new("", true)).unwrap();
    let charts: Vec<Vec<String>> = report(&outcome, &rules)
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Chart(chart) => Some(chart.series.iter().map(|series| series.name.clone()).collect()),
            _ => None,
        })
        .collect();
    assert!(
        charts.iter().all(|names| *names == charts[0]),
        "a policy looks the same in each chart: {charts:?}"
    );
    let (first, rest) = charts[0].split_at(SHOWN_MAX);
    assert!(
        ["lru", "larder", "belady"].iter().all(|name| first.iter().any(|shown| shown == name)),
        "{first:?}"
    );
    let misses = |name: &String| -> f64 {
        let of_policy = outcome.cells.iter().filter(|cell| cell.policy == *name);
        of_policy.filter_map(|cell| cell.run.as_ref().ok()?.counts.miss_ratio()).sum()
    };
    let worst_shown = first.iter().filter(|name| !["lru", "larder"].contains(&name.as_str())).map(misses);
    let worst_shown = worst_shown.fold(0.0, f64::max);
    assert!(rest.iter().all(|name| misses(name) > 0.9 * worst_shown), "{first:?} {rest:?}");
}

/// Skewed gets in which every other key has a costly miss.
fn with_penalties(count: usize, keys: u64) -> Vec<Request> {
    let mut requests = skewed(count, keys, |_| 1000);
    requests
        .iter_mut()
        .for_each(|request| request.penalty_us = if request.key % 2 == 0 { 2_000_000 } else { 900 });
    requests
}

fn tables(outcome: &Outcome, rules: &Rules) -> Vec<Table> {
    let of = |part| if let Part::Table(table) = part { Some(table) } else { None };
    report(outcome, rules).parts.into_iter().filter_map(of).collect()
}

#[test]
fn the_objective_is_what_the_first_table_compares() {
    let requests = with_penalties(20_000, 4_000);
    let plain = rules(&["lru", "larder", "larder-static"], &["200", "400"]);
    let first = |objective| {
        let rules = Rules { objective, ..plain.clone() };
        tables(&simulate(&requests, &rules), &rules).swap_remove(0)
    };
    let names = |table: &Table| table.rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>();
    let (none, time) = (first(None), first(Some(Objective::Time)));
    assert_eq!(none.title, "Miss ratio by size");
    assert_eq!(names(&none), ["lru", "larder", "larder-static"].map(|name| Cell::Text(name.to_owned())));
    assert_eq!(time.title, "Mean service time, ms, best mean first");
    assert_eq!(names(&time)[0], Cell::Text("larder".to_owned()));
    assert!(first(Some(Objective::Bytes)).title.starts_with("Byte miss ratio"));
    assert!(first(Some(Objective::Requests)).title.starts_with("Miss ratio"));
}

/// The same code judges items in the server, in its cache on a trace, and in the model of columns.
#[test]
fn larder_saves_what_the_objective_says() {
    let requests = with_penalties(300_000, 60_000);
    for size in ["3000", "12m"] {
        let run = |policy: &str, objective| {
            let rules = Rules { objective: Some(objective), ..rules(&[policy], &[size]) };
            counts(&simulate(&requests, &rules), 0)
        };
        let (time, hits) = (run("larder", Objective::Time), run("larder", Objective::Requests));
        assert!(time.penalty_us < hits.penalty_us * 97 / 100, "{size}: {time:?}, {hits:?}");
        assert!(time.hits < hits.hits, "{size}: {time:?}, {hits:?}");
        // With equal costs there is one ranking.
        assert_eq!(run("larder-hits", Objective::Time), hits, "{size}");
        // It takes some misses until costs count.
        let penalty = run("larder-penalty", Objective::Time);
        assert!(time.penalty_us < penalty.penalty_us * 103 / 100, "{size}: {time:?}, {penalty:?}");
    }
}

#[test]
fn larder_does_not_count_costs_that_come_by_chance() {
    let mut requests = skewed(300_000, 60_000, |_| 1000);
    let mut random = 1u64;
    for request in &mut requests {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        request.penalty_us = if random >> 61 == 0 { 2_000_000 } else { 900 };
    }
    for size in ["3000", "12m"] {
        let run = |policy| counts(&simulate(&requests, &rules(&[policy], &[size])), 0);
        assert_eq!(run("larder"), run("larder-hits"), "{size}");
    }
}
