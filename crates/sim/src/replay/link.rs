//! The life of connections: made, logged in, found silent, lost, made again.

use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering::Relaxed;

use mio::Token;

use super::connection::{Command, ConnectionState, Pending};
use super::faults::{Mishap, shown};
use super::options::Protocol;
use super::tally::Kind;
use super::wire::{Verb, Wire};
use super::worker::Worker;

/// A connection that was lost before must last this long to count as healthy without a reply.
const PROVED_NS: u64 = 1_000_000_000;

/// The reason why a connection must be closed, with a text for people.
pub(super) struct Broken(pub(super) Mishap, pub(super) String);

impl Worker {
    /// Handles readiness of a socket. `closed`: the server has announced that nothing more will come. The
    /// announcement comes only once, so then everything is read to the end.
    pub(super) fn serve(&mut self, at: usize, closed: bool) {
        let now_ns = self.shared.now_ns();
        if let ConnectionState::Connecting { .. } = self.connections[at].state
            && !self.establish(at, now_ns)
        {
            return;
        }
        loop {
            match self.connections[at].read() {
                Ok(None) => break,
                Err(error) => return self.lose(at, broken_by(&error)),
                Ok(Some(more)) => {
                    if let Err(broken) = self.take_replies(at) {
                        return self.lose(at, broken);
                    }
                    if !more && !closed {
                        break;
                    }
                }
            }
        }
        self.mark(at);
    }

    /// Completes a connection attempt. Returns whether the connection is up.
    fn establish(&mut self, at: usize, now_ns: u64) -> bool {
        let standing = match &self.connections[at].stream {
            Some(stream) => stream.established(),
            None => return false,
        };
        match standing {
            Ok(false) => false,
            Err(error) => {
                self.lose(at, Broken(Mishap::NotConnected, error.to_string()));
                false
            }
            Ok(true) => {
                self.connections[at].state = ConnectionState::Up { since_ns: now_ns };
                if self.connections[at].is_new() {
                    self.is_healthy(at);
                }
                self.log_in(at, now_ns);
                self.mark(at);
                true
            }
        }
    }

    pub(super) fn log_in(&mut self, at: usize, now_ns: u64) {
        let (shared, connection) = (&self.shared, &mut self.connections[at]);
        let command = Command {
            verb: Verb::Set,
            kind: Kind::Login,
            counted: false,
            key: 0,
            key_length: 0,
            identity: 0,
            value_bytes: 0,
            ttl_s: 0,
            penalty_us: 0,
            began_ns: 0,
        };
        let pending = Pending { command, version: 0, zero: false, sent_ns: now_ns };
        if let Some(who) = &shared.options.credentials {
            Wire::put_login(shared.wire.protocol, &mut connection.out, &who.user, &who.password);
            connection.pending.push_back(pending);
        }
        if let Some(database) = shared.options.database.filter(|_| shared.wire.protocol == Protocol::Resp) {
            Wire::put_select(&mut connection.out, database);
            connection.pending.push_back(pending);
        }
    }

    /// Closes a connection; the commands in flight are lost.
    pub(super) fn lose(&mut self, at: usize, broken: Broken) {
        let now_ns = self.shared.now_ns();
        let Broken(mishap, text) = broken;
        let connection = &mut self.connections[at];
        if let Some(stream) = &mut connection.stream {
            stream.deregister(self.poll.registry());
        }
        let was_up = matches!(connection.state, ConnectionState::Up { .. });
        let mut lost = 0;
        while let Some(pending) = connection.pending.pop_front() {
            lost += u64::from(pending.command.kind != Kind::Login);
            if pending.version != 0 {
                self.check.ledger.entry(pending.command.identity).lost();
            }
        }
        if std::mem::take(&mut connection.healthy) {
            connection.unhealthy_ns = now_ns;
            self.shared.healthy.fetch_sub(1, Relaxed);
        }
        connection.drop_stream(now_ns);
        let number = connection.number;
        let mishap = if mishap == Mishap::Reset && !was_up { Mishap::NotConnected } else { mishap };
        self.check
            .faults
            .add_mishap(mishap, lost, || format!("connection {number}, {lost} requests in flight: {text}"));
    }

    /// Marks a connection as healthy.
    pub(super) fn is_healthy(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        connection.prove();
        if !std::mem::replace(&mut connection.healthy, true) {
            self.shared.healthy.fetch_add(1, Relaxed);
        }
    }

    /// Makes connections that are due and closes those that are silent.
    pub(super) fn keep_connections(&mut self, now_ns: u64) {
        let timeout_ns = self.shared.options.timeout.as_nanos() as u64;
        for at in 0..self.connections.len() {
            self.abandon(at, now_ns);
            match self.connections[at].state {
                ConnectionState::Down { retry_ns } if now_ns >= retry_ns => self.connect(at, now_ns),
                ConnectionState::Connecting { since_ns } if now_ns > since_ns + timeout_ns => {
                    self.lose(at, Broken(Mishap::NotConnected, "no answer to the attempt".to_owned()));
                }
                ConnectionState::Up { since_ns } => {
                    self.look_for_silence(at, now_ns, timeout_ns);
                    if now_ns > since_ns + PROVED_NS && self.connections[at].pending.is_empty() {
                        self.is_healthy(at);
                    }
                }
                _ => {}
            }
        }
    }

    /// Gives the server up if requests wait for a connection that was down for too long. The requests are lost. Each
    /// of them waits for its own connection, so the run would be no faster than that connection fails.
    fn abandon(&mut self, at: usize, now_ns: u64) {
        let give_up_ns = self.shared.options.give_up.as_nanos() as u64;
        let connection = &mut self.connections[at];
        let down_ns = now_ns.saturating_sub(connection.unhealthy_ns);
        if connection.healthy || connection.queue.is_empty() || down_ns <= give_up_ns {
            return;
        }
        self.check.faults.lost += connection.queue.len() as u64;
        connection.queue.clear();
        self.shared.abandoned.store(true, Relaxed);
    }

    fn look_for_silence(&mut self, at: usize, now_ns: u64, timeout_ns: u64) {
        let connection = &self.connections[at];
        let Some(oldest) = connection.pending.front().filter(|oldest| now_ns > oldest.sent_ns + timeout_ns)
        else {
            return;
        };
        let waited_s = (now_ns - oldest.sent_ns) as f64 / 1e9;
        let came = shown(&connection.input[..connection.filled]);
        let text = format!(
            "no whole reply to {} {} after {waited_s:.1} s; so far: '{came}'",
            oldest.command.verb.name(),
            self.text_of_key(&oldest.command)
        );
        self.lose(at, Broken(Mishap::Timeout, text));
    }

    fn connect(&mut self, at: usize, now_ns: u64) {
        if self.shared.stop.load(Relaxed) {
            return;
        }
        let connected = self.shared.options.server.connect().and_then(|mut stream| {
            stream.register(self.poll.registry(), Token(at))?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => {
                self.connections[at].stream = Some(stream);
                self.connections[at].state = ConnectionState::Connecting { since_ns: now_ns };
                // A UNIX socket is connected at once.
                self.establish(at, now_ns);
            }
            Err(error) => self.lose(at, Broken(Mishap::NotConnected, error.to_string())),
        }
    }
}

/// The meaning of a socket error.
pub(super) fn broken_by(error: &io::Error) -> Broken {
    match error.kind() {
        ErrorKind::UnexpectedEof => Broken(Mishap::Closed, "the server closed it".to_owned()),
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => Broken(Mishap::NotConnected, error.to_string()),
        _ => Broken(Mishap::Reset, error.to_string()),
    }
}
