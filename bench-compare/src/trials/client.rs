//! `larder replay` as the client of a trial.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::stage::Stage;
use crate::servers::Process;
use crate::wire::Protocol;

/// The column of the table `pace` with the longest lag in microseconds.
const LAG_COLUMN: usize = 5;

/// One window of GETs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Window {
    /// GETs before the window.
    pub(crate) from: f64,
    /// GETs.
    pub(crate) gets: f64,
    /// Hit ratio.
    pub(crate) hit_ratio: f64,
    /// Mean service time in milliseconds: a hit 0.1 ms, a miss its penalty.
    pub(crate) service_ms: f64,
    /// Mean service time in milliseconds: a hit 0.1 ms, a miss what it really waited for the back end.
    pub(crate) waited_ms: f64,
}

/// The mean of a quantity over windows, weighted by their GETs.
pub(crate) fn mean(windows: &[Window], of: impl Fn(&Window) -> f64) -> f64 {
    let gets: f64 = windows.iter().map(|window| window.gets).sum();
    windows.iter().map(|window| of(window) * window.gets).sum::<f64>() / gets.max(1.0)
}

/// What a replay found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Played {
    /// All windows, in order.
    pub(crate) windows: Vec<Window>,
    /// Fetches from the back end: the largest penalty of a range in milliseconds, and the share of all in percent.
    pub(crate) fetched: Vec<(f64, f64)>,
    /// Requests that the server refused.
    pub(crate) refused: u64,
    /// The longest time in seconds from when a request was due until it was sent, where requests are due at all.
    pub(crate) lag_s: f64,
}

/// Replays against a server. `words` are the arguments that are not about the server.
pub(crate) fn replay(stage: &Stage<'_>, process: &Process, words: &[String]) -> Result<Played> {
    let protocol = match stage.wire.protocol {
        Protocol::Text => "memcached",
        Protocol::Resp => "resp",
        Protocol::Binary => bail!("`larder replay` does not speak the binary protocol"),
    };
    if process.door.identity.is_some() {
        bail!("`larder replay` does not encrypt");
    }
    let output = Command::new(std::env::current_exe()?)
        .args(["launch", "--cores", &stage.cores.to_string()])
        .args(["--parent", &std::process::id().to_string(), "--"])
        .arg(stage.larder)
        .args(["replay", "--server", &process.door.address.to_string(), "--protocol", protocol])
        .args(["--read-through", "--verify", "fast", "--quiet", "--json", "-"])
        .args(words)
        .stdin(Stdio::null())
        .output()?;
    let report = serde_json::from_slice(&output.stdout).ok();
    match report.as_ref().map(played) {
        Some(Ok(played)) if output.status.success() || played.refused > 0 => Ok(played),
        Some(Err(error)) if output.status.success() => Err(error),
        _ => bail!("larder replay: {}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}

/// Reads the report of a replay. An error of the server other than a refusal is an error.
fn played(report: &Value) -> Result<Played> {
    let parts = report["parts"].as_array().context("a report without parts")?;
    let rows = |title: &str| {
        let table = parts.iter().map(|part| &part["table"]).find(|table| table["title"] == title);
        table.and_then(|table| table["rows"].as_array()).map_or(&[][..], Vec::as_slice)
    };
    let mut refused = 0;
    for row in rows("what went wrong, in all phases") {
        match row[0].as_str() {
            Some("error reply") => refused += row[2].as_u64().unwrap_or(0),
            _ => bail!("larder replay: {} x {}", row[2], row[1]),
        }
    }
    let number = |cell: &Value| cell.as_f64().context("a cell without a number");
    let window = |row: &Value| {
        Ok(Window {
            from: number(&row[0])?,
            gets: number(&row[1])?,
            hit_ratio: number(&row[2])?,
            service_ms: number(&row[3])?,
            waited_ms: number(&row[4])?,
        })
    };
    let windows = rows("by windows of gets").iter().map(window).collect::<Result<Vec<_>>>()?;
    if windows.is_empty() {
        bail!("a report without windows");
    }
    let fetched = rows("fetches by penalty").iter().map(|row| Ok((number(&row[0])?, number(&row[2])?)));
    let lag_us = rows("pace").first().and_then(|row| row[LAG_COLUMN].as_f64()).unwrap_or(0.0);
    Ok(Played { windows, fetched: fetched.collect::<Result<_>>()?, refused, lag_s: lag_us / 1e6 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let windows = serde_json::json!({ "table": {
            "title": "by windows of gets", "rows": [[0, 10, 0.5, 2.5, 3.0], [10, 30, 0.9, 0.5, 1.0]],
        }});
        let fetched =
            serde_json::json!({ "table": { "title": "fetches by penalty", "rows": [[1, 7, 70.0]] } });
        let wrong = |kind: &str| {
            let rows = serde_json::json!([[kind, "out of memory", 3]]);
            serde_json::json!({ "table": { "title": "what went wrong, in all phases", "rows": rows } })
        };
        let read = |parts: Vec<Value>| played(&serde_json::json!({ "parts": parts }));
        let pace = serde_json::json!({ "table": { "title": "pace", "rows": [[9, 9, 0, 0, 0, 2e6]] } });
        let good = read(vec![pace, windows.clone(), fetched]).expect("a report");
        assert_eq!(good.lag_s, 2.0);
        let second = Window { from: 10.0, gets: 30.0, hit_ratio: 0.9, service_ms: 0.5, waited_ms: 1.0 };
        assert_eq!((good.windows[1], good.fetched, good.refused), (second, vec![(1.0, 70.0)], 0));
        assert!((mean(&good.windows, |window| window.hit_ratio) - 0.8).abs() < 1e-9);
        assert_eq!(read(vec![windows.clone(), wrong("error reply")]).expect("refusals").refused, 3);
        assert!(read(vec![windows, wrong("wrong reply")]).is_err());
        assert!(read(Vec::new()).is_err());
    }
}
