//! Keys, whatever they hold, and transactions.

use crate::resp::command::flags::{
    ALLOW_BUSY, BLOCKING, DENYOOM, FAST, LOADING, NO_MULTI, NOSCRIPT, READONLY, SESSION, SKIP_SLOWLOG, STALE,
    WRITE,
};
use crate::resp::command::{Command, Id, Keys};

const KEYSPACE: Command = Command { category: "keyspace", group: "generic", keys: Keys::ONE, ..Command::ROW };
const SEVERAL: Command = Command {
    arity: -2,
    keys: Keys::ALL,
    syntax: "key...",
    complexity: "O(N) where N is the number of keys.",
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    ..KEYSPACE
};
const EXPIRE: Command = Command { arity: -3, flags: WRITE | FAST, key_access: &["RW update"], ..KEYSPACE };
const ASK: Command =
    Command { arity: 2, flags: READONLY | FAST, syntax: "key", key_access: &["RO access"], ..KEYSPACE };
const WHOLE: Command = Command { keys: Keys::NONE, ..KEYSPACE };
const OBJECT: Command = Command {
    arity: 3,
    flags: READONLY,
    keys: Keys::SUB,
    key_access: &["RO"],
    tips: &["nondeterministic_output"],
    since: "2.2.3",
    syntax: "key",
    ..KEYSPACE
};
const TRANSACTION: Command = Command {
    category: "transaction",
    group: "transactions",
    flags: NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY | SESSION,
    keys: Keys::NONE,
    ..Command::ROW
};

