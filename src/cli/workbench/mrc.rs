//! `larder mrc`.

use std::path::Path;

use clap::Args;
use larder_sim::mrc::{Analysis, Curve, Method, OpRule, Settings, Unit, analyse, to_json};
use larder_sim::progress::Progress;
use larder_sim::report::{Cell, Chart, Part, Report, Scale, Table, grouped, size as size_shown};

use super::failure::Failure;
use super::interrupt::Interrupt;
use super::output::{OutputArgs, write};
use super::source::SourceArgs;
use super::values::{count, size};

/// Maximum error of a curve saved to a file, in miss ratio.
const TOLERANCE_SAVED: f64 = 1e-4;
/// Maximum error of a drawn curve, in miss ratio.
const TOLERANCE_DRAWN: f64 = 1e-3;

/// Flags of `larder mrc`.
#[derive(Args)]
pub(super) struct MrcArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Examine every request [default unless --shards or --shards-size is given]; together with one of them, both
    /// curves are computed and compared
    #[arg(long)]
    exact: bool,
    /// Estimate the curve from this share of the keys, such as 0.01 (SHARDS at a fixed rate)
    #[arg(long, value_name = "RATE")]
    shards: Option<f64>,
    /// Estimate the curve from at most this many keys at a time, such as 8k (SHARDS of fixed size)
    #[arg(long, value_name = "KEYS", value_parser = count)]
    shards_size: Option<u64>,
    /// Do not correct the sampled counts to the number of requests (without the correction SHARDS_adj)
    #[arg(long)]
    no_adjust: bool,
    /// Seed of the sample: another number selects other keys
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Unit of the cache sizes: objects or bytes [default: bytes if the trace knows sizes, else objects]
    #[arg(long, value_parser = unit)]
    unit: Option<Unit>,
    /// Effect of commands: obey (reads are counted, writes move the item to the front, deletes remove it) or ignore
    /// (every request is a read)
    #[arg(long, default_value = "obey", value_parser = ops)]
    ops: OpRule,
    /// Bytes per item in addition to key and value, in byte mode
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    item_overhead: u64,
    /// Cache sizes to show, such as 1m,64m,1g (bytes, powers of 1024) or 10k,1m (objects, powers of 1000) [default:
    /// the size of all items, and its halves]
    #[arg(long, value_name = "SIZES")]
    sizes: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
pub(super) fn run(mut args: MrcArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::wait()?;
    let Analysed { name, curves, notices, done_ratio } = args.curves(&interrupt)?;
    let mut report = args.report(&name, &curves, &notices)?;
    let ended = interrupt.mark(&mut report, (curves[0].requests, "reads"), done_ratio)?;
    if let Some(path) = args.output.json.take() {
        let saved: Vec<Curve> = curves.iter().map(|curve| curve.thinned(TOLERANCE_SAVED)).collect();
        args.output.quiet |= write(Path::new(&path), &to_json(&report, &saved))?;
    }
    args.output.deliver(&report)?;
    ended.map_or(Ok(()), Err)
}

/// The curves of a source.
struct Analysed {
    /// The name of the source in a title.
    name: String,
    /// The curves, at least one.
    curves: Vec<Curve>,
    /// Remarks.
    notices: Vec<String>,
    /// How much of the source was read, from 0 to 1, if known.
    done_ratio: Option<f64>,
}

impl MrcArgs {
    fn methods(&self) -> Vec<Method> {
        let mut methods = Vec::new();
        if self.exact || (self.shards.is_none() && self.shards_size.is_none()) {
            methods.push(Method::Exact);
        }
        methods.extend(self.shards.map(Method::Rate));
        methods
            .extend(self.shards_size.map(|keys| Method::Size(usize::try_from(keys).unwrap_or(usize::MAX))));
        methods
    }

    fn curves(&self, interrupt: &Interrupt) -> Result<Analysed, Failure> {
        let mut source = interrupt.ends(self.source.open()?);
        let by_trace = if source.fields().sizes { Unit::Bytes } else { Unit::Objects };
        let unit = self.unit.unwrap_or(by_trace);
        let mut analyses = Vec::new();
        for method in self.methods() {
            let settings = Settings {
                unit,
                method,
                ops: self.ops,
                item_overhead_bytes: self.item_overhead,
                adjusted: !self.no_adjust,
                seed: self.seed,
            };
            analyses.push(Analysis::new(settings).map_err(Failure::Usage)?);
        }
        // Reports an error in --sizes before the pass over the trace.
        self.asked_sizes(unit)?;
        let mut progress = Progress::new("mrc", self.output.quiet);
        analyse(source.as_mut(), &mut analyses, |done| progress.set(done, ""))?;
        progress.finish();
        let name = source.describe();
        let mut notices = source.notices();
        for analysis in &analyses {
            let notice = analysis.check_sample().map_err(|why| Failure::Failed(format!("{name}: {why}")))?;
            notices.extend(notice);
        }
        let curves = analyses.iter().map(|analysis| analysis.curve(&name)).collect();
        Ok(Analysed { name: source.name(), curves, notices, done_ratio: source.done_ratio() })
    }

