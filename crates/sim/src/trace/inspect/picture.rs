//! The report of an inspection.

use super::inspector::{Distribution, Inspector, KeyFindings};
use super::keys::{KEYS_EXACT_MAX, Window};
use super::skew;
use crate::report::{Cell, Chart, Part, Report, Scale, Style, Table, grouped, rounded, size_in_full};
use crate::{Op, Source};

/// The quantiles of a table, in percent.
const QUANTILES: [f64; 7] = [1.0, 10.0, 50.0, 90.0, 99.0, 99.9, 100.0];

impl Inspector {
    /// The report. `source` gives the name of the trace and its remarks.
    pub fn report(&self, source: &dyn Source) -> Report {
        report(self, source)
    }
}

/// Builds the report.
fn report(found: &Inspector, source: &dyn Source) -> Report {
    let keys = found.keys();
    let mut report = Report { title: format!("Trace {}", source.name()), ..Report::default() };
    report.facts = facts(found, &keys);
    report.settings.push(("trace".to_owned(), source.describe()));
    for notice in source.notices() {
        report.parts.push(Part::Text(format!("Notice: {notice}")));
    }
    if !keys.exact {
        report.parts.push(Part::Text(format!(
            "Notice: more than {} keys: figures about keys are estimates from a share of them, \
             chosen by hash.",
            KEYS_EXACT_MAX
        )));
    }
    let mut part = |part: Option<Part>| report.parts.extend(part);
    part(Some(Part::Table(operations(found))));
    part(distributions(found).map(Part::Table));
    part(Some(Part::Table(popularity(&keys))));
    part(Some(Part::Table(windows_table(found))));
    part(popularity_chart(found, &keys).map(Part::Chart));
    for chart in windows_charts(found) {
        part(Some(Part::Chart(chart)));
    }
    part(sizes_chart(found).map(Part::Chart));
    part(chart_of(&found.ttl_s, "Time to live", "TTL, s").map(Part::Chart));
    part(chart_of(&found.penalty_us, "Miss penalty", "penalty, us").map(Part::Chart));
    report
}

fn facts(found: &Inspector, keys: &KeyFindings) -> Vec<(String, String)> {
    let mut facts: Vec<(String, String)> = Vec::new();
    let mut fact = |name: &str, value: String| facts.push((name.to_owned(), value));
    let about = if keys.exact { "" } else { " (estimated)" };
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    fact("requests", grouped(found.requests));
    fact("keys", format!("{}{about}", grouped(keys.keys)));
    fact("requests per key", rounded(found.requests as f64 / keys.keys.max(1) as f64, 3));
    fact(
        "one-hit wonders",
        format!(
            "{} ({:.1} % of the keys){about}",
            grouped(keys.one_hit_keys),
            percent(keys.one_hit_keys, keys.keys)
        ),
    );
    match keys.zipf {
        Some(zipf) => fact("Zipf theta", format!("{:.3} (R^2 {:.3})", zipf.theta, zipf.r_squared)),
        None => fact("Zipf theta", "too few keys are asked for twice to tell".to_owned()),
    }
    if found.fields.sizes {
        fact("footprint", format!("{}{about}", size_in_full(keys.footprint_bytes)));
        fact("traffic", size_in_full(found.bytes));
    }
    if found.fields.times {
        let rate = found.requests as f64 / f64::from(found.last_s.max(1));
        fact("time span", format!("{} s", grouped(found.last_s.into())));
        fact("rate", format!("{} requests per second", rounded(rate, 3)));
    }
    if found.fields.ttls {
        let with = found.ttl_s.histogram.len();
        fact("requests with a TTL", format!("{} ({:.1} %)", grouped(with), percent(with, found.requests)));
    }
    if found.fields.penalties {
        let with = found.penalty_us.histogram.len();
        fact(
            "requests with a penalty",
            format!("{} ({:.1} %)", grouped(with), percent(with, found.requests)),
        );
    }
    facts
}

fn operations(found: &Inspector) -> Table {
    let mut table = Table::new("Operations", &["operation", "requests", "share %"]);
    if !found.fields.ops {
        table.title = "Operations: the trace names none, all count as get".to_owned();
    }
    for (op, &requests) in Op::ALL.iter().zip(&found.by_op) {
        if requests > 0 {
            let share = 100.0 * requests as f64 / found.requests as f64;
            let name = Cell::Text(op.name().to_owned());
            table.row(vec![name, Cell::Count(requests), Cell::Number(share, 2)]);
        }
    }
    table
}

/// The table of sizes, times to live and penalties.
fn distributions(found: &Inspector) -> Option<Table> {
    let columns = ["of each request", "mean", "p1", "p10", "p50", "p90", "p99", "p99.9", "most"];
    let mut table = Table::new("Distributions over the requests (quantiles to three digits)", &columns);
    let rows = [
        ("key, bytes", &found.key_bytes),
        ("value, bytes", &found.value_bytes),
        ("item, bytes", &found.item_bytes),
        ("TTL where there is one, s", &found.ttl_s),
        ("penalty where there is one, us", &found.penalty_us),
    ];
    for (name, of) in rows.iter().filter(|(_, of)| !of.histogram.is_empty()) {
        let mut row = vec![Cell::Text((*name).to_owned()), Cell::Rounded(of.mean(), 3)];
        row.extend(QUANTILES.iter().map(|&q| Cell::Count(of.histogram.value_at_percentile(q))));
        table.row(row);
    }
    (!table.rows.is_empty()).then_some(table)
}

