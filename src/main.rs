//! The program `larder`: the command line, and the process around the server.
#![forbid(unsafe_code)]

mod cli;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use larder_server::settings::{Settings, tcp_sockets, udp_sockets};

use self::cli::host::Program;
use self::cli::process::{self, Pidfile, Side};
use self::cli::{Action, Failure};

/// Exit status for a command line or a setting that cannot be obeyed (`EX_USAGE`).
const STATUS_USAGE: u8 = 64;
/// Exit status for a server that could not start or had to stop, and for a command that failed.
const STATUS_FAILED: u8 = 1;
/// Exit status for a replay whose server could not be reached.
const STATUS_UNREACHABLE: u8 = 2;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os()) {
        // A reader such as `head -1` closes the pipe early, which is no failure.
        Ok(Action::Print(text)) => {
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(Action::Report { shown, problems }) => {
            let _ = std::io::stdout().write_all(shown.as_bytes());
            for problem in &problems {
                eprintln!("larder: {problem}");
            }
            if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(STATUS_FAILED) }
        }
        Ok(Action::Serve(settings)) => match serve(*settings) {
            Ok(status) => ExitCode::from(status),
            Err((status, what)) => fail(status, &what),
        },
        Ok(Action::FormatFlash(settings)) => match format_flash(&settings) {
            Ok(what) => {
                let _ = writeln!(std::io::stdout(), "formatted {what}");
                ExitCode::SUCCESS
            }
            Err((status, what)) => fail(status, &what),
        },
        Ok(Action::Workbench(words)) => match cli::run_workbench(&words) {
            Ok(()) => ExitCode::SUCCESS,
            Err(Failure::Usage(what)) => fail(STATUS_USAGE, &what),
            Err(Failure::Failed(what)) => fail(STATUS_FAILED, &what),
            Err(Failure::Unreachable(what)) => fail(STATUS_UNREACHABLE, &what),
            Err(Failure::Interrupted(status, what)) => fail(status, &what),
        },
        Err(error) => fail(STATUS_USAGE, &error.to_string()),
    }
}

fn fail(status: u8, what: &str) -> ExitCode {
    eprintln!("larder: {what}");
    ExitCode::from(status)
}

/// Prepares the process and runs the server until it is told to stop. The process enters the background before any
/// thread starts. The pidfile is written, limits are raised and memory is locked while the process may still be root.
fn serve(mut settings: Settings) -> Result<u8, (u8, String)> {
    tcp_sockets(&settings).and_then(|_| udp_sockets(&settings)).map_err(|what| (STATUS_USAGE, what))?;
    let started_in = std::env::current_dir().unwrap_or_default();
    match process::daemonize(&mut settings) {
        Ok(Side::Server) => {}
        Ok(Side::Done(status)) => return Ok(status),
        Err(error) => return Err((STATUS_FAILED, format!("cannot go into the background (-d): {error}"))),
    }
    let log = process::start_log(&settings);
    process::tell_doubts(&settings);
    process::raise_limits(&settings).map_err(|what| (STATUS_FAILED, what))?;
    let _pidfile = Pidfile::write(&settings).map_err(|what| (STATUS_FAILED, what))?;
    process::become_user(&settings).map_err(|what| (STATUS_USAGE, what))?;
    larder_server::run(settings, Arc::new(Program::new(started_in, log)))
        .map_err(|error| (STATUS_FAILED, error.to_string()))?;
    Ok(0)
}

/// Erases the flash of a server, as the user that the server runs as.
fn format_flash(settings: &Settings) -> Result<String, (u8, String)> {
    process::start_log(settings);
    process::become_user(settings).map_err(|what| (STATUS_USAGE, what))?;
    larder_server::flash::format(settings).map_err(|error| (STATUS_FAILED, error.to_string()))
}
