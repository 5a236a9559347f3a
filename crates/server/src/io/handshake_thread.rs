//! A thread that does TLS handshakes.
//!
//! It reads and writes the sockets that are given to it, as far as they are ready, until their handshakes are done.
//! Then it hands them to their workers. It is bounded in every way: a handshake has [`HANDSHAKE_MAX`] of time and
//! [`RECEIVED_BYTES_MAX`] of input, and its memory is in the account of sessions.

use super::accepted::Accepted;
use super::buffers::{Buffers, SessionCharge};
use super::handshakes::{Incoming, WAKER};
use super::left_over::LeftOver;
use super::shared::{Shared, Stage as ServerStage};
use super::tls::{Kernel, SESSION_BYTES, Session, Stage, records};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustls::HandshakeKind;
use rustls::server::{ServerConfig, UnbufferedServerConnection};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The time that a client has from its connection to the end of its handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The most bytes of input that are kept for a handshake: the longest message of one, and its framing.
const RECEIVED_BYTES_MAX: usize = (64 << 10) + (16 << 10);
/// How much less time than others the system gives to a thread that does handshakes, on the scale of nice(2).
const NICENESS: i32 = 5;
const EVENTS: usize = 256;
/// How often the thread looks whether handshakes have taken too long.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// One handshake.
struct Handshake {
    worker: usize,
    accepted: Accepted,
    connection: UnbufferedServerConnection,
    /// Received bytes of records that are not complete.
    received: LeftOver,
    /// What is to be sent, and how much of it is.
    outgoing: Vec<u8>,
    sent: usize,
    /// The first requests of a client that did not wait.
    plain: LeftOver,
    charge: SessionCharge,
    generation: u64,
}

/// What becomes of a handshake.
#[derive(PartialEq, Eq)]
enum Verdict {
    Waits,
    Done,
    Failed,
}

/// A thread's handshakes.
struct HandshakeThread {
    number: usize,
    shared: Arc<Shared>,
    poll: Poll,
    handshakes: Vec<Option<Handshake>>,
    free: Vec<usize>,
    /// When the handshakes in these slots have taken too long, in their order.
    deadlines: VecDeque<(Instant, usize, u64)>,
    generation: u64,
    room: Box<[u8]>,
    kernel: Option<Kernel>,
}

/// Does handshakes until the server stops.
pub(super) fn run(number: usize, poll: Poll, shared: Arc<Shared>, wants_kernel: bool) -> io::Result<()> {
    // Where the system does not allow it, handshakes are as important as requests.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let mut thread = HandshakeThread {
        number,
        shared,
        poll,
        handshakes: Vec::new(),
        free: Vec::new(),
        deadlines: VecDeque::new(),
        generation: 0,
        room: vec![0; 16 << 10].into(),
        kernel: wants_kernel.then(Kernel::probe).flatten(),
    };
    let mut events = Events::with_capacity(EVENTS);
    while thread.shared.stage() == ServerStage::Serving {
        match thread.poll.poll(&mut events, Some(LOOK_EVERY)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        thread.collect();
        for event in &events {
            if event.token() != WAKER {
                thread.advance(event.token().0);
            }
        }
        thread.drop_late();
    }
    thread.drop_all();
    Ok(())
}

impl HandshakeThread {
    /// Takes the new connections.
    fn collect(&mut self) {
        let handshakes = self.shared.handshakes().expect("this thread does them");
        for Incoming { worker, accepted, config } in handshakes.collect(self.number) {
            match self.begin(worker, accepted, config) {
                Ok(slot) => self.advance(slot),
                Err(error) => {
                    self.shared.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!("a TLS handshake cannot begin: {error}");
                }
            }
        }
    }

