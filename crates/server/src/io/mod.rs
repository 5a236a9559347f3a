//! Sockets: listeners, workers and the drivers that move bytes.
//!
//! One [`Service`] per worker thread says what bytes mean; it never sees a socket. Below it, two drivers do the same
//! with different system calls: `ring` (io_uring, Linux) and `poll` (readiness, everywhere). `worker` is what they
//! share: the connections, the batch of a turn, what is sent, limits and idle timeouts. `accept` gives each new
//! connection to the worker with the fewest.
//!
//! ```text
//!   settings -> listen -> accept -> worker <-> service.rs (dispatcher)
//!                                     |
//!                                ring | poll
//! ```

mod accept;
mod buffers;
mod counters;
mod link;
mod listen;
mod lock;
mod poll;
mod registry;
#[cfg(target_os = "linux")]
mod ring;
mod service;
mod shared;
mod transport;
mod udp;
mod worker;

use std::io;
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

pub use buffers::{Buffers, Charge};
pub use counters::{IoCounters, IoSnapshot};
pub use listen::{Addresses, Backend, ListenError, ListenOptions};
pub use registry::{ConnectionReport, Registry};
pub use service::{ConnectionId, Conversation, Peer, Ready, Service};
pub use shared::Stopper;
pub use transport::Transport;

use accept::Acceptor;
use listen::{Listener, Sockets};
use shared::Shared;
use udp::UdpPorts;
use worker::Worker;

/// Binds and starts in one step; see [`bind`] and [`Bound::start`].
pub fn start<S, F>(options: &ListenOptions, make_service: F) -> Result<Running, ListenError>
where
    S: Service,
    F: Fn(usize) -> S + Send + Sync + 'static,
{
    bind(options)?.start(make_service)
}

/// Binds every socket, and chooses the backend. Clients can connect from here on, but nobody answers before
/// [`Bound::start`]: time to drop privileges, or to hand the counters to the services.
pub fn bind(options: &ListenOptions) -> Result<Bound, ListenError> {
    if options.workers == 0 {
        return Err(ListenError("cannot start without a worker; give at least one with -t".into()));
    }
    let backend = choose(options.backend)?;
    let (shared, bells) = Shared::new(options).map_err(|error| {
        ListenError(format!("cannot start workers: {error}; raise the limit of open files"))
    })?;
    let sockets = Sockets::bind(options)?;
    for listener in &sockets.listeners {
        shared.listens(listener);
    }
    Ok(Bound { options: options.clone(), backend, shared: Arc::new(shared), bells, sockets })
}

/// The backend that `wanted` comes down to on this machine.
fn choose(wanted: Backend) -> Result<Backend, ListenError> {
    if wanted == Backend::Poll {
        return Ok(Backend::Poll);
    }
    #[cfg(target_os = "linux")]
    // On a thread of its own: a ring that goes away interrupts system calls of the thread that made it.
    let tried = thread::scope(|scope| scope.spawn(ring::probe).join())
        .unwrap_or_else(|_| Err(io::Error::other("the probe panicked")));
    #[cfg(not(target_os = "linux"))]
    let tried: io::Result<()> = Err(io::ErrorKind::Unsupported.into());
    match tried {
        Ok(()) => Ok(Backend::Ring),
        Err(error) if wanted == Backend::Auto => {
            tracing::info!(%error, "io_uring is not available here; polling for readiness instead");
            Ok(Backend::Poll)
        }
        Err(error) => Err(ListenError(format!(
            "cannot use io_uring: {error}; choose the poll backend, or allow it (sysctl kernel.io_uring_disabled=0, \
             Linux 6.1 or newer)"
        ))),
    }
}

/// Sockets that are bound, with no workers yet.
#[derive(Debug)]
pub struct Bound {
    options: ListenOptions,
    backend: Backend,
    shared: Arc<Shared>,
    bells: Vec<UnixStream>,
    sockets: Sockets,
}

impl Bound {
    /// Where it listens.
    pub fn addresses(&self) -> &Addresses {
        &self.sockets.addresses
    }

    /// [`Backend::Ring`] or [`Backend::Poll`].
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The counters, for the services to report.
    pub fn counters(&self) -> Arc<IoCounters> {
        Arc::clone(&self.shared.counters)
    }

