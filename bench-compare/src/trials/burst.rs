//! The hit ratio after a burst of cold items, against the hit ratio before it.

use anyhow::{Result, bail};

use super::client::{Window, mean, replay};
use super::figures::{Curve, Figure, TrialFigures};
use super::stage::Stage;
use crate::servers::Process;

/// GETs of a window.
const WINDOW: u64 = 20_000;
/// Windows before the burst that it is compared with, and windows shown after it.
const BEFORE: usize = 25;
/// A loss of hit ratio, in points, below which a server has recovered.
const RECOVERED_POINTS: f64 = 1.0;

/// A workload with a burst.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Burst {
    workload: String,
    /// GETs before the burst.
    at: u64,
}

impl Burst {
    /// A burst of a tenth of 64 MiB times `scale`.
    pub(crate) fn new(scale: f64) -> Self {
        let (keys, at) = ((1e6 * scale) as u64, (4e6 * scale) as u64 / WINDOW * WINDOW);
        let bytes = (0.1 * 64.0 * 1048576.0 * scale) as u64;
        let requests = at + 2 * BEFORE as u64 * WINDOW;
        let law = format!("keys={keys},requests={requests},theta=0.9,sizes=etc");
        Self { workload: format!("burst:base=zipfian,{law},at={at},burst-bytes={bytes}"), at }
    }
}

/// Runs the workload.
pub(crate) fn run(burst: &Burst, stage: &Stage<'_>) -> Result<(TrialFigures, Process)> {
    let process = (stage.start)()?;
    let window = WINDOW.to_string();
    let words = ["--workload", &burst.workload, "--window", &window, "--connections", "1", "--depth", "64"];
    let mut words = words.map(str::to_owned).to_vec();
    // All items cost the same. The time of a fetch that takes none would say otherwise.
    if stage.visit(&process)?.takes_costs()? {
        words.push("--state-costs".to_owned());
    }
    let played = replay(stage, &process, &words)?;
    let at = (burst.at / WINDOW) as usize;
    if at < BEFORE || played.windows.len() <= at {
        bail!("{} windows, of which {at} before the burst, are too few", played.windows.len());
    }
    let (before, after) = played.windows.split_at(at);
    let mut found = figures(&before[at - BEFORE..], after);
    found.note_refused(played.refused);
    Ok((found, process))
}

/// The loss in points of each window from the burst on.
fn figures(before: &[Window], after: &[Window]) -> TrialFigures {
    let usual = mean(before, |window| window.hit_ratio);
    let shown = &after[..after.len().min(BEFORE)];
    let loss: Vec<f64> = shown.iter().map(|window| 100.0 * (usual - window.hit_ratio)).collect();
    let suffering = loss.iter().take_while(|loss| **loss >= RECOVERED_POINTS).count() as u64;
    let lost: f64 = loss.iter().zip(shown).map(|(loss, window)| loss / 100.0 * window.gets).sum();
    let points = loss.iter().enumerate().map(|(at, loss)| ((at as u64 * WINDOW) as f64, *loss)).collect();
    TrialFigures {
        requests: before.iter().chain(after).map(|window| window.gets as u64).sum(),
        figures: vec![
            Figure::new("hit % before", Some(100.0 * usual), 2),
            Figure::new("hit % after", Some(100.0 * mean(shown, |window| window.hit_ratio)), 2),
            Figure::new("largest loss, points", loss.iter().copied().reduce(f64::max), 2),
            Figure::new("hits lost", Some(lost), 0),
            Figure::compared("GETs until within 1 point", Some((suffering * WINDOW) as f64), 0),
        ],
        curves: vec![Curve { name: "points lost", x: "GETs since the burst", points }],
        ..TrialFigures::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_is_the_first_window_that_does_not_suffer() {
        let windows = |ratios: &[f64]| -> Vec<Window> {
            let window =
                |hit_ratio: &f64| Window { gets: WINDOW as f64, hit_ratio: *hit_ratio, ..Window::default() };
            ratios.iter().map(window).collect()
        };
        let found = figures(&windows(&[0.79, 0.81]), &windows(&[0.75, 0.78, 0.795, 0.78]));
        let value = |at: usize| found.figures[at].value.expect("a number");
        assert!((value(2) - 5.0).abs() < 1e-9 && (value(3) - 1_900.0).abs() < 1e-6, "{found:?}");
        assert_eq!(value(4), 40_000.0);
        assert_eq!(figures(&windows(&[0.8]), &windows(&[0.8])).figures[4].value, Some(0.0));
    }

    #[test]
    fn the_burst_falls_on_the_start_of_a_window() {
        assert!(Burst::new(0.3).at.is_multiple_of(WINDOW));
    }
}
