//! `COMMAND` and its subcommands: what is known of all commands, from their table.

use super::errors::{self, Error};
use super::glob;
use larder_protocol::resp::{
    Args, Argument, COUNT, Command, Id, Keys, Kind, Version, all, compose as words, lookup,
};

/// Answers `COMMAND` or a subcommand of it. `args` = what follows.
///
/// # Errors
/// The error to answer. Nothing was written then.
pub(in crate::dispatch) fn compose(
    out: &mut Vec<u8>,
    version: Version,
    id: Id,
    args: Args<'_>,
) -> Result<(), Error> {
    match id {
        Id::Command => {
            words::array_head(out, COUNT);
            all().for_each(|command| entry(out, version, command));
        }
        Id::CommandInfo if args.len() == 0 => {
            words::array_head(out, COUNT);
            all().for_each(|command| entry(out, version, command));
        }
        Id::CommandInfo => {
            words::array_head(out, args.len());
            for name in args {
                match named(name) {
                    Some(command) => entry(out, version, command),
                    None => words::null_array(out, version),
                }
            }
        }
        Id::CommandCount => words::integer(out, COUNT as i64),
        Id::CommandDocs => {
            let chosen: Vec<&Command> =
                if args.len() == 0 { all().collect() } else { args.filter_map(named).collect() };
            words::map_head(out, version, chosen.len());
            for command in chosen {
                words::bulk(out, command.full_name().as_bytes());
                documentation(out, version, command);
            }
        }
        Id::CommandList => return list(out, args),
        Id::CommandGetkeys | Id::CommandGetkeysandflags => return keys(out, version, id, args),
        _ => {}
    }
    Ok(())
}

/// The command with this name, which may name a subcommand: `client|id`.
fn named(name: &[u8]) -> Option<&'static Command> {
    match name.iter().position(|byte| *byte == b'|') {
        None => lookup(name),
        Some(at) => lookup(&name[..at])?.subcommand(&name[at + 1..]),
    }
}

/// The ten elements that clients know a command by.
fn entry(out: &mut Vec<u8>, version: Version, command: &Command) {
    let Keys { first, last, step, .. } = command.keys;
    words::array_head(out, 10);
    words::bulk(out, command.full_name().as_bytes());
    words::integer(out, command.arity.into());
    let flags: Vec<&str> = command.flag_names().collect();
    words::set_head(out, version, flags.len());
    flags.iter().for_each(|flag| words::simple(out, flag));
    for number in [first, last, step] {
        words::integer(out, number.into());
    }
    let categories = command.categories();
    words::set_head(out, version, categories.len());
    categories.iter().for_each(|category| words::simple(out, &format!("@{category}")));
    words::set_head(out, version, command.tips.len());
    command.tips.iter().for_each(|tip| words::bulk(out, tip.as_bytes()));
    let ranges = key_ranges(command);
    words::set_head(out, version, ranges.len());
    for range in ranges {
        key_range(out, version, &range);
    }
    words::array_head(out, command.subcommands.len());
    command.subcommands.iter().for_each(|sub| entry(out, version, sub));
}

/// A range of keys of a command.
struct KeyRange {
    access: &'static str,
    begin: i64,
    /// Counted from the beginning, or from the end if it is negative.
    last: i64,
    step: i64,
    /// The keys follow an argument that says how many there are.
    is_counted: bool,
}

/// The ranges of keys of a command: one for each kind of access.
fn key_ranges(command: &Command) -> Vec<KeyRange> {
    let Keys { first, last, step, number } = command.keys;
    if step == 0 && number == 0 {
        return Vec::new();
    }
    match command.key_access {
        [one] if number > 0 => {
            vec![KeyRange { access: one, begin: number.into(), last: 0, step: 1, is_counted: true }]
        }
        [one] => {
            let last = if last < 0 { last } else { last - first };
            let (begin, last, step) = (first.into(), last.into(), step.into());
            vec![KeyRange { access: one, begin, last, step, is_counted: false }]
        }
        several => (i64::from(first)..)
            .zip(several)
            .map(|(begin, access)| {
                let is_behind = begin > first.into();
                let is_counted = is_behind && number > 0;
                let begin = if is_counted { number.into() } else { begin };
                let last = if is_behind && last < 0 { last.into() } else { 0 };
                KeyRange { access, begin, last, step: 1, is_counted }
            })
            .collect(),
    }
}

fn key_range(out: &mut Vec<u8>, version: Version, range: &KeyRange) {
    words::map_head(out, version, 3);
    words::bulk(out, b"flags");
    let flags: Vec<&str> = range.access.split(' ').collect();
    words::set_head(out, version, flags.len());
    flags.iter().for_each(|flag| words::simple(out, flag));
    words::bulk(out, b"begin_search");
    words::map_head(out, version, 2);
    words::bulk(out, b"type");
    words::bulk(out, b"index");
    words::bulk(out, b"spec");
    words::map_head(out, version, 1);
    words::bulk(out, b"index");
    words::integer(out, range.begin);
    words::bulk(out, b"find_keys");
    words::map_head(out, version, 2);
    words::bulk(out, b"type");
    let (name, numbers) = match range.is_counted {
        true => ("keynum", [("keynumidx", 0), ("firstkey", 1), ("keystep", range.step)]),
        false => ("range", [("lastkey", range.last), ("keystep", range.step), ("limit", 0)]),
    };
    words::bulk(out, name.as_bytes());
    words::bulk(out, b"spec");
    words::map_head(out, version, 3);
    for (name, number) in numbers {
        words::bulk(out, name.as_bytes());
        words::integer(out, number);
    }
}

