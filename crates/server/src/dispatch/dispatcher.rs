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

use super::connection::Connection;
use super::execute::{Executor, Received, UploadEnd, UploadStart};
use super::operation::{Get, Operation};
use super::outcome::Outcome;
use super::output::{OUTPUT_SOFT_BYTES, OUTPUT_TIGHT_BYTES, Pool};
use super::progress::{Busy, Progress};
use super::protocols::{self, ClientTime, Command, GetForm, KeyReply, Login, UPLOAD_END};
use super::state::ServerState;
use crate::io::{ConnectionId, Peer, Ready, Service, Transport};
use crate::latency::{Class, WorkerLatency};
use arrayvec::ArrayVec;
use larder_cache::{KEY_BYTES_MAX, KeyHash, LookupStage, TagMatch, Worker};
use larder_protocol::{Keys, ParseOptions, Request, Step};
use std::mem;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Keys whose memory accesses are overlapped. Twice as many would still fit the first-level cache with their buckets
/// and records; more would push each other out.
const WINDOW_OPS: usize = 32;
/// The longest part of a line that is logged, in bytes.
const LOGGED_BYTES_MAX: usize = 300;
/// Keys that are read ahead from flash for a connection that waits, at most.
const KEYS_AHEAD: usize = 256;

/// One worker's dispatcher.
pub struct Dispatcher {
    executor: Executor,
    state: Arc<ServerState>,
    latency: Arc<WorkerLatency>,
    pool: Rc<Pool>,
    parse_options: ParseOptions,
    /// Room for one decoded key.
    key_buffer: Box<[u8; KEY_BYTES_MAX]>,
    /// How many requests of each class the present turn executed.
    executed: [u32; Class::ALL.len()],
    /// How many requests of one connection are executed before another connection has its turn (`-R`).
    requests_per_share: usize,
    /// Whether every request is logged (`-vv`).
    logs: bool,
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
    /// The line of a storage request whose value follows in pieces.
    Upload(&'a [u8]),
    /// A request refused by the parser.
    Reject { error: &'static str, swallow: u64 },
    /// The connection is closed with this reply, or without a word.
    Close(&'static str),
}

type Window<'a> = ArrayVec<WindowOp<'a>, WINDOW_OPS>;
/// Keys that are read ahead from flash together.
type KeyGroup<'a> = ArrayVec<(KeyHash, &'a [u8]), 16>;

/// Where gathering stands: which connection, how far into its input, and the rest of a retrieval's line.
#[derive(Default)]
struct Cursor<'a> {
    connection: usize,
    at: usize,
    keys: Option<(Keys<'a>, KeyRead, usize)>,
    /// How many requests of the connection may still come before the next connection has its turn. Every key of a
    /// multiget counts, but its line is read to the end.
    share_left: usize,
    /// The length of the window at which that many are in it, or at which it is full.
    window_stop: usize,
    /// Whether every connection has had its share, and those that gave way have their next.
    is_later_round: bool,
    /// Whether a connection gave way in this round.
    has_next_round: bool,
}

/// What a retrieval wants of a key, beside its value.
#[derive(Clone, Copy)]
struct KeyRead {
    /// The CAS number too.
    with_cas: bool,
    /// The item gets this expiry.
    exptime: Option<i32>,
    /// No key of the line follows.
    is_last: bool,
    form: GetForm,
}

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

impl Dispatcher {
    /// A dispatcher over one worker of the cache.
    pub fn new(worker: Worker, state: Arc<ServerState>, latency: Arc<WorkerLatency>) -> Dispatcher {
        let executor = Executor::new(worker, state.clone(), latency.clone());
        let parse_options =
            ParseOptions { whole_bytes_max: executor.whole_value_bytes_max(), ..ParseOptions::default() };
        Dispatcher {
            executor,
            requests_per_share: state.settings().requests_per_event as usize,
            state,
            latency,
            pool: Rc::default(),
            parse_options,
            key_buffer: Box::new([0; KEY_BYTES_MAX]),
            executed: [0; Class::ALL.len()],
            logs: false,
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
            let must_execute = self.gather_connection(ready, cursor, window);
            cursor.share_left = cursor.share_left.saturating_sub(window.len() - before);
            if must_execute {
                return Gathered::Execute;
            }
            self.visit(batch, cursor, cursor.connection + 1);
        }
        Gathered::Done
    }

    /// Moves the cursor to the next connection that has its turn, from the number `from` on.
    fn visit(&self, batch: &mut [Ready<'_, Connection>], cursor: &mut Cursor<'_>, from: usize) {
        cursor.connection = from;
        if cursor.is_later_round {
            let next =
                batch.iter_mut().skip(from).position(|ready| mem::take(&mut ready.connection.gave_way));
            cursor.connection = next.map_or(batch.len(), |steps| from + steps);
        }
        cursor.at = batch.get(cursor.connection).map_or(0, |ready| ready.consumed);
        cursor.keys = None;
        // A connection that is alone has nobody to give way to.
        cursor.share_left = if batch.len() > 1 { self.requests_per_share } else { usize::MAX };
    }

    /// A connection has had its share. If it has more input, it has another turn in the next round.
    #[cold]
    fn give_way(&self, ready: &mut Ready<'_, Connection>, cursor: &mut Cursor<'_>) {
        if cursor.at < ready.input.len() {
            ready.connection.gave_way = true;
            cursor.has_next_round = true;
            self.state.count_yields(1);
        }
    }

    /// Fills the window with the requests of one connection. Stage 1 of every key happens here. Returns whether the
    /// window has to be executed before more of this connection is read.
    #[inline]
    fn gather_connection<'a>(
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
                if !window.is_full() {
                    self.give_way(ready, cursor);
                }
                return window.is_full();
            }
            let nothing_ahead = cursor.at == ready.consumed;
            if ready.connection.needs_turn() {
                // A turn of its own, once the requests before it are executed.
                if !nothing_ahead {
                    return true;
                }
                self.take_turn(ready);
                let progressed = ready.consumed > cursor.at;
                cursor.at = ready.consumed;
                if ready.connection.needs_turn() && !progressed {
                    return false;
                }
                continue;
            }
            if ready.connection.output.is_closing()
                || ready.connection.is_backed_up()
                || cursor.at >= input.len()
            {
                return false;
            }
            let (what, consumed, ends_window) =
                match protocols::next_request(&input[cursor.at..], &self.parse_options) {
                    Step::NeedMore { at_least } => {
                        ready.connection.input_wanted = at_least;
                        return false;
                    }
                    Step::Request { request: Request::Get(get), consumed } => {
                        let mut keys = get.keys;
                        if nothing_ahead && ready.connection.keys_done > 0 {
                            keys.by_ref().take(ready.connection.keys_done).for_each(drop);
                        }
                        let read = KeyRead {
                            with_cas: get.with_cas,
                            exptime: get.exptime,
                            is_last: false,
                            form: GetForm::Classic,
                        };
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
            self.push(window, cursor.connection as u32, cursor.at, what);
            // What follows a data block still to come, or a refusal, is known only once that is dealt with.
            if ends_window {
                return true;
            }
        }
    }

    /// Puts a request that ends at `end` into the window.
    #[inline(always)]
    fn push<'a>(&self, window: &mut Window<'a>, connection: u32, end: usize, what: Work<'a>) {
        let key = match &what {
            Work::Request(request) => protocols::plain_key(request),
            _ => &[],
        };
        let hash = self.executor.hash(key);
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
            let what = Work::Key(KeyRead { is_last: keys.len() == 0, ..read });
            window.push(WindowOp { connection, end, hash, key, at, what });
        }
        false
    }

