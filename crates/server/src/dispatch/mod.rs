//! Bytes in, requests, bytes out: the only place that knows both the protocol and the cache.
//!
//! A worker's turn takes all connections that have input. Their requests are gathered into a **window** of up to
//! [`WINDOW_OPS`] keys: parsing a request hashes its key and asks for its bucket (stage 1); when the window is full, every
//! key's tag is looked up and its record asked for (stage 2), for one key in seven by way of a sub-bucket (stage 3), then
//! the rest of the values; only then are the requests executed, in their order, and find everything in the CPU's cache. So the latency of memory is overlapped
//! across all pipelined requests, all keys of a multiget and all connections of the turn.
//!
//! What stage 2 found is only a hint. A GET may use it as long as no write was executed in the window before it
//! and the worker has not let go of its epoch; the key is compared in any case.

mod auth;
mod classic;
mod connection;
mod fetches;
mod meta;
mod stats;
mod stats_flash;
mod upload;

pub use auth::AuthFile;
pub use connection::Connection;
pub use stats::Detail;

use crate::flash::FlashKnown;
use crate::io::{Backend, Buffers, ConnectionId, IoCounters, Peer, Ready, Registry, Service, Transport};
use crate::latency::{Class, WorkerLatency};
use crate::settings::{Promote, Settings};
use arrayvec::ArrayVec;
use classic::Answered;
use connection::{Busy, OUTPUT_SOFT_BYTES, OUTPUT_TIGHT_BYTES, Pool};
use fetches::Fetches;
use larder_cache::{KEY_BYTES_MAX, KeyHash, Peek, Worker};
use larder_protocol::{Keys, MetaVerb, ParseOptions, Request, Step, decode_key, parse};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Instant;

/// Keys whose memory accesses are overlapped. Twice as many would still fit the first-level cache with their buckets
/// and records; more would push each other out.
const WINDOW_OPS: usize = 32;
/// Of a line that is logged.
const LOGGED_BYTES_MAX: usize = 300;

/// What all workers' dispatchers share besides the cache.
pub struct Shared {
    /// The settings the server was started with.
    pub settings: Settings,
    /// Counters of the drivers, once they run.
    pub io: OnceLock<(Arc<IoCounters>, Arc<Registry>)>,
    /// The account of connection buffers, once the drivers run.
    pub buffers: OnceLock<Arc<Buffers>>,
    /// Users that may log in, with `-Y`.
    pub auth: RwLock<Option<AuthFile>>,
    /// What to do on `shutdown`: `true` = gracefully.
    pub on_shutdown: OnceLock<Box<dyn Fn(bool) + Send + Sync>>,
    /// The backend that moves the bytes, once it is chosen.
    pub backend: OnceLock<Backend>,
    /// What there is of flash.
    pub flash: OnceLock<FlashKnown>,
    /// `stats detail on`.
    pub detail_on: AtomicBool,
    /// What `stats detail` counted.
    pub detail: Detail,
    /// `verbosity`.
    pub verbosity: AtomicU8,
    /// Totals at the last `stats reset`.
    pub reset: RwLock<larder_cache::Totals>,
    started: Instant,
    /// The page kind in one sentence, for `stats settings`.
    pub pages: String,
}

impl Shared {
    /// What everybody shares before anything runs.
    pub fn new(settings: Settings, pages: String, users: Option<AuthFile>) -> Shared {
        Shared {
            io: OnceLock::new(),
            buffers: OnceLock::new(),
            auth: RwLock::new(users),
            on_shutdown: OnceLock::new(),
            backend: OnceLock::new(),
            flash: OnceLock::new(),
            detail_on: AtomicBool::new(settings.detail_enabled),
            detail: Detail::default(),
            verbosity: AtomicU8::new(settings.verbosity),
            reset: RwLock::default(),
            started: Instant::now(),
            pages,
            settings,
        }
    }

    /// The drivers' clock, in seconds: it reads 2 when the server starts.
    fn io_now_s(&self) -> u32 {
        2 + self.started.elapsed().as_secs() as u32
    }
}

