//! The dispatcher's part in RESP: requests are read ahead, checked and executed.
//!
//! `GET` and the keys of `MGET` take the way of memcached's retrievals, stage by stage. Every other request is a
//! [`Call`]. What concerns the connection is in `client.rs`, the server in `server.rs`, transactions in
//! `transaction.rs`, commands on several keys in `several.rs`, values that arrive in parts in `argument.rs`.

use super::{
    Cursor, Dispatcher, Hints, KEYS_AHEAD, KeyGroup, Progressed, RESP_KEYS_AT_ONCE, RespRead, Window,
    WindowOp, Work, read_group_ahead,
};
use crate::dispatch::connection::Connection;
use crate::dispatch::decimal::Decimal;
use crate::dispatch::fleet::{Fleet, Route};
use crate::dispatch::item_key::{KeyRoom, is_plain};
use crate::dispatch::operation::{Get, ItemKey, Operation};
use crate::dispatch::outcome::{EditOutcome, Looked, Outcome};
use crate::dispatch::protocol::Protocol;
use crate::dispatch::resp::config::Server;
use crate::dispatch::resp::errors::{self, Error};
use crate::dispatch::resp::{self, Moment, info};
use crate::dispatch::resp::shared::{RespState, WorkerCounts};
use crate::dispatch::resp::session::{Replies, Session};
use crate::dispatch::users::Access;
use crate::io::Ready;
use crate::latency::Class;
use larder_cache::{KeyHash, StoreOutcome, TagMatch};
use larder_protocol::resp::limits::KEY_BYTES_MAX;
use larder_protocol::resp::{
    Args, Command, Fault, Id, Keys, Options, Resume, Step, Version, flags, inline_args, lookup, parse,
    slot_of,
};
use smallvec::SmallVec;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

/// One part in this many of the memory for connection buffers is the most that one request may take.
const REQUEST_SHARE: u64 = 4;
/// A request of up to so many bytes is always waited for.
const REQUEST_BYTES_MIN: usize = 256 << 10;
/// Commands with more arguments are measured for the slow log, though they are called fast.
const MANY_ARGS: usize = 64;

/// One worker's side of RESP.
pub(super) struct RespWorker {
    pub(super) state: Arc<RespState>,
    pub(super) number: usize,
    /// Room for the keys of a request that items cannot have as they are.
    pub(super) rooms: [KeyRoom; 2],
    pub(super) decimal: Option<Decimal>,
    /// Room for a line of words, rewritten.
    pub(super) line: Vec<u8>,
    /// Room for a request of a user with a namespace, rewritten.
    pub(super) own_request: Vec<u8>,
    pub(super) fleet: Option<Arc<Fleet>>,
    fleet_version: u64,
    /// The time of every request is taken.
    measures_all: bool,
    /// How often each command was executed in the present turn.
    executed: Box<[u32; Id::COUNT]>,
    /// The commands of which that is not 0.
    touched: Vec<Id>,
    random: u64,
}

/// A request that is no plain `GET`.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    /// `None` = there is no such command.
    pub(super) command: Option<&'static Command>,
    pub(super) args: Args<'a>,
    /// The argument behind the name, if it is a key.
    key: Option<&'a [u8]>,
}

impl<'a> Call<'a> {
    #[inline]
    pub(super) fn of(args: Args<'a>) -> Call<'a> {
        let mut words = args;
        let command = words.next().and_then(lookup);
        let key = command.filter(|command| command.keys.first == 1).and_then(|_| words.next());
        Call { command, args, key }
    }

    /// The words that are logged: the command and its first key.
    pub(super) fn shown(&self) -> Vec<u8> {
        [self.args.clone().next().unwrap_or_default(), self.key.unwrap_or_default()].join(&b' ')
    }

    /// The first key, if an item can have it as it is.
    #[inline]
    pub(super) fn plain_key(&self) -> &'a [u8] {
        self.key.filter(|key| is_plain(key)).unwrap_or_default()
    }
}