#[rustfmt::skip] // A row reads as a card.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        id: Id::Del, name: "del", flags: WRITE, key_access: &["RM delete"],
        summary: "Deletes keys.", ..SEVERAL
    },
    Command {
        id: Id::Unlink, name: "unlink", flags: WRITE | FAST, since: "4.0.0", key_access: &["RM delete"],
        summary: "Deletes keys. It does the same as DEL.", ..SEVERAL
    },
    Command {
        id: Id::Exists, name: "exists", flags: READONLY | FAST, key_access: &["RO"],
        summary: "Counts the keys that exist. A key that is named twice counts twice.", ..SEVERAL
    },
    Command {
        id: Id::Touch, name: "touch", flags: READONLY | FAST, since: "3.2.1", key_access: &["RO"],
        summary: "Counts the keys that exist, and notes that they were used.", ..SEVERAL
    },
    Command {
        id: Id::Expire, name: "expire", syntax: "key seconds [NX|XX|GT|LT]",
        summary: "Makes a key expire after so many seconds.", ..EXPIRE
    },
    Command {
        id: Id::Pexpire, name: "pexpire", since: "2.6.0", syntax: "key milliseconds [NX|XX|GT|LT]",
        summary: "Makes a key expire after so many milliseconds.", ..EXPIRE
    },
    Command {
        id: Id::Expireat, name: "expireat", since: "1.2.0", syntax: "key unix-time-seconds [NX|XX|GT|LT]",
        summary: "Makes a key expire at a time in seconds.", ..EXPIRE
    },
    Command {
        id: Id::Pexpireat, name: "pexpireat", since: "2.6.0", syntax: "key unix-time-milliseconds [NX|XX|GT|LT]",
        summary: "Makes a key expire at a time in milliseconds.", ..EXPIRE
    },
    Command {
        id: Id::Ttl, name: "ttl", tips: &["nondeterministic_output"],
        summary: "Returns how many seconds a key has left.", ..ASK
    },
    Command {
        id: Id::Pttl, name: "pttl", since: "2.6.0", tips: &["nondeterministic_output"],
        summary: "Returns how many milliseconds a key has left.", ..ASK
    },
    Command {
        id: Id::Expiretime, name: "expiretime", since: "7.0.0",
        summary: "Returns the time in seconds at which a key expires.", ..ASK
    },
    Command {
        id: Id::Pexpiretime, name: "pexpiretime", since: "7.0.0",
        summary: "Returns the time in milliseconds at which a key expires.", ..ASK
    },
    Command {
        id: Id::Persist, name: "persist", arity: 2, since: "2.2.0", syntax: "key",
        summary: "Makes a key expire never.", ..EXPIRE
    },
    Command {
        id: Id::Type, name: "type", key_access: &["RO"],
        summary: "Returns the type of a key: string, hash, set or zset, or none if it does not exist.", ..ASK
    },
    Command {
        id: Id::Keys, name: "keys", arity: 2, flags: READONLY, syntax: "pattern",
        complexity: "O(N) where N is the number of keys.",
        tips: &["request_policy:all_shards", "nondeterministic_output_order"],
        summary: "Returns all keys that match a pattern.", ..WHOLE
    },
    Command {
        id: Id::Scan, name: "scan", arity: -2, flags: READONLY, since: "2.8.0",
        syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
        complexity: "O(1) for a call, O(N) for all of them where N is the number of keys.",
        tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
        summary: "Returns some of the keys, and where to go on.", ..WHOLE
    },
    Command {
        id: Id::Randomkey, name: "randomkey", flags: READONLY,
        tips: &["request_policy:all_shards", "response_policy:special", "nondeterministic_output"],
        summary: "Returns a key by chance.", ..WHOLE
    },
    Command {
        id: Id::Rename, name: "rename", arity: 3, flags: WRITE, keys: Keys::TWO, syntax: "key newkey",
        key_access: &["RW access delete", "OW update"],
        summary: "Gives a value another key, and replaces what that key had.", ..KEYSPACE
    },
    Command {
        id: Id::Renamenx, name: "renamenx", arity: 3, flags: WRITE | FAST, keys: Keys::TWO, syntax: "key newkey",
        key_access: &["RW access delete", "OW insert"],
        summary: "Gives a value another key, if that key does not exist.", ..KEYSPACE
    },
    Command {
        id: Id::Copy, name: "copy", arity: -3, flags: WRITE | DENYOOM, keys: Keys::TWO, since: "6.2.0",
        syntax: "source destination [DB destination-db] [REPLACE]", key_access: &["RO access", "OW update"],
        summary: "Copies a value to another key.", ..KEYSPACE
    },
    Command {
        id: Id::Move, name: "move", arity: 3, flags: WRITE | FAST, syntax: "key db", key_access: &["RW access update"],
        summary: "Moves a value to another database, if the key does not exist there.", ..KEYSPACE
    },
    Command {
        id: Id::Wait, name: "wait", arity: 3, flags: BLOCKING, category: "connection", since: "3.0.0",
        syntax: "numreplicas timeout", tips: &["request_policy:all_shards", "response_policy:agg_min"],
        summary: "Waits for replicas, of which there are none.", ..WHOLE
    },
    Command {
        id: Id::Object, name: "object", arity: -2, category: "", since: "2.2.3",
        complexity: "Depends on the subcommand.",
        summary: "Tells what is known of a key.", subcommands: &[
            Command {
                id: Id::ObjectEncoding, name: "encoding",
                summary: "Returns how a value would be encoded in Redis.", ..OBJECT
            },
            Command {
                id: Id::ObjectFreq, name: "freq", since: "4.0.0",
                summary: "Returns how warm a key is, from 0 to 3.", ..OBJECT
            },
            Command {
                id: Id::ObjectHelp, name: "help", arity: 2, flags: LOADING | STALE, keys: Keys::NONE, since: "6.2.0",
                key_access: &[], tips: &[], syntax: "",
                summary: "Returns what OBJECT can do.", ..OBJECT
            },
            Command {
                id: Id::ObjectIdletime, name: "idletime",
                summary: "Returns how many seconds ago a key was used.", ..OBJECT
            },
            Command {
                id: Id::ObjectRefcount, name: "refcount",
                summary: "Returns how many references a value has, which is always 1.", ..OBJECT
            },
        ], ..WHOLE
    },
    Command {
        id: Id::Larder, name: "larder", arity: -2, category: "", complexity: "Depends on the subcommand.",
        summary: "Tells what Redis has no command for.", subcommands: &[
            Command {
                id: Id::LarderHelp, name: "help", arity: 2, flags: LOADING | STALE, keys: Keys::NONE,
                key_access: &[], tips: &[], syntax: "",
                summary: "Returns what LARDER can do.", ..OBJECT
            },
            Command {
                id: Id::LarderItem, name: "item",
                summary: "Returns what the clients of memcached see of a key: flags, CAS number, times, lengths.",
                ..OBJECT
            },
        ], ..WHOLE
    },

    Command {
        id: Id::Multi, name: "multi", flags: TRANSACTION.flags | NO_MULTI, since: "1.2.0",
        summary: "Begins a transaction: the commands that follow are executed together by EXEC.", ..TRANSACTION
    },
    Command {
        id: Id::Exec, name: "exec", flags: NOSCRIPT | LOADING | STALE | SKIP_SLOWLOG | SESSION, since: "1.2.0",
        complexity: "Depends on the commands of the transaction.",
        summary: "Executes the commands of a transaction.", ..TRANSACTION
    },
    Command {
        id: Id::Discard, name: "discard", since: "2.0.0",
        complexity: "O(N) where N is the number of commands of the transaction.",
        summary: "Ends a transaction without executing it.", ..TRANSACTION
    },
    Command {
        id: Id::Watch, name: "watch", arity: -2, flags: TRANSACTION.flags | NO_MULTI, keys: Keys::ALL, since: "2.2.0",
        syntax: "key...", key_access: &["RO"], complexity: "O(1) for every key.",
        summary: "Makes the next EXEC do nothing if one of the keys has changed by then.", ..TRANSACTION
    },
    Command {
        id: Id::Unwatch, name: "unwatch", since: "2.2.0",
        summary: "Forgets the keys of WATCH.", ..TRANSACTION
    },
];
