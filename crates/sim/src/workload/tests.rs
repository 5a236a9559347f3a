//! Compares each law with its exact distribution. The seeds are fixed, so a test either always passes or always
//! fails.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::alias::Alias;
use super::laws::{Drift, Keys};
use super::quantile::{PowerTable, QuantileTable, Tail, extreme, lognormal, normal, pareto};
use super::rng::{Permutation, Rng};
use super::settings::{LAWS, PARAMETERS, Settings};
use super::zipf::Zipf;
use super::{list, parse};
use crate::progress::Progress;
use crate::{Op, Request};

/// All requests of a workload.
fn all(words: &str) -> Vec<Request> {
    let mut source = parse(words).unwrap();
    let mut requests = Vec::new();
    while source.fill(&mut requests, 16_384).unwrap() > 0 {}
    assert_eq!(source.requests_hint(), Some(requests.len() as u64), "{words}");
    assert_eq!(source.done_ratio(), Some(1.0), "{words}");
    requests
}

/// The deviation of counts from their expected values: chi-square in standard deviations from its mean.
fn chi_square_deviation(counts: &[u64], probabilities: &[f64]) -> f64 {
    let total: u64 = counts.iter().sum();
    let sum: f64 = counts
        .iter()
        .zip(probabilities)
        .map(|(count, p)| {
            let expected = p * total as f64;
            assert!(expected > 5.0, "too few for a chi-square");
            (*count as f64 - expected).powi(2) / expected
        })
        .sum();
    let freedom = (counts.len() - 1) as f64;
    (sum - freedom) / (2.0 * freedom).sqrt()
}

/// The largest distance between the distribution of the values and the exact one, times the square root of their
/// number (Kolmogorov; above 1.95 once in a thousand).
fn kolmogorov(mut values: Vec<f64>, exact: impl Fn(f64) -> f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len() as f64;
    let runs = values.chunk_by(|a, b| a == b).scan(0, |below, run| {
        *below += run.len();
        Some((run[0], *below as f64 / n))
    });
    // Both sides of the value are compared, because the tested laws are discrete.
    runs.map(|(value, share)| (share - exact(value)).abs()).fold(0.0, f64::max) * n.sqrt()
}

/// Zipf's probabilities, one by one.
fn zipf_naive(n: u64, theta: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=n).map(|rank| (rank as f64).powf(-theta)).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Probabilities and counts in bins with enough expected samples.
fn binned(counts: &[u64], probabilities: &[f64]) -> (Vec<u64>, Vec<f64>) {
    let total: u64 = counts.iter().sum();
    let (mut c, mut p) = (vec![0], vec![0.0]);
    for (count, probability) in counts.iter().zip(probabilities) {
        if p[p.len() - 1] * total as f64 > 100.0 {
            c.push(0);
            p.push(0.0);
        }
        *c.last_mut().unwrap() += count;
        *p.last_mut().unwrap() += probability;
    }
    if p.len() > 1 && p[p.len() - 1] * total as f64 <= 10.0 {
        let (count, probability) = (c.pop().unwrap(), p.pop().unwrap());
        *c.last_mut().unwrap() += count;
        *p.last_mut().unwrap() += probability;
    }
    (c, p)
}

#[test]
fn zipf_follows_its_law_for_small_and_large_numbers_of_ranks() {
    for n in [2, 10, 1_000, 1_056, 5_000, 100_000] {
        for theta in [0.2, 0.8, 0.99, 1.0, 1.3, 2.5] {
            let zipf = Zipf::new(n, theta);
            let mut rng = Rng::new(n);
            let mut counts = vec![0u64; n as usize];
            (0..400_000).for_each(|_| counts[zipf.sample(&mut rng) as usize] += 1);
            let (counts, probabilities) = binned(&counts, &zipf_naive(n, theta));
            let deviation = chi_square_deviation(&counts, &probabilities);
            assert!(deviation.abs() < 4.5, "n={n} theta={theta}: {deviation} standard deviations");
        }
    }
}