    fn begin(&mut self, worker: usize, accepted: Accepted, config: Arc<ServerConfig>) -> io::Result<usize> {
        // Whatever fails from here on, the connection is one less.
        let accepted = Counted { accepted: Some(accepted), worker, shared: self.shared.clone() };
        let charge =
            SessionCharge::try_take(&self.shared.buffers, SESSION_BYTES).ok_or(ErrorKind::OutOfMemory)?;
        let connection = UnbufferedServerConnection::new(config).map_err(io::Error::other)?;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.handshakes.push(None);
            self.handshakes.len() - 1
        });
        let socket = &accepted.get().socket;
        let watched = socket.set_nonblocking(true).and_then(|()| {
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), Token(slot), interest)
        });
        if let Err(error) = watched {
            self.free.push(slot);
            return Err(error);
        }
        self.generation += 1;
        self.deadlines.push_back((Instant::now() + HANDSHAKE_MAX, slot, self.generation));
        self.handshakes[slot] = Some(Handshake {
            worker,
            accepted: accepted.take(),
            connection,
            received: LeftOver::default(),
            outgoing: Vec::new(),
            sent: 0,
            plain: LeftOver::default(),
            charge,
            generation: self.generation,
        });
        Ok(slot)
    }

    /// Something has happened to a socket.
    fn advance(&mut self, slot: usize) {
        let Some(handshake) = self.handshakes.get_mut(slot).and_then(Option::as_mut) else { return };
        match handshake.advance(&mut self.room, &self.shared) {
            Verdict::Waits => {}
            Verdict::Done => self.finish(slot),
            Verdict::Failed => {
                self.shared.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                self.drop_one(slot);
            }
        }
    }

    /// The handshake is done: its worker gets the connection.
    fn finish(&mut self, slot: usize) {
        let Some(handshake) = self.release(slot) else { return };
        let counters = &self.shared.counters;
        match handshake.connection.handshake_kind() {
            Some(HandshakeKind::Resumed) => &counters.handshakes_resumed,
            _ => &counters.handshakes_full,
        }
        .fetch_add(1, Ordering::Relaxed);
        let Handshake { worker, mut accepted, connection, received, outgoing, sent, plain, charge, .. } =
            handshake;
        let rest = outgoing[sent..].to_vec();
        accepted.plain = plain;
        match &mut self.kernel {
            Some(kernel) if rest.is_empty() && received.bytes().is_empty() && kernel.knows(&connection) => {
                if let Err(error) = kernel.take_over(connection, &accepted.socket) {
                    tracing::warn!("the kernel does not encrypt, the server will: {error}");
                    self.kernel = None;
                    return self.forget(worker, accepted);
                }
                accepted.is_kernel_tls = true;
            }
            _ => accepted.session = Some(Box::new(Session::new(connection, received, rest, charge))),
        }
        // The ring waits for sockets that block, and the poll makes its own not do so.
        match accepted.socket.set_nonblocking(false) {
            Ok(()) => self.shared.hand_over(worker, accepted),
            Err(_) => self.forget(worker, accepted),
        }
    }

    /// Takes a handshake out of its slot.
    fn release(&mut self, slot: usize) -> Option<Handshake> {
        let handshake = self.handshakes[slot].take()?;
        let fd = handshake.accepted.socket.as_raw_fd();
        let _ = self.poll.registry().deregister(&mut SourceFd(&fd));
        self.free.push(slot);
        Some(handshake)
    }

    /// The connection ends before it began.
    fn drop_one(&mut self, slot: usize) {
        let Some(mut handshake) = self.release(slot) else { return };
        handshake.received.clear(&self.shared.buffers);
        handshake.plain.clear(&self.shared.buffers);
        self.forget(handshake.worker, handshake.accepted);
    }

    fn forget(&self, worker: usize, mut accepted: Accepted) {
        accepted.plain.clear(&self.shared.buffers);
        drop(Counted { accepted: Some(accepted), worker, shared: self.shared.clone() });
    }

    /// Drops handshakes that have taken too long.
    fn drop_late(&mut self) {
        let now = Instant::now();
        while let Some((_, slot, generation)) = self.deadlines.pop_front_if(|(due, ..)| *due <= now) {
            if self.handshakes[slot].as_ref().is_some_and(|one| one.generation == generation) {
                self.shared.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                self.drop_one(slot);
            }
        }
    }

    fn drop_all(&mut self) {
        (0..self.handshakes.len()).for_each(|slot| self.drop_one(slot));
    }
}

/// A connection that counts for its worker. When it is dropped, there is one less.
struct Counted {
    accepted: Option<Accepted>,
    worker: usize,
    shared: Arc<Shared>,
}

impl Counted {
    fn get(&self) -> &Accepted {
        self.accepted.as_ref().expect("it is taken only once")
    }

    fn take(mut self) -> Accepted {
        self.accepted.take().expect("it is taken only once")
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.accepted.take().is_some() {
            self.shared.counters.workers[self.worker].assigned.fetch_sub(1, Ordering::Relaxed);
            self.shared.one_less();
        }
    }
}

impl Handshake {
    /// Reads, decides and writes as far as the socket is ready.
    fn advance(&mut self, room: &mut [u8], shared: &Shared) -> Verdict {
        loop {
            let verdict = self.step(&shared.buffers);
            let is_sent = self.write();
            match (verdict, is_sent) {
                (Verdict::Failed, _) | (_, Err(_)) => return Verdict::Failed,
                // What is not sent of tickets, the worker sends.
                (Verdict::Done, Ok(_)) => return Verdict::Done,
                (Verdict::Waits, Ok(_)) => {}
            }
            match (&self.accepted.socket).read(room) {
                Ok(0) => return Verdict::Failed,
                Ok(length) => {
                    let fits = self.received.bytes().len() + length <= RECEIVED_BYTES_MAX;
                    if !fits || !self.received.append(&room[..length], 0, &shared.buffers) {
                        return Verdict::Failed;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Verdict::Waits,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Verdict::Failed,
            }
        }
    }

    fn step(&mut self, buffers: &Buffers) -> Verdict {
        let Handshake { connection, received, plain, outgoing, .. } = self;
        let (taken, stage) = records::read(connection, received.bytes_mut(), plain, outgoing, 0, buffers);
        received.consume(taken, buffers);
        match stage {
            Stage::Handshake => Verdict::Waits,
            Stage::Open => Verdict::Done,
            Stage::Ended if !connection.is_handshaking() => {
                self.accepted.has_ended = true;
                Verdict::Done
            }
            Stage::Ended | Stage::Failed | Stage::OutOfMemory => Verdict::Failed,
        }
    }

    /// Sends what the socket takes. Returns whether that was all.
    fn write(&mut self) -> io::Result<bool> {
        while self.sent < self.outgoing.len() {
            match (&self.accepted.socket).write(&self.outgoing[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(true)
    }
}
