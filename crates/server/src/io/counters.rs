//! What the IO half counts and accounts: per-worker counters, buffer bytes, and the open connections.
//!
//! A worker's counters have one writer, so they are plain loads and stores on a line of their own. What the workers
//! share (open connections, the buffers' account) is touched when a connection opens or closes, or when bytes have to
//! wait, never per request.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use socket2::{SockAddr, Socket};

use super::service::{Transport, address_text};

/// Locks, also after a panic elsewhere: nothing under these locks is ever left half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The account of all connection buffers: left-overs, output in flight and the receive buffers of the workers.
#[derive(Debug)]
pub struct Buffers {
    used: AtomicU64,
    limit: AtomicU64,
}

impl Buffers {
    /// An empty account that refuses above `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Buffers {
        Buffers { used: AtomicU64::new(0), limit: AtomicU64::new(limit_bytes) }
    }

    /// Bytes accounted now. May exceed the limit by what could not be refused.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit. Nothing that is already accounted is taken away.
    pub fn set_limit_bytes(&self, limit_bytes: u64) {
        self.limit.store(limit_bytes, Ordering::Relaxed);
    }

    /// Accounts `bytes` more, unless that would exceed the limit.
    pub fn try_take(&self, bytes: u64) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.limit_bytes();
        if !fits {
            self.give(bytes);
        }
        fits
    }

    /// Accounts `bytes` that exist already and cannot be refused.
    pub fn take(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives back what was taken.
    pub fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A number with one writer and any number of readers.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Only the owning thread calls this: it is a load and a store, not one step.
    #[inline]
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    pub(super) fn sub(&self, less: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(less), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One worker's counters, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct WorkerCounters {
    pub(super) bytes_read: Count,
    pub(super) bytes_written: Count,
    pub(super) waits: Count,
    pub(super) open: Count,
    pub(super) opened: Count,
    pub(super) rejected: Count,
    pub(super) idle_kicks: Count,
    pub(super) out_of_memory: Count,
    pub(super) datagrams: Count,
    pub(super) datagrams_dropped: Count,
    /// Connections given to this worker, open or still in its inbox: what the even spread looks at. Written by the
    /// accepting worker too, hence a shared count.
    pub(super) assigned: AtomicU64,
}

/// A sum of the counters at one moment. Each number is exact on its own; they are not of one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IoSnapshot {
    /// Stream connections open now.
    pub curr_connections: u64,
    /// Stream connections ever opened.
    pub total_connections: u64,
    /// Connections turned away because the limit was reached.
    pub rejected_connections: u64,
    /// Whether new connections are accepted now.
    pub accepting: bool,
    /// How often accepting stopped because connections or file descriptors ran out.
    pub listen_disabled_num: u64,
    /// How long accepting was stopped in all, in microseconds.
    pub time_in_listen_disabled_us: u64,
    /// Bytes received, including UDP payload.
    pub bytes_read: u64,
    /// Bytes sent, including UDP frames.
    pub bytes_written: u64,
    /// Connections closed because no request came for the idle timeout.
    pub idle_kicks: u64,
    /// Connections closed because a partial request did not fit the buffers' limit.
    pub read_out_of_memory: u64,
    /// UDP requests received.
    pub udp_requests: u64,
    /// UDP requests or replies dropped: malformed, more than one datagram, or a reply too long.
    pub udp_dropped: u64,
    /// How often the workers waited in the kernel; requests divided by this is the batch.
    pub waits: u64,
    /// Bytes of connection buffers, as [`Buffers::used_bytes`].
    pub buffer_bytes: u64,
}

/// The counters of all workers. Cheap to read at any time from any thread.
#[derive(Debug)]
pub struct IoCounters {
    pub(super) workers: Box<[WorkerCounters]>,
    pub(super) accepting: AtomicBool,
    pub(super) listen_disabled: AtomicU64,
    pub(super) listen_disabled_us: AtomicU64,
    pub(super) buffers: Arc<Buffers>,
    baseline: Mutex<IoSnapshot>,
}

impl IoCounters {
    pub(super) fn new(workers: usize, buffers: Arc<Buffers>) -> IoCounters {
        IoCounters {
            workers: (0..workers).map(|_| WorkerCounters::default()).collect(),
            accepting: AtomicBool::new(true),
            listen_disabled: AtomicU64::new(0),
            listen_disabled_us: AtomicU64::new(0),
            buffers,
            baseline: Mutex::new(IoSnapshot::default()),
        }
    }

    /// The sums since the start, or since the last [`IoCounters::reset`].
    pub fn snapshot(&self) -> IoSnapshot {
        let base = *lock(&self.baseline);
        let now = self.totals();
        IoSnapshot {
            total_connections: now.total_connections - base.total_connections,
            rejected_connections: now.rejected_connections - base.rejected_connections,
            listen_disabled_num: now.listen_disabled_num - base.listen_disabled_num,
            time_in_listen_disabled_us: now.time_in_listen_disabled_us - base.time_in_listen_disabled_us,
            bytes_read: now.bytes_read - base.bytes_read,
            bytes_written: now.bytes_written - base.bytes_written,
            idle_kicks: now.idle_kicks - base.idle_kicks,
            read_out_of_memory: now.read_out_of_memory - base.read_out_of_memory,
            udp_requests: now.udp_requests - base.udp_requests,
            udp_dropped: now.udp_dropped - base.udp_dropped,
            waits: now.waits - base.waits,
            ..now
        }
    }

    /// Counts from zero again (`stats reset`); what is a state rather than a count stays.
    pub fn reset(&self) {
        *lock(&self.baseline) = self.totals();
    }

    /// How many connections each worker has open, by worker number.
    pub fn connections_per_worker(&self) -> Vec<u64> {
        self.workers.iter().map(|w| w.open.get()).collect()
    }

    fn totals(&self) -> IoSnapshot {
        let sum = |of: fn(&WorkerCounters) -> &Count| self.workers.iter().map(|w| of(w).get()).sum();
        IoSnapshot {
            curr_connections: sum(|w| &w.open),
            total_connections: sum(|w| &w.opened),
            rejected_connections: sum(|w| &w.rejected),
            accepting: self.accepting.load(Ordering::Relaxed),
            listen_disabled_num: self.listen_disabled.load(Ordering::Relaxed),
            time_in_listen_disabled_us: self.listen_disabled_us.load(Ordering::Relaxed),
            bytes_read: sum(|w| &w.bytes_read),
            bytes_written: sum(|w| &w.bytes_written),
            idle_kicks: sum(|w| &w.idle_kicks),
            read_out_of_memory: sum(|w| &w.out_of_memory),
            udp_requests: sum(|w| &w.datagrams),
            udp_dropped: sum(|w| &w.datagrams_dropped),
            waits: sum(|w| &w.waits),
            buffer_bytes: self.buffers.used_bytes(),
        }
    }
}

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
