//! Where the server listens.

use crate::settings::network::BACKEND;
use crate::settings::row::Takes::{List as Many, Value};
use crate::settings::row::{At, LISTENERS, LIVE, ROW, Row, THREADS, at};
use crate::settings::values::{ADDRESS, ADMIN, Bytes, HOST, List, MODE, PATH, PORT, SWITCH, Whole};

const NETWORK: Row = Row { change: LISTENERS, ..ROW };

#[rustfmt::skip] // A row reads as a card.
pub(super) static ROWS: &[Row] = &[
    Row { letter: Some('p'), name: "port", takes: Value("NUM"), example: "-1",
        help: "TCP port to listen on; 0 turns TCP off, -1 picks any free port; if it is not given, the UDP port (-U), \
               where there is one",
        value: at!(tcp_port, PORT), ..NETWORK },
    Row { letter: Some('U'), name: "udp-port", takes: Value("NUM"), example: "11311",
        help: "UDP port to listen on; 0 turns UDP off, -1 picks any free port; without -l, UDP is for this machine \
               only",
        value: at!(udp_port, PORT), ..NETWORK },
    Row { name: "resp-port", takes: Value("NUM"), example: "6379",
        help: "TCP port on which every connection speaks RESP, the protocol of Redis; 0 turns it off, -1 picks any \
               free port; on the TCP port (-p), a connection speaks RESP if its first byte is *",
        value: at!(resp_port, PORT), ..NETWORK },
    Row { name: "udp-reply-limit", takes: Value("NUM"), example: "10m",
        help: "bytes of replies that one address gets over UDP in a second, or with a suffix k, m or g; 0 is no limit; \
               further requests are dropped, because the address may be forged; addresses of this machine have no \
               limit",
        value: at!(udp_reply_bytes_per_s, Bytes(1, 0, 1 << 40)), ..NETWORK },
    Row { letter: Some('l'), name: "listen", takes: Many("ADDR"), example: "127.0.0.1:11300,[::1]:11301,localhost",
        help: "addresses to listen on, separated by commas, each as host, host:port or [v6]:port; without them, TCP \
               has all addresses of the machine, where clients of other machines need users (-Y) or --open, and UDP \
               has the loopback addresses; notls:, btls: or mtls: before an address says how it is encrypted, see -Z",
        value: at!(addresses, List(ADDRESS, &[',', ';'])), ..NETWORK },
    Row { name: "open",
        help: "serve clients of other machines although no address is named (-l) and nobody asks for a password (-Y) \
               or a certificate (--tls-verify require); without it they are told why they are turned away",
        value: at!(open, SWITCH), change: LIVE, ..NETWORK },
    Row { letter: Some('s'), name: "unix-socket", takes: Value("FILE"), example: "/tmp/larder.sock",
        help: "path of a UNIX socket to listen on instead of the ports of -p and -U",
        value: at!(unix_socket, PATH), ..NETWORK },
    Row { letter: Some('a'), name: "unix-mask", takes: Value("MODE"), example: "0755",
        help: "permission bits of the UNIX socket (-s), in octal",
        value: at!(unix_mask, MODE), ..NETWORK },
    Row { letter: Some('b'), name: "listen-backlog", takes: Value("NUM"), example: "77",
        help: "maximum number of connections that wait to be accepted, per listener",
        value: at!(backlog, Whole(1, 1 << 30)), ..NETWORK },
    Row { name: "backend", takes: Value("NAME"), example: "poll",
        help: "how workers wait for the network: ring (io_uring), poll (epoll), or auto, which takes the ring where \
               the kernel allows it",
        value: at!(backend, BACKEND), change: THREADS, ..NETWORK },
    Row { name: "admin", takes: Value("ADDR"), example: "127.0.0.1:0",
        help: "address of the admin page and of the metrics, as host:port (port 0 picks any free port), or off; if the \
               default address is in use, the server starts without the page",
        value: at!(admin, ADMIN), ..NETWORK },
    Row { name: "admin-host", takes: Many("NAME"), example: "cache-1.example.com,cache.example.com",
        help: "names by which the admin page may be asked for, separated by commas, beside its address, localhost and \
               the name of the machine; requests by other names are refused, because a web page could send them",
        value: at!(admin_hosts, List(HOST, &[','])), ..NETWORK },
];
