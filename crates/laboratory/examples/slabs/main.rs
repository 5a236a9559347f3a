//! Compares schemes of slab allocation on a trace or a workload: how much memory each size class holds.
//!
//! `slabs (TRACE | --workload WORKLOAD) [--schemes NAMES] [--memory SIZES] ...`; `--help` lists the flags, and
//! `docs/evidence/pama.md` shows the results.

mod allocation;

use allocation::{
    Burst, NAMES, ReportOptions, Rollover, SchemeSettings, Settings, Simulation, SlabClasses, check,
};
use clap::Parser;
use larder_cache::Objective;
use larder_sim::progress::Progress;
use larder_sim::report::{Part, Report};
use larder_sim::{Limited, Source, SourceError, trace, workload};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compares schemes of slab allocation on a trace or a workload.
#[derive(Parser)]
struct Flags {
    /// The trace file, in any format that `larder simulate` reads
    #[arg(value_name = "TRACE", required_unless_present = "workload", conflicts_with = "workload")]
    trace: Option<PathBuf>,
    /// A generated workload instead of a trace, such as zipfian:keys=1m,requests=10m,theta=0.99
    #[arg(long, value_name = "WORKLOAD")]
    workload: Option<String>,
    /// Stop after this many requests, such as 10m
    #[arg(long, value_name = "REQUESTS", value_parser = count)]
    limit: Option<u64>,
    /// Write the report as one self-contained HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the report as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Memory sizes of the cache, separated by commas, such as 64m,128m (powers of 1024)
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = bytes, default_value = "64m")]
    memory: Vec<u64>,
    /// Schemes to compare, separated by commas: some of static, automove, psa, twemcache, age, pre-pama,
    /// pre-pama-subclasses, pama, pama-exact; all, which stands for these; and larder, the server's own cache, with
    /// larder-penalty, larder-hits and larder-static, which have another --worth
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "all")]
    schemes: Vec<String>,
    /// PAMA's m, the number of additional segments that count towards a value; several numbers, separated by commas,
    /// run side by side
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "2")]
    m: Vec<usize>,
    /// What to compare, best first, and what larder saves: requests (misses), bytes (missed bytes) or time (service
    /// time) [default: the order of --schemes; larder saves time]
    #[arg(long, value_name = "NAME", value_parser = objective)]
    objective: Option<Objective>,
    /// GETs per window of the report, such as 1m
    #[arg(long, value_name = "GETS", value_parser = count, default_value = "1m")]
    window: u64,
    /// Number of passes over the requests
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = passes)]
    passes: u32,
    #[command(flatten)]
    model: ModelFlags,
    #[command(flatten)]
    burst: BurstFlags,
    /// Size classes whose penalty subclasses are charted over time, separated by commas
    #[arg(long, value_name = "CLASSES", value_delimiter = ',', default_value = "0,8")]
    show_classes: Vec<usize>,
    /// Number of simulations that run at the same time; 0 is one per core
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    threads: usize,
}

/// The cache and its schemes.
#[derive(clap::Args)]
struct ModelFlags {
    /// Size of a slab, such as 1m
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "1m")]
    slab: u64,
    /// Factor by which slots grow from one size class to the next
    #[arg(long, value_name = "FACTOR", default_value_t = 2.0)]
    factor: f64,
    /// Maximum number of size classes; items larger than the last class are refused [default: classes up to the slab
    /// size]
    #[arg(long, value_name = "NUMBER")]
    classes_max: Option<usize>,
    /// Bytes per item in addition to key and value
    #[arg(long, value_name = "OCTETS", default_value_t = 0)]
    overhead: u32,
    /// Service time of a hit in microseconds
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 100)]
    hit_us: u32,
    /// Do not store what a GET missed: only the SETs of the trace fill the cache
    #[arg(long)]
    no_refill: bool,
    /// Window of PAMA's values in accesses, such as 1m
    #[arg(long, value_name = "ACCESSES", value_parser = count, default_value = "1m")]
    value_window: u64,
    /// What happens to PAMA's values at the end of their window: sliding, reset, last or decay
    #[arg(long, value_name = "NAME", value_parser = Rollover::parse, default_value = "sliding")]
    rollover: Rollover,
    /// Leave PAMA's values unchanged when a slab moves, instead of shifting them with the segments
    #[arg(long)]
    values_stay: bool,
    /// Number of misses after which PSA moves a slab, such as 1k
    #[arg(long, value_name = "MISSES", value_parser = count, default_value = "1k")]
    psa_misses: u64,
    /// Number of accesses between two decisions of memcached's automover, such as 1m
    #[arg(long, value_name = "ACCESSES", value_parser = count, default_value = "1m")]
    automove_window: u64,
    /// Seed of the random numbers of twemcache
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

