//! Readiness: epoll or kqueue, through `mio`. A turn is the same as with a ring, with a system call for each receive.
//!
//! Events report changes only. A connection that is known to be readable stays so until a read finds nothing.

use std::io::{self, ErrorKind, Read};
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::input::ReceiveMemory;
use super::link::{Driver, Link};
use super::listen::Listener;
use super::service::{Conversation, Service};
use super::shared::hush;
use super::worker::Worker;

/// Bytes of the arena, which holds everything that is received in one batch.
pub(super) const ARENA_BYTES: usize = 64 * 1024;
/// With less room than this in the arena, what was received is served first.
const ROOM_BYTES_MIN: usize = 4096;
const EVENTS: usize = 256;
/// The most connections that one listener takes in during a turn.
const ACCEPTS: usize = 8;
const TICK: Duration = Duration::from_secs(1);
const TICK_HURRIED: Duration = Duration::from_millis(20);

const BELL: usize = 0;
const LISTENERS: usize = 1;
const SERVICE: usize = (1 << 16) - 1;
const DATAGRAMS: usize = 1 << 16;
const CONNECTIONS: usize = 1 << 20;

/// Received bytes in the arena. The next batch begins when all of them are given back.
#[derive(Debug)]
pub(super) struct Filled {
    from: usize,
    length: usize,
}

/// What the poll knows of one connection.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    /// A read may find bytes, the end or an error.
    readable: bool,
    /// Waits in `PollDriver::readable`.
    listed: bool,
    /// The client sends no more: read on until the end is found.
    peer_closed: bool,
    /// The system reports room in the socket too.
    watches_room: bool,
}

pub(super) struct PollDriver {
    poll: Poll,
    arena: Box<[u8]>,
    used: usize,
    /// Slots to read from.
    readable: Vec<usize>,
    bell: UnixStream,
    listeners: Option<Rc<[Listener]>>,
    /// Listeners that may have a connection waiting.
    incoming: Vec<bool>,
    listening: bool,
    tick: Duration,
}

impl PollDriver {
    pub(super) fn new(bell: UnixStream, listeners: Option<Rc<[Listener]>>) -> io::Result<PollDriver> {
        let poll = Poll::new()?;
        bell.set_nonblocking(true)?;
        let watch =
            |fd: i32, token| poll.registry().register(&mut SourceFd(&fd), Token(token), Interest::READABLE);
        watch(bell.as_raw_fd(), BELL)?;
        for (number, listener) in listeners.iter().flat_map(|listeners| listeners.iter()).enumerate() {
            listener.socket.set_nonblocking(true)?;
            watch(listener.socket.as_raw_fd(), LISTENERS + number)?;
        }
        Ok(PollDriver {
            poll,
            arena: vec![0; ARENA_BYTES].into(),
            used: 0,
            readable: Vec::new(),
            bell,
            incoming: vec![true; listeners.as_ref().map_or(0, |listeners| listeners.len())],
            listeners,
            listening: true,
            tick: TICK,
        })
    }

    fn list(&mut self, slot: usize, state: &mut Readiness) {
        if !mem::replace(&mut state.listed, true) {
            self.readable.push(slot);
        }
    }

    fn has_incoming(&self) -> bool {
        self.listening && self.incoming.contains(&true)
    }
}

impl ReceiveMemory for PollDriver {
    type Filled = Filled;

    fn bytes<'a>(&'a self, filled: &'a Filled) -> &'a [u8] {
        &self.arena[filled.from..filled.from + filled.length]
    }

    fn bytes_mut<'a>(&'a mut self, filled: &'a mut Filled) -> &'a mut [u8] {
        &mut self.arena[filled.from..filled.from + filled.length]
    }

    fn give_back(&mut self, _filled: Filled) {}
}

impl Driver for PollDriver {
    type PerConnection = Readiness;

    fn open<C: Conversation>(&mut self, slot: usize, link: &mut Link<C, Self>) {
        let token = Token(CONNECTIONS + slot);
        let watched = link.info().socket.set_nonblocking(true).and_then(|()| {
            self.poll.registry().register(&mut SourceFd(&link.info().fd), token, Interest::READABLE)
        });
        if watched.is_err() {
            link.fail();
        }
        // The first request has often arrived with the connection, and a broken socket has to be looked at.
        link.state.readable = true;
        self.list(slot, &mut link.state);
    }

