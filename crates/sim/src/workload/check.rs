//! Describes a stream of requests as it really is: counts, rates, sizes, penalties, popularity.

use hdrhistogram::Histogram;

use crate::progress::Progress;
use crate::report::{Cell, Chart, Part, Report, Scale, Series, Style, Table, grouped, rounded, size};
use crate::{CHUNK_REQUESTS, Op, Request, Source, SourceError};

/// Popularity is counted over at most this many initial requests.
const COUNTED_REQUESTS: usize = 20_000_000;
/// The percentiles in a table.
const PERCENTILES: [f64; 7] = [1.0, 10.0, 50.0, 90.0, 99.0, 99.9, 100.0];
/// Points of the curve of the rate.
const RATE_POINTS: u64 = 96;

/// Reads a source to its end and describes it.
///
/// Sizes, times to live and penalties are counted per request, so popular keys weigh more. Popularity is counted over
/// the first 20 million requests.
///
/// # Errors
/// Those of the source.
pub fn check(source: &mut dyn Source, progress: &mut Progress) -> Result<Report, SourceError> {
    let mut counts = StreamCounts::new();
    let mut chunk = Vec::with_capacity(CHUNK_REQUESTS);
    while source.fill(&mut chunk, CHUNK_REQUESTS)? > 0 {
        chunk.iter().for_each(|request| counts.count(request));
        chunk.clear();
        progress.set(source.done_ratio().unwrap_or(0.0), "");
    }
    Ok(counts.report(source))
}

/// The values of a field, recorded with three significant digits.
struct Field {
    name: &'static str,
    values: Histogram<u64>,
    sum: f64,
}

impl Field {
    fn new(name: &'static str) -> Field {
        let values = Histogram::new_with_bounds(1, 1 << 33, 3).expect("bounds that hdrhistogram takes");
        Field { name, values, sum: 0.0 }
    }

    fn count(&mut self, value: u64) {
        self.values.saturating_record(value);
        self.sum += value as f64;
    }

    fn mean(&self) -> f64 {
        self.sum / self.values.len().max(1) as f64
    }

    /// (value, share of the requests at or below it).
    fn distribution(&self) -> Vec<(f64, f64)> {
        let total = self.values.len().max(1) as f64;
        let mut below = 0;
        let steps = self.values.iter_recorded().map(|step| {
            below += step.count_since_last_iteration();
            (step.value_iterated_to() as f64, below as f64 / total)
        });
        thinned(steps.collect(), 500)
    }
}

struct StreamCounts {
    requests: u64,
    ops: [u64; Op::ALL.len()],
    keys: Vec<u64>,
    item_bytes: f64,
    fields: [Field; 4],
    per_minute: Vec<u64>,
    last_s: u32,
}

impl StreamCounts {
    fn new() -> StreamCounts {
        StreamCounts {
            requests: 0,
            ops: [0; Op::ALL.len()],
            keys: Vec::new(),
            item_bytes: 0.0,
            fields: ["key bytes", "value bytes", "ttl s", "penalty us"].map(Field::new),
            per_minute: Vec::new(),
            last_s: 0,
        }
    }

    fn count(&mut self, request: &Request) {
        self.requests += 1;
        self.ops[Op::ALL.iter().position(|op| *op == request.op).unwrap_or(0)] += 1;
        if self.keys.len() < COUNTED_REQUESTS {
            self.keys.push(request.key);
        }
        self.item_bytes += request.item_bytes() as f64;
        let values = [
            u64::from(request.key_bytes),
            u64::from(request.value_bytes),
            u64::from(request.ttl_s),
            u64::from(request.penalty_us),
        ];
        for (field, value) in self.fields.iter_mut().zip(values) {
            field.count(value);
        }
        self.last_s = self.last_s.max(request.time_s);
        let minute = (request.time_s / 60) as usize;
        if minute >= self.per_minute.len() {
            self.per_minute.resize(minute + 1, 0);
        }
        self.per_minute[minute] += 1;
    }

    fn report(mut self, source: &dyn Source) -> Report {
        let counts = popularity(&mut self.keys);
        let mut report = Report { title: format!("Check of {}", source.name()), ..Report::default() };
        report.facts = self.facts(&counts, source);
        report.settings.push(("workload".to_owned(), source.describe()));
        report.parts.push(Part::Table(self.operations()));
        report.parts.push(Part::Table(self.percentiles()));
        report.parts.push(Part::Table(shares(&counts)));
        report.parts.push(Part::Chart(popularity_chart(&counts)));
        for field in self.fields.iter().filter(|field| field.values.max() > field.values.min()) {
            let mut chart =
                Chart::new(&format!("Distribution of {}", field.name), field.name, "requests at or below");
            chart.x.scale = Scale::Log;
            chart.line(field.name, field.distribution());
            report.parts.push(Part::Chart(chart));
        }
        if self.per_minute.len() > 2 {
            report.parts.push(Part::Chart(self.rate_chart()));
        }
        report
    }

