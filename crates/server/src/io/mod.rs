//! Sockets: listeners, workers and the drivers that move bytes.
//!
//! One [`Service`] per worker thread gives bytes a meaning and never sees a socket. Below it, two drivers do the same
//! work with different system calls: `ring` (io_uring on Linux, with its `receive_pool`) and `poll` (readiness,
//! everywhere). What the drivers share is in these files:
//!
//! * `worker`: the batch of a turn, idle timeouts, the end of a connection;
//! * `links`: a worker's connections. A `link` is one of them, with its `input` and the buffer that it is `sending`;
//! * `parking`: the bytes that stay with a worker's connections from one turn to the next;
//! * `accept`: gives each new connection to the worker with the fewest; `address_limit` says who may have one more;
//! * `handshakes`, `handshake_thread`, `tls`: what comes between accepting and serving an encrypted connection;
//! * `listen`: the listening sockets; `inherited` has those of a service manager;
//! * `shared`, `counters`, `buffers`, `registry`: what the workers of a server count and account together.
//!
//! ```text
//!   settings -> listen -> accept -> worker <-> service.rs (dispatcher)
//!                                     |
//!                                ring | poll
//! ```

mod accept;
mod accepted;
mod address_limit;
mod backlog;
mod buffers;
mod counters;
mod handshake_thread;
mod handshakes;
mod inherited;
mod input;
mod left_over;
mod link;
mod links;
mod listen;
mod parking;
mod poll;
#[cfg(target_os = "linux")]
mod receive_pool;
mod registry;
#[cfg(target_os = "linux")]
mod ring;
mod sending;
mod service;
mod shared;
mod tls;
mod transport;
mod udp;
mod udp_limit;
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
pub use inherited::Inherited;
pub(crate) use listen::problems_of_listening;
pub use listen::{Addresses, ListenAddress, ListenOptions};
pub use registry::{ConnectionReport, Handle, Registry, Traffic};
pub use service::{Awaits, CloseReason, ConnectionId, Conversation, Peer, Ready, Service};
pub use shared::{Bells, Limits, Stopper};
pub(crate) use tls::SESSION_BYTES;
pub use transport::Transport;
pub(crate) use transport::address_block;

use crate::error::RunError;
pub use crate::settings::Backend;
use crate::tls::Tls;
use accept::Acceptor;
use handshakes::Handshakes;
use listen::{Listener, Sockets};
use shared::Shared;
use udp::UdpPorts;
use worker::Worker;

/// Binds and starts in one step. See [`bind`] and [`Bound::start`].
pub fn start<S, F>(options: &ListenOptions, make_service: F) -> Result<Running, RunError>
where
    S: Service,
    F: Fn(usize) -> S + Send + Sync + 'static,
{
    bind(options, &Inherited::default())?.start(make_service)
}

/// Binds every socket, and chooses the backend. Clients can connect from here on, but are not answered before
/// [`Bound::start`]: until then the caller may drop privileges, and hand the counters to the services. A socket of
/// `inherited` takes the place of one that would be bound.
pub fn bind(options: &ListenOptions, inherited: &Inherited) -> Result<Bound, RunError> {
    if options.workers == 0 {
        return Err(RunError("cannot start without a worker; give at least one with -t".into()));
    }
    let backend = choose(options.backend)?;
    let no_files =
        |error: io::Error| RunError(format!("cannot start workers: {error}; raise the limit of open files"));
    let handshakes = options.tls.as_ref().map(|_| Handshakes::new(options.workers));
    let (handshakes, polls) = handshakes.transpose().map_err(no_files)?.unzip();
    let (shared, bells) = Shared::new(options, handshakes).map_err(no_files)?;
    let sockets = Sockets::bind(options, inherited)?;
    for listener in &sockets.listeners {
        shared.listens(listener);
    }
    sockets.udp.iter().flatten().for_each(|socket| shared.listens_to_datagrams(socket));
    let (tls, polls) = (options.tls.clone(), polls.unwrap_or_default());
    Ok(Bound { tls, backend, shared: Arc::new(shared), bells, polls, sockets })
}

/// The backend that this machine has for `wanted`.
fn choose(wanted: Backend) -> Result<Backend, RunError> {
    if wanted == Backend::Poll {
        return Ok(Backend::Poll);
    }
    #[cfg(target_os = "linux")]
    // On a thread of its own: a ring that is closed interrupts system calls of the thread that made it.
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
        Err(error) => Err(RunError(format!(
            "cannot use io_uring: {error}; choose the poll backend, or allow it (sysctl kernel.io_uring_disabled=0, \
             Linux 6.1 or newer)"
        ))),
    }
}

/// Sockets that are bound, before there are workers.
#[derive(Debug)]
pub struct Bound {
    tls: Option<Arc<Tls>>,
    backend: Backend,
    shared: Arc<Shared>,
    bells: Vec<UnixStream>,
    /// What the threads for handshakes wait with.
    polls: Vec<mio::Poll>,
    sockets: Sockets,
}

impl Bound {
    /// The addresses that the server listens on.
    pub fn addresses(&self) -> &Addresses {
        &self.sockets.addresses
    }

