//! The report: a table per load for people, one JSON document for programs.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::client::Shape;
use crate::figures::{self, Held, Median, PressureFigures, Round, Row};
use crate::loads::{Kind, Load};
use crate::options::CompareOptions;
use crate::procfs::Machine;
use crate::servers::Server;
use crate::trials::{self, TrialFigures};
use crate::values::ValueKind;

/// Everything about one load.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LoadReport {
    /// The load.
    pub(crate) load: &'static str,
    /// One line of description, for the full size.
    pub(crate) about: &'static str,
    /// Items stored, after scaling.
    pub(crate) items: u32,
    /// Shortest value, in bytes.
    pub(crate) value_bytes_min: u32,
    /// Longest value, in bytes.
    pub(crate) value_bytes_max: u32,
    /// What the values are; absent = letters.
    pub(crate) values: Option<ValueKind>,
    /// Memory limit of the servers, in MiB.
    pub(crate) limit_mib: u64,
    /// Number of connections.
    pub(crate) connections: usize,
    /// Requests in flight per connection.
    pub(crate) depth: usize,
    /// Requests per second of the open loop.
    pub(crate) rate: Option<f64>,
    /// A remark about all rows.
    pub(crate) note: Option<String>,
    /// The servers.
    pub(crate) rows: Vec<Row>,
    #[serde(skip)]
    kind: Kind,
}

impl LoadReport {
    /// The report of a load that ran.
    pub(crate) fn new(load: &Load, shape: Shape, note: Option<String>, rows: Vec<Row>) -> Self {
        Self {
            load: load.name,
            about: load.about,
            items: load.items,
            value_bytes_min: load.value_bytes.min,
            value_bytes_max: load.value_bytes.max,
            values: load.value_kind(),
            limit_mib: load.limit_mib,
            connections: shape.connections,
            depth: shape.depth,
            rate: shape.rate,
            note,
            rows,
            kind: load.kind.clone(),
        }
    }

    /// The table with a title above it and the remarks below.
    pub(crate) fn text(&self) -> String {
        let ran: Vec<&Row> = self.rows.iter().filter(|row| row.median.is_some()).collect();
        let mut header: Vec<String> = vec!["server".into()];
        header.extend(self.columns().iter().map(|column| column.title.to_owned()));
        header.extend(ran.iter().map(|row| format!("/ {}", row.server)));
        let mut rows = Vec::new();
        for row in &ran {
            let Some(median) = &row.median else { continue };
            let mut cells = vec![row.server.clone()];
            cells.extend(self.columns().iter().map(|column| (column.cell)(row, median)));
            cells.extend(ran.iter().map(|other| match row.ratios.get(&other.server) {
                Some(ratio) => format!("{ratio:.2}"),
                None => "-".to_owned(),
            }));
            rows.push(cells);
        }
        let rate = self.rate.map_or(String::new(), |rate| format!(", open loop at {rate:.0}/s"));
        let mut out = format!(
            "\n## {}: {}\n{} items, limit {} MiB, {} connections, depth {}{rate}\n\n",
            self.load, self.about, self.items, self.limit_mib, self.connections, self.depth
        );
        if let Some(kind) = self.values {
            let (min, max) = (self.value_bytes_min, self.value_bytes_max);
            out = format!("{}; values {}, {min} to {max} B\n\n", out.trim_end(), kind.prefix());
        }
        if matches!(self.kind, Kind::Trial(_)) {
            out = format!("\n## {}: {}\nlimit {} MiB\n\n", self.load, self.about, self.limit_mib);
        }
        if matches!(self.kind, Kind::Trial(_)) {
            out.push_str(&trial_text(&ran));
        } else if !ran.is_empty() {
            out.push_str(&aligned(header, rows));
        }
        self.note.iter().for_each(|note| out.push_str(&format!("* {note}\n")));
        for row in &self.rows {
            row.failed.iter().for_each(|why| out.push_str(&format!("* {}: FAILED: {why}\n", row.server)));
            row.notes.iter().for_each(|note| out.push_str(&format!("* {}: {note}\n", row.server)));
        }
        out
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = match self.kind {
            Kind::Memory => vec![
                Column { title: "beyond payload B/item", cell: |row, _| memory(row, 0) },
                Column { title: "RSS before MiB", cell: |row, _| memory(row, 1) },
                Column { title: "RSS after MiB", cell: |row, _| memory(row, 2) },
            ],
            Kind::HitRatio { .. } => {
                vec![HIT_RATIO, Column { title: "by thirds", cell: |row, _| thirds(row) }, RESIDENT]
            }
            Kind::Pressure { .. } => vec![
                HIT_RATIO,
                Column { title: "cost of eviction", cell: |row, _| cost_of_eviction(row) },
                Column {
                    title: "resident us/req",
                    cell: |row, _| pressure(row, |figures| figures.resident_us_per_request),
                },
                Column { title: "us/GET", cell: |row, _| pressure(row, |figures| figures.us_per_get) },
                Column {
                    title: "resident us/GET",
                    cell: |row, _| pressure(row, |figures| figures.resident_us_per_get),
                },
                RESIDENT,
            ],
            Kind::Churn { .. } | Kind::Flash { .. } | Kind::ReadThrough { .. } => vec![HIT_RATIO, RESIDENT],
            Kind::Resident { .. } | Kind::Store | Kind::Trial(_) => Vec::new(),
        };
        if self.values.is_some() {
            if !columns.iter().any(|column| column.title == RESIDENT.title) {
                columns.push(RESIDENT);
            }
            columns.extend([
                Column { title: "items", cell: |row, _| held(row, |held| held.items) },
                Column { title: "evictions", cell: |row, _| held(row, |held| held.evictions) },
            ]);
            if self.kind != Kind::Store {
                columns.push(Column {
                    title: "server us/GET",
                    cell: |row, _| median_of(row, 3, figures::us_per_get),
                });
            }
        }
        columns
            .push(Column { title: "requests/s", cell: |_, median| format!("{:.0}", median.requests_per_s) });
        if !matches!(self.kind, Kind::HitRatio { .. } | Kind::Pressure { .. }) {
            columns.extend([
                Column { title: "p50 us", cell: |_, median| latency(median, 0) },
                Column { title: "p99 us", cell: |_, median| latency(median, 1) },
                Column { title: "p99.9 us", cell: |_, median| latency(median, 2) },
            ]);
        }
        columns.extend([
            Column { title: "client us/req", cell: |_, m| format!("{:.3}", m.client_us_per_request) },
            Column { title: "server us/req", cell: |_, m| format!("{:.3}", m.server_us_per_request) },
            Column { title: "spread", cell: |_, median| format!("{:.0} %", median.server_spread * 100.0) },
        ]);
        columns
    }
}