    fn facts(&self, counts: &[u64], source: &dyn Source) -> Vec<(String, String)> {
        let mut facts = vec![
            ("requests".to_owned(), grouped(self.requests)),
            ("duration".to_owned(), format!("{} s", grouped(self.last_s.into()))),
            (
                format!("keys in the first {} requests", grouped(self.keys.len() as u64)),
                grouped(counts.len() as u64),
            ),
            ("mean item".to_owned(), size(self.item_bytes / self.requests.max(1) as f64)),
        ];
        if self.last_s > 0 {
            let rate = self.requests as f64 / f64::from(self.last_s);
            facts.push(("mean rate".to_owned(), format!("{} requests/s", rounded(rate, 3))));
        }
        facts.extend(source.notices().into_iter().map(|notice| ("notice".to_owned(), notice)));
        facts
    }

    fn operations(&self) -> Table {
        let mut table = Table::new("Operations", &["operation", "requests", "share %"]);
        for (op, count) in Op::ALL.iter().zip(self.ops).filter(|(_, count)| *count > 0) {
            let share = count as f64 / self.requests as f64 * 100.0;
            table.row(vec![Cell::Text(op.name().to_owned()), Cell::Count(count), Cell::Number(share, 2)]);
        }
        table
    }

    fn percentiles(&self) -> Table {
        let names = PERCENTILES.map(|p| if p == 100.0 { "max".to_owned() } else { format!("p{p}") });
        let columns: Vec<&str> =
            ["per request", "mean"].into_iter().chain(names.iter().map(String::as_str)).collect();
        let mut table = Table::new("Sizes, times to live, penalties", &columns);
        for field in &self.fields {
            let mut row = vec![Cell::Text(field.name.to_owned()), Cell::Rounded(field.mean(), 3)];
            row.extend(PERCENTILES.map(|p| Cell::Count(field.values.value_at_percentile(p))));
            table.row(row);
        }
        table
    }

    fn rate_chart(&self) -> Chart {
        let mut chart = Chart::new("Requests per second", "hours", "requests per s");
        let step = (self.per_minute.len() as u64).div_ceil(RATE_POINTS).max(1) as usize;
        // The incomplete step at the end would look like a fall of the rate.
        let whole = self.per_minute.len().saturating_sub(1) / step * step;
        let points = self.per_minute[..whole].chunks(step).zip(0u32..).map(|(minutes, at)| {
            let rate = minutes.iter().sum::<u64>() as f64 / (minutes.len() as f64 * 60.0);
            ((f64::from(at) + 0.5) * step as f64 / 60.0, rate)
        });
        chart.line("rate", points.collect());
        chart
    }
}

/// Requests per key, the most popular first.
fn popularity(keys: &mut [u64]) -> Vec<u64> {
    keys.sort_unstable();
    let mut counts: Vec<u64> = keys.chunk_by(|a, b| a == b).map(|run| run.len() as u64).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

fn shares(counts: &[u64]) -> Table {
    let total: u64 = counts.iter().sum();
    let mut table = Table::new("Popularity", &["most popular keys %", "keys", "requests %"]);
    for percent in [0.01, 0.1, 1.0, 10.0, 20.0, 50.0] {
        let keys = (counts.len() as f64 * percent / 100.0) as usize;
        let requests: u64 = counts[..keys].iter().sum();
        let share = requests as f64 / total.max(1) as f64 * 100.0;
        table.row(vec![Cell::Number(percent, 2), Cell::Count(keys as u64), Cell::Number(share, 2)]);
    }
    let once = counts.iter().rev().take_while(|count| **count == 1).count() as u64;
    let share = once as f64 / total.max(1) as f64 * 100.0;
    table.row(vec![Cell::Text("asked for once".to_owned()), Cell::Count(once), Cell::Number(share, 2)]);
    table
}

fn popularity_chart(counts: &[u64]) -> Chart {
    let mut chart = Chart::new("Popularity of keys", "rank", "requests");
    chart.x.scale = Scale::Log;
    chart.y.scale = Scale::Log;
    let mut points = Vec::new();
    let mut rank = 1;
    while rank <= counts.len() {
        points.push((rank as f64, counts[rank - 1] as f64));
        rank += (rank / 16).max(1);
    }
    chart.series.push(Series { name: "keys".to_owned(), points, style: Style::Points });
    chart
}

/// About `most` of the points or fewer, including the last one.
fn thinned(points: Vec<(f64, f64)>, most: usize) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(most).max(1);
    let last = points.len().saturating_sub(1);
    points.into_iter().enumerate().filter(|(at, _)| at % step == 0 || *at == last).map(|(_, p)| p).collect()
}
