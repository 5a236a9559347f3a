//! The interface between sockets and protocols: a driver below moves bytes, a [`Service`] above gives them a meaning.
//!
//! A driver hands a [`Service`] the bytes that arrived on all of its connections at once, then asks each
//! [`Conversation`] for the bytes to send. A service and its connections belong to one worker thread, so they need not
//! be `Send`.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::registry::{ConnectionInfo, Doing, Handle};
use super::transport::{Transport, address_text};

/// What one worker thread does with bytes.
pub trait Service {
    /// The state of one connection above its socket.
    type Connection: Conversation + 'static;

    /// A connection was accepted, or a UDP datagram arrived.
    fn open(&mut self, peer: &Peer<'_>) -> Self::Connection;

    /// Serves all connections that have input now. They come in one call, so that their keys can be looked up together.
    ///
    /// The service sets `consumed` of each, which is 0 on entry. It may leave input unconsumed when a request is
    /// incomplete or the connection's output is full. The same bytes come again, at the front of more input.
    fn serve(&mut self, batch: &mut [Ready<'_, Self::Connection>]);

    /// The connection is gone; nothing more is sent.
    fn closed(&mut self, connection: Self::Connection, reason: CloseReason);

    /// The worker is about to block in the kernel. A service that reads under an epoch goes offline here.
    fn before_wait(&mut self);

    /// The worker is awake again. Called before anything else after [`Service::before_wait`].
    fn after_wait(&mut self);

    /// A descriptor of the service's own: whenever it is readable, [`Service::woken`] is called. Asked once, when the
    /// worker starts. The descriptor stays the same, and open, as long as the service exists.
    fn wake_fd(&self) -> Option<RawFd> {
        None
    }

    /// What connections were waiting for may have come. The service reads its news until [`Service::wake_fd`] is not
    /// readable any more, and names in `wake` the connections to be served again, with their unserved input, even if
    /// that is empty. A connection that is gone may be named, and one may be named twice.
    fn woken(&mut self, _wake: &mut Vec<ConnectionId>) {}

    /// Whether [`Service::woken`] is to be called at once, which saves the way through the kernel. Asked after each
    /// batch of what has come, so the answer must cost little. [`Service::wake_fd`] tells of all other news, and may
    /// tell of these as well.
    fn has_news(&mut self) -> bool {
        false
    }

    /// Called about once a second, also when the worker is idle. `now_s` is the server's clock, which reads 2 when the
    /// server starts.
    fn tick(&mut self, now_s: u32);
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// Its socket failed, it broke the rules of its protocol, or what it needed did not fit into memory.
    Error,
    /// The client or a command ended it.
    Normal,
    /// No request came for the idle timeout.
    IdleTimeout,
    /// The server stops.
    Shutdown,
}

/// One connection of a batch, with the bytes it has not consumed yet.
#[derive(Debug)]
pub struct Ready<'a, C> {
    /// The connection.
    pub connection: &'a mut C,
    /// Its unconsumed input, in order. Empty only if the connection's output was full, or if [`Service::woken`] named
    /// it.
    pub input: &'a [u8],
    /// How much of `input` the service is done with. At most `input.len()`.
    pub consumed: usize,
}

/// What a client has still to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaits {
    /// A request, or the rest of its line.
    Request,
    /// The rest of a value.
    Value,
    /// The rest of a value that was refused.
    RefusedValue,
    /// Nothing: it is told what happens.
    Nothing,
}

impl Awaits {
    /// What a connection does that awaits this.
    pub(super) fn doing(self) -> Doing {
        match self {
            Awaits::Request => Doing::Reading,
            Awaits::Value => Doing::ReadingValue,
            Awaits::RefusedValue => Doing::Swallowing,
            Awaits::Nothing => Doing::Watching,
        }
    }
}

/// A connection's state above the socket.
pub trait Conversation {
    /// The next bytes to send, in order: at most about 64 KiB, and never empty. `None` = nothing is ready. The worker
    /// asks again when the previous buffer was sent, and after [`Service::woken`] has named the connection.
    fn take_output(&mut self) -> Option<Vec<u8>>;

    /// A buffer of [`Conversation::take_output`] comes back for reuse, with its old content.
    fn recycle(&mut self, buffer: Vec<u8>);

    /// Whether [`Conversation::take_output`] has something, or will have it without a further request.
    fn has_output(&self) -> bool;

