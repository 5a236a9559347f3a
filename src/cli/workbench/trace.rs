//! `larder trace inspect`, `larder trace convert` and `larder trace sample`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use larder_sim::progress::Progress;
use larder_sim::trace::{self as traces, Format, Sampled, inspect, write};
use larder_sim::{CHUNK_REQUESTS, Source};

use super::compressible::{self, CompressibleArgs};
use super::failure::Failure;
use super::interrupt::Interrupt;
use super::output::{OutputArgs, print};
use super::source::SourceArgs;
use super::values::written_format;

/// Flags of `larder trace`.
#[derive(Args)]
pub(super) struct TraceArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Describe a trace: requests, keys, sizes, skew, working set, rates
    Inspect(InspectArgs),
    /// Write a trace in another format, or write a workload as a trace
    Convert(ConvertArgs),
    /// Write only the requests to a sample of the keys
    Sample(SampleArgs),
    /// Tell what compression would make of the values of a file or of a running server
    Compressible(CompressibleArgs),
}

#[derive(Args)]
struct InspectArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Args)]
#[command(allow_missing_positional = true)]
struct ConvertArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Args)]
#[command(allow_missing_positional = true)]
struct SampleArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// The share of the keys to keep, above 0 and at most 1, such as 0.01
    #[arg(long, value_name = "SHARE")]
    rate: f64,
    /// Seed of the sample: another number selects other keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The file to write.
#[derive(Args)]
pub(super) struct TargetArgs {
    /// The file to write; a suffix .zst, .gz or .xz compresses it
    #[arg(value_name = "OUT", required = true)]
    pub(super) out: PathBuf,
    /// Format of the file: oracle-general, twitter, csv or keys [default: by its name; `sample` keeps the format of
    /// the trace]
    #[arg(long, value_name = "FORMAT", value_parser = written_format)]
    pub(super) to: Option<Format>,
    /// Overwrite the file if it exists
    #[arg(long)]
    pub(super) force: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    pub(super) quiet: bool,
}

impl TargetArgs {
    /// Whether the file would replace another only where that is wanted.
    pub(super) fn may_be_written(&self) -> Result<(), Failure> {
        match self.out.exists() && !self.force {
            true => {
                let out = self.out.display();
                Err(Failure::Failed(format!("{out}: exists already: give --force to overwrite it")))
            }
            false => Ok(()),
        }
    }
}

/// Runs the command.
pub(super) fn run(args: TraceArgs) -> Result<(), Failure> {
    match args.command {
        Command::Compressible(args) => compressible::run(&args),
        Command::Inspect(args) => {
            let interrupt = Interrupt::wait()?;
            let mut source = interrupt.ends(args.source.open()?);
            let mut progress = Progress::new("inspect", args.output.quiet);
            let mut report = inspect::inspect(source.as_mut(), &mut progress)?;
            progress.finish();
            let ended = interrupt.mark(&mut report, interrupt.passed(), source.done_ratio())?;
            args.output.deliver(&report)?;
            ended.map_or(Ok(()), Err)
        }
        Command::Convert(args) => {
            let to = args.target.to.or_else(|| write::format_by_name(&args.target.out));
            let source = args.source.open()?;
            copy_until_signal(source, &args.target, to.ok_or_else(|| unnamed(&args.target.out))?, "convert")
        }
        Command::Sample(args) => {
            let to = match (args.target.to, &args.source.trace) {
                (Some(to), _) => Some(to),
                // Detecting the format would consume the first requests of a pipe.
                (None, _) if args.source.pipe().is_some() => {
                    args.source.format.or_else(|| write::format_by_name(&args.target.out))
                }
                (None, Some(path)) => Some(traces::format_of(path, &args.source.options())?),
                (None, None) => write::format_by_name(&args.target.out),
            };
            let source = Sampled::new(args.source.open()?, args.rate, args.seed)?;
            let to = to.ok_or_else(|| unnamed(&args.target.out))?;
            copy_until_signal(Box::new(source), &args.target, to, "sample")
        }
    }
}

fn unnamed(out: &Path) -> Failure {
    Failure::Usage(format!(
        "{}: the name does not tell the format: give it with --to oracle-general, twitter, csv or keys",
        out.display()
    ))
}

/// Writes a source to a file until it ends or a signal comes. The file then has the requests before the signal.
pub(super) fn copy_until_signal(
    source: Box<dyn Source>,
    target: &TargetArgs,
    to: Format,
    what: &str,
) -> Result<(), Failure> {
    let interrupt = Interrupt::wait()?;
    let ratio = copy(interrupt.ends(source), target, to, what)?;
    match interrupt.ended(interrupt.passed(), ratio)? {
        Some((status, done)) => Err(Failure::Interrupted(status, format!("{done}: the trace is incomplete"))),
        None => Ok(()),
    }
}

/// Writes a source to a file. Returns how much of the source was read, from 0 to 1, if that is known.
pub(super) fn copy(
    mut source: Box<dyn Source>,
    target: &TargetArgs,
    to: Format,
    what: &str,
) -> Result<Option<f64>, Failure> {
    target.may_be_written()?;
    let mut progress = Progress::new(what, target.quiet);
    let mut writer = write::Writer::create(&target.out, to, source.fields(), target.force)?;
    let mut chunk = Vec::with_capacity(CHUNK_REQUESTS);
    let mut requests = 0;
    // The second pass of oracleGeneral takes about as long as the first.
    let first_pass = if to == Format::OracleGeneral { 0.5 } else { 1.0 };
    loop {
        chunk.clear();
        let got = source.fill(&mut chunk, CHUNK_REQUESTS)?;
        if got == 0 {
            break;
        }
        writer.write(&chunk)?;
        requests += got;
        let ratio = source.done_ratio().unwrap_or(0.0) * first_pass;
        progress.set(ratio, &format!("{requests} requests"));
    }
    let written = writer.finish(&mut |ratio| {
        progress.set(first_pass + ratio * (1.0 - first_pass), "looking for next accesses");
    })?;
    progress.finish();
    let ratio = source.done_ratio();
    if target.quiet {
        return Ok(ratio);
    }
    for notice in source.notices() {
        print(&format!("notice: {notice}\n"))?;
    }
    let lost = write::lost(source.fields(), to);
    if !lost.is_empty() {
        print(&format!("notice: {} has no room for {}\n", to.name(), lost.join(", ")))?;
    }
    print(&format!(
        "{}: {} requests, {} bytes ({})\n",
        target.out.display(),
        written.requests,
        written.file_bytes,
        to.name()
    ))?;
    Ok(ratio)
}
