//! Errors of the command line, and the search for a similar known name.

use std::fmt;

use larder_server::settings::table;

/// The reason why a command line is refused: one line, without the program's name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CliError(pub(super) String);

impl CliError {
    pub(super) fn new(text: impl Into<String>) -> CliError {
        CliError(text.into())
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The known name that is most similar to `name`.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> &'a str {
    let plain = |name: &str| name.to_ascii_lowercase().replace('_', "-");
    let name = plain(name);
    let likeness = |known: &str| strsim::jaro_winkler(&name, &plain(known));
    known.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).unwrap_or_default()
}

/// The flag whose name is most similar to `name`.
pub(super) fn nearest_flag(name: &str) -> &'static str {
    nearest(name, table::flags().filter(|row| row.is_obeyed_flag()).map(|row| row.name))
}