impl RespWorker {
    pub(super) fn new(state: Arc<RespState>, number: usize) -> RespWorker {
        use std::hash::{BuildHasher, Hasher};
        RespWorker {
            state,
            number,
            rooms: Default::default(),
            decimal: None,
            line: Vec::new(),
            own_request: Vec::new(),
            fleet: None,
            fleet_version: 0,
            measures_all: false,
            executed: Box::new([0; Id::COUNT]),
            touched: Vec::new(),
            random: std::hash::RandomState::new().build_hasher().finish() | 1,
        }
    }

    /// A turn begins: the fleet may have changed, or what is measured.
    #[inline]
    pub(super) fn begin_turn(&mut self) {
        self.measures_all = self.state.measures_all();
        let version = self.state.fleet_version();
        if version != self.fleet_version {
            (self.fleet, self.fleet_version) = (self.state.fleet(), version);
        }
    }

    /// The worker executes no request any more: another may be alone.
    #[inline]
    pub(super) fn leave_gate(&self) {
        self.state.gate.leave(self.number);
    }

    /// What this worker counts.
    pub(super) fn counts(&self) -> &WorkerCounts {
        self.state.worker(self.number)
    }

    /// Whether nothing has to be known of a retrieval of this key but the key.
    #[inline]
    fn is_fast(&self, key: &[u8]) -> bool {
        !self.measures_all
            && is_plain(key)
            && self.fleet.as_ref().is_none_or(|fleet| fleet.is_plainly_here(key))
    }

    /// Whether requests of RESP were executed in the present turn.
    #[inline]
    pub(super) fn has_executed(&self) -> bool {
        !self.touched.is_empty()
    }

    #[inline]
    pub(super) fn count(&mut self, id: Id, calls: u32) {
        let executed = &mut self.executed[id as usize];
        if *executed == 0 {
            self.touched.push(id);
        }
        *executed += calls;
    }

    /// The turn is over. Its time is shared out evenly among the commands, those of other protocols included.
    fn end_turn(&mut self, took_ns: u64, all: u64) {
        let counts = self.state.worker(self.number);
        for id in self.touched.drain(..) {
            let calls = u64::from(std::mem::take(&mut self.executed[id as usize]));
            counts.executed(id as usize, calls, took_ns * calls / all.max(1) / 1000);
        }
    }