    // ---- executing ----

    /// Stages 2 and 3, and the values.
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
            if let (Some(seen), Work::Key(_)) = (op.at.tag_match(), &op.what) {
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
            };
            if self.logs {
                log_progress(ready, op, progressed, answered_before);
            }
            self.hold_uncommitted(ready.connection);
            if progressed == Progressed::Request {
                ready.consumed = op.end;
                ready.connection.completed();
            }
        }
        window.clear();
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
        let reply = KeyReply { form: read.form, output, key: op.key, is_last: read.is_last };
        let is_answered = self.executor.get(progress, &get, hint, reply);
        if !is_answered {
            return Progressed::Waits;
        }
        connection.keys_done += 1;
        if !read.is_last {
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
        let Dispatcher { executor, key_buffer, executed, .. } = self;
        let Connection { output, progress, .. } = connection;
        let (key, hash) = match protocols::decoded_key(request, key_buffer) {
            Some(key) => (key, executor.hash(key)),
            None => (protocols::plain_key(request), hash),
        };
        let time = ClientTime::now(executor.clock());
        let command = protocols::command(request, key, hash, time, output.len() > 0);
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

    /// After an operation: what it wrote may have to be durable before its reply is sent.
    #[inline]
    fn hold_uncommitted(&self, connection: &mut Connection) {
        if let Some(until) = self.executor.take_commit() {
            connection.output.hold(until);
        }
    }

    // ---- large values, lists and logins ----

    /// A storage line whose value is longer than what is waited for in one piece. Only the line is consumed, and
    /// nothing if the present item has to come from flash first.
    fn begin_upload(&mut self, connection: &mut Connection, line: &[u8]) -> Progressed {
        let Dispatcher { executor, key_buffer, parse_options, .. } = self;
        let Step::Upload { request, body_bytes, .. } = protocols::next_request(line, parse_options) else {
            return Progressed::Request;
        };
        let command = read_command(&request, executor, key_buffer);
        let Operation::Store(item) = &command.operation else { return Progressed::Request };
        match executor.begin_upload(&mut connection.progress, &command.operation, item, line) {
            UploadStart::Waits => return Progressed::Waits,
            UploadStart::Receiving => {}
            UploadStart::Refused(outcome) => {
                command.reply.compose(&mut connection.output, Outcome::Stored(outcome));
                connection.swallow = u64::from(body_bytes) + UPLOAD_END.len() as u64;
            }
        }
        Progressed::Request
    }

    /// Takes in what has come of a large value. With its last byte, the value is stored.
    fn continue_upload(&mut self, ready: &mut Ready<'_, Connection>) {
        let Dispatcher { executor, key_buffer, parse_options, logs, .. } = self;
        let input = &ready.input[ready.consumed..];
        let (receiving, taken, how) =
            match executor.receive(&mut ready.connection.progress, input, UPLOAD_END) {
                Received::Part(taken) => {
                    ready.consumed += taken;
                    return;
                }
                Received::Ended(receiving, taken, how) => (receiving, taken, how),
            };
        ready.consumed += taken;
        if let UploadEnd::NoMemory { missing_bytes } = how {
            ready.connection.swallow = (missing_bytes + UPLOAD_END.len()) as u64;
        }
        let line = receiving.request.clone();
        let Step::Upload { request, .. } = protocols::next_request(&line, parse_options) else { return };
        let command = read_command(&request, executor, key_buffer);
        let Operation::Store(item) = &command.operation else { return };
        let progress = &mut ready.connection.progress;
        let receiving = match how {
            UploadEnd::Complete => executor.bring_present_of_upload(progress, receiving, &command.operation),
            UploadEnd::BadEnd | UploadEnd::NoMemory { .. } => Some(receiving),
        };
        let Some(receiving) = receiving else { return };
        let upload = receiving.upload;
        let answered_before = ready.connection.output.len();
        let outcome = executor.finish_upload(upload, item, how);
        command.reply.compose(&mut ready.connection.output, outcome);
        if *logs {
            log_request(ready.connection, &line, answered_before);
        }
    }

    /// Something that is not a request: the next piece of a large value or of a list, bytes to throw away, a login.
    fn take_turn(&mut self, ready: &mut Ready<'_, Connection>) {
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
                }
            }
            Some(Busy::Receiving(_)) => self.continue_upload(ready),
            Some(Busy::Listing { .. }) if output.is_full() => {}
            Some(Busy::Listing { .. }) => {
                self.executor.continue_listing(progress, |page| protocols::compose_listing(output, page));
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

    fn log_in(&self, ready: &mut Ready<'_, Connection>) {
        let connection = &mut *ready.connection;
        let input = &ready.input[ready.consumed..];
        let admit = |user: Option<(&[u8], &[u8])>| self.executor.log_in(user);
        let Login { consumed, input_wanted, is_admitted } =
            protocols::log_in(input, &mut connection.output, admit);
        ready.consumed += consumed;
        connection.input_wanted = input_wanted;
        connection.is_authenticated = is_admitted;
    }

    // ---- waiting for flash ----

    /// Begins to read from flash the keys of what follows in the input of a connection that waits. The keys of
    /// retrievals are looked up in groups, so that their cache misses overlap.
    fn read_ahead(&mut self, ready: &mut Ready<'_, Connection>) {
        let Dispatcher { executor, key_buffer, parse_options, .. } = self;
        let (connection, input) = (&mut *ready.connection, ready.input);
        let progress = &mut connection.progress;
        if !connection.is_authenticated || !executor.may_read_ahead(progress) {
            return;
        }
        let (mut at, mut skip, mut keys_seen) = (ready.consumed, connection.keys_done, 0);
        let mut group = KeyGroup::new();
        while keys_seen < KEYS_AHEAD {
            let step = protocols::next_request(&input[at..], parse_options);
            let Step::Request { request, consumed } = step else { break };
            if let Request::Get(get) = &request {
                for key in get.keys.clone().skip(skip).take(KEYS_AHEAD - keys_seen) {
                    keys_seen += 1;
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
                let command = read_command(&request, executor, key_buffer);
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
        Connection::new(&self.pool, peer.id, !self.state.wants_login(), is_datagram)
    }

    fn serve(&mut self, batch: &mut [Ready<'_, Connection>]) {
        let started = Instant::now();
        self.executor.begin_turn(started);
        self.logs = tracing::enabled!(target: "larder::requests", tracing::Level::DEBUG);
        let is_tight = self.state.buffers_are_tight();
        let output_bytes_max = if is_tight { OUTPUT_TIGHT_BYTES } else { OUTPUT_SOFT_BYTES };
        for ready in batch.iter_mut() {
            ready.connection.progress.waits = false;
            ready.connection.output.limit(output_bytes_max);
        }
        let mut window = Window::new();
        let mut cursor = Cursor::default();
        self.visit(batch, &mut cursor, 0);
        loop {
            let gathered = self.gather(batch, &mut cursor, &mut window);
            self.execute(batch, &mut window);
            if let Some(ready) = batch.get(cursor.connection)
                && (ready.connection.is_backed_up() || ready.connection.output.is_closing())
            {
                // The rest of this connection's input waits.
                let next = cursor.connection + 1;
                self.visit(batch, &mut cursor, next);
            }
            if gathered == Gathered::Done {
                if !mem::take(&mut cursor.has_next_round) {
                    break;
                }
                cursor.is_later_round = true;
                self.visit(batch, &mut cursor, 0);
            }
        }
        if self.executor.has_flash() {
            self.settle_flash(batch);
        }
        self.executor.quiesce();
        let took_ns = started.elapsed().as_nanos() as u64;
        let mut executed = 0;
        for (class, count) in self.executed.iter_mut().enumerate() {
            if *count > 0 {
                executed += *count as usize;
                self.latency.record(Class::ALL[class], took_ns, *count as u64);
                *count = 0;
            }
        }
        if batch.len() == 1 && executed > self.requests_per_share {
            // It would have given way so many times.
            self.state.count_yields((executed - 1) / self.requests_per_share);
        }
    }

    fn closed(&mut self, connection: Connection) {
        self.executor.forget_connection(connection.progress);
    }

    fn wake_fd(&self) -> Option<RawFd> {
        self.executor.wake_fd()
    }

    fn woken(&mut self, wake: &mut Vec<ConnectionId>) {
        if let Some(committed) = self.executor.poll_flash(wake) {
            self.pool.set_committed(committed);
        }
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
    }
}

/// Begins to read the keys of a group. Returns whether there is room for more.
fn read_group_ahead(executor: &mut Executor, progress: &mut Progress, group: &mut KeyGroup<'_>) -> bool {
    executor.touch_flash(group.iter().map(|(hash, _)| *hash));
    group.drain(..).all(|(hash, key)| executor.read_ahead(progress, hash, key))
}

/// Reads a request that did not come through the window as an operation.
#[cold]
fn read_command<'a>(
    request: &'a Request<'a>,
    executor: &Executor,
    key_buffer: &'a mut [u8; KEY_BYTES_MAX],
) -> Command<'a> {
    let key = match protocols::decoded_key(request, key_buffer) {
        Some(key) => key,
        None => protocols::plain_key(request),
    };
    let (hash, time) = (executor.hash(key), ClientTime::now(executor.clock()));
    protocols::command(request, key, hash, time, false)
}

/// Logs what was executed. What waits for the rest of its value, or for flash, is logged when it is answered.
#[cold]
fn log_progress(
    ready: &Ready<'_, Connection>,
    op: &WindowOp<'_>,
    progressed: Progressed,
    answered_before: usize,
) {
    let connection = &*ready.connection;
    let is_answered = match (&op.what, progressed) {
        (_, Progressed::Waits) => false,
        (Work::Key(_), _) => true,
        _ => connection.progress.busy.is_none(),
    };
    if is_answered || connection.output.len() > answered_before {
        let asked = match op.what {
            Work::Key(_) => op.key,
            _ => &ready.input[ready.consumed..op.end],
        };
        log_request(connection, asked, answered_before);
    }
}

/// Logs the first line of what was asked, or the key of a retrieval, and the first line of the reply. A value is never
/// logged, unless it is a counter.
#[cold]
fn log_request(connection: &Connection, asked: &[u8], answered_before: usize) {
    let first_line = |text: &[u8]| {
        let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
        line[..line.len().min(LOGGED_BYTES_MAX)].trim_ascii_end().escape_ascii().to_string()
    };
    let answered = connection.output.bytes().get(answered_before..).unwrap_or_default();
    tracing::debug!(target: "larder::requests",
        "{}: {} -> {}", connection.progress.id, first_line(asked), first_line(answered));
}
