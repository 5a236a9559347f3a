//! The settings file: TOML, one key for each flag, named like the long flag.
//!
//! In the section `[flash]`, `path` is the flag `flash`, and another key `x` is the flag `flash-x`. In it,
//! `[flash.tuning]` holds keys that are no flags. The section `[fleet]` names the servers of a fleet, with a table
//! `[[fleet.node]]` for each.

use std::path::Path;
use std::time::UNIX_EPOCH;

use larder_server::settings::{
    FleetNode, FleetSettings, Row, Settings, Takes, Topic, read_short_text, slot_ranges, table,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{CliError, nearest, nearest_flag};
use super::extended;

/// The table of keys that are no flags.
pub(super) const TUNING: &str = "[flash.tuning]";

/// Called after each key, with the settings, the name of the setting in the [`table`] of all settings, and the line or
/// place of the key.
pub(super) type Took<'a> = &'a mut dyn FnMut(&Settings, &str, usize);

/// A mistake, and the place in the file where it begins.
type Mistake = (usize, String);

/// Reads the file at `path` into `settings`. Returns what is wrong with it. Lines are counted from 1.
pub(super) fn read(path: &Path, settings: &mut Settings, took: Took<'_>) -> Vec<CliError> {
    let text = match read_short_text(path) {
        Ok(text) => text,
        Err(error) => {
            let name = path.display();
            return vec![CliError::new(format!("cannot read the settings file {name} (--config): {error}"))];
        }
    };
    let mistakes = apply(&text, settings, took);
    if let Some(fleet) = &mut settings.fleet
        && fleet.version == 0
    {
        fleet.version = written_unix_s(path);
    }
    settings.config_file = std::path::absolute(path).ok();
    let worded = |(line, what)| CliError::new(format!("{} line {line}: {what}", path.display()));
    mistakes.into_iter().map(worded).collect()
}

/// When the file was written last, as a unix time.
fn written_unix_s(path: &Path) -> u64 {
    let written = std::fs::metadata(path).and_then(|about| about.modified()).ok();
    written.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map_or(1, |since| since.as_secs())
}

/// Applies the text of a settings file, all of it that can be understood. Returns the mistakes with their lines. Lines
/// are counted from 1.
pub(super) fn apply(text: &str, settings: &mut Settings, took: Took<'_>) -> Vec<(usize, String)> {
    let line_of = |at: usize| 1 + text.bytes().take(at).filter(|octet| *octet == b'\n').count();
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let line = line_of(error.span().map_or(0, |span| span.start));
            let hint =
                if text.contains("[flash") { "; below [flash] the flag flash is called path" } else { "" };
            return vec![(line, format!("this is not TOML: {}{hint}", error.message().replace('\n', ", ")))];
        }
    };
    let took = &mut |settings: &Settings, name: &str, at: usize| took(settings, name, line_of(at));
    let mistakes = each(table.get_ref(), &mut |name, at, value| {
        match (name, value) {
            ("flash", DeValue::Table(flash)) => return within(apply_flash(flash, settings, took)),
            ("fleet", DeValue::Table(fleet)) => apply_fleet(fleet, settings)?,
            _ => apply_key(name, name, value, settings).map_err(Problem::Here)?,
        }
        took(settings, name, at);
        Ok(())
    });
    mistakes.into_iter().map(|(at, what)| (line_of(at), what)).collect()
}

/// What is wrong with a key.
enum Problem {
    /// The key itself or its value.
    Here(String),
    /// Keys within the value.
    Within(Vec<Mistake>),
}

fn within(mistakes: Vec<Mistake>) -> Result<(), Problem> {
    if mistakes.is_empty() { Ok(()) } else { Err(Problem::Within(mistakes)) }
}

