//! `larder simulate`.

use clap::{Args, ValueEnum};
use larder_server::settings::Objective;
use larder_sim::PENALTY_UNKNOWN_US;
use larder_sim::progress::Progress;
use larder_sim::simulate::{self as simulation, OpsRule, Rules, Size, Unit, Warmup};

use super::failure::Failure;
use super::interrupt::Interrupt;
use super::output::OutputArgs;
use super::source::SourceArgs;
use super::values::{compress_ratio, count, objective, size};

/// Flags of `larder simulate`.
#[derive(Args)]
pub(super) struct SimulateArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Policies to compare, separated by commas; all stands for every one, and an unknown name shows the list
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "all")]
    policies: Vec<String>,
    /// Cache sizes, separated by commas: 1% (of the trace's keys or bytes), 10000 (items) or 64m (bytes)
    #[arg(
        long,
        value_name = "SIZES",
        value_delimiter = ',',
        value_parser = Size::parse,
        default_value = "0.1%,0.3%,1%,3%,10%,30%"
    )]
    sizes: Vec<Size>,
    /// Unit of the cache sizes [default: bytes if a size has a suffix such as 64m, else objects]
    #[arg(long)]
    unit: Option<UnitName>,
    /// Treatment of commands: ignore (every request is a get, as in libCacheSim) or obey [default: obey if the trace
    /// has commands]
    #[arg(long)]
    ops: Option<OpsName>,
    /// Let items expire according to the trace
    #[arg(long)]
    ttls: bool,
    /// Requests at the start that are not counted: a share below 1, such as 0.2, or a number, such as 10k
    #[arg(long, value_name = "RATIO|COUNT", value_parser = warmup, default_value = "0")]
    warmup: Warmup,
    /// Bytes charged per item in addition to key and value, in byte mode; larder always has its own overhead
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    overhead: u32,
    /// Time of a look-up in microseconds
    #[arg(long, value_name = "US", default_value_t = 200)]
    hit_us: u32,
    /// Additional time of a miss in microseconds, where the trace does not give it
    #[arg(long, value_name = "US", default_value_t = PENALTY_UNKNOWN_US)]
    penalty_us: u32,
    #[command(flatten)]
    larder: LarderArgs,
    /// What to compare, best first, and what larder saves: requests (misses), bytes (missed bytes) or time (service
    /// time) [default: misses in the order of --policies; larder saves time]
    #[arg(long, value_name = "NAME", value_parser = objective)]
    objective: Option<Objective>,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    /// Seed of the random numbers of policies that sample
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// What only `larder` has.
#[derive(Args)]
struct LarderArgs {
    /// Flash behind the memory of larder, such as 20g: the server's own flash tier, in a file in the folder for
    /// temporary files; the other policies have none
    #[arg(long, value_name = "SIZE", value_parser = size)]
    flash: Option<f64>,
    /// Additional time of a hit on flash in microseconds
    #[arg(long, value_name = "US", default_value_t = 100, requires = "flash")]
    flash_us: u32,
    /// Let the keeper of larder compress what it keeps and is not hot: such values of 64 bytes and more are RATIO times
    /// shorter, such as 2.5; the other policies compress nothing
    #[arg(long, value_name = "RATIO", value_parser = compress_ratio, conflicts_with = "flash")]
    compress: Option<f64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum UnitName {
    Objects,
    Bytes,
}

#[derive(Clone, Copy, ValueEnum)]
enum OpsName {
    Ignore,
    Obey,
}

/// Runs the command.
pub(super) fn run(args: SimulateArgs) -> Result<(), Failure> {
    // Clap guarantees that there is a source, so opening it fails only for reasons of the source itself.
    let interrupt = Interrupt::wait()?;
    let open = || Ok(interrupt.ends(args.source.open()?));
    let rules = args.rules();
    let mut progress = Progress::new("simulate", args.output.quiet);
    let outcome = simulation::run(&open, &rules, &mut progress);
    progress.finish();
    let outcome = outcome?;
    let mut report = simulation::report(&outcome, &rules);
    let ended = interrupt.mark(&mut report, (outcome.requests, "requests"), outcome.done_ratio)?;
    args.output.deliver(&report)?;
    match (ended, outcome.error) {
        (Some(ended), _) => Err(ended),
        (None, Some(error)) => Err(Failure::Failed(format!("after {} requests: {error}", outcome.requests))),
        (None, None) => Ok(()),
    }
}

impl SimulateArgs {
    fn rules(&self) -> Rules {
        Rules {
            policies: self.policies.clone(),
            sizes: self.sizes.clone(),
            unit: self.unit.map(|unit| match unit {
                UnitName::Objects => Unit::Objects,
                UnitName::Bytes => Unit::Bytes,
            }),
            ops: self.ops.map(|ops| match ops {
                OpsName::Ignore => OpsRule::Ignore,
                OpsName::Obey => OpsRule::Obey,
            }),
            ttls: self.ttls,
            warmup: self.warmup,
            overhead_bytes: self.overhead,
            hit_us: self.hit_us,
            flash_us: self.larder.flash_us,
            penalty_us: self.penalty_us,
            flash_bytes: self.larder.flash.map(|bytes| bytes as u64),
            compress_ratio: self.larder.compress,
            objective: self.objective,
            threads: self.threads.unwrap_or(0),
            seed: self.seed,
        }
    }
}

/// Parses a share below 1, or a number of requests.
fn warmup(text: &str) -> Result<Warmup, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(Warmup::Share(share)),
        _ => count(text).map(Warmup::Requests).map_err(|_| {
            format!("'{text}' is not a warm-up: give a share such as 0.2, or a count such as 10k")
        }),
    }
}
