//! The command line: what the words after the program's name ask for.
//!
//! The value of a setting comes from a flag, else from the settings file (`--config`), else from the default. Every
//! error is one line that says what to do.

mod check;
mod error;
mod examples;
mod extended;
mod file;
mod health;
mod help;
mod manual;
mod resolve;
mod workbench;

pub(crate) mod host;
pub(crate) mod process;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};
use larder_server::settings::{Settings, Takes, Topic, table};

use self::error::{CliError, nearest, nearest_flag};
use self::resolve::Resolved;
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
    /// Print a text, and what is wrong.
    Report {
        /// The text.
        shown: String,
        /// Everything that is wrong, one line each.
        problems: Vec<String>,
    },
    /// Run a command of the workbench: the command and the words after it.
    Workbench(Vec<OsString>),
}

/// Parses a whole command line, starting with the program's name. If the name is `memcached`, or if the first word is
/// a flag, the words are a memcached command line; so wrappers that start memcached can start this program.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Action, CliError> {
    parse_in(words, Path::new(""))
}

/// As [`parse`], with the path of the settings file relative to `base`.
fn parse_in(words: impl IntoIterator<Item = OsString>, base: &Path) -> Result<Action, CliError> {
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    let words: Vec<OsString> = words.collect();
    match Path::new(&program).file_name().map(|name| name.to_string_lossy()).as_deref() {
        Some("memcached") => return serve(&words, true, base),
        Some("memcached-debug") => return serve_test_suite(&words, base),
        _ => {}
    }
    let Some(first) = words.first() else {
        return Err(CliError::new(
            "no command given: 'larder serve' starts a server, 'larder --help' lists all commands",
        ));
    };
    match first.to_string_lossy().as_ref() {
        "serve" => serve(&words[1..], false, base),
        CHECK_CONFIG => Ok(check_config(&words[1..], base)),
        FORMAT_FLASH => format_flash(&words[1..], base),
        "help" | "--help" if words.len() == 1 => Ok(Action::Print(help::overview())),
        "help" if words[1] == "serve" => Ok(Action::Print(help::for_people())),
        "help" if words[1] == FORMAT_FLASH => Ok(Action::Print(help::of_format_flash())),
        "help" if words[1] == CHECK_CONFIG => Ok(Action::Print(help::of_check_config())),
        "help" if words[1] == manual::MAN => Ok(Action::Print(help::of_man())),
        "help" if words[1] == manual::COMPLETIONS => Ok(Action::Print(help::of_completions())),
        flag if flag.starts_with('-') => serve(&words, false, base),
        "help" if COMMANDS.contains(&words[1].to_string_lossy().as_ref()) => {
            Ok(Action::Workbench(vec![words[1].clone(), "--help".into()]))
        }
        HEALTH => Ok(health(&words[1..])),
        manual::MAN => manual::man(&words[1..]),
        manual::COMPLETIONS => manual::completions(&words[1..]),
        word if COMMANDS.contains(&word) => Ok(Action::Workbench(words)),
        "slabs" => Err(CliError::new(
            "schemes of slab allocation are compared by an experiment of the source tree: 'cargo run --release -p \
             larder-laboratory --example slabs -- --help'",
        )),
        word => {
            let near = nearest(
                word,
                ["serve", FORMAT_FLASH, CHECK_CONFIG, HEALTH, manual::MAN, manual::COMPLETIONS, "help"]
                    .into_iter()
                    .chain(COMMANDS.iter().copied()),
            );
            Err(CliError::new(format!(
                "there is no command '{word}'; the nearest is '{near}', and 'larder --help' lists all"
            )))
        }
    }
}

/// The command that asks whether a server serves.
const HEALTH: &str = "health";

/// Parses what follows `health`, and asks.
fn health(words: &[OsString]) -> Action {
    let report = |asked: Result<String, String>| match asked {
        Ok(shown) => Action::Report { shown, problems: Vec::new() },
        Err(problem) => Action::Report { shown: String::new(), problems: vec![problem] },
    };
    match words {
        [] => report(health::ask(None)),
        [word] if word == "--help" || word == "-h" => Action::Print(help::of_health()),
        [address] if !address.to_string_lossy().starts_with('-') => {
            report(health::ask(Some(&address.to_string_lossy())))
        }
        _ => report(Err("expected the address of an admin page: larder health HOST:PORT".to_owned())),
    }
}

