//! The command line: what the words after the program's name ask for.
//!
//! The value of a setting comes from a flag, else from the settings file (`--config`), else from the default. Every
//! error is one line that says what to do.

mod compatible;
mod error;
mod file;
mod flags;
mod help;
mod tuning;
mod values;
mod workbench;

pub(crate) mod process;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};
use larder_server::settings::{Port, Settings};

use self::error::{CliError, nearest};
pub(crate) use self::file::read_fleet;
use self::flags::{FLAGS, Flag, Takes};
use self::workbench::COMMANDS;
pub(crate) use self::workbench::{Failure, run as run_workbench};

/// The action that a command line asks for.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// Run a server.
    Serve(Box<Settings>),
    /// Erase the flash of the server that has these settings.
    FormatFlash(Box<Settings>),
    /// Print this text and exit.
    Print(String),
    /// Run a command of the workbench: the command and the words after it.
    Workbench(Vec<OsString>),
}

/// Parses a whole command line, starting with the program's name. If the name is `memcached`, or if the first word is
/// a flag, the words are a memcached command line; so wrappers that start memcached can start this program.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Action, CliError> {
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    let words: Vec<OsString> = words.collect();
    match Path::new(&program).file_name().map(|name| name.to_string_lossy()).as_deref() {
        Some("memcached") => return serve(&words, true),
        Some("memcached-debug") => return serve_test_suite(&words),
        _ => {}
    }
    let Some(first) = words.first() else {
        return Err(CliError::new(
            "no command given: 'larder serve' starts a server, 'larder --help' lists all commands",
        ));
    };
    match first.to_string_lossy().as_ref() {
        "serve" => serve(&words[1..], false),
        FORMAT_FLASH => format_flash(&words[1..]),
        "help" | "--help" if words.len() == 1 => Ok(Action::Print(help::overview())),
        "help" if words[1] == "serve" => Ok(Action::Print(help::for_people())),
        "help" if words[1] == FORMAT_FLASH => Ok(Action::Print(help::of_format_flash())),
        flag if flag.starts_with('-') => serve(&words, false),
        "help" if COMMANDS.contains(&words[1].to_string_lossy().as_ref()) => {
            Ok(Action::Workbench(vec![words[1].clone(), "--help".into()]))
        }
        word if COMMANDS.contains(&word) => Ok(Action::Workbench(words)),
        word => {
            let near =
                nearest(word, ["serve", FORMAT_FLASH, "help"].into_iter().chain(COMMANDS.iter().copied()));
            Err(CliError::new(format!(
                "there is no command '{word}'; the nearest is '{near}', and 'larder --help' lists all"
            )))
        }
    }
}

/// The command that erases the flash of a server.
const FORMAT_FLASH: &str = "format-flash";

/// Parses what follows `format-flash`: the flags of a server, so that the flash is formatted as that server opens it.
fn format_flash(words: &[OsString]) -> Result<Action, CliError> {
    match serve(words, false)? {
        Action::Serve(settings) if !settings.flash.is_set() => {
            Err(CliError::new("there is no flash to be erased: name it with --flash PATH:SIZE"))
        }
        Action::Serve(settings) => Ok(Action::FormatFlash(settings)),
        Action::Print(_) if words.iter().any(|word| word == "--help" || word == "-h") => {
            Ok(Action::Print(help::of_format_flash()))
        }
        other => Ok(other),
    }
}

/// The environment variable in which memcached looks for the file of users for `-S`.
const SASL_USERS: &str = "MEMCACHED_SASL_PWDB";

/// memcached's own tests start a build with this name, whose clock they move.
fn serve_test_suite(words: &[OsString]) -> Result<Action, CliError> {
    let mut action = serve(words, true)?;
    if let Action::Serve(settings) = &mut action {
        settings.debugtime_enabled = true;
    }
    Ok(action)
}

/// The TCP port while none is given. No flag sets it.
const NOT_GIVEN: Port = Port::Fixed(0);

/// Parses the flags of the server. `as_memcached`: help and version have memcached's format.
fn serve(words: &[OsString], as_memcached: bool) -> Result<Action, CliError> {
    let found = command().try_get_matches_from(words).map_err(one_line)?;
    if found.get_flag("help-short") || (as_memcached && found.get_flag("help")) {
        return Ok(Action::Print(help::for_wrappers()));
    }
    if found.get_flag("help") {
        return Ok(Action::Print(help::for_people()));
    }
    if found.get_flag("version") {
        return Ok(Action::Print(if as_memcached { help::version_memcached() } else { help::version() }));
    }
    if found.get_flag("license") {
        return Ok(Action::Print(help::license()));
    }
    let mut settings = Settings { tcp_port: NOT_GIVEN, ..Settings::default() };
    if let Some(config) = found.get_one::<String>("config") {
        file::read(Path::new(config), &mut settings)?;
    }
    apply(&found, &mut settings)?;
    if settings.sasl && settings.auth_file.is_none() {
        settings.auth_file = std::env::var_os(SASL_USERS).map(PathBuf::from);
    }
    if settings.tcp_port == NOT_GIVEN {
        // As in memcached, a UDP port alone is the port of TCP as well.
        settings.tcp_port = match settings.udp_port {
            Port::Off => Settings::default().tcp_port,
            port => port,
        };
    }
    settings.check().map_err(|error| CliError::new(error.0))?;
    Ok(Action::Serve(Box::new(settings)))
}

