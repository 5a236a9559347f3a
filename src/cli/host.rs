//! What the running server asks of the program around it: the settings once more, the level of the log, limits.

use std::path::PathBuf;

use larder_server::settings::{Host, Settings};

use super::process::{self, LogLevel};
use super::{Action, parse_in};

/// The program around a server that was started with the words of this process.
pub(crate) struct Program {
    /// The folder in which the process was started.
    base: PathBuf,
    log: LogLevel,
}

impl Program {
    /// The program. `base` is the folder in which the process was started.
    pub(crate) fn new(base: PathBuf, log: LogLevel) -> Program {
        Program { base, log }
    }
}

impl Host for Program {
    fn read_settings(&self) -> Result<Settings, String> {
        match parse_in(std::env::args_os(), &self.base) {
            Ok(Action::Serve(mut settings)) => {
                if settings.daemonize {
                    process::make_paths_absolute(&mut settings, &self.base)
                        .map_err(|error| format!("the folder of the start is not known: {error}"))?;
                }
                Ok(*settings)
            }
            Ok(_) => Err("the command line does not start a server".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn set_verbosity(&self, level: u8) {
        self.log.set(level);
    }

    fn raise_limits(&self, settings: &Settings) -> Result<(), String> {
        process::raise_limits(settings)
    }
}