    /// The backend in use: [`Backend::Ring`] or [`Backend::Poll`].
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The counters of all workers, for the services to report.
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

    /// A handle that sets the limits of connections.
    pub fn limits(&self) -> Limits {
        Limits(Arc::clone(&self.shared))
    }

    /// What wakes the workers.
    pub fn bells(&self) -> Bells {
        Bells(Arc::clone(&self.shared))
    }

    /// A handle that stops the server.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Starts the workers, threads named `worker-0` and so on. Each makes its service on its own thread.
    pub fn start<S, F>(self, make_service: F) -> Result<Running, RunError>
    where
        S: Service,
        F: Fn(usize) -> S + Send + Sync + 'static,
    {
        let Bound { tls, backend, shared, bells, polls, sockets } = self;
        let make_service = Arc::new(make_service);
        let unix = sockets.unix_file;
        let mut running =
            Running { addresses: sockets.addresses, shared: Arc::clone(&shared), threads: Vec::new(), unix };
        let wants_kernel = tls.as_ref().is_some_and(|tls| tls.wants_kernel());
        for (number, poll) in polls.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            let thread = thread::Builder::new().name(format!("tls-{number}")).spawn(move || {
                let _stop = StopOnDrop(Arc::clone(&shared), None);
                handshake_thread::run(number, poll, shared, wants_kernel)
            });
            let thread = thread.map_err(|error| {
                RunError(format!(
                    "cannot start a thread for TLS handshakes: {error}; give fewer workers with -t"
                ))
            })?;
            running.threads.push(thread);
        }
        let mut listeners = Some(sockets.listeners);
        for ((number, bell), udp) in bells.into_iter().enumerate().zip(sockets.udp) {
            let start = WorkerStart {
                number,
                backend,
                shared: Arc::clone(&shared),
                bell,
                // The first worker accepts for all.
                listeners: listeners.take(),
                tls: tls.clone(),
                udp,
            };
            let make_service = Arc::clone(&make_service);
            let thread = thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
                // However a worker ends, the server must not go on without it.
                let _stop = StopOnDrop(Arc::clone(&start.shared), Some(start.number));
                start.run(&*make_service)
            });
            let thread = thread.map_err(|error| {
                RunError(format!("cannot start worker {number}: {error}; give fewer with -t"))
            })?;
            running.threads.push(thread);
        }
        Ok(running)
    }
}

/// Lets go of a worker's connections when the worker ends, and stops all other workers if the server was not told to
/// stop. Without a number it is a thread for handshakes that ends.
struct StopOnDrop(Arc<Shared>, Option<usize>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(worker) = self.1 {
            self.0.registry.forget(worker);
        }
        if self.0.stage() == shared::Stage::Serving {
            self.0.stop();
        }
    }
}

/// What a worker thread needs to start.
struct WorkerStart {
    number: usize,
    backend: Backend,
    shared: Arc<Shared>,
    bell: UnixStream,
    listeners: Option<Vec<Listener>>,
    tls: Option<Arc<Tls>>,
    udp: Vec<UdpSocket>,
}

impl WorkerStart {
    fn run<S>(self, make_service: &impl Fn(usize) -> S) -> io::Result<()>
    where
        S: Service,
    {
        let acceptor = self.listeners.map(|listeners| Acceptor::new(listeners, self.tls));
        let listeners = acceptor.as_ref().map(|acceptor| Rc::clone(&acceptor.listeners));
        let service = make_service(self.number);
        let udp = UdpPorts::new(self.udp, &self.shared.buffers);
        match self.backend {
            #[cfg(target_os = "linux")]
            Backend::Auto | Backend::Ring => {
                let mut ring = ring::build()?;
                let buffers = Arc::clone(&self.shared.buffers);
                let driver = ring::RingDriver::new(&mut ring, self.bell, listeners, buffers)?;
                let mut worker = Worker::new(self.number, self.shared, service, driver, acceptor, udp);
                let ended = ring::run(&mut worker);
                worker.end();
                ended
            }
            _ => {
                let driver = poll::PollDriver::new(self.bell, listeners)?;
                let shared = Arc::clone(&self.shared);
                shared.buffers.take_receiving(poll::ARENA_BYTES as u64);
                let mut worker = Worker::new(self.number, self.shared, service, driver, acceptor, udp);
                let ended = poll::run(&mut worker);
                worker.end();
                drop(worker);
                shared.buffers.give_receiving(poll::ARENA_BYTES as u64);
                ended
            }
        }
    }
}

/// A running server. Dropping the value neither stops the server nor waits for it.
#[derive(Debug)]
pub struct Running {
    addresses: Addresses,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    unix: Option<PathBuf>,
}

impl Running {
    /// The addresses that the server listens on.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
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

    /// The server's clock in seconds, which read 2 when the server started. [`Service::tick`] gets the same.
    pub fn now_s(&self) -> u32 {
        self.shared.now_s()
    }

    /// Waits until every worker has ended, then removes the unix socket's file.
    ///
    /// # Errors
    /// The error of a worker that ended by itself. A panic is one.
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
