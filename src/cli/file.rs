//! The settings file: TOML, one key for each flag, named like the long flag, without sections.

use std::path::Path;

use larder_server::settings::Settings;
use toml::de::{DeTable, DeValue};

use super::error::{CliError, nearest};
use super::flags::{FLAGS, Flag, Takes, Topic, by_long_name};

/// Reads the file at `path` into `settings`.
pub(super) fn read(path: &Path, settings: &mut Settings) -> Result<(), CliError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        CliError::new(format!("cannot read the settings file {} (--config): {error}", path.display()))
    })?;
    apply(&text, settings)
        .map_err(|(line, what)| CliError::new(format!("{} line {line}: {what}", path.display())))
}

/// Applies the text of a settings file. An error carries its line, counted from 1.
pub(super) fn apply(text: &str, settings: &mut Settings) -> Result<(), (usize, String)> {
    let line_of = |at: usize| 1 + text.bytes().take(at).filter(|octet| *octet == b'\n').count();
    let table = DeTable::parse(text).map_err(|error| {
        let line = line_of(error.span().map_or(0, |span| span.start));
        (line, format!("this is not TOML: {}", error.message().replace('\n', ", ")))
    })?;
    let mut keys: Vec<_> = table.get_ref().iter().collect();
    keys.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in keys {
        let line = line_of(key.span().start);
        let name: &str = key.get_ref();
        let Some(flag) = by_long_name(name) else {
            let known = FLAGS.iter().filter(|flag| flag.topic != Topic::Refused).map(|flag| flag.long);
            return Err((
                line,
                format!("there is no setting '{name}'; the nearest is '{}'", nearest(name, known)),
            ));
        };
        let value =
            value_text(flag, value.get_ref()).map_err(|expected| (line, format!("{name}: {expected}")))?;
        (flag.set)(settings, &value)
            .map_err(|expected| (line, format!("bad value '{value}' for {name}: {expected}")))?;
    }
    Ok(())
}

/// A value as it would be written after the flag.
fn value_text(flag: &Flag, value: &DeValue<'_>) -> Result<String, &'static str> {
    match (flag.takes, value) {
        (Takes::Nothing, DeValue::Boolean(on)) => Ok(on.to_string()),
        (Takes::Nothing, _) => Err("expected true or false"),
        (Takes::Count, DeValue::Integer(_)) | (Takes::Value(_) | Takes::List(_), _) => match value {
            DeValue::Array(parts) if matches!(flag.takes, Takes::List(_)) => {
                let parts: Option<Vec<String>> = parts.iter().map(|part| scalar(part.get_ref())).collect();
                parts.map(|parts| parts.join(",")).ok_or("expected a list of words or numbers")
            }
            _ => scalar(value).ok_or("expected a number or a text in quotes"),
        },
        (Takes::Count, _) => Err("expected a number"),
    }
}

/// A number or a text.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}
