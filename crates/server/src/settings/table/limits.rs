//! How much the server takes on, and with which threads.

use crate::settings::names::Names;
use crate::settings::row::Takes::{List, Value};
use crate::settings::row::{ARENA, At, Change, LIVE, ROW, Row, THREADS, Topic, at};
use crate::settings::units::MIB;
use crate::settings::values::{Bytes, CPUS, Maybe, SWITCH, Whole};

const LIMITS: Row = Row { topic: Topic::Limits, change: THREADS, ..ROW };

#[rustfmt::skip] // A row reads as a card.
pub(super) static ROWS: &[Row] = &[
    Row { letter: Some('c'), name: "conn-limit", takes: Value("NUM"), example: "10000",
        help: "maximum number of client connections at the same time",
        value: at!(connections_max, Whole(1, 1 << 30)),
        change: Change::Live(|running, now, new| running.make_room_for_connections(now, new.connections_max)),
        ..LIMITS },
    Row { name: "maxconns-fast", option: Some("maxconns_fast"),
        help: "answer a connection beyond the limit (-c) with an error and close it; with =false it waits until \
               another one closes",
        value: at!(maxconns_fast, SWITCH), change: LIVE, ..LIMITS },
    Row { name: "address-conn-limit", takes: Value("NUM"), example: "100",
        help: "maximum number of TCP connections from one address at the same time, where an IPv6 address stands for \
               its network of 64 bits; one beyond is answered with an error and closed; 0 is no limit",
        value: at!(connections_per_address_max, Whole(0, 1 << 30)), change: LIVE, ..LIMITS },
    Row { name: "read-buf-mem-limit", option: Some("read_buf_mem_limit"), takes: Value("NUM"), example: "32m",
        help: "the part of the memory (-m) that input and output of all connections may take together, in MiB, or with \
               a suffix k, m or g; a sixteenth, and at least 4m, if not given; never less than the workers need, and \
               never more than a quarter",
        value: at!(buffers_bytes, Maybe(Bytes(MIB, 1 << 20, 1 << 40))), change: ARENA, ..LIMITS },
    Row { name: "idle-timeout", option: Some("idle_timeout"), takes: Value("SECONDS"), example: "300",
        help: "close a connection after this many seconds without a request; 0 is never",
        value: at!(idle_timeout_s, Whole(0, i32::MAX as u32)), change: LIVE, ..LIMITS },
    Row { letter: Some('t'), name: "threads", takes: Value("NUM"), example: "2",
        help: "number of worker threads",
        value: at!(threads, Whole(1, 1024)), ..LIMITS },
    Row { name: "pin-cpus", takes: List("CPUS"), example: "0-3,8",
        help: "bind each worker to its own CPU: off, auto, or a list with one CPU per worker, such as 0-3,8",
        value: at!(pin_cpus, CPUS), ..LIMITS },
    Row { name: "numa", takes: Value("NAME"), example: "on",
        help: "bind the workers to the machine's NUMA nodes in turn (on), and let each store items in memory of its \
               node while there is some; on a machine with one node this changes nothing; not with --keep",
        value: at!(numa, Names(&[("off", false), ("on", true)])), ..LIMITS },
    Row { letter: Some('R'), name: "max-reqs-per-event", takes: Value("NUM"), example: "100",
        help: "maximum number of requests answered on one connection before the worker turns to the next one",
        value: at!(requests_per_event, Whole(1, i32::MAX as u32)), ..LIMITS },
];
