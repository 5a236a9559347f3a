//! The server's own cache beside the schemes on slabs.

use larder_cache::Objective;
use proptest::prelude::*;

use super::super::real::RealSimulator;
use super::super::*;
use super::sample::Sample;
use super::twin::{a_request, settings};
use larder_sim::progress::Progress;
use larder_sim::report::{Cell, Part};
use larder_sim::{Request, Source};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Where nothing has to go, every scheme answers the same, whatever it is made of.
    #[test]
    fn with_room_for_everything_the_server_answers_as_static_slabs_do(
        requests in prop::collection::vec(a_request(), 50..600),
    ) {
        let settings = settings(256, None);
        let mut slabs = Simulator::new("static", 16 << 20, &settings).unwrap();
        let mut real = RealSimulator::new("larder", 16 << 20, &settings).unwrap().unwrap();
        for (at, request) in requests.iter().enumerate() {
            let request = Request { time_s: at as u32 / 4, ..*request };
            slabs.request(&request);
            real.request(&request);
        }
        prop_assert_eq!(slabs.finish().totals, real.finish().totals);
    }
}

/// What the schemes made of the sample with this seed.
fn outcomes(schemes: &[&str], objective: Option<Objective>, seed: u64) -> (Settings, Vec<Outcome>) {
    let settings = Settings { objective, ..settings(1 << 20, None) };
    let simulations: Vec<Simulation> = schemes
        .iter()
        .map(|scheme| Simulation { scheme: (*scheme).to_owned(), m: 2, memory_bytes: 16 << 20 })
        .collect();
    let mut open = || Ok(Box::new(Sample::new(200_000, 400_000, 0.9, seed)) as Box<dyn Source>);
    let ran = run(&settings, &simulations, 1, 2, &mut open, &mut Progress::new("test", true)).unwrap();
    (settings, ran.outcomes)
}

#[test]
fn where_a_miss_costs_most_the_server_keeps_items_longest() {
    // The mean of several samples counts, so that no single one decides.
    let samples: Vec<Vec<Outcome>> =
        (3..6).map(|seed| outcomes(&["static", "larder", "larder-hits"], None, seed).1).collect();
    let ms = |at: usize| {
        samples.iter().map(|outcomes| outcomes[at].totals.service_ms()).sum::<f64>() / samples.len() as f64
    };
    println!("static {:.2} ms, larder {:.2} ms, larder-hits {:.2} ms", ms(0), ms(1), ms(2));
    assert!(ms(1) < 0.9 * ms(2), "{} ms with penalties, {} ms with hits alone", ms(1), ms(2));
    assert!(ms(1) < ms(0), "{} ms, {} ms on static slabs", ms(1), ms(0));
    assert!(samples.iter().flatten().all(|outcome| outcome.totals.gets == 400_000));
}

#[test]
fn the_report_has_a_row_for_the_server_and_orders_rows_by_the_objective() {
    let (settings, outcomes) = outcomes(&["static", "larder"], Some(Objective::Bytes), 3);
    let options = ReportOptions { source: "a sample".to_owned(), classes: vec![0] };
    let report = report(&settings, &outcomes, &options);
    let Part::Table(table) = &report.parts[0] else { panic!("the summary comes first") };
    assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    let at = table.columns.iter().position(|name| name == "byte hit ratio %").unwrap();
    let ratio = |row: usize| if let Cell::Number(ratio, _) = table.rows[row][at] { ratio } else { panic!() };
    assert!(ratio(0) >= ratio(1), "{} %, {} %", ratio(0), ratio(1));
    let larder = table.rows.iter().find(|row| row[1] == Cell::Text("larder".to_owned())).unwrap();
    assert_eq!(larder[2], Cell::Empty, "the server has no m");
    let stacked = |name: &str| {
        let title = format!("Memory per class, {name}");
        report.parts.iter().any(|part| matches!(part, Part::Chart(chart) if chart.title.starts_with(&title)))
    };
    assert!(stacked("static") && !stacked("larder"));
}

#[test]
fn less_memory_than_the_server_accepts_is_refused() {
    let error = RealSimulator::new("larder", 1 << 20, &settings(4096, None)).unwrap().err().unwrap();
    assert!(error.contains("at least 8 MiB"), "{error}");
    assert!(RealSimulator::new("clever", 64 << 20, &settings(4096, None)).is_none());
}