/// Applies each key of a table in the order of the file, with the place where it begins.
fn each(
    table: &DeTable<'_>,
    apply: &mut dyn FnMut(&str, usize, &DeValue<'_>) -> Result<(), Problem>,
) -> Vec<Mistake> {
    let mut keys: Vec<(_, &Spanned<DeValue<'_>>)> = table.iter().collect();
    keys.sort_by_key(|(key, _)| key.span().start);
    let mut mistakes = Vec::new();
    for (key, value) in keys {
        let at = key.span().start;
        match apply(key.get_ref(), at, value.get_ref()) {
            Ok(()) => {}
            Err(Problem::Here(what)) => mistakes.push((at, what)),
            Err(Problem::Within(within)) => mistakes.extend(within),
        }
    }
    mistakes
}

/// The section `[flash]`.
fn apply_flash(table: &DeTable<'_>, settings: &mut Settings, took: Took<'_>) -> Vec<Mistake> {
    let known = || {
        let flags = table::flags().filter_map(|flag| flag.name.strip_prefix("flash-"));
        flags.chain(["path", "tuning"])
    };
    each(table, &mut |name, at, value| {
        let long = if name == "path" { "flash".to_owned() } else { format!("flash-{name}") };
        let done = match (name, value) {
            ("path", _) => apply_key(name, &long, value, settings),
            ("tuning", DeValue::Table(keys)) => {
                return within(each(keys, &mut |name, at, value| {
                    let long = tuning_name(name);
                    apply_key(name, &long, value, settings).map_err(Problem::Here)?;
                    took(settings, &long, at);
                    Ok(())
                }));
            }
            _ if known().any(|known| known == name && known != "tuning") => {
                apply_key(name, &long, value, settings)
            }
            _ if table::by_name(&tuning_name(name)).is_some() => {
                Err(format!("'{name}' is a key of {TUNING}, not of [flash]"))
            }
            _ => {
                let near = nearest(name, known());
                Err(format!("there is no setting '{name}' in [flash]; the nearest is '{near}'"))
            }
        };
        done.map_err(Problem::Here)?;
        took(settings, &long, at);
        Ok(())
    })
}

/// The keys of `[fleet]`, and those of each `[[fleet.node]]`.
const FLEET_KEYS: [&str; 3] = ["self", "version", "node"];
const NODE_KEYS: [&str; 5] = ["name", "host", "port", "resp-port", "slots"];

/// The section `[fleet]`.
fn apply_fleet(table: &DeTable<'_>, settings: &mut Settings) -> Result<(), Problem> {
    let mut fleet = FleetSettings::default();
    within(each(table, &mut |name, _, value| match (name, value) {
        ("self", DeValue::String(own)) => {
            fleet.own = own.to_string();
            Ok(())
        }
        ("version", value) => {
            fleet.version = number(name, value, 1, i64::MAX as u64).map_err(Problem::Here)?;
            Ok(())
        }
        ("node", DeValue::Array(nodes)) => {
            for node in nodes.iter() {
                let DeValue::Table(keys) = node.get_ref() else {
                    let what = "expected [[fleet.node]]".to_owned();
                    return Err(Problem::Within(vec![(node.span().start, what)]));
                };
                fleet.nodes.push(fleet_node(keys, node.span().start)?);
            }
            Ok(())
        }
        (name, _) if FLEET_KEYS.contains(&name) => {
            Err(Problem::Here(format!("{name}: expected self = \"NAME\", version = NUMBER, [[fleet.node]]")))
        }
        (name, _) => Err(Problem::Here(format!(
            "there is no setting '{name}' in [fleet]; the nearest is '{}'",
            nearest(name, FLEET_KEYS.into_iter())
        ))),
    }))?;
    settings.fleet = Some(fleet.settled().map_err(Problem::Here)?);
    Ok(())
}

/// One `[[fleet.node]]`, which begins at `at`.
fn fleet_node(table: &DeTable<'_>, at: usize) -> Result<FleetNode, Problem> {
    let mut node =
        FleetNode { name: String::new(), host: String::new(), port: 11211, resp_port: 0, slots: Vec::new() };
    within(each(table, &mut |name, _, value| {
        let text = || {
            let text = scalar(value).filter(|text| is_word(text));
            text.ok_or_else(|| {
                Problem::Here(format!("{name}: expected a text in quotes, without white space"))
            })
        };
        match name {
            "name" => node.name = text()?,
            "host" => node.host = text()?,
            "port" => node.port = number(name, value, 1, 65535).map_err(Problem::Here)? as u16,
            "resp-port" => node.resp_port = number(name, value, 1, 65535).map_err(Problem::Here)? as u16,
            "slots" => {
                let ranges = scalar(value).unwrap_or_default();
                node.slots = slot_ranges(&ranges).map_err(|what| Problem::Here(format!("slots: {what}")))?;
            }
            _ => {
                let near = nearest(name, NODE_KEYS.into_iter());
                let what = format!("there is no setting '{name}' in [[fleet.node]]; the nearest is '{near}'");
                return Err(Problem::Here(what));
            }
        }
        Ok(())
    }))?;
    if node.name.is_empty() || node.host.is_empty() {
        let what = "a [[fleet.node]] needs a name and a host".to_owned();
        return Err(Problem::Within(vec![(at, what)]));
    }
    if node.resp_port == 0 {
        node.resp_port = node.port;
    }
    Ok(node)
}

/// Whether a text can stand between others in a list: it has neither white space nor a separator of such lists.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_graphic() && !"|,".contains(letter))
}

/// A whole number between two others.
fn number(name: &str, value: &DeValue<'_>, least: u64, most: u64) -> Result<u64, String> {
    let number = scalar(value).and_then(|text| text.parse::<u64>().ok());
    let number = number.filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{name}: expected a number from {least} to {most}"))
}

/// The name in the table of a key of `[flash.tuning]`.
fn tuning_name(key: &str) -> String {
    format!("flash.tuning.{key}")
}

/// What takes the place of a key of `[flash.tuning]` that is none.
fn instead_of_key(key: &str) -> Option<&'static str> {
    match key {
        "reclaim" => {
            Some("the zone with the most garbage is freed, and the oldest only where there is no garbage")
        }
        "ops" => Some("the rates of writing and erasing say how many zones are held erased"),
        _ => None,
    }
}

