//! What the workers of one server share: limits, inboxes for accepted sockets, and the stage of a stop.

use std::io::{ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::accepted::Accepted;
use super::address_limit::AddressLimit;
use super::buffers::Buffers;
use super::counters::IoCounters;
use super::handshakes::Handshakes;
use super::listen::{ListenOptions, Listener};
use super::registry::Registry;
use super::transport::{Transport, address_text};
use super::udp_limit::UdpLimit;

/// What the server's clock reads when it starts. As in memcached it is 2, so that 1 can mean "already expired".
const CLOCK_STARTS_S: u64 = 2;

/// Workers are asked at most this often to let connections go, in milliseconds.
const RELIEF_EVERY_MS: u64 = 10;

/// How far a stop is. The stage only ever grows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stage {
    Serving = 0,
    /// No new connections; each connection closes once it has nothing to finish.
    Draining = 1,
    Stopping = 2,
}

/// How other threads reach a worker.
#[derive(Debug)]
struct Post {
    inbox: Mutex<Vec<Accepted>>,
    bell: UnixStream,
}

/// The most clients of other machines that are about to be told that they are not served, at one time.
const STRANGERS_MAX: usize = 32;

/// What may be changed about the connections of a running server.
#[derive(Debug)]
pub(super) struct ConnectionLimits {
    most: AtomicUsize,
    refuses: AtomicBool,
    idle_timeout_s: AtomicU32,
    serves_strangers: AtomicBool,
    /// Counts clients of other machines that are not served, all of them together.
    pub(super) strangers: Arc<AddressLimit>,
}

impl ConnectionLimits {
    /// The most stream connections at one time.
    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    /// Whether a connection beyond the limit is told so and closed. If not, it waits until another one closes.
    pub(super) fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Relaxed)
    }

    /// Whether clients of other machines are served at a door that nobody has asked for by name.
    pub(super) fn serves_strangers(&self) -> bool {
        self.serves_strangers.load(Ordering::Relaxed)
    }

    /// A connection without a request for this many seconds is closed; 0 = never.
    pub(super) fn idle_timeout_s(&self) -> u32 {
        self.idle_timeout_s.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) counters: Arc<IoCounters>,
    pub(super) buffers: Arc<Buffers>,
    pub(super) registry: Arc<Registry>,
    pub(super) limits: ConnectionLimits,
    pub(super) address_limit: Arc<AddressLimit>,
    pub(super) udp_limit: UdpLimit,
    /// Stream connections of all workers, including those still in an inbox.
    pub(super) open: AtomicUsize,
    /// The accepting worker waits for a connection to close.
    pub(super) accept_paused: AtomicBool,
    stage: AtomicU8,
    /// When workers were last asked to let connections go, in milliseconds after `started`.
    relief_asked_ms: AtomicU64,
    /// The bytes that stay with each worker's connections, as they were when memory for buffers was last short.
    parked_bytes: Box<[AtomicU64]>,
    /// When draining ends, in microseconds after `started`.
    drain_until_us: AtomicU64,
    started: Instant,
    posts: Box<[Post]>,
    handshakes: Option<Handshakes>,
}