/// A table for people: text on the left, numbers on the right.
fn aligned(header: Vec<String>, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    rows.into_iter().for_each(|row| {
        table.add_row(row);
    });
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{}\n", table.to_string().trim_end())
}

/// The figures of a trial with their ratios, then its curves.
fn trial_text(ran: &[&Row]) -> String {
    let found: Vec<(&str, &TrialFigures)> = ran
        .iter()
        .filter_map(|row| Some((row.server.as_str(), row.rounds.first()?.trial.as_ref()?)))
        .collect();
    let Some((_, first)) = found.first() else { return String::new() };
    let (header, rows) = trials::ratio_table(&found);
    let mut out = aligned(header, rows);
    for which in 0..first.curves.len() {
        let (header, rows) = TrialFigures::curve_table(&found, which);
        out.push_str(&format!("\n{}", aligned(header, rows)));
    }
    out
}

struct Column {
    title: &'static str,
    cell: fn(&Row, &Median) -> String,
}

const HIT_RATIO: Column = Column {
    title: "hit ratio",
    cell: |_, median| median.hit_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.4}")),
};
const RESIDENT: Column =
    Column { title: "RSS MiB", cell: |_, median| format!("{:.0}", median.resident_bytes / MIB) };
const MIB: f64 = 1048576.0;

fn memory(row: &Row, which: usize) -> String {
    let Some(memory) = row.rounds.first().and_then(|round| round.memory) else { return "-".to_owned() };
    match which {
        0 => format!("{:.1}", memory.overhead_per_item),
        1 => format!("{:.1}", memory.before_bytes as f64 / MIB),
        _ => format!("{:.1}", memory.after_bytes as f64 / MIB),
    }
}

fn thirds(row: &Row) -> String {
    let thirds = row.rounds.first().and_then(|round| round.hit_ratio_thirds);
    thirds.map_or("-".to_owned(), |[first, second, third]| format!("{first:.3} {second:.3} {third:.3}"))
}

/// The median of the rounds' ratios, with the smallest and the largest.
fn cost_of_eviction(row: &Row) -> String {
    let costs: Vec<f64> =
        row.rounds.iter().filter_map(|round| round.pressure.map(|figures| figures.cost)).collect();
    let Some(least) = costs.iter().copied().reduce(f64::min) else { return "-".to_owned() };
    let most = costs.iter().copied().fold(least, f64::max);
    format!("{:.3} ({least:.3} to {most:.3})", figures::median(costs))
}

fn pressure(row: &Row, field: fn(&PressureFigures) -> f64) -> String {
    median_of(row, 3, |round| round.pressure.as_ref().map(field))
}

