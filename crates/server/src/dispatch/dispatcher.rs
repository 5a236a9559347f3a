//! A worker's turn: requests are read ahead, and then executed in their order.
//!
//! A turn takes all connections that have input. Their requests are gathered into a **window** of up to [`WINDOW_OPS`]
//! keys. Parsing a request hashes its key and asks for its bucket (stage 1). When the window is full, every key's tag
//! is looked up and its record asked for (stage 2), for one key in seven by way of a sub-bucket (stage 3), and then the
//! values that stand apart from their records. Only then are the requests executed, and they find everything in the
//! CPU's cache. So the latency of memory is overlapped across all pipelined requests, all keys of a multiget and all
//! connections of the turn.
//!
//! What stage 2 found is only a hint. A GET may use it as long as no write was executed in the window before it and the
//! worker has not let go of its epoch. The key is compared in any case.

mod argument;
mod client;
mod cursor;
mod packets;
mod request_log;
mod resp;
mod restricted;
mod sample;
mod server;
mod several;
mod transaction;
mod upload;

use super::connection::Connection;
use super::execute::Executor;
use super::item_key;
use super::operation::Get;
use super::output::{OUTPUT_SOFT_BYTES, OUTPUT_TIGHT_BYTES, Pool};
use super::own_keys::OwnKeys;
use super::progress::{Busy, Progress};
use super::protocol::Protocol;
use super::memcached::{
    self, AnyForm, AnyRequest, ClientTime, Command, Compose, KeyReply, KeyRooms, Login, Next, PacketForm,
};
use super::state::ServerState;
use crate::io::{CloseReason, ConnectionId, Peer, Ready, Service, Transport};
use crate::latency::{Class, WorkerLatency};
use crate::settings;
use arrayvec::ArrayVec;
pub(super) use cursor::RestOfLine;
use cursor::{Cursor, KeyRead};
use larder_cache::{Expiry, KeyHash, LookupStage, TagMatch, Worker};
use larder_protocol::resp::{Fault, Upload};
use larder_protocol::{Keys, ParseOptions, Request, Step, binary, parse, reply};
use request_log::log_progress;
use resp::{Call, RespWorker};
use sample::Sampler;
use std::ops::ControlFlow;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Keys whose memory accesses are overlapped. Twice as many would still fit the first-level cache with their buckets
/// and records; more would push each other out.
const WINDOW_OPS: usize = 32;
/// Keys of one retrieval that are executed in one turn, at most: some hundred microseconds. Then other connections have
/// their turn.
const KEYS_AT_ONCE: usize = 512;
/// The same for an `MGET`. It is more, because a request that was interrupted is read again from its beginning.
const RESP_KEYS_AT_ONCE: usize = 8192;
/// Keys that are read ahead from flash for a connection that waits, at most.
const KEYS_AHEAD: usize = 256;

/// One worker's dispatcher.
pub struct Dispatcher {
    executor: Executor,
    state: Arc<ServerState>,
    latency: Arc<WorkerLatency>,
    pool: Rc<Pool>,
    parse_options: ParseOptions,
    key_rooms: Box<KeyRooms>,
    /// How many requests of each class the present turn executed.
    executed: [u32; Class::ALL.len()],
    /// How many requests of one connection are executed before another connection has its turn (`-R`).
    requests_per_share: usize,
    /// Whether every request is logged (`-vv`).
    logs: bool,
    resp: RespWorker,
    sampler: Sampler,
}

/// One key's work in a window.
struct WindowOp<'a> {
    connection: u32,
    /// Where the request ends in the connection's input.
    end: usize,
    hash: KeyHash,
    key: &'a [u8],
    at: LookupStage,
    what: Work<'a>,
}