fn popularity(keys: &KeyFindings) -> Table {
    let mut table = Table::new("Popularity", &["most asked keys, %", "their share of the requests, %"]);
    for (share, requests) in [0.1, 1.0, 10.0].iter().zip(keys.top_shares) {
        table.row(vec![Cell::Number(*share, 1), Cell::Number(100.0 * requests, 2)]);
    }
    table
}

/// The unit of the windows.
fn unit(found: &Inspector) -> &'static str {
    if found.fields.times { "s" } else { "requests" }
}

fn windows_table(found: &Inspector) -> Table {
    let from = format!("from {}", unit(found));
    let mut columns = vec![from.as_str(), "requests", "keys", "keys so far"];
    if found.fields.sizes {
        columns.push("bytes of these keys");
    }
    let length = found.keys.window_length();
    let title = format!("Working set in windows of {length} {}", unit(found));
    let mut table = Table::new(&title, &columns);
    for (window, at) in found.keys.windows().iter().zip(0u64..) {
        let mut row = vec![
            Cell::Count(at * length),
            Cell::Count(window.requests),
            Cell::Count(window.keys as u64),
            Cell::Count(window.keys_so_far as u64),
        ];
        if found.fields.sizes {
            row.push(Cell::Bytes(window.bytes));
        }
        table.row(row);
    }
    table
}

fn popularity_chart(found: &Inspector, keys: &KeyFindings) -> Option<Chart> {
    let counts = found.keys.counts_falling();
    if counts.is_empty() {
        return None;
    }
    let mut chart = Chart::new("Popularity by rank", "rank of the key", "requests to it");
    (chart.x.scale, chart.y.scale) = (Scale::Log, Scale::Log);
    let scale = found.keys.scale();
    let points = skew::log_ranks(counts.len()).map(|rank| (rank as f64 * scale, f64::from(counts[rank - 1])));
    chart.line("measured", points.collect());
    if let Some(zipf) = keys.zipf {
        let mid = skew::log_ranks(counts.partition_point(|&count| count >= 2)).collect::<Vec<_>>();
        let ln = |value: f64| libm::log(value);
        let n = mid.len() as f64;
        let height =
            mid.iter().map(|&r| ln(f64::from(counts[r - 1])) + zipf.theta * ln(r as f64)).sum::<f64>() / n;
        let line = |rank: usize| (rank as f64 * scale, libm::exp(height - zipf.theta * ln(rank as f64)));
        chart.line(&format!("Zipf, theta {:.2}", zipf.theta), mid.into_iter().map(line).collect());
    }
    Some(chart)
}

fn windows_charts(found: &Inspector) -> Vec<Chart> {
    let windows = found.keys.windows();
    let length = found.keys.window_length() as f64;
    let x = if found.fields.times { "time, s" } else { "requests so far" };
    let over = |value: &dyn Fn(&Window) -> f64| -> Vec<(f64, f64)> {
        windows.iter().enumerate().map(|(at, window)| (at as f64 * length, value(window))).collect()
    };
    let mut keys = Chart::new("Working set over time", x, "keys");
    keys.line("in the window", over(&|window| window.keys));
    keys.line("so far", over(&|window| window.keys_so_far));
    let mut charts = vec![keys];
    if found.fields.sizes {
        let mut bytes = Chart::new("Bytes of the working set over time", x, "bytes");
        bytes.line("in the window", over(&|window| window.bytes));
        charts.push(bytes);
    }
    if found.fields.times {
        let mut rate = Chart::new("Request rate over time", x, "requests per second");
        rate.line("rate", over(&|window| window.requests as f64 / length));
        charts.push(rate);
    }
    charts
}

fn sizes_chart(found: &Inspector) -> Option<Chart> {
    let mut chart = chart_of(&found.item_bytes, "Sizes", "bytes")?;
    chart.series[0].name = "item".to_owned();
    let mut more = |name: &str, of: &Distribution| {
        if of.histogram.max() > 0 {
            chart.line(name, cumulative(of));
        }
    };
    more("key", &found.key_bytes);
    more("value", &found.value_bytes);
    Some(chart)
}

/// The cumulative distribution on a logarithmic axis.
fn chart_of(of: &Distribution, title: &str, x: &str) -> Option<Chart> {
    if of.histogram.max() == 0 {
        return None;
    }
    let mut chart = Chart::new(title, x, "requests at most so large, %");
    chart.x.scale = Scale::Log;
    chart.line("requests", cumulative(of));
    chart.series.iter_mut().for_each(|series| series.style = Style::Line);
    Some(chart)
}

/// The percentage of values that are at most x, at 40 steps per power of ten.
fn cumulative(of: &Distribution) -> Vec<(f64, f64)> {
    let (least, most) = (of.histogram.min_nz().max(1), of.histogram.max());
    let steps_of = |value: u64| (libm::log10(value as f64) * 40.0) as i32;
    let mut before = 0;
    let mut points = Vec::new();
    for step in steps_of(least)..=steps_of(most) + 1 {
        let value = (libm::ceil(libm::exp10(f64::from(step) / 40.0)) as u64).min(most);
        if value > before {
            points.push((value as f64, of.histogram.percentile_below(value)));
        }
        before = before.max(value);
    }
    points
}