impl Shared {
    /// What the workers share, and each worker's end of its bell.
    pub(super) fn new(
        options: &ListenOptions,
        handshakes: Option<Handshakes>,
    ) -> std::io::Result<(Shared, Vec<UnixStream>)> {
        let (mut posts, mut bells) = (Vec::new(), Vec::new());
        for _ in 0..options.workers {
            let (ring, hear) = UnixStream::pair()?;
            ring.set_nonblocking(true)?;
            posts.push(Post { inbox: Mutex::default(), bell: ring });
            bells.push(hear);
        }
        let buffers = Arc::new(Buffers::new(options.buffers_limit_bytes));
        buffers.set_ring_buffers(options.ring_buffers);
        let shared = Shared {
            counters: Arc::new(IoCounters::new(options.workers, Arc::clone(&buffers))),
            buffers,
            registry: Arc::new(Registry::new(options.workers)),
            limits: ConnectionLimits {
                most: AtomicUsize::new(options.connections_max),
                refuses: AtomicBool::new(options.connections_max_fast),
                idle_timeout_s: AtomicU32::new(options.idle_timeout_s),
                serves_strangers: AtomicBool::new(options.serves_strangers),
                strangers: Arc::new(AddressLimit::new((options.connections_max / 8).clamp(1, STRANGERS_MAX))),
            },
            address_limit: Arc::new(AddressLimit::new(options.connections_per_address_max)),
            udp_limit: UdpLimit::new(if options.udp_port.is_some() {
                options.udp_reply_bytes_per_s
            } else {
                0
            }),
            open: AtomicUsize::new(0),
            accept_paused: AtomicBool::new(false),
            stage: AtomicU8::new(Stage::Serving as u8),
            relief_asked_ms: AtomicU64::new(0),
            parked_bytes: (0..options.workers).map(|_| AtomicU64::new(0)).collect(),
            drain_until_us: AtomicU64::new(0),
            started: Instant::now(),
            posts: posts.into(),
            handshakes,
        };
        Ok((shared, bells))
    }

    /// Whether as many connections are open as may be.
    pub(super) fn is_full(&self) -> bool {
        self.open.load(Ordering::SeqCst) >= self.limits.most()
    }

    /// Registers a listening socket for `stats conns`.
    pub(super) fn listens(&self, listener: &Listener) {
        let address = listener.socket.local_addr().ok();
        let text = match listener.transport {
            Transport::Unix => {
                let path = address.as_ref().and_then(|a| a.as_pathname());
                format!("unix:{}", path.map(|p| p.display().to_string()).unwrap_or_default())
            }
            transport => address_text(transport, address.and_then(|a| a.as_socket())),
        };
        self.registry.listens(listener.socket.as_raw_fd(), text, false);
    }

    /// Registers a socket for datagrams for `stats conns`.
    pub(super) fn listens_to_datagrams(&self, socket: &UdpSocket) {
        let text = address_text(Transport::Udp, socket.local_addr().ok());
        self.registry.listens(socket.as_raw_fd(), text, true);
    }

