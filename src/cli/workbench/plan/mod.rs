//! `larder plan`.

mod live;
mod paper;
mod show;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser};
use larder_sim::mrc::{Analysis, Curve, Method, Settings, Unit, analyse};
use larder_sim::plan::{Goal, Latencies, Limits, Model, Overheads, Planner, Prices, Split, Steps, Zipf};
use larder_sim::progress::Progress;
use larder_sim::report::size as shown;

use super::failure::Failure;
use super::interrupt::Interrupt;
use super::output::OutputArgs;
use super::source::SourceArgs;
use super::values::{compress_ratio, count, number_and_unit, size};

/// Maximum error of the planned curve, in miss ratio.
const TOLERANCE: f64 = 1e-4;
/// Latency of the back end in microseconds where it is unknown: Mlcached, Table 1.
const BACKEND_US: f64 = 10_000.0;

/// Latency of an answer from memory and from flash in microseconds where it is unknown: Mlcached, Table 1.
const DRAM_US: f64 = 100.0;
const FLASH_US: f64 = 200.0;
/// Bytes of memory per item beside key and value where they are unknown.
const DRAM_OVERHEAD_BYTES: f64 = 32.0;

/// The flags of which exactly one gives the popularity of the items.
const POPULARITIES: [&str; 6] = ["curve", "trace", "workload", "zipf", "paper", "server"];

/// Flags of `larder plan`.
#[derive(Args)]
#[command(group = ArgGroup::new("popularity").required(true).args(POPULARITIES))]
pub(super) struct PlanArgs {
    /// Plan for the curve in this file, written by `larder mrc --json`
    #[arg(long, value_name = "FILE")]
    curve: Option<PathBuf>,
    /// Plan for this trace: its miss-ratio curve is computed first
    #[arg(long, value_name = "TRACE")]
    trace: Option<PathBuf>,
    /// Format of the trace: oracle-general, lcs, vscsi, twitter, msr, csv, keys, watch or monitor [default: detected
    /// from the name and the first lines]
    #[arg(long, requires = "trace")]
    format: Option<String>,
    /// What the columns of a trace are that has no header, such as time=1,key=2,size=3
    #[arg(long, value_name = "NAME=PLACE,...", requires = "trace", conflicts_with = "format")]
    columns: Option<String>,
    /// Skip and count lines of the trace that cannot be read, instead of stopping at the first one
    #[arg(long, requires = "trace")]
    skip_bad: bool,
    /// Plan for a generated workload, such as zipfian:keys=1m,requests=10m
    #[arg(long, value_name = "WORKLOAD")]
    workload: Option<String>,
    /// Plan for Zipf's law, such as keys=4g,alpha=0.9,value=256; with parts=100 the law ranks 100 equal parts of the
    /// keys instead of single keys
    #[arg(long, value_name = "LAW", value_parser = zipf)]
    zipf: Option<Zipf>,
    /// Reproduce the example of the Mlcached paper, with its figures beside ours
    #[arg(long, conflicts_with_all = ["sla", "budget"])]
    paper: bool,
    /// Plan for the traffic of this running server, such as localhost:11211: it keeps a curve of its own recent reads
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["scale", "shards_size", "limit"])]
    server: Option<String>,
    /// What is wanted: a mean latency such as 500us, or an amount of money such as 120 [default for a server: the
    /// latency that it has now]
    #[arg(long, value_name = "TIME|MONEY", value_parser = target, conflicts_with_all = ["sla", "budget", "paper"])]
    target: Option<Goal>,
    /// Stop after this many requests of the trace or workload, such as 10m
    #[arg(long, value_name = "REQUESTS")]
    limit: Option<String>,
    /// The curve is that of a sample of one key in FACTOR: all sizes are multiplied by FACTOR
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    scale: f64,
    /// Estimate the curve from at most this many keys of the trace or workload at a time, such as 8k (SHARDS)
    #[arg(long, value_name = "KEYS", value_parser = count)]
    shards_size: Option<u64>,

    /// Find the cheapest split whose mean latency is at most this, such as 500us
    #[arg(long, value_name = "TIME", value_parser = micros)]
    sla: Option<f64>,
    /// Find the fastest split that costs at most this
    #[arg(long, value_name = "MONEY", value_parser = money)]
    budget: Option<f64>,

    /// Evaluate a machine with this much memory, such as 4g: what hits, what it costs, how long an answer takes
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "paper")]
    dram: Option<f64>,
    /// The flash of that machine, such as 20g
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "dram", default_value = "0")]
    flash: f64,

    /// Price of a GiB of memory, in any currency
    #[arg(long, value_name = "MONEY", default_value_t = 10.0)]
    dram_price: f64,
    /// Price of a GiB of flash, in the same currency
    #[arg(long, value_name = "MONEY", default_value_t = 0.68)]
    flash_price: f64,
    /// Latency of the network, one way, such as 50us
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = micros)]
    network_latency: f64,
    /// Latency of an answer from memory, such as 100us [default: what the server measured, else 100us]
    #[arg(long, value_name = "TIME", value_parser = micros)]
    dram_latency: Option<f64>,
    /// Latency of an answer from flash, such as 200us [default: what the server measured, else 200us]
    #[arg(long, value_name = "TIME", value_parser = micros)]
    flash_latency: Option<f64>,
    /// Latency of the back end, such as 10ms [default: the mean penalty of a miss if the trace knows penalties, else
    /// 10ms]
    #[arg(long, value_name = "TIME", value_parser = micros)]
    backend_latency: Option<f64>,
    /// Bytes of memory per item in memory, in addition to key and value [default: what the server takes, else 32]
    #[arg(long, value_name = "BYTES")]
    dram_overhead: Option<f64>,
    /// Bytes of flash per item on flash, in addition to key and value
    #[arg(long, value_name = "BYTES", default_value_t = 0.0)]
    flash_overhead: f64,
    /// Bytes of memory per item on flash
    #[arg(long, value_name = "BYTES", default_value_t = 2.5)]
    flash_index: f64,
    /// Items are RATIO times shorter, such as 2.5, in nine tenths of the memory: the most that compression can bring;
    /// on flash items are plain
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = compress_ratio,
        conflicts_with_all = ["server", "paper"])]
    compress: f64,
    /// Mean size of key and value in bytes, where the curve does not know it
    #[arg(long, value_name = "BYTES")]
    item_bytes: Option<f64>,
    /// Minimum amount of memory, such as 8g
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size)]
    dram_min: f64,
    /// Maximum amount of memory, such as 64g
    #[arg(long, value_name = "SIZE", value_parser = size)]
    dram_max: Option<f64>,
    /// Maximum amount of flash, such as 1t
    #[arg(long, value_name = "SIZE", value_parser = size)]
    flash_max: Option<f64>,
    /// Memory is bought in multiples of this, such as 8g
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "flash_step")]
    dram_step: Option<f64>,
    /// Flash is bought in multiples of this, such as 100g
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "dram_step")]
    flash_step: Option<f64>,
    #[command(flatten)]
    output: OutputArgs,
}

