//! The report of a replay.

use super::collect::{Collected, Second};
use super::faults::Faults;
use super::feed::Fed;
use super::options::{CasAs, Options, Pace, Protocol, Verify, Warmup};
use super::outcome::Outcome;
use super::probe::ServerInfo;
use super::tally::{Counts, Kind, Latencies, PENALTY_US_MAX, Tally};
use super::windows::{Window, sum};
use crate::PENALTY_UNKNOWN_US;
use crate::report::{Cell, Chart, Part, Report, Scale, Table, grouped, rounded};

/// The percentiles in the report.
const QUANTILES: [(&str, f64); 5] =
    [("p50 us", 0.5), ("p90 us", 0.9), ("p99 us", 0.99), ("p99.9 us", 0.999), ("p99.99 us", 0.9999)];

/// Builds the outcome.
pub(super) fn outcome(options: &Options, found: &ServerInfo, collected: Collected, fed: Fed) -> Outcome {
    let report = report(options, found, &collected, &fed);
    Outcome {
        report,
        counts: collected.total.counts,
        windows: collected.windows.all().to_vec(),
        seconds: collected.seconds,
        faults: collected.faults,
        given_up: collected.given_up,
        source_error: fed.error,
    }
}

fn report(options: &Options, found: &ServerInfo, collected: &Collected, fed: &Fed) -> Report {
    let total = &collected.total;
    let mut report = Report {
        title: format!("Replay of {} against {}", fed.name, options.server),
        facts: facts(options, found, collected, fed),
        settings: vec![("source".to_owned(), fed.description.clone())],
        parts: vec![Part::Table(totals(collected)), Part::Table(operations(total))],
    };
    let parts = &mut report.parts;
    if options.read_through.is_some() {
        parts.push(Part::Table(read_through(total)));
        parts.push(Part::Table(by_penalty(&total.counts)));
    }
    if options.pace != Pace::Closed {
        parts.push(Part::Table(pace(options, collected)));
    }
    parts.extend(faults(&collected.faults));
    if options.verify != Verify::Off {
        parts.push(Part::Table(verification(&total.counts)));
    }
    parts.extend(notices(options, found, collected, fed).into_iter().map(Part::Text));
    parts.extend(over_gets(options, collected.windows.all()));
    parts.extend(over_time(&collected.seconds));
    parts.push(Part::Chart(distribution(total)));
    report
}

fn facts(options: &Options, found: &ServerInfo, collected: &Collected, fed: &Fed) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: String| facts.push((name.to_owned(), value));
    fact("server", options.server.to_string());
    let version =
        if found.version.is_empty() { String::new() } else { format!(", version {}", found.version) };
    fact("protocol", format!("{}{version}", found.protocol.name()));
    fact("connections", format!("{} over {} threads", options.connections, options.threads));
    fact("depth", options.depth.to_string());
    fact(
        "pace",
        match options.pace {
            Pace::Closed => "closed loop".to_owned(),
            Pace::Rate(rate) => format!("open loop, {} requests/s", rounded(rate, 6)),
            Pace::Speed(speed) => format!("open loop, {speed} times the trace's own speed"),
        },
    );
    if let Some(through) = options.read_through {
        let servers = match through.backend_concurrency {
            0 => "any number of fetches at a time".to_owned(),
            servers => format!("{servers} fetches at a time"),
        };
        let stated = if options.state_costs { ", costs are stated" } else { "" };
        fact("read-through", format!("penalties times {}, {servers}{stated}", through.penalty_scale));
    }
    if options.load {
        fact("loaded first", format!("{} keys", grouped(fed.keys_loaded)));
    }
    if let Some(warmup) = options.warmup {
        fact(
            "warm-up",
            match warmup {
                Warmup::Requests(requests) => format!("{} requests", grouped(requests)),
                Warmup::Time(time) => format!("{} s", time.as_secs_f64()),
            },
        );
    }
    fact("measured", format!("{} s", rounded(collected.measured_s, 3)));
    facts
}

fn us(ns: f64) -> Cell {
    Cell::Rounded(ns / 1000.0, 3)
}

