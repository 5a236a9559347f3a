//! Connections that wait for something that is not their client, on both backends.

use std::io::{Read, Write};
use std::net::{Shutdown, UdpSocket};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::io_support::{Server, WAIT_MAX, ask, eventually, expect, expect_closed};

with_both_backends! {
    fn a_connection_that_waits_goes_on_where_it_stopped(backend) {
        let server = Server::start(backend, |_| {});
        let (mut one, mut other) = (server.connect(), server.connect());
        one.write_all(b"echo before\nlater one\necho between\nlater two\necho after\n").unwrap();
        expect(&mut one, "before\n");
        // The worker serves others meanwhile, and does not ask the one that waits (its service would panic).
        for _ in 0..100 {
            ask(&mut other, "echo still here\n", "still here\n");
        }
        let turns = server.running().counters().snapshot().waits;
        thread::sleep(Duration::from_millis(300));
        let idle_turns = server.running().counters().snapshot().waits - turns;
        assert!(idle_turns < 50, "the worker spins: {idle_turns} turns");
        server.release("one");
        expect(&mut one, "one\nbetween\n");
        // What is sent while it waits is kept, and counts.
        one.write_all(b"echo more\n").unwrap();
        server.release("two");
        expect(&mut one, "two\nafter\nmore\n");
        server.stop();
    }

    fn news_at_the_end_of_a_batch_are_heard_without_the_descriptor(backend) {
        let server = Server::start(backend, |_| {});
        let mut client = server.connect();
        for round in 0..5 {
            client.write_all(format!("echo before\nsoon now{round}\necho after\n").as_bytes()).unwrap();
            expect(&mut client, &format!("before\nnow{round}\nafter\n"));
        }
        // The news are of something else: what was said before leaves all the same.
        client.write_all(b"echo before\nrumour now\necho after\n").unwrap();
        expect(&mut client, "before\n");
        server.release("now");
        expect(&mut client, "now\nafter\n");
        server.stop();
    }

    fn many_wait_and_each_gets_its_own(backend) {
        let server = Server::start(backend, |options| options.workers = 2);
        let mut clients: Vec<_> = (0..50).map(|_| server.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.write_all(format!("later c{number}\necho e{number}\n").as_bytes()).unwrap();
        }
        for number in (0..50).rev() {
            server.release(&format!("c{number}"));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            expect(client, &format!("c{number}\ne{number}\n"));
        }
        server.stop();
    }

    fn a_client_that_sends_no_more_is_still_answered(backend) {
        let server = Server::start(backend, |_| {});
        let mut client = server.connect();
        client.write_all(b"later last\n").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        eventually("it waits", || server.has_later("last"));
        // The worker that answers this has heard of the end before.
        ask(&mut server.connect(), "echo later\n", "later\n");
        server.release("last");
        let mut got = String::new();
        client.read_to_string(&mut got).unwrap();
        assert_eq!(got, "last\n");
        server.stop();
    }

    fn what_comes_for_a_connection_that_left_wakes_nobody(backend) {
        let server = Server::start(backend, |_| {});
        for round in 0..5 {
            let leaves = server.connect();
            (&leaves).write_all(format!("later left{round}\n").as_bytes()).unwrap();
            eventually("it waits", || server.has_later(&format!("left{round}")));
            let socket = socket2::Socket::from(leaves);
            socket.set_linger(Some(Duration::ZERO)).unwrap();
            drop(socket);
            if backend == larder_server::io::Backend::Ring {
                eventually("closed", || server.seen.closed.load(Ordering::Relaxed) == 2 * round + 1);
            }
            // It has the slot of the one that left, if that is free by now, and waits itself.
            let mut stays = server.connect();
            stays.write_all(format!("later stays{round}\n").as_bytes()).unwrap();
            eventually("it waits too", || server.has_later(&format!("stays{round}")));
            server.release(&format!("left{round}"));
            let mut other = server.connect();
            ask(&mut other, "echo served\n", "served\n");
            drop(other);
            server.release(&format!("stays{round}"));
            expect(&mut stays, &format!("stays{round}\n"));
            drop(stays);
            let all = || server.seen.opened.load(Ordering::Relaxed) == server.seen.closed.load(Ordering::Relaxed);
            eventually("all closed", all);
            server.seen.opened.store(2 * round + 2, Ordering::Relaxed);
            server.seen.closed.store(2 * round + 2, Ordering::Relaxed);
        }
        server.stop();
    }

    fn who_waits_is_not_idle(backend) {
        let server = Server::start(backend, |options| options.idle_timeout_s = 1);
        let mut waits = server.connect();
        waits.write_all(b"later kept\n").unwrap();
        // Two are idle for a second each, one after the other.
        for _ in 0..2 {
            let mut idles = server.connect();
            ask(&mut idles, "echo idle\n", "idle\n");
            expect_closed(&mut idles);
        }
        server.release("kept");
        expect(&mut waits, "kept\n");
        server.stop();
    }

    fn a_graceful_stop_waits_for_what_is_on_its_way(backend) {
        let mut server = Server::start(backend, |_| {});
        let mut client = server.connect();
        client.write_all(b"later promised\n").unwrap();
        eventually("it waits", || server.has_later("promised"));
        server.running().stopper().stop_gracefully(WAIT_MAX);
        eventually("it stops", || server.running().stopper().is_stopping());
        server.release("promised");
        expect(&mut client, "promised\n");
        expect_closed(&mut client);
        server.running.take().unwrap().join().unwrap();
    }

    fn a_graceful_stop_does_not_wait_for_ever(backend) {
        let mut server = Server::start(backend, |_| {});
        let mut client = server.connect();
        client.write_all(b"later never\n").unwrap();
        eventually("it waits", || server.has_later("never"));
        server.running().stopper().stop_gracefully(Duration::from_millis(100));
        expect_closed(&mut client);
        server.running.take().unwrap().join().unwrap();
    }

    fn datagrams_wait_too(backend) {
        let server = Server::start(backend, |options| {
            options.udp_port = Some(0);
            options.tcp_port = None;
        });
        let at = server.running().addresses().udp[0];
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(WAIT_MAX)).unwrap();
        let ask = |number: u8, text: &str| {
            let mut datagram = vec![0, number, 0, 0, 0, 1, 0, 0];
            datagram.extend_from_slice(text.as_bytes());
            client.send_to(&datagram, at).unwrap();
        };
        let answer = || {
            let mut datagram = [0; 1500];
            let length = client.recv(&mut datagram).unwrap();
            (datagram[1], String::from_utf8_lossy(&datagram[8..length]).into_owned())
        };
        ask(1, "echo a\nlater b\necho c\nlater d\n");
        ask(2, "echo quick\n");
        assert_eq!(answer(), (2, "quick\n".to_owned()));
        server.release("b");
        server.release("d");
        assert_eq!(answer(), (1, "a\nb\nc\nd\n".to_owned()));
        ask(3, "later left behind\n");
        eventually("it waits", || server.has_later("left behind"));
        server.stop();
    }
}
