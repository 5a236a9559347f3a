//! The server as a whole, and fleets of servers.

use crate::resp::command::flags::{
    ADMIN, ALLOW_BUSY, FAST, LOADING, MOVABLEKEYS, NO_MANDATORY_KEYS, NO_MULTI, NOSCRIPT, READONLY, SESSION,
    STALE, WRITE,
};
use crate::resp::command::{Command, Id, Keys};

const SERVER: Command = Command { group: "server", ..Command::ROW };
const FLUSH: Command = Command {
    arity: -1,
    flags: WRITE,
    category: "keyspace",
    syntax: "[ASYNC|SYNC]",
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    ..SERVER
};
const ADMINISTER: Command = Command { arity: 2, flags: ADMIN | NOSCRIPT | LOADING | STALE, ..SERVER };
const HELP: Command = Command { arity: 2, flags: LOADING | STALE, since: "6.2.0", ..SERVER };
const COMMAND: Command =
    Command { arity: 2, flags: LOADING | STALE, category: "connection", since: "2.8.13", ..SERVER };
const CLUSTER: Command =
    Command { arity: 2, flags: LOADING | STALE, group: "cluster", since: "3.0.0", ..SERVER };
const ROUTING: Command = Command {
    flags: LOADING | STALE | FAST,
    category: "connection",
    group: "cluster",
    since: "3.0.0",
    ..SERVER
};
const SCRIPTING: Command =
    Command { flags: NOSCRIPT, category: "scripting", group: "scripting", since: "7.0.0", ..SERVER };
const RUN: Command = Command {
    arity: -3,
    flags: NOSCRIPT | STALE | NO_MANDATORY_KEYS | MOVABLEKEYS,
    keys: Keys::COUNTED,
    key_access: &["RW access update"],
    complexity: "Depends on the script.",
    ..SCRIPTING
};
const VARIES: &[&str] = &["nondeterministic_output"];
const EVERY_NODE: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];
const EACH_NODE: &[&str] =
    &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];
const EACH_SHARD: &[&str] =
    &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];
const BY_SUBCOMMAND: &str = "Depends on the subcommand.";

