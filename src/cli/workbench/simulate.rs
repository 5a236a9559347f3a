//! `larder simulate`.

use clap::{Args, ValueEnum};
use larder_sim::PENALTY_UNKNOWN_US;
use larder_sim::progress::Progress;
use larder_sim::simulate::{self as simulation, OpsRule, Rules, Size, Unit, Warmup};

use super::failure::Failure;
use super::output::OutputArgs;
use super::source::SourceArgs;
use super::values::count;

/// Flags of `larder simulate`.
#[derive(Args)]
pub(super) struct SimulateArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Policies, with commas between them; an unknown one is answered with the list
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "all")]
    policies: Vec<String>,
    /// Cache sizes, with commas between them: 1% of the trace's keys (or bytes), 10000 items, 64m bytes
    #[arg(
        long,
        value_name = "SIZES",
        value_delimiter = ',',
        value_parser = Size::parse,
        default_value = "0.1%,0.3%,1%,3%,10%,30%"
    )]
    sizes: Vec<Size>,
    /// What sizes count [default: bytes if a size is written as 64m, else objects]
    #[arg(long)]
    unit: Option<UnitName>,
    /// Ignore operations (every request is a get, as libCacheSim has it), or obey them [default: obey if the
    /// trace has them]
    #[arg(long)]
    ops: Option<OpsName>,
    /// Let items expire as the trace says
    #[arg(long)]
    ttls: bool,
    /// Requests at the beginning that are not counted: a share below 1, such as 0.2, or a count
    #[arg(long, value_name = "RATIO|COUNT", value_parser = warmup, default_value = "0")]
    warmup: Warmup,
    /// Bytes charged per item beside key and value, where sizes count bytes; larder has its own
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    overhead: u32,
    /// What a look-up costs, in microseconds
    #[arg(long, value_name = "US", default_value_t = 200)]
    hit_us: u32,
    /// What a miss costs beside the look-up where the trace does not tell, in microseconds
    #[arg(long, value_name = "US", default_value_t = PENALTY_UNKNOWN_US)]
    penalty_us: u32,
    /// Threads that simulate [default: one per core]
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    /// Seed of the policies that draw lots
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: OutputArgs,
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

/// Runs it.
pub(super) fn run(args: SimulateArgs) -> Result<(), Failure> {
    // Clap has made sure that there is a source, so that opening can only fail for a reason of the source's
    // own.
    let open = || args.source.open();
    let rules = args.rules();
    let mut progress = Progress::new("simulate", args.output.quiet);
    let outcome = simulation::run(&open, &rules, &mut progress);
    progress.finish();
    let outcome = outcome?;
    args.output.deliver(&simulation::report(&outcome, &rules))?;
    match outcome.error {
        Some(error) => Err(Failure::Failed(format!("after {} requests: {error}", outcome.requests))),
        None => Ok(()),
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
            penalty_us: self.penalty_us,
            threads: self.threads.unwrap_or(0),
            seed: self.seed,
        }
    }
}

/// A share below 1, or a count of requests.
fn warmup(text: &str) -> Result<Warmup, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(Warmup::Share(share)),
        _ => count(text)
            .map(Warmup::Requests)
            .map_err(|_| format!("'{text}' is no warm-up: give a share such as 0.2, or a count such as 10k")),
    }
}
