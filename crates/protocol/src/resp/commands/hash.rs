//! Hashes: fields and their values under one key.

use crate::resp::command::flags::{self, DENYOOM, FAST};
use crate::resp::command::{Command, Id, Keys};

const READONLY: u32 = flags::READONLY | flags::COLLECTION;
const WRITE: u32 = flags::WRITE | flags::COLLECTION;

const HASH: Command =
    Command { category: "hash", group: "hash", keys: Keys::ONE, since: "2.0.0", ..Command::ROW };
const READ: Command =
    Command { arity: 3, flags: READONLY | FAST, key_access: &["RO access"], syntax: "key field", ..HASH };
const WHOLE: Command = Command {
    arity: 2,
    flags: READONLY,
    syntax: "key",
    tips: &["nondeterministic_output_order"],
    complexity: "O(N) where N is the number of fields of the hash.",
    ..READ
};
const STORE: Command = Command {
    arity: -4,
    flags: WRITE | DENYOOM | FAST,
    key_access: &["RW update"],
    syntax: "key <field value>...",
    complexity: "O(N) where N is the number of fields that are stored.",
    ..HASH
};
const COUNTER: Command = Command {
    arity: 4,
    key_access: &["RW access update"],
    syntax: "key field increment",
    complexity: "O(1)",
    ..STORE
};
const NAMED: Command = Command {
    arity: -5,
    since: "9.0.0",
    syntax: "key FIELDS <numfields field...>",
    complexity: "O(N) where N is the number of fields that are named.",
    ..READ
};
const CHANGE: Command = Command { flags: WRITE | FAST, key_access: &["RW update"], ..NAMED };
const EXPIRE: Command = Command { arity: -6, ..CHANGE };

/// What may decide when fields expire.
const GETEX_SYNTAX: &str = "key [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds\
                            |PERSIST] FIELDS <numfields field...>";
/// What may decide whether fields are stored, and how long they live.
const SETEX_SYNTAX: &str = "key [NX|XX] [FNX|FXX] [EX seconds|PX milliseconds|EXAT unix-time-seconds\
                            |PXAT unix-time-milliseconds|KEEPTTL] FIELDS <numfields <field value>...>";