#[rustfmt::skip] // A row reads as a card.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        id: Id::Dbsize, name: "dbsize", flags: READONLY | FAST, category: "keyspace",
        tips: &["request_policy:all_shards", "response_policy:agg_sum"],
        summary: "Counts the keys in memory.", ..SERVER
    },
    Command {
        id: Id::Flushdb, name: "flushdb",
        summary: "Deletes all keys, at once and whatever their number.", ..FLUSH
    },
    Command {
        id: Id::Flushall, name: "flushall",
        summary: "Deletes all keys, at once and whatever their number.", ..FLUSH
    },
    Command {
        id: Id::Flushprefix, name: "flushprefix", arity: 2, syntax: "prefix",
        summary: "Deletes the keys that begin with a prefix, at once and whatever their number. Only Larder has it.",
        ..FLUSH
    },
    Command {
        id: Id::Swapdb, name: "swapdb", arity: 3, flags: WRITE | FAST, category: "keyspace", since: "4.0.0",
        syntax: "index1 index2",
        summary: "Exchanges two databases: at once, and for all clients.", ..SERVER
    },
    Command {
        id: Id::Time, name: "time", flags: LOADING | STALE | FAST, since: "2.6.0", tips: VARIES,
        summary: "Returns the time in seconds, and the microseconds of the present second.", ..SERVER
    },
    Command {
        id: Id::Info, name: "info", arity: -1, flags: LOADING | STALE, category: "dangerous", tips: EACH_SHARD,
        syntax: "[section...]",
        summary: "Returns what is known of the server.", ..SERVER
    },
    Command {
        id: Id::Role, name: "role", flags: ADMIN | NOSCRIPT | LOADING | STALE | FAST, since: "2.8.12",
        summary: "Returns master: there are no replicas.", ..SERVER
    },
    Command {
        id: Id::Lastsave, name: "lastsave", flags: ADMIN | LOADING | STALE | FAST, tips: VARIES,
        summary: "Returns when the server was started: nothing is saved.", ..SERVER
    },
    Command {
        id: Id::Lolwut, name: "lolwut", arity: -1, flags: READONLY | FAST, since: "5.0.0",
        syntax: "[VERSION version]",
        summary: "Draws a shelf, and returns the version.", ..SERVER
    },
    Command {
        id: Id::Shutdown, name: "shutdown", arity: -1,
        flags: ADMIN | NOSCRIPT | LOADING | STALE | NO_MULTI | ALLOW_BUSY | SESSION,
        syntax: "[NOSAVE|SAVE] [NOW] [FORCE] [ABORT]",
        summary: "Stops the server, if the settings allow it.", ..SERVER
    },
    Command {
        id: Id::Acl, name: "acl", arity: -2, since: "6.0.0", complexity: BY_SUBCOMMAND,
        summary: "Tells about users.", subcommands: &[
            Command {
                id: Id::AclWhoami, name: "whoami", arity: 2, flags: NOSCRIPT | LOADING | STALE, since: "6.0.0",
                summary: "Returns the name of the user who has logged in.", ..SERVER
            },
        ], ..SERVER
    },
    Command {
        id: Id::Command, name: "command", arity: -1, complexity: "O(N) where N is the number of commands.",
        tips: &["nondeterministic_output_order"],
        summary: "Returns what is known of all commands.", subcommands: &[
            Command {
                id: Id::CommandCount, name: "count",
                summary: "Counts the commands.", ..COMMAND
            },
            Command {
                id: Id::CommandDocs, name: "docs", arity: -2, since: "7.0.0", syntax: "[command-name...]",
                tips: &["nondeterministic_output_order"],
                summary: "Returns the documentation of commands.", ..COMMAND
            },
            Command {
                id: Id::CommandGetkeys, name: "getkeys", arity: -3, syntax: "command [arg...]",
                summary: "Returns the keys of a request.", ..COMMAND
            },
            Command {
                id: Id::CommandGetkeysandflags, name: "getkeysandflags", arity: -3, since: "7.0.0",
                syntax: "command [arg...]",
                summary: "Returns the keys of a request, and what happens to them.", ..COMMAND
            },
            Command {
                id: Id::CommandHelp, name: "help", since: "5.0.0",
                summary: "Returns what COMMAND can do.", ..COMMAND
            },
            Command {
                id: Id::CommandInfo, name: "info", arity: -2, syntax: "[command-name...]",
                tips: &["nondeterministic_output_order"],
                summary: "Returns what is known of some commands.", ..COMMAND
            },
            Command {
                id: Id::CommandList, name: "list", arity: -2, since: "7.0.0",
                syntax: "[FILTERBY <MODULE module-name|ACLCAT category|PATTERN pattern>]",
                tips: &["nondeterministic_output_order"],
                summary: "Returns the names of commands.", ..COMMAND
            },
        ], ..COMMAND
    },
    Command {
        id: Id::Config, name: "config", arity: -2, since: "2.0.0", complexity: BY_SUBCOMMAND,
        summary: "Tells the settings, and changes some of them.", subcommands: &[
            Command {
                id: Id::ConfigGet, name: "get", arity: -3, since: "2.0.0", syntax: "parameter...",
                summary: "Returns settings by name or pattern.", ..ADMINISTER
            },
            Command {
                id: Id::ConfigHelp, name: "help", since: "5.0.0",
                summary: "Returns what CONFIG can do.", ..HELP
            },
            Command {
                id: Id::ConfigResetstat, name: "resetstat", since: "2.0.0", tips: EVERY_NODE,
                summary: "Makes the statistics count from 0.", ..ADMINISTER
            },
            Command {
                id: Id::ConfigRewrite, name: "rewrite", since: "2.8.0", tips: EVERY_NODE,
                summary: "Is refused: the server does not write its settings file.", ..ADMINISTER
            },
            Command {
                id: Id::ConfigSet, name: "set", arity: -4, since: "2.0.0", syntax: "<parameter value>...",
                tips: EVERY_NODE,
                summary: "Changes settings.", ..ADMINISTER
            },
        ], ..SERVER
    },
    Command {
        id: Id::Memory, name: "memory", arity: -2, since: "4.0.0", complexity: BY_SUBCOMMAND,
        summary: "Tells about memory.", subcommands: &[
            Command {
                id: Id::MemoryDoctor, name: "doctor", arity: 2, since: "4.0.0", tips: EACH_SHARD,
                summary: "Returns a text about the state of memory.", ..SERVER
            },
            Command {
                id: Id::MemoryHelp, name: "help", since: "4.0.0",
                summary: "Returns what MEMORY can do.", ..HELP
            },
            Command {
                id: Id::MemoryMallocStats, name: "malloc-stats", arity: 2, flags: LOADING, since: "4.0.0",
                tips: EACH_SHARD,
                summary: "Returns a text: items do not come from an allocator.", ..SERVER
            },
            Command {
                id: Id::MemoryPurge, name: "purge", arity: 2, flags: LOADING, since: "4.0.0",
                tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
                summary: "Is accepted and changes nothing.", ..SERVER
            },
            Command {
                id: Id::MemoryStats, name: "stats", arity: 2, since: "4.0.0", tips: EACH_SHARD,
                summary: "Returns how memory is used.", ..SERVER
            },
            Command {
                id: Id::MemoryUsage, name: "usage", arity: -3, flags: READONLY, keys: Keys::SUB, since: "4.0.0",
                syntax: "key [SAMPLES count]", key_access: &["RO"],
                summary: "Returns how many bytes a key and its value take.", ..SERVER
            },
        ], ..SERVER
    },
    Command {
        id: Id::Latency, name: "latency", arity: -2, since: "2.8.13", complexity: BY_SUBCOMMAND,
        summary: "Tells how long commands take.", subcommands: &[
            Command {
                id: Id::LatencyDoctor, name: "doctor", since: "2.8.13", tips: EACH_NODE,
                summary: "Returns a text about latency.", ..ADMINISTER
            },
            Command {
                id: Id::LatencyGraph, name: "graph", arity: 3, since: "2.8.13", syntax: "event", tips: EACH_NODE,
                summary: "Is refused: no events are recorded.", ..ADMINISTER
            },
            Command {
                id: Id::LatencyHelp, name: "help", since: "2.8.13",
                summary: "Returns what LATENCY can do.", ..HELP
            },
            Command {
                id: Id::LatencyHistogram, name: "histogram", arity: -2, since: "7.0.0", syntax: "[command...]",
                tips: EACH_NODE,
                summary: "Returns how long commands took, in microseconds.", ..ADMINISTER
            },
            Command {
                id: Id::LatencyHistory, name: "history", arity: 3, since: "2.8.13", syntax: "event", tips: EACH_NODE,
                summary: "Returns nothing: no events are recorded.", ..ADMINISTER
            },
            Command {
                id: Id::LatencyLatest, name: "latest", since: "2.8.13", tips: EACH_NODE,
                summary: "Returns nothing: no events are recorded.", ..ADMINISTER
            },
            Command {
                id: Id::LatencyReset, name: "reset", arity: -2, since: "2.8.13", syntax: "[event...]",
                tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
                summary: "Returns 0: no events are recorded.", ..ADMINISTER
            },
        ], ..SERVER
    },
    Command {
        id: Id::Slowlog, name: "slowlog", arity: -2, since: "2.2.12", complexity: BY_SUBCOMMAND,
        summary: "Tells which commands were slow.", subcommands: &[
            Command {
                id: Id::SlowlogGet, name: "get", arity: -2, flags: ADMIN | LOADING | STALE, since: "2.2.12",
                syntax: "[count]", tips: &["request_policy:all_nodes", "nondeterministic_output"],
                complexity: "O(N) where N is the number of entries.",
                summary: "Returns slow commands, the latest first.", ..ADMINISTER
            },
            Command {
                id: Id::SlowlogHelp, name: "help",
                summary: "Returns what SLOWLOG can do.", ..HELP
            },
            Command {
                id: Id::SlowlogLen, name: "len", flags: ADMIN | LOADING | STALE, since: "2.2.12",
                tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
                summary: "Counts the slow commands that are remembered.", ..ADMINISTER
            },
            Command {
                id: Id::SlowlogReset, name: "reset", flags: ADMIN | LOADING | STALE, since: "2.2.12",
                tips: EVERY_NODE,
                summary: "Forgets the slow commands.", ..ADMINISTER
            },
        ], ..SERVER
    },
    Command {
        id: Id::Function, name: "function", arity: -2, group: "scripting", since: "7.0.0",
        complexity: BY_SUBCOMMAND,
        summary: "Tells about functions, of which there are none.", subcommands: &[
            Command {
                id: Id::FunctionFlush, name: "flush", arity: -2, flags: WRITE | NOSCRIPT, syntax: "[ASYNC|SYNC]",
                tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
                summary: "Is accepted: there are no functions to delete.", ..SCRIPTING
            },
            Command {
                id: Id::FunctionList, name: "list", arity: -2,
                syntax: "[LIBRARYNAME library-name-pattern] [WITHCODE]",
                summary: "Returns nothing: there are no functions.", ..SCRIPTING
            },
        ], ..SERVER
    },
    Command {
        id: Id::Script, name: "script", arity: -2, group: "scripting", since: "2.6.0",
        complexity: BY_SUBCOMMAND,
        summary: "Keeps scripts, and tells about them.", subcommands: &[
            Command {
                id: Id::ScriptDebug, name: "debug", arity: -3, since: "3.2.0", syntax: "<YES|SYNC|NO>",
                summary: "Is refused: scripts are not debugged.", ..SCRIPTING
            },
            Command {
                id: Id::ScriptExists, name: "exists", arity: -3, flags: NOSCRIPT | STALE, since: "2.6.0",
                syntax: "sha1...", complexity: "O(N) where N is the number of scripts.",
                tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
                summary: "Returns 1 for each script that is kept, and 0 for others.", ..SCRIPTING
            },
            Command {
                id: Id::ScriptFlush, name: "flush", arity: -2, flags: NOSCRIPT | STALE, since: "2.6.0",
                syntax: "[ASYNC|SYNC]", complexity: "O(N) where N is the number of scripts.", tips: EVERY_NODE,
                summary: "Forgets all scripts.", ..SCRIPTING
            },
            Command {
                id: Id::ScriptHelp, name: "help", since: "5.0.0",
                summary: "Returns what SCRIPT can do.", ..HELP
            },
            Command {
                id: Id::ScriptKill, name: "kill", arity: 2, flags: NOSCRIPT | ALLOW_BUSY, since: "2.6.0",
                tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
                summary: "Finds no script to stop: each is stopped by the server (--script-ms).", ..SCRIPTING
            },
            Command {
                id: Id::ScriptLoad, name: "load", arity: 3, flags: NOSCRIPT | STALE, since: "2.6.0",
                syntax: "script", tips: EVERY_NODE, complexity: "O(N) where N is the length of the script.",
                summary: "Keeps a script, and returns its digest.", ..SCRIPTING
            },
            Command {
                id: Id::ScriptShow, name: "show", arity: 3, flags: NOSCRIPT | STALE, since: "8.0.0",
                syntax: "sha1", summary: "Returns the text of a script.", ..SCRIPTING
            },
        ], ..SERVER
    },
    Command {
        id: Id::Eval, name: "eval", since: "2.6.0", syntax: "script numkeys [key...] [arg...]",
        summary: "Executes a script in Lua.", ..RUN
    },
    Command {
        id: Id::Evalsha, name: "evalsha", since: "2.6.0", syntax: "sha1 numkeys [key...] [arg...]",
        summary: "Executes a script that is kept, by its digest.", ..RUN
    },
    Command {
        id: Id::EvalRo, name: "eval_ro", flags: RUN.flags | READONLY, key_access: &["RO access"],
        syntax: "script numkeys [key...] [arg...]",
        summary: "Executes a script in Lua that changes nothing.", ..RUN
    },
    Command {
        id: Id::EvalshaRo, name: "evalsha_ro", flags: RUN.flags | READONLY, key_access: &["RO access"],
        syntax: "sha1 numkeys [key...] [arg...]",
        summary: "Executes a script that is kept and changes nothing, by its digest.", ..RUN
    },

    Command {
        id: Id::Asking, name: "asking", flags: FAST,
        summary: "Is accepted and changes nothing: no slot is being moved.", ..ROUTING
    },
    Command {
        id: Id::Readonly, name: "readonly",
        summary: "Is accepted and changes nothing: there are no replicas.", ..ROUTING
    },
    Command {
        id: Id::Readwrite, name: "readwrite",
        summary: "Is accepted and changes nothing: there are no replicas.", ..ROUTING
    },
    Command {
        id: Id::Cluster, name: "cluster", arity: -2, flags: 0, complexity: BY_SUBCOMMAND,
        summary: "Tells which server has which keys.", subcommands: &[
            Command {
                id: Id::ClusterCountkeysinslot, name: "countkeysinslot", arity: 3, flags: STALE, syntax: "slot",
                complexity: "O(N) where N is the number of keys in memory.",
                summary: "Counts the keys of a slot in memory.", ..CLUSTER
            },
            Command {
                id: Id::ClusterGetkeysinslot, name: "getkeysinslot", arity: 4, flags: STALE, syntax: "slot count",
                tips: VARIES, complexity: "O(N) where N is the number of keys in memory.",
                summary: "Returns keys of a slot.", ..CLUSTER
            },
            Command {
                id: Id::ClusterHelp, name: "help", since: "5.0.0",
                summary: "Returns what CLUSTER can do.", ..CLUSTER
            },
            Command {
                id: Id::ClusterInfo, name: "info", tips: VARIES,
                summary: "Returns the state of the fleet.", ..CLUSTER
            },
            Command {
                id: Id::ClusterKeyslot, name: "keyslot", arity: 3, flags: STALE, syntax: "key",
                complexity: "O(N) where N is the length of the key.",
                summary: "Returns the slot of a key.", ..CLUSTER
            },
            Command {
                id: Id::ClusterLinks, name: "links", flags: STALE, since: "7.0.0", tips: VARIES,
                summary: "Returns nothing: servers do not talk to each other.", ..CLUSTER
            },
            Command {
                id: Id::ClusterMyid, name: "myid",
                summary: "Returns the name of this server.", ..CLUSTER
            },
            Command {
                id: Id::ClusterMyshardid, name: "myshardid", since: "7.2.0", tips: VARIES,
                summary: "Returns the name of this server's part of the fleet.", ..CLUSTER
            },
            Command {
                id: Id::ClusterNodes, name: "nodes", tips: VARIES,
                complexity: "O(N) where N is the number of servers.",
                summary: "Returns all servers of the fleet, one on each line.", ..CLUSTER
            },
            Command {
                id: Id::ClusterReplicas, name: "replicas", arity: 3, flags: ADMIN | STALE, since: "5.0.0",
                syntax: "node-id", tips: VARIES,
                summary: "Returns nothing: there are no replicas.", ..CLUSTER
            },
            Command {
                id: Id::ClusterShards, name: "shards", since: "7.0.0", tips: VARIES,
                complexity: "O(N) where N is the number of servers.",
                summary: "Returns all servers of the fleet with their slots.", ..CLUSTER
            },
            Command {
                id: Id::ClusterSlots, name: "slots", tips: VARIES,
                complexity: "O(N) where N is the number of ranges of slots.",
                summary: "Returns all ranges of slots with their servers.", ..CLUSTER
            },
        ], ..CLUSTER
    },
];