    /// The next number by chance (xorshift; Marsaglia, Journal of Statistical Software 2003).
    pub(super) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Dispatcher {
    /// How requests of a connection are read.
    pub(super) fn resp_options(&self, connection: &Connection) -> Options {
        let in_transaction = connection.session.as_ref().is_some_and(|session| session.transaction.is_some());
        Options {
            // A queued command has to be here as a whole.
            whole_bytes_max: if in_transaction { usize::MAX } else { self.parse_options.whole_bytes_max },
            request_bytes_max: self.request_bytes_max(),
            is_authenticated: connection.access().is_some(),
        }
    }

    /// The longest request, in bytes.
    pub(super) fn request_bytes_max(&self) -> usize {
        let limit = self.state.buffers().map_or(0, |buffers| buffers.limit_bytes());
        ((limit / REQUEST_SHARE) as usize).max(REQUEST_BYTES_MIN)
    }

    /// Waits while another worker is alone.
    #[inline]
    pub(super) fn pass_gate(&mut self) {
        while !self.resp.state.gate.enter(self.resp.number) {
            self.executor.offline();
            self.resp.state.gate.wait();
            self.executor.online();
        }
    }

    /// At the end of a turn in which requests of RESP were executed.
    pub(super) fn end_turn_of_resp(&mut self, batch: &mut [Ready<'_, Connection>], took_ns: u64) {
        let executed = self.executed.iter().map(|count| u64::from(*count)).sum();
        self.resp.end_turn(took_ns, executed);
        for ready in batch {
            if let Some(session) = &mut ready.connection.session
                && session.commands > 0
                && let Some(last) = session.last_command
            {
                self.note_client(session, last);
            }
        }
    }

    /// About once a second, by one of the workers: figures over time.
    pub(super) fn note_figures(&self) {
        if self.resp.number == 0 {
            let io = self.state.io_snapshot();
            self.resp.state.take_sample(io.bytes_read, io.bytes_written);
            let server = Server { state: &self.state, resp: &self.resp.state, cache: self.executor.cache() };
            self.resp.state.note_peak(info::used_bytes(&server));
        }
    }

    /// A connection begins to speak RESP.
    pub(super) fn begin_session(&self, connection: &mut Connection) {
        let client = self.resp.state.clients.add(connection.handle.clone());
        connection.set_protocol(Protocol::Resp);
        connection.session = Some(Box::new(Session::new(client)));
    }

    // ---- gathering ----

    /// Fills the window with the requests of one connection. As [`Dispatcher::gather_text`].
    #[inline]
    pub(super) fn gather_resp<'a>(
        &mut self,
        ready: &mut Ready<'a, Connection>,
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a>,
    ) -> bool {
        if ready.connection.session.is_none() {
            self.begin_session(ready.connection);
        }
        let input: &'a [u8] = ready.input;
        loop {
            if let Some((mut args, end)) = cursor.args.take() {
                while args.len() > 0 {
                    if window.is_full() {
                        cursor.args = Some((args, end));
                        return true;
                    }
                    let Some(key) = args.next() else { break };
                    let read = RespRead { of_several: true, is_last: args.len() == 0 };
                    self.push(window, cursor.connection as u32, end, key, Work::RespKey(read));
                }
                cursor.at = end;
            }
            if window.len() >= cursor.window_stop {
                return self.stop_gathering(ready, cursor, window);
            }
            if let ControlFlow::Break(has_to_execute) = self.come_to_request(ready, cursor) {
                return has_to_execute;
            }
            let nothing_ahead = cursor.at == ready.consumed;
            let connection = &mut *ready.connection;
            let options = self.resp_options(connection);
            let Some(session) = &mut connection.session else { return false };
            if session.client.is_killed() {
                connection.output.close();
                return false;
            }
            let mut unknown = Resume::default();
            let resume = if nothing_ahead { &mut session.resume } else { &mut unknown };
            let rest = &input[cursor.at..];
            let (call, consumed) = match parse(rest, &options, resume) {
                Step::NeedMore { at_least } => {
                    connection.input_wanted = at_least;
                    return false;
                }
                Step::Get { key, consumed } => {
                    let is_fast = session.is_plain && connection.access().is_some() && self.resp.is_fast(key);
                    if is_fast {
                        cursor.at += consumed;
                        let read = RespRead { of_several: false, is_last: true };
                        self.push(window, cursor.connection as u32, cursor.at, key, Work::RespKey(read));
                        continue;
                    }
                    // The two arguments begin behind the line that counts them.
                    (Call::of(Args::new(&rest[b"*2\r\n".len()..consumed], 2)), consumed)
                }
                Step::Request { args, consumed } => (Call::of(args), consumed),
                Step::Inline { line, consumed } => {
                    cursor.at += consumed;
                    self.push(window, cursor.connection as u32, cursor.at, &[], Work::Line(line));
                    return true;
                }
                Step::Nothing { consumed } => {
                    // It belongs to what comes before it, if that is not executed yet.
                    cursor.at += consumed;
                    match nothing_ahead {
                        true => {
                            ready.consumed = cursor.at;
                            connection.completed();
                        }
                        false => self.push(window, cursor.connection as u32, cursor.at, &[], Work::Nothing),
                    }
                    continue;
                }
                Step::Upload(upload) => {
                    cursor.at += upload.consumed;
                    self.push(window, cursor.connection as u32, cursor.at, &[], Work::Argument(upload));
                    return true;
                }
                Step::Fault(fault) => {
                    cursor.at = input.len();
                    self.push(window, cursor.connection as u32, cursor.at, &[], Work::Fault(fault));
                    return true;
                }
            };
            let at = cursor.at + consumed;
            let session = connection.session.as_deref();
            if call.command.is_some_and(|command| command.id == Id::Mget)
                && self.is_fast_mget(connection, session, call.args)
            {
                let mut keys = after(call.args, 1);
                let count = keys.len();
                // The head of the array counts as the first key.
                let done = if nothing_ahead { connection.keys_done } else { 0 };
                if let Some(session) = &mut connection.session {
                    session.place = None;
                }
                if done == 0 {
                    self.push(window, cursor.connection as u32, at, &[], Work::ArrayHead(count));
                }
                keys.by_ref().take(done.saturating_sub(1)).for_each(drop);
                cursor.args = Some((keys, at));
                continue;
            }
            cursor.at = at;
            let (key, number) = (call.plain_key(), cursor.connection as u32);
            match connection.own_keys() {
                None => self.push(window, number, at, key, Work::Call(call)),
                Some(_) => self.push_own(connection, window, (number, at), key, Work::Call(call)),
            }
            // What follows may depend on it.
            if call.command.is_none_or(|command| command.has(flags::SESSION)) {
                return true;
            }
        }
    }

    /// Whether the keys of an `MGET` may be looked up one by one.
    fn is_fast_mget(&self, connection: &Connection, session: Option<&Session>, mut args: Args<'_>) -> bool {
        args.next();
        args.len() > 0
            && session.is_some_and(|session| session.is_plain)
            && connection.access().is_some()
            && self.resp.fleet.as_ref().is_none_or(|fleet| fleet.has_one_slot(args))
            && args.all(|key| self.resp.is_fast(key))
    }

    // ---- executing ----

    /// Executes one key of a `GET` or `MGET`.
    #[inline]
    pub(super) fn execute_resp_key(
        &mut self,
        connection: &mut Connection,
        op: &WindowOp<'_>,
        read: RespRead,
        hint: Option<TagMatch>,
    ) -> Progressed {
        let get = Get { key: op.key, hash: op.hash, with_cas: false, touch: None };
        let Connection { output, progress, session, .. } = connection;
        let Some(session) = session else { return Progressed::Request };
        let reply = resp::ValueReply { output, version: session.version, of_several: read.of_several };
        if !self.executor.get(progress, &get, hint, reply) {
            return Progressed::Waits;
        }
        connection.keys_done += 1;
        if !read.is_last {
            connection.pause_if_due(RESP_KEYS_AT_ONCE);
            return Progressed::Key;
        }
        let command = if read.of_several { Id::Mget } else { Id::Get };
        session.count(command);
        self.resp.count(command, 1);
        self.executed[Class::Get as usize] += 1;
        Progressed::Request
    }

    /// Executes what is no key of a retrieval.
    pub(super) fn execute_resp(
        &mut self,
        ready: &mut Ready<'_, Connection>,
        op: &WindowOp<'_>,
        hints: &mut Hints,
    ) -> Progressed {
        let progressed = self.execute_work(ready.connection, &op.what, op.hash, hints);
        if progressed == Progressed::Key
            && let (Work::Call(call), Some(session)) = (&op.what, &mut ready.connection.session)
        {
            // The request goes on later, and need not be read again then.
            session.resume = Resume::whole(call.args, op.end - ready.consumed);
        }
        progressed
    }

    fn execute_work(
        &mut self,
        connection: &mut Connection,
        work: &Work<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        match work {
            Work::Call(call) => match connection.own_keys().cloned() {
                None => self.execute_call(connection, call, hash, hints),
                Some(own) => self.execute_own_call(connection, &own, call.args, hints),
            },
            Work::ArrayHead(count) => {
                larder_protocol::resp::compose::array_head(connection.output.buffer(), *count);
                connection.keys_done += 1;
                Progressed::Key
            }
            Work::Line(line) => {
                let mut room = std::mem::take(&mut self.resp.line);
                let progressed = match inline_args(line, &mut room) {
                    Ok(args) if args.len() == 0 => Progressed::Request,
                    Ok(args) => {
                        let call = Call::of(args);
                        let hash = self.executor.hash(call.plain_key());
                        self.execute_work(connection, &Work::Call(call), hash, hints)
                    }
                    Err(fault) => self.refuse(connection, fault),
                };
                self.resp.line = room;
                progressed
            }
            Work::Argument(upload) => {
                hints.are_outdated = true;
                self.begin_argument(connection, upload)
            }
            Work::Fault(fault) => self.refuse(connection, *fault),
            _ => Progressed::Request,
        }
    }

    /// The request breaks the rules of the wire.
    fn refuse(&mut self, connection: &mut Connection, fault: Fault) -> Progressed {
        let error = errors::protocol_error(fault, self.request_bytes_max());
        self.resp.counts().error(&error);
        resp::say_error(&mut connection.output, &error);
        connection.output.close();
        connection.ends_unserved = true;
        Progressed::Request
    }

    /// Executes a request, and keeps its reply from being sent if the client does not want it.
    pub(super) fn execute_call(
        &mut self,
        connection: &mut Connection,
        call: &Call<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        let before = connection.output.len();
        if let Some(session) = &mut connection.session {
            session.begin_reply();
        }
        let progressed = self.answer(connection, call, hash, hints);
        self.settle_reply(connection, before, progressed == Progressed::Request);
        progressed
    }

    /// Takes back what was composed of a reply that the client does not want. `is_done`: the request is answered.
    pub(super) fn settle_reply(&mut self, connection: &mut Connection, before: usize, is_done: bool) {
        let Connection { session: Some(session), output, progress, .. } = connection else { return };
        if session.replies == Replies::All {
            return;
        }
        output.truncate(before);
        self.executor.stop_sending(progress);
        if is_done {
            session.end_reply();
        }
    }

    /// Checks a request in the order of Redis, and queues or executes it.
    fn answer(
        &mut self,
        connection: &mut Connection,
        call: &Call<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        let checked = match (connection.keys_done, call.command) {
            // It was checked when its first keys were executed.
            (1.., Some(command)) => Ok(command),
            _ => self.checked(connection, call, call.args.len()),
        };
        let (command, error) = match checked {
            Ok(command) => (Some(command), None),
            Err(Some(error)) => (call.command, Some(error)),
            // Somebody sends HTTP: nothing is answered.
            Err(None) => {
                connection.output.close();
                return Progressed::Request;
            }
        };
        let Some(session) = &mut connection.session else { return Progressed::Request };
        if let Some(mut error) = error {
            if call.command.is_some_and(|command| command.id == Id::Exec) {
                // An error that sends the client on stays as it is.
                if !errors::is_redirection(&error) {
                    error = errors::exec_aborted(&error);
                }
                session.end_transaction();
            }
            if let Some(transaction) = &mut session.transaction {
                transaction.is_broken = true;
            }
            if let Some(command) = command {
                self.resp.counts().rejected(command.id);
            }
            self.resp.counts().error(&error);
            resp::say_error(&mut connection.output, &error);
            return Progressed::Request;
        }
        let Some(command) = command else { return Progressed::Request };
        let leaves_transaction =
            matches!(command.id, Id::Exec | Id::Discard | Id::Reset | Id::Quit | Id::Multi | Id::Watch);
        if session.transaction.is_some() && !leaves_transaction {
            return self.queue(connection, call);
        }
        if !self.forget_left_over(connection, command, call.args) {
            return Progressed::Waits;
        }
        let started = self.is_measured(command, call.args).then(Instant::now);
        let before = connection.output.len();
        let progressed = self.run(connection, command, call.args, hash, hints);
        if progressed == Progressed::Request {
            self.settle_call(connection, command, call.args, before, started);
        }
        progressed
    }

    /// After a request was executed: it is counted, and remembered if it was slow.
    pub(super) fn settle_call(
        &mut self,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
        before: usize,
        started: Option<Instant>,
    ) {
        self.resp.count(command.id, 1);
        if let Some(session) = &mut connection.session {
            session.count(command.id);
        }
        self.executed[class_of(command) as usize] += 1;
        if let Some(text) = connection.output.bytes().get(before..).and_then(|reply| reply.strip_prefix(b"-"))
        {
            self.resp.counts().failed(command.id);
            self.resp.counts().error(text);
        }
        let Some(us) = started.map(|started| started.elapsed().as_micros() as u64) else { return };
        if self.resp.state.is_slow(us)
            && !command.has(flags::SKIP_SLOWLOG)
            && let Some(session) = &connection.session
        {
            let report = session.client.report();
            self.resp.state.remember_slow(us, args, report.remote, report.told.name);
        }
    }

    /// Whether the time of a request is taken: of those that take no constant time, or of all if short times count as
    /// slow.
    fn is_measured(&self, command: &Command, args: Args<'_>) -> bool {
        let is_short = command.has(flags::FAST) || matches!(command.id, Id::Set | Id::Setex | Id::Psetex);
        !is_short || args.len() > MANY_ARGS || self.resp.measures_all
    }

    /// Whether a request of `count` arguments may be executed. The error is `None` if the connection is to be closed
    /// without a word.
    pub(super) fn checked(
        &self,
        connection: &Connection,
        call: &Call<'_>,
        count: usize,
    ) -> Result<&'static Command, Option<Error>> {
        let mut args = call.args;
        let name = args.next().unwrap_or_default();
        if connection.access().is_none() && !call.command.is_some_and(|command| command.has(flags::NO_AUTH)) {
            return Err(Some(errors::NO_AUTH));
        }
        let Some(mut command) = call.command else {
            let is_http = name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:");
            return Err((!is_http).then(|| errors::unknown_command(call.args)));
        };
        if !command.subcommands.is_empty()
            && let Some(word) = args.next()
        {
            command = command.subcommand(word).ok_or_else(|| errors::unknown_subcommand(command, word))?;
        }
        if !command.takes(count) {
            return Err(Some(errors::wrong_arity(command)));
        }
        let session = connection.session.as_ref();
        let in_transaction = session.is_some_and(|session| session.transaction.is_some());
        if in_transaction && command.has(flags::NO_MULTI) {
            return Err(Some(errors::not_in_transaction(command)));
        }
        let may_do_all = matches!(connection.access(), None | Some(Access::Full));
        if !may_do_all && (command.has(flags::WRITE) || command.has(flags::ADMIN) && !shows_only(command.id))
        {
            return Err(Some(errors::not_permitted(command)));
        }
        if connection.own_keys().is_some() && is_about_others(command) {
            return Err(Some(errors::about_others(command)));
        }
        if command.keys.step != 0 {
            let has_one = command.keys == Keys::ONE;
            let is_too_long = |key: &[u8]| key.len() > KEY_BYTES_MAX;
            if has_one && call.key.is_some_and(is_too_long)
                || !has_one && command.keys.of(call.args).any(is_too_long)
            {
                return Err(Some(errors::KEY_TOO_LONG));
            }
        }
        self.route(session.map(|session| &**session), command, call.args)?;
        Ok(command)
    }

