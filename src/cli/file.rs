//! The settings file: TOML, one key for each flag, named like the long flag.
//!
//! The one section is `[flash]`: `path` in it is the flag `flash`, and another key `x` is the flag `flash-x`. In it,
//! `[flash.tuning]` holds keys that are no flags.

use std::path::Path;

use larder_server::settings::Settings;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{CliError, nearest};
use super::flags::{FLAGS, Flag, Takes, Topic, by_long_name};
use super::tuning;

/// A mistake, and the place in the file where it begins.
type Mistake = (usize, String);

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
        let hint = if text.contains("[flash") { "; below [flash] the flag flash is called path" } else { "" };
        (line, format!("this is not TOML: {}{hint}", error.message().replace('\n', ", ")))
    })?;
    each(table.get_ref(), &mut |name, value| match (name, value) {
        ("flash", DeValue::Table(flash)) => apply_flash(flash, settings),
        _ => apply_flag(name, name, value, settings).map_err(Problem::Here),
    })
    .map_err(|(at, what)| (line_of(at), what))
}

/// What is wrong with a key.
enum Problem {
    /// The key itself or its value.
    Here(String),
    /// A key within the value.
    Within(Mistake),
}

/// Applies each key of a table in the order of the file.
fn each(
    table: &DeTable<'_>,
    apply: &mut dyn FnMut(&str, &DeValue<'_>) -> Result<(), Problem>,
) -> Result<(), Mistake> {
    let mut keys: Vec<(_, &Spanned<DeValue<'_>>)> = table.iter().collect();
    keys.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in keys {
        apply(key.get_ref(), value.get_ref()).map_err(|problem| match problem {
            Problem::Here(what) => (key.span().start, what),
            Problem::Within(mistake) => mistake,
        })?;
    }
    Ok(())
}

/// The section `[flash]`.
fn apply_flash(table: &DeTable<'_>, settings: &mut Settings) -> Result<(), Problem> {
    let known = || {
        let flags = FLAGS.iter().filter_map(|flag| flag.long.strip_prefix("flash-"));
        flags.chain(["path", "tuning"])
    };
    each(table, &mut |name, value| match (name, value) {
        ("path", _) => apply_flag("path", "flash", value, settings).map_err(Problem::Here),
        ("tuning", DeValue::Table(keys)) => {
            each(keys, &mut |name, value| apply_tuning(name, value, settings).map_err(Problem::Here))
                .map_err(Problem::Within)
        }
        _ if known().any(|known| known == name && known != "tuning") => {
            apply_flag(name, &format!("flash-{name}"), value, settings).map_err(Problem::Here)
        }
        _ if tuning::by_name(name).is_some() => {
            Err(Problem::Here(format!("'{name}' is a key of {}, not of [flash]", tuning::TABLE)))
        }
        _ => Err(Problem::Here(format!(
            "there is no setting '{name}' in [flash]; the nearest is '{}'",
            nearest(name, known())
        ))),
    })
    .map_err(Problem::Within)
}

/// A key of `[flash.tuning]`.
fn apply_tuning(name: &str, value: &DeValue<'_>, settings: &mut Settings) -> Result<(), String> {
    let Some(key) = tuning::by_name(name) else {
        let near = nearest(name, tuning::KEYS.iter().map(|key| key.name));
        return Err(format!("there is no key '{name}' in {}; the nearest is '{near}'", tuning::TABLE));
    };
    let value = match value {
        DeValue::Boolean(true) => "on".to_owned(),
        DeValue::Boolean(false) => "off".to_owned(),
        _ => scalar(value).ok_or_else(|| format!("{name}: expected a number or a text in quotes"))?,
    };
    (key.set)(settings, &value).map_err(|expected| format!("bad value '{value}' for {name}: {expected}"))
}

/// The value of a flag, under the name that the file gives it.
fn apply_flag(name: &str, long: &str, value: &DeValue<'_>, settings: &mut Settings) -> Result<(), String> {
    let Some(flag) = by_long_name(long) else {
        if let Some(instead) = tuning::instead_of_flag(long) {
            return Err(format!("'{name}' is no setting any more: {instead}"));
        }
        let known = FLAGS.iter().filter(|flag| flag.topic != Topic::Refused).map(|flag| flag.long);
        return Err(format!("there is no setting '{name}'; the nearest is '{}'", nearest(name, known)));
    };
    let value = value_text(flag, value).map_err(|expected| format!("{name}: {expected}"))?;
    (flag.set)(settings, &value).map_err(|expected| format!("bad value '{value}' for {name}: {expected}"))
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