#[test]
fn zipf_over_ranks_that_no_table_could_hold_has_the_share_of_the_integral() {
    let (n, theta) = (1u64 << 40, 1.0);
    let zipf = Zipf::new(n, theta);
    let mut rng = Rng::new(3);
    let draws = 400_000;
    let below = (0..draws).filter(|_| zipf.sample(&mut rng) < 1 << 20).count() as f64 / f64::from(draws);
    let harmonic = |n: f64| n.ln() + 0.577_215_664_901_532_9;
    let expected = harmonic((1u64 << 20) as f64) / harmonic(n as f64);
    assert!((below - expected).abs() < 0.003, "{below} for {expected}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn zipf_agrees_with_a_cumulative_twin(n in 1u64..3_000, theta in 0.01f64..5.0, seed: u64) {
        let zipf = Zipf::new(n, theta);
        let mut rng = Rng::new(seed);
        let mut counts = vec![0u64; n as usize];
        (0..20_000).for_each(|_| counts[zipf.sample(&mut rng) as usize] += 1);
        let (mut drawn, mut exact) = (0.0, 0.0);
        for (count, p) in counts.iter().zip(zipf_naive(n, theta)) {
            drawn += *count as f64 / 20_000.0;
            exact += p;
            // Kolmogorov: 2.8 / sqrt(20,000) is exceeded once in three million.
            prop_assert!((drawn - exact).abs() < 0.02, "{} for {}", drawn, exact);
        }
    }

    #[test]
    fn a_permutation_reaches_every_number_once(n in 1u64..3_000, seed: u64) {
        let permutation = Permutation::new(n, seed);
        let reached: BTreeSet<u64> = (0..n).map(|x| permutation.apply(x)).collect();
        prop_assert_eq!(reached.len() as u64, n);
        prop_assert!(reached.last().is_none_or(|last| *last < n));
    }

    #[test]
    fn an_alias_table_gives_each_outcome_its_weight(weights in prop::collection::vec(0.0f64..10.0, 1..40)) {
        let sum: f64 = weights.iter().sum();
        prop_assume!(sum > 0.1);
        let alias = Alias::new(&weights);
        let mut counts = vec![0u64; weights.len()];
        // Evenly spaced bits sample without randomness.
        let draws = 1u64 << 16;
        (0..draws).for_each(|at| counts[alias.pick(at << 48 | 1 << 47)] += 1);
        for (count, weight) in counts.iter().zip(&weights) {
            let off = *count as f64 / draws as f64 - weight / sum;
            prop_assert!(off.abs() < 2.0 * weights.len() as f64 / draws as f64, "{} off", off);
        }
    }

    #[test]
    fn a_description_gives_the_same_stream_again(words in any_words()) {
        let mut source = parse(&words).unwrap();
        let description = source.describe();
        let mut again = parse(&description).unwrap();
        prop_assert_eq!(&again.describe(), &description);
        prop_assert_eq!(again.fields(), source.fields());
        let (mut a, mut b) = (Vec::new(), Vec::new());
        source.fill(&mut a, 3_000).unwrap();
        loop {
            let most = 37.min(3_000 - b.len());
            if again.fill(&mut b, most).unwrap() == 0 {
                break;
            }
        }
        prop_assert_eq!(a, b);
    }

    #[test]
    fn a_quantile_table_is_close_to_its_function(bits: u64) {
        let (pareto, extreme) = (pareto(15.0, 214.476, 0.348_238), extreme(270.0, 40.0, 0.1));
        let lognormal = lognormal(20_000.0, 0.8);
        let laws: [Quantile<'_>; 3] =
            [(&pareto, "pareto"), (&extreme, "extreme"), (&lognormal, "lognormal")];
        let u = (bits as f64 + 0.5) / 2f64.powi(64);
        prop_assume!((1e-6..1.0 - 1e-6).contains(&u));
        for (law, name) in laws {
            let exact = if u < 0.5 { law(Tail::Lower, u) } else { law(Tail::Upper, 1.0 - u) };
            let drawn = f64::from(QuantileTable::new(law, 1.0, 5e6).pick(bits));
            prop_assert!((drawn / exact - 1.0).abs() < 1e-3, "{} {}: {} for {}", name, u, drawn, exact);
        }
    }

    #[test]
    fn a_power_table_is_close_to_the_power(size in 1u32.., exponent in -1.0f64..1.0) {
        let drawn = f64::from(PowerTable::new(exponent, 3.0).at(size));
        let exact = 3.0 * f64::from(size).powf(exponent);
        prop_assert!((drawn / exact - 1.0).abs() < 1e-3, "{} for {}", drawn, exact);
    }
}

/// A quantile function by tail and probability, with its name.
type Quantile<'a> = (&'a dyn Fn(Tail, f64) -> f64, &'a str);

/// Workloads with arbitrary parameters.
fn any_words() -> impl Strategy<Value = String> {
    let sizes = prop::sample::select(vec![
        "none",
        "fixed:77",
        "fixed:1k",
        "uniform:5:9",
        "app",
        "etc",
        "sys",
        "usr",
        "var",
    ]);
    let ttls = prop::sample::select(vec!["none", "fixed:90", "fixed:12h", "mix"]);
    let penalties = prop::sample::select(vec![
        "none",
        "fixed:0.5",
        "lognormal",
        "lognormal:anti",
        "tenants:correlated:0.7",
        "tenants",
    ]);
    let law = prop::sample::select(vec![
        "zipfian:theta=1,",
        "hotspot:hot-keys=0.1,hot-requests=0.95,",
        "latest:theta=0.5,inserts=0.3,",
        "uniform:",
        "mix:one-time=0.25,",
        "burst:at=100,burst-bytes=50k,",
        "burst:base=hotspot,at=7,burst-sizes=60:130,",
        "drift:day=90s,swing=3.5,audiences=7,",
    ]);
    let numbers = (7u64..5_000_000, 100u64..100_000, 0.0f64..0.6, 0.0f64..0.4, 1.0f64..1e6);
    (law, sizes, ttls, penalties, numbers, any::<u64>()).prop_map(|(law, sizes, ttls, penalties, n, seed)| {
        let (keys, requests, reads, deletes, rate) = n;
        format!(
            "{law}sizes={sizes},ttls={ttls},penalties={penalties},keys={keys},requests={requests},reads={reads},\
             deletes={deletes},rate={rate},seed={seed}"
        )
    })
}

#[test]
fn the_normal_quantile_inverts_the_distribution() {
    for p in [0.5, 0.4, 0.1, 1e-3, 1e-9, 1e-30] {
        let z = normal(Tail::Lower, p);
        assert!((0.5 * libm::erfc(-z / 2f64.sqrt()) / p - 1.0).abs() < 1e-10, "{p}");
        assert_eq!(normal(Tail::Upper, p), -z);
    }
    assert!((normal(Tail::Upper, 0.025) - 1.959_963_984_540_054).abs() < 1e-12);
}

#[test]
fn zipfian_requests_have_zipfs_popularity_over_spread_keys() {
    let requests = all("zipfian:keys=5k,requests=500k,theta=0.99");
    let mut counts = vec![0u64; 5_000];
    requests.iter().for_each(|r| counts[r.key as usize] += 1);
    let top = counts.iter().zip(0..).max().map(|(_, key): (_, usize)| key);
    assert_ne!(top, Some(0), "the most popular key lies anywhere");
    let permutation = Permutation::new(5_000, super::rng::mix64(1 ^ 0x7370_7265_6164_0000));
    let by_rank: Vec<u64> = (0..5_000).map(|rank| counts[permutation.apply(rank) as usize]).collect();
    let (c, p) = binned(&by_rank, &zipf_naive(5_000, 0.99));
    assert!(chi_square_deviation(&c, &p).abs() < 4.0);
}

#[test]
fn uniform_requests_are_even() {
    let mut counts = vec![0u64; 1_000];
    all("uniform:keys=1k,requests=500k").iter().for_each(|r| counts[r.key as usize] += 1);
    assert!(chi_square_deviation(&counts, &vec![1e-3; 1_000]).abs() < 4.0);
}

#[test]
fn hotspot_gives_a_fifth_of_the_keys_four_fifths_of_the_requests_evenly() {
    let mut counts = vec![0u64; 1_000];
    all("hotspot:keys=1k,requests=1m").iter().for_each(|r| counts[r.key as usize] += 1);
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let probabilities: Vec<f64> = (0..1_000).map(|at| if at < 200 { 0.004 } else { 0.00025 }).collect();
    assert!(chi_square_deviation(&counts, &probabilities).abs() < 4.0);
}

#[test]
fn hotspot_holds_at_its_edges() {
    assert_eq!(all("hotspot:keys=9,requests=1k,hot-keys=0,hot-requests=1").len(), 1_000);
    assert_eq!(all("hotspot:keys=9,requests=1k,hot-keys=1,hot-requests=0").len(), 1_000);
    assert_eq!(all("hotspot:keys=1,requests=1k").iter().map(|r| r.key).max(), Some(0));
}

#[test]
fn latest_is_zipfian_by_recency_and_inserts_its_share() {
    let mut keys = 1_000;
    let mut counts = vec![0u64; 1_000];
    let (mut inserts, mut reads) = (0, 0);
    for request in all("latest:keys=1k,requests=400k,theta=0.8") {
        if request.op == Op::Set {
            assert_eq!(request.key, keys, "new keys follow each other");
            keys += 1;
            inserts += 1;
        } else {
            let age = keys - 1 - request.key;
            reads += 1;
            if age < 1_000 {
                counts[age as usize] += 1;
            }
        }
    }
    assert!((f64::from(inserts) / 400_000.0 - 0.05).abs() < 0.002);
    assert!(counts.iter().sum::<u64>() < reads, "older keys are read as well");
    // The law of the thousand youngest keys, cut off there, for any number of keys.
    let (c, p) = binned(&counts, &zipf_naive(1_000, 0.8));
    assert!(chi_square_deviation(&c, &p).abs() < 4.0);
}

#[test]
fn mix_writes_as_many_keys_once_as_it_asks_zipfian_ones() {
    let requests = all("mix:keys=1k,requests=200k");
    let once: Vec<&Request> = requests.iter().filter(|r| r.key >= 1_000).collect();
    assert!((once.len() as f64 / 100_000.0 - 1.0).abs() < 0.01);
    assert!(once.iter().zip(1_000..).all(|(r, key)| r.key == key && r.op == Op::Set));
    assert!(requests.iter().filter(|r| r.key < 1_000).all(|r| r.op == Op::Get));
}

#[test]
fn a_burst_adds_up_to_its_octets_within_its_sizes_and_leaves_the_base_alone() {
    for (bytes, sizes, from, to) in
        [(1_000_000u64, "257:2048", 257, 2_048), (1_000_003, "60:120", 60, 120), (300, "100:200", 100, 200)]
    {
        let words = "keys=5k,requests=20k,sizes=etc,penalties=tenants";
        let requests = all(&format!("burst:{words},at=9k,burst-bytes={bytes},burst-sizes={sizes}"));
        let (cold, base): (Vec<Request>, Vec<Request>) = requests.iter().partition(|r| r.key >= 5_000);
        assert_eq!(cold.iter().map(Request::item_bytes).sum::<u64>(), bytes);
        assert!(cold.iter().all(|r| (from..=to).contains(&r.item_bytes()) && r.op == Op::Set));
        assert!(requests[9_000..9_000 + cold.len()] == cold, "at once, at the given request");
        assert_eq!(base, all(&format!("zipfian:{words}")));
    }
}

#[test]
fn drift_always_gives_every_rank_one_key_and_returns_after_a_day() {
    let settings = Settings::parse("drift:keys=1003,audiences=5,day=1000s").unwrap();
    let mut drift = Drift::new(&settings);
    let mut holders = |time_s: f64| -> Vec<u64> {
        drift.time_is(time_s);
        (0..1_003).map(|rank| drift.holder(rank)).collect()
    };
    let begin = holders(0.0);
    for time_s in [0.0, 1.0, 99.9, 200.0, 555.5, 999.9] {
        assert_eq!(holders(time_s).iter().collect::<BTreeSet<_>>().len(), 1_003);
    }
    let moved = |a: &[u64], b: &[u64]| a.iter().zip(b).filter(|(a, b)| a != b).count();
    assert_eq!(moved(&begin, &holders(1_000.0)), 0);
    assert_eq!(moved(&begin, &holders(200.0)), 1_000, "every group has turned");
    let half = moved(&begin, &holders(100.0));
    assert!((400..600).contains(&half), "half of the groups have turned: {half}");
}

#[test]
fn drift_swings_its_rate_by_two_over_a_day() {
    let requests = all("drift:keys=1k,requests=2m,day=2000s,rate=1k");
    let mut per_100_s = BTreeMap::new();
    requests.iter().for_each(|r| *per_100_s.entry(r.time_s / 100).or_insert(0u32) += 1);
    let rates: Vec<f64> = per_100_s.values().take(20).map(|n| f64::from(*n)).collect();
    let most = rates.iter().copied().fold(0.0, f64::max);
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    assert!((most / least - 2.0).abs() < 0.1, "{most} / {least}");
    assert!(requests.is_sorted_by_key(|r| r.time_s));
    assert!((1_990..=2_010).contains(&requests.last().unwrap().time_s), "a day has its mean rate");
}

#[test]
fn operations_have_their_shares() {
    let requests = all("uniform:keys=10,requests=500k,reads=0.7,deletes=0.1");
    let share = |op| requests.iter().filter(|r| r.op == op).count() as f64 / 500_000.0;
    assert!((share(Op::Get) - 0.7).abs() < 0.003);
    assert!((share(Op::Delete) - 0.1).abs() < 0.003);
    assert!((share(Op::Set) - 0.2).abs() < 0.003);
    assert!(all("zipfian:requests=100k,reads=1").iter().all(|r| r.op == Op::Get));
}

#[test]
fn time_advances_by_the_rate() {
    let requests = all("uniform:keys=10,requests=100k,rate=2.5k");
    assert!(requests.iter().zip(0u32..).all(|(r, at)| r.time_s == at / 2_500));
}

#[test]
fn a_key_has_the_same_attributes_at_every_request() {
    for law in super::laws().filter(|law| *law != "burst") {
        let words = "keys=300,requests=20k,sizes=etc,ttls=mix,penalties=tenants:correlated,reads=0.5";
        let mut seen = BTreeMap::new();
        for r in all(&format!("{law}:{words}")) {
            let now = (r.key_bytes, r.value_bytes, r.ttl_s, r.penalty_us, r.client);
            assert_eq!(*seen.entry(r.key).or_insert(now), now, "{law}");
        }
        let other = all(&format!("{law}:{words},seed=2"));
        assert!(other.iter().any(|r| seen.get(&r.key).is_some_and(|was| was.3 != r.penalty_us)), "{law}");
    }
}

/// One request per key, so that attributes are sampled evenly.
fn each_key(words: &str) -> Vec<Request> {
    let requests = all(&format!("mix:keys=1,one-time=1,requests=200k,{words}"));
    assert_eq!(requests.last().unwrap().key, 200_000);
    requests
}

#[test]
fn etc_sizes_follow_the_published_laws() {
    let requests = each_key("sizes=etc");
    let mut small = [0u64; 16];
    requests.iter().for_each(|r| small[r.value_bytes.min(15) as usize] += 1);
    let rest = 1.0 - super::sizes::ETC_SMALL.iter().sum::<f64>();
    let probabilities: Vec<f64> = super::sizes::ETC_SMALL.iter().copied().chain([rest]).collect();
    assert!(chi_square_deviation(&small, &probabilities).abs() < 4.0);

    let (sigma, k) = (214.476, 0.348_238);
    let large = requests.iter().filter(|r| r.value_bytes >= 15).map(|r| f64::from(r.value_bytes)).collect();
    let far = kolmogorov(large, |x| 1.0 - (1.0 + k * (x + 1.0 - 15.0) / sigma).powf(-1.0 / k));
    assert!(far < 1.95, "{far}");

    let (mu, sigma, k) = (30.7984, 8.20449, 0.078_688);
    let keys = requests.iter().map(|r| f64::from(r.key_bytes)).collect();
    let far = kolmogorov(keys, |x| (-(1.0 + k * (x + 0.5 - mu) / sigma).powf(-1.0 / k)).exp());
    assert!(far < 1.95, "{far}");
}

#[test]
fn penalties_lie_within_their_range_around_100_ms() {
    for kind in ["lognormal", "lognormal:correlated", "lognormal:anti:0.5", "tenants", "tenants:anti"] {
        let requests = each_key(&format!("sizes=app,penalties={kind}"));
        let mean = requests.iter().map(|r| f64::from(r.penalty_us)).sum::<f64>() / 200_000.0;
        assert!((90_000.0..120_000.0).contains(&mean), "{kind}: {mean}");
        assert!(requests.iter().all(|r| (200..=5_000_000).contains(&r.penalty_us)), "{kind}");
    }
}

#[test]
fn penalties_rise_or_fall_with_size_as_asked() {
    for (kind, sign) in [("correlated:1", 1.0), ("anti:1", -1.0)] {
        let requests = each_key(&format!("sizes=uniform:100:10k,penalties=lognormal:{kind}"));
        let mean = |large: bool| {
            let of = requests.iter().filter(|r| (r.value_bytes > 5_000) == large);
            let logs: Vec<f64> = of.map(|r| f64::from(r.penalty_us).ln()).collect();
            logs.iter().sum::<f64>() / logs.len() as f64
        };
        assert!((mean(true) - mean(false)) * sign > 0.5, "{kind}");
    }
}

#[test]
fn tenants_tell_the_penalty() {
    let requests = each_key("penalties=tenants");
    let median = |from: u32, to: u32| {
        let of = requests.iter().filter(|r| (from..to).contains(&r.client));
        let mut penalties: Vec<u32> = of.map(|r| r.penalty_us).collect();
        penalties.sort_unstable();
        (penalties.len() as f64 / 200_000.0, f64::from(penalties[penalties.len() / 2]))
    };
    for (from, to, share, us) in
        [(0, 9, 0.45, 2e3), (9, 15, 0.3, 2e4), (15, 19, 0.2, 1.2e5), (19, 20, 0.05, 1.2e6)]
    {
        let (drawn_share, drawn_us) = median(from, to);
        assert!((drawn_share - share).abs() < 0.005, "{from}..{to}: {drawn_share}");
        assert!((drawn_us / us - 1.0).abs() < 0.05, "{from}..{to}: {drawn_us}");
    }
}

#[test]
fn most_keys_of_the_ttl_mixture_live_for_days() {
    let requests = each_key("ttls=mix");
    let share =
        |from, to| requests.iter().filter(|r| (from..to).contains(&r.ttl_s)).count() as f64 / 200_000.0;
    assert!((share(0, 1) - 0.05).abs() < 0.005);
    assert!((share(60, 3_600) - 0.10).abs() < 0.005);
    assert!((share(3_600, 86_400) - 0.20).abs() < 0.005);
    assert!((share(86_400, 14 * 86_400) - 0.65).abs() < 0.005);
}

#[test]
fn errors_are_one_line_and_say_what_there_is() {
    for (words, expected) in [
        ("zipfan", "there is no workload 'zipfan'; did you mean 'zipfian'? workloads are zipfian, hotspot"),
        ("", "there is no workload ''; workloads are"),
        (
            "zipfian:teta=1",
            "workload zipfian has no parameter 'teta'; did you mean 'theta'? its parameters are",
        ),
        ("uniform:theta=1", "workload uniform has no parameter 'theta'"),
        ("zipfian:keys", "'keys' is not PARAMETER=VALUE"),
        ("zipfian:keys=1,", "'' is not PARAMETER=VALUE"),
        ("zipfian:keys=0", "keys is a count from 1 to"),
        ("zipfian:keys=1,keys=2", "keys is given twice"),
        ("zipfian:theta=0", "theta is a number above 0 to 5"),
        ("zipfian:theta=nan", "theta is a number above 0 to 5"),
        ("zipfian:sizes=ect", "sizes is one of none, fixed:N, uniform:FROM:TO, app, etc"),
        ("zipfian:sizes=uniform:9:5", "sizes is one of"),
        ("zipfian:penalties=lognormal:corelated", "penalties is one of none, fixed:MILLISECONDS"),
        ("zipfian:reads=0.9,deletes=0.2", "reads=0.9 and deletes=0.2 are more than 1"),
        ("zipfian:rate=0", "rate is requests per second"),
        ("zipfian:rate=0.000001", "longer than a trace's 32 bits of seconds"),
        ("burst:burst-sizes=100:150", "TO is at least 2 x FROM"),
        ("burst:at=20m", "at=20000000 lies behind the last"),
        ("burst:base=mix", "base is one of zipfian, hotspot, uniform"),
        ("drift:keys=3", "audiences=4 are more than keys=3"),
        ("drift:day=0", "day is a duration"),
        ("uniform:seed=-1", "seed is a whole number"),
    ] {
        let error = parse(words).err().unwrap_or_else(|| panic!("{words} is taken")).0;
        assert!(error.contains(expected), "{words}: {error}");
        assert!(!error.contains('\n'), "{words}");
    }
}

#[test]
fn the_list_names_every_law_and_parameter() {
    let text = list();
    assert!(LAWS.iter().all(|(_, name, _)| text.contains(name)));
    assert!(PARAMETERS.iter().all(|parameter| text.contains(parameter.name)));
}

#[test]
fn a_check_counts_what_the_stream_holds() {
    let mut source =
        parse("uniform:keys=100,requests=50k,reads=0.5,sizes=fixed:300,penalties=fixed:20").unwrap();
    let report = super::check(source.as_mut(), &mut Progress::new("", true)).unwrap();
    let fact = |name: &str| report.facts.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    assert_eq!(fact("requests"), Some("50,000"));
    assert_eq!(fact("keys in the first 50,000 requests"), Some("100"));
    assert_eq!(fact("mean item"), Some("324 bytes"));
    let mut nothing = parse("uniform:requests=0").unwrap();
    assert!(super::check(nothing.as_mut(), &mut Progress::new("", true)).is_ok());
}

/// FNV-1a over the fields of the first million requests.
fn checksum(words: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for r in all(words) {
        let fields = [
            r.key,
            u64::from(r.time_s) << 32 | u64::from(r.value_bytes),
            u64::from(r.ttl_s) << 32 | u64::from(r.penalty_us),
            u64::from(r.client) << 32 | u64::from(r.key_bytes) << 8 | r.op as u64,
        ];
        for field in fields {
            hash = (hash ^ field).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

#[test]
fn the_first_million_requests_of_every_law_are_the_same_everywhere() {
    let common = "keys=100k,requests=1m,reads=0.9,deletes=0.02,ttls=mix,seed=7";
    let pinned = [
        ("zipfian:theta=1,sizes=etc,penalties=lognormal", 0x1aaa_b59d_b72f_2a47),
        ("hotspot:sizes=app,penalties=tenants:correlated", 0x32aa_9e25_e372_66bc),
        ("latest:sizes=sys,penalties=lognormal:anti:0.4", 0x1c8f_1047_cc80_49de),
        ("uniform:sizes=usr,penalties=tenants", 0xc97d_a3bc_72ae_a62a),
        ("mix:sizes=var,penalties=fixed:3.5", 0x3f7d_48cd_7a3f_010d),
        ("burst:burst-bytes=1m,sizes=etc,penalties=lognormal", 0xc9fa_f36b_154f_aa7b),
        ("drift:day=60s,sizes=uniform:10:9k,penalties=tenants:anti", 0xecb5_5f81_5156_b38a),
    ];
    let now = pinned.map(|(words, _)| (words, checksum(&format!("{words},{common}"))));
    assert_eq!(now, pinned);
}

#[test]
fn a_swing_shortens_only_the_law_that_has_one() {
    assert!(Settings::parse("uniform:requests=3g,rate=1").is_ok());
    assert!(Settings::parse("drift:requests=3g,rate=1").is_err());
    assert!(Settings::parse("uniform:requests=5g,rate=1").is_err());
}

#[test]
fn a_name_leaves_out_what_has_its_default() {
    let name = |words: &str| parse(words).unwrap().name();
    assert_eq!(name("uniform:requests=5"), "a uniform workload of 1,000,000 keys");
    assert_eq!(
        name("zipfian:keys=20k,theta=0.99,sizes=etc,seed=7"),
        "a zipfian workload of 20,000 keys (sizes=etc, seed=7)"
    );
}
