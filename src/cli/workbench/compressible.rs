//! `larder trace compressible`.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use clap::Args;
use larder_sim::compressible::{Measured, Origin, Values, read, report};
use larder_sim::replay::Server;

use super::failure::Failure;
use super::interrupt::Interrupt;
use super::output::OutputArgs;
use super::source::credentials;
use super::values::count;

/// Flags of `larder trace compressible`.
#[derive(Args)]
pub(super) struct CompressibleArgs {
    /// File with a value in each line, or a key, a tab and a value; - is standard input
    #[arg(value_name = "FILE", required_unless_present = "server", conflicts_with = "server")]
    file: Option<PathBuf>,
    /// Read the values of a running server: memcached, Redis, Valkey or Larder
    #[arg(long, value_name = "ADDR")]
    server: Option<String>,
    /// Read this many values at most
    #[arg(long, value_name = "COUNT", value_parser = count, default_value = "100k")]
    values: u64,
    /// What stands behind the name of a kind in a key: of user:17, the kind is user
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter, default_value = ":")]
    delimiter: u8,
    /// User name for RESP's AUTH or memcached's ASCII authentication
    #[arg(long, value_name = "USER", requires = "password_file")]
    user: Option<String>,
    /// File whose first line is the password
    #[arg(long, value_name = "FILE", requires = "server")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
pub(super) fn run(args: &CompressibleArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::wait()?;
    let (origin, name) = args.origin()?;
    let mut values = Values::new(args.delimiter);
    let goes_on = || !interrupt.stop.load(Ordering::Relaxed);
    read(&origin, args.values, &mut values, &goes_on).map_err(|error| match origin {
        Origin::File(_) => Failure::Failed(error),
        Origin::Server { .. } => Failure::Unreachable(error),
    })?;
    let done = values.count;
    if done == 0 && goes_on() {
        return Err(Failure::Failed(format!("{name}: there are no values")));
    }
    let measured = Measured::of(values).map_err(Failure::Failed)?;
    let mut report = report(&measured, &name);
    let ended = interrupt.mark(&mut report, (done, "values"), None)?;
    args.output.deliver(&report)?;
    ended.map_or(Ok(()), Err)
}

impl CompressibleArgs {
    /// Where the values come from, and its name in a title.
    fn origin(&self) -> Result<(Origin, String), Failure> {
        match (&self.file, &self.server) {
            (Some(file), _) => Ok((Origin::File(file.clone()), file.display().to_string())),
            (None, server) => {
                let server =
                    Server::parse(server.as_deref().unwrap_or_default()).map_err(Failure::Unreachable)?;
                let credentials = credentials(self.user.as_deref(), self.password_file.as_deref())?;
                let name = server.to_string();
                Ok((Origin::Server { server, protocol: None, credentials }, name))
            }
        }
    }
}

/// Parses one character.
fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err("expected one character of ASCII".to_owned()),
    }
}
