use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::keys::{KeyTable, WINDOWS_MAX};
use super::{Inspector, KEYS_EXACT_MAX, skew};
use crate::report::{Part, Report};
use crate::{Fields, Request, Source, SourceError};

const ALL: Fields = Fields { times: true, sizes: true, ops: true, ttls: true, penalties: true };

/// Requests in memory.
struct Given(Vec<Request>);

impl Source for Given {
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
        let taken = most.min(self.0.len());
        into.extend(self.0.drain(..taken));
        Ok(taken)
    }

    fn fields(&self) -> Fields {
        ALL
    }

    fn describe(&self) -> String {
        "given".to_owned()
    }

    fn done_ratio(&self) -> Option<f64> {
        None
    }

    fn notices(&self) -> Vec<String> {
        vec!["something is odd".to_owned()]
    }
}

/// Requests whose times do not decrease.
fn any_requests() -> impl Strategy<Value = Vec<Request>> {
    let one = (0..60u64, 0..3u32, 1..5000u32, 0..40u16);
    (prop::collection::vec(one, 1..400), 0..2000u32).prop_map(|(requests, factor)| {
        let mut time_s = 0;
        requests
            .into_iter()
            .map(|(key, later, value_bytes, key_bytes)| {
                time_s += later * factor;
                Request { key, time_s, value_bytes, key_bytes, ttl_s: later, ..Request::default() }
            })
            .collect()
    })
}

fn inspector(requests: &[Request], keys_max: usize) -> Inspector {
    let mut inspector = Inspector::with_keys_max(ALL, keys_max).unwrap();
    requests.iter().for_each(|request| inspector.add(request));
    inspector
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn keys_are_counted_as_a_naive_count_does(requests in any_requests()) {
        let found = inspector(&requests, KEYS_EXACT_MAX);
        let mut counts: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for request in &requests {
            let of_key = counts.entry(request.key).or_default();
            *of_key = (of_key.0 + 1, request.item_bytes());
        }
        let keys = found.keys();
        prop_assert!(keys.exact);
        prop_assert_eq!(keys.keys, counts.len() as u64);
        prop_assert_eq!(keys.one_hit_keys, counts.values().filter(|c| c.0 == 1).count() as u64);
        prop_assert_eq!(keys.footprint_bytes, counts.values().map(|c| c.1).sum::<u64>());
        let mut ranked: Vec<u64> = counts.values().map(|c| c.0).collect();
        ranked.sort_by_key(|&count| std::cmp::Reverse(count));
        let top = ranked[..ranked.len().div_ceil(10)].iter().sum::<u64>() as f64 / requests.len() as f64;
        prop_assert!((keys.top_shares[2] - top).abs() < 1e-12);
        prop_assert_eq!(found.bytes, requests.iter().map(Request::item_bytes).sum::<u64>());
        prop_assert_eq!(found.ttl_s.histogram.len(), requests.iter().filter(|r| r.ttl_s > 0).count() as u64);
    }

    #[test]
    fn windows_are_those_of_a_naive_count(requests in any_requests()) {
        let found = inspector(&requests, KEYS_EXACT_MAX);
        let length = found.keys.window_length();
        let windows = found.keys.windows();
        prop_assert!(windows.len() <= WINDOWS_MAX);
        let last: BTreeMap<u64, u64> = requests.iter().map(|r| (r.key, r.item_bytes())).collect();
        let mut so_far: BTreeSet<u64> = BTreeSet::new();
        for (at, window) in (0u64..).zip(&windows) {
            let within = requests.iter().filter(|r| u64::from(r.time_s) / length == at);
            let keys: BTreeSet<u64> = within.clone().map(|r| r.key).collect();
            so_far.extend(&keys);
            prop_assert_eq!(window.requests, within.count() as u64);
            prop_assert_eq!(window.keys, keys.len() as f64);
            prop_assert_eq!(window.keys_so_far, so_far.len() as f64);
            prop_assert_eq!(window.bytes, keys.iter().map(|key| last[key]).sum::<u64>() as f64);
        }
        prop_assert_eq!(windows.iter().map(|w| w.requests).sum::<u64>(), requests.len() as u64);
    }
}

