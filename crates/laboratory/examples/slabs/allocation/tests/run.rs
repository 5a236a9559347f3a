//! Tests of runs: equal results for any number of threads, several passes, errors.

use super::super::*;
use super::sample::Sample;
use super::twin::settings;
use larder_sim::progress::Progress;
use larder_sim::report::Part;
use larder_sim::{Fields, Request, Source, SourceError};

fn simulations() -> Vec<Simulation> {
    let of = |name: &&str| Simulation { scheme: (*name).to_owned(), m: 2, memory_bytes: 64 * 4096 };
    NAMES.iter().map(of).collect()
}

fn outcomes(threads: usize, passes: u32) -> Vec<Outcome> {
    let mut open = || Ok(Box::new(Sample::new(3_000, 40_000, 0.8, 3)) as Box<dyn Source>);
    let mut progress = Progress::new("test", true);
    run(&settings(4096, None), &simulations(), passes, threads, &mut open, &mut progress).unwrap().outcomes
}

#[test]
fn threads_change_nothing() {
    let (one, four) = (outcomes(1, 1), outcomes(4, 1));
    assert_eq!(one.len(), NAMES.len());
    for (one, four) in one.iter().zip(&four) {
        assert_eq!((&one.scheme, &one.totals, &one.windows), (&four.scheme, &four.totals, &four.windows));
    }
}

#[test]
fn a_second_pass_goes_on_with_a_warm_cache() {
    for outcome in outcomes(2, 2) {
        let [first, second] = outcome.passes[..] else { panic!("two passes") };
        assert_eq!((first.gets, second.gets), (40_000, 40_000));
        if outcome.scheme == "static" {
            assert!(second.hits > first.hits, "a warm cache has no cold misses");
        }
        assert_eq!(first.hits + second.hits, outcome.totals.hits);
    }
}

#[test]
fn windows_add_up_to_the_totals() {
    for outcome in outcomes(2, 1) {
        let sum = |of: fn(&Totals) -> u64| outcome.windows.iter().map(|w| of(&w.totals)).sum::<u64>();
        assert_eq!(sum(|t| t.hits), outcome.totals.hits);
        assert_eq!(sum(|t| t.service_us), outcome.totals.service_us);
        assert_eq!(sum(|t| t.slabs_moved), outcome.totals.slabs_moved);
    }
}

#[test]
fn the_report_has_a_row_per_simulation_and_a_stacked_chart_each() {
    let outcomes = outcomes(2, 1);
    let options = ReportOptions { source: "a sample".to_owned(), classes: vec![0, 1] };
    let report = report(&settings(4096, None), &outcomes, &options);
    let tables: Vec<_> = report
        .parts
        .iter()
        .filter_map(|part| if let Part::Table(table) = part { Some(table) } else { None })
        .collect();
    assert_eq!(tables[0].rows.len(), NAMES.len());
    assert!(tables.iter().all(|table| table.rows.iter().all(|row| row.len() == table.columns.len())));
    let stacked = report
        .parts
        .iter()
        .filter(|part| matches!(part, Part::Chart(chart) if chart.title.starts_with("Memory per class,")));
    assert_eq!(stacked.count(), NAMES.len());
}

struct Broken;

impl Source for Broken {
    fn fill(&mut self, _: &mut Vec<Request>, _: usize) -> Result<usize, SourceError> {
        Err(SourceError::new("broken.csv: line 7: no number"))
    }
    fn fields(&self) -> Fields {
        Fields::default()
    }
    fn describe(&self) -> String {
        String::new()
    }
    fn done_ratio(&self) -> Option<f64> {
        None
    }
}

#[test]
fn a_broken_source_ends_the_run_with_its_error() {
    let mut open = || Ok(Box::new(Broken) as Box<dyn Source>);
    let mut progress = Progress::new("test", true);
    let error = run(&settings(4096, None), &simulations(), 1, 2, &mut open, &mut progress).unwrap_err();
    assert_eq!(error.0, "broken.csv: line 7: no number");
}

#[test]
fn bad_parameters_are_refused_with_a_reason() {
    let settings = settings(4096, None);
    let error = |scheme: &str, memory| Simulator::new(scheme, memory, &settings).err().unwrap();
    assert!(error("clever", 1 << 20).contains("there are static, automove"));
    assert!(error("static", 4095).contains("0 slabs"));
    assert!(SlabClasses::new(32, 2.0, None).unwrap_err().contains("a slab has 64 bytes"));
    assert!(SlabClasses::new(4096, 1.0, None).unwrap_err().contains("growth factor"));
    assert!(Rollover::parse("never").unwrap_err().contains("sliding, reset, last, decay"));
    let no_m = SchemeSettings { m: 17, ..SchemeSettings::default() };
    assert!(build("pama", &no_m, 5).err().unwrap().contains("m is from 0 to 16"));
}
