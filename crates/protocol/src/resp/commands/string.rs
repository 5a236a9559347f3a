//! Strings and their bits.

use crate::resp::command::flags::{DENYOOM, FAST, READONLY, WRITE};
use crate::resp::command::{Command, Id, Keys};

const STRING: Command =
    Command { category: "string", group: "string", keys: Keys::ONE, flags: WRITE | DENYOOM, ..Command::ROW };
const READ: Command =
    Command { flags: READONLY | FAST, key_access: &["RO access"], arity: 2, syntax: "key", ..STRING };
const STORE: Command = Command { key_access: &["OW update"], ..STRING };
const CHANGE: Command =
    Command { flags: WRITE | DENYOOM | FAST, key_access: &["RW access update"], ..STRING };
const BITS: Command = Command { category: "bitmap", group: "bitmap", ..STRING };

/// What may decide whether a value is stored, and how long it lives.
const SET_SYNTAX: &str = "key value [NX|XX|IFEQ comparison-value|IFNE comparison-value|IFDEQ comparison-digest\
                          |IFDNE comparison-digest] [GET] [EX seconds|PX milliseconds|EXAT unix-time-seconds\
                          |PXAT unix-time-milliseconds|KEEPTTL]";

#[rustfmt::skip] // A row reads as a card.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        id: Id::Get, name: "get",
        summary: "Returns the value of a key.", ..READ
    },
    Command {
        id: Id::Set, name: "set", arity: -3, streams: 2, syntax: SET_SYNTAX,
        key_access: &["RW access update variable_flags"],
        summary: "Stores a value under a key, with an expiry and a condition if they are given.", ..STRING
    },
    Command {
        id: Id::Mget, name: "mget", arity: -2, keys: Keys::ALL, syntax: "key...",
        tips: &["request_policy:multi_shard"], complexity: "O(N) where N is the number of keys.",
        summary: "Returns the values of several keys.", ..READ
    },
    Command {
        id: Id::Mset, name: "mset", arity: -3, keys: Keys::PAIRS, since: "1.0.1", syntax: "<key value>...",
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        complexity: "O(N) where N is the number of keys.",
        summary: "Stores several values.", ..STORE
    },
    Command {
        id: Id::Msetnx, name: "msetnx", arity: -3, keys: Keys::PAIRS, since: "1.0.1", syntax: "<key value>...",
        key_access: &["OW insert"], complexity: "O(N) where N is the number of keys.",
        summary: "Stores several values if none of the keys exists.", ..STORE
    },
    Command {
        id: Id::Setnx, name: "setnx", arity: 3, streams: 2, syntax: "key value", key_access: &["OW insert"],
        flags: WRITE | DENYOOM | FAST,
        summary: "Stores a value if the key does not exist.", ..STORE
    },
    Command {
        id: Id::Setex, name: "setex", arity: 4, streams: 3, since: "2.0.0", syntax: "key seconds value",
        summary: "Stores a value that expires after so many seconds.", ..STORE
    },
    Command {
        id: Id::Psetex, name: "psetex", arity: 4, streams: 3, since: "2.6.0", syntax: "key milliseconds value",
        summary: "Stores a value that expires after so many milliseconds.", ..STORE
    },
    Command {
        id: Id::Getset, name: "getset", arity: 3, syntax: "key value",
        summary: "Stores a value and returns the one before.", ..CHANGE
    },
    Command {
        id: Id::Getdel, name: "getdel", since: "6.2.0", flags: WRITE | FAST, key_access: &["RW access delete"],
        summary: "Returns the value of a key and deletes the key.", ..READ
    },
    Command {
        id: Id::Getex, name: "getex", arity: -2, since: "6.2.0", flags: WRITE | FAST,
        syntax: "key [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|PERSIST]",
        summary: "Returns the value of a key and changes when it expires.", ..CHANGE
    },
    Command {
        id: Id::Append, name: "append", arity: 3, streams: 2, since: "2.0.0", syntax: "key value",
        key_access: &["RW insert"], complexity: "O(N) where N is the length of the whole value.",
        summary: "Adds to the end of a value, which is created if it does not exist.", ..CHANGE
    },
    Command {
        id: Id::Strlen, name: "strlen", since: "2.2.0", key_access: &["RO"],
        summary: "Returns the length of a value.", ..READ
    },
    Command {
        id: Id::Getrange, name: "getrange", arity: 4, since: "2.4.0", flags: READONLY, syntax: "key start end",
        complexity: "O(N) where N is the length of the part.",
        summary: "Returns a part of a value.", ..READ
    },
    Command {
        id: Id::Substr, name: "substr", arity: 4, flags: READONLY, syntax: "key start end",
        complexity: "O(N) where N is the length of the part.",
        summary: "Returns a part of a value. The newer name is GETRANGE.", ..READ
    },
    Command {
        id: Id::Setrange, name: "setrange", arity: 4, since: "2.2.0", syntax: "key offset value",
        key_access: &["RW update"], complexity: "O(N) where N is the length of the whole value.",
        summary: "Overwrites a part of a value, which grows or is created if need be.", ..STRING
    },
    Command {
        id: Id::Incr, name: "incr", arity: 2, syntax: "key",
        summary: "Adds one to the whole number of a key. A key that does not exist counts as 0.", ..CHANGE
    },
    Command {
        id: Id::Decr, name: "decr", arity: 2, syntax: "key",
        summary: "Subtracts one from the whole number of a key. A key that does not exist counts as 0.", ..CHANGE
    },
    Command {
        id: Id::Incrby, name: "incrby", arity: 3, syntax: "key increment",
        summary: "Adds to the whole number of a key. A key that does not exist counts as 0.", ..CHANGE
    },
    Command {
        id: Id::Decrby, name: "decrby", arity: 3, syntax: "key decrement",
        summary: "Subtracts from the whole number of a key. A key that does not exist counts as 0.", ..CHANGE
    },
    Command {
        id: Id::Incrbyfloat, name: "incrbyfloat", arity: 3, since: "2.6.0", syntax: "key increment",
        summary: "Adds to the decimal number of a key. A key that does not exist counts as 0.", ..CHANGE
    },
    Command {
        id: Id::Delex, name: "delex", arity: -2, since: "8.4.0", flags: WRITE | FAST, key_access: &["RM delete"],
        syntax: "key [IFEQ comparison-value|IFNE comparison-value|IFDEQ comparison-digest|IFDNE comparison-digest]",
        summary: "Deletes a key if its value, or the digest of it, is or is not the one that is given.", ..STRING
    },
    Command {
        id: Id::Delifeq, name: "delifeq", arity: 3, since: "9.0.0", flags: WRITE | FAST, syntax: "key value",
        key_access: &["RM delete"],
        summary: "Deletes a key if it has this value.", ..STRING
    },
    Command {
        id: Id::Digest, name: "digest", since: "8.4.0", complexity: "O(N) where N is the length of the value.",
        summary: "Returns the XXH3 digest of a value as 16 hexadecimal digits.", ..READ
    },

    Command {
        id: Id::Setbit, name: "setbit", arity: 4, since: "2.2.0", syntax: "key offset value",
        key_access: &["RW access update"], complexity: "O(N) where N is the length of the value.",
        summary: "Sets or clears one bit of a value, which grows or is created if need be.", ..BITS
    },
    Command {
        id: Id::Getbit, name: "getbit", arity: 3, since: "2.2.0", flags: READONLY | FAST, syntax: "key offset",
        key_access: &["RO access"],
        summary: "Returns one bit of a value.", ..BITS
    },
    Command {
        id: Id::Bitcount, name: "bitcount", arity: -2, since: "2.6.0", flags: READONLY,
        syntax: "key [<start [<end [BYTE|BIT]>]>]", key_access: &["RO access"],
        complexity: "O(N) where N is the length of the part.",
        summary: "Counts the bits that are set in a value or in a part of it.", ..BITS
    },
    Command {
        id: Id::Bitpos, name: "bitpos", arity: -3, since: "2.8.7", flags: READONLY,
        syntax: "key bit [<start [<end [BYTE|BIT]>]>]", key_access: &["RO access"],
        complexity: "O(N) where N is the length of the part.",
        summary: "Returns the position of the first bit that is set, or that is not, in a value or in a part of it.",
        ..BITS
    },
];