    /// What [`Conversation::take_output`] would most likely give now.
    fn output(&self) -> &[u8] {
        &[]
    }

    /// Whether the connection is to be closed once its output is sent. No further input is served.
    fn wants_close(&self) -> bool;

    /// With [`Conversation::wants_close`]: whether the client may still be sending what nobody will serve. It gets a
    /// while to read its last reply then.
    fn ends_unserved(&self) -> bool {
        false
    }

    /// With [`Conversation::wants_close`]: whether it ends because it cannot go on.
    fn has_failed(&self) -> bool {
        false
    }

    /// What the client has still to send, once it has begun; `stats conns` shows it. `held` = bytes of unserved input.
    fn awaits(&self, _held: usize) -> Awaits {
        Awaits::Request
    }

    /// `false` = the output is full: the driver reads no more, and calls [`Service::serve`] again with the unserved
    /// input, even if that is empty, once the output is sent.
    fn wants_input(&self) -> bool;

    /// Whether the connection waits for something that is not its client. [`Service::woken`] will name it, or has just
    /// done so. Until then the connection is not served, is not idle, and is not closed because its client sends no
    /// more. While it waits, [`Conversation::wants_input`] is `false`.
    fn is_waiting(&self) -> bool {
        false
    }

    /// What the client is told, after all other output, when an unfinished request of it does not fit the buffers'
    /// limit.
    fn out_of_memory(&self) -> &'static str {
        "SERVER_ERROR out of memory reading request\r\n"
    }

    /// Whether the connection may be without a request for any time.
    fn may_be_idle(&self) -> bool {
        false
    }

    /// How many bytes of input in all make the next [`Service::serve`] worth while; 0 = any number. The worker keeps at
    /// most about as many.
    fn input_wanted(&self) -> usize;

    /// Bytes in the account of buffers that stay with the conversation, beside input and output.
    fn held_bytes(&self) -> u64 {
        0
    }
}

/// The other end of a new connection.
#[derive(Debug)]
pub struct Peer<'a> {
    /// How the bytes travel.
    pub transport: Transport,
    /// The number of the socket, as `stats conns` shows it.
    pub fd: i32,
    /// The number of the worker that serves it, from 0.
    pub worker: usize,
    /// The name of the connection within its worker.
    pub id: ConnectionId,
    /// It is a client of another machine, and nothing says that it may come: it is told so, and not served.
    pub is_stranger: bool,
    pub(super) from: From<'a>,
}

/// The name of a connection within its worker. A connection that comes later has another name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnectionId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

#[cfg(test)]
impl ConnectionId {
    /// A name, for tests.
    pub(crate) fn of(slot: u32, generation: u32) -> ConnectionId {
        ConnectionId { slot, generation }
    }
}

impl std::fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

/// Where the addresses of a peer come from.
#[derive(Debug)]
pub(super) enum From<'a> {
    Socket(&'a Arc<ConnectionInfo>),
    Datagram { remote: SocketAddr, local: Option<SocketAddr> },
}

impl Peer<'_> {
    /// The connection, for those who are not its worker. `None` for a datagram.
    pub fn handle(&self) -> Option<Handle> {
        match &self.from {
            From::Socket(info) => Some(Handle(Arc::clone(info))),
            From::Datagram { .. } => None,
        }
    }

    /// The client's address. `None` for a unix socket. It costs a system call for streams.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.from {
            From::Socket(info) => info.remote_address(),
            From::Datagram { remote, .. } => Some(*remote),
        }
    }

    /// The port on the server's side. It costs a system call for streams.
    pub fn local_port(&self) -> Option<u16> {
        let at = match &self.from {
            From::Socket(info) => info.socket.local_addr().ok()?.as_socket(),
            From::Datagram { local, .. } => *local,
        };
        at.map(|at| at.port())
    }

    /// The client's address as `stats conns` shows it: `tcp:127.0.0.1:40022`, `unix:/run/larder.sock`. It costs a
    /// system call for streams.
    pub fn remote(&self) -> String {
        match &self.from {
            From::Socket(info) => info.remote(),
            From::Datagram { remote, .. } => address_text(Transport::Udp, Some(*remote)),
        }
    }

    /// The server's end of the connection, in the same form.
    pub fn local(&self) -> String {
        match &self.from {
            From::Socket(info) => info.local(),
            From::Datagram { local, .. } => address_text(Transport::Udp, *local),
        }
    }
}
