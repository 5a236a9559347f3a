//! What clients may say, and who they have to be.

use crate::settings::all::Settings;
use crate::settings::network::{PROTOCOL as NAMES, Protocol};
use crate::settings::row::Takes::Value;
use crate::settings::row::{At, BY_FILE, CONNECTIONS, Change, Effects, ROW, Row, Topic, at};
use crate::settings::values::{CHARACTER, PATH, SWITCH, SWITCH_OFF, Whole};

const PROTOCOL: Row = Row { topic: Topic::Protocol, change: CONNECTIONS, ..ROW };

/// Another file may be named, but not whether there is one.
fn users_of_another_file(running: &dyn Effects, now: &Settings, new: &Settings) -> Result<(), String> {
    if new.auth_file.is_some() != now.auth_file.is_some() {
        return Err(
            "whether clients log in is decided at the start; only the file may be another one".to_owned()
        );
    }
    running.read_users(new)
}

#[rustfmt::skip] // A row reads as a card.
pub(super) static ROWS: &[Row] = &[
    Row { letter: Some('B'), name: "protocol", takes: Value("NAME"), example: "ascii",
        help: "protocol of the connections: ascii (memcached's text and meta commands), binary (memcached's binary \
               protocol), or auto, which tells them apart by the first byte of a connection",
        value: at!(protocol, NAMES), ..PROTOCOL },
    Row { name: "databases", takes: Value("NUM"), example: "4",
        help: "number of databases that clients of Redis choose from with SELECT, 1 to 256; memcached's clients have \
               database 0",
        value: at!(databases, Whole(1, 256)), change: Change::AtStart("clients have chosen databases"), ..PROTOCOL },
    Row { name: "script-ms", takes: Value("MS"), example: "20",
        help: "stop a script (EVAL) that runs longer, 1 to 60000; while it runs all other requests wait",
        value: at!(script_ms, Whole(1, 60_000)), change: Change::Live(|_, _, _| Ok(())), ..PROTOCOL },
    Row { letter: Some('C'), name: "disable-cas",
        help: "do not use CAS numbers: answers contain none, and no compare-and-swap succeeds",
        value: at!(cas_enabled, SWITCH_OFF), ..PROTOCOL },
    Row { letter: Some('F'), name: "disable-flush-all",
        help: "refuse the commands flush_all, FLUSHALL and FLUSHDB",
        value: at!(flush_enabled, SWITCH_OFF), change: BY_FILE, ..PROTOCOL },
    Row { letter: Some('X'), name: "disable-dumping",
        help: "refuse what lists keys: stats cachedump, lru_crawler metadump and mgdump, KEYS and SCAN",
        value: at!(dump_enabled, SWITCH_OFF), change: BY_FILE, ..PROTOCOL },
    Row { letter: Some('W'), name: "disable-watch",
        help: "refuse the watch command, which streams a log to the client",
        value: at!(watch_enabled, SWITCH_OFF), change: BY_FILE, ..PROTOCOL },
    Row { letter: Some('A'), name: "enable-shutdown",
        help: "allow clients to stop the server with the shutdown command",
        value: at!(shutdown_enabled, SWITCH), change: BY_FILE, ..PROTOCOL },
    Row { name: "enable-debugtime",
        help: "allow clients to move the clock of the server with the command debugtime, for test suites: everything \
               may expire at once, for every client",
        value: at!(debugtime_enabled, SWITCH), change: BY_FILE, ..PROTOCOL },
    Row { letter: Some('Y'), name: "auth-file", takes: Value("FILE"), example: "/tmp/larder.auth",
        help: "require a user name and password on every connection, whatever its protocol; the file has one \
               user:password per line, or readonly user:password for a user who may only read; #DIGEST instead of the \
               password is its SHA-256 digest; read again on SIGHUP",
        value: at!(auth_file, PATH), change: Change::ByFile(users_of_another_file), ..PROTOCOL },
    Row { letter: Some('S'), name: "enable-sasl",
        help: "require a login by SASL PLAIN on every connection, and serve the binary protocol only; the users are in \
               the file of -Y, or in the file that the environment variable MEMCACHED_SASL_PWDB names",
        value: at!(sasl, SWITCH, then |s| if s.sasl { s.protocol = Protocol::Binary; }), ..PROTOCOL },
    Row { letter: Some('D'), name: "prefix-delimiter", takes: Value("CHAR"), example: "/",
        help: "character that ends the prefix of a key in stats detail; giving it also turns that counting on",
        value: at!(prefix_delimiter, CHARACTER, then |s| s.detail_enabled = true), ..PROTOCOL },
    Row { name: "track-sizes", option: Some("track_sizes"),
        help: "count item sizes for the command stats sizes",
        value: at!(track_sizes, SWITCH), change: Change::AtStart("items in memory were not counted"), ..PROTOCOL },
];
