//! `larder simulate`.

use clap::Args;

use super::{Failure, OutputArgs, SourceArgs};

/// Flags of `larder simulate`.
#[derive(Args)]
pub(super) struct SimulateArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs it.
pub(super) fn run(args: SimulateArgs) -> Result<(), Failure> {
    let _ = (args.source.open()?, args.output.quiet);
    Err(Failure::Failed("not built".to_owned()))
}
