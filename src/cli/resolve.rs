//! The settings of a server, and where each value comes from: a flag, else the settings file (`--config`), else an
//! environment variable, else the default. `serve`, `check-config` and the server at SIGHUP read settings here.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use larder_server::settings::{Port, Row, Settings, Takes, Topic, problems, table};

use super::error::CliError;
use super::{extended, file};

/// The environment variable in which memcached looks for the file of users for `-S`.
const SASL_USERS: &str = "MEMCACHED_SASL_PWDB";

/// The TCP port while none is given. No flag sets it.
const NOT_GIVEN: Port = Port::Fixed(0);

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Nothing was said.
    Default,
    /// The settings file has it in this line.
    File(PathBuf, usize),
    /// This flag.
    Flag(String),
    /// This environment variable.
    Environment(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path, line) => write!(f, "{} line {line}", path.display()),
            Origin::Flag(flag) => write!(f, "flag {flag}"),
            Origin::Environment(name) => write!(f, "environment variable {name}"),
        }
    }
}

/// What the command line, the settings file and the environment say together.
pub(super) struct Resolved {
    /// The settings, with the default in the place of each value that is wrong.
    pub(super) settings: Settings,
    /// Where the value of each of [`table::settings`] comes from.
    pub(super) origins: Vec<Origin>,
    /// Everything that is wrong, in the order in which it was read.
    pub(super) problems: Vec<CliError>,
}

impl Resolved {
    /// Reads the settings. A settings file whose path is relative is looked for below `base`.
    pub(super) fn of(found: &ArgMatches, base: &Path) -> Resolved {
        let settings = Settings { tcp_port: NOT_GIVEN, ..Settings::default() };
        let mut origins = Origins::of(&settings);
        let mut resolved = Resolved { settings, origins: Vec::new(), problems: Vec::new() };
        if let Some(config) = found.get_one::<String>("config") {
            let path = base.join(config);
            resolved.problems = file::read(&path, &mut resolved.settings, &mut |settings, name, line| {
                origins.note_of(name, settings, &Origin::File(path.clone(), line));
            });
        }
        resolved.apply(found, &mut origins);
        let settings = &mut resolved.settings;
        if settings.sasl && settings.auth_file.is_none() {
            settings.auth_file = std::env::var_os(SASL_USERS).map(PathBuf::from);
            origins.note(settings, &Origin::Environment(SASL_USERS));
        }
        if settings.tcp_port == NOT_GIVEN {
            // As in memcached, a UDP port alone is the port of TCP as well.
            let from = match settings.udp_port {
                Port::Off => Origin::Default,
                _ => origins.of_name("udp-port"),
            };
            settings.tcp_port = match settings.udp_port {
                Port::Off => Settings::default().tcp_port,
                port => port,
            };
            origins.note(settings, &from);
        }
        resolved.problems.extend(problems(settings).into_iter().map(CliError::new));
        resolved.origins = origins.origins;
        resolved
    }

    /// The settings, if nothing is wrong with them.
    ///
    /// # Errors
    /// The first problem.
    pub(super) fn settings(self) -> Result<Settings, CliError> {
        match self.problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(self.settings),
        }
    }

    /// Applies the given flags in the order of the command line, so that the later of two flags for the same setting
    /// wins.
    fn apply(&mut self, found: &ArgMatches, origins: &mut Origins) {
        let mut given: Vec<(usize, &Row)> = table::flags()
            .filter(|flag| found.value_source(flag.name) == Some(clap::parser::ValueSource::CommandLine))
            .filter_map(|flag| Some((found.indices_of(flag.name)?.next_back()?, flag)))
            .collect();
        given.sort_by_key(|(at, _)| *at);
        for (_, flag) in given {
            let values: Vec<&str> =
                found.get_many::<String>(flag.name).into_iter().flatten().map(String::as_str).collect();
            let value = match flag.takes {
                Takes::List(_) | Takes::Options(_) => values.join(","),
                Takes::Count if values.iter().all(|value| value.is_empty()) => values.len().to_string(),
                Takes::Nothing | Takes::Count | Takes::Value(_) => {
                    values.last().copied().unwrap_or_default().to_owned()
                }
            };
            let name = spelling(flag);
            match extended::set(flag, &mut self.settings, &value) {
                Ok(()) => origins.note_of(flag.name, &self.settings, &Origin::Flag(name)),
                Err(expected) => self.problems.push(match flag.topic {
                    Topic::Refused => CliError::new(format!("{name}: {expected}")),
                    _ => CliError::new(format!("bad value '{value}' for {name}: {expected}")),
                }),
            }
        }
    }
}

/// The name of a flag in an error.
fn spelling(flag: &Row) -> String {
    match flag.letter {
        Some(letter) => format!("-{letter} (--{})", flag.name),
        None => format!("--{}", flag.name),
    }
}

/// Finds out which settings a flag or a key has changed: `-o` sets several, and `-L` is another name of `--pages auto`.
struct Origins {
    origins: Vec<Origin>,
    texts: Vec<String>,
}

impl Origins {
    fn of(settings: &Settings) -> Origins {
        let texts: Vec<String> = table::settings().map(|row| row.text(settings)).collect();
        Origins { origins: vec![Origin::Default; texts.len()], texts }
    }

    fn of_name(&self, name: &str) -> Origin {
        let at = table::settings().position(|row| row.name == name);
        at.map_or(Origin::Default, |at| self.origins[at].clone())
    }

    /// Whatever differs from the last call comes from `origin`.
    fn note(&mut self, settings: &Settings, origin: &Origin) {
        for (at, row) in table::settings().enumerate() {
            let text = row.text(settings);
            if text != self.texts[at] {
                self.texts[at] = text;
                self.origins[at] = origin.clone();
            }
        }
    }

    /// As [`Origins::note`], and the setting of this name comes from `origin` even where its value is the same.
    fn note_of(&mut self, name: &str, settings: &Settings, origin: &Origin) {
        self.note(settings, origin);
        if let Some(at) = table::settings().position(|row| row.name == name) {
            self.origins[at] = origin.clone();
        }
    }
}
