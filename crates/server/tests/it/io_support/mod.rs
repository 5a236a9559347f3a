//! A service of lines to test the drivers with, and helpers that the tests share.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use larder_server::io::{
    self, Backend, CloseReason, ConnectionId, Conversation, ListenOptions, Peer, Ready, Running, Service,
};

/// With this many bytes a connection's output is full.
const OUTPUT_BYTES_MAX: usize = 32 * 1024;
/// A wait ends with its event. This limit is there so that a test ends that would wait for ever.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// What the services of a server have seen, for the tests.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    pub(crate) opened: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) served: AtomicU64,
    pub(crate) ticks: AtomicU64,
    /// The most unsent output one connection held.
    pub(crate) output_bytes_max: AtomicU64,
    /// The most connections in one batch.
    pub(crate) batch_max: AtomicU64,
    /// The texts that connections wait for.
    later: Mutex<Vec<Later>>,
}

/// A `later` request that a connection waits for: its text, the connection to wake, and whom to tell that it has come.
#[derive(Debug)]
struct Later {
    text: String,
    id: ConnectionId,
    come: Arc<AtomicBool>,
    news: Arc<News>,
}

/// The news for one worker's service.
#[derive(Debug)]
struct News {
    come: Mutex<Vec<ConnectionId>>,
    /// There are news of which the descriptor tells nothing.
    is_soon: AtomicBool,
    say: UnixStream,
}

/// `echo X` -> `X`; `later X` -> `X`, but not before the test says so ([`Server::release`]); `rumour X`: the same, but
/// the service says that it has news; `soon X` -> `X`, when the worker has asked for news after its batch; `big N` -> N
/// letters; `body N` + N bytes -> their sum; `quit` closes; `panic` does.
pub(crate) struct LineService {
    seen: Arc<Observed>,
    waiting: bool,
    news: Arc<News>,
    hear: UnixStream,
}

pub(crate) struct Line {
    seen: Arc<Observed>,
    output: Vec<u8>,
    /// Letters of a `big` reply still to be made.
    letters_left: usize,
    letters_made: usize,
    wanted: usize,
    quits: bool,
    id: ConnectionId,
    news: Arc<News>,
    /// Whether what is waited for has come, and the answer then.
    later: Option<(Arc<AtomicBool>, String)>,
}

impl Line {
    fn make_letters(&mut self) {
        while self.letters_left > 0 && self.output.len() < OUTPUT_BYTES_MAX {
            self.output.push(letter(self.letters_made));
            self.letters_made += 1;
            self.letters_left -= 1;
            if self.letters_left == 0 {
                self.output.push(b'\n');
            }
        }
        self.seen.output_bytes_max.fetch_max(self.output.len() as u64, Ordering::Relaxed);
    }

    /// Serves one request at the front of `input`; how many bytes it took, 0 = it is not complete.
    fn request(&mut self, input: &[u8]) -> usize {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            self.wanted = input.len() + 1;
            return 0;
        };
        let line = std::str::from_utf8(&input[..end]).expect("tests send text");
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut taken = end + 1;
        match verb {
            "echo" => {
                self.output.extend_from_slice(rest.as_bytes());
                self.output.push(b'\n');
            }
            "big" => {
                (self.letters_left, self.letters_made) = (rest.parse().expect("a length"), 0);
                self.make_letters();
            }
            "body" => {
                let length: usize = rest.parse().expect("a length");
                let Some(body) = input.get(taken..taken + length) else {
                    self.wanted = taken + length;
                    return 0;
                };
                let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
                self.output.extend_from_slice(format!("{length} {sum}\n").as_bytes());
                taken += length;
            }
            "later" | "rumour" => {
                self.news.is_soon.fetch_or(verb == "rumour", Ordering::AcqRel);
                let come = Arc::new(AtomicBool::new(false));
                self.later = Some((Arc::clone(&come), format!("{rest}\n")));
                let news = Arc::clone(&self.news);
                self.seen.later.lock().unwrap().push(Later { text: rest.into(), id: self.id, come, news });
            }
            "soon" => {
                self.later = Some((Arc::new(AtomicBool::new(true)), format!("{rest}\n")));
                self.news.come.lock().unwrap().push(self.id);
                self.news.is_soon.store(true, Ordering::Release);
            }
            "quit" => self.quits = true,
            "panic" => panic!("as it was asked to"),
            _ => self.output.extend_from_slice(b"ERROR\n"),
        }
        self.wanted = 0;
        taken
    }
}

