//! Connections.

use crate::resp::command::flags::{
    ADMIN, ALLOW_BUSY, FAST, LOADING, NO_AUTH, NO_MULTI, NOSCRIPT, SESSION, STALE,
};
use crate::resp::command::{Command, Id};

const CONNECTION: Command = Command { category: "connection", group: "connection", ..Command::ROW };
const OPENING: Command = Command {
    arity: -1,
    flags: NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY | SESSION,
    ..CONNECTION
};
const CLIENT: Command =
    Command { arity: 2, flags: NOSCRIPT | LOADING | STALE | ALLOW_BUSY | SESSION, ..CONNECTION };
const CLIENT_ADMIN: Command = Command { flags: ADMIN | NOSCRIPT | LOADING | STALE | SESSION, ..CLIENT };
const EVERY_NODE: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

#[rustfmt::skip] // A row reads as a card.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        id: Id::Ping, name: "ping", arity: -1, flags: FAST, syntax: "[message]",
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        summary: "Answers PONG, or the message.", ..CONNECTION
    },
    Command {
        id: Id::Echo, name: "echo", arity: 2, flags: LOADING | STALE | FAST, syntax: "message",
        summary: "Answers the message.", ..CONNECTION
    },
    Command {
        id: Id::Select, name: "select", arity: 2,
        flags: LOADING | STALE | FAST | ALLOW_BUSY | SESSION, syntax: "index",
        summary: "Chooses the database of the connection.", ..CONNECTION
    },
    Command {
        id: Id::Quit, name: "quit",
        summary: "Closes the connection.", ..OPENING
    },
    Command {
        id: Id::Reset, name: "reset", arity: 1, since: "6.2.0",
        summary: "Makes the connection as it was when it was opened.", ..OPENING
    },
    Command {
        id: Id::Hello, name: "hello", since: "6.0.0",
        syntax: "[<protover [AUTH <username password>] [SETNAME clientname]>]",
        summary: "Chooses the version of the protocol, and tells about the server.", ..OPENING
    },
    Command {
        id: Id::Auth, name: "auth", arity: -2, syntax: "[username] password",
        complexity: "O(N) where N is the number of users.",
        summary: "Logs in.", ..OPENING
    },
    Command {
        id: Id::Client, name: "client", arity: -2, category: "", flags: SESSION, since: "2.4.0",
        complexity: "Depends on the subcommand.",
        summary: "Tells about connections, and changes them.", subcommands: &[
            Command {
                id: Id::ClientCaching, name: "caching", arity: 3, since: "6.0.0", syntax: "<YES|NO>",
                summary: "Decides whether the keys that the next command reads are tracked.", ..CLIENT
            },
            Command {
                id: Id::ClientGetname, name: "getname", since: "2.6.9",
                summary: "Returns the name of the connection.", ..CLIENT
            },
            Command {
                id: Id::ClientGetredir, name: "getredir", since: "6.0.0",
                summary: "Returns the number of the connection that hears of the tracked keys.", ..CLIENT
            },
            Command {
                id: Id::ClientHelp, name: "help", flags: LOADING | STALE, since: "5.0.0",
                summary: "Returns what CLIENT can do.", ..CLIENT
            },
            Command {
                id: Id::ClientId, name: "id", since: "5.0.0",
                summary: "Returns the number of the connection.", ..CLIENT
            },
            Command {
                id: Id::ClientInfo, name: "info", flags: NOSCRIPT | LOADING | STALE | SESSION, since: "6.2.0",
                tips: &["nondeterministic_output"],
                summary: "Returns what is known of the connection.", ..CLIENT
            },
            Command {
                id: Id::ClientKill, name: "kill", arity: -3, since: "2.4.0",
                syntax: "<ip:port|<[ID client-id] [TYPE <NORMAL|MASTER|REPLICA|PUBSUB>] [USER username] \
                         [ADDR ip:port] [LADDR ip:port] [SKIPME <YES|NO>] [MAXAGE maxage]>...>",
                complexity: "O(N) where N is the number of connections.",
                summary: "Closes connections.", ..CLIENT_ADMIN
            },
            Command {
                id: Id::ClientList, name: "list", arity: -2,
                syntax: "[TYPE <NORMAL|MASTER|REPLICA|PUBSUB>] [ID client-id...]",
                tips: &["nondeterministic_output"], complexity: "O(N) where N is the number of connections.",
                summary: "Returns what is known of all connections that speak this protocol.", ..CLIENT_ADMIN
            },
            Command {
                id: Id::ClientNoEvict, name: "no-evict", arity: 3, flags: CLIENT_ADMIN.flags | ALLOW_BUSY,
                since: "7.0.0", syntax: "<ON|OFF>",
                summary: "Is accepted and changes nothing.", ..CLIENT_ADMIN
            },
            Command {
                id: Id::ClientNoTouch, name: "no-touch", arity: 3, since: "7.2.0", syntax: "<ON|OFF>",
                summary: "Decides whether commands of the connection count as a use of the keys that they read.",
                ..CLIENT
            },
            Command {
                id: Id::ClientPause, name: "pause", arity: -3, since: "3.0.0", syntax: "timeout [WRITE|ALL]",
                summary: "Is accepted and changes nothing.", ..CLIENT_ADMIN
            },
            Command {
                id: Id::ClientReply, name: "reply", arity: 3, flags: CLIENT.flags | NO_MULTI, since: "3.2.0",
                syntax: "<ON|OFF|SKIP>",
                summary: "Decides whether commands are answered.", ..CLIENT
            },
            Command {
                id: Id::ClientSetinfo, name: "setinfo", arity: 4, since: "7.2.0", tips: EVERY_NODE,
                syntax: "<LIB-NAME libname|LIB-VER libver>",
                summary: "Notes the name or the version of the client's library.", ..CLIENT
            },
            Command {
                id: Id::ClientSetname, name: "setname", arity: 3, since: "2.6.9", tips: EVERY_NODE,
                syntax: "connection-name",
                summary: "Names the connection.", ..CLIENT
            },
            Command {
                id: Id::ClientTracking, name: "tracking", arity: -3, since: "6.0.0",
                syntax: "<ON|OFF> [REDIRECT client-id] [PREFIX prefix...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
                flags: NOSCRIPT | LOADING | STALE | SESSION,
                summary: "Decides whether the connection is told of changes of keys that it has read.", ..CLIENT
            },
            Command {
                id: Id::ClientTrackinginfo, name: "trackinginfo", since: "6.2.0",
                flags: NOSCRIPT | LOADING | STALE | SESSION,
                summary: "Returns how the connection tracks keys.", ..CLIENT
            },
            Command {
                id: Id::ClientUnblock, name: "unblock", arity: -3, since: "5.0.0",
                syntax: "client-id [TIMEOUT|ERROR]",
                summary: "Returns 0: no connection waits.", ..CLIENT_ADMIN
            },
            Command {
                id: Id::ClientUnpause, name: "unpause", since: "6.2.0",
                summary: "Is accepted and changes nothing.", ..CLIENT_ADMIN
            },
        ], ..CONNECTION
    },
];