/// The flags of a source as in the other commands.
#[derive(Parser)]
struct SourceWords {
    #[command(flatten)]
    source: SourceArgs,
}

/// Runs the command.
pub(super) fn run(args: PlanArgs) -> Result<(), Failure> {
    if args.paper {
        return args.output.deliver(&paper::report().map_err(Failure::Failed)?);
    }
    if let Some(address) = &args.server {
        return live::run(&args, address);
    }
    // Before the curve is known, items are assumed to be as large as possible. Then no flag is refused that the curve
    // may justify.
    args.model(args.item_bytes.unwrap_or(f64::MAX), BACKEND_US).check().map_err(Failure::Usage)?;
    let interrupt = Interrupt::wait()?;
    let Popularity { mut curve, notices, done_ratio } = args.popularity(&interrupt)?;
    curve.scale(args.scale);
    let model = args.model_of(&curve)?;
    let planner = Planner::new(model, &curve).map_err(Failure::Usage)?;
    let mut goals = Vec::new();
    goals.extend(args.sla.map(Goal::Sla));
    goals.extend(args.budget.map(Goal::Budget));
    goals.extend(args.target);
    let machines: Vec<_> = args.machine(&planner)?.into_iter().collect();
    let mut report = show::report(&planner, &machines, &goals, &notices).map_err(Failure::Failed)?;
    let ended = interrupt.mark(&mut report, (planner.curve().requests, "reads"), done_ratio)?;
    args.output.deliver(&report)?;
    ended.map_or(Ok(()), Err)
}

/// How popular the items are for which is planned.
struct Popularity {
    curve: Curve,
    /// Remarks.
    notices: Vec<String>,
    /// How much of the trace was read, from 0 to 1, if there is one and it is known.
    done_ratio: Option<f64>,
}

impl From<Curve> for Popularity {
    fn from(curve: Curve) -> Popularity {
        Popularity { curve, notices: Vec::new(), done_ratio: None }
    }
}

impl PlanArgs {
    /// The machine that is to be evaluated, with a title.
    fn machine(&self, planner: &Planner) -> Result<Option<(String, Split)>, Failure> {
        let Some(dram) = self.dram else { return Ok(None) };
        let title = match self.flash > 0.0 {
            true => format!("A machine with {} of DRAM and {} of flash", shown(dram), shown(self.flash)),
            false => format!("A machine with {} of DRAM", shown(dram)),
        };
        let split = planner.split(dram, self.flash).ok_or_else(|| {
            Failure::Usage(format!(
                "the index of {} of flash does not fit into {} of DRAM: raise --dram, or lower --flash",
                shown(self.flash),
                shown(dram)
            ))
        })?;
        Ok(Some((title, split)))
    }