fn totals(collected: &Collected) -> Table {
    let mut table = Table::new(
        "totals",
        &[
            "requests",
            "seconds",
            "requests/s",
            "hit ratio",
            "bytes out",
            "bytes in",
            "bytes out/s",
            "bytes in/s",
            "errors",
        ],
    );
    let counts = &collected.total.counts;
    let seconds = collected.measured_s.max(1e-9);
    let errors: u64 = counts.answers.iter().map(|answers| answers.refused).sum();
    table.row(vec![
        Cell::Count(counts.requests()),
        Cell::Rounded(collected.measured_s, 3),
        Cell::Rounded(counts.requests() as f64 / seconds, 3),
        counts.hit_ratio().map_or(Cell::Empty, |ratio| Cell::Number(ratio, 4)),
        Cell::Bytes(counts.bytes_out as f64),
        Cell::Bytes(counts.bytes_in as f64),
        Cell::Bytes(counts.bytes_out as f64 / seconds),
        Cell::Bytes(counts.bytes_in as f64 / seconds),
        Cell::Count(errors),
    ]);
    table
}

fn latency_columns(first: &[&'static str]) -> Vec<&'static str> {
    let mut columns = first.to_vec();
    columns.push("mean us");
    columns.extend(QUANTILES.iter().map(|(name, _)| *name));
    columns.push("max us");
    columns
}

fn latency_cells(latencies: &Latencies) -> Vec<Cell> {
    let mut cells = vec![us(latencies.mean())];
    cells.extend(QUANTILES.iter().map(|(_, quantile)| us(latencies.value_at_quantile(*quantile) as f64)));
    cells.push(us(latencies.max() as f64));
    cells
}

fn operations(total: &Tally) -> Table {
    let columns = latency_columns(&["operation", "requests", "done", "not done", "errors"]);
    let mut table = Table::new("latency by operation", &columns);
    for kind in Kind::REPORTED {
        let answers = total.counts.of(kind);
        let Some(latencies) = &total.latencies[kind as usize] else { continue };
        let mut cells = vec![
            Cell::Text(kind.name().to_owned()),
            Cell::Count(answers.all()),
            Cell::Count(answers.done),
            Cell::Count(answers.not_done),
            Cell::Count(answers.refused),
        ];
        cells.extend(latency_cells(latencies));
        table.row(cells);
    }
    table
}

fn read_through(total: &Tally) -> Table {
    let columns = latency_columns(&["measure", "count", "seconds in all"]);
    let mut table = Table::new("read-through", &columns);
    let counts = &total.counts;
    let mut row = |name: &str, count: u64, seconds: f64, latencies: Option<&Latencies>| {
        let mut cells = vec![Cell::Text(name.to_owned()), Cell::Count(count), Cell::Rounded(seconds, 3)];
        cells.extend(latencies.map_or(vec![Cell::Empty; QUANTILES.len() + 2], latency_cells));
        table.row(cells);
    };
    if let Some(service) = &total.service {
        let seconds = service.mean() * service.len() as f64 / 1e9;
        row("service time of gets, penalties included", service.len(), seconds, Some(service));
    }
    row("fetches, with their penalties", counts.fetches, counts.penalties_us as f64 / 1e6, None);
    row(
        "misses, with the time really waited",
        counts.fetches + counts.joined,
        counts.waited_ns as f64 / 1e9,
        None,
    );
    row("misses that joined a fetch under way", counts.joined, 0.0, None);
    table
}

/// Fetches by the penalty of the miss: PAMA's Fig. 1.
fn by_penalty(counts: &Counts) -> Table {
    let mut table = Table::new("fetches by penalty", &["up to ms", "fetches", "share %"]);
    for (max_us, fetches) in PENALTY_US_MAX.iter().zip(counts.fetches_by_penalty) {
        let share = 100.0 * fetches as f64 / counts.fetches.max(1) as f64;
        table.row(vec![Cell::Count(u64::from(max_us / 1000)), Cell::Count(fetches), Cell::Number(share, 2)]);
    }
    table
}

fn pace(options: &Options, collected: &Collected) -> Table {
    let mut table = Table::new(
        "pace",
        &[
            "asked requests/s",
            "done requests/s",
            "sent late",
            "sent late ratio",
            "due, never sent",
            "lag max us",
        ],
    );
    let counts = &collected.total.counts;
    let requests = counts.requests();
    table.row(vec![
        match options.pace {
            Pace::Rate(rate) => Cell::Rounded(rate, 6),
            _ => Cell::Empty,
        },
        Cell::Rounded(requests as f64 / collected.measured_s.max(1e-9), 3),
        Cell::Count(counts.late),
        Cell::Number(counts.late as f64 / requests.max(1) as f64, 4),
        Cell::Count(counts.unsent),
        us(counts.lag_ns_max as f64),
    ]);
    table
}

fn faults(faults: &Faults) -> Vec<Part> {
    if faults.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new("what went wrong, in all phases", &["kind", "what", "count"]);
    let mut row = |kind: &str, what: &str, count: u64| {
        table.row(vec![Cell::Text(kind.to_owned()), Cell::Text(what.to_owned()), Cell::Count(count)]);
    };
    faults.wrong.iter().for_each(|(wrong, count)| row("wrong reply", wrong.name(), *count));
    faults.errors.iter().for_each(|(text, count)| row("error reply", text, *count));
    faults.mishaps.iter().for_each(|(mishap, count)| row("connection", mishap.name(), *count));
    if faults.lost > 0 {
        row("connection", "requests lost", faults.lost);
    }
    let mut examples = Table::new("the first few of each kind", &["kind", "in full"]);
    for (kind, text) in &faults.examples {
        examples.row(vec![Cell::Text((*kind).to_owned()), Cell::Text(text.clone())]);
    }
    vec![Part::Table(table), Part::Table(examples)]
}

fn verification(counts: &Counts) -> Table {
    let mut table = Table::new("values read", &["found right", "could not be told"]);
    table.row(vec![Cell::Count(counts.verified), Cell::Count(counts.unverified)]);
    table
}

/// Remarks that a reader of the figures needs.
fn notices(options: &Options, found: &ServerInfo, collected: &Collected, fed: &Fed) -> Vec<String> {
    let mut notices = fed.notices.clone();
    let counts = &collected.total.counts;
    if let Some(error) = &fed.error {
        notices.push(format!("The source could not be read to its end: {error}."));
    }
    if collected.given_up {
        notices.push("The server was away for too long and was given up.".to_owned());
    }
    if options.read_through.is_some() && !fed.fields.penalties {
        notices.push(format!(
            "The source knows no penalties: {} us are taken for each miss.",
            grouped(PENALTY_UNKNOWN_US.into())
        ));
    }
    let resp = found.protocol == Protocol::Resp;
    if counts.of(Kind::Cas).all() > 0 {
        let sent = match options.cas_as {
            CasAs::GetsCas if !resp => "gets and cas; the latency is that of both together",
            _ => "a set",
        };
        notices.push(format!("A cas was sent as {sent}."));
    }
    if resp && counts.of(Kind::Prepend).all() > 0 {
        notices.push("RESP has no prepend: a SET was sent.".to_owned());
    }
    if counts.not_numbers > 0 {
        let text = format!(
            "{} incr and decr met a value that is no number; they are 'not done'.",
            counts.not_numbers
        );
        notices.push(text);
    }
    if options.spread {
        notices
            .push("Requests of a key went over any connection: stale values could not be told.".to_owned());
    }
    if collected.ledger_forgotten > 0 {
        notices.push(format!(
            "There were more keys than are remembered ({}): some stale values could not be told.",
            options.verify_keys
        ));
    }
    if let Some(error) = &collected.hdr_error {
        notices.push(format!("The HDR log is not whole: {error}."));
    }
    notices
}

fn over_time(seconds: &[Second]) -> Vec<Part> {
    let rate = |second: &Second| second.counts.requests() as f64 / second.length_s.max(1e-6);
    let mut table =
        Table::new("over time", &["second", "requests/s", "hit ratio", "p50 us", "p99 us", "errors"]);
    for second in seconds {
        table.row(vec![
            Cell::Count(second.second),
            Cell::Rounded(rate(second), 3),
            second.counts.hit_ratio().map_or(Cell::Empty, |ratio| Cell::Number(ratio, 4)),
            Cell::Rounded(second.p50_us, 3),
            Cell::Rounded(second.p99_us, 3),
            Cell::Count(errors_of(&second.counts)),
        ]);
    }
    let points = |y: &dyn Fn(&Second) -> Option<f64>| -> Vec<(f64, f64)> {
        seconds.iter().filter_map(|second| Some((second.second as f64, y(second)?))).collect()
    };
    let mut rates = Chart::new("requests over time", "seconds", "requests/s");
    rates.line("requests/s", points(&|second| Some(rate(second))));
    let mut hits = Chart::new("hit ratio over time", "seconds", "hit ratio");
    hits.line("hit ratio", points(&|second| second.counts.hit_ratio()));
    let mut latency = Chart::new("latency over time", "seconds", "latency us");
    latency.y.scale = Scale::Log;
    latency.line("p50", points(&|second| Some(second.p50_us)));
    latency.line("p99", points(&|second| Some(second.p99_us)));
    vec![Part::Table(table), Part::Chart(rates), Part::Chart(hits), Part::Chart(latency)]
}

/// Hit ratio and service time by windows of gets, as a table and as curves.
fn over_gets(options: &Options, windows: &[Window]) -> Vec<Part> {
    if windows.is_empty() {
        return Vec::new();
    }
    let cells = |from: Cell, window: &Window| {
        let rounded = |value: Option<f64>| value.map_or(Cell::Empty, |ms| Cell::Rounded(ms, 3));
        vec![
            from,
            Cell::Count(window.gets),
            window.hit_ratio().map_or(Cell::Empty, |ratio| Cell::Number(ratio, 4)),
            rounded(window.service_ms()),
            rounded(window.waited_ms()),
        ]
    };
    let columns = |first| [first, "gets", "hit ratio", "service time ms", "waited ms"];
    let mut halves = Table::new("service time: a hit 0.1 ms, a miss its penalty", &columns("part"));
    halves.row(cells(Cell::Text("all".to_owned()), &sum(windows)));
    halves.row(cells(Cell::Text("second half".to_owned()), &sum(&windows[windows.len() / 2..])));
    let mut table = Table::new("by windows of gets", &columns("from get"));
    let mut from = 0;
    for window in windows {
        table.row(cells(Cell::Count(from), window));
        from += window.gets;
    }
    let points = |y: &dyn Fn(&Window) -> Option<f64>| -> Vec<(f64, f64)> {
        let x = (0..).map(|number: u64| (number * options.window_gets) as f64);
        x.zip(windows).filter_map(|(x, window)| Some((x, y(window)?))).collect()
    };
    let mut hits = Chart::new("hit ratio by gets", "gets", "hit ratio");
    hits.line("hit ratio", points(&Window::hit_ratio));
    let mut service = Chart::new("service time by gets", "gets", "ms");
    service.line("a hit 0.1 ms, a miss its penalty", points(&Window::service_ms));
    service.line("a hit 0.1 ms, a miss the time really waited", points(&Window::waited_ms));
    vec![Part::Table(halves), Part::Table(table), Part::Chart(hits), Part::Chart(service)]
}

fn errors_of(counts: &Counts) -> u64 {
    counts.answers.iter().map(|answers| answers.refused).sum()
}

/// Latency by the share of slower requests, both in powers of ten, so that the tail fills most of the chart.
fn distribution(total: &Tally) -> Chart {
    let mut chart = Chart::new("latency distribution", "requests per slower one", "latency us");
    chart.x.scale = Scale::Log;
    chart.y.scale = Scale::Log;
    for kind in Kind::REPORTED {
        let Some(latencies) = &total.latencies[kind as usize] else { continue };
        let mut points = Vec::new();
        let mut slower = 1.0;
        while slower <= latencies.len() as f64 {
            let at = latencies.value_at_quantile(1.0 - 1.0 / slower);
            points.push((slower, at as f64 / 1000.0));
            slower *= 1.25;
        }
        chart.line(kind.name(), points);
    }
    chart
}
