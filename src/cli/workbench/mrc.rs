//! `larder mrc`.

use clap::Args;

use super::{Failure, OutputArgs, SourceArgs};

/// Flags of `larder mrc`.
#[derive(Args)]
pub(super) struct MrcArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs it.
pub(super) fn run(args: MrcArgs) -> Result<(), Failure> {
    let _ = (args.source.open()?, args.output.quiet);
    Err(Failure::Failed("not built".to_owned()))
}