/// One worker's dispatcher.
pub struct Dispatcher {
    worker: Worker,
    shared: Arc<Shared>,
    latency: Arc<WorkerLatency>,
    pool: Rc<Pool>,
    parse_options: ParseOptions,
    /// How many requests of each class the present turn executed.
    executed: [u32; Class::ALL.len()],
    /// Whether every request is logged (`-vv`).
    logs: bool,
    /// What is on its way from flash, where there is one.
    fetches: Option<Box<Fetches>>,
}

/// One key's work in a window.
struct Op<'a> {
    connection: u32,
    /// Where the request ends in the connection's input.
    end: usize,
    hash: KeyHash,
    key: &'a [u8],
    at: Peek,
    what: What<'a>,
}

enum What<'a> {
    /// One key of a `get`, `gets`, `gat` or `gats`.
    Key(KeyOf),
    /// A request that is executed in one go.
    Whole(Request<'a>),
    /// The line of a storage request whose value follows in pieces.
    Upload(&'a [u8], u32),
    /// A request refused by the parser.
    Reject { error: &'static str, swallow: u64 },
    /// The connection is closed without a word.
    Close,
}

type Window<'a> = ArrayVec<Op<'a>, WINDOW_OPS>;

/// Where gathering stands: which connection, how far into its input, and the rest of a `get` line.
struct Cursor<'a> {
    connection: usize,
    at: usize,
    keys: Option<(Keys<'a>, KeyOf, usize)>,
}

/// What is wanted of a key, beside its value.
#[derive(Clone, Copy)]
struct KeyOf {
    /// The CAS number too.
    with_cas: bool,
    /// A new expiry.
    touch: Option<i32>,
    /// It is the last one of its line.
    last: bool,
}

/// Why gathering stopped.
#[derive(PartialEq, Eq)]
enum Gathered {
    /// The window is full, or what follows depends on what is in it.
    Execute,
    /// Every connection was visited.
    Done,
}

impl Dispatcher {
    /// A dispatcher over a worker's hand in the cache.
    pub fn new(worker: Worker, shared: Arc<Shared>, latency: Arc<WorkerLatency>) -> Dispatcher {
        let parse_options = ParseOptions {
            whole_bytes_max: worker.cache().whole_value_bytes_max(),
            ..ParseOptions::default()
        };
        let flash = &shared.settings.flash;
        let strict = flash.promote == Promote::Strict;
        let has_flash = worker.cache().flash_tier().is_some();
        let fetches =
            has_flash.then(|| Box::new(Fetches::new(flash.depth.min(worker.fetch_depth()), strict)));
        Dispatcher {
            worker,
            shared,
            latency,
            pool: Rc::default(),
            parse_options,
            executed: [0; Class::ALL.len()],
            logs: false,
            fetches,
        }
    }

    /// Fills the window from the cursor on. Stage 1 of every key happens here.
    fn gather<'a>(
        &mut self,
        batch: &mut [Ready<'a, Connection>],
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a>,
    ) -> Gathered {
        while cursor.connection < batch.len() {
            let ready = &mut batch[cursor.connection];
            let input: &'a [u8] = ready.input;
            loop {
                if let Some((keys, of, end)) = &mut cursor.keys {
                    if self.gather_keys(keys, *of, *end, cursor.connection as u32, window) {
                        return Gathered::Execute;
                    }
                    cursor.at = *end;
                    cursor.keys = None;
                }
                if window.is_full() {
                    return Gathered::Execute;
                }
                let nothing_ahead = cursor.at == ready.consumed;
                if ready.connection.needs_turn() {
                    // A turn of its own, once the requests before it are executed.
                    if !nothing_ahead {
                        return Gathered::Execute;
                    }
                    self.take_turn(ready);
                    let progressed = ready.consumed > cursor.at;
                    cursor.at = ready.consumed;
                    if ready.connection.needs_turn() && !progressed {
                        break;
                    }
                    continue;
                }
                if ready.connection.closing || ready.connection.is_backed_up() || cursor.at >= input.len() {
                    break;
                }
                let (request, consumed, body) = match parse(&input[cursor.at..], &self.parse_options) {
                    Step::NeedMore { at_least } => {
                        ready.connection.input_wanted = at_least;
                        break;
                    }
                    Step::Request { request: Request::Get(get), consumed } => {
                        let mut keys = get.keys;
                        if nothing_ahead && ready.connection.keys_done > 0 {
                            keys.by_ref().take(ready.connection.keys_done).for_each(drop);
                        }
                        let of = KeyOf { with_cas: get.with_cas, touch: get.exptime, last: false };
                        cursor.keys = Some((keys, of, cursor.at + consumed));
                        continue;
                    }
                    Step::Request { request, consumed } => (What::Whole(request), consumed, false),
                    Step::Upload { consumed, body_bytes, .. } => {
                        (What::Upload(&input[cursor.at..cursor.at + consumed], body_bytes), consumed, true)
                    }
                    Step::Reject { error, consumed, swallow } => {
                        (What::Reject { error, swallow }, consumed, true)
                    }
                    Step::Close => (What::Close, input.len() - cursor.at, true),
                };
                cursor.at += consumed;
                let key = key_of(&request);
                let hash = self.worker.cache().hash(key);
                let at = match key {
                    [] => Peek::Absent,
                    _ => Peek::Near(self.worker.lookup().prefetch_bucket(hash)),
                };
                let connection = cursor.connection as u32;
                window.push(Op { connection, end: cursor.at, hash, key, at, what: request });
                // What follows a data block still to come, or a refusal, is known only once that is dealt with.
                if body {
                    return Gathered::Execute;
                }
            }
            cursor.connection += 1;
            cursor.at = 0;
            if let Some(next) = batch.get(cursor.connection) {
                cursor.at = next.consumed;
            }
        }
        Gathered::Done
    }

    /// Puts keys of a `get` into the window. Returns whether the window is full before the line's end.
    fn gather_keys<'a>(
        &self,
        keys: &mut Keys<'a>,
        of: KeyOf,
        end: usize,
        connection: u32,
        window: &mut Window<'a>,
    ) -> bool {
        let lookup = self.worker.lookup();
        while keys.len() > 0 {
            if window.is_full() {
                return true;
            }
            let Some(key) = keys.next() else { break };
            let hash = self.worker.cache().hash(key);
            let at = Peek::Near(lookup.prefetch_bucket(hash));
            let what = What::Key(KeyOf { last: keys.len() == 0, ..of });
            window.push(Op { connection, end, hash, key, at, what });
        }
        false
    }

    /// Stages 2 and 3 and the values, then everything in order.
    fn execute<'a>(&mut self, batch: &mut [Ready<'a, Connection>], window: &mut Window<'a>) {
        let lookup = self.worker.lookup();
        for op in window.iter_mut() {
            if let Peek::Near(place) = op.at {
                op.at = lookup.locate(op.hash, place);
            }
        }
        for op in window.iter_mut() {
            if let Peek::Below(below) = op.at {
                op.at = lookup.locate_below(op.hash, below).map_or(Peek::Absent, Peek::Found);
            }
        }
        for op in window.iter() {
            if let (Some(seen), What::Key(_)) = (op.at.seen(), &op.what) {
                lookup.prefetch_value(seen);
            }
        }
        let held = self.worker.quiesced();
        let mut written = false;
        for op in window.drain(..) {
            let ready = &mut batch[op.connection as usize];
            // A connection that backed up or closed answers no more; its requests stay in the input.
            if ready.connection.is_backed_up() || ready.connection.closing || op.end <= ready.consumed {
                continue;
            }
            let input: &[u8] = ready.input;
            let asked = match op.what {
                What::Key(_) => op.key,
                _ => &input[ready.consumed..op.end],
            };
            let answered_before = ready.connection.out.len();
            let mut key_answered = false;
            let completes = match op.what {
                What::Key(of) => {
                    let hint = if written || held != self.worker.quiesced() { None } else { op.at.seen() };
                    written |= of.touch.is_some();
                    let answered = self.answer_key(ready.connection, op.hash, op.key, hint, of);
                    key_answered = answered != Answered::Waits;
                    answered == Answered::Line
                }
                What::Whole(request) => {
                    written |= writes(&request);
                    self.execute_whole(ready.connection, request, op.hash)
                }
                What::Upload(line, body_bytes) => {
                    written = true;
                    self.begin_receiving(ready.connection, line, body_bytes)
                }
                What::Reject { error, swallow } => {
                    ready.connection.say(error);
                    ready.connection.swallow = swallow;
                    true
                }
                What::Close => {
                    ready.connection.closing = true;
                    true
                }
            };
            // What waits for the rest of its value, or for flash, is logged when it is answered.
            let connection = &*ready.connection;
            let is_answered = connection.out.len() > answered_before
                || key_answered
                || (completes && connection.busy.is_none());
            if self.logs && is_answered {
                log_request(connection, asked, answered_before);
            }
            self.hold_uncommitted(ready.connection);
            if completes {
                ready.connection.tries = 0;
                ready.consumed = op.end;
                ready.connection.keys_done = 0;
                ready.connection.input_wanted = 0;
            }
        }
    }

    /// Executes a request, unless it has to wait for flash first. Returns whether it did.
    fn execute_whole(&mut self, connection: &mut Connection, request: Request<'_>, hash: KeyHash) -> bool {
        let mut on_flash = false;
        if self.fetches.is_some() {
            match self.bring_present(connection, &request, hash) {
                Some(is_there) => on_flash = is_there,
                None => return false,
            }
        }
        let class = class_of(&request);
        self.executed[class as usize] += 1;
        match request {
            Request::Meta(meta) => self.execute_meta(connection, &meta, hash, on_flash),
            request => self.execute_classic(connection, request, hash, on_flash),
        }
        true
    }

    /// Whether connections hold half of what their buffers may take.
    fn buffers_are_tight(&self) -> bool {
        self.shared.buffers.get().is_some_and(|buffers| buffers.used_bytes() * 2 > buffers.limit_bytes())
    }

    /// Something that is not a request: the next piece of a large value or of a dump, octets to throw away, a login.
    fn take_turn(&mut self, ready: &mut Ready<'_, Connection>) {
        match &ready.connection.busy {
            Some(Busy::Sending { .. } | Busy::Handing { .. }) => self.continue_sending(ready),
            Some(Busy::Promoting(_)) => self.continue_promoting(ready.connection),
            Some(Busy::Receiving(_)) => self.continue_receiving(ready),
            Some(Busy::Listing { .. }) => self.continue_listing(ready.connection),
            None if ready.connection.swallow == 0 => self.log_in(ready),
            None => {}
        }
        self.hold_uncommitted(ready.connection);
        // Receiving may have failed just now, and what it was given is then thrown away in the same turn.
        let left = (ready.input.len() - ready.consumed) as u64;
        let gone = left.min(ready.connection.swallow);
        ready.connection.swallow -= gone;
        ready.consumed += gone as usize;
    }
}

