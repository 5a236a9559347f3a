//! `larder workload`.

use clap::Args;

use super::{Failure, OutputArgs, SourceArgs};

/// Flags of `larder workload`.
#[derive(Args)]
pub(super) struct WorkloadArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs it.
pub(super) fn run(args: WorkloadArgs) -> Result<(), Failure> {
    let _ = (args.source.open()?, args.output.quiet);
    Err(Failure::Failed("not built".to_owned()))
}