    fn popularity(&self, interrupt: &Interrupt) -> Result<Popularity, Failure> {
        if let Some(path) = &self.curve {
            return Ok(Curve::read(path).map_err(|error| Failure::Failed(error.0))?.into());
        }
        if let Some(zipf) = &self.zipf {
            return Ok(zipf.curve().map_err(Failure::Usage)?.into());
        }
        let mut source = interrupt.ends(self.source()?.open()?);
        let unit = if source.fields().sizes { Unit::Bytes } else { Unit::Objects };
        if unit == Unit::Objects && self.item_bytes.is_none() {
            return Err(item_bytes_unknown());
        }
        let method = match self.shards_size {
            Some(keys) => Method::Size(usize::try_from(keys).unwrap_or(usize::MAX)),
            None => Method::Exact,
        };
        let mut analyses = [Analysis::new(Settings::new(unit, method)).map_err(Failure::Usage)?];
        let mut progress = Progress::new("plan", self.output.quiet);
        analyse(source.as_mut(), &mut analyses, |done| progress.set(done, ""))?;
        progress.finish();
        let (name, mut notices) = (source.describe(), source.notices());
        let [analysis] = &analyses;
        notices.extend(analysis.check_sample().map_err(|why| Failure::Failed(format!("{name}: {why}")))?);
        let curve = analysis.curve(&source.name()).thinned(TOLERANCE);
        let done_ratio = source.done_ratio();
        if curve.requests == 0 && interrupt.ended((0, "reads"), done_ratio)?.is_none() {
            return Err(Failure::Failed(format!("{name}: it contains no reads, so nothing can be planned")));
        }
        Ok(Popularity { curve, notices, done_ratio })
    }

    /// The trace or workload in the syntax of the other commands, which take the trace without a flag.
    fn source(&self) -> Result<SourceArgs, Failure> {
        let mut words = vec![OsString::from("plan")];
        for (flag, value) in [
            ("--workload", &self.workload),
            ("--format", &self.format),
            ("--columns", &self.columns),
            ("--limit", &self.limit),
        ] {
            words.extend(value.iter().flat_map(|value| [flag.into(), value.into()]));
        }
        words.extend(self.skip_bad.then(|| "--skip-bad".into()));
        if let Some(path) = &self.trace {
            words.extend(["--".into(), path.into()]);
        }
        let words = SourceWords::try_parse_from(words);
        let usage = |text: String| Failure::Usage(text.trim_start_matches("error: ").trim_end().to_owned());
        words.map(|words| words.source).map_err(|error| usage(error.to_string()))
    }

    /// The model, completed with what the curve knows of item sizes and penalties.
    fn model_of(&self, curve: &Curve) -> Result<Model, Failure> {
        let known = Some(curve.item_bytes_mean).filter(|bytes| *bytes > 0.0);
        let item_bytes = self.item_bytes.or(known).ok_or_else(item_bytes_unknown)?;
        let backend_us = if curve.penalty_us_mean > 0.0 { curve.penalty_us_mean } else { BACKEND_US };
        Ok(self.model(item_bytes, backend_us))
    }

    /// The model given by the flags; `backend_us` applies where they do not give the latency of the back end.
    fn model(&self, item_bytes: f64, backend_us: f64) -> Model {
        Model {
            prices: Prices { dram_per_gb: self.dram_price, flash_per_gb: self.flash_price },
            latencies: Latencies {
                network_us: self.network_latency,
                dram_us: self.dram_latency.unwrap_or(DRAM_US),
                flash_us: self.flash_latency.unwrap_or(FLASH_US),
                backend_us: self.backend_latency.unwrap_or(backend_us),
            },
            overheads: Overheads {
                dram_item_bytes: self.dram_overhead.unwrap_or(DRAM_OVERHEAD_BYTES),
                flash_item_bytes: self.flash_overhead,
                flash_index_bytes: self.flash_index,
            },
            compress_ratio: self.compress,
            item_bytes,
            limits: Limits {
                dram_bytes_min: self.dram_min,
                dram_bytes_max: self.dram_max.unwrap_or(f64::INFINITY),
                flash_bytes_max: self.flash_max.unwrap_or(f64::INFINITY),
            },
            steps: self
                .dram_step
                .zip(self.flash_step)
                .map(|(dram_bytes, flash_bytes)| Steps { dram_bytes, flash_bytes }),
        }
    }
}

fn item_bytes_unknown() -> Failure {
    Failure::Usage("the curve does not know the size of items: give it with --item-bytes".to_owned())
}