fn held(row: &Row, field: fn(&Held) -> u64) -> String {
    median_of(row, 0, |round| round.held.as_ref().map(|held| field(held) as f64))
}

/// The median of the rounds that have the figure, with that many decimals.
fn median_of(row: &Row, decimals: usize, figure: impl Fn(&Round) -> Option<f64>) -> String {
    let values: Vec<f64> = row.rounds.iter().filter_map(figure).collect();
    if values.is_empty() { "-".to_owned() } else { format!("{:.decimals$}", figures::median(values)) }
}

fn latency(median: &Median, which: usize) -> String {
    let Some(latency) = median.latency else { return "-".to_owned() };
    let value = [latency.p50_us, latency.p99_us, latency.p999_us][which];
    format!("{value:.1}")
}

/// The explanation of the tables, printed once above them.
pub(crate) fn preamble(machine: &Machine, options: &CompareOptions) -> String {
    format!(
        "{}, {} cores, kernel {}; server on core {}, client on core {}, {} worker thread(s)\n\
         {} rounds of {} s, medians; `/ name` is server us/req divided by that of `name`: below 1 is cheaper",
        machine.processor,
        machine.cores,
        machine.kernel,
        options.server_cores,
        options.client_cores,
        options.threads,
        options.rounds,
        options.seconds,
    )
}

/// The JSON document.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    /// The machine.
    pub(crate) machine: &'a Machine,
    /// Rounds per load.
    pub(crate) rounds: usize,
    /// Seconds measured per round.
    pub(crate) seconds: f64,
    /// Seconds of the same load before each measurement.
    pub(crate) warmup: f64,
    /// Multiplier of items, requests and limits.
    pub(crate) scale: f64,
    /// Seed of the request sequence.
    pub(crate) seed: u64,
    /// Worker threads of every server.
    pub(crate) threads: usize,
    /// Cores of the server, empty if it was not pinned.
    pub(crate) server_cores: &'a [usize],
    /// Cores of the client, empty if it was not pinned.
    pub(crate) client_cores: &'a [usize],
    /// The servers by name.
    pub(crate) servers: BTreeMap<&'a str, ServerReport>,
    /// The loads.
    pub(crate) loads: &'a [LoadReport],
}

/// A server, for the JSON document.
#[derive(Debug, Serialize)]
pub(crate) struct ServerReport {
    /// Its executable.
    pub(crate) path: String,
    /// Its further arguments.
    pub(crate) arguments: Vec<String>,
    /// The first line of its `--version`.
    pub(crate) version: Option<String>,
}

impl<'a> Document<'a> {
    /// The document of a comparison.
    pub(crate) fn new(
        machine: &'a Machine,
        options: &'a CompareOptions,
        servers: &'a [Server],
        loads: &'a [LoadReport],
    ) -> Self {
        let describe = |server: &'a Server| {
            let path = server.path.display().to_string();
            let report =
                ServerReport { path, arguments: server.arguments.clone(), version: server.version() };
            (server.name.as_str(), report)
        };
        Self {
            machine,
            rounds: options.rounds,
            seconds: options.seconds,
            warmup: options.warmup,
            scale: options.scale,
            seed: options.seed,
            threads: options.threads,
            server_cores: &options.server_cores.0,
            client_cores: &options.client_cores.0,
            servers: servers.iter().map(describe).collect(),
            loads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{compare_rows, tests::round};
    use crate::loads::catalogue;

    #[test]
    fn tables_hold_every_server_and_every_note() {
        for load in catalogue(0.01) {
            let mut rows = vec![Row::new("one"), Row::new("two"), Row::new("three")];
            rows[0].rounds.push(round(0, 1_000, 1.0));
            rows[1].rounds.push(round(0, 1_000, 4.0));
            rows[2].failed = Some("it ended at once".to_owned());
            for (row, value) in rows.iter_mut().zip([1.0, 4.0]) {
                let figures = vec![trials::Figure::compared("ms", Some(value), 2)];
                row.rounds[0].trial = Some(TrialFigures { requests: 1, figures, ..TrialFigures::default() });
            }
            rows.iter_mut().for_each(|row| row.conclude(true, None));
            compare_rows(&mut rows);
            let shape = Shape { connections: 50, depth: 16, rate: None };
            let text = LoadReport::new(&load, shape, Some("smaller".to_owned()), rows).text();
            for wanted in
                ["| one ", "| two ", "0.25", "4.00", "* smaller", "* three: FAILED: it ended at once"]
            {
                assert!(text.contains(wanted), "{wanted:?} is not in {text}");
            }
        }
    }
}