    /// Whether the keys of a request are served here. The keys of an `EXEC` are those of what was queued.
    fn route(
        &self,
        session: Option<&Session>,
        command: &'static Command,
        args: Args<'_>,
    ) -> Result<(), Option<Error>> {
        let Some(fleet) = &self.resp.fleet else { return Ok(()) };
        let route = match (command.id, session.and_then(|session| session.transaction.as_ref())) {
            (Id::Exec, Some(transaction)) => fleet.route_slots(transaction.keys().map(slot_of)),
            _ => fleet.route_slots(command.keys.of(args).map(slot_of)),
        };
        Err(Some(match route {
            Route::Here => return Ok(()),
            Route::Moved { slot, node } => errors::made(fleet.moved(slot, node)),
            Route::CrossSlot => errors::CROSS_SLOT,
            Route::Nobody => errors::SLOT_NOT_SERVED,
        }))
    }

    /// Executes a request that was checked.
    pub(super) fn run(
        &mut self,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        match command.id {
            Id::Mget | Id::Mset | Id::Del | Id::Unlink | Id::Exists | Id::Touch => {
                hints.are_outdated |= command.has(flags::WRITE);
                self.run_on_each_key(connection, command, args)
            }
            Id::Msetnx => {
                hints.are_outdated = true;
                self.set_all_or_none(connection, command, args)
            }
            Id::Rename | Id::Renamenx | Id::Copy => {
                hints.are_outdated = true;
                self.copy_item(connection, command, args)
            }
            _ if command.keys.step == 0 || matches!(command.id, Id::Watch | Id::Move) => {
                hints.are_outdated = true;
                self.run_on_server(connection, command, args)
            }
            _ => self.run_on_item(connection, command, args, hash, hints),
        }
    }

