//! The open connections of all workers, for `stats conns`.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use socket2::{SockAddr, Socket};

use super::lock::lock;
use super::transport::{Transport, address_text};

/// What is known of an open connection outside its worker. Owns the socket: it is closed when the last owner goes.
#[derive(Debug)]
pub(super) struct ConnectionInfo {
    pub(super) socket: Socket,
    pub(super) fd: i32,
    pub(super) transport: Transport,
    /// When the last request was served, on the server's clock.
    pub(super) active_s: AtomicU32,
    /// Whether output waits for the client to read.
    pub(super) writing: AtomicBool,
}

impl ConnectionInfo {
    pub(super) fn remote(&self) -> String {
        self.text(self.socket.peer_addr())
    }

    pub(super) fn local(&self) -> String {
        self.text(self.socket.local_addr())
    }

    /// A client of a unix socket has no name; it is shown by the server's.
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

/// One line group of `stats conns`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionReport {
    /// The socket's number.
    pub fd: i32,
    /// `tcp:127.0.0.1:40022`; for a listening socket its own address.
    pub addr: String,
    /// The server's end; absent for a listening socket.
    pub listen_addr: Option<String>,
    /// memcached's name of the state: `conn_read`, `conn_mwrite`, `conn_listening`.
    pub state: &'static str,
    /// Seconds since the last request.
    pub idle_s: u32,
}

/// A worker's connections, by slot.
type Slots = Vec<Option<Arc<ConnectionInfo>>>;

/// The open connections of all workers.
#[derive(Debug)]
pub struct Registry {
    workers: Box<[Mutex<Slots>]>,
    listening: Mutex<Vec<(i32, String)>>,
}

impl Registry {
    pub(super) fn new(workers: usize) -> Registry {
        Registry { workers: (0..workers).map(|_| Mutex::default()).collect(), listening: Mutex::default() }
    }

    pub(super) fn listens(&self, fd: i32, addr: String) {
        lock(&self.listening).push((fd, addr));
    }

    /// Notes the connection in `slot` of a worker; `None` forgets it.
    pub(super) fn set(&self, worker: usize, slot: usize, info: Option<Arc<ConnectionInfo>>) {
        let mut slots = lock(&self.workers[worker]);
        if slots.len() <= slot {
            slots.resize(slot + 1, None);
        }
        let _before = mem::replace(&mut slots[slot], info);
    }

    /// Forgets what a worker has left behind.
    pub(super) fn forget(&self, worker: usize) {
        lock(&self.workers[worker]).clear();
    }

    /// Describes every listening socket and every connection. `now_s` is the server's clock. A worker that opens or
    /// closes a connection meanwhile waits while its own are described: two system calls each.
    pub fn report(&self, now_s: u32) -> Vec<ConnectionReport> {
        let listening = |(fd, addr): &(i32, String)| ConnectionReport {
            fd: *fd,
            addr: addr.clone(),
            listen_addr: None,
            state: "conn_listening",
            idle_s: now_s,
        };
        let mut all: Vec<_> = lock(&self.listening).iter().map(listening).collect();
        for worker in &self.workers {
            for info in lock(worker).iter().flatten() {
                all.push(ConnectionReport {
                    fd: info.fd,
                    addr: info.remote(),
                    listen_addr: Some(info.local()),
                    state: if info.writing.load(Ordering::Relaxed) { "conn_mwrite" } else { "conn_read" },
                    idle_s: now_s.saturating_sub(info.active_s.load(Ordering::Relaxed)),
                });
            }
        }
        all
    }
}
