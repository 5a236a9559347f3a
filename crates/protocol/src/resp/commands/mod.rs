//! The table of all commands.

mod channels;
mod connection;
mod generic;
mod hash;
mod server;
mod set;
mod sorted_set;
mod string;

use super::command::Command;

/// The groups of the table.
pub(super) const GROUPS: [&[Command]; 8] = [
    string::COMMANDS,
    hash::COMMANDS,
    set::COMMANDS,
    sorted_set::COMMANDS,
    generic::COMMANDS,
    connection::COMMANDS,
    channels::COMMANDS,
    server::COMMANDS,
];

/// Why a command of Redis is not here: what a client is told behind `unknown command 'x': `. `None` for a name that
/// Redis does not have either.
pub fn absence(name: &[u8]) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let name = std::str::from_utf8(&name).ok()?;
    ABSENT.iter().find(|(names, _)| names.split(' ').any(|absent| absent == name)).map(|(_, why)| *why)
}

const LISTS: &str = "Larder has no lists";
const STREAMS: &str = "Larder has no streams";
const GEO: &str = "Larder has no geographic indexes";
const LOGS: &str = "Larder has no HyperLogLogs";
const FUNCTIONS: &str = "Larder runs scripts (EVAL) and keeps no functions";
const COPIES: &str = "Larder has no replicas";
const FILES: &str = "Larder keeps no snapshot and no log of commands";

/// Names of commands, and why they are not here.
const ABSENT: &[(&str, &str)] = &[
    (
        "lpush rpush lpushx rpushx lpop rpop llen lindex linsert lrange lrem lset ltrim lmove lmpop lpos rpoplpush \
         blpop brpop brpoplpush blmove blmpop",
        LISTS,
    ),
    ("sort sort_ro", "Larder does not sort what a key holds"),
    ("bzpopmin bzpopmax bzmpop", "Larder has no blocking commands"),
    (
        "xadd xdel xlen xrange xrevrange xread xreadgroup xgroup xack xclaim xautoclaim xpending xinfo xtrim xsetid",
        STREAMS,
    ),
    (
        "geoadd geodist geohash geopos georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch \
         geosearchstore",
        GEO,
    ),
    ("pfadd pfcount pfmerge pfdebug pfselftest", LOGS),
    ("fcall fcall_ro", FUNCTIONS),
    ("replicaof slaveof psync sync replconf failover waitaof", COPIES),
    ("save bgsave bgrewriteaof dump restore restore-asking migrate", FILES),
    ("bitop bitfield bitfield_ro lcs msetex", "Larder does not have this command on strings"),
    ("module", "Larder loads no modules"),
    (
        "monitor",
        "Larder does not stream the commands of all clients; `watch` of the memcached protocol tells of them",
    ),
    ("debug", "Larder has no debugging commands"),
];
