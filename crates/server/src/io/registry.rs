//! The open connections of all workers, for `stats conns`.

use std::mem;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use socket2::{SockAddr, Socket};

use super::counters::Count;
use super::transport::{Transport, address_text};

/// What a connection is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Doing {
    /// It waits for a request, or for the rest of a line.
    Reading,
    /// Its worker serves it.
    Serving,
    /// It waits for the rest of a value.
    ReadingValue,
    /// It waits for the rest of a value that nobody wants.
    Swallowing,
    /// Output waits for the client to read.
    Writing,
    /// It is told what happens.
    Watching,
}

impl Doing {
    /// memcached's names, in the order of the variants.
    const NAMES: [&str; 6] =
        ["conn_read", "conn_parse_cmd", "conn_nread", "conn_swallow", "conn_mwrite", "conn_watch"];
}

/// What is known of an open connection outside its worker. The socket belongs to it, and is closed with its last owner.
#[derive(Debug)]
pub(super) struct ConnectionInfo {
    pub(super) socket: Socket,
    pub(super) fd: i32,
    pub(super) transport: Transport,
    /// The kernel encrypts.
    pub(super) is_kernel_tls: bool,
    /// When the last request was served, on the server's clock.
    pub(super) active_s: AtomicU32,
    /// Bytes received and sent.
    pub(super) received: Count,
    pub(super) sent: Count,
    /// Bytes that stay with the connection between turns: input, output, and both with what its requests hold.
    held: [AtomicU64; 3],
    doing: AtomicU8,
    /// Another thread has ended the connection.
    is_killed: AtomicBool,
    /// The client's address, as soon as somebody has asked for it.
    remote: OnceLock<SocketAddr>,
}

impl ConnectionInfo {
    /// A connection that begins at `now_s`, on the server's clock.
    pub(super) fn new(
        socket: Socket,
        transport: Transport,
        is_kernel_tls: bool,
        now_s: u32,
    ) -> ConnectionInfo {
        ConnectionInfo {
            fd: socket.as_raw_fd(),
            socket,
            transport,
            is_kernel_tls,
            active_s: AtomicU32::new(now_s),
            received: Count::default(),
            sent: Count::default(),
            held: Default::default(),
            doing: AtomicU8::new(Doing::Reading as u8),
            is_killed: AtomicBool::new(false),
            remote: OnceLock::new(),
        }
    }

    /// Whether another thread has ended the connection.
    pub(super) fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Acquire)
    }

    /// Shows what stays with the connection: bytes of input, of output, and of all.
    pub(super) fn holds(&self, bytes: [u64; 3]) {
        self.held.iter().zip(bytes).for_each(|(held, bytes)| held.store(bytes, Ordering::Relaxed));
    }

    /// Shows what the connection is doing from now on.
    #[inline]
    pub(super) fn does(&self, doing: Doing) {
        self.doing.store(doing as u8, Ordering::Relaxed);
    }

    /// The client's address, if it has one that is known. Once it was asked for it stays known, also when the client is
    /// gone.
    pub(super) fn remote_address(&self) -> Option<SocketAddr> {
        if let Some(known) = self.remote.get() {
            return Some(*known);
        }
        let address = self.socket.peer_addr().ok()?.as_socket()?;
        Some(*self.remote.get_or_init(|| address))
    }

    pub(super) fn remote(&self) -> String {
        self.text(self.socket.peer_addr())
    }

    pub(super) fn local(&self) -> String {
        self.text(self.socket.local_addr())
    }

    /// A client of a unix socket has no address of its own: the server's is shown.
    fn text(&self, address: std::io::Result<SockAddr>) -> String {
        let address = address.ok();
        if self.transport == Transport::Unix {
            let named =
                address.filter(|a| a.as_pathname().is_some()).or_else(|| self.socket.local_addr().ok());
            let path = named.as_ref().and_then(|a| a.as_pathname()).map(|p| p.display().to_string());
            return format!("unix:{}", path.unwrap_or_default());
        }
        address_text(self.transport, address.and_then(|a| a.as_socket()))
    }
}

/// Bytes of one connection.
#[derive(Clone, Copy, Default, Debug)]
pub struct Traffic {
    /// Received.
    pub received: u64,
    /// Sent.
    pub sent: u64,
    /// Unserved input.
    pub input: u64,
    /// Output that waits for the client.
    pub output: u64,
    /// All that stays with the connection between turns.
    pub held: u64,
}