/// Parses an amount of money above 0.
fn money(text: &str) -> Result<f64, String> {
    let amount = text.parse().ok().filter(|amount: &f64| *amount > 0.0 && amount.is_finite());
    amount.ok_or_else(|| format!("'{text}' is not an amount of money above 0"))
}

/// Parses what is wanted: a latency if it has a unit of time, else an amount of money.
fn target(text: &str) -> Result<Goal, String> {
    let is_time = text.ends_with('s');
    let goal = if is_time { micros(text).map(Goal::Sla) } else { money(text).map(Goal::Budget) };
    goal.map_err(|_| {
        format!("'{text}' is neither a latency such as 500us nor an amount of money such as 120")
    })
}

/// Parses a factor of at least 1.
fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (1.0..=1e9).contains(factor));
    factor.ok_or_else(|| format!("'{text}' is not a factor from 1 to 1000000000"))
}

/// Parses a duration such as `500us`, `10ms`, `1s` into microseconds.
fn micros(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a duration: give one such as 500us, 10ms or 1s");
    match number_and_unit(text).ok_or_else(wrong)? {
        (number, "us") => Ok(number),
        (number, "ms") => Ok(number * 1e3),
        (number, "s") => Ok(number * 1e6),
        _ => Err(wrong()),
    }
}

/// Parses a Zipf law such as `keys=4g,alpha=3,value=256`.
fn zipf(text: &str) -> Result<Zipf, String> {
    const KNOWN: &str =
        "a law has keys, alpha, value and, if wanted, parts: keys=4g,alpha=3,value=256,parts=100";
    let (mut keys, mut alpha, mut item_bytes, mut parts) = (None, None, None, None);
    for word in text.split(',') {
        let (name, value) = word.split_once('=').ok_or(KNOWN)?;
        let number = || value.parse::<f64>().map_err(|_| format!("'{value}' is not a number for {name}"));
        match name.trim() {
            "keys" => keys = Some(count(value)? as f64),
            "alpha" => alpha = Some(number()?),
            "value" => item_bytes = Some(size(value)?),
            "parts" => {
                let value = count(value)?;
                parts = Some(u32::try_from(value).map_err(|_| format!("'{value}' is too many parts"))?);
            }
            _ => return Err(KNOWN.to_owned()),
        }
    }
    match (keys, alpha, item_bytes) {
        (Some(keys), Some(alpha), Some(item_bytes)) => Ok(Zipf { keys, alpha, item_bytes, parts }),
        _ => Err(KNOWN.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_have_units() {
        assert_eq!(size("64m"), Ok(67_108_864.0));
        assert_eq!(
            (size("1.5K"), size("1.5KB"), size("2TiB")),
            (Ok(1536.0), Ok(1536.0), Ok(2_199_023_255_552.0))
        );
        assert_eq!((micros("500us"), micros("10ms"), micros("1s")), (Ok(500.0), Ok(10_000.0), Ok(1e6)));
        for text in ["", "x", "-1m", "1q", "nan", "inf"] {
            assert!(size(text).is_err() && micros(text).is_err(), "{text}");
        }
        assert!(micros("500").is_err());
    }

    #[test]
    fn a_ratio_is_from_1_to_20() {
        assert_eq!(
            (compress_ratio("1"), compress_ratio("2.5"), compress_ratio("20")),
            (Ok(1.0), Ok(2.5), Ok(20.0))
        );
        for text in ["", "x", "0.9", "20.1", "-2", "nan", "inf"] {
            assert!(compress_ratio(text).is_err_and(|why| why.contains("from 1 to 20")), "{text}");
        }
    }

    #[test]
    fn a_target_is_a_latency_or_money() {
        assert_eq!(target("500us"), Ok(Goal::Sla(500.0)));
        assert_eq!(target("2ms"), Ok(Goal::Sla(2000.0)));
        assert_eq!(target("120"), Ok(Goal::Budget(120.0)));
        for text in ["", "s", "0", "-3", "fast", "10 dollars"] {
            assert!(target(text).is_err(), "{text}");
        }
    }

    #[test]
    fn money_is_a_number_above_0() {
        assert_eq!(money("12.5"), Ok(12.5));
        for text in ["", "x", "0", "-1", "nan", "inf", "1e999"] {
            assert!(money(text).is_err(), "{text}");
        }
    }

    #[test]
    fn laws_are_read_and_broken_ones_refused() {
        let law = Zipf { keys: 4e9, alpha: 3.0, item_bytes: 256.0, parts: Some(100) };
        assert_eq!(zipf("keys=4g,alpha=3,value=256,parts=100"), Ok(law));
        for text in ["", "keys=4g", "keys=4g,alpha=x,value=1", "keys=4g,alpha=1,value=1,colour=red"] {
            assert!(zipf(text).is_err(), "{text}");
        }
    }
}
