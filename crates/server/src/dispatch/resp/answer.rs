//! A request of RESP is checked, executed, counted, and answered.
//!
//! What is about one item is executed here. Commands on several keys are in `many_keys.rs`, transactions in
//! `transaction.rs`, scripts in `script.rs`, commands on the connection in `connection_commands.rs`, on the server in
//! `server_commands.rs`.

use super::compose::{compose_outcome, say_error};
use super::errors;
use super::item_requests::item_operation;
use super::moment::Moment;
use super::own_request::own_request;
use super::request::{Call, after, class_of, is_below, words_of};
use super::session::{Connection, OwnRequest, Replies};
use super::tracking::set_changer;
use super::tracking_commands::end_caching;
use super::worker::Resp;
use crate::dispatch::execute::Executor;
use crate::dispatch::item_key::is_plain;
use crate::dispatch::operation::{ItemKey, Operation};
use crate::dispatch::own_keys::OwnKeys;
use crate::dispatch::window::{Hints, Progressed};
use larder_cache::KeyHash;
use larder_protocol::resp::{Args, Command, Fault, Id, Keys, Version, flags};
use std::time::Instant;

/// Commands with more arguments are measured for the slow log, though they are called fast.
const MANY_ARGS: usize = 64;
/// Room for a request that is kept for the next one, at most, bytes.
const ROOM_BYTES_KEPT: usize = 64 << 10;

impl Resp {
    /// The request breaks the rules of the wire.
    pub(super) fn refuse(&mut self, connection: &mut Connection, fault: Fault) -> Progressed {
        let error = errors::protocol_error(fault, self.request_bytes_max());
        self.counts().error(&error);
        say_error(&mut connection.output, &error);
        connection.output.close_failed();
        connection.ends_unserved = true;
        Progressed::Request
    }

    /// Executes a request.
    pub(super) fn execute_call(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        call: &Call<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        let queue = connection.session.as_ref().and_then(|session| session.transaction.as_ref());
        let chosen = queue.and_then(|transaction| transaction.own_keys.clone());
        // What a script does is rewritten command by command.
        let has_script = call.command.is_some_and(|command| command.keys == Keys::COUNTED);
        match chosen.unwrap_or_else(|| connection.own_keys().cloned()).filter(|_| !has_script) {
            None => self.answer_call(executor, connection, call, hash, hints),
            Some(own) => self.execute_own_call(executor, connection, &own, call.args, hints),
        }
    }

    /// Executes a request, and keeps its reply from being sent if the client does not want it.
    fn answer_call(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        call: &Call<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        let before = connection.output.len();
        if let Some(session) = &mut connection.session {
            session.begin_reply();
        }
        let progressed = self.check_and_run(executor, connection, call, hash, hints);
        let wants_all = connection.session.as_ref().is_none_or(|session| session.replies == Replies::All);
        if !wants_all || self.turn.tracks {
            self.end_unusual_call(executor, connection, call, before, progressed == Progressed::Request);
        }
        progressed
    }

    /// After a request of a client that does not want every reply, or while somebody tracks keys.
    #[cold]
    fn end_unusual_call(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        call: &Call<'_>,
        before: usize,
        is_done: bool,
    ) {
        set_changer(0);
        if is_done && !is_below(call.args, Id::Client) {
            end_caching(connection);
        }
        let is_about_subscriptions =
            call.command.is_some_and(|command| command.category == "pubsub" && command.has(flags::NOSCRIPT));
        match &mut connection.session {
            // That a subscription begins or ends is told to whoever wants no replies, too.
            Some(session) if is_about_subscriptions => session.end_reply(),
            _ => self.settle_reply(executor, connection, before, is_done),
        }
    }

    /// Takes back what was composed of a reply that the client does not want. `is_done`: the request is answered.
    pub(super) fn settle_reply(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        before: usize,
        is_done: bool,
    ) {
        let Connection { session: Some(session), output, progress, .. } = connection else { return };
        if session.replies == Replies::All {
            return;
        }
        output.truncate(before);
        executor.stop_sending(progress);
        session.unfinished.collecting = None;
        if is_done {
            session.end_reply();
        }
    }

