//! The mean service time of a read-through cache whose misses differ in cost.

use anyhow::{Result, bail};

use super::client::{Window, mean, replay};
use super::figures::{Curve, Figure, TrialFigures};
use super::stage::Stage;
use crate::exchange::Exchange;
use crate::servers::Process;

/// The ranges of penalties: PAMA's Fig. 1.
const PENALTIES: &str = "penalty up to ms";
/// A lag of the client in seconds that the reader has to know of.
const LAG_S_MAX: f64 = 0.1;
/// Points of a curve.
const WINDOWS: u64 = 20;
/// Requests per second where misses take real time.
const RATE: f64 = 40_000.0;
/// Sizes and keys of a workload at full size. The data of all keys are ten times the 64 MiB of the cache.
const KEYS: [(&str, f64); 2] = [("etc", 2_600_000.0), ("app", 2_000_000.0)];
/// Requests at full size: where misses take real time, and where they take none.
const REQUESTS: [f64; 2] = [8_000_000.0, 16_000_000.0];

/// The workload and how the server learns what a miss costs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Service {
    workload: String,
    requests: u64,
    /// The client states the costs, and misses take no time. Otherwise misses take real time.
    stated: bool,
}

impl Service {
    /// The workload with these sizes and penalties.
    pub(crate) fn new(sizes: &str, penalties: &str, stated: bool, scale: f64) -> Self {
        let keys = KEYS.iter().find(|(name, _)| *name == sizes).map_or(1e6, |(_, keys)| keys * scale) as u64;
        let requests = (REQUESTS[usize::from(stated)] * scale) as u64;
        let workload =
            format!("zipfian:keys={keys},requests={requests},theta=0.9,sizes={sizes},penalties={penalties}");
        Self { workload, requests, stated }
    }

    /// The arguments of `larder replay`. `takes_costs`: the server understands stated costs.
    fn words(&self, takes_costs: bool) -> Vec<String> {
        let window = self.requests.div_ceil(WINDOWS).to_string();
        let mut words =
            vec!["--workload", &self.workload, "--window", &window, "--connections", "1", "--depth", "64"];
        let rate = RATE.to_string();
        if !self.stated {
            words.extend(["--rate", &rate, "--penalty-scale", "1", "--no-spin"]);
        } else if takes_costs {
            words.push("--state-costs");
        }
        words.into_iter().map(str::to_owned).collect()
    }
}

/// Runs the workload.
pub(crate) fn run(service: &Service, stage: &Stage<'_>) -> Result<(TrialFigures, Process)> {
    let process = (stage.start)()?;
    let takes_costs = service.stated && stage.visit(&process)?.takes_costs()?;
    let played = replay(stage, &process, &service.words(takes_costs))?;
    if played.windows.len() < 2 {
        bail!("{} windows are too few", played.windows.len());
    }
    let mut found = figures(&played.windows, !service.stated);
    let known = known_penalties(&mut stage.visit(&process)?)?;
    found.curves.push(Curve { name: "fetched %", x: PENALTIES, points: played.fetched });
    found.curves.push(Curve { name: "learnt %", x: PENALTIES, points: known });
    found.note_refused(played.refused);
    if played.lag_s > LAG_S_MAX {
        found.notes.push(format!("fell behind its schedule: requests came up to {:.1} s late", played.lag_s));
    }
    if takes_costs {
        found.notes.push("was told the costs".to_owned());
    }
    Ok((found, process))
}

/// The penalties that the server measured or was told, as Larder counts them: the largest of a range in milliseconds,
/// and the share of all in percent. Nothing from other servers.
fn known_penalties(exchange: &mut Exchange<'_>) -> Result<Vec<(f64, f64)>> {
    const RANGES: [(f64, &str); 5] = [
        (1.0, "to_1_ms"),
        (10.0, "to_10_ms"),
        (100.0, "to_100_ms"),
        (1_000.0, "to_1_s"),
        (5_000.0, "to_5_s"),
    ];
    let stats = exchange.stats("stats penalties")?;
    let counts: Option<Vec<f64>> = RANGES.iter().map(|(_, name)| stats.get(*name)?.parse().ok()).collect();
    let Some(counts) = counts else { return Ok(Vec::new()) };
    let all = counts.iter().sum::<f64>().max(1.0);
    Ok(RANGES.iter().zip(counts).map(|((max_ms, _), count)| (*max_ms, 100.0 * count / all)).collect())
}

/// Means over all GETs and over the second half, when the server has settled. `took_time`: misses took real time.
fn figures(windows: &[Window], took_time: bool) -> TrialFigures {
    let late = &windows[windows.len() / 2..];
    let hits = |windows: &[Window]| Some(100.0 * mean(windows, |window| window.hit_ratio));
    let ms = |windows: &[Window]| Some(mean(windows, |window| window.service_ms));
    let waited_ms = |windows: &[Window]| took_time.then(|| mean(windows, |window| window.waited_ms));
    let curve = |name, of: &dyn Fn(&Window) -> f64| {
        let points = windows.iter().map(|window| (window.from, of(window))).collect();
        Curve { name, x: "GETs before", points }
    };
    TrialFigures {
        requests: windows.iter().map(|window| window.gets as u64).sum(),
        figures: vec![
            Figure::new("hit %", hits(windows), 2),
            Figure::compared("ms", ms(windows), 2),
            Figure::new("waited ms", waited_ms(windows), 2),
            Figure::new("late hit %", hits(late), 2),
            Figure::compared("late ms", ms(late), 2),
            Figure::new("late waited ms", waited_ms(late), 2),
        ],
        curves: vec![
            curve("hit %", &|window| 100.0 * window.hit_ratio),
            curve("ms", &|window| window.service_ms),
        ],
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_stated_to_servers_that_take_them() {
        let stated = Service::new("etc", "tenants", true, 0.5);
        assert!(stated.words(true).contains(&"--state-costs".to_owned()));
        assert!(!stated.words(false).contains(&"--state-costs".to_owned()));
        assert!(!stated.words(true).contains(&"--rate".to_owned()));
        let waiting = Service::new("app", "tenants", false, 1.0);
        assert!(waiting.words(true).join(" ").ends_with("--rate 40000 --penalty-scale 1 --no-spin"));
        assert!(waiting.workload.contains("keys=2000000,requests=8000000"), "{}", waiting.workload);
    }

    #[test]
    fn the_second_half_is_apart() {
        let window =
            |from, service_ms| Window { from, gets: 10.0, hit_ratio: 0.5, service_ms, waited_ms: 1.0 };
        let found = figures(&[window(0.0, 4.0), window(10.0, 2.0)], false);
        let value =
            |name| found.figures.iter().find(|figure| figure.name == name).and_then(|figure| figure.value);
        assert_eq!((value("ms"), value("late ms"), value("waited ms")), (Some(3.0), Some(2.0), None));
        assert_eq!((found.requests, found.curves[1].points[1]), (20, (10.0, 2.0)));
    }
}