#[test]
fn too_many_keys_are_estimated_within_some_percent() {
    let mut table = KeyTable::new(4_000);
    for at in 0..200_000u64 {
        table.add(at % 50_000, 100, at);
    }
    let counts = table.counts_falling();
    assert!(!table.is_exact() && counts.len() <= 4_000);
    // A key that is kept has all of its requests.
    assert!(counts.iter().all(|&count| count == 4));
    let estimate = counts.len() as f64 * table.scale();
    assert!((estimate / 50_000.0 - 1.0).abs() < 0.08, "{estimate}");
    let bytes = table.footprint_bytes() as f64 * table.scale();
    assert!((bytes / 5_000_000.0 - 1.0).abs() < 0.08, "{bytes}");
}

#[test]
fn a_zipf_law_is_found_again() {
    for theta in [0.6, 0.99, 1.3] {
        let counts: Vec<u32> =
            (1..20_000).map(|rank| (1e9 * libm::pow(f64::from(rank), -theta)) as u32).collect();
        let fitted = skew::Zipf::fit(&counts).unwrap();
        assert!((fitted.theta - theta).abs() < 0.02, "{fitted:?}");
        assert!(fitted.r_squared > 0.99);
    }
    let even = skew::Zipf::fit(&[7; 1000]).unwrap();
    assert_eq!((even.theta, even.r_squared), (0.0, 1.0));
    assert_eq!(skew::Zipf::fit(&[1; 1000]), None);
}

#[test]
fn ranks_rise_from_1_to_the_last() {
    for last in [1, 2, 9, 10, 11, 1000, 54_321] {
        let ranks: Vec<usize> = skew::log_ranks(last).collect();
        assert!(ranks.is_sorted_by(|a, b| a < b));
        assert_eq!((ranks[0], ranks[ranks.len() - 1]), (1, last));
    }
}

fn report_of(requests: Vec<Request>) -> Report {
    let mut progress = crate::progress::Progress::new("inspect", true);
    super::inspect(&mut Given(requests), &mut progress).unwrap()
}

#[test]
fn the_report_has_its_facts_tables_and_pictures() {
    let requests = (0..20_000u32).map(|n| Request {
        key: u64::from(n % 100 * (n % 7)),
        time_s: n / 10,
        value_bytes: n % 1000,
        key_bytes: 10,
        ttl_s: n % 5,
        penalty_us: n,
        ..Request::default()
    });
    let report = report_of(requests.collect());
    let fact = |name: &str| &report.facts.iter().find(|(found, _)| found == name).unwrap().1;
    assert_eq!(fact("requests"), "20,000");
    assert_eq!(fact("time span"), "1,999 s");
    assert!(report.parts.contains(&Part::Text("Notice: something is odd".to_owned())));
    let charts: Vec<&str> = report
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Chart(chart) => Some(chart.title.as_str()),
            _ => None,
        })
        .collect();
    let expected = [
        "Popularity by rank",
        "Working set over time",
        "Bytes of the working set over time",
        "Request rate over time",
        "Sizes",
        "Time to live",
        "Miss penalty",
    ];
    assert_eq!(charts, expected);
    for part in &report.parts {
        match part {
            Part::Table(table) => assert!(table.rows.iter().all(|row| row.len() == table.columns.len())),
            Part::Chart(chart) => {
                for series in &chart.series {
                    assert!(series.points.is_sorted_by(|a, b| a.0 < b.0), "{}", chart.title);
                    assert!(series.points.iter().all(|p| p.0.is_finite() && p.1.is_finite()));
                }
            }
            _ => {}
        }
    }
}

#[test]
fn an_empty_source_has_a_report() {
    let report = report_of(Vec::new());
    assert_eq!(report.facts[0], ("requests".to_owned(), "0".to_owned()));
}