impl Connection {
    /// Whether [`Dispatcher::take_turn`] has to be asked before the input can be read as requests.
    #[inline]
    fn needs_turn(&self) -> bool {
        self.swallow > 0 || self.busy.is_some() || !self.authenticated
    }
}

impl Service for Dispatcher {
    type Connection = Connection;

    fn open(&mut self, peer: &Peer<'_>) -> Connection {
        let is_datagram = peer.transport == Transport::Udp;
        let authenticated = self.shared.auth.read().expect("no panic under this lock").is_none();
        Connection::new(&self.pool, peer.id, authenticated, is_datagram)
    }

    fn serve(&mut self, batch: &mut [Ready<'_, Connection>]) {
        let started = Instant::now();
        self.logs = tracing::enabled!(target: "larder::requests", tracing::Level::DEBUG);
        let output_most = if self.buffers_are_tight() { OUTPUT_TIGHT_BYTES } else { OUTPUT_SOFT_BYTES };
        for ready in batch.iter_mut() {
            ready.connection.waits = false;
            if !ready.connection.is_datagram {
                ready.connection.output_most = output_most;
            }
        }
        let mut window = Window::new();
        let mut cursor = Cursor { connection: 0, at: 0, keys: None };
        loop {
            let gathered = self.gather(batch, &mut cursor, &mut window);
            self.execute(batch, &mut window);
            if let Some(ready) = batch.get(cursor.connection)
                && (ready.connection.is_backed_up() || ready.connection.closing)
            {
                // The rest of this connection's input waits.
                cursor = Cursor { connection: cursor.connection + 1, at: 0, keys: None };
            }
            if gathered == Gathered::Done {
                break;
            }
        }
        if self.fetches.is_some() {
            self.settle_flash(batch);
        }
        self.worker.quiesce();
        let took_ns = started.elapsed().as_nanos() as u64;
        for (class, count) in self.executed.iter_mut().enumerate() {
            if *count > 0 {
                self.latency.record(Class::ALL[class], took_ns, *count as u64);
                *count = 0;
            }
        }
    }

    fn closed(&mut self, mut connection: Connection) {
        self.forget_fetches(&mut connection);
        match connection.busy.take() {
            Some(Busy::Promoting(promoting)) => self.forget_promotion(*promoting),
            Some(Busy::Sending { value, .. }) => self.worker.end_large_read(value),
            Some(Busy::Receiving(receiving)) => self.worker.abandon_upload(receiving.upload),
            Some(Busy::Handing { .. } | Busy::Listing { .. }) | None => {}
        }
    }

    fn wake_fd(&self) -> Option<RawFd> {
        self.worker.fetch_fd()
    }

    fn woken(&mut self, wake: &mut Vec<ConnectionId>) {
        self.hear_of_flash(wake);
    }

    fn before_wait(&mut self) {
        self.worker.offline();
    }

    fn after_wait(&mut self) {
        self.worker.online();
    }

    fn tick(&mut self, _now_s: u32) {
        self.worker.cache().tick();
        self.worker.tick();
    }
}

/// Logs the first line of what was asked, or the key of a `get`, and of what was answered: never a
/// value, unless it is a counter.
#[cold]
pub(super) fn log_request(connection: &Connection, asked: &[u8], answered_before: usize) {
    let first_line = |text: &[u8]| {
        let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
        line[..line.len().min(LOGGED_BYTES_MAX)].trim_ascii_end().escape_ascii().to_string()
    };
    let answered = connection.out.get(answered_before..).unwrap_or_default();
    tracing::debug!(target: "larder::requests",
        "{}: {} -> {}", connection.id, first_line(asked), first_line(answered));
}

/// The key whose bucket is asked for ahead; empty where there is none or it is not known without work.
#[inline]
fn key_of<'a>(what: &What<'a>) -> &'a [u8] {
    let What::Whole(request) = what else { return &[] };
    match request {
        Request::Store(store) => store.key,
        Request::Delete { key, .. } | Request::Touch { key, .. } | Request::Arith { key, .. } => key,
        Request::Meta(meta) if !meta.flags.has(b'b') => meta.key,
        _ => &[],
    }
}

