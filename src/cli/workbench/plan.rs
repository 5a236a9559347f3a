//! `larder plan`.

use clap::Args;

use super::{Failure, OutputArgs, SourceArgs};

/// Flags of `larder plan`.
#[derive(Args)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs it.
pub(super) fn run(args: PlanArgs) -> Result<(), Failure> {
    let _ = (args.source.open()?, args.output.quiet);
    Err(Failure::Failed("not built".to_owned()))
}