/// The letter at a place of a `big` reply.
pub(crate) fn letter(at: usize) -> u8 {
    b'a' + (at % 23) as u8
}

impl Service for LineService {
    type Connection = Line;

    fn open(&mut self, peer: &Peer<'_>) -> Line {
        assert!(!peer.remote().is_empty() && peer.fd >= 0);
        self.seen.opened.fetch_add(1, Ordering::Relaxed);
        Line {
            seen: Arc::clone(&self.seen),
            output: Vec::new(),
            letters_left: 0,
            letters_made: 0,
            wanted: 0,
            quits: false,
            id: peer.id,
            news: Arc::clone(&self.news),
            later: None,
        }
    }

    fn serve(&mut self, batch: &mut [Ready<'_, Line>]) {
        assert!(!self.waiting && !batch.is_empty());
        self.seen.batch_max.fetch_max(batch.len() as u64, Ordering::Relaxed);
        for one in batch {
            assert_eq!(one.consumed, 0);
            if let Some((come, reply)) = one.connection.later.take() {
                assert!(come.load(Ordering::Acquire), "served while it waits");
                one.connection.output.extend_from_slice(reply.as_bytes());
            }
            while one.connection.wants_input() && !one.connection.quits && one.consumed < one.input.len() {
                let taken = one.connection.request(&one.input[one.consumed..]);
                if taken == 0 {
                    break;
                }
                one.consumed += taken;
                self.seen.served.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn closed(&mut self, _connection: Line, _reason: CloseReason) {
        self.seen.closed.fetch_add(1, Ordering::Relaxed);
    }

    fn wake_fd(&self) -> Option<RawFd> {
        Some(self.hear.as_raw_fd())
    }

    fn woken(&mut self, wake: &mut Vec<ConnectionId>) {
        assert!(!self.waiting);
        while matches!(self.hear.read(&mut [0; 64]), Ok(1..)) {}
        wake.append(&mut self.news.come.lock().unwrap());
    }

    fn has_news(&mut self) -> bool {
        self.news.is_soon.swap(false, Ordering::AcqRel)
    }

    fn before_wait(&mut self) {
        self.waiting = true;
    }

    fn after_wait(&mut self) {
        self.waiting = false;
    }

    fn tick(&mut self, now_s: u32) {
        assert!(now_s >= 2 && !self.waiting);
        self.seen.ticks.fetch_add(1, Ordering::Relaxed);
    }
}

impl Conversation for Line {
    fn take_output(&mut self) -> Option<Vec<u8>> {
        self.make_letters();
        (!self.output.is_empty()).then(|| std::mem::take(&mut self.output))
    }

    fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.output.capacity() == 0 {
            buffer.clear();
            self.output = buffer;
        }
    }

    fn has_output(&self) -> bool {
        !self.output.is_empty() || self.letters_left > 0
    }

    fn output(&self) -> &[u8] {
        &self.output
    }

    fn wants_close(&self) -> bool {
        self.quits
    }

    fn wants_input(&self) -> bool {
        self.later.is_none() && self.letters_left == 0 && self.output.len() < OUTPUT_BYTES_MAX
    }

    fn is_waiting(&self) -> bool {
        self.later.is_some()
    }

    fn input_wanted(&self) -> usize {
        self.wanted
    }
}

/// A server of the line service.
pub(crate) struct Server {
    pub(crate) running: Option<Running>,
    pub(crate) seen: Arc<Observed>,
    pub(crate) at: SocketAddr,
}

impl Server {
    pub(crate) fn start(backend: Backend, change: impl FnOnce(&mut ListenOptions)) -> Server {
        let mut options = ListenOptions {
            tcp_port: Some(0),
            addresses: vec!["127.0.0.1".into()],
            workers: 1,
            backend,
            ..ListenOptions::default()
        };
        change(&mut options);
        let seen = Arc::new(Observed::default());
        let shown = Arc::clone(&seen);
        let running = io::start(&options, move |_| {
            let (say, hear) = UnixStream::pair().expect("a pair of sockets");
            hear.set_nonblocking(true).expect("a socket does not block");
            let news = Arc::new(News { come: Mutex::default(), is_soon: AtomicBool::new(false), say });
            LineService { seen: Arc::clone(&shown), waiting: false, news, hear }
        });
        let running = running.expect("a random port is free");
        let at = running.addresses().tcp.first().copied().unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
        Server { running: Some(running), seen, at }
    }

    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().expect("not stopped")
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.at).expect("the server listens");
        client.set_read_timeout(Some(WAIT_MAX)).expect("a socket has a timeout");
        client.set_nodelay(true).expect("a TCP option");
        client
    }

    /// Whether a connection waits for `later text`.
    pub(crate) fn has_later(&self, text: &str) -> bool {
        self.seen.later.lock().unwrap().iter().any(|later| later.text == text)
    }

    /// What a connection waits for comes.
    pub(crate) fn release(&self, text: &str) {
        eventually("it waits", || self.has_later(text));
        let mut all = self.seen.later.lock().unwrap();
        let at = all.iter().position(|later| later.text == text).unwrap();
        let Later { id, come, news, .. } = all.swap_remove(at);
        come.store(true, Ordering::Release);
        news.come.lock().unwrap().push(id);
        (&news.say).write_all(&[1]).unwrap();
    }

    /// Stops at once and checks that nothing is left behind.
    pub(crate) fn stop(mut self) {
        let running = self.running.take().expect("not stopped");
        running.stopper().stop_now();
        let (counters, buffers) = (running.counters(), running.buffers());
        running.join().expect("no worker failed");
        assert_eq!(self.seen.opened.load(Ordering::Relaxed), self.seen.closed.load(Ordering::Relaxed));
        assert_eq!((counters.snapshot().curr_connections, buffers.used_bytes()), (0, 0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stopper().stop_now();
            let ended = running.join();
            assert!(ended.is_ok() || std::thread::panicking(), "{ended:?}");
        }
    }
}

/// Asks, and reads as many bytes as are expected.
pub(crate) fn ask(client: &mut (impl Read + Write), request: &str, reply: &str) {
    client.write_all(request.as_bytes()).expect("the server reads");
    expect(client, reply);
}

pub(crate) fn expect(client: &mut impl Read, reply: &str) {
    let mut got = vec![0; reply.len()];
    client.read_exact(&mut got).expect("a reply");
    assert_eq!(String::from_utf8_lossy(&got), reply);
}

pub(crate) fn expect_closed(client: &mut impl Read) {
    match client.read(&mut [0; 16]) {
        Ok(0) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        other => panic!("still open: {other:?}"),
    }
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, is: impl Fn() -> bool) {
    let started = Instant::now();
    while !is() {
        assert!(started.elapsed() < WAIT_MAX, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs each test with both backends; without io_uring only the other one, and says so.
#[macro_export]
macro_rules! with_both_backends {
    ($($(#[$meta:meta])* fn $name:ident($backend:ident) $body:block)*) => {
        $(fn $name($backend: larder_server::io::Backend) $body)*

        mod poll {
            $($(#[$meta])* #[test] fn $name() { super::$name(larder_server::io::Backend::Poll); })*
        }

        mod ring {
            $($(#[$meta])* #[test] fn $name() {
                if $crate::io_support::ring_is_available() {
                    super::$name(larder_server::io::Backend::Ring);
                } else {
                    println!("skipped: no io_uring here");
                }
            })*
        }
    };
}

pub(crate) fn ring_is_available() -> bool {
    let options = ListenOptions {
        tcp_port: Some(0),
        addresses: vec!["127.0.0.1".into()],
        workers: 1,
        backend: Backend::Ring,
        ..ListenOptions::default()
    };
    io::bind(&options, &io::Inherited::default()).is_ok()
}