    /// Checks a request in the order of Redis, and queues or executes it.
    fn check_and_run(
        &mut self,
        executor: &mut Executor,
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
                connection.output.close_failed();
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
                self.counts().rejected(command.id);
            }
            self.counts().error(&error);
            say_error(&mut connection.output, &error);
            return Progressed::Request;
        }
        let Some(command) = command else { return Progressed::Request };
        let leaves_transaction =
            matches!(command.id, Id::Exec | Id::Discard | Id::Reset | Id::Quit | Id::Multi | Id::Watch);
        if session.transaction.is_some() && !leaves_transaction {
            return self.queue(connection, call);
        }
        if !self.forget_left_over(executor, connection, command, call.args) {
            return Progressed::Waits;
        }
        let started = self.is_measured(command, call.args).then(Instant::now);
        let before = connection.output.len();
        let progressed = self.run(executor, connection, command, call.args, hash, hints);
        if progressed == Progressed::Request {
            self.settle_call(executor, connection, command, call.args, before, started);
        }
        progressed
    }

    /// After a request was executed: it is counted, and remembered if it was slow.
    pub(super) fn settle_call(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
        before: usize,
        started: Option<Instant>,
    ) {
        self.count(command.id, 1);
        if let Some(session) = &mut connection.session {
            session.count(command.id);
        }
        executor.count_time(class_of(command));
        if let Some(text) = connection.output.bytes().get(before..).and_then(|reply| reply.strip_prefix(b"-"))
        {
            self.counts().failed(command.id);
            self.counts().error(text);
        }
        let Some(us) = started.map(|started| started.elapsed().as_micros() as u64) else { return };
        if self.shared.is_slow(us)
            && !command.has(flags::SKIP_SLOWLOG)
            && let Some(session) = &connection.session
        {
            let report = session.client.report();
            self.shared.remember_slow(us, args, report.remote, report.told.name);
        }
    }

    /// Whether the time of a request is taken: of those that take no constant time, or of all if short times count as
    /// slow.
    fn is_measured(&self, command: &Command, args: Args<'_>) -> bool {
        let is_short = command.has(flags::FAST) || matches!(command.id, Id::Set | Id::Setex | Id::Psetex);
        !is_short || args.len() > MANY_ARGS || self.turn.measures_all
    }

    /// Executes a request that was checked.
    pub(super) fn run(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        if self.turn.tracks {
            self.note_request(executor, connection, command, args);
        }
        match command.id {
            Id::Mget | Id::Mset | Id::Del | Id::Unlink | Id::Exists | Id::Touch => {
                hints.are_outdated |= command.has(flags::WRITE);
                self.run_on_each_key(executor, connection, command, args)
            }
            Id::Msetnx => {
                hints.are_outdated = true;
                self.set_all_or_none(executor, connection, command, args)
            }
            Id::Rename | Id::Renamenx | Id::Copy | Id::Move => {
                hints.are_outdated = true;
                self.copy_item(executor, connection, command, args)
            }
            Id::Swapdb => {
                hints.are_outdated = true;
                self.exchange_databases(executor, connection, args)
            }
            Id::Exec => {
                hints.are_outdated = true;
                if let Some(session) = &mut connection.session {
                    self.note_client(session, command.id);
                }
                self.execute_transaction(executor, connection)
            }
            Id::Eval | Id::EvalRo | Id::Evalsha | Id::EvalshaRo => {
                hints.are_outdated = true;
                self.run_script(executor, connection, command, args)
            }
            _ if command.keys.step == 0 || command.id == Id::Watch || command.has(flags::COLLECTION) => {
                self.run_on_others(executor, connection, command, args, hash, hints)
            }
            _ => self.run_on_item(executor, connection, command, args, hash, hints),
        }
    }

    /// Executes a request on collections, or on the server.
    #[inline(never)]
    fn run_on_others(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        if command.has(flags::COLLECTION) {
            return self.run_on_collections(executor, connection, command, args, hash, hints);
        }
        hints.are_outdated = true;
        self.run_on_server(executor, connection, command, args)
    }

    /// Executes a request on one item.
    #[inline]
    fn run_on_item(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        let Resp { rooms: [room, _], decimal, .. } = self;
        // The key of a subcommand stands behind its word, and was not looked up ahead.
        let is_below = command.keys.first > 1;
        let words = words_of(after(args, if is_below { 2 } else { 1 }));
        let key = words.first().copied().unwrap_or_default();
        let item = match is_plain(key) && !is_below {
            true => ItemKey { key, hash, head: &[] },
            false => room.item_key(key, |key| executor.hash(key)),
        };
        let moment = Moment::new(executor.now_ms(), executor.clock());
        let operation = item_operation(command, &words, [item, item], moment, decimal);
        let (mut operation, form) = match operation {
            Ok(operation) => operation,
            Err(error) => {
                say_error(&mut connection.output, &error);
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
            executor.execute(progress, &operation, |outcome| compose_outcome(form, output, version, outcome));
        if is_answered { Progressed::Request } else { Progressed::Waits }
    }

    /// Executes a request of a user with a namespace. One on many keys is rewritten once, however often it has
    /// to go on.
    fn execute_own_call(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        own: &OwnKeys,
        args: Args<'_>,
        hints: &mut Hints,
    ) -> Progressed {
        let goes_on = connection.keys_done > 0;
        let kept = connection.session.as_mut().and_then(|session| session.own_request.take());
        let mut kept = kept.filter(|_| goes_on);
        let mut room = std::mem::take(&mut self.own_request);
        let call = Call::of(match &kept {
            Some(request) => Args::new(&request.bytes, args.len()),
            None => own_request(own, args, args.len(), &mut room),
        });
        let hash = executor.hash(call.plain_key());
        let progressed = self.answer_call(executor, connection, &call, hash, hints);
        if progressed != Progressed::Request && connection.keys_done > 0 {
            if kept.is_none() {
                kept = OwnRequest::new(std::mem::take(&mut room), self.server.buffers());
            }
            if let Some(session) = &mut connection.session {
                session.own_request = kept;
            }
        }
        if room.capacity() <= ROOM_BYTES_KEPT {
            self.own_request = room;
        }
        progressed
    }
}