    fn report(&self, name: &str, curves: &[Curve], notices: &[String]) -> Result<Report, Failure> {
        let [first, ..] = curves else { return Err(Failure::Failed("no curve was computed".to_owned())) };
        let reads = grouped(first.requests);
        let title = format!("Miss ratio of LRU by cache size on {name}: {reads} reads");
        let mut report = Report { title, ..Report::default() };
        let fact = |name: &str, value: String| (name.to_owned(), value);
        report.facts.push(fact("reads counted", reads));
        let footprint = match first.unit {
            Unit::Objects => format!("{} objects", grouped(first.footprint())),
            Unit::Bytes => size_shown(first.footprint() as f64),
        };
        report.facts.push(fact("footprint", footprint));
        report.facts.extend(notices.iter().map(|notice| fact("notice", notice.clone())));
        let ops = match self.ops {
            OpRule::Obey => "obeyed: reads count, writes move to the front, deletes remove",
            OpRule::Ignore => "ignored: every request is a read",
        };
        report.settings = vec![fact("source", first.source.clone()), fact("operations", ops.to_owned())];
        let sizes = self.asked_sizes(first.unit)?.unwrap_or_else(|| halvings(first.footprint()));
        report.parts.push(Part::Table(misses(curves, &sizes)));
        report.parts.push(Part::Table(methods(curves)));
        report.parts.push(Part::Chart(chart(curves)));
        Ok(report)
    }

    /// The sizes given by --sizes.
    fn asked_sizes(&self, unit: Unit) -> Result<Option<Vec<u64>>, Failure> {
        let Some(words) = &self.sizes else { return Ok(None) };
        let one = |word: &str| match unit {
            Unit::Objects => count(word),
            Unit::Bytes => size(word).map(|bytes| bytes as u64),
        };
        let sizes: Result<Vec<u64>, String> = words.split(',').map(|word| one(word.trim())).collect();
        sizes.map(Some).map_err(|why| Failure::Usage(format!("--sizes: {why}")))
    }
}

/// The footprint halved up to ten times, by rising size.
fn halvings(footprint: u64) -> Vec<u64> {
    let mut sizes: Vec<u64> =
        (0..=10).rev().map(|times| footprint >> times).filter(|size| *size > 0).collect();
    sizes.dedup();
    sizes
}

/// A size in the unit of a curve.
fn size_cell(curve: &Curve, size: u64) -> Cell {
    if curve.unit == Unit::Bytes { Cell::Bytes(size as f64) } else { Cell::Count(size) }
}

fn misses(curves: &[Curve], sizes: &[u64]) -> Table {
    let size_name = format!("size {}", curves[0].unit);
    let ratios: Vec<String> = curves.iter().map(|curve| format!("miss ratio, {}", curve.method)).collect();
    let columns: Vec<&str> =
        [size_name.as_str(), "of footprint %"].into_iter().chain(ratios.iter().map(String::as_str)).collect();
    let mut table = Table::new("Miss ratio by cache size", &columns);
    let footprint = curves[0].footprint().max(1) as f64;
    for size in sizes {
        let mut row = vec![size_cell(&curves[0], *size), Cell::Rounded(*size as f64 / footprint * 100.0, 3)];
        row.extend(curves.iter().map(|curve| Cell::Number(curve.miss_ratio(*size as f64), 4)));
        table.row(row);
    }
    table
}

fn methods(curves: &[Curve]) -> Table {
    let columns = [
        "method",
        "cold misses",
        "footprint",
        "least miss ratio",
        "mean error",
        "mean error, log sizes",
        "largest error",
    ];
    let mut table =
        Table::new("Methods: errors are absolute, in miss ratio, against the exact curve", &columns);
    let exact = curves.iter().find(|curve| curve.method == Method::Exact.to_string());
    for curve in curves {
        let mut row = vec![
            Cell::Text(curve.method.clone()),
            Cell::Count(curve.cold_misses),
            size_cell(curve, curve.footprint()),
            Cell::Number(curve.miss_ratio_least(), 4),
        ];
        match exact.filter(|exact| *exact != curve).map(|exact| exact.deviation(curve)) {
            Some(apart) => {
                row.extend([apart.mean, apart.mean_log, apart.largest].map(|error| Cell::Number(error, 4)));
            }
            None => row.extend([Cell::Empty, Cell::Empty, Cell::Empty]),
        }
        table.row(row);
    }
    table
}

fn chart(curves: &[Curve]) -> Chart {
    let (label, scale) = match curves[0].unit {
        Unit::Objects => ("cache size, objects", Scale::Log),
        Unit::Bytes => ("cache size", Scale::Bytes),
    };
    let mut chart = Chart::new("Miss ratio of LRU", label, "miss ratio");
    chart.x.scale = scale;
    for curve in curves {
        let points = curve.thinned(TOLERANCE_DRAWN).points;
        let drawn = points.iter().filter(|point| point.size > 0);
        chart.line(&curve.method, drawn.map(|point| (point.size as f64, point.miss_ratio)).collect());
    }
    chart
}

/// The unit with this name.
fn unit(text: &str) -> Result<Unit, String> {
    match text {
        "objects" => Ok(Unit::Objects),
        "bytes" => Ok(Unit::Bytes),
        _ => Err("expected objects or bytes".to_owned()),
    }
}

/// The effect of commands with this name.
fn ops(text: &str) -> Result<OpRule, String> {
    match text {
        "obey" => Ok(OpRule::Obey),
        "ignore" => Ok(OpRule::Ignore),
        _ => Err("expected obey or ignore".to_owned()),
    }
}
