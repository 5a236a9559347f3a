//! `larder replay`.

use clap::Args;

use super::{Failure, OutputArgs, SourceArgs};

/// Flags of `larder replay`.
#[derive(Args)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs it.
pub(super) fn run(args: ReplayArgs) -> Result<(), Failure> {
    let _ = (args.source.open()?, args.output.quiet);
    Err(Failure::Failed("not built".to_owned()))
}