#[rustfmt::skip] // A row reads as a card.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        id: Id::Hget, name: "hget",
        summary: "Returns the value of one field of a hash.", ..READ
    },
    Command {
        id: Id::Hmget, name: "hmget", arity: -3, syntax: "key field...",
        complexity: "O(N) where N is the number of fields that are named.",
        summary: "Returns the values of several fields of a hash.", ..READ
    },
    Command {
        id: Id::Hgetall, name: "hgetall",
        summary: "Returns all fields of a hash and their values.", ..WHOLE
    },
    Command {
        id: Id::Hkeys, name: "hkeys",
        summary: "Returns the names of all fields of a hash.", ..WHOLE
    },
    Command {
        id: Id::Hvals, name: "hvals",
        summary: "Returns the values of all fields of a hash.", ..WHOLE
    },
    Command {
        id: Id::Hexists, name: "hexists", key_access: &["RO"],
        summary: "Tells whether a hash has a field.", ..READ
    },
    Command {
        id: Id::Hlen, name: "hlen", arity: 2, syntax: "key", key_access: &["RO"],
        summary: "Returns how many fields a hash has.", ..READ
    },
    Command {
        id: Id::Hstrlen, name: "hstrlen", since: "3.2.0", key_access: &["RO"],
        summary: "Returns the length of the value of a field.", ..READ
    },
    Command {
        id: Id::Hrandfield, name: "hrandfield", arity: -2, since: "6.2.0", syntax: "key [<count [WITHVALUES]>]",
        tips: &["nondeterministic_output"], complexity: "O(N) where N is the number of fields that are returned.",
        summary: "Returns fields of a hash by chance, with their values if they are wanted.", ..WHOLE
    },
    Command {
        id: Id::Hscan, name: "hscan", arity: -3, since: "2.8.0",
        syntax: "key cursor [MATCH pattern] [COUNT count] [NOVALUES]", tips: &["nondeterministic_output"],
        complexity: "O(1) for a call, O(N) for all of them where N is the number of fields of the hash.",
        summary: "Returns the fields of a hash, those that match a pattern, in one reply.", ..WHOLE
    },
    Command {
        id: Id::Hset, name: "hset",
        summary: "Stores values in fields of a hash, which is created if it does not exist.", ..STORE
    },
    Command {
        id: Id::Hmset, name: "hmset",
        summary: "Stores values in fields of a hash. The newer name is HSET.", ..STORE
    },
    Command {
        id: Id::Hsetnx, name: "hsetnx", arity: 4, syntax: "key field value", key_access: &["RW insert"],
        complexity: "O(1)",
        summary: "Stores a value in a field of a hash if the hash does not have the field.", ..STORE
    },
    Command {
        id: Id::Hincrby, name: "hincrby",
        summary: "Adds to the whole number in a field of a hash. A field that does not exist counts as 0.", ..COUNTER
    },
    Command {
        id: Id::Hincrbyfloat, name: "hincrbyfloat", since: "2.6.0", syntax: "key field increment:double",
        summary: "Adds to the decimal number in a field of a hash. A field that does not exist counts as 0.",
        ..COUNTER
    },
    Command {
        id: Id::Hdel, name: "hdel", arity: -3, since: "2.0.0", syntax: "key field...", key_access: &["RW delete"],
        summary: "Deletes fields of a hash, and the hash with the last of them.", ..CHANGE
    },

    Command {
        id: Id::Hgetdel, name: "hgetdel", since: "8.0.0", key_access: &["RW access delete"],
        summary: "Returns the values of fields of a hash and deletes these fields.", ..CHANGE
    },
    Command {
        id: Id::Hgetex, name: "hgetex", syntax: GETEX_SYNTAX, key_access: &["RW access update"],
        summary: "Returns the values of fields of a hash and changes when these fields expire.", ..CHANGE
    },
    Command {
        id: Id::Hsetex, name: "hsetex", arity: -6, since: "9.0.0", syntax: SETEX_SYNTAX, key_access: &["RW insert"],
        summary: "Stores values in fields of a hash, with an expiry and a condition if they are given.", ..STORE
    },
    Command {
        id: Id::Hexpire, name: "hexpire", syntax: "key seconds [NX|XX|GT|LT] FIELDS <numfields field...>",
        summary: "Makes fields of a hash expire after so many seconds.", ..EXPIRE
    },
    Command {
        id: Id::Hpexpire, name: "hpexpire", syntax: "key milliseconds [NX|XX|GT|LT] FIELDS <numfields field...>",
        summary: "Makes fields of a hash expire after so many milliseconds.", ..EXPIRE
    },
    Command {
        id: Id::Hexpireat, name: "hexpireat",
        syntax: "key unix-time-seconds:integer [NX|XX|GT|LT] FIELDS <numfields field...>",
        summary: "Makes fields of a hash expire at a time in seconds.", ..EXPIRE
    },
    Command {
        id: Id::Hpexpireat, name: "hpexpireat",
        syntax: "key unix-time-milliseconds:integer [NX|XX|GT|LT] FIELDS <numfields field...>",
        summary: "Makes fields of a hash expire at a time in milliseconds.", ..EXPIRE
    },
    Command {
        id: Id::Hpersist, name: "hpersist",
        summary: "Makes fields of a hash expire never.", ..CHANGE
    },
    Command {
        id: Id::Httl, name: "httl",
        summary: "Returns how many seconds fields of a hash have left.", ..NAMED
    },
    Command {
        id: Id::Hpttl, name: "hpttl",
        summary: "Returns how many milliseconds fields of a hash have left.", ..NAMED
    },
    Command {
        id: Id::Hexpiretime, name: "hexpiretime",
        summary: "Returns the times in seconds at which fields of a hash expire.", ..NAMED
    },
    Command {
        id: Id::Hpexpiretime, name: "hpexpiretime",
        summary: "Returns the times in milliseconds at which fields of a hash expire.", ..NAMED
    },
];