/// Injected cold items (PAMA, section IV.C).
#[derive(clap::Args)]
struct BurstFlags {
    /// Inject a burst of cold items after this many GETs, such as 1m
    #[arg(long, value_name = "GETS", value_parser = count)]
    burst_at: Option<u64>,
    /// Size of the burst as a share of the memory, 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = 0.1, requires = "burst_at")]
    burst_ratio: f64,
    /// First size class of the burst
    #[arg(long, value_name = "CLASS", default_value_t = 3, requires = "burst_at")]
    burst_class: usize,
    /// Number of size classes of the burst
    #[arg(long, value_name = "NUMBER", default_value_t = 3, requires = "burst_at")]
    burst_classes: usize,
    /// SETs of the burst per GET
    #[arg(long, value_name = "NUMBER", default_value_t = 10, requires = "burst_at")]
    burst_sets_per_get: u32,
    /// Penalty of the burst's items in microseconds; 0 is unknown
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, requires = "burst_at")]
    burst_penalty_us: u32,
}

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<(), String> {
    let settings = settings(flags)?;
    let simulations = simulations(flags)?;
    let threads = match flags.threads {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        threads => threads,
    };
    let mut described = None;
    let mut sizes_known = true;
    let mut open = || {
        let source = flags.open()?;
        sizes_known = source.fields().sizes;
        described.get_or_insert_with(|| source.describe());
        Ok(source)
    };
    let mut progress = Progress::new("slabs", false);
    let ran = allocation::run(&settings, &simulations, flags.passes, threads, &mut open, &mut progress);
    progress.finish();
    let ran = ran.map_err(|error| error.0)?;
    let options =
        ReportOptions { source: described.unwrap_or_default(), classes: flags.show_classes.clone() };
    let mut report = allocation::report(&settings, &ran.outcomes, &options);
    report.parts.extend(ran.notices.into_iter().map(Part::Text));
    if !sizes_known {
        let text = "The requests have no sizes: every item counts as empty, and one class holds them all.";
        report.parts.insert(0, Part::Text(text.to_owned()));
    }
    flags.deliver(&report)
}

impl Flags {
    /// Opens the source. It may be opened again for another pass.
    fn open(&self) -> Result<Box<dyn Source>, SourceError> {
        let source = match (&self.trace, &self.workload) {
            (Some(path), _) => trace::open(path, &trace::Options::default())?,
            (None, Some(words)) => workload::parse(words)?,
            (None, None) => return Err(SourceError::new("a trace or --workload is needed")),
        };
        Ok(match self.limit {
            Some(most) => Box::new(Limited::new(source, most)),
            None => source,
        })
    }