    fn steer<C: Conversation>(&mut self, slot: usize, link: &mut Link<C, Self>) {
        if link.is_blocked() != link.state.watches_room {
            link.state.watches_room = link.is_blocked();
            let interest =
                if link.is_blocked() { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            let token = Token(CONNECTIONS + slot);
            let _ = self.poll.registry().reregister(&mut SourceFd(&link.info().fd), token, interest);
        }
        if link.state.readable && link.wants_receive() {
            self.list(slot, &mut link.state);
        }
    }

    fn close<C: Conversation>(&mut self, _slot: usize, link: &mut Link<C, Self>) {
        let _ = self.poll.registry().deregister(&mut SourceFd(&link.info().fd));
    }

    fn is_busy(_state: &Readiness) -> bool {
        false
    }

    fn listen(&mut self, on: bool) {
        self.listening = on;
        if on {
            self.incoming.fill(true);
        }
    }

    fn stop_listening(&mut self) {
        for listener in self.listeners.take().iter().flat_map(|listeners| listeners.iter()) {
            let _ = self.poll.registry().deregister(&mut SourceFd(&listener.socket.as_raw_fd()));
        }
        self.incoming.clear();
    }

    fn hurry(&mut self) {
        self.tick = TICK_HURRIED;
    }
}

/// Runs a worker until it is stopped.
pub(super) fn run<S: Service>(worker: &mut Worker<S, PollDriver>) -> io::Result<()> {
    for (number, fd) in worker.udp.fds().enumerate() {
        let token = Token(DATAGRAMS + number);
        worker.driver.poll.registry().register(&mut SourceFd(&fd), token, Interest::READABLE)?;
    }
    let service_fd = worker.service.wake_fd();
    if let Some(fd) = service_fd {
        worker.driver.poll.registry().register(&mut SourceFd(&fd), Token(SERVICE), Interest::READABLE)?;
    }
    let mut events = Events::with_capacity(EVENTS);
    let mut udp_pending: Vec<usize> = Vec::new();
    let mut ticked = Instant::now();
    while !worker.is_finished() {
        let driver = &worker.driver;
        let busy = worker.has_work()
            || !driver.readable.is_empty()
            || driver.has_incoming()
            || !udp_pending.is_empty();
        let patience = if busy { Duration::ZERO } else { driver.tick.saturating_sub(ticked.elapsed()) };
        worker.service.before_wait();
        let polled = worker.driver.poll.poll(&mut events, Some(patience));
        worker.service.after_wait();
        worker.counters().waits.add(1);
        match polled {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            Err(_) => continue,
            Ok(()) => {}
        }
        for event in &events {
            match event.token().0 {
                BELL => {
                    hush(&mut worker.driver.bell);
                    worker.rung();
                }
                SERVICE => {
                    worker.woken();
                    // Events report changes only. Registering again asks whether the descriptor is readable now.
                    if let Some(fd) = service_fd {
                        let registry = worker.driver.poll.registry();
                        registry.reregister(&mut SourceFd(&fd), Token(SERVICE), Interest::READABLE)?;
                    }
                }
                at if at >= CONNECTIONS => connection_event(worker, at - CONNECTIONS, event),
                at if at >= DATAGRAMS => {
                    if !udp_pending.contains(&(at - DATAGRAMS)) {
                        udp_pending.push(at - DATAGRAMS);
                    }
                }
                at => {
                    worker.driver.incoming.iter_mut().skip(at - LISTENERS).take(1).for_each(|is| *is = true)
                }
            }
        }
        accept(worker);
        receive(worker);
        worker.serve_ready();
        worker.driver.used = 0;
        udp_pending.retain(|number| worker.datagrams(*number));
        if ticked.elapsed() >= worker.driver.tick {
            ticked = Instant::now();
            worker.tick();
        }
    }
    Ok(())
}

fn connection_event<S: Service>(worker: &mut Worker<S, PollDriver>, slot: usize, event: &mio::event::Event) {
    let Some((link, driver)) = worker.link_and_driver(slot) else { return };
    let failed = event.is_error() || event.is_write_closed();
    link.state.peer_closed |= event.is_read_closed() || failed;
    if event.is_readable() || link.state.peer_closed {
        link.state.readable = true;
        driver.list(slot, &mut link.state);
    }
    if link.is_blocked() && (event.is_writable() || failed) {
        worker.writable(slot, Ok(0));
    }
}

fn accept<S: Service>(worker: &mut Worker<S, PollDriver>) {
    for number in 0..worker.driver.incoming.len() {
        for _ in 0..ACCEPTS {
            let driver = &worker.driver;
            if !driver.listening || !driver.incoming.get(number).is_some_and(|is| *is) {
                break;
            }
            let Some(listeners) = &driver.listeners else { return };
            let listeners = Rc::clone(listeners);
            match listeners[number].socket.accept() {
                Ok((socket, _)) => worker.accepted(socket, &listeners[number]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => worker.driver.incoming[number] = false,
                Err(error) => worker.accept_failed(&error),
            }
        }
    }
}

/// Reads once from each connection that has something, and serves what there is whenever the arena is full.
fn receive<S: Service>(worker: &mut Worker<S, PollDriver>) {
    let mut slots = mem::take(&mut worker.driver.readable);
    for slot in slots.drain(..) {
        if worker.driver.arena.len() - worker.driver.used < ROOM_BYTES_MIN {
            worker.serve_ready();
            worker.driver.used = 0;
        }
        read_one(worker, slot);
    }
    // Connections that became readable meanwhile have their turn in the next round.
    slots.append(&mut worker.driver.readable);
    worker.driver.readable = slots;
}

fn read_one<S: Service>(worker: &mut Worker<S, PollDriver>, slot: usize) {
    let Some((link, driver)) = worker.link_and_driver(slot) else { return };
    link.state.listed = false;
    if link.is_broken() {
        return worker.ended(slot, true);
    }
    // `steer` lists the connection again when input is wanted.
    if !link.state.readable || !link.wants_receive() {
        return;
    }
    let room = &mut driver.arena[driver.used..];
    let received = loop {
        match (&link.info().socket).read(room) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => break other,
        }
    };
    match received {
        Ok(0) => worker.ended(slot, false),
        Ok(length) => {
            // A read that does not fill the room has emptied the socket. More input will be a new event.
            link.state.readable = length == room.len() || link.state.peer_closed;
            if link.state.readable {
                driver.list(slot, &mut link.state);
            }
            let filled = Filled { from: driver.used, length };
            driver.used += length;
            worker.receive(slot, filled);
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => link.state.readable = false,
        Err(_) => worker.ended(slot, true),
    }
}