/// The command that checks the settings of a server.
const CHECK_CONFIG: &str = "check-config";
/// Its flag that leaves out the settings.
const QUIET: &str = "--quiet";
/// Its flag that prints a settings file instead.
const SAMPLE: &str = "--sample";

/// Parses what follows `check-config`: the flags of a server. The answer has every problem that is found.
fn check_config(words: &[OsString], base: &Path) -> Action {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        return Action::Print(help::of_check_config());
    }
    if words.iter().any(|word| word == SAMPLE) {
        return Action::Print(help::sample_file());
    }
    let is_quiet = |word: &OsString| word == QUIET;
    let flags = words.iter().filter(|word| !is_quiet(word));
    let report = match command().try_get_matches_from(flags) {
        Ok(found) => check::report(&Resolved::of(&found, base)),
        Err(error) => Action::Report { shown: String::new(), problems: vec![one_line(error).to_string()] },
    };
    match report {
        Action::Report { problems, .. } if words.iter().any(is_quiet) => {
            Action::Report { shown: String::new(), problems }
        }
        report => report,
    }
}

/// The command that erases the flash of a server.
const FORMAT_FLASH: &str = "format-flash";

/// Parses what follows `format-flash`: the flags of a server, so that the flash is formatted as that server opens it.
fn format_flash(words: &[OsString], base: &Path) -> Result<Action, CliError> {
    match serve(words, false, base)? {
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

/// memcached's own tests start a build with this name, whose clock they move.
fn serve_test_suite(words: &[OsString], base: &Path) -> Result<Action, CliError> {
    let mut action = serve(words, true, base)?;
    if let Action::Serve(settings) = &mut action {
        settings.debugtime_enabled = true;
    }
    Ok(action)
}

/// Parses the flags of the server. `as_memcached`: help and version have memcached's format.
fn serve(words: &[OsString], as_memcached: bool, base: &Path) -> Result<Action, CliError> {
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
    let mut settings = Resolved::of(&found, base).settings()?;
    // A program of this name serves whoever reaches it.
    settings.open |= as_memcached;
    Ok(Action::Serve(Box::new(settings)))
}

/// The flags for clap. Clap splits the words; the table decides what values mean.
fn command() -> Command {
    let mut command = Command::new("larder serve")
        .no_binary_name(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .infer_long_args(true)
        .arg(Arg::new("help-short").short('h').action(ArgAction::SetTrue).help("show the flags for wrappers"))
        .arg(Arg::new("help").long("help").action(ArgAction::SetTrue).help("show all flags"))
        .arg(
            Arg::new("version")
                .short('V')
                .long("version")
                .action(ArgAction::SetTrue)
                .help("show the version"),
        )
        .arg(
            Arg::new("license")
                .short('i')
                .long("license")
                .action(ArgAction::SetTrue)
                .help("show the license"),
        )
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .action(ArgAction::Set)
                .help("settings file in TOML: each long flag is a key"),
        );
    for flag in table::flags() {
        let arg = Arg::new(flag.name).long(flag.name).action(ArgAction::Append);
        let mut arg = manual::shown(arg, flag.help, &flag.default()).hide(flag.topic == Topic::Refused);
        if let Some(letter) = flag.letter {
            arg = arg.short(letter);
        }
        arg = match flag.takes {
            Takes::Nothing => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
            Takes::Count => arg.num_args(0..=1).require_equals(true).default_missing_value(""),
            Takes::Value(name) | Takes::List(name) | Takes::Options(name) => {
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
            Some(long) => match file::instead_of_flag(long) {
                Some(instead) => format!("--{long} is no flag any more: {instead}"),
                None => format!("there is no flag '--{long}'; the nearest is '--{}'", nearest_flag(long)),
            },
            None => format!("there is no flag '{argument}': 'larder serve --help' lists them"),
        },
        ErrorKind::InvalidValue | ErrorKind::WrongNumberOfValues | ErrorKind::TooFewValues => {
            let example = table::by_name(name.trim_start_matches('-')).map_or("FILE", |flag| flag.example);
            format!("{name} needs a value, such as {name} {example}")
        }
        ErrorKind::TooManyValues => format!("{name} takes no value: write it alone, or with =true or =false"),
        ErrorKind::ArgumentConflict => format!("{name} may be given once only"),
        ErrorKind::InvalidUtf8 => "a word of the command line is not UTF-8: write it in UTF-8".to_owned(),
        _ => error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    })
}
