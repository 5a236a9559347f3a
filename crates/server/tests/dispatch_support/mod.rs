//! A dispatcher without drivers: a test hands it bytes in pieces and takes its replies.

#![allow(dead_code, reason = "each user takes its part")]

pub(crate) mod binary_twin;
pub(crate) mod resp_twin;

use larder_cache::{Cache, CacheOptions};
use larder_server::dispatch::{Connection, Dispatcher, Drivers, RespShared, ServerState, Users};
use larder_server::io::{
    self, Backend, Buffers, CloseReason, Conversation, IoCounters, ListenOptions, Peer, Ready, Registry,
    Service,
};
use larder_server::latency::WorkerLatency;
use larder_server::settings::Settings;
use std::net::TcpStream;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};

/// A client that is connected while [`on_a_connection`] runs, and the server's counters.
pub(crate) struct Client<'a> {
    /// The client's address, with which every [`Talk`] is opened.
    pub(crate) peer: &'a Peer<'a>,
    /// The drivers' counters.
    pub(crate) counters: Arc<IoCounters>,
    /// The open connections.
    pub(crate) registry: Arc<Registry>,
}

type Body = Box<dyn FnOnce(&Client<'_>) + Send>;

/// Runs `body` on a worker's thread, with the address of a connected client, which only drivers can make. The bytes of
/// the test do not go through the socket.
pub(crate) fn on_a_connection<R: Send + 'static>(body: impl FnOnce(&Client<'_>) -> R + Send + 'static) -> R {
    let options = ListenOptions {
        tcp_port: Some(0),
        udp_port: None,
        addresses: vec!["127.0.0.1".into()],
        workers: 1,
        backend: Backend::Poll,
        ..ListenOptions::default()
    };
    let bound = io::bind(&options, &io::Inherited::default()).expect("a port of this machine is free");
    let at = bound.addresses().tcp[0];
    let (counters, registry, stopper) = (bound.counters(), bound.registry(), bound.stopper());
    let (sender, receiver) = mpsc::channel();
    let body: Body = Box::new(move |client| {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(client)));
        let _ = sender.send(ended);
    });
    let (done, wait) = mpsc::channel();
    let act = Arc::new(Mutex::new(Some((body, counters, registry, done))));
    let running =
        bound.start(move |_| Stage { act: act.clone(), clients: 0 }).expect("a worker can be started");
    // The first client is counted by the time the second one comes.
    let _clients = [(); 2].map(|()| {
        let client = TcpStream::connect(at).expect("the server listens");
        let _ = wait.recv();
        client
    });
    stopper.stop_now();
    running.join().expect("the worker ends when told to");
    match receiver.recv().expect("the body ran") {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

type Act = (Body, Arc<IoCounters>, Arc<Registry>, Sender<()>);

/// A service that runs the body when its second client connects.
struct Stage {
    act: Arc<Mutex<Option<Act>>>,
    clients: u32,
}

/// A connection of a [`Stage`], which never replies.
struct Silent;

impl Service for Stage {
    type Connection = Silent;

    fn open(&mut self, peer: &Peer<'_>) -> Silent {
        self.clients += 1;
        let mut act = self.act.lock().expect("no panic under this lock");
        if self.clients == 2
            && let Some((body, counters, registry, done)) = act.take()
        {
            body(&Client { peer, counters, registry });
            let _ = done.send(());
        } else if let Some((.., done)) = &*act {
            let _ = done.send(());
        }
        Silent
    }

    fn serve(&mut self, _: &mut [Ready<'_, Silent>]) {}
    fn closed(&mut self, _: Silent, _: CloseReason) {}
    fn before_wait(&mut self) {}
    fn after_wait(&mut self) {}
    fn tick(&mut self, _: u32) {}
}

impl Conversation for Silent {
    fn take_output(&mut self) -> Option<Vec<u8>> {
        None
    }

    fn recycle(&mut self, _: Vec<u8>) {}

    fn has_output(&self) -> bool {
        false
    }

    fn wants_close(&self) -> bool {
        false
    }

    fn wants_input(&self) -> bool {
        true
    }

    fn input_wanted(&self) -> usize {
        0
    }
}

/// A dispatcher with a cache of its own.
pub(crate) fn dispatcher(
    settings: Settings,
    seed: Option<u64>,
    client: Option<&Client<'_>>,
) -> (Dispatcher, Arc<Cache>) {
    let cache = Cache::new(CacheOptions {
        limit_bytes: settings.memory_bytes,
        item_bytes_max: u64::from(settings.item_bytes_max),
        evict: settings.evict,
        workers: settings.threads as usize,
        placement: settings.placement,
        hashpower: settings.hashpower,
        seed,
        ..CacheOptions::default()
    })
    .expect("a small cache can be made");
    let drivers = client.map(|client| Drivers {
        bells: None,
        counters: client.counters.clone(),
        registry: client.registry.clone(),
        buffers: Arc::new(Buffers::new(cache.buffers_cap_bytes())),
        backend: Backend::Poll,
        resp_ports: Vec::new(),
        tls: None,
        on_shutdown: None,
        limits: None,
    });
    let users = settings.auth_file.as_deref().map(|path| Users::read(path).expect("a file of users"));
    let state = Arc::new(ServerState::new(settings, users, drivers, None, None));
    let shared = Arc::new(RespShared::new(&state));
    (Dispatcher::new(cache.worker(), 0, state, shared, Arc::from(WorkerLatency::new())), cache)
}

/// The most bytes of unserved input. A dispatcher never waits for more bytes in one piece.
const LEFT_OVER_BYTES_MAX: usize = (1 << 20) + (128 << 10);

/// The most turns in a row in which the dispatcher neither takes input nor replies.
const FRUITLESS_MAX: u32 = 100_000;

/// One conversation with a dispatcher. It serves the connection as a driver does.
pub(crate) struct Talk {
    connection: Option<Connection>,
    left_over: Vec<u8>,
    /// The replies that the test has not taken yet.
    pub(crate) answered: Vec<u8>,
    /// The largest output buffer so far, in bytes.
    pub(crate) output_bytes_max: usize,
}

impl Talk {
    /// Opens a connection.
    pub(crate) fn open(dispatcher: &mut Dispatcher, peer: &Peer<'_>) -> Talk {
        let connection = Some(dispatcher.open(peer));
        Talk { connection, left_over: Vec::new(), answered: Vec::new(), output_bytes_max: 0 }
    }

    /// Whether the connection waits for something that is not its client.
    pub(crate) fn waits(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_waiting)
    }

    /// Whether the dispatcher closed it.
    pub(crate) fn is_closed(&self) -> bool {
        self.connection.is_none()
    }

    /// `bytes` arrive in one piece.
    pub(crate) fn send(&mut self, dispatcher: &mut Dispatcher, bytes: &[u8]) {
        if self.connection.is_none() {
            return;
        }
        self.left_over.extend_from_slice(bytes);
        // A connection that wants no input may have more replies once its output is taken.
        let mut is_stalled = true;
        let mut fruitless = 0;
        while let (Some(connection), true) = (&mut self.connection, is_stalled) {
            let mut batch = [Ready { connection, input: &self.left_over, consumed: 0 }];
            dispatcher.serve(&mut batch);
            let consumed = batch[0].consumed;
            assert!(
                consumed <= self.left_over.len(),
                "{consumed} of {} bytes consumed",
                self.left_over.len()
            );
            self.left_over.drain(..consumed);
            is_stalled = !connection.wants_input() && !connection.is_waiting();
            let mut answered = false;
            while let Some(output) = connection.take_output() {
                assert!(!output.is_empty(), "an output that is ready is not empty");
                answered = true;
                self.output_bytes_max = self.output_bytes_max.max(output.len());
                self.answered.extend_from_slice(&output);
                connection.recycle(output);
            }
            assert!(!connection.has_output());
            if connection.wants_close() {
                self.close(dispatcher);
                break;
            }
            let wanted = connection.input_wanted();
            assert!(wanted <= LEFT_OVER_BYTES_MAX, "{wanted} bytes of input are waited for");
            // A dump may have some turns without items.
            fruitless = if answered || consumed > 0 { 0 } else { fruitless + 1 };
            assert!(fruitless < FRUITLESS_MAX, "a connection wants no input and says nothing");
        }
        assert!(self.left_over.len() <= LEFT_OVER_BYTES_MAX, "{} bytes are left over", self.left_over.len());
    }

    /// The client goes away.
    pub(crate) fn close(&mut self, dispatcher: &mut Dispatcher) {
        if let Some(connection) = self.connection.take() {
            dispatcher.closed(connection, CloseReason::Normal);
        }
        self.left_over.clear();
    }

    /// Takes one line of the replies, without its end. `None` = there is no whole line.
    pub(crate) fn line(&mut self) -> Option<Vec<u8>> {
        let newline = self.answered.windows(2).position(|two| two == b"\r\n")?;
        let line = self.answered.drain(..newline + 2).take(newline).collect();
        Some(line)
    }

    /// Takes one line, which may end in LF alone.
    pub(crate) fn loose_line(&mut self) -> Option<Vec<u8>> {
        let newline = self.answered.iter().position(|&byte| byte == b'\n')?;
        let mut line: Vec<u8> = self.answered.drain(..=newline).collect();
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Some(line)
    }
}
