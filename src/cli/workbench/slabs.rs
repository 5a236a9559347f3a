//! `larder slabs`.

use clap::Args;

use super::{Failure, OutputArgs, SourceArgs};

/// Flags of `larder slabs`.
#[derive(Args)]
pub(super) struct SlabsArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs it.
pub(super) fn run(args: SlabsArgs) -> Result<(), Failure> {
    let _ = (args.source.open()?, args.output.quiet);
    Err(Failure::Failed("not built".to_owned()))
}
