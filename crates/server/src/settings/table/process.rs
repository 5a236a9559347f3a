//! The process around the server, and its log.

use crate::settings::process::LOG_FORMAT;
use crate::settings::row::Takes::{Count, Value};
use crate::settings::row::{At, Change, PREPARED, ROW, Row, Topic, at};
use crate::settings::values::{By, PATH, SWITCH, USER, whole};

const PROCESS: Row = Row { topic: Topic::Process, change: PREPARED, ..ROW };

/// How often `-v` was given, as far as it counts.
const VERBOSITY: By<u8> = By(|text| whole(text, 0, 255).map(|times| times.min(3) as u8), u8::to_string);

#[rustfmt::skip] // A row reads as a card.
pub(super) static ROWS: &[Row] = &[
    Row { letter: Some('d'), name: "daemon",
        help: "run in the background; the command returns once the server answers, or with an error if it could not \
               start",
        value: at!(daemonize, SWITCH), ..PROCESS },
    Row { letter: Some('P'), name: "pidfile", takes: Value("FILE"), example: "/tmp/larder.pid",
        help: "file that holds the process id while the server runs",
        value: at!(pidfile, PATH), ..PROCESS },
    Row { letter: Some('u'), name: "user", takes: Value("USER"), example: "nobody",
        help: "user to run as when started as root, by name or number; without it the server stays root",
        value: at!(user, USER), ..PROCESS },
    Row { letter: Some('r'), name: "enable-coredumps",
        help: "raise the size limit of core files to the maximum that the system allows",
        value: at!(core_dumps, SWITCH), ..PROCESS },
    Row { letter: Some('v'), name: "verbose", takes: Count, default: Some(""), example: "2", topic: Topic::Watching,
        help: "log events to stderr; -vv also requests and answers, -vvv also internal steps",
        value: at!(verbosity, VERBOSITY),
        change: Change::Live(|running, _, new| {
            running.set_verbosity(new.verbosity);
            Ok(())
        }), ..PROCESS },
    Row { name: "log-format", takes: Value("NAME"), example: "json", topic: Topic::Watching,
        help: "format of the log: compact (text for people) or json (one object per line)",
        value: at!(log_format, LOG_FORMAT), ..PROCESS },
];
