//! Checks the orderings of PAMA's evaluation on a sample with ETC's sizes, and the Bloom filters against exact
//! tracking.

use super::super::*;
use super::sample::Sample;
use larder_sim::progress::Progress;
use larder_sim::{PENALTY_UNKNOWN_US, Source};

fn outcomes(names: &[&str], ms: &[usize]) -> Vec<Outcome> {
    let settings = Settings {
        classes: SlabClasses::new(16 << 10, 2.0, None).unwrap(),
        overhead_bytes: 0,
        hit_us: 100,
        refill: true,
        window_gets: 100_000,
        burst: None,
        scheme: SchemeSettings { value_window: 100_000, psa_misses: 100, ..SchemeSettings::default() },
        objective: None,
    };
    let mut simulations = Vec::new();
    for &name in names {
        let of = |&m: &usize| Simulation { scheme: name.to_owned(), m, memory_bytes: 8 << 20 };
        simulations.extend(ms.iter().map(of));
    }
    let mut open = || Ok(Box::new(Sample::new(100_000, 1_000_000, 0.9, 5)) as Box<dyn Source>);
    run(&settings, &simulations, 1, 2, &mut open, &mut Progress::new("test", true)).unwrap().outcomes
}

#[test]
fn pama_serves_fastest_and_hits_less_than_pre_pama() {
    let outcomes = outcomes(&["static", "psa", "pre-pama", "pama"], &[2]);
    let [fixed, psa, pre, pama] = &outcomes[..] else { panic!("four schemes") };
    assert!([fixed, psa, pre].iter().all(|o| o.totals.service_ms() > 1.3 * pama.totals.service_ms()));
    assert!(pre.totals.hit_ratio() > pama.totals.hit_ratio() + 0.02);
    assert!(pre.totals.hit_ratio() > fixed.totals.hit_ratio() + 0.02);
    assert!(f64::from(PENALTY_UNKNOWN_US) / 1e3 > pama.totals.service_ms());
}

#[test]
fn filters_tell_nearly_what_exact_tracking_tells() {
    let outcomes = outcomes(&["pama", "pama-exact"], &[2]);
    let [filtered, exact] = &outcomes[..] else { panic!("two schemes") };
    let audit = filtered.audit.unwrap();
    assert!(exact.audit.is_none());
    let strangers = (audit.judged - audit.in_segment) as f64;
    assert!((audit.false_positives as f64) < 0.04 * strangers, "{audit:?}");
    assert!((audit.false_negatives as f64) < 0.05 * audit.in_segment as f64, "{audit:?}");
    let of_exact = audit.judged_value_us / audit.exact_value_us;
    assert!((0.8..1.4).contains(&of_exact), "values are {of_exact} of the exact ones");
    let times = filtered.totals.service_ms() / exact.totals.service_ms();
    assert!((0.9..1.1).contains(&times), "service time is {times} of the exact one's");
}