    /// Executes a request on one item.
    fn run_on_item(
        &mut self,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        let Dispatcher { executor, resp: RespWorker { rooms, decimal, .. }, .. } = self;
        let [room, _] = rooms;
        // The key of a subcommand stands behind its word, and was not looked up ahead.
        let is_below = command.keys.first > 1;
        let words = words_of(after(args, if is_below { 2 } else { 1 }));
        let key = words.first().copied().unwrap_or_default();
        let item = match is_plain(key) && !is_below {
            true => ItemKey { key, hash, head: &[] },
            false => room.item_key(key, |key| executor.hash(key)),
        };
        let moment = Moment::new(executor.now_ms(), executor.clock());
        let operation = resp::item_operation(command, &words, [item, item], moment, decimal);
        let (mut operation, form) = match operation {
            Ok(operation) => operation,
            Err(error) => {
                resp::say_error(&mut connection.output, &error);
                return Progressed::Request;
            }
        };
        let Connection { output, progress, session, .. } = connection;
        let version = session.as_ref().map_or(Version::Resp2, |session| session.version);
        if let (Operation::Look(look), Some(session)) = (&mut operation, session) {
            look.leaves_no_trace |= session.leaves_no_trace;
        }
        hints.are_outdated |= operation.may_change_items();
        let is_answered =
            executor.execute(progress, &operation, |outcome| resp::compose(form, output, version, outcome));
        if is_answered { Progressed::Request } else { Progressed::Waits }
    }
}