    /// Writes the report to the files that were asked for, or else prints it.
    fn deliver(&self, report: &Report) -> Result<(), String> {
        if let Some(path) = &self.html {
            write(path, &report.to_html())?;
        }
        match &self.json {
            Some(path) if path.as_os_str() != "-" => write(path, &report.to_json())?,
            Some(_) => println!("{}", report.to_json()),
            None if self.html.is_some() => {}
            None => println!("{}", report.to_text()),
        }
        Ok(())
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn settings(flags: &Flags) -> Result<Settings, String> {
    let model = &flags.model;
    let burst = flags.burst.burst_at.map(|at_gets| Burst {
        at_gets,
        memory_ratio: flags.burst.burst_ratio,
        class_first: flags.burst.burst_class,
        classes: flags.burst.burst_classes,
        sets_per_get: flags.burst.burst_sets_per_get,
        penalty_us: flags.burst.burst_penalty_us,
    });
    Ok(Settings {
        classes: SlabClasses::new(model.slab, model.factor, model.classes_max)?,
        overhead_bytes: model.overhead,
        hit_us: model.hit_us,
        refill: !model.no_refill,
        window_gets: flags.window,
        burst,
        scheme: SchemeSettings {
            m: flags.m.first().copied().unwrap_or(2),
            value_window: model.value_window,
            rollover: model.rollover,
            follow_slabs: !model.values_stay,
            psa_misses: model.psa_misses,
            automove_window: model.automove_window,
            seed: model.seed,
        },
        objective: flags.objective,
    })
}

/// One simulation for every scheme and memory size; schemes with an m get one for every m.
fn simulations(flags: &Flags) -> Result<Vec<Simulation>, String> {
    let mut names: Vec<&str> = Vec::new();
    for asked in &flags.schemes {
        let group = if asked == "all" { NAMES } else { &[asked.as_str()][..] };
        for &name in group {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let mut simulations = Vec::new();
    for &memory_bytes in &flags.memory {
        for &name in &names {
            let has_m = check(name)?;
            let ms = if has_m { &flags.m[..] } else { &flags.m[..1] };
            let of = |&m: &usize| Simulation { scheme: name.to_owned(), m, memory_bytes };
            simulations.extend(ms.iter().map(of));
        }
    }
    Ok(simulations)
}

/// Parses the name of what larder saves.
fn objective(text: &str) -> Result<Objective, String> {
    Objective::of_name(text).ok_or_else(|| "expected requests, bytes or time".to_owned())
}

/// Parses a count such as `250`, `10k`, `5m`, `2g` (powers of ten).
fn count(text: &str) -> Result<u64, String> {
    number_of(text, 1_000).ok_or_else(|| format!("'{text}' is not a count: give one such as 250, 10k or 5m"))
}

/// Parses a size such as `64k`, `512m`, `4g` (powers of 1024).
fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size: give one such as 64k, 512m or 4g");
    number_of(text, 1_024).filter(|&bytes| bytes > 0).ok_or_else(wrong)
}

/// A whole number with `k`, `m` or `g` behind it, which are powers of `kilo`.
fn number_of(text: &str, kilo: u64) -> Option<u64> {
    let power = match text.chars().last()?.to_ascii_lowercase() {
        'k' => 1,
        'm' => 2,
        'g' => 3,
        _ => 0,
    };
    let digits = &text[..text.len() - usize::from(power > 0)];
    digits.parse::<u64>().ok()?.checked_mul(kilo.pow(power))
}

/// Parses a number of passes, at least one.
fn passes(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|&passes| passes > 0)
        .ok_or_else(|| "expected a whole number of at least 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Flags {
        let all = ["slabs", "--workload", "zipfian"].iter().chain(words);
        Flags::try_parse_from(all).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_scheme_runs_at_every_size_and_pama_with_every_m() {
        let args = parse(&["--memory", "1m,2m", "--schemes", "static,pama", "--m", "0,2"]);
        let all: Vec<(String, usize, u64)> =
            simulations(&args).unwrap().into_iter().map(|s| (s.scheme, s.m, s.memory_bytes)).collect();
        let of = |name: &str, m, memory| (name.to_owned(), m, memory);
        let (one, two) = (1 << 20, 2 << 20);
        let first = [of("static", 0, one), of("pama", 0, one), of("pama", 2, one)];
        let second = [of("static", 0, two), of("pama", 0, two), of("pama", 2, two)];
        assert_eq!(all, [first, second].concat());
        assert_eq!(simulations(&parse(&[])).unwrap().len(), NAMES.len());
        let with_larder = simulations(&parse(&["--schemes", "all,larder,static"])).unwrap();
        assert_eq!(with_larder.len(), NAMES.len() + 1);
        assert_eq!(with_larder.last().unwrap().scheme, "larder");
    }

    #[test]
    fn an_unknown_scheme_is_refused_with_those_that_exist() {
        let text = simulations(&parse(&["--schemes", "clever"])).err().unwrap();
        assert!(text.contains("'clever' is no scheme: there are static"), "{text}");
    }

    #[test]
    fn sizes_count_in_powers_of_1024() {
        assert_eq!(bytes("64k"), Ok(65_536));
        assert_eq!(bytes("3"), Ok(3));
        assert_eq!(count("250k"), Ok(250_000));
        assert!(bytes("0").is_err() && bytes("m").is_err() && bytes("20000000000g").is_err());
    }

    #[test]
    fn a_burst_needs_its_time() {
        assert!(settings(&parse(&[])).unwrap().burst.is_none());
        let args = parse(&["--burst-at", "5k", "--burst-class", "1"]);
        let burst = settings(&args).unwrap().burst.unwrap();
        assert_eq!((burst.at_gets, burst.class_first, burst.classes), (5_000, 1, 3));
        let words = ["slabs", "--workload", "zipfian", "--burst-class", "1"];
        assert!(Flags::try_parse_from(words).is_err());
    }
}