fn documentation(out: &mut Vec<u8>, version: Version, command: &Command) {
    let arguments = larder_protocol::resp::arguments(command.syntax);
    let count = 4 + usize::from(!arguments.is_empty()) + usize::from(!command.subcommands.is_empty());
    words::map_head(out, version, count);
    for (name, text) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group),
        ("complexity", command.complexity),
    ] {
        words::bulk(out, name.as_bytes());
        words::bulk(out, text.as_bytes());
    }
    if !arguments.is_empty() {
        words::bulk(out, b"arguments");
        words::array_head(out, arguments.len());
        arguments.iter().for_each(|argument| document_argument(out, version, argument));
    }
    if !command.subcommands.is_empty() {
        words::bulk(out, b"subcommands");
        words::map_head(out, version, command.subcommands.len());
        for sub in command.subcommands {
            words::bulk(out, sub.full_name().as_bytes());
            documentation(out, version, sub);
        }
    }
}

fn document_argument(out: &mut Vec<u8>, version: Version, argument: &Argument) {
    let flags: Vec<&str> = [(argument.is_optional, "optional"), (argument.is_multiple, "multiple")]
        .into_iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, flag)| flag)
        .collect();
    let inner = match &argument.kind {
        Kind::OneOf(inner) | Kind::Block(inner) => Some(inner),
        _ => None,
    };
    let is_key = matches!(argument.kind, Kind::Key);
    let optional = [is_key, inner.is_none(), argument.token.is_some(), !flags.is_empty(), inner.is_some()];
    words::map_head(out, version, 2 + optional.iter().filter(|is_there| **is_there).count());
    let mut text = |name: &str, value: &str| {
        words::bulk(out, name.as_bytes());
        words::bulk(out, value.as_bytes());
    };
    text("name", argument.name);
    text("type", argument.kind.name());
    if inner.is_none() {
        text("display_text", argument.name);
    }
    if let Some(token) = argument.token {
        text("token", token);
    }
    if is_key {
        words::bulk(out, b"key_spec_index");
        words::integer(out, 0);
    }
    if !flags.is_empty() {
        words::bulk(out, b"flags");
        words::set_head(out, version, flags.len());
        flags.iter().for_each(|flag| words::simple(out, flag));
    }
    if let Some(inner) = inner {
        words::bulk(out, b"arguments");
        words::array_head(out, inner.len());
        inner.iter().for_each(|argument| document_argument(out, version, argument));
    }
}

/// `COMMAND LIST [FILTERBY ACLCAT category|PATTERN pattern|MODULE name]`.
fn list(out: &mut Vec<u8>, mut args: Args<'_>) -> Result<(), Error> {
    let names = all().flat_map(|command| std::iter::once(command).chain(command.subcommands));
    let chosen: Vec<&Command> = match (args.next(), args.next(), args.next(), args.next()) {
        (None, ..) => names.collect(),
        (Some(filter), Some(kind), Some(wanted), None) if filter.eq_ignore_ascii_case(b"filterby") => {
            match kind.to_ascii_lowercase()[..] {
                [b'p', b'a', b't', b't', b'e', b'r', b'n'] => names
                    .filter(|command| glob::matches(wanted, command.full_name().as_bytes(), true))
                    .collect(),
                [b'a', b'c', b'l', b'c', b'a', b't'] => {
                    let has = |command: &&Command| {
                        command.categories().iter().any(|own| own.as_bytes().eq_ignore_ascii_case(wanted))
                    };
                    names.filter(has).collect()
                }
                [b'm', b'o', b'd', b'u', b'l', b'e'] => Vec::new(),
                _ => return Err(errors::SYNTAX),
            }
        }
        _ => return Err(errors::SYNTAX),
    };
    words::array_head(out, chosen.len());
    chosen.iter().for_each(|command| words::bulk(out, command.full_name().as_bytes()));
    Ok(())
}

/// `COMMAND GETKEYS request`.
fn keys(out: &mut Vec<u8>, version: Version, id: Id, args: Args<'_>) -> Result<(), Error> {
    let mut names = args;
    let above = names.next().and_then(lookup);
    let above = above.ok_or_else(|| errors::made("ERR Invalid command specified"))?;
    let command = match names.next() {
        Some(name) if !above.subcommands.is_empty() => {
            above.subcommand(name).ok_or_else(|| errors::made("ERR Invalid command specified"))?
        }
        _ => above,
    };
    if command.keys == Keys::NONE {
        return Err(errors::made("ERR The command has no key arguments"));
    }
    if !command.takes(args.len()) {
        return Err(errors::made("ERR Invalid number of arguments specified for command"));
    }
    let found: Vec<&[u8]> = command.keys.of(args).collect();
    words::array_head(out, found.len());
    for (number, key) in found.iter().enumerate() {
        if id == Id::CommandGetkeysandflags {
            words::array_head(out, 2);
            words::bulk(out, key);
            let access = command.key_access.get(number).or(command.key_access.last()).unwrap_or(&"");
            // A SET reads its key if it returns what was there.
            let access = match command.id {
                Id::Set if args.skip(3).any(|word| word.eq_ignore_ascii_case(b"get")) => "RW access update",
                Id::Set => "OW update",
                _ => access,
            };
            let flags: Vec<&str> = access.split(' ').collect();
            words::set_head(out, version, flags.len());
            flags.iter().for_each(|flag| words::simple(out, flag));
        } else {
            words::bulk(out, key);
        }
    }
    Ok(())
}
