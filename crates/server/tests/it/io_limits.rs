//! Limits, timeouts, spreading and stopping, on both backends.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::io_support::{Server, WAIT_MAX, ask, eventually, expect, expect_closed, letter};

with_both_backends! {
    fn one_too_many_is_told_so(backend) {
        let server = Server::start(backend, |options| options.connections_max = 3);
        let mut clients: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| ask(client, "echo in\n", "in\n"));
        let mut fourth = server.connect();
        expect(&mut fourth, "ERROR Too many open connections\r\n");
        expect_closed(&mut fourth);
        assert_eq!(server.running().counters().snapshot().rejected_connections, 1);
        clients.pop();
        eventually("a free place", || server.running().counters().snapshot().curr_connections == 2);
        ask(&mut server.connect(), "echo in\n", "in\n");
        server.stop();
    }

    fn one_too_many_of_an_address_is_told_so(backend) {
        let server = Server::start(backend, |options| {
            options.connections_per_address_max = 2;
            options.connections_max_fast = false;
            options.workers = 2;
        });
        let counters = server.running().counters();
        let mut clients: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| ask(client, "echo in\n", "in\n"));
        for refused in 1..=3 {
            let mut third = server.connect();
            expect(&mut third, "ERROR Too many open connections from this address\r\n");
            expect_closed(&mut third);
            assert_eq!(counters.snapshot().address_rejected_connections, refused);
        }
        assert_eq!(counters.snapshot().rejected_connections, 0);
        clients.pop();
        eventually("a free place", || counters.snapshot().curr_connections == 1);
        ask(&mut server.connect(), "echo in\n", "in\n");
        server.stop();
    }

    fn a_port_of_resp_refuses_in_resp(backend) {
        for (connections_max, per_address, words) in [
            (2, 0, "-ERR max number of clients reached\r\n"),
            (9, 2, "-ERR max number of clients reached for this address\r\n"),
        ] {
            let server = Server::start(backend, |options| {
                options.resp_port = Some(0);
                options.connections_max = connections_max;
                options.connections_per_address_max = per_address;
            });
            let connect = || {
                let client = TcpStream::connect(server.running().addresses().resp[0]).unwrap();
                client.set_read_timeout(Some(WAIT_MAX)).unwrap();
                client
            };
            let mut clients: Vec<TcpStream> = (0..2).map(|_| connect()).collect();
            clients.iter_mut().for_each(|client| ask(client, "echo in\n", "in\n"));
            let mut third = connect();
            expect(&mut third, words);
            expect_closed(&mut third);
            server.stop();
        }
    }

    fn without_fast_rejection_the_next_client_waits(backend) {
        let server = Server::start(backend, |options| {
            options.connections_max = 2;
            options.connections_max_fast = false;
            options.workers = 2;
        });
        let counters = server.running().counters();
        let mut clients: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| ask(client, "echo in\n", "in\n"));
        eventually("accepting stops", || !counters.snapshot().accepting);
        let mut waiting: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
        waiting.iter_mut().for_each(|client| client.write_all(b"echo late\n").unwrap());
        waiting[0].set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let early = waiting[0].read(&mut [0; 8]).unwrap_err().kind();
        assert!(matches!(early, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{early}");
        assert_eq!(counters.snapshot().listen_disabled_num, 1);
        // Each that leaves makes room for one; the kernel decides for which.
        drop(clients);
        waiting[0].set_read_timeout(Some(WAIT_MAX)).unwrap();
        for mut client in waiting {
            expect(&mut client, "late\n");
        }
        eventually("accepting again", || counters.snapshot().accepting);
        assert!(counters.snapshot().time_in_listen_disabled_us > 50_000);
        server.stop();
    }

    fn idle_connections_are_closed(backend) {
        let server = Server::start(backend, |options| options.idle_timeout_s = 1);
        let mut client = server.connect();
        ask(&mut client, "echo hello\n", "hello\n");
        expect_closed(&mut client);
        let counters = server.running().counters();
        eventually("counted", || counters.snapshot().idle_kicks == 1 && counters.snapshot().curr_connections == 0);
        assert!(server.seen.ticks.load(Ordering::Relaxed) >= 1);
        server.stop();
    }

    fn a_request_too_long_for_the_buffers_ends_its_connection(backend) {
        let server = Server::start(backend, |options| options.buffers_limit_bytes = 4 << 20);
        let mut good = server.connect();
        let mut bad = server.connect();
        bad.write_all(b"echo first\nbody 50000000\n").unwrap();
        expect(&mut bad, "first\n");
        let chunk = vec![b'x'; 1 << 16];
        while bad.write_all(&chunk).is_ok() {}
        ask(&mut good, "echo well\n", "well\n");
        assert_eq!(server.running().counters().snapshot().read_out_of_memory, 1);
        server.stop();
    }

    fn one_that_is_told_to_go_and_stays_does_not_stop_its_worker(backend) {
        let server = Server::start(backend, |options| options.buffers_limit_bytes = 4 << 20);
        let mut good = server.connect();
        let mut stays = server.connect();
        stays.write_all(b"body 50000000\n").unwrap();
        stays.write_all(&vec![b'x'; 3 << 20]).unwrap();
        expect(&mut stays, "SERVER_ERROR out of memory reading request\r\n");
        // Its client does not end it. Others fill the memory up to where nobody may hold on to bytes.
        let mut half_sent: Vec<TcpStream> = (0..4).map(|_| server.connect()).collect();
        for client in &mut half_sent {
            client.write_all(b"body 1200000\n").unwrap();
            let _ = client.write_all(&vec![b'x'; 1_100_000]);
        }
        for _ in 0..10 {
            ask(&mut good, "echo well\n", "well\n");
        }
        server.stop();
    }

    fn a_request_too_long_for_the_buffers_is_told_so(backend) {
        let server = Server::start(backend, |options| options.buffers_limit_bytes = 0);
        let mut client = server.connect();
        ask(&mut client, "echo first\necho unfin", "first\nSERVER_ERROR out of memory reading request\r\n");
        expect_closed(&mut client);
        server.stop();
    }

    fn a_pipeline_that_is_sent_whole_before_it_is_read_is_answered(backend) {
        let server = Server::start(backend, |options| options.buffers_limit_bytes = 8 << 20);
        for (request, reply, times) in [
            ("echo a reply of which the socket does not take so many\n", 50, 400_000),
            ("big 999\n", 1000, 200_000),
        ] {
            let mut client = server.connect();
            client.write_all(request.repeat(times).as_bytes()).unwrap();
            let (mut got, mut piece) = (0, vec![0; 1 << 16]);
            while got < reply * times {
                let bytes = client.read(&mut piece).unwrap();
                assert!(bytes > 0, "closed after {got} bytes");
                for (at, byte) in piece[..bytes].iter().enumerate() {
                    assert_eq!(*byte == b'\n', (got + at + 1) % reply == 0);
                }
                got += bytes;
            }
            assert_eq!(got, reply * times);
        }
        server.stop();
    }

    fn connections_are_spread_evenly(backend) {
        let server = Server::start(backend, |options| options.workers = 4);
        let mut clients: Vec<TcpStream> = (0..40).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| ask(client, "echo in\n", "in\n"));
        let counters = server.running().counters();
        assert_eq!(counters.connections_per_worker(), [10; 4]);
        clients.truncate(13);
        eventually("closed", || counters.snapshot().curr_connections == 13);
        clients.extend((0..7).map(|_| server.connect()));
        clients.iter_mut().for_each(|client| ask(client, "echo in\n", "in\n"));
        let spread = counters.connections_per_worker();
        assert!(spread.iter().all(|open| (4..=7).contains(open)), "{spread:?}");
        server.stop();
    }

    fn udp_requests_get_framed_replies(backend) {
        let server = Server::start(backend, |options| {
            options.udp_port = Some(0);
            options.workers = 2;
        });
        let at = server.running().addresses().udp[0];
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(WAIT_MAX)).unwrap();
        client.connect(at).unwrap();
        let ask = |number: u16, total: u16, request: &str| {
            let mut datagram = vec![];
            for word in [number, 0, total, 0] {
                datagram.extend_from_slice(&word.to_be_bytes());
            }
            datagram.extend_from_slice(request.as_bytes());
            client.send(&datagram).unwrap();
        };
        let mut datagram = [0; 2048];
        ask(7, 1, "echo one\necho two\n");
        let length = client.recv(&mut datagram).unwrap();
        assert_eq!(datagram[..length], *b"\x00\x07\x00\x00\x00\x01\x00\x00one\ntwo\n");
        ask(8, 2, "echo in pieces\n");
        client.send(b"short").unwrap();
        ask(0x1234, 1, "big 100000\n");
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        let total = 100_001_usize.div_ceil(1392);
        while pieces.len() < total {
            let length = client.recv(&mut datagram).unwrap();
            assert!(length <= 1400);
            assert_eq!((&datagram[..2], datagram[5]), (&[0x12, 0x34][..], total as u8));
            pieces.push(datagram[..length].to_vec());
        }
        pieces.sort_by_key(|piece| u16::from_be_bytes([piece[2], piece[3]]));
        let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece[8..].iter().copied()).collect();
        assert_eq!(whole.len(), 100_001);
        assert!(whole[..100_000].iter().enumerate().all(|(at, byte)| *byte == letter(at)));
        ask(9, 1, "big 5000000\n");
        ask(10, 1, "echo still here\n");
        let length = client.recv(&mut datagram).unwrap();
        assert_eq!(datagram[8..length], *b"still here\n");
        let counted = server.running().counters().snapshot();
        assert_eq!((counted.udp_requests, counted.udp_dropped), (4, 3));
        assert!(server.running().addresses().port_file().contains(&format!("UDP INET: {}\n", at.port())));
        server.stop();
    }

    fn a_graceful_stop_finishes_what_was_asked(backend) {
        let mut server = Server::start(backend, |options| options.workers = 2);
        let mut idle = server.connect();
        ask(&mut idle, "echo idle\n", "idle\n");
        let mut busy = server.connect();
        const LENGTH: usize = 8_000_000;
        busy.write_all(format!("big {LENGTH}\n").as_bytes()).unwrap();
        expect(&mut busy, "a");
        let running = server.running.take().unwrap();
        running.stopper().stop_gracefully(WAIT_MAX);
        expect_closed(&mut idle);
        assert!(running.stopper().is_stopping());
        let mut got = Vec::new();
        busy.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), LENGTH);
        running.join().unwrap();
        assert!(TcpStream::connect(server.at).is_err());
    }

    fn a_graceful_stop_has_an_end(backend) {
        let mut server = Server::start(backend, |_| {});
        let mut stuck = server.connect();
        stuck.write_all(b"big 100000000\n").unwrap();
        expect(&mut stuck, "a");
        let mut unfinished = server.connect();
        unfinished.write_all(b"echo unfin").unwrap();
        let running = server.running.take().unwrap();
        let started = Instant::now();
        running.stopper().stop_gracefully(Duration::from_millis(200));
        running.join().unwrap();
        assert!(started.elapsed() >= Duration::from_millis(150), "it waits for its time: {:?}", started.elapsed());
    }

    fn a_worker_that_fails_ends_the_server(backend) {
        let mut server = Server::start(backend, |options| options.workers = 2);
        let mut clients = [server.connect(), server.connect()];
        clients.iter_mut().for_each(|client| ask(client, "echo in\n", "in\n"));
        clients[0].write_all(b"echo more\npanic\n").unwrap();
        clients.iter_mut().for_each(expect_closed);
        assert!(server.running.take().unwrap().join().is_err());
        assert!(TcpStream::connect(server.at).is_err());
    }
}