impl Dispatcher {
    /// Begins to read from flash the keys of what follows in the input of a connection that waits.
    pub(super) fn read_ahead_of_resp(&mut self, ready: &mut Ready<'_, Connection>) {
        let options = self.resp_options(ready.connection);
        let Dispatcher { executor, resp: RespWorker { rooms: [room, _], .. }, .. } = self;
        let (connection, input) = (&mut *ready.connection, ready.input);
        let is_admitted = connection.access().is_some();
        let own_keys = connection.own_keys().cloned();
        let progress = &mut connection.progress;
        if !is_admitted || !executor.may_read_ahead(progress) {
            return;
        }
        // The head of an array may be among what is done: one key is then read again.
        let (mut at, mut skip, mut keys_seen) = (ready.consumed, connection.keys_done.saturating_sub(1), 0);
        let mut group = KeyGroup::new();
        while keys_seen < KEYS_AHEAD {
            let (call, consumed) = match parse(&input[at..], &options, &mut Resume::default()) {
                Step::Get { consumed, .. } => {
                    (Call::of(Args::new(&input[at + b"*2\r\n".len()..at + consumed], 2)), consumed)
                }
                Step::Request { args, consumed } => (Call::of(args), consumed),
                Step::Nothing { consumed } => {
                    at += consumed;
                    continue;
                }
                _ => break,
            };
            let wanted = call.command.filter(|command| depends_on_items(command.id, call.args.len()));
            for key in wanted.into_iter().flat_map(|command| command.keys.of(call.args)).skip(skip) {
                keys_seen += 1;
                let own_key = own_keys.as_ref().map(|own| [own.prefix(), key].concat());
                if let Some(own_key) = own_key {
                    let item = room.item_key(&own_key, |key| executor.hash(key));
                    if !executor.read_ahead(progress, item.hash, item.key) {
                        return;
                    }
                } else if is_plain(key) {
                    if group.is_full() && !read_group_ahead(executor, progress, &mut group) {
                        return;
                    }
                    let hash = executor.hash(key);
                    executor.lookup().prefetch_bucket(hash);
                    group.push((hash, key));
                } else {
                    let item = room.item_key(key, |key| executor.hash(key));
                    if !executor.read_ahead(progress, item.hash, item.key) {
                        return;
                    }
                }
            }
            keys_seen += 1;
            skip = 0;
            at += consumed;
        }
        read_group_ahead(executor, progress, &mut group);
    }
}

