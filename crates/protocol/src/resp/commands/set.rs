//! Sets.

use crate::resp::command::flags::{self, DENYOOM, FAST, MOVABLEKEYS};
use crate::resp::command::{Command, Id, Keys};

const READONLY: u32 = flags::READONLY | flags::COLLECTION;
const WRITE: u32 = flags::WRITE | flags::COLLECTION;

const SET: Command = Command { category: "set", group: "set", keys: Keys::ONE, ..Command::ROW };
const READ: Command = Command { arity: 2, flags: READONLY | FAST, key_access: &["RO"], syntax: "key", ..SET };
const WHOLE: Command = Command {
    arity: 2,
    flags: READONLY,
    key_access: &["RO access"],
    syntax: "key",
    complexity: "O(N) where N is the number of members of the set.",
    ..SET
};
const CHANGE: Command = Command {
    arity: -3,
    flags: WRITE | FAST,
    key_access: &["RW delete"],
    syntax: "key member...",
    complexity: "O(N) where N is the number of members that are named.",
    ..SET
};
const SEVERAL: Command = Command {
    arity: -2,
    keys: Keys::ALL,
    syntax: "key...",
    tips: &["nondeterministic_output_order"],
    complexity: "O(N) where N is the number of members of all sets together.",
    ..WHOLE
};
const STORE: Command = Command {
    arity: -3,
    flags: WRITE | DENYOOM,
    keys: Keys::ALL,
    key_access: &["OW update", "RO access"],
    syntax: "destination key...",
    complexity: "O(N) where N is the number of members of all sets together.",
    ..SET
};

#[rustfmt::skip] // A row reads as a card.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        id: Id::Sadd, name: "sadd", flags: WRITE | DENYOOM | FAST, key_access: &["RW insert"],
        summary: "Adds members to a set, which is created if it does not exist.", ..CHANGE
    },
    Command {
        id: Id::Srem, name: "srem",
        summary: "Removes members from a set, and the set with the last of them.", ..CHANGE
    },
    Command {
        id: Id::Smove, name: "smove", arity: 4, keys: Keys::TWO, syntax: "source destination member",
        key_access: &["RW access delete", "RW insert"], complexity: "O(1)",
        summary: "Moves a member from one set to another.", ..CHANGE
    },
    Command {
        id: Id::Spop, name: "spop", arity: -2, syntax: "key [count]", key_access: &["RW access delete"],
        tips: &["nondeterministic_output"], complexity: "O(1) without a count, O(N) with one where N is the count.",
        summary: "Returns members of a set by chance and removes them.", ..CHANGE
    },
    Command {
        id: Id::Scard, name: "scard",
        summary: "Returns how many members a set has.", ..READ
    },
    Command {
        id: Id::Sismember, name: "sismember", arity: 3, syntax: "key member",
        summary: "Tells whether a set has a member.", ..READ
    },
    Command {
        id: Id::Smismember, name: "smismember", arity: -3, since: "6.2.0", syntax: "key member...",
        key_access: &["RO access"], complexity: "O(N) where N is the number of members that are named.",
        summary: "Tells of several members whether a set has them.", ..READ
    },
    Command {
        id: Id::Smembers, name: "smembers", tips: &["nondeterministic_output_order"],
        summary: "Returns all members of a set.", ..WHOLE
    },
    Command {
        id: Id::Srandmember, name: "srandmember", arity: -2, syntax: "key [count]",
        tips: &["nondeterministic_output"],
        complexity: "O(1) without a count, O(N) with one where N is the count without its sign.",
        summary: "Returns members of a set by chance.", ..WHOLE
    },
    Command {
        id: Id::Sscan, name: "sscan", arity: -3, since: "2.8.0", syntax: "key cursor [MATCH pattern] [COUNT count]",
        tips: &["nondeterministic_output"],
        complexity: "O(1) for a call, O(N) for all of them where N is the number of members of the set.",
        summary: "Returns the members of a set, those that match a pattern, in one reply.", ..WHOLE
    },

    Command {
        id: Id::Sinter, name: "sinter",
        complexity: "O(N*M) where N is the size of the smallest set and M the number of sets.",
        summary: "Returns the members that all of the sets have.", ..SEVERAL
    },
    Command {
        id: Id::Sunion, name: "sunion",
        summary: "Returns the members that any of the sets has.", ..SEVERAL
    },
    Command {
        id: Id::Sdiff, name: "sdiff",
        summary: "Returns the members of the first set that none of the other sets has.", ..SEVERAL
    },
    Command {
        id: Id::Sintercard, name: "sintercard", arity: -3, flags: READONLY | MOVABLEKEYS, keys: Keys::NUMBERED,
        since: "7.0.0", syntax: "numkeys key... [LIMIT limit]", tips: &[],
        complexity: "O(N*M) where N is the size of the smallest set and M the number of sets.",
        summary: "Counts the members that all of the sets have, up to a limit if one is given.", ..SEVERAL
    },
    Command {
        id: Id::Sinterstore, name: "sinterstore",
        complexity: "O(N*M) where N is the size of the smallest set and M the number of sets.",
        summary: "Stores the members that all of the sets have as a set of its own.", ..STORE
    },
    Command {
        id: Id::Sunionstore, name: "sunionstore",
        summary: "Stores the members that any of the sets has as a set of its own.", ..STORE
    },
    Command {
        id: Id::Sdiffstore, name: "sdiffstore",
        summary: "Stores the members of the first set that none of the other sets has as a set of its own.", ..STORE
    },
];