enum Work<'a> {
    /// One key of a retrieval.
    Key(KeyRead),
    /// A request that is executed in one go.
    Request(Request<'a>),
    /// The line of a storage request whose value follows in pieces, or the packet up to the value.
    Upload(&'a [u8]),
    /// A request refused by the parser.
    Reject { error: &'static str, swallow: u64 },
    /// The connection is closed with this reply, or without a word.
    Close(&'static str),
    /// A retrieval over the binary protocol.
    PacketGet { touch: Option<Expiry>, form: PacketForm },
    /// Another request over the binary protocol.
    Packet(binary::Request<'a>),
    /// A packet refused by the parser.
    Refuse { refusal: binary::Refusal, swallow: u64 },
    /// A key of a `GET` or `MGET` of RESP.
    RespKey(RespRead),
    /// Any other request of RESP.
    Call(Call<'a>),
    /// The head of a reply of so many values, whose keys follow in the window.
    ArrayHead(usize),
    /// A request of RESP that is a line of words.
    Line(&'a [u8]),
    /// The beginning of a request of RESP, an argument of which follows in pieces.
    Argument(Upload<'a>),
    /// What breaks the rules of RESP.
    Fault(Fault),
    /// Bytes that need no answer.
    Nothing,
}

/// A key of a retrieval of RESP.
#[derive(Clone, Copy)]
struct RespRead {
    /// The key is one of several.
    of_several: bool,
    /// No key of the request follows.
    is_last: bool,
}

type Window<'a> = ArrayVec<WindowOp<'a>, WINDOW_OPS>;
/// Keys that are read ahead from flash together.
type KeyGroup<'a> = ArrayVec<(KeyHash, &'a [u8]), 16>;

/// Why gathering stopped.
#[derive(PartialEq, Eq)]
enum Gathered {
    /// The window is full, or what follows depends on what is in it.
    Execute,
    /// Every connection was visited.
    Done,
}

/// How far the work of one window entry is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progressed {
    /// The request is answered, and its input is done with.
    Request,
    /// The key is answered, and others of its line follow.
    Key,
    /// Nothing is answered: the request waits for flash.
    Waits,
}

/// Until when the hints of a window may be used.
struct Hints {
    epoch: u64,
    /// An operation may have changed what the hints say.
    are_outdated: bool,
}

impl Hints {
    /// `epoch` = the worker's epoch now.
    #[inline]
    fn are_valid(&self, epoch: u64) -> bool {
        !self.are_outdated && self.epoch == epoch
    }
}

impl Dispatcher {
    /// A dispatcher over one worker of the cache.
    ///
    /// `number`: which of the workers this is, from 0 on.
    pub fn new(
        worker: Worker,
        number: usize,
        state: Arc<ServerState>,
        latency: Arc<WorkerLatency>,
    ) -> Dispatcher {
        let resp = RespWorker::new(state.resp().clone(), number);
        let executor = Executor::new(worker, number, state.clone(), latency.clone());
        let parse_options =
            ParseOptions { whole_bytes_max: executor.whole_value_bytes_max(), ..ParseOptions::default() };
        Dispatcher {
            executor,
            requests_per_share: state.settings().requests_per_event as usize,
            state,
            latency,
            pool: Rc::default(),
            parse_options,
            key_rooms: Box::default(),
            executed: [0; Class::ALL.len()],
            logs: false,
            resp,
            sampler: Sampler::new(number),
        }
    }

    // ---- gathering ----

    /// Fills the window from the cursor on.
    fn gather<'a>(
        &mut self,
        batch: &mut [Ready<'a, Connection>],
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a>,
    ) -> Gathered {
        while let Some(ready) = batch.get_mut(cursor.connection) {
            let before = window.len();
            cursor.window_stop = cursor.share_left.saturating_add(before).min(WINDOW_OPS);
            let has_to_execute = match ready.connection.speaks_text(ready.input) {
                true => self.gather_text(ready, cursor, window),
                false => self.gather_other(ready, cursor, window),
            };
            cursor.share_left = cursor.share_left.saturating_sub(window.len() - before);
            if has_to_execute {
                return Gathered::Execute;
            }
            cursor.visit(batch, cursor.connection + 1);
        }
        Gathered::Done
    }

    /// Fills the window with the requests of one connection that does not speak the text protocol.
    #[inline(never)]
    fn gather_other<'a>(
        &mut self,
        ready: &mut Ready<'a, Connection>,
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a>,
    ) -> bool {
        match ready.connection.protocol() {
            Protocol::Resp => self.gather_resp(ready, cursor, window),
            Protocol::TextOfOwnKeys => self.gather_text_of_own_keys(ready, cursor, window),
            _ => self.gather_packets(ready, cursor, window),
        }
    }

    /// Fills the window with the requests of one connection. Stage 1 of every key happens here. Returns whether the
    /// window has to be executed before more of this connection is read.
    #[inline(always)]
    fn gather_text<'a>(
        &mut self,
        ready: &mut Ready<'a, Connection>,
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a>,
    ) -> bool {
        let input: &'a [u8] = ready.input;
        loop {
            if let Some((keys, read, end)) = &mut cursor.keys {
                if self.gather_keys(keys, *read, *end, cursor.connection as u32, window) {
                    return true;
                }
                cursor.at = *end;
                cursor.keys = None;
            }
            if window.len() >= cursor.window_stop {
                return self.stop_gathering(ready, cursor, window);
            }
            if let ControlFlow::Break(has_to_execute) = self.come_to_request(ready, cursor) {
                return has_to_execute;
            }
            if ready.connection.rest_of_line.is_some() {
                cursor.go_on(ready);
                continue;
            }
            let (what, consumed, ends_window) = match parse(&input[cursor.at..], &self.parse_options) {
                Step::NeedMore { at_least } => {
                    ready.connection.input_wanted = at_least;
                    return false;
                }
                // Who may only read may not renew the expiry of what it reads.
                Step::Request { request: Request::Get(get), consumed }
                    if get.exptime.is_some() && !ready.connection.may_do_all() =>
                {
                    (Work::Reject { error: reply::READ_ONLY, swallow: 0 }, consumed, true)
                }
                Step::Request { request: Request::Get(get), consumed } => {
                    let mut keys = get.keys;
                    if cursor.at == ready.consumed && ready.connection.keys_done > 0 {
                        keys.by_ref().take(ready.connection.keys_done).for_each(drop);
                    }
                    let read = KeyRead { with_cas: get.with_cas, exptime: get.exptime, left: 0 };
                    cursor.keys = Some((keys, read, cursor.at + consumed));
                    continue;
                }
                Step::Request { request, consumed } => (Work::Request(request), consumed, false),
                Step::Upload { consumed, .. } => {
                    let line = &input[cursor.at..cursor.at + consumed];
                    (Work::Upload(line), consumed, true)
                }
                Step::Reject { error, consumed, swallow } => {
                    (Work::Reject { error, swallow }, consumed, true)
                }
                Step::Close => (Work::Close(""), input.len() - cursor.at, true),
                Step::Refuse(error) => (Work::Close(error), input.len() - cursor.at, true),
            };
            cursor.at += consumed;
            let key = match &what {
                Work::Request(request) => memcached::plain_key(request),
                _ => &[],
            };
            self.push(window, cursor.connection as u32, cursor.at, key, what);
            // What follows a data block still to come, or a refusal, is known only once that is dealt with.
            if ends_window {
                return true;
            }
        }
    }

    /// The window is full, or the connection has had its share. Returns whether the window is full.
    #[cold]
    fn stop_gathering(
        &self,
        ready: &mut Ready<'_, Connection>,
        cursor: &mut Cursor<'_>,
        window: &Window<'_>,
    ) -> bool {
        if !window.is_full() && cursor.gives_way(ready) {
            self.state.count_yields(1);
        }
        window.is_full()
    }

    /// Does what has to be done before the input at the cursor can be read as a request. It breaks if nothing more of
    /// this connection can be read, with whether the window has to be executed first.
    #[inline(always)]
    fn come_to_request(
        &mut self,
        ready: &mut Ready<'_, Connection>,
        cursor: &mut Cursor<'_>,
    ) -> ControlFlow<bool> {
        while ready.connection.needs_turn() {
            // A turn of its own, once the requests before it are executed.
            if cursor.at != ready.consumed {
                return ControlFlow::Break(true);
            }
            let protocol = ready.connection.protocol();
            self.take_turn(ready);
            let progressed = ready.consumed > cursor.at;
            cursor.at = ready.consumed;
            // Who has logged in may have a namespace, and is gathered otherwise.
            if ready.connection.protocol() != protocol {
                return ControlFlow::Break(true);
            }
            if ready.connection.needs_turn() && !progressed {
                return ControlFlow::Break(false);
            }
        }
        let ends = ready.connection.output.is_closing()
            || ready.connection.is_backed_up()
            || cursor.at >= ready.input.len();
        if ends { ControlFlow::Break(false) } else { ControlFlow::Continue(()) }
    }

    /// Puts a request that ends at `end` into the window. An empty key is none.
    #[inline(always)]
    fn push<'a>(&self, window: &mut Window<'a>, connection: u32, end: usize, key: &'a [u8], what: Work<'a>) {
        self.push_hashed(window, connection, end, key, self.executor.hash(key), what);
    }

    /// The same, for a key whose item has this hash.
    #[inline(always)]
    fn push_hashed<'a>(
        &self,
        window: &mut Window<'a>,
        connection: u32,
        end: usize,
        key: &'a [u8],
        hash: KeyHash,
        what: Work<'a>,
    ) {
        let at = match key {
            [] => LookupStage::Absent,
            _ => LookupStage::Prefetched(self.executor.lookup().prefetch_bucket(hash)),
        };
        window.push(WindowOp { connection, end, hash, key, at, what });
    }

    /// Puts keys of a retrieval into the window. Returns whether the window is full before the line's end.
    fn gather_keys<'a>(
        &self,
        keys: &mut Keys<'a>,
        read: KeyRead,
        end: usize,
        connection: u32,
        window: &mut Window<'a>,
    ) -> bool {
        let lookup = self.executor.lookup();
        while keys.len() > 0 {
            if window.is_full() {
                return true;
            }
            let Some(key) = keys.next() else { break };
            let hash = self.executor.hash(key);
            let at = LookupStage::Prefetched(lookup.prefetch_bucket(hash));
            let what = Work::Key(KeyRead { left: keys.len(), ..read });
            window.push(WindowOp { connection, end, hash, key, at, what });
        }
        false
    }

    // ---- executing ----

    /// Stages 2 and 3, and the values. Not inlined: its loops would take registers from those around it.
    #[inline(never)]
    fn look_up(&self, window: &mut Window<'_>) {
        let lookup = self.executor.lookup();
        for op in window.iter_mut() {
            if let LookupStage::Prefetched(bucket) = op.at {
                op.at = lookup.locate(op.hash, bucket);
            }
        }
        for op in window.iter_mut() {
            if let LookupStage::InSubBucket(below) = op.at {
                op.at = lookup.locate_below(op.hash, below).map_or(LookupStage::Absent, LookupStage::Matched);
            }
        }
        for op in window.iter() {
            if let (Some(seen), Work::Key(_) | Work::PacketGet { .. } | Work::RespKey(_)) =
                (op.at.tag_match(), &op.what)
            {
                lookup.prefetch_value(seen);
            }
        }
    }

    /// Prefetches what the end of present items changes. Most requests that are no retrieval replace or remove one.
    fn look_up_ends(&self, window: &Window<'_>) {
        let lookup = self.executor.lookup();
        for op in window {
            if let (Some(seen), Work::Request(_)) = (op.at.tag_match(), &op.what) {
                lookup.prefetch_end(seen);
            }
        }
    }

    /// Looks up everything in the window, then executes it in order.
    #[inline(always)]
    fn execute<'a>(&mut self, batch: &mut [Ready<'a, Connection>], window: &mut Window<'a>) {
        self.look_up(window);
        // The requests of one connection are alike: the first one stands for all.
        if window.first().is_some_and(|op| matches!(op.what, Work::Request(_))) {
            self.look_up_ends(window);
        }
        let mut hints = Hints { epoch: self.executor.epoch(), are_outdated: false };
        for op in window.iter() {
            let ready = &mut batch[op.connection as usize];
            // A connection whose output is full or that closed answers no more. Its requests stay in the input.
            if ready.connection.is_backed_up()
                || ready.connection.output.is_closing()
                || op.end <= ready.consumed
            {
                continue;
            }
            let answered_before = ready.connection.output.len();
            let progressed = match &op.what {
                Work::Key(read) => {
                    let hint = if hints.are_outdated || hints.epoch != self.executor.epoch() {
                        None
                    } else {
                        op.at.tag_match()
                    };
                    hints.are_outdated |= read.exptime.is_some();
                    self.execute_key(ready.connection, op, *read, hint)
                }
                Work::Request(request) => {
                    self.execute_request(ready.connection, request, op.hash, &mut hints)
                }
                Work::Upload(line) => {
                    hints.are_outdated = true;
                    self.begin_upload(ready.connection, line)
                }
                Work::Reject { error, swallow } => {
                    ready.connection.output.say(error);
                    ready.connection.swallow = *swallow;
                    Progressed::Request
                }
                Work::Close(error) => {
                    ready.connection.output.say(error);
                    ready.connection.output.close();
                    ready.connection.ends_unserved = true;
                    Progressed::Request
                }
                Work::PacketGet { .. } | Work::Packet(_) | Work::Refuse { .. } => {
                    self.execute_packet(ready.connection, op, &mut hints)
                }
                Work::RespKey(read) => {
                    let hint = op.at.tag_match().filter(|_| hints.are_valid(self.executor.epoch()));
                    self.execute_resp_key(ready.connection, op, *read, hint)
                }
                _ => self.execute_resp(ready, op, &mut hints),
            };
            if self.logs {
                log_progress(ready, op, progressed, answered_before);
            }
            self.hold_uncommitted(ready.connection);
            match (progressed, &op.what) {
                (Progressed::Request, _) => {
                    ready.consumed = op.end;
                    ready.connection.completed();
                }
                (Progressed::Key, Work::Key(read)) if ready.connection.is_backed_up() => {
                    ready.connection.rest_of_line = rest_of_line(ready, op, *read);
                }
                _ => {}
            }
        }
        if self.sampler.passes(window.len()) {
            self.sample(batch, window);
        }
        window.clear();
    }

    /// Looks at some keys of a window that was executed.
    #[cold]
    #[inline(never)]
    fn sample(&mut self, batch: &[Ready<'_, Connection>], window: &Window<'_>) {
        let Dispatcher { sampler, executor, key_rooms, .. } = self;
        sampler.each(window.len(), |at, stands_for, with_size| {
            let WindowOp { connection, hash, key, .. } = &window[at];
            let own_keys = batch[*connection as usize].connection.own_keys().filter(|_| !key.is_empty());
            let key = own_keys.and_then(|own| own.item_key(key, &mut key_rooms.own)).unwrap_or(key);
            // A login since may have given the connection other keys than the request was gathered with.
            if item_key::is_plain(key) && executor.hash(key) != *hash {
                return;
            }
            executor.note_sampled(*hash, key, stands_for, with_size);
        });
    }

    /// Executes one key of a retrieval.
    #[inline]
    fn execute_key(
        &mut self,
        connection: &mut Connection,
        op: &WindowOp<'_>,
        read: KeyRead,
        hint: Option<TagMatch>,
    ) -> Progressed {
        let touch = read.exptime.map(|exptime| ClientTime::now(self.executor.clock()).expiry(exptime));
        let get = Get { key: op.key, hash: op.hash, with_cas: read.with_cas, touch };
        let Connection { output, progress, .. } = connection;
        let reply = KeyReply { output, key: op.key, is_last: read.left == 0 };
        let is_answered = self.executor.get(progress, &get, hint, reply);
        if !is_answered {
            return Progressed::Waits;
        }
        connection.keys_done += 1;
        if read.left > 0 {
            connection.pause_if_due(KEYS_AT_ONCE);
            return Progressed::Key;
        }
        let class = if touch.is_some() { Class::Touch } else { Class::Get };
        self.executed[class as usize] += 1;
        Progressed::Request
    }

    /// Executes a request, unless it has to wait for flash first.
    #[inline]
    fn execute_request(
        &mut self,
        connection: &mut Connection,
        request: &Request<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        if !connection.may_do_all() {
            return self.execute_restricted(connection, &AnyRequest::Text(request.clone()), hints);
        }
        let Dispatcher { executor, key_rooms, executed, .. } = self;
        let (key, hash) = match memcached::decoded_key(request, &mut key_rooms.decoded) {
            Some(key) => (key, executor.hash(key)),
            None => (memcached::plain_key(request), hash),
        };
        let time = ClientTime::now(executor.clock());
        let command = memcached::command(request, key, hash, time, connection.output.len() > 0);
        execute_command(executor, executed, connection, &command, hints)
    }

    /// After an operation: what it wrote may have to be durable before its reply is sent.
    #[inline]
    fn hold_uncommitted(&self, connection: &mut Connection) {
        if let Some(until) = self.executor.take_commit() {
            connection.output.hold(until);
        }
    }

    // ---- lists and logins ----

    /// Something that is not a request: the next piece of a large value or of a list, bytes to throw away, a login.
    fn take_turn(&mut self, ready: &mut Ready<'_, Connection>) {
        let own_keys = ready.connection.own_keys().cloned();
        let Connection { output, progress, swallow, .. } = &mut *ready.connection;
        match &progress.busy {
            Some(Busy::Sending(_)) if output.is_full() => {}
            Some(Busy::Sending(_)) => {
                self.executor.continue_sending(progress, output.room(), output.buffer());
            }
            Some(Busy::Promoting(_)) => {
                self.executor.continue_promoting(progress);
                if progress.busy.is_none()
                    && let Some(receiving) = progress.received.take()
                {
                    progress.busy = Some(Busy::Receiving(receiving));
                    self.continue_upload(ready);
                } else if progress.busy.is_none()
                    && let Some(taking) = progress.taken.take()
                {
                    progress.busy = Some(Busy::Taking(taking));
                    self.continue_argument(ready);
                }
            }
            Some(Busy::Receiving(_)) => self.continue_upload(ready),
            Some(Busy::Taking(_)) => self.continue_argument(ready),
            Some(Busy::Collecting(_)) if output.is_full() => {}
            Some(Busy::Collecting(_)) => self.continue_collecting(ready.connection),
            Some(Busy::Measuring { .. }) => self.executor.continue_measuring(progress),
            Some(Busy::Pausing) => progress.busy = None,
            Some(Busy::Listing { .. }) if output.is_full() => {}
            Some(Busy::Listing { .. }) => {
                let own_keys = own_keys.as_deref();
                self.executor
                    .continue_listing(progress, |page| memcached::compose_listing(output, page, own_keys));
            }
            // What a watcher sends means nothing.
            Some(Busy::Watching(watcher)) => {
                watcher.take(output.room(), output.buffer());
                *swallow = u64::MAX;
            }
            None if *swallow == 0 => self.log_in(ready),
            None => {}
        }
        self.hold_uncommitted(ready.connection);
        // Receiving may have failed just now. The rest of the value is then thrown away in the same turn.
        let left = (ready.input.len() - ready.consumed) as u64;
        let gone = left.min(ready.connection.swallow);
        ready.connection.swallow -= gone;
        ready.consumed += gone as usize;
    }

    fn log_in(&mut self, ready: &mut Ready<'_, Connection>) {
        let Connection { output, progress, .. } = &mut *ready.connection;
        let input = &ready.input[ready.consumed..];
        let admit = |user: Option<(&[u8], &[u8])>| self.executor.log_in(progress, user);
        let Login { consumed, input_wanted, rights } = memcached::log_in(input, output, admit);
        ready.consumed += consumed;
        ready.connection.input_wanted = input_wanted;
        ready.connection.set_rights(rights);
    }

    // ---- waiting for flash ----

    /// Begins to read from flash the keys of what follows in the input of a connection that waits. The keys of
    /// retrievals are looked up in groups, so that their cache misses overlap.
    fn read_ahead(&mut self, ready: &mut Ready<'_, Connection>) {
        if ready.connection.protocol() == Protocol::Resp {
            return self.read_ahead_of_resp(ready);
        }
        let Dispatcher { executor, key_rooms, parse_options, .. } = self;
        let (connection, input) = (&mut *ready.connection, ready.input);
        let own_keys = connection.own_keys().cloned();
        let (protocol, connection_access) = (connection.protocol(), connection.access());
        let progress = &mut connection.progress;
        if connection_access.is_none() || !executor.may_read_ahead(progress) {
            return;
        }
        let (mut at, mut skip, mut keys_seen) = (ready.consumed, connection.keys_done, 0);
        let mut group = KeyGroup::new();
        while keys_seen < KEYS_AHEAD {
            let next = memcached::next_request(protocol, &input[at..], parse_options);
            let Some(Next { request, consumed, upload_bytes: None }) = next else { break };
            if let Some(keys) = request.retrieved_keys() {
                for key in keys.skip(skip).take(KEYS_AHEAD - keys_seen) {
                    keys_seen += 1;
                    if let Some(own) = &own_keys {
                        let own_key = own.item_key(key, &mut key_rooms.own);
                        if !own_key.is_some_and(|key| executor.read_ahead(progress, executor.hash(key), key))
                        {
                            return;
                        }
                        continue;
                    }
                    if group.is_full() && !read_group_ahead(executor, progress, &mut group) {
                        return;
                    }
                    let hash = executor.hash(key);
                    // Memory is asked first.
                    executor.lookup().prefetch_bucket(hash);
                    group.push((hash, key));
                }
            } else {
                keys_seen += 1;
                if !read_group_ahead(executor, progress, &mut group) {
                    return;
                }
                let own_keys = own_keys.as_deref();
                let Some(command) = read_command(&request, executor, key_rooms, own_keys, false) else {
                    return;
                };
                if let Some((key, hash, _)) = command.operation.need()
                    && !executor.read_ahead(progress, hash, key)
                {
                    return;
                }
            }
            skip = 0;
            at += consumed;
        }
        read_group_ahead(executor, progress, &mut group);
    }

    /// At the end of a turn: reads ahead for connections that wait, remembers those whose replies are held back, and
    /// hands the reads that were begun to the device.
    fn settle_flash(&mut self, batch: &mut [Ready<'_, Connection>]) {
        for ready in batch.iter_mut() {
            if ready.connection.progress.waits {
                self.read_ahead(ready);
                self.executor.note_reads(&ready.connection.progress);
            }
            let is_all_consumed = ready.consumed == ready.input.len();
            let Connection { output, progress, .. } = &mut *ready.connection;
            if !progress.waits && is_all_consumed && progress.busy.is_none() {
                self.executor.forget_reads(progress);
            }
            if let Some(until) = output.newly_held_until() {
                self.executor.wake_when_durable(progress.id, until);
            }
        }
        self.executor.start_reads();
    }
}

impl Service for Dispatcher {
    type Connection = Connection;

    fn open(&mut self, peer: &Peer<'_>) -> Connection {
        let is_datagram = peer.transport == Transport::Udp;
        let protocol = match self.state.settings().protocol {
            _ if self.state.resp().is_port_of(peer) => Protocol::Resp,
            settings::Protocol::Auto => Protocol::Undecided,
            settings::Protocol::Ascii => Protocol::Text,
            settings::Protocol::Binary => Protocol::Binary,
        };
        self.executor.observe_open(peer);
        let access = self.state.access_without_login();
        Connection::new(&self.pool, peer, protocol, access, is_datagram)
    }

    fn serve(&mut self, batch: &mut [Ready<'_, Connection>]) {
        self.pass_gate();
        let started = Instant::now();
        self.executor.begin_turn(started);
        self.resp.begin_turn();
        self.logs = tracing::enabled!(target: "larder::requests", tracing::Level::DEBUG);
        let most = if self.state.buffers_are_tight() { OUTPUT_TIGHT_BYTES } else { OUTPUT_SOFT_BYTES };
        for ready in batch.iter_mut() {
            ready.connection.progress.waits = false;
            ready.connection.input_wanted = 0;
            ready.connection.output.limit(most);
        }
        let mut window = Window::new();
        let mut cursor = Cursor::new(batch, self.requests_per_share);
        loop {
            let gathered = self.gather(batch, &mut cursor, &mut window);
            self.execute(batch, &mut window);
            if let Some(ready) = batch.get(cursor.connection)
                && (ready.connection.is_backed_up() || ready.connection.output.is_closing())
            {
                // The rest of this connection's input waits.
                cursor.visit(batch, cursor.connection + 1);
            }
            if gathered == Gathered::Done && !cursor.begin_next_round(batch) {
                break;
            }
        }
        if self.executor.has_flash() {
            self.settle_flash(batch);
        }
        self.executor.quiesce();
        self.resp.leave_gate();
        let took_ns = started.elapsed().as_nanos() as u64;
        if self.resp.has_executed() {
            self.end_turn_of_resp(batch, took_ns);
        }
        let mut executed = 0;
        for (class, count) in self.executed.iter_mut().enumerate() {
            if *count > 0 {
                executed += *count as usize;
                self.latency.record(Class::ALL[class], took_ns, *count as u64);
                *count = 0;
            }
        }
        self.executor.count_unseen(executed);
        if batch.len() == 1 && executed > self.requests_per_share {
            // It would have given way so many times.
            self.state.count_yields((executed - 1) / self.requests_per_share);
        }
    }

    fn closed(&mut self, connection: Connection, reason: CloseReason) {
        if let Some(handle) = &connection.handle {
            self.executor.observe_close(handle, reason);
        }
        if let Some(session) = &connection.session {
            self.resp.state.clients.remove(&session.client);
        }
        self.executor.forget_connection(connection.progress);
    }

    fn wake_fd(&self) -> Option<RawFd> {
        self.executor.wake_fd()
    }

    fn woken(&mut self, wake: &mut Vec<ConnectionId>) {
        if let Some(committed) = self.executor.poll_flash(wake) {
            self.pool.set_committed(committed);
        }
        self.executor.wake_delayed(wake);
        self.executor.wake_watchers(wake);
    }

    fn has_news(&mut self) -> bool {
        self.executor.has_read_all()
    }

    fn before_wait(&mut self) {
        self.executor.offline();
    }

    fn after_wait(&mut self) {
        self.executor.online();
    }

    fn tick(&mut self, _now_s: u32) {
        self.executor.tick();
        self.sampler.tick();
        self.note_figures();
    }
}

/// What is left of the line whose key was just answered, and other keys of which follow.
#[cold]
fn rest_of_line(ready: &Ready<'_, Connection>, op: &WindowOp<'_>, read: KeyRead) -> Option<Box<RestOfLine>> {
    let key_end = op.key.as_ptr_range().end.addr() - ready.input.as_ptr().addr();
    Some(Box::new(RestOfLine { read, at: key_end - ready.consumed, end: op.end - ready.consumed }))
}

/// Begins to read the keys of a group. Returns whether there is room for more.
fn read_group_ahead(executor: &mut Executor, progress: &mut Progress, group: &mut KeyGroup<'_>) -> bool {
    executor.touch_flash(group.iter().map(|(hash, _)| *hash));
    group.drain(..).all(|(hash, key)| executor.read_ahead(progress, hash, key))
}

/// Reads a request that did not come through the window as an operation. `None` = its key is too long for an item.
#[cold]
fn read_command<'a>(
    request: &'a AnyRequest<'a>,
    executor: &Executor,
    rooms: &'a mut KeyRooms,
    own_keys: Option<&OwnKeys>,
    is_behind_others: bool,
) -> Option<Command<'a, AnyForm<'a>>> {
    let time = ClientTime::now(executor.clock());
    request.command(rooms, own_keys, |key| executor.hash(key), time, is_behind_others)
}

/// Executes a command, unless it has to wait for flash first.
#[inline(always)]
fn execute_command<F: Compose>(
    executor: &mut Executor,
    executed: &mut [u32; Class::ALL.len()],
    connection: &mut Connection,
    command: &Command<'_, F>,
    hints: &mut Hints,
) -> Progressed {
    let Connection { output, progress, .. } = connection;
    hints.are_outdated |= command.operation.may_change_items();
    let is_answered =
        executor.execute(progress, &command.operation, |outcome| command.reply.compose(output, outcome));
    if !is_answered {
        return Progressed::Waits;
    }
    if command.reply.is_meta() {
        executor.count_meta();
    }
    executed[command.class as usize] += 1;
    Progressed::Request
}