/// A connection, for those who are not its worker.
#[derive(Clone, Debug)]
pub struct Handle(pub(super) Arc<ConnectionInfo>);

impl Handle {
    /// The client's address as `stats conns` shows it. It costs a system call.
    pub fn remote(&self) -> String {
        self.0.remote()
    }

    /// The server's end of the connection, in the same form.
    pub fn local(&self) -> String {
        self.0.local()
    }

    /// The client's address; see [`super::Peer::address`].
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.remote_address()
    }

    /// Bytes received and sent, and bytes that stay with the connection between turns.
    pub fn traffic(&self) -> Traffic {
        let [input, output, held] = self.0.held.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
        Traffic { received: self.0.received.get(), sent: self.0.sent.get(), input, output, held }
    }

    /// How the bytes travel.
    pub fn transport(&self) -> Transport {
        self.0.transport
    }

    /// The number of the socket.
    pub fn fd(&self) -> i32 {
        self.0.fd
    }

    /// Ends the connection: its worker finds it closed by the client. Where its client reads, the worker can still take
    /// leave of it.
    pub fn shut_down(&self) {
        self.0.is_killed.store(true, Ordering::Release);
        let is_blocked = self.0.doing.load(Ordering::Relaxed) == Doing::Writing as u8;
        let how = if is_blocked { std::net::Shutdown::Both } else { std::net::Shutdown::Read };
        let _ = self.0.socket.shutdown(how);
    }
}

/// One connection, as `stats conns` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionReport {
    /// The socket's number.
    pub fd: i32,
    /// The client's address: `tcp:127.0.0.1:40022`. For a listening socket its own address.
    pub addr: String,
    /// The address of the server's end. `None` for a listening socket.
    pub listen_addr: Option<String>,
    /// memcached's name for what the connection does: `conn_read`, `conn_nread`, `conn_mwrite`, `conn_listening`.
    pub state: &'static str,
    /// Whether it is a socket for datagrams.
    pub is_udp: bool,
    /// Seconds since the last request.
    pub idle_s: u32,
}

/// A worker's connections, by slot.
type Slots = Vec<Option<Arc<ConnectionInfo>>>;

/// A socket of the server itself: its number, its address, and whether it is for datagrams.
type Listening = (i32, String, bool);

/// The open connections of all workers.
#[derive(Debug)]
pub struct Registry {
    workers: Box<[Mutex<Slots>]>,
    listening: Mutex<Vec<Listening>>,
}

impl Registry {
    pub(super) fn new(workers: usize) -> Registry {
        Registry { workers: (0..workers).map(|_| Mutex::default()).collect(), listening: Mutex::default() }
    }

    pub(super) fn listens(&self, fd: i32, addr: String, is_udp: bool) {
        self.listening.lock().expect("no panic under this lock").push((fd, addr, is_udp));
    }

    /// Sets the connection in a slot of a worker. `None` forgets it.
    pub(super) fn set(&self, worker: usize, slot: usize, info: Option<Arc<ConnectionInfo>>) {
        let mut slots = self.workers[worker].lock().expect("no panic under this lock");
        if slots.len() <= slot {
            slots.resize(slot + 1, None);
        }
        let _before = mem::replace(&mut slots[slot], info);
    }

    /// Forgets all connections of a worker.
    pub(super) fn forget(&self, worker: usize) {
        self.workers[worker].lock().expect("no panic under this lock").clear();
    }

    /// Describes every listening socket and every connection. `now_s` is the server's clock. While the connections of a
    /// worker are described, with two system calls each, that worker waits if it opens or closes one.
    pub fn report(&self, now_s: u32) -> Vec<ConnectionReport> {
        let listening = |(fd, addr, is_udp): &Listening| ConnectionReport {
            fd: *fd,
            addr: addr.clone(),
            listen_addr: None,
            state: if *is_udp { "conn_read" } else { "conn_listening" },
            is_udp: *is_udp,
            idle_s: now_s,
        };
        let mut all: Vec<_> =
            self.listening.lock().expect("no panic under this lock").iter().map(listening).collect();
        for worker in &self.workers {
            for info in worker.lock().expect("no panic under this lock").iter().flatten() {
                all.push(ConnectionReport {
                    fd: info.fd,
                    addr: info.remote(),
                    listen_addr: Some(info.local()),
                    state: Doing::NAMES[usize::from(info.doing.load(Ordering::Relaxed))],
                    is_udp: false,
                    idle_s: now_s.saturating_sub(info.active_s.load(Ordering::Relaxed)),
                });
            }
        }
        all
    }
}
