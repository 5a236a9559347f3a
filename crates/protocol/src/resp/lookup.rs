//! Commands by name.

use super::args::Args;
use super::command::Command;
use super::commands;
use super::limits::PLAIN_KEY_BYTES_MAX;

/// All commands, without subcommands.
pub fn all() -> impl Iterator<Item = &'static Command> {
    commands::GROUPS.iter().flat_map(|group| group.iter())
}

/// How many commands there are, without subcommands.
pub const COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < commands::GROUPS.len() {
        count += commands::GROUPS[group].len();
        group += 1;
    }
    count
};

/// Longest name of a command, in bytes.
const NAME_BYTES_MAX: usize = 16;
/// Slots of the hash table of names. Few names share a slot.
const SLOTS: usize = 512;
/// A slot without a command.
const EMPTY: u8 = u8::MAX;

/// The first letter in lower case of each command, and so on: the hash table of names, with open addressing. An entry
/// is the number of the command in [`ROWS`].
static TABLE: [u8; SLOTS] = {
    assert!(COUNT < EMPTY as usize && COUNT < SLOTS);
    let mut table = [EMPTY; SLOTS];
    let mut row = 0;
    while row < COUNT {
        let mut slot = slot_of(pack(ROWS[row].name.as_bytes()));
        while table[slot] != EMPTY {
            slot = (slot + 1) % SLOTS;
        }
        table[slot] = row as u8;
        row += 1;
    }
    table
};

/// The rows of all groups, side by side.
static ROWS: [&Command; COUNT] = {
    let mut rows = [&commands::GROUPS[0][0]; COUNT];
    let (mut row, mut group) = (0, 0);
    while group < commands::GROUPS.len() {
        let mut at = 0;
        while at < commands::GROUPS[group].len() {
            rows[row] = &commands::GROUPS[group][at];
            row += 1;
            at += 1;
        }
        group += 1;
    }
    rows
};

/// A name in one word, in lower case.
const fn pack(name: &[u8]) -> u128 {
    let mut word = 0u128;
    let mut at = 0;
    while at < name.len() {
        word = word << 8 | (name[at] | 0x20) as u128;
        at += 1;
    }
    word
}

const fn slot_of(word: u128) -> usize {
    let folded = (word as u64) ^ ((word >> 64) as u64).rotate_left(23);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize % SLOTS
}

/// The command with this name, in any case.
#[inline]
pub fn lookup(name: &[u8]) -> Option<&'static Command> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return None;
    }
    let mut slot = slot_of(pack(name));
    loop {
        let row = ROWS.get(usize::from(TABLE[slot]))?;
        if row.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(row);
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// The command of a request: the subcommand, where there is one. `None` = there is no such command.
pub fn command_of(mut args: Args<'_>) -> Option<&'static Command> {
    let command = lookup(args.next()?)?;
    match args.next() {
        Some(word) if !command.subcommands.is_empty() => command.subcommand(word),
        _ => Some(command),
    }
}

/// The argument that may arrive in parts, of a request whose first arguments are here: an index. The key has to be one
/// that an item can have as it is.
pub(super) fn streamed_argument(mut args: Args<'_>) -> Option<usize> {
    let command = lookup(args.next()?)?;
    let is_plain = args.next().is_some_and(|key| (1..=PLAIN_KEY_BYTES_MAX).contains(&key.len()));
    (command.streams > 0 && is_plain).then_some(usize::from(command.streams))
}

impl Command {
    /// The name with that of the command above: `client|id`.
    pub fn full_name(&self) -> String {
        match all().find(|above| above.subcommands.iter().any(|sub| sub.id == self.id)) {
            Some(above) => format!("{}|{}", above.name, self.name),
            None => self.name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Id, Keys};
    use std::collections::HashSet;

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        for command in all() {
            for name in [command.name.to_owned(), command.name.to_uppercase()] {
                let found = lookup(name.as_bytes()).expect("it is in the table");
                assert_eq!(found.id, command.id, "{name}");
            }
        }
        for name in ["", "g", "gett", "ge", "a-name-longer-than-any", "get\0", "\x07et", "lpush"] {
            assert!(lookup(name.as_bytes()).is_none(), "{name}");
        }
    }

    #[test]
    fn each_name_and_each_id_is_there_once() {
        let mut ids = HashSet::new();
        let mut names = HashSet::new();
        for command in all() {
            assert!(
                command.name.len() <= NAME_BYTES_MAX && names.insert(command.full_name()),
                "{}",
                command.name
            );
            assert!(ids.insert(command.id));
            for sub in command.subcommands {
                assert!(names.insert(sub.full_name()) && ids.insert(sub.id), "{}", sub.name);
            }
        }
        assert_eq!(ids.len(), Id::COUNT);
    }

    /// The keys of a request.
    fn keys(line: &str) -> String {
        let mut buffer = Vec::new();
        let args = super::super::inline_args(line.as_bytes(), &mut buffer).expect("no quotes");
        let command = lookup(args.clone().next().expect("a name")).expect("a command");
        let shown = |key: &[u8]| String::from_utf8(key.to_vec()).expect("ASCII");
        command.keys.of(args).map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn keys_are_where_the_table_says() {
        for (line, expected) in [
            ("get a", "a"),
            ("mget a b c", "a b c"),
            ("mset a 1 b 2", "a b"),
            ("rename a b", "a b"),
            ("copy a b replace", "a b"),
            ("ping a", ""),
            ("sinterstore a b c", "a b c"),
            ("smove a b member", "a b"),
            ("zrangestore a b 0 -1", "a b"),
        ] {
            assert_eq!(keys(line), expected, "{line}");
        }
    }

    #[test]
    fn keys_that_are_counted_are_those_that_are_there() {
        for (line, expected) in [
            ("eval script 2 a b c", "a b"),
            ("eval script 0 a", ""),
            ("sintercard 2 a b limit 5", "a b"),
            ("zmpop 1 a min", "a"),
            ("zunionstore a 2 b c weights 1 2", "a b c"),
            ("zunionstore a 1 a", "a a"),
            ("zunionstore a 1", "a"),
            ("zunionstore a", "a"),
            ("zunionstore", ""),
            ("sintercard 1", ""),
            ("sintercard", ""),
        ] {
            assert_eq!(keys(line), expected, "{line}");
        }
        for (number, expected) in [
            ("0", ""),
            ("-1", ""),
            ("-9223372036854775808", ""),
            ("two", ""),
            ("02", ""),
            ("3", "b c"),
            ("9223372036854775807", "b c"),
            ("18446744073709551616", ""),
        ] {
            assert_eq!(keys(&format!("sintercard {number} b c")), expected, "{number}");
            assert_eq!(
                keys(&format!("zunionstore a {number} b c")),
                format!("a {expected}").trim_end(),
                "{number}"
            );
        }
    }

    #[test]
    fn a_place_is_a_key() {
        let args = Args::new(b"$1\r\nx\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\nx\r\n$1\r\nx\r\n", 5);
        let has = |keys: Keys| (0..5).filter(|place| keys.places(args, 5)(*place)).collect::<Vec<_>>();
        assert_eq!(has(Keys::ALL), [1, 2, 3, 4]);
        assert_eq!(has(Keys::TWO), [1, 2]);
        assert_eq!(has(Keys::STORED_NUMBERED), [1, 3]);
        assert_eq!(has(Keys::NUMBERED), [2]);
        assert!(has(Keys::COUNTED).is_empty(), "those of scripts are rewritten one by one");
    }
}