/// Whether what stage 2 found may be out of date after this request.
fn writes(request: &Request<'_>) -> bool {
    match request {
        Request::Meta(meta) => meta.verb != MetaVerb::Get || meta.flags.has(b'N') || meta.flags.has(b'T'),
        Request::MetaNoop | Request::Version | Request::Verbosity { .. } => false,
        _ => true,
    }
}

fn class_of(request: &Request<'_>) -> Class {
    match request {
        Request::Get(_) => Class::Get,
        Request::Store(_) => Class::Set,
        Request::Delete { .. } => Class::Delete,
        Request::Arith { .. } => Class::Arith,
        Request::Touch { .. } => Class::Touch,
        Request::Meta(meta) => match meta.verb {
            MetaVerb::Get => Class::MetaGet,
            MetaVerb::Set => Class::MetaSet,
            MetaVerb::Delete => Class::Delete,
            MetaVerb::Arith => Class::Arith,
            MetaVerb::Debug => Class::Other,
        },
        _ => Class::Other,
    }
}

/// The key that a meta request means: the token, or what it decodes to.
pub(crate) fn meta_key<'b>(
    token: &'b [u8],
    is_base64: bool,
    buffer: &'b mut [u8; KEY_BYTES_MAX],
) -> &'b [u8] {
    if is_base64 { decode_key(token, buffer).unwrap_or(&[]) } else { token }
}