/// Applies the given flags in the order of the command line, so that the later of two flags for the same setting
/// wins.
fn apply(found: &ArgMatches, settings: &mut Settings) -> Result<(), CliError> {
    let mut given: Vec<(usize, &Flag)> = FLAGS
        .iter()
        .filter(|flag| found.value_source(flag.long) == Some(clap::parser::ValueSource::CommandLine))
        .filter_map(|flag| Some((found.indices_of(flag.long)?.next_back()?, flag)))
        .collect();
    given.sort_by_key(|(at, _)| *at);
    for (_, flag) in given {
        let values: Vec<&str> =
            found.get_many::<String>(flag.long).into_iter().flatten().map(String::as_str).collect();
        let value = match flag.takes {
            Takes::List(_) => values.join(","),
            Takes::Count if values.iter().all(|value| value.is_empty()) => values.len().to_string(),
            Takes::Nothing | Takes::Count | Takes::Value(_) => {
                values.last().copied().unwrap_or_default().to_owned()
            }
        };
        (flag.set)(settings, &value).map_err(|expected| match flag.topic {
            flags::Topic::Refused => CliError::new(format!("{}: {expected}", spelling(flag))),
            _ => CliError::new(format!("bad value '{value}' for {}: {expected}", spelling(flag))),
        })?;
    }
    Ok(())
}

/// The name of a flag in an error.
fn spelling(flag: &Flag) -> String {
    match flag.short {
        Some(short) => format!("-{short} (--{})", flag.long),
        None => format!("--{}", flag.long),
    }
}

/// The flags for clap. Clap splits the words; the table decides what values mean.
fn command() -> Command {
    let mut command = Command::new("larder serve")
        .no_binary_name(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .infer_long_args(true)
        .arg(Arg::new("help-short").short('h').action(ArgAction::SetTrue))
        .arg(Arg::new("help").long("help").action(ArgAction::SetTrue))
        .arg(Arg::new("version").short('V').long("version").action(ArgAction::SetTrue))
        .arg(Arg::new("license").short('i').long("license").action(ArgAction::SetTrue))
        .arg(Arg::new("config").long("config").value_name("FILE").action(ArgAction::Set));
    for flag in FLAGS {
        let mut arg = Arg::new(flag.long).long(flag.long).action(ArgAction::Append);
        if let Some(short) = flag.short {
            arg = arg.short(short);
        }
        arg = match flag.takes {
            Takes::Nothing => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
            Takes::Count => arg.num_args(0..=1).require_equals(true).default_missing_value(""),
            Takes::Value(name) | Takes::List(name) => {
                arg.num_args(1).value_name(name).allow_hyphen_values(true)
            }
        };
        command = command.arg(arg);
    }
    command
}

/// Turns an error of clap into one line.
fn one_line(error: clap::Error) -> CliError {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        Some(ContextValue::Strings(words)) => words.first().cloned(),
        _ => None,
    };
    let argument = word(ContextKind::InvalidArg).unwrap_or_default();
    // Clap appends the name of the value to the name of an argument.
    let name = argument.split([' ', '[', '=']).next().unwrap_or_default().to_owned();
    CliError(match error.kind() {
        ErrorKind::UnknownArgument if !argument.starts_with('-') => {
            format!(
                "'{argument}' is not understood: the server takes flags only, 'larder serve --help' lists them"
            )
        }
        ErrorKind::UnknownArgument => match name.strip_prefix("--") {
            Some(long) if tuning::instead_of_flag(long).is_some() => {
                let instead = tuning::instead_of_flag(long).unwrap_or_default();
                format!("--{long} is no flag any more: {instead}")
            }
            Some(long) => {
                let known =
                    FLAGS.iter().filter(|flag| flag.topic != flags::Topic::Refused).map(|flag| flag.long);
                format!("there is no flag '--{long}'; the nearest is '--{}'", nearest(long, known))
            }
            None => format!("there is no flag '{argument}': 'larder serve --help' lists them"),
        },
        ErrorKind::InvalidValue | ErrorKind::WrongNumberOfValues | ErrorKind::TooFewValues => {
            let example =
                flags::by_long_name(name.trim_start_matches('-')).map_or("FILE", |flag| flag.example);
            format!("{name} needs a value, such as {name} {example}")
        }
        ErrorKind::TooManyValues => format!("{name} takes no value: write it alone, or with =true or =false"),
        ErrorKind::ArgumentConflict => format!("{name} may be given once only"),
        ErrorKind::InvalidUtf8 => "a word of the command line is not UTF-8: write it in UTF-8".to_owned(),
        _ => error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    })
}