    /// The open connections, for the services to report.
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.shared.registry)
    }

    /// The account of connection buffers, for the services to add theirs.
    pub fn buffers(&self) -> Arc<Buffers> {
        Arc::clone(&self.shared.buffers)
    }

    /// A handle that stops the server.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Starts the workers, threads named `worker-0` and so on. Each makes its service on its own thread.
    pub fn start<S, F>(self, make_service: F) -> Result<Running, ListenError>
    where
        S: Service,
        F: Fn(usize) -> S + Send + Sync + 'static,
    {
        let Bound { options, backend, shared, bells, sockets } = self;
        let make_service = Arc::new(make_service);
        let unix = sockets.addresses.unix.clone();
        let mut running = Running {
            addresses: sockets.addresses,
            backend,
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            unix,
        };
        let mut listeners = Some(sockets.listeners);
        for ((number, bell), udp) in bells.into_iter().enumerate().zip(sockets.udp) {
            let desk = Desk {
                number,
                backend,
                shared: Arc::clone(&shared),
                bell,
                // The first worker accepts for all.
                listeners: listeners.take(),
                udp,
                ring_buffers: options.ring_buffers,
            };
            let make_service = Arc::clone(&make_service);
            let thread = thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
                // However a worker ends, a server without it must not go on.
                let _stop = StopOnDrop(Arc::clone(&desk.shared), desk.number);
                desk.run(&*make_service)
            });
            let thread = thread.map_err(|error| {
                ListenError(format!("cannot start worker {number}: {error}; give fewer with -t"))
            })?;
            running.threads.push(thread);
        }
        Ok(running)
    }
}

/// Orders everybody to stop when a worker ends by itself, and lets go of its connections. After an ordered stop it
/// changes nothing.
struct StopOnDrop(Arc<Shared>, usize);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.registry.forget(self.1);
        if self.0.stage() == shared::Stage::Serving {
            self.0.stop();
        }
    }
}

/// What a worker thread starts with.
struct Desk {
    number: usize,
    backend: Backend,
    shared: Arc<Shared>,
    bell: UnixStream,
    listeners: Option<Vec<Listener>>,
    udp: Vec<UdpSocket>,
    ring_buffers: usize,
}

impl Desk {
    fn run<S>(self, make_service: &impl Fn(usize) -> S) -> io::Result<()>
    where
        S: Service,
    {
        let acceptor = self.listeners.map(Acceptor::new);
        let listeners = acceptor.as_ref().map(|acceptor| Rc::clone(&acceptor.listeners));
        let service = make_service(self.number);
        let udp = UdpPorts::new(self.udp);
        match self.backend {
            #[cfg(target_os = "linux")]
            Backend::Auto | Backend::Ring => {
                let mut ring = ring::build()?;
                let driver = ring::RingDriver::new(&mut ring, self.bell, listeners, self.ring_buffers)?;
                let held = Charge::take(&self.shared.buffers, ring::pool_bytes(self.ring_buffers));
                let mut worker = Worker::new(self.number, self.shared, service, driver, acceptor, udp);
                let ended = ring::run(&mut worker);
                worker.end();
                drop((worker, held));
                ended
            }
            _ => {
                let driver = poll::PollDriver::new(self.bell, listeners)?;
                let held = Charge::take(&self.shared.buffers, poll::ARENA_BYTES as u64);
                let mut worker = Worker::new(self.number, self.shared, service, driver, acceptor, udp);
                let ended = poll::run(&mut worker);
                worker.end();
                drop((worker, held));
                ended
            }
        }
    }
}

/// A server at work. Dropping it neither stops nor waits.
#[derive(Debug)]
pub struct Running {
    addresses: Addresses,
    backend: Backend,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    unix: Option<PathBuf>,
}

impl Running {
    /// Where it listens.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// [`Backend::Ring`] or [`Backend::Poll`].
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// A handle that stops the server.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// The counters of all workers.
    pub fn counters(&self) -> Arc<IoCounters> {
        Arc::clone(&self.shared.counters)
    }

    /// The open connections of all workers.
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.shared.registry)
    }

    /// The account of connection buffers.
    pub fn buffers(&self) -> Arc<Buffers> {
        Arc::clone(&self.shared.buffers)
    }

    /// The server's clock, as [`Service::tick`] gets it: seconds, 2 when the server started.
    pub fn now_s(&self) -> u32 {
        self.shared.now_s()
    }

    /// Waits until every worker has ended, then removes the unix socket's file. The error of a worker that ended by
    /// itself is returned; a worker that panicked is one.
    pub fn join(self) -> io::Result<()> {
        let mut ended = Ok(());
        for thread in self.threads {
            let one = thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
            ended = ended.and(one);
        }
        if let Some(path) = &self.unix {
            let _ = std::fs::remove_file(path);
        }
        ended
    }
}
