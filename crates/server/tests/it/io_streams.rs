//! Streams on both backends: input cut in any way, slow clients, and clients that close first.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::io_support::{Server, ask, eventually, expect, expect_closed, letter};

with_both_backends! {
    fn requests_may_be_cut_at_every_byte(backend) {
        let server = Server::start(backend, |_| {});
        let request = "echo one\necho\nbody 12\nhello\nworld!echo end\n";
        let sum: u64 = b"hello\nworld!".iter().map(|byte| u64::from(*byte)).sum();
        let reply = format!("one\n\n12 {sum}\nend\n");
        let mut client = server.connect();
        for cut in 0..=request.len() {
            client.write_all(&request.as_bytes()[..cut]).unwrap();
            let sent = (cut * request.len() + cut) as u64;
            eventually("it is read", || server.running().counters().snapshot().bytes_read == sent);
            client.write_all(&request.as_bytes()[cut..]).unwrap();
            expect(&mut client, &reply);
        }
        for byte in request.as_bytes() {
            client.write_all(&[*byte]).unwrap();
        }
        expect(&mut client, &reply);
        let pools = server.running().buffers().used_bytes();
        drop(client);
        eventually("closed", || server.running().counters().snapshot().curr_connections == 0);
        assert_eq!(server.running().buffers().used_bytes(), pools, "no left-over is kept after a whole request");
        server.stop();
    }

    fn pipelined_requests_are_answered_in_order(backend) {
        let server = Server::start(backend, |_| {});
        let mut clients: Vec<TcpStream> = (0..8).map(|_| server.connect()).collect();
        for round in 0..5 {
            for (number, client) in clients.iter_mut().enumerate() {
                let requests: String = (0..200).map(|i| format!("echo {round}-{number}-{i}\n")).collect();
                client.write_all(requests.as_bytes()).unwrap();
            }
            for (number, client) in clients.iter_mut().enumerate() {
                let replies: String = (0..200).map(|i| format!("{round}-{number}-{i}\n")).collect();
                expect(client, &replies);
            }
        }
        let counted = server.running().counters().snapshot();
        assert_eq!(counted.curr_connections, 8);
        assert!(counted.bytes_read > counted.bytes_written && counted.bytes_written > 8 * 5 * 200 * 5);
        server.stop();
    }

    fn a_long_body_arrives_whole(backend) {
        let server = Server::start(backend, |options| options.ring_buffers = 8);
        let body: Vec<u8> = (0..3_000_000).map(|i| (i % 251) as u8).collect();
        let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut client = server.connect();
                    for _ in 0..2 {
                        client.write_all(format!("body {}\n", body.len()).as_bytes()).unwrap();
                        client.write_all(&body).unwrap();
                        client.write_all(b"echo next\n").unwrap();
                        expect(&mut client, &format!("{} {sum}\nnext\n", body.len()));
                    }
                });
            }
        });
        server.stop();
    }

    fn a_slow_reader_bounds_its_own_memory_and_stops_nobody(backend) {
        let server = Server::start(backend, |_| {});
        let mut slow = server.connect();
        const LENGTH: usize = 30_000_000;
        // The requests after it fill the socket, and wait their turn.
        slow.write_all(format!("big {LENGTH}\n").as_bytes()).unwrap();
        let more = "echo after\n".repeat(1000);
        slow.write_all(more.as_bytes()).unwrap();
        let mut other = server.connect();
        for _ in 0..50 {
            ask(&mut other, "echo quick\n", "quick\n");
        }
        assert!(server.seen.output_bytes_max.load(Ordering::Relaxed) < 64 * 1024);
        let buffered = server.running().buffers().used_bytes();
        assert!(buffered < 4 << 20, "{buffered}");
        let report = server.running().registry().report(server.running().now_s());
        assert!(report.iter().any(|one| one.state == "conn_mwrite"), "{report:?}");
        let mut got = vec![0; LENGTH + 1];
        slow.read_exact(&mut got).unwrap();
        assert!(got[..LENGTH].iter().enumerate().all(|(at, byte)| *byte == letter(at)) && got[LENGTH] == b'\n');
        expect(&mut slow, &"after\n".repeat(1000));
        ask(&mut slow, "echo alive\n", "alive\n");
        server.stop();
    }

    fn a_client_that_only_writes_is_held_back_and_loses_nothing(backend) {
        let server = Server::start(backend, |options| options.buffers_limit_bytes = 8 << 20);
        let client = server.connect();
        let mut reading = client.try_clone().unwrap();
        let line = format!("echo {}\n", "z".repeat(995));
        let reply = &line[5..];
        const COUNT: usize = 20_000;
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = &client;
                for _ in 0..COUNT / 100 {
                    client.write_all(line.repeat(100).as_bytes()).unwrap();
                }
            });
            // On a machine that gives the server less time, the test sees less.
            thread::sleep(Duration::from_millis(150));
            let buffered = server.running().buffers().used_bytes();
            assert!(buffered < 5 << 20, "reading goes on without bound: {buffered}");
            for _ in 0..COUNT / 100 {
                expect(&mut reading, &reply.repeat(100));
            }
        });
        server.stop();
    }

    fn half_closed_clients_still_get_their_replies(backend) {
        let server = Server::start(backend, |_| {});
        let mut client = server.connect();
        client.write_all(b"echo a\nbig 5000000\necho b\necho unfinished").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert!(got.starts_with(b"a\nabc") && got.ends_with(b"\nb\n"));
        assert_eq!(got.len(), 2 + 5_000_001 + 2);
        eventually("closed", || server.running().counters().snapshot().curr_connections == 0);
        server.stop();
    }

    fn quit_closes_after_the_replies(backend) {
        let server = Server::start(backend, |_| {});
        let mut client = server.connect();
        ask(&mut client, "echo last\nquit\necho never\n", "last\n");
        expect_closed(&mut client);
        eventually("closed", || server.running().counters().snapshot().curr_connections == 0);
        server.stop();
    }

    fn connections_come_and_go(backend) {
        let server = Server::start(backend, |options| options.workers = 2);
        thread::scope(|scope| {
            for thread in 0..4 {
                let server = &server;
                scope.spawn(move || {
                    for i in 0..120 {
                        let mut client = server.connect();
                        ask(&mut client, &format!("echo {i}\n"), &format!("{i}\n"));
                        match (i + thread) % 4 {
                            0 => client.write_all(b"big 2000000\n").unwrap(),
                            1 => client.write_all(b"echo cut of").unwrap(),
                            2 => client.write_all(b"quit\n").unwrap(),
                            _ => {}
                        }
                    }
                });
            }
        });
        let counters = server.running().counters();
        eventually("all closed", || counters.snapshot().curr_connections == 0);
        assert_eq!(counters.snapshot().total_connections, 480);
        assert_eq!(server.running().registry().report(9).len(), 1, "the listening socket");
        server.stop();
    }

    fn unix_sockets_serve_and_replace_a_dead_server(backend) {
        let directory = std::env::temp_dir().join(format!("larder-io-{}-{backend:?}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let server = Server::start(backend, |options| {
            options.tcp_port = None;
            options.unix = Some((path.clone(), 0o700));
        });
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let mut client = UnixStream::connect(&path).unwrap();
        ask(&mut client, "echo unix\n", "unix\n");
        client.write_all(b"big 1000000\n").unwrap();
        let mut got = vec![0; 1_000_001];
        client.read_exact(&mut got).unwrap();
        let report = server.running().registry().report(5);
        assert!(report.iter().all(|one| one.addr == format!("unix:{}", path.display())), "{report:?}");
        server.stop();
        assert!(!path.exists());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