/// Whether a command needs the items that its keys have. A plain `SET` does not.
fn depends_on_items(id: Id, args: usize) -> bool {
    match id {
        Id::Set => args > 3,
        Id::Setex | Id::Psetex | Id::Mset => false,
        _ => true,
    }
}

/// Whether a command for administrators only shows something.
fn shows_only(id: Id) -> bool {
    matches!(
        id,
        Id::ClientList
            | Id::ConfigGet
            | Id::LatencyDoctor
            | Id::LatencyHistogram
            | Id::LatencyHistory
            | Id::LatencyLatest
            | Id::SlowlogGet
            | Id::SlowlogLen
            | Id::Role
            | Id::Lastsave
            | Id::ClusterReplicas
    )
}

/// Whether a command changes the server, or shows keys of others.
fn is_about_others(command: &Command) -> bool {
    // `CLIENT NO-EVICT` changes nothing at all.
    let is_harmless = shows_only(command.id) || command.id == Id::ClientNoEvict;
    command.id == Id::SlowlogGet || command.has(flags::ADMIN) && !is_harmless
}

/// The class under which the time of a command is counted.
pub(super) fn class_of(command: &Command) -> Class {
    match command.id {
        Id::Get | Id::Mget | Id::Getrange | Id::Substr | Id::Strlen => Class::Get,
        Id::Set
        | Id::Setnx
        | Id::Setex
        | Id::Psetex
        | Id::Mset
        | Id::Msetnx
        | Id::Getset
        | Id::Append
        | Id::Setrange
        | Id::Setbit => Class::Set,
        Id::Del | Id::Unlink | Id::Getdel | Id::Delex | Id::Delifeq => Class::Delete,
        Id::Incr | Id::Decr | Id::Incrby | Id::Decrby | Id::Incrbyfloat => Class::Arith,
        Id::Expire | Id::Pexpire | Id::Expireat | Id::Pexpireat | Id::Persist | Id::Getex | Id::Touch => {
            Class::Touch
        }
        _ => Class::Other,
    }
}

/// Whether an outcome says that something was done or is there.
pub(super) fn counts_as_one(outcome: &Outcome<'_>) -> bool {
    matches!(
        outcome,
        Outcome::Stored(StoreOutcome::Stored { .. })
            | Outcome::Edited(EditOutcome::Done)
            | Outcome::Looked(Looked::Present | Looked::Number(_) | Looked::Value(_))
    )
}

/// The arguments of a request on one item. Seldom there are more than a few.
pub(super) type Words<'a> = SmallVec<[&'a [u8]; 8]>;

/// Arguments, one by one.
#[inline]
pub(super) fn words_of(args: Args<'_>) -> Words<'_> {
    args.collect()
}

/// The words of a request that follow its first ones.
#[inline]
pub(super) fn after(mut args: Args<'_>, count: usize) -> Args<'_> {
    (0..count).for_each(|_| _ = args.next());
    args
}
