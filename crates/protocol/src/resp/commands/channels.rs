//! Channels.

use crate::resp::command::flags::{FAST, LOADING, NOSCRIPT, SESSION, STALE};
use crate::resp::command::{Command, Id};

const CHANNELS: Command = Command { category: "pubsub", group: "pubsub", since: "2.0.0", ..Command::ROW };
const SUBSCRIBE: Command = Command { arity: -2, flags: NOSCRIPT | LOADING | STALE | SESSION, ..CHANNELS };
const UNSUBSCRIBE: Command = Command { arity: -1, ..SUBSCRIBE };
const PUBLISH: Command = Command { arity: 3, flags: LOADING | STALE | FAST, ..CHANNELS };
const ABOUT: Command = Command { arity: -2, flags: LOADING | STALE, since: "2.8.0", ..CHANNELS };

#[rustfmt::skip] // A row reads as a card.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        id: Id::Psubscribe, name: "psubscribe", syntax: "pattern...",
        complexity: "O(N) where N is the number of patterns.",
        summary: "Subscribes to all channels that match a pattern.", ..SUBSCRIBE
    },
    Command {
        id: Id::Publish, name: "publish", syntax: "channel message",
        complexity: "O(N+M) where N is the number of clients that hear the message and M that of all patterns.",
        summary: "Sends a message to those who have subscribed to a channel.", ..PUBLISH
    },
    Command {
        id: Id::Pubsub, name: "pubsub", arity: -2, category: "", flags: 0, since: "2.8.0",
        complexity: "Depends on the subcommand.",
        summary: "Tells about channels.", subcommands: &[
            Command {
                id: Id::PubsubChannels, name: "channels", syntax: "[pattern]",
                complexity: "O(N) where N is the number of channels.",
                summary: "Returns the channels that somebody has subscribed to.", ..ABOUT
            },
            Command {
                id: Id::PubsubHelp, name: "help", arity: 2, category: "", since: "6.2.0",
                summary: "Returns what PUBSUB can do.", ..ABOUT
            },
            Command {
                id: Id::PubsubNumpat, name: "numpat", arity: 2,
                summary: "Returns how many patterns somebody has subscribed to.", ..ABOUT
            },
            Command {
                id: Id::PubsubNumsub, name: "numsub", syntax: "[channel...]",
                complexity: "O(N) where N is the number of channels named.",
                summary: "Returns how many have subscribed to each channel.", ..ABOUT
            },
            Command {
                id: Id::PubsubShardchannels, name: "shardchannels", syntax: "[pattern]", since: "7.0.0",
                complexity: "O(N) where N is the number of shard channels.",
                summary: "Returns the shard channels that somebody has subscribed to.", ..ABOUT
            },
            Command {
                id: Id::PubsubShardnumsub, name: "shardnumsub", syntax: "[shardchannel...]", since: "7.0.0",
                complexity: "O(N) where N is the number of channels named.",
                summary: "Returns how many have subscribed to each shard channel.", ..ABOUT
            },
        ], ..CHANNELS
    },
    Command {
        id: Id::Punsubscribe, name: "punsubscribe", syntax: "[pattern...]",
        complexity: "O(N) where N is the number of patterns.",
        summary: "Ends subscriptions to patterns: those that are named, or all.", ..UNSUBSCRIBE
    },
    Command {
        id: Id::Spublish, name: "spublish", syntax: "shardchannel message", since: "7.0.0",
        complexity: "O(N) where N is the number of clients that hear the message.",
        summary: "Sends a message to those who have subscribed to a shard channel.", ..PUBLISH
    },
    Command {
        id: Id::Ssubscribe, name: "ssubscribe", syntax: "shardchannel...", since: "7.0.0",
        complexity: "O(N) where N is the number of channels.",
        summary: "Subscribes to shard channels, which are those of one server of a fleet.", ..SUBSCRIBE
    },
    Command {
        id: Id::Subscribe, name: "subscribe", syntax: "channel...",
        complexity: "O(N) where N is the number of channels.",
        summary: "Subscribes to channels.", ..SUBSCRIBE
    },
    Command {
        id: Id::Sunsubscribe, name: "sunsubscribe", syntax: "[shardchannel...]", since: "7.0.0",
        complexity: "O(N) where N is the number of channels.",
        summary: "Ends subscriptions to shard channels: those that are named, or all.", ..UNSUBSCRIBE
    },
    Command {
        id: Id::Unsubscribe, name: "unsubscribe", syntax: "[channel...]",
        complexity: "O(N) where N is the number of channels.",
        summary: "Ends subscriptions to channels: those that are named, or all.", ..UNSUBSCRIBE
    },
];
