//! `larder workload`.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use larder_sim::progress::Progress;
use larder_sim::trace::{Format, write};
use larder_sim::{Limited, Source, workload};

use super::failure::Failure;
use super::interrupt::Interrupt;
use super::output::{OutputArgs, print};
use super::trace::{TargetArgs, copy_until_signal};
use super::values::{count, written_format};

/// Flags of `larder workload`.
#[derive(Args)]
pub(super) struct WorkloadArgs {
    /// The law and its parameters, such as zipfian:keys=1m,requests=10m,theta=0.99,sizes=etc,penalties=lognormal;
    /// --list shows all of them
    #[arg(value_name = "WORKLOAD", required_unless_present = "list")]
    words: Option<String>,
    /// The file to write; a suffix .zst, .gz or .xz compresses it; - is standard output
    #[arg(value_name = "OUT", required_unless_present_any = ["list", "check"], conflicts_with = "check")]
    out: Option<PathBuf>,
    /// Format of the file: oracle-general, twitter, csv or keys [default: by its name, else csv]
    #[arg(long, value_name = "FORMAT", value_parser = written_format)]
    to: Option<Format>,
    /// Overwrite the file if it exists
    #[arg(long)]
    force: bool,
    /// List all laws and parameters with their defaults
    #[arg(long, conflicts_with = "check")]
    list: bool,
    /// Describe the generated requests instead of writing them: commands, rates, sizes, penalties, popularity
    #[arg(long)]
    check: bool,
    /// Stop after this many requests, such as 10m
    #[arg(long, value_name = "REQUESTS", value_parser = count)]
    limit: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
pub(super) fn run(args: WorkloadArgs) -> Result<(), Failure> {
    if args.list {
        return print(&workload::list());
    }
    let mut source = workload::parse(args.words.as_deref().unwrap_or_default())?;
    if let Some(most) = args.limit {
        source = Box::new(Limited::new(source, most));
    }
    let Some(out) = args.out else {
        let mut progress = Progress::new("workload", args.output.quiet);
        let interrupt = Interrupt::wait()?;
        let mut source = interrupt.ends(source);
        let mut report = workload::check(source.as_mut(), &mut progress)?;
        progress.finish();
        let ended = interrupt.mark(&mut report, interrupt.passed(), source.done_ratio())?;
        args.output.deliver(&report)?;
        return ended.map_or(Ok(()), Err);
    };
    let to = args.to.or_else(|| write::format_by_name(&out)).unwrap_or(Format::Csv);
    if out == Path::new("-") {
        return stream(source.as_mut(), to);
    }
    let target = TargetArgs { out, to: Some(to), force: args.force, quiet: args.output.quiet };
    copy_until_signal(source, &target, to, "workload")
}

/// Writes the requests to standard output. A reader such as `head` that stops early is no failure.
fn stream(source: &mut dyn Source, format: Format) -> Result<(), Failure> {
    match write::stream(source, format, &mut io::stdout().lock())? {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