/// What to write instead of a flag that is none any more.
pub(super) fn instead_of_flag(long: &str) -> Option<String> {
    if long == "inline-value-bytes" {
        return Some("values above 1 KiB stand apart from their keys: leave it out".to_owned());
    }
    let name = long.strip_prefix("flash-")?;
    if name == "format" {
        return Some("the command 'larder format-flash' erases a device, with the flags of serve".to_owned());
    }
    if let Some(instead) = instead_of_key(name) {
        return Some(format!("{instead}: leave it out"));
    }
    // The share of items to keep became the share of the flash that they may take.
    let row = table::by_name(&tuning_name(if name == "keep" { "fill" } else { name }))?;
    Some(format!(
        "write {name} = VALUE below {TUNING} in the settings file (--config FILE), such as {name} = \"{}\"",
        row.example,
        name = row.key()
    ))
}

/// Sets the row `long` of the table to a value that stands under the key `name`.
fn apply_key(name: &str, long: &str, value: &DeValue<'_>, settings: &mut Settings) -> Result<(), String> {
    let topic = |row: &&Row| row.is_flag() || (row.topic == Topic::Tuning && long == tuning_name(name));
    let row = table::by_name(long).filter(topic).ok_or_else(|| unknown(name, long))?;
    let value = value_text(row, value).map_err(|expected| format!("{name}: {expected}"))?;
    extended::set(row, settings, &value)
        .map_err(|expected| format!("bad value '{value}' for {name}: {expected}"))
}

/// What is said of a key that is none.
fn unknown(name: &str, long: &str) -> String {
    if long == tuning_name(name) {
        if let Some(instead) = instead_of_key(name) {
            return format!("{TUNING} has no key '{name}': {instead}; leave it out");
        }
        let near = nearest(name, table::tuning().map(Row::key));
        return format!("there is no key '{name}' in {TUNING}; the nearest is '{near}'");
    }
    match instead_of_flag(long) {
        Some(instead) => format!("'{name}' is no setting any more: {instead}"),
        None => format!("there is no setting '{name}'; the nearest is '{}'", nearest_flag(name)),
    }
}

/// A value as it would be written after the flag.
fn value_text(row: &Row, value: &DeValue<'_>) -> Result<String, &'static str> {
    match (row.takes, value) {
        (Takes::Nothing, DeValue::Boolean(on)) => Ok(on.to_string()),
        (Takes::Nothing, _) => Err("expected true or false"),
        (_, DeValue::Boolean(on)) if row.topic == Topic::Tuning => {
            Ok(if *on { "on" } else { "off" }.to_owned())
        }
        (Takes::Count, _) if !matches!(value, DeValue::Integer(_)) => Err("expected a number"),
        (Takes::List(_) | Takes::Options(_), DeValue::Array(parts)) => {
            let parts: Option<Vec<String>> = parts.iter().map(|part| scalar(part.get_ref())).collect();
            parts.map(|parts| parts.join(",")).ok_or("expected a list of words or numbers")
        }
        _ => scalar(value).ok_or("expected a number or a text in quotes"),
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
