//! `larder trace`.

use clap::Args;

use super::{Failure, OutputArgs, SourceArgs};

/// Flags of `larder trace`.
#[derive(Args)]
pub(super) struct TraceArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs it.
pub(super) fn run(args: TraceArgs) -> Result<(), Failure> {
    let _ = (args.source.open()?, args.output.quiet);
    Err(Failure::Failed("not built".to_owned()))
}