    /// Milliseconds since the start.
    pub(super) fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    pub(super) fn now_s(&self) -> u32 {
        u32::try_from(self.started.elapsed().as_secs() + CLOCK_STARTS_S).unwrap_or(u32::MAX)
    }

    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Serving,
            1 => Stage::Draining,
            _ => Stage::Stopping,
        }
    }

    pub(super) fn drain_is_over(&self) -> bool {
        self.started.elapsed().as_micros() as u64 >= self.drain_until_us.load(Ordering::Acquire)
    }

    pub(super) fn drain(&self, at_most: Duration) {
        let until = self.started.elapsed() + at_most;
        self.drain_until_us.store(until.as_micros().try_into().unwrap_or(u64::MAX), Ordering::Release);
        self.enter(Stage::Draining);
    }

    pub(super) fn stop(&self) {
        self.enter(Stage::Stopping);
    }

    fn enter(&self, stage: Stage) {
        self.stage.fetch_max(stage as u8, Ordering::AcqRel);
        (0..self.posts.len()).for_each(|worker| self.wake(worker));
        if let Some(handshakes) = &self.handshakes {
            handshakes.wake_all();
        }
    }

    /// Where TLS handshakes are done, if any listener is encrypted.
    pub(super) fn handshakes(&self) -> Option<&Handshakes> {
        self.handshakes.as_ref()
    }

    /// Makes a worker look at its inbox and at the stage.
    pub(super) fn wake(&self, worker: usize) {
        loop {
            match (&self.posts[worker].bell).write(&[1]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A bell that is full was not read yet, and a worker that has ended needs none.
                _ => return,
            }
        }
    }

    /// Asks the other workers to let connections go: memory for buffers is short, and `worker` has no connection that
    /// holds too much.
    pub(super) fn ask_for_relief(&self, worker: usize) {
        let now_ms = self.now_ms();
        let asked_ms = self.relief_asked_ms.load(Ordering::Relaxed);
        let is_due = now_ms >= asked_ms + RELIEF_EVERY_MS;
        let taken =
            || self.relief_asked_ms.compare_exchange(asked_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed);
        if is_due && taken().is_ok() {
            (0..self.posts.len()).filter(|other| *other != worker).for_each(|other| self.wake(other));
        }
    }

    /// Memory for buffers is short, and `bytes` stay with the connections of `worker`. Returns what stays with those of
    /// the others.
    pub(super) fn note_parked(&self, worker: usize, bytes: u64) -> u64 {
        self.parked_bytes[worker].store(bytes, Ordering::Relaxed);
        let others = self.parked_bytes.iter().enumerate().filter(|(other, _)| *other != worker);
        others.map(|(_, bytes)| bytes.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn hand_over(&self, worker: usize, accepted: Accepted) {
        let mut inbox = self.posts[worker].inbox.lock().expect("no panic under this lock");
        let is_first = inbox.is_empty();
        inbox.push(accepted);
        drop(inbox);
        // The bell that was rung for the first one was not heard yet.
        if is_first {
            self.wake(worker);
        }
    }

    pub(super) fn collect(&self, worker: usize, into: &mut Vec<Accepted>) {
        into.append(&mut self.posts[worker].inbox.lock().expect("no panic under this lock"));
    }

    /// A stream connection is gone: the accepting worker may be waiting for that.
    pub(super) fn one_less(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        if self.accept_paused.load(Ordering::SeqCst) {
            self.wake(0);
        }
    }
}

/// Empties a bell, which does not block.
pub(super) fn hush(bell: &mut UnixStream) {
    let mut rings = [0; 64];
    while matches!(bell.read(&mut rings), Ok(n) if n == rings.len()) {}
}

/// Sets the limits of connections of a running server, from any thread.
#[derive(Clone, Debug)]
pub struct Limits(pub(super) Arc<Shared>);

impl Limits {
    /// The most TCP connections of one address at one time; 0 = no limit. Connections beyond a lowered limit stay.
    pub fn set_per_address(&self, most: usize) {
        self.0.address_limit.set_most(most);
    }

    /// Whether clients of other machines are served at a door that nobody has asked for by name. Connections that are
    /// open stay.
    pub fn set_strangers(&self, are_served: bool) {
        self.0.limits.serves_strangers.store(are_served, Ordering::Relaxed);
    }

    /// The most stream connections at one time, whether one beyond is told so and closed, and the seconds without a
    /// request after which one is closed (0 = never). Connections beyond a lowered limit stay.
    pub fn set(&self, connections_max: usize, fast: bool, idle_timeout_s: u32) {
        let limits = &self.0.limits;
        limits.most.store(connections_max, Ordering::SeqCst);
        limits.refuses.store(fast, Ordering::Relaxed);
        limits.idle_timeout_s.store(idle_timeout_s, Ordering::Relaxed);
        // The accepting worker may be waiting for a connection to close.
        self.0.wake(0);
    }
}

/// Wakes workers from other threads: each asks its service for news then ([`super::Service::woken`]).
#[derive(Clone, Debug)]
pub struct Bells(pub(super) Arc<Shared>);

impl Bells {
    /// Wakes a worker.
    pub fn ring(&self, worker: usize) {
        self.0.wake(worker);
    }
}

/// Stops a running server, from any thread and any number of times.
#[derive(Clone, Debug)]
pub struct Stopper(pub(super) Arc<Shared>);

impl Stopper {
    /// Accepts no more connections, answers the requests that have come, and closes. Connections that are not done
    /// after `at_most` are cut off.
    pub fn stop_gracefully(&self, at_most: Duration) {
        self.0.drain(at_most);
    }

    /// Closes every connection as it stands.
    pub fn stop_now(&self) {
        self.0.stop();
    }

    /// Whether the server was told to stop.
    pub fn is_stopping(&self) -> bool {
        self.0.stage() != Stage::Serving
    }
}
